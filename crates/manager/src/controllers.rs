//! Loops around the pure parts: keys of changed objects in, writes out. Spec: manager 1.5.
//!
//! [`CONTROLLERS`] is the table of all of them: a new controller is one file and one row. A controller says which changes
//! wake it ([`Controller::listen`]) and what it does about one key ([`Controller::reconcile`]); [`Crew`] gives it a queue, a
//! worker, retries and metrics. Controllers run on the leader only.

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use koord_kit::cache::{Cache, Delta, ObjectKey};
use koord_kit::events::{Flavour, Recorder, recorder};
use koord_kit::leader::Leadership;
use koord_kit::log::chain;
use koord_kit::metrics::{KitMetrics, Metrics};
use koord_kit::queue::{QueueMetrics, Retries, WorkQueue};
use koord_kit::write::{Part, Place, WriteError, merge_patch};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::flags::Options;
use crate::metrics::{ManagerMetrics, TurnEnd};
use crate::strategies::{self, Strategies, Teller};
use crate::world::World;

mod colocation_profile;
mod follow;
mod node_metric;
mod node_resource;
mod node_slo;
mod quota_profile;

pub use node_resource::Memories;
pub(crate) use node_resource::{Snapshot, chosen_plugins};

/// Changes that may wait between a cache and a queue; taking one in costs next to nothing.
const DELTAS_MAX: usize = 256;

/// A turn that has begun when the end is asked for gets so long: well under what is left of a lost lease.
const TURN_GRACE: Duration = Duration::from_secs(2);

/// Where the object of a turn is; without namespace for kinds that have none.
pub type Key = ObjectKey;

/// Why a turn failed. Nobody acts on what it was; it is logged, counted, and the key is tried again.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One row of the table of controllers.
pub struct Row {
    /// As in `--controllers`.
    pub name: &'static str,
    pub start: fn(&mut Crew<'_>),
}

/// Every controller, by name.
pub const CONTROLLERS: &[Row] = &[
    Row { name: "nodemetric", start: |crew| crew.hire(node_metric::NodeMetrics::new(crew.ground())) },
    Row { name: "noderesource", start: |crew| crew.hire(node_resource::NodeResources::new(crew.ground())) },
    Row { name: "nodeslo", start: |crew| crew.hire(node_slo::NodeSlos::new(crew.ground())) },
    Row { name: "quotaprofile", start: |crew| crew.hire(quota_profile::QuotaProfiles::new(crew.ground())) },
    Row { name: "colocationprofile", start: colocation_profile::start },
];

/// What controllers and webhooks are made of. Cheap to clone.
#[derive(Clone)]
pub struct Ground {
    pub client: kube::Client,
    pub world: Arc<World>,
    pub strategies: Strategies,
    pub options: Arc<Options>,
    pub metrics: ManagerMetrics,
    pub kit_metrics: KitMetrics,
    pub queue_metrics: QueueMetrics,
    /// What `/internal-metrics` shows.
    pub internal: Arc<Metrics>,
    /// What the controller of nodes remembers of them.
    pub memories: Memories,
    /// Everything that runs until the process ends.
    pub tasks: TaskTracker,
    /// Cancelled when the process ends.
    pub stop: CancellationToken,
}

impl Ground {
    /// Events in the name of a component, such as `nodeslo-controller`.
    pub fn recorder(&self, component: &str) -> Recorder {
        let (recorder, worker) = recorder(self.client.clone(), component, Flavour::Core, &self.kit_metrics);
        self.tasks.spawn(worker.run(self.stop.clone()));
        recorder
    }
}

/// What happens to a key after a turn that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until it changes.
    Done,
    /// Another turn after this long even if nothing changes.
    After(Duration),
}

/// Keeps objects of one kind as they should be, one key at a time.
pub trait Controller: Send + Sync + 'static {
    /// As in `--controllers`, in metrics and in the log.
    const NAME: &'static str;

    /// How many keys have their turns at the same time; one key never has two.
    const TURNS_AT_ONCE: usize = 1;

    /// Says which changes wake it.
    fn listen(&self, feeds: &Feeds);

    /// Does what is due for a key. Asked again later when it fails.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Next, Failure>> + Send;
}

/// The right to act.
#[derive(Clone)]
pub enum Lead {
    /// No election was wanted.
    Alone,
    Elected(Leadership),
}

impl Lead {
    pub fn holds(&self) -> bool {
        match self {
            Lead::Alone => true,
            Lead::Elected(leadership) => leadership.holds(),
        }
    }
}

/// Starts the chosen controllers; they end when `stop` is cancelled. `tasks` has all of them.
pub fn start(ground: &Ground, lead: &Lead, tasks: &TaskTracker, stop: &CancellationToken) {
    let chosen = &ground.options.controllers;
    let mut crew = Crew { ground, lead, tasks, stop };
    for row in CONTROLLERS.iter().filter(|row| chosen.is_on(row.name)) {
        (row.start)(&mut crew);
        tracing::info!(controller = row.name, "controller started");
    }
    let is_on = |name| chosen.is_on(name);
    let voice = |name, component| is_on(name).then(|| ground.recorder(component));
    let (metric, slo, resource) = (
        voice("nodemetric", "nodemetric-controller"),
        voice("nodeslo", "nodeslo-controller"),
        voice("noderesource", "noderesource-controller"),
    );
    let say = move |teller, note| {
        let recorder = match teller {
            // Both read colocation-config; one event is enough.
            Teller::NodeMetric => metric.as_ref().or(resource.as_ref()),
            Teller::NodeSlo => slo.as_ref(),
            Teller::NodeResource => resource.as_ref(),
        };
        if let Some(recorder) = recorder {
            recorder.event(note);
        }
    };
    tasks.spawn(strategies::tell(ground.strategies.clone(), say, stop.clone()));
}

/// Gives controllers what they need to run.
pub struct Crew<'c> {
    ground: &'c Ground,
    lead: &'c Lead,
    tasks: &'c TaskTracker,
    stop: &'c CancellationToken,
}

impl<'c> Crew<'c> {
    pub fn ground(&self) -> &'c Ground {
        self.ground
    }

    /// Runs a controller: a queue, what fills it, and its workers.
    pub fn hire<C: Controller>(&mut self, controller: C) {
        let queue = WorkQueue::new(C::NAME, Retries::default(), &self.ground.queue_metrics);
        let feeds = Feeds {
            ground: self.ground.clone(),
            queue: queue.clone(),
            tasks: self.tasks.clone(),
            stop: self.stop.clone(),
        };
        controller.listen(&feeds);
        let metrics = self.ground.metrics.clone();
        metrics.controllers().hired(C::NAME, C::TURNS_AT_ONCE);
        let controller = Arc::new(controller);
        for _ in 0..C::TURNS_AT_ONCE {
            let (controller, queue) = (controller.clone(), queue.clone());
            self.tasks.spawn(work(controller, queue, self.lead.clone(), metrics.clone(), self.stop.clone()));
        }
    }
}

/// What fills a controller's queue.
pub struct Feeds {
    ground: Ground,
    pub queue: Arc<WorkQueue<Key>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Feeds {
    /// Wakes keys by each change of a cache, and by everything that is in it now. `wake` names them; it must not wait.
    pub fn on<V: Send + Sync + 'static>(
        &self,
        cache: &Cache<V>,
        wake: impl Fn(&Delta<V>, &WorkQueue<Key>) + Send + Sync + 'static,
    ) {
        let mut deltas = cache.subscribe(DELTAS_MAX);
        let (queue, stop) = (self.queue.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    delta = deltas.next() => match delta {
                        Some(delta) => wake(&delta, &queue),
                        None => return,
                    },
                    () = stop.cancelled() => return,
                }
            }
        });
    }

    /// Wakes the object itself when it comes, goes, or `differs`.
    pub fn on_object<K: Resource + Send + Sync + 'static>(
        &self,
        cache: &Cache<K>,
        differs: impl Fn(&K, &K) -> bool + Send + Sync + 'static,
    ) {
        self.on_entry(cache, key_of, differs);
    }

    /// The same where a cache keeps something else of objects.
    pub fn on_entry<V: Send + Sync + 'static>(
        &self,
        cache: &Cache<V>,
        key: impl Fn(&V) -> Key + Send + Sync + 'static,
        differs: impl Fn(&V, &V) -> bool + Send + Sync + 'static,
    ) {
        self.on(cache, move |delta, queue| match delta {
            Delta::Added(object) | Delta::Deleted(object) => queue.add(key(object)),
            Delta::Updated { old, new } if differs(old, new) => queue.add(key(new)),
            Delta::Updated { .. } | Delta::Synced => {}
        });
    }

    /// Wakes every node when one of these keys of slo-controller-config changes its meaning, and every sync period.
    pub fn on_strategies(&self, keys: &'static [&'static str]) {
        let (mut strategies, world) = (self.ground.strategies.clone(), self.ground.world.clone());
        let (queue, stop, period) =
            (self.queue.clone(), self.stop.clone(), self.ground.options.sync_period.unwrap_or(Duration::MAX));
        // Taken before the first turn, so that no turn sees older strategies than this.
        let mut seen = strategies.now();
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    changed = strategies.changed(keys, &seen) => match changed {
                        Some(now) => seen = now,
                        None => return,
                    },
                    () = tokio::time::sleep(period) => {}
                    () = stop.cancelled() => return,
                }
                for (key, _) in world.nodes.snapshot() {
                    queue.add(key);
                }
            }
        });
    }
}

/// The key of an object.
pub fn key_of<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    Key {
        namespace: meta.namespace.as_deref().unwrap_or_default().into(),
        name: meta.name.as_deref().unwrap_or_default().into(),
    }
}

/// The key of a node, and of everything that is named after it.
pub fn node_key(name: &str) -> Key {
    Key { namespace: "".into(), name: name.into() }
}

/// Reads an object, lets `change` alter it, and sends what differs, whoever else writes meanwhile.
///
/// For fields that nobody but us decides about: whatever the decision rests on wakes us again when it changes. Where
/// others write all the time, a write that insists on the version it has read would lose the race again and again.
pub async fn patch_fresh<K>(
    client: &kube::Client,
    place: Place<'_>,
    part: Part,
    change: impl FnOnce(&mut K),
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
{
    let before: K = read_fresh(client, place).await?;
    let mut after = before.clone();
    change(&mut after);
    merge_patch(client, place, part, &before, &after, false).await.map(drop)
}

/// Reads an object from the API server, not from a cache.
pub async fn read_fresh<K>(client: &kube::Client, place: Place<'_>) -> Result<K, WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let (kind, shown) = (K::kind(&()).into_owned(), place.name.to_owned());
    let path = format!("{}/{}", K::url_path(&(), place.namespace), place.name);
    let read = match http::Request::get(path).body(Vec::new()) {
        Ok(request) => client.request(request).await,
        Err(error) => Err(kube::Error::HttpError(error)),
    };
    read.map_err(|source| WriteError::Api { kind, place: shown, source })
}

/// Comes some time after the end was asked for.
async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(TURN_GRACE).await;
}

/// One of a controller's workers: one key after the other until `stop` is cancelled.
async fn work<C: Controller>(
    controller: Arc<C>,
    queue: Arc<WorkQueue<Key>>,
    lead: Lead,
    metrics: ManagerMetrics,
    stop: CancellationToken,
) {
    while let Some(key) = queue.next(&stop).await {
        // A term that has run out unnoticed: whoever leads now does it.
        if !lead.holds() {
            return;
        }
        metrics.controllers().begun(C::NAME);
        let begun = Instant::now();
        // A bug that one object brings out must not keep the others waiting.
        let turn = AssertUnwindSafe(controller.reconcile(&key)).catch_unwind();
        let result = tokio::select! {
            result = turn => result,
            () = overdue(&stop) => return,
        };
        let end = match result {
            Ok(Ok(Next::Done)) => {
                queue.forget(&key);
                TurnEnd::Success
            }
            Ok(Ok(Next::After(delay))) => {
                queue.forget(&key);
                queue.add_after(key.clone(), delay);
                TurnEnd::After
            }
            Ok(Err(failure)) => {
                let again = queue.retry(key.clone());
                let seconds = again.as_secs_f64();
                tracing::warn!(
                    controller = C::NAME, %key, error = chain(&*failure), again_in_seconds = seconds,
                    "reconcile failed"
                );
                TurnEnd::Error
            }
            Err(_) => {
                queue.retry(key.clone());
                tracing::error!(controller = C::NAME, %key, "reconcile panicked");
                TurnEnd::Panic
            }
        };
        metrics.controllers().ended(C::NAME, end, begun.elapsed().as_secs_f64());
        queue.done(&key);
    }
}

#[cfg(test)]
mod tests;
