use std::sync::Arc;

use koord_api::annotation::node_side::PodCpuBurst;
use koord_api::annotation::{Annotation, read_text};
use proptest::prelude::*;

use super::*;
use crate::decide::sketch::{PodSketch, pod};
use koord_api::annotation::ratio::Ratio;

const ANOLIS_V1: Kernel = Kernel { burst_max: 100_000_000, is_burst_within_quota: false };
const ANOLIS_V2: Kernel = Kernel { burst_max: i64::MAX, is_burst_within_quota: false };
const MAINLINE: Kernel = Kernel { burst_max: i64::MAX, is_burst_within_quota: true };

fn strategy(policy: &str) -> CpuBurstStrategy {
    CpuBurstStrategy {
        policy: Some(CpuBurstPolicy::from(policy)),
        cpu_burst_percent: Some(1000),
        cfs_quota_burst_percent: Some(300),
        cfs_quota_burst_period_seconds: Some(-1),
        share_pool_threshold_percent: Some(50),
    }
}

fn ls(limits: &[&str]) -> PodSketch {
    let mut sketch = pod("p").qos("LS");
    for (index, limit) in limits.iter().enumerate() {
        let limits: &[(&str, &str)] = if limit.is_empty() { &[] } else { &[("cpu", limit)] };
        sketch = sketch.container(&format!("c{index}"), &[], limits);
    }
    sketch.running()
}

/// What containers and then the pod hold now.
struct Case {
    pod: Pod,
    quotas: Vec<i64>,
    throttled: Option<f64>,
    node: NodeState,
    strategy: CpuBurstStrategy,
    kernel: Kernel,
    normalization: Ratios,
}

fn case(quota: i64, pod_quota: i64) -> Case {
    Case {
        pod: ls(&["2"]).read(),
        quotas: vec![quota, pod_quota],
        throttled: Some(0.0),
        node: NodeState::Idle,
        strategy: strategy("auto"),
        kernel: ANOLIS_V2,
        normalization: Ratios::default(),
    }
}

impl Case {
    fn plan(&self) -> Plan {
        let places = self.pod.containers.iter().filter_map(|c| c.place(&self.pod)).chain([self.pod.place()]);
        let groups = places
            .zip(&self.quotas)
            .map(|(place, quota)| {
                (place, GroupSample { quota: Some(*quota), used: None, throttled: self.throttled })
            })
            .collect();
        let node = match self.node {
            NodeState::Idle => Some(0.0),
            NodeState::Cooling => Some(7.5),
            NodeState::Overload => Some(16.0),
            NodeState::Unknown => None,
        };
        let usage = CpuUsage { node, ..CpuUsage::default() };
        let sample = Sample {
            pods: std::slice::from_ref(&self.pod),
            usage: &usage,
            processors: Some(16),
            groups: &groups,
            normalization: self.normalization,
            is_pinned_quota_unset: true,
            kernel: self.kernel,
        };
        plan(Duration::ZERO, &sample, &self.strategy, &mut Buckets::default(), &mut || 0.0)
    }

    /// Writes of one file in order: `pod` or the container's name, and the value.
    fn writes(&self, file: File) -> Vec<(String, i64)> {
        let plan = self.plan();
        let wishes = plan.batches.iter().flat_map(Batch::wishes).filter(|wish| wish.file == file);
        wishes.map(|wish| (who(wish), number(wish))).collect()
    }
}

fn who(wish: &Wish) -> String {
    match &wish.place {
        Place::Container(_, id) => id.trim_start_matches("containerd://p-").to_string(),
        _ => "pod".to_string(),
    }
}

fn number(wish: &Wish) -> i64 {
    match wish.value {
        Value::Number(number) => number,
        _ => panic!("{wish:?}"),
    }
}

fn named(writes: &[(&str, i64)]) -> Vec<(String, i64)> {
    writes.iter().map(|(who, value)| (who.to_string(), *value)).collect()
}

#[test]
fn kernel_bursts() {
    let limits = |limits: &[&str], policy: &str, kernel: Kernel| Case {
        pod: ls(limits).read(),
        quotas: Vec::new(),
        strategy: strategy(policy),
        kernel,
        ..case(0, 0)
    };
    for (key, case, want) in [
        (
            "koordlet-enforce#18.29",
            limits(&["2"], "auto", ANOLIS_V1),
            [("c0", 2_000_000), ("pod", 2_000_000)].as_slice(),
        ),
        ("koordlet-enforce#18.30", limits(&["2"], "cfsQuotaBurstOnly", ANOLIS_V1), &[("c0", 0), ("pod", 0)]),
        (
            "koordlet-enforce#18.126",
            limits(&["2", "500m", ""], "auto", ANOLIS_V1),
            &[("c0", 2_000_000), ("c1", 500_000), ("c2", 0), ("pod", 2_500_000)],
        ),
        ("koordlet-enforce#18.127 v1", limits(&["200"], "auto", ANOLIS_V1), &[]),
        (
            "koordlet-enforce#18.127 v2",
            limits(&["200"], "auto", ANOLIS_V2),
            &[("c0", 200_000_000), ("pod", 200_000_000)],
        ),
    ] {
        assert_eq!(case.writes(File::CpuCfsBurst), named(want), "{key}");
    }
}

#[test]
fn quotas() {
    let throttled = |case: Case| Case { throttled: Some(0.1), ..case };
    let on = |node: NodeState, case: Case| Case { node, ..case };
    let with = |case: Case, edit: fn(&mut CpuBurstStrategy)| {
        let mut strategy = case.strategy.clone();
        edit(&mut strategy);
        Case { strategy, ..case }
    };
    let blind = |case: Case| Case { throttled: None, ..case };
    let of = |limits: &[&str], quotas: &[i64]| Case {
        pod: ls(limits).read(),
        quotas: quotas.to_vec(),
        ..throttled(case(0, 0))
    };
    use NodeState::{Cooling, Overload, Unknown};
    for (key, case, want) in [
        (
            "koordlet-enforce#18.31",
            throttled(case(200_000, 200_000)),
            [("pod", 240_000), ("c0", 240_000)].as_slice(),
        ),
        ("koordlet-enforce#18.32", throttled(case(550_000, 550_000)), &[("pod", 600_000), ("c0", 600_000)]),
        ("koordlet-enforce#18.33", on(Cooling, throttled(case(600_000, 600_000))), &[]),
        // Below the ceiling, so that the node's state decides.
        ("koordlet-enforce#18.33", on(Cooling, throttled(case(400_000, 400_000))), &[]),
        ("unknown", on(Unknown, throttled(case(400_000, 400_000))), &[]),
        (
            "koordlet-enforce#18.34",
            on(Overload, case(600_000, 600_000)),
            &[("c0", 480_000), ("pod", 480_000)],
        ),
        (
            "koordlet-enforce#18.35",
            on(Overload, case(210_000, 210_000)),
            &[("c0", 200_000), ("pod", 200_000)],
        ),
        (
            "koordlet-enforce#18.36",
            with(case(480_000, 480_000), |s| s.policy = Some(CpuBurstPolicy::None)),
            &[("c0", 200_000), ("pod", 200_000)],
        ),
        ("koordlet-enforce#18.37", throttled(case(200_000, -1)), &[("c0", 240_000)]),
        ("koordlet-enforce#18.128", case(-1, 400_000), &[("c0", 200_000)]),
        (
            "koordlet-enforce#18.129",
            with(case(600_000, 600_000), |s| s.cfs_quota_burst_percent = Some(150)),
            &[("c0", 300_000), ("pod", 300_000)],
        ),
        ("koordlet-enforce#18.130", case(100_000, 100_000), &[("pod", 200_000), ("c0", 200_000)]),
        (
            "koordlet-enforce#18.131",
            of(&["2", "1"], &[200_000, 100_000, 300_000]),
            &[("pod", 340_000), ("c0", 240_000), ("pod", 360_000), ("c1", 120_000)],
        ),
        ("koordlet-enforce#18.132", of(&["5m"], &[1000, -1]), &[("c0", 1200)]),
        (
            "koordlet-enforce#18.133",
            with(throttled(case(200_000, 200_000)), |s| s.cfs_quota_burst_percent = Some(100)),
            &[],
        ),
        (
            "koordlet-enforce#18.133",
            with(throttled(case(200_000, 200_000)), |s| s.cfs_quota_burst_percent = Some(50)),
            &[],
        ),
        ("koordlet-enforce#18.134", blind(case(480_000, 480_000)), &[]),
        (
            "koordlet-enforce#18.134",
            on(Overload, blind(case(480_000, 480_000))),
            &[("c0", 384_000), ("pod", 384_000)],
        ),
        (
            "koordlet-enforce#18.135",
            with(throttled(case(300_000, 300_000)), |s| s.cfs_quota_burst_period_seconds = Some(0)),
            &[("c0", 240_000), ("pod", 240_000)],
        ),
    ] {
        assert_eq!(case.writes(File::CpuCfsQuota), named(want), "{key}");
    }
}

/// A pod's quota follows from its limits, whatever its containers began with. Spec: koordlet-enforce 15.4, 19.28.
#[test]
fn the_quota_of_a_scaled_pod_does_not_drift() {
    let scaled = |quotas: &[i64]| Case {
        pod: ls(&["2", "1"]).read(),
        quotas: quotas.to_vec(),
        strategy: strategy("none"),
        normalization: Ratios::new(Ratio::new(1.3), true),
        ..case(0, 0)
    };
    let throttled =
        Case { throttled: Some(0.1), strategy: strategy("auto"), ..scaled(&[153_847, 76_924, 230_770]) };
    let beginning = ls(&["2", "1"]).initializing("setup", &[], &[("cpu", "8")]);
    for (name, case, want) in [
        ("settled", scaled(&[153_847, 76_924, 230_770]), [].as_slice()),
        ("a container began anew", scaled(&[200_000, 76_924, 230_770]), &[("c0", 153_847)]),
        ("drifted", scaled(&[153_847, 76_924, 1000]), &[("pod", 230_770)]),
        ("all were born scaled", scaled(&[153_847, 76_924, 300_000]), &[("pod", 230_770)]),
        (
            "nobody was scaled",
            scaled(&[200_000, 100_000, 300_000]),
            &[("pod", 230_770), ("c0", 153_847), ("c1", 76_924)],
        ),
        ("the pod has none", scaled(&[200_000, 76_924, -1]), &[("c0", 153_847)]),
        ("raised", throttled, &[("pod", 276_923), ("c0", 184_616), ("c1", 92_308)]),
        (
            "an init container runs",
            Case { pod: beginning.read(), ..scaled(&[200_000, 76_924, 800_000]) },
            &[("c0", 153_847)],
        ),
        (
            "a container has no limit",
            Case { pod: ls(&["2", ""]).read(), ..scaled(&[200_000, -1, 500_000]) },
            &[("c0", 153_847)],
        ),
        (
            "not scaled",
            Case { pod: ls(&["2", "1"]).qos("SYSTEM").read(), ..scaled(&[200_000, 100_000, 500_000]) },
            &[],
        ),
    ] {
        assert_eq!(case.writes(File::CpuCfsQuota), named(want), "{name}");
    }
}

#[test]
fn burst_stays_within_the_quota_of_mainline_kernels() {
    let order = |case: Case| -> Vec<String> {
        let plan = case.plan();
        let text = |wish: &Wish| format!("{} {} {}", who(wish), wish.file.name(), wish.value);
        plan.batches.iter().flat_map(Batch::wishes).map(text).collect()
    };
    let mainline = |case: Case| Case { kernel: MAINLINE, ..case };
    let raised = mainline(Case { throttled: Some(0.1), ..case(200_000, 200_000) });
    assert_eq!(
        order(raised),
        [
            "pod cpu.cfs_quota_us 240000",
            "c0 cpu.cfs_quota_us 240000",
            "c0 cpu.cfs_burst_us 240000",
            "pod cpu.cfs_burst_us 240000"
        ]
    );
    let lowered = mainline(Case { node: NodeState::Overload, ..case(600_000, 600_000) });
    assert_eq!(
        order(lowered),
        [
            "c0 cpu.cfs_burst_us 480000",
            "pod cpu.cfs_burst_us 480000",
            "c0 cpu.cfs_quota_us 480000",
            "pod cpu.cfs_quota_us 480000"
        ]
    );
    let taken_back = mainline(case(-1, -1));
    assert_eq!(
        order(taken_back),
        ["c0 cpu.cfs_burst_us 200000", "c0 cpu.cfs_quota_us 200000", "pod cpu.cfs_burst_us 200000"]
    );
    let unlimited = mainline(Case { pod: ls(&[""]).read(), quotas: vec![-1, -1], ..case(0, 0) });
    assert_eq!(order(unlimited), ["c0 cpu.cfs_burst_us 0", "pod cpu.cfs_burst_us 0"]);
}

#[test]
fn who_bursts() {
    let with = |pod: &PodSketch| Case { pod: pod.read(), throttled: Some(0.1), ..case(200_000, 200_000) };
    let quota = |pod: PodSketch| with(&pod).writes(File::CpuCfsQuota);
    assert_eq!(quota(ls(&["2"]).qos("LSR")), []);
    assert_eq!(quota(ls(&["2"]).qos("BE")), []);
    assert_eq!(quota(ls(&["2"]).phase("Succeeded")), []);
    assert_eq!(quota(ls(&["2"]).qos("")).len(), 2, "no class at all");
    assert_eq!(quota(ls(&["2"]).pinned("0-1")), [], "its quota is taken off elsewhere");
    let normal = Case { normalization: Ratios::new(Ratio::new(1.25), true), ..case(160_000, 160_000) };
    assert_eq!(normal.writes(File::CpuCfsQuota), [], "the base is the scaled one");
    let own = ls(&["2"]).annotated(PodCpuBurst::KEY, r#"{"policy":"none"}"#);
    let reset = Case { pod: own.read(), ..case(480_000, 480_000) };
    assert_eq!(reset.writes(File::CpuCfsQuota), named(&[("c0", 200_000), ("pod", 200_000)]));
}

#[test]
fn pods_say_more_than_nodes() {
    let node = CpuBurstStrategy { policy: Some(CpuBurstPolicy::None), ..strategy("none") };
    let text = r#"{"policy":"auto","cpuBurstPercent":null}"#;
    let own = read_text::<PodCpuBurst>(PodCpuBurst::KEY, text).unwrap().unwrap();
    assert_eq!(own.over(&node), strategy("auto"), "koordlet-enforce#18.139");
}

#[test]
fn node_states() {
    let lsr = pod("lsr").qos("LSR").container("c", &[("cpu", "4")], &[]).read();
    let be = pod("be").qos("BE").read();
    let state = |pods: &[Pod], node: f64, used: &[(&str, f64)]| {
        let usage = CpuUsage {
            node: Some(node),
            pods: used.iter().map(|(uid, cores)| (Arc::from(*uid), *cores)).collect(),
            ..CpuUsage::default()
        };
        let groups = BTreeMap::new();
        let sample = Sample {
            pods,
            usage: &usage,
            processors: Some(16),
            groups: &groups,
            normalization: Ratios::default(),
            is_pinned_quota_unset: true,
            kernel: MAINLINE,
        };
        node_load(&sample, &strategy("auto")).state
    };
    let pods = [lsr, be];
    let used = [("lsr", 2.0), ("be", 1.0)];
    assert_eq!(state(&pods, 8.0, &used), NodeState::Idle, "koordlet-enforce#18.42");
    assert_eq!(state(&pods, 8.0, &used[..1]), NodeState::Overload, "koordlet-enforce#18.43");
    assert_eq!(state(&[], 7.2, &[]), NodeState::Cooling, "koordlet-enforce#18.138");
}

proptest! {
    /// A container never has less than its limit nor more than the ceiling, and mainline kernels never see a
    /// burst above the quota.
    #[test]
    fn within_bounds(
        quota in prop_oneof![Just(-1_i64), 1000_i64..10_000_000], percent in 0_i64..1000, burst in 0_i64..10_000,
        throttled in prop::option::of(0.0_f64..1.0), mainline in any::<bool>(), load in 0_usize..4,
    ) {
        let mut strategy = strategy("auto");
        strategy.cfs_quota_burst_percent = Some(percent);
        strategy.cpu_burst_percent = Some(burst);
        let node = [NodeState::Idle, NodeState::Cooling, NodeState::Overload, NodeState::Unknown][load];
        let kernel = if mainline { MAINLINE } else { ANOLIS_V2 };
        let plan = Case { strategy, node, throttled, kernel, ..case(quota, -1) }.plan();
        let burst = &plan.containers[0];
        let quota = burst.quota.unwrap();
        prop_assert!(quota.target >= 200_000);
        prop_assert!(quota.target <= (200_000 * percent / 100).max(200_000));
        prop_assert!(!mainline || burst.burst.unwrap() <= quota.target);
    }
}

#[test]
fn numbers_are_told() {
    let strategy = CpuBurstStrategy { cfs_quota_burst_percent: Some(300), ..CpuBurstStrategy::default() };
    let mut buckets = Buckets::default();
    let strategy = CpuBurstStrategy { cfs_quota_burst_period_seconds: Some(300), ..strategy };
    buckets.ask(&Arc::from("c"), Duration::ZERO, &strategy, 98.0, &mut || 0.25);
    let numbers = Numbers {
        limit_milli: 1000,
        bucket: buckets.get("c").copied(),
        quota: quota::Move::new(100_000, &strategy, 100_000, Operation::ScaleUp, NodeState::Idle),
        group: GroupSample { quota: Some(100_000), used: Some(0.98), throttled: Some(0.25) },
        node: NodeLoad { state: NodeState::Idle, pool_total: 8.0, pool_used: 1.2, threshold_percent: 50 },
    };
    let want = "ScaleUp from 100000 to 120000, within 100000 and 300000 of limit 1000m; 0.98 cores used, \
                25 % of periods throttled; 15000 of 60000 tokens left; \
                Idle: 1.20 of 8.00 shared cores used, threshold 50 %";
    assert_eq!(numbers.to_string(), want);
}

/// What a burst comes from, with the quota that bounds it on mainline kernels.
#[test]
fn savings_are_told() {
    for (policy, container, whole) in [
        (
            "auto",
            "limit 2000m, cpuBurstPercent 1000, quota 200000",
            "limit 2000m, cpuBurstPercent 1000, quota 200000",
        ),
        (
            "none",
            "limit 2000m, cpuBurstPercent none, quota 200000",
            "limit 2000m, cpuBurstPercent none, quota 200000",
        ),
    ] {
        let case = Case { pod: ls(&["2"]).read(), strategy: strategy(policy), ..case(200_000, 200_000) };
        let plan = case.plan();
        let bursts =
            plan.batches.iter().flat_map(Batch::wishes).filter(|wish| wish.file == File::CpuCfsBurst);
        let told: Vec<String> = bursts.map(|wish| wish.why.to_string()).collect();
        assert_eq!(told, [format!("; {container}"), format!("; {whole}")], "{policy}");
    }
}
