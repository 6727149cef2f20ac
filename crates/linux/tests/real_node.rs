//! Topology, cookies and OOM scores of this machine, whatever it is; `e2e/tests/kernel` runs them where it knows the answers.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_api::cpuset::CpuSet;
use koord_linux::cgroup::{Cgroups, Driver, Version};
use koord_linux::core_sched::{self, Scope};
use koord_linux::cpu_info::CpuInfo;
use koord_linux::executor::{Caching, Executor, Outcome, Update};
use koord_linux::process::{Process, ProcessStat};
use koord_linux::root::Root;
use koord_linux::system::SystemFile;
use koord_linux::topology::{Cpu, cpus, numa_nodes};

/// What is told about the machine: `cpus=4 cores=2 sockets=2 nodes=2`.
const SHAPE: &str = "KOORD_MACHINE_SHAPE";

fn distinct(cpus: &[Cpu], of: impl Fn(&Cpu) -> u32) -> usize {
    cpus.iter().map(of).collect::<BTreeSet<u32>>().len()
}

#[test]
fn cpus_and_nodes_are_those_of_the_machine() {
    let root = Root::host("/");
    let found = cpus(&root).unwrap();
    let online: CpuSet =
        fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap();
    assert_eq!(found.iter().map(|cpu| cpu.id).collect::<CpuSet>(), online);
    let nodes = numa_nodes(&root);
    let shape = format!(
        "cpus={} cores={} sockets={} nodes={}",
        found.len(),
        distinct(&found, |cpu| cpu.core),
        distinct(&found, |cpu| cpu.socket),
        nodes.len().max(1),
    );
    eprintln!("found {shape}");
    if let Ok(wanted) = std::env::var(SHAPE) {
        assert_eq!(shape, wanted, "{found:?}");
        assert!(CpuInfo::read(&root).hyper_threading);
        assert_eq!(distinct(&found, |cpu| cpu.node), nodes.len());
        let memory: Vec<u64> = nodes.iter().map(|node| node.memory.total_kib).collect();
        assert!(memory.iter().all(|kib| *kib > 64 << 10), "{memory:?}");
    }
}

struct Shells(Vec<Child>);

impl Shells {
    fn spawn(&mut self) -> u32 {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let id = child.id();
        self.0.push(child);
        id
    }
}

impl Drop for Shells {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn cookies_keep_processes_apart() {
    let mut shells = Shells(Vec::new());
    let (first, second, third) = (shells.spawn(), shells.spawn(), shells.spawn());
    if !core_sched::is_supported() {
        eprintln!("skipped: this kernel has no core scheduling, or no core of this machine has two threads");
        return;
    }
    core_sched::create(first, Scope::Process).unwrap();
    core_sched::create(third, Scope::Process).unwrap();
    core_sched::share(first, &[second], Scope::Process).unwrap().into_iter().for_each(Result::unwrap);
    let cookie = |id: u32| core_sched::cookie(id).unwrap();
    assert_eq!(cookie(first), cookie(second));
    assert_ne!(cookie(first), cookie(third));
    core_sched::clear(&[first, second, third], Scope::Process).unwrap().into_iter().for_each(Result::unwrap);
    assert_eq!([first, second, third].map(cookie), [0; 3]);
}

/// A score reaches its process, and nobody who has the id of another.
#[test]
fn scores_are_of_one_process() {
    let mut shells = Shells(Vec::new());
    let pid = shells.spawn();
    let root = Root::host("/");
    let cgroups = Arc::new(Cgroups::new(&root, Version::V2, Driver::Systemd));
    let mut executor = Executor::new(root.clone(), cgroups, Duration::ZERO, Box::new(|_| {}));
    let held = || fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().to_owned();
    let start_ticks = ProcessStat::read(&root, pid).unwrap().start_ticks;
    let mut score = |start_ticks: u64, value: &str| {
        let file = SystemFile::OomScoreAdj(Process { pid, start_ticks });
        executor.update(Instant::now(), Caching::Look, &Update::system(file, value))
    };
    assert!(matches!(score(start_ticks, "998"), Outcome::Written));
    assert_eq!(held(), "998");
    assert!(matches!(score(start_ticks + 1, "999"), Outcome::Ignored(_)), "it began at another time");
    assert_eq!(held(), "998");
}
