//! Names of the directories of QoS classes, pods and containers. Spec: koordlet-observe 2.2, koordlet-enforce 2.2.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use koord_api::qos::KubeQos;

use super::container::{ContainerId, Runtime};
use super::{Cgroups, Version};
use crate::error::Malformed;
use crate::root::Root;

/// A group's directory, below the cgroup root (v2) or a controller's (v1). Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dir(Arc<str>);

impl Dir {
    /// Slashes at either end do not count. A path that would leave the tree is None.
    pub fn new(path: &str) -> Option<Dir> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        (!parts.contains(&"..")).then(|| Dir(parts.join("/").into()))
    }

    /// The root of the tree.
    pub fn root() -> Dir {
        Dir("".into())
    }

    pub fn child(&self, name: &str) -> Dir {
        if self.0.is_empty() { Dir(name.into()) } else { Dir(format!("{}/{name}", self.0).into()) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// None for the root.
    pub fn parent(&self) -> Option<Dir> {
        let parent = self.0.rsplit_once('/').map_or("", |(parent, _)| parent);
        (!self.0.is_empty()).then(|| Dir(parent.into()))
    }

    /// How far below the root: 0 for the root itself.
    pub fn depth(&self) -> usize {
        if self.0.is_empty() { 0 } else { self.0.split('/').count() }
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// What a path alone tells of the Kubernetes QoS class.
    pub fn kube_qos(&self) -> KubeQos {
        if self.0.contains("besteffort") {
            KubeQos::BestEffort
        } else if self.0.contains("burstable") {
            KubeQos::Burstable
        } else {
            KubeQos::Guaranteed
        }
    }
}

impl fmt::Display for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who makes kubelet's groups, which decides their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    Systemd,
    Cgroupfs,
}

/// Prefixes of systemd's pod slices, in the order they are tried.
const POD_SLICES: [&str; 3] = ["kubepods-besteffort-pod", "kubepods-burstable-pod", "kubepods-pod"];

impl Driver {
    pub fn parse(name: &str) -> Option<Driver> {
        match name {
            "systemd" => Some(Driver::Systemd),
            "cgroupfs" => Some(Driver::Cgroupfs),
            _ => None,
        }
    }

    /// By the directory that kubelet made; None before it did.
    pub fn detect(root: &Root, version: Version) -> Option<Driver> {
        let base = if version == Version::V1 { root.cgroup.join("cpu") } else { root.cgroup.clone() };
        let has = |driver: &Driver| Path::new(&base).join(driver.kube_root().as_str()).is_dir();
        [Driver::Systemd, Driver::Cgroupfs].into_iter().find(has)
    }

    /// The directory of all pods.
    pub fn kube_root(self) -> Dir {
        match self {
            Driver::Systemd => Dir("kubepods.slice".into()),
            Driver::Cgroupfs => Dir("kubepods".into()),
        }
    }

    /// The directory of a class; Guaranteed pods live in the root itself.
    pub fn qos_dir(self, qos: KubeQos) -> Dir {
        let root = self.kube_root();
        match (self, qos) {
            (_, KubeQos::Guaranteed) => root,
            (Driver::Systemd, KubeQos::Burstable) => root.child("kubepods-burstable.slice"),
            (Driver::Systemd, KubeQos::BestEffort) => root.child("kubepods-besteffort.slice"),
            (Driver::Cgroupfs, KubeQos::Burstable) => root.child("burstable"),
            (Driver::Cgroupfs, KubeQos::BestEffort) => root.child("besteffort"),
        }
    }

    /// `uid` as kubelet's `/pods` tells it.
    pub fn pod_dir(self, qos: KubeQos, uid: &str) -> Dir {
        let name = match self {
            Driver::Cgroupfs => format!("pod{uid}"),
            Driver::Systemd => {
                let prefix = match qos {
                    KubeQos::BestEffort => POD_SLICES[0],
                    KubeQos::Burstable => POD_SLICES[1],
                    KubeQos::Guaranteed => POD_SLICES[2],
                };
                format!("{prefix}{}.slice", uid.replace('-', "_"))
            }
        };
        self.qos_dir(qos).child(&name)
    }

    pub fn container_dir(self, pod: &Dir, id: &ContainerId) -> Dir {
        pod.child(&self.container_name(id))
    }

    pub fn container_name(self, id: &ContainerId) -> String {
        match self {
            Driver::Cgroupfs => id.hash.clone(),
            Driver::Systemd => format!("{}{}.scope", id.runtime.scope_prefix(), id.hash),
        }
    }

    /// The pod's id in a directory's name; with systemd its dashes stay underscores.
    pub fn parse_pod_name(self, name: &str) -> Result<&str, Malformed> {
        let id = match self {
            Driver::Cgroupfs => name.strip_prefix("pod"),
            Driver::Systemd => POD_SLICES
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(".slice"))),
        };
        id.ok_or_else(|| Malformed(format!("fail to parse pod id: {name}")))
    }

    /// The container's hash in a directory's name. Pouch is not told apart, as upstream.
    pub fn parse_container_name(self, name: &str) -> Result<&str, Malformed> {
        if self == Driver::Cgroupfs {
            return Ok(name);
        }
        let scope = name.strip_suffix(".scope");
        let runtimes = [Runtime::Docker, Runtime::Containerd, Runtime::Crio];
        let of_scope = |runtime: &Runtime| scope.and_then(|name| name.strip_prefix(runtime.scope_prefix()));
        let hash = runtimes.iter().find_map(of_scope);
        // The sandbox of CRI-O has no `.scope`.
        let hash =
            hash.or_else(|| name.strip_prefix(Runtime::Crio.scope_prefix()).filter(|_| scope.is_none()));
        hash.ok_or_else(|| Malformed(format!("fail to parse container id: {name}")))
    }
}

impl Cgroups {
    pub fn kube_root(&self) -> Dir {
        self.driver().kube_root()
    }

    pub fn qos_dir(&self, qos: KubeQos) -> Dir {
        self.driver().qos_dir(qos)
    }

    pub fn pod_dir(&self, qos: KubeQos, uid: &str) -> Dir {
        self.driver().pod_dir(qos, uid)
    }

    pub fn container_dir(&self, pod: &Dir, id: &ContainerId) -> Dir {
        self.driver().container_dir(pod, id)
    }
}
