//! Cells of server-side Tables: ages, counts, lists, as kubectl's readers know them.

use jiff::Timestamp;
use serde_json::Value;

use super::tree::{list, text, text_entries};
use super::{Column, meta};

/// What Kubernetes writes where there is nothing.
pub(super) const NONE: &str = "<none>";

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The column every Table begins with.
pub(super) fn name_column() -> Column {
    Column { format: "name".into(), ..Column::new("Name", "string", 0, NAME) }
}

pub(super) fn age_column() -> Column {
    Column::new("Age", "string", 0, AGE)
}

/// The object's name.
pub(super) fn name(object: &Value) -> Value {
    meta::name(object).into()
}

/// How long ago the object was made.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    meta::age(object, now).into()
}

/// A text, or `<none>`.
pub(super) fn or_none(text: &str) -> Value {
    if text.is_empty() { NONE.into() } else { text.into() }
}

/// Names and images of containers, each joined by commas.
pub(super) fn containers(containers: &[Value]) -> (Value, Value) {
    let join = |field: &str| containers.iter().map(|c| text(c, field)).collect::<Vec<_>>().join(",");
    (join("name").into(), join("image").into())
}

/// Labels as `a=b,c=d`, or `<none>`.
pub(super) fn labels(value: &Value, field: &str) -> Value {
    let pairs: Vec<String> =
        text_entries(value, field).map(|(key, value)| format!("{key}={value}")).collect();
    or_none(&pairs.join(","))
}

/// Access modes of volumes, short: `RWO,ROX`.
pub(super) fn access_modes(value: &Value) -> String {
    let has = |mode: &str| list(value, "accessModes").iter().any(|m| m == mode);
    let modes = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    modes.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_read_as_kubernetes_writes_them() {
        let object =
            json!({"selector": {"b": "2", "a": "1"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]});
        assert_eq!(labels(&object, "selector"), "a=1,b=2");
        assert_eq!(labels(&object, "labels"), NONE);
        assert_eq!(access_modes(&object), "RWO,RWX");
        let list = [json!({"name": "a", "image": "x"}), json!({"name": "b", "image": "y"})];
        assert_eq!(containers(&list), (json!("a,b"), json!("x,y")));
    }
}
