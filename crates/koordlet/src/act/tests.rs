//! Strategies and hooks on a tree of plain files, with measurements put into the store by hand.

mod core_sched;
mod cpu_manager;
mod evictions;
mod normalization;
mod oom_score;
mod pod_resctrl;
mod suppression;
mod terway;
mod traffic;

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use koord_api::annotation::node_topology::CpuSharedPool;
use koord_api::cpuset::CpuSet;
use koord_api::crd::node_slo::NodeSloSpec;
use koord_api::gate::Component;
use koord_api::slo::Effective;
use koord_api::topology::{CpuInfo, CpuTopology};
use koord_kit::events::{Flavour, recorder};
use koord_kit::metrics::{Format, KitMetrics};
use koord_linux::cgroup::Driver;
use serde_json::{Value, json};

use super::*;
use crate::apply::Undo;
use crate::audit::{Answer, Auditor, Event, Query};
use crate::decide::cpu_suppress::Verdict;
use crate::decide::sketch::{node, pod};
use crate::decide::snapshot::Layout;
use crate::fake::FakeApi;
use crate::flags;
use crate::overheard::warnings;
use crate::records::Records;
use crate::state::{Hardware, NodeState, PodState};
use crate::store::{Batch as Samples, Kind, Limits};

const START_MS: i64 = 1_800_000_000_000;

/// Pods that went.
#[derive(Default)]
struct Gone {
    names: Vec<String>,
    /// None is that they go.
    outcome: Option<Outcome>,
    is_remembering: bool,
}

impl Evictor for Gone {
    fn evict(&mut self, order: EvictOrder<'_>) -> Outcome {
        self.names.push(order.pod.name.clone());
        self.outcome.unwrap_or(Outcome::Leaving)
    }

    fn is_remembering(&self) -> bool {
        self.is_remembering
    }
}

struct World {
    dir: tempfile::TempDir,
    act: Act,
    applier: Applier,
    evictor: Gone,
    store: Store,
    snapshot: Snapshot,
    pods: Vec<Pod>,
    news: News,
    start: Instant,
    seconds: u32,
    tellings: u32,
}

fn setting(root: &Root, cgroups: &Arc<Cgroups>, line: &str) -> Setting {
    let options = flags::of_line(line);
    let metrics = KoordletMetrics::new("n1");
    metrics.node_seen();
    Setting {
        root: root.clone(),
        cgroups: cgroups.clone(),
        gates: options.gates,
        qos: options.qos,
        hooks: options.hooks,
        collect: options.collect,
        is_anolis: false,
        is_host_mode: true,
        page_bytes: 4096,
        terway_dir: root.var_run.join("terway"),
        metrics,
        recorders: None,
    }
}

/// Eight CPUs on one NUMA node.
fn layout() -> Layout {
    let cpu = |id: u32| CpuInfo { id, core: id / 2, socket: 0, node: 0 };
    let pool = |cpuset: &str| vec![CpuSharedPool { socket: 0, node: 0, cpuset: cpuset.to_owned() }];
    Layout {
        topology: CpuTopology::new((0..8).map(cpu)),
        ls_pools: pool("2-7"),
        be_pools: pool("0-7"),
        ..Layout::default()
    }
}

impl World {
    fn new(version: Version, line: &str, slo: Value, pods: Vec<Pod>) -> World {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        let cgroups = Arc::new(Cgroups::new(&root, version, Driver::Cgroupfs));
        let setting = setting(&root, &cgroups, line);
        let auditor = Auditor::of_test(dir.path());
        let applier = Applier::new(
            &root,
            cgroups,
            Duration::from_secs(60),
            Records::only(auditor),
            setting.metrics.clone(),
            Undo::in_memory(),
        );
        let amounts = [("cpu", "8"), ("memory", "16Gi")];
        let snapshot = Snapshot {
            node: Some(Arc::new(NodeState { node: node(&amounts, &amounts).read(), ..NodeState::default() })),
            layout: Some(Arc::new(layout())),
            hardware: Some(Arc::new(Hardware {
                info: koord_linux::cpu_info::CpuInfo::default(),
                cpus: Vec::new(),
                numa_nodes: Vec::new(),
            })),
            ..Snapshot::default()
        };
        let mut world = World {
            dir,
            act: Act::new(setting),
            applier,
            evictor: Gone::default(),
            store: Store::new(&Limits::default()),
            snapshot,
            pods,
            news: News { slo: true, pods: true, layout: true, node_metadata: true },
            start: Instant::now(),
            seconds: 0,
            tellings: 0,
        };
        world.order(slo);
        world
    }

    /// From now on pods have events.
    fn listen(&mut self) {
        let client = FakeApi::default().client(|seen| (201, seen.body.clone()));
        let kit = KitMetrics::new(self.act.setting().metrics.internal());
        let (ear, _) = recorder(client, "koordlet", Flavour::Core, &kit);
        let recorders = Recorders { strategies: ear.clone(), hooks: ear };
        let auditor = self.applier.records().auditor().clone();
        let records = Records::with_events(auditor, recorders, 1000);
        records.follow(&self.pods);
        let cgroups = self.applier.cgroups().clone();
        let root = Root::host(self.dir.path());
        let metrics = self.act.setting().metrics.clone();
        self.applier =
            Applier::new(&root, cgroups, Duration::from_secs(60), records, metrics, Undo::in_memory());
    }

    /// What pods are told of all that happened since this was last asked, hours ago by the clock of events.
    fn told(&mut self) -> Vec<String> {
        self.tellings += 1;
        let (records, at) = (self.applier.records(), self.start + self.tellings * Duration::from_secs(3600));
        let mut told = records.due(at);
        told.extend(records.due(at + Duration::from_secs(5)));
        told
    }

    /// A new NodeSLO.
    fn order(&mut self, slo: Value) {
        let spec: NodeSloSpec = serde_json::from_value(slo).unwrap();
        self.snapshot.slo = Some(Arc::new(Effective::new(&spec, &[])));
        self.news.slo = true;
    }

    fn put(&self, file: &str, content: &str) {
        let path = self.dir.path().join("sys/fs/cgroup").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn get(&self, file: &str) -> String {
        fs::read_to_string(self.dir.path().join("sys/fs/cgroup").join(file)).unwrap().trim().to_owned()
    }

    fn put_host(&self, path: &str, content: &str) {
        let path = self.host(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn host(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// What the audit log has for a reason: container or group, and message.
    fn records(&self, reason: &str) -> Vec<(String, String)> {
        let Answer::Page { events, .. } =
            self.applier.records().auditor().query(&Query::default(), Instant::now())
        else {
            panic!()
        };
        let named = |event: Event| {
            let name = if event.container.is_empty() { event.name } else { event.container };
            (event.reason, (name, event.message))
        };
        let all = events.into_iter().rev().map(named);
        all.filter(|(found, _)| found == reason).map(|(_, told)| told).collect()
    }

    fn page(&self) -> String {
        self.act.setting().metrics.internal().render(Format::Prometheus)
    }

    /// The clock of samples.
    fn now_ms(&self) -> i64 {
        START_MS + i64::from(self.seconds) * 1000
    }

    fn sample(&mut self, kind: Kind, name: Option<&str>, value: f64) {
        let now_ms = self.now_ms();
        let name: Option<Arc<str>> = name.map(Arc::from);
        let key = match &name {
            Some(name) => kind.of([name]),
            None => kind.of([]),
        };
        let id = self.store.find(key);
        let mut batch = Samples::default();
        batch.add(id, now_ms, value);
        self.store.commit(now_ms, &mut batch).unwrap();
    }

    /// What best-effort pods have together.
    fn best_effort_sample(&mut self, allocation: &str, milli: f64) {
        let now_ms = self.now_ms();
        let (cpu, allocation): (Arc<str>, Arc<str>) = (Arc::from("cpu"), Arc::from(allocation));
        let id = self.store.find(Kind::NodeBe.of([&cpu, &allocation]));
        let mut batch = Samples::default();
        batch.add(id, now_ms, milli);
        self.store.commit(now_ms, &mut batch).unwrap();
    }

    /// A second passes, and everyone has a turn.
    fn second(&mut self) {
        self.seconds += 1;
        let now = self.start + Duration::from_secs(u64::from(self.seconds));
        let ground = Ground {
            now,
            now_ms: self.now_ms(),
            uptime: now.saturating_duration_since(self.start),
            snapshot: &self.snapshot,
            pods: &self.pods,
            news: std::mem::take(&mut self.news),
            store: &self.store,
        };
        self.act.turn(&ground, &mut self.applier, &mut self.evictor);
    }

    /// A turn with new pods.
    fn turn_with_pods(&mut self) {
        self.news.pods = true;
        self.second();
    }

    /// Seconds with this use, in cores: node, and pods by uid.
    fn seconds(&mut self, count: u32, node: f64, pods: &[(&str, f64)]) {
        for _ in 0..count {
            self.sample(Kind::NodeCpuUsage, None, node);
            for (uid, cores) in pods {
                self.sample(Kind::PodCpuUsage, Some(uid), *cores);
            }
            self.second();
        }
    }
}

fn best_effort(name: &str) -> Pod {
    pod(name).qos("BE").kube_qos("BestEffort").container("main", &[], &[]).running().read()
}

fn threshold(policy: &str) -> Value {
    json!({ "resourceUsedThresholdWithBE": {
        "enable": true, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": policy } })
}

const BE: &str = "cpuset/kubepods/besteffort";

/// 8 CPUs at 65 % less what LS pods and the system use.
#[test]
fn best_effort_pods_shrink_with_the_load_and_get_everything_back() {
    let ls = pod("web").qos("LS").kube_qos("Burstable").container("main", &[], &[]).running().read();
    let mut world = World::new(Version::V1, "", threshold("cpuset"), vec![best_effort("batch"), ls]);
    for dir in ["", "/podbatch", "/podbatch/batch-main"] {
        world.put(&format!("{BE}{dir}/cpuset.cpus"), "0-7\n");
    }
    world.put("cpu/kubepods/besteffort/cpu.cfs_quota_us", "50000\n");
    world.seconds(2, 2.0, &[("web", 1.5), ("batch", 0.2)]);
    // 5200m - 1500m - 300m = 3400m: four CPUs.
    for dir in ["", "/podbatch", "/podbatch/batch-main"] {
        assert_eq!(world.get(&format!("{BE}{dir}/cpuset.cpus")).parse::<CpuSet>().unwrap().len(), 4, "{dir}");
    }
    assert_eq!(
        world.get("cpu/kubepods/besteffort/cpu.cfs_quota_us"),
        "-1",
        "an earlier run's quota is lifted"
    );
    let Some(Verdict::ByCpuset { budget, .. }) = world.act.today().verdict() else { panic!() };
    assert_eq!((budget.suppress_milli, budget.ls_used_milli), (3400, 1500));
    world.order(json!({}));
    world.seconds(1, 2.0, &[("web", 1.5)]);
    for dir in ["", "/podbatch", "/podbatch/batch-main"] {
        assert_eq!(world.get(&format!("{BE}{dir}/cpuset.cpus")), "0-7", "{dir}");
    }
}

/// Who was given no CPU keeps what he has, and the gauge says so.
#[test]
fn no_cpu_is_left_for_best_effort_pods() {
    let lse = pod("lse").qos("LSE").kube_qos("Guaranteed").pinned("0-7").read();
    let mut world = World::new(Version::V1, "", threshold("cpuset"), vec![best_effort("batch"), lse]);
    world.put(&format!("{BE}/cpuset.cpus"), "0-7\n");
    let told = warnings("no CPU is left", || world.seconds(2, 2.0, &[("batch", 0.2)]));
    assert_eq!(told, 1, "koordlet-enforce#18.117");
    assert_eq!(world.get(&format!("{BE}/cpuset.cpus")), "0-7", "koordlet-enforce#18.117");
    assert!(world.act.today().verdict().is_some_and(|verdict| verdict.fault().is_some()));
    let line = r#"koordlet_be_suppress_cpu_cores{node="n1",type="cpuset"} 0"#;
    assert!(
        world.page().lines().any(|found| found.strip_suffix(".0").unwrap_or(found) == line),
        "{}",
        world.page()
    );
}

#[test]
fn suppression_by_quota() {
    let mut world = World::new(Version::V2, "", threshold("cfsQuota"), vec![best_effort("batch")]);
    world.put("kubepods/besteffort/cpu.max", "max 100000\n");
    world.put("kubepods/besteffort/cpuset.cpus", "0-7\n");
    world.put("kubepods/besteffort/cpuset.cpus.effective", "0-7\n");
    // 5200m - 200m
    world.seconds(1, 0.5, &[("batch", 0.3)]);
    let Some(Verdict::ByQuota { budget, .. }) = world.act.today().verdict() else { panic!() };
    assert_eq!(budget.suppress_milli, 5000);
    assert_eq!(world.get("kubepods/besteffort/cpu.max"), "500000", "koordlet-enforce#18.125");
}

/// Single quotas go before the quota of all comes, and come after it went, though the strategy is not due: v1 refuses
/// everything else.
#[test]
fn quotas_change_hands_within_a_second() {
    let batch = [("kubernetes.io/batch-cpu", "2000")];
    let be = pod("batch").qos("BE").kube_qos("BestEffort").container("main", &batch, &batch).running().read();
    let line = "-cpu-suppress-interval-seconds=60";
    let mut world = World::new(Version::V1, line, threshold("cpuset"), vec![be]);
    let quota = |dir: &str| format!("cpu/kubepods/besteffort{dir}/cpu.cfs_quota_us");
    let dirs = ["", "/podbatch", "/podbatch/batch-main"];
    for dir in dirs {
        world.put(&quota(dir), "-1\n");
        world.put(&format!("{BE}{dir}/cpuset.cpus"), "0-7\n");
    }
    let quotas = |world: &World| dirs.map(|dir| world.get(&quota(dir)));
    world.seconds(1, 1.0, &[("batch", 0.5)]);
    assert_eq!(quotas(&world), ["-1", "200000", "200000"]);
    world.order(threshold("cfsQuota"));
    world.seconds(1, 1.0, &[("batch", 0.5)]);
    assert_eq!(quotas(&world), ["470000", "-1", "-1"]);
    world.order(threshold("cpuset"));
    world.seconds(1, 1.0, &[("batch", 0.5)]);
    assert_eq!(quotas(&world), ["-1", "200000", "200000"]);
}

/// The quota of a throttled container grows while the node has room, its pod's first.
#[test]
fn quotas_burst() {
    let limits = [("cpu", "1")];
    let web = pod("web").qos("LS").kube_qos("Burstable").container("main", &[], &limits).running().read();
    let slo = json!({ "cpuBurstStrategy": { "policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPercent": 150 } });
    let mut world = World::new(Version::V1, "", slo, vec![web]);
    world.snapshot.hardware = Some(Arc::new(Hardware {
        info: koord_linux::cpu_info::CpuInfo::default(),
        cpus: (0..8)
            .map(|id| koord_linux::topology::Cpu { id, core: id, socket: 0, node: 0, l1: id, l3: 0 })
            .collect(),
        numa_nodes: Vec::new(),
    }));
    let pod_quota = "cpu/kubepods/burstable/podweb/cpu.cfs_quota_us";
    let quota = "cpu/kubepods/burstable/podweb/web-main/cpu.cfs_quota_us";
    world.put(pod_quota, "100000\n");
    world.put(quota, "100000\n");
    let id = "containerd://web-main";
    let mut seen = Vec::new();
    for _ in 0..3 {
        world.sample(Kind::ContainerCpuThrottled, Some(id), 0.5);
        world.sample(Kind::ContainerCpuUsage, Some(id), 1.0);
        world.seconds(1, 1.2, &[("web", 1.0)]);
        seen.push(world.get(quota));
    }
    assert_eq!(seen, ["120000", "144000", "150000"]);
    let (name, message) = &world.records("CFSQuotaBurst")[1];
    assert_eq!(name, "main");
    let want = "update cpu.cfs_quota_us to 120000, was 100000; ScaleUp from 100000 to 120000, \
                within 100000 and 150000 of limit 1000m; 1.00 cores used, 50 % of periods throttled; \
                Idle: 1.20 of 8.00 shared cores used, threshold 50 %";
    assert_eq!(message, want);
    assert_eq!(world.get(pod_quota), "150000");
    world.order(json!({}));
    world.seconds(1, 1.2, &[("web", 1.0)]);
    assert_eq!((world.get(quota), world.get(pod_quota)), ("100000".into(), "100000".into()));
}

/// What follows from pods and rules.
#[test]
fn hooks() {
    let batch = [("kubernetes.io/batch-cpu", "2000"), ("kubernetes.io/batch-memory", "1Gi")];
    let be = pod("batch").qos("BE").kube_qos("BestEffort").container("main", &batch, &batch).running().read();
    let ls = pod("web").qos("LS").kube_qos("Burstable").container("main", &[], &[]).running().read();
    let slo = json!({ "resourceQOSStrategy": {
        "lsClass": { "cpuQOS": { "enable": true, "groupIdentity": 2 } },
        "beClass": { "cpuQOS": { "enable": true, "groupIdentity": -1 } } } });
    let mut world = World::new(Version::V1, "", slo, vec![be, ls]);
    let files = [
        ("cpuset/kubepods/burstable/podweb/web-main/cpuset.cpus", "0-7", "2-7"),
        ("cpu/kubepods/besteffort/podbatch/cpu.shares", "2", "2048"),
        ("cpu/kubepods/besteffort/podbatch/batch-main/cpu.shares", "2", "2048"),
        ("cpu/kubepods/besteffort/podbatch/batch-main/cpu.cfs_quota_us", "-1", "200000"),
        (
            "memory/kubepods/besteffort/podbatch/batch-main/memory.limit_in_bytes",
            "9223372036854771712",
            "1073741824",
        ),
        ("cpu/kubepods/cpu.bvt_warp_ns", "0", "0"),
        ("cpu/kubepods/burstable/cpu.bvt_warp_ns", "0", "2"),
        ("cpu/kubepods/besteffort/cpu.bvt_warp_ns", "0", "-1"),
        ("cpu/kubepods/burstable/podweb/cpu.bvt_warp_ns", "0", "2"),
        ("cpu/kubepods/besteffort/podbatch/cpu.bvt_warp_ns", "0", "-1"),
        ("cpu/kubepods/besteffort/podgone/cpu.bvt_warp_ns", "0", "-1"),
        // Where groups are looked for.
        ("cpuset/kubepods/besteffort/podgone/cpuset.cpus", "0-7", "0-7"),
    ];
    for (file, before, _) in files {
        world.put(file, &format!("{before}\n"));
    }
    world.second();
    for (file, _, after) in files {
        assert_eq!(world.get(file), after, "{file}");
    }
    // Somebody else's change is repaired, though not before it is looked for.
    world.put("cpu/kubepods/burstable/cpu.bvt_warp_ns", "0\n");
    for _ in 0..75 {
        world.second();
    }
    assert_eq!(world.get("cpu/kubepods/burstable/cpu.bvt_warp_ns"), "2");
}

/// Spec: koordlet-enforce 15.2.
#[test]
fn a_host_application_that_is_not_ls_is_told_once() {
    let application = |name: &str, qos: &str| json!({ "name": name, "qos": qos });
    let slo = json!({ "hostApplications": [application("web", "LS"), application("job", "BE")] });
    let mut world = World::new(Version::V1, "", slo, Vec::new());
    let file = "cpuset/host-latency-sensitive/web/cpuset.cpus";
    world.put(file, "0-7\n");
    let told = warnings("only LS is supported for host application job", || {
        (0..25).for_each(|_| world.second());
    });
    assert_eq!((told, world.get(file)), (1, "2-7".to_owned()));
}

/// By its class or by its path, and never the group that its path begins with. Spec: koordlet-enforce 2.2, 15.1.
#[test]
fn host_applications_have_values_of_their_own() {
    let class = |identity: i64| json!({ "cpuQOS": { "enable": true, "groupIdentity": identity } });
    let path =
        |base: &str, relative: &str| json!({ "base": base, "parentDir": "", "relativePath": relative });
    let slo = json!({
        "resourceQOSStrategy": { "lsClass": class(2), "beClass": class(-1) },
        "hostApplications": [
            { "name": "web", "qos": "LS" },
            { "name": "job", "qos": "BE", "cgroupPath": path("KubepodsBesteffort", "jobs/job") },
            { "name": "base", "qos": "BE", "cgroupPath": path("KubepodsBurstable", "") },
        ] });
    let mut world = World::new(Version::V1, "", slo, Vec::new());
    let files = [
        ("cpuset/host-latency-sensitive/web/cpuset.cpus", "0-7", "2-7"),
        ("cpu/host-latency-sensitive/web/cpu.bvt_warp_ns", "0", "2"),
        ("cpu/kubepods/besteffort/jobs/job/cpu.bvt_warp_ns", "0", "-1"),
        ("cpu/kubepods/burstable/cpu.bvt_warp_ns", "0", "2"),
        ("cpu/kubepods/cpu.bvt_warp_ns", "0", "0"),
    ];
    for (file, before, _) in files {
        world.put(file, before);
    }
    world.second();
    for (file, _, after) in files {
        assert_eq!(world.get(file), after, "{file}");
    }
}

/// A pod that has left the list is not taken for a service while its last samples are fresh.
#[test]
fn pods_that_left_are_no_services() {
    let mut world = World::new(Version::V1, "", threshold("cpuset"), vec![best_effort("batch")]);
    world.put(&format!("{BE}/cpuset.cpus"), "0-7\n");
    world.seconds(1, 3.0, &[("batch", 0.5), ("gone", 2.0)]);
    let Some(Verdict::ByCpuset { budget, .. }) = world.act.today().verdict() else { panic!() };
    assert_eq!((budget.ls_used_milli, budget.system_milli), (0, 2500));
}

/// New groups follow at once, however long the interval.
#[test]
fn new_pods_are_suppressed_at_once() {
    let line = "-cpu-suppress-interval-seconds=60";
    let mut world = World::new(Version::V1, line, threshold("cpuset"), vec![best_effort("batch")]);
    for dir in ["", "/podbatch", "/podbatch/batch-main"] {
        world.put(&format!("{BE}{dir}/cpuset.cpus"), "0-7\n");
    }
    world.seconds(2, 3.0, &[("batch", 0.5)]);
    for dir in ["/podlate", "/podlate/late-main"] {
        world.put(&format!("{BE}{dir}/cpuset.cpus"), "0-7\n");
    }
    world.pods.push(best_effort("late"));
    world.news.pods = true;
    world.seconds(1, 3.0, &[("batch", 0.5)]);
    let cpus = world.get(&format!("{BE}/cpuset.cpus"));
    assert_ne!(cpus, "0-7");
    assert_eq!(world.get(&format!("{BE}/podlate/late-main/cpuset.cpus")), cpus);
}

/// The ratio that pods' quotas are divided by changes with the Node by a hundredth at least, and stays when it cannot be
/// read. Spec: koordlet-enforce 15.3.
#[test]
fn small_changes_of_the_ratio_are_ignored() {
    let batch = [("kubernetes.io/batch-cpu", "2000")];
    let be = pod("batch").qos("BE").kube_qos("BestEffort").container("main", &batch, &batch).running().read();
    let mut world = World::new(Version::V1, "", json!({}), vec![be]);
    let quota = "cpu/kubepods/besteffort/podbatch/batch-main/cpu.cfs_quota_us";
    world.put(quota, "-1\n");
    for (ratio, want) in [("2.0", "100000"), ("2.005", "100000"), ("x", "100000"), ("1.6", "125000")] {
        let key = "node.koordinator.sh/cpu-normalization-ratio";
        let amounts = [("cpu", "8"), ("memory", "16Gi")];
        let node = node(&amounts, &amounts).annotated(key, ratio).read();
        world.snapshot.node = Some(Arc::new(NodeState { node, ..NodeState::default() }));
        world.news.node_metadata = true;
        world.second();
        assert_eq!(world.get(quota), want, "{ratio}");
    }
}

/// Groups below a pod of Kata are those of its machine. Spec: koordlet-enforce 14.5.
#[test]
fn containers_of_virtual_machines_are_left_alone() {
    let batch = [("kubernetes.io/batch-cpu", "2000")];
    for (class, want) in [("kata", ["2048", "2", "0-7"]), ("runc", ["2048", "2048", "2-7"])] {
        let be = pod("batch").qos("BE").kube_qos("BestEffort").container("main", &batch, &batch);
        let ls = pod("web").qos("LS").kube_qos("Burstable").container("main", &[], &[]);
        let pods = [be, ls].map(|pod| pod.runtime_class(class).running().read());
        let mut world = World::new(Version::V1, "", json!({}), pods.into());
        let files = [
            "cpu/kubepods/besteffort/podbatch/cpu.shares",
            "cpu/kubepods/besteffort/podbatch/batch-main/cpu.shares",
            "cpuset/kubepods/burstable/podweb/web-main/cpuset.cpus",
        ];
        for (file, before) in files.iter().zip(["2\n", "2\n", "0-7\n"]) {
            world.put(file, before);
        }
        world.second();
        assert_eq!(files.map(|file| world.get(file)), want, "{class}");
    }
}

/// Burst moves quotas of LS pods, but not of pinned ones, nor of init containers: those that come after the ratio are scaled
/// as well. Spec: koordlet-enforce 15.4.
#[test]
fn quotas_that_burst_leaves_alone_are_scaled_when_they_come() {
    let limits = [("cpu", "2")];
    let web =
        |name: &str| pod(name).qos("LS").kube_qos("Burstable").container("main", &[], &limits).running();
    let mut world = World::new(Version::V2, "-feature-gates=CPUNormalization=true", json!({}), Vec::new());
    let amounts = [("cpu", "8"), ("memory", "16Gi")];
    let node =
        node(&amounts, &amounts).annotated("node.koordinator.sh/cpu-normalization-ratio", "1.25").read();
    world.snapshot.node = Some(Arc::new(NodeState { node, ..NodeState::default() }));
    world.second();
    world.pods =
        vec![web("late").pinned("0-1").read(), web("setup").initializing("init", &[], &limits).read()];
    let quotas = ["late", "late/late-main", "setup/setup-init"]
        .map(|dir| format!("kubepods/burstable/pod{dir}/cpu.max"));
    for file in &quotas {
        world.put(file, "200000 100000\n");
    }
    world.turn_with_pods();
    let held = |world: &World| quotas.clone().map(|file| world.get(&file));
    assert_eq!(held(&world), ["160000"; 3]);
    // Kubelet's own value comes back with a restart of the container.
    world.put(&quotas[1], "200000 100000\n");
    for _ in 0..75 {
        world.second();
    }
    assert_eq!(held(&world), ["160000"; 3]);
}

#[test]
fn memory_is_protected_and_given_back_to_classes() {
    let requests = [("memory", "1Gi")];
    let web = pod("web").qos("LS").kube_qos("Burstable").container("main", &requests, &[]).running().read();
    let on = json!({ "resourceQOSStrategy": { "lsClass": { "memoryQOS": { "enable": true, "minLimitPercent": 50 } } } });
    let mut world = World::new(Version::V2, "-feature-gates=CgroupReconcile=true", on, vec![web]);
    let dirs =
        ["kubepods", "kubepods/burstable", "kubepods/burstable/podweb", "kubepods/burstable/podweb/web-main"];
    for dir in dirs {
        world.put(&format!("{dir}/memory.min"), "0\n");
        world.put(&format!("{dir}/memory.low"), "0\n");
    }
    world.second();
    for dir in dirs {
        assert_eq!(world.get(&format!("{dir}/memory.min")), "536870912", "{dir}");
    }
    world.order(json!({}));
    world.second();
    for dir in dirs {
        assert_eq!(world.get(&format!("{dir}/memory.min")), "0", "{dir}");
    }
}

struct Panics;

impl Strategy for Panics {
    fn turn(&mut self, _: &Setting, _: &Ground<'_>, _: &mut Hands<'_>) {
        panic!("as it must");
    }
}

/// Counts its turns. News of pods bring it one.
struct Counts(Arc<AtomicU32>);

impl Strategy for Counts {
    fn turn(&mut self, _: &Setting, _: &Ground<'_>, _: &mut Hands<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn is_urgent(&self, news: News) -> bool {
        news.pods
    }
}

/// A strategy under test.
fn entry(every_seconds: u64, strategy: Box<dyn Strategy>) -> Entry {
    Entry { name: "test", every: Duration::from_secs(every_seconds), next: None, strategy }
}

#[test]
fn a_panic_stops_nobody_and_turns_keep_their_pace() {
    let mut world = World::new(Version::V1, "", json!({}), Vec::new());
    let turns = Arc::new(AtomicU32::new(0));
    world.act.entries = vec![entry(1, Box::new(Panics)), entry(3, Box::new(Counts(turns.clone())))];
    for _ in 0..9 {
        world.second();
    }
    // The first second brought news of pods, and was due anyway.
    assert_eq!(turns.load(Ordering::Relaxed), 3);
}

/// However many turns news brought, the next is due as long after the last as ever.
#[test]
fn news_do_not_put_turns_off() {
    let mut world = World::new(Version::V1, "", json!({}), Vec::new());
    let turns = Arc::new(AtomicU32::new(0));
    world.act.entries = vec![entry(10, Box::new(Counts(turns.clone())))];
    for _ in 0..20 {
        world.news.pods = true;
        world.second();
    }
    assert_eq!(turns.swap(0, Ordering::Relaxed), 20);
    for (seconds, want) in [(9, 0), (1, 1), (10, 1)] {
        (0..seconds).for_each(|_| world.second());
        assert_eq!(turns.swap(0, Ordering::Relaxed), want, "after {seconds} s");
    }
}

#[test]
fn gates_pick_strategies() {
    let names = |line: &str| -> Vec<&'static str> {
        let root = Root::host("/nowhere");
        let cgroups = Arc::new(Cgroups::new(&root, Version::V1, Driver::Cgroupfs));
        Act::new(setting(&root, &cgroups, line)).entries.iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names(""), ["CPUSuppresss", "CPUBurst", "ResctrlReconcile", "runtime-hooks"]);
    let chart = "-feature-gates=BECPUEvict=true,BEMemoryEvict=true,CgroupReconcile=true,Accelerators=true";
    let want = [
        "CPUSuppresss",
        "CPUBurst",
        "CPUEvict",
        "memoryEvict",
        "CgroupReconcile",
        "ResctrlReconcile",
        "runtime-hooks",
    ];
    assert_eq!(names(chart), want);
    let off = "-reconcile-interval-seconds=0 -cpu-suppress-interval-seconds=0 -cpu-evict-interval-seconds=0 \
               -memory-evict-interval-seconds=0";
    assert_eq!(names(&format!("{chart} {off}")), ["runtime-hooks"]);
    assert_eq!(Gates::defaults(Component::Koordlet), flags::of_line("").gates);
}

/// Sandboxes are what containers leave over.
#[test]
fn sandboxes_are_found() {
    let world = World::new(Version::V1, "", json!({}), Vec::new());
    let web = pod("web").kube_qos("Burstable").container("main", &[], &[]).running();
    let state = Arc::new(PodState::read(web.object(), Driver::Cgroupfs));
    let snapshot = Snapshot { pods: vec![state].into(), ..Snapshot::default() };
    for name in ["web-main", "5a"] {
        world.put(&format!("cpuset/kubepods/burstable/podweb/{name}/cpuset.cpus"), "0-7\n");
    }
    let found = reconcile::sandboxes(&world.act.setting.cgroups, &snapshot);
    let id = found.values().next().unwrap();
    assert!(
        matches!(id, crate::decide::wish::Place::Container(_, id) if &**id == "containerd://5a"),
        "{id:?}"
    );
}

/// A setting that is no longer asked for goes back to what it was; docs/qos.md.
#[test]
fn settings_of_the_system_come_and_go() {
    let system = |text: Value| json!({ "systemStrategy": text });
    let both = json!({ "schedIdleSaverWmark": 5, "schedFeatures": { "A": true } });
    let mut world = World::new(Version::V2, "-feature-gates=SystemConfig=true", system(both), Vec::new());
    let wmark = world.dir.path().join("proc/sys/kernel/sched_idle_saver_wmark");
    let features = world.dir.path().join("sys/kernel/debug/sched_features");
    for (path, text) in [(&wmark, "7\n"), (&features, "NO_A B\n")] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let held = |path: &std::path::Path| fs::read_to_string(path).unwrap().trim().to_owned();
    world.second();
    assert_eq!((held(&wmark), held(&features)), ("5".to_owned(), "A".to_owned()));
    // The kernel lists them all whatever is written.
    fs::write(&features, "A B\n").unwrap();
    world.order(system(json!({ "schedFeatures": { "A": true } })));
    world.second();
    assert_eq!((held(&wmark), held(&features)), ("7".to_owned(), "A B".to_owned()));
    world.order(system(json!({})));
    world.second();
    assert_eq!(held(&features), "NO_A");
}
