//! Patches and owners of fields against evanphx/json-patch, strategicpatch and managedfields.

use koord_sandbox::patch::apply::{self, Context};
use koord_sandbox::patch::fieldset::FieldSet;
use koord_sandbox::patch::{PatchError, json, merge, strategic};
use koord_sandbox::schema::{Kind, Schema, builtin, crd};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::random::Random;
use crate::{ask, random, report};

#[derive(Deserialize)]
struct PatchReply {
    error: Option<String>,
    document: Option<Value>,
}

/// Asks for the outcome of patches and compares; of refusals only that there is one.
fn compare_patches(op: &str, requests: &[Value], ours: impl Fn(&Value) -> Result<Value, PatchError>) {
    let Some(replies) = ask::<PatchReply>(op, requests) else { return };
    let mut differences = Vec::new();
    for (request, reply) in requests.iter().zip(replies) {
        if reply.error.as_ref().is_some_and(|error| error.starts_with("panic")) {
            continue;
        }
        let ours = ours(request);
        let theirs = reply.document.filter(|_| reply.error.is_none());
        if ours.as_ref().ok() != theirs.as_ref() {
            differences.push(format!(
                "{request}:\n  ours   {ours:?}\n  theirs {theirs:?} {}",
                reply.error.unwrap_or_default()
            ));
        }
    }
    report(&differences);
}

fn bytes(request: &Value, name: &str) -> Vec<u8> {
    serde_json::to_vec(&request[name]).expect("a tree can be written")
}

/// A small tree; the deeper, the more often a leaf.
fn tree(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 4 } else { 8 }) {
        0 => Value::Null,
        1 => random.once_in(2).into(),
        2 => random.below(3).into(),
        3 => random.pick(&["", "x", "y"]).into(),
        4 | 5 => (0..random.below(4)).map(|_| tree(random, depth - 1)).collect(),
        _ => object(random, depth),
    }
}

fn object(random: &mut Random, depth: usize) -> Value {
    let count = random.below(4);
    let fields = (0..count).map(|_| {
        let name = random.pick(&["a", "b", "c", "a/b", "~"]).to_owned();
        (name, tree(random, depth.saturating_sub(1)))
    });
    Value::Object(fields.collect::<Map<String, Value>>())
}

/// A path that often leads somewhere.
fn pointer(random: &mut Random, document: &Value) -> String {
    let mut path = String::new();
    let mut current = document;
    for _ in 0..4 {
        let step = match current {
            Value::Object(fields) if !fields.is_empty() && !random.once_in(4) => {
                fields.keys().nth(random.below(fields.len())).cloned().unwrap_or_default()
            }
            Value::Array(items) if !items.is_empty() && !random.once_in(4) => {
                random.below(items.len()).to_string()
            }
            _ => random.pick(&["a", "b", "0", "1", "-", "-1", "9", "x", ""]).to_owned(),
        };
        path.push('/');
        path.push_str(&step.replace('~', "~0").replace('/', "~1"));
        current = match current {
            Value::Object(fields) => fields.get(&step).unwrap_or(&Value::Null),
            Value::Array(items) => {
                step.parse().ok().and_then(|at: usize| items.get(at)).unwrap_or(&Value::Null)
            }
            _ => &Value::Null,
        };
        if random.once_in(2) {
            break;
        }
    }
    path
}

fn operation(random: &mut Random, document: &Value) -> Value {
    let op = random.pick(&["add", "remove", "replace", "move", "copy", "test", "nope"]);
    let mut step = json!({"op": op, "path": pointer(random, document)});
    if matches!(op, "move" | "copy") && !random.once_in(8) {
        step["from"] = pointer(random, document).into();
    }
    // A test without a value depends on how the library came to hold a null.
    if op == "test" || (matches!(op, "add" | "replace") && !random.once_in(8)) {
        let known = document.pointer(step["path"].as_str().unwrap_or_default());
        step["value"] = match known {
            Some(value) if op == "test" && !random.once_in(3) => value.clone(),
            _ => tree(random, 1),
        };
    }
    step
}

#[test]
fn json_patches() {
    let (mut random, count) = random("json patches");
    let requests: Vec<Value> = (0..count)
        .map(|_| {
            let document = object(&mut random, 3);
            let steps: Vec<Value> =
                (0..1 + random.below(3)).map(|_| operation(&mut random, &document)).collect();
            json!({"document": document, "patch": steps})
        })
        .collect();
    compare_patches("json-patch", &requests, |request| {
        json::apply(request["document"].clone(), &bytes(request, "patch"))
    });
}

#[test]
fn merge_patches() {
    let (mut random, count) = random("merge patches");
    let requests: Vec<Value> = (0..count)
        .map(|_| json!({"document": object(&mut random, 3), "patch": object(&mut random, 3)}))
        .collect();
    compare_patches("merge-patch", &requests, |request| {
        merge::apply(request["document"].clone(), &bytes(request, "patch"))
    });
}

/// Elements with distinct keys.
fn keyed(random: &mut Random, key: &str, patch: bool, more: impl Fn(&mut Random, &mut Value)) -> Value {
    let mut items: Vec<Value> = Vec::new();
    for _ in 0..random.below(4) {
        let value = match key {
            "containerPort" => Value::from(80 + random.below(3)),
            _ => random.pick(&["a", "b", "c"]).into(),
        };
        if items.iter().any(|item| item[key] == value) {
            continue;
        }
        let mut item = json!({ key: value });
        more(random, &mut item);
        if patch && random.once_in(5) {
            item["$patch"] = "delete".into();
        }
        items.push(item);
    }
    if patch && random.once_in(12) {
        items.push(json!({"$patch": "replace"}));
    }
    if patch && random.once_in(30) {
        items.push(json!({"image": "without a key"}));
    }
    items.into()
}

fn strings(random: &mut Random, patch: bool) -> Value {
    let mut map = Map::new();
    for _ in 0..random.below(3) {
        let value = if patch && random.once_in(4) { Value::Null } else { random.pick(&["1", "2"]).into() };
        map.insert(random.pick(&["a", "b", "c"]).to_owned(), value);
    }
    if patch && random.once_in(10) {
        map.insert("$patch".to_owned(), random.pick(&["replace", "delete", "merge"]).into());
    }
    map.into()
}

fn finalizers(random: &mut Random) -> Value {
    let mut names: Vec<&str> = Vec::new();
    for _ in 0..random.below(4) {
        let name = random.pick(&["x", "y", "z"]);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    json!(names)
}

fn metadata(random: &mut Random, patch: bool) -> Value {
    let mut metadata = json!({});
    if random.once_in(2) {
        metadata["labels"] = strings(random, patch);
    }
    if random.once_in(2) {
        metadata["finalizers"] = finalizers(random);
    } else if patch && random.once_in(2) {
        // Not both: the library takes the two in no order.
        metadata["$deleteFromPrimitiveList/finalizers"] = finalizers(random);
    }
    if patch && random.once_in(4) {
        metadata["$setElementOrder/finalizers"] = finalizers(random);
    }
    metadata
}

fn pod_spec(random: &mut Random, patch: bool) -> Value {
    let mut spec = json!({});
    if !random.once_in(4) {
        spec["containers"] = keyed(random, "name", patch, |random, item| {
            if random.once_in(2) {
                item["image"] = random.pick(&["i", "j"]).into();
            }
            if random.once_in(2) {
                item["ports"] = keyed(random, "containerPort", patch, |_, _| {});
            }
            if random.once_in(3) {
                item["env"] = keyed(random, "name", patch, |random, item| {
                    item["value"] = random.pick(&["1", "2"]).into();
                });
            }
            if random.once_in(4) {
                item["command"] = json!([random.pick(&["p", "q"])]);
            }
        });
    }
    if random.once_in(3) {
        spec["volumes"] = keyed(random, "name", patch, |random, item| {
            let source = random.pick(&["emptyDir", "hostPath"]);
            item[source] = json!({});
            if patch && random.once_in(2) {
                item["$retainKeys"] = json!(["name", source]);
            }
        });
    }
    if random.once_in(3) {
        spec["tolerations"] = json!([{"key": random.pick(&["a", "b"])}]);
    }
    if random.once_in(3) {
        spec["nodeSelector"] = strings(random, patch);
    }
    if patch && random.once_in(4) {
        let names = keyed(random, "name", false, |_, _| {});
        spec["$setElementOrder/containers"] = names;
    }
    if patch && random.once_in(6) {
        let field = random.pick(&["containers", "volumes", "tolerations", "hostname"]);
        spec[field] = Value::Null;
    }
    spec
}

fn strategic_case(random: &mut Random, patch: bool, kind: &str) -> Value {
    let spec = pod_spec(random, patch);
    match kind {
        "Pod" => json!({"metadata": metadata(random, patch), "spec": spec}),
        _ => json!({"spec": {"strategy": {"type": random.pick(&["a", "b"])}, "template": {"spec": spec}}}),
    }
}

#[test]
fn strategic_merge_patches() {
    let (mut random, count) = random("strategic merge patches");
    let requests: Vec<Value> = (0..count)
        .map(|_| {
            let kind = random.pick(&["Pod", "Deployment"]);
            let document = strategic_case(&mut random, false, kind);
            json!({"kind": kind, "document": document, "patch": strategic_case(&mut random, true, kind)})
        })
        .collect();
    compare_patches("strategic-patch", &requests, |request| {
        let group = if request["kind"] == "Pod" { "" } else { "apps" };
        let name = builtin::type_name(group, "v1", request["kind"].as_str().unwrap_or_default());
        let schema = builtin::by_name(&name).expect("a built-in kind");
        strategic::apply(request["document"].clone(), &bytes(request, "patch"), schema)
    });
}

#[derive(Deserialize)]
struct OwnersReply {
    error: Option<String>,
    live: Value,
}

/// A kind with every sort of list and map.
fn owners_schema() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": number,
        "atoms": {"type": "array", "items": {"type": "object", "properties": {"a": text}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": text, "kind": {"type": "string", "default": "K"}, "v": number,
                "inner": {"type": "object", "properties": {"x": text, "y": text}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text}}}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "dict": {"type": "object", "additionalProperties": number},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
    }}}})
}

/// The same with what every object has, in the form of the other side.
fn owners_openapi() -> Value {
    let mut schema = owners_schema();
    schema["x-kubernetes-group-version-kind"] = json!([{"group": "x.io", "kind": "L", "version": "v1"}]);
    schema["properties"]["apiVersion"] = json!({"type": "string"});
    schema["properties"]["kind"] = json!({"type": "string"});
    schema["properties"]["metadata"] = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "uid": {"type": "string"},
        "managedFields": {"type": "array", "items": {"type": "object"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}});
    schema
}

fn owned_spec(random: &mut Random) -> Value {
    let mut spec = json!({});
    let mut put = |random: &mut Random, name: &str, make: &dyn Fn(&mut Random) -> Value| {
        if random.once_in(2) {
            spec[name] = make(random);
        }
    };
    put(random, "n", &|random| random.below(3).into());
    put(random, "atoms", &|random| json!([{"a": random.pick(&["1", "2"])}]));
    put(random, "set", &finalizers);
    put(random, "map", &|random| {
        keyed(random, "name", false, |random, item| {
            if random.once_in(2) {
                item["v"] = random.below(3).into();
            }
            if random.once_in(3) {
                item["kind"] = random.pick(&["K", "Z"]).into();
            }
            if random.once_in(3) {
                item["inner"] = match random.below(3) {
                    0 => json!({}),
                    1 => json!({"x": "1"}),
                    _ => json!({"x": random.pick(&["1", "2"]), "y": "1"}),
                };
            }
            if random.once_in(3) {
                item["tags"] = finalizers(random);
            }
        })
    });
    put(random, "whole", &|random| json!({ random.pick(&["a", "b"]): random.pick(&["1", "2"]) }));
    put(
        random,
        "free",
        &|random| json!({ random.pick(&["p", "q"]): {random.pick(&["r", "s"]): random.below(2)} }),
    );
    put(random, "dict", &|random| json!({ random.pick(&["a", "b"]): random.below(3) }));
    put(random, "any", &|random| match random.below(3) {
        0 => json!([random.below(2)]),
        1 => json!({"x": random.below(2)}),
        _ => random.below(2).into(),
    });
    spec
}

fn owned_object(random: &mut Random) -> Value {
    let mut object = json!({"apiVersion": "x.io/v1", "kind": "L", "metadata": {"name": "x", "uid": "u"}});
    if random.once_in(3) {
        object["metadata"]["labels"] = json!({ random.pick(&["l", "m"]): random.pick(&["1", "2"]) });
    }
    if !random.once_in(8) {
        object["spec"] = owned_spec(random);
    }
    object
}

/// The schema of the kind on our side.
fn owned_kind() -> Schema {
    let mut schema = crd::parse(&owners_schema(), "schema").expect("a sound schema");
    for name in ["apiVersion", "kind"] {
        schema.properties.insert(name.to_owned(), Schema { kind: Kind::String, ..Schema::default() });
    }
    schema.properties.insert("metadata".to_owned(), builtin::object_meta().clone());
    schema
}

fn without_times(mut object: Value) -> Value {
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    if let Some(entries) = entries {
        for entry in entries.iter_mut() {
            entry.as_object_mut().map(|entry| entry.remove("time"));
        }
        entries.sort_by_key(|entry| (entry["operation"].to_string(), entry["manager"].to_string()));
    }
    object
}

#[test]
fn owners_of_fields() {
    let (mut random, count) = random("owners of fields");
    let requests: Vec<Value> = (0..count / 40)
        .map(|_| {
            let steps: Vec<Value> = (0..6)
                .map(|_| {
                    json!({"apply": !random.once_in(3), "manager": random.pick(&["one", "two", "three"]),
                           "force": random.once_in(2), "object": owned_object(&mut random)})
                })
                .collect();
            json!({"schema": owners_openapi(), "steps": steps})
        })
        .collect();
    let Some(replies) = ask::<Vec<OwnersReply>>("owners", &requests) else { return };
    let schema = owned_kind();
    let mut differences = Vec::new();
    for (request, replies) in requests.iter().zip(replies) {
        let mut live: Option<Value> = None;
        for (step, reply) in request["steps"].as_array().into_iter().flatten().zip(replies) {
            let (outcome, error) = ours(live.as_ref(), step, &schema);
            let ours = outcome.clone().or_else(|| live.clone()).map(without_times);
            let theirs = without_times(reply.live);
            let nothing = theirs.get("metadata").is_none();
            if error != reply.error || (ours.as_ref() != Some(&theirs) && !(ours.is_none() && nothing)) {
                differences.push(format!(
                    "{step}\n  on     {}\n  ours   {} {error:?}\n  theirs {theirs} {:?}",
                    live.unwrap_or_default(),
                    ours.unwrap_or_default(),
                    reply.error
                ));
                break;
            }
            live = outcome.or(live);
        }
    }
    report(&differences);
}

/// What a step makes of the object, or the refusal.
fn ours(live: Option<&Value>, step: &Value, schema: &Schema) -> (Option<Value>, Option<String>) {
    let ignored = FieldSet::new();
    let context = Context {
        schema,
        builtin: false,
        api_version: "x.io/v1",
        kind: "L",
        manager: step["manager"].as_str().unwrap_or_default(),
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        ignored: &ignored,
    };
    let mut object = step["object"].clone();
    if step["apply"] == false {
        apply::update(live, &mut object, &context);
        return (Some(object), None);
    }
    match apply::apply(live, &object, step["force"] == true, &context) {
        Ok(object) => (Some(object), None),
        Err(error) => (None, Some(error.to_string())),
    }
}
