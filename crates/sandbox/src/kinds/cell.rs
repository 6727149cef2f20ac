//! Cells of server-side Tables: ages, counts, lists, as kubectl's readers know them.

use jiff::Timestamp;
use serde_json::Value;

use super::tree::{list, text_entries};
use super::{Column, meta, rules, tree};

use crate::schema::builtin;

/// What Kubernetes writes where there is nothing.
pub(super) const NONE: &str = "<none>";

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The column of the object's name.
pub(super) fn name_column() -> Column {
    Column { format: "name".into(), ..documented("Name", "string", 0, OBJECT_META, "name") }
}

/// The column of the object's age.
pub(super) fn age_column() -> Column {
    documented("Age", "string", 0, OBJECT_META, "creationTimestamp")
}

/// A column that shows a field: its description is the field's own. `type_name` as in OpenAPI.
pub(super) fn documented(
    name: &'static str,
    kind: &'static str,
    priority: i64,
    type_name: &str,
    field: &str,
) -> Column {
    let found = builtin::by_name(type_name).and_then(|schema| schema.properties.get(field));
    let description = found.map_or("", |field| field.description.as_str());
    Column::new(name, kind, priority, description)
}

/// The columns of a pod template, shown with `-o wide`.
pub(super) fn template_columns() -> [Column; 2] {
    [
        Column::new("Containers", "string", 1, "Names of each container in the template."),
        Column::new("Images", "string", 1, "Images referenced by each container in the template."),
    ]
}

/// Names and images of the containers of a pod template.
pub(super) fn template_containers(template: &Value) -> [Value; 2] {
    let containers = rules::list(&template["spec"]["containers"]);
    ["name", "image"].map(|field| Value::from(join(containers.iter().map(|c| rules::text(&c[field])), ",")))
}

pub(super) fn join<'a>(parts: impl Iterator<Item = &'a str>, between: &str) -> String {
    parts.collect::<Vec<_>>().join(between)
}

/// The name of the object.
pub(super) fn name(object: &Value) -> Value {
    Value::from(meta::name(object))
}

/// The age of the object.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(meta::age(object, now))
}

/// A number, 0 when absent.
pub(super) fn count(value: &Value) -> Value {
    Value::from(value.as_i64().unwrap_or(0))
}

/// The length of a list.
pub(super) fn length(value: &Value) -> Value {
    Value::from(rules::list(value).len())
}

/// A flag, with what it means when absent.
pub(super) fn flag(value: &Value, absent: bool) -> Value {
    Value::from(value.as_bool().unwrap_or(absent))
}

/// A text, empty when absent.
pub(super) fn text(value: &Value) -> Value {
    Value::from(rules::text(value))
}

/// The time since then.
pub(super) fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().map(str::parse) {
        Some(Ok(then)) => meta::format_age(now, then),
        _ => "<unknown>".to_owned(),
    }
}

/// A label selector in one line.
pub(super) fn selector(selector: &Value) -> String {
    match rules::selector(selector).map(|s| s.to_string()) {
        Err(_) => "<error>".to_owned(),
        Ok(text) if text.is_empty() => "<none>".to_owned(),
        Ok(text) => text,
    }
}

/// Labels in one line.
pub(super) fn label_text(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", rules::text(value))).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// The first of a list, and how many more there are.
pub(super) fn first_of(all: &[String], shown: usize) -> String {
    match all {
        [] => "<unset>".to_owned(),
        few if few.len() <= shown => few.join(","),
        many => format!("{} + {} more...", many[..shown].join(","), many.len() - shown),
    }
}

/// A text, or `<none>`.
pub(super) fn or_none(text: &str) -> Value {
    if text.is_empty() { NONE.into() } else { text.into() }
}

/// Names and images of containers, each joined by commas.
pub(super) fn containers(containers: &[Value]) -> (Value, Value) {
    let join = |field: &str| containers.iter().map(|c| tree::text(c, field)).collect::<Vec<_>>().join(",");
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
