use std::fs;
use std::path::Path;

use koord_linux::cgroup::{Driver, Version};
use serde_json::json;

use super::*;
use crate::decide::sketch::{PodSketch, pod};
use crate::store::{Kind, Limits, Property, Selector, Window};

/// When tests begin.
const START_MS: i64 = 1_700_000_000_000;

/// A node of files, its collectors and store, and a clock that tests move.
struct Host {
    dir: tempfile::TempDir,
    root: Root,
    version: Version,
    collectors: Collectors,
    store: Store,
    start: Instant,
    now_ms: i64,
}

/// `memory.stat` with 35 bytes, 50 with page cache.
const MEMORY: [(&str, u64); 7] = [
    ("inactive_anon", 10),
    ("active_anon", 20),
    ("unevictable", 5),
    ("active_file", 7),
    ("inactive_file", 8),
    ("cache", 15),
    ("rss", 30),
];

impl Host {
    fn new(version: Version, settings: Settings) -> Host {
        Host::prepared(version, settings, |_| {})
    }

    /// `prepare` makes the files that must exist before the collectors.
    fn prepared(version: Version, settings: Settings, prepare: impl FnOnce(&Path)) -> Host {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        let root = Root::host(dir.path());
        let cgroups = Arc::new(Cgroups::new(&root, version, Driver::Systemd));
        let mut collectors = Collectors::new(&root, cgroups, settings);
        collectors.node.set_ticks_per_second(100);
        let store = Store::new(&Limits::default());
        Host { dir, root, version, collectors, store, start: Instant::now(), now_ms: 0 }
    }

    fn put(&self, path: &str, content: &str) {
        put(self.dir.path(), path, content);
    }

    fn put_group(&self, controller: &str, dir: &str, file: &str, content: &str) {
        match self.version {
            Version::V1 => self.put(&format!("sys/fs/cgroup/{controller}/{dir}/{file}"), content),
            Version::V2 => self.put(&format!("sys/fs/cgroup/{dir}/{file}"), content),
        }
    }

    /// The files of a group that is measured: CPU time, and periods with how many of them were cut short.
    fn group(&self, dir: &str, usage_ns: u64, (periods, throttled): (u64, u64)) {
        let stat = format!("nr_periods {periods}\nnr_throttled {throttled}\n");
        let memory = |prefix: &str| MEMORY.map(|(key, value)| format!("{prefix}{key} {value}\n")).concat();
        if self.version == Version::V1 {
            self.put_group("cpuacct", dir, "cpuacct.usage", &format!("{usage_ns}\n"));
            self.put_group("cpu", dir, "cpu.stat", &format!("{stat}throttled_time 5\n"));
            self.put_group("memory", dir, "memory.stat", &memory("total_"));
        } else {
            let usage = format!("usage_usec {}\n{stat}throttled_usec 5\n", usage_ns / 1000);
            self.put_group("cpu", dir, "cpu.stat", &usage);
            self.put_group("memory", dir, "memory.stat", &(memory("") + "file 15\nanon 30\n"));
        }
    }

    fn stat(&self, ticks: u64, cpus: &[u64]) {
        let lines: String =
            cpus.iter().enumerate().map(|(cpu, ticks)| format!("cpu{cpu} {ticks} 0 0 9 9 0 0 0\n")).collect();
        self.put("proc/stat", &format!("cpu  {ticks} 0 0 1000 10 0 0 0 0 0\n{lines}intr 5\n"));
    }

    fn meminfo(&self) {
        self.put("proc/meminfo", "MemTotal: 2000 kB\nMemFree: 500 kB\nMemAvailable: 1000 kB\n");
    }

    fn set_pods(&mut self, pods: &[&PodSketch]) {
        let pods: Vec<Pod> = pods.iter().map(|pod| pod.read()).collect();
        self.collectors.set_pods(&pods);
    }

    /// Moves the clock and runs a pass.
    fn pass(&mut self, after_ms: i64) {
        self.now_ms += after_ms;
        let elapsed = Duration::from_millis(self.now_ms.unsigned_abs());
        let now = Moment { unix_ms: START_MS + self.now_ms, instant: self.start + elapsed };
        self.collectors.pass(now, &mut self.store);
    }

    fn all(&self, selector: Selector) -> Vec<f64> {
        let window = Window { start_ms: 0, end_ms: i64::MAX };
        self.store.query(&selector, window).iter().map(|(_, value)| value).collect()
    }

    fn values(&self, kind: Kind) -> Vec<f64> {
        self.all(kind.select(&[]).unwrap())
    }

    fn of(&self, kind: Kind, property: Property, value: &str) -> Vec<f64> {
        self.all(kind.select(&[(property, value)]).unwrap())
    }
}

fn put(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// The directory of a Burstable pod, by its uid.
fn pod_dir(uid: &str) -> String {
    format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice")
}

fn web() -> PodSketch {
    pod("web").kube_qos("Burstable").container("main", &[], &[]).running()
}

fn container_dir() -> String {
    format!("{}/cri-containerd-web-main.scope", pod_dir("web"))
}

const ID: &str = "containerd://web-main";

#[test]
fn pods_from_their_second_round_and_containers_from_their_third() {
    for version in [Version::V1, Version::V2] {
        let mut host = Host::new(version, Settings::default());
        host.set_pods(&[&web()]);
        for round in 0..4_u64 {
            host.group(
                &pod_dir("web"),
                100_000_000 + round * 500_000_000,
                (100 + round * 10, 20 + round * 5),
            );
            host.group(&container_dir(), 7 + round * 250_000_000, (round * 10, round));
            host.pass(1000);
            // koordlet-observe#13.2.B7 koordlet-observe#13.2.B30
            let pods = host.of(Kind::PodCpuUsage, Property::PodUid, "web");
            let containers = host.of(Kind::ContainerCpuUsage, Property::ContainerId, ID);
            let counts = (pods.len(), containers.len());
            assert_eq!(
                counts,
                [(0, 0), (1, 0), (2, 1), (3, 2)][usize::try_from(round).unwrap()],
                "{version:?}"
            );
        }
        assert_eq!(host.values(Kind::PodCpuUsage), [0.5; 3]);
        assert_eq!(host.values(Kind::PodMemoryUsage), [35.0; 3]);
        assert_eq!(host.values(Kind::PodCpuThrottled), [0.5; 3]);
        assert_eq!(host.values(Kind::ContainerCpuUsage), [0.25; 2]);
        assert_eq!(host.values(Kind::ContainerMemoryUsage), [35.0; 2]);
        assert_eq!(host.values(Kind::ContainerCpuThrottled), [0.1; 2]);
        assert_eq!(host.values(Kind::PodMemoryUsageWithPageCache), [0.0; 0]);
    }
}

/// Twenty rounds, however far apart. Spec: koordlet-observe 5.1.
#[test]
fn old_counters_are_no_base() {
    for (interval_s, gap_s, want) in [(1, 20, 1), (1, 21, 0), (30, 30, 1), (30, 600, 1), (30, 630, 0)] {
        let settings = Settings { usage_interval: Duration::from_secs(interval_s), ..Settings::default() };
        let mut host = Host::new(Version::V2, settings);
        host.set_pods(&[&web()]);
        host.group(&pod_dir("web"), 0, (0, 0));
        host.pass(1000);
        host.group(&pod_dir("web"), 500_000_000, (0, 0));
        host.pass(gap_s * 1000);
        assert_eq!(host.values(Kind::PodCpuUsage).len(), want, "{interval_s} {gap_s}");
    }
}

#[test]
fn a_group_made_anew_begins_anew() {
    let mut host = Host::new(Version::V1, Settings::default());
    host.set_pods(&[&web()]);
    for usage in [900_000_000, 950_000_000, 10_000_000, 110_000_000] {
        host.group(&pod_dir("web"), usage, (0, 0));
        host.pass(1000);
    }
    assert_eq!(host.values(Kind::PodCpuUsage), [0.05, 0.1]);
    // A pod whose group has gone is looked for less and less often, and found when it is there again.
    fs::remove_dir_all(host.root.cgroup.join("cpuacct").join(pod_dir("web"))).unwrap();
    (0..100).for_each(|_| host.pass(1000));
    host.group(&pod_dir("web"), 5, (0, 0));
    (0..20).for_each(|_| host.pass(1000));
    assert!(host.values(Kind::PodCpuUsage).len() > 2);
    // So it is when its status changes.
    fs::remove_dir_all(host.root.cgroup.join("cpuacct").join(pod_dir("web"))).unwrap();
    (0..100).for_each(|_| host.pass(1000));
    let before = host.values(Kind::PodCpuUsage).len();
    host.group(&pod_dir("web"), 5, (0, 0));
    host.set_pods(&[&web().phase("Pending")]);
    host.pass(1000);
    host.pass(1000);
    assert_eq!(host.values(Kind::PodCpuUsage).len(), before + 1);
    // One that was deleted is not read at all.
    host.set_pods(&[]);
    host.pass(1000);
    assert_eq!(host.values(Kind::PodCpuUsage).len(), before + 1);
}

#[test]
fn the_node_from_its_second_round() {
    let mut host = Host::prepared(Version::V2, Settings::default(), two_numa_nodes);
    host.meminfo();
    let lengths = |host: &Host| {
        let kinds =
            [Kind::NodeCpuUsage, Kind::NodeMemoryUsage, Kind::NodeNumaMemoryUsage, Kind::NodeNumaCpuUsage];
        kinds.map(|kind| host.values(kind).len())
    };
    host.stat(1000, &[100, 900]);
    host.pass(1000);
    // koordlet-observe#13.2.B29
    assert_eq!(lengths(&host), [0, 0, 0, 0]);
    assert!(host.collectors.not_started().contains(&"NodeResourceCollector"));
    host.stat(1650, &[150, 1500]);
    host.pass(1000);
    assert_eq!(lengths(&host), [1, 1, 2, 0]);
    assert!(!host.collectors.not_started().contains(&"NodeResourceCollector"));
    // koordlet-observe#13.2.B31
    host.stat(1700, &[200, 1499]);
    host.pass(1000);
    assert_eq!(host.values(Kind::NodeCpuUsage), [6.5, 0.5]);
    assert_eq!(host.values(Kind::NodeMemoryUsage), [1_024_000.0; 2]);
    assert_eq!(host.of(Kind::NodeNumaCpuUsage, Property::NumaNodeId, "0"), [0.5]);
    assert_eq!(host.of(Kind::NodeNumaCpuUsage, Property::NumaNodeId, "1"), [0.0; 0]);
    assert_eq!(host.of(Kind::NodeNumaMemoryUsage, Property::NumaNodeId, "0"), [450_560_000.0; 2]);
    // A counter that goes back, and a file that is cut short, give no sample.
    host.stat(1699, &[200, 1499]);
    host.pass(1000);
    host.put("proc/stat", "cpu 1 2 3\n");
    host.pass(1000);
    assert_eq!(host.values(Kind::NodeCpuUsage).len(), 2);
}

/// Two NUMA nodes with a CPU each.
fn two_numa_nodes(root: &Path) {
    put(root, "sys/devices/system/cpu/online", "0-1\n");
    for node in 0..2 {
        put(root, &format!("sys/devices/system/node/node{node}/cpulist"), &format!("{node}\n"));
        let lines = [
            ("MemTotal", 1_000_000),
            ("MemFree", 400_000),
            ("Active(file)", 100_000),
            ("Inactive(file)", 50_000),
            ("SReclaimable", 10_000),
        ];
        let text = lines.map(|(key, value)| format!("Node {node} {key}: {value} kB\n")).concat();
        put(root, &format!("sys/bus/node/devices/node{node}/meminfo"), &text);
    }
}

#[test]
fn the_system_uses_what_nobody_else_does() {
    let mut host = Host::prepared(Version::V1, Settings::default(), two_numa_nodes);
    host.meminfo();
    host.set_pods(&[&web()]);
    let round = |host: &mut Host, n: u64| {
        host.stat(n * 400, &[n * 300, n * 100]);
        host.group(&pod_dir("web"), n * 1_500_000_000, (0, 0));
        host.put_group("memory", &pod_dir("web"), "memory.numa_stat", "total=30 N0=200000 N1=0\n");
        host.pass(1000);
    };
    (1..4).for_each(|n| round(&mut host, n));
    // koordlet-observe#13.2.B34: without a NodeSLO it is not known which host applications there are.
    assert_eq!(host.values(Kind::SysCpuUsage), [0.0; 0]);
    host.collectors.set_applications(Some(&[]), MemoryPolicy::default());
    round(&mut host, 4);
    assert_eq!(host.values(Kind::SysCpuUsage), [2.5]);
    assert_eq!(host.values(Kind::SysMemoryUsage), [1_024_000.0 - 35.0]);
    assert_eq!(host.of(Kind::SysNumaCpuUsage, Property::NumaNodeId, "0"), [1.875]);
    assert_eq!(host.of(Kind::SysNumaCpuUsage, Property::NumaNodeId, "1"), [0.625]);
    assert_eq!(host.of(Kind::SysNumaMemoryUsage, Property::NumaNodeId, "0"), [0.0]);
    assert_eq!(host.of(Kind::SysNumaMemoryUsage, Property::NumaNodeId, "1"), [450_560_000.0]);
    // koordlet-observe#13.2.B14: what host applications used counts for ten seconds.
    host.collectors.set_applications(None, MemoryPolicy::default());
    (5..15).for_each(|n| round(&mut host, n));
    assert_eq!(host.values(Kind::SysCpuUsage).len(), 11);
    round(&mut host, 15);
    assert_eq!((host.values(Kind::SysCpuUsage).len(), host.values(Kind::NodeCpuUsage).len()), (11, 14));
}

/// koordlet-observe 5.2: a NUMA node with no CPU left gets no sample, and hides nobody else's.
#[test]
fn numa_nodes_without_cpus_hide_nothing() {
    let mut host = Host::prepared(Version::V1, Settings::default(), |root| {
        two_numa_nodes(root);
        put(root, "sys/devices/system/node/node2/cpulist", "\n");
        put(root, "sys/bus/node/devices/node2/meminfo", "Node 2 MemTotal: 500 kB\nNode 2 MemFree: 100 kB\n");
    });
    host.meminfo();
    host.set_pods(&[&web()]);
    host.collectors.set_applications(Some(&[]), MemoryPolicy::default());
    let round = |host: &mut Host, n: u64, ticks: &[u64]| {
        host.stat(n * 400, ticks);
        host.group(&pod_dir("web"), n * 1_500_000_000, (0, 0));
        host.put_group("memory", &pod_dir("web"), "memory.numa_stat", "total=30 N0=0 N1=0 N2=0\n");
        host.pass(1000);
    };
    (1..4).for_each(|n| round(&mut host, n, &[n * 300, n * 100]));
    let cores = |host: &Host, node| host.of(Kind::SysNumaCpuUsage, Property::NumaNodeId, node);
    assert_eq!((cores(&host, "0"), cores(&host, "1"), cores(&host, "2")), (vec![1.875], vec![0.625], vec![]));
    assert_eq!(host.of(Kind::SysNumaMemoryUsage, Property::NumaNodeId, "2"), [409_600.0; 2]);
    // The only CPU of the second goes offline.
    put(host.dir.path(), "sys/devices/system/cpu/online", "0\n");
    (4..80).for_each(|n| round(&mut host, n, &[n * 300]));
    assert_eq!(cores(&host, "0").last(), Some(&2.5));
    assert!(cores(&host, "0").len() > 60, "{}", cores(&host, "0").len());
}

/// koordlet-observe#13.2.B9
#[test]
fn a_pod_that_lacks_a_number_is_passed_over() {
    for (version, dir, line) in
        [(Version::V1, "memory", "total_unevictable 5\n"), (Version::V2, "", "unevictable 5\n")]
    {
        let mut host = Host::new(version, Settings::default());
        host.set_pods(&[&web()]);
        let file = host.root.cgroup.join(dir).join(pod_dir("web")).join("memory.stat");
        for round in 0..4_u64 {
            host.group(&pod_dir("web"), round * 500_000_000, (0, 0));
            host.group(&container_dir(), round * 250_000_000, (0, 0));
            let whole = fs::read_to_string(&file).unwrap();
            fs::write(&file, whole.replace(line, "")).unwrap();
            host.pass(1000);
        }
        for kind in [Kind::PodCpuUsage, Kind::PodMemoryUsage, Kind::ContainerCpuUsage] {
            assert_eq!(host.values(kind), [0.0; 0], "{version:?} {kind:?}");
        }
        assert_eq!(host.collectors.pods.used().unwrap().1, Usage::default(), "{version:?}");
        // It is found when it is whole again.
        for round in 4..40_u64 {
            host.group(&pod_dir("web"), round * 500_000_000, (0, 0));
            host.pass(1000);
        }
        assert!(!host.values(Kind::PodCpuUsage).is_empty(), "{version:?}");
    }
}

const BE: &str = "kubepods.slice/kubepods-besteffort.slice";

#[test]
fn best_effort_pods_together() {
    for version in [Version::V1, Version::V2] {
        let mut host = Host::new(version, Settings::default());
        host.pass(1000);
        assert!(host.collectors.not_started().contains(&"BEResourceCollector"));
        let cpus_file = if version == Version::V1 { "cpuset.cpus" } else { "cpuset.cpus.effective" };
        let quota = |host: &Host, quota: &str| {
            if version == Version::V1 {
                host.put_group("cpu", BE, "cpu.cfs_quota_us", quota);
                host.put_group("cpu", BE, "cpu.cfs_period_us", "100000\n");
            } else {
                let quota = if quota == "-1" { "max" } else { quota };
                host.put_group("cpu", BE, "cpu.max", &format!("{quota} 100000\n"));
            }
        };
        host.group(BE, 1_000_000_000, (0, 0));
        host.put_group("cpuset", BE, cpus_file, "0-7\n");
        quota(&host, "-1");
        let containers = [("a", "0-7\n"), ("b", "0-3\n"), ("new", "\n")];
        for (name, cpus) in containers {
            host.put_group("cpuset", &format!("{BE}/pod-x/{name}"), cpus_file, cpus);
        }
        // Neither pods nor what lies deeper than containers count.
        host.put_group("cpuset", &format!("{BE}/pod-x"), cpus_file, "0-7\n");
        host.put_group("cpuset", &format!("{BE}/pod-x/a/deep"), cpus_file, "0\n");
        // koordlet-observe#13.2.B36
        let labelled = |name: &str, amounts: &[&str]| {
            let bare = pod(name).qos("BE").kube_qos("BestEffort");
            (0..).zip(amounts).fold(bare, |pod, (at, amount)| {
                pod.container(&format!("c{at}"), &[("kubernetes.io/batch-cpu", amount)], &[])
            })
        };
        let many = labelled("many", &["1000", "500", "-3"]).container("none", &[], &[]);
        let many = many.initializing("init", &[("kubernetes.io/batch-cpu", "9000")], &[]);
        let sidecar = json!({ "name": "side", "restartPolicy": "Always",
            "resources": { "requests": { "kubernetes.io/batch-cpu": "200" } } });
        let mut many = many.object().clone();
        let inits = many.spec.as_mut().unwrap().init_containers.as_mut().unwrap();
        inits.push(serde_json::from_value(sidecar).unwrap());
        let over = labelled("over", &["300"]).phase("Succeeded");
        let unlabelled =
            pod("bare").kube_qos("BestEffort").container("c", &[("kubernetes.io/batch-cpu", "4000")], &[]);
        host.collectors.set_pods(&[Pod::read(&many), over.read(), unlabelled.read()]);
        host.pass(1000);
        quota(&host, "300000");
        host.group(BE, 3_500_000_000, (0, 0));
        host.pass(1000);
        let of = |host: &Host, allocation: &str| host.of(Kind::NodeBe, Property::BeAllocation, allocation);
        assert_eq!(of(&host, "usage"), [0.0, 2500.0], "{version:?}");
        assert_eq!(of(&host, "real-limit"), [4000.0, 3000.0], "{version:?}");
        assert_eq!(of(&host, "request"), [2000.0, 2000.0], "{version:?}");
        assert_eq!(host.collectors.best_effort_used_milli(), Some(2500));
        // A container that ends frees what it held back; one that comes is seen.
        quota(&host, "-1");
        let listing = if version == Version::V1 { "cpuset" } else { "" };
        fs::remove_dir_all(host.root.cgroup.join(listing).join(BE).join("pod-x/b")).unwrap();
        host.put_group("cpuset", &format!("{BE}/pod-y/c"), cpus_file, "0-4\n");
        host.pass(1000);
        assert_eq!(of(&host, "real-limit")[2..], [5000.0], "{version:?}");
        // Half a file costs the round, not the process.
        host.put_group("cpuset", BE, cpus_file, "0-\n");
        host.pass(1000);
        assert_eq!(of(&host, "real-limit").len(), 3);
    }
}

fn application(name: &str, qos: &str) -> HostApplicationSpec {
    HostApplicationSpec { name: name.into(), qos: qos.into(), ..HostApplicationSpec::default() }
}

#[test]
fn host_applications() {
    let mut host = Host::new(Version::V1, Settings::default());
    let apps = [application("nginx", "LS"), application("gone", "BE")];
    let policy = MemoryPolicy::WithPageCache;
    host.collectors.set_applications(Some(&apps), policy);
    for round in 0..2_u64 {
        host.group("host-latency-sensitive/nginx", round * 250_000_000, (0, 0));
        host.put_group("memory", "host-latency-sensitive/nginx", "memory.usage_in_bytes", "77\n");
        host.pass(1000);
        if round == 0 {
            // koordlet-observe#13.2.B44
            assert_eq!(host.collectors.host_apps.used().unwrap().1, Usage::default());
        }
    }
    assert_eq!(host.values(Kind::HostApplicationCpuUsage), [0.25]);
    assert_eq!(host.values(Kind::HostApplicationMemoryUsage), [35.0]);
    assert_eq!(host.values(Kind::HostApplicationMemoryUsageWithPageCache), [77.0]);
    assert_eq!(host.collectors.host_apps.used().unwrap().1, Usage { cores: 0.25, bytes: 77.0 });
    let reading = &host.collectors.applications()[0];
    assert_eq!((&*reading.name, &*reading.qos, reading.usage.bytes), ("nginx", "LS", 35.0));
    // Without page cache the other memory counts, and what is known stays.
    host.collectors.set_applications(Some(&apps[..1]), MemoryPolicy::default());
    host.group("host-latency-sensitive/nginx", 500_000_000, (0, 0));
    host.pass(1000);
    assert_eq!(host.collectors.host_apps.used().unwrap().1, Usage { cores: 0.25, bytes: 35.0 });
}

fn idle_stats(cold: u64) -> String {
    let ornament = "# version: 1.0\n".repeat(6) + &"  x\n".repeat(8);
    let rows = (0..16).map(|row| format!("row{row} 0 0 0 0 0 0 0 0\n")).collect::<String>();
    ornament + &format!("cfei 9 9 9 9 9 {cold} 0 0\n") + &rows
}

fn kidled(root: &Path) {
    put(root, "sys/kernel/mm/kidled/scan_period_in_seconds", "0\n");
    put(root, "sys/kernel/mm/kidled/use_hierarchy", "0\n");
    put(root, "sys/fs/cgroup/memory/kubepods.slice/memory.idle_page_stats", &idle_stats(0));
}

#[test]
fn cold_pages_and_page_cache() {
    let settings = Settings { has_cold_pages: true, has_page_cache: true, ..Settings::default() };
    let mut host = Host::prepared(Version::V1, settings, kidled);
    host.meminfo();
    host.stat(1, &[1]);
    host.set_pods(&[&web()]);
    host.group(&pod_dir("web"), 0, (0, 0));
    host.group(&container_dir(), 0, (0, 0));
    for (dir, cold) in [("", 1024), (pod_dir("web").as_str(), 20), (container_dir().as_str(), 200)] {
        host.put_group("memory", dir, "memory.idle_page_stats", &idle_stats(cold));
    }
    host.pass(1000);
    // koordlet-observe#13.2.B51, and koordlet-observe#13.2.B53: without a NodeSLO only host applications are missing.
    assert_eq!(host.values(Kind::NodeMemoryColdPageSize), [1024.0]);
    assert_eq!(host.values(Kind::NodeMemoryWithHotPageUsage), [1_534_976.0]);
    assert_eq!(host.values(Kind::PodMemoryWithHotPageUsage), [30.0]);
    assert_eq!(host.values(Kind::ContainerMemoryColdPageSize), [200.0]);
    assert_eq!(host.values(Kind::ContainerMemoryWithHotPageUsage), [0.0]);
    assert_eq!(host.values(Kind::HostApplicationMemoryColdPageSize), [0.0; 0]);
    // koordlet-observe#13.2.B54
    assert_eq!(host.values(Kind::NodeMemoryUsageWithPageCache), [1_536_000.0]);
    assert_eq!(host.values(Kind::PodMemoryUsageWithPageCache), [50.0]);
    assert_eq!(host.values(Kind::ContainerMemoryUsageWithPageCache), [50.0]);
    let held = || fs::read_to_string(host.root.sys.join("kernel/mm/kidled/scan_period_in_seconds")).unwrap();
    // koordlet-observe#13.2.B52: on.
    assert_eq!(held(), "5");
    let hierarchy = host.root.sys.join("kernel/mm/kidled/use_hierarchy");
    assert_eq!(fs::read_to_string(&hierarchy).unwrap(), "1");
    host.collectors.stop();
    assert_eq!(held(), "0");
}

#[test]
fn cold_pages_of_host_applications() {
    const NGINX: &str = "host-latency-sensitive/nginx";
    let settings = Settings { has_cold_pages: true, ..Settings::default() };
    let mut host = Host::prepared(Version::V1, settings, kidled);
    host.group(NGINX, 0, (0, 0));
    host.put_group("memory", NGINX, "memory.usage_in_bytes", "77\n");
    host.put_group("memory", NGINX, "memory.idle_page_stats", &idle_stats(20));
    host.collectors.set_applications(Some(&[application("nginx", "LS")]), MemoryPolicy::default());
    host.pass(1000);
    // 50 with page cache, of which 20 are cold.
    let of = |host: &Host, kind: Kind| host.of(kind, Property::HostAppName, "nginx");
    assert_eq!(of(&host, Kind::HostApplicationMemoryColdPageSize), [20.0]);
    assert_eq!(of(&host, Kind::HostApplicationMemoryWithHotPageUsage), [30.0]);
}

/// koordlet-observe#13.2.B52: off.
#[test]
fn kidled_is_left_alone_where_nobody_asked() {
    let host = Host::prepared(Version::V1, Settings::default(), kidled);
    let path = host.root.sys.join("kernel/mm/kidled/scan_period_in_seconds");
    assert_eq!(fs::read_to_string(path).unwrap(), "0\n");
    assert!(!host.collectors.has_cold_pages());
}

#[test]
fn pressure() {
    let settings = Settings { has_pressure: true, ..Settings::default() };
    let mut host = Host::new(Version::V2, settings);
    host.put_group("", "kubepods.slice", "cpu.pressure", "");
    host.put_group("", "kubepods.slice", "memory.pressure", "");
    host.put_group("", "kubepods.slice", "io.pressure", "");
    host.set_pods(&[&web()]);
    let some = "some avg10=1.50 avg60=0.20 avg300=0.30 total=1000\n";
    let both = format!("{some}full avg10=0.50 avg60=0.02 avg300=0.03 total=100\n");
    for dir in [pod_dir("web"), container_dir()] {
        host.put_group("", &dir, "cpu.pressure", some);
        host.put_group("", &dir, "memory.pressure", &both);
        host.put_group("", &dir, "io.pressure", &both);
    }
    host.pass(1000);
    host.pass(1000);
    // koordlet-observe#13.2.B55
    for (kind, support) in [
        (Kind::PodPsi, Kind::PodPsiCpuFullSupported),
        (Kind::ContainerPsi, Kind::ContainerPsiCpuFullSupported),
    ] {
        let of = |resource: &str, degree: &str| {
            let properties = [(Property::PsiResource, resource), (Property::PsiDegree, degree)];
            host.all(kind.select(&properties).unwrap())
        };
        assert_eq!((of("cpu", "some"), of("cpu", "full")), (vec![1.5], vec![0.0]));
        assert_eq!((of("mem", "some"), of("mem", "full")), (vec![1.5], vec![0.5]));
        assert_eq!((of("io", "some"), of("io", "full")), (vec![1.5], vec![0.5]));
        assert_eq!(host.values(support), [0.0]);
        assert_eq!(host.values(kind).len(), 6);
    }
    assert_eq!(host.collectors.pressures().len(), 2);
    assert_eq!(host.collectors.pressures()[0].container.as_ref().unwrap().0.as_ref(), ID);
    // An old kernel: a word, and no waiting for it.
    let settings = Settings { has_pressure: true, ..Settings::default() };
    let mut host = Host::new(Version::V1, settings);
    host.pass(1000);
    assert!(!host.collectors.not_started().contains(&"PerformanceCollector"));
}

#[test]
fn cycles_of_what_cannot_be_counted_are_left_out() {
    let settings = Settings { has_cycles: true, ..Settings::default() };
    let mut host = Host::prepared(Version::V2, settings, two_numa_nodes);
    host.set_pods(&[&web()]);
    fs::create_dir_all(host.root.cgroup.join(container_dir())).unwrap();
    (0..15).for_each(|_| host.pass(1000));
    assert_eq!(host.values(Kind::ContainerCpi), [0.0; 0]);
    assert!(host.collectors.cycles().is_empty());
    assert!(!host.collectors.not_started().contains(&"PerformanceCollector"));
}

#[test]
fn facts_are_kept_and_counted() {
    let settings = Settings { has_storage: true, ..Settings::default() };
    let mut host = Host::prepared(Version::V2, settings, |_| {});
    host.pass(1000);
    assert_eq!((host.collectors.rounds().cpu.failed, host.collectors.rounds().storage.failed), (1, 1));
    assert!(host.collectors.facts().cpu.is_none());
    two_numa_nodes(host.dir.path());
    put(host.dir.path(), "sys/class/block/vda/dev", "253:0\n");
    host.pass(60_000);
    let first = host.collectors.facts().clone();
    let cpu = first.cpu.unwrap();
    assert_eq!((cpu.cpus.len(), cpu.node_of(1), cpu.node_of(7)), (2, Some(1), None));
    assert_eq!(first.numa.len(), 2);
    assert_eq!(first.storage.unwrap().disks.len(), 1);
    host.pass(60_000);
    assert!(Arc::ptr_eq(&cpu, host.collectors.facts().cpu.as_ref().unwrap()));
    assert_eq!(host.collectors.rounds().cpu.succeeded, 2);
    // A CPU that goes is seen, as is a switch.
    put(host.dir.path(), "sys/devices/system/cpu/online", "0\n");
    put(host.dir.path(), "sys/devices/system/cpu/smt/active", "1\n");
    host.pass(60_000);
    let now = host.collectors.facts().cpu.clone().unwrap();
    assert_eq!((now.cpus.len(), now.info.hyper_threading, cpu.info.hyper_threading), (1, true, false));
}

#[test]
fn a_steady_pass_opens_nothing() {
    for version in [Version::V1, Version::V2] {
        let mut host = Host::prepared(version, Settings::default(), two_numa_nodes);
        host.meminfo();
        host.stat(1, &[1, 1]);
        host.set_pods(&[&web()]);
        host.group(&pod_dir("web"), 0, (0, 0));
        host.group(&container_dir(), 0, (0, 0));
        host.group("host-latency-sensitive/nginx", 0, (0, 0));
        host.put_group("memory", "host-latency-sensitive/nginx", "memory.usage_in_bytes", "77\n");
        host.collectors.set_applications(Some(&[application("nginx", "LS")]), MemoryPolicy::default());
        (0..3).for_each(|_| host.pass(1000));
        let opens = host.collectors.opens();
        assert!(opens > 8, "{opens}");
        (0..100).for_each(|_| host.pass(1000));
        assert_eq!(host.collectors.opens(), opens, "{version:?}");
    }
}
