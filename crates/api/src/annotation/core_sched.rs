//! Core scheduling: which pods may run on one core at the same time. Spec: api 6.

use k8s_openapi::api::core::v1::Pod;

use crate::keys::pod::label::{CORE_SCHED_GROUP_ID, CORE_SCHED_POLICY};
use crate::pod::label;
use crate::qos::{self, Qos};

/// Internal id of "no group".
pub const NO_GROUP: &str = "__0__";

const EXPELLER_SUFFIX: &str = "-expeller";

/// What core scheduling does with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreSched {
    /// Its cookie is left as it is.
    Untouched,
    /// It gets the system's cookie, 0.
    NoCookie,
    /// It shares a cookie with the pods of the same group.
    Group(String),
}

/// The group of a pod. `is_expeller` is the coreExpeller switch of its QoS class: pods that expel and
/// pods that do not never share a cookie.
pub fn core_sched(pod: &Pod, is_expeller: bool) -> CoreSched {
    if qos::raw(pod) == Some(Qos::System) {
        return CoreSched::Untouched;
    }
    let group = match label(pod, CORE_SCHED_POLICY) {
        Some("none") => return CoreSched::NoCookie,
        Some("exclusive") => pod.metadata.uid.as_deref().unwrap_or_default(),
        _ => label(pod, CORE_SCHED_GROUP_ID).unwrap_or_default(),
    };
    let suffix = if is_expeller { EXPELLER_SUFFIX } else { "" };
    CoreSched::Group(format!("{group}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::sketch::{Sketch, pod};

    #[test]
    fn groups() {
        let group = |id: &str| CoreSched::Group(id.to_string());
        let mut exclusive = pod().label(CORE_SCHED_POLICY, "exclusive").label(CORE_SCHED_GROUP_ID, "g");
        exclusive.metadata.uid = Some("u1".to_string());
        for (name, pod, is_expeller, want) in [
            ("default", pod(), false, group("")),
            ("default expeller", pod(), true, group("-expeller")),
            ("group", pod().label(CORE_SCHED_GROUP_ID, "g"), false, group("g")),
            ("group expeller", pod().label(CORE_SCHED_GROUP_ID, "g"), true, group("g-expeller")),
            (
                "other policy",
                pod().label(CORE_SCHED_POLICY, "x").label(CORE_SCHED_GROUP_ID, "g"),
                false,
                group("g"),
            ),
            ("none", pod().label(CORE_SCHED_POLICY, "none"), true, CoreSched::NoCookie),
            ("exclusive", exclusive.clone(), false, group("u1")),
            ("exclusive expeller", exclusive, true, group("u1-expeller")),
            ("system", pod().qos("SYSTEM").label(CORE_SCHED_GROUP_ID, "g"), true, CoreSched::Untouched),
        ] {
            assert_eq!(core_sched(&pod, is_expeller), want, "{name}");
        }
    }
}
