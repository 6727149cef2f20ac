//! What the engine hears of: one watch for each kind, each change an input.
//!
//! Nothing is kept here but names, uids and versions: an object is decoded where it arrives, handed to the engine, and
//! gone. Spec: scheduler-core 1.3, 8.1, 9.2.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::storage::v1 as storage;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::reservation::Reservation;
use koord_api::gate::Gates;
use koord_api::transform::{self, PodTransform};
use koord_engine::engine::Input;
use koord_engine::engine::input::{Storage, StorageKind, Workload, WorkloadKind};
use koord_engine::profile::Profile;
use koord_kit::cache::{Cache, CacheBuilder, Delta, Deltas, ObjectKey, Reflector, Uid};
use koord_kit::metrics::KitMetrics;
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::driver::{Desk, Letter};
use crate::extender::Objects;

mod older;

use older::Beta;

/// A pod that has finished is a deletion to the scheduler.
pub(crate) const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Changes that may wait between a watch and the engine's desk.
const DELTAS_MAX: usize = 256;

/// How long a kind that a cluster may lack is waited for.
const MISSING_GRACE: Duration = Duration::from_secs(5);

/// All watches, not yet running.
pub struct Watches {
    each: Vec<Box<dyn Watch>>,
}

/// Says what a watch waits for, if it has not been listed.
pub type Waiting = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

impl Watches {
    /// One for each kind that counts under these gates and for these profiles. `kept` is what extenders are sent.
    pub fn new(
        client: &kube::Client,
        gates: &Gates,
        metrics: &KitMetrics,
        kept: Option<Arc<Objects>>,
        profiles: &[Profile],
    ) -> Watches {
        let mut maker = Maker { client, metrics, each: Vec::new(), reservations: None };
        let transform = PodTransform::new(gates);
        if profiles.iter().any(Profile::reserves) {
            maker.reservations();
        }
        match kept {
            None => maker.pods_and_nodes(move |object| pod(transform, object), pod_gone, node, node_gone),
            Some(kept) => maker.pods_and_nodes_kept(transform, &kept),
        }
        maker.add(Plan::of(
            |object| Input::Namespace { object },
            |key, _| Input::NamespaceGone { name: name(key) },
        ));
        maker.workload(Workload::Service, WorkloadKind::Service);
        maker.workload(Workload::ReplicationController, WorkloadKind::ReplicationController);
        maker.workload(Workload::ReplicaSet, WorkloadKind::ReplicaSet);
        maker.workload(Workload::StatefulSet, WorkloadKind::StatefulSet);
        maker.storage(Storage::PersistentVolume, StorageKind::PersistentVolume);
        maker.storage(Storage::PersistentVolumeClaim, StorageKind::PersistentVolumeClaim);
        maker.storage(Storage::StorageClass, StorageKind::StorageClass);
        maker.storage(Storage::CsiNode, StorageKind::CsiNode);
        maker.storage(Storage::CsiDriver, StorageKind::CsiDriver);
        maker.storage(Storage::VolumeAttachment, StorageKind::VolumeAttachment);
        maker.capacities(gates);
        maker.budgets(gates);
        if profiles.iter().any(Profile::follows_load) {
            maker.node_metrics();
        }
        Watches { each: maker.each }
    }

    pub fn len(&self) -> usize {
        self.each.len()
    }

    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// What each is waiting for, for people.
    pub fn checks(&self) -> Vec<Waiting> {
        self.each.iter().map(|watch| watch.check()).collect()
    }

    /// Runs all of them until `stop` is cancelled; every change goes to the desk.
    pub fn start(self, desk: &Desk, stop: &CancellationToken, spawn: &dyn Fn(Task)) {
        for watch in self.each {
            for task in watch.start(desk.clone(), stop.clone()) {
                spawn(task);
            }
        }
    }
}

/// Something that runs until it is stopped.
pub type Task = futures::future::BoxFuture<'static, ()>;

/// A watch of any kind.
trait Watch: Send {
    fn check(&self) -> Waiting;
    fn start(self: Box<Self>, desk: Desk, stop: CancellationToken) -> [Task; 2];
}

/// An object on its way to the engine, and afterwards what is needed to tell that it is gone.
struct Parcel<K> {
    key: ObjectKey,
    uid: Uid,
    /// The uid as written, where [`Uid`] does not show it.
    odd_uid: Option<Box<str>>,
    /// Taken when it is delivered. Locked by the watch's own tasks only, one after the other.
    object: Mutex<Option<Box<K>>>,
}

impl<K: Resource> Parcel<K> {
    fn new(key: &ObjectKey, object: K) -> Parcel<K> {
        let text = object.meta().uid.as_deref().unwrap_or_default();
        let uid = Uid::of(text);
        let odd_uid = (uid.to_string() != text).then(|| text.into());
        Parcel { key: key.clone(), uid, odd_uid, object: Mutex::new(Some(Box::new(object))) }
    }
}

impl<K> Parcel<K> {
    fn uid(&self) -> String {
        self.odd_uid.as_deref().map_or_else(|| self.uid.to_string(), str::to_owned)
    }

    fn take(&self) -> Option<Box<K>> {
        self.object.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }
}

type ToInput<K> = Box<dyn Fn(Box<K>) -> Input + Send + Sync>;
/// The input that tells of a deletion.
type Gone = Box<dyn Fn(&ObjectKey, String) -> Input + Send + Sync>;
type ToGone = fn(&ObjectKey, String) -> Input;

/// How a kind is watched and told.
struct Plan<K> {
    here: ToInput<K>,
    gone: Gone,
    fields: Option<&'static str>,
    may_be_missing: bool,
    /// Told when the first list was delivered.
    tells: Option<watch::Sender<bool>>,
    /// Nothing is delivered before this is told.
    after: Option<watch::Receiver<bool>>,
}

impl<K> Plan<K> {
    fn of(
        here: impl Fn(Box<K>) -> Input + Send + Sync + 'static,
        gone: impl Fn(&ObjectKey, String) -> Input + Send + Sync + 'static,
    ) -> Plan<K> {
        let (here, gone) = (Box::new(here), Box::new(gone));
        Plan { here, gone, fields: None, may_be_missing: false, tells: None, after: None }
    }

    fn fields(self, fields: &'static str) -> Plan<K> {
        Plan { fields: Some(fields), ..self }
    }

    fn may_be_missing(self) -> Plan<K> {
        Plan { may_be_missing: true, ..self }
    }
}

/// One kind's watch.
struct KindWatch<K> {
    cache: Cache<Parcel<K>>,
    reflector: Reflector<Parcel<K>>,
    deltas: Deltas<Parcel<K>>,
    plan: Plan<K>,
}

impl<K: Send + Sync + 'static> Watch for KindWatch<K> {
    fn check(&self) -> Waiting {
        let cache = self.cache.clone();
        Box::new(move || cache.check())
    }

    fn start(self: Box<Self>, desk: Desk, stop: CancellationToken) -> [Task; 2] {
        let KindWatch { cache: _, reflector, deltas, plan } = *self;
        [Box::pin(reflector.run(stop)), Box::pin(deliver(deltas, plan, desk))]
    }
}

/// Hands every change on, in order. Ends with the watch.
async fn deliver<K>(mut deltas: Deltas<Parcel<K>>, plan: Plan<K>, desk: Desk) {
    let mut is_listed = false;
    if let Some(mut before) = plan.after {
        // An error means that the other watch has ended, as this one will.
        let _ = before.wait_for(|is_listed| *is_listed).await;
    }
    while let Some(delta) = deltas.next().await {
        let letter = match delta {
            Delta::Added(new) | Delta::Updated { new, .. } => match new.take() {
                Some(object) => Letter::Input((plan.here)(object)),
                None => continue,
            },
            Delta::Deleted(old) => Letter::Input((plan.gone)(&old.key, old.uid())),
            Delta::Synced if is_listed => continue,
            Delta::Synced => {
                is_listed = true;
                Letter::Listed
            }
        };
        desk.send(letter).await;
        if is_listed && let Some(tells) = &plan.tells {
            tells.send_replace(true);
        }
    }
}

struct Maker<'m> {
    client: &'m kube::Client,
    metrics: &'m KitMetrics,
    each: Vec<Box<dyn Watch>>,
    /// Told when all Reservations are listed, where they are watched.
    reservations: Option<watch::Receiver<bool>>,
}

impl Maker<'_> {
    fn add<K>(&mut self, plan: Plan<K>)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let mut builder = CacheBuilder::of(self.client.clone(), Parcel::<K>::new).metrics(self.metrics);
        if let Some(fields) = plan.fields {
            builder = builder.fields(fields);
        }
        if plan.may_be_missing {
            builder = builder.optional(MISSING_GRACE);
        }
        let (cache, reflector) = builder.build();
        let deltas = cache.subscribe(DELTAS_MAX);
        self.each.push(Box::new(KindWatch { cache, reflector, deltas, plan }));
    }

    /// A cluster may lack the kind, and get it later.
    fn reservations(&mut self) {
        let (tells, listed) = watch::channel(false);
        self.reservations = Some(listed);
        let here = |mut object: Box<Reservation>| {
            transform::reservation(&mut object);
            Input::Reservation { object }
        };
        let plan = Plan::of(here, |key, uid| Input::ReservationGone { name: name(key), uid });
        self.add(Plan { tells: Some(tells), ..plan.may_be_missing() });
    }

    fn pods_and_nodes(
        &mut self,
        pod: impl Fn(Box<core::Pod>) -> Input + Send + Sync + 'static,
        pod_gone: impl Fn(&ObjectKey, String) -> Input + Send + Sync + 'static,
        node: impl Fn(Box<core::Node>) -> Input + Send + Sync + 'static,
        node_gone: impl Fn(&ObjectKey, String) -> Input + Send + Sync + 'static,
    ) {
        // Pods say which reservation they use, so those come first.
        let after = self.reservations.clone();
        self.add(Plan { after, ..Plan::of(pod, pod_gone).fields(UNFINISHED) });
        self.add(Plan::of(node, node_gone));
    }

    /// The same, and extenders can be sent what is watched.
    fn pods_and_nodes_kept(&mut self, transform: PodTransform, kept: &Arc<Objects>) {
        let (of_pods, of_gone_pods) = (kept.clone(), kept.clone());
        let (of_nodes, of_gone_nodes) = (kept.clone(), kept.clone());
        self.pods_and_nodes(
            move |object| {
                let input = pod(transform, object);
                if let Input::Pod { object } = &input {
                    of_pods.set_pod(object);
                }
                input
            },
            move |key, uid| {
                of_gone_pods.remove_pod(&uid);
                pod_gone(key, uid)
            },
            move |object| {
                let input = node(object);
                if let Input::Node { object } = &input {
                    of_nodes.set_node(object);
                }
                input
            },
            move |key, uid| {
                of_gone_nodes.remove_node(&key.name);
                node_gone(key, uid)
            },
        );
    }

    fn workload<K>(&mut self, wrap: fn(Box<K>) -> Workload, kind: WorkloadKind)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.add(Plan::of(
            move |object| Input::Workload { object: wrap(object) },
            move |key, _| Input::WorkloadGone { kind, namespace: namespace(key), name: name(key) },
        ));
    }

    fn storage<K>(&mut self, wrap: fn(Box<K>) -> Storage, kind: StorageKind)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        self.add(storage_plan(wrap, kind));
    }

    /// Older clusters serve them under v1beta1, or not at all.
    fn capacities(&mut self, gates: &Gates) {
        let kind = StorageKind::CsiStorageCapacity;
        if gates.is_on("DisableCSIStorageCapacityInformer") {
            return;
        }
        if gates.is_on("CompatibleCSIStorageCapacity") {
            let wrap = |object: Box<Beta<storage::CSIStorageCapacity>>| {
                Storage::CsiStorageCapacity(Box::new(object.0))
            };
            return self.add(storage_plan(wrap, kind).may_be_missing());
        }
        self.add(storage_plan(Storage::CsiStorageCapacity, kind).may_be_missing());
    }

    /// A cluster may have no koordlet yet, and so no such kind.
    fn node_metrics(&mut self) {
        let here = |object: Box<NodeMetric>| Input::NodeMetric { object };
        let gone: ToGone = |key, _| Input::NodeMetricGone { name: name(key) };
        self.add(Plan::of(here, gone).may_be_missing());
    }

    fn budgets(&mut self, gates: &Gates) {
        let gone: ToGone = |key, _| Input::BudgetGone { namespace: namespace(key), name: name(key) };
        if gates.is_on("DisablePodDisruptionBudgetInformer") {
            return;
        }
        if gates.is_on("CompatiblePodDisruptionBudget") {
            let here =
                |object: Box<Beta<policy::PodDisruptionBudget>>| Input::Budget { object: Box::new(object.0) };
            return self.add(Plan::of(here, gone).may_be_missing());
        }
        self.add(Plan::of(|object| Input::Budget { object }, gone).may_be_missing());
    }
}

fn storage_plan<K>(wrap: fn(Box<K>) -> Storage, kind: StorageKind) -> Plan<K>
where
    K: 'static,
{
    Plan::of(
        move |object| Input::Storage { object: wrap(object) },
        move |key, _| Input::StorageGone { kind, namespace: namespace(key), name: name(key) },
    )
}

fn name(key: &ObjectKey) -> String {
    key.name.to_string()
}

fn namespace(key: &ObjectKey) -> String {
    key.namespace.to_string()
}

fn pod(transform: PodTransform, mut object: Box<core::Pod>) -> Input {
    transform.apply(&mut object, |error| {
        tracing::warn!(error = error as &dyn std::error::Error, "an annotation of a pod cannot be read");
    });
    Input::Pod { object }
}

fn pod_gone(key: &ObjectKey, uid: String) -> Input {
    Input::PodGone { namespace: namespace(key), name: name(key), uid }
}

fn node_gone(key: &ObjectKey, _: String) -> Input {
    Input::NodeGone { name: name(key) }
}

fn node(mut object: Box<core::Node>) -> Input {
    transform::node(&mut object);
    Input::Node { object }
}

#[cfg(test)]
mod tests;
