//! How long explanations take at 5,000 nodes with 50,000 pods, thousands of them waiting.
//!
//! `cargo run --release -p koord-engine --example explain_rate` prints each and its bar of 200 ms, and ends with 1
//! when one takes longer.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use koord_engine::Engine;
use koord_engine::engine::{Input, Options};
use koord_engine::profile::Profile;
use koord_engine::time::Time;
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS: usize = 50_000;
const WAITING: usize = 4_000;
const BAR: Duration = Duration::from_millis(200);

fn take(engine: &mut Engine, kind: &str, object: Value) {
    let input = serde_json::from_value::<Input>(json!({"type": kind, "object": object}));
    engine.take(Time::from_seconds(1_700_000_000), input.expect("objects of our own making"));
}

fn node(index: usize) -> Value {
    let (name, zone) = (format!("node-{index:05}"), format!("zone-{}", index % 10));
    let mut taints = Vec::new();
    if index.is_multiple_of(20) {
        taints.push(
            json!({"key": "dedicated", "value": format!("team-{}", index % 3), "effect": "NoSchedule"}),
        );
    }
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone,
            "disk": if index.is_multiple_of(4) { "ssd" } else { "hdd" }}},
        "spec": {"taints": taints, "unschedulable": index % 100 == 7},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
    })
}

fn pod(name: &str, cpu: &str, memory: &str, node: &str) -> Value {
    let app = name.rsplit_once('-').map_or(name, |(app, _)| app);
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// Pods that fit nowhere, for several reasons, hardly two alike.
fn waiting(index: usize) -> Value {
    let name = format!("waiting-{index}");
    let mut pod = pod(&name, &format!("{}m", 9_000 + index), "2Gi", "");
    let selector = json!({"matchLabels": {"app": "web"}});
    match index % 5 {
        0 => {}
        1 => pod["spec"]["nodeSelector"] = json!({"disk": "nvme"}),
        2 => {
            pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
        }
        3 => {
            pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"topologyKey": "topology.kubernetes.io/zone", "labelSelector": selector}]);
        }
        _ => pod["spec"]["priority"] = json!(10),
    }
    pod
}

fn main() -> ExitCode {
    let mut engine = Engine::new(&Options::new(vec![Profile::standard("default-scheduler")]))
        .expect("the standard profile is right");
    let now = Time::from_seconds(1_700_000_000);
    (0..NODES).for_each(|index| take(&mut engine, "node", node(index)));
    for index in 0..PODS {
        let app = ["web", "db", "cache", "batch"][index % 4];
        let node = format!("node-{:05}", index % NODES);
        take(&mut engine, "pod", pod(&format!("{app}-{index}"), "1", "4Gi", &node));
    }
    (0..WAITING).for_each(|index| take(&mut engine, "pod", waiting(index)));
    // Each is tried once, so that the queue knows why it waits.
    while engine.step(now).is_some() {
        engine.take_commands();
    }
    let mut is_short = true;
    let mut out = io::stdout().lock();
    let mut tell = |what: &str, took: Duration| {
        is_short &= took <= BAR;
        let verdict = if took <= BAR { "ok" } else { "too long" };
        // A reader that went away is not an error.
        let _ = writeln!(
            out,
            "{what:<48}{:>9.1} ms  (at most {} ms) {verdict}",
            took.as_secs_f64() * 1e3,
            BAR.as_millis()
        );
    };
    for (index, what) in
        ["lacks cpu", "node selector", "spread over nodes", "anti-affinity over zones", "may preempt"]
            .iter()
            .enumerate()
    {
        let start = Instant::now();
        let explanation = engine.explain(now, "default", &format!("waiting-{index}"));
        let took = start.elapsed();
        assert!(explanation.is_some_and(|explanation| explanation.message.is_some()), "{what}");
        tell(&format!("a pod that waits: {what}"), took);
    }
    let start = Instant::now();
    let explanation = engine.explain(now, "default", "web-0");
    tell("a pod that is bound", start.elapsed());
    assert!(explanation.is_some());
    let start = Instant::now();
    let report = engine.explain_pending(now);
    tell(&format!("{} pods that wait, {} groups", report.pods, report.groups.len()), start.elapsed());
    if is_short { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
