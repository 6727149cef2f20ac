//! Profiles as a large cluster has them, and the reviews of its new pods.

use anyhow::Result;
use bytes::Bytes;
use koord_api::keys::pod::label::QOS_CLASS;
use serde_json::{Value, json};

use crate::bench_kit;

/// Different pods.
const TEMPLATES: usize = 200;
/// Namespaces that they are in; each belongs to one of ten teams.
pub(super) const NAMESPACES: usize = 20;
const TEAMS: usize = 10;

pub(super) fn namespace(number: usize) -> Value {
    json!({"metadata": {"name": format!("team-{number}"), "labels": {"team": format!("t{}", number % TEAMS)}}})
}

/// So many profiles: most by labels of pods, some by namespaces, some by both; labels, priorities, patches, chance.
pub(super) fn profiles(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| {
            json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
                "metadata": {"name": format!("profile-{number:03}")}, "spec": spec(number)})
        })
        .collect()
}

fn spec(number: usize) -> Value {
    let group = number / 10;
    let app = |offset: usize| format!("service-{}", (group * 10 + offset) * 2 % TEMPLATES);
    let name = "app.kubernetes.io/name";
    match number % 10 {
        0 => json!({"namespaceSelector": {"matchLabels": {"team": format!("t{group}")}},
            "labels": {"example.com/pool": format!("pool-{group}")}, "schedulerName": "koord-scheduler"}),
        offset @ (1 | 2) => json!({"selector": {"matchLabels": {name: app(offset)}},
            "qosClass": "BE", "priorityClassName": "koord-batch", "koordinatorPriority": 1000,
            "schedulerName": "koord-scheduler", "labels": {"example.com/batch": "true"}}),
        offset @ (3 | 4) => json!({"selector": {"matchLabels": {name: app(offset), "version": "v1.4.2"}},
            "qosClass": "LS", "priorityClassName": "koord-prod",
            "labels": {"example.com/tier": "gold"}, "annotations": {"example.com/owner": format!("team-{group}")}}),
        offset @ (5 | 6) => json!({"selector": {"matchExpressions": [
                {"key": name, "operator": "In", "values": [app(offset), app(offset + 1), app(offset + 2)]},
                {"key": "example.com/exempt", "operator": "DoesNotExist"},
                {"key": QOS_CLASS, "operator": "NotIn", "values": ["SYSTEM"]}]},
            "annotations": {"example.com/checked": "true"}}),
        offset @ 7 => json!({"namespaceSelector": {"matchExpressions": [
                {"key": "team", "operator": "In", "values": [format!("t{group}"), format!("t{}", (group + 1) % TEAMS)]}]},
            "selector": {"matchLabels": {name: app(offset)}}, "probability": "50%",
            "qosClass": "BE", "priorityClassName": "koord-batch"}),
        offset @ 8 => json!({"selector": {"matchLabels": {name: app(offset)}},
            "labelKeysMapping": {name: "example.com/app"}, "labelSuffixes": {"version": "-canary"},
            "annotationKeysMapping": {"prometheus.io/port": "example.com/port"}}),
        offset => json!({"selector": {"matchLabels": {name: app(offset)}},
            "patch": {"metadata": {"labels": {"example.com/patched": "true"}},
                "spec": {"terminationGracePeriodSeconds": 60, "nodeSelector": {"example.com/pool": "shared"},
                    "containers": [{"name": "main", "env": [{"name": "GOMEMLIMIT", "value": "2GiB"}]}]}}}),
    }
}

/// A review of the creation of each pod.
pub(super) fn reviews() -> Result<Vec<Bytes>> {
    (0..TEMPLATES).map(|number| Ok(Bytes::from(review(number, new_pod(number)?).to_string()))).collect()
}

fn review(number: usize, pod: Value) -> Value {
    let namespace = pod["metadata"]["namespace"].clone();
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": format!("{number:08x}-1c9d-4f6e-9a41-0123456789ab"), "kind": kind, "resource": resource,
        "requestKind": kind, "requestResource": resource, "namespace": namespace, "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller",
            "uid": "5f3b0a4e-0c52-4c7e-8d4c-2d4a6fb0a3a1",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]},
        "object": pod, "oldObject": null, "dryRun": false,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})
}

/// A pod as a controller creates it.
fn new_pod(number: usize) -> Result<Value> {
    let mut pod: Value = serde_json::from_str(&bench_kit::pod(number))?;
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["namespace"] = json!(format!("team-{}", number % NAMESPACES));
    if let Some(meta) = pod["metadata"].as_object_mut() {
        ["name", "uid", "resourceVersion"].iter().for_each(|field| _ = meta.remove(*field));
    }
    pod["metadata"]["managedFields"].as_array_mut().into_iter().for_each(|fields| fields.truncate(1));
    if let Some(spec) = pod["spec"].as_object_mut() {
        ["nodeName", "hostname"].iter().for_each(|field| _ = spec.remove(*field));
    }
    // What may not be together is refused: the least of the classes goes with the least of the priorities.
    if pod["metadata"]["labels"][QOS_CLASS] == "BE" {
        (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) = (json!("koord-batch"), json!(5500));
    }
    pod["status"] = json!({});
    Ok(pod)
}
