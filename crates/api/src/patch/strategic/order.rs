//! In which order the elements of a merged list stand.

use serde_json::{Map, Value};

use super::{
    PatchError, SET_ORDER, Shape, directive_target, merge_list, no_merge_key, print_list, strip_directives,
    unexpected,
};
use crate::patch::json::type_name;

/// Merges the lists that a `$setElementOrder` speaks of, and takes both out of the patch.
pub(super) fn set_orders<S: Shape>(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    shape: Option<&S>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = list(patch.remove(&directive).unwrap_or_default())?;
        let field = directive_target(&directive, SET_ORDER)?;
        let below = shape.and_then(|shape| shape.field(field));
        let key = below.map(Shape::merge_key).unwrap_or_default();
        let old = original.get(field).cloned().map(list).transpose()?;
        let new = patch.get(field).cloned().map(list).transpose()?;
        check_order(new.as_deref().unwrap_or_default(), &order, key)?;
        let mut server_order = old.clone().unwrap_or_default();
        let elements = server_order.len() + new.as_ref().map_or(0, Vec::len);
        let merged = match (old, new) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(new)) => match strip_directives(Value::Array(new)) {
                Some(Value::Array(new)) => new,
                _ => continue,
            },
            (Some(_), Some(new)) => merge_list(&mut server_order, new, false, below)?,
        };
        if elements == 0 {
            return Err(unexpected("no elements in any of the given slices"));
        }
        let arranged = arrange(merged, &order, &server_order, key)?;
        original.insert(field.to_owned(), Value::Array(arranged));
        patch.remove(field);
    }
    Ok(())
}

fn list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => {
            let found = match type_name(&other) {
                "object" => "map[string]interface {}",
                "number" => "int64",
                other => other,
            };
            Err(unexpected(format!("expected a []interface {{}}, but received a {found}")))
        }
    }
}

/// The patch's elements must stand in the order it asks for.
fn check_order(patch: &[Value], order: &[Value], key: &str) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let directive = |element: &Value| element.get(super::DIRECTIVE).cloned();
    let kept: Vec<&Value> = patch
        .iter()
        .filter(|element| key.is_empty() || directive(element) != Some("delete".into()))
        .collect();
    let (mut at, mut wanted) = (0, 0);
    while at < kept.len() && wanted < order.len() {
        if directive(kept[at]).is_some() {
            at += 1;
            continue;
        }
        if identity(kept[at], key)? == identity(&order[wanted], key)? {
            at += 1;
        }
        wanted += 1;
    }
    match at < kept.len() && wanted >= order.len() {
        false => Ok(()),
        true => Err(unexpected(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
            print_list(patch),
            print_list(order)
        ))),
    }
}

/// What tells an element from others: itself, or the value of the merge key.
fn identity<'a>(element: &'a Value, key: &str) -> Result<&'a Value, PatchError> {
    match key.is_empty() {
        true => Ok(element),
        false => element.get(key).ok_or_else(|| no_merge_key(element, key)),
    }
}

/// Elements named in `wanted` in that order, the others where the object had them; an element of
/// the object that stood before one of the patch still does.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    server: &[Value],
    key: &str,
) -> Result<Vec<Value>, PatchError> {
    let place = |element: &Value, list: &[Value]| {
        list.iter().position(|other| match key.is_empty() {
            true => other == element,
            false => other.get(key) == element.get(key),
        })
    };
    for element in merged.iter().chain(wanted).chain(server).filter(|_| !key.is_empty()) {
        identity(element, key)?;
    }
    let (mut ours, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|element| place(element, wanted).is_some());
    sort(&mut ours, |element| place(element, wanted));
    sort(&mut others, |element| place(element, server));
    let mut arranged = Vec::with_capacity(ours.len() + others.len());
    let mut others = others.into_iter().peekable();
    for element in ours {
        let limit = place(&element, server);
        while let (Some(limit), Some(other)) = (limit, others.peek()) {
            if place(other, server).is_none_or(|other| other >= limit) {
                break;
            }
            arranged.extend(others.next());
        }
        arranged.push(element);
    }
    arranged.extend(others);
    Ok(arranged)
}

/// Insertion sort in which an element without a place goes before any other, as the API server's
/// comparison has it: such elements come out in reverse.
fn sort(elements: &mut [Value], place: impl Fn(&Value) -> Option<usize>) {
    let before = |a: &Value, b: &Value| match (place(a), place(b)) {
        (Some(a), Some(b)) => a < b,
        _ => true,
    };
    for end in 1..elements.len() {
        let mut at = end;
        while at > 0 && before(&elements[at], &elements[at - 1]) {
            elements.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Drops repeated scalars.
pub(super) fn deduplicate(items: Vec<Value>) -> Vec<Value> {
    let mut unique: Vec<Value> = Vec::with_capacity(items.len());
    for item in items {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique
}
