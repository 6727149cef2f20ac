//! Writing an object back without losing what its type does not know.
//!
//! A typed view drops unknown fields, so what we write is not the view but the object as it came,
//! with our change applied. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The object to write: `raw` with the change from `before` to `after` applied.
///
/// `before` is what our types made of `raw`, `after` the same after our change. Fields that stand
/// only in `raw` are unknown to us and stay, in list elements too. Elements of lists are aligned by
/// what identifies them (see `IDENTITY_KEYS`), else by equality, else by position when the list
/// kept its length; an element that left takes its unknown fields with it.
pub fn carry_unknown(raw: &Value, before: &Value, after: &Value) -> Value {
    match (raw, before, after) {
        // Untouched by us, so even its spelling stays ("1000m" does not become "1").
        _ if before == after => raw.clone(),
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            Value::Object(carry_object(raw, before, after))
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after)) if raw.len() == before.len() => {
            Value::Array(carry_list(raw, before, after))
        }
        _ => after.clone(),
    }
}

/// Sets of keys that identify an element of a list, the strongest first. All keys of a set must be
/// there as text or number, and tell all elements of the list apart.
const IDENTITY_KEYS: [&[&str]; 9] = [
    &["uid"],
    &["type", "minor"],
    &["namespace", "name"],
    &["name"],
    &["type"],
    &["key", "effect"],
    &["key"],
    &["minor"],
    &["numaNodeID"],
];

fn carry_object(
    raw: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut result = Map::new();
    for (key, value) in raw {
        match (before.get(key), after.get(key)) {
            (Some(old), Some(new)) => _ = result.insert(key.clone(), carry_unknown(value, old, new)),
            // We removed it.
            (Some(_), None) => {}
            // Our types left it out as empty, and now it is not.
            (None, Some(new)) => {
                _ = result.insert(key.clone(), carry_unknown(value, &empty_like(value), new))
            }
            // Unknown to us, or empty then and now.
            (None, None) => _ = result.insert(key.clone(), value.clone()),
        }
    }
    for (key, new) in after {
        if !raw.contains_key(key) && before.get(key) != Some(new) {
            result.insert(key.clone(), new.clone());
        }
    }
    result
}

/// What a known field looked like to us when our types left it out: with nothing known inside.
fn empty_like(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

fn carry_list(raw: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut partners = align(before, after);
    let carried = after.iter().zip(partners.drain(..)).map(|(new, partner)| match partner {
        Some(old) => carry_unknown(&raw[old], &before[old], new),
        None => new.clone(),
    });
    carried.collect()
}

/// For each element of `after` the element of `before` that it was.
fn align(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    for keys in IDENTITY_KEYS {
        if let (Some(old), Some(new)) = (identities(before, keys), identities(after, keys)) {
            return new.iter().map(|identity| old.iter().position(|other| other == identity)).collect();
        }
    }
    let mut taken = BTreeSet::new();
    let mut partners: Vec<Option<usize>> = after
        .iter()
        .map(|new| {
            let partner = (0..before.len()).find(|index| !taken.contains(index) && before[*index] == *new);
            taken.extend(partner);
            partner
        })
        .collect();
    if before.len() == after.len() {
        for (index, partner) in partners.iter_mut().enumerate() {
            if partner.is_none() && taken.insert(index) {
                *partner = Some(index);
            }
        }
    }
    partners
}

/// The values under these keys, one list for each element; none unless they tell all apart.
fn identities<'a>(list: &'a [Value], keys: &[&str]) -> Option<Vec<Vec<&'a Value>>> {
    let identity = |element: &'a Value| -> Option<Vec<&'a Value>> {
        let scalar = |key: &&str| element.get(*key).filter(|value| value.is_string() || value.is_number());
        keys.iter().map(scalar).collect()
    };
    let all: Vec<Vec<&Value>> = list.iter().map(identity).collect::<Option<_>>()?;
    let distinct = all.iter().enumerate().all(|(index, one)| !all[..index].contains(one));
    distinct.then_some(all)
}

#[cfg(test)]
mod tests;
