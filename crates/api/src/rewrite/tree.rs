//! Ways into the JSON tree of a pod.

use serde_json::{Map, Value};

pub type Object = Map<String, Value>;

/// The object itself; anything else becomes an empty one first.
pub fn object(value: &mut Value) -> &mut Object {
    if !value.is_object() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut().expect("it has just been made an object")
}

/// An object inside another, made when missing.
pub fn child<'a>(parent: &'a mut Object, name: &str) -> &'a mut Object {
    object(parent.entry(name).or_insert(Value::Null))
}

/// Labels or annotations of a pod, made when missing.
pub fn texts<'a>(pod: &'a mut Value, which: &str) -> &'a mut Object {
    child(child(object(pod), "metadata"), which)
}

/// The containers of a pod in one of its lists.
pub fn containers_mut<'a>(pod: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Object> {
    let list = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The same, to look at.
pub fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Object> {
    let list = pod.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_object)
}
