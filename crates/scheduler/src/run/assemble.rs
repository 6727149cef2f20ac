//! All parts wired together, started in order, and ended in order.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use koord_engine::record::Header;
use koord_kit::client::ClientError;
use koord_kit::events::{EventType, Flavour, Note, recorder};
use koord_kit::http::{Check, Health};
use koord_kit::leader::{self, Ended, Leadership, LeaseLock, LostReason};
use koord_kit::log::LogHandle;
use koord_kit::metrics::{ClientMetrics, KitMetrics, Metrics};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{barrier, client_options, servers};
use crate::brain::View;
use crate::clock::Clock;
use crate::compare::compare;
use crate::config::{Election, SchedulerConfig};
use crate::driver::{self, Desk, Letter};
use crate::dump::Switches;
use crate::dump::diagnosis::log_all;
use crate::events;
use crate::extender::{ExtenderError, Extension};
use crate::flags::{Options, SyncBarrier};
use crate::load::{Limits, Load};
use crate::metrics::SchedulerMetrics;
use crate::monitor::Monitor;
use crate::pipeline::{self, MayWrite, Means};
use crate::record::{Heard, RecordError, Recorded, Recorder};
use crate::serve::{Pages, Standing};
use crate::watches::Watches;

/// A leader whose term ended so long ago and who still runs is stuck.
const WATCHDOG: Duration = Duration::from_secs(20);

/// What is on its way when the lease is lost gets so long to end by itself.
const LOST_GRACE: Duration = Duration::from_secs(2);

/// What a scheduler is started with.
pub struct Setup {
    pub options: Options,
    pub config: SchedulerConfig,
    pub cluster: kube::Config,
    /// For `/debug/flags/v`.
    pub log: Option<LogHandle>,
}

/// Why a scheduler did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot build the engine: {0}")]
    Engine(String),
    #[error(transparent)]
    Extender(#[from] ExtenderError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Server(#[from] servers::ServerError),
    #[error("cannot start the engine's thread")]
    Thread(#[source] std::io::Error),
    #[error("cannot listen for signals")]
    Signal(#[source] std::io::Error),
}

/// How a scheduler ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was asked to.
    Stopped,
    LostLease(LostReason),
}

/// A running scheduler.
pub struct Running {
    /// Where plain HTTP is served.
    pub plain: Option<SocketAddr>,
    pub secure: Option<SocketAddr>,
    pub desk: Desk,
    standing: Arc<Standing>,
    task: JoinHandle<Ending>,
}

impl Running {
    /// Whether pods are being scheduled by this process.
    pub fn leads(&self) -> bool {
        self.standing.leads() && self.standing.is_listed()
    }

    /// Waits for the end.
    pub async fn ended(self) -> Ending {
        // A task that was aborted or panicked has not been asked to stop, but there is no better word for it.
        self.task.await.unwrap_or(Ending::Stopped)
    }
}

/// Starts a scheduler; it ends when `stop` is cancelled or its lease is lost.
pub async fn start(setup: Setup, stop: CancellationToken) -> Result<Running, StartError> {
    let engine_options = crate::brain::engine_options(&setup.config, &setup.options);
    let mut engine = crate::brain::engine(&engine_options).map_err(StartError::Engine)?;
    let extension = Extension::new(&setup.config.extenders).await?;
    let judges = extension.judges(&tokio::runtime::Handle::current());
    match &setup.options.record {
        None => {
            engine.set_extenders(judges);
            start_with(setup, engine, extension, stop).await
        }
        Some(record) => {
            let heard = Heard::default();
            engine.set_extenders(heard.listen(judges));
            let header = Header::new(&engine_options, &setup.config.deciding_yaml());
            let recorder = Recorder::start(&record.file, record.limit, &header)?;
            start_with(setup, Recorded::new(engine, recorder, heard), extension, stop).await
        }
    }
}

/// What everything else stands on.
struct Ground {
    registry: Arc<Metrics>,
    kit_metrics: KitMetrics,
    metrics: SchedulerMetrics,
    client_options: koord_kit::client::ClientOptions,
}

impl Ground {
    fn new(config: &SchedulerConfig) -> Ground {
        let registry = Arc::new(Metrics::new());
        let mut client_options = client_options(config);
        client_options.metrics = Some(ClientMetrics::new(&registry));
        let (kit_metrics, metrics) = (KitMetrics::new(&registry), SchedulerMetrics::new(&registry));
        Ground { registry, kit_metrics, metrics, client_options }
    }
}

async fn start_with<B: crate::brain::Brain>(
    setup: Setup,
    brain: B,
    extension: Extension,
    stop: CancellationToken,
) -> Result<Running, StartError> {
    let Setup { options, config, cluster, log } = setup;
    let Ground { registry, kit_metrics, metrics, client_options } = Ground::new(&config);
    let connect = || koord_kit::client::client(cluster.clone(), &client_options);
    let (client, tasks) = (connect()?, TaskTracker::new());
    let load = Arc::new(Load::new(Limits::default()));
    let (notes, notes_worker) = events::notes(connect()?, load.clone());
    let lead = Arc::new(Lead::default());
    let (hands, worker, outcomes) = pipeline::pipeline(Means {
        client: client.clone(),
        load: load.clone(),
        notes,
        metrics: metrics.clone(),
        may_write: lead.may_write(),
        extenders: extension.https,
    });
    let watches = Watches::new(&client, &options.gates, &kit_metrics, extension.objects, &config.profiles);
    let (switches, diagnoses) = Switches::shared(&options.debug);
    let (wind_down, abandon) = (CancellationToken::new(), CancellationToken::new());
    let (desk, thread) = {
        let (load, switches, metrics) = (load.clone(), switches.clone(), metrics.clone());
        let (clock, monitor, watches) = (Clock::start(), Monitor::new(options.monitor), watches.len());
        let parts =
            driver::Parts { brain, hands, outcomes, load, clock, monitor, switches, metrics, watches };
        driver::start(parts, wind_down.clone(), abandon.clone()).map_err(StartError::Thread)?
    };
    let standing = Arc::new(Standing::default());
    let health = Arc::new(Health::default());
    add_checks(&health, &standing, &lead, &desk, &watches);
    let (configz, with_profiling) = (Arc::new(config.configz()), config.enable_profiling);
    let pages = {
        let (desk, standing) = (desk.clone(), standing.clone());
        Pages { desk, standing, health, registry, metrics, load, switches, log, configz, with_profiling }
    };
    let serving = CancellationToken::new();
    let bound = servers::start(&options, &cluster, &client, &pages, &serving, &tasks).await?;
    dump_on_signal(&client, &desk, &serving, &tasks).map_err(StartError::Signal)?;
    let lock = |election| lease_lock(election, &cluster, &client_options, &kit_metrics);
    let lease = config.leader_election.as_ref().map(lock).transpose()?;
    // Told of by the profile that pods ask for most, as kube-scheduler does.
    let life = Life {
        client,
        kit_metrics,
        name: config.profiles.first().map(|profile| profile.scheduler_name.clone()).unwrap_or_default(),
        lease,
        is_delayed: config.delay_cache_until_active,
        barrier: options.gates.is_on("SyncBarrier").then(|| options.sync_barrier.clone()),
        watch_count: watches.len(),
        watches: Some(watches),
        desk: desk.clone(),
        standing: standing.clone(),
        lead,
        tasks: tasks.clone(),
        stop,
        wind_down,
        abandon,
        serving,
    };
    tasks.spawn(worker.run());
    // Not waited for at the end, for pages keep the switches.
    tokio::spawn(log_all(diagnoses));
    let notes_task = tasks.spawn(notes_worker.run(life.wind_down.clone()));
    let task = tokio::spawn(life.live(thread, notes_task));
    Ok(Running { plain: bound.plain, secure: bound.secure, desk, standing, task })
}

/// The lease, asked for through a client of its own that gives up in time.
fn lease_lock(
    election: &Election,
    cluster: &kube::Config,
    options: &koord_kit::client::ClientOptions,
    metrics: &KitMetrics,
) -> Result<LeaseLock, StartError> {
    let Election { namespace, name, timing } = election;
    let options = options.for_leader_election(timing.renew_deadline());
    Ok(LeaseLock {
        client: koord_kit::client::client(cluster.clone(), &options)?,
        namespace: namespace.clone(),
        name: name.clone(),
        identity: leader::identity(),
        timing: *timing,
        metrics: metrics.clone(),
    })
}

/// The right to write, once we have it.
#[derive(Default)]
struct Lead {
    /// None inside means that nobody has to be asked.
    leadership: OnceLock<Option<Leadership>>,
}

impl Lead {
    fn may_write(self: &Arc<Lead>) -> MayWrite {
        let lead = self.clone();
        Arc::new(move || match lead.leadership.get() {
            Some(Some(leadership)) => leadership.holds(),
            Some(None) => true,
            None => false,
        })
    }

    /// Whether we act as the leader although our term is over.
    fn is_overstayed(&self) -> bool {
        matches!(self.leadership.get(), Some(Some(leadership)) if !leadership.holds())
    }
}

fn add_checks(health: &Health, standing: &Arc<Standing>, lead: &Arc<Lead>, desk: &Desk, watches: &Watches) {
    let (lead, since) = (lead.clone(), std::sync::Mutex::new(None));
    health.add(Check::live("leaderElection", move || {
        let mut since = since.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !lead.is_overstayed() {
            *since = None;
            return Ok(());
        }
        let begun = since.get_or_insert_with(std::time::Instant::now);
        match begun.elapsed() > WATCHDOG {
            true => Err("failed election to renew leadership on lease".to_owned()),
            false => Ok(()),
        }
    }));
    let (desk, count, checks) = (desk.clone(), watches.len(), watches.checks());
    health.add(Check::ready("sched-handler-sync", move || {
        if desk.listed() >= count {
            return Ok(());
        }
        // The first that waits says what for; none waits when only the engine has not had all of it yet.
        checks.iter().try_for_each(|check| check())?;
        Err("waiting for handlers to sync".to_owned())
    }));
    let standing = standing.clone();
    health.add(Check::ready("shutdown", move || match standing.is_stopping() {
        true => Err("process is shutting down".to_owned()),
        false => Ok(()),
    }));
}

/// SIGUSR2 writes what the engine knows to the log, and how that differs from what the API has.
fn dump_on_signal(
    client: &kube::Client,
    desk: &Desk,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> std::io::Result<()> {
    let mut asked = signal(SignalKind::user_defined2())?;
    let (client, desk, stop) = (client.clone(), desk.clone(), stop.clone());
    tasks.spawn(async move {
        loop {
            tokio::select! {
                heard = asked.recv() => if heard.is_none() { return },
                () = stop.cancelled() => return,
            }
            compare(&client, &desk).await;
            if let Ok(Some(dump)) = desk.ask(View::Dump).await {
                tracing::info!("dump of the scheduler's cache and queue:\n{dump:#}");
            }
        }
    });
    Ok(())
}

/// The course of a scheduler's life.
struct Life {
    client: kube::Client,
    kit_metrics: KitMetrics,
    name: String,
    lease: Option<LeaseLock>,
    is_delayed: bool,
    barrier: Option<SyncBarrier>,
    watch_count: usize,
    watches: Option<Watches>,
    desk: Desk,
    standing: Arc<Standing>,
    lead: Arc<Lead>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// No more pods are tried; what was begun is finished.
    wind_down: CancellationToken,
    /// Nothing is finished.
    abandon: CancellationToken,
    /// Watches and servers run until this is cancelled.
    serving: CancellationToken,
}

impl Life {
    async fn live(mut self, thread: std::thread::JoinHandle<()>, notes: JoinHandle<()>) -> Ending {
        let ending = match self.lease.take() {
            None => {
                self.sync().await;
                self.work(None, thread, notes).await;
                Ending::Stopped
            }
            Some(lock) => {
                if !self.is_delayed {
                    self.sync().await;
                }
                let stop = self.stop.clone();
                let life = &mut self;
                match leader::run(&lock, &stop, |leadership| life.lead_by(leadership, &lock, thread, notes))
                    .await
                {
                    Ended::NeverLed | Ended::Finished(()) => Ending::Stopped,
                    Ended::Lost(reason) => Ending::LostLease(reason),
                }
            }
        };
        self.standing.set_stopping();
        self.wind_down.cancel();
        self.abandon.cancel();
        self.serving.cancel();
        self.tasks.close();
        match &ending {
            Ending::Stopped => self.tasks.wait().await,
            // Whoever lost the lease leaves soon, so that the process that comes after it can take part in the
            // election. Nothing is written meanwhile: every write asks whether we lead.
            Ending::LostLease(_) => {
                let _ = tokio::time::timeout(LOST_GRACE, self.tasks.wait()).await;
            }
        }
        ending
    }

    /// Starts the watches and waits until the engine has had every first list, or we stop.
    async fn sync(&mut self) {
        let Some(watches) = self.watches.take() else { return };
        watches.start(&self.desk, &self.serving, &|task| _ = self.tasks.spawn(task));
        tokio::select! {
            () = self.desk.all_listed(self.watch_count) => {
                self.standing.set_listed();
                tracing::info!("all kinds are listed");
            }
            () = self.stop.cancelled() => {}
        }
    }

    async fn lead_by(
        &mut self,
        leadership: Leadership,
        lock: &LeaseLock,
        thread: std::thread::JoinHandle<()>,
        notes: JoinHandle<()>,
    ) {
        self.sync().await;
        // Who lists only now that it leads knows the newest.
        if let (Some(flags), false) = (&self.barrier, self.is_delayed) {
            barrier::wait(&self.client, &self.desk, flags, &lock.name, &leadership.token()).await;
        }
        self.tell_of_lead(lock);
        self.work(Some(leadership), thread, notes).await;
    }

    /// Schedules until we must stop, then finishes what was begun.
    async fn work(
        &mut self,
        leadership: Option<Leadership>,
        thread: std::thread::JoinHandle<()>,
        notes: JoinHandle<()>,
    ) {
        let token = leadership.as_ref().map_or_else(|| self.stop.clone(), Leadership::token);
        // Set once: a process leads at most once.
        let _ = self.lead.leadership.set(leadership.clone());
        self.standing.set_leads(true);
        self.desk.send(Letter::Lead).await;
        token.cancelled().await;
        self.standing.set_stopping();
        self.standing.set_leads(false);
        self.wind_down.cancel();
        if leadership.is_some_and(|leadership| !leadership.holds()) {
            // Somebody else acts: nothing of ours may follow.
            self.abandon.cancel();
            return;
        }
        let joined = tokio::task::spawn_blocking(move || thread.join());
        if !matches!(joined.await, Ok(Ok(()))) {
            tracing::error!("the engine's thread ended by a panic");
        }
        // Ends when all that was told is sent, for nobody is left to tell more.
        let _ = notes.await;
    }

    /// The event that users know from other components: who leads.
    fn tell_of_lead(&self, lock: &LeaseLock) {
        let (recorder, worker) = recorder(self.client.clone(), &self.name, Flavour::Core, &self.kit_metrics);
        recorder.event(Note {
            regarding: ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                namespace: Some(lock.namespace.clone()),
                name: Some(lock.name.clone()),
                ..ObjectReference::default()
            },
            related: None,
            kind: EventType::Normal,
            reason: "LeaderElection".to_owned(),
            action: String::new(),
            text: format!("{} became leader", lock.identity),
        });
        self.tasks.spawn(worker.run(self.serving.clone()));
    }
}

#[cfg(test)]
mod tests;
