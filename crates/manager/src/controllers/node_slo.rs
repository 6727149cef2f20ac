//! Keeps a NodeSLO for every Node. Spec: manager 4.

use koord_api::crd::node_slo::{NodeSLO, NodeSloSpec};
use koord_api::slo::{Ignored, key};

use super::follow::{Complaints, Follower, facts, node_differs};
use super::{Controller, Failure, Feeds, Ground, Key, Next};
use crate::node_slo::plan;

pub(super) struct NodeSlos {
    ground: Ground,
    follower: Follower<NodeSloSpec, NodeSLO>,
    complaints: Complaints,
}

impl NodeSlos {
    pub(super) fn new(ground: &Ground) -> NodeSlos {
        let follower = Follower {
            client: ground.client.clone(),
            set_spec: |object: &mut NodeSLO, spec| object.spec = Some(spec),
            outcomes: ground.metrics.node_slo_reconcile.clone(),
            reasons: ["createNodeSLO", "updateNodeSLO", "deleteNodeSLO"],
        };
        let complaints = Complaints::new(ground.recorder("nodeslo-controller"));
        NodeSlos { ground: ground.clone(), follower, complaints }
    }

    /// What each part of the spec came from. Only the bandwidth can fail, for all else was read before.
    fn count_parts(&self, ignored: &[Ignored]) {
        for reason in [
            "getResourceThresholdSpec",
            "getResourceQOSSpec",
            "getCPUBurstConfigSpec",
            "getHostApplicationConfig",
            "getNodeSLOExtension",
        ] {
            self.ground.metrics.node_slo_spec_parse.count(true, reason);
        }
        self.ground.metrics.node_slo_spec_parse.count(ignored.is_empty(), "getSystemConfigSpec");
    }
}

impl Controller for NodeSlos {
    const NAME: &'static str = "nodeslo";

    fn listen(&self, feeds: &Feeds) {
        feeds.on_object(&self.ground.world.nodes, node_differs);
        feeds.on_object(&self.ground.world.node_slos, |old, new| old.spec != new.spec);
        feeds.on_strategies(&[
            key::RESOURCE_THRESHOLD,
            key::RESOURCE_QOS,
            key::CPU_BURST,
            key::SYSTEM,
            key::HOST_APPLICATION,
        ]);
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.ground.world;
        let (node, present) = (world.nodes.get("", &key.name), world.node_slos.get("", &key.name));
        let standing = self.ground.strategies.now();
        let spec = present.as_deref().map(|object| object.spec.as_ref());
        let (plan, ignored) = plan(&standing.config, node.as_deref().map(facts), spec);
        if node.is_some() && standing.config.is_loaded() {
            self.count_parts(&ignored);
        }
        self.complaints.tell(key, node.as_deref(), ignored);
        self.follower.carry_out(key, plan, present.as_deref()).await?;
        Ok(Next::Done)
    }
}
