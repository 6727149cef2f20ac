//! NodeVolumeLimits: a node takes so many volumes of a driver. Spec: scheduler-core 6.11.

use std::collections::HashSet;
use std::sync::Arc;

use crate::cluster::storage::migration::{self, InTree};
use crate::cluster::storage::{Claim, CsiNode, Gain, Storage, Turn};
use crate::framework::event::{Action, Resource};
use crate::framework::hint::{Hint, Registration};
use crate::framework::{
    Change, Code, Cycle, Facts, Filter, HintFn, HintInput, Hooks, NodeView, PreFilter, Preparation, Reason,
    Scope, Status,
};
use crate::pod::{Class, Mount, Pod, Volume};

pub const NAME: &str = "NodeVolumeLimits";

pub fn build() -> Hooks {
    let plugin = Arc::new(NodeVolumeLimits);
    Hooks::new(NAME).pre_filter(plugin.clone()).filter(plugin).woken_by(vec![
        Registration::always(Resource::CsiNode, Action::ADD),
        Registration::with(Resource::CsiNode, Action::UPDATE, Arc::new(after_limits_changed) as HintFn),
        Registration::with(Resource::Pod, Action::DELETE, Arc::new(after_pod_deleted)),
        Registration::with(Resource::PersistentVolumeClaim, Action::ADD, Arc::new(after_claim_added)),
        Registration::with(Resource::VolumeAttachment, Action::DELETE, Arc::new(after_detached)),
    ])
}

struct NodeVolumeLimits;

/// A volume that a driver attaches to a node.
#[derive(Clone, Debug)]
struct Attachable {
    driver: Box<str>,
    id: VolumeId,
    /// Where it was in-tree: it counts only where the plugin has moved to its driver.
    plugin: Option<InTree>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum VolumeId {
    Handle {
        driver: Box<str>,
        handle: Box<str>,
    },
    /// There is no volume yet; the claim stands for it.
    Unbound {
        namespace: Arc<str>,
        claim: Arc<str>,
    },
}

/// What the pod would attach, or the claim that is missing.
#[derive(Clone)]
struct Wanted(Arc<Result<Vec<Attachable>, Status>>);

impl Attachable {
    fn new(driver: &str, handle: &str, plugin: Option<InTree>) -> Option<Attachable> {
        let id = VolumeId::Handle { driver: driver.into(), handle: handle.into() };
        let is_named = !driver.is_empty() && !handle.is_empty();
        is_named.then(|| Attachable { driver: driver.into(), id, plugin })
    }

    /// What a claim stands for; none when no driver attaches it.
    fn of_claim(storage: &Storage, claim: &Claim) -> Option<Attachable> {
        let volume = if claim.volume.is_empty() { None } else { storage.volume(&claim.volume) };
        let Some(volume) = volume else { return Attachable::of_class(storage, claim) };
        if let Some((driver, handle)) = &volume.csi {
            return Attachable::new(driver, handle, None);
        }
        let migration = volume.migration.as_ref()?;
        let translated = migration.translated.as_ref().ok()?;
        Attachable::new(migration.plugin.driver(), &translated.handle, Some(migration.plugin))
    }

    /// A volume that is still to be made, or not seen yet.
    fn of_class(storage: &Storage, claim: &Claim) -> Option<Attachable> {
        let provisioner = &storage.class(&claim.class).filter(|_| !claim.class.is_empty())?.provisioner;
        let plugin = InTree::of_provisioner(provisioner);
        let driver = plugin.map_or(&**provisioner, |plugin| plugin.driver());
        let id = VolumeId::Unbound { namespace: claim.namespace.clone(), claim: claim.name.clone() };
        (!driver.is_empty()).then(|| Attachable { driver: driver.into(), id, plugin })
    }

    /// What a volume in the pod's own text stands for.
    fn of_inline(volume: &Volume) -> Option<Attachable> {
        let of = |plugin: InTree, handle: &str| Attachable::new(plugin.driver(), handle, Some(plugin));
        match volume {
            Volume::AwsEbs { id } => of(InTree::AwsEbs, &migration::ebs_handle(id).ok()?),
            Volume::GcePd { name, .. } => of(InTree::GcePd, &migration::gce_inline_handle(name)),
            Volume::AzureDisk { uri } => of(InTree::AzureDisk, uri),
            Volume::Cinder { id } => of(InTree::Cinder, id),
            Volume::Portworx { id } => of(InTree::Portworx, id),
            _ => None,
        }
    }

    /// Whether the node attaches it by its driver.
    fn counts_on(&self, node: &CsiNode) -> bool {
        match self.plugin {
            Some(InTree::Portworx) => node.has_migrated(InTree::Portworx),
            _ => true,
        }
    }
}

/// The claim of a mount, if the pod may use it.
fn claim_of<'a>(storage: &'a Storage, pod: &Pod, mount: &Mount<'_>) -> Result<&'a Arc<Claim>, Status> {
    let (namespace, name) = (&*pod.class.namespace, &*mount.claim);
    if name.is_empty() {
        return Err(Status::error(NAME, "PersistentVolumeClaim had no name"));
    }
    let Some(claim) = storage.claim(namespace, name) else {
        let text = format!("looking up PVC {namespace}/{name}: persistentvolumeclaim {name:?} not found");
        return Err(Status::unresolvable(NAME, text));
    };
    if mount.is_ephemeral && claim.controller != pod.uid {
        let text = format!("PVC {namespace}/{name} was not created for pod {} (pod is not owner)", pod.key);
        return Err(Status::error(NAME, text));
    }
    Ok(claim)
}

fn wanted(storage: &Storage, pod: &Pod) -> Result<Vec<Attachable>, Status> {
    let mut wanted: Vec<Attachable> = pod.class.volumes.iter().filter_map(Attachable::of_inline).collect();
    for mount in pod.mounts() {
        wanted.extend(Attachable::of_claim(storage, claim_of(storage, pod, &mount)?));
    }
    let mut seen = HashSet::new();
    wanted.retain(|volume| seen.insert(volume.id.clone()));
    Ok(wanted)
}

impl PreFilter for NodeVolumeLimits {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        if !has_attachable(&cycle.pod.class) {
            return Ok(Preparation::Skip);
        }
        let wanted = wanted(cycle.cluster.storage(), cycle.pod);
        let is_idle = wanted.as_ref().is_ok_and(Vec::is_empty);
        cycle.set(Wanted(Arc::new(wanted)));
        Ok(if is_idle { Preparation::Skip } else { Preparation::Go })
    }

    fn only_serves(&self, class: &Class) -> bool {
        !has_attachable(class)
    }
}

fn has_attachable(class: &Class) -> bool {
    class.volumes.iter().any(|volume| {
        matches!(volume, Volume::Claim { .. } | Volume::Ephemeral { .. })
            || Attachable::of_inline(volume).is_some()
    })
}

impl Filter for NodeVolumeLimits {
    fn scope(&self, class: &Class) -> Scope {
        if has_attachable(class) { Scope::Cluster } else { Scope::Nothing }
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        let Some(Wanted(wanted)) = cycle.get::<Wanted>() else { return Ok(()) };
        let wanted = wanted.as_ref().as_ref().map_err(Status::clone)?;
        let storage = cycle.cluster.storage();
        let Some(csi) = storage.csi_node(&node.node().name) else { return Ok(()) };
        let new = wanted.iter().filter(|volume| volume.counts_on(csi));
        let Some(lowest) = new.clone().filter_map(|volume| csi.limit(&volume.driver)).min() else {
            return Ok(());
        };
        // Nothing can be over a limit that all volumes together do not reach, so mostly nobody has to look closer.
        let mounted: usize = node.pods_with_volumes().map(|pod| pod.class.volumes.len()).sum();
        let at_most = mounted + storage.attachments(&node.node().name).len() + wanted.len();
        if i64::try_from(at_most).is_ok_and(|at_most| at_most <= i64::from(lowest)) {
            return Ok(());
        }
        check_closely(storage, csi, node, new.collect())
    }
}

/// Counts the volumes there, each once.
fn check_closely(
    storage: &Storage,
    csi: &CsiNode,
    node: &NodeView<'_>,
    mut new: Vec<&Attachable>,
) -> Result<(), Status> {
    let mut there: HashSet<VolumeId> = HashSet::new();
    let mut drivers: Vec<Box<str>> = Vec::new();
    for pod in node.pods_with_volumes() {
        let inline = pod.class.volumes.iter().filter_map(Attachable::of_inline);
        // Differs: a pod there whose claim is not its own is passed over; upstream fails every pod that looks.
        let claims = pod.mounts().filter_map(|mount| claim_of(storage, pod, &mount).ok().cloned());
        let claimed = claims.filter_map(|claim| Attachable::of_claim(storage, &claim));
        for volume in inline.chain(claimed).filter(|volume| volume.counts_on(csi)) {
            if there.insert(volume.id) {
                drivers.push(volume.driver);
            }
        }
    }
    new.retain(|volume| !there.contains(&volume.id));
    for attachment in storage.attachments(&node.node().name) {
        let volume = storage.volume(&attachment.volume).and_then(|volume| volume.csi.as_ref());
        let Some((_, handle)) = volume.filter(|_| !attachment.driver.is_empty()) else { continue };
        if there.insert(VolumeId::Handle { driver: attachment.driver.clone(), handle: handle.clone() }) {
            drivers.push(attachment.driver.clone());
        }
    }
    let count = |list: usize| i64::try_from(list).unwrap_or(i64::MAX);
    for volume in &new {
        let Some(limit) = csi.limit(&volume.driver) else { continue };
        let used = count(drivers.iter().filter(|driver| **driver == volume.driver).count());
        let wanted = count(new.iter().filter(|other| other.driver == volume.driver).count());
        if used + wanted > i64::from(limit) {
            let facts = Facts::Shortage {
                resource: volume.driver.clone(),
                wanted,
                used,
                allocatable: i64::from(limit),
            };
            let reason = Reason::with("node(s) exceed max volume count", facts);
            return Err(Status::new(Code::Unschedulable, NAME, reason));
        }
    }
    Ok(())
}

fn after_limits_changed(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    if change.is_new_or(Gain::Limit) { Hint::Queue } else { Hint::Skip }
}

/// A pod that had a node, or the promise of one, gives its volumes back.
fn after_pod_deleted(input: &HintInput<'_>) -> Hint {
    let Change::Pod { old: Some(gone), .. } = input.change else { return Hint::Queue };
    let had_node =
        input.event.resource == Resource::AssignedPod || !gone.node.is_empty() || !gone.nominated.is_empty();
    if had_node && has_attachable(&gone.class) { Hint::Queue } else { Hint::Skip }
}

fn after_claim_added(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    let is_own = *change.namespace == *input.pod.class.namespace
        && input.pod.mounts().any(|mount| *mount.claim == *change.name);
    if is_own { Hint::Queue } else { Hint::Skip }
}

fn after_detached(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    let Turn::Removed { driver } = &change.turn else { return Hint::Skip };
    let concerns = |volume: &Volume| {
        matches!(volume, Volume::Claim { .. })
            || Attachable::of_inline(volume).is_some_and(|volume| volume.driver == *driver)
    };
    if input.pod.class.volumes.iter().any(concerns) { Hint::Queue } else { Hint::Skip }
}

#[cfg(test)]
mod tests;
