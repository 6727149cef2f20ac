//! The node's own thread: it measures, decides and acts, once a second, and answers questions about what it knows.
//!
//! It owns the store, the collectors, the models, the strategies and the executor; nothing of that is shared, so nothing
//! is locked. Others reach it through [`Mind::ask`]. The order of its first seconds is that of the specification: pods
//! and the Node are known before anything is measured, and everything is measured before anything acts.
//! Spec: koordlet-observe 1.1.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use koord_api::crd::node_metric::NodeMemoryCollectPolicy;
use koord_kit::metrics::{Format, Metrics};
use tokio::sync::oneshot;

use super::show::{self, Shown};
use crate::act::{Act, Evictor, Ground};
use crate::apply::{Applier, Names};
use crate::audit::Subject;
use crate::collect::{Collectors, MemoryPolicy, Moment};
use crate::decide::hooks::stage::{Asked, Stage, Values, called};
use crate::decide::snapshot::Pod;
use crate::decide::wish::{Batch, Cause, Place};
use crate::devices::{Devices, GpuCollector};
use crate::metrics::{KoordletMetrics, Metric};
use crate::predict::Predictor;
use crate::predict::files::Files;
use crate::predict::measure::training;
use crate::state::{Editions, Hardware, News, NodeState, PodState, Snapshot, State};
use crate::store::Store;

/// How often the thread looks at the node.
const TICK: Duration = Duration::from_secs(1);
/// How often it says what it still waits for.
const COMPLAIN_EVERY: Duration = Duration::from_secs(30);
/// How often it looks for what may be forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// How often it looks for models that expired or are to be saved, however often they learn.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// A question to the thread, or something for it to do.
type Question = Box<dyn FnOnce(&mut Brain) + Send>;

/// What can wake the thread before its next second.
enum Call {
    Question(Question),
    Stop,
}

/// Everything that the thread owns.
pub struct Brain {
    pub store: Store,
    pub predictor: Predictor,
    pub collectors: Collectors,
    pub state: State,
    gpus: Option<(Devices, GpuCollector)>,
    act: Act,
    applier: Applier,
    evictor: Box<dyn Evictor>,
    checkpoints: Files,
    training_interval: Duration,
    is_measuring: bool,
    /// Those of the newest snapshot, by uid, and what they were read from.
    pods: Vec<Pod>,
    known: Arc<[Arc<PodState>]>,
    /// The Node as it was last shown.
    node: Option<Arc<NodeState>>,
    seen: Editions,
    shown: Shown,
    metrics: KoordletMetrics,
    has_store_metrics: bool,
    has_correct_units: bool,
    progress: Progress,
}

/// How much the thread remembers, by number. All of it is about pods that live, or goes a known time after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Pods and containers whose files are open.
    pub groups: usize,
    pub series: usize,
    pub models: usize,
    pub by_strategies: usize,
    /// Values that were written lately, what stood there before, and faults that were told.
    pub by_applier: usize,
    /// Rows of metrics about pods.
    pub shown: usize,
}

/// Parts that the thread is made of.
pub(super) struct Parts {
    pub(super) store: Store,
    pub(super) predictor: Predictor,
    pub(super) checkpoints: Files,
    pub(super) training_interval: Duration,
    /// Nothing is measured, and nothing is done, when the flags ask for more than one look a second.
    pub(super) is_measuring: bool,
    pub(super) collectors: Collectors,
    pub(super) state: State,
    /// None when no gate wants devices.
    pub(super) gpus: Option<(Devices, GpuCollector)>,
    pub(super) act: Act,
    pub(super) applier: Applier,
    pub(super) evictor: Box<dyn Evictor>,
    pub(super) metrics: KoordletMetrics,
    pub(super) has_store_metrics: bool,
    pub(super) has_correct_units: bool,
    pub(super) health: Readiness,
}

/// How far the thread has come.
struct Progress {
    health: Readiness,
    started: Instant,
    complained: Instant,
    trained: Option<Instant>,
    /// When models were last dropped and saved.
    kept: Option<Instant>,
    tidied: Instant,
    is_acting: bool,
    are_models_restored: bool,
}

/// What the thread waits for, for whoever asks about readiness.
#[derive(Clone, Default)]
pub struct Readiness(Arc<Mutex<Vec<String>>>);

impl Readiness {
    /// Before the first second it waits for that.
    pub fn new() -> Readiness {
        Readiness(Arc::new(Mutex::new(vec!["the first look at the node".to_owned()])))
    }

    pub fn check(&self) -> Result<(), String> {
        let missing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.is_empty() { Ok(()) } else { Err(format!("waiting for {}", missing.join(", "))) }
    }

    fn set(&self, missing: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = missing;
    }
}

/// A running thread.
pub(super) struct Mind {
    calls: Sender<Call>,
    thread: JoinHandle<()>,
    /// Its other half lives as long as the thread.
    end: oneshot::Receiver<()>,
}

/// Asks the thread. Cheap to clone.
#[derive(Clone)]
pub struct Asker(Sender<Call>);

impl Asker {
    /// Of a thread that has ended.
    #[cfg(test)]
    pub(super) fn of_nobody() -> Asker {
        Asker(channel().0)
    }

    /// An answer from what the thread knows; none when it has ended.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Brain) -> T + Send + 'static,
    ) -> Option<T> {
        self.order(|brain| question(brain)).await
    }

    /// What the thread has done, and what came of it; none when it has ended.
    pub(crate) async fn order<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Brain) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |brain| {
            // Who asked may have gone.
            let _ = answer.send(order(brain));
        });
        self.0.send(Call::Question(question)).ok()?;
        answered.await.ok()
    }
}

impl Mind {
    /// Starts the thread.
    pub(super) fn start(parts: Parts) -> std::io::Result<Mind> {
        let (calls, heard) = channel();
        let mut brain = Brain::new(parts);
        let (alive, end) = oneshot::channel();
        let thread = std::thread::Builder::new().name("node".to_owned()).spawn(move || {
            let _alive: oneshot::Sender<()> = alive;
            brain.live(&heard);
            brain.end();
        })?;
        Ok(Mind { calls, thread, end })
    }

    pub(super) fn asker(&self) -> Asker {
        Asker(self.calls.clone())
    }

    /// Lets the thread finish its second, save what it knows, and end.
    pub(super) fn stop(self) {
        // A thread that has ended hears nothing.
        let _ = self.calls.send(Call::Stop);
        if self.thread.join().is_err() {
            tracing::error!("the node's thread panicked");
        }
    }

    /// Waits until the thread ends by itself, which it never should.
    pub(super) async fn ended(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.end).await;
    }
}

impl Brain {
    pub(super) fn new(parts: Parts) -> Brain {
        let now = Instant::now();
        Brain {
            store: parts.store,
            predictor: parts.predictor,
            collectors: parts.collectors,
            state: parts.state,
            gpus: parts.gpus,
            act: parts.act,
            applier: parts.applier,
            evictor: parts.evictor,
            checkpoints: parts.checkpoints,
            training_interval: parts.training_interval,
            is_measuring: parts.is_measuring,
            pods: Vec::new(),
            known: Arc::default(),
            node: None,
            seen: Editions::default(),
            shown: Shown::default(),
            metrics: parts.metrics,
            has_store_metrics: parts.has_store_metrics,
            has_correct_units: parts.has_correct_units,
            progress: Progress {
                health: parts.health,
                started: now,
                complained: now,
                trained: None,
                kept: None,
                tidied: now,
                is_acting: false,
                are_models_restored: false,
            },
        }
    }

    fn live(&mut self, calls: &Receiver<Call>) {
        let mut next = Instant::now();
        loop {
            match calls.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Call::Question(question)) => question(self),
                Ok(Call::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let now = Instant::now();
                    self.second(Moment { unix_ms: jiff::Timestamp::now().as_millisecond(), instant: now });
                    // In step, unless a second was missed.
                    next += TICK;
                    if next < now {
                        next = now + TICK;
                    }
                }
            }
        }
    }

    /// One look at the node. Public to whoever has a clock of his own.
    pub fn second(&mut self, now: Moment) {
        let snapshot = self.state.load();
        let news = self.catch_up(&snapshot);
        let mut missing: Vec<String> = snapshot.missing().into_iter().map(str::to_owned).collect();
        if !self.is_measuring {
            missing.push("a --collect-res-used-interval of one second at least".to_owned());
        }
        if missing.is_empty() {
            self.collectors.pass(now, &mut self.store);
            self.measure_gpus(&snapshot, now);
            self.publish_hardware(&snapshot);
            self.store.tend(now.unix_ms);
            self.shown.second(&self.metrics, &self.collectors);
            missing.extend(
                self.collectors.not_started().into_iter().map(|name| format!("the first round of {name}")),
            );
        }
        if missing.is_empty() {
            if !std::mem::replace(&mut self.progress.is_acting, true) {
                tracing::info!("everything is measured; strategies begin");
            }
            self.learn(&snapshot, now);
            self.act(&snapshot, news, now);
        } else if now.instant.saturating_duration_since(self.progress.complained) >= COMPLAIN_EVERY {
            self.progress.complained = now.instant;
            tracing::warn!(missing = missing.join(", "), "nothing is done yet");
        }
        if self.has_store_metrics {
            self.shown.store(&self.metrics, self.store.stats());
        }
        self.progress.health.set(missing);
        if now.instant.saturating_duration_since(self.progress.tidied) >= TIDY_EVERY {
            self.progress.tidied = now.instant;
            self.tidy(now);
        }
    }

    /// Takes over what is new in the snapshot. Before anything acts news are kept for when it does.
    fn catch_up(&mut self, snapshot: &Snapshot) -> News {
        let mut seen = self.seen;
        let news = seen.catch_up(snapshot);
        self.seen = seen;
        // First, since nothing is shown before the Node was seen.
        if let Some(node) = &snapshot.node
            && self.node.as_ref().is_none_or(|known| !Arc::ptr_eq(known, node))
        {
            self.metrics.node_seen();
            show::node(&self.metrics, &node.node);
            self.node = Some(node.clone());
        }
        if news.pods && !PodState::are_same(&self.known, &snapshot.pods) {
            self.known = snapshot.pods.clone();
            self.pods = snapshot.pods.iter().map(|state| state.pod.clone()).collect();
            self.collectors.set_pods(&self.pods);
            self.applier.records().follow(&self.pods);
            show::pods(&self.metrics, &self.pods, self.has_correct_units);
        }
        if news.slo || news.pods {
            let applications = snapshot.slo.as_ref().map(|slo| slo.host_applications.as_slice());
            let memory = match snapshot.metric_policy.memory {
                NodeMemoryCollectPolicy::UsageWithPageCache => MemoryPolicy::WithPageCache,
                _ => MemoryPolicy::WithoutPageCache,
            };
            self.collectors.set_applications(applications, memory);
        }
        news
    }

    fn act(&mut self, snapshot: &Snapshot, news: News, now: Moment) {
        let ground = Ground {
            now: now.instant,
            now_ms: now.unix_ms,
            uptime: now.instant.saturating_duration_since(self.progress.started),
            snapshot,
            pods: &self.pods,
            news,
            store: &self.store,
        };
        self.act.turn(&ground, &mut self.applier, &mut *self.evictor);
        self.applier.records().tell(now.instant);
    }

    /// What the hooks of a stage say about a pod or a container. What a runtime cannot set is written to the pod's group,
    /// whose folder is `parent`. An error only where one failure ends it all. After `until` nobody listens any more, and
    /// the reconciler does it.
    pub(crate) fn hook(
        &mut self,
        stage: Stage,
        asked: &Asked,
        parent: &str,
        is_strict: bool,
        until: Instant,
    ) -> Result<Values, String> {
        if Instant::now() >= until {
            return Ok(Values::default());
        }
        let snapshot = self.state.load();
        let rules = self.act.rules(&snapshot);
        let (mut values, mut begun) = (Values::default(), Instant::now());
        for (hook, said) in called(&rules, stage, asked) {
            let status = if said.is_ok() { "success" } else { "failed" };
            let millis = begun.elapsed().as_secs_f64() * 1000.0;
            self.metrics.observe(Metric::RuntimeHookDuration, &[hook, stage.name(), status], millis);
            begun = Instant::now();
            match said {
                Ok(said) => values = values.and(said),
                Err(fault) if is_strict => return Err(format!("{hook}: {fault}")),
                Err(fault) => {
                    tracing::debug!(pod = %asked.pod.name, hook, fault, "a hook failed; the pod starts without it");
                }
            }
        }
        self.record(stage, asked, &values);
        if asked.container.is_none() && !parent.trim_matches('/').is_empty() {
            let wishes = values.wishes(&Place::Dir(parent.trim_matches('/').into()));
            self.applier.apply(Instant::now(), &Batch::Levels(vec![wishes]), Names(&self.pods));
        }
        Ok(values)
    }

    /// What a runtime is told about a pod is done to the pod, though others do it.
    fn record(&self, stage: Stage, asked: &Asked, values: &Values) {
        if *values == Values::default() {
            return;
        }
        let (pod, container) = (&asked.pod, asked.container.as_ref().map_or("", |own| own.name.as_str()));
        let subject =
            Subject::Pod { uid: &pod.id.uid, namespace: &pod.namespace, name: &pod.name, container };
        let message = format!("at {} {values}", stage.name());
        self.applier.records().record(3, subject, Cause::RuntimeHook.reason(), message);
    }

    fn measure_gpus(&mut self, snapshot: &Snapshot, now: Moment) {
        let Some((devices, collector)) = &mut self.gpus else { return };
        if let Err(error) =
            collector.collect(&devices.reading(), &snapshot.pods, &mut self.store, now.unix_ms)
        {
            tracing::warn!(%error, "samples of GPUs were refused");
        }
    }

    /// Tells the others when CPUs or NUMA nodes changed.
    fn publish_hardware(&self, snapshot: &Snapshot) {
        let facts = self.collectors.facts();
        let Some(cpu) = &facts.cpu else { return };
        let is_same = snapshot.hardware.as_deref().is_some_and(|known| {
            known.info == cpu.info && known.cpus == cpu.cpus && known.numa_nodes[..] == facts.numa[..]
        });
        if !is_same {
            let (info, cpus) = (cpu.info.clone(), cpu.cpus.clone());
            let hardware = Arc::new(Hardware { info, cpus, numa_nodes: facts.numa.to_vec() });
            self.state.update(|snapshot| snapshot.hardware = Some(hardware));
        }
    }

    /// Trains the models when it is time, and keeps their files.
    fn learn(&mut self, snapshot: &Snapshot, now: Moment) {
        if !std::mem::replace(&mut self.progress.are_models_restored, true) {
            self.checkpoints.restore(&mut self.predictor, self.pods.iter().map(|pod| &*pod.id.uid));
        }
        if is_due(&mut self.progress.trained, self.training_interval, now.instant) {
            let interval_ms = self.predictor.settings().training_interval_ms;
            self.predictor.train(&training(&self.store, snapshot, interval_ms, now.unix_ms), now.unix_ms);
        }
        if is_due(&mut self.progress.kept, KEEP_EVERY, now.instant) {
            self.checkpoints.keep(&mut self.predictor, now.unix_ms);
        }
    }

    fn tidy(&mut self, now: Moment) {
        self.applier.tidy(now.instant);
        self.metrics.sweep(now.instant);
    }

    /// How much is remembered.
    pub fn kept(&self) -> Kept {
        let is_of_pod = |line: &&str| line.contains("pod_name=\"") || line.contains("container_id=\"");
        let shown = |page: &Metrics| page.render(Format::Prometheus).lines().filter(is_of_pod).count();
        Kept {
            groups: self.collectors.groups(),
            series: self.store.stats().series,
            models: self.predictor.len(),
            by_strategies: self.act.kept(),
            by_applier: self.applier.kept(),
            shown: shown(self.metrics.internal()) + shown(self.metrics.external()),
        }
    }

    /// Saves what is known and gives back what only lives as long as the process.
    pub fn end(mut self) {
        self.collectors.stop();
        self.store.close();
    }
}

/// Whether something that happens now and then is to happen now; if so it is noted. The first time it is.
fn is_due(last: &mut Option<Instant>, every: Duration, now: Instant) -> bool {
    let is_due = last.is_none_or(|at| now.saturating_duration_since(at) >= every);
    if is_due {
        *last = Some(now);
    }
    is_due
}

#[cfg(test)]
mod tests;
