//! Groups as kubelet and the container runtime make them, and processes in them. Everything goes when the tree does.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use koord_api::cpuset::CpuSet;

/// A shell that takes all the time it gets.
pub(crate) const BUSY: &str = "while :; do :; done";
/// A shell that waits for what never comes, without another program.
pub(crate) const IDLE: &str = "read forever";
const CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "cpuset", "memory", "blkio"];
/// How long a group may be busy after its last process ended.
const BUSY_AFTER: Duration = Duration::from_secs(30);

/// Which kind of cgroups, and so which driver: the systemd driver's names on v2, the cgroupfs driver's on v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    V1,
    V2,
}

/// The groups of a node.
pub(crate) struct Tree {
    pub(crate) kind: Kind,
    /// What koordlet is told to be the root.
    pub(crate) root: PathBuf,
    /// The group below each hierarchy that all others are in; none where the machine is ours.
    own: Option<String>,
    /// In order of creation.
    made: Vec<PathBuf>,
    processes: Vec<Process>,
}

struct Process {
    child: Child,
    /// What it waits for as long as it is open.
    _input: Option<std::process::ChildStdin>,
}

impl Tree {
    /// The root of this machine where that is ours alone, else a group of our own below each hierarchy, which links in
    /// `dir` make look like a root.
    pub(crate) fn new(dir: &Path, is_machine_ours: bool) -> Result<Tree> {
        let host = Path::new("/sys/fs/cgroup");
        let kind = if host.join("cgroup.controllers").exists() { Kind::V2 } else { Kind::V1 };
        let mut tree =
            Tree { kind, root: host.to_owned(), own: None, made: Vec::new(), processes: Vec::new() };
        if !is_machine_ours {
            ensure!(kind == Kind::V1, "only cgroup v1 can be shared with others here");
            tree.root = dir.join("cgroup");
            fs::create_dir_all(&tree.root)?;
            let name = format!("koord-passenger-{}", std::process::id());
            tree.own = Some(name.clone());
            for controller in CONTROLLERS {
                let own = host.join(controller).join(&name);
                fs::create_dir(&own).with_context(|| own.display().to_string())?;
                tree.made.push(own.clone());
                tree.inherit(controller, &own)?;
                std::os::unix::fs::symlink(&own, tree.root.join(controller))?;
            }
        } else if kind == Kind::V2 && host.join("kubepods").exists() {
            // The other driver's directory, which the machine comes with.
            fs::remove_dir(host.join("kubepods"))?;
        }
        for group in tree.classes() {
            tree.make(&group)?;
        }
        Ok(tree)
    }

    /// Of all pods, of burstable and of best-effort ones.
    fn classes(&self) -> [String; 3] {
        [self.class("Guaranteed"), self.class("Burstable"), self.class("BestEffort")]
    }

    pub(crate) fn class(&self, kube_qos: &str) -> String {
        match (self.kind, kube_qos) {
            (Kind::V1, "BestEffort") => "kubepods/besteffort".into(),
            (Kind::V1, "Burstable") => "kubepods/burstable".into(),
            (Kind::V1, _) => "kubepods".into(),
            (Kind::V2, "BestEffort") => "kubepods.slice/kubepods-besteffort.slice".into(),
            (Kind::V2, "Burstable") => "kubepods.slice/kubepods-burstable.slice".into(),
            (Kind::V2, _) => "kubepods.slice".into(),
        }
    }

    pub(crate) fn pod(&self, kube_qos: &str, uid: &str) -> String {
        let class = self.class(kube_qos);
        match self.kind {
            Kind::V1 => format!("{class}/pod{uid}"),
            Kind::V2 => {
                let prefix = class.rsplit('/').next().and_then(|name| name.strip_suffix(".slice"));
                format!("{class}/{}-pod{}.slice", prefix.unwrap_or_default(), uid.replace('-', "_"))
            }
        }
    }

    pub(crate) fn container(&self, pod: &str, id: &str) -> String {
        match self.kind {
            Kind::V1 => format!("{pod}/{id}"),
            Kind::V2 => format!("{pod}/cri-containerd-{id}.scope"),
        }
    }

    /// A group's directory, in the hierarchy of a controller on v1.
    pub(crate) fn path(&self, controller: &str, group: &str) -> PathBuf {
        match self.kind {
            Kind::V1 => self.root.join(controller).join(group),
            Kind::V2 => self.root.join(group),
        }
    }

    /// A group as a runtime is told of it: from the root of every hierarchy.
    pub(crate) fn name_in_kernel(&self, group: &str) -> Result<String> {
        let own = self.own.as_deref().map_or(String::new(), |own| format!("/{own}"));
        ensure!(self.kind == Kind::V1, "runtimes name groups of the systemd driver in another way");
        Ok(format!("{own}/{group}"))
    }

    fn hierarchies(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::V1 => &CONTROLLERS,
            Kind::V2 => &[""],
        }
    }

    pub(crate) fn make(&mut self, group: &str) -> Result<()> {
        for controller in self.hierarchies() {
            let path = self.path(controller, group);
            if self.kind == Kind::V2 {
                let parent = path.parent().context("a group has a parent")?;
                fs::write(parent.join("cgroup.subtree_control"), "+cpu +cpuset +memory +io +pids")?;
            }
            fs::create_dir(&path).with_context(|| path.display().to_string())?;
            self.inherit(controller, &path)?;
            self.made.push(path);
        }
        Ok(())
    }

    /// A set of v1 is empty until somebody fills it.
    fn inherit(&self, controller: &str, path: &Path) -> Result<()> {
        if self.kind == Kind::V1 && controller == "cpuset" {
            for file in ["cpuset.mems", "cpuset.cpus"] {
                let above = fs::read_to_string(path.parent().context("a group has a parent")?.join(file))?;
                fs::write(path.join(file), above.trim())
                    .with_context(|| format!("{} of {}", file, path.display()))?;
            }
        }
        Ok(())
    }

    /// What the kernel must take from a runtime that starts a container: a group, its CPUs, a process in it.
    pub(crate) fn start_container(
        &mut self,
        group: &str,
        cpus: Option<&CpuSet>,
        command: &str,
    ) -> Result<u32> {
        self.make(group)?;
        if let Some(cpus) = cpus {
            self.set_cpus(group, cpus)?;
        }
        self.spawn(group, Command::new("sh").args(["-c", command]))
    }

    /// Starts a process and puts it into a group; answers its id.
    pub(crate) fn spawn(&mut self, group: &str, command: &mut Command) -> Result<u32> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let id = child.id();
        let input = child.stdin.take();
        self.processes.push(Process { child, _input: input });
        for controller in self.hierarchies() {
            let procs = self.path(controller, group).join("cgroup.procs");
            let mut file = fs::OpenOptions::new().write(true).open(&procs)?;
            file.write_all(id.to_string().as_bytes()).with_context(|| procs.display().to_string())?;
        }
        Ok(id)
    }

    pub(crate) fn kill(&mut self, id: u32) -> Result<()> {
        for mut process in self.processes.extract_if(.., |process| process.child.id() == id) {
            process.child.kill()?;
            process.child.wait()?;
        }
        Ok(())
    }

    /// Removes a group and everything below it, with the processes.
    pub(crate) fn remove(&mut self, group: &str) -> Result<()> {
        let paths: Vec<PathBuf> =
            self.hierarchies().iter().map(|controller| self.path(controller, group)).collect();
        let inside: Vec<u32> = self.ids(group);
        for id in inside {
            self.kill(id)?;
        }
        let gone: Vec<PathBuf> =
            self.made.extract_if(.., |made| paths.iter().any(|path| made.starts_with(path))).collect();
        gone.iter().rev().try_for_each(|path| remove_group(path))
    }

    /// Processes in a group and below it.
    fn ids(&self, group: &str) -> Vec<u32> {
        let top = self.path("cpu", group);
        let below = self.made.iter().filter(|path| path.starts_with(&top));
        let procs = below.filter_map(|path| fs::read_to_string(path.join("cgroup.procs")).ok());
        procs.flat_map(|text| text.lines().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>()).collect()
    }

    /// What a file of a group holds; of the two names the one of this kind of cgroups counts.
    pub(crate) fn read(&self, group: &str, controller: &str, [v1, v2]: [&str; 2]) -> Result<String> {
        let name = if self.kind == Kind::V1 { v1 } else { v2 };
        let path = self.path(controller, group).join(name);
        Ok(fs::read_to_string(&path).with_context(|| path.display().to_string())?.trim().to_owned())
    }

    /// The CPUs of a group; those of the next one above that has any, where it has none of its own.
    pub(crate) fn cpus(&self, group: &str) -> Result<CpuSet> {
        let own = self.read(group, "cpuset", ["cpuset.cpus", "cpuset.cpus"]).unwrap_or_default();
        if !own.is_empty() {
            return Ok(own.parse()?);
        }
        Ok(self.read(group, "cpuset", ["cpuset.cpus", "cpuset.cpus.effective"])?.parse()?)
    }

    pub(crate) fn set_cpus(&self, group: &str, cpus: &CpuSet) -> Result<()> {
        fs::write(self.path("cpuset", group).join("cpuset.cpus"), cpus.to_string())
            .with_context(|| format!("CPUs {cpus} for {group}"))
    }

    /// None is no limit.
    pub(crate) fn quota_us(&self, group: &str) -> Result<Option<i64>> {
        let text = self.read(group, "cpu", ["cpu.cfs_quota_us", "cpu.max"])?;
        let quota = text.split(' ').next().unwrap_or_default();
        Ok(if quota == "max" || quota == "-1" { None } else { Some(quota.parse()?) })
    }

    /// A limit as kubelet and the runtime set it.
    pub(crate) fn limit_cpu(&self, group: &str, quota_us: i64) -> Result<()> {
        let (file, value) = match self.kind {
            Kind::V1 => ("cpu.cfs_quota_us", quota_us.to_string()),
            Kind::V2 => ("cpu.max", format!("{quota_us} 100000")),
        };
        Ok(fs::write(self.path("cpu", group).join(file), value)?)
    }

    /// Periods in which a group had to wait.
    pub(crate) fn throttled(&self, group: &str) -> Result<u64> {
        let text = self.read(group, "cpu", ["cpu.stat", "cpu.stat"])?;
        let count = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        Ok(count.context("cpu.stat without nr_throttled")?.parse()?)
    }

    /// Removes what a runtime made: in other hierarchies, and what it could not remove itself.
    fn remove_others(&self) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let hierarchies = fs::read_dir("/sys/fs/cgroup")?;
        hierarchies.flatten().try_for_each(|hierarchy| remove_with_children(&hierarchy.path().join(own)))
    }

    /// Everything that koordlet may write, by path: what the node is like.
    pub(crate) fn picture(&self) -> Vec<(PathBuf, String)> {
        const FILES: [&str; 18] = [
            "cpuset.cpus",
            "cpu.max",
            "cpu.max.burst",
            "cpu.weight",
            "cpu.idle",
            "cpu.cfs_quota_us",
            "cpu.cfs_burst_us",
            "cpu.shares",
            "memory.min",
            "memory.low",
            "memory.high",
            "memory.max",
            "memory.limit_in_bytes",
            "memory.oom.group",
            "io.max",
            "io.weight",
            "blkio.throttle.read_bps_device",
            "blkio.throttle.write_iops_device",
        ];
        let mut found = Vec::new();
        for path in self.made.iter().flat_map(|dir| FILES.map(|file| dir.join(file))) {
            if let Ok(text) = fs::read_to_string(&path) {
                found.push((path, text.trim().to_owned()));
            }
        }
        found
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // One that ended by itself cannot be killed.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        let others = self.remove_others();
        let made = self.made.iter().rev().try_for_each(|path| remove_group(path));
        if let Err(error) = others.and(made) {
            eprintln!("left behind: {error:#}");
        }
    }
}

fn remove_with_children(group: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(group) else { return Ok(()) };
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).try_for_each(|dir| remove_with_children(&dir))?;
    remove_group(group)
}

/// A group is busy until its last task is quite gone.
fn remove_group(path: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) if start.elapsed() < BUSY_AFTER => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
}

/// The CPUs that the kernel lets a process run on.
pub(crate) fn allowed_cpus(id: u32) -> Result<CpuSet> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(list.context("a status without CPUs")?.trim().parse()?)
}
