//! The table of cgroup resources: file names by version, ranges, how to tell support, how values merge.
//!
//! A resource is called by its v1 file name in both versions, and values are written in v1's language;
//! [`encode`] turns them into what the version's file takes. Pure. Spec: koordlet-enforce 2.3 to 2.5.

use crate::cgroup::Version;

pub use compare::{current_value, is_same, raised};
pub use convert::{convert, encode, shares_of_weight, weight_of_shares};
pub use device::{Device, DeviceLine, value_of_device};
pub(crate) use validate::in_range;
pub use validate::validate;

mod compare;
mod convert;
mod device;
mod validate;

/// Where a resource lives in one cgroup version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// The hierarchy below the cgroup root; v2 has only one.
    pub controller: Option<&'static str>,
    pub name: &'static str,
}

/// Which values the kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Any,
    /// A number, or `max` for the largest.
    Range(i64, i64),
    CpuList,
    /// `maj:min N`.
    DeviceRange(i64, i64),
    CostQos,
    CostModel,
    ClassId,
}

/// How to tell whether the kernel has the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    Assumed,
    /// It stands in kubelet's root directory; looked up once.
    KubeRoot,
    /// It stands in the group's own directory.
    Target,
    /// It stands in the root of the hierarchy, the only place it can be.
    CgroupRoot,
}

/// What a parent must hold before its children may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Levels do not depend on each other.
    Never,
    /// A child's number stays within its parent's.
    Larger,
    /// A child's CPUs are among its parent's.
    LooserCpus,
}

/// A row of the table.
struct Row {
    name: &'static str,
    v1: Option<&'static str>,
    v2: Option<&'static str>,
    check: [Check; 2],
    support: [Support; 2],
    merge: Merge,
}

macro_rules! resources {
    ($($(#[$doc:meta])* $variant:ident = $row:expr;)*) => {
        /// A file of a group.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Resource { $($(#[$doc])* $variant,)* }

        impl Resource {
            pub const ALL: &[Resource] = &[$(Resource::$variant,)*];

            const fn row(self) -> &'static Row {
                match self { $(Resource::$variant => const { &$row },)* }
            }
        }
    };
}

resources! {
    CpuStat = read_only("cpu.stat", "cpu", "cpu.stat");
    CpuShares = both("cpu.shares", "cpu", "cpu.weight", Check::Range(2, 262_144));
    CfsQuotaUs = both("cpu.cfs_quota_us", "cpu", "cpu.max", Check::Any).merging(Merge::Larger);
    /// Never written.
    CfsPeriodUs = read_only("cpu.cfs_period_us", "cpu", "cpu.max");
    CfsBurstUs = both("cpu.cfs_burst_us", "cpu", "cpu.max.burst", Check::Range(0, i64::MAX))
        .checked([Check::Range(0, 100_000_000), Check::Range(0, i64::MAX)])
        .known_by(Support::Target, Support::KubeRoot).merging(Merge::Larger);
    BvtWarpNs = both("cpu.bvt_warp_ns", "cpu", "cpu.bvt_warp_ns", Check::Range(-1, 2))
        .known_by(Support::Target, Support::Target);
    CpuIdle = both("cpu.idle", "cpu", "cpu.idle", Check::Range(0, 1)).known_by(Support::KubeRoot, Support::KubeRoot);
    Tasks = read_only("tasks", "cpu", "cgroup.threads");
    Procs = read_only("cgroup.procs", "cpu", "cgroup.procs");
    CpusetCpus = both("cpuset.cpus", "cpuset", "cpuset.cpus", Check::CpuList).merging(Merge::LooserCpus);
    CpuacctUsage = read_only("cpuacct.usage", "cpuacct", "cpu.stat");
    CpuacctStat = read_only("cpuacct.stat", "cpuacct", "cpu.stat");
    CpuPressure = read_only("cpu.pressure", "cpuacct", "cpu.pressure").known_by(Support::KubeRoot, Support::KubeRoot);
    MemoryPressure = read_only("memory.pressure", "cpuacct", "memory.pressure")
        .known_by(Support::KubeRoot, Support::KubeRoot);
    IoPressure = read_only("io.pressure", "cpuacct", "io.pressure").known_by(Support::KubeRoot, Support::KubeRoot);
    MemoryLimit = both("memory.limit_in_bytes", "memory", "memory.max", Check::Any).merging(Merge::Larger);
    MemoryUsage = read_only("memory.usage_in_bytes", "memory", "memory.current");
    MemoryStat = read_only("memory.stat", "memory", "memory.stat");
    MemoryNumaStat = read_only("memory.numa_stat", "memory", "memory.numa_stat");
    MemoryMin = memory("memory.min", Check::Range(0, i64::MAX)).known_by(Support::KubeRoot, Support::Assumed)
        .merging(Merge::Larger);
    MemoryLow = memory("memory.low", Check::Range(0, i64::MAX)).known_by(Support::KubeRoot, Support::Assumed)
        .merging(Merge::Larger);
    MemoryHigh = memory("memory.high", Check::Range(0, i64::MAX)).known_by(Support::KubeRoot, Support::Assumed)
        .merging(Merge::Larger);
    WmarkRatio = memory("memory.wmark_ratio", Check::Range(0, 100));
    WmarkScaleFactor = memory("memory.wmark_scale_factor", Check::Range(1, 1000));
    WmarkMinAdj = memory("memory.wmark_min_adj", Check::Range(-25, 50));
    MemoryPriority = memory("memory.priority", Check::Range(0, 12));
    UsePriorityOom = memory("memory.use_priority_oom", Check::Range(0, 1));
    OomGroup = memory("memory.oom.group", Check::Range(0, 1));
    PagecacheLimitEnable = memory("memory.pagecache_limit.enable", Check::Range(0, 1)).only_v2();
    PagecacheLimitSize = memory("memory.pagecache_limit.size", Check::Range(0, i64::MAX)).only_v2();
    PagecacheLimitSync = memory("memory.pagecache_limit.sync", Check::Range(0, 1)).only_v2();
    MemoryIdlePageStats = Row { v2: None, ..read_only("memory.idle_page_stats", "memory", "") }
        .known_by(Support::KubeRoot, Support::KubeRoot);
    ReadIops = io("blkio.throttle.read_iops_device", "io.max", Check::DeviceRange(0, i64::MAX));
    WriteIops = io("blkio.throttle.write_iops_device", "io.max", Check::DeviceRange(0, i64::MAX));
    ReadBps = io("blkio.throttle.read_bps_device", "io.max", Check::DeviceRange(0, i64::MAX));
    WriteBps = io("blkio.throttle.write_bps_device", "io.max", Check::DeviceRange(0, i64::MAX));
    IoWeight = io("blkio.cost.weight", "io.weight", Check::DeviceRange(1, 100));
    IoCostQos = io("blkio.cost.qos", "io.cost.qos", Check::CostQos).known_by(Support::CgroupRoot, Support::CgroupRoot);
    IoCostModel = io("blkio.cost.model", "io.cost.model", Check::CostModel)
        .known_by(Support::CgroupRoot, Support::CgroupRoot);
    NetClassId = both("net_cls.classid", "net_cls", "net_cls.classid", Check::ClassId)
        .known_by(Support::KubeRoot, Support::KubeRoot);
}

const fn both(name: &'static str, controller: &'static str, v2: &'static str, check: Check) -> Row {
    Row {
        name,
        v1: Some(controller),
        v2: Some(v2),
        check: [check; 2],
        support: [Support::Assumed; 2],
        merge: Merge::Never,
    }
}

const fn read_only(name: &'static str, controller: &'static str, v2: &'static str) -> Row {
    both(name, controller, v2, Check::Any)
}

const fn memory(name: &'static str, check: Check) -> Row {
    both(name, "memory", name, check).known_by(Support::KubeRoot, Support::Target)
}

// Differs: upstream limits disks on v1 only; io.max, io.weight and io.cost.* of v2 say the same.
const fn io(name: &'static str, v2: &'static str, check: Check) -> Row {
    both(name, "blkio", v2, check).known_by(Support::KubeRoot, Support::Target)
}

impl Row {
    const fn checked(mut self, check: [Check; 2]) -> Row {
        self.check = check;
        self
    }

    const fn known_by(mut self, v1: Support, v2: Support) -> Row {
        self.support = [v1, v2];
        self
    }

    const fn merging(mut self, merge: Merge) -> Row {
        self.merge = merge;
        self
    }

    const fn only_v2(mut self) -> Row {
        self.v1 = None;
        self
    }
}

impl Resource {
    /// The v1 file name, by which the resource is called everywhere.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    pub fn from_name(name: &str) -> Option<Resource> {
        Resource::ALL.iter().copied().find(|resource| resource.name() == name)
    }

    /// None when the version has no such resource.
    pub fn file(self, version: Version) -> Option<File> {
        let row = self.row();
        match version {
            Version::V1 => row.v1.map(|controller| File { controller: Some(controller), name: row.name }),
            // There is no net_cls on v2; where someone mounted it, it stands where v1 has it.
            Version::V2 if self == Resource::NetClassId => Some(File { controller: row.v1, name: row.name }),
            Version::V2 => row.v2.map(|name| File { controller: None, name }),
        }
    }

    pub fn check(self, version: Version) -> Check {
        self.row().check[version_index(version)]
    }

    pub fn support(self, version: Version) -> Support {
        self.row().support[version_index(version)]
    }

    pub fn merge(self) -> Merge {
        self.row().merge
    }

    /// Whether the file has a line for each device.
    pub fn is_per_device(self) -> bool {
        matches!(self.row().check[0], Check::DeviceRange(..) | Check::CostQos | Check::CostModel)
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

fn version_index(version: Version) -> usize {
    match version {
        Version::V1 => 0,
        Version::V2 => 1,
    }
}

#[cfg(test)]
mod tests;
