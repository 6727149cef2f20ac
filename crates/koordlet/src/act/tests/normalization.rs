//! Quotas on CPUs that are faster than others, moved by burst and by the hook. Spec: koordlet-enforce 15.4.

use super::*;

const RATIO: &str = "node.koordinator.sh/cpu-normalization-ratio";

fn world(version: Version, line: &str) -> World {
    let web = pod("web").qos("LS").kube_qos("Burstable");
    let web = web.container("a", &[], &[("cpu", "2")]).container("b", &[], &[("cpu", "1")]).running();
    World::new(version, &format!("-feature-gates=CPUNormalization=true,{line}"), json!({}), vec![web.read()])
}

impl World {
    fn quota_files(&self) -> [String; 3] {
        let (controller, file) = match self.act.setting.version() {
            Version::V1 => ("cpu/", "cpu.cfs_quota_us"),
            Version::V2 => ("", "cpu.max"),
        };
        ["", "/web-a", "/web-b"].map(|dir| format!("{controller}kubepods/burstable/podweb{dir}/{file}"))
    }

    fn put_quotas(&self, quotas: [&str; 3]) {
        let period = if self.act.setting.version() == Version::V2 { " 100000" } else { "" };
        for (file, quota) in self.quota_files().iter().zip(quotas) {
            self.put(file, &format!("{quota}{period}"));
        }
    }

    fn quotas(&self) -> [String; 3] {
        self.quota_files().map(|file| self.get(&file).split(' ').next().unwrap_or_default().to_owned())
    }

    /// A second after which files show what the kernel shows: with cgroup v2 a period behind each quota.
    fn kernel_second(&mut self) {
        self.second();
        self.put_quotas(self.quotas().each_ref().map(String::as_str));
    }

    fn see_ratio(&mut self, ratio: Option<&str>) {
        let amounts = [("cpu", "8"), ("memory", "16Gi")];
        let sketch = node(&amounts, &amounts);
        let sketch = ratio.into_iter().fold(sketch, |node, ratio| node.annotated(RATIO, ratio));
        self.snapshot.node = Some(Arc::new(NodeState { node: sketch.read(), ..NodeState::default() }));
        self.news.node_metadata = true;
    }
}

/// Kubelet gives a new container what its limit says, and its pod nothing. With cgroup v1 the kernel refuses it more than
/// its pod has: there pods are not scaled, or no container could begin anew.
#[test]
fn containers_that_begin_anew_leave_their_pods_quota() {
    for (version, pod) in [(Version::V1, "300000"), (Version::V2, "230770")] {
        let mut world = world(version, "");
        world.see_ratio(Some("1.3"));
        world.put_quotas(["300000", "200000", "100000"]);
        for round in 0..4 {
            world.kernel_second();
            world.kernel_second();
            assert_eq!(world.quotas(), [pod, "153847", "76924"], "{version:?}: {round}");
            world.put_quotas([pod, "200000", "76924"]);
        }
        world.put_quotas(["300000", "153847", "76924"]);
        world.kernel_second();
        assert_eq!(world.quotas(), [pod, "153847", "76924"], "{version:?}: containers came scaled");
        world.put_quotas(["230770", "153847", "76924"]);
        world.kernel_second();
        assert_eq!(world.quotas(), [pod, "153847", "76924"], "{version:?}: an earlier run scaled the pod");
        world.see_ratio(None);
        world.kernel_second();
        assert_eq!(world.quotas(), ["300000", "200000", "100000"], "{version:?}");
    }
}

/// Once, and not before it is known that there is none.
#[test]
fn a_ratio_that_went_while_nobody_looked_leaves_no_scaled_quotas() {
    let scaled = ["230770", "153847", "76924"];
    let mut world = world(Version::V1, "CPUBurst=false");
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
