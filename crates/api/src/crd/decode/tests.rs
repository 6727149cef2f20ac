use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::crd::cluster_colocation_profile::ClusterColocationProfile;
use crate::crd::device::Device;
use crate::crd::node_metric::NodeMetric;
use crate::crd::pod_migration_job::PodMigrationJob;
use crate::crd::reservation::Reservation;

/// The error of an object that its type cannot hold.
fn fault<K: Resource + DeserializeOwned>(object: Value) -> String {
    match decode_object::<K>(&object) {
        Ok(_) => panic!("{object} was read"),
        Err(error) => error.to_string(),
    }
}

/// What the API server stores, or stored once, and a type cannot hold.
#[test]
fn faults_name_object_field_and_value() {
    let spec = |spec: Value| json!({ "metadata": { "name": "x" }, "spec": spec });
    let bad_template = json!({ "template": { "spec": { "containers": [{ "name": 5 }] } } });
    let other_kind =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "ns" } });
    for (got, want) in [
        (
            fault::<Reservation>(spec(json!({ "ttl": "abc" }))),
            r#"Reservation x: spec.ttl: time: invalid duration "abc", got "abc""#,
        ),
        (
            fault::<Reservation>(spec(bad_template)),
            "Reservation x: spec.template: spec.containers[0].name: invalid type: integer `5`, expected a string, \
             got 5, got {\"spec\":{\"containers\":[{\"name\":5}]}}",
        ),
        (
            fault::<Reservation>(spec(json!({ "allocatePolicy": "Default" }))),
            "Reservation x: spec.allocatePolicy: unknown variant `Default`, \
             expected `Aligned` or `Restricted`, got \"Default\"",
        ),
        (
            fault::<Device>(spec(json!({ "devices": [{ "minor": 0 }, { "minor": 3_000_000_000_u32 }] }))),
            "Device x: spec.devices[1].minor: invalid value: integer `3000000000`, expected i32, got 3000000000",
        ),
        (
            fault::<ClusterColocationProfile>(spec(json!({ "koordinatorPriority": 2_147_483_648_i64 }))),
            "ClusterColocationProfile x: spec.koordinatorPriority: invalid value: integer `2147483648`, \
             expected i32, got 2147483648",
        ),
        (
            fault::<Device>(other_kind),
            "Device ns/p: (whole object): the object is v1 Pod, \
             expected scheduling.koordinator.sh/v1alpha1 Device, got \
             {\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\"}}",
        ),
        (
            fault::<Device>(json!(5)),
            "Device (without a name): (whole object): invalid type: integer `5`, expected an object, got 5",
        ),
    ] {
        assert_eq!(got, want);
    }
    let usage = json!({ "podUsage": { "resources": { "cpu": "1e1.5" } } });
    let error = decode_object::<NodeMetric>(&json!({ "status": { "podsMetric": [usage] } })).unwrap_err();
    assert_eq!(
        (error.field.as_str(), error.value.as_str()),
        ("status.podsMetric[0].podUsage.resources.cpu", "\"1e1.5\"")
    );
}

#[test]
fn long_values_are_cut() {
    let error = decode_object::<Device>(&json!({ "spec": "é".repeat(200) })).unwrap_err();
    assert_eq!(error.value.chars().count(), VALUE_CHARS_MAX + 1);
}

/// A template is stored without a look: numbers for quantities, nulls, unknown fields.
#[test]
fn templates_are_read_as_people_write_them() {
    let job = json!({ "spec": { "podRef": null, "reservationOptions": { "template": {
        "metadata": null,
        "bogus": 1,
        "spec": { "owners": null, "ttl": null, "template": { "spec": { "nodeName": null, "containers": [
            { "name": "c", "resources": { "requests": { "cpu": 2, "memory": "1Gi", "x": 1.5 } }, "ports": [] }
        ] } } },
    } } } });
    let job: PodMigrationJob = decode_object(&job).unwrap();
    let template = job.spec.unwrap().reservation_options.unwrap().template.unwrap().spec.unwrap();
    assert_eq!(
        serde_json::to_value(template.requests()).unwrap(),
        json!({ "cpu": "2", "memory": "1Gi", "x": "1500m" })
    );
    // The same through plain serde, as a client library decodes.
    let reservation: Reservation =
        serde_json::from_value(json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "c", "resources": { "limits": { "cpu": 2 } } }
        ] } } } }))
        .unwrap();
    assert!(reservation.spec.unwrap().template.is_some());
}

/// Any JSON, with field names that objects really have.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9:.-]{0,8}".prop_map(Value::from),
        Just(json!("2024-01-01T00:00:00Z")),
        Just(json!("1h")),
    ];
    let key = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "name",
        "template",
        "owners",
        "ttl",
        "phase",
        "conditions",
        "devices",
        "minor",
        "resources",
        "cpu",
        "health",
        "type",
        "lastProbeTime",
        "allocatable",
        "topology",
        "containers",
        "other",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever is accepted once is accepted again, and means the same.
    #[test]
    fn decoding_is_stable(value in json_value()) {
        fn check<K>(value: &Value)
        where
            K: Resource + DeserializeOwned + serde::Serialize + PartialEq + fmt::Debug,
        {
            if let Ok(first) = decode_object::<K>(value) {
                let text = serde_json::to_value(&first).unwrap();
                assert_eq!(decode_object::<K>(&text).unwrap(), first);
                assert_eq!(serde_json::from_value::<K>(text).unwrap(), first);
            }
        }
        check::<Reservation>(&value);
        check::<Device>(&value);
        check::<NodeMetric>(&value);
    }
}
