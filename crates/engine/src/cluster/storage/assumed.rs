//! What we are about to write to volumes and claims, until the API tells of it.
//!
//! An assumption lies over the record it was made on. Any newer version of the record ends it: either the write has
//! arrived, or somebody else was faster and the write will fail.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::claim::SELECTED_NODE;
use super::{Claim, ClaimRef, Namespaced, Storage, Volume};

/// On a volume: its claim was chosen by a program, not by a person.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

#[derive(Debug, Default)]
pub(super) struct Assumed {
    claims: HashMap<Arc<str>, ClaimRef>,
    nodes: Namespaced<Box<str>>,
}

impl Assumed {
    pub(super) fn forget_volume(&mut self, name: &str) -> Option<ClaimRef> {
        self.claims.remove(name)
    }

    pub(super) fn forget_claim(&mut self, namespace: &str, name: &str) {
        self.nodes.remove(namespace, name);
    }
}

impl Storage {
    /// The claim that a volume has, or is about to get.
    pub fn claim_of<'a>(&'a self, volume: &'a Volume) -> Option<&'a ClaimRef> {
        self.assumed.claims.get(&volume.name).or(volume.claim.as_ref())
    }

    /// The node that a claim's volume is made for, or is about to be.
    pub fn selected_node<'a>(&'a self, claim: &'a Claim) -> Option<&'a str> {
        let assumed = self.assumed.nodes.get(&claim.namespace, &claim.name);
        assumed.or(claim.selected_node.as_ref()).map(|node| &**node)
    }

    /// Gives a volume to a claim. The volume must be as it was seen.
    pub fn assume_claim(&mut self, seen: &Arc<Volume>, claim: &Claim) -> Result<(), String> {
        let Some(volume) = self.volumes.get(&seen.name).cloned() else {
            return Err(format!("persistentvolumes {:?} not found", seen.name));
        };
        in_sync(&seen.name, &volume.revision, &seen.revision)?;
        let before = self.assumed.claims.remove(&seen.name);
        self.unshelve(&volume, before.as_ref().or(volume.claim.as_ref()));
        let reference = ClaimRef::to(claim);
        self.shelve(&volume, Some(&reference));
        self.assumed.claims.insert(seen.name.clone(), reference);
        Ok(())
    }

    /// Takes back what `assume_claim` did, unless it has ended by itself or others have assumed since.
    pub fn revert_claim(&mut self, seen: &Volume, claim: &Claim) {
        let Some(volume) = self.volumes.get(&seen.name).filter(|now| now.revision == seen.revision).cloned()
        else {
            return;
        };
        if self.assumed.claims.get(&seen.name).is_none_or(|assumed| *assumed != ClaimRef::to(claim)) {
            return;
        }
        let assumed = self.assumed.claims.remove(&seen.name);
        self.unshelve(&volume, assumed.as_ref());
        self.shelve(&volume, volume.claim.as_ref());
    }

    /// Selects a node for a claim. The claim must be as it was seen.
    pub fn assume_node(&mut self, seen: &Claim, node: &str) -> Result<(), String> {
        let key = format!("{}/{}", seen.namespace, seen.name);
        let Some(claim) = self.claims.get(&seen.namespace, &seen.name) else {
            return Err(format!("persistentvolumeclaims {key:?} not found"));
        };
        in_sync(&key, &claim.revision, &seen.revision)?;
        self.assumed.nodes.insert(seen.namespace.clone(), seen.name.clone(), node.into());
        Ok(())
    }

    /// Takes back what `assume_node` did, unless it has ended by itself.
    pub fn revert_node(&mut self, seen: &Claim) {
        let claim = self.claims.get(&seen.namespace, &seen.name);
        if claim.is_some_and(|now| now.revision == seen.revision) {
            self.assumed.nodes.remove(&seen.namespace, &seen.name);
        }
    }
}

fn in_sync(key: &str, stored: &str, seen: &str) -> Result<(), String> {
    match stored == seen {
        true => Ok(()),
        false => Err(format!("{key:?} is out of sync (stored: {stored}, assume: {seen})")),
    }
}

impl Volume {
    /// Whether the claim has to be written into it.
    pub fn lacks(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_none_or(|known| *known != ClaimRef::to(claim))
    }

    /// The object with the claim in it; none when it is some other claim's for good.
    pub fn with_claim(&self, claim: &Claim) -> Option<core::PersistentVolume> {
        let mut object = core::PersistentVolume::clone(self.object.as_ref()?);
        object.spec.get_or_insert_default().claim_ref = Some(core::ObjectReference {
            kind: Some("PersistentVolumeClaim".to_owned()),
            api_version: Some("v1".to_owned()),
            namespace: Some(claim.namespace.to_string()),
            name: Some(claim.name.to_string()),
            uid: Some(claim.uid.to_string()),
            resource_version: (!claim.revision.is_empty()).then(|| claim.revision.to_string()),
            ..core::ObjectReference::default()
        });
        // A person who named the claim has bound it; then it is not ours to mark.
        if !self.claim.as_ref().is_some_and(|known| known.means(claim)) {
            let annotations = object.metadata.annotations.get_or_insert_default();
            annotations.entry(BOUND_BY_CONTROLLER.to_owned()).or_insert_with(|| "yes".to_owned());
        }
        Some(object)
    }
}

impl Claim {
    /// Whether the node has to be written into it.
    pub fn lacks(&self, node: &str) -> bool {
        self.selected_node.as_deref() != Some(node)
    }

    /// The object with the node in it; none when it has its volume.
    pub fn with_node(&self, node: &str) -> Option<core::PersistentVolumeClaim> {
        let mut object = core::PersistentVolumeClaim::clone(self.object.as_ref()?);
        object.metadata.annotations.get_or_insert_default().insert(SELECTED_NODE.to_owned(), node.to_owned());
        Some(object)
    }
}
