//! A node of plain files: cgroups, `/proc` and `/sys` with as many containers as wanted, and the pods they belong to.
//!
//! Pods have one and two containers by turns, a third of them is best-effort, and each has a sandbox beside its
//! containers. Numbers have a fixed width, so that they can be moved in place, as the kernel's files are never replaced.

mod content;

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use content::{BASE, CPUS, NUMA_NODES};

/// The directory of all pods.
const KUBE: &str = "kubepods.slice";
/// Below it, the directories that pods without guarantees are in.
const CLASSES: [&str; 2] = ["burstable", "besteffort"];

/// Which version of cgroups the files are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroup {
    V1,
    V2,
}

/// The node on disk.
pub struct NodeTree {
    dir: PathBuf,
    cgroup: Cgroup,
    /// Oldest first.
    pods: VecDeque<Pod>,
    /// How many pods there have been.
    made: usize,
    /// Counters of CPU time that belong to no pod.
    counters: Vec<Counter>,
}

/// A pod and its files.
struct Pod {
    shape: Shape,
    object: Value,
    /// What a reader of pods and containers reads every second, in order.
    sampled: Vec<PathBuf>,
    counters: Vec<Counter>,
}

/// What a pod is made of.
struct Shape {
    number: usize,
    containers: usize,
    is_best_effort: bool,
}

/// A file that begins with a number that grows.
struct Counter {
    path: PathBuf,
    prefix: &'static str,
    value: u64,
    /// How much it grows in a second.
    rate: u64,
    /// Millionths of one that it has grown besides.
    fraction: u64,
}

impl Counter {
    fn new(path: PathBuf, prefix: &'static str, rate: u64) -> Counter {
        Counter { path, prefix, value: BASE, rate, fraction: 0 }
    }

    fn turn(&mut self, micros: u64) -> io::Result<()> {
        let grown = self.rate.saturating_mul(micros).saturating_add(self.fraction);
        self.value += grown / 1_000_000;
        self.fraction = grown % 1_000_000;
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.write_all_at(format!("{}{}", self.prefix, self.value).as_bytes(), 0)
    }
}

/// Ticks of a hundredth of a second that all CPUs work in a second. Little, and so are the rates of pods: readers that
/// come now before and now after the counters have moved see a tenth more or less, and that must stay far below one CPU.
const NODE_RATE: u64 = 210;
/// Microseconds that a group works in a second, at most.
const GROUP_RATE_MAX: u64 = 10_000;

impl NodeTree {
    /// The directory should be empty.
    pub fn make(dir: &Path, cgroup: Cgroup, containers: usize) -> io::Result<NodeTree> {
        let mut tree =
            NodeTree { dir: dir.to_owned(), cgroup, pods: VecDeque::new(), made: 0, counters: Vec::new() };
        tree.machine()?;
        let mut made = 0;
        while made < containers {
            let count = (1 + tree.made % 2).min(containers - made);
            tree.add(count, tree.made % 3 == 2)?;
            made += count;
        }
        Ok(tree)
    }

    /// The pods as kubelet tells them.
    pub fn pods(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.pods.iter().map(|pod| &pod.object)
    }

    pub fn containers(&self) -> usize {
        self.pods.iter().map(|pod| pod.shape.containers).sum()
    }

    /// What a plain reader of all pods and containers reads every second.
    pub fn sampled(&self) -> impl Iterator<Item = &Path> {
        self.pods.iter().flat_map(|pod| &pod.sampled).map(PathBuf::as_path)
    }

    /// Where cgroups are mounted.
    pub fn cgroup_dir(&self) -> PathBuf {
        self.dir.join("sys/fs/cgroup")
    }

    /// The oldest pods end, and as many of the same size and class begin.
    pub fn replace(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count.min(self.pods.len()) {
            let Some(old) = self.pods.pop_front() else { return Ok(()) };
            for group in self.everywhere(&old.shape.dir()) {
                fs::remove_dir_all(group)?;
            }
            self.add(old.shape.containers, old.shape.is_best_effort)?;
        }
        Ok(())
    }

    /// Moves the counters of CPU time, each at a rate of its own.
    pub fn turn(&mut self, elapsed: Duration) -> io::Result<()> {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        for counter in self.counters.iter_mut().chain(self.pods.iter_mut().flat_map(|pod| &mut pod.counters))
        {
            counter.turn(micros)?;
        }
        Ok(())
    }

    fn put(&self, path: impl AsRef<Path>, content: &str) -> io::Result<PathBuf> {
        let path = self.dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, content)?;
        Ok(path)
    }

    /// The directories of a group: one on v2, one for each controller on v1.
    fn everywhere(&self, group: &str) -> Vec<PathBuf> {
        let top = self.cgroup_dir();
        match self.cgroup {
            Cgroup::V1 => content::CONTROLLERS.iter().map(|name| top.join(name).join(group)).collect(),
            Cgroup::V2 => vec![top.join(group)],
        }
    }

    fn machine(&mut self) -> io::Result<()> {
        let stat = self.put("proc/stat", &content::proc_stat())?;
        self.counters.push(Counter::new(stat, "cpu  ", NODE_RATE));
        self.put("proc/meminfo", content::MEMINFO)?;
        self.put("proc/cpuinfo", &content::cpuinfo())?;
        self.put("sys/devices/system/cpu/online", &format!("0-{}\n", CPUS - 1))?;
        for cpu in 0..CPUS {
            let (core, socket) = (cpu % (CPUS / 2), cpu % (CPUS / 2) / (CPUS / 4));
            let dir = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            self.put(format!("{dir}/core_id"), &format!("{core}\n"))?;
            self.put(format!("{dir}/physical_package_id"), &format!("{socket}\n"))?;
        }
        for node in 0..NUMA_NODES {
            let list = content::cpus_of_node(node);
            self.put(format!("sys/devices/system/node/node{node}/cpulist"), &list)?;
            self.put(format!("sys/bus/node/devices/node{node}/meminfo"), &content::numa_meminfo(node))?;
        }
        for dir in ["var/run", "run", "var/lib/kubelet"] {
            fs::create_dir_all(self.dir.join(dir))?;
        }
        let mut counters = Vec::new();
        for group in [String::new(), KUBE.to_owned()].into_iter().chain(CLASSES.map(class_dir)) {
            self.group(&group, &content::Limits::default(), &mut counters)?;
        }
        self.counters.extend(counters);
        Ok(())
    }

    fn add(&mut self, containers: usize, is_best_effort: bool) -> io::Result<()> {
        let shape = Shape { number: self.made, containers, is_best_effort };
        self.made += 1;
        let dir = shape.dir();
        let (mut sampled, mut counters) = (Vec::new(), Vec::new());
        let limits = content::Limits::of(shape.is_best_effort);
        sampled.extend(self.group(&dir, &limits.times(containers), &mut counters)?);
        let numa = content::file(self.cgroup, &dir, "memory", "memory.numa_stat");
        sampled.push(self.put(numa, content::numa_stat(self.cgroup))?);
        for container in 0..containers {
            let dir = format!("{dir}/cri-containerd-{}.scope", shape.container_id(container));
            sampled.extend(self.group(&dir, &limits, &mut counters)?);
        }
        let sandbox = format!("{dir}/cri-containerd-{}.scope", shape.sandbox_id());
        self.group(&sandbox, &content::Limits::default(), &mut Vec::new())?;
        let object = content::object(&shape);
        self.pods.push_back(Pod { shape, object, sampled, counters });
        Ok(())
    }

    /// The files of one group. Returns those that are sampled.
    fn group(
        &self,
        dir: &str,
        limits: &content::Limits,
        counters: &mut Vec<Counter>,
    ) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for (controller, name, text) in content::group(self.cgroup, limits) {
            let path = self.put(content::file(self.cgroup, dir, controller, name), &text)?;
            match (self.cgroup, name) {
                (Cgroup::V1, "cpuacct.usage" | "cpu.stat" | "memory.stat") | (Cgroup::V2, "memory.stat") => {
                    paths.push(path.clone())
                }
                // Twice, as upstream reads usage and throttling from it.
                (Cgroup::V2, "cpu.stat") => paths.extend([path.clone(), path.clone()]),
                _ => {}
            }
            let (prefix, nanos) = match (self.cgroup, name) {
                (Cgroup::V1, "cpuacct.usage") => ("", 1000),
                (Cgroup::V2, "cpu.stat") => ("usage_usec ", 1),
                _ => continue,
            };
            let number = u64::try_from(self.made * 31 + counters.len() + 1).unwrap_or(1);
            counters.push(Counter::new(path, prefix, number * 7919 % GROUP_RATE_MAX * nanos));
        }
        Ok(paths)
    }
}

/// The directory of a class of pods.
fn class_dir(class: &str) -> String {
    format!("{KUBE}/kubepods-{class}.slice")
}

impl Shape {
    fn uid(&self) -> String {
        format!("{:08}-0000-4000-8000-000000000000", self.number)
    }

    fn class(&self) -> &'static str {
        CLASSES[usize::from(self.is_best_effort)]
    }

    /// Its cgroup, as systemd names it.
    fn dir(&self) -> String {
        let (class, uid) = (self.class(), self.uid().replace('-', "_"));
        format!("{}/kubepods-{class}-pod{uid}.slice", class_dir(class))
    }

    fn container_id(&self, container: usize) -> String {
        format!("{:08}{:056}", self.number, container + 1)
    }

    fn sandbox_id(&self) -> String {
        format!("{:08}{:056}", self.number, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_come_and_go_and_counters_grow() {
        for (cgroup, usage) in [(Cgroup::V1, "cpuacct.usage"), (Cgroup::V2, "cpu.stat")] {
            let dir = tempfile::tempdir().unwrap();
            let mut tree = NodeTree::make(dir.path(), cgroup, 10).unwrap();
            assert_eq!((tree.containers(), tree.pods().len()), (10, 7), "{cgroup:?}");
            // Four files of each pod and three of each container.
            assert_eq!(tree.sampled().count(), 7 * 4 + 10 * 3, "{cgroup:?}");
            let first: Vec<PathBuf> = tree.sampled().take(4).map(Path::to_owned).collect();
            let counter = first.iter().find(|path| path.ends_with(usage)).unwrap();
            let before = fs::read_to_string(counter).unwrap();
            tree.turn(Duration::from_secs(1)).unwrap();
            let after = fs::read_to_string(counter).unwrap();
            assert!(after > before && after.len() == before.len(), "{before} {after}");
            tree.replace(2).unwrap();
            assert_eq!((tree.containers(), tree.pods().len()), (10, 7), "{cgroup:?}");
            assert!(first.iter().all(|path| !path.exists()), "{cgroup:?}");
            assert!(tree.sampled().all(Path::exists), "{cgroup:?}");
        }
    }
}
