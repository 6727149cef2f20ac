//! NodeUnschedulable: keeps pods off cordoned nodes. Spec: scheduler-core 6.1.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;

use crate::cluster::Cluster;
use crate::framework::parts::FilterPart;
use crate::framework::{Cycle, Demand, Filter, Hooks, NodeView, Scope, Sieve, Status};
use crate::pod::Class;

pub const NAME: &str = "NodeUnschedulable";

pub fn build() -> Hooks {
    Hooks::new(NAME).filter(Arc::new(NodeUnschedulable))
}

struct NodeUnschedulable;

fn refusal() -> Status {
    Status::unresolvable(NAME, "node(s) were unschedulable")
}

/// Cordoned nodes count as if they had this taint.
fn is_tolerated(class: &Class) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    class.tolerates(&taint, |_| true)
}

impl Filter for NodeUnschedulable {
    fn scope(&self, class: &Class) -> Scope {
        if is_tolerated(class) { Scope::Nothing } else { Scope::Row }
    }

    fn demand(&self, _cycle: &Cycle<'_>) -> Demand {
        Demand::Nothing
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        match node.node().is_unschedulable && !is_tolerated(&cycle.pod.class) {
            true => Err(refusal()),
            false => Ok(()),
        }
    }

    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        let columns = &cycle.cluster.columns;
        if !columns.has_unschedulable() || is_tolerated(&cycle.pod.class) {
            return;
        }
        let verdict = sieve.verdict(refusal());
        sieve.retain_numbered(|row| columns.is_unschedulable[row.index()].then_some(verdict));
    }

    fn part(&self, _cluster: &Cluster, class: &Arc<Class>) -> FilterPart {
        if is_tolerated(class) { FilterPart::Nothing } else { FilterPart::Cordoned }
    }
}
