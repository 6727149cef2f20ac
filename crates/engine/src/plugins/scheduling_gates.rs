//! SchedulingGates: a pod is not tried while somebody keeps a gate closed. Spec: scheduler-core 1.4.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::{Hooks, PreEnqueue, Status, wakes_if};
use crate::pod::Pod;

pub const NAME: &str = "SchedulingGates";

pub fn build() -> Hooks {
    let opened = Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED;
    let registration = Registration::with(Resource::Pod, opened, wakes_if(|input| input.is_own()));
    Hooks::new(NAME).pre_enqueue(Arc::new(SchedulingGates)).woken_by(vec![registration])
}

struct SchedulingGates;

impl PreEnqueue for SchedulingGates {
    fn admit(&self, _cluster: &Cluster, pod: &Arc<Pod>) -> Result<(), Status> {
        let gates: Vec<&str> = pod.class.gates.iter().map(|gate| &**gate).collect();
        match gates.is_empty() {
            true => Ok(()),
            false => {
                let text = format!("waiting for scheduling gates: [{}]", gates.join(" "));
                Err(Status::unresolvable(NAME, text))
            }
        }
    }
}
