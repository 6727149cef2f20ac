//! VolumeBinding: a pod goes where its volumes are, or can be made. Spec: scheduler-core 6.11.
//!
//! `claims` looks at the pod's claims alone, `find` matches them with a node, `settle` waits until what was written
//! has taken effect, `wake` says which events help. Nothing is scored: that would need the gate
//! StorageCapacityScoring, which is off.

use std::sync::Arc;
use std::time::Duration;

use self::claims::PodClaims;
use self::find::Found;
use crate::cluster::storage::{Claim, Volume};
use crate::cluster::{Cluster, Row};
use crate::engine::command::BindPlan;
use crate::framework::{
    Cycle, Filter, Hooks, NodeView, PreBind, PreFilter, Preparation, Reserve, Scope, Slots, Status,
};
use crate::pod::{Class, Pod};
use crate::profile::args::VolumeBindingArgs;
use crate::time::Time;

mod claims;
mod find;
mod settle;
mod wake;

pub const NAME: &str = "VolumeBinding";

pub fn build(args: &VolumeBindingArgs) -> Hooks {
    let timeout = args.bind_timeout.to_std().unwrap_or(Duration::ZERO);
    let plugin = Arc::new(VolumeBinding { timeout });
    Hooks::new(NAME)
        .pre_filter(plugin.clone())
        .filter(plugin.clone())
        .reserve(plugin.clone())
        .pre_bind(plugin)
        .woken_by(wake::registrations())
}

struct VolumeBinding {
    timeout: Duration,
}

/// What was reserved for a pod and has to be written.
#[derive(Clone, Default)]
struct Reserved {
    bindings: Vec<Binding>,
    provisions: Vec<Provision>,
}

/// A volume for a claim.
#[derive(Clone)]
struct Binding {
    /// As they were when the volume was chosen.
    volume: Arc<Volume>,
    claim: Arc<Claim>,
    /// The claim stands in the volume already, so nothing is written.
    is_written: bool,
}

/// A claim whose volume has to be made for a node.
#[derive(Clone)]
struct Provision {
    /// As it was when the node was chosen.
    claim: Arc<Claim>,
    /// The node stands in the claim already, so nothing is written.
    is_written: bool,
}

impl PreFilter for VolumeBinding {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        if !cycle.pod.class.has_claims() {
            return Ok(Preparation::Skip);
        }
        let claims = PodClaims::of(cycle.cluster.storage(), cycle.pod)?;
        cycle.set(Arc::new(claims));
        Ok(Preparation::Go)
    }

    fn only_serves(&self, class: &Class) -> bool {
        !class.has_claims()
    }
}

impl Filter for VolumeBinding {
    fn scope(&self, class: &Class) -> Scope {
        if class.has_claims() { Scope::Cluster } else { Scope::Nothing }
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        match cycle.get::<Arc<PodClaims>>() {
            Some(claims) => find::find(cycle.cluster.storage(), claims, node.node()).map(|_| ()),
            None => Ok(()),
        }
    }
}

impl Reserve for VolumeBinding {
    fn reserve(
        &self,
        cluster: &mut Cluster,
        slots: &mut Slots,
        _pod: &Arc<Pod>,
        row: Row,
    ) -> Result<(), Status> {
        let claims = slots.get::<Arc<PodClaims>>().filter(|claims| !claims.delayed.is_empty());
        let Some(claims) = claims.cloned() else { return Ok(()) };
        let node = cluster.node(row).name.clone();
        let found = find::find(cluster.storage(), &claims, cluster.node(row))?;
        let reserved = Reserved::of(found, &node);
        // Entered first, so that a failure half-way is taken back like any other.
        slots.set(reserved.clone());
        let storage = cluster.storage_mut();
        for binding in reserved.bindings.iter().filter(|binding| !binding.is_written) {
            storage
                .assume_claim(&binding.volume, &binding.claim)
                .map_err(|text| Status::error(NAME, text))?;
        }
        for provision in &reserved.provisions {
            storage.assume_node(&provision.claim, &node).map_err(|text| Status::error(NAME, text))?;
        }
        Ok(())
    }

    fn unreserve(&self, cluster: &mut Cluster, slots: &mut Slots, _pod: &Arc<Pod>, _row: Row) {
        let Some(reserved) = slots.get_mut::<Reserved>().map(std::mem::take) else { return };
        let storage = cluster.storage_mut();
        for binding in reserved.bindings.iter().filter(|binding| !binding.is_written) {
            storage.revert_claim(&binding.volume, &binding.claim);
        }
        for provision in &reserved.provisions {
            storage.revert_node(&provision.claim);
        }
    }
}

impl Reserved {
    fn of(found: Found, node: &str) -> Reserved {
        let bindings = found.bindings.into_iter();
        let provisions = found.provisions.into_iter();
        Reserved {
            bindings: bindings
                .map(|(volume, claim)| Binding { is_written: !volume.lacks(&claim), volume, claim })
                .collect(),
            provisions: provisions.map(|claim| Provision { is_written: !claim.lacks(node), claim }).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

impl PreBind for VolumeBinding {
    fn plan(
        &self,
        cluster: &Cluster,
        slots: &Slots,
        _pod: &Arc<Pod>,
        row: Row,
        now: Time,
        plan: &mut BindPlan,
    ) -> Result<(), Status> {
        let Some(reserved) = slots.get::<Reserved>().filter(|reserved| !reserved.is_empty()) else {
            return Ok(());
        };
        // What already reads as wanted is not written again: the API would not even give it a new version.
        for binding in reserved.bindings.iter().filter(|binding| !binding.is_written) {
            let object = binding.volume.with_claim(&binding.claim);
            plan.volumes.push(object.ok_or_else(|| lost(&binding.volume.name))?);
        }
        let node = &cluster.node(row).name;
        for provision in reserved.provisions.iter().filter(|provision| !provision.is_written) {
            let object = provision.claim.with_node(node);
            plan.claims.push(object.ok_or_else(|| lost(&provision.claim.name))?);
        }
        plan.settles_until = Some(now + self.timeout);
        Ok(())
    }

    fn is_settled(
        &self,
        cluster: &Cluster,
        slots: &Slots,
        _pod: &Arc<Pod>,
        row: Row,
    ) -> Result<bool, Status> {
        match slots.get::<Reserved>() {
            Some(reserved) => settle::is_settled(cluster, reserved, row)
                .map_err(|why| Status::error(NAME, format!("binding volumes: {why}"))),
            None => Ok(true),
        }
    }
}

/// Matching only chooses objects that are still kept whole.
fn lost(name: &str) -> Status {
    Status::error(NAME, format!("the object {name:?} is bound to something else"))
}

#[cfg(test)]
mod tests;
