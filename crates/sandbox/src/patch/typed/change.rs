//! Merging one object into another, and taking fields away.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Form, Type, element_of};
use crate::patch::fieldset::{Element, FieldSet};
use crate::schema::ListType;

/// `live` with everything that `config` says. What `config` does not mention stays.
pub(in crate::patch) fn merge(live: &Value, config: &Value, of: Type<'_>) -> Value {
    unite(Some(live), Some(config), of).unwrap_or(Value::Null)
}

/// `None` where nothing is left to say, as for an empty map merged from two empty ones below.
fn unite(live: Option<&Value>, config: Option<&Value>, of: Type<'_>) -> Option<Value> {
    let form = of.form(config.or(live));
    let whole = || config.or(live).cloned();
    match form {
        Form::Scalar | Form::Map { atomic: true, .. } | Form::List { list_type: ListType::Atomic, .. } => {
            whole()
        }
        Form::List { items, list_type } => {
            let old = live.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let new = config.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            match old.is_empty() && new.is_empty() {
                true => whole(),
                false => Some(Value::Array(unite_lists(old, new, items, list_type)))
                    .filter(|list| list != &Value::Array(Vec::new())),
            }
        }
        Form::Map { fields, .. } => {
            let empty = Map::new();
            let old = live.and_then(Value::as_object).unwrap_or(&empty);
            let new = config.and_then(Value::as_object).unwrap_or(&empty);
            if old.is_empty() && new.is_empty() {
                return whole();
            }
            let only_new = new.keys().filter(|name| !old.contains_key(*name));
            let merged: Map<String, Value> = old
                .keys()
                .chain(only_new)
                .filter_map(|name| {
                    let of = fields.get(name).unwrap_or(Type::Deduced);
                    Some((name.clone(), unite(old.get(name), new.get(name), of)?))
                })
                .collect();
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

/// Elements of the config in their order, the live ones between them where they stood.
fn unite_lists(live: &[Value], config: &[Value], items: Type<'_>, list_type: &ListType) -> Vec<Value> {
    let keys = |list: &[Value]| -> Vec<Option<Element>> {
        list.iter().map(|item| element_of(item, items, list_type).ok()).collect()
    };
    let (old_keys, new_keys) = (keys(live), keys(config));
    // A live element that stands twice cannot be merged with; the config's takes its place.
    let mut by_key: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (key, item) in old_keys.iter().zip(live) {
        if let Some(key) = key {
            by_key.entry(key).and_modify(|value| *value = None).or_insert(Some(item));
        }
    }
    let in_config = |key: &Option<Element>| new_keys.contains(key);
    let mut shared = new_keys.iter().filter(|key| key.as_ref().is_some_and(|key| by_key.contains_key(key)));
    let mut next_shared = shared.next();
    let mut merged: Vec<&Option<Element>> = Vec::new();
    let mut out = Vec::new();
    let both = |place: usize| {
        let key = new_keys[place].as_ref();
        let old = key.and_then(|key| by_key.get(key).copied().flatten());
        unite(old, Some(&config[place]), items)
    };
    let (mut left, mut right) = (0, 0);
    while left < live.len() || right < config.len() {
        if left < live.len() && right < config.len() {
            if old_keys[left] == new_keys[right] {
                merged.push(&new_keys[right]);
                out.extend(both(right));
                (left, right) = (left + 1, right + 1);
                next_shared = shared.next();
                continue;
            }
            if in_config(&old_keys[left]) && next_shared.is_some_and(|next| next != &old_keys[left]) {
                left += 1;
                continue;
            }
        }
        if left < live.len() {
            if !in_config(&old_keys[left]) {
                out.extend(unite(Some(&live[left]), None, items));
                left += 1;
                continue;
            }
            if merged.contains(&&old_keys[left]) {
                left += 1;
            }
        }
        if right < config.len() {
            let key = &new_keys[right];
            merged.push(key);
            out.extend(both(right));
            right += 1;
            if next_shared == Some(key) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// `value` without the fields of `set`.
pub(in crate::patch) fn remove(value: &Value, set: &FieldSet, of: Type<'_>) -> Value {
    match (value, of.form(Some(value))) {
        (_, Form::Scalar) => value.clone(),
        (Value::Array(list), Form::List { items, list_type }) if *list_type != ListType::Atomic => {
            let kept: Vec<Value> = list
                .iter()
                .filter_map(|item| {
                    let Ok(element) = element_of(item, items, list_type) else { return Some(item.clone()) };
                    keep(item, &element, set, items)
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Value::Object(map), Form::Map { fields, atomic: false }) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter_map(|(name, value)| {
                    let of = fields.get(name).unwrap_or(Type::Deduced);
                    Some((name.clone(), keep(value, &Element::field(name), set, of)?))
                })
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        // Something below was to go, and it has nothing below: it goes as a whole.
        _ => Value::Null,
    }
}

fn keep(value: &Value, element: &Element, set: &FieldSet, of: Type<'_>) -> Option<Value> {
    if set.has(element) {
        return None;
    }
    match set.below(element) {
        Some(below) => Some(remove(value, below, of)),
        None => Some(value.clone()),
    }
}
