//! Quotas on CPUs that are faster than others, moved by burst and by the hook. Spec: koordlet-enforce 15.4.

use super::*;

const POD: &str = "cpu/kubepods/burstable/podweb";
const RATIO: &str = "node.koordinator.sh/cpu-normalization-ratio";

fn world(line: &str) -> World {
    let web = pod("web").qos("LS").kube_qos("Burstable");
    let web = web.container("a", &[], &[("cpu", "2")]).container("b", &[], &[("cpu", "1")]).running();
    World::new(
        Version::V1,
        &format!("-feature-gates=CPUNormalization=true,{line}"),
        json!({}),
        vec![web.read()],
    )
}

impl World {
    fn put_quotas(&self, quotas: [&str; 3]) {
        for (dir, quota) in ["", "/web-a", "/web-b"].into_iter().zip(quotas) {
            self.put(&format!("{POD}{dir}/cpu.cfs_quota_us"), quota);
        }
    }

    fn quotas(&self) -> [String; 3] {
        ["", "/web-a", "/web-b"].map(|dir| self.get(&format!("{POD}{dir}/cpu.cfs_quota_us")))
    }

    fn see_ratio(&mut self, ratio: Option<&str>) {
        let amounts = [("cpu", "8"), ("memory", "16Gi")];
        let sketch = node(&amounts, &amounts);
        let sketch = ratio.into_iter().fold(sketch, |node, ratio| node.annotated(RATIO, ratio));
        self.snapshot.node = Some(Arc::new(NodeState { node: sketch.read(), ..NodeState::default() }));
        self.news.node_metadata = true;
    }
}

/// Kubelet gives a new container what its limit says, and its pod nothing.
#[test]
fn containers_that_begin_anew_leave_their_pods_quota() {
    let mut world = world("");
    world.see_ratio(Some("1.3"));
    world.put_quotas(["300000", "200000", "100000"]);
    for round in 0..4 {
        world.second();
        world.second();
        assert_eq!(world.quotas(), ["230770", "153847", "76924"], "{round}");
        world.put(&format!("{POD}/web-a/cpu.cfs_quota_us"), "200000");
    }
    world.put_quotas(["300000", "153847", "76924"]);
    world.second();
    assert_eq!(world.quotas(), ["230770", "153847", "76924"], "a runtime was asked to scale containers");
    world.see_ratio(None);
    world.second();
    assert_eq!(world.quotas(), ["300000", "200000", "100000"]);
}

/// Once, and not before it is known that there is none.
#[test]
fn a_ratio_that_went_while_nobody_looked_leaves_no_scaled_quotas() {
    let scaled = ["230770", "153847", "76924"];
    let mut world = world("CPUBurst=false");
    world.put_quotas(scaled);
    world.snapshot.node = None;
    world.second();
    assert_eq!(world.quotas(), scaled, "the Node is not known");
    world.see_ratio(Some("fast"));
    world.second();
    assert_eq!(world.quotas(), scaled, "its annotation cannot be read");
    let pods = std::mem::take(&mut world.pods);
    world.see_ratio(None);
    world.turn_with_pods();
    world.pods = pods;
    world.turn_with_pods();
    assert_eq!(world.quotas(), ["300000", "200000", "100000"]);
    world.put_quotas(["-1", "-1", "50000"]);
    for _ in 0..75 {
        world.second();
    }
    assert_eq!(world.quotas(), ["-1", "-1", "50000"], "what others do is their business");
}
