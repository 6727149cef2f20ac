//! NodePorts: a port of the host belongs to one pod. Spec: scheduler-core 6.5.

use std::sync::Arc;

use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::{
    Change, Code, Cycle, Facts, Filter, HintInput, Hooks, NodeView, PreFilter, Preparation, Reason, Scope,
    Status, wakes_if,
};
use crate::pod::Class;

pub const NAME: &str = "NodePorts";

pub fn build() -> Hooks {
    let plugin = Arc::new(NodePorts);
    Hooks::new(NAME).pre_filter(plugin.clone()).filter(plugin).woken_by(vec![
        Registration::with(Resource::Pod, Action::DELETE, wakes_if(after_pod)),
        Registration::always(Resource::Node, Action::ADD),
    ])
}

/// A pod went that had a place, or the promise of one, and kept a port that this one wants.
fn after_pod(input: &HintInput<'_>) -> bool {
    let Change::Pod { old: Some(old), .. } = input.change else { return true };
    let had_place = !old.node.is_empty() || !old.nominated.is_empty();
    let mut wanted = input.pod.class.ports.iter();
    had_place && wanted.any(|port| old.class.ports.iter().any(|kept| port.conflicts(kept)))
}

struct NodePorts;

impl PreFilter for NodePorts {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        Ok(if cycle.pod.class.ports.is_empty() { Preparation::Skip } else { Preparation::Go })
    }

    fn only_serves(&self, _class: &Class) -> bool {
        true
    }
}

impl Filter for NodePorts {
    fn scope(&self, class: &Class) -> Scope {
        if class.ports.is_empty() { Scope::Nothing } else { Scope::Row }
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        let wanted = &cycle.pod.class.ports;
        let taken = node.pods_with_ports().flat_map(|pod| pod.class.ports.iter());
        let mut clashes = taken.filter(|taken| wanted.iter().any(|port| port.conflicts(taken)));
        let Some(port) = clashes.next() else { return Ok(()) };
        let facts =
            Facts::Port { protocol: port.protocol.clone(), address: port.address.clone(), port: port.port };
        let text = "node(s) didn't have free ports for the requested pod ports";
        Err(Status::new(Code::Unschedulable, NAME, Reason::with(text, facts)))
    }
}
