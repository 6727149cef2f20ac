//! Lists of everything: of amounts, and of identities.

use super::*;
use koord_engine::engine::Options;
use koord_engine::profile::Profile;

/// A node with a pod, and a pod that waits.
fn engine() -> Engine {
    let mut engine = Engine::new(&Options::new(vec![Profile::standard("s")])).unwrap();
    let resources = json!({"requests": {"cpu": "1500m", "memory": "1Gi", "example.com/x": "2"},
        "limits": {"cpu": "2"}});
    for input in [
        json!({"type": "node", "object": {"metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}}),
        json!({"type": "pod", "object": {"metadata": {"name": "a", "namespace": "d", "uid": "u-a",
            "resourceVersion": "7"}, "spec": {"nodeName": "n1", "schedulerName": "s", "priority": 9,
            "overhead": {"cpu": "250m", "memory": "1Ki"}, "containers": [{"name": "c", "resources": resources}]}}}),
        json!({"type": "pod", "object": {"metadata": {"name": "b", "namespace": "d", "uid": "u-b",
            "resourceVersion": "8"}, "spec": {"schedulerName": "other",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}),
    ] {
        engine.take(Time::from_seconds(1_700_000_000), serde_json::from_value(input).unwrap());
    }
    engine
}

#[test]
fn requests_and_limits_of_every_pod_are_shown() {
    let page = resources(&engine());
    let line = |what: &str, pod: &str, node: &str, scheduler: &str, priority: i32, rest: &str| {
        format!(
            "kube_pod_resource_{what}{{namespace=\"d\",pod=\"{pod}\",node=\"{node}\",scheduler=\"{scheduler}\",\
             priority=\"{priority}\",{rest}"
        )
    };
    let mut found: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
    found.sort_unstable();
    let mut want = vec![
        line("request", "a", "n1", "s", 9, "resource=\"cpu\",unit=\"cores\"} 1.75"),
        line("request", "a", "n1", "s", 9, "resource=\"memory\",unit=\"bytes\"} 1073742848"),
        line("request", "a", "n1", "s", 9, "resource=\"example.com/x\",unit=\"\"} 2"),
        line("limit", "a", "n1", "s", 9, "resource=\"cpu\",unit=\"cores\"} 2.25"),
        line("request", "b", "", "other", 0, "resource=\"cpu\",unit=\"cores\"} 1"),
    ];
    want.sort_unstable();
    assert_eq!(found, want);
}

#[test]
fn a_census_names_everything() {
    let engine = engine();
    let want = json!({"nodes": {"n1": "n1"}, "pods": {"u-a": "d/a", "u-b": "d/b"}, "sumsAreRight": true});
    assert_eq!(census(&engine), want);
    assert_eq!(engine.revision_of("d", "b"), Some("8"));
    assert_eq!(engine.revision_of("d", "c"), None);
}
