//! Applications that run on a node beside its pods. Spec: crds 5.10.

use crate::crd::wire::{empty_as_none, open_enum, wire};

wire! {
    /// An application that runs on the node outside Kubernetes.
    pub struct HostApplicationSpec {
        /// Name of the application, unique on the node.
        pub name: String,
        /// Koordinator priority class.
        pub priority: String,
        /// Koordinator QoS class.
        pub qos: String,
        /// Where its cgroup lies.
        pub cgroup_path: Option<CgroupPath>,
        /// Nothing yet.
        pub strategy: Option<HostApplicationStrategy>,
    }

    /// The cgroup of an application, below a well-known folder.
    pub struct CgroupPath {
        /// `CgroupRoot` (default), `Kubepods`, `KubepodsBurstable` or `KubepodsBesteffort`.
        #[serde(deserialize_with = "empty_as_none")]
        pub base: Option<CgroupBase>,
        /// Folder below the base.
        pub parent_dir: String,
        /// Folder below parentDir.
        pub relative_path: String,
    }

    /// Nothing yet.
    pub struct HostApplicationStrategy {}
}

open_enum! {
    /// Well-known cgroup folders.
    pub enum CgroupBase {
        CgroupRoot = "CgroupRoot",
        Kubepods = "Kubepods",
        KubepodsBurstable = "KubepodsBurstable",
        KubepodsBesteffort = "KubepodsBesteffort",
    }
}
