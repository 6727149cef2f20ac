//! Nodes that are too busy, as users read it.

use super::*;
use crate::explain::Lack;
use crate::profile::expand::Enabled;
use crate::profile::point::Point;

fn lab() -> Lab {
    let mut profile = Profile::standard("default-scheduler");
    profile.points[Point::Filter].push(Enabled { plugin: "LoadAwareScheduling", weight: 1 });
    Lab::with(profile)
}

fn measure(lab: &mut Lab, node: &str, cpu: &str) {
    let updated = lab.now.to_string();
    let object = json!({"metadata": {"name": node}, "status": {"updateTime": updated,
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}}}});
    lab.take(serde_json::from_value(json!({"type": "nodeMetric", "object": object})).unwrap());
}

#[test]
fn busy_nodes_in_words_and_numbers() {
    let mut lab = lab();
    lab.node(&node("n1", json!({})));
    lab.node(&node("n2", json!({})));
    measure(&mut lab, "n1", "6240m");
    measure(&mut lab, "n2", "7");
    // 840m are expected of each, and nobody has seen any of them.
    for name in ["a", "b", "c"] {
        lab.pod(&pod(name, "823m", "n1", json!({})));
    }
    lab.wait(12);
    lab.pod(&pod("x", "1", "", json!({})));
    lab.settle();
    let explanation = lab.explain("x");
    let text = explanation.to_text();
    let wanted = "\
Pod default/x waits: both nodes are too busy (n2: node at 88 % CPU (threshold 65 %), measured 12 s ago; with this pod 98 %).
  0/2 nodes are available: 2 node(s) cpu usage exceed threshold. no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.
Cheapest change: add a node like n2.
Nearest nodes:
  n2            node(s) cpu usage exceed threshold: node at 88 % CPU (threshold 65 %), measured 12 s ago; with this pod 98 %
  n1            node(s) cpu usage exceed threshold: node at 78 % CPU (threshold 65 %), measured 12 s ago, plus 3 pods in flight estimated at 2.1 cores; with this pod 115 %
";
    assert!(text.starts_with(wanted), "{text}");
    assert!(text.contains("a node tells its load anew (LoadAwareScheduling)"), "{text}");
    let Some(Lack::Load(lack)) = &explanation.nearest[1].checks[0].lack else { panic!("{explanation:?}") };
    assert_eq!(
        serde_json::to_value(lack).unwrap(),
        json!({"resource": "cpu", "usedPercent": 78, "thresholdPercent": 65, "expectedPercent": 115,
            "used": "6.24", "allocatable": "8", "measuredAt": "2023-11-14T22:13:20Z", "ageSeconds": 12,
            "podsInFlight": 3, "inFlight": "2.1", "wanted": "850m"})
    );
    lab.wait(200);
    let text = lab.explain("x").to_text();
    assert!(text.contains("both nodes have not said lately how busy they are"), "{text}");
    assert!(text.contains("what is known of its load was measured 212 s ago"), "{text}");
}
