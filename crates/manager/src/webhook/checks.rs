//! Handlers of everything but new pods, over the caches of the process: who answers what, with what.
//!
//! The decisions are in [`super::quota`], [`super::pod_validate`], [`config_map`], [`super::binding`], [`reservation`] and [`node`]; here they
//! get the state they share, a clock and their metrics.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::number::nearest;
use koord_api::quantity::ResourceList;
use koord_api::slo::admission::{NodeLabels, Options as ConfigOptions};
use koord_kit::cache::{Cache, CacheBuilder};
use koord_kit::metrics::{KitMetrics, Metrics, Tally};
use kube::Api;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::binding::{BindingRules, Decision};
use super::facts::Facts;
use super::handler::{Aside, Handler};
use super::pod_validate::{PodGates, PodValidator};
use super::quota::evaluator::{Evaluator, RetryPolicy};
use super::quota::validate::{BoundPods, Labelled};
use super::quota::watch::{ClusterQuotas, follow, look};
use super::quota::{Topology, handlers};
use super::review::{Answer, Request, Verdict};
use super::{config_map, enhanced, node, paths, reservation};
use crate::flags::Options;
use crate::world::World;

/// What the handlers share.
pub struct Checks {
    world: Arc<World>,
    client: kube::Client,
    options: Arc<Options>,
    topology: Arc<RwLock<Topology>>,
    /// Whether all quotas of the first list are in the topology.
    synced: (watch::Sender<bool>, watch::Receiver<bool>),
    pods: Arc<PodValidator<ClusterQuotas>>,
    enhanced: Option<EnhancedWorker>,
    metrics: CheckMetrics,
}

/// Data of the ConfigMap with the rules for labels.
type RulesCache = Cache<BTreeMap<String, String>>;
type EnhancedWorker = koord_kit::cache::Reflector<BTreeMap<String, String>>;

impl Checks {
    /// `internal` is shown at `/internal-metrics`.
    pub fn new(
        world: &Arc<World>,
        client: &kube::Client,
        options: &Arc<Options>,
        kit_metrics: &KitMetrics,
        internal: &Metrics,
    ) -> Checks {
        let gates = PodGates::new(&options.gates);
        let topology = Arc::<RwLock<Topology>>::default();
        let (rules, enhanced) = rules_cache(client, options, gates.enhanced, kit_metrics);
        let update = &options.quota_update;
        let policy = RetryPolicy {
            retries_max: update.retries_max,
            jitter: update.retry_jitter,
            jitter_total_max: update.total_jitter_max,
            reads_fresh: update.reads_after_conflict,
        };
        let store = ClusterQuotas { client: client.clone(), quotas: world.quotas.clone() };
        let place = options.enhanced_validator.clone();
        let pods = PodValidator {
            gates,
            topology: topology.clone(),
            evaluator: Evaluator::new(store, policy),
            rules: enhanced::Keeper::new(place.reconcile_interval),
            read_rules: Box::new(move || {
                let found = rules.as_ref()?.get(&place.config_namespace, &place.config_name)?;
                Some((*found).clone())
            }),
            clock: Timestamp::now,
        };
        Checks {
            world: world.clone(),
            client: client.clone(),
            options: options.clone(),
            topology,
            synced: watch::channel(false),
            pods: Arc::new(pods),
            enhanced,
            metrics: CheckMetrics::new(internal),
        }
    }

    /// Starts what keeps the shared state up to date, until `stop` is cancelled.
    pub fn start(&mut self, tasks: &TaskTracker, stop: &CancellationToken) {
        let synced = self.synced.0.clone();
        let quotas = self.world.quotas.subscribe(QUEUE);
        // Nobody may wait for it any more.
        let told = move || _ = synced.send(true);
        let (following, stopped) = (follow(quotas, self.topology.clone(), told), stop.clone());
        // The cache does not end by itself: others hold it as long as the process lasts.
        tasks.spawn(async move {
            tokio::select! {
                () = following => {}
                () = stopped.cancelled() => {}
            }
        });
        if let Some(worker) = self.enhanced.take() {
            tasks.spawn(worker.run(stop.clone()));
        }
    }

    /// Waits until all quotas are known.
    pub async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.synced.1.clone().wait_for(|synced| *synced).await;
    }

    /// Content of `/elasticQuota`.
    pub fn quotas(&self) -> Arc<dyn Fn() -> Value + Send + Sync> {
        let topology = self.topology.clone();
        Arc::new(move || topology.read().unwrap_or_else(PoisonError::into_inner).ledger().summary())
    }

    /// The handlers by path.
    pub fn handlers(&self) -> Vec<(&'static str, Handler)> {
        vec![
            (paths::VALIDATE_POD, self.pods.clone().handler()),
            (paths::MUTATE_QUOTA, self.mutate_quota()),
            (paths::VALIDATE_QUOTA, self.validate_quota()),
            (paths::VALIDATE_CONFIG_MAP, self.validate_config_map()),
            (paths::VALIDATE_BINDING, self.validate_binding()),
            (paths::MUTATE_RESERVATION, Handler::now(reservation::mutate)),
            (paths::MUTATE_NODE_STATUS, Handler::now(node::mutate)),
            (paths::VALIDATE_NODE, Handler::now(node::validate)),
        ]
    }

    /// Differs: before a quota is refused, all quotas are read from the API server. What a user created a moment ago may
    /// have been admitted by another replica, and upstream then refuses what belongs to it, such as a child of that quota.
    fn mutate_quota(&self) -> Handler {
        let (topology, metrics, api) = (self.topology.clone(), self.metrics.clone(), self.quota_api());
        let decide = move |request: &Request, topology: &RwLock<Topology>| {
            let weight = |name: &str, weight: &ResourceList| metrics.shared_weight(name, weight);
            handlers::mutate(request, topology, weight)
        };
        twice(decide, topology, api)
    }

    fn validate_quota(&self) -> Handler {
        let (topology, world, api) = (self.topology.clone(), self.world.clone(), self.quota_api());
        let gates = self.pods.gates.quota;
        let decide = move |request: &Request, topology: &RwLock<Topology>| {
            handlers::validate(request, topology, &KnownPods(&world), gates, Timestamp::now())
        };
        twice(decide, topology, api)
    }

    /// The quotas that the caches know of.
    fn quota_api(&self) -> Api<ElasticQuota> {
        match &self.options.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn validate_config_map(&self) -> Handler {
        let world = self.world.clone();
        let options = ConfigOptions {
            namespace: self.options.config_namespace.clone(),
            name: self.options.config_name.clone(),
            names_required: self.options.node_strategy_names,
        };
        Handler::now(move |request, _, aside| {
            let nodes = world.nodes.snapshot();
            let none = BTreeMap::new();
            let labels: Vec<NodeLabels<'_>> = nodes
                .iter()
                .map(|(key, node)| NodeLabels {
                    name: &key.name,
                    labels: node.metadata.labels.as_ref().unwrap_or(&none),
                })
                .collect();
            config_map::answer(request, &labels, &options, &mut *aside.step)
        })
    }

    fn validate_binding(&self) -> Handler {
        let rules = Arc::new(BindingRules::new(&self.options.binding_admission));
        let is_gate_on = self.options.gates.is_on("BindingAdmissionWebhook");
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        Handler::later(move |request, _, _| {
            let (rules, client, metrics) = (rules.clone(), client.clone(), metrics.clone());
            Box::pin(async move {
                let decision = match rules.on_request(is_gate_on, &request) {
                    Some(decision) => decision,
                    // What the caches keep of pods does not hold their labels; few bindings come this far.
                    None => {
                        let pods = Api::<Pod>::namespaced(client, &request.namespace);
                        let pod = pods.get_metadata_opt(&request.name).await.ok().flatten();
                        rules.with_pod(pod.as_ref().map(|pod| &pod.metadata))
                    }
                };
                metrics.binding(decision);
                if decision == Decision::DryRun {
                    tracing::info!(
                        pod = request.name,
                        namespace = request.namespace,
                        user = request.user.username,
                        "binding would be denied"
                    );
                }
                Answer::from(decision.answer())
            })
        })
    }
}

/// Changes of quotas that may wait for the topology.
const QUEUE: usize = 256;

/// Decides by what the watch has told; before anything is refused, by what the API server says.
fn twice(
    decide: impl Fn(&Request, &RwLock<Topology>) -> Answer + Send + Sync + 'static,
    topology: Arc<RwLock<Topology>>,
    api: Api<ElasticQuota>,
) -> Handler {
    let decide = Arc::new(decide);
    let (first, known) = (decide.clone(), topology.clone());
    let at_once = move |request: &Request, _: &Facts, aside: &mut Aside<'_>| {
        let answer = first(request, &known);
        (aside.step)(handlers::PLUGIN, is_allowed(&answer));
        answer
    };
    Handler::twice(at_once, move |request, _, _| {
        let (decide, topology, api) = (decide.clone(), topology.clone(), api.clone());
        Box::pin(async move {
            look(&api, &topology).await;
            decide(&request, &topology)
        })
    })
}

fn is_allowed(answer: &Answer) -> bool {
    !matches!(answer.verdict, Verdict::Denied(_))
}

/// Only watched where somebody asks for it.
fn rules_cache(
    client: &kube::Client,
    options: &Options,
    is_on: bool,
    metrics: &KitMetrics,
) -> (Option<RulesCache>, Option<EnhancedWorker>) {
    if !is_on {
        return (None, None);
    }
    let place = &options.enhanced_validator;
    let builder = CacheBuilder::of(client.clone(), |_, map: ConfigMap| map.data.unwrap_or_default());
    let builder = builder.namespace::<ConfigMap>(&place.config_namespace);
    let builder = builder.fields(&format!("metadata.name={}", place.config_name)).metrics(metrics);
    let (cache, worker) = builder.build();
    (Some(cache), Some(worker))
}

/// Pods as the watch has them.
struct KnownPods<'w>(&'w World);

impl BoundPods for KnownPods<'_> {
    fn labelled(&self, quota: &str) -> Labelled {
        let pods = self.0.pods_by_quota.get(quota);
        Labelled::new(pods.iter().map(|pod| (&*pod.key.namespace, &*pod.key.name)))
    }

    fn any_in(&self, namespace: &str) -> bool {
        !self.0.pods.in_namespace(namespace).is_empty()
    }
}

/// Numbers of admission that belong to one handler. Spec: manager 24.2.
#[derive(Clone, Debug)]
struct CheckMetrics {
    weights: Family<WeightLabels, Gauge<f64, AtomicU64>>,
    bindings: Family<BindingLabels, Tally>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WeightLabels {
    elasticquota_name: String,
    resource_name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BindingLabels {
    decision: &'static str,
}

impl CheckMetrics {
    fn new(internal: &Metrics) -> CheckMetrics {
        let ours = CheckMetrics { weights: Family::default(), bindings: Family::default() };
        internal.register(|registry| {
            registry.register(
                "koord_manager_webhook_quota_shared_weight",
                "The shared weight of the quota",
                ours.weights.clone(),
            );
            registry.register(
                "koord_manager_webhook_binding_admission_decisions_total",
                "What became of bindings of pods",
                ours.bindings.clone(),
            );
        });
        ours
    }

    fn shared_weight(&self, quota: &str, weight: &ResourceList) {
        for (name, amount) in weight {
            let labels = WeightLabels { elasticquota_name: quota.to_owned(), resource_name: name.clone() };
            self.weights.get_or_create(&labels).set(nearest(amount.value()));
        }
    }

    fn binding(&self, decision: Decision) {
        if let Some(decision) = decision.metric() {
            self.bindings.get_or_create(&BindingLabels { decision }).inc();
        }
    }
}

#[cfg(test)]
mod tests;
