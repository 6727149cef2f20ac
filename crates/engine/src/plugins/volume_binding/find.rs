//! Whether a node can have the pod's volumes, and which they would be.

use std::sync::Arc;

use koord_api::quantity::{Family, Quantity};

use super::NAME;
use super::claims::PodClaims;
use crate::cluster::Node;
use crate::cluster::storage::{Claim, Storage, Volume};
use crate::framework::{Code, Facts, Reason, Status};

/// What the claims that wait would get on a node.
#[derive(Default)]
pub(super) struct Found {
    pub(super) bindings: Vec<(Arc<Volume>, Arc<Claim>)>,
    pub(super) provisions: Vec<Arc<Claim>>,
}

/// Everything that keeps the node from having the volumes; named in this order.
#[derive(Default)]
struct Conflicts {
    out_of_reach: Option<Arc<Volume>>,
    nothing_to_bind: Option<Arc<Claim>>,
    too_little_room: Option<Arc<Claim>>,
    missing_volume: bool,
}

/// The volumes that the pod would have on a node, or why it cannot have them.
pub(super) fn find(storage: &Storage, claims: &PodClaims, node: &Node) -> Result<Found, Status> {
    let mut conflicts = Conflicts::default();
    check_bound(storage, claims, node, &mut conflicts)?;
    let found = match_delayed(storage, claims, node, &mut conflicts)?;
    conflicts.verdict().map_or(Ok(found), Err)
}

/// Stops at the first volume that is missing or out of reach.
fn check_bound(
    storage: &Storage,
    claims: &PodClaims,
    node: &Node,
    conflicts: &mut Conflicts,
) -> Result<(), Status> {
    for volume in &claims.bound {
        let Some(volume) = volume else {
            conflicts.missing_volume = true;
            return Ok(());
        };
        let csi_node = volume.migration.as_ref().and_then(|_| storage.csi_node(&node.name));
        let reaches = volume.reaches_on(csi_node, &node.labels).map_err(|text| Status::error(NAME, text))?;
        if reaches.is_err() {
            conflicts.out_of_reach = Some(volume.clone());
            return Ok(());
        }
    }
    Ok(())
}

fn match_delayed(
    storage: &Storage,
    claims: &PodClaims,
    node: &Node,
    conflicts: &mut Conflicts,
) -> Result<Found, Status> {
    let mut found = Found::default();
    let (mut to_provision, mut to_match): (Vec<&Arc<Claim>>, Vec<&Arc<Claim>>) = (Vec::new(), Vec::new());
    for delayed in &claims.delayed {
        match &delayed.selected {
            Some(selected) if *selected != node.name => {
                conflicts.nothing_to_bind = Some(delayed.claim.clone());
                return Ok(found);
            }
            Some(_) => to_provision.push(&delayed.claim),
            None => to_match.push(&delayed.claim),
        }
    }
    // The smallest first, so that it does not take what only it could leave to a larger one.
    to_match.sort_by_key(|claim| claim.request.unwrap_or(0));
    for claim in to_match {
        match volume_for(storage, claim, node, &found.bindings)? {
            Some(volume) => found.bindings.push((volume, claim.clone())),
            None => to_provision.push(claim),
        }
    }
    for claim in to_provision {
        match provision(storage, claim, node)? {
            Provisioning::Possible => found.provisions.push(claim.clone()),
            Provisioning::Impossible => {
                conflicts.nothing_to_bind = Some(claim.clone());
                return Ok(found);
            }
            Provisioning::TooLarge => {
                conflicts.too_little_room = Some(claim.clone());
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// The volume that was meant for the claim, otherwise the smallest free one that will do.
fn volume_for(
    storage: &Storage,
    claim: &Claim,
    node: &Node,
    chosen: &[(Arc<Volume>, Arc<Claim>)],
) -> Result<Option<Arc<Volume>>, Status> {
    let selector = match &claim.selector {
        Some(Err(why)) => {
            let key = format!("{}/{}", claim.namespace, claim.name);
            let text = format!("error creating internal label selector for claim: {key}: {why}");
            return Err(Status::error(NAME, text));
        }
        Some(Ok(selector)) => Some(selector),
        None => None,
    };
    let request = claim.request.unwrap_or(0);
    let is_chosen = |volume: &Volume| chosen.iter().any(|(other, _)| other.name == volume.name);
    let is_alike = |volume: &Volume| {
        !is_chosen(volume)
            && volume.size >= request
            && volume.is_block == claim.is_block
            && volume.attributes_class == claim.attributes_class
            && !volume.is_deleting
    };
    if let Some(volume) = storage.meant_for(&claim.class, claim).find(|volume| is_alike(volume)) {
        // Out of reach: the claim will have no other, so this is no node for it.
        return Ok(volume.reaches(&node.labels).is_ok().then(|| volume.clone()));
    }
    let is_fit = |volume: &Volume| {
        is_alike(volume)
            && volume.modes.has(claim.modes)
            && selector.is_none_or(|selector| selector.matches(&volume.labels))
            && volume.reaches(&node.labels).is_ok()
    };
    Ok(storage.smallest_free(&claim.class, &node.labels, request, is_fit).cloned())
}

enum Provisioning {
    Possible,
    Impossible,
    TooLarge,
}

/// Whether a volume can be made for the claim on the node.
fn provision(storage: &Storage, claim: &Claim, node: &Node) -> Result<Provisioning, Status> {
    let Some(class) = storage.class(&claim.class) else {
        return Err(Status::error(NAME, format!("failed to find storage class {:?}", claim.class)));
    };
    if !class.is_provisioned() || !class.allows(&node.labels) {
        return Ok(Provisioning::Impossible);
    }
    let Some(request) = claim.request.filter(|_| storage.tracks_capacity(&class.provisioner)) else {
        return Ok(Provisioning::Possible);
    };
    let bytes = Quantity::from_nano(request, Family::BinarySi).value();
    let has_room = storage.capacities(&claim.class).any(|capacity| capacity.is_enough(bytes, &node.labels));
    Ok(if has_room { Provisioning::Possible } else { Provisioning::TooLarge })
}

impl Conflicts {
    fn verdict(self) -> Option<Status> {
        let volume = |volume: Arc<Volume>| object("PersistentVolume", &volume.name);
        let claim = |claim: Arc<Claim>| object("PersistentVolumeClaim", &claim.name);
        let reasons: Vec<Reason> = [
            ("node(s) didn't match PersistentVolume's node affinity", self.out_of_reach.map(volume)),
            ("node(s) didn't find available persistent volumes to bind", self.nothing_to_bind.map(claim)),
            ("node(s) did not have enough free storage", self.too_little_room.map(claim)),
            (
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                self.missing_volume.then_some(Facts::None),
            ),
        ]
        .into_iter()
        .filter_map(|(text, facts)| Some(Reason::with(text, facts?)))
        .collect();
        (!reasons.is_empty()).then_some(Status { code: Code::Unresolvable, reasons, plugin: NAME })
    }
}

fn object(kind: &'static str, name: &str) -> Facts {
    Facts::Object { kind, name: name.into() }
}
