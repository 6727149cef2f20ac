//! What nobody can read in an object, in words for its owner: amounts, selectors, annotations.
//!
//! Pure. Reading passes over such things (`requests`, `pod::compile`, `cluster::node`); this tells what was passed over.
//! An API server lets few of them through, so that finding none is what has to be quick.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use koord_api::annotation::node_reservation::NodeReservation;
use koord_api::annotation::read;
use koord_api::quantity::{Family, Quantity};
use koord_api::selector::{NodeSelector, PreferredTerms, Selector};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Everything that is passed over in a pod, each with its field.
pub fn of_pod(pod: &core::Pod) -> Vec<String> {
    let mut faults = Faults::default();
    let Some(spec) = &pod.spec else { return faults.0 };
    let containers = [("containers", &spec.containers[..])];
    let init = spec.init_containers.as_deref().map(|list| ("initContainers", list));
    for (field, list) in containers.into_iter().chain(init) {
        for (at, container) in list.iter().enumerate() {
            let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            faults.amounts(requests, || format!("spec.{field}[{at}].resources.requests"));
        }
    }
    let level = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    faults.amounts(level, || "spec.resources.requests".to_owned());
    faults.amounts(spec.overhead.as_ref(), || "spec.overhead".to_owned());
    if let Some(affinity) = &spec.affinity {
        faults.affinity(affinity);
    }
    for (at, constraint) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        faults.selector(constraint.label_selector.as_ref(), || {
            format!("spec.topologySpreadConstraints[{at}].labelSelector")
        });
    }
    faults.0
}

/// Everything that is passed over in a node, each with its field.
pub fn of_node(node: &core::Node) -> Vec<String> {
    let mut faults = Faults::default();
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    faults.amounts(allocatable, || "status.allocatable".to_owned());
    if let Err(error) = read::<NodeReservation>(node.metadata.annotations.as_ref()) {
        faults.0.push(format!("{error}; it counts as absent"));
    }
    faults.0
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn amounts(&mut self, list: Option<&BTreeMap<String, WireQuantity>>, path: impl Fn() -> String) {
        let zero = Quantity::from_value(0, Family::DecimalSi);
        for (name, amount) in list.into_iter().flatten() {
            let WireQuantity(text) = amount;
            match Quantity::try_from(amount) {
                Ok(amount) if amount >= zero => {}
                Ok(_) => self.0.push(format!("{}[{name}]: {text:?} is below zero and counts as 0", path())),
                Err(_) => self
                    .0
                    .push(format!("{}[{name}]: {text:?} is no quantity and counts as not given", path())),
            }
        }
    }

    fn selector(&mut self, selector: Option<&LabelSelector>, path: impl Fn() -> String) {
        if let Some(Err(error)) = selector.map(|selector| Selector::new(Some(selector))) {
            self.0.push(format!("{}: {error}; it matches nothing", path()));
        }
    }

    fn affinity(&mut self, affinity: &core::Affinity) {
        if let Some(nodes) = &affinity.node_affinity {
            self.node_affinity(nodes);
        }
        if let Some(pods) = &affinity.pod_affinity {
            let required = pods.required_during_scheduling_ignored_during_execution.as_deref();
            let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_deref();
            self.pod_terms("podAffinity", required, preferred);
        }
        if let Some(pods) = &affinity.pod_anti_affinity {
            let required = pods.required_during_scheduling_ignored_during_execution.as_deref();
            let preferred = pods.preferred_during_scheduling_ignored_during_execution.as_deref();
            self.pod_terms("podAntiAffinity", required, preferred);
        }
    }

    fn node_affinity(&mut self, affinity: &core::NodeAffinity) {
        if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
            let path = format!("spec.affinity.nodeAffinity.{REQUIRED}");
            if let Err(error) = NodeSelector::new_checked(required, &path) {
                let told = error.into_messages().into_iter();
                self.0.extend(told.map(|message| format!("{message}; the term matches no node")));
            }
        }
        let preferred = affinity.preferred_during_scheduling_ignored_during_execution.as_deref();
        let path = format!("spec.affinity.nodeAffinity.{PREFERRED}");
        if let Some(Err(error)) = preferred.map(|terms| PreferredTerms::new(terms, &path)) {
            let told = error.into_messages().into_iter();
            self.0.extend(told.map(|message| format!("{message}; no preference counts")));
        }
    }

    fn pod_terms(
        &mut self,
        field: &str,
        required: Option<&[core::PodAffinityTerm]>,
        preferred: Option<&[core::WeightedPodAffinityTerm]>,
    ) {
        let required = required.unwrap_or_default().iter().map(|term| (REQUIRED, "", term));
        let preferred = preferred.unwrap_or_default().iter();
        let preferred =
            preferred.map(|weighted| (PREFERRED, ".podAffinityTerm", &weighted.pod_affinity_term));
        for terms in [required.collect::<Vec<_>>(), preferred.collect()] {
            for (at, (list, inner, term)) in terms.into_iter().enumerate() {
                let path = |part: &str| format!("spec.affinity.{field}.{list}[{at}]{inner}.{part}");
                self.selector(term.label_selector.as_ref(), || path("labelSelector"));
                self.selector(term.namespace_selector.as_ref(), || path("namespaceSelector"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Vec<String> {
        of_pod(&serde_json::from_value(json!({"spec": spec})).unwrap())
    }

    #[test]
    fn what_a_pod_says_wrongly_is_named() {
        let container = |requests: Value| json!({"name": "c", "resources": {"requests": requests}});
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "Bogus"}]});
        let term = json!({"topologyKey": "zone", "labelSelector": selector});
        for (name, spec, want) in [
            ("nothing", json!({"containers": [container(json!({"cpu": "1", "memory": "0"}))]}), &[][..]),
            (
                "an amount",
                json!({"containers": [container(json!({"cpu": "abc"}))]}),
                &[
                    "spec.containers[0].resources.requests[cpu]: \"abc\" is no quantity and counts as not given",
                ],
            ),
            (
                "below zero",
                json!({"containers": [], "initContainers": [container(json!({"memory": "-1"}))],
                    "overhead": {"cpu": "-1m"}}),
                &[
                    "spec.initContainers[0].resources.requests[memory]: \"-1\" is below zero and counts as 0",
                    "spec.overhead[cpu]: \"-1m\" is below zero and counts as 0",
                ],
            ),
            (
                "the pod as a whole",
                json!({"containers": [], "resources": {"requests": {"cpu": ""}}}),
                &["spec.resources.requests[cpu]: \"\" is no quantity and counts as not given"],
            ),
            (
                "selectors of other pods",
                json!({"containers": [], "affinity": {
                    "podAffinity": {REQUIRED: [{"topologyKey": "zone"}, term]},
                    "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm":
                        {"topologyKey": "zone", "namespaceSelector": selector}}]}}}),
                &[
                    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].labelSelector: \
                     \"Bogus\" is not a valid label selector operator; it matches nothing",
                    "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]\
                     .podAffinityTerm.namespaceSelector: \"Bogus\" is not a valid label selector operator; it matches \
                     nothing",
                ],
            ),
            (
                "a spread",
                json!({"containers": [], "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]}),
                &[
                    "spec.topologySpreadConstraints[0].labelSelector: \"Bogus\" is not a valid label selector operator; \
                   it matches nothing",
                ],
            ),
        ] {
            assert_eq!(pod(spec), want, "{name}");
        }
    }

    #[test]
    fn terms_about_nodes_are_named() {
        let term = json!({"matchExpressions": [{"key": "a", "operator": "Bogus"}]});
        let faults = pod(json!({"containers": [], "affinity": {"nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [term]},
            PREFERRED: [{"weight": 1, "preference": term}]}}}));
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("spec.affinity.nodeAffinity.required"), "{faults:?}");
        assert!(
            faults[0].contains("\"Bogus\"") && faults[0].ends_with("the term matches no node"),
            "{faults:?}"
        );
        assert!(faults[1].starts_with("spec.affinity.nodeAffinity.preferred"), "{faults:?}");
        assert!(faults[1].ends_with("no preference counts"), "{faults:?}");
    }

    #[test]
    fn what_a_node_says_wrongly_is_named() {
        let node = |node: Value| of_node(&serde_json::from_value(node).unwrap());
        assert_eq!(node(json!({})), [""; 0]);
        assert_eq!(node(json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}})), [""; 0]);
        assert_eq!(
            node(json!({"status": {"allocatable": {"cpu": "-4", "memory": "much"}}})),
            [
                "status.allocatable[cpu]: \"-4\" is below zero and counts as 0",
                "status.allocatable[memory]: \"much\" is no quantity and counts as not given",
            ]
        );
        let key = koord_api::keys::node::annotation::RESERVATION;
        let faults = node(json!({"metadata": {"annotations": {key: "{"}}}));
        assert_eq!(faults.len(), 1);
        assert!(faults[0].starts_with(&format!("annotation {key}: ")), "{faults:?}");
        assert!(faults[0].ends_with("; it counts as absent"), "{faults:?}");
    }
}
