//! What the API server tells of this node: the Node, its NodeSLO, its NodeMetric. Spec: koordlet-observe 3.1 to 3.3, 7.1.
//!
//! Each watch is of one object. What is deleted stays in use as it was last seen: a node without orders keeps to the
//! last ones.

use std::sync::Arc;

use k8s_openapi::api::core::v1;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::crd::node_slo::{NodeSLO, NodeSloSpec};
use koord_api::slo::Effective;
use koord_kit::cache::{Cache, CacheBuilder, Delta, Deltas, Reflector};
use koord_kit::events::Recorder;
use koord_kit::metrics::KitMetrics;
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::node_faults::NodeFaults;
use super::{MetricPace, MetricPolicy, NodeState, State};

/// Changes that may wait; one object changes seldom.
const QUEUE: usize = 16;

/// A connection to the API server and whose objects are watched.
#[derive(Clone)]
pub struct Watcher {
    pub client: kube::Client,
    pub node: String,
    pub metrics: KitMetrics,
}

impl Watcher {
    fn cache<K, V>(&self, project: impl Fn(K) -> V + Send + Sync + 'static) -> (Cache<V>, Reflector<V>)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
        V: Send + Sync + 'static,
    {
        CacheBuilder::of(self.client.clone(), move |_, object: K| project(object))
            .fields(&format!("metadata.name={}", self.node))
            .metrics(&self.metrics)
            .build()
    }

    /// The topology that is reported, whole: what others wrote must survive.
    pub fn topology(&self) -> (Cache<NodeResourceTopology>, Reflector<NodeResourceTopology>) {
        self.cache(|object: NodeResourceTopology| object)
    }

    /// Follows the Node, and tells users of annotations that cannot be read.
    pub async fn node(self, state: State, recorder: Recorder, stop: CancellationToken) {
        let (cache, worker) = self.cache(|object: v1::Node| NodeState::read(&object));
        let mut faults = NodeFaults::default();
        let take = |news: News<NodeState>| {
            if let News::Object(node) = news {
                faults.tell(&node, &recorder);
                node_seen(&state, node);
            }
        };
        follow(cache.subscribe(QUEUE), worker, take, stop).await;
    }

    /// Follows the NodeSLO. `extensions` are the names of third parties' strategies that this koordlet knows.
    pub async fn slo(self, state: State, extensions: &'static [&'static str], stop: CancellationToken) {
        let (cache, worker) = self.cache(|object: NodeSLO| object.spec.unwrap_or_default());
        let mut last = None;
        let take = |news: News<NodeSloSpec>| match news {
            News::Listed => state.update(|snapshot| snapshot.synced.slo = true),
            News::Object(spec) => slo_seen(&state, &mut last, spec, extensions),
        };
        follow(cache.subscribe(QUEUE), worker, take, stop).await;
    }

    /// Follows the NodeMetric's spec.
    pub async fn metric(self, state: State, pace: MetricPace, stop: CancellationToken) {
        let (cache, worker) = self.cache(move |object: NodeMetric| {
            let policy = object.spec.and_then(|spec| spec.metric_collect_policy);
            MetricPolicy::new(policy.as_ref(), &pace)
        });
        let take = |news: News<MetricPolicy>| {
            if let News::Object(policy) = news {
                metric_seen(&state, policy);
            }
        };
        follow(cache.subscribe(QUEUE), worker, take, stop).await;
    }
}

/// What a watch of one object tells.
enum News<V> {
    /// All there is was told.
    Listed,
    Object(Arc<V>),
}

async fn follow<V: Send + Sync + 'static>(
    mut deltas: Deltas<V>,
    worker: Reflector<V>,
    mut take: impl FnMut(News<V>),
    stop: CancellationToken,
) {
    let read = async {
        while let Some(delta) = deltas.next().await {
            match delta {
                Delta::Added(object) | Delta::Updated { new: object, .. } => take(News::Object(object)),
                Delta::Synced => take(News::Listed),
                Delta::Deleted(_) => {}
            }
        }
    };
    let until = stop.clone();
    tokio::select! {
        ((), ()) = async { tokio::join!(worker.run(stop), read) } => {}
        () = until.cancelled() => {}
    }
}

fn node_seen(state: &State, node: Arc<NodeState>) {
    let snapshot = state.load();
    let before = snapshot.node.as_ref();
    if before.is_some_and(|before| *before == node) {
        return;
    }
    let is_same_metadata =
        before.is_some_and(|before| before.labels == node.labels && before.annotations == node.annotations);
    state.update(|snapshot| {
        snapshot.node = Some(node);
        snapshot.editions.node_metadata += u64::from(!is_same_metadata);
    });
}

fn slo_seen(state: &State, last: &mut Option<Arc<NodeSloSpec>>, spec: Arc<NodeSloSpec>, extensions: &[&str]) {
    if last.as_ref() == Some(&spec) {
        return;
    }
    let slo = Arc::new(Effective::new(&spec, extensions));
    *last = Some(spec);
    tracing::info!("strategies of the node changed");
    state.update(|snapshot| {
        snapshot.slo = Some(slo);
        snapshot.editions.slo += 1;
    });
}

fn metric_seen(state: &State, policy: Arc<MetricPolicy>) {
    let snapshot = state.load();
    if snapshot.synced.metric && snapshot.metric_policy == policy {
        return;
    }
    state.update(|snapshot| {
        snapshot.metric_policy = policy;
        snapshot.synced.metric = true;
    });
}

#[cfg(test)]
mod tests {
    use koord_api::crd::node_slo::ResourceThresholdStrategy;

    use super::*;
    use crate::state::{Editions, News};

    #[test]
    fn a_node_tells_of_its_labels_and_annotations() {
        let state = State::default();
        let mut seen = Editions::default();
        let mut node = NodeState { name: "n1".to_owned(), ..NodeState::default() };
        node_seen(&state, Arc::new(node.clone()));
        assert!(seen.catch_up(&state.load()).node_metadata);
        node.kubelet_port = 10_250;
        node_seen(&state, Arc::new(node.clone()));
        assert_eq!(seen.catch_up(&state.load()), News::default(), "the rest is not told");
        assert_eq!(state.load().node.as_ref().unwrap().kubelet_port, 10_250);
        node.labels.insert("a".to_owned(), "b".to_owned());
        node_seen(&state, Arc::new(node.clone()));
        assert!(seen.catch_up(&state.load()).node_metadata);
        let before = state.load();
        node_seen(&state, Arc::new(node));
        assert!(Arc::ptr_eq(before.node.as_ref().unwrap(), state.load().node.as_ref().unwrap()));
    }

    #[test]
    fn strategies_are_told_when_the_spec_changes() {
        let state = State::default();
        let (mut seen, mut last) = (Editions::default(), None);
        let spec = Arc::new(NodeSloSpec::default());
        slo_seen(&state, &mut last, spec.clone(), &[]);
        assert!(seen.catch_up(&state.load()).slo);
        let threshold = state.load().slo.as_ref().unwrap().threshold.clone();
        assert_eq!(threshold.enable, Some(false), "what is absent has its default");
        slo_seen(&state, &mut last, Arc::new(NodeSloSpec::clone(&spec)), &[]);
        assert_eq!(seen.catch_up(&state.load()), News::default());
        let on = ResourceThresholdStrategy { enable: Some(true), ..ResourceThresholdStrategy::default() };
        let changed = NodeSloSpec { resource_used_threshold_with_be: Some(on), ..NodeSloSpec::default() };
        slo_seen(&state, &mut last, Arc::new(changed), &[]);
        assert!(seen.catch_up(&state.load()).slo);
        assert_eq!(state.load().slo.as_ref().unwrap().threshold.enable, Some(true));
    }

    #[test]
    fn a_metric_without_a_spec_is_there_nevertheless() {
        let state = State::default();
        assert!(!state.load().synced.metric);
        metric_seen(&state, Arc::new(MetricPolicy::default()));
        assert!(state.load().synced.metric);
    }
}
