//! A node of plain files: cgroups, /proc and /sys with as many containers as wanted, and the pods they belong to.
//!
//! Pods have one and two containers by turns, and a third of them is best-effort. Numbers have a fixed width, so that
//! they can be moved in place, as the kernel's files are never replaced.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1;
use koord_api::keys::pod::label::QOS_CLASS;
use koord_linux::cgroup::Version;
use serde_json::json;

/// Counters begin here, which leaves room to grow without another digit.
const BASE: u64 = 100_000_000_000_000;

/// The node on disk.
pub(crate) struct Tree {
    dir: PathBuf,
    version: Version,
    pub(crate) pods: Vec<v1::Pod>,
    /// What a reader of pods and containers reads every second, in order.
    pub(crate) files: Vec<PathBuf>,
    /// Counters of CPU time.
    counters: Vec<(PathBuf, u64)>,
}

/// Name, uid and containers of one pod.
struct Shape {
    uid: String,
    is_best_effort: bool,
    containers: Vec<String>,
}

impl Tree {
    /// The directory should be empty.
    pub(crate) fn make(dir: &Path, version: Version, containers: usize) -> io::Result<Tree> {
        let mut tree =
            Tree { dir: dir.to_owned(), version, pods: Vec::new(), files: Vec::new(), counters: Vec::new() };
        tree.node()?;
        let mut made = 0;
        for number in 0.. {
            if made == containers {
                break;
            }
            let count = (1 + number % 2).min(containers - made);
            let names = (0..count).map(|container| format!("{number:04}{container:060}")).collect();
            let uid = format!("{number:08}-0000-4000-8000-000000000000");
            tree.pod(&Shape { uid, is_best_effort: number % 3 == 2, containers: names })?;
            made += count;
        }
        Ok(tree)
    }

    fn put(&self, path: impl AsRef<Path>, content: &str) -> io::Result<PathBuf> {
        let path = self.dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, content)?;
        Ok(path)
    }

    fn put_group(&self, controller: &str, group: &str, file: &str, content: &str) -> io::Result<PathBuf> {
        match self.version {
            Version::V1 => self.put(format!("sys/fs/cgroup/{controller}/{group}/{file}"), content),
            Version::V2 => self.put(format!("sys/fs/cgroup/{group}/{file}"), content),
        }
    }

    /// Two NUMA nodes of 52 CPUs.
    fn node(&mut self) -> io::Result<()> {
        let cpus: String = (0..104).map(|cpu| format!("cpu{cpu} {BASE} 0 0 5 5 0 0 0 0 0\n")).collect();
        let stat = format!("cpu  {BASE} 0 0 5 5 0 0 0 0 0\n{cpus}intr 5\n");
        let path = self.put("proc/stat", &stat)?;
        self.counters.push((path, BASE));
        self.put(
            "proc/meminfo",
            "MemTotal: 400000000 kB\nMemFree: 100000000 kB\nMemAvailable: 200000000 kB\n",
        )?;
        self.put("sys/devices/system/cpu/online", "0-103\n")?;
        for node in 0..2 {
            let list = format!("{}-{}\n", node * 52, node * 52 + 51);
            self.put(format!("sys/devices/system/node/node{node}/cpulist"), &list)?;
            let text = format!("Node {node} MemTotal: 200000000 kB\nNode {node} MemFree: 50000000 kB\n");
            self.put(format!("sys/bus/node/devices/node{node}/meminfo"), &text)?;
        }
        let best_effort = format!("{KUBE}/kubepods-besteffort.slice");
        for group in [KUBE, &format!("{KUBE}/kubepods-burstable.slice"), &best_effort] {
            self.group(group, false)?;
        }
        Ok(())
    }

    fn pod(&mut self, shape: &Shape) -> io::Result<()> {
        let class = if shape.is_best_effort { "besteffort" } else { "burstable" };
        let uid = shape.uid.replace('-', "_");
        let dir = format!("{KUBE}/kubepods-{class}.slice/kubepods-{class}-pod{uid}.slice");
        self.group(&dir, true)?;
        let numa = match self.version {
            Version::V1 => "total=30000 N0=10000 N1=20000\nfile=0 N0=0 N1=0\n",
            Version::V2 => "anon N0=40960000 N1=81920000\nfile N0=0 N1=0\n",
        };
        let numa = self.put_group("memory", &dir, "memory.numa_stat", numa)?;
        self.files.push(numa);
        for id in &shape.containers {
            self.group(&format!("{dir}/cri-containerd-{id}.scope"), true)?;
        }
        self.pods.extend(object(shape));
        Ok(())
    }

    /// The files of one group. `is_read` where a plain reader reads them too.
    fn group(&mut self, dir: &str, is_read: bool) -> io::Result<()> {
        let throttling = "nr_periods 1000\nnr_throttled 10\n";
        let before = self.files.len();
        if self.version == Version::V1 {
            let usage = self.put_group("cpuacct", dir, "cpuacct.usage", &format!("{BASE}\n"))?;
            self.counters.push((usage.clone(), BASE));
            let stat =
                self.put_group("cpu", dir, "cpu.stat", &format!("{throttling}throttled_time 5000\n"))?;
            let memory = self.put_group("memory", dir, "memory.stat", &memory_v1())?;
            self.files.extend([usage, stat, memory]);
            self.put_group("cpu", dir, "cpu.cfs_quota_us", "-1\n")?;
            self.put_group("cpu", dir, "cpu.cfs_period_us", "100000\n")?;
            self.put_group("cpuset", dir, "cpuset.cpus", "0-103\n")?;
        } else {
            let stat =
                format!("usage_usec {BASE}\nuser_usec 5\nsystem_usec 5\n{throttling}throttled_usec 5\n");
            let stat = self.put_group("", dir, "cpu.stat", &stat)?;
            self.counters.push((stat.clone(), BASE));
            let memory = self.put_group("", dir, "memory.stat", &memory_v2())?;
            // Twice, as upstream reads usage and throttling from it.
            self.files.extend([stat.clone(), stat, memory]);
            self.put_group("", dir, "cpu.max", "max 100000\n")?;
            self.put_group("", dir, "cpuset.cpus.effective", "0-103\n")?;
        }
        if !is_read {
            self.files.truncate(before);
        }
        Ok(())
    }

    /// Moves the counters of CPU time, each by another amount.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        for (number, (path, value)) in (1_u64..).zip(&mut self.counters) {
            *value += number * 7919 % 50_000 * if self.version == Version::V1 { 1000 } else { 1 };
            let prefix = match path.extension().and_then(|name| name.to_str()) {
                Some("usage") => "",
                Some("stat") => "usage_usec ",
                _ => "cpu  ",
            };
            let file: File = OpenOptions::new().write(true).open(path)?;
            file.write_at(format!("{prefix}{value}").as_bytes(), 0)?;
        }
        Ok(())
    }
}

const KUBE: &str = "kubepods.slice";

fn object(shape: &Shape) -> Option<v1::Pod> {
    let name = |at: usize| format!("c{at}");
    let containers = shape.containers.iter().enumerate();
    let object = json!({
        "metadata": {"name": format!("p{}", &shape.uid[..8]), "namespace": "default", "uid": shape.uid,
            "labels": {QOS_CLASS: if shape.is_best_effort { "BE" } else { "LS" }}},
        "spec": {"containers": containers.clone().map(|(at, _)| json!({"name": name(at)})).collect::<Vec<_>>()},
        "status": {
            "phase": "Running",
            "qosClass": if shape.is_best_effort { "BestEffort" } else { "Burstable" },
            "containerStatuses": containers.map(|(at, id)| json!({
                "name": name(at), "containerID": format!("containerd://{id}"), "image": "", "imageID": "",
                "ready": true, "restartCount": 0, "state": {"running": {}},
            })).collect::<Vec<_>>(),
        },
    });
    serde_json::from_value(object).ok()
}

/// As long as a real one.
fn memory_v1() -> String {
    let keys = [
        "cache",
        "rss",
        "rss_huge",
        "shmem",
        "mapped_file",
        "dirty",
        "writeback",
        "swap",
        "pgpgin",
        "pgpgout",
        "pgfault",
        "pgmajfault",
        "inactive_anon",
        "active_anon",
        "inactive_file",
        "active_file",
        "unevictable",
    ];
    let own = keys.iter().map(|key| format!("{key} 40960000\n"));
    let limit = ["hierarchical_memory_limit 9223372036854771712\n".to_owned()];
    own.chain(limit).chain(keys.iter().map(|key| format!("total_{key} 40960000\n"))).collect()
}

fn memory_v2() -> String {
    let keys = [
        "anon",
        "file",
        "kernel",
        "kernel_stack",
        "pagetables",
        "sec_pagetables",
        "percpu",
        "sock",
        "vmalloc",
        "shmem",
        "zswap",
        "zswapped",
        "file_mapped",
        "file_dirty",
        "file_writeback",
        "swapcached",
        "anon_thp",
        "file_thp",
        "shmem_thp",
        "inactive_anon",
        "active_anon",
        "inactive_file",
        "active_file",
        "unevictable",
        "slab_reclaimable",
        "slab_unreclaimable",
        "slab",
        "workingset_refault_anon",
        "workingset_refault_file",
        "workingset_activate_anon",
        "workingset_activate_file",
        "workingset_restore_anon",
        "workingset_restore_file",
        "workingset_nodereclaim",
        "pgscan",
        "pgsteal",
        "pgscan_kswapd",
        "pgscan_direct",
        "pgsteal_kswapd",
        "pgsteal_direct",
        "pgfault",
        "pgmajfault",
        "pgrefill",
        "pgactivate",
        "pgdeactivate",
        "pglazyfree",
        "pglazyfreed",
        "thp_fault_alloc",
        "thp_collapse_alloc",
    ];
    keys.iter().map(|key| format!("{key} 40960000\n")).collect()
}
