//! VolumeZone: a volume of a zone or region is mounted there only. Spec: scheduler-core 6.11.

use std::sync::Arc;

use crate::cluster::storage::migration::{BETA_REGION, BETA_ZONE, REGION, ZONE};
use crate::cluster::storage::{BindingMode, Claim, Gain, Storage, Volume};
use crate::framework::event::{Action, Resource};
use crate::framework::hint::{Hint, Registration};
use crate::framework::{
    Change, Code, Cycle, Facts, Filter, HintFn, HintInput, Hooks, NodeView, PreFilter, Preparation, Reason,
    Scope, Status,
};
use crate::pod::Class;

pub const NAME: &str = "VolumeZone";

pub fn build() -> Hooks {
    let plugin = Arc::new(VolumeZone);
    Hooks::new(NAME).pre_filter(plugin.clone()).filter(plugin).woken_by(vec![
        Registration::with(Resource::StorageClass, Action::ADD, Arc::new(after_class_added) as HintFn),
        Registration::always(Resource::Node, Action::ADD | Action::UPDATE_NODE_LABEL),
        Registration::with(
            Resource::PersistentVolumeClaim,
            Action::ADD | Action::UPDATE,
            Arc::new(after_claim_changed),
        ),
        Registration::with(
            Resource::PersistentVolume,
            Action::ADD | Action::UPDATE,
            Arc::new(after_volume_changed),
        ),
    ])
}

struct VolumeZone;

/// The pod's volumes that say where they are.
#[derive(Clone)]
struct Zonal(Arc<[Arc<Volume>]>);

impl PreFilter for VolumeZone {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        let class = &cycle.pod.class;
        let storage = cycle.cluster.storage();
        let mut zonal = Vec::new();
        for name in class.claims() {
            if name.is_empty() {
                return Err(refuse("PersistentVolumeClaim had no name".to_owned()));
            }
            let claim = storage
                .claim(&class.namespace, name)
                .ok_or_else(|| refuse(format!("persistentvolumeclaim {name:?} not found")))?;
            zonal.extend(volume_of(storage, claim)?.filter(|volume| !volume.zones.is_empty()));
        }
        if zonal.is_empty() {
            return Ok(Preparation::Skip);
        }
        cycle.set(Zonal(zonal.into()));
        Ok(Preparation::Go)
    }

    fn only_serves(&self, class: &Class) -> bool {
        class.claims().next().is_none()
    }
}

fn refuse(text: String) -> Status {
    Status::unresolvable(NAME, text)
}

/// The volume of a claim; none when it will have one once the pod has a node.
fn volume_of(storage: &Storage, claim: &Claim) -> Result<Option<Arc<Volume>>, Status> {
    if !claim.volume.is_empty() {
        let found = storage.volume(&claim.volume).cloned();
        return match found {
            Some(volume) => Ok(Some(volume)),
            None => {
                let facts = Facts::Object { kind: "PersistentVolume", name: claim.volume.clone() };
                let text = format!("persistentvolume {:?} not found", claim.volume);
                Err(Status::new(Code::Unresolvable, NAME, Reason::with(text, facts)))
            }
        };
    }
    if claim.class.is_empty() {
        return Err(refuse("PersistentVolumeClaim had no pv name and storageClass name".to_owned()));
    }
    let Some(class) = storage.class(&claim.class) else {
        return Err(refuse(format!("storageclass.storage.k8s.io {:?} not found", claim.class)));
    };
    match class.binding {
        None => Err(refuse(format!("VolumeBindingMode not set for StorageClass {:?}", claim.class))),
        Some(BindingMode::WaitForFirstConsumer) => Ok(None),
        Some(BindingMode::Immediate) => Err(refuse("PersistentVolume had no name".to_owned())),
    }
}

impl Filter for VolumeZone {
    fn scope(&self, class: &Class) -> Scope {
        if class.claims().next().is_some() { Scope::Cluster } else { Scope::Nothing }
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        let Some(Zonal(volumes)) = cycle.get::<Zonal>() else { return Ok(()) };
        let labels = &node.node().labels;
        // A cluster of one zone has nodes that say nothing about it.
        if ![BETA_ZONE, BETA_REGION, ZONE, REGION].iter().any(|key| labels.contains_key(*key)) {
            return Ok(());
        }
        for volume in volumes.iter() {
            let misses = |key: &str, values: &[Box<str>]| {
                let found = labels.get(key).or_else(|| labels.get(stable(key)));
                found.is_none_or(|found| !values.iter().any(|value| **value == **found))
            };
            if volume.zones.iter().any(|zones| misses(zones.key, &zones.values)) {
                let facts = Facts::Object { kind: "PersistentVolume", name: (*volume.name).into() };
                let reason = Reason::with("node(s) had no available volume zone", facts);
                return Err(Status::new(Code::Unresolvable, NAME, reason));
            }
        }
        Ok(())
    }
}

/// The name that replaced a beta label.
fn stable(key: &str) -> &str {
    match key {
        BETA_ZONE => ZONE,
        BETA_REGION => REGION,
        other => other,
    }
}

fn after_class_added(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    let class = input.cluster.storage().class(&change.name);
    match class.is_some_and(|class| class.binding == Some(BindingMode::WaitForFirstConsumer)) {
        true => Hint::Queue,
        false => Hint::Skip,
    }
}

fn after_claim_changed(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    let class = &input.pod.class;
    match *change.namespace == *class.namespace && class.claims().any(|name| *name == *change.name) {
        true => Hint::Queue,
        false => Hint::Skip,
    }
}

fn after_volume_changed(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    if change.is_new_or(Gain::Topology) { Hint::Queue } else { Hint::Skip }
}

#[cfg(test)]
mod tests;
