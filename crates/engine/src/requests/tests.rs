//! The spec's table of requests.

use super::*;
use serde_json::{Value, json};

/// `cpu/memory`, either may be empty.
fn container(name: &str, amounts: &str) -> Value {
    let mut requests = serde_json::Map::new();
    let (cpu, memory) = amounts.split_once('/').unwrap_or((amounts, ""));
    for (key, value) in [("cpu", cpu), ("memory", memory)] {
        if !value.is_empty() {
            requests.insert(key.into(), json!(value));
        }
    }
    json!({"name": name, "resources": {"requests": requests}})
}

fn sidecar(name: &str, amounts: &str) -> Value {
    let mut container = container(name, amounts);
    container["restartPolicy"] = json!("Always");
    container
}

fn sums(pod: Value) -> (i64, i64, i64, i64) {
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let mut table = ResourceTable::new();
    let requests = of(&pod, &mut table);
    let get = |id| requests.amounts.get(id);
    (get(ResourceId::CPU), get(ResourceId::MEMORY), requests.nonzero_cpu_milli, requests.nonzero_memory)
}

fn pod(containers: Vec<Value>, init: Vec<Value>) -> Value {
    json!({"spec": {"containers": containers, "initContainers": init}})
}

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

#[test]
fn worked_examples() {
    let with = |mut pod: Value, path: &str, value: Value| {
        pod["spec"][path] = value;
        pod
    };
    let r2 = pod(vec![container("c", "500m")], vec![sidecar("s", "200m"), container("i", "600m")]);
    let limits_only = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}});
    let level = |list: Value| json!({"requests": list});
    for (key, pod, cpu) in [
        (
            "scheduler-core#5.R1",
            pod(vec![container("a", "500m"), container("b", "300m")], vec![container("i", "1")]),
            1000,
        ),
        ("scheduler-core#5.R2", r2.clone(), 800),
        (
            "scheduler-core#5.R3",
            pod(vec![container("c", "500m")], vec![container("i", "600m"), sidecar("s", "200m")]),
            700,
        ),
        ("scheduler-core#5.R4", with(r2, "overhead", json!({"cpu": "250m"})), 1050),
        (
            "scheduler-core#5.R5",
            with(
                with(pod(vec![container("c", "800m")], vec![]), "resources", level(json!({"cpu": "2"}))),
                "overhead",
                json!({"cpu": "100m"}),
            ),
            2100,
        ),
        (
            "scheduler-core#5.R12",
            pod(
                vec![container("c", "100m")],
                vec![
                    sidecar("s1", "200m"),
                    container("i", "500m"),
                    sidecar("s2", "300m"),
                    container("j", "400m"),
                ],
            ),
            900,
        ),
        ("scheduler-core#5.R16", limits_only, 0),
    ] {
        assert_eq!(sums(pod).0, cpu, "{key}");
    }
}

#[test]
fn worked_examples_with_assumed_amounts() {
    let level = |containers, list: Value| {
        let mut pod = pod(containers, vec![]);
        pod["spec"]["resources"] = json!({"requests": list});
        pod
    };
    let none = || container("c", "");
    let overhead = {
        let mut pod = pod(vec![none()], vec![]);
        pod["spec"]["overhead"] = json!({"cpu": "250m", "memory": "120Mi"});
        pod
    };
    for (key, pod, want) in [
        ("scheduler-core#5.R6", pod(vec![none()], vec![]), (0, 0, 100, 200 * MIB)),
        ("scheduler-core#5.R7", pod(vec![container("c", "0/0")], vec![]), (0, 0, 0, 0)),
        (
            "scheduler-core#5.R8",
            pod(vec![container("a", "500m/1Gi"), none()], vec![]),
            (500, GIB, 600, 1283457024),
        ),
        (
            "scheduler-core#5.R9",
            pod(vec![none()], vec![none(), container("j", "50m/100Mi")]),
            (50, 100 * MIB, 100, 200 * MIB),
        ),
        (
            "scheduler-core#5.R10",
            level(vec![container("c", "800m")], json!({"cpu": "2"})),
            (2000, 0, 2000, 200 * MIB),
        ),
        (
            "scheduler-core#5.R11",
            level(vec![none(), container("d", "")], json!({"memory": "1Gi"})),
            (0, GIB, 200, GIB),
        ),
        ("scheduler-core#5.R13", overhead, (250, 120 * MIB, 350, 320 * MIB)),
        ("scheduler-core#5.R14", pod(vec![container("c", "1500u/1500m")], vec![]), (2, 2, 2, 2)),
        (
            "scheduler-core#5.R15",
            pod(vec![none()], vec![sidecar("s", ""), container("i", "100m")]),
            (100, 0, 200, 400 * MIB),
        ),
    ] {
        assert_eq!(sums(pod), want, "{key}");
    }
    let r12 = pod(
        vec![container("c", "100m")],
        vec![sidecar("s1", "200m"), container("i", "500m"), sidecar("s2", "300m"), container("j", "400m")],
    );
    assert_eq!(sums(r12).3, 600 * MIB, "scheduler-core#5.R12");
}

/// Found beside kube-scheduler 1.35.4, whose NodeResourcesFit does not look at the pod as a whole when it scores.
#[test]
fn amounts_for_the_whole_pod_do_not_count_when_it_is_scored() {
    let mut whole = pod(vec![container("c", "800m"), container("d", "")], vec![]);
    whole["spec"]["resources"] = json!({"requests": {"cpu": "2", "memory": "1Gi"}});
    whole["spec"]["overhead"] = json!({"cpu": "250m"});
    let requests = of(&serde_json::from_value(whole).unwrap(), &mut ResourceTable::default());
    assert_eq!((requests.nonzero_cpu_milli, requests.nonzero_memory), (2250, GIB));
    assert_eq!((requests.scored_cpu_milli, requests.scored_memory), (1150, 400 * MIB));

    // Nothing is assumed of a container when another names the resource.
    let mut some = pod(vec![container("c", "50m"), container("d", "")], vec![]);
    some["spec"]["resources"] = json!({"requests": {"memory": "1Gi"}});
    assert_eq!(sums(some), (50, GIB, 50, GIB));
}

#[test]
fn resizes_count_what_is_held() {
    let resized = |spec: &str, actual: &str, allocated: &str, reason: &str| {
        let mut pod = pod(vec![container("c", spec)], vec![]);
        pod["spec"]["nodeName"] = json!("n");
        pod["status"] = json!({
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": actual}}, "allocatedResources": {"cpu": allocated}}],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        });
        sums(pod).0
    };
    for (key, got, want) in [
        ("scheduler-core#5.R17", resized("1", "2", "1500m", ""), 2000),
        ("scheduler-core#5.R18", resized("4", "2", "1", "Infeasible"), 2000),
        ("scheduler-core#5.R18 deferred", resized("4", "2", "1", "Deferred"), 4000),
        ("scheduler-core#5.R19", resized("1", "2", "3", "Infeasible"), 3000),
    ] {
        assert_eq!(got, want, "{key}");
    }
}
