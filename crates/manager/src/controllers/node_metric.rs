//! Keeps a NodeMetric for every Node. Spec: manager 3.

use koord_api::crd::node_metric::{NodeMetric, NodeMetricSpec};
use koord_api::slo::key;

use super::follow::{Complaints, Follower, facts, node_differs};
use super::{Controller, Failure, Feeds, Ground, Key, Next, key_of};
use crate::node_metric::plan;
use crate::node_resource::view::MetricEntry;

pub(super) struct NodeMetrics {
    ground: Ground,
    follower: Follower<NodeMetricSpec, NodeMetric>,
    complaints: Complaints,
}

impl NodeMetrics {
    pub(super) fn new(ground: &Ground) -> NodeMetrics {
        let follower = Follower {
            client: ground.client.clone(),
            set_spec: |object: &mut NodeMetric, spec| object.spec = Some(spec),
            outcomes: ground.metrics.node_metric_reconcile.clone(),
            reasons: ["createNodeMetric", "updateNodeMetric", "deleteNodeMetric"],
        };
        let complaints = Complaints::new(ground.recorder("nodemetric-controller"));
        NodeMetrics { ground: ground.clone(), follower, complaints }
    }
}

impl Controller for NodeMetrics {
    const NAME: &'static str = "nodemetric";

    fn listen(&self, feeds: &Feeds) {
        feeds.on_object(&self.ground.world.nodes, node_differs);
        let metrics = &self.ground.world.node_metrics;
        let spec_differs = |old: &MetricEntry, new: &MetricEntry| old.object.spec != new.object.spec;
        feeds.on_entry(metrics, |entry| key_of(&entry.object), spec_differs);
        feeds.on_strategies(&[key::COLOCATION]);
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.ground.world;
        let (node, present) = (world.nodes.get("", &key.name), world.node_metrics.get("", &key.name));
        let present = present.as_deref().map(|entry| &entry.object);
        let standing = self.ground.strategies.now();
        let node_facts = node.as_deref().map(facts);
        let plan = plan(&standing.config, node_facts, present.map(|object| object.spec.as_ref()));
        if let Some(rendered) = node_facts.and_then(|facts| standing.config.colocation_strategy(facts)) {
            let outcomes = &self.ground.metrics.node_metric_spec_parse;
            outcomes.count(rendered.ignored.is_empty(), "getNodeMetricCollectPolicy");
            self.complaints.tell(key, node.as_deref(), rendered.ignored);
        }
        self.follower.carry_out(key, plan, present).await?;
        Ok(Next::Done)
    }
}
