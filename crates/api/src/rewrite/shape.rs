//! Whether a tree has the shape of a pod, in all places where admission looks or writes, without copying any of it.
//!
//! What admission leaves alone may be anything: the API server has read it before and reads it again.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::tree::containers;

/// A field of a pod that holds something else than it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {found} where {expected} is expected")]
pub struct Misshapen {
    field: String,
    expected: &'static str,
    found: String,
}

#[derive(Clone, Copy)]
enum Kind {
    Object,
    Text,
    Texts,
    Amounts,
    Integer,
    Containers,
}

/// Places by JSON pointer, the outer before the inner ones.
const POD: [(&str, Kind); 18] = [
    ("", Kind::Object),
    ("/metadata", Kind::Object),
    ("/metadata/name", Kind::Text),
    ("/metadata/generateName", Kind::Text),
    ("/metadata/namespace", Kind::Text),
    ("/metadata/labels", Kind::Texts),
    ("/metadata/annotations", Kind::Texts),
    ("/spec", Kind::Object),
    ("/spec/schedulerName", Kind::Text),
    ("/spec/priorityClassName", Kind::Text),
    ("/spec/priority", Kind::Integer),
    ("/spec/preemptionPolicy", Kind::Text),
    ("/spec/overhead", Kind::Amounts),
    ("/spec/affinity", Kind::Object),
    ("/spec/initContainers", Kind::Containers),
    ("/spec/containers", Kind::Containers),
    ("/status", Kind::Object),
    ("/status/qosClass", Kind::Text),
];

const CONTAINER: [(&str, Kind); 5] = [
    ("", Kind::Object),
    ("/name", Kind::Text),
    ("/resources", Kind::Object),
    ("/resources/requests", Kind::Amounts),
    ("/resources/limits", Kind::Amounts),
];

/// Finds the first place with a wrong shape. What is absent or null is right everywhere.
pub fn check(pod: &Value) -> Result<(), Misshapen> {
    if pod.is_null() {
        return Err(misshapen("", "an object", pod));
    }
    check_places(pod, &POD, "")
}

fn check_places(value: &Value, places: &[(&str, Kind)], above: &str) -> Result<(), Misshapen> {
    for (pointer, kind) in places {
        if let Some(found) = value.pointer(pointer).filter(|found| !found.is_null()) {
            kind.check(found, &format_args!("{above}{pointer}"))?;
        }
    }
    Ok(())
}

impl Kind {
    fn check(self, found: &Value, place: &std::fmt::Arguments<'_>) -> Result<(), Misshapen> {
        let (is_right, expected) = match self {
            Kind::Object => (found.is_object(), "an object"),
            Kind::Text => (found.is_string(), "a string"),
            Kind::Integer => {
                (found.as_i64().is_some_and(|number| i32::try_from(number).is_ok()), "a 32 bit integer")
            }
            Kind::Texts => (all(found, Value::is_string), "a map of strings"),
            Kind::Amounts => {
                (all(found, |amount| amount.is_string() || amount.is_number()), "a map of quantities")
            }
            Kind::Containers => {
                let Value::Array(list) = found else {
                    return Err(misshapen(&place.to_string(), "a list", found));
                };
                let mut numbered = list.iter().enumerate();
                return numbered.try_for_each(|(number, container)| {
                    check_container(container, &format!("{place}/{number}"))
                });
            }
        };
        if is_right { Ok(()) } else { Err(misshapen(&place.to_string(), expected, found)) }
    }
}

fn check_container(container: &Value, place: &str) -> Result<(), Misshapen> {
    if container.is_null() {
        return Err(misshapen(place, "an object", container));
    }
    check_places(container, &CONTAINER, place)
}

fn all(found: &Value, is_right: impl Fn(&Value) -> bool) -> bool {
    found.as_object().is_some_and(|map| map.values().all(is_right))
}

fn misshapen(pointer: &str, expected: &'static str, found: &Value) -> Misshapen {
    let field = match pointer.trim_start_matches('/').replace('/', ".") {
        field if field.is_empty() => "the object".to_owned(),
        field => field,
    };
    Misshapen { field, expected, found: found.to_string() }
}

/// The part of a pod that its priority class and its QoS follow from. What cannot be read is absent.
pub fn class_part(pod: &Value) -> Pod {
    let list = |name: &str| -> Vec<Container> {
        let only_resources = |resources| Container { resources, ..Container::default() };
        containers(pod, name).map(|container| only_resources(read(container.get("resources")))).collect()
    };
    let spec = pod.get("spec").map(|spec| PodSpec {
        priority: read(spec.get("priority")),
        resources: read(spec.get("resources")),
        containers: list("containers"),
        init_containers: Some(list("initContainers")),
        ..PodSpec::default()
    });
    let status = PodStatus { qos_class: read(pod.pointer("/status/qosClass")), ..PodStatus::default() };
    let metadata = ObjectMeta { labels: read(pod.pointer("/metadata/labels")), ..ObjectMeta::default() };
    Pod { metadata, spec, status: Some(status) }
}

fn read<'a, T: Deserialize<'a>>(value: Option<&'a Value>) -> Option<T> {
    Option::<T>::deserialize(value?).ok().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::priority::class_with_default;

    #[test]
    fn places_with_a_wrong_shape_are_named() {
        for (pod, want) in [
            (json!({}), ""),
            (json!({"metadata": null, "spec": {"containers": null, "nodeName": 1}}), ""),
            (json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 1}}}]}}), ""),
            (json!(null), "the object: null where an object is expected"),
            (json!("pod"), "the object: \"pod\" where an object is expected"),
            (json!({"metadata": []}), "metadata: [] where an object is expected"),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "metadata.labels: {\"a\":1} where a map of strings is expected",
            ),
            (json!({"spec": {"priority": 1e10}}), "spec.priority: 1e10 where a 32 bit integer is expected"),
            (json!({"spec": {"containers": "none"}}), "spec.containers: \"none\" where a list is expected"),
            (json!({"spec": {"containers": [null]}}), "spec.containers.0: null where an object is expected"),
            (
                json!({"spec": {"initContainers": [{}, {"resources": {"limits": {"cpu": []}}}]}}),
                "spec.initContainers.1.resources.limits: {\"cpu\":[]} where a map of quantities is expected",
            ),
        ] {
            let text = check(&pod).err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(text.replace("10000000000.0", "1e10"), want, "{pod}");
        }
    }

    #[test]
    fn the_class_is_that_of_the_whole_pod() {
        let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}, "spec": {"containers": []}});
        let with = |resources: serde_json::Value| json!({"spec": {"containers": [{"name": "a", "resources": resources}]}});
        for pod in [
            json!({}),
            json!({"spec": {"containers": [], "priority": 5500}}),
            json!({"spec": {"containers": [], "priority": 7500}, "status": {"qosClass": "Guaranteed"}}),
            label(crate::keys::pod::label::PRIORITY_CLASS, "koord-free"),
            label(crate::keys::pod::label::QOS_CLASS, "BE"),
            with(json!({})),
            with(json!({"limits": {"cpu": "1"}})),
            with(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}})),
            json!({"spec": {"containers": [], "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]}}),
            json!({"spec": {"containers": [], "resources": {"requests": {"cpu": "1"}}}}),
            json!({"spec": {"containers": []}, "status": {"qosClass": "Guaranteed"}}),
        ] {
            let whole = Pod::deserialize(&pod).unwrap();
            assert_eq!(class_with_default(&class_part(&pod)), class_with_default(&whole), "{pod}");
        }
    }
}
