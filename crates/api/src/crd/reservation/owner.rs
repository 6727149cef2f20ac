//! Who may use a reservation: entries are ORed, the fields of one entry are ANDed. Spec: crds 1.1.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference,
};
use serde::Serialize;

use super::{ReservationControllerReference, ReservationOwner};
use crate::gojson;
use crate::selector::{Selector, SelectorError};

/// The owners of a reservation, compiled once.
#[derive(Clone, Debug)]
pub struct OwnerMatcher {
    owners: Vec<Owner>,
}

#[derive(Clone, Debug)]
struct Owner {
    object: Option<ObjectReference>,
    controller: Option<ReservationControllerReference>,
    labels: Option<Selector>,
}

impl OwnerMatcher {
    /// One bad selector makes the whole list unusable.
    pub fn new(owners: &[ReservationOwner]) -> Result<OwnerMatcher, OwnerError> {
        let mut compiled = Vec::with_capacity(owners.len());
        let mut faults = Vec::new();
        for (index, owner) in owners.iter().enumerate() {
            let labels = owner.label_selector.as_ref();
            match labels.map(|labels| Selector::new_unchecked_labels(Some(labels))).transpose() {
                Ok(labels) => compiled.push(Owner {
                    object: owner.object.clone(),
                    controller: owner.controller.clone(),
                    labels,
                }),
                Err(error) => faults.push(BadSelector { index, selector: as_json(labels), error }),
            }
        }
        if faults.is_empty() { Ok(OwnerMatcher { owners: compiled }) } else { Err(OwnerError { faults }) }
    }

    /// Whether the pod may use the reservation. No owner at all matches no pod.
    pub fn matches(&self, pod: &Pod) -> bool {
        self.owners.iter().any(|owner| owner.matches(&pod.metadata))
    }
}

impl Owner {
    fn matches(&self, pod: &ObjectMeta) -> bool {
        self.object.as_ref().is_none_or(|object| is_object(object, pod))
            && self.controller.as_ref().is_none_or(|controller| is_controlled(controller, pod))
            && self.labels.as_ref().is_none_or(|labels| labels.matches(&pod.labels))
    }
}

/// Kind, fieldPath and resourceVersion are not looked at.
fn is_object(object: &ObjectReference, pod: &ObjectMeta) -> bool {
    // Differs: upstream compares with the apiVersion that a typed pod carries, which is none.
    let api_version = Some("v1".to_owned());
    agrees(&object.uid, &pod.uid)
        && agrees(&object.name, &pod.name)
        && agrees(&object.namespace, &pod.namespace)
        && agrees(&object.api_version, &api_version)
}

/// One reference of the pod must agree with all of the given fields.
fn is_controlled(controller: &ReservationControllerReference, pod: &ObjectMeta) -> bool {
    let agrees_with = |reference: &OwnerReference| {
        let agrees = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        agrees(&controller.api_version, &reference.api_version)
            && agrees(&controller.kind, &reference.kind)
            && agrees(&controller.name, &reference.name)
            && agrees(&controller.uid, &reference.uid)
            && (controller.controller.is_none() || controller.controller == reference.controller)
    };
    agrees(&controller.namespace, &pod.namespace) && pod.owner_references.iter().flatten().any(agrees_with)
}

/// An absent or empty field agrees with anything.
fn agrees(wanted: &Option<String>, found: &Option<String>) -> bool {
    match wanted.as_deref() {
        None | Some("") => true,
        wanted => wanted == found.as_deref(),
    }
}

/// Owners that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct OwnerError {
    /// Never empty.
    faults: Vec<BadSelector>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BadSelector {
    index: usize,
    selector: String,
    error: SelectorError,
}

impl fmt::Display for OwnerError {
    /// One fault stands alone, several are listed in brackets, as Kubernetes does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |fault: &BadSelector| {
            format!("owners[{}]: Invalid value: {}: {}", fault.index, fault.selector, fault.error)
        };
        match self.faults.as_slice() {
            [fault] => f.write_str(&text(fault)),
            faults => write!(f, "[{}]", faults.iter().map(text).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// The selector with its fields in upstream's order.
fn as_json(selector: Option<&LabelSelector>) -> String {
    #[derive(Default, Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        match_labels: Option<&'a BTreeMap<String, String>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        match_expressions: Option<&'a Vec<LabelSelectorRequirement>>,
    }
    let shown = selector.map_or_else(Shown::default, |selector| Shown {
        match_labels: selector.match_labels.as_ref().filter(|labels| !labels.is_empty()),
        match_expressions: selector.match_expressions.as_ref().filter(|list| !list.is_empty()),
    });
    gojson::to_string(&shown).unwrap_or_else(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn matcher(owners: Value) -> Result<OwnerMatcher, OwnerError> {
        OwnerMatcher::new(&serde_json::from_value::<Vec<ReservationOwner>>(owners).unwrap())
    }

    fn pod(metadata: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn worked_examples() {
        let web_in_shop = json!([{ "labelSelector": { "matchLabels": { "app": "web" } }, "object": { "namespace": "shop" } }]);
        let web =
            |namespace: &str| json!({ "namespace": namespace, "name": "web-1", "labels": { "app": "web" } });
        let owned =
            |references: Value| json!({ "namespace": "ns", "name": "p", "ownerReferences": references });
        let plain = json!({ "namespace": "ns", "name": "p" });
        let replica_set =
            json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs1", "uid": "u" }]);
        let two = json!([
            { "apiVersion": "x", "kind": "A", "name": "x", "uid": "1" },
            { "apiVersion": "x", "kind": "Z", "name": "b", "uid": "2" },
        ]);
        for (key, owners, pod_metadata, want) in [
            ("api#10.51", web_in_shop.clone(), web("shop"), true),
            ("api#10.52", web_in_shop, web("other"), false),
            (
                "api#10.53",
                json!([{ "object": { "name": "x" } }, { "labelSelector": { "matchLabels": { "app": "web" } } }]),
                web("any"),
                true,
            ),
            (
                "api#10.54",
                json!([{ "controller": { "kind": "ReplicaSet", "name": "rs1", "controller": true } }]),
                owned(replica_set.clone()),
                false,
            ),
            ("api#10.55", json!([]), plain.clone(), false),
            ("api#10.140", json!([{}]), plain.clone(), true),
            ("api#10.140, empty selector", json!([{ "labelSelector": {} }]), plain.clone(), true),
            ("api#10.141", json!([{ "controller": {} }]), plain.clone(), false),
            ("api#10.141, with a reference", json!([{ "controller": {} }]), owned(replica_set.clone()), true),
            (
                "api#10.142",
                json!([{ "controller": { "kind": "ReplicaSet", "controller": false } }]),
                owned(replica_set.clone()),
                false,
            ),
            ("api#10.143", json!([{ "controller": { "kind": "A", "name": "b" } }]), owned(two), false),
            ("api#10.144", json!([{ "object": { "kind": "Job", "name": "p" } }]), plain.clone(), true),
            ("api#10.145", json!([{ "object": { "apiVersion": "v1", "name": "p" } }]), plain.clone(), true),
            ("other apiVersion", json!([{ "object": { "apiVersion": "apps/v1" } }]), plain.clone(), false),
            ("uid", json!([{ "object": { "uid": "u1" } }]), plain.clone(), false),
            (
                "namespace of the controller's pod",
                json!([{ "controller": { "kind": "ReplicaSet", "namespace": "elsewhere" } }]),
                owned(replica_set.clone()),
                false,
            ),
            (
                "empty texts of a controller",
                json!([{ "controller": { "apiVersion": "", "kind": "ReplicaSet", "name": "", "uid": "", "namespace": "" } }]),
                owned(replica_set),
                true,
            ),
        ] {
            assert_eq!(matcher(owners).unwrap().matches(&pod(pod_metadata)), want, "{key}");
        }
    }

    #[test]
    fn a_bad_selector_spoils_the_list() {
        let bogus = json!({ "labelSelector": { "matchExpressions": [{ "key": "a", "operator": "Bogus" }] } });
        let one = "Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Bogus\"}]}: \
                   \"Bogus\" is not a valid label selector operator";
        for (key, owners, want) in [
            ("api#10.146", json!([{ "object": { "name": "p" } }, bogus]), format!("owners[1]: {one}")),
            ("two", json!([bogus, bogus]), format!("[owners[0]: {one}, owners[1]: {one}]")),
        ] {
            assert_eq!(matcher(owners).unwrap_err().to_string(), want, "{key}");
        }
    }

    #[test]
    fn the_selector_is_shown_in_upstreams_order() {
        let selector = serde_json::from_value(json!({
            "matchExpressions": [{ "key": "a", "operator": "In", "values": ["<x>"] }],
            "matchLabels": { "b": "c" },
        }))
        .unwrap();
        assert_eq!(
            as_json(Some(&selector)),
            r#"{"matchLabels":{"b":"c"},"matchExpressions":[{"key":"a","operator":"In","values":["\u003cx\u003e"]}]}"#
        );
    }
}
