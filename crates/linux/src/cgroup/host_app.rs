//! Where applications outside Kubernetes run. Spec: koordlet-observe 5.12, koordlet-enforce 2.2.

use koord_api::qos::{KubeQos, Qos};

use crate::cgroup::{Dir, Driver};
use crate::error::Malformed;

/// What a path in a NodeSLO hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    CgroupRoot,
    Kubepods,
    Burstable,
    BestEffort,
}

impl Base {
    /// An unknown name is the cgroup root, as upstream.
    pub fn parse(name: &str) -> Base {
        match name {
            "Kubepods" => Base::Kubepods,
            "KubepodsBurstable" => Base::Burstable,
            "KubepodsBesteffort" => Base::BestEffort,
            _ => Base::CgroupRoot,
        }
    }
}

/// The directory of an application whose path nobody set.
pub fn default_dir(name: &str, qos: Option<Qos>) -> Result<Dir, Malformed> {
    let parent = match qos {
        Some(Qos::Lse | Qos::Lsr | Qos::Ls) => "host-latency-sensitive/",
        Some(Qos::Be) => "host-best-effort/",
        _ => "",
    };
    non_root(&format!("{parent}{name}"))
}

/// The directory that a NodeSLO names. One that leaves its base, or is a base itself, is refused.
pub fn dir(driver: Driver, base: Base, parent: &str, relative: &str) -> Result<Dir, Malformed> {
    let base = match base {
        Base::CgroupRoot => Dir::root(),
        Base::Kubepods => driver.kube_root(),
        Base::Burstable => driver.qos_dir(KubeQos::Burstable),
        Base::BestEffort => driver.qos_dir(KubeQos::BestEffort),
    };
    // Differs: upstream joins `..` away, which can leave the base, and takes an empty path for the whole base.
    let below = non_root(&format!("{parent}/{relative}"))?;
    let dir = base.child(below.as_str());
    let classes = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];
    match classes.iter().any(|qos| dir == driver.qos_dir(*qos)) {
        true => Err(Malformed(format!("cgroup path {dir} of a host application is that of pods"))),
        false => Ok(dir),
    }
}

fn non_root(path: &str) -> Result<Dir, Malformed> {
    Dir::new(path).filter(|dir| *dir != Dir::root()).ok_or_else(|| {
        Malformed(format!("cgroup path {path:?} of a host application is empty or leaves its base"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_examples() {
        // koordlet-observe#13.2.B23
        assert_eq!(default_dir("nginx", Some(Qos::Ls)).unwrap().as_str(), "host-latency-sensitive/nginx");
        assert_eq!(default_dir("nginx", Some(Qos::Be)).unwrap().as_str(), "host-best-effort/nginx");
        // koordlet-observe#13.2.B24
        let found = dir(Driver::Systemd, Base::parse("KubepodsBesteffort"), "a", "b").unwrap();
        assert_eq!(found.as_str(), "kubepods.slice/kubepods-besteffort.slice/a/b");
        // koordlet-observe#13.2.B43: the same file as upstream's `/a/b` below the root.
        assert_eq!(dir(Driver::Systemd, Base::parse("CgroupRoot"), "/a/", "/b/").unwrap().as_str(), "a/b");
        assert_eq!(default_dir("x", None).unwrap().as_str(), "x");
    }

    #[test]
    fn a_path_stays_below_its_base() {
        for (parent, relative) in [("..", "x"), ("a", "../../b"), ("", ""), ("/", "."), ("", "/")] {
            assert!(dir(Driver::Cgroupfs, Base::Kubepods, parent, relative).is_err(), "{parent} {relative}");
        }
        for class in ["kubepods", "kubepods/besteffort/"] {
            assert!(dir(Driver::Cgroupfs, Base::CgroupRoot, "", class).is_err(), "{class}");
        }
        assert!(default_dir("../x", Some(Qos::Be)).is_err());
    }
}
