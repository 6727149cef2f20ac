//! Which events may let a pod go on that its volumes kept waiting. Spec: scheduler-core 6.14.

use std::sync::Arc;

use crate::cluster::storage::Gain;
use crate::framework::event::{Action, Resource};
use crate::framework::hint::{Hint, Registration};
use crate::framework::{Change, HintFn, HintInput};
use crate::pod::Volume;

pub(super) fn registrations() -> Vec<Registration<HintFn>> {
    let new_or_changed = Action::ADD | Action::UPDATE;
    vec![
        Registration::with(Resource::StorageClass, new_or_changed, new_or(Gain::Topology)),
        Registration::with(Resource::PersistentVolumeClaim, new_or_changed, Arc::new(after_claim_changed)),
        Registration::always(Resource::PersistentVolume, new_or_changed),
        Registration::always(Resource::Node, Action::ADD | Action::UPDATE_NODE_LABEL),
        Registration::with(Resource::CsiNode, new_or_changed, new_or(Gain::Migration)),
        Registration::with(Resource::CsiDriver, Action::UPDATE, Arc::new(after_driver_changed)),
        Registration::with(Resource::CsiStorageCapacity, new_or_changed, new_or(Gain::Limit)),
    ]
}

/// A new object helps, and one that changed in this way.
fn new_or(gain: Gain) -> HintFn {
    Arc::new(move |input| {
        let Change::Storage(change) = input.change else { return Hint::Queue };
        if change.is_new_or(gain) { Hint::Queue } else { Hint::Skip }
    })
}

/// Nearly any change of a pod's own claim can help.
fn after_claim_changed(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    let is_own = *change.namespace == *input.pod.class.namespace
        && input.pod.mounts().any(|mount| *mount.claim == *change.name);
    if is_own { Hint::Queue } else { Hint::Skip }
}

fn after_driver_changed(input: &HintInput<'_>) -> Hint {
    let Change::Storage(change) = input.change else { return Hint::Queue };
    let uses = |volume: &Volume| matches!(volume, Volume::Csi { driver } if **driver == *change.name);
    match change.is_new_or(Gain::Untracked) && input.pod.class.volumes.iter().any(uses) {
        true => Hint::Queue,
        false => Hint::Skip,
    }
}
