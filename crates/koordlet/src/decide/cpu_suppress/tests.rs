use std::collections::BTreeMap;
use std::sync::Arc;

use koord_api::crd::node_slo::{CgroupPath, CpuSuppressPolicy};
use proptest::prelude::*;

use super::*;
use crate::decide::sketch::{NodeSketch, PodSketch, cpus, node, pod};
use crate::decide::wish::PodId;

/// What a cycle sees, owned.
struct World {
    node: Node,
    pods: Vec<Pod>,
    applications: Vec<HostApplicationSpec>,
    usage: CpuUsage,
    layout: Layout,
    old_cpus: CpuSet,
    old_quota: i64,
    groups: Vec<BestEffortGroup>,
    strategy: ResourceThresholdStrategy,
}

impl World {
    fn sample(&self) -> Sample<'_> {
        Sample {
            node: Some(&self.node),
            pods: &self.pods,
            applications: &self.applications,
            usage: &self.usage,
            layout: Some(&self.layout),
            all_pods_cpus: None,
            old_cpus: &self.old_cpus,
            old_quota: self.old_quota,
            groups: &self.groups,
        }
    }

    fn suppress(&self) -> i64 {
        budget(&self.sample(), &self.strategy).unwrap().suppress_milli
    }
}

fn strategy() -> ResourceThresholdStrategy {
    ResourceThresholdStrategy {
        enable: Some(true),
        cpu_suppress_threshold_percent: Some(65),
        cpu_suppress_policy: Some(CpuSuppressPolicy::Cpuset),
        ..ResourceThresholdStrategy::default()
    }
}

fn cores(pods: &[(&str, f64)]) -> BTreeMap<Arc<str>, f64> {
    pods.iter().map(|(uid, cores)| (Arc::from(*uid), *cores)).collect()
}

fn world(used: f64, ls: f64, be: f64) -> World {
    let ls_pod = pod("ls").qos("LS").container("c", &[("cpu", "1")], &[]).read();
    World {
        node: node(&[("cpu", "20")], &[("cpu", "20")]).read(),
        pods: vec![ls_pod, pod("be").qos("BE").read()],
        applications: Vec::new(),
        usage: CpuUsage {
            node: Some(used),
            pods: cores(&[("ls", ls), ("be", be)]),
            applications: BTreeMap::new(),
        },
        layout: Layout { topology: cpus(20, |c| c, |_| 0), ..Layout::default() },
        old_cpus: CpuSet::range(0..=19),
        old_quota: -1,
        groups: Vec::new(),
        strategy: strategy(),
    }
}

fn with_node(world: World, node: NodeSketch) -> World {
    World { node: node.read(), ..world }
}

fn with_application(mut world: World, qos: &str, path: Option<CgroupPath>) -> World {
    world.usage.applications.insert("app".into(), 0.5);
    world.usage.applications.insert("unknown".into(), 7.0);
    let name = "app".to_string();
    world.applications.push(HostApplicationSpec {
        name,
        qos: qos.into(),
        cgroup_path: path,
        ..HostApplicationSpec::default()
    });
    world
}

#[test]
fn budgets() {
    const ANNOTATION: &str = "node.koordinator.sh/reservation";
    let usual = || world(10.0, 6.0, 3.0);
    let reserved = |allocatable: &str, text: &str| {
        let node = node(&[("cpu", "20")], &[("cpu", allocatable)]);
        with_node(usual(), if text.is_empty() { node } else { node.annotated(ANNOTATION, text) })
    };
    let least = |percent| {
        let mut world = world(19.0, 14.0, 3.0);
        world.strategy.cpu_suppress_min_percent = Some(percent);
        world
    };
    let stranger = || {
        let mut world = world(10.0, 5.0, 3.0);
        world.usage.pods.insert(Arc::from("gone"), 1.0);
        world
    };
    let mislabelled = || {
        let mut world = usual();
        world.pods[0] = pod("ls").qos("LS").kube_qos("BestEffort").read();
        world
    };
    let best_effort =
        Some(CgroupPath { base: Some(CgroupBase::KubepodsBesteffort), ..CgroupPath::default() });
    for (key, world, want) in [
        ("koordlet-enforce#18.1", usual(), 6000),
        ("koordlet-enforce#18.2", reserved("20", r#"{"resources":{"cpu":"2"}}"#), 5000),
        ("koordlet-enforce#18.3", reserved("17", r#"{"resources":{"cpu":"2"}}"#), 4000),
        ("koordlet-enforce#18.4", reserved("20", r#"{"resources":{"cpu":"2"},"reservedCPUs":"0-5"}"#), 1000),
        ("koordlet-enforce#18.5", world(19.0, 14.0, 3.0), -3000),
        ("koordlet-enforce#18.6", least(10), 2000),
        ("koordlet-enforce#18.7", world(8.0, 6.0, 3.0), 7000),
        ("koordlet-enforce#18.8", stranger(), 6000),
        ("koordlet-enforce#18.9", with_application(usual(), "LS", None), 6000),
        ("koordlet-enforce#18.10", with_application(usual(), "BE", best_effort), 6500),
        (
            "koordlet-enforce#18.104",
            reserved("20", r#"{"resources":{"cpu":"2"},"reservedCPUs":"a-b"}"#),
            6000,
        ),
        ("koordlet-enforce#18.105", with_application(usual(), "BE", None), 6000),
        ("koordlet-enforce#18.106", mislabelled(), 12_000),
        (
            "koordlet-enforce#18.107",
            with_node(world(3.3333, 1.1111, 1.1111), node(&[("cpu", "7900m")], &[("cpu", "7900m")])),
            2913,
        ),
        ("koordlet-enforce#18.108", least(0), 0),
    ] {
        assert_eq!(world.suppress(), want, "{key}");
    }
}

#[test]
fn sizes() {
    let size = |total: u32, suppress: i64, old: u32| {
        let mut world = world(0.0, 0.0, 0.0);
        world.layout.topology = cpus(total, |c| c, |_| 0);
        world.old_cpus = (0..old).collect();
        cpuset::choose(&world.sample(), suppress).unwrap().cpus.len()
    };
    for (key, total, suppress, old, want) in [
        ("koordlet-enforce#18.11", 20, 5500, 5, 6),
        ("koordlet-enforce#18.12", 20, 5500, 3, 5),
        ("koordlet-enforce#18.13", 20, -3000, 8, 2),
        ("koordlet-enforce#18.14", 96, 60_000, 10, 20),
        ("koordlet-enforce#18.118", 20, 9000, 0, 2),
        ("koordlet-enforce#18.119", 20, 2001, 10, 3),
        ("koordlet-enforce#18.119", 20, 2000, 10, 2),
    ] {
        assert_eq!(size(total, suppress, old), want, "{key}");
    }
    let mut shared = world(0.0, 0.0, 0.0);
    shared.layout.topology = cpus(16, |c| c, |_| 0);
    shared.pods.push(pod("lsr").qos("LSR").pinned("0-3").read());
    let choice = cpuset::choose(&shared.sample(), 6000).unwrap();
    assert_eq!((choice.shared_with_lsr, choice.cpus.len()), (1, 6), "koordlet-enforce#18.15");
}

/// 16 CPUs, core c/2, node c/8; a best-effort pod with one container.
fn sixteen(pods: &[PodSketch], suppress_milli: f64) -> World {
    let mut world = world(0.0, 0.0, 0.0);
    world.node = node(&[("cpu", "16")], &[("cpu", "16")]).read();
    world.layout.topology = cpus(16, |c| c / 2, |c| c / 8);
    world.pods.extend(pods.iter().map(PodSketch::read));
    // 10.4 cores are the threshold of 65 %.
    world.usage = CpuUsage {
        node: Some(0.0),
        pods: cores(&[("ls", 10.4 - suppress_milli / 1000.0)]),
        ..CpuUsage::default()
    };
    let id = PodId { uid: Arc::from("be"), kube_qos: KubeQos::BestEffort };
    world.groups = [
        (Place::Pod(id.clone()), Level::Pod),
        (Place::Container(id.clone(), Arc::from("containerd://c")), Level::Container),
    ]
    .map(|(place, level)| BestEffortGroup { place, level, pod: Some(id.uid.clone()) })
    .into();
    world.old_cpus = "0-5".parse().unwrap();
    world
}

fn switches(world: &World) -> Switches<'_> {
    Switches { strategy: Some(&world.strategy), is_cpu_manager_on: false }
}

/// CPU sets wanted for the group of all, the pod and the container.
fn wanted_cpus(plan: &Plan) -> Vec<String> {
    let wishes = plan.batches.iter().flat_map(Batch::wishes);
    wishes.filter(|wish| wish.file == File::CpusetCpus).map(|wish| wish.value.to_string()).collect()
}

fn wanted_quota(plan: &Plan) -> Option<i64> {
    let mut wishes = plan.batches.iter().flat_map(Batch::wishes);
    wishes.find_map(|wish| match (wish.file, &wish.value) {
        (File::CpuCfsQuota, Value::Number(quota)) => Some(*quota),
        _ => None,
    })
}

#[test]
fn choices() {
    let lse = |cpus: &str| pod("lse").qos("LSE").pinned(cpus);
    let lsr = |cpus: &str| pod("lsr").qos("LSR").pinned(cpus);
    let is_static = |mut world: World| {
        world.layout.is_kubelet_static = true;
        world
    };
    let reserved = |mut world: World| {
        world.layout.reserved = "0-3".parse().unwrap();
        world
    };
    let small = |world: World| World {
        layout: Layout { topology: cpus(4, |c| c, |_| 0), ..Layout::default() },
        old_cpus: "0-3".parse().unwrap(),
        node: node(&[("cpu", "4")], &[("cpu", "4")]).read(),
        usage: CpuUsage { node: Some(0.0), ..CpuUsage::default() },
        strategy: ResourceThresholdStrategy { cpu_suppress_threshold_percent: Some(100), ..strategy() },
        ..world
    };
    for (key, world, want) in [
        ("koordlet-enforce#18.113", is_static(sixteen(&[], 3000.0)), ["0-15", "0-15", "0-1,8"].as_slice()),
        ("koordlet-enforce#18.114", is_static(sixteen(&[lse("0-3")], 3000.0)), &["4-15", "4-15", "4,8-9"]),
        ("koordlet-enforce#18.115", reserved(sixteen(&[], 3000.0)), &["4,8-9", "4,8-9", "4,8-9"]),
        ("koordlet-enforce#18.116", small(sixteen(&[lse("0-1")], 0.0)), &["2-3", "2-3", "2-3"]),
        ("koordlet-enforce#18.117", small(sixteen(&[lse("0-3")], 0.0)), &[]),
        (
            "koordlet-enforce#18.120",
            sixteen(&[lse("0-3"), lsr("4-7")], 6000.0),
            &["4-5,8-11", "4-5,8-11", "4-5,8-11"],
        ),
    ] {
        let plan = plan(&world.sample(), switches(&world), Memory::default());
        assert_eq!(wanted_cpus(&plan), want, "{key} {:?}", plan.verdict);
    }
}

/// CPUs of a pod that has ended are anybody's, while kubelet still lists it.
#[test]
fn pods_that_have_ended_keep_no_cpus() {
    for (phase, full, chosen) in [("Running", "4-15", "4,8-9"), ("Succeeded", "0-15", "0-1,8")] {
        let lse = pod("lse").qos("LSE").pinned("0-3").phase(phase);
        let world = sixteen(&[lse], 3000.0);
        assert_eq!(full_cpus(&world.layout, &world.pods).to_string(), full, "{phase}");
        let Ok(choice) = cpuset::choose(&world.sample(), 3000) else { panic!("{phase}") };
        assert_eq!(choice.cpus.to_string(), chosen, "{phase}");
        let lsr = pod("lsr").qos("LSR").pinned("0-3").phase(phase);
        let world = sixteen(&[lsr], 6000.0);
        let Ok(choice) = cpuset::choose(&world.sample(), 6000) else { panic!("{phase}") };
        assert_eq!(choice.shared_with_lsr > 0, phase == "Running", "{phase}");
    }
}

/// A CPU that was offline is back on the node and, on v1, in no group.
#[test]
fn cpus_that_no_pod_can_have_are_not_chosen() {
    let world = sixteen(&[], 3000.0);
    let chosen = |all_pods: &str| {
        let all_pods: CpuSet = all_pods.parse().unwrap();
        cpuset::choose(&Sample { all_pods_cpus: Some(&all_pods), ..world.sample() }, 3000)
            .map(|choice| choice.cpus.to_string())
    };
    assert_eq!(cpuset::choose(&world.sample(), 3000).unwrap().cpus.to_string(), "0-1,8");
    assert_eq!(chosen("1-15"), Ok("1,8-9".to_owned()));
    assert_eq!(chosen("7"), Ok("7".to_owned()), "fewer than the budget is worth");
    assert_eq!(chosen("16"), Err(cpuset::NoChoice::NoCpu));
}

/// Whoever reads the log learns when there are no CPUs left, why, and when there are some again.
#[test]
fn having_no_cpu_is_told() {
    let verdict = |lse: &str, is_known: bool| {
        let mut world = sixteen(&[pod("lse").qos("LSE").pinned(lse)], 0.0);
        world.layout.topology = cpus(4, |c| c, |_| 0);
        let sample = Sample { layout: world.sample().layout.filter(|_| is_known), ..world.sample() };
        plan(&sample, switches(&world), Memory::default()).verdict
    };
    let (none, some, unknown) = (verdict("0-3", true), verdict("0-1", true), verdict("0-1", false));
    assert_eq!(none.fault(), Some(cpuset::NoChoice::NoCpu), "koordlet-enforce#18.117");
    assert_eq!(unknown.fault(), Some(cpuset::NoChoice::NoTopology));
    assert_eq!(some.fault(), None);
    for (last, verdict, is_news) in [
        (None, &none, true),
        (Some(&some), &none, true),
        (Some(&none), &none, false),
        (Some(&unknown), &none, true),
        (Some(&none), &some, true),
        (Some(&some), &some, false),
    ] {
        assert_eq!(verdict.is_news(last), is_news, "{last:?}, then {verdict:?}");
    }
}

/// The files of the three best-effort groups and of the quota, as a cycle after the other changes them.
struct Files {
    cpus: Vec<String>,
    quota: i64,
    memory: Memory,
}

impl Files {
    fn run(&mut self, world: &mut World, is_cpu_manager_on: bool) {
        world.old_cpus = self.cpus[0].parse().unwrap();
        world.old_quota = self.quota;
        let switches = Switches { is_cpu_manager_on, ..switches(world) };
        let plan = plan(&world.sample(), switches, self.memory);
        for wish in plan.batches.iter().flat_map(Batch::wishes) {
            match (&wish.place, wish.file) {
                (Place::Kube(_), File::CpusetCpus) => self.cpus[0] = wish.value.to_string(),
                (Place::Pod(_), File::CpusetCpus) => self.cpus[1] = wish.value.to_string(),
                (Place::Container(..), File::CpusetCpus) => self.cpus[2] = wish.value.to_string(),
                (Place::Kube(_), File::CpuCfsQuota) => self.quota = wish.value.to_string().parse().unwrap(),
                // Single quotas go with the first one of all.
                (Place::Pod(_) | Place::Container(..), File::CpuCfsQuota) => {
                    assert_eq!((wish.value.to_string(), world.old_quota), ("-1".to_owned(), -1));
                }
                _ => panic!("{wish:?}"),
            }
        }
        self.memory.settle(&plan, true);
    }

    fn state(&self) -> (Vec<&str>, i64) {
        (self.cpus.iter().map(String::as_str).collect(), self.quota)
    }
}

#[test]
fn cycles_in_sequence() {
    let mut world = sixteen(&[pod("lse").qos("LSE").pinned("0-1")], 0.0);
    world.usage =
        CpuUsage { node: Some(6.0), pods: cores(&[("ls", 4.0), ("be", 1.0)]), ..CpuUsage::default() };
    let mut files = Files { cpus: vec!["0-15".to_string(); 3], quota: -1, memory: Memory::default() };
    let policy = |text: &str| Some(CpuSuppressPolicy::from(text));
    let all = |cpus: &'static str| vec![cpus; 3];
    for _ in 0..2 {
        files.run(&mut world, false);
        assert_eq!(files.state(), (all("2-3,8-11"), -1), "koordlet-enforce#18.237");
    }
    world.strategy.cpu_suppress_policy = policy("cfsQuota");
    files.run(&mut world, false);
    assert_eq!(files.state(), (all("2-15"), 540_000), "koordlet-enforce#18.238");
    world.strategy.cpu_suppress_policy = policy("weird");
    files.run(&mut world, false);
    assert_eq!(files.state(), (all("2-3,8-11"), -1), "koordlet-enforce#18.239");
    world.strategy.cpu_suppress_policy = policy("cfsQuota");
    files.run(&mut world, false);
    assert_eq!(files.state(), (all("2-15"), 540_000), "koordlet-enforce#18.240");
    world.strategy.enable = Some(false);
    files.run(&mut world, false);
    assert_eq!(files.state(), (all("2-15"), -1), "koordlet-enforce#18.240");
    files.quota = 500_000;
    files.run(&mut world, false);
    assert_eq!(files.state(), (all("2-15"), 500_000), "koordlet-enforce#18.241");
    world.strategy = strategy();
    let pods = std::mem::take(&mut world.pods);
    files.run(&mut world, false);
    assert_eq!(files.state(), (all("2-15"), 500_000), "koordlet-enforce#18.242");
    world.pods = pods;
    files.cpus = vec!["3".to_string(); 3];
    files.run(&mut world, false);
    assert_eq!(files.state().0, all("2,8-9"), "koordlet-enforce#18.243");
    let numa = r#"{"numaNodeResources":[{"node":0,"resources":{"kubernetes.io/batch-cpu":"1k"}}]}"#;
    world.pods[1] = pod("be").qos("BE").placed(numa).read();
    files.run(&mut world, true);
    assert_eq!(files.state().0, ["2-15", "2-15", "2,8-9"], "koordlet-enforce#18.244");
    let switches = Switches { strategy: None, is_cpu_manager_on: false };
    let plan = plan(&world.sample(), switches, Memory::default());
    assert_eq!(plan, skipped(Skip::NoStrategy), "koordlet-enforce#18.245");
}

#[test]
fn a_failed_recovery_is_tried_again() {
    let mut world = sixteen(&[], 3000.0);
    world.strategy.enable = Some(false);
    let mut memory = Memory::default();
    let first = plan(&world.sample(), switches(&world), memory);
    memory.settle(&first, false);
    let second = plan(&world.sample(), switches(&world), memory);
    assert_eq!(wanted_quota(&second), Some(-1));
    memory.settle(&second, true);
    assert_eq!(wanted_quota(&plan(&world.sample(), switches(&world), memory)), None);
}

#[test]
fn nothing_known_is_nothing_done() {
    let world = sixteen(&[], 3000.0);
    let unknown = CpuUsage::default();
    let sample = Sample { usage: &unknown, ..world.sample() };
    let verdict = |sample: &Sample<'_>| plan(sample, switches(&world), Memory::default()).verdict;
    assert_eq!(verdict(&sample), Verdict::Skipped(Skip::NoUsage));
    assert_eq!(verdict(&Sample { node: None, ..world.sample() }), Verdict::Skipped(Skip::NoNode));
    let blind = plan(&Sample { layout: None, ..world.sample() }, switches(&world), Memory::default());
    assert!(matches!(blind.verdict, Verdict::ByCpuset { choice: Err(cpuset::NoChoice::NoTopology), .. }));
    assert_eq!(wanted_cpus(&blind), Vec::<String>::new());
}

proptest! {
    /// Best-effort pods keep the floor that the strategy promises, and two CPUs where there are two; they never
    /// get a CPU of an LSE pod or a reserved one, and grow by a step at most.
    #[test]
    fn the_minimum_is_never_taken(
        used in 0.0_f64..64.0, ls in 0.0_f64..64.0, be in 0.0_f64..64.0, least in prop::option::of(0_i64..=100),
        old in 0_u32..16, lse in 0_u32..16, reserved in 0_u32..16,
    ) {
        let mut world = sixteen(&[], 0.0);
        world.usage = CpuUsage { node: Some(used), pods: cores(&[("ls", ls), ("be", be)]), ..CpuUsage::default() };
        world.strategy.cpu_suppress_min_percent = least;
        world.old_cpus = (0..old).collect();
        world.layout.reserved = (0..reserved).collect();
        world.pods.push(pod("lse").qos("LSE").pinned(&format!("0-{lse}")).read());
        let suppress = world.suppress();
        prop_assert!(least.is_none_or(|percent| suppress >= 16_000 * percent / 100));
        let allowed = full_cpus(&world.layout, &world.pods);
        let plan = plan(&world.sample(), switches(&world), Memory::default());
        let Verdict::ByCpuset { choice, .. } = &plan.verdict else { panic!("{plan:?}") };
        match choice {
            Ok(choice) => {
                let grown = usize::try_from(old).unwrap() + choice.step;
                prop_assert!(choice.cpus.is_subset(&allowed));
                prop_assert!(choice.cpus.len() >= 2.min(allowed.len()).min(grown));
                prop_assert!(choice.cpus.len() <= grown);
            }
            Err(_) => prop_assert!(allowed.is_empty()),
        }
    }
}

#[test]
fn numbers_are_told() {
    let budget = Budget {
        capacity_milli: 8000,
        threshold_percent: 65,
        min_percent: Some(10),
        ls_used_milli: 1500,
        be_used_milli: 200,
        host_ls_used_milli: 0,
        system_milli: 300,
        reserved_milli: 100,
        suppress_milli: 3400,
    };
    let numbers = Numbers { budget, wanted: 4, before: 8, unit: "CPUs" };
    let wish = quota_wish(2000, Cause::CpuSuppress).because(&Why::Suppress(Arc::new(numbers)));
    let want = "update BE group to cfs_quota: 2000; 65 % of 8000m - LS pods 1500m - host applications 0m - system 300m \
                (reserved 100m), at least 10 %, = 3400m; BE pods use 200m; from 8 to 4 CPUs, a step at a time";
    assert_eq!(wish.audit_message(None), want);
}
