use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::*;

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

struct Scene {
    dir: PathBuf,
    mirror: Option<Mirror>,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let dir = std::env::temp_dir().join(format!("koord-mirror-{name}-{}", std::process::id())).join("n");
        let shape = Shape { cores: 8, memory: 16 << 30, ..Shape::default() };
        let mirror = Some(Mirror::start(&dir, &shape, "PEM").unwrap());
        Scene { dir, mirror }
    }

    fn tell(&self, pods: &[(&str, i64)]) {
        let tenants = pods.iter().map(|(uid, cpu)| tenant(uid, *cpu)).collect();
        self.mirror.as_ref().unwrap().tell(News { tenants, system: Use { cpu: 100, memory: 1 << 30 } });
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap_or_default().trim().to_owned()
    }

    fn group(&self, controller: &str, group: &str, name: &str) -> String {
        self.read(&file(controller, group, name))
    }

    fn usage(&self, group: &str) -> u64 {
        self.group("cpuacct", group, "cpuacct.usage").parse().unwrap_or(0)
    }

    /// Cores that a group used between two looks, in thousandths.
    fn pace(&self, group: &str) -> u64 {
        let (begun, before) = (Instant::now(), self.usage(group));
        std::thread::sleep(Duration::from_millis(1500));
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap();
        (self.usage(group) - before) * 1000 / nanos
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LIMIT, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn tenant(uid: &str, cpu: i64) -> Tenant {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"uid": uid},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"qosClass": "BestEffort", "containerStatuses": [{"name": "main", "image": "", "imageID": "",
            "containerID": format!("containerd://{uid}c"), "ready": true, "restartCount": 0, "state": {"running": {}}}]},
    }))
    .unwrap();
    Tenant { wants: Use { cpu, memory: 1 << 20 }, ..Tenant::read(&pod).unwrap() }
}

const POD: &str = "kubepods/besteffort/podb";

#[test]
fn a_node_stands_while_it_lives() {
    let mut scene = Scene::new("life");
    assert_eq!(scene.group("cpuset", "kubepods/besteffort", "cpuset.cpus"), "0-7");
    assert_eq!(scene.read("kubelet/pki/ca.crt"), "PEM");
    scene.tell(&[("b", 6000)]);
    scene.until("the pod's group comes", || scene.group("cpu", POD, "cpu.shares") == "2");
    scene.until("it counts", || scene.usage(&format!("{POD}/bc")) > 0);
    scene.until("the system counts", || scene.read("proc/stat").lines().count() == 9);
    scene.tell(&[]);
    scene.until("the group goes", || !scene.dir.join(format!("{CGROUPS}/cpu/{POD}")).exists());
    for controller in CONTROLLERS {
        assert!(!scene.dir.join(format!("{CGROUPS}/{controller}/{POD}")).exists(), "{controller}");
    }
    scene.mirror = None;
    assert!(!scene.dir.parent().unwrap().exists());
}

#[test]
fn files_of_others_are_left_alone() {
    let folder = std::env::temp_dir().join(format!("koord-mirror-theirs-{}", std::process::id()));
    fs::create_dir_all(folder.join("n")).unwrap();
    fs::write(folder.join("n/thesis"), "mine").unwrap();
    let error = Mirror::start(&folder.join("n"), &Shape::default(), "").unwrap_err().to_string();
    assert!(error.contains("holds files that are not of a sandbox"), "{error}");
    clear_hosts(&folder).unwrap();
    assert_eq!(fs::read_to_string(folder.join("n/thesis")).unwrap(), "mine");
    fs::write(folder.join(MARK), "").unwrap();
    clear_hosts(&folder).unwrap();
    assert!(!folder.exists());
}

#[test]
fn what_is_written_counts() {
    let scene = Scene::new("limits");
    scene.tell(&[("b", 6000)]);
    scene.until("it counts", || scene.usage(POD) > 0);
    let write = |controller: &str, group: &str, name: &str, text: &str| {
        fs::write(scene.dir.join(file(controller, group, name)), text).unwrap();
    };
    write("cpuset", "kubepods/besteffort", "cpuset.cpus", "0-1");
    scene.until("its pace falls to two CPUs", || scene.pace(POD) <= 2200);
    write("cpu", POD, "cpu.cfs_quota_us", "50000");
    scene.until("its pace falls to half a CPU", || scene.pace(POD) <= 600);
    scene.until("it is throttled", || !scene.group("cpu", POD, "cpu.stat").contains("nr_throttled 0\n"));
    write("cpu", POD, "cpu.cfs_quota_us", "-1");
    write("cpuset", "kubepods/besteffort", "cpuset.cpus", "0-7");
    scene.until("its pace rises", || scene.pace(POD) >= 5000);
    // A new group begins where its parent is.
    write("cpuset", "kubepods/besteffort", "cpuset.cpus", "3");
    scene.tell(&[("b", 6000), ("c", 6000)]);
    let second = "kubepods/besteffort/podc";
    let container = format!("{second}/cc");
    scene.until("the second comes", || scene.group("cpuset", &container, "cpuset.cpus") == "3");
    assert_eq!(scene.group("cpuset", second, "cpuset.cpus"), "3");
    scene.until("both share one CPU", || scene.pace(POD) <= 600);
}
