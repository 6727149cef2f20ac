//! NodeResourcesFitPlus: each resource is spread or packed in its own way. Spec: scheduler-core 9.17.
//!
//! The pod's side is what the filter counts, overhead included. Differs: upstream leaves overhead out, and takes init
//! containers without the sidecars that run beside them.

use std::sync::Arc;

use koord_api::resource::ResourceId;

use super::node_resources_fit::Strategy;
use crate::framework::{Cycle, Hooks, NodeView, Scope, Score};
use crate::pod::Class;
use crate::profile::args::{Allocation, NodeResourcesFitPlusArgs};

pub const NAME: &str = "NodeResourcesFitPlus";

pub fn build(args: &NodeResourcesFitPlusArgs) -> Hooks {
    let resources = args.resources.iter().map(|resource| {
        let strategy = match resource.strategy {
            Allocation::Least => Strategy::LeastAllocated,
            Allocation::Most => Strategy::MostAllocated,
        };
        (resource.name.as_str().into(), strategy, resource.weight)
    });
    Hooks::new(NAME).score(Arc::new(FitPlus { resources: resources.collect() }))
}

struct FitPlus {
    resources: Vec<(Box<str>, Strategy, i64)>,
}

impl Score for FitPlus {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let requests = &cycle.pod.class.requests;
        let (mut sum, mut weights) = (0i64, 0i64);
        for (name, strategy, weight) in &self.resources {
            let Some(id) = cycle.cluster.resources.id(name) else { continue };
            let asked = requests.amounts.get(id);
            if asked <= 0 {
                continue;
            }
            let requested = match id {
                ResourceId::CPU => node.nonzero_cpu_milli().saturating_add(requests.nonzero_cpu_milli),
                ResourceId::MEMORY => node.nonzero_memory().saturating_add(requests.nonzero_memory),
                _ => node.requested(id).saturating_add(asked),
            };
            // A node without the resource gets nothing for it, and the weight counts all the same.
            let allocatable = node.allocatable(id);
            let score = if allocatable > 0 { strategy.one(requested.max(0), allocatable) } else { 0 };
            sum = sum.saturating_add(score.saturating_mul(*weight));
            weights = weights.saturating_add(*weight);
        }
        if weights <= 0 { 100 } else { sum / weights }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plugins::testing::World;
    use crate::profile::args::FitPlusResource;

    #[test]
    fn each_resource_in_its_own_way() {
        let resource = |name: &str, strategy, weight| FitPlusResource { name: name.into(), strategy, weight };
        let args = NodeResourcesFitPlusArgs {
            resources: vec![
                resource("cpu", Allocation::Least, 1),
                resource("example.com/gpu", Allocation::Most, 3),
            ],
        };
        let mut world = World::new();
        let node =
            json!({"status": {"allocatable": {"cpu": "10", "memory": "20Gi", "example.com/gpu": "8"}}});
        world.node("a", node).node("b", json!({"status": {"allocatable": {"cpu": "10"}}}));
        let requests = |requests: Value| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
        let used = requests(json!({"cpu": "3", "example.com/gpu": "2"}));
        world.place("used", "a", used);
        for (name, object, want) in [
            // (100 - 40) and 50, three times as heavy.
            ("both", requests(json!({"cpu": "1", "example.com/gpu": "2"})), [(60 + 150) / 4, 90 / 4]),
            ("one of them", requests(json!({"cpu": "1"})), [60, 90]),
            ("neither", requests(json!({"memory": "1Gi"})), [100, 100]),
            ("nothing", json!({}), [100, 100]),
            ("overhead", json!({"spec": {"overhead": {"cpu": "1"}}}), [59, 89]),
        ] {
            let pod = world.pod("p", object);
            assert_eq!(world.rated(&build(&args), &pod), want, "{name}");
        }
    }
}
