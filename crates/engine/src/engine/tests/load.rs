//! Nodes that are too busy, and how pods get past them.

use super::*;
use crate::profile::expand::Enabled;
use crate::profile::point::Point;

fn lab(change: impl FnOnce(&mut crate::profile::args::LoadAwareSchedulingArgs)) -> Lab {
    let mut profile = Profile::standard("s");
    for point in [Point::Filter, Point::Score] {
        profile.points[point].push(Enabled { plugin: "LoadAwareScheduling", weight: 1 });
    }
    change(&mut profile.args.load_aware_scheduling);
    Lab::with(Engine::new(&Options::new(vec![profile])).unwrap())
}

fn measure(lab: &mut Lab, node: &str, cpu: &str) {
    let updated = lab.now.to_string();
    lab.take(
        json!({"type": "nodeMetric", "object": {"metadata": {"name": node}, "status": {"updateTime": updated,
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}}}}}),
    );
}

fn refused(lab: &mut Lab) -> String {
    match lab.step() {
        Some(Verdict::Unschedulable { message }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hot_node_is_avoided_and_what_was_placed_lately_counts() {
    let mut lab = lab(|_| {});
    for (node, used) in [("hot", "9"), ("warm", "4"), ("cool", "1")] {
        lab.node(node, "10");
        measure(&mut lab, node, used);
    }
    let mut places = Vec::new();
    for name in ["a", "b", "c", "d"] {
        lab.add(name, "3", json!({}));
        match lab.step().unwrap() {
            Verdict::Scheduled { node } => places.push(node.to_string()),
            other => places.push(format!("{other:?}").split(' ').next().unwrap().to_owned()),
        }
    }
    // 2550m of each are expected: cool goes to 36 %, then 61 %; warm would be at 66 %.
    assert_eq!(places, ["cool", "cool", "Unschedulable", "Unschedulable"]);
}

#[test]
fn a_pod_waits_until_the_node_cools_down() {
    let mut lab = lab(|_| {});
    lab.node("n", "10");
    measure(&mut lab, "n", "9");
    lab.add("p", "1", json!({}));
    let message = refused(&mut lab);
    assert!(
        message.starts_with("0/1 nodes are available: 1 node(s) cpu usage exceed threshold."),
        "{message}"
    );
    lab.tick(60);
    measure(&mut lab, "n", "8");
    assert_eq!(lab.step(), None, "still too hot, so nobody is woken");
    measure(&mut lab, "n", "1");
    lab.tick(10);
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n".into() }));
}

#[test]
fn a_measurement_that_runs_out_closes_a_node_or_opens_it() {
    let mut closes = lab(|_| {});
    closes.node("n", "10");
    measure(&mut closes, "n", "1");
    closes.tick(180);
    closes.add("p", "1", json!({}));
    let message = refused(&mut closes);
    assert!(message.starts_with("0/1 nodes are available: 1 node(s) nodeMetric expired."), "{message}");

    let mut opens = lab(|args| args.enable_schedule_when_node_metrics_expired = true);
    opens.node("n", "10");
    measure(&mut opens, "n", "9");
    opens.add("p", "1", json!({}));
    refused(&mut opens);
    opens.tick(30);
    let end = opens.now + std::time::Duration::from_secs(150);
    assert_eq!(opens.engine.cluster().next_opening(), Some(end));
    assert!(opens.engine.wake_at(opens.now).is_some_and(|at| at <= end), "somebody waits for it");
    opens.tick(149);
    assert_eq!(opens.step(), None);
    opens.tick(1);
    assert_eq!(opens.step(), Some(Verdict::Scheduled { node: "n".into() }));
}

#[test]
fn preemption_does_not_cool_a_node() {
    let mut lab = lab(|_| {});
    lab.node("n", "10");
    lab.add("low", "9", json!({"spec": {"nodeName": "n"}}));
    measure(&mut lab, "n", "9");
    lab.add("high", "9", json!({"spec": {"priority": 1000}}));
    let message = refused(&mut lab);
    assert!(message.contains("Insufficient cpu"), "{message}");
    assert!(!lab.said().iter().any(|said| said.starts_with("preempt")), "nobody has to go for nothing");
}
