use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::crd::decode_object;
use crate::crd::device::{Device, DeviceInfo};
use crate::crd::pod_migration_job::PodMigrationJob;

fn view<K>(raw: &Value) -> K
where
    K: k8s_openapi::Resource + serde::de::DeserializeOwned,
{
    decode_object(raw).unwrap()
}

/// Changes the typed view of an object and returns what is to be written.
fn change<K>(raw: &Value, edit: impl FnOnce(&mut K)) -> Value
where
    K: k8s_openapi::Resource + serde::de::DeserializeOwned + serde::Serialize,
{
    let mut object: K = view(raw);
    let before = serde_json::to_value(&object).unwrap();
    edit(&mut object);
    carry_unknown(raw, &before, &serde_json::to_value(&object).unwrap())
}

#[test]
fn a_job_keeps_what_a_later_release_wrote() {
    let raw = json!({
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": { "name": "j", "future": { "a": 1 } },
        "spec": {
            "ttl": "5m", "paused": false, "future": [1, 2],
            "podRef": { "namespace": "ns", "name": "p", "future": true },
            "reservationOptions": { "template": { "x": { "y": 1 } }, "future": "z" },
        },
    });
    let got = change::<PodMigrationJob>(&raw, |job| {
        let spec = job.spec.get_or_insert_default();
        let options = spec.reservation_options.get_or_insert_default();
        options.reservation_ref = Some(k8s_openapi::api::core::v1::ObjectReference {
            name: Some("r".to_owned()),
            ..Default::default()
        });
        spec.pod_ref.get_or_insert_default().uid = Some("u".to_owned());
    });
    let mut want = raw.clone();
    want["spec"]["reservationOptions"]["reservationRef"] = json!({ "name": "r" });
    want["spec"]["podRef"]["uid"] = json!("u");
    assert_eq!(got, want);
}

#[test]
fn elements_take_their_unknown_fields_along() {
    let first = json!({
        "type": "gpu", "minor": 0, "health": true, "future": "g0", "resources": { "koordinator.sh/gpu-core": 100 },
    });
    let second = json!({ "type": "gpu", "minor": 1, "health": true, "future": "g1" });
    let third = json!({
        "type": "rdma", "minor": 0, "health": true, "future": "r0",
        "topology": { "socketID": 0, "nodeID": 0, "pcieID": "p", "future": 1 },
    });
    let raw = json!({ "metadata": { "name": "n1" }, "spec": { "devices": [first, second, third] } });
    let got = change::<Device>(&raw, |device| {
        let devices = &mut device.spec.get_or_insert_default().devices;
        devices.remove(1);
        devices[1].health = false;
        devices[1].topology.get_or_insert_default().node_id = 1;
        devices.insert(0, DeviceInfo { device_type: "fpga".into(), minor: Some(0), ..Default::default() });
    });
    let new = json!({ "type": "fpga", "minor": 0, "health": false });
    let mut changed = third.clone();
    changed["health"] = json!(false);
    changed["topology"]["nodeID"] = json!(1);
    assert_eq!(got["spec"]["devices"], json!([new, first, changed]));
}

#[test]
fn small_cases() {
    for (name, raw, before, after, want) in [
        (
            "nothing changed",
            json!({ "q": "1000m" }),
            json!({ "q": "1" }),
            json!({ "q": "1" }),
            json!({ "q": "1000m" }),
        ),
        ("removed", json!({ "a": 1, "b": 2 }), json!({ "a": 1 }), json!({}), json!({ "b": 2 })),
        ("empty left out, then set", json!({ "a": [] }), json!({}), json!({ "a": [1] }), json!({ "a": [1] })),
        ("empty left out, and still", json!({ "a": false }), json!({}), json!({}), json!({ "a": false })),
        (
            "object left out as empty, then set",
            json!({ "a": { "u": 1 } }),
            json!({}),
            json!({ "a": { "k": 2 } }),
            json!({ "a": { "u": 1, "k": 2 } }),
        ),
        (
            "filled in by reading",
            json!({}),
            json!({ "health": false }),
            json!({ "health": false, "a": 1 }),
            json!({ "a": 1 }),
        ),
        ("null then value", json!({ "a": null }), json!({}), json!({ "a": 1 }), json!({ "a": 1 })),
        ("type changed", json!({ "a": [1] }), json!({ "a": [1] }), json!({ "a": "x" }), json!({ "a": "x" })),
        (
            "without identity, same length: by position",
            json!([{ "k": 1, "u": "a" }, { "k": 2, "u": "b" }]),
            json!([{ "k": 1 }, { "k": 2 }]),
            json!([{ "k": 1 }, { "k": 3 }]),
            json!([{ "k": 1, "u": "a" }, { "k": 3, "u": "b" }]),
        ),
        (
            "without identity, shorter: by equality",
            json!([{ "k": 1, "u": "a" }, { "k": 2, "u": "b" }]),
            json!([{ "k": 1 }, { "k": 2 }]),
            json!([{ "k": 2 }]),
            json!([{ "k": 2, "u": "b" }]),
        ),
        (
            "same type twice is no identity",
            json!([{ "type": "t", "v": 1, "u": "a" }, { "type": "t", "v": 2, "u": "b" }]),
            json!([{ "type": "t", "v": 1 }, { "type": "t", "v": 2 }]),
            json!([{ "type": "t", "v": 2 }, { "type": "t", "v": 1 }]),
            json!([{ "type": "t", "v": 2, "u": "b" }, { "type": "t", "v": 1, "u": "a" }]),
        ),
        (
            "a list that our types shortened is written as we see it",
            json!([{ "k": 1, "u": "a" }, null]),
            json!([{ "k": 1 }]),
            json!([{ "k": 2 }]),
            json!([{ "k": 2 }]),
        ),
    ] {
        assert_eq!(carry_unknown(&raw, &before, &after), want, "{name}");
    }
}

/// A tree of known fields: `k0`…`k3` and lists of named elements.
fn known() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..5i64).prop_map(Value::from),
        "[a-c]{1,2}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let object = prop::collection::btree_map("k[0-3]", inner.clone(), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()));
        let element =
            (prop::collection::btree_map("k[0-3]", inner, 0..3), "[a-d]").prop_map(|(map, name)| {
                let mut object: Map<String, Value> = map.into_iter().collect();
                object.insert("name".to_owned(), Value::from(name));
                Value::Object(object)
            });
        let list = prop::collection::vec(element, 0..4).prop_map(Value::from);
        prop_oneof![2 => object, 1 => list]
    })
}

fn known_object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("k[0-3]", known(), 0..5)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// Adds an unknown field to every object, with the path and name of the object as its value.
fn add_unknown(value: &Value, path: &str) -> Value {
    match value {
        Value::Object(map) => {
            let mut map: Map<String, Value> = map
                .iter()
                .map(|(key, value)| (key.clone(), add_unknown(value, &format!("{path}.{key}"))))
                .collect();
            map.insert("unknown".to_owned(), Value::from(path));
            Value::Object(map)
        }
        Value::Array(list) => {
            let name =
                |element: &Value| element.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            list.iter().map(|element| add_unknown(element, &format!("{path}[{}]", name(element)))).collect()
        }
        other => other.clone(),
    }
}

fn drop_unknown(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let known = map.iter().filter(|(key, _)| *key != "unknown");
            Value::Object(known.map(|(key, value)| (key.clone(), drop_unknown(value))).collect())
        }
        Value::Array(list) => list.iter().map(drop_unknown).collect(),
        other => other.clone(),
    }
}

/// The unknown fields of objects that stand in both, by path.
fn unknown_paths(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("unknown").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| unknown_paths(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| unknown_paths(value, found)),
        _ => {}
    }
}

fn has_distinct_names(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().all(has_distinct_names),
        Value::Array(list) => identities(list, &["name"]).is_some() && list.iter().all(has_distinct_names),
        _ => true,
    }
}

/// Paths at which both values hold an object, lists aligned by name.
fn common_objects(a: &Value, b: &Value, path: &str, found: &mut BTreeSet<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            found.insert(path.to_owned());
            for (key, value) in a {
                if let Some(other) = b.get(key) {
                    common_objects(value, other, &format!("{path}.{key}"), found);
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for element in a {
                let name = element["name"].as_str().unwrap();
                for other in b.iter().filter(|other| other["name"] == name) {
                    common_objects(element, other, &format!("{path}[{name}]"), found);
                }
            }
        }
        _ => {}
    }
}

proptest! {
    /// What we know is as we want it.
    #[test]
    fn known_fields_are_those_of_after(before in known_object(), after in known_object()) {
        let raw = add_unknown(&before, "");
        prop_assert_eq!(drop_unknown(&carry_unknown(&raw, &before, &after)), after);
    }

    /// What we do not know stays wherever its object stays.
    #[test]
    fn unknown_fields_survive(
        before in known_object().prop_filter("names", has_distinct_names),
        after in known_object().prop_filter("names", has_distinct_names),
    ) {
        let raw = add_unknown(&before, "");
        let mut found = BTreeSet::new();
        unknown_paths(&carry_unknown(&raw, &before, &after), &mut found);
        let mut wanted = BTreeSet::new();
        common_objects(&before, &after, "", &mut wanted);
        prop_assert!(found.is_superset(&wanted), "lost {:?}", wanted.difference(&found).collect::<Vec<_>>());
    }

    #[test]
    fn no_change_writes_the_object_as_it_came(before in known_object()) {
        let raw = add_unknown(&before, "");
        prop_assert_eq!(carry_unknown(&raw, &before, &before), raw);
    }
}
