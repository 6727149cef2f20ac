//! Requests, QoS and priority of pods. Spec: manager 5.5, 6.1.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;

fn brief(pod: Value) -> PodBrief {
    let pod: Pod = serde_json::from_value(pod).unwrap();
    PodReader::default().brief(&ObjectKey { namespace: "ns".into(), name: "p".into() }, &pod)
}

fn container(cpu: &str, memory: &str) -> Value {
    json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

fn sidecar(cpu: &str, memory: &str) -> Value {
    let mut container = container(cpu, memory);
    container["restartPolicy"] = json!("Always");
    container
}

#[test]
fn effective_requests() {
    let two = || json!({"containers": [container("1", "1Gi"), container("2", "2Gi")]});
    let with_init = |init: Value| {
        let mut spec = two();
        spec["initContainers"] = init;
        spec
    };
    let sidecar_last = || with_init(json!([container("5", "1Gi"), sidecar("1", "1Gi")]));
    let with_overhead = || {
        let mut spec = sidecar_last();
        spec["overhead"] = json!({"cpu": "500m", "memory": "100Mi"});
        spec
    };
    let with_pod_level = || {
        let mut spec = with_overhead();
        spec["resources"] = json!({"requests": {"cpu": "3", "memory": "3Gi"}});
        spec
    };
    let limits_only =
        json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "4", "memory": "4Gi"}}}]});
    for (key, spec, cpu, memory) in [
        ("manager#5.5.F1", two(), "3", "3Gi"),
        ("manager#5.5.F2", with_init(json!([container("5", "1Gi")])), "5", "3Gi"),
        ("manager#5.5.F3", with_init(json!([sidecar("1", "1Gi"), container("5", "1Gi")])), "6", "4Gi"),
        ("manager#5.5.F4", sidecar_last(), "5", "4Gi"),
        ("manager#5.5.F5", with_overhead(), "5500m", "4196Mi"),
        ("manager#5.5.F6", with_pod_level(), "3500m", "3172Mi"),
        ("manager#5.5.F7", limits_only, "0", "0"),
    ] {
        let want = Amounts { cpu: cpu.parse().unwrap(), memory: memory.parse().unwrap() };
        assert_eq!(brief(json!({"metadata": {}, "spec": spec})).requests.native, want, "{key}");
    }
}

#[test]
fn extended_requests_are_in_cores() {
    let spec = |requests: Value| {
        json!({"metadata": {}, "spec": {"containers": [
            {"name": "c", "resources": {"requests": requests}},
        ]}})
    };
    let batch = brief(spec(json!({"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"})));
    assert_eq!(batch.requests.batch.cpu, "1500m".parse().unwrap());
    assert_eq!(batch.requests.batch.memory, "1Gi".parse().unwrap());
    let old = brief(spec(json!({"koordinator.sh/batch-cpu": "1500", "koordinator.sh/batch-memory": "1Gi"})));
    assert_eq!(old.requests, batch.requests, "old names mean the same");
    let mid = brief(spec(json!({"kubernetes.io/mid-cpu": "2k"})));
    assert_eq!((mid.requests.mid.cpu, mid.requests.native), ("2".parse().unwrap(), Amounts::ZERO));
}

/// A pod with these labels, priority, requests and limits.
fn pod(labels: Value, priority: Option<i32>, requests: Value, limits: Value) -> Value {
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}],
        },
    })
}

#[test]
fn qos_and_priority() {
    use PriorityClass::{Batch, Free, Mid, Prod};
    let both = json!({"cpu": "1", "memory": "1Gi"});
    let none = json!({});
    let qos = |qos: &str| json!({"koordinator.sh/qosClass": qos});
    let class = |class: &str| json!({"koordinator.sh/priority-class": class});
    let requests_only = |labels, priority| pod(labels, priority, both.clone(), none.clone());
    let bare = |labels, priority| pod(labels, priority, none.clone(), none.clone());
    let burstable = {
        let mut pod = bare(json!({}), None);
        pod["status"] = json!({"qosClass": "Burstable"});
        pod
    };
    let batch_only = pod(json!({}), None, json!({"kubernetes.io/batch-cpu": "1k"}), none.clone());
    let mut rows = vec![
        ("manager#6.1.U1", pod(json!({}), None, both.clone(), both.clone()), Qos::Lsr, Prod),
        ("manager#6.1.U2", requests_only(json!({}), None), Qos::Ls, Prod),
        ("manager#6.1.U3", bare(json!({}), None), Qos::Be, Batch),
        ("manager#6.1.U3", batch_only, Qos::Be, Batch),
        ("manager#6.1.U4", burstable, Qos::Ls, Prod),
        ("manager#6.1.U5", requests_only(qos("be"), None), Qos::Ls, Prod),
        ("manager#6.1.U6", bare(qos("SYSTEM"), None), Qos::System, Prod),
        ("manager#6.1.U7", bare(class(""), Some(9500)), Qos::Be, Batch),
        ("manager#6.1.U8", bare(class("koord-prod"), Some(5500)), Qos::Be, Prod),
        ("manager#6.1.U9", bare(qos("BE"), Some(9500)), Qos::Be, Prod),
    ];
    for priority in [2999, 4000, 6000, 8999, 10000, 2_000_000_000, -1] {
        rows.push(("manager#6.1.U10", requests_only(json!({}), Some(priority)), Qos::Ls, Prod));
    }
    for (priority, class) in [
        (3000, Free),
        (3999, Free),
        (5000, Batch),
        (5999, Batch),
        (7000, Mid),
        (7999, Mid),
        (9000, Prod),
        (9999, Prod),
    ] {
        rows.push(("manager#6.1.U11", requests_only(json!({}), Some(priority)), Qos::Ls, class));
    }
    for (key, pod, qos, class) in rows {
        let brief = brief(pod.clone());
        assert_eq!((brief.qos, brief.class), (Some(qos), Some(class)), "{key} {pod}");
        assert_eq!(brief.is_high_priority(), matches!(class, Prod | Mid), "{key}");
    }
}

#[test]
fn what_else_is_kept() {
    let brief = brief(json!({
        "metadata": {
            "namespace": "ns", "name": "p", "uid": "u", "deletionTimestamp": "2024-01-01T00:00:00Z",
            "labels": {"quota.scheduling.koordinator.sh/name": "q", "quota.scheduling.koordinator.sh/tree-id": ""},
            "annotations": {
                "scheduling.koordinator.sh/resource-status":
                    r#"{"numaNodeResources":[{"node":3},{"node":1},{"node":3}]}"#,
            },
        },
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Unknown"},
    }));
    assert_eq!(brief.names(), ("ns", "p"));
    assert_eq!(
        (brief.node.as_deref(), brief.quota.as_deref(), brief.quota_tree.as_deref()),
        (Some("n1"), Some("q"), None)
    );
    assert_eq!(*brief.numa_nodes, [1, 3], "manager#26.DB-30");
    assert!(brief.is_deleting && !brief.is_active());
}
