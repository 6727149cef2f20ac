//! Reservations seen from annotations: who owns, who wants, what is held strictly. Spec: api 5.6.

use std::collections::BTreeMap;
use std::num::NonZeroI64;

use k8s_openapi::api::core::v1::{
    NodeSelector as WireNodeSelector, NodeSelectorTerm, ObjectReference, Taint, Toleration,
};
use serde::{Deserialize, Serialize};

use super::{Annotation, AnnotationError, Annotations, Empty, Fault, OnError, encode, json_annotation, read};
use crate::crd::reservation::ReservationOwner;
use crate::crd::wire::Omit;
use crate::gojson;
use crate::keys::pod::annotation::{
    EXACT_MATCH_RESERVATION, RESERVATION_AFFINITY, RESERVATION_ALLOCATED, RESERVATION_CURRENT_OWNER,
    RESERVATION_OWNERS,
};
use crate::keys::reservation::annotation::{RESIZE_ALLOCATABLE, RESTRICTED_OPTIONS};
use crate::keys::reservation::label::ORDER;
use crate::quantity::ResourceList;
use crate::selector::{Labels, NodeSelector, Selector, SelectorError};
use crate::toleration;

/// The reservation that a pod was placed in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationAllocated {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub name: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub uid: String,
}

json_annotation!(ReservationAllocated, RESERVATION_ALLOCATED, Broken, Absent);

/// Removes the mark of one reservation; the mark of another one stays. Says whether it did.
pub fn remove_allocated(annotations: &mut Annotations, uid: &str) -> Result<bool, AnnotationError> {
    let is_ours = read::<ReservationAllocated>(&*annotations)?.is_some_and(|allocated| allocated.uid == uid);
    if is_ours {
        annotations.remove(RESERVATION_ALLOCATED);
    }
    Ok(is_ours)
}

/// Which reservations a pod wants. Present without conditions: some reservation, whichever.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationAffinity {
    /// This very reservation; selectors are not looked at.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub name: String,
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "Omit::omit")]
    pub required: Option<ReservationSelectorTerms>,
    /// Labels a reservation must have.
    #[serde(rename = "reservationSelector", skip_serializing_if = "Omit::omit")]
    pub selector: BTreeMap<String, String>,
    /// Against the reservation's taints.
    #[serde(skip_serializing_if = "Omit::omit")]
    pub tolerations: Vec<Toleration>,
}

/// Terms of which one must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationSelectorTerms {
    #[serde(rename = "reservationSelectorTerms", skip_serializing_if = "Omit::omit")]
    pub terms: Vec<NodeSelectorTerm>,
}

impl Annotation for ReservationAffinity {
    const KEY: &'static str = RESERVATION_AFFINITY;
    const EMPTY: Empty = Empty::Value;
    const ON_ERROR: OnError = OnError::FailPod;

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return Ok(ReservationAffinity::default());
        }
        Ok(gojson::from_str(text)?)
    }

    fn text(&self) -> String {
        encode(self)
    }
}

impl ReservationAffinity {
    /// Prepares the affinity for many reservations. A term that makes no sense fails the pod.
    pub fn compile(&self) -> Result<CompiledAffinity, SelectorError> {
        let terms = |required: &ReservationSelectorTerms| {
            NodeSelector::new_checked(&WireNodeSelector { node_selector_terms: required.terms.clone() }, "")
        };
        Ok(CompiledAffinity {
            name: (!self.name.is_empty()).then(|| self.name.clone()),
            labels: Selector::from_labels(&self.selector),
            terms: self.required.as_ref().map(terms).transpose()?,
        })
    }

    /// The first of the reservation's taints that the pod does not tolerate.
    pub fn untolerated<'a>(&self, taints: &'a [Taint]) -> Option<&'a Taint> {
        toleration::find_untolerated(taints, &self.tolerations, |_| true)
    }

    /// Whether the pod may use a reservation that is marked unschedulable.
    pub fn tolerates_unschedulable(&self) -> bool {
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".to_string(),
            effect: "NoSchedule".to_string(),
            ..Taint::default()
        };
        self.tolerations.iter().any(|toleration| toleration::tolerates(toleration, &taint))
    }
}

/// An affinity ready to be matched.
#[derive(Clone, Debug)]
pub struct CompiledAffinity {
    name: Option<String>,
    labels: Selector,
    terms: Option<NodeSelector>,
}

impl CompiledAffinity {
    /// Whether a reservation is wanted, by its name and labels.
    pub fn matches(&self, name: &str, labels: &(impl Labels + ?Sized)) -> bool {
        if let Some(wanted) = &self.name {
            return wanted == name;
        }
        // Terms were checked when compiled, so none reports an error here.
        let by_terms = |terms: &NodeSelector| terms.matches(labels, name).unwrap_or(false);
        self.labels.matches(labels) && self.terms.as_ref().is_none_or(by_terms)
    }
}

/// Labels of a reservation over those of its node.
pub struct ReservationLabels<'a> {
    pub reservation: Option<&'a BTreeMap<String, String>>,
    /// None when the gate OmitNodeLabelsForReservation is on.
    pub node: Option<&'a BTreeMap<String, String>>,
}

impl Labels for ReservationLabels<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.reservation
            .and_then(|labels| labels.get(key))
            .or_else(|| self.node.and_then(|labels| labels.get(key)))
            .map(String::as_str)
    }
}

/// Place of a reservation among those a pod may use, by its label: smaller first.
///
/// None, which leaves it to the scores, for an absent label, for 0 and for what is no number.
pub fn order(labels: Option<&BTreeMap<String, String>>) -> Option<NonZeroI64> {
    labels?.get(ORDER)?.parse().ok()
}

/// Resources that a Restricted reservation gives from its own alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestrictedOptions {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub resources: Vec<String>,
}

json_annotation!(RestrictedOptions, RESTRICTED_OPTIONS, Absent, Absent);

impl RestrictedOptions {
    /// The restricted ones among what the reservation holds; all of them when the options name none.
    pub fn restricted<'a>(&self, allocatable: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let all: Vec<&str> = allocatable.into_iter().collect();
        let named: Vec<&str> =
            all.iter().copied().filter(|name| self.resources.iter().any(|r| r == name)).collect();
        if named.is_empty() { all } else { named }
    }
}

/// Resources in which a pod and a reservation must be equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExactMatch {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub resource_names: Vec<String>,
}

json_annotation!(ExactMatch, EXACT_MATCH_RESERVATION, Absent, FailPod);

impl ExactMatch {
    /// Whether each named resource is equal on both sides, or on neither.
    ///
    /// Differs: upstream stops with "yes" at the first name that both sides lack (api 11, item 15).
    pub fn holds(&self, requests: &ResourceList, allocatable: &ResourceList) -> bool {
        self.resource_names.iter().all(|name| requests.get(name) == allocatable.get(name))
    }
}

/// Who may use a pod that acts as a reservation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReservationOwners(pub Vec<ReservationOwner>);

json_annotation!(ReservationOwners, RESERVATION_OWNERS, Absent, Absent);

/// Who uses a pod that acts as a reservation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReservationCurrentOwner(pub ObjectReference);

json_annotation!(ReservationCurrentOwner, RESERVATION_CURRENT_OWNER, Absent, Absent);

/// What the reservation shall hold in place of its template's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResizeAllocatable {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub resources: ResourceList,
}

json_annotation!(ResizeAllocatable, RESIZE_ALLOCATABLE, Absent, Absent);

#[cfg(test)]
mod tests {
    use super::*;

    fn affinity(text: &str) -> ReservationAffinity {
        let annotations = Annotations::from([(RESERVATION_AFFINITY.to_string(), text.to_string())]);
        read::<ReservationAffinity>(&annotations).unwrap().unwrap()
    }

    #[track_caller]
    fn matches(text: &str, name: &str, labels: &[(&str, &str)]) -> bool {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        affinity(text).compile().unwrap().matches(name, &labels)
    }

    #[test]
    fn affinity_without_conditions() {
        for text in ["", "{}", "null"] {
            assert_eq!(affinity(text), ReservationAffinity::default(), "api#10.48 {text:?}");
            assert!(matches(text, "r", &[]), "api#10.48 {text:?}");
        }
        assert_eq!(read::<ReservationAffinity>(&Annotations::new()), Ok(None), "api#10.48 absent");
    }

    #[test]
    fn affinity_with_conditions() {
        let none = r#"{"requiredDuringSchedulingIgnoredDuringExecution":{}}"#;
        assert!(!matches(none, "r", &[("a", "1")]), "api#10.136");
        let odd = r#"{"reservationSelector":{"a b":"c d"}}"#;
        assert!(!matches(odd, "r", &[("a", "1")]), "api#10.136");
        let named = r#"{"name":"r","reservationSelector":{"a":"1"}}"#;
        assert!(matches(named, "r", &[]) && !matches(named, "s", &[("a", "1")]));
        let terms = r#"{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":[
            {"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]},
            {"matchFields":[{"key":"metadata.name","operator":"In","values":["r9"]}]}]},
            "reservationSelector":{"b":"1"}}"#;
        assert!(matches(terms, "r", &[("a", "2"), ("b", "1")]));
        assert!(matches(terms, "r9", &[("b", "1")]));
        assert!(!matches(terms, "r", &[("a", "3"), ("b", "1")]));
        assert!(!matches(terms, "r", &[("a", "1")]));
        let bad = r#"{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":[
            {"matchExpressions":[{"key":"a","operator":"Bogus"}]}]}}"#;
        assert!(affinity(bad).compile().is_err());
        let text = r#"{"name":"r","requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]},"reservationSelector":{"b":"1"},"tolerations":[{"operator":"Exists"}]}"#;
        assert_eq!(affinity(text).text(), text);
    }

    #[test]
    fn node_labels_lie_under_the_reservations() {
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_string(), value.to_string())]);
        let (own, node) =
            (map("a", "1"), BTreeMap::from([("a".into(), "2".into()), ("b".into(), "3".into())]));
        let both = ReservationLabels { reservation: Some(&own), node: Some(&node) };
        assert_eq!((both.label("a"), both.label("b"), both.label("c")), (Some("1"), Some("3"), None));
    }

    #[test]
    fn tolerations() {
        for text in [
            r#"{"tolerations":[{"operator":"Exists"}]}"#,
            r#"{"tolerations":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}"#,
        ] {
            assert!(affinity(text).tolerates_unschedulable(), "api#10.137 {text}");
        }
        assert!(!affinity("").tolerates_unschedulable());
        let taint = Taint { key: "x".into(), effect: "NoSchedule".into(), ..Taint::default() };
        let taints = [taint];
        assert_eq!(affinity("").untolerated(&taints).map(|t| t.key.as_str()), Some("x"));
        assert!(affinity(r#"{"tolerations":[{"key":"x"}]}"#).untolerated(&taints).is_none());
    }

    fn list(amounts: &[(&str, &str)]) -> ResourceList {
        amounts.iter().map(|(name, amount)| (name.to_string(), amount.parse().unwrap())).collect()
    }

    #[test]
    fn exact_match() {
        for (key, names, requests, allocatable, want) in [
            // Upstream answers yes for the first: it stops at the name that neither side has.
            ("api#10.49 ours", vec!["gpu", "cpu"], list(&[("cpu", "1")]), list(&[("cpu", "2")]), false),
            ("api#10.49 equal", vec!["gpu", "cpu"], list(&[("cpu", "1")]), list(&[("cpu", "1")]), true),
            ("api#10.138", vec!["cpu", "gpu"], list(&[("cpu", "1")]), list(&[("cpu", "2")]), false),
            ("api#10.138", vec!["cpu"], list(&[("cpu", "1000m")]), list(&[("cpu", "1")]), true),
            ("api#10.138", vec!["memory"], list(&[]), list(&[("memory", "1")]), false),
            ("no names", vec![], list(&[]), list(&[("memory", "1")]), true),
        ] {
            let spec = ExactMatch { resource_names: names.into_iter().map(str::to_string).collect() };
            assert_eq!(spec.holds(&requests, &allocatable), want, "{key}");
        }
        let text = r#"{"resourceNames":["cpu"]}"#;
        assert_eq!(ExactMatch::parse(text).unwrap().text(), text);
    }

    #[test]
    fn restricted_resources() {
        let of = |names: &[&str]| {
            let resources = names.iter().map(|name| name.to_string()).collect();
            RestrictedOptions { resources }.restricted(["cpu", "memory"])
        };
        assert_eq!(of(&["memory"]), ["memory"], "api#10.50");
        assert_eq!(of(&["disk"]), ["cpu", "memory"], "api#10.50");
        assert_eq!(of(&["memory", "cpu"]), ["cpu", "memory"]);
        assert_eq!(of(&[]), ["cpu", "memory"]);
    }

    #[test]
    fn a_mark_is_removed_by_its_own_reservation() {
        let mark = ReservationAllocated { name: "r1".into(), uid: "u1".into() };
        let mut annotations = Annotations::new();
        super::super::write(&mut annotations, &mark);
        assert_eq!(annotations[RESERVATION_ALLOCATED], r#"{"name":"r1","uid":"u1"}"#);
        assert_eq!(remove_allocated(&mut annotations, "u2"), Ok(false));
        assert_eq!(remove_allocated(&mut annotations, "u1"), Ok(true));
        assert_eq!(remove_allocated(&mut annotations, "u1"), Ok(false));
        annotations.insert(RESERVATION_ALLOCATED.to_string(), "{".to_string());
        assert!(remove_allocated(&mut annotations, "u1").is_err());
    }

    #[test]
    fn order_by_label() {
        for (text, want) in [("5", Some(5)), ("-5", Some(-5)), ("0", None), ("", None), ("0x5", None)] {
            let labels = BTreeMap::from([(ORDER.to_string(), text.to_string())]);
            assert_eq!(order(Some(&labels)).map(NonZeroI64::get), want, "{text:?}");
        }
        assert_eq!(order(None), None);
    }

    #[test]
    fn operating_pods() {
        let text = r#"[{"object":{"name":"p"}},{"labelSelector":{"matchLabels":{"app":"web"}}}]"#;
        assert_eq!(ReservationOwners::parse(text).unwrap().text(), text);
        let text = r#"{"kind":"Pod","name":"p","namespace":"n"}"#;
        assert_eq!(ReservationCurrentOwner::parse(text).unwrap().0.name.as_deref(), Some("p"));
        let text = r#"{"resources":{"cpu":"1"}}"#;
        assert_eq!(ResizeAllocatable::parse(text).unwrap().text(), text);
    }
}
