//! The engine's own thread: takes what the watches bring, tries pods, hands its commands on, answers questions.
//!
//! The one owner of the engine. It never waits for the network: commands go to the pipeline, outcomes come back as
//! letters. Pods are tried only while we lead, everything was listed, and the pipeline has room.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_engine::engine::dump::Dumps;
use koord_engine::engine::input::Outcome;
use koord_engine::engine::measure::Measured as Times;
use koord_engine::engine::{Command, Input};
use koord_engine::time::Time;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::brain::{Attempt, Attempted, Brain, Gauges, View};
use crate::clock::Clock;
use crate::dump::diagnosis::Diagnosis;
use crate::dump::{self, Switches};
use crate::load::Load;
use crate::metrics::SchedulerMetrics;
use crate::monitor::{Monitor, Overdue};

/// Letters taken before pods are tried again, so that neither starves the other.
const LETTERS_AT_ONCE: usize = 512;

/// Pods tried before letters are taken again.
const STEPS_AT_ONCE: usize = 32;

/// Letters that may wait: enough for the watches to stay busy, few enough that a large list is not held twice.
const LETTERS_MAX: usize = 2048;

/// A wish to be woken that has passed and yet stands is granted no more often than this.
const WAKE_MIN: Duration = Duration::from_millis(10);

/// How often somebody looks at the clock though nothing happens: slow pods are to be noticed.
const WAKE_MAX: Duration = Duration::from_secs(1);

/// So many writes on their way bring outcomes soon and often: they are taken together, some at a time, for waking up
/// for each one costs more than the work itself.
const CROWDED: usize = 48;
const GATHERING: Duration = Duration::from_millis(4);

/// What the engine's thread may be told. The full list of what can wake it, besides time and outcomes.
#[derive(Debug)]
pub enum Letter {
    Input(Input),
    /// A watch has delivered its first list in full.
    Listed,
    /// We lead, so pods may be tried.
    Lead,
    Ask(View, oneshot::Sender<Option<Value>>),
    Measure(oneshot::Sender<Measured>),
}

/// What the metrics page needs of the engine's thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub gauges: Gauges,
    pub late: usize,
}

/// The way to the engine's thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk {
    letters: mpsc::Sender<Letter>,
    listed: watch::Receiver<usize>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scheduler is stopping")]
pub struct Stopping;

impl Desk {
    /// Sends a letter; waits while too many are on the desk. One that comes after the end is lost, as is all else.
    pub async fn send(&self, letter: Letter) {
        let _ = self.letters.send(letter).await;
    }

    /// What people ask. None when there is nothing under that name.
    pub async fn ask(&self, view: View) -> Result<Option<Value>, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.send(Letter::Ask(view, reply)).await;
        answer.await.map_err(|_| Stopping)
    }

    pub async fn measure(&self) -> Result<Measured, Stopping> {
        let (reply, answer) = oneshot::channel();
        self.send(Letter::Measure(reply)).await;
        answer.await.map_err(|_| Stopping)
    }

    /// How many watches have had their first list worked in.
    pub fn listed(&self) -> usize {
        *self.listed.borrow()
    }

    /// Waits until so many have.
    pub async fn all_listed(&self, watches: usize) {
        // An error means that the thread has ended, and then nobody asks any more.
        let _ = self.listed.clone().wait_for(|listed| *listed >= watches).await;
    }
}

/// Where commands go.
pub trait Hands: Send + 'static {
    /// Never waits; [`Load`] says how much is on its way.
    fn take(&mut self, command: Command);
}

/// What the thread works with.
pub struct Parts<B, H> {
    pub brain: B,
    pub hands: H,
    pub outcomes: mpsc::UnboundedReceiver<Input>,
    pub load: Arc<Load>,
    pub clock: Clock,
    pub monitor: Monitor,
    pub switches: Arc<Switches>,
    pub metrics: SchedulerMetrics,
    /// How many [`Letter::Listed`] must have come before pods are tried.
    pub watches: usize,
}

/// Starts the thread. It ends when `stop` is cancelled and what it has begun is done, or at once on `abandon`.
pub fn start<B: Brain, H: Hands>(
    parts: Parts<B, H>,
    stop: CancellationToken,
    abandon: CancellationToken,
) -> std::io::Result<(Desk, std::thread::JoinHandle<()>)> {
    let (letters, inbox) = mpsc::channel(LETTERS_MAX);
    let (listed, is_listed) = watch::channel(0);
    let runtime = Handle::current();
    let driver =
        Driver { parts, inbox, listed, leads: false, dumps: Dumps::default(), placed: HashMap::new() };
    let thread = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || driver.run(&runtime, &stop, &abandon))?;
    Ok((Desk { letters, listed: is_listed }, thread))
}

struct Driver<B, H> {
    parts: Parts<B, H>,
    inbox: mpsc::Receiver<Letter>,
    listed: watch::Sender<usize>,
    leads: bool,
    dumps: Dumps,
    /// Pods between their node's choice and their binding, by uid.
    placed: HashMap<Box<str>, Placed>,
}

/// What is remembered of a pod until its binding has an outcome.
struct Placed {
    scheduler: Box<str>,
    attempts: u32,
    /// Since it was first ready, when its node was chosen.
    waited: Duration,
    /// Since when what comes before the binding is being written.
    preparing: Option<Instant>,
}

impl<B: Brain, H: Hands> Driver<B, H> {
    fn run(mut self, runtime: &Handle, stop: &CancellationToken, abandon: &CancellationToken) {
        loop {
            let is_ending = stop.is_cancelled();
            if abandon.is_cancelled() || (is_ending && self.parts.load.writes() == 0) {
                break;
            }
            let took = self.take_letters();
            let stepped = !is_ending && self.schedule();
            self.hand_on();
            if took || stepped {
                continue;
            }
            if self.parts.load.writes() >= CROWDED {
                std::thread::sleep(GATHERING);
                continue;
            }
            runtime.block_on(self.wait(is_ending, stop, abandon));
            self.hand_on();
        }
        // Outcomes that came with the last write have events to tell.
        self.take_letters();
        self.hand_on();
    }

    /// Takes what is here; whether there was anything.
    fn take_letters(&mut self) -> bool {
        let now = self.parts.clock.now();
        let mut taken = 0;
        while taken < LETTERS_AT_ONCE {
            if let Ok(outcome) = self.parts.outcomes.try_recv() {
                self.take_input(now, outcome);
            } else if let Ok(letter) = self.inbox.try_recv() {
                self.take_letter(now, letter);
            } else {
                break;
            }
            taken += 1;
        }
        if self.parts.brain.wake_at(now).is_some_and(|at| at <= now) {
            self.parts.brain.take(now, Input::Tick);
        }
        for overdue in self.parts.monitor.look(now) {
            self.complain(&overdue);
        }
        self.measure();
        taken > 0
    }

    fn measure(&mut self) {
        let measured = self.parts.brain.measured();
        if measured != Times::default() {
            self.parts.metrics.measured(&measured);
        }
    }

    fn take_letter(&mut self, now: Time, letter: Letter) {
        match letter {
            Letter::Input(input) => self.take_input(now, input),
            Letter::Listed => self.listed.send_modify(|listed| *listed += 1),
            Letter::Lead => self.leads = true,
            // Whoever no longer waits for the answer has no need of it.
            Letter::Ask(view, reply) => _ = reply.send(self.parts.brain.view(now, &view)),
            Letter::Measure(reply) => {
                let gauges = self.parts.brain.gauges();
                _ = reply.send(Measured { gauges, late: self.parts.monitor.late(now) });
            }
        }
    }

    fn take_input(&mut self, now: Time, input: Input) {
        match &input {
            Input::Outcome { uid, outcome } => self.note_outcome(now, uid, outcome),
            Input::PodGone { uid, .. } | Input::ReservationGone { uid, .. } => {
                self.placed.remove(uid.as_str());
                self.parts.monitor.forget(uid);
            }
            // Nobody waits for a pod that is on its way out.
            Input::Pod { object } if object.metadata.deletion_timestamp.is_some() => {
                self.parts.monitor.forget(object.metadata.uid.as_deref().unwrap_or_default());
            }
            _ => {}
        }
        self.parts.brain.take(now, input);
    }

    fn note_outcome(&mut self, now: Time, uid: &str, outcome: &Outcome) {
        if let Outcome::Prepared | Outcome::PrepareFailed { .. } = outcome {
            self.note_prepared(uid, *outcome == Outcome::Prepared);
        }
        let is_bound = match outcome {
            Outcome::Bound => true,
            Outcome::BindFailed { .. } | Outcome::PrepareFailed { .. } => false,
            Outcome::Prepared | Outcome::Written | Outcome::WriteFailed { .. } => return,
            Outcome::Preempted => return self.parts.metrics.preempted(true),
            Outcome::PreemptFailed { .. } => return self.parts.metrics.preempted(false),
        };
        let (took, overdue) = self.parts.monitor.end(now, uid);
        if let Some(overdue) = overdue {
            self.complain(&overdue);
        }
        let (Some(took), Some(pod)) = (took, self.placed.remove(uid)) else { return };
        if is_bound {
            self.parts.metrics.bound(&pod.scheduler, pod.attempts, took, pod.waited + took);
        } else {
            self.parts.metrics.bind_failed(&pod.scheduler, took);
        }
    }

    /// What comes before a bind has been written, or not.
    fn note_prepared(&mut self, uid: &str, succeeded: bool) {
        let Some(pod) = self.placed.get_mut(uid) else { return };
        if let Some(begun) = pod.preparing.take() {
            self.parts.metrics.carried_out("PreBind", &pod.scheduler, succeeded, begun.elapsed());
        }
    }

    fn complain(&self, overdue: &Overdue) {
        self.parts.metrics.overdue(&overdue.scheduler);
        tracing::warn!(profile = %overdue.scheduler, "{overdue}");
    }

    /// Tries pods; whether any was there to try.
    fn schedule(&mut self) -> bool {
        if !self.leads || *self.listed.borrow() < self.parts.watches {
            return false;
        }
        let dumps = self.parts.switches.dumps();
        if dumps != self.dumps {
            self.dumps = dumps;
            self.parts.brain.set_dumps(dumps);
        }
        let mut tried = false;
        for _ in 0..STEPS_AT_ONCE {
            if !self.parts.load.has_room() {
                break;
            }
            let (now, begun) = (self.parts.clock.now(), Instant::now());
            let Some(attempt) = self.parts.brain.step(now) else { break };
            tried = true;
            self.note_attempt(now, attempt, begun.elapsed());
            self.hand_on();
        }
        tried
    }

    fn note_attempt(&mut self, now: Time, attempt: Attempt, took: Duration) {
        self.parts.metrics.attempted(&attempt, took);
        for victims in self.parts.brain.preemptions() {
            self.parts.metrics.preempting(victims);
        }
        if let Some(dumped) = &attempt.dumped {
            if let Some(diagnosed) = &dumped.diagnosis {
                let diagnosis = Diagnosis { at: now, pod: attempt.pod.clone(), diagnosed: diagnosed.clone() };
                self.parts.switches.log_diagnosis(diagnosis);
            }
            if let Some(table) = &dumped.scores {
                let heading = dump::scores_heading(&attempt.pod.key, self.dumps.top_scores, table);
                tracing::info!("{heading}\n{}", dump::scores_table(&attempt.pod.key, table));
            }
            for refusal in &dumped.refusals {
                tracing::info!("{}", dump::refusal_line(&attempt.pod.key, refusal));
            }
        }
        self.parts.monitor.take(now, &attempt.pod, &attempt.scheduler);
        // There was nothing to do: its cycle never begins.
        if attempt.result == Attempted::Skipped {
            return;
        }
        self.parts.monitor.begin(now, &attempt.pod.uid);
        if attempt.result != Attempted::Placed {
            if let (_, Some(overdue)) = self.parts.monitor.end(self.parts.clock.now(), &attempt.pod.uid) {
                self.complain(&overdue);
            }
            return;
        }
        let Attempt { pod, scheduler, attempts, waited, .. } = attempt;
        self.placed.insert(pod.uid, Placed { scheduler, attempts, waited, preparing: None });
    }

    /// Hands commands on. Those of a process that does not lead are nobody's wish.
    fn hand_on(&mut self) {
        for command in self.parts.brain.take_commands() {
            if !self.leads {
                tracing::debug!(?command, "command dropped, for we do not lead");
                continue;
            }
            self.note_command(&command);
            self.parts.hands.take(command);
        }
    }

    fn note_command(&mut self, command: &Command) {
        match command {
            Command::Prepare(plan) => {
                let pod = plan.pod.as_ref().and_then(|pod| self.placed.get_mut(&pod.uid));
                if let Some(pod) = pod {
                    pod.preparing = Some(Instant::now());
                }
            }
            Command::Tell(note) if note.is_warning => self.parts.metrics.told_failure(&note.note),
            _ => {}
        }
    }

    /// Waits for the next thing to do, and takes it.
    async fn wait(&mut self, is_ending: bool, stop: &CancellationToken, abandon: &CancellationToken) {
        let now = self.parts.clock.now();
        let wake = self.parts.brain.wake_at(now).map_or(WAKE_MAX, |at| at.since(now));
        let news = tokio::select! {
            biased;
            Some(outcome) = self.parts.outcomes.recv() => Some(Letter::Input(outcome)),
            Some(letter) = self.inbox.recv() => Some(letter),
            () = self.parts.load.room() => None,
            () = stop.cancelled(), if !is_ending => None,
            () = abandon.cancelled() => None,
            () = tokio::time::sleep(wake.clamp(WAKE_MIN, WAKE_MAX)) => None,
        };
        if let Some(letter) = news {
            self.take_letter(self.parts.clock.now(), letter);
        }
    }
}

#[cfg(test)]
mod tests;
