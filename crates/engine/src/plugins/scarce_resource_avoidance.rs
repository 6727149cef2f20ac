//! ScarceResourceAvoidance: pods without need of a scarce resource leave its nodes to others. Spec: scheduler-core 9.18.

use std::sync::Arc;

use koord_api::resource::ResourceId;

use crate::cluster::columns;
use crate::framework::{Cycle, Hooks, NodeView, Scope, Score};
use crate::pod::Class;
use crate::profile::args::ScarceResourceAvoidanceArgs;

pub const NAME: &str = "ScarceResourceAvoidance";

pub fn build(args: &ScarceResourceAvoidanceArgs) -> Hooks {
    Hooks::new(NAME).score(Arc::new(Avoidance { scarce: args.resources.clone() }))
}

struct Avoidance {
    scarce: Vec<String>,
}

impl Score for Avoidance {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let table = &cycle.cluster.resources;
        let asked = &cycle.pod.class.requests.amounts;
        let is_counted = |id: ResourceId| match id {
            ResourceId::CPU | ResourceId::MEMORY | ResourceId::EPHEMERAL_STORAGE => true,
            id => columns::is_scalar(table.name(id)),
        };
        let (mut unused, mut scarce) = (0i64, 0i64);
        for (id, units) in node.node().allocatable.iter() {
            if units > 0 && asked.get(id) <= 0 && is_counted(id) {
                unused += 1;
                scarce += i64::from(self.scarce.iter().any(|name| name == table.name(id)));
            }
        }
        if scarce == 0 { 100 } else { (unused - scarce) * 100 / unused }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plugins::testing::World;

    #[test]
    fn nodes_with_more_than_the_pod_needs() {
        let args = ScarceResourceAvoidanceArgs { resources: vec!["koordinator.sh/gpu".into()] };
        let mut world = World::new();
        let storage =
            json!({"status": {"allocatable": {"ephemeral-storage": "1Gi", "koordinator.sh/gpu": "100"}}});
        let only = json!({"status": {"allocatable": {"koordinator.sh/gpu": "100"}}});
        world.node("both", storage).node("gpu", only).node("plain", json!({}));
        let requests = |requests: Value| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
        for (name, object, want) in [
            ("the spec's example first", requests(json!({"cpu": "1", "memory": "1Gi"})), [50, 0, 100]),
            (
                "who needs it",
                requests(json!({"cpu": "1", "memory": "1Gi", "koordinator.sh/gpu": "1"})),
                [100, 100, 100],
            ),
            ("who asks for nothing", json!({}), [75, 66, 100]),
        ] {
            let pod = world.pod("p", object);
            assert_eq!(world.rated(&build(&args), &pod), want, "{name}");
        }
    }
}
