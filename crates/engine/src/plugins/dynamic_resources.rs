//! DynamicResources: the little of it that pods without resource claims meet. Spec: scheduler-core 6.12, 4.2.
//!
//! Claims are not allocated yet, so a pod that has some is refused rather than placed blindly.

use std::sync::Arc;

use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::{
    Cycle, Hooks, Nominating, PostFilter, PostFilterInput, PostFiltered, PreFilter, Preparation, Status,
};
use crate::pod::Class;
use crate::random::Random;

pub const NAME: &str = "DynamicResources";

pub fn build() -> Hooks {
    let plugin = Arc::new(DynamicResources);
    let node = Action::ADD | Action::UPDATE_NODE_LABEL | Action::UPDATE_NODE_ALLOCATABLE;
    Hooks::new(NAME)
        .pre_filter(plugin.clone())
        .post_filter(plugin)
        .woken_by(vec![Registration::always(Resource::Node, node)])
}

struct DynamicResources;

/// Its PreFilter was asked in this cycle: no plugin before it refused the pod for good.
#[derive(Clone)]
struct Asked;

impl PreFilter for DynamicResources {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        cycle.set(Asked);
        match cycle.pod.class.has_resource_claims {
            true => {
                let text =
                    "pod has spec.resourceClaims, and this scheduler does not allocate resource claims yet";
                Err(Status::unresolvable(NAME, text))
            }
            false => Ok(Preparation::Skip),
        }
    }

    fn only_serves(&self, class: &Class) -> bool {
        !class.has_resource_claims
    }
}

impl PostFilter for DynamicResources {
    fn help(&self, input: &PostFilterInput<'_>, _random: &mut Random) -> PostFiltered {
        let status = match input.cycle.get::<Asked>() {
            Some(_) => Status::unschedulable(NAME, "no new claims to deallocate"),
            // What upstream says when the state that PreFilter leaves behind is not there.
            None => Status::error(NAME, "not found"),
        };
        PostFiltered { status, nominating: Nominating::Keep, preemption: None }
    }
}
