//! ElasticQuota annotations: amounts the scheduler reports and shares users set. Spec: api 5.9.

use serde::{Deserialize, Serialize};

use super::{AnnotationError, Annotations, OrAbsent, json_annotation, read};
use crate::keys::quota::annotation as key;
use crate::quantity::ResourceList;

/// Declares amounts under a key.
macro_rules! amounts {
    ($( $(#[$meta:meta])* $name:ident = $key:expr; )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub ResourceList);

        json_annotation!($name, $key, Absent, Absent);
    )* };
}

/// Declares a list of names under a key.
macro_rules! names {
    ($( $(#[$meta:meta])* $name:ident = $key:expr; )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Vec<String>);

        json_annotation!($name, $key, Absent, Absent);
    )* };
}

amounts! {
    /// How siblings share what is free; see [`shared_weight`].
    SharedWeight = key::SHARED_WEIGHT;
    /// What the quota may use now.
    Runtime = key::RUNTIME;
    /// What its pods and children ask for.
    Request = key::REQUEST;
    /// What its children ask for.
    ChildRequest = key::CHILD_REQUEST;
    /// What it is guaranteed.
    Guaranteed = key::GUARANTEED;
    /// What is given to it and its children.
    Allocated = key::ALLOCATED;
    /// What its pods that cannot be preempted ask for.
    NonPreemptibleRequest = key::NON_PREEMPTIBLE_REQUEST;
    /// What its pods that cannot be preempted use.
    NonPreemptibleUsed = key::NON_PREEMPTIBLE_USED;
    /// All there is, on the root of a tree.
    TotalResource = key::TOTAL_RESOURCE;
    /// What cannot be scheduled at the moment.
    UnschedulableResource = key::UNSCHEDULABLE_RESOURCE;
    /// What admission lets in.
    Admission = key::ADMISSION;
}

names! {
    /// Namespaces whose pods belong to the quota.
    Namespaces = key::NAMESPACES;
    /// Resources an ElasticQuotaProfile counts.
    ResourceKeys = key::RESOURCE_KEYS;
    /// Resources whose max may never be exceeded.
    MaxStrictCheckResourceKeys = key::MAX_STRICT_CHECK_RESOURCE_KEYS;
}

/// The weight that counts: the given one, unless it is absent, broken or all zero; then max.
pub fn shared_weight(
    annotations: Option<&Annotations>,
    max: &ResourceList,
    report: impl FnOnce(&AnnotationError),
) -> ResourceList {
    read::<SharedWeight>(annotations)
        .or_absent(report)
        .map(|weight| weight.0)
        .filter(|weight| weight.values().any(|amount| !amount.is_zero()))
        .unwrap_or_else(|| max.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::Annotation;

    #[test]
    fn weights() {
        let max: ResourceList = [("cpu".to_string(), "10".parse().unwrap())].into();
        for (text, want, is_reported) in [
            (r#"{"cpu":"3"}"#, "3", false),
            (r#"{"cpu":"0"}"#, "10", false),
            ("{", "10", true),
            ("", "10", false),
        ] {
            let annotations = Annotations::from([(key::SHARED_WEIGHT.to_string(), text.to_string())]);
            let mut reported = false;
            let weight = shared_weight(Some(&annotations), &max, |_| reported = true);
            assert_eq!((weight["cpu"].to_string(), reported), (want.to_string(), is_reported), "{text:?}");
        }
        assert_eq!(shared_weight(None, &max, |_| ()), max);
    }

    /// How amounts are read from JSON, here as everywhere.
    #[test]
    fn amounts() {
        let parse = |text: &str| Request::parse(text).map(|request| request.text());
        assert_eq!(parse(r#"{"cpu":"1","cpu":"2"}"#), Ok(r#"{"cpu":"2"}"#.into()), "api#1.2.J10");
        assert_eq!(parse(r#"{"cpu":"1","CPU":"2"}"#), Ok(r#"{"CPU":"2","cpu":"1"}"#.into()), "api#1.2.J10");
        assert_eq!(parse(r#"{"cpu":null}"#), Ok(r#"{"cpu":"0"}"#.into()), "api#1.2.J10");
        assert!(parse(r#"{"cpu":""}"#).is_err(), "api#1.2.J10");
    }

    #[test]
    fn lists_of_names() {
        let text = r#"["a","b"]"#;
        assert_eq!(Namespaces::parse(text).unwrap().0, ["a", "b"]);
        assert_eq!(ResourceKeys::parse(text).unwrap().text(), text);
        assert_eq!(MaxStrictCheckResourceKeys::parse("null").unwrap().0.len(), 0);
    }
}
