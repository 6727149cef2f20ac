//! The collectors on this machine's own kernel: real groups, a real process that burns CPU, a real quota.
//!
//! Links lead from a tree of the test's own into a group of its own in every cgroup v1 hierarchy, so that nothing else
//! is touched; on v2 the group is the root. Where the machine does not permit it, the test says so and passes.
//! `e2e/tests/kernel` runs it in a virtual machine with cgroup v2, too.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use koord_linux::cgroup::{Cgroups, Driver, Version};
use koord_linux::root::Root;
use koordlet::collect::{Collectors, MemoryPolicy, Moment, Settings};
use koordlet::decide::snapshot::Pod;
use koordlet::store::{Kind, Limits, Points, Store, Window};
use serde_json::json;

const CONTROLLERS: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];
const CONTAINER: &str = "kubepods/burstable/podu1/c1";
/// Parents before children.
const GROUPS: [&str; 5] =
    ["kubepods", "kubepods/besteffort", "kubepods/burstable", "kubepods/burstable/podu1", CONTAINER];
/// Long enough for any machine; reached only when something is broken.
const PATIENCE: Duration = Duration::from_secs(120);

/// The group that stands for the root.
fn top() -> String {
    format!("koord-observe-{}", std::process::id())
}

/// Groups of our own, removed at the end.
struct Machine {
    dir: tempfile::TempDir,
    version: Version,
    /// In order of creation.
    made: Vec<PathBuf>,
    burner: Option<Child>,
    collectors: Collectors,
    store: Store,
}

impl Machine {
    /// None, and a word why, where the machine does not permit it.
    fn new() -> Option<Machine> {
        let host = Root::host("/");
        let Ok(version) = Version::detect(&host) else {
            eprintln!("skipped: /sys/fs/cgroup holds no cgroups");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let mut root = Root { proc: "/proc".into(), sys: "/sys".into(), ..Root::host(dir.path()) };
        if version == Version::V2 {
            root.cgroup = host.cgroup.join(top());
        }
        let cgroups = Arc::new(Cgroups::new(&root, version, Driver::Cgroupfs));
        let settings = Settings { usage_interval: Duration::ZERO, ..Settings::default() };
        let collectors = Collectors::new(&root, cgroups, settings);
        let store = Store::new(&Limits::default());
        let mut machine = Machine { dir, version, made: Vec::new(), burner: None, collectors, store };
        let made = match version {
            Version::V1 => machine.make_groups(&host),
            Version::V2 => machine.make_unified_groups(&host),
        };
        if let Err(error) = made {
            eprintln!("skipped: this machine's cgroups cannot be written: {error}");
            return None;
        }
        Some(machine)
    }

    fn make_groups(&mut self, host: &Root) -> std::io::Result<()> {
        let links = self.dir.path().join("sys/fs/cgroup");
        fs::create_dir_all(&links)?;
        for controller in CONTROLLERS {
            let hierarchy = host.cgroup.join(controller);
            let top = hierarchy.join(top());
            fs::create_dir(&top)?;
            self.made.push(top.clone());
            for group in GROUPS {
                fs::create_dir(top.join(group))?;
                self.made.push(top.join(group));
            }
            if controller == "cpuset" {
                // A set of v1 is empty until somebody fills it.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let all = fs::read_to_string(hierarchy.join(file))?;
                    for group in ["", "kubepods", "kubepods/besteffort"] {
                        fs::write(top.join(group).join(file), all.trim())?;
                    }
                }
            }
            std::os::unix::fs::symlink(&top, links.join(controller))?;
        }
        Ok(())
    }

    fn make_unified_groups(&mut self, host: &Root) -> std::io::Result<()> {
        let top = host.cgroup.join(top());
        let groups: Vec<PathBuf> = GROUPS.iter().map(|group| top.join(group)).collect();
        for path in [top].into_iter().chain(groups) {
            let parent = path.parent().ok_or(std::io::ErrorKind::NotFound)?;
            fs::write(parent.join("cgroup.subtree_control"), "+cpu +cpuset +memory")?;
            fs::create_dir(&path)?;
            self.made.push(path);
        }
        Ok(())
    }

    fn path(&self, controller: &str, group: &str) -> PathBuf {
        match self.version {
            Version::V1 => self.dir.path().join("sys/fs/cgroup").join(controller).join(group),
            Version::V2 => PathBuf::from("/sys/fs/cgroup").join(top()).join(group),
        }
    }

    fn burn(&mut self) {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let id = child.id().to_string();
        self.burner = Some(child);
        for controller in ["cpu", "cpuacct", "memory"] {
            fs::write(self.path(controller, CONTAINER).join("cgroup.procs"), &id).unwrap();
        }
    }

    fn stop(&mut self) {
        if let Some(mut burner) = self.burner.take() {
            let _ = burner.kill();
            let _ = burner.wait();
        }
    }

    fn pass(&mut self) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let unix_ms = i64::try_from(unix.as_millis()).unwrap();
        self.collectors.pass(Moment { unix_ms, instant: Instant::now() }, &mut self.store);
        // A pass is worth little when hardly any time lies between two.
        std::thread::sleep(Duration::from_millis(200));
    }

    fn points(&self, kind: Kind) -> Points {
        self.store.query(&kind.select(&[]).unwrap(), Window { start_ms: 0, end_ms: i64::MAX })
    }

    /// Collects until some value of the kind is as wanted.
    fn wait_for(&mut self, kind: Kind, is_wanted: impl Fn(f64) -> bool) -> f64 {
        let start = Instant::now();
        loop {
            if let Some((_, value)) = self.points(kind).iter().find(|(_, value)| is_wanted(*value)) {
                return value;
            }
            assert!(start.elapsed() < PATIENCE, "{kind}: {:?}", self.points(kind));
            self.pass();
        }
    }

    fn remove_groups(&mut self, is_chosen: impl Fn(&PathBuf) -> bool) {
        let chosen: Vec<PathBuf> = self.made.extract_if(.., |path| is_chosen(path)).collect();
        for path in chosen.into_iter().rev() {
            let start = Instant::now();
            // A group is busy until its last task is quite gone.
            while fs::remove_dir(&path).is_err() && start.elapsed() < Duration::from_secs(5) {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
        self.remove_groups(|_| true);
    }
}

fn pod() -> Pod {
    let object = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{
            "name": "main", "containerID": "containerd://c1", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "state": {"running": {}},
        }]},
    });
    Pod::read(&serde_json::from_value(object).unwrap())
}

#[test]
fn work_limits_and_the_end_of_a_container_are_seen() {
    let Some(mut machine) = Machine::new() else { return };
    machine.collectors.set_pods(&[pod()]);
    machine.collectors.set_applications(Some(&[]), MemoryPolicy::default());
    machine.burn();
    let cores = machine.wait_for(Kind::ContainerCpuUsage, |cores| cores > 0.05);
    assert!(cores < 1.5, "one process used {cores} cores");
    let pod_cores = machine.wait_for(Kind::PodCpuUsage, |cores| cores > 0.05);
    assert!(pod_cores < 1.5, "{pod_cores}");
    machine.wait_for(Kind::NodeCpuUsage, |cores| cores > 0.0);
    machine.wait_for(Kind::NodeMemoryUsage, |bytes| bytes > 1e6);
    machine.wait_for(Kind::SysCpuUsage, |cores| cores >= 0.0);
    // What the group of best-effort pods may use: all CPUs; it uses none.
    let cpus = std::thread::available_parallelism().unwrap().get();
    machine.wait_for(Kind::NodeBe, |milli| (1000.0..=1e6).contains(&milli));
    eprintln!("{cores} cores of {cpus}; not started: {:?}", machine.collectors.not_started());
    assert_eq!(machine.collectors.not_started(), [""; 0]);
    let (file, quota) = match machine.version {
        Version::V1 => ("cpu.cfs_quota_us", "5000"),
        Version::V2 => ("cpu.max", "5000 100000"),
    };
    fs::write(machine.path("cpu", CONTAINER).join(file), quota).unwrap();
    let ratio = machine.wait_for(Kind::ContainerCpuThrottled, |ratio| ratio > 0.0);
    assert!(ratio <= 1.0, "{ratio}");
    let opens = machine.collectors.opens();
    (0..5).for_each(|_| machine.pass());
    assert_eq!(machine.collectors.opens(), opens);
    // The container ends: its files are still open, its group has gone, and the pod is measured on.
    machine.stop();
    machine.remove_groups(|path| path.ends_with(CONTAINER));
    machine.pass();
    let (container, pod) = (machine.points(Kind::ContainerCpuUsage), machine.points(Kind::PodCpuUsage));
    (0..5).for_each(|_| machine.pass());
    assert_eq!(machine.points(Kind::ContainerCpuUsage).count(), container.count());
    assert!(machine.points(Kind::PodCpuUsage).count() > pod.count());
}
