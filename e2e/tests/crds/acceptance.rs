//! What the API server stores and what it refuses. Spec: crds 14.

pub(crate) mod kinds;

use anyhow::Result;
use k8s_openapi::Resource;
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::crd::decode_object;
use koord_api::crd::device::Device;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::node_slo::NodeSLO;
use koord_api::crd::pod_group::PodGroup;
use koord_api::crd::pod_migration_job::PodMigrationJob;
use koord_api::crd::reservation::Reservation;
use koord_api::crd::schedule_explanation::ScheduleExplanation;
use koord_api::preserve::carry_unknown;
use kube::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{Answer, Kind, client, create, replace, with_crds};
use kinds::*;

/// Sends each case and compares the fields beside metadata, or the faults.
async fn check(client: &Client, cases: &[(&str, Kind, Value, Result<Value, Vec<&str>>)]) -> Result<()> {
    for (index, (key, kind, fields, want)) in cases.iter().enumerate() {
        let name =
            format!("case-{}-{index}", key.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let answer = create(client, *kind, &kind.object(&name, fields)).await?;
        compare(key, answer, want);
    }
    Ok(())
}

fn compare(key: &str, answer: Answer, want: &Result<Value, Vec<&str>>) {
    match (answer, want) {
        (Ok(stored), Ok(want)) => assert_eq!(fields_of(&stored), *want, "{key}"),
        (Err(faults), Err(want)) => assert_eq!(faults, *want, "{key}"),
        (Ok(stored), Err(_)) => panic!("{key}: stored {stored}"),
        (Err(faults), Ok(_)) => panic!("{key}: refused {faults:#?}"),
    }
}

fn fields_of(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(key, _)| !["apiVersion", "kind", "metadata"].contains(&key.as_str()));
    Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Our type reads what is stored and writes it back; the server keeps it as it was.
async fn round_trip<K>(client: &Client, kind: Kind, name: &str, fields: Value) -> Result<()>
where
    K: Resource + DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
{
    let stored = create(client, kind, &kind.object(name, &fields)).await?;
    let stored = stored.map_err(|faults| anyhow::anyhow!("{}: {faults:?}", K::KIND))?;
    let typed: K = decode_object(&stored)?;
    let view = serde_json::to_value(&typed)?;
    assert_eq!(decode_object::<K>(&view)?, typed);
    let again = replace(client, kind, "", &carry_unknown(&stored, &view, &view)).await?;
    assert_eq!(again.map(|object| fields_of(&object)), Ok(fields_of(&stored)), "{}", K::KIND);
    let from_view = replace(client, kind, "", &view).await?;
    let from_view = from_view.map_err(|faults| anyhow::anyhow!("{}: {faults:?}", K::KIND))?;
    assert_eq!(serde_json::to_value(decode_object::<K>(&from_view)?)?["spec"], view["spec"], "{}", K::KIND);
    Ok(())
}

#[tokio::test]
async fn what_is_stored_reads_as_our_types() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let template = json!({ "spec": { "containers": [{ "name": "c", "bogus": 1, "resources": { "requests": { "cpu": 2 } } }], "bogus": 1 } });
    let owner = json!({ "controller": { "apiVersion": "", "kind": "ReplicaSet", "name": "rs1", "uid": "" } });
    round_trip::<Reservation>(&client, reservations(), "round-trip", json!({ "spec": {
        "owners": [owner, { "labelSelector": { "matchLabels": { "a": "b" } } }], "template": template, "expires": "2124-01-01T00:00:00Z",
        "preAllocationPolicy": {}, "taints": [{ "key": "a", "effect": "NoSchedule" }],
    } })).await?;
    round_trip::<PodMigrationJob>(&client, jobs(), "round-trip", json!({ "spec": {
        "podRef": { "namespace": "ns", "name": "p" }, "mode": "Weird", "ttl": "5m", "deleteOptions": { "gracePeriodSeconds": 1 },
        "reservationOptions": { "template": { "spec": { "template": template } } },
    } })).await?;
    let device = json!({ "type": "gpu", "minor": 0, "resources": { "koordinator.sh/gpu-core": 100 },
        "topology": { "socketID": 0, "nodeID": 0, "pcieID": "" } });
    round_trip::<Device>(&client, devices(), "round-trip", json!({ "spec": { "devices": [device] } }))
        .await?;
    round_trip::<NodeMetric>(&client, node_metrics(), "round-trip", json!({ "spec": { "metricCollectPolicy": {
        "nodeAggregatePolicy": { "durations": ["5m", "10m0s"] }, "nodeMemoryCollectPolicy": "usageWithPageCache",
    } } })).await?;
    round_trip::<NodeSLO>(
        &client,
        node_slos(),
        "round-trip",
        json!({ "spec": {
        "resourceQOSStrategy": { "beClass": { "networkQOS": { "ingressRequest": "50M" } } },
        "systemStrategy": { "totalNetworkBandwidth": "600M" }, "extensions": { "Object": { "k": 1 }, "z": 1 },
    } }),
    )
    .await?;
    round_trip::<ClusterColocationProfile>(
        &client,
        profiles(),
        "round-trip",
        json!({ "spec": {
        "qosClass": "LS", "probability": "30%", "patch": { "spec": { "terminationGracePeriodSeconds": 1 } },
    } }),
    )
    .await?;
    round_trip::<PodGroup>(&client, pod_groups(), "round-trip", json!({ "spec": { "minMember": 0 } }))
        .await?;
    round_trip::<ScheduleExplanation>(
        &client,
        explanations(),
        "round-trip",
        json!({ "spec": { "questionObjectTemplate": template } }),
    )
    .await
}

#[tokio::test]
async fn reservations_on_create() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let owners = json!([{ "labelSelector": { "matchLabels": { "app": "b" } } }]);
    let template = json!({ "spec": { "containers": [], "bogus": 1 } });
    let with = |extra: Value| {
        let mut spec = json!({ "owners": owners, "template": template });
        spec.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        json!({ "spec": spec })
    };
    let full = |extra: Value| {
        let mut fields = with(json!({ "ttl": "24h", "allocateOnce": true }));
        fields["spec"]
            .as_object_mut()
            .expect("an object")
            .extend(extra.as_object().expect("an object").clone());
        Ok(fields)
    };
    let no_owners = "spec.owners: Invalid value: 0: spec.owners in body should have at least 1 items";
    let empty_owner =
        "spec.owners[0]: Invalid value: 0: spec.owners[0] in body should have at least 1 properties";
    let r = reservations();
    check(&client, &[
        ("crds#14.V1", r, with(json!({})), full(json!({}))),
        ("crds#14.V2", r, with(json!({ "ttl": null, "allocateOnce": null })), full(json!({}))),
        ("crds#14.V3", r, json!({ "spec": {} }), Err(vec!["spec.owners: Required value", "spec.template: Required value"])),
        ("crds#14.V4", r, json!({}), Ok(json!({}))),
        ("crds#14.V5", r, with(json!({ "owners": [] })), Err(vec![no_owners])),
        ("crds#14.V5", r, with(json!({ "owners": [{}] })), Err(vec![empty_owner])),
        ("crds#14.V5", r, with(json!({ "owners": [{ "selector": {} }] })), Err(vec![empty_owner])),
        (
            "crds#14.V6",
            r,
            with(json!({ "owners": [{ "controller": { "kind": "ReplicaSet", "name": "rs1", "controller": true } }] })),
            Err(vec!["spec.owners[0].controller.apiVersion: Required value", "spec.owners[0].controller.uid: Required value"]),
        ),
        (
            "crds#14.V6",
            r,
            with(json!({ "owners": [{ "controller": { "apiVersion": "", "kind": "ReplicaSet", "name": "rs1", "uid": "" } }] })),
            full(json!({ "owners": [{ "controller": { "apiVersion": "", "kind": "ReplicaSet", "name": "rs1", "uid": "" } }] })),
        ),
        (
            "crds#14.V7",
            r,
            with(json!({ "allocatePolicy": "Default" })),
            Err(vec![r#"spec.allocatePolicy: Unsupported value: "Default": supported values: "Aligned", "Restricted""#]),
        ),
        (
            "crds#14.V8",
            r,
            with(json!({ "ttl": 300 })),
            Err(vec![r#"spec.ttl: Invalid value: "integer": spec.ttl in body must be of type string: "integer""#]),
        ),
        ("crds#14.V8", r, with(json!({ "ttl": "abc" })), full(json!({ "ttl": "abc" }))),
        (
            "crds#14.V8",
            r,
            with(json!({ "expires": "tomorrow" })),
            Err(vec![r#"spec.expires: Invalid value: "tomorrow": spec.expires in body must be of type date-time: "tomorrow""#]),
        ),
        (
            "crds#14.V10",
            r,
            with(json!({ "preAllocationPolicy": {} })),
            full(json!({ "preAllocationPolicy": { "mode": "Default", "enableMultiple": false } })),
        ),
        ("crds#14.V11", r, with(json!({ "taints": [{ "key": "a" }] })), Err(vec!["spec.taints[0].effect: Required value"])),
        ("property names are case-sensitive", r, with(json!({ "UnSchedulable": true })), full(json!({}))),
    ])
    .await
}

#[tokio::test]
async fn status_writes() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let stored = |answer: Answer| answer.map_err(|faults| anyhow::anyhow!("{faults:?}"));

    let kind = reservations();
    let mut object = stored(
        create(&client, kind, &kind.object("status-writes", &json!({ "status": { "phase": "Failed" } })))
            .await?,
    )?;
    assert_eq!(fields_of(&object), json!({}), "a create drops the status");
    // A status is validated on its own, so the sentence names the path inside it.
    let pattern = r"should match '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'";
    object["status"] = json!({ "allocatable": { "cpu": "+", "memory": 1024, "x": "1K" } });
    let faults = [
        format!(r#"status.allocatable.cpu: Invalid value: "+": allocatable.cpu in body {pattern}"#),
        format!(r#"status.allocatable.x: Invalid value: "1K": allocatable.x in body {pattern}"#),
    ];
    let faults = faults.iter().map(String::as_str).collect();
    compare("crds#14.V9", replace(&client, kind, "/status", &object).await?, &Err(faults));
    object["status"] = json!({ "allocatable": { "memory": 1024 } });
    let want = json!({ "status": { "allocatable": { "memory": 1024 }, "phase": "Pending" } });
    compare("crds#14.V9", replace(&client, kind, "/status", &object).await?, &Ok(want));

    let kind = jobs();
    let spec = json!({ "spec": { "podRef": {} } });
    let mut object = stored(create(&client, kind, &kind.object("status-writes", &spec)).await?)?;
    let conditions = json!([{ "type": "Eviction", "status": "True", "lastProbeTime": null }]);
    object["status"] = json!({ "conditions": conditions });
    let want = json!({ "spec": { "podRef": {} }, "status": { "conditions": conditions } });
    compare("crds#14.V21", replace(&client, kind, "/status", &object).await?, &Ok(want));

    let kind = node_metrics();
    let mut object = stored(create(&client, kind, &kind.object("status-writes", &json!({}))).await?)?;
    object["status"] = json!({ "nodeMetric": { "numaUsages": [{}] } });
    compare(
        "crds#14.V23",
        replace(&client, kind, "/status", &object).await?,
        &Err(vec!["status.nodeMetric.numaUsages[0].numaNodeID: Required value"]),
    );
    object["status"] = json!({ "nodeMetric": { "nodeUsage": { "devices": [{ "type": "gpu" }] } } });
    let want = json!({ "status": { "nodeMetric": { "nodeUsage": { "devices": [{ "type": "gpu", "health": false }] } } } });
    let answer = replace(&client, kind, "/status", &object).await?;
    object = stored(answer.clone())?;
    compare("crds#14.V23", answer, &Ok(want));
    object["status"] = json!({ "podsMetric": [{ "extensions": { "x": { "y": 1 } }, "foo": 1 }] });
    let want = json!({ "status": { "podsMetric": [{ "extensions": { "x": { "y": 1 } } }] } });
    compare("crds#14.V24", replace(&client, kind, "/status", &object).await?, &Ok(want));
    Ok(())
}

#[tokio::test]
async fn node_objects_on_create() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let device = |device: Value| json!({ "spec": { "devices": [device] } });
    let zone =
        |resource: Value| json!({ "zones": [{ "name": "node-0", "type": "Node", "resources": [resource] }] });
    check(&client, &[
        (
            "crds#14.V12",
            devices(),
            device(json!({ "type": "gpu", "minor": 0, "resources": { "koordinator.sh/gpu-core": 100 } })),
            Ok(device(json!({ "type": "gpu", "minor": 0, "health": false, "resources": { "koordinator.sh/gpu-core": 100 } }))),
        ),
        (
            "crds#14.V13",
            devices(),
            device(json!({ "topology": { "nodeID": 0 } })),
            Err(vec!["spec.devices[0].topology.pcieID: Required value", "spec.devices[0].topology.socketID: Required value"]),
        ),
        ("an int32 is not checked", devices(), device(json!({ "minor": 3_000_000_000_u32 })), Ok(device(json!({ "minor": 3_000_000_000_u32, "health": false })))),
        (
            "crds#14.V22",
            old_topologies(),
            json!({ "zones": [] }),
            Err(vec!["topologyPolicies: Required value"]),
        ),
        (
            "crds#14.V22",
            topologies(),
            zone(json!({ "name": "cpu", "capacity": 1, "allocatable": "1" })),
            Err(vec!["zones[0].resources[0].available: Required value"]),
        ),
        (
            "crds#14.V23",
            node_metrics(),
            json!({ "spec": { "metricCollectPolicy": { "nodeMemoryCollectPolicy": "usage" } } }),
            Err(vec![concat!(
                r#"spec.metricCollectPolicy.nodeMemoryCollectPolicy: Unsupported value: "usage": "#,
                r#"supported values: "usageWithHotPageCache", "usageWithoutPageCache", "usageWithPageCache""#
            )]),
        ),
    ])
    .await
}

#[tokio::test]
async fn node_slos_on_create() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let spec = |spec: Value| json!({ "spec": spec });
    let network = |request: Value| json!({ "ingressRequest": request, "ingressLimit": 100, "egressRequest": 0, "egressLimit": 100 });
    let bad = json!({
        "resourceUsedThresholdWithBE": { "cpuSuppressThresholdPercent": 101, "cpuEvictBESatisfactionUpperPercent": 500 },
        "cpuBurstStrategy": { "cpuBurstPercent": 10001 },
        "resourceQOSStrategy": { "beClass": {
            "memoryQOS": { "wmarkScalePermill": 0, "wmarkMinAdj": -26 },
            "blkioQOS": { "blocks": [{ "ioCfg": { "ioWeightPercent": 0, "modelReadBPS": 0, "readBPS": -1 } }] },
        } },
        "systemStrategy": { "totalNetworkBandwidth": "1K" },
    });
    let limit = |path: &str, value: i64, text: &str| {
        format!("{path}: Invalid value: {value}: {path} in body should be {text}")
    };
    let memory = "spec.resourceQOSStrategy.beClass.memoryQOS";
    let io = "spec.resourceQOSStrategy.beClass.blkioQOS.blocks[0].ioCfg";
    let bandwidth = "spec.systemStrategy.totalNetworkBandwidth";
    let mut faults = vec![
        limit(
            "spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent",
            101,
            "less than or equal to 100",
        ),
        limit("spec.cpuBurstStrategy.cpuBurstPercent", 10001, "less than or equal to 10000"),
        limit(&format!("{memory}.wmarkScalePermill"), 0, "greater than or equal to 1"),
        limit(&format!("{memory}.wmarkMinAdj"), -26, "greater than or equal to -25"),
        limit(&format!("{io}.ioWeightPercent"), 0, "greater than or equal to 1"),
        limit(&format!("{io}.modelReadBPS"), 0, "greater than or equal to 1"),
        limit(&format!("{io}.readBPS"), -1, "greater than or equal to 0"),
        format!(
            r#"{bandwidth}: Invalid value: "1K": {bandwidth} in body should match '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'"#
        ),
    ];
    faults.sort();
    let kind = node_slos();
    check(&client, &[
        (
            "crds#14.V14",
            kind,
            spec(json!({ "resourceQOSStrategy": { "beClass": { "networkQOS": { "ingressRequest": "50M" } }, "cgroupRoot": { "networkQOS": {} } } })),
            Ok(spec(json!({ "resourceQOSStrategy": {
                "beClass": { "networkQOS": network(json!("50M")) }, "cgroupRoot": { "networkQOS": network(json!(0)) }
            } }))),
        ),
        (
            "crds#14.V15",
            kind,
            spec(json!({ "extensions": { "Object": { "k": { "a": 1 } }, "z": 1 } })),
            Ok(spec(json!({ "extensions": { "Object": { "k": { "a": 1 } }, "z": 1 } }))),
        ),
        ("crds#14.V16", kind, spec(bad), Err(faults.iter().map(String::as_str).collect())),
        (
            "crds#14.V17",
            kind,
            spec(json!({ "resourceUsedThresholdWithBE": { "CPUEvictPolicy": "x" } })),
            Ok(spec(json!({ "resourceUsedThresholdWithBE": {} }))),
        ),
    ])
    .await
}

#[tokio::test]
async fn other_kinds_on_create() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let spec = |spec: Value| json!({ "spec": spec });
    let qos = |value: &str| {
        format!(
            r#"spec.qosClass: Unsupported value: "{value}": supported values: "LSE", "LSR", "LS", "BE", "SYSTEM""#
        )
    };
    let (empty, lower) = (qos(""), qos("ls"));
    let type_fault = |path: &str, got: &str, want: &str| {
        format!(r#"{path}: Invalid value: "{got}": {path} in body must be of type {want}: "{got}""#)
    };
    let label = type_fault("spec.labels.a", "integer", "string");
    let no_type = r#"<nil>: Invalid value: "": "spec.probability" must validate at least one schema (anyOf)"#;
    let either = type_fault("spec.probability", "number", "integer,string");
    let integer = type_fault("spec.probability", "number", "integer");
    let ratio = type_fault("spec.resourceRatio", "number", "string");
    let layer_key = type_fault("spec.networkTopologySpec[0].labelKey", "string", "array");
    let job_template = json!({ "mode": "Weird", "reservationOptions": { "template": { "x": { "y": 1 } } } });
    let mut job_with_pod = job_template.clone();
    job_with_pod["podRef"] = json!({});
    check(
        &client,
        &[
            ("crds#14.V18", profiles(), spec(json!({ "qosClass": "" })), Err(vec![&empty])),
            ("crds#14.V18", profiles(), spec(json!({ "qosClass": "ls" })), Err(vec![&lower])),
            (
                "crds#14.V19",
                profiles(),
                spec(json!({ "probability": "abc" })),
                Ok(spec(json!({ "probability": "abc" }))),
            ),
            (
                "crds#14.V19",
                profiles(),
                spec(json!({ "probability": 1.5 })),
                Err(vec![no_type, &either, &integer]),
            ),
            ("crds#14.V19", profiles(), spec(json!({ "labels": { "a": 1 } })), Err(vec![&label])),
            (
                "crds#14.V19",
                profiles(),
                spec(json!({ "selector": { "matchExpressions": [{ "key": "a" }] } })),
                Err(vec!["spec.selector.matchExpressions[0].operator: Required value"]),
            ),
            ("crds#14.V20", jobs(), spec(job_template), Err(vec!["spec.podRef: Required value"])),
            ("the same with a pod", jobs(), spec(job_with_pod.clone()), Ok(spec(job_with_pod))),
            (
                "crds#14.V25",
                quota_profiles(),
                spec(json!({ "resourceRatio": 0.9 })),
                Err(vec!["spec.nodeSelector: Required value", "spec.quotaName: Required value", &ratio]),
            ),
            (
                "crds#14.V26",
                pod_groups(),
                spec(json!({ "minMember": 0, "scheduleTimeoutSeconds": -1 })),
                Ok(spec(json!({ "minMember": 0, "scheduleTimeoutSeconds": -1 }))),
            ),
            (
                "crds#14.V27",
                explanations(),
                spec(json!({ "questionObjectKey": "ns/p" })),
                Ok(spec(json!({ "questionObjectKey": "ns/p", "ttl": "24h" }))),
            ),
            (
                "crds#14.V28",
                network_topologies(),
                spec(json!({ "networkTopologySpec": [{ "labelKey": "x" }] })),
                Err(vec![&layer_key, "spec.networkTopologySpec[0].topologyLayer: Required value"]),
            ),
        ],
    )
    .await
}
