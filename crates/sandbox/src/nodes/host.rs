//! A simulated node as the files of a Linux machine: what stands in them, and what they allow.
//!
//! Pure. `machine` is what the node is made of, `tenant` which groups kubelet makes for a pod, `sharing` who gets how
//! much CPU under the limits of all groups, `counters` what a group's files tell. A `Host` is the state of one node: it
//! says which groups to make and to remove, moves counters as time passes, and gives the text of every file. The shell
//! is `fleet/mirror`, which writes them and reads limits back. cgroup v1 with kubelet's cgroupfs driver.

use std::collections::BTreeMap;

use koord_api::cpuset::CpuSet;

use super::shape::Shape;
use super::usage::Use;

mod counters;
mod machine;
mod sharing;
mod tenant;

use counters::Counters;
pub(crate) use machine::machine;
pub(crate) use sharing::Limit;
use sharing::{Group, Share};
pub(crate) use tenant::{Settings, Tenant};

/// Where groups are, below the root of a node's files.
pub(crate) const CGROUPS: &str = "sys/fs/cgroup";
/// The group of all pods, and those of its classes.
const ROOT: &str = "kubepods";
const BURSTABLE: &str = "kubepods/burstable";
const BEST_EFFORT: &str = "kubepods/besteffort";
/// Hierarchies in which groups are made. News of groups come from `cpu`, which is why it is last.
pub(crate) const CONTROLLERS: [&str; 4] = ["cpuset", "cpuacct", "memory", "cpu"];
/// What `memory.limit_in_bytes` shows where there is no limit.
const NO_MEMORY_LIMIT: i64 = 0x7FFF_FFFF_FFFF_F000;

/// A file below the root of a node's files, and its text.
pub(crate) type File = (String, String);

/// Groups that come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Parents first.
    pub(crate) made: Vec<(String, Settings)>,
    /// Children first.
    pub(crate) gone: Vec<String>,
}

/// The state of a node that stands as files.
#[derive(Debug)]
pub(crate) struct Host {
    shape: Shape,
    cpus: CpuSet,
    tenants: Vec<Tenant>,
    system: Use,
    counters: BTreeMap<String, Counters>,
    shares: BTreeMap<String, Share>,
    /// Time that each CPU worked, and time that passed, in nanoseconds.
    busy: Vec<u64>,
    passed: u64,
}

impl Host {
    pub(crate) fn new(shape: &Shape) -> Host {
        let count = shape.cpus();
        Host {
            shape: shape.clone(),
            cpus: (0..count).collect(),
            tenants: Vec::new(),
            system: Use::default(),
            counters: BTreeMap::new(),
            shares: BTreeMap::new(),
            busy: vec![0; usize::try_from(count).unwrap_or(0)],
            passed: 0,
        }
    }

    /// Who is here now, and what the node's own services use; says what becomes of the groups.
    pub(crate) fn settle(&mut self, tenants: Vec<Tenant>, system: Use) -> Change {
        self.system = system;
        let mut wanted: Vec<(String, Settings)> = vec![
            (ROOT.to_owned(), self.all_pods()),
            (BURSTABLE.to_owned(), burstable(&tenants)),
            (BEST_EFFORT.to_owned(), Settings::LEAST),
        ];
        for tenant in &tenants {
            let pod = tenant.path();
            let containers = tenant.containers.iter().map(|c| (format!("{pod}/{}", c.id), c.settings));
            let containers: Vec<_> = containers.collect();
            wanted.push((pod, tenant.settings));
            wanted.extend(containers);
        }
        self.tenants = tenants;
        let is_wanted = |path: &String| wanted.iter().any(|(known, _)| known == path);
        let mut gone: Vec<String> = self.counters.keys().filter(|path| !is_wanted(path)).cloned().collect();
        gone.reverse();
        for path in &gone {
            self.counters.remove(path);
            self.shares.remove(path);
        }
        wanted.retain(|(path, _)| !self.counters.contains_key(path));
        self.counters.extend(wanted.iter().map(|(path, _)| (path.clone(), Counters::default())));
        Change { made: wanted, gone }
    }

    /// What kubelet gives to all pods together.
    fn all_pods(&self) -> Settings {
        let cpu = i64::from(self.shape.cpus()) * 1000 - self.shape.reserved_cpu_milli;
        Settings { memory: self.shape.allocatable_memory(), ..Settings::of(cpu, 0, 0) }
    }

    /// The weight that kubelet keeps up to date for its class of burstable pods.
    pub(crate) fn burstable_shares(&self) -> File {
        let shares = burstable(&self.tenants).shares;
        (file("cpu", BURSTABLE, "cpu.shares"), format!("{shares}\n"))
    }

    /// Groups whose limits count.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &String> {
        self.counters.keys()
    }

    /// Shares the CPUs anew, under the limits that groups have now.
    pub(crate) fn share(&mut self, limits: &BTreeMap<String, Limit>) {
        let limit = |path: &str| limits.get(path).cloned().unwrap_or_default();
        let group = |path: &str, children: Vec<Group>| Group {
            path: path.to_owned(),
            limit: limit(path),
            wants: Use::default(),
            children,
        };
        let pods_in = |class: &str| -> Vec<Group> {
            let here = self.tenants.iter().filter(|tenant| tenant.class() == class);
            here.map(|tenant| {
                let pod = tenant.path();
                let containers = tenant.uses().map(|(id, wants)| {
                    let path = format!("{pod}/{id}");
                    Group { wants, ..group(&path, Vec::new()) }
                });
                group(&pod, containers.collect())
            })
            .collect()
        };
        let mut classes = pods_in(ROOT);
        classes.push(group(BURSTABLE, pods_in(BURSTABLE)));
        classes.push(group(BEST_EFFORT, pods_in(BEST_EFFORT)));
        let root = group(ROOT, classes);
        let room = i64::from(self.shape.cpus()) * 1000 - self.system.cpu;
        self.shares = sharing::share(&root, &self.cpus, room.max(0));
    }

    /// Time passes, with everybody using what they were given.
    pub(crate) fn advance(&mut self, nanos: u64) {
        self.passed = self.passed.saturating_add(nanos);
        for (path, counters) in &mut self.counters {
            counters.advance(nanos, self.shares.get(path).unwrap_or(&Share::default()));
        }
        let mut loads = vec![0_i64; self.busy.len()];
        // Whoever may use few CPUs finds them free; the others take what is left.
        let is_leaf = |tenant: &Tenant| {
            let pod = tenant.path();
            tenant.containers.iter().map(|c| format!("{pod}/{}", c.id)).collect::<Vec<_>>()
        };
        let leaves: Vec<String> = self.tenants.iter().flat_map(is_leaf).collect();
        let mut leaves: Vec<&Share> = leaves.iter().filter_map(|path| self.shares.get(path)).collect();
        leaves.sort_by_key(|share| share.cpus.len());
        for share in leaves {
            spread(&mut loads, &share.cpus, share.cpu);
        }
        spread(&mut loads, &self.cpus, self.system.cpu);
        for (busy, milli) in self.busy.iter_mut().zip(loads) {
            *busy = busy.saturating_add(counters::time(nanos, milli));
        }
    }

    /// Files that tell CPU time, which are looked at often.
    pub(crate) fn clocks(&self) -> Vec<File> {
        let mut files = vec![("proc/stat".to_owned(), machine::stat(&self.busy, self.passed))];
        for (path, counters) in &self.counters {
            files.push((file("cpuacct", path, "cpuacct.usage"), format!("{}\n", counters.cpu_nanos)));
        }
        files
    }

    /// Everything else that moves.
    pub(crate) fn gauges(&self) -> Vec<File> {
        let nodes = self.shape.numa_nodes().max(1);
        let used: i64 = self.shares.get(ROOT).map_or(0, |share| share.memory) + self.system.memory;
        let mut files = machine::memory(&self.shape, used);
        for (path, counters) in &self.counters {
            let share = self.shares.get(path).cloned().unwrap_or_default();
            files.extend(counters.files(path, share.memory, nodes));
        }
        files
    }

    /// The files of a new group. It begins with its parent's CPUs.
    pub(crate) fn group_files(&self, path: &str, settings: &Settings, cpus: &str) -> Vec<File> {
        let nodes = self.shape.numa_nodes().max(1);
        let memory = if settings.memory > 0 { settings.memory } else { NO_MEMORY_LIMIT };
        let mems = if nodes == 1 { "0".to_owned() } else { format!("0-{}", nodes - 1) };
        let mut files = vec![
            (file("cpuset", path, "cpuset.cpus"), format!("{}\n", cpus.trim())),
            (file("cpuset", path, "cpuset.mems"), format!("{mems}\n")),
            (file("cpuacct", path, "cpuacct.usage"), "0\n".to_owned()),
            (file("memory", path, "memory.limit_in_bytes"), format!("{memory}\n")),
        ];
        files.extend(Counters::default().files(path, 0, nodes));
        files.extend([
            (file("cpu", path, "cgroup.procs"), String::new()),
            (file("cpu", path, "tasks"), String::new()),
            (file("cpu", path, "cpu.cfs_burst_us"), "0\n".to_owned()),
            (file("cpu", path, "cpu.cfs_period_us"), format!("{}\n", tenant::PERIOD_US)),
            (file("cpu", path, "cpu.cfs_quota_us"), format!("{}\n", settings.quota_us)),
            (file("cpu", path, "cpu.shares"), format!("{}\n", settings.shares)),
        ]);
        files
    }

    pub(crate) fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// What a group was given, for tests.
    #[cfg(test)]
    fn given(&self, path: &str) -> i64 {
        self.shares.get(path).map_or(0, |share| share.cpu)
    }
}

/// Puts work on CPUs, more where there is more room.
fn spread(loads: &mut [i64], cpus: &CpuSet, milli: i64) {
    let here: Vec<usize> = cpus.iter().filter_map(|cpu| usize::try_from(cpu).ok()).collect();
    let here: Vec<usize> = here.into_iter().filter(|cpu| *cpu < loads.len()).collect();
    let room: i64 = here.iter().map(|cpu| (1000 - loads[*cpu]).max(0)).sum();
    let count = i64::try_from(here.len()).unwrap_or(i64::MAX);
    for cpu in here {
        let free = (1000 - loads[cpu]).max(0);
        loads[cpu] += if room > 0 { milli.min(room) * free / room } else { milli / count };
    }
}

fn burstable(tenants: &[Tenant]) -> Settings {
    let here = tenants.iter().filter(|tenant| tenant.class() == BURSTABLE);
    let milli: i64 = here.map(|tenant| tenant.request_milli).sum();
    Settings::of(milli, 0, 0)
}

/// The path of a group's file.
pub(crate) fn file(controller: &str, group: &str, name: &str) -> String {
    format!("{CGROUPS}/{controller}/{group}/{name}")
}

#[cfg(test)]
mod tests;
