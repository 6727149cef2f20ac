//! Strategic merge patch of a Pod: Kubernetes' own rules, on JSON values.
//!
//! Objects merge field by field, `null` deletes. A list is replaced whole unless the table below says
//! that its elements have a key. New elements of a merged list come before the elements only the target
//! has, except those that stood before a patched one; that is what the API server does.

use serde_json::{Map, Value};

/// Applies `patch` to `pod`, both as JSON documents. On an error the pod is half patched.
pub fn apply(pod: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let (Value::Object(pod), Value::Object(patch)) = (pod, patch) else {
        return Err(PatchError { path: String::new(), fault: Fault::NotObject });
    };
    merge_object(pod, patch, &POD, &mut Path::default())
}

/// A patch that cannot be applied, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("patch at {}: {fault}", if path.is_empty() { "the top" } else { path })]
pub struct PatchError {
    /// Field path inside the patch, such as `spec.containers[1]`.
    pub path: String,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("expected an object")]
    NotObject,
    #[error("expected a list of field names")]
    NotNameList,
    #[error("list elements must be objects with a {key:?} field")]
    NoMergeKey { key: &'static str },
    #[error("list elements must be plain values")]
    NotScalar,
    #[error("unknown $patch directive {directive}, accepted: \"replace\", \"delete\"")]
    UnknownDirective { directive: String },
    #[error("field {field:?} is set but not listed in $retainKeys")]
    NotRetained { field: String },
}

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

/// Which fields of an object are more than "merge objects, replace lists".
struct Schema(&'static [(&'static str, Field)]);

struct Field {
    list: ListMerge,
    /// Of the object itself, or of the list's elements.
    schema: &'static Schema,
}

#[derive(Clone, Copy)]
enum ListMerge {
    Replace,
    /// Elements with an equal value of this field are the same element.
    ByKey(&'static str),
    /// A set of plain values.
    Set,
}

const fn object(schema: &'static Schema) -> Field {
    Field { list: ListMerge::Replace, schema }
}

const fn keyed(key: &'static str, schema: &'static Schema) -> Field {
    Field { list: ListMerge::ByKey(key), schema }
}

static PLAIN: Schema = Schema(&[]);
static PLAIN_FIELD: Field = object(&PLAIN);

static POD: Schema =
    Schema(&[("metadata", object(&METADATA)), ("spec", object(&SPEC)), ("status", object(&STATUS))]);

static METADATA: Schema = Schema(&[
    ("ownerReferences", keyed("uid", &PLAIN)),
    ("finalizers", Field { list: ListMerge::Set, schema: &PLAIN }),
]);

static SPEC: Schema = Schema(&[
    ("containers", keyed("name", &CONTAINER)),
    ("initContainers", keyed("name", &CONTAINER)),
    ("ephemeralContainers", keyed("name", &CONTAINER)),
    ("volumes", keyed("name", &VOLUME)),
    ("imagePullSecrets", keyed("name", &PLAIN)),
    ("hostAliases", keyed("ip", &PLAIN)),
    ("topologySpreadConstraints", keyed("topologyKey", &PLAIN)),
    ("schedulingGates", keyed("name", &PLAIN)),
    ("resourceClaims", keyed("name", &PLAIN)),
]);

static CONTAINER: Schema = Schema(&[
    ("ports", keyed("containerPort", &PLAIN)),
    ("env", keyed("name", &PLAIN)),
    ("volumeMounts", keyed("mountPath", &PLAIN)),
    ("volumeDevices", keyed("devicePath", &PLAIN)),
]);

static VOLUME: Schema = Schema(&[("ephemeral", object(&EPHEMERAL_VOLUME))]);
static EPHEMERAL_VOLUME: Schema = Schema(&[("volumeClaimTemplate", object(&CLAIM_TEMPLATE))]);
static CLAIM_TEMPLATE: Schema = Schema(&[("metadata", object(&METADATA))]);

static STATUS: Schema = Schema(&[
    ("conditions", keyed("type", &PLAIN)),
    ("hostIPs", keyed("ip", &PLAIN)),
    ("podIPs", keyed("ip", &PLAIN)),
    ("resourceClaimStatuses", keyed("name", &PLAIN)),
]);

impl Schema {
    fn field(&self, name: &str) -> &Field {
        self.0.iter().find(|(field, _)| *field == name).map_or(&PLAIN_FIELD, |(_, field)| field)
    }
}

/// Where we are in the patch, for messages.
#[derive(Default)]
struct Path(Vec<String>);

impl Path {
    fn within<T>(
        &mut self,
        step: String,
        f: impl FnOnce(&mut Path) -> Result<T, PatchError>,
    ) -> Result<T, PatchError> {
        self.0.push(step);
        let result = f(self);
        self.0.pop();
        result
    }

    fn error(&self, fault: Fault) -> PatchError {
        PatchError { path: self.0.join(".").replace(".[", "["), fault }
    }
}

type Object = Map<String, Value>;

fn merge_object(
    target: &mut Object,
    patch: &Object,
    schema: &Schema,
    path: &mut Path,
) -> Result<(), PatchError> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(Value::String(d)) if d == "replace" => {
            *target = clean_fields(patch);
            return Ok(());
        }
        Some(Value::String(d)) if d == "delete" => {
            target.clear();
            return Ok(());
        }
        Some(other) => return Err(path.error(Fault::UnknownDirective { directive: other.to_string() })),
    }
    if let Some(retained) = patch.get(RETAIN_KEYS) {
        retain_keys(target, patch, retained, path)?;
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_PREFIX) {
            delete_values(target.get_mut(list), value);
        } else if !name.starts_with('$') {
            let order = patch.get(&format!("{ORDER_PREFIX}{name}"));
            path.within(name.clone(), |path| merge_field(target, name, value, order, schema, path))?;
        }
    }
    for (name, order) in patch {
        if let Some(list) = name.strip_prefix(ORDER_PREFIX).filter(|list| !patch.contains_key(*list)) {
            reorder(target.get_mut(list), order, schema.field(list).list);
        }
    }
    Ok(())
}

fn merge_field(
    target: &mut Object,
    name: &str,
    patch: &Value,
    order: Option<&Value>,
    schema: &Schema,
    path: &mut Path,
) -> Result<(), PatchError> {
    let field = schema.field(name);
    match (target.get_mut(name), patch) {
        (_, Value::Null) => {
            target.remove(name);
        }
        (Some(Value::Object(target)), Value::Object(patch)) => {
            merge_object(target, patch, field.schema, path)?;
        }
        (Some(Value::Array(target)), Value::Array(patch)) => match field.list {
            ListMerge::Replace => *target = clean_items(patch),
            ListMerge::ByKey(key) => merge_keyed(target, patch, key, field.schema, order, path)?,
            ListMerge::Set => merge_set(target, patch, order, path)?,
        },
        _ => match clean(patch) {
            Some(value) => {
                target.insert(name.to_string(), value);
            }
            None => {
                target.remove(name);
            }
        },
    }
    Ok(())
}

fn merge_keyed(
    target: &mut Vec<Value>,
    patch: &[Value],
    key: &'static str,
    schema: &Schema,
    order: Option<&Value>,
    path: &mut Path,
) -> Result<(), PatchError> {
    let mut plain = Vec::new();
    let mut replace = false;
    for (i, item) in patch.iter().enumerate() {
        path.within(format!("[{i}]"), |path| {
            let id = || item.get(key).ok_or_else(|| path.error(Fault::NoMergeKey { key }));
            match item.get(DIRECTIVE) {
                None => plain.push((i, id()?, item)),
                Some(Value::String(d)) if d == "replace" => replace = true,
                Some(Value::String(d)) if d == "delete" => {
                    let id = id()?;
                    target.retain(|t| t.get(key) != Some(id));
                }
                Some(other) => {
                    return Err(path.error(Fault::UnknownDirective { directive: other.to_string() }));
                }
            }
            Ok(())
        })?;
    }
    if replace {
        *target = plain.iter().filter_map(|(_, _, item)| clean(item)).collect();
        return Ok(());
    }
    let server_order: Vec<Value> = target.iter().filter_map(|t| t.get(key).cloned()).collect();
    if server_order.len() < target.len() {
        return Err(path.error(Fault::NoMergeKey { key }));
    }
    for (i, id, item) in &plain {
        match (target.iter_mut().find(|t| t.get(key) == Some(*id)), item) {
            (Some(Value::Object(target)), Value::Object(item)) => {
                path.within(format!("[{i}]"), |path| merge_object(target, item, schema, path))?;
            }
            _ => target.extend(clean(item)),
        }
    }
    let patch_order: Vec<Value> = match order {
        Some(Value::Array(order)) => order.iter().filter_map(|o| o.get(key).cloned()).collect(),
        _ => plain.iter().map(|(_, id, _)| (*id).clone()).collect(),
    };
    let id = |item: &Value| item.get(key).cloned().unwrap_or(Value::Null);
    *target = arrange(std::mem::take(target), &patch_order, &server_order, id);
    Ok(())
}

fn merge_set(
    target: &mut Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
    path: &Path,
) -> Result<(), PatchError> {
    if patch.iter().any(|v| v.is_object() || v.is_array()) {
        return Err(path.error(Fault::NotScalar));
    }
    let server_order = target.clone();
    let mut merged: Vec<Value> = Vec::new();
    for value in target.drain(..).chain(patch.iter().cloned()) {
        if !merged.contains(&value) {
            merged.push(value);
        }
    }
    let patch_order = match order {
        Some(Value::Array(order)) => order,
        _ => patch,
    };
    *target = arrange(merged, patch_order, &server_order, Value::clone);
    Ok(())
}

/// Puts a list in order for a patch that names an order but no elements.
fn reorder(target: Option<&mut Value>, order: &Value, list: ListMerge) {
    let (Some(Value::Array(target)), Value::Array(order)) = (target, order) else { return };
    let id: Box<dyn Fn(&Value) -> Value> = match list {
        ListMerge::Replace => return,
        ListMerge::ByKey(key) => Box::new(move |item| item.get(key).cloned().unwrap_or(Value::Null)),
        ListMerge::Set => Box::new(Value::clone),
    };
    let server_order: Vec<Value> = target.iter().map(&id).collect();
    let patch_order: Vec<Value> = match list {
        ListMerge::Set => order.clone(),
        _ => order.iter().map(&id).collect(),
    };
    *target = arrange(std::mem::take(target), &patch_order, &server_order, id);
}

/// Weaves elements the patch knows, in its order, with those only the server has, in its order.
///
/// A server element goes first only when it stood before the next patch element on the server.
fn arrange(
    items: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    id: impl Fn(&Value) -> Value,
) -> Vec<Value> {
    let position = |order: &[Value], item: &Value| order.iter().position(|o| *o == id(item));
    let (mut patch, mut server): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| position(patch_order, item).is_some());
    patch.sort_by_key(|item| position(patch_order, item));
    server.sort_by_key(|item| position(server_order, item));
    let (mut patch, mut server) = (patch.into_iter().peekable(), server.into_iter().peekable());
    let mut out = Vec::new();
    while let (Some(s), Some(p)) = (server.peek(), patch.peek()) {
        let server_first = match (position(server_order, s), position(server_order, p)) {
            (Some(s), Some(p)) => s < p,
            _ => false,
        };
        out.extend(if server_first { server.next() } else { patch.next() });
    }
    out.extend(patch);
    out.extend(server);
    out
}

fn retain_keys(
    target: &mut Object,
    patch: &Object,
    retained: &Value,
    path: &mut Path,
) -> Result<(), PatchError> {
    let names: Option<Vec<&str>> =
        retained.as_array().and_then(|names| names.iter().map(Value::as_str).collect());
    let Some(names) = names else {
        return path.within(RETAIN_KEYS.to_string(), |path| Err(path.error(Fault::NotNameList)));
    };
    let stray =
        patch.iter().find(|(k, v)| !k.starts_with('$') && !v.is_null() && !names.contains(&k.as_str()));
    if let Some((field, _)) = stray {
        return Err(path.error(Fault::NotRetained { field: field.clone() }));
    }
    target.retain(|name, _| names.contains(&name.as_str()));
    Ok(())
}

fn delete_values(target: Option<&mut Value>, values: &Value) {
    if let (Some(Value::Array(target)), Value::Array(values)) = (target, values) {
        target.retain(|value| !values.contains(value));
    }
}

/// A patch value as it lands where nothing stood before: no directives, no nulls.
fn clean(patch: &Value) -> Option<Value> {
    match patch {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(clean_fields(fields))),
        Value::Array(items) => Some(Value::Array(clean_items(items))),
        plain => Some(plain.clone()),
    }
}

fn clean_fields(patch: &Object) -> Object {
    patch
        .iter()
        .filter(|(name, value)| !value.is_null() && !name.starts_with('$'))
        .filter_map(|(name, value)| Some((name.clone(), clean(value)?)))
        .collect()
}

fn clean_items(patch: &[Value]) -> Vec<Value> {
    patch.iter().filter_map(clean).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(name: &str, target: Value, patch: Value, want: Value) {
        let mut got = target;
        apply(&mut got, &patch).unwrap();
        assert_eq!(got, want, "{name}");
    }

    #[test]
    fn objects_and_plain_lists() {
        check(
            "null deletes, objects merge, plain lists are replaced",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}},
                   "spec": {"tolerations": [{"key": "x"}], "nodeName": "n"}}),
            json!({"metadata": {"labels": {"a": null, "c": "3", "d": null}},
                   "spec": {"tolerations": [{"key": "y"}], "nodeName": "m"}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}},
                   "spec": {"tolerations": [{"key": "y"}], "nodeName": "m"}}),
        );
        check(
            "replace and delete an object",
            json!({"spec": {"securityContext": {"runAsUser": 1}, "dnsConfig": {"options": []}}}),
            json!({"spec": {"securityContext": {"$patch": "replace", "runAsGroup": 2},
                            "dnsConfig": {"$patch": "delete"}, "affinity": {"$patch": "delete"}}}),
            json!({"spec": {"securityContext": {"runAsGroup": 2}, "dnsConfig": {}}}),
        );
        check(
            "retain keys",
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"],
                                         "hostPath": {"path": "/x"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}),
        );
    }

    #[test]
    fn keyed_lists() {
        let two = || {
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]},
                                                     {"name": "b", "image": "b:1"}]}})
        };
        check(
            "an element is merged by its key, env too; ports are keyed by number",
            two(),
            json!({"spec": {"containers": [{"name": "a", "image": "a:2", "env": [{"name": "Y"}],
                                            "ports": [{"containerPort": 80, "name": null}]}]}}),
            json!({"spec": {"containers": [
                {"name": "a", "image": "a:2", "env": [{"name": "Y"}, {"name": "X", "value": "1"}],
                 "ports": [{"containerPort": 80}]},
                {"name": "b", "image": "b:1"}]}}),
        );
        check(
            "a new element comes first",
            two(),
            json!({"spec": {"containers": [{"name": "side"}]}}),
            json!({"spec": {"containers": [{"name": "side"},
                {"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "b:1"}]}}),
        );
        check(
            "a server element before a patched one stays before it",
            two(),
            json!({"spec": {"containers": [{"name": "b", "image": "b:2"}, {"name": "side"}]}}),
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]},
                {"name": "b", "image": "b:2"}, {"name": "side"}]}}),
        );
        check(
            "delete one element; replace the whole list",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}],
                            "hostAliases": [{"ip": "1.1.1.1"}]}}),
            json!({"spec": {"containers": [{"$patch": "delete", "name": "a"}],
                            "hostAliases": [{"$patch": "replace"}, {"ip": "2.2.2.2"}]}}),
            json!({"spec": {"containers": [{"name": "b"}], "hostAliases": [{"ip": "2.2.2.2"}]}}),
        );
        check(
            "a given order decides, with and without elements",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "schedulingGates": [{"name": "g"},
                {"name": "h"}]}, "metadata": {"finalizers": ["x", "y"]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
                            "containers": [{"name": "c"}],
                            "$setElementOrder/schedulingGates": [{"name": "h"}, {"name": "g"}]},
                   "metadata": {"$setElementOrder/finalizers": ["y", "x"]}}),
            json!({"spec": {"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
                            "schedulingGates": [{"name": "h"}, {"name": "g"}]},
                   "metadata": {"finalizers": ["y", "x"]}}),
        );
    }

    #[test]
    fn sets() {
        check(
            "finalizers are a set",
            json!({"metadata": {"finalizers": ["x", "y", "z"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"], "finalizers": ["z", "w"]}}),
            json!({"metadata": {"finalizers": ["y", "z", "w"]}}),
        );
    }

    #[test]
    fn faults_name_the_place() {
        for (patch, want) in [
            (json!([]), "patch at the top: expected an object"),
            (
                json!({"spec": {"containers": [{"name": "a"}, {"image": "x"}]}}),
                "patch at spec.containers[1]: list elements must be objects with a \"name\" field",
            ),
            (
                json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}),
                "patch at spec.containers[0]: unknown $patch directive \"merge\", accepted: \"replace\", \"delete\"",
            ),
            (
                json!({"metadata": {"$patch": 1}}),
                "patch at metadata: unknown $patch directive 1, accepted: \"replace\", \"delete\"",
            ),
            (
                json!({"spec": {"$retainKeys": "x"}}),
                "patch at spec.$retainKeys: expected a list of field names",
            ),
            (
                json!({"spec": {"$retainKeys": ["x"], "nodeName": "y"}}),
                "patch at spec: field \"nodeName\" is set but not listed in $retainKeys",
            ),
            (
                json!({"metadata": {"finalizers": [{}]}}),
                "patch at metadata.finalizers: list elements must be plain values",
            ),
        ] {
            let mut pod = json!({"metadata": {"finalizers": ["x"]}, "spec": {"containers": [{"name": "a"}]}});
            assert_eq!(apply(&mut pod, &patch).unwrap_err().to_string(), want, "{patch}");
        }
    }
}
