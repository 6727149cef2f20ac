//! VolumeRestrictions: disks that one node mounts once, and claims that one pod mounts. Spec: scheduler-core 6.11.

use std::sync::Arc;

use crate::cluster::storage::Turn;
use crate::cluster::{Cluster, Row};
use crate::engine::input::StorageKind;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::{Hint, Registration};
use crate::framework::{
    Change, Code, Cycle, Facts, Filter, HintFn, HintInput, Hooks, NodeView, PreFilter, Preparation, Reason,
    Scope, Status,
};
use crate::pod::{Class, Pod, Volume};

pub const NAME: &str = "VolumeRestrictions";

pub fn build() -> Hooks {
    let plugin = Arc::new(VolumeRestrictions);
    Hooks::new(NAME).pre_filter(plugin.clone()).filter(plugin).woken_by(vec![
        Registration::with(Resource::Pod, Action::DELETE, Arc::new(after_pod_deleted) as HintFn),
        Registration::always(Resource::Node, Action::ADD),
        Registration::with(Resource::PersistentVolumeClaim, Action::ADD, Arc::new(after_claim_added)),
    ])
}

struct VolumeRestrictions;

/// The pod's claims that only one pod may mount, and how often pods mount them.
#[derive(Clone)]
struct OncePod {
    claims: Arc<[Box<str>]>,
    uses: i64,
}

impl OncePod {
    fn of(pod: &Pod, cluster: &Cluster) -> Result<OncePod, Status> {
        let namespace = &*pod.class.namespace;
        let mut claims: Vec<Box<str>> = Vec::new();
        for name in pod.class.claims() {
            let Some(claim) = cluster.storage().claim(namespace, name) else {
                let facts = Facts::Object { kind: "PersistentVolumeClaim", name: name.into() };
                let reason = Reason::with(format!("persistentvolumeclaim {name:?} not found"), facts);
                return Err(Status::new(Code::Unresolvable, NAME, reason));
            };
            if claim.modes.is_once_pod() && !claims.iter().any(|known| **known == *name) {
                claims.push(name.into());
            }
        }
        // Differs: every mount counts. Upstream counts each claim once, so that taking one of two pods away seems
        // to free it.
        let uses = claims.iter().flat_map(|name| cluster.storage().uses(namespace, name));
        let on_nodes = uses.filter(|(row, _)| cluster.node(*row).is_real);
        Ok(OncePod { uses: on_nodes.map(|(_, count)| i64::from(*count)).sum(), claims: claims.into() })
    }

    /// How often a pod mounts the claims.
    fn count(&self, namespace: &str, other: &Pod) -> i64 {
        // Differs: claims of the same name in another namespace are others; upstream compares names alone.
        if *other.class.namespace != *namespace {
            return 0;
        }
        let mounted = other.class.claims().filter(|name| self.claims.iter().any(|claim| **claim == **name));
        i64::try_from(mounted.count()).unwrap_or(i64::MAX)
    }
}

impl PreFilter for VolumeRestrictions {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        if cycle.pod.class.volumes.is_empty() {
            return Ok(Preparation::Skip);
        }
        let once = OncePod::of(cycle.pod, cycle.cluster)?;
        if once.uses == 0 && !has_disks(&cycle.pod.class) {
            return Ok(Preparation::Skip);
        }
        cycle.set(once);
        Ok(Preparation::Go)
    }

    fn only_serves(&self, class: &Class) -> bool {
        class.volumes.is_empty()
    }

    fn add_pod(&self, cycle: &mut Cycle<'_>, other: &Arc<Pod>, _row: Row) {
        let namespace = cycle.pod.class.namespace.clone();
        if let Some(once) = cycle.get_mut::<OncePod>() {
            once.uses += once.count(&namespace, other);
        }
    }

    fn remove_pod(&self, cycle: &mut Cycle<'_>, other: &Arc<Pod>, _row: Row) {
        let namespace = cycle.pod.class.namespace.clone();
        if let Some(once) = cycle.get_mut::<OncePod>() {
            once.uses -= once.count(&namespace, other);
        }
    }
}

impl Filter for VolumeRestrictions {
    fn scope(&self, class: &Class) -> Scope {
        if class.claims().next().is_some() {
            return Scope::Cluster;
        }
        if has_disks(class) { Scope::Row } else { Scope::Nothing }
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        let class = &cycle.pod.class;
        if has_disks(class)
            && let Some(holder) = node.pods_with_volumes().find(|other| collides(class, &other.class))
        {
            let facts = Facts::Object { kind: "Pod", name: holder.key.to_string().into() };
            let reason = Reason::with("node(s) had no available disk", facts);
            return Err(Status::new(Code::Unschedulable, NAME, reason));
        }
        match cycle.get::<OncePod>() {
            Some(once) if once.uses > 0 => Err(Status::unschedulable(
                NAME,
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod",
            )),
            _ => Ok(()),
        }
    }
}

fn has_disks(class: &Class) -> bool {
    class.volumes.iter().any(|volume| {
        matches!(
            volume,
            Volume::GcePd { .. } | Volume::AwsEbs { .. } | Volume::Iscsi { .. } | Volume::Rbd { .. }
        )
    })
}

/// Whether two pods want a disk that they cannot share.
fn collides(class: &Class, other: &Class) -> bool {
    class.volumes.iter().any(|ours| other.volumes.iter().any(|theirs| is_same_disk(ours, theirs)))
}

fn is_same_disk(ours: &Volume, theirs: &Volume) -> bool {
    match (ours, theirs) {
        (Volume::GcePd { name, read_only }, Volume::GcePd { name: theirs, read_only: also }) => {
            name == theirs && !(*read_only && *also)
        }
        (Volume::AwsEbs { id }, Volume::AwsEbs { id: theirs }) => id == theirs,
        (Volume::Iscsi { iqn, read_only }, Volume::Iscsi { iqn: theirs, read_only: also }) => {
            iqn == theirs && !(*read_only && *also)
        }
        (
            Volume::Rbd { monitors, pool, image, read_only },
            Volume::Rbd { monitors: their_monitors, pool: their_pool, image: their_image, read_only: also },
        ) => {
            let is_shared = monitors.iter().any(|monitor| their_monitors.contains(monitor));
            is_shared && pool == their_pool && image == their_image && !(*read_only && *also)
        }
        _ => false,
    }
}

/// A pod of the namespace that went may have had a disk or claim of the waiting one.
fn after_pod_deleted(input: &HintInput<'_>) -> Hint {
    let Change::Pod { old: Some(gone), .. } = input.change else { return Hint::Queue };
    let (class, gone) = (&input.pod.class, &gone.class);
    let shares_claim = || gone.claims().any(|name| class.claims().any(|own| own == name));
    match class.namespace == gone.namespace && (collides(class, gone) || shares_claim()) {
        true => Hint::Queue,
        false => Hint::Skip,
    }
}

fn after_claim_added(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    let is_own = change.kind == StorageKind::PersistentVolumeClaim
        && change.turn == Turn::Added
        && *change.namespace == *input.pod.class.namespace
        && input.pod.class.claims().any(|name| *name == *change.name);
    if is_own { Hint::Queue } else { Hint::Skip }
}

#[cfg(test)]
mod tests;
