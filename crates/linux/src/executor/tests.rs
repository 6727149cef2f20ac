use std::fs;
use std::sync::Mutex;

use koord_api::qos::KubeQos;

use super::*;
use crate::cgroup::Driver;

struct World {
    _dir: tempfile::TempDir,
    root: Root,
    cgroups: Arc<Cgroups>,
    executor: Executor,
    /// `file value` of every write that was tried, and `!` before those that failed.
    log: Arc<Mutex<Vec<String>>>,
    start: Instant,
}

impl World {
    fn new(version: Version) -> World {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        let cgroups = Arc::new(Cgroups::new(&root, version, Driver::Cgroupfs));
        let log = Arc::new(Mutex::new(Vec::new()));
        let heard = log.clone();
        let audit: Audit = Box::new(move |attempt| {
            let mark = if attempt.error.is_some() { "!" } else { "" };
            let name = attempt.path.file_name().unwrap().to_str().unwrap();
            heard.lock().unwrap().push(format!("{mark}{name} {}", attempt.value));
        });
        let executor = Executor::new(root.clone(), cgroups.clone(), Duration::from_secs(60), audit);
        World { _dir: dir, root, cgroups, executor, log, start: Instant::now() }
    }

    fn put(&self, resource: Resource, dir: &Dir, content: &str) {
        let path = self.cgroups.path(resource, dir).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn get(&self, resource: Resource, dir: &Dir) -> String {
        fs::read_to_string(self.cgroups.path(resource, dir).unwrap()).unwrap().trim().to_owned()
    }

    fn update(&mut self, seconds: u64, update: &Update) -> Outcome {
        self.executor.update(self.start + Duration::from_secs(seconds), Caching::Trust, update)
    }

    fn taken_log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

fn be() -> Dir {
    Driver::Cgroupfs.qos_dir(KubeQos::BestEffort)
}

#[test]
fn a_written_value_is_trusted_for_a_minute() {
    let mut world = World::new(Version::V1);
    world.put(Resource::CpuShares, &be(), "50\n");
    let update = Update::cgroup(Resource::CpuShares, &be(), "100");
    // koordlet-enforce#18.235
    assert!(matches!(world.update(0, &update), Outcome::Written));
    assert_eq!(world.get(Resource::CpuShares, &be()), "100");
    world.put(Resource::CpuShares, &be(), "50\n");
    assert!(matches!(world.update(60, &update), Outcome::Known));
    assert_eq!(world.get(Resource::CpuShares, &be()), "50");
    assert!(matches!(world.update(61, &update), Outcome::Written));
    assert!(matches!(world.update(62, &Update::cgroup(Resource::CpuShares, &be(), "200")), Outcome::Written));
    assert!(matches!(world.executor.update(world.start, Caching::Look, &update), Outcome::Written));
    assert!(matches!(world.executor.update(world.start, Caching::Look, &update), Outcome::Unchanged));
    assert_eq!(world.taken_log().len(), 4);
}

#[test]
fn values_that_the_kernel_would_refuse_are_not_written() {
    let mut world = World::new(Version::V1);
    world.put(Resource::CpuShares, &be(), "50\n");
    // koordlet-enforce#18.236
    let Outcome::Failed(error) = world.update(0, &Update::cgroup(Resource::CpuShares, &be(), "1")) else {
        panic!("the value is out of range")
    };
    let text =
        "write cgroup cpu.shares failed, value[1] not valid, msg: value 1 is not in [min:2, max:262144]";
    assert_eq!(error.to_string(), text);
    world.put(Resource::CpusetCpus, &be(), "0-3\n");
    let empty = Update::cgroup(Resource::CpusetCpus, &be(), "");
    assert!(matches!(world.update(0, &empty), Outcome::Failed(Error::Invalid { .. })));
    assert_eq!(world.taken_log(), [""; 0]);
}

/// What a file held goes back, though no wish may be so. Spec: koordlet-enforce 2.4, 2.6.
#[test]
fn values_of_others_are_restored_whatever_our_ranges_say() {
    let mut world = World::new(Version::V2);
    let scale = SystemFile::WatermarkScaleFactor;
    let path = scale.path(&world.root);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "400\n").unwrap();
    world.put(Resource::IoWeight, &be(), "default 50\n8:0 100\n8:16 70\n");
    let weight = |value: &str| Update::cgroup(Resource::IoWeight, &be(), value);
    let updates = [Update::system(scale, "1000"), weight("8:0 500"), weight("8:16 default")];
    for update in &updates {
        assert!(matches!(world.update(0, update), Outcome::Failed(Error::Invalid { .. })), "{update:?}");
    }
    let outcomes = world.executor.restore(world.start, &updates);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Written)), "{outcomes:?}");
    let mut log = world.taken_log();
    log.sort();
    assert_eq!(log, ["io.weight 8:0 500", "io.weight 8:16 default", "watermark_scale_factor 1000"]);
}

#[test]
fn groups_that_ended_and_features_that_lack_are_passed_over() {
    let mut world = World::new(Version::V1);
    let gone = Update::cgroup(Resource::CpuShares, &be(), "100");
    assert!(matches!(world.update(0, &gone), Outcome::Ignored(Error::Missing { .. })));
    let lacking = Update::cgroup(Resource::BvtWarpNs, &be(), "2");
    assert!(matches!(world.update(0, &lacking), Outcome::Ignored(Error::Unsupported { .. })));
    let unknown = Update::cgroup(Resource::PagecacheLimitEnable, &be(), "1");
    assert!(matches!(world.update(0, &unknown), Outcome::Failed(Error::NotRegistered { .. })));
    // Nothing was remembered: the group appears, and the value is written.
    world.put(Resource::CpuShares, &be(), "2\n");
    assert!(matches!(world.update(0, &gone), Outcome::Written));
}

#[test]
fn v2_files_are_written_in_their_own_language() {
    let mut world = World::new(Version::V2);
    world.put(Resource::CpuShares, &be(), "1\n");
    world.put(Resource::CfsQuotaUs, &be(), "max 100000\n");
    world.put(Resource::MemoryLimit, &be(), "4096\n");
    let updates = [
        Update::cgroup(Resource::CpuShares, &be(), "1024"),
        Update::cgroup(Resource::CfsQuotaUs, &be(), "-1"),
        Update::cgroup(Resource::MemoryLimit, &be(), "-1"),
    ];
    let outcomes = world.executor.apply(world.start, Caching::Trust, &updates);
    assert!(matches!(outcomes[..], [Outcome::Written, Outcome::Unchanged, Outcome::Written]), "{outcomes:?}");
    assert_eq!(world.taken_log(), ["cpu.weight 39", "memory.max max"]);
    let again = world.executor.apply(world.start, Caching::Trust, &updates);
    assert!(again.iter().all(|outcome| matches!(outcome, Outcome::Known)), "{again:?}");
}

#[test]
fn an_inherited_cpuset_is_written_once() {
    let mut world = World::new(Version::V2);
    world.put(Resource::CpusetCpus, &be(), "\n");
    let effective = world.cgroups.read_path(Resource::CpusetCpus, &be()).unwrap();
    fs::write(effective, "0-3\n").unwrap();
    let same = Update::cgroup(Resource::CpusetCpus, &be(), "0-3");
    let first = world.update(0, &same);
    assert!(matches!(first, Outcome::Written), "it amounts to these, and holds none: {first:?}");
    assert!(matches!(world.update(0, &same), Outcome::Known));
    let narrower = Update::cgroup(Resource::CpusetCpus, &be(), "0-1");
    assert!(matches!(world.update(0, &narrower), Outcome::Written));
    assert_eq!(world.taken_log(), ["cpuset.cpus 0-3", "cpuset.cpus 0-1"]);
    // Straight to other CPUs: never fewer than it has until its parent's turn was.
    world.put(Resource::CpusetCpus, &be(), "\n");
    let outcome = world.executor.apply(
        world.start,
        Caching::Look,
        &[Update::cgroup(Resource::CpusetCpus, &be(), "2-5")],
    );
    assert!(matches!(outcome[..], [Outcome::Written]), "{outcome:?}");
    assert_eq!(world.taken_log(), ["cpuset.cpus 0-5", "cpuset.cpus 2-5"]);
}

#[test]
fn a_batch_moves_cpus_down_and_up_the_tree() {
    let mut world = World::new(Version::V1);
    let pod = be().child("podx");
    let container = pod.child("1");
    for dir in [&be(), &pod, &container] {
        world.put(Resource::CpusetCpus, dir, "0-3\n");
    }
    // Whatever the order of the updates.
    let updates = [&container, &be(), &pod].map(|dir| Update::cgroup(Resource::CpusetCpus, dir, "2-5"));
    let outcomes = world.executor.apply(world.start, Caching::Trust, &updates);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Written)));
    let want = ["0-5", "0-5", "0-5", "2-5", "2-5", "2-5"].map(|cpus| format!("cpuset.cpus {cpus}"));
    assert_eq!(world.taken_log(), want);
    assert_eq!(world.get(Resource::CpusetCpus, &container), "2-5");
}

/// What is no limit grows first, in the words of v2.
#[test]
fn v1_sets_have_no_cpu_that_the_group_above_lacks() {
    let mut world = World::new(Version::V1);
    let class = Driver::Cgroupfs.qos_dir(KubeQos::Burstable);
    let pod = Driver::Cgroupfs.pod_dir(KubeQos::Burstable, "p");
    // CPU 3 was offline and is back.
    world.put(Resource::CpusetCpus, &Driver::Cgroupfs.qos_dir(KubeQos::Guaranteed), "0-2\n");
    world.put(Resource::CpusetCpus, &class, "0-2\n");
    world.put(Resource::CpusetCpus, &pod, "0-1\n");
    let update = |dir: &Dir, cpus: &str| Update::cgroup(Resource::CpusetCpus, dir, cpus);
    let batch = |cpus: &str| [update(&pod, cpus), update(&class, cpus)];
    let apply = |world: &mut World, seconds: u64, cpus: &str| {
        let now = world.start + Duration::from_secs(seconds);
        let outcomes = world.executor.apply(now, Caching::Trust, &batch(cpus));
        (outcomes.iter().map(|outcome| format!("{outcome:?}")).collect::<Vec<_>>(), world.taken_log())
    };
    let said = apply(&mut world, 0, "0-3");
    assert_eq!(said, (vec!["Written".to_owned(), "Cut".to_owned()], vec!["cpuset.cpus 0-2".to_owned()]));
    for (seconds, want) in [(9, "Known"), (11, "Cut"), (12, "Known")] {
        let said = apply(&mut world, seconds, "0-3").0;
        assert_eq!(said[1], want, "{seconds}: looked at again now and then");
    }
    let said = apply(&mut world, 13, "2-3");
    assert_eq!(said, (vec!["Written".to_owned(); 2], vec!["cpuset.cpus 2".to_owned(); 2]), "it shrinks");
    world.put(Resource::CpusetCpus, &Driver::Cgroupfs.qos_dir(KubeQos::Guaranteed), "0-3\n");
    apply(&mut world, 24, "2-3");
    assert_eq!([&class, &pod].map(|dir| world.get(Resource::CpusetCpus, dir)), ["2-3", "2-3"]);
}

#[test]
fn a_batch_lifts_quotas_of_v2_from_above() {
    let mut world = World::new(Version::V2);
    let pod = be().child("podx");
    let container = pod.child("1");
    let mut updates = Vec::new();
    for (dir, quota) in [(&container, "200000"), (&pod, "200000"), (&be(), "-1")] {
        world.put(Resource::CfsQuotaUs, dir, "100000 100000\n");
        updates.push(Update::cgroup(Resource::CfsQuotaUs, dir, quota));
    }
    let outcomes = world.executor.apply(world.start, Caching::Trust, &updates);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Written)), "{outcomes:?}");
    // koordlet-enforce#18.232
    assert_eq!(world.taken_log(), ["cpu.max max", "cpu.max 200000", "cpu.max 200000"]);
}

#[test]
fn the_last_value_for_a_file_wins_and_devices_have_their_own_lines() {
    let mut world = World::new(Version::V1);
    world.put(Resource::CpuShares, &be(), "50\n");
    world.put(Resource::ReadIops, &world.cgroups.kube_root(), "");
    world.put(Resource::ReadIops, &be(), "");
    let updates = [
        Update::cgroup(Resource::CpuShares, &be(), "100"),
        Update::cgroup(Resource::CpuShares, &be(), "200"),
        Update::cgroup(Resource::ReadIops, &be(), "8:0 5"),
        Update::cgroup(Resource::ReadIops, &be(), "8:16 7"),
    ];
    let outcomes = world.executor.apply(world.start, Caching::Trust, &updates);
    assert!(matches!(outcomes[0], Outcome::Superseded));
    assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Outcome::Written)), "{outcomes:?}");
    let iops = "blkio.throttle.read_iops_device";
    let want = ["cpu.shares 200".to_owned(), format!("{iops} 8:0 5"), format!("{iops} 8:16 7")];
    let mut log = world.taken_log();
    log.sort();
    let mut want = want.to_vec();
    want.sort();
    assert_eq!(log, want);
    let again = world.executor.apply(world.start, Caching::Trust, &updates[1..]);
    assert!(again.iter().all(|outcome| matches!(outcome, Outcome::Known)), "{again:?}");
}

#[test]
fn system_files_and_features() {
    let mut world = World::new(Version::V1);
    for (path, content) in
        [("proc/sys/vm/min_free_kbytes", "67584\n"), ("sys/kernel/debug/sched_features", "A NO_B\n")]
    {
        let path = world.root.proc.parent().unwrap().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let updates = [
        Update::system(SystemFile::MinFreeKbytes, "67584"),
        Update::system(SystemFile::SchedFeatures, "A\n"),
        Update::system(SystemFile::SchedFeatures, "B\n"),
        Update::system(SystemFile::WatermarkScaleFactor, "20"),
        Update::system(SystemFile::MinFreeKbytes, "5"),
    ];
    let outcomes = world.executor.apply(world.start, Caching::Trust, &updates[..4]);
    let is_as_wanted = matches!(
        outcomes[..],
        [Outcome::Unchanged, Outcome::Unchanged, Outcome::Written, Outcome::Ignored(Error::Missing { .. })]
    );
    assert!(is_as_wanted, "{outcomes:?}");
    assert_eq!(world.taken_log(), ["sched_features B\n"]);
    assert!(matches!(world.update(0, &updates[4]), Outcome::Failed(Error::Invalid { .. })));
}

#[test]
fn lines_of_schemata_are_compared_one_by_one() {
    let mut world = World::new(Version::V1);
    let group = world.root.resctrl().join("BE");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("schemata"), "    L3:0=7ff;16=7ff\n    MB:0=100;16=100\n").unwrap();
    let l3 =
        |caches: &[u32], mask| Update::schemata("BE", &Line::even(Schema::L3, caches.iter().copied(), mask));
    assert!(matches!(world.update(0, &l3(&[0, 16], 0x7ff)), Outcome::Unchanged));
    let mb = Update::schemata("BE", &Line::even(Schema::Mb, [0, 16], 100));
    assert!(matches!(world.update(0, &mb), Outcome::Unchanged));
    assert!(matches!(world.update(0, &l3(&[0, 16], 0xf)), Outcome::Written));
    assert_eq!(world.taken_log(), ["schemata L3:0=f;16=f;\n"]);
    fs::write(group.join("schemata"), "L3:0=7ff;16=7ff\nMB:0=100;16=100\n").unwrap();
    let Outcome::Failed(error) = world.update(0, &l3(&[0, 1, 2, 3], 1)) else {
        panic!("four caches are not two")
    };
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "read resctrl schemata failed, L3 masks has invalid count 2, l3Num 4");
}

#[test]
fn a_failed_write_makes_the_whole_batch_be_looked_at_again() {
    let mut world = World::new(Version::V1);
    let pod = be().child("podx");
    world.put(Resource::CpuShares, &be(), "50\n");
    world.put(Resource::CpuShares, &pod, "50\n");
    let updates = [&be(), &pod].map(|dir| Update::cgroup(Resource::CpuShares, dir, "100"));
    // A file of /proc that can be read and never written.
    let path = world.cgroups.path(Resource::CpuShares, &pod).unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/proc/version", &path).unwrap();
    let outcomes = world.executor.apply(world.start, Caching::Trust, &updates);
    assert!(matches!(outcomes[..], [Outcome::Written, Outcome::Failed(Error::Write { .. })]), "{outcomes:?}");
    assert_eq!(world.taken_log(), ["cpu.shares 100", "!cpu.shares 100", "!cpu.shares 100"]);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "50\n").unwrap();
    let outcomes = world.executor.apply(world.start, Caching::Trust, &updates);
    assert!(matches!(outcomes[..], [Outcome::Unchanged, Outcome::Written]), "{outcomes:?}");
}

#[test]
fn causes_reach_the_audit() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::host(dir.path());
    let cgroups = Arc::new(Cgroups::new(&root, Version::V1, Driver::Cgroupfs));
    let path = cgroups.path(Resource::CpuShares, &be()).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "50\n").unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    let audit: Audit = Box::new(move |attempt| {
        let cause = attempt.update.cause.as_ref().unwrap();
        let line = format!(
            "{} {} {:?}: {} -> {}",
            attempt.kind(),
            cause.reason,
            cause.subject,
            attempt.before,
            attempt.value
        );
        log.lock().unwrap().push(line);
    });
    let mut executor = Executor::new(root, cgroups, Duration::from_secs(60), audit);
    let cause = Cause { reason: "CPUSuppress", subject: Subject::Node, words: None };
    let update = Update::cgroup(Resource::CpuShares, &be(), "100").because(Arc::new(cause));
    executor.update(Instant::now(), Caching::Trust, &update);
    assert_eq!(*heard.lock().unwrap(), ["cgroup CPUSuppress Node: 50 -> 100"]);
}

/// Whoever takes notes hears of a file while it still holds what it held, and of every one that is written.
#[test]
fn notes_are_taken_before_the_write() {
    let mut world = World::new(Version::V1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (notes, cgroups) = (seen.clone(), world.cgroups.clone());
    world.executor = world.executor.noting(Box::new(move |update, before| {
        let Target::Cgroup { resource, dir } = &update.target else { panic!() };
        let held = fs::read_to_string(cgroups.path(*resource, dir).unwrap()).unwrap();
        notes.lock().unwrap().push((before.to_owned(), held.trim().to_owned()));
    }));
    world.put(Resource::CpuShares, &be(), "50\n");
    let update = Update::cgroup(Resource::CpuShares, &be(), "100");
    assert!(matches!(world.update(0, &update), Outcome::Written));
    assert!(matches!(world.update(1, &update), Outcome::Known));
    assert_eq!(*seen.lock().unwrap(), [("50".to_owned(), "50".to_owned())]);
}
