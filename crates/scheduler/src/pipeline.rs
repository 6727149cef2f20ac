//! The way of the engine's commands to the API server: many at once, bounded, in order for each pod.
//!
//! Every command that has an outcome gets exactly one, whatever happens: refusals, timeouts, a lost lease, a panic.
//! `api` sends and judges answers, the other parts carry out one kind of command each. Spec: scheduler-core 4, 6.13,
//! 9.11.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use koord_engine::engine::command::{ReservationChange, ReservationWrite};
use koord_engine::engine::input::Outcome;
use koord_engine::engine::{Command, Input};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use crate::driver::Hands;
use crate::events::Notes;
use crate::extender::Http;
use crate::load::Load;
use crate::metrics::SchedulerMetrics;

mod api;
mod bind;
mod preempt;
mod prepare;
mod reservation;
mod status;

use api::Api;

/// Commands carried out at once. The server and etcd gain from company up to here; each is a connection of its own, for
/// the client speaks HTTP/1.1.
const AT_ONCE: usize = 64;

/// Says whether we may write now: whether we lead at this very instant.
pub type MayWrite = Arc<dyn Fn() -> bool + Send + Sync>;

/// What commands are carried out with.
pub struct Means {
    pub client: kube::Client,
    pub load: Arc<Load>,
    pub notes: Notes,
    pub metrics: SchedulerMetrics,
    pub may_write: MayWrite,
    /// In the order they are configured: bindings name them by their place.
    pub extenders: Vec<Arc<Http>>,
}

/// Takes commands from the engine's thread.
pub struct Pipeline {
    commands: mpsc::UnboundedSender<Command>,
    load: Arc<Load>,
    notes: Notes,
}

impl Hands for Pipeline {
    fn take(&mut self, command: Command) {
        match command {
            Command::Tell(note) => self.notes.tell(note),
            Command::Warn(text) => tracing::warn!("{text}"),
            command => {
                self.load.begin_write();
                // The other side ends only after this one.
                if self.commands.send(command).is_err() {
                    self.load.end_write();
                }
            }
        }
    }
}

/// The pipeline's end for the engine's thread, the worker that must run, and where outcomes come out.
pub fn pipeline(means: Means) -> (Pipeline, Worker, mpsc::UnboundedReceiver<Input>) {
    let (commands, queue) = mpsc::unbounded_channel();
    let (outcomes, results) = mpsc::unbounded_channel();
    let (freed, free) = mpsc::unbounded_channel();
    let front = Pipeline { commands, load: means.load.clone(), notes: means.notes.clone() };
    let shared = Arc::new(Shared {
        api: Api::new(means.client),
        load: means.load,
        notes: means.notes,
        metrics: means.metrics,
        may_write: means.may_write,
        extenders: means.extenders,
        places: Semaphore::new(AT_ONCE),
        outcomes,
        freed,
    });
    (front, Worker { queue, free, shared, lanes: HashMap::new() }, results)
}

/// Carries commands out.
pub struct Worker {
    queue: mpsc::UnboundedReceiver<Command>,
    free: mpsc::UnboundedReceiver<Box<str>>,
    shared: Arc<Shared>,
    /// Pods with a command on its way, and what waits behind it.
    lanes: HashMap<Box<str>, VecDeque<Command>>,
}

struct Shared {
    api: Api,
    load: Arc<Load>,
    notes: Notes,
    metrics: SchedulerMetrics,
    may_write: MayWrite,
    extenders: Vec<Arc<Http>>,
    places: Semaphore,
    outcomes: mpsc::UnboundedSender<Input>,
    freed: mpsc::UnboundedSender<Box<str>>,
}

impl Worker {
    /// Runs until the engine's thread has ended and everything it wanted is done.
    pub async fn run(mut self) {
        let tasks = TaskTracker::new();
        let mut is_open = true;
        while is_open || !self.lanes.is_empty() {
            tokio::select! {
                command = self.queue.recv(), if is_open => match command {
                    Some(command) => self.line_up(command, &tasks),
                    None => is_open = false,
                },
                Some(uid) = self.free.recv() => self.go_on(uid, &tasks),
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    fn line_up(&mut self, command: Command, tasks: &TaskTracker) {
        let uid = pod_of(&command);
        match self.lanes.get_mut(&uid) {
            Some(lane) => lane.push_back(command),
            None => {
                self.lanes.insert(uid.clone(), VecDeque::new());
                self.begin(uid, command, tasks);
            }
        }
    }

    /// A pod's command has ended: its next one follows.
    fn go_on(&mut self, uid: Box<str>, tasks: &TaskTracker) {
        let Some(lane) = self.lanes.get_mut(&uid) else { return };
        match lane.pop_front() {
            Some(command) => self.begin(uid, command, tasks),
            None => _ = self.lanes.remove(&uid),
        }
    }

    fn begin(&self, uid: Box<str>, command: Command, tasks: &TaskTracker) {
        let shared = self.shared.clone();
        let lane = Lane { uid, shared: shared.clone() };
        tasks.spawn(async move {
            shared.carry_out(command).await;
            drop(lane);
        });
    }
}

/// A pod's turn; the next one comes when it is dropped, even by a panic.
struct Lane {
    uid: Box<str>,
    shared: Arc<Shared>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.shared.load.end_write();
        // The worker outlives every lane.
        let _ = self.shared.freed.send(std::mem::take(&mut self.uid));
    }
}

fn pod_of(command: &Command) -> Box<str> {
    match command {
        Command::Prepare(plan) => plan.pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default(),
        Command::Bind(binding) => binding.pod.uid.clone(),
        Command::PatchStatus(patch) => patch.pod.uid.clone(),
        Command::Preempt(order) => order.preemptor.uid.clone(),
        Command::Unmark(mark) => mark.pod.uid.clone(),
        Command::WriteReservation(write) => write.uid.clone(),
        Command::DeleteReservation { uid, .. } => uid.clone(),
        Command::Tell(_) | Command::Warn(_) => Box::default(),
    }
}

/// An outcome that is owed to the engine; one that is never given becomes the failure.
struct Owed<'s> {
    shared: &'s Shared,
    uid: String,
    /// The failure that it is unless something else is said.
    failure: Option<Outcome>,
}

impl Owed<'_> {
    fn pay(mut self, outcome: Outcome) {
        self.failure = None;
        self.send(outcome);
    }

    fn send(&mut self, outcome: Outcome) {
        let input = Input::Outcome { uid: std::mem::take(&mut self.uid), outcome };
        // The engine's thread may have ended; then nobody needs it.
        let _ = self.shared.outcomes.send(input);
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        if let Some(failure) = self.failure.take() {
            self.send(failure);
        }
    }
}

const CUT_OFF: &str = "the request was cut off";
const NOT_LEADING: &str = "this scheduler does not lead any more";

impl Shared {
    fn owe(&self, uid: &str, failure: fn(String) -> Outcome) -> Owed<'_> {
        Owed { shared: self, uid: uid.to_owned(), failure: Some(failure(CUT_OFF.to_owned())) }
    }

    /// An error when somebody else may lead by now.
    fn check_lead(&self) -> Result<(), String> {
        if (self.may_write)() { Ok(()) } else { Err(NOT_LEADING.to_owned()) }
    }

    /// A refusal has no outcome: the next attempt says it again.
    async fn write_reservation(&self, write: &ReservationWrite) {
        if let ReservationChange::Unschedulable { .. } = write.change {
            if let Err(message) = reservation::write(self, write).await {
                tracing::warn!(reservation = %write.name, error = message, "condition could not be written");
            }
            return;
        }
        let owed = self.owe(&write.uid, |message| Outcome::WriteFailed { message });
        owed.pay(match reservation::write(self, write).await {
            Ok(()) => Outcome::Written,
            Err(message) => Outcome::WriteFailed { message },
        });
    }

    async fn carry_out(&self, command: Command) {
        let _place = self.places.acquire().await;
        match command {
            Command::Bind(binding) => {
                let owed = self.owe(&binding.pod.uid, |message| Outcome::BindFailed { message });
                let begun = Instant::now();
                let result = bind::bind(self, &binding).await;
                self.metrics.carried_out("Bind", &binding.scheduler, result.is_ok(), begun.elapsed());
                owed.pay(match result {
                    Ok(()) => Outcome::Bound,
                    Err(message) => Outcome::BindFailed { message },
                });
            }
            Command::Prepare(plan) => {
                let uid = plan.pod.as_ref().map(|pod| pod.uid.as_ref()).unwrap_or_default();
                let owed = self.owe(uid, |message| Outcome::PrepareFailed { message });
                owed.pay(match prepare::prepare(self, &plan).await {
                    Ok(()) => Outcome::Prepared,
                    Err(message) => Outcome::PrepareFailed { message },
                });
            }
            Command::PatchStatus(patch) => status::patch(self, &patch).await,
            Command::Preempt(order) => {
                let owed = self.owe(&order.preemptor.uid, |message| Outcome::PreemptFailed { message });
                let begun = Instant::now();
                let result = preempt::preempt(self, &order).await;
                self.metrics.preemption_took(result.is_ok(), begun.elapsed());
                owed.pay(match result {
                    Ok(()) => Outcome::Preempted,
                    Err(message) => Outcome::PreemptFailed { message },
                });
            }
            Command::Unmark(mark) => reservation::unmark(self, &mark).await,
            Command::WriteReservation(write) => self.write_reservation(&write).await,
            Command::DeleteReservation { name, uid } => reservation::delete(self, &name, &uid).await,
            // Neither takes this way.
            Command::Tell(_) | Command::Warn(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
