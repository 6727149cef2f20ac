//! Whether volumes and claims are bound now, after the writes. Looks at what the API says, not at what we assume.

use super::{Binding, Provision, Reserved};
use crate::cluster::storage::{CsiNode, Volume};
use crate::cluster::{Cluster, Node, Row};

/// True when all are bound, false to be asked again; the error says why it will never be.
pub(super) fn is_settled(cluster: &Cluster, reserved: &Reserved, row: Row) -> Result<bool, String> {
    let node = cluster.node(row);
    if !node.is_real {
        return Err(format!("failed to get node {:?}: node {:?} not found", node.name, node.name));
    }
    for binding in &reserved.bindings {
        if !is_bound(cluster, node, binding)? {
            return Ok(false);
        }
    }
    for provision in &reserved.provisions {
        if !is_provisioned(cluster, node, provision)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_bound(cluster: &Cluster, node: &Node, binding: &Binding) -> Result<bool, String> {
    let storage = cluster.storage();
    let Some(volume) = storage.volume(&binding.volume.name) else {
        let name = &binding.volume.name;
        return Err(format!("failed to check binding: persistentvolumes {name:?} not found"));
    };
    let Some(claim) = storage.claim(&binding.claim.namespace, &binding.claim.name) else {
        let key = format!("{}/{}", binding.claim.namespace, binding.claim.name);
        return Err(format!("failed to check binding: persistentvolumeclaims {key:?} not found"));
    };
    // Our own write has not come round yet.
    if !binding.is_written && volume.revision == binding.volume.revision {
        return Ok(false);
    }
    check_reach(storage.csi_node(&node.name), node, volume)
        .map_err(|why| why.framed("failed to translate pv to csi: "))?;
    if volume.claim.as_ref().is_none_or(|claim| claim.uid.is_empty()) {
        return Err(format!("ClaimRef got reset for pv {:?}", volume.name));
    }
    Ok(claim.is_bound())
}

fn is_provisioned(cluster: &Cluster, node: &Node, provision: &Provision) -> Result<bool, String> {
    let storage = cluster.storage();
    let Some(claim) = storage.claim(&provision.claim.namespace, &provision.claim.name) else {
        let key = format!("{}/{}", provision.claim.namespace, provision.claim.name);
        return Err(format!("failed to check provisioning pvc: persistentvolumeclaims {key:?} not found"));
    };
    if !provision.is_written && claim.revision == provision.claim.revision {
        return Ok(false);
    }
    if !claim.has_annotations {
        return Err(format!("selectedNode annotation reset for PVC {:?}", claim.name));
    }
    // A provisioner that gives up takes the node away, so that another one is chosen.
    if claim.selected_node.as_deref() != Some(&*node.name) {
        return Err(format!("provisioning failed for PVC {:?}", claim.name));
    }
    if !claim.volume.is_empty() {
        // The volume may come a moment after the claim that names it.
        let Some(volume) = storage.volume(&claim.volume) else { return Ok(false) };
        check_reach(storage.csi_node(&node.name), node, volume).map_err(|why| why.framed(""))?;
    }
    Ok(claim.is_bound())
}

enum Unreachable {
    Untranslatable(String),
    OutOfReach(String),
}

impl Unreachable {
    fn framed(self, frame: &str) -> String {
        match self {
            Unreachable::Untranslatable(why) => format!("{frame}{why}"),
            Unreachable::OutOfReach(why) => why,
        }
    }
}

fn check_reach(csi_node: Option<&CsiNode>, node: &Node, volume: &Volume) -> Result<(), Unreachable> {
    let reaches = volume.reaches_on(csi_node, &node.labels).map_err(Unreachable::Untranslatable)?;
    reaches.map_err(|why| {
        let text = format!("pv {:?} node affinity doesn't match node {:?}: {why}", volume.name, node.name);
        Unreachable::OutOfReach(text)
    })
}
