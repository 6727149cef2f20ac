//! Who may use a reservation: entries are ORed, the fields of one entry are ANDed. Spec: crds 1.1.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, OwnerReference,
};
use serde::Serialize;

use super::{ReservationControllerReference, ReservationOwner};
use crate::gojson;
use crate::selector::{Labels, Operator, Selector, SelectorError};

/// The owners of a reservation, compiled once.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerMatcher {
    owners: Vec<Owner>,
}

#[derive(Clone, Debug, PartialEq)]
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
        let metadata = &pod.metadata;
        fn text(text: &Option<String>) -> &str {
            text.as_deref().unwrap_or_default()
        }
        let references: Vec<Reference> =
            metadata.owner_references.iter().flatten().map(Reference::from).collect();
        self.owns(&OwnedPod {
            uid: text(&metadata.uid),
            name: text(&metadata.name),
            namespace: text(&metadata.namespace),
            references: &references,
            labels: &metadata.labels,
        })
    }

    /// The same, for one who keeps pods in another form.
    pub fn owns<L: Labels + ?Sized>(&self, pod: &OwnedPod<'_, L>) -> bool {
        self.owners.iter().any(|owner| owner.matches(pod))
    }

    /// For each entry something that every pod it matches has, so that reservations can be found by it.
    pub fn marks(&self) -> impl Iterator<Item = OwnerMark<'_>> {
        self.owners.iter().map(Owner::mark)
    }

    /// The selectors of entries that have one. Spec: scheduler-reservation-loadaware A11.1.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.owners.iter().filter_map(|owner| owner.labels.as_ref())
    }
}

/// What owners are compared with, of a pod.
pub struct OwnedPod<'a, L: ?Sized> {
    pub uid: &'a str,
    pub name: &'a str,
    pub namespace: &'a str,
    pub references: &'a [Reference],
    pub labels: &'a L,
}

/// An owner reference of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub controller: Option<bool>,
}

impl From<&OwnerReference> for Reference {
    fn from(reference: &OwnerReference) -> Reference {
        Reference {
            api_version: reference.api_version.as_str().into(),
            kind: reference.kind.as_str().into(),
            name: reference.name.as_str().into(),
            uid: reference.uid.as_str().into(),
            controller: reference.controller,
        }
    }
}

/// What every pod has that an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerMark<'a> {
    Uid(&'a str),
    Name(&'a str),
    Label(&'a str, &'a str),
    /// A reference to an object with this name.
    Reference(&'a str),
    /// Nothing in particular.
    Any,
}

impl Owner {
    fn matches<L: Labels + ?Sized>(&self, pod: &OwnedPod<'_, L>) -> bool {
        self.object.as_ref().is_none_or(|object| is_object(object, pod))
            && self.controller.as_ref().is_none_or(|controller| is_controlled(controller, pod))
            && self.labels.as_ref().is_none_or(|labels| labels.matches(pod.labels))
    }

    fn mark(&self) -> OwnerMark<'_> {
        fn given(text: &Option<String>) -> Option<&str> {
            text.as_deref().filter(|text| !text.is_empty())
        }
        let object = self.object.as_ref();
        if let Some(uid) = object.and_then(|object| given(&object.uid)) {
            return OwnerMark::Uid(uid);
        }
        if let Some(name) = object.and_then(|object| given(&object.name)) {
            return OwnerMark::Name(name);
        }
        let requirements = self.labels.iter().flat_map(Selector::requirements);
        let mut labels = requirements.filter_map(|requirement| match requirement.values() {
            [value] if matches!(requirement.operator(), Operator::In | Operator::Equals) => {
                Some(OwnerMark::Label(requirement.key(), value))
            }
            _ => None,
        });
        let by_reference = || {
            let name = &self.controller.as_ref()?.name;
            (!name.is_empty()).then_some(OwnerMark::Reference(name))
        };
        labels.next().or_else(by_reference).unwrap_or(OwnerMark::Any)
    }
}

/// Kind, fieldPath and resourceVersion are not looked at.
fn is_object<L: ?Sized>(object: &ObjectReference, pod: &OwnedPod<'_, L>) -> bool {
    let agrees = |wanted: &Option<String>, found: &str| agrees(wanted.as_deref().unwrap_or_default(), found);
    agrees(&object.uid, pod.uid)
        && agrees(&object.name, pod.name)
        && agrees(&object.namespace, pod.namespace)
        // Differs: upstream compares with the apiVersion that a typed pod carries, which is none.
        && agrees(&object.api_version, "v1")
}

/// One reference of the pod must agree with all of the given fields.
fn is_controlled<L: ?Sized>(controller: &ReservationControllerReference, pod: &OwnedPod<'_, L>) -> bool {
    let agrees_with = |reference: &Reference| {
        agrees(&controller.api_version, &reference.api_version)
            && agrees(&controller.kind, &reference.kind)
            && agrees(&controller.name, &reference.name)
            && agrees(&controller.uid, &reference.uid)
            && (controller.controller.is_none() || controller.controller == reference.controller)
    };
    agrees(controller.namespace.as_deref().unwrap_or_default(), pod.namespace)
        && pod.references.iter().any(agrees_with)
}

/// Empty text agrees with anything.
fn agrees(wanted: &str, found: &str) -> bool {
    wanted.is_empty() || wanted == found
}

impl fmt::Display for OwnerMatcher {
    /// For people: what pods must be like, in short.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, owner) in self.owners.iter().enumerate() {
            write!(f, "{}{owner}", if i == 0 { "" } else { " or " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |namespace: &Option<String>, name: &str| match namespace.as_deref().unwrap_or_default() {
            "" => name.to_owned(),
            namespace => format!("{namespace}/{name}"),
        };
        let mut parts = Vec::new();
        if let Some(object) = &self.object {
            let name = object.name.as_deref().or(object.uid.as_deref()).filter(|name| !name.is_empty());
            parts.push(format!("pod {}", path(&object.namespace, name.unwrap_or("*"))));
        }
        if let Some(controller) = &self.controller {
            let kind = if controller.kind.is_empty() { "any controller" } else { &controller.kind };
            let name = if controller.name.is_empty() { "*" } else { &controller.name };
            parts.push(format!("pods of {kind} {}", path(&controller.namespace, name)));
        }
        match self.labels.as_ref().filter(|labels| !labels.is_everything()) {
            Some(labels) => parts.push(format!("pods with {labels}")),
            None if parts.is_empty() => parts.push("all pods".to_owned()),
            None => {}
        }
        f.write_str(&parts.join(" and "))
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
