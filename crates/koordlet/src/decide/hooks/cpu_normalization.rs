//! CPU normalization: quotas on CPUs that are faster than the cluster's slowest. Spec: koordlet-enforce 15.4.

use std::fmt;

use koord_api::annotation::ratio::{CpuNormalizationRatio, Ratio};
use koord_api::keys::resource::CPU;
use koord_api::qos::Qos;

use super::number;
use crate::decide::convert::{UNLIMITED, quota, scaled_quota};
use crate::decide::snapshot::{Container, Node, Pod, milli};
use crate::decide::wish::{Batch, File, Place, Value, Why, Wish};

/// Whether a pod's quota is scaled: LS pods, and pods of no class that are not pinned.
pub fn applies(pod: &Pod) -> bool {
    pod.qos == Some(Qos::Ls) || (pod.qos.is_none() && !pod.is_pinned())
}

/// What quotas are scaled by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    pub pods: Option<Ratio>,
    pub containers: Option<Ratio>,
}

impl Ratios {
    /// Differs: where a container cannot have more than its pod, as with cgroup v1, pods keep what their limits say.
    /// Kubelet begins containers with the whole quota of theirs, and could not.
    pub fn new(ratio: Option<Ratio>, can_exceed_pod: bool) -> Ratios {
        Ratios { pods: ratio.filter(|_| can_exceed_pod), containers: ratio }
    }
}

/// The ratio that quotas were last scaled by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    pub ratio: Option<Ratio>,
    /// Whether a node was read at all: no ratio means nothing before.
    pub is_known: bool,
}

/// What a look at the node brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum News {
    Same,
    /// Quotas are to be written anew; by no ratio they are what the limits say.
    Changed(Option<Ratio>),
}

impl Memory {
    /// Takes the ratio of a node. One that cannot be read, or differs by a hundredth at most, changes nothing.
    ///
    /// Differs: when the ratio goes away quotas are restored, where upstream leaves them scaled (item 29).
    pub fn take(&mut self, node: &Node) -> Result<News, String> {
        let ratio = match &node.cpu_normalization {
            Some(Err(error)) => return Err(error.clone()),
            Some(Ok(CpuNormalizationRatio(ratio))) => Some(*ratio),
            None => None,
        };
        self.is_known = true;
        let is_same = match (self.ratio, ratio) {
            (Some(old), Some(new)) => !old.differs(new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if is_same {
            return Ok(News::Same);
        }
        self.ratio = ratio;
        Ok(News::Changed(ratio))
    }
}

/// What a container's limit says; -1 without one.
pub fn container_quota(container: &Container) -> i64 {
    milli(&container.limits, CPU).map_or(UNLIMITED, quota)
}

/// What a pod's limits say together; -1 when a container has none.
pub fn pod_quota(pod: &Pod) -> i64 {
    let mut sum = 0_i64;
    for container in &pod.containers {
        match milli(&container.limits, CPU) {
            Some(limit) if limit > 0 => sum = sum.saturating_add(limit),
            _ => return UNLIMITED,
        }
    }
    quota(sum)
}

/// Whose quotas are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    All,
    /// Those that CPU burst does not move: of init containers, and of whole pods that are pinned where it leaves them out.
    BesideBurst {
        is_pinned_left_out: bool,
    },
}

/// Quotas of pods under ratios, pods above their containers.
pub fn wishes(pods: &[Pod], ratios: Ratios, whose: Whose) -> Batch {
    Batch::Levels(levels(pods, ratios, whose).into())
}

/// Quotas that an earlier run left scaled: those below what limits say. `held` tells what a group has, -1 for none.
///
/// Differs: a ratio that went while nobody looked is noticed, too (item 29).
pub fn left_scaled(pods: &[Pod], held: impl Fn(&Place) -> Option<i64>) -> Batch {
    let mut levels = levels(pods, Ratios::default(), Whose::All);
    for level in &mut levels {
        level.retain(|wish| match (&wish.value, held(&wish.place)) {
            (Value::Number(whole), Some(held)) => (1..*whole).contains(&held),
            _ => false,
        });
    }
    Batch::Levels(levels.into())
}

fn levels(pods: &[Pod], ratios: Ratios, whose: Whose) -> [Vec<Wish>; 2] {
    let (mut of_pods, mut of_containers) = (Vec::new(), Vec::new());
    for pod in pods.iter().filter(|pod| pod.is_active() && applies(pod)) {
        let is_whole = match whose {
            Whose::All => true,
            Whose::BesideBurst { is_pinned_left_out } => is_pinned_left_out && pod.is_pinned(),
        };
        let whole = pod_quota(pod);
        if is_whole && whole > 0 {
            of_pods.push(scaled(pod.place(), whole, ratios.pods));
        }
        let containers = pod.containers.iter().filter(|_| is_whole);
        for container in containers.chain(pod.running_init_containers()).filter(|_| !pod.is_kata) {
            let own = container_quota(container);
            if let Some(place) = container.place(pod).filter(|_| own > 0) {
                of_containers.push(scaled(place, own, ratios.containers));
            }
        }
    }
    [of_pods, of_containers]
}

fn scaled(place: Place, quota: i64, ratio: Option<Ratio>) -> Wish {
    let why = Why::Normalization(Scaling { quota, ratio });
    number(place, File::CpuCfsQuota, scaled_quota(quota, ratio)).because(&why)
}

/// What a quota follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// What the limits say.
    pub quota: i64,
    pub ratio: Option<Ratio>,
}

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limits give {}, ", self.quota)?;
        match self.ratio {
            Some(ratio) => write!(f, "CPU ratio {ratio}"),
            None => f.write_str("no CPU ratio"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::sketch::{node, pod};

    const RATIO: &str = "node.koordinator.sh/cpu-normalization-ratio";

    fn with_ratio(text: &str) -> Node {
        node(&[], &[]).annotated(RATIO, text).read()
    }

    #[test]
    fn small_changes_are_ignored() {
        let mut memory = Memory::default();
        let mut applied = |text: &str| memory.take(&with_ratio(text)).unwrap() != News::Same;
        let got = ["2.0", "2.009", "2.01", "2.02"].map(&mut applied);
        assert_eq!(got, [true, false, false, true], "koordlet-enforce#18.207");
        assert_eq!(memory.take(&with_ratio("0")).unwrap_err(), "illegal cpu normalization ratio: 0");
        let error = memory.take(&with_ratio("x")).unwrap_err();
        assert!(error.starts_with("parse cpu normalization ratio failed, err: "), "{error}");
        assert_eq!(memory.ratio, Ratio::new(2.02), "the old one stays");
    }

    #[test]
    fn quotas() {
        let pods = [pod("p")
            .qos("LS")
            .container("a", &[], &[("cpu", "2")])
            .container("b", &[], &[("cpu", "1")])
            .running()
            .read()];
        let mut memory = Memory::default();
        let mut written = |node: &Node| -> Vec<String> {
            let News::Changed(ratio) = memory.take(node).unwrap() else { panic!("no change") };
            wishes(&pods, Ratios::new(ratio, true), Whose::All)
                .wishes()
                .map(|wish| wish.value.to_string())
                .collect()
        };
        for (ratio, want) in [
            ("1.2", ["250000", "166667", "83334"]),
            ("1.5", ["200000", "133334", "66667"]),
            ("1.0", ["300000", "200000", "100000"]),
            ("1.3", ["230770", "153847", "76924"]),
        ] {
            assert_eq!(written(&with_ratio(ratio)), want, "koordlet-enforce#18.208");
        }
        let without = node(&[], &[]).read();
        assert_eq!(written(&without), ["300000", "200000", "100000"], "koordlet-enforce#18.209");
        assert_eq!(memory.take(&without), Ok(News::Same));
    }

    /// What is taken off, raised, or as limits say was not scaled by anybody.
    #[test]
    fn quotas_that_were_left_scaled() {
        let limits = [("cpu", "1")];
        let names = ["scaled", "unset", "raised", "right", "unknown"];
        let sketch = names.iter().fold(pod("p").qos("LS"), |pod, name| pod.container(name, &[], &limits));
        let held = |place: &Place| match place {
            Place::Container(_, id) => match id.trim_start_matches("containerd://p-") {
                "scaled" => Some(76_924),
                "unset" => Some(UNLIMITED),
                "raised" => Some(120_000),
                "right" => Some(100_000),
                _ => None,
            },
            _ => Some(384_616),
        };
        let batch = left_scaled(&[sketch.running().read()], held);
        let told: Vec<String> = batch.wishes().map(|wish| wish.audit_message(None)).collect();
        let want = [500_000, 100_000]
            .map(|quota| format!("update cpu.cfs_quota_us to {quota}; limits give {quota}, no CPU ratio"));
        assert_eq!(told, want);
    }

    #[test]
    fn numbers_are_told() {
        let pods = [pod("p").qos("LS").container("a", &[], &[("cpu", "2")]).read()];
        for (ratio, want) in [
            (Ratio::new(1.25), "update cpu.cfs_quota_us to 160000; limits give 200000, CPU ratio 1.25"),
            (None, "update cpu.cfs_quota_us to 200000; limits give 200000, no CPU ratio"),
        ] {
            let told: Vec<String> = wishes(&pods, Ratios::new(ratio, true), Whose::All)
                .wishes()
                .map(|wish| wish.audit_message(None))
                .collect();
            assert_eq!(told, [want]);
        }
    }

    #[test]
    fn who_is_scaled() {
        let is = |sketch: crate::decide::sketch::PodSketch| applies(&sketch.read());
        assert!(is(pod("p").qos("LS").pinned("0-1")) && is(pod("p")));
        assert!(!is(pod("p").pinned("0-1")) && !is(pod("p").qos("LSR")) && !is(pod("p").qos("BE")));
    }
}
