//! The quality of service class that Kubernetes gives a pod.

use koord_api::quantity::{Quantity, ResourceList};
use serde_json::Value;

use super::super::super::resources::amount;
use super::super::super::tree::{entries, list, part};

const COUNTED: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn class(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (ResourceList::new(), ResourceList::new());
    let mut is_guaranteed = true;
    let mut count = |resources: &Value, needs_limits: bool| {
        add(&mut requests, resources, "requests");
        add(&mut limits, resources, "limits");
        let has = |name: &str| part(&resources["limits"], name).is_some_and(|a| amount(a) > Quantity::ZERO);
        if needs_limits && !COUNTED.into_iter().all(has) {
            is_guaranteed = false;
        }
    };
    match part(spec, "resources") {
        Some(resources) => count(resources, entries(resources, "limits").next().is_some()),
        None => {
            for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
                count(&container["resources"], true);
            }
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    match is_guaranteed && requests == limits {
        true => "Guaranteed",
        false => "Burstable",
    }
}

fn add(to: &mut ResourceList, resources: &Value, field: &str) {
    for (name, value) in entries(resources, field).filter(|(name, _)| COUNTED.contains(name)) {
        let value = amount(value);
        if value > Quantity::ZERO {
            *to.entry(name.to_owned()).or_default() += value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes() {
        let container =
            |limits: Value, requests: Value| json!({"resources": {"limits": limits, "requests": requests}});
        let full = json!({"cpu": "1", "memory": "1Gi"});
        for (spec, want) in [
            (json!({"containers": [{}]}), "BestEffort"),
            (json!({"containers": [container(json!({}), json!({"example.com/x": "1"}))]}), "BestEffort"),
            (json!({"containers": [container(json!({}), json!({"cpu": "0"}))]}), "BestEffort"),
            (json!({"containers": [container(json!({}), json!({"cpu": "1"}))]}), "Burstable"),
            (json!({"containers": [container(full.clone(), full.clone())]}), "Guaranteed"),
            (json!({"containers": [container(full.clone(), full.clone()), {}]}), "Burstable"),
            (
                json!({"containers": [container(full.clone(), json!({"cpu": "500m", "memory": "1Gi"}))]}),
                "Burstable",
            ),
            (
                json!({"containers": [container(full.clone(), full.clone())], "initContainers": [{}]}),
                "Burstable",
            ),
            (
                json!({"containers": [{}], "resources": {"limits": full.clone(), "requests": full.clone()}}),
                "Guaranteed",
            ),
        ] {
            assert_eq!(class(&spec), want, "{spec}");
        }
    }
}
