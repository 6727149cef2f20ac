//! A pod's claims before any node is looked at: those that have their volume, and those that wait for the pod.

use std::sync::Arc;

use super::NAME;
use crate::cluster::storage::{BindingMode, Claim, Storage, Volume};
use crate::framework::{Code, Facts, Reason, Status};
use crate::pod::{Mount, Pod};

pub(super) struct PodClaims {
    /// The volume is none when it does not exist.
    pub(super) bound: Vec<Option<Arc<Volume>>>,
    /// In the order of the pod's volumes, each claim once.
    pub(super) delayed: Vec<Delayed>,
}

/// A claim that gets its volume when the pod gets its node.
pub(super) struct Delayed {
    pub(super) claim: Arc<Claim>,
    /// The node that its volume is made for already.
    pub(super) selected: Option<Box<str>>,
}

impl PodClaims {
    /// Refuses the pod when a claim is missing, in a bad state, or not bound though it should be.
    pub(super) fn of(storage: &Storage, pod: &Pod) -> Result<PodClaims, Status> {
        let mut claims: Vec<&Arc<Claim>> = Vec::new();
        for mount in pod.mounts() {
            let claim = usable(storage, pod, &mount)?;
            // Differs: a claim that is mounted twice is bound once; upstream looks for a volume each time.
            if !claims.iter().any(|known| known.name == claim.name) {
                claims.push(claim);
            }
        }
        let (mut bound, mut delayed, mut has_immediate) = (Vec::new(), Vec::new(), false);
        for claim in claims {
            if claim.is_bound() {
                bound.push(storage.volume(&claim.volume).cloned());
            } else if waits_for_pod(storage, claim)? && claim.volume.is_empty() {
                let selected = storage.selected_node(claim).map(Box::from);
                delayed.push(Delayed { claim: claim.clone(), selected });
            } else {
                has_immediate = true;
            }
        }
        match has_immediate {
            true => Err(Status::unresolvable(NAME, "pod has unbound immediate PersistentVolumeClaims")),
            false => Ok(PodClaims { bound, delayed }),
        }
    }
}

/// The claim of a mount, if the pod may use it.
fn usable<'a>(storage: &'a Storage, pod: &Pod, mount: &Mount<'_>) -> Result<&'a Arc<Claim>, Status> {
    let (namespace, name) = (&*pod.class.namespace, &*mount.claim);
    let refuse = |text: String| {
        let facts = Facts::Object { kind: "PersistentVolumeClaim", name: name.into() };
        Status::new(Code::Unresolvable, NAME, Reason::with(text, facts))
    };
    let Some(claim) = storage.claim(namespace, name) else {
        return Err(refuse(match mount.is_ephemeral {
            true => {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                )
            }
            false => format!("persistentvolumeclaim {name:?} not found"),
        }));
    };
    if claim.is_lost {
        let text = format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}",
            claim.volume
        );
        return Err(refuse(text));
    }
    if claim.is_deleting {
        return Err(refuse(format!("persistentvolumeclaim {name:?} is being deleted")));
    }
    if mount.is_ephemeral && claim.controller != pod.uid {
        let text = format!("PVC {namespace}/{name} was not created for pod {} (pod is not owner)", pod.key);
        return Err(refuse(text));
    }
    Ok(claim)
}

/// Whether the class binds when a pod has its node. A class that is not there binds at once.
fn waits_for_pod(storage: &Storage, claim: &Claim) -> Result<bool, Status> {
    let Some(class) = storage.class(&claim.class).filter(|_| !claim.class.is_empty()) else {
        return Ok(false);
    };
    match class.binding {
        Some(mode) => Ok(mode == BindingMode::WaitForFirstConsumer),
        None => {
            let text = format!("VolumeBindingMode not set for StorageClass {:?}", claim.class);
            Err(Status::error(NAME, text))
        }
    }
}
