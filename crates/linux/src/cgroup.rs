//! The cgroup tree: which version and driver, where a group's files are, which of them this kernel has.
//!
//! Spec: koordlet-observe 2.1 to 2.3, koordlet-enforce 2.1 to 2.3.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use koord_api::cpuset::CpuSet;
use rustix::fs::statfs;

pub use container::{ContainerId, ContainerIdError, Runtime};
pub use dir::{Dir, Driver};
pub use listing::Listing;

use crate::error::{Error, Malformed};
use crate::handle::{Handle, Records};
use crate::resource::{Resource, Support};
use crate::root::Root;
use crate::text;

mod container;
mod dir;
pub mod host_app;
mod listing;
pub mod sandbox;

/// `CGROUP2_SUPER_MAGIC` of the kernel.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    V1,
    V2,
}

impl Version {
    /// By the file system mounted at the cgroup root. A root that does not exist inside a user namespace is v1.
    pub fn detect(root: &Root) -> Result<Version, Error> {
        match statfs(root.cgroup.as_path()) {
            Ok(status) if u64::try_from(status.f_type) == Ok(CGROUP2_MAGIC) => Ok(Version::V2),
            Ok(_) => Ok(Version::V1),
            Err(rustix::io::Errno::NOENT) if in_user_namespace(root) => Ok(Version::V1),
            Err(errno) => Err(Error::read(&root.cgroup, errno.into())),
        }
    }
}

/// Every id is mapped onto itself in the initial namespace, and in no other.
fn in_user_namespace(root: &Root) -> bool {
    let Ok(map) = text::read(&root.proc.join("self/uid_map")) else { return false };
    !map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The cgroups of one node.
#[derive(Debug)]
pub struct Cgroups {
    root: PathBuf,
    version: Version,
    driver: Driver,
    /// Which files exist in the directory of all pods, once that directory was there to look into.
    in_kube_root: Box<[OnceLock<bool>]>,
}

impl Cgroups {
    pub fn new(root: &Root, version: Version, driver: Driver) -> Cgroups {
        let in_kube_root = Resource::ALL.iter().map(|_| OnceLock::new()).collect();
        Cgroups { root: root.cgroup.clone(), version, driver, in_kube_root }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Where a resource of a group is written. A version without the resource is [`Error::NotRegistered`].
    pub fn path(&self, resource: Resource, dir: &Dir) -> Result<PathBuf, Error> {
        let file = resource.file(self.version).ok_or(Error::NotRegistered { name: resource.name() })?;
        Ok(self.group(file.controller, dir).join(file.name))
    }

    /// Where a resource of a group is read; only CPU sets on v2 tell it elsewhere.
    pub fn read_path(&self, resource: Resource, dir: &Dir) -> Result<PathBuf, Error> {
        if resource == Resource::CpusetCpus && self.version == Version::V2 {
            return Ok(self.group(None, dir).join("cpuset.cpus.effective"));
        }
        self.path(resource, dir)
    }

    /// The directory of a group, in the hierarchy of a controller on v1.
    pub fn group(&self, controller: Option<&str>, dir: &Dir) -> PathBuf {
        let mut path = self.root.clone();
        path.extend(controller);
        if !dir.as_str().is_empty() {
            path.push(dir.as_str());
        }
        path
    }

    /// The directory of a group where sub-directories are listed.
    pub fn listing(&self, dir: &Dir) -> PathBuf {
        self.group((self.version == Version::V1).then_some("cpuset"), dir)
    }

    /// The directory of a group that perf counters are attached to.
    pub fn perf_group(&self, dir: &Dir) -> PathBuf {
        self.group((self.version == Version::V1).then_some("perf_event"), dir)
    }

    /// A handle for repeated reading. Files that this kernel lacks are [`Error::Unsupported`].
    pub fn handle(&self, resource: Resource, dir: &Dir) -> Result<Handle, Error> {
        let path = self.read_path(resource, dir)?;
        self.require(resource, dir)?;
        let records = match resource {
            Resource::Tasks | Resource::Procs => Records::Many,
            _ => Records::One,
        };
        Ok(Handle::new(path, records))
    }

    /// One reading, for what is read now and then.
    pub fn read<T>(
        &self,
        resource: Resource,
        dir: &Dir,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let path = self.read_path(resource, dir)?;
        self.require(resource, dir)?;
        let content = fs::read(&path).map_err(|source| Error::read(&path, source))?;
        parse(&content).map_err(|source| Error::content(&path, source))
    }

    /// Error when this kernel does not have the resource.
    pub fn require(&self, resource: Resource, dir: &Dir) -> Result<(), Error> {
        if self.supports(resource, dir) {
            return Ok(());
        }
        Err(Error::Unsupported { name: resource.name() })
    }

    fn supports(&self, resource: Resource, dir: &Dir) -> bool {
        let exists = |dir: &Dir| self.path(resource, dir).is_ok_and(|path| path.exists());
        match resource.support(self.version) {
            Support::Assumed => true,
            Support::Target => exists(dir),
            Support::CgroupRoot => exists(&Dir::root()),
            Support::KubeRoot => {
                let kube_root = self.driver.kube_root();
                let known = &self.in_kube_root[resource.index()];
                if let Some(known) = known.get() {
                    return *known;
                }
                // Before kubelet made its directory nothing can be told for good.
                let found = exists(&kube_root);
                let is_there =
                    self.path(resource, &kube_root).is_ok_and(|path| path.parent().is_some_and(Path::exists));
                if is_there { *known.get_or_init(|| found) } else { found }
            }
        }
    }

    /// Whether the kernel is Anolis', which lets bursts exceed quotas.
    pub fn is_anolis(&self) -> bool {
        let bvt = self.path(Resource::BvtWarpNs, &Dir::root());
        if bvt.is_ok_and(|path| path.exists()) {
            return true;
        }
        let memory = self.group((self.version == Version::V1).then_some("memory"), &Dir::root());
        let Ok(groups) = fs::read_dir(memory) else { return false };
        groups.flatten().any(|group| group.path().join("memory.wmark_ratio").exists())
    }

    /// Sub-directories of a group, in order of name. A group that has gone has none.
    pub fn children(&self, dir: &Dir) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.listing(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let names = entries.flatten().filter(is_dir).filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// The CPUs of a `cpuset.cpus` file.
pub fn cpus(content: &[u8]) -> Result<CpuSet, Malformed> {
    let list = std::str::from_utf8(text::trimmed(content)).map_err(|fault| Malformed(fault.to_string()))?;
    list.parse().map_err(|fault: koord_api::cpuset::CpuListError| Malformed(fault.to_string()))
}

/// How many CPUs a `cpuset.cpus` file lists, without building the set. The kernel lists each CPU once.
pub fn cpu_count(content: &[u8]) -> Result<u32, Malformed> {
    let list = text::trimmed(content);
    let fault = || Malformed(format!("value {} is not valid cpuset string", text::shown(list)));
    let mut count = 0u32;
    for part in list.split(|byte| *byte == b',').filter(|_| !list.is_empty()) {
        let mut ends = part.splitn(2, |byte| *byte == b'-');
        let first: u32 = ends.next().and_then(text::number).ok_or_else(fault)?;
        let last = ends.next().map_or(Some(first), text::number).ok_or_else(fault)?;
        count = count.saturating_add(last.checked_sub(first).ok_or_else(fault)?.saturating_add(1));
    }
    Ok(count)
}

/// The threads of `tasks`, or the processes of `cgroup.procs`.
pub fn ids(content: &[u8]) -> Result<Vec<u32>, Malformed> {
    text::ids(content)
}

/// The class of `net_cls.classid`.
pub fn class_id(content: &[u8]) -> Result<u32, Malformed> {
    text::unsigned32(content)
}

#[cfg(test)]
mod tests;
