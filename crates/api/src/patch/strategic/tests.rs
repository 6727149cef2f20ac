use serde_json::json;

use super::pod::POD;
use super::*;

fn run(document: Value, patch: Value) -> Result<Value, PatchError> {
    apply(document, patch.to_string().as_bytes(), &POD)
}

fn containers(containers: Value) -> Value {
    json!({"spec": {"containers": containers}})
}

#[test]
fn lists_merge_by_key() {
    for (name, document, patch, want) in [
        (
            "an element changes, another is new",
            containers(json!([{"name": "a", "image": "1"}, {"name": "b"}])),
            containers(json!([{"name": "c"}, {"name": "a", "image": "2"}])),
            containers(json!([{"name": "c"}, {"name": "a", "image": "2"}, {"name": "b"}])),
        ),
        (
            "an element goes",
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"name": "a", "$patch": "delete"}])),
            containers(json!([{"name": "b"}])),
        ),
        (
            "the list is replaced",
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"name": "c"}, {"$patch": "replace"}])),
            containers(json!([{"name": "c"}])),
        ),
        (
            "an atomic list is replaced",
            json!({"spec": {"tolerations": [{"key": "a"}]}}),
            json!({"spec": {"tolerations": [{"key": "b"}]}}),
            json!({"spec": {"tolerations": [{"key": "b"}]}}),
        ),
        (
            "primitives are united",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["c", "a"]}}),
            json!({"metadata": {"finalizers": ["c", "a", "b"]}}),
        ),
        (
            "primitives are removed",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
            json!({"metadata": {"finalizers": ["b"]}}),
        ),
        (
            "the order is set",
            containers(json!([{"name": "a"}, {"name": "b"}, {"name": "x"}])),
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}),
            containers(json!([{"name": "b"}, {"name": "a"}, {"name": "x"}])),
        ),
        (
            "keys that are not retained go",
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}, "x": 1}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
        ),
        (
            "a map is replaced, another emptied",
            json!({"metadata": {"labels": {"a": "1"}, "annotations": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}, "annotations": {"$patch": "delete"}}}),
            json!({"metadata": {"labels": {"b": "2"}, "annotations": {}}}),
        ),
        (
            "nulls remove, and mean nothing in what is new",
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"a": null}, "annotations": {"b": null, "c": "2"}}}),
            json!({"metadata": {"labels": {}, "annotations": {"c": "2"}}}),
        ),
    ] {
        assert_eq!(run(document, patch), Ok(want), "{name}");
    }
}

#[test]
fn elements_keep_and_change_places() {
    let two = || {
        containers(
            json!([{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "b:1"}]),
        )
    };
    for (name, document, patch, want) in [
        (
            "env merges too, ports are keyed by number",
            two(),
            containers(
                json!([{"name": "a", "image": "a:2", "env": [{"name": "Y"}], "ports": [{"containerPort": 80, "name": null}]}]),
            ),
            containers(json!([
                {"name": "a", "image": "a:2", "env": [{"name": "Y"}, {"name": "X", "value": "1"}], "ports": [{"containerPort": 80}]},
                {"name": "b", "image": "b:1"}])),
        ),
        (
            "a new element comes first",
            two(),
            containers(json!([{"name": "side"}])),
            containers(
                json!([{"name": "side"}, {"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "b:1"}]),
            ),
        ),
        (
            "an element before a patched one stays before it",
            two(),
            containers(json!([{"name": "b", "image": "b:2"}, {"name": "side"}])),
            containers(
                json!([{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "b:2"}, {"name": "side"}]),
            ),
        ),
        (
            "an order with and without elements",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "schedulingGates": [{"name": "g"}, {"name": "h"}]},
                   "metadata": {"finalizers": ["x", "y"]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
                            "containers": [{"name": "c"}],
                            "$setElementOrder/schedulingGates": [{"name": "h"}, {"name": "g"}]},
                   "metadata": {"$setElementOrder/finalizers": ["y", "x"]}}),
            json!({"spec": {"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}], "schedulingGates": [{"name": "h"}, {"name": "g"}]},
                   "metadata": {"finalizers": ["y", "x"]}}),
        ),
        (
            "what is deleted before it exists does not come to exist",
            json!({"spec": {"securityContext": {"runAsUser": 1}, "dnsConfig": {"options": []}}}),
            json!({"spec": {"securityContext": {"$patch": "replace", "runAsGroup": 2}, "dnsConfig": {"$patch": "delete"},
                            "affinity": {"$patch": "delete"}}}),
            json!({"spec": {"securityContext": {"runAsGroup": 2}, "dnsConfig": {}}}),
        ),
    ] {
        assert_eq!(run(document, patch), Ok(want), "{name}");
    }
}

#[test]
fn bad_patches_in_the_api_servers_words() {
    for (patch, want) in [
        (
            json!({"metadata": {"labels": {"$patch": "foo"}}}),
            PatchError::Unexpected("unknown patch type: foo in map: map[$patch:foo]".into()),
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["b"], "finalizers": ["a"]}}),
            PatchError::Unexpected(
                "The order in patch list:\n[a]\n doesn't match $setElementOrder list:\n[b]\n".into(),
            ),
        ),
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            PatchError::Unexpected("map: map[image:x] does not contain declared merge key: name".into()),
        ),
        (
            json!({"metadata": {"$retainKeys": 1}}),
            PatchError::Malformed("invalid patch format of retainKeys".into()),
        ),
        (
            json!([]),
            PatchError::Malformed(
                "json: cannot unmarshal array into Go value of type map[string]interface {}".into(),
            ),
        ),
    ] {
        let document = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "a"}]}});
        assert_eq!(run(document, patch.clone()), Err(want), "{patch}");
    }
}
