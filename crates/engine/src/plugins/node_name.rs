//! NodeName: a pod that names its node runs nowhere else. Spec: scheduler-core 6.2.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::parts::FilterPart;
use crate::framework::{Cycle, Demand, Filter, Hooks, NodeView, Scope, Sieve, Status};
use crate::pod::Class;

pub const NAME: &str = "NodeName";

pub fn build() -> Hooks {
    let new_node = Registration::always(Resource::Node, Action::ADD);
    Hooks::new(NAME).filter(Arc::new(NodeName)).woken_by(vec![new_node])
}

struct NodeName;

impl Filter for NodeName {
    /// The name is the pod's own, not its class's: what is kept by class must not be used for a pod that names a node.
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    fn demand(&self, _cycle: &Cycle<'_>) -> Demand {
        Demand::Nothing
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        match cycle.pod.node.is_empty() || cycle.pod.node == node.node().name {
            true => Ok(()),
            false => Err(Status::unresolvable(NAME, "node(s) didn't match the requested node name")),
        }
    }

    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        if !cycle.pod.node.is_empty() {
            sieve.retain(|row| self.check(cycle, &NodeView::of(cycle.cluster, row)));
        }
    }

    /// Nothing is remembered for a pod that names its node, so the others pass here.
    fn part(&self, _cluster: &Cluster, _class: &Arc<Class>) -> FilterPart {
        FilterPart::Nothing
    }
}
