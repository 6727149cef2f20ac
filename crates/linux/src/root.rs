//! Where the host's file systems are mounted for this process. Spec: koordlet-enforce 1.4.

use std::path::{Path, PathBuf};

/// The directories that everything else is found below. Flags may change each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub cgroup: PathBuf,
    pub proc: PathBuf,
    pub sys: PathBuf,
    pub sys_fs: PathBuf,
    pub var_run: PathBuf,
    pub run: PathBuf,
    pub kubelet: PathBuf,
    /// Ours: what must outlive this process, but not the machine's next start.
    pub state: PathBuf,
}

impl Root {
    /// A process on the host, or a tree that looks like one: everything where Linux mounts it below `dir`.
    pub fn host(dir: impl AsRef<Path>) -> Root {
        let dir = dir.as_ref();
        Root {
            cgroup: dir.join("sys/fs/cgroup"),
            proc: dir.join("proc"),
            sys: dir.join("sys"),
            sys_fs: dir.join("sys/fs"),
            var_run: dir.join("var/run"),
            run: dir.join("run"),
            kubelet: dir.join("var/lib/kubelet"),
            state: dir.join("var/run/koordlet"),
        }
    }

    /// A container of the DaemonSet, with the host's directories mounted as the chart does.
    pub fn daemonset() -> Root {
        Root {
            cgroup: "/host-cgroup".into(),
            proc: "/proc".into(),
            sys: "/host-sys".into(),
            sys_fs: "/host-sys-fs".into(),
            var_run: "/host-var-run".into(),
            run: "/host-run".into(),
            kubelet: "/var/lib/kubelet".into(),
            // `/host-var-run` can only be read there; this is `/var/run/koordlet` of the host.
            state: "/host-var-run-koordlet".into(),
        }
    }

    pub fn resctrl(&self) -> PathBuf {
        self.sys_fs.join("resctrl")
    }
}
