//! Events: one table, shown by two groups.
//!
//! At rest an Event has the core group's shape; events.k8s.io shows the same facts under its own names.

use serde_json::{Map, Value};

use super::{Convert, Kind};

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

pub(super) fn kinds() -> Vec<Kind> {
    let mut core = Kind::builtin("v1", "Event", "events").short(&["ev"]);
    let mut new = Kind::builtin("events.k8s.io/v1", "Event", "events").short(&["ev"]);
    core.create_on_update = true;
    new.create_on_update = true;
    new.storage_group = "".into();
    new.hooks.convert = Some(Convert { to_storage, from_storage });
    vec![core, new]
}

fn to_storage(event: &mut Value) {
    rename(event, "v1", |(core, new)| (new, core));
}

fn from_storage(event: &mut Value) {
    rename(event, "events.k8s.io/v1", |(core, new)| (core, new));
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
