//! Who is evicted first, by whom, and why. Spec: api 5.7.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde::{Deserialize, Serialize};

use super::{Annotation, Empty, Fault, OnError, json_annotation};
use crate::crd::wire::Omit;
use crate::keys::pod::annotation::{EVICTION_COST, EVICTION_POLICY, EVICTION_PRIORITY, SOFT_EVICTION};
use crate::time::Time;

/// What the descheduler pays for evicting a pod; lower goes first. A broken one counts as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvictionCost(pub i32);

impl EvictionCost {
    /// Whether the pod is never evicted.
    pub fn is_never(self) -> bool {
        self.0 == i32::MAX
    }
}

impl Annotation for EvictionCost {
    const KEY: &'static str = EVICTION_COST;
    const EMPTY: Empty = Empty::Broken;
    const ON_ERROR: OnError = OnError::Absent;

    /// No `+` and no leading zero, except after a `-`.
    fn parse(text: &str) -> Result<Self, Fault> {
        let has_good_start = text == "0" || text.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
        text.parse()
            .ok()
            .filter(|_| has_good_start)
            .map(EvictionCost)
            .ok_or_else(|| Fault::Value(format!("invalid value {text:?}")))
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Order of eviction by koordlet, before priority; lower goes first. A broken one counts as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvictionPriority(pub i32);

impl Annotation for EvictionPriority {
    const KEY: &'static str = EVICTION_PRIORITY;
    const EMPTY: Empty = Empty::Broken;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        let fault = |error| Fault::Value(format!("invalid value {text:?}, err: {error}"));
        text.parse().map(EvictionPriority).map_err(fault)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// A request to whoever owns the pod to move it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SoftEviction {
    pub timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub delete_options: Option<DeleteOptions>,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub initiator: String,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub reason: String,
}

json_annotation!(SoftEviction, SOFT_EVICTION, Broken, Absent);

/// The koordlet features that may evict the pod, by gate name. Without the key all may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EvictionPolicy(pub Vec<String>);

json_annotation!(EvictionPolicy, EVICTION_POLICY, Broken, EmptyValue);

impl EvictionPolicy {
    pub fn allows(&self, feature: &str) -> bool {
        self.0.iter().any(|name| name == feature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{Annotations, OrAbsent, read};

    #[test]
    fn eviction_cost() {
        for (key, text, want) in [
            ("api#10.34", "+10", None),
            ("api#10.34", "007", None),
            ("api#10.34", "", None),
            ("api#10.34", "-3", Some(-3)),
            ("api#10.34", "0", Some(0)),
            ("api#10.34", "2147483648", None),
            ("api#10.121", "-0", Some(0)),
            ("api#10.121", "-007", Some(-7)),
            ("api#10.121", "2147483647", Some(i32::MAX)),
            ("api#10.121", " 1", None),
            ("api#10.121", "1.0", None),
        ] {
            let annotations = Annotations::from([(EVICTION_COST.to_string(), text.to_string())]);
            let got = read::<EvictionCost>(&annotations);
            match want {
                Some(cost) => assert_eq!(got, Ok(Some(EvictionCost(cost))), "{key} {text:?}"),
                None => {
                    assert_eq!(got.clone().unwrap_err().reason(), format!("invalid value {text:?}"), "{key}");
                    let counted = got.or_absent(|_| ()).unwrap_or_default();
                    assert_eq!(counted, EvictionCost(0), "{key} {text:?}");
                }
            }
        }
        assert!(EvictionCost(i32::MAX).is_never(), "api#10.121");
        assert!(!EvictionCost(7).is_never());
    }

    #[test]
    fn eviction_priority() {
        for (text, want) in [("+10", Ok(10)), ("007", Ok(7)), ("0x10", Err(())), ("", Err(()))] {
            let annotations = Annotations::from([(EVICTION_PRIORITY.to_string(), text.to_string())]);
            let got = read::<EvictionPriority>(&annotations);
            let is_broken = got.is_err();
            if let Err(error) = &got {
                assert!(
                    error.reason().starts_with(&format!("invalid value {text:?}, err: ")),
                    "api#10.122 {error}"
                );
            }
            let counted = got.or_absent(|_| ()).unwrap_or_default();
            assert_eq!((counted.0, is_broken), (want.unwrap_or(0), want.is_err()), "api#10.122 {text:?}");
        }
    }

    #[test]
    fn soft_eviction() {
        let asked = SoftEviction { reason: "a<b>&c".into(), ..SoftEviction::default() };
        let text = "{\"timestamp\":null,\"reason\":\"a\\u003cb\\u003e\\u0026c\"}";
        assert_eq!(asked.text(), text, "api#1.2.J12");
        assert_eq!(SoftEviction::parse(text).unwrap(), asked, "api#1.2.J12");
        let text = r#"{"timestamp":"2023-04-05T06:07:08Z","deleteOptions":{"gracePeriodSeconds":5},"initiator":"x","reason":"y"}"#;
        assert_eq!(SoftEviction::parse(text).unwrap().text(), text);
    }

    #[test]
    fn eviction_policy() {
        let allows =
            |text: &str, feature| EvictionPolicy::parse(text).is_ok_and(|policy| policy.allows(feature));
        assert!(allows(r#"["BEMemoryEvict","CPUEvict"]"#, "CPUEvict"));
        assert!(!allows(r#"["BEMemoryEvict","CPUEvict"]"#, "MemoryEvict"));
        assert!(!allows("{", "CPUEvict"));
        let broken = Annotations::from([(EVICTION_POLICY.to_string(), "{".to_string())]);
        assert_eq!(read::<EvictionPolicy>(&broken).unwrap_err().then, OnError::EmptyValue);
    }
}
