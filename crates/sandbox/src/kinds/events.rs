//! Events: one table, shown by two groups.
//!
//! At rest an Event has the core group's shape; events.k8s.io shows the same facts under its own names.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::rules::{self, Faults};
use super::{Column, Convert, FieldError, Hooks, Kind, Path, cell, internal, meta, names};

const TEXT_MAX: i64 = 128;
const NOTE_MAX: i64 = 1024;

/// Core name, events.k8s.io name. A name in neither column is the same in both.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Parts of the object an event is about that a selector may name.
const SUBJECT: [(&str, &str, &str); 7] = [
    ("kind", "involvedObject.kind", "regarding.kind"),
    ("namespace", "involvedObject.namespace", "regarding.namespace"),
    ("name", "involvedObject.name", "regarding.name"),
    ("uid", "involvedObject.uid", "regarding.uid"),
    ("apiVersion", "involvedObject.apiVersion", "regarding.apiVersion"),
    ("resourceVersion", "involvedObject.resourceVersion", "regarding.resourceVersion"),
    ("fieldPath", "involvedObject.fieldPath", "regarding.fieldPath"),
];

const CORE_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const NEW_FIELDS: &[&str] = &[
    "reason",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reportingController",
    "type",
];

pub(super) fn kinds() -> Vec<Kind> {
    let kind = |api_version, hooks: Hooks| {
        let mut kind =
            Kind::builtin(api_version, "Event", "events").short(&["ev"]).columns(columns()).hooks(hooks);
        kind.create_on_update = true;
        kind.storage_group = "".into();
        kind
    };
    let core = Hooks {
        validate: |event, _| validate_common(event, "reportingComponent"),
        fields,
        field_names: CORE_FIELDS,
        row,
        ..Hooks::default()
    };
    let new = Hooks {
        validate: |event, old| validate_new(&as_core(event), old.map(as_core).as_ref()),
        fields: |event| fields(&as_core(event)),
        field_names: NEW_FIELDS,
        row: |event, now| row(&as_core(event), now),
        convert: Some(Convert { to_storage, from_storage }),
        ..Hooks::default()
    };
    vec![kind("v1", core), kind("events.k8s.io/v1", new)]
}

fn as_core(event: &Value) -> Value {
    let mut event = event.clone();
    to_storage(&mut event);
    event
}

/// Under the names of both groups, for an event written by one may be asked for by the other.
fn fields(event: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| rules::text(value).to_owned();
    let object = &event["involvedObject"];
    let source = [&event["source"]["component"], &event["reportingComponent"]];
    let source = source.into_iter().map(rules::text).find(|text| !text.is_empty()).unwrap_or_default();
    let mut fields = vec![
        ("reason", text(&event["reason"])),
        ("reportingComponent", text(&event["reportingComponent"])),
        ("reportingController", text(&event["reportingComponent"])),
        ("source", source.to_owned()),
        ("type", text(&event["type"])),
    ];
    for (field, core, new) in SUBJECT {
        fields.push((core, text(&object[field])));
        fields.push((new, text(&object[field])));
    }
    fields
}

/// What both groups ask of an event, in the shape of the core group.
fn validate_common(event: &Value, controller_name: &'static str) -> Faults {
    let mut errors = Vec::new();
    let namespace = meta::namespace(event);
    let object = rules::text(&event["involvedObject"]["namespace"]);
    let is_new = rules::is_set(&event["eventTime"]);
    let may_be_global = if is_new { ["default", "kube-system"] } else { ["default", ""] };
    let is_fine = match object.is_empty() {
        true => may_be_global.contains(&namespace),
        false => is_new || namespace == object,
    };
    if !is_fine {
        let path = Path::root("involvedObject");
        errors.push(FieldError::invalid(&path.child("namespace"), object, "does not match event.namespace"));
    }
    if is_new {
        let controller = rules::text(&event["reportingComponent"]);
        let path = Path::root(controller_name);
        if controller.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        errors.extend(rules::faults(names::is_qualified_name(controller), controller, &path));
        for field in ["reportingInstance", "action", "reason"] {
            let path = Path::root(field);
            let found = rules::text(&event[field]);
            if found.is_empty() {
                errors.push(FieldError::required(&path, ""));
            }
            errors.extend(too_long(found, TEXT_MAX, &path));
        }
        errors.extend(too_long(rules::text(&event["message"]), NOTE_MAX, &Path::root("message")));
    }
    errors
}

fn too_long(text: &str, max: i64, path: &Path<'_>) -> Option<FieldError> {
    let is_long = rules::length(text) > max;
    is_long.then(|| FieldError::invalid(path, "", format!("can have at most {max} characters")))
}

/// What events.k8s.io asks beyond, in the shape of the core group.
fn validate_new(event: &Value, old: Option<&Value>) -> Faults {
    let mut errors = validate_common(event, "reportingController");
    let Some(old) = old else {
        errors.extend(series(&event["series"]));
        if event["eventTime"].is_null() {
            errors.push(FieldError::required(&Path::root("eventTime"), ""));
        }
        let kind = rules::text(&event["type"]);
        if !["Normal", "Warning"].contains(&kind) {
            errors.push(FieldError::invalid(&Path::root("type"), "", format!("has invalid value: {kind}")));
        }
        let source = &event["source"];
        let has_source = ["component", "host"].iter().any(|field| !rules::text(&source[*field]).is_empty());
        for (is_wrong, field) in [
            (rules::is_set(&event["firstTimestamp"]), "firstTimestamp"),
            (rules::is_set(&event["lastTimestamp"]), "lastTimestamp"),
            (event["count"].as_i64().unwrap_or(0) != 0, "count"),
            (has_source, "source"),
        ] {
            if is_wrong {
                errors.push(FieldError::invalid(&Path::root(field), "", "needs to be unset"));
            }
        }
        return errors;
    };
    if !rules::same(&event["series"], &old["series"]) {
        errors.extend(series(&event["series"]));
    }
    errors.extend(frozen(event, old));
    errors
}

/// Only the series of an event moves on.
fn frozen(event: &Value, old: &Value) -> Faults {
    let mut errors = Vec::new();
    for (field, kind) in [
        ("involvedObject", Some("ObjectReference")),
        ("reason", None),
        ("message", None),
        ("source", None),
        ("firstTimestamp", None),
        ("lastTimestamp", None),
        ("count", None),
        // Kubernetes asks twice, and lists the cause twice.
        ("reason", None),
        ("type", None),
        ("eventTime", None),
        ("action", None),
        ("related", Some("*ObjectReference")),
        ("reportingComponent", None),
        ("reportingInstance", None),
    ] {
        let path = Path::root(if field == "reportingComponent" { "reportingController" } else { field });
        let (new, old) = (&event[field], &old[field]);
        errors.extend(match kind {
            Some(kind) => rules::immutable_as(new, old, &internal::compact(kind, new), &path),
            None => rules::immutable(new, old, &path),
        });
    }
    errors
}

fn series(series: &Value) -> Faults {
    let mut errors = Vec::new();
    if series.is_null() {
        return errors;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        errors.push(FieldError::invalid(&Path::root("series.count"), "", "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        errors.push(FieldError::required(&Path::root("series.lastObservedTime"), ""));
    }
    errors
}

fn columns() -> Vec<Column> {
    let event = "io.k8s.api.core.v1.Event";
    let of = |name, priority, field| cell::documented(name, "string", priority, event, field);
    vec![
        of("Last Seen", 0, "lastTimestamp"),
        of("Type", 0, "type"),
        of("Reason", 0, "reason"),
        of("Object", 0, "involvedObject"),
        cell::documented("Subobject", "string", 1, "io.k8s.api.core.v1.ObjectReference", "fieldPath"),
        of("Source", 1, "source"),
        of("Message", 0, "message"),
        of("First Seen", 1, "firstTimestamp"),
        of("Count", 1, "count"),
        Column { priority: 1, ..cell::name_column() },
    ]
}

fn row(event: &Value, now: Timestamp) -> Vec<Value> {
    let object = &event["involvedObject"];
    let first = match rules::is_set(&event["firstTimestamp"]) {
        true => cell::since(&event["firstTimestamp"], now),
        false => cell::since(&event["eventTime"], now),
    };
    let series = &event["series"];
    let last = match (rules::is_set(series), rules::is_set(&event["lastTimestamp"])) {
        (true, _) => cell::since(&series["lastObservedTime"], now),
        (false, true) => cell::since(&event["lastTimestamp"], now),
        (false, false) => first.clone(),
    };
    let count = match rules::is_set(series) {
        true => series["count"].as_i64().unwrap_or(0),
        // An event alone does not count itself in the new group.
        false => event["count"].as_i64().filter(|count| *count != 0).unwrap_or(1),
    };
    let kind = rules::text(&object["kind"]).to_lowercase();
    let target = match rules::text(&object["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        Value::from(last),
        cell::text(&event["type"]),
        cell::text(&event["reason"]),
        Value::from(target),
        cell::text(&object["fieldPath"]),
        Value::from(source(event)),
        Value::from(rules::text(&event["message"]).trim()),
        Value::from(first),
        Value::from(count),
        cell::name(event),
    ]
}

/// `component, instance`.
fn source(event: &Value) -> String {
    let first = |values: [&Value; 2]| {
        values.into_iter().map(rules::text).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    };
    let component = first([&event["source"]["component"], &event["reportingComponent"]]);
    match first([&event["source"]["host"], &event["reportingInstance"]]) {
        none if none.is_empty() => component,
        instance => format!("{component}, {instance}"),
    }
}

fn to_storage(event: &mut Value) {
    rename(event, "v1", |(core, new)| (new, core));
}

fn from_storage(event: &mut Value) {
    rename(event, "events.k8s.io/v1", |(core, new)| (core, new));
    for field in ["reportingController", "reportingInstance"] {
        if event[field] == "" {
            event.as_object_mut().map(|fields| fields.remove(field));
        }
    }
}

fn rename(
    event: &mut Value,
    api_version: &str,
    pick: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(fields) = event.as_object_mut() else { return };
    let mut renamed: Map<String, Value> = std::mem::take(fields);
    for (from, to) in NAMES.map(pick) {
        if let Some(value) = renamed.remove(from) {
            renamed.insert(to.to_owned(), value);
        }
    }
    renamed.insert("apiVersion".to_owned(), Value::from(api_version));
    *fields = renamed;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_groups_tell_the_same() {
        let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n", "reason": "r",
            "regarding": {"name": "p"}, "reportingController": "c", "deprecatedCount": 2});
        let mut event = new.clone();
        to_storage(&mut event);
        assert_eq!(
            event,
            json!({"apiVersion": "v1", "kind": "Event", "message": "n", "reason": "r",
                "involvedObject": {"name": "p"}, "reportingComponent": "c", "count": 2})
        );
        from_storage(&mut event);
        assert_eq!(event, new);
    }
}
