//! What the manager knows of the cluster: one cache for each kind it reads.
//!
//! [`World::new`] makes the caches and the workers that fill them. Objects are trimmed where they arrive: what nobody
//! here looks at is not kept. Objects that are written are read again first, so nothing is lost by trimming.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ObjectReference, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::crd::device::Device;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::ElasticQuotaProfile;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::crd::node_slo::NodeSLO;
use koord_kit::cache::{Cache, CacheBuilder, Index, ObjectKey, Pool};
use koord_kit::events::reference;
use koord_kit::metrics::KitMetrics;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::node_resource::view::{MetricEntry, TopologyView};
use crate::pods::{PodBrief, PodReader};

/// How long a kind that a cluster may lack is waited for.
const MISSING_GRACE: Duration = Duration::from_secs(5);

/// Reports of thousands of nodes come one by one and all the time, and so do the echoes of what follows from them on nodes
/// and topologies; nobody waits for one to this moment. News after a pause is taken in at once.
const GATHER: Duration = Duration::from_millis(500);

/// Where the ConfigMap of strategies lies, and which namespace alone is read if any.
#[derive(Clone, Debug)]
pub struct Scope {
    pub config_namespace: String,
    pub config_name: String,
    /// Of kinds that have namespaces only those in this one are known; none is all.
    pub namespace: Option<String>,
}

/// All caches. Reads never wait.
pub struct World {
    /// Without images, volumes and managed fields.
    pub nodes: Cache<Node>,
    pub pods: Cache<PodBrief>,
    pub pods_by_node: Index<PodBrief>,
    /// By the quota that their label names.
    pub pods_by_quota: Index<PodBrief>,
    pub node_metrics: Cache<MetricEntry>,
    pub node_slos: Cache<NodeSLO>,
    pub topologies: Cache<TopologyView>,
    pub devices: Cache<Device>,
    pub profiles: Cache<ClusterColocationProfile>,
    pub quotas: Cache<ElasticQuota>,
    pub quota_profiles: Cache<ElasticQuotaProfile>,
    pub priority_classes: Cache<PriorityClass>,
    /// Names and labels.
    pub namespaces: Cache<Namespace>,
    /// slo-controller-config, or nothing.
    pub config: Cache<ConfigData>,
    checks: Vec<Waiting>,
}

/// Says what a cache waits for, if it has not been listed.
pub type Waiting = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A ConfigMap as it is used here.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigData {
    /// For events about it.
    pub reference: ObjectReference,
    pub data: BTreeMap<String, String>,
}

/// What fills the caches once it runs.
pub struct Workers(Vec<Worker>);

type Worker = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

impl Workers {
    /// Works until `stop` is cancelled.
    pub fn start(self, tasks: &TaskTracker, stop: &CancellationToken) {
        for worker in self.0 {
            tasks.spawn(worker(stop.clone()));
        }
    }
}

impl World {
    pub fn new(client: &kube::Client, scope: &Scope, metrics: &KitMetrics) -> (Arc<World>, Workers) {
        let mut maker = Maker { client, scope, metrics, checks: Vec::new(), workers: Vec::new() };
        let (reader, texts) = (PodReader::default(), Pool::default());
        let pods = maker.namespaced(move |key, pod: Pod| reader.brief(key, &pod));
        let (pods, pods_by_node) = pods.index(|pod| pod.node.as_deref());
        let (pods, pods_by_quota) = pods.index(|pod| pod.quota.as_deref());
        let config = maker.builder(|_, map: ConfigMap| ConfigData::new(map));
        let config = config.namespace::<ConfigMap>(&scope.config_namespace);
        let config = config.fields(&format!("metadata.name={}", scope.config_name));
        let nodes = maker.builder(|_, node| trimmed_node(node)).gather(GATHER);
        let namespaces = maker.builder(|_, namespace| trimmed_namespace(namespace));
        let world = World {
            nodes: maker.keep(nodes),
            pods: maker.keep(pods),
            pods_by_node,
            pods_by_quota,
            node_metrics: {
                let metrics = maker.builder(move |_, metric| MetricEntry::of(metric, &texts));
                maker.keep(metrics.optional(MISSING_GRACE).gather(GATHER))
            },
            node_slos: maker.optional(|_, slo: NodeSLO| without_managed_fields(slo)),
            topologies: {
                let topologies =
                    maker.builder(|_, topology: NodeResourceTopology| TopologyView::of(&topology));
                maker.keep(topologies.optional(MISSING_GRACE).gather(GATHER))
            },
            devices: maker.optional(|_, device: Device| without_managed_fields(device)),
            profiles: maker.optional(|_, profile: ClusterColocationProfile| without_managed_fields(profile)),
            quotas: maker.optional_namespaced(|_, quota: ElasticQuota| without_managed_fields(quota)),
            quota_profiles: maker
                .optional_namespaced(|_, profile: ElasticQuotaProfile| without_managed_fields(profile)),
            priority_classes: {
                let classes = maker.builder(|_, class: PriorityClass| without_managed_fields(class));
                maker.keep(classes)
            },
            namespaces: maker.keep(namespaces),
            config: maker.keep(config),
            checks: maker.checks,
        };
        (Arc::new(world), Workers(maker.workers))
    }

    /// For `/readyz`: what is not listed yet, the first of it.
    pub fn check(&self) -> Result<(), String> {
        self.checks.iter().try_for_each(|check| check())
    }

    /// Waits until every kind is listed, or missing for good.
    pub async fn synced(&self) {
        self.nodes.synced().await;
        self.pods.synced().await;
        self.node_metrics.synced().await;
        self.node_slos.synced().await;
        self.topologies.synced().await;
        self.devices.synced().await;
        self.profiles.synced().await;
        self.quotas.synced().await;
        self.quota_profiles.synced().await;
        self.priority_classes.synced().await;
        self.namespaces.synced().await;
        self.config.synced().await;
    }
}

struct Maker<'m> {
    client: &'m kube::Client,
    scope: &'m Scope,
    metrics: &'m KitMetrics,
    checks: Vec<Waiting>,
    workers: Vec<Worker>,
}

impl Maker<'_> {
    fn builder<K, V>(&self, project: impl Fn(&ObjectKey, K) -> V + Send + Sync + 'static) -> CacheBuilder<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
        V: Send + Sync + 'static,
    {
        CacheBuilder::of(self.client.clone(), project).metrics(self.metrics)
    }

    fn namespaced<K, V>(
        &self,
        project: impl Fn(&ObjectKey, K) -> V + Send + Sync + 'static,
    ) -> CacheBuilder<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
        V: Send + Sync + 'static,
    {
        let builder = self.builder(project);
        match &self.scope.namespace {
            Some(namespace) => builder.namespace::<K>(namespace),
            None => builder,
        }
    }

    fn optional<K, V>(&mut self, project: impl Fn(&ObjectKey, K) -> V + Send + Sync + 'static) -> Cache<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
        V: Send + Sync + 'static,
    {
        let builder = self.builder(project).optional(MISSING_GRACE);
        self.keep(builder)
    }

    fn optional_namespaced<K, V>(
        &mut self,
        project: impl Fn(&ObjectKey, K) -> V + Send + Sync + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
        V: Send + Sync + 'static,
    {
        let builder = self.namespaced(project).optional(MISSING_GRACE);
        self.keep(builder)
    }

    fn keep<V: Send + Sync + 'static>(&mut self, builder: CacheBuilder<V>) -> Cache<V> {
        let (cache, reflector) = builder.build();
        let checked = cache.clone();
        self.checks.push(Box::new(move || checked.check()));
        self.workers.push(Box::new(|stop| Box::pin(reflector.run(stop))));
        cache
    }
}

impl ConfigData {
    fn new(map: ConfigMap) -> ConfigData {
        ConfigData { reference: reference(&map), data: map.data.unwrap_or_default() }
    }
}

fn without_managed_fields<K: ResourceExt>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

fn trimmed_node(node: Node) -> Node {
    let mut node = without_managed_fields(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
    node
}

fn trimmed_namespace(namespace: Namespace) -> Namespace {
    let ObjectMeta { name, labels, annotations, uid, .. } = namespace.metadata;
    Namespace {
        metadata: ObjectMeta { name, labels, annotations, uid, ..ObjectMeta::default() },
        ..Namespace::default()
    }
}
