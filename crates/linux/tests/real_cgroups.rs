//! The executor and the readers on this machine's own cgroups, of either version.
//!
//! Where they are missing or may not be written, the tests say so and pass: a tree of files shows the rest, and the
//! model of the kernel's rule is in `executor/plan/tests.rs`. `e2e/tests/kernel` runs them in a virtual machine with
//! cgroup v2, too.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_api::cpuset::CpuSet;
use koord_linux::cgroup::{Cgroups, Dir, Driver, Version, cpus};
use koord_linux::cpu_stat::{quota_us, throttling, usage_ns};
use koord_linux::error::Error;
use koord_linux::executor::{Caching, Executor, Outcome, Update};
use koord_linux::handle::Buffer;
use koord_linux::memory_stat::{MemoryStat, limit};
use koord_linux::perf::CycleCounters;
use koord_linux::pressure::Pressure;
use koord_linux::resource::Resource;
use koord_linux::root::Root;

const CONTROLLERS: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];
/// A shell that takes all the time it gets.
const BUSY: &str = "while :; do :; done";
/// Long enough for any machine; reached only when something is broken.
const PATIENCE: Duration = Duration::from_secs(120);

/// A group of our own in every hierarchy, removed at the end with all below it.
struct Sandbox {
    cgroups: Arc<Cgroups>,
    executor: Executor,
    top: Dir,
    /// In order of creation.
    made: Vec<PathBuf>,
    children: Vec<Child>,
}

impl Sandbox {
    /// None, and a word why, where the machine does not permit it.
    fn new(name: &str) -> Option<Sandbox> {
        let root = Root::host("/");
        let Ok(version) = Version::detect(&root) else {
            eprintln!("skipped: /sys/fs/cgroup holds no cgroups");
            return None;
        };
        let cgroups = Arc::new(Cgroups::new(&root, version, Driver::Cgroupfs));
        let executor = Executor::new(root, cgroups.clone(), Duration::from_secs(60), Box::new(|_| {}));
        let top = Dir::new(&format!("koord-test-{}-{name}", std::process::id())).unwrap();
        let mut sandbox =
            Sandbox { cgroups, executor, top: top.clone(), made: Vec::new(), children: Vec::new() };
        if let Err(error) = sandbox.make(&top) {
            eprintln!("skipped: this machine's cgroups cannot be written: {error}");
            return None;
        }
        Some(sandbox)
    }

    fn version(&self) -> Version {
        self.cgroups.version()
    }

    fn make(&mut self, dir: &Dir) -> std::io::Result<()> {
        for controller in self.hierarchies(&CONTROLLERS) {
            let path = self.cgroups.group(controller, dir);
            if controller.is_none() {
                let parent = path.parent().ok_or(std::io::ErrorKind::NotFound)?;
                fs::write(parent.join("cgroup.subtree_control"), "+cpu +cpuset +memory")?;
            }
            fs::create_dir(&path)?;
            self.made.push(path);
        }
        Ok(())
    }

    /// Where a group stands that uses these controllers: v2 has one place for all.
    fn hierarchies<'c>(&self, controllers: &[&'c str]) -> Vec<Option<&'c str>> {
        match self.version() {
            Version::V1 => controllers.iter().copied().map(Some).collect(),
            Version::V2 => vec![None],
        }
    }

    /// Three levels: the top, two below it, two below each.
    fn tree(&mut self) -> Vec<(Dir, Option<usize>)> {
        let top = self.top.clone();
        let mut groups = vec![(top.clone(), None)];
        for pod in ["pod1", "pod2"] {
            let pod = top.child(pod);
            self.make(&pod).unwrap();
            let parent = groups.len();
            groups.push((pod.clone(), Some(0)));
            for container in ["a", "b"] {
                let container = pod.child(container);
                self.make(&container).unwrap();
                groups.push((container, Some(parent)));
            }
        }
        groups
    }

    fn apply(&mut self, updates: &[Update]) {
        let outcomes = self.executor.apply(Instant::now(), Caching::Look, updates);
        for (update, outcome) in updates.iter().zip(outcomes) {
            let is_there = matches!(outcome, Outcome::Written | Outcome::Unchanged);
            assert!(is_there, "{update:?}: {outcome:?}\n{updates:?}");
        }
    }

    /// Runs a command that is in the group, as far as these controllers go, from its first moment on.
    fn spawn(&mut self, dir: &Dir, controllers: &[&str], command: &str) -> u32 {
        // The shell waits for a line, which comes when it stands in its group.
        let waiting = format!("read go; {command}");
        let mut shell = Command::new("sh");
        let mut child = shell.args(["-c", &waiting]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let input = child.stdin.take();
        self.children.push(child);
        for controller in self.hierarchies(controllers) {
            let procs = self.cgroups.group(controller, dir).join("cgroup.procs");
            fs::write(procs, id.to_string()).unwrap();
        }
        std::io::Write::write_all(&mut input.unwrap(), b"go\n").unwrap();
        id
    }

    /// Looks until it is as wanted.
    fn wait(&mut self, mut is_there: impl FnMut(&mut Sandbox) -> Result<(), String>) {
        let start = Instant::now();
        while let Err(seen) = is_there(self) {
            assert!(start.elapsed() < PATIENCE, "{seen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for path in self.made.iter().rev() {
            let start = Instant::now();
            // A group is busy until its last task is quite gone.
            while fs::remove_dir(path).is_err() && start.elapsed() < Duration::from_secs(5) {
                std::thread::yield_now();
            }
        }
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn the_kernel_takes_every_write_of_quota_batches() {
    let Some(mut sandbox) = Sandbox::new("quota") else { return };
    let groups = sandbox.tree();
    let mut dice = Dice(7);
    for _ in 0..80 {
        // Values that keep the rule; -1 is whatever the group above has.
        let mut values: Vec<(i64, i64)> = Vec::new();
        for (_, parent) in &groups {
            let above = parent.map_or(i64::MAX, |parent| values[parent].1);
            let rolled = i64::try_from(dice.roll(12)).unwrap() * 10_000;
            let value = if rolled == 0 { -1 } else { rolled.min(above) };
            values.push((value, if value == -1 { above } else { value }));
        }
        let mut updates: Vec<Update> = groups
            .iter()
            .zip(&values)
            .map(|((dir, _), (value, _))| Update::cgroup(Resource::CfsQuotaUs, dir, value.to_string()))
            .collect();
        let middle = usize::try_from(dice.roll(6)).unwrap();
        updates.rotate_left(middle);
        sandbox.apply(&updates);
        for ((dir, _), (value, _)) in groups.iter().zip(&values) {
            let held = sandbox
                .cgroups
                .read(Resource::CfsQuotaUs, dir, |content| quota_us(sandbox.version(), content));
            assert_eq!(held.unwrap(), *value, "{dir}");
        }
    }
}

#[test]
fn the_kernel_takes_every_write_of_cpuset_batches() {
    let Some(mut sandbox) = Sandbox::new("cpuset") else { return };
    let groups = sandbox.tree();
    let all = sandbox.cgroups.read(Resource::CpusetCpus, &Dir::root(), cpus).unwrap();
    let ids: Vec<u32> = all.iter().collect();
    let mut dice = Dice(11);
    for _ in 0..80 {
        let mut values: Vec<CpuSet> = Vec::new();
        for (_, parent) in &groups {
            let above = parent.map_or(&all, |parent| &values[parent]);
            let chosen: CpuSet = ids.iter().copied().filter(|_| dice.roll(2) == 0).collect();
            let kept = &chosen & above;
            values.push(if kept.is_empty() { above.clone() } else { kept });
        }
        let updates: Vec<Update> = groups
            .iter()
            .zip(&values)
            .map(|((dir, _), value)| Update::cgroup(Resource::CpusetCpus, dir, value.to_string()))
            .collect();
        sandbox.apply(&updates);
        for ((dir, _), value) in groups.iter().zip(&values) {
            assert_eq!(sandbox.cgroups.read(Resource::CpusetCpus, dir, cpus).unwrap(), *value, "{dir}");
        }
    }
}

#[test]
fn limits_and_shares_are_read_as_they_were_written() {
    let Some(mut sandbox) = Sandbox::new("limits") else { return };
    let top = sandbox.top.clone();
    // Not a whole number of pages, which the kernel rounds.
    let updates = [
        Update::cgroup(Resource::MemoryLimit, &top, "1000000001"),
        Update::cgroup(Resource::CpuShares, &top, "102"),
    ];
    sandbox.apply(&updates);
    let again = sandbox.executor.apply(Instant::now(), Caching::Look, &updates);
    assert!(again.iter().all(|outcome| matches!(outcome, Outcome::Unchanged)), "{again:?}");
    sandbox.apply(&[Update::cgroup(Resource::MemoryLimit, &top, "-1")]);
    let held = sandbox.cgroups.read(Resource::MemoryLimit, &top, |content| limit(sandbox.version(), content));
    assert_eq!(held.unwrap(), -1);
    let again = sandbox.executor.update(
        Instant::now(),
        Caching::Look,
        &Update::cgroup(Resource::MemoryLimit, &top, "-1"),
    );
    assert!(matches!(again, Outcome::Unchanged), "{again:?}");
    sandbox
        .cgroups
        .read(Resource::MemoryStat, &top, |content| MemoryStat::parse(sandbox.version(), content))
        .unwrap();
}

#[test]
fn bursts_and_quotas_change_together() {
    let Some(mut sandbox) = Sandbox::new("burst") else { return };
    let top = sandbox.top.clone();
    if sandbox.cgroups.require(Resource::CfsBurstUs, &top).is_err() {
        eprintln!("skipped: this kernel has no cpu.cfs_burst_us");
        return;
    }
    for (quota, burst) in [("200000", "100000"), ("400000", "400000"), ("50000", "50000"), ("-1", "0")] {
        let updates = [
            Update::cgroup(Resource::CfsBurstUs, &top, burst),
            Update::cgroup(Resource::CfsQuotaUs, &top, quota),
        ];
        sandbox.apply(&updates);
    }
}

#[test]
fn a_busy_group_is_seen_to_be_throttled() {
    let Some(mut sandbox) = Sandbox::new("busy") else { return };
    let top = sandbox.top.clone();
    sandbox.apply(&[Update::cgroup(Resource::CfsQuotaUs, &top, "10000")]);
    sandbox.spawn(&top, &["cpu", "cpuacct"], BUSY);
    let mut usage = sandbox.cgroups.handle(Resource::CpuacctUsage, &top).unwrap();
    let mut stat = sandbox.cgroups.handle(Resource::CpuStat, &top).unwrap();
    let mut buffer = Buffer::default();
    let start = Instant::now();
    loop {
        let used = usage_ns(sandbox.version(), usage.read(&mut buffer).unwrap()).unwrap();
        let throttled = throttling(sandbox.version(), stat.read(&mut buffer).unwrap()).unwrap();
        if used > 0 && throttled.throttled > 2 && throttled.throttled_ns > 0 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "used {used} ns, {throttled:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((usage.opens(), stat.opens()), (1, 1));
}

#[test]
fn a_replaced_group_is_read_anew() {
    let Some(mut sandbox) = Sandbox::new("replaced") else { return };
    let pod = sandbox.top.child("pod");
    sandbox.make(&pod).unwrap();
    let mut usage = sandbox.cgroups.handle(Resource::CpuacctUsage, &pod).unwrap();
    let mut buffer = Buffer::default();
    usage.read(&mut buffer).unwrap();
    let controller = (sandbox.version() == Version::V1).then_some("cpuacct");
    let path = sandbox.cgroups.group(controller, &pod);
    fs::remove_dir(&path).unwrap();
    let gone = usage.read(&mut buffer).unwrap_err();
    assert!(matches!(gone, Error::Missing { .. }), "{gone:?}");
    fs::create_dir(&path).unwrap();
    usage.read(&mut buffer).unwrap();
    assert_eq!(usage.opens(), 2);
    let outcome = sandbox.executor.update(
        Instant::now(),
        Caching::Trust,
        &Update::cgroup(Resource::CpuShares, &sandbox.top.child("never"), "100"),
    );
    assert!(matches!(outcome, Outcome::Ignored(Error::Missing { .. })), "{outcome:?}");
}

#[test]
fn a_process_stays_on_the_cpus_of_its_group() {
    let Some(mut sandbox) = Sandbox::new("confined") else { return };
    let top = sandbox.top.clone();
    let all = sandbox.cgroups.read(Resource::CpusetCpus, &Dir::root(), cpus).unwrap();
    if sandbox.version() == Version::V1 {
        // A group of v1 takes processes only once it has memory nodes.
        let mems = |dir: &Dir| sandbox.cgroups.group(Some("cpuset"), dir).join("cpuset.mems");
        fs::write(mems(&top), fs::read(mems(&Dir::root())).unwrap()).unwrap();
    }
    sandbox.apply(&[Update::cgroup(Resource::CpusetCpus, &top, all.to_string())]);
    let id = sandbox.spawn(&top, &["cpuset"], BUSY);
    for chosen in [all.iter().next(), all.iter().last()].into_iter().flatten() {
        sandbox.apply(&[Update::cgroup(Resource::CpusetCpus, &top, chosen.to_string())]);
        sandbox.wait(|_| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let is_there = allowed.is_some_and(|list| list.trim() == chosen.to_string());
            if is_there { Ok(()) } else { Err(format!("wanted CPU {chosen}, found {allowed:?}")) }
        });
    }
}

#[test]
fn memory_is_counted_and_its_limit_ends_who_passes_it() {
    let Some(mut sandbox) = Sandbox::new("memory") else { return };
    let (small, large) = (sandbox.top.child("small"), sandbox.top.child("large"));
    for group in [&small, &large] {
        sandbox.make(group).unwrap();
    }
    sandbox.apply(&[Update::cgroup(Resource::MemoryLimit, &small, "4194304")]);
    // A text that doubles until it has 8 MiB, without any other program.
    let eat = format!("x=12345678; while [ ${{#x}} -lt 8388608 ]; do x=$x$x; done; {BUSY}");
    sandbox.spawn(&large, &["memory"], &eat);
    sandbox.spawn(&small, &["memory"], &eat);
    sandbox.wait(|sandbox| {
        let version = sandbox.version();
        let stat =
            sandbox.cgroups.read(Resource::MemoryStat, &large, |content| MemoryStat::parse(version, content));
        let used = stat.unwrap().used();
        if used > 8 << 20 { Ok(()) } else { Err(format!("{used} bytes counted")) }
    });
    sandbox.wait(|sandbox| match sandbox.children[1].try_wait().unwrap() {
        // KILL, from the kernel.
        Some(status) if status.signal() == Some(9) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn waiting_for_a_cpu_is_told_as_pressure() {
    let Some(mut sandbox) = Sandbox::new("pressure") else { return };
    let top = sandbox.top.clone();
    let Ok(path) = sandbox.cgroups.path(Resource::CpuPressure, &top) else { return };
    if fs::read(&path).is_err() {
        eprintln!("skipped: this kernel tells no pressure of groups");
        return;
    }
    sandbox.apply(&[Update::cgroup(Resource::CfsQuotaUs, &top, "20000")]);
    sandbox.spawn(&top, &["cpu", "cpuacct"], BUSY);
    sandbox.spawn(&top, &["cpu", "cpuacct"], BUSY);
    sandbox.wait(|_| {
        let pressure = Pressure::parse(&fs::read(&path).unwrap()).unwrap();
        let is_there = pressure.some.total_us > 100_000;
        if is_there { Ok(()) } else { Err(format!("{pressure:?}")) }
    });
}

#[test]
fn cycles_are_counted_where_the_cpu_can() {
    let hierarchies = ["perf_event", "unified", ""].map(|name| PathBuf::from("/sys/fs/cgroup").join(name));
    let Some(group) = hierarchies.iter().find(|path| path.join("cgroup.procs").exists()) else {
        eprintln!("skipped: no hierarchy that counters can be attached to");
        return;
    };
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let mut counters = match CycleCounters::open(group, &online.trim().parse().unwrap()) {
        Ok(counters) => counters,
        Err(error) => {
            eprintln!("skipped: this machine does not count cycles of {}: {error}", group.display());
            return;
        }
    };
    let start = Instant::now();
    loop {
        let seen = counters.read().unwrap();
        if seen.cycles > 0 && seen.instructions > 0 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{seen:?}");
    }
}
