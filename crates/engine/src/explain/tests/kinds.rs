//! Every kind of reason and change, as users read it.

use super::*;

fn selector(labels: Value) -> Value {
    json!({"labelSelector": {"matchLabels": labels}})
}

fn spread(key: &str, app: &str) -> Value {
    let mut constraint = selector(json!({"app": app}));
    merge(&mut constraint, json!({"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}));
    json!({"metadata": {"labels": {"app": app}}, "spec": {"topologySpreadConstraints": [constraint]}})
}

fn near(kind: &str, key: &str, app: &str) -> Value {
    let mut term = selector(json!({"app": app}));
    term["topologyKey"] = json!(key);
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
}

fn port(port: u16) -> Value {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": port, "hostPort": port}]});
    json!({"spec": {"containers": [container]}})
}

fn taint(key: &str, value: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]}})
}

fn cases() -> Vec<(&'static str, Lab)> {
    let plain = || json!({});
    vec![
        (
            "a little too large",
            Lab::of(
                &[node("n1", plain()), node("n2", plain())],
                &[
                    pod(
                        "a",
                        "5500m",
                        "n1",
                        json!({"metadata": {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop", "uid": "1", "controller": true}]}}),
                    ),
                    pod("b", "2", "n2", plain()),
                    pod("c", "5", "n2", plain()),
                    pod("x", "3", "", plain()),
                ],
            ),
        ),
        (
            "larger than any node",
            Lab::of(
                &[node("n1", plain()), node("n2", json!({"status": {"allocatable": {"cpu": "16"}}}))],
                &[pod("x", "20", "", plain())],
            ),
        ),
        (
            "a resource that nobody has",
            Lab::of(
                &[node("n1", plain())],
                &[pod(
                    "x",
                    "1",
                    "",
                    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "2"}}}]}}),
                )],
            ),
        ),
        (
            "tainted",
            Lab::of(
                &[
                    node("n1", taint("dedicated", "gpu")),
                    node("n2", taint("dedicated", "gpu")),
                    node("n3", taint("team", "a")),
                ],
                &[pod("x", "1", "", plain())],
            ),
        ),
        (
            "cordoned",
            Lab::of(
                &[node(
                    "n1",
                    json!({"spec": {"unschedulable": true, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}}),
                )],
                &[pod("x", "1", "", plain())],
            ),
        ),
        (
            "selector",
            Lab::of(
                &[node("n1", zone("a")), node("n2", zone("b"))],
                &[pod("x", "1", "", json!({"spec": {"nodeSelector": {"disk": "ssd", "zone": "b"}}}))],
            ),
        ),
        (
            "node affinity",
            Lab::of(
                &[node("n1", zone("a"))],
                &[pod(
                    "x",
                    "1",
                    "",
                    json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}, {"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}}}}}),
                )],
            ),
        ),
        (
            "spread",
            Lab::of(
                &[
                    node("n1", zone("a")),
                    node(
                        "n2",
                        json!({"metadata": {"labels": {"zone": "b"}}, "spec": {"unschedulable": true}}),
                    ),
                ],
                &[pod("w1", "1", "n1", app("web")), pod("x", "1", "", spread("zone", "web"))],
            ),
        ),
        (
            "affinity",
            Lab::of(&[node("n1", zone("a"))], &[pod("x", "1", "", near("podAffinity", "zone", "db"))]),
        ),
        (
            "anti-affinity",
            Lab::of(
                &[node("n1", plain()), node("n2", plain())],
                &[
                    pod("w1", "1", "n1", app("web")),
                    pod("w2", "1", "n2", app("web")),
                    pod("x", "1", "", near("podAntiAffinity", "kubernetes.io/hostname", "web")),
                ],
            ),
        ),
        (
            "somebody who wants to be alone",
            Lab::of(
                &[node("n1", plain())],
                &[
                    pod("king", "1", "n1", near("podAntiAffinity", "kubernetes.io/hostname", "web")),
                    pod("x", "1", "", app("web")),
                ],
            ),
        ),
        (
            "port",
            Lab::of(
                &[node("n1", plain())],
                &[pod("proxy", "1", "n1", port(8080)), pod("x", "1", "", port(8080))],
            ),
        ),
        (
            "full of pods",
            Lab::of(
                &[node("n1", json!({"status": {"allocatable": {"pods": "1"}}}))],
                &[pod("a", "1", "n1", plain()), pod("x", "1", "", plain())],
            ),
        ),
        (
            "somebody leaves",
            Lab::of(
                &[node("n1", plain())],
                &[
                    pod("old", "6", "n1", json!({"metadata": {"deletionTimestamp": "2023-11-14T22:00:00Z"}})),
                    pod("x", "4", "", plain()),
                ],
            ),
        ),
        (
            "several at once",
            Lab::of(
                &[node("n1", taint("dedicated", "gpu")), node("n2", zone("a"))],
                &[
                    pod("a", "7", "n1", plain()),
                    pod("b", "7", "n2", plain()),
                    pod("x", "4", "", json!({"spec": {"nodeSelector": {"zone": "b"}}})),
                ],
            ),
        ),
        ("no nodes", Lab::of(&[], &[pod("x", "1", "", plain())])),
        (
            "gated",
            Lab::of(
                &[node("n1", plain())],
                &[pod("x", "1", "", json!({"spec": {"schedulingGates": [{"name": "example.com/quota"}]}}))],
            ),
        ),
    ]
}

/// Renewed by `RENEW_GOLDEN=1 cargo test -p koord-engine explanations_read_well`; the difference is for review.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/explain/tests/golden.txt");

#[test]
fn explanations_read_well() {
    let mut text = String::new();
    for (name, mut lab) in cases() {
        lab.settle();
        lab.wait(125);
        lab.settle();
        let mut explanation = lab.explain("x");
        let data = serde_json::to_value(&explanation).unwrap();
        assert_eq!(serde_json::from_value::<Explanation>(data).unwrap(), explanation, "{name}");
        // Which events wake a pod is each plugin's own affair.
        explanation.wakes.clear();
        text.push_str(&format!("### {name}\n{}\n", explanation.to_text()));
    }
    if std::env::var_os("RENEW_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let known = std::fs::read_to_string(GOLDEN).unwrap();
    assert!(text == known, "explanations read differently now:\n{text}");
}
