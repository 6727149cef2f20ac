//! Wishes on a tree of plain files.

use std::fs;
use std::path::Path;

use koord_api::cpuset::CpuSet;
use koord_api::qos::KubeQos;
use koord_kit::metrics::Format;
use koord_linux::cgroup::{Driver, Version};

use super::*;
use crate::audit::{Answer, Auditor, Query};
use crate::decide::hooks::cpuset::Because;
use crate::decide::sketch::pod;
use crate::decide::wish::{HostBase, HostPlace, PodId, ProcessPlace, Why};
use crate::overheard::warnings;

struct World {
    dir: tempfile::TempDir,
    root: Root,
    version: Version,
    metrics: KoordletMetrics,
    auditor: Auditor,
    applier: Applier,
}

impl World {
    fn new(version: Version) -> World {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        let auditor = Auditor::of_test(dir.path());
        let metrics = KoordletMetrics::new("n1");
        let applier = applier(&root, version, &auditor, &metrics);
        World { dir, root, version, metrics, auditor, applier }
    }

    /// Another process on the same node.
    fn restart(&mut self) {
        self.applier = applier(&self.root, self.version, &self.auditor, &self.metrics);
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.dir.path().join("sys/fs").join(file)
    }

    fn put(&self, file: &str, content: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn get(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap().trim().to_owned()
    }

    fn apply(&mut self, batch: Batch) -> Report {
        self.applier.apply(Instant::now(), &batch, Names::default())
    }

    fn records(&self) -> Vec<(String, String, String, String)> {
        let Answer::Page { events, .. } = self.auditor.query(&Query::default(), Instant::now()) else {
            panic!()
        };
        let row = |event: crate::audit::Event| (event.kind, event.name, event.reason, event.message);
        events.into_iter().rev().map(row).collect()
    }
}

fn applier(root: &Root, version: Version, auditor: &Auditor, metrics: &KoordletMetrics) -> Applier {
    let cgroups = Arc::new(Cgroups::new(root, version, Driver::Cgroupfs));
    let undo = Undo::open(&undo_path(root));
    Applier::new(
        root,
        cgroups,
        Duration::from_secs(60),
        Records::only(auditor.clone()),
        metrics.clone(),
        undo,
    )
}

fn wish(place: Place, file: File, value: Value, cause: Cause) -> Wish {
    Wish::new(place, file, value, cause)
}

fn be() -> Place {
    Place::Kube(KubeQos::BestEffort)
}

#[test]
fn places() {
    let pod = pod("a").qos("BE").read();
    let id = pod.id.clone();
    let dir = |place: Place, driver| dir_of(&place, driver).map(|dir| dir.as_str().to_owned());
    let container = Place::Container(id.clone(), "containerd://1f".into());
    let app = |base, dir: &str| Place::HostApplication(Box::new(HostPlace { base, dir: dir.into() }));
    let below_be = HostBase::Kube(KubeQos::BestEffort);
    for (place, want) in [
        (Place::CgroupRoot, Some("".to_owned())),
        (be(), Some("kubepods/besteffort".to_owned())),
        (Place::Kube(KubeQos::Guaranteed), Some("kubepods".to_owned())),
        (container, Some(format!("{}/1f", dir(Place::Pod(id.clone()), Driver::Cgroupfs).unwrap()))),
        (Place::Container(id.clone(), "nonsense".into()), None),
        (app(below_be, "x/y"), Some("kubepods/besteffort/x/y".to_owned())),
        (app(below_be, ""), None),
        (app(below_be, "./"), None),
        (app(HostBase::CgroupRoot, "kubepods/burstable"), None),
        (app(HostBase::CgroupRoot, ""), None),
        (Place::Dir("a/../b".into()), None),
        (Place::Host, None),
    ] {
        assert_eq!(dir(place.clone(), Driver::Cgroupfs), want, "{place:?}");
    }
    assert_eq!(dir(be(), Driver::Systemd).as_deref(), Some("kubepods.slice/kubepods-besteffort.slice"));
}

#[test]
fn a_write_leaves_a_record_and_a_metric_and_is_not_repeated() {
    let mut world = World::new(Version::V1);
    world.put("cgroup/cpuset/kubepods/besteffort/cpuset.cpus", "0-7\n");
    let cpus = Value::Cpus(CpuSet::range(0..=3));
    let batch = Batch::Levels(vec![vec![wish(be(), File::CpusetCpus, cpus, Cause::CpuSuppress)]]);
    assert_eq!(world.apply(batch.clone()), Report { written: 1, failed: 0 });
    assert_eq!(world.get("cgroup/cpuset/kubepods/besteffort/cpuset.cpus"), "0-3");
    assert_eq!(world.apply(batch), Report::default());
    let want = ("group", "besteffort", "AdjustBEByNodeCPUUsage", "update BE group to cpuset: 0-3, was 0-7");
    let want = (want.0.to_owned(), want.1.to_owned(), want.2.to_owned(), want.3.to_owned());
    assert_eq!(world.records(), [want]);
    let page = world.metrics.internal().render(Format::Prometheus);
    let line = "koordlet_resource_update_duration_milliseconds_count{type=\"cgroup\",status=\"success\"} 1";
    assert!(page.lines().any(|found| found == line), "{page}");
}

/// What becomes of an application beside the pods is no best-effort pod's business, whatever its folder is called.
#[test]
fn applications_are_not_taken_for_the_group_of_best_effort_pods() {
    let mut world = World::new(Version::V1);
    world.put("cgroup/cpu/besteffort/cpu.bvt_warp_ns", "0\n");
    let place =
        Place::HostApplication(Box::new(HostPlace { base: HostBase::CgroupRoot, dir: BEST_EFFORT.into() }));
    world.apply(Batch::Each(vec![wish(place, File::CpuBvtWarp, Value::Number(-1), Cause::RuntimeHook)]));
    let names: Vec<String> = world.records().into_iter().map(|(_, name, ..)| name).collect();
    assert_eq!(names, ["host application besteffort"]);
}

/// Suppression and its end are kept by whoever keeps little.
#[test]
fn records_have_the_level_of_their_cause() {
    let mut world = World::new(Version::V1);
    world.auditor = Auditor::of_test_keeping(world.dir.path(), 1);
    world.restart();
    world.put("cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us", "50000\n");
    for (value, cause) in
        [(60_000, Cause::CpuSuppress), (-1, Cause::QuotaRecovery), (70_000, Cause::RuntimeHook)]
    {
        world.apply(Batch::Each(vec![wish(be(), File::CpuCfsQuota, Value::Number(value), cause)]));
    }
    let reasons: Vec<String> = world.records().into_iter().map(|(_, _, reason, _)| reason).collect();
    assert_eq!(reasons, ["AdjustBEByNodeCPUUsage", "suppressBECPU"]);
}

#[test]
fn records_say_what_was_there() {
    let told = "update cpuset.cpus to 2";
    for (before, want) in [
        ("0-7\n", ", was 0-7; the share pools of LS pods"),
        (executor::INHERITED, ", was its parent's; the share pools of LS pods"),
        ("", "; the share pools of LS pods"),
        ("8:0 rbps=1\n8:16 rbps=2\n", "; the share pools of LS pods"),
    ] {
        let wish = wish(be(), File::CpusetCpus, Value::Number(2), Cause::RuntimeHook);
        let wish = wish.because(&Why::Cpus(Because::SharePool));
        assert_eq!(wish.say(before), format!("{told}{want}"), "{before:?}");
    }
}

/// A pod's container by its name, not by its id, one that initializes it too.
#[test]
fn records_name_pods() {
    let sketch = pod("a").qos("LS").container("main", &[], &[]).running();
    let pod = sketch.initializing("setup", &[], &[]).read();
    for (container, name) in pod.with_init_containers().zip(["main", "setup"]) {
        let mut world = World::new(Version::V2);
        let place = container.place(&pod).unwrap();
        let dir = dir_of(&place, Driver::Cgroupfs).unwrap();
        world.put(&format!("cgroup/{dir}/cpu.max"), "100000 100000\n");
        let raise = wish(place, File::CpuCfsQuota, Value::Number(120_000), Cause::QuotaBurst);
        let names = Names(std::slice::from_ref(&pod));
        assert_eq!(world.applier.apply(Instant::now(), &Batch::Chain(vec![raise]), names).written, 1);
        assert_eq!(world.get(&format!("cgroup/{dir}/cpu.max")), "120000");
        let Answer::Page { events, .. } = world.auditor.query(&Query::default(), Instant::now()) else {
            panic!()
        };
        let event = &events[0];
        assert_eq!((event.kind.as_str(), event.name.as_str(), event.container.as_str()), ("pod", "a", name));
        assert_eq!(
            (event.reason.as_str(), event.message.as_str()),
            ("CFSQuotaBurst", "update cpu.cfs_quota_us to 120000, was 100000")
        );
    }
}

#[test]
fn a_chain_ends_with_its_first_failure() {
    let mut world = World::new(Version::V1);
    world.put("cgroup/cpu/a/cpu.shares", "1024\n");
    world.put("cgroup/cpu/b/cpu.shares", "1024\n");
    let shares = |dir: &str, value| {
        wish(Place::Dir(dir.into()), File::CpuShares, Value::Number(value), Cause::RuntimeHook)
    };
    // Shares below 2 are refused before they are written.
    assert_eq!(
        world.apply(Batch::Chain(vec![shares("a", 1), shares("b", 100)])),
        Report { written: 0, failed: 1 }
    );
    assert_eq!(world.get("cgroup/cpu/b/cpu.shares"), "1024");
    assert_eq!(
        world.apply(Batch::Each(vec![shares("a", 1), shares("b", 100)])),
        Report { written: 1, failed: 1 }
    );
    assert_eq!(world.get("cgroup/cpu/b/cpu.shares"), "100");
}

#[test]
fn what_the_kernel_lacks_is_no_failure() {
    let mut world = World::new(Version::V1);
    let gone = wish(Place::Dir("gone".into()), File::CpuShares, Value::Number(100), Cause::RuntimeHook);
    let lacking = wish(be(), File::CpuBvtWarp, Value::Number(2), Cause::RuntimeHook);
    assert_eq!(world.apply(Batch::Each(vec![gone, lacking])), Report::default());
    assert!(world.records().is_empty());
}

/// A weight in an idle group is no failure, and told once, whatever the group. Spec: koordlet-enforce 19.22.
#[test]
fn what_the_kernel_has_no_use_for_is_told_once() {
    let mut world = World::new(Version::V2);
    let dir = |name: &str| koord_linux::cgroup::Dir::new(name).unwrap();
    for (name, error) in [
        ("a", Error::Write { path: "a".into(), value: "79".into(), source: std::io::Error::other("no") }),
        ("b", Error::Missing { path: "b".into() }),
        ("c", Error::Write { path: "c".into(), value: "79".into(), source: std::io::Error::other("no") }),
    ] {
        let update = Update::cgroup(Resource::CpuShares, &dir(name), "2048");
        let report = world.applier.take_in(&[update], &[Outcome::Ignored(error)]);
        assert_eq!(report, Report::default(), "{name}");
        assert_eq!(world.applier.pointless.len(), 1, "{name}");
    }
}

#[test]
fn resctrl() {
    let mut world = World::new(Version::V1);
    world.put("resctrl/BE/schemata", "L3:0=7ff;1=7ff\nMB:0=100;1=100\n");
    world.put("resctrl/BE/tasks", "");
    world.metrics.node_seen();
    let group = || Place::Resctrl("BE".into());
    let text = Value::Text("L3:0=f;1=f;\n".to_owned());
    assert!(
        world.apply(Batch::Each(vec![wish(group(), File::ResctrlSchemata, text, Cause::Resctrl)])).written
            > 0
    );
    assert!(world.get("resctrl/BE/schemata").starts_with("L3:0=f;1=f"));
    let tasks = wish(group(), File::ResctrlTasks, Value::Tasks(vec![7, 8]), Cause::ResctrlTasks);
    assert_eq!(world.apply(Batch::Each(vec![tasks])), Report { written: 2, failed: 0 });
    assert_eq!(world.get("resctrl/BE/tasks"), "7\n8");
    let page = world.metrics.internal().render(Format::Prometheus);
    let line = "koordlet_node_change{node=\"n1\",kind=\"resctrl-tasks\",status=\"success\"} 1";
    assert!(page.contains(line), "{page}");
}

/// What stood there first comes back, also after another process took over.
#[test]
fn changes_are_given_back() {
    for version in [Version::V1, Version::V2] {
        let mut world = World::new(version);
        let (quota, shares, unlimited) = match version {
            Version::V1 => (
                "cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us",
                "cgroup/cpu/kubepods/besteffort/cpu.shares",
                "-1",
            ),
            Version::V2 => {
                ("cgroup/kubepods/besteffort/cpu.max", "cgroup/kubepods/besteffort/cpu.weight", "max 100000")
            }
        };
        world.put(quota, &format!("{unlimited}\n"));
        world.put(shares, "59\n");
        world.put("../../proc/sys/vm/min_free_kbytes", "67584\n");
        let number = |file, value, cause| wish(be(), file, Value::Number(value), cause);
        world.apply(Batch::Each(vec![
            number(File::CpuCfsQuota, 50_000, Cause::CpuSuppress),
            number(File::CpuShares, 1024, Cause::RuntimeHook),
            wish(Place::Host, File::MinFreeKbytes, Value::Number(100_000), Cause::SystemConfig),
        ]));
        world.restart();
        world.apply(Batch::Each(vec![number(File::CpuCfsQuota, 60_000, Cause::CpuSuppress)]));
        let told = world.records().len();
        let is_quota = |change: &Change<'_>| change.reason == Cause::CpuSuppress.reason();
        assert_eq!(world.applier.give_back(Instant::now(), is_quota).written, 1, "{version:?}");
        assert!(unlimited.starts_with(world.get(quota).split(' ').next().unwrap()), "{version:?}");
        assert_ne!(world.get(shares), "59", "others stay");
        world.restart();
        assert_eq!(world.applier.give_back(Instant::now(), |_| true), Report { written: 2, failed: 0 });
        assert_eq!(world.get(shares), "59", "{version:?}");
        assert_eq!(world.get("../../proc/sys/vm/min_free_kbytes"), "67584");
        world.restart();
        assert_eq!(world.applier.give_back(Instant::now(), |_| true), Report::default());
        let mut told = world.records().split_off(told);
        told.sort();
        let quota = unlimited.split(' ').next().unwrap();
        assert_eq!(
            told.iter()
                .map(|(kind, name, _, message)| format!("{kind} {name}: {message}"))
                .collect::<Vec<_>>(),
            [
                format!(
                    "group kubepods/besteffort: give cpu.cfs_quota_us back {quota}; it had been changed for AdjustBEByNodeCPUUsage"
                ),
                "group kubepods/besteffort: give cpu.shares back 59; it had been changed for runtime-hooks"
                    .to_owned(),
                "node : give min_free_kbytes back 67584; it had been changed for systemConfig reconcile"
                    .to_owned(),
            ],
            "{version:?}"
        );
    }
}

/// What the host had goes back though a strategy may not ask for it.
#[test]
fn values_beyond_our_ranges_are_given_back() {
    let mut world = World::new(Version::V2);
    let (scale, free) = ("../../proc/sys/vm/watermark_scale_factor", "../../proc/sys/vm/min_free_kbytes");
    let weight = "cgroup/kubepods/besteffort/io.weight";
    for (file, before) in [(scale, "1000\n"), (free, "8192\n"), (weight, "default 50\n")] {
        world.put(file, before);
    }
    let host = |file, value| wish(Place::Host, file, Value::Number(value), Cause::SystemConfig);
    let disk = crate::decide::wish::Disk { major: 8, minor: 0 };
    world.apply(Batch::Each(vec![
        host(File::WatermarkScaleFactor, 150),
        host(File::MinFreeKbytes, 100_000),
        wish(be(), File::BlkioWeight, Value::Disk(disk, "60".to_owned()), Cause::BlockIo),
    ]));
    assert_eq!([scale, free, weight].map(|file| world.get(file)), ["150", "100000", "8:0 60"]);
    world.restart();
    assert_eq!(world.applier.give_back(Instant::now(), |_| true), Report { written: 3, failed: 0 });
    assert_eq!([scale, free, weight].map(|file| world.get(file)), ["1000", "8192", "8:0 default"]);
}

/// A process that ended is forgotten, and whoever has its id now is left alone.
#[test]
fn scores_are_given_back_to_their_processes() {
    let mut world = World::new(Version::V1);
    let process = |world: &World, pid: u32, start_ticks: u64, score: &str| {
        let stat = format!("{pid} (app) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start_ticks} 0");
        world.put(&format!("../../proc/{pid}/stat"), &stat);
        world.put(&format!("../../proc/{pid}/oom_score_adj"), score);
    };
    let scores = |world: &World| [7, 8, 9].map(|pid| world.get(&format!("../../proc/{pid}/oom_score_adj")));
    let score = |pid, start_ticks| {
        let pod = PodId { uid: "u".into(), kube_qos: KubeQos::Burstable };
        let place = ProcessPlace { pid, start_ticks, pod, container: "containerd://c".into() };
        wish(Place::Process(Box::new(place)), File::OomScoreAdj, Value::Number(-500), Cause::RuntimeHook)
    };
    for pid in [7, 8] {
        process(&world, pid, 100, "900\n");
    }
    process(&world, 9, 200, "5\n");
    let report = world.apply(Batch::Each(vec![score(7, 100), score(8, 100), score(9, 199)]));
    assert_eq!(report, Report { written: 2, failed: 0 });
    assert_eq!(scores(&world), ["-500", "-500", "5"], "9 is not the one that was meant");
    let of = |pid, start_ticks| Process { pid, start_ticks };
    world.applier.inherit(of(9, 200), of(7, 100));
    world.applier.inherit(of(8, 100), of(9, 200));
    world.applier.inherit(of(10, 1), of(11, 1));
    process(&world, 8, 300, "6\n");
    world.restart();
    let report = world.applier.give_back(Instant::now(), |_| true);
    assert_eq!(report, Report { written: 2, failed: 0 });
    assert_eq!(scores(&world), ["900", "6", "900"]);
    world.restart();
    assert_eq!(lock(&world.applier.undo).len(), 0);
}

/// What cannot be given back now can be later.
#[test]
fn what_fails_is_not_forgotten() {
    let mut world = World::new(Version::V1);
    let (shares, features) = ("cgroup/cpu/a/cpu.shares", "../kernel/debug/sched_features");
    world.put(shares, "59\n");
    world.put(features, "NO_A B\n");
    world.apply(Batch::Each(vec![
        wish(Place::Dir("a".into()), File::CpuShares, Value::Number(1024), Cause::RuntimeHook),
        wish(Place::Host, File::SchedFeatures, Value::Text("A\n".to_owned()), Cause::SystemConfig),
    ]));
    world.put(features, "A B\n");
    // A folder in place of the file can be neither read nor written.
    let path = world.path(shares);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    world.restart();
    let all = |world: &mut World| world.applier.give_back(Instant::now(), |_| true);
    assert_eq!(all(&mut world), Report { written: 1, failed: 1 });
    assert_eq!(world.get(features), "NO_A");
    fs::remove_dir(&path).unwrap();
    world.put(shares, "1024\n");
    world.restart();
    assert_eq!(all(&mut world), Report { written: 1, failed: 0 });
    assert_eq!(world.get(shares), "59");
    assert_eq!(all(&mut world), Report::default());
}

/// A set that was the parent's is so again, and each disk has the line back that it had.
#[test]
fn inherited_sets_and_lines_of_disks_are_given_back() {
    let mut world = World::new(Version::V2);
    let file = |name: &str| format!("cgroup/kubepods/besteffort/{name}");
    world.put(&file("cpuset.cpus"), "\n");
    world.put(&file("cpuset.cpus.effective"), "0-7\n");
    let cpus = Value::Cpus(CpuSet::range(0..=3));
    world.apply(Batch::Each(vec![wish(be(), File::CpusetCpus, cpus, Cause::CpuSuppress)]));
    assert_eq!(world.get(&file("cpuset.cpus")), "0-3");
    world.put(&file("io.max"), "8:16 rbps=5 wbps=max riops=max wiops=max\n");
    let disk = |minor| crate::decide::wish::Disk { major: 8, minor };
    let limit = |minor, bps: &str| {
        wish(be(), File::BlkioReadBps, Value::Disk(disk(minor), bps.to_owned()), Cause::BlockIo)
    };
    world.apply(Batch::Each(vec![limit(16, "9")]));
    world.put(&file("io.max"), "8:0 rbps=7 wbps=max riops=max wiops=max\n");
    world.apply(Batch::Each(vec![limit(0, "0")]));
    world.restart();
    // A plain file holds one write only: what a kernel would hold is put there by hand.
    world.put(
        &file("io.max"),
        "8:16 rbps=9 wbps=max riops=max wiops=max\n8:0 rbps=7 wbps=max riops=max wiops=max\n",
    );
    let report = world.applier.give_back(Instant::now(), |_| true);
    assert_eq!(report, Report { written: 2, failed: 0 });
    assert_eq!(world.get(&file("cpuset.cpus")), "");
    assert_eq!(world.get(&file("io.max")), "8:16 rbps=5", "the other disk has what it had");
}

/// On v1 a group that begins while its parent has few CPUs has a copy of these, and gets what the parent gets back. What
/// another strategy gave a container stays until that goes.
#[test]
fn copies_of_a_parents_set_are_given_back_with_it() {
    let mut world = World::new(Version::V1);
    let file = |dir: &str| format!("cgroup/cpuset/kubepods/besteffort{dir}/cpuset.cpus");
    let sets = |world: &World, dirs: &[&str]| -> Vec<String> {
        dirs.iter().map(|dir| world.get(&file(dir))).collect()
    };
    let cpus = |dir: &str, cpus: &str, cause| {
        let place = Place::Dir(format!("kubepods/besteffort{dir}").into());
        wish(place, File::CpusetCpus, Value::Cpus(cpus.parse().unwrap()), cause)
    };
    let suppress = |world: &mut World, set: &str, dirs: &[&str]| {
        let wishes = dirs.iter().map(|dir| cpus(dir, set, Cause::CpuSuppress));
        assert_eq!(world.apply(Batch::Each(wishes.collect())).failed, 0);
    };
    let old = ["", "/poda", "/poda/a"];
    for (dir, set) in old.into_iter().zip(["0-15", "0-15", "2-15"]) {
        world.put(&file(dir), set);
    }
    suppress(&mut world, "0-1,8", &old);
    let (written, untouched, pinned) = (["/podb", "/podb/b"], ["/podc", "/podc/c"], "/podc/p");
    written.into_iter().for_each(|dir| world.put(&file(dir), "0-1,8"));
    suppress(&mut world, "0-2", &[&old[..], &written].concat());
    untouched.into_iter().chain([pinned]).for_each(|dir| world.put(&file(dir), "0-2"));
    world.apply(Batch::Each(vec![cpus(pinned, "2", Cause::RuntimeHook)]));
    suppress(&mut world, "0-2", &[&old[..], &written, &untouched].concat());
    world.restart();
    let is_ours = |change: &Change<'_>| change.reason == Cause::CpuSuppress.reason();
    assert_eq!(world.applier.give_back(Instant::now(), is_ours), Report { written: 7, failed: 0 });
    assert_eq!(sets(&world, &old), ["0-15", "0-15", "2-15"]);
    assert_eq!(sets(&world, &written), ["0-15", "0-15"]);
    assert_eq!(sets(&world, &untouched), ["0-15", "0-15"]);
    assert_eq!(world.get(&file(pinned)), "2");
    let told = "give cpuset.cpus back nothing of its own; it had been changed for AdjustBEByNodeCPUUsage";
    assert!(world.records().iter().any(|(_, name, _, message)| name.ends_with("/podc/c") && message == told));
    world.restart();
    assert_eq!(world.applier.give_back(Instant::now(), |_| true), Report { written: 1, failed: 0 });
    assert_eq!(world.get(&file(pinned)), "0-15");
    assert!(lock(&world.applier.undo).is_empty());
}

/// Also when the batch that first changes the parent widens it, and so comes to the children afterwards.
#[test]
fn sets_from_before_the_first_batch_are_no_copies() {
    let mut world = World::new(Version::V1);
    let dirs = ["", "/poda", "/poda/a"];
    let file = |dir: &str| format!("cgroup/cpuset/kubepods/besteffort{dir}/cpuset.cpus");
    world.put("cgroup/cpuset/kubepods/cpuset.cpus", "0-3");
    for (dir, set) in dirs.into_iter().zip(["0-2", "0-1", "1"]) {
        world.put(&file(dir), set);
    }
    let all = dirs.map(|dir| {
        let place = Place::Dir(format!("kubepods/besteffort{dir}").into());
        wish(place, File::CpusetCpus, Value::Cpus("0-3".parse().unwrap()), Cause::CpuSuppress)
    });
    assert_eq!(world.apply(Batch::Each(all.into())), Report { written: 3, failed: 0 });
    assert_eq!(world.applier.give_back(Instant::now(), |_| true), Report { written: 3, failed: 0 });
    assert_eq!(dirs.map(|dir| world.get(&file(dir))), ["0-2", "0-1", "1"]);
}

#[test]
fn groups_that_are_gone_are_forgotten() {
    let mut world = World::new(Version::V1);
    for number in 0..400 {
        let dir = format!("pod{number}");
        world.put(&format!("cgroup/cpu/{dir}/cpu.shares"), "10\n");
        let shares =
            wish(Place::Dir(dir.as_str().into()), File::CpuShares, Value::Number(1024), Cause::RuntimeHook);
        let report = world.apply(Batch::Each(vec![shares]));
        assert_eq!(report.written, 1);
        if number % 2 == 0 {
            fs::remove_dir_all(world.path("cgroup/cpu").join(dir)).unwrap();
        }
    }
    world.applier.tidy(Instant::now());
    assert_eq!(lock(&world.applier.undo).len(), 200);
    let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    assert_eq!(lines(&undo_path(&world.root)), 400, "not worth writing anew");
    for entry in fs::read_dir(world.path("cgroup/cpu")).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    for _ in 0..3 {
        world.put("cgroup/cpu/other/cpu.shares", "10\n");
    }
    world.applier.tidy(Instant::now());
    assert!(lock(&world.applier.undo).is_empty());
}

/// v1 gives a CPU that was offline back to no group.
#[test]
fn cpus_that_the_group_above_lacks_are_left_out_and_told_once() {
    let mut world = World::new(Version::V1);
    let (above, class) =
        ("cgroup/cpuset/kubepods/cpuset.cpus", "cgroup/cpuset/kubepods/besteffort/cpuset.cpus");
    let batch = |last: u32| {
        let cpus = Value::Cpus(CpuSet::range(0..=last));
        Batch::Levels(vec![vec![wish(be(), File::CpusetCpus, cpus, Cause::CpuSuppress)]])
    };
    world.put(above, "0-3\n");
    world.put(class, "0-3\n");
    assert_eq!(world.apply(batch(1)), Report { written: 1, failed: 0 });
    world.put(above, "0-2\n");
    let told = warnings("the group above lacks", || {
        assert_eq!(world.apply(batch(3)), Report { written: 1, failed: 0 });
        for seconds in [11, 22] {
            let now = Instant::now() + Duration::from_secs(seconds);
            assert_eq!(world.applier.apply(now, &batch(3), Names(&[])), Report::default());
        }
    });
    assert_eq!((world.get(class).as_str(), told), ("0-2", 1));
    world.apply(batch(1));
    assert_eq!(world.applier.give_back(Instant::now(), |_| true), Report { written: 1, failed: 0 });
    assert_eq!(world.get(class), "0-2", "as much of what it was as there is");
    assert_eq!(world.applier.give_back(Instant::now(), |_| true), Report::default());
}
