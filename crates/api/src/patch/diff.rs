//! The JSON patch that leads from one tree to another: only what differs, in few steps.

use serde::Serialize;
use serde_json::{Map, Value};

/// One step of a patch, as it is written on the wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Change {
    Add { path: String, value: Value },
    Remove { path: String },
    Replace { path: String, value: Value },
}

/// The steps from one tree to the other; none when they are equal.
pub fn diff(from: &Value, to: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(from, to, &mut String::new(), &mut changes);
    changes
}

fn compare(from: &Value, to: &Value, path: &mut String, changes: &mut Vec<Change>) {
    match (from, to) {
        _ if from == to => {}
        (Value::Object(from), Value::Object(to)) => compare_fields(from, to, path, changes),
        (Value::Array(from), Value::Array(to)) => compare_items(from, to, path, changes),
        _ => changes.push(Change::Replace { path: path.clone(), value: to.clone() }),
    }
}

fn compare_fields(
    from: &Map<String, Value>,
    to: &Map<String, Value>,
    path: &mut String,
    changes: &mut Vec<Change>,
) {
    for (name, old) in from {
        at(path, name, |path| match to.get(name) {
            Some(new) => compare(old, new, path, changes),
            None => changes.push(Change::Remove { path: path.clone() }),
        });
    }
    for (name, new) in to.iter().filter(|(name, _)| !from.contains_key(*name)) {
        at(path, name, |path| changes.push(Change::Add { path: path.clone(), value: new.clone() }));
    }
}

/// Visits a place below, whose name is written as JSON pointers want it.
fn at(path: &mut String, name: &str, visit: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    for character in name.chars() {
        match character {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        }
    }
    visit(path);
    path.truncate(length);
}

/// Walks both lists along the best alignment; places count in the list as it is at that step.
fn compare_items(from: &[Value], to: &[Value], path: &mut String, changes: &mut Vec<Change>) {
    let (mut old, mut new, mut place) = (0, 0, 0);
    for step in align(from, to) {
        at(path, &place.to_string(), |path| match step {
            Pairing::Same => compare(&from[old], &to[new], path, changes),
            Pairing::Gone => changes.push(Change::Remove { path: path.clone() }),
            Pairing::New => changes.push(Change::Add { path: path.clone(), value: to[new].clone() }),
        });
        old += usize::from(step != Pairing::New);
        new += usize::from(step != Pairing::Gone);
        place += usize::from(step != Pairing::Gone);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pairing {
    Same,
    Gone,
    New,
}

/// Lists whose middle parts have more pairs of elements than this are paired by position.
const PAIRS_MAX: usize = 10_000;

/// Which elements are the same one: equal ends first, then the cheapest way through the middle.
fn align(from: &[Value], to: &[Value]) -> Vec<Pairing> {
    let shorter = from.len().min(to.len());
    let head = from.iter().zip(to).take_while(|(old, new)| old == new).count();
    let tail = from.iter().rev().zip(to.iter().rev()).take_while(|(old, new)| old == new).count();
    let tail = tail.min(shorter - head);
    let mut steps = vec![Pairing::Same; head];
    align_middle(&from[head..from.len() - tail], &to[head..to.len() - tail], &mut steps);
    steps.extend(std::iter::repeat_n(Pairing::Same, tail));
    steps
}

fn align_middle(from: &[Value], to: &[Value], steps: &mut Vec<Pairing>) {
    if from.is_empty() || to.is_empty() || from.len().saturating_mul(to.len()) > PAIRS_MAX {
        let paired = from.len().min(to.len());
        steps.extend(std::iter::repeat_n(Pairing::Same, paired));
        steps.extend(std::iter::repeat_n(Pairing::Gone, from.len() - paired));
        steps.extend(std::iter::repeat_n(Pairing::New, to.len() - paired));
        return;
    }
    // costs[i][j]: the cheapest way from the elements from i on to those from j on.
    let width = to.len() + 1;
    let mut costs = vec![0_usize; (from.len() + 1) * width];
    for old in (0..=from.len()).rev() {
        for new in (0..=to.len()).rev() {
            let cost = |old: usize, new: usize| costs[old * width + new];
            costs[old * width + new] = match (from.get(old), to.get(new)) {
                (None, None) => 0,
                (None, Some(_)) => COST_NEW + cost(old, new + 1),
                (Some(_), None) => COST_GONE + cost(old + 1, new),
                (Some(a), Some(b)) => (cost_same(a, b) + cost(old + 1, new + 1))
                    .min(COST_GONE + cost(old + 1, new))
                    .min(COST_NEW + cost(old, new + 1)),
            };
        }
    }
    let (mut old, mut new) = (0, 0);
    while old < from.len() || new < to.len() {
        let here = costs[old * width + new];
        let pair = match (from.get(old), to.get(new)) {
            (Some(a), Some(b)) => Some(cost_same(a, b) + costs[(old + 1) * width + new + 1]),
            _ => None,
        };
        let step = if pair == Some(here) {
            Pairing::Same
        } else if old < from.len() && COST_GONE + costs[(old + 1) * width + new] == here {
            Pairing::Gone
        } else {
            Pairing::New
        };
        old += usize::from(step != Pairing::New);
        new += usize::from(step != Pairing::Gone);
        steps.push(step);
    }
}

const COST_GONE: usize = 2;
const COST_NEW: usize = 3;

/// Nothing for equal elements, little for those that say they are the same one, else as much as a replacement.
fn cost_same(from: &Value, to: &Value) -> usize {
    let name = |value: &Value| value.get("name").or_else(|| value.get("key")).cloned();
    match from == to {
        true => 0,
        false if from.is_object() && name(from).is_some() && name(from) == name(to) => 1,
        false if name(from).is_none() && name(to).is_none() => 3,
        false => COST_GONE + COST_NEW,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::tests::any_json;
    use super::*;
    use crate::patch::json::apply;

    fn check(from: &Value, to: &Value) -> usize {
        let changes = diff(from, to);
        let patch = serde_json::to_vec(&changes).unwrap();
        assert_eq!(apply(from.clone(), &patch).as_ref(), Ok(to), "{changes:?}");
        changes.len()
    }

    #[test]
    fn patches_are_small() {
        for (name, from, to, want) in [
            ("equal", json!({"a": [1, {"b": null}]}), json!({"a": [1, {"b": null}]}), json!([])),
            (
                "a label is new",
                json!({"metadata": {"labels": {"a": "1"}}}),
                json!({"metadata": {"labels": {"a": "1", "b/c~d": "2"}}}),
                json!([{"op": "add", "path": "/metadata/labels/b~1c~0d", "value": "2"}]),
            ),
            (
                "the first label",
                json!({"metadata": {}}),
                json!({"metadata": {"labels": {"a": "1"}}}),
                json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}]),
            ),
            (
                "a sidecar goes first, the other container changes",
                json!({"c": [{"name": "main", "image": "1"}, {"name": "log"}]}),
                json!({"c": [{"name": "side"}, {"name": "main", "image": "2"}, {"name": "log"}]}),
                json!([{"op": "add", "path": "/c/0", "value": {"name": "side"}},
                       {"op": "replace", "path": "/c/1/image", "value": "2"}]),
            ),
            (
                "an element goes",
                json!({"l": [1, 2, 3]}),
                json!({"l": [1, 3]}),
                json!([{"op": "remove", "path": "/l/1"}]),
            ),
            (
                "amounts move",
                json!({"requests": {"cpu": "1", "memory": "1Gi"}}),
                json!({"requests": {"batch-cpu": "1k", "memory": "1Gi"}}),
                json!([{"op": "remove", "path": "/requests/cpu"},
                       {"op": "add", "path": "/requests/batch-cpu", "value": "1k"}]),
            ),
            (
                "other types",
                json!({"a": {"b": 1}}),
                json!({"a": ["b"]}),
                json!([{"op": "replace", "path": "/a", "value": ["b"]}]),
            ),
        ] {
            assert_eq!(serde_json::to_value(diff(&from, &to)).unwrap(), want, "{name}");
            check(&from, &to);
        }
    }

    #[test]
    fn long_lists_are_paired_by_position() {
        let list = |from: i64, to: i64| json!({"l": (from..to).collect::<Vec<_>>()});
        assert_eq!(check(&list(0, 300), &list(500, 700)), 300, "200 replaced, 100 removed");
        assert_eq!(check(&list(500, 700), &list(0, 300)), 300);
    }

    fn leaves(value: &Value) -> usize {
        match value {
            Value::Object(fields) => 1 + fields.values().map(leaves).sum::<usize>(),
            Value::Array(items) => 1 + items.iter().map(leaves).sum::<usize>(),
            _ => 1,
        }
    }

    proptest! {
        /// Applying the patch gives the wanted tree, equal trees need none, and no value is touched twice.
        #[test]
        fn patches_lead_to_the_wanted_tree(from in any_json(), to in any_json()) {
            let (from, to) = (json!({"root": from}), json!({"root": to}));
            let steps = check(&from, &to);
            prop_assert_eq!(steps == 0, from == to);
            prop_assert!(steps <= leaves(&from) + leaves(&to));
        }
    }
}
