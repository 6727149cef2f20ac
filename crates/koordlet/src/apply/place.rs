//! Where a neutral place lies in the tree of cgroups.

use koord_api::qos::KubeQos;
use koord_linux::cgroup::{ContainerId, Dir, Driver};

use crate::decide::wish::{HostBase, Place};

/// The directory of a place; none for places that are no groups, and for names that no group can have.
pub fn dir_of(place: &Place, driver: Driver) -> Option<Dir> {
    match place {
        Place::CgroupRoot => Some(Dir::root()),
        Place::Kube(qos) => Some(driver.qos_dir(*qos)),
        Place::Pod(id) => Some(driver.pod_dir(id.kube_qos, &id.uid)),
        Place::Container(id, container) => {
            let pod = driver.pod_dir(id.kube_qos, &id.uid);
            let container: ContainerId = container.parse().ok()?;
            Some(driver.container_dir(&pod, &container))
        }
        Place::HostApplication(application) => {
            let base = match application.base {
                HostBase::CgroupRoot => Dir::root(),
                HostBase::Kube(qos) => driver.qos_dir(qos),
            };
            let dir = Dir::new(&format!("{base}/{}", application.dir))?;
            // A path that is a base names no application: everything else below would be changed with it.
            (!is_base(&dir, driver)).then_some(dir)
        }
        Place::Dir(dir) => Dir::new(dir),
        Place::Host | Place::Resctrl(_) | Place::Process(_) => None,
    }
}

/// Whether it is the root, or a group of pods of whole classes.
fn is_base(dir: &Dir, driver: Driver) -> bool {
    let classes = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];
    *dir == Dir::root() || classes.iter().any(|qos| *dir == driver.qos_dir(*qos))
}
