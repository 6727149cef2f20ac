//! Desired writes: which file of which group should hold what, and who wants it.
//!
//! Neutral on purpose: a `Place` is no path and a `File` no version of cgroups. Whoever applies a wish knows
//! the driver, the version, the validators and what the file holds now. Spec: koordlet-enforce 2.3, 2.6, 17.

use std::fmt;
use std::sync::Arc;

use koord_api::cpuset::CpuSet;
use koord_api::crd::node_slo::HostApplicationSpec;
use koord_api::qos::KubeQos;

pub use super::why::Why;

/// One value that one file should hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    pub place: Place,
    pub file: File,
    pub value: Value,
    pub cause: Cause,
    pub why: Why,
}

impl Wish {
    pub fn new(place: Place, file: File, value: Value, cause: Cause) -> Wish {
        Wish { place, file, value, cause, why: Why::default() }
    }

    /// The same for these reasons.
    pub fn because(self, why: &Why) -> Wish {
        Wish { why: why.clone(), ..self }
    }

    /// What the audit log says about the write: upstream's words, what was there before where that is one value, and the
    /// numbers behind it.
    pub fn audit_message(&self, before: Option<Before<'_>>) -> String {
        let (what, why) = (self.what(), &self.why);
        match before {
            Some(Before::Value(before)) => format!("{what}, was {before}{why}"),
            Some(Before::Parents) => format!("{what}, was its parent's{why}"),
            None => format!("{what}{why}"),
        }
    }

    fn what(&self) -> String {
        // One line, though the kernel takes some values as several.
        let value = self.value.to_string().trim_end().replace('\n', " ");
        match (self.cause, self.file) {
            (Cause::CpuSuppress, File::CpusetCpus) => format!("update BE group to cpuset: {value}"),
            (Cause::CpuSuppress, File::CpuCfsQuota) => format!("update BE group to cfs_quota: {value}"),
            (Cause::QuotaRecovery, _) => format!("recover bestEffort cfsQuota, isUpdated {value}"),
            (_, file) => format!("update {} to {value}", file.name()),
        }
    }
}

/// What a file held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before<'a> {
    Value(&'a str),
    /// A CPU set that was inherited.
    Parents,
}

/// Where a pod's cgroup lies: kubelet sorts pods by their Kubernetes QoS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId {
    pub uid: Arc<str>,
    pub kube_qos: KubeQos,
}

/// What a file belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The root of all cgroups.
    CgroupRoot,
    /// The group of a Kubernetes QoS class; that of Guaranteed pods is the root of all pods.
    Kube(KubeQos),
    Pod(PodId),
    /// A container or sandbox by its id as the kubelet reports it, such as `containerd://1f`.
    Container(PodId, Arc<str>),
    /// An application beside the pods: its folder from the root of cgroups, or a base and what is below.
    HostApplication(Box<HostPlace>),
    /// A cgroup found on disk that belongs to nobody we know, by its folder from the root of cgroups.
    Dir(Arc<str>),
    /// Files of the whole machine.
    Host,
    /// A group of resctrl by name.
    Resctrl(Arc<str>),
    Process(Box<ProcessPlace>),
}

/// A process of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessPlace {
    pub pid: u32,
    /// In ticks since the machine began: ids are used again.
    pub start_ticks: u64,
    pub pod: PodId,
    /// As the kubelet reports it.
    pub container: Arc<str>,
}

/// The cgroup of an application that runs beside the pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPlace {
    pub base: HostBase,
    /// Folder below the base.
    pub dir: String,
}

/// Folder that a host application's group lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostBase {
    CgroupRoot,
    Kube(KubeQos),
}

impl Place {
    /// Where a host application lies. Spec: koordlet-enforce 2.2.
    pub fn of_application(application: &HostApplicationSpec) -> Place {
        use koord_api::crd::node_slo::CgroupBase;
        let Some(path) = &application.cgroup_path else {
            let name = &application.name;
            let dir = match application.qos.as_str() {
                "LSE" | "LSR" | "LS" => format!("host-latency-sensitive/{name}"),
                "BE" => format!("host-best-effort/{name}"),
                _ => name.clone(),
            };
            return Place::HostApplication(Box::new(HostPlace { base: HostBase::CgroupRoot, dir }));
        };
        let base = match &path.base {
            Some(CgroupBase::Kubepods) => HostBase::Kube(KubeQos::Guaranteed),
            Some(CgroupBase::KubepodsBurstable) => HostBase::Kube(KubeQos::Burstable),
            Some(CgroupBase::KubepodsBesteffort) => HostBase::Kube(KubeQos::BestEffort),
            _ => HostBase::CgroupRoot,
        };
        let parts = [path.parent_dir.trim_matches('/'), path.relative_path.trim_matches('/')];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Place::HostApplication(Box::new(HostPlace { base, dir: parts.join("/") }))
    }
}

/// Declares the files with the names that the specification gives their resource types.
macro_rules! files {
    ($( $variant:ident = $name:literal, )*) => {
        /// A resource type, named as its cgroup v1 file whatever the version.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum File { $( $variant, )* }

        impl File {
            pub const ALL: &'static [File] = &[$( File::$variant, )*];

            /// The specification's name of the resource type.
            pub fn name(self) -> &'static str {
                match self { $( File::$variant => $name, )* }
            }
        }
    };
}

files! {
    CpuShares = "cpu.shares",
    CpuCfsQuota = "cpu.cfs_quota_us",
    CpuCfsBurst = "cpu.cfs_burst_us",
    CpuBvtWarp = "cpu.bvt_warp_ns",
    CpuIdle = "cpu.idle",
    CpusetCpus = "cpuset.cpus",
    MemoryLimit = "memory.limit_in_bytes",
    MemoryMin = "memory.min",
    MemoryLow = "memory.low",
    MemoryHigh = "memory.high",
    MemoryWmarkRatio = "memory.wmark_ratio",
    MemoryWmarkScaleFactor = "memory.wmark_scale_factor",
    MemoryWmarkMinAdj = "memory.wmark_min_adj",
    MemoryPriority = "memory.priority",
    MemoryUsePriorityOom = "memory.use_priority_oom",
    MemoryOomGroup = "memory.oom.group",
    MemoryPagecacheLimitEnable = "memory.pagecache_limit.enable",
    MemoryPagecacheLimitSize = "memory.pagecache_limit.size",
    MemoryPagecacheLimitSync = "memory.pagecache_limit.sync",
    BlkioReadIops = "blkio.throttle.read_iops_device",
    BlkioReadBps = "blkio.throttle.read_bps_device",
    BlkioWriteIops = "blkio.throttle.write_iops_device",
    BlkioWriteBps = "blkio.throttle.write_bps_device",
    BlkioWeight = "blkio.cost.weight",
    BlkioCostQos = "blkio.cost.qos",
    BlkioCostModel = "blkio.cost.model",
    NetClsClassid = "net_cls.classid",
    MinFreeKbytes = "min_free_kbytes",
    WatermarkScaleFactor = "watermark_scale_factor",
    ReapBackground = "reap_background",
    PagecacheLimitEnabled = "pagecache_limit enabled",
    SchedGroupIdentityEnabled = "sched_group_identity_enabled",
    SchedIdleSaverWmark = "sched_idle_saver_wmark",
    SchedCore = "sched_core",
    SchedFeatures = "sched_features",
    ResctrlSchemata = "schemata",
    ResctrlTasks = "tasks",
    OomScoreAdj = "oom_score_adj",
}

/// What a file should hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// For limits and quotas -1 is "none".
    Number(i64),
    /// Never empty: the kernel refuses an empty set.
    Cpus(CpuSet),
    /// A line as it is written.
    Text(String),
    /// The line of one disk, in a file that has a line for each.
    Disk(Disk, String),
    /// Thread ids, each written on its own.
    Tasks(Vec<u32>),
}

/// A block device's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disk {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Disk {
    /// Reads `253:16`.
    pub fn parse(text: &str) -> Option<Disk> {
        let (major, minor) = text.split_once(':')?;
        Some(Disk { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Cpus(cpus) => cpus.fmt(f),
            Value::Text(text) => f.write_str(text),
            Value::Disk(disk, setting) => write!(f, "{disk} {setting}"),
            Value::Tasks(ids) => {
                let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
                f.write_str(&ids.join(" "))
            }
        }
    }
}

/// Who wants a write, as the audit log calls it. Spec: koordlet-enforce 17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    CpuSuppress,
    /// The quota of best-effort pods is given back.
    QuotaRecovery,
    CpuBurst,
    QuotaBurst,
    MemoryQos,
    SystemConfig,
    BlockIo,
    Resctrl,
    ResctrlTasks,
    RuntimeHook,
}

impl Cause {
    /// The reason in the audit log.
    pub fn reason(self) -> &'static str {
        match self {
            Cause::CpuSuppress => "AdjustBEByNodeCPUUsage",
            Cause::QuotaRecovery => "suppressBECPU",
            Cause::CpuBurst => "CPUBurst",
            Cause::QuotaBurst => "CFSQuotaBurst",
            Cause::MemoryQos => "cgroup reconcile",
            Cause::SystemConfig => "systemConfig reconcile",
            Cause::BlockIo => "UpdateBlkIO",
            Cause::Resctrl => "UpdateResctrl",
            Cause::ResctrlTasks => "ApplyCatL3GroupTasks",
            Cause::RuntimeHook => "runtime-hooks",
        }
    }
}

/// Wishes that are carried out together.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    /// One after the other; a failure does not stop the rest.
    Each(Vec<Wish>),
    /// One after the other; the first failure ends it.
    Chain(Vec<Wish>),
    /// Levels of the hierarchy from the root down: what grows is written from above, what shrinks from below.
    Levels(Vec<Vec<Wish>>),
}

impl Batch {
    /// Every wish, in the order written down.
    pub fn wishes(&self) -> impl Iterator<Item = &Wish> {
        let (flat, levels): (&[Wish], &[Vec<Wish>]) = match self {
            Batch::Each(wishes) | Batch::Chain(wishes) => (wishes, &[]),
            Batch::Levels(levels) => (&[], levels),
        };
        flat.iter().chain(levels.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use koord_api::crd::node_slo::{CgroupBase, CgroupPath};

    use super::*;
    use crate::decide::hooks::cpuset::Because;

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> = File::ALL.iter().map(|file| file.name()).collect();
        assert_eq!(names.len(), File::ALL.len());
    }

    #[test]
    fn audit_messages() {
        let place = Place::Kube(KubeQos::BestEffort);
        let message = |file, value, cause| {
            let wish = Wish::new(place.clone(), file, value, cause);
            (wish.cause.reason(), wish.audit_message(None))
        };
        let plain = Wish::new(place.clone(), File::CpuShares, Value::Number(2), Cause::RuntimeHook);
        let why = Why::Cpus(Because::SharePool);
        let told = plain.clone().because(&why);
        for (before, want) in [
            (None, format!("update cpu.shares to 2{why}")),
            (Some(Before::Value("59")), format!("update cpu.shares to 2, was 59{why}")),
            (Some(Before::Parents), format!("update cpu.shares to 2, was its parent's{why}")),
        ] {
            assert_eq!(told.audit_message(before), want);
        }
        assert_eq!(why.to_string(), "; the share pools of LS pods");
        assert_eq!(told, plain, "numbers make no other wish");
        let cpus = Value::Cpus(CpuSet::range(0..=3));
        for (file, value, cause, reason, want) in [
            (
                File::CpusetCpus,
                cpus,
                Cause::CpuSuppress,
                "AdjustBEByNodeCPUUsage",
                "update BE group to cpuset: 0-3",
            ),
            (
                File::CpuCfsQuota,
                Value::Number(2000),
                Cause::CpuSuppress,
                "AdjustBEByNodeCPUUsage",
                "update BE group to cfs_quota: 2000",
            ),
            (
                File::CpuCfsQuota,
                Value::Number(-1),
                Cause::QuotaRecovery,
                "suppressBECPU",
                "recover bestEffort cfsQuota, isUpdated -1",
            ),
            (
                File::MemoryMin,
                Value::Number(0),
                Cause::MemoryQos,
                "cgroup reconcile",
                "update memory.min to 0",
            ),
        ] {
            assert_eq!(message(file, value, cause), (reason, want.to_string()));
        }
    }

    #[test]
    fn host_applications() {
        let application = |qos: &str, path: Option<CgroupPath>| HostApplicationSpec {
            name: "nginx".into(),
            qos: qos.into(),
            cgroup_path: path,
            ..HostApplicationSpec::default()
        };
        let path = |base, parent: &str, relative: &str| {
            Some(CgroupPath { base, parent_dir: parent.into(), relative_path: relative.into() })
        };
        for (application, base, dir) in [
            (application("LS", None), HostBase::CgroupRoot, "host-latency-sensitive/nginx"),
            (application("BE", None), HostBase::CgroupRoot, "host-best-effort/nginx"),
            (application("", None), HostBase::CgroupRoot, "nginx"),
            (
                application("BE", path(Some(CgroupBase::KubepodsBesteffort), "a/", "b")),
                HostBase::Kube(KubeQos::BestEffort),
                "a/b",
            ),
            (application("LS", path(None, "", "x")), HostBase::CgroupRoot, "x"),
        ] {
            let want = Place::HostApplication(Box::new(HostPlace { base, dir: dir.into() }));
            assert_eq!(Place::of_application(&application), want);
        }
    }
}
