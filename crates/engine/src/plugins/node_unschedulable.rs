//! NodeUnschedulable: keeps pods off cordoned nodes. Spec: scheduler-core 6.1.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;

use crate::cluster::Cluster;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::parts::FilterPart;
use crate::framework::{
    Change, Cycle, Demand, Filter, HintInput, Hooks, NodeView, Scope, Sieve, Status, wakes_if,
};
use crate::pod::Class;

pub const NAME: &str = "NodeUnschedulable";

pub fn build() -> Hooks {
    Hooks::new(NAME).filter(Arc::new(NodeUnschedulable)).woken_by(vec![
        Registration::with(Resource::Node, Action::ADD | Action::UPDATE_NODE_TAINT, wakes_if(after_node)),
        Registration::with(Resource::Pod, Action::UPDATE_POD_TOLERATION, wakes_if(after_toleration)),
    ])
}

/// A node that pods may go to came, or one was opened again.
fn after_node(input: &HintInput<'_>) -> bool {
    let Change::Node { old, new: Some(new) } = input.change else { return true };
    !new.is_unschedulable && old.as_ref().is_none_or(|old| old.is_unschedulable)
}

fn after_toleration(input: &HintInput<'_>) -> bool {
    input.is_own() && is_tolerated(&input.pod.class)
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
