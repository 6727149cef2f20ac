//! The worked examples of crds.md section 14, on our own definitions.

use koord_api::crd::generate::manifests;
use serde_json::json;

use super::super::fault::join;
use super::*;

/// The schema of a kind as the API server would have it installed.
fn schema(kind: &str, version: &str) -> Schema {
    let manifest = manifests().into_iter().find(|manifest| manifest.content["spec"]["names"]["kind"] == kind);
    let content = manifest.unwrap_or_else(|| panic!("no manifest for {kind}")).content;
    let versions = content["spec"]["versions"].as_array().unwrap().clone();
    let found = versions.iter().find(|one| one["name"] == version).unwrap();
    parse(&found["schema"]["openAPIV3Schema"], "spec.validation.openAPIV3Schema").unwrap()
}

enum Want {
    Stored(Value),
    Refused(&'static str),
}

use Want::{Refused, Stored};

fn check(key: &str, kind: &str, mut object: Value, want: Want) {
    let version = if kind == "NodeResourceTopology/v1alpha2" { "v1alpha2" } else { "v1alpha1" };
    let schema = schema(kind.split('/').next().unwrap(), version);
    shape::prune(&mut object, &schema, true);
    shape::drop_nulls(&mut object, &schema);
    shape::fill_defaults(&mut object, &schema);
    let faults = validate::validate(&object, &schema);
    match want {
        Stored(value) => {
            assert_eq!(join(&faults), "[]", "{key}");
            assert_eq!(object, value, "{key}");
        }
        Refused(text) => assert_eq!(join(&faults), text, "{key}"),
    }
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

/// A Reservation's spec with what every one needs.
fn reservation(extra: Value) -> Value {
    let mut spec = json!({"owners": [{"labelSelector": {"matchLabels": {"app": "b"}}}], "template": {}});
    let fields = spec.as_object_mut().unwrap();
    fields.extend(extra.as_object().unwrap().clone());
    json!({ "spec": spec })
}

/// The same with the defaults filled in.
fn stored_reservation(extra: Value) -> Want {
    let mut object = reservation(extra);
    let fields = object["spec"].as_object_mut().unwrap();
    fields.entry("ttl").or_insert("24h".into());
    fields.entry("allocateOnce").or_insert(true.into());
    Stored(object)
}

#[test]
fn reservations() {
    let template = json!({"template": {"spec": {"containers": [], "bogus": 1}}});
    check("crds#14.V1", "Reservation", reservation(template.clone()), stored_reservation(template));
    check(
        "crds#14.V2",
        "Reservation",
        reservation(json!({"ttl": null, "allocateOnce": null})),
        stored_reservation(json!({})),
    );
    check(
        "crds#14.V3",
        "Reservation",
        spec(json!({})),
        Refused("[spec.owners: Required value, spec.template: Required value]"),
    );
    check("crds#14.V4", "Reservation", json!({}), Stored(json!({})));
    let too_few =
        "spec.owners[0]: Invalid value: 0: spec.owners[0] in body should have at least 1 properties";
    for (owners, want) in [
        (json!([]), "spec.owners: Invalid value: 0: spec.owners in body should have at least 1 items"),
        (json!([{}]), too_few),
        (json!([{"selector": {}}]), too_few),
    ] {
        check("crds#14.V5", "Reservation", reservation(json!({ "owners": owners })), Refused(want));
    }
    check(
        "crds#14.V6",
        "Reservation",
        reservation(
            json!({"owners": [{"controller": {"kind": "ReplicaSet", "name": "rs1", "controller": true}}]}),
        ),
        Refused(
            "[spec.owners[0].controller.apiVersion: Required value, spec.owners[0].controller.uid: Required value]",
        ),
    );
    check(
        "crds#14.V7",
        "Reservation",
        reservation(json!({"allocatePolicy": "Default"})),
        Refused(
            "spec.allocatePolicy: Unsupported value: \"Default\": supported values: \"Aligned\", \"Restricted\"",
        ),
    );
    check(
        "crds#14.V8",
        "Reservation",
        reservation(json!({"ttl": 300})),
        Refused("spec.ttl: Invalid value: \"integer\": spec.ttl in body must be of type string: \"integer\""),
    );
    check(
        "crds#14.V8",
        "Reservation",
        reservation(json!({"ttl": "abc"})),
        stored_reservation(json!({"ttl": "abc"})),
    );
    check(
        "crds#14.V8",
        "Reservation",
        reservation(json!({"expires": "tomorrow"})),
        Refused(
            "spec.expires: Invalid value: \"tomorrow\": spec.expires in body must be of type date-time: \"tomorrow\"",
        ),
    );
    check(
        "crds#14.V10",
        "Reservation",
        reservation(json!({"preAllocationPolicy": {}})),
        stored_reservation(json!({"preAllocationPolicy": {"mode": "Default", "enableMultiple": false}})),
    );
    check(
        "crds#14.V11",
        "Reservation",
        reservation(json!({"taints": [{"key": "a"}]})),
        Refused("spec.taints[0].effect: Required value"),
    );
}

const PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

#[test]
fn reservation_status_and_devices() {
    let schema = schema("Reservation", "v1alpha1");
    let mut object = json!({"status": {"allocatable": {"cpu": "+", "memory": 1024, "x": "1K"}}});
    shape::fill_defaults(&mut object, &schema);
    let text = join(&validate::validate(&object, &schema));
    let want = ["cpu\": \"+", "x\": \"1K"].map(|pair| {
        let (name, value) = pair.split_once("\": \"").unwrap();
        let path = format!("status.allocatable.{name}");
        format!("{path}: Invalid value: \"{value}\": {path} in body should match '{PATTERN}'")
    });
    assert_eq!(text, format!("[{}]", want.join(", ")), "crds#14.V9");
    assert_eq!(object["status"]["phase"], "Pending", "crds#14.V9");
    check(
        "crds#14.V12",
        "Device",
        spec(
            json!({"devices": [{"type": "gpu", "minor": 0, "resources": {"koordinator.sh/gpu-core": 100}}]}),
        ),
        Stored(spec(json!({"devices": [
            {"type": "gpu", "minor": 0, "health": false, "resources": {"koordinator.sh/gpu-core": 100}}]}))),
    );
    check(
        "crds#14.V13",
        "Device",
        spec(json!({"devices": [{"type": "gpu", "topology": {"nodeID": 0}}]})),
        Refused(
            "[spec.devices[0].topology.pcieID: Required value, spec.devices[0].topology.socketID: Required value]",
        ),
    );
}

#[test]
fn node_slo() {
    check(
        "crds#14.V14",
        "NodeSLO",
        spec(json!({"resourceQOSStrategy": {"beClass": {"networkQOS": {"ingressRequest": "50M"}},
                                          "cgroupRoot": {"networkQOS": {}}}})),
        Stored(spec(json!({"resourceQOSStrategy": {
            "beClass": {"networkQOS": {
                "ingressRequest": "50M", "ingressLimit": 100, "egressRequest": 0, "egressLimit": 100}},
            "cgroupRoot": {"networkQOS": {
                "ingressRequest": 0, "ingressLimit": 100, "egressRequest": 0, "egressLimit": 100}}}}))),
    );
    let extensions = spec(json!({"extensions": {"Object": {"k": {"a": 1}}, "z": 1}}));
    check("crds#14.V15", "NodeSLO", extensions.clone(), Stored(extensions));
    let schema = schema("NodeSLO", "v1alpha1");
    let object = spec(json!({
        "resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101, "cpuEvictBESatisfactionUpperPercent": 500},
        "cpuBurstStrategy": {"cpuBurstPercent": 10001},
        "resourceQOSStrategy": {"lsClass": {
            "memoryQOS": {"wmarkScalePermill": 0, "wmarkMinAdj": -26},
            "blkioQOS": {"blocks": [{"ioCfg": {"ioWeightPercent": 0, "modelReadBPS": 0, "readBPS": -1}}]}}},
        "systemStrategy": {"totalNetworkBandwidth": "1K"},
    }));
    let mut kept = object.clone();
    assert_eq!(shape::prune(&mut kept, &schema, true), Vec::<String>::new(), "crds#14.V16");
    let faults = validate::validate(&object, &schema);
    let fields: Vec<&str> = faults.iter().map(|fault| fault.field.rsplit('.').next().unwrap()).collect();
    assert_eq!(
        fields,
        [
            "cpuBurstPercent",
            "ioWeightPercent",
            "modelReadBPS",
            "readBPS",
            "wmarkMinAdj",
            "wmarkScalePermill",
            "cpuSuppressThresholdPercent",
            "totalNetworkBandwidth",
        ],
        "crds#14.V16"
    );
    check(
        "crds#14.V17",
        "NodeSLO",
        spec(json!({"resourceUsedThresholdWithBE": {"CPUEvictPolicy": "x"}})),
        Stored(spec(json!({"resourceUsedThresholdWithBE": {}}))),
    );
}

#[test]
fn profiles_and_jobs() {
    for (class, want) in [
        (
            "",
            "spec.qosClass: Unsupported value: \"\": supported values: \"LSE\", \"LSR\", \"LS\", \"BE\", \"SYSTEM\"",
        ),
        (
            "ls",
            "spec.qosClass: Unsupported value: \"ls\": supported values: \"LSE\", \"LSR\", \"LS\", \"BE\", \"SYSTEM\"",
        ),
    ] {
        check("crds#14.V18", "ClusterColocationProfile", spec(json!({ "qosClass": class })), Refused(want));
    }
    let stored = spec(json!({"probability": "abc"}));
    check("crds#14.V19", "ClusterColocationProfile", stored.clone(), Stored(stored));
    for (object, want) in [
        (
            json!({"probability": 1.5}),
            "[spec.probability: Invalid value: \"number\": spec.probability in body must be of type integer,string: \
             \"number\", <nil>: Invalid value: \"\": \"spec.probability\" must validate at least one schema (anyOf), \
             spec.probability: Invalid value: \"number\": spec.probability in body must be of type integer: \"number\"]",
        ),
        (
            json!({"labels": {"a": 1}}),
            "spec.labels.a: Invalid value: \"integer\": spec.labels.a in body must be of type string: \"integer\"",
        ),
        (
            json!({"selector": {"matchExpressions": [{"key": "a"}]}}),
            "spec.selector.matchExpressions[0].operator: Required value",
        ),
    ] {
        check("crds#14.V19", "ClusterColocationProfile", spec(object), Refused(want));
    }
    check(
        "crds#14.V20",
        "PodMigrationJob",
        spec(json!({"mode": "Weird", "reservationOptions": {"template": {"x": {"y": 1}}}})),
        Refused("spec.podRef: Required value"),
    );
    let conditions =
        json!({"status": {"conditions": [{"type": "a", "status": "True", "lastProbeTime": null}]}});
    check("crds#14.V21", "PodMigrationJob", conditions.clone(), Stored(conditions));
}

#[test]
fn topologies_and_metrics() {
    check(
        "crds#14.V22",
        "NodeResourceTopology",
        json!({"zones": []}),
        Refused("topologyPolicies: Required value"),
    );
    check(
        "crds#14.V22",
        "NodeResourceTopology/v1alpha2",
        json!({"zones": [{"name": "n", "type": "Node", "resources": [
            {"name": "cpu", "capacity": 1, "allocatable": 1}]}]}),
        Refused("zones[0].resources[0].available: Required value"),
    );
    check(
        "crds#14.V23",
        "NodeMetric",
        spec(json!({"metricCollectPolicy": {"nodeMemoryCollectPolicy": "usage"}})),
        Refused(
            "spec.metricCollectPolicy.nodeMemoryCollectPolicy: Unsupported value: \"usage\": supported values: \
             \"usageWithHotPageCache\", \"usageWithoutPageCache\", \"usageWithPageCache\"",
        ),
    );
    let usage = |usage: Value| json!({"status": {"nodeMetric": {"nodeUsage": usage}}});
    check(
        "crds#14.V23",
        "NodeMetric",
        json!({"status": {"nodeMetric": {"numaUsages": [{}]}}}),
        Refused("status.nodeMetric.numaUsages[0].numaNodeID: Required value"),
    );
    check(
        "crds#14.V23",
        "NodeMetric",
        usage(json!({"devices": [{"type": "gpu"}]})),
        Stored(usage(json!({"devices": [{"type": "gpu", "health": false}]}))),
    );
    check(
        "crds#14.V24",
        "NodeMetric",
        json!({"status": {"podsMetric": [{"extensions": {"x": {"y": 1}}, "foo": 1}]}}),
        Stored(json!({"status": {"podsMetric": [{"extensions": {"x": {"y": 1}}}]}})),
    );
}

#[test]
fn quotas_groups_and_the_rest() {
    check(
        "crds#14.V25",
        "ElasticQuotaProfile",
        spec(json!({"resourceRatio": 0.9})),
        Refused(
            "[spec.resourceRatio: Invalid value: \"number\": spec.resourceRatio in body must be of type string: \
             \"number\", spec.nodeSelector: Required value, spec.quotaName: Required value]",
        ),
    );
    let group = spec(json!({"minMember": 0, "scheduleTimeoutSeconds": -1}));
    check("crds#14.V26", "PodGroup", group.clone(), Stored(group));
    check("crds#14.V27", "ScheduleExplanation", spec(json!({})), Stored(spec(json!({"ttl": "24h"}))));
    check(
        "crds#14.V28",
        "ClusterNetworkTopology",
        spec(json!({"networkTopologySpec": [{"labelKey": "x"}]})),
        Refused(
            "[spec.networkTopologySpec[0].labelKey: Invalid value: \"string\": spec.networkTopologySpec[0].labelKey \
             in body must be of type array: \"string\", spec.networkTopologySpec[0].topologyLayer: Required value]",
        ),
    );
}
