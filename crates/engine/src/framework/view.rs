//! A node as it is, or as it would be with some pods more or fewer.

use std::sync::Arc;

use koord_api::resource::{ResourceId, ResourceVector};

use crate::cluster::reservations::{Counted, Entry, ReservationId};
use crate::cluster::{Cluster, Node, Row};
use crate::pod::Pod;

/// What filters see of a node.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    pub cluster: &'a Cluster,
    pub row: Row,
    delta: Option<&'a Delta>,
}

/// A supposed change of one node.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    added: Vec<Arc<Pod>>,
    removed: Vec<Arc<Pod>>,
    /// What changes in the node's sums.
    sums: Counted,
    /// Reservations there whose pod or whose owners are supposed to be others.
    shares: Vec<Share>,
}

/// What is supposed of one reservation.
#[derive(Clone, Debug)]
struct Share {
    id: ReservationId,
    /// Its own pod is taken out.
    is_lifted: bool,
    /// What owners use more, or less.
    allocated: ResourceVector,
    nonzero: (i64, i64),
    owners: i64,
    /// What that changes in the node's sums.
    effect: Counted,
}

impl Delta {
    /// A pod more. One that was removed before comes back. One that uses a reservation, or is promised one, takes from
    /// it what it holds.
    pub fn add(&mut self, cluster: &Cluster, row: Row, pod: &Arc<Pod>) {
        match self.removed.iter().position(|known| known.uid == pod.uid) {
            Some(at) => drop(self.removed.swap_remove(at)),
            None => self.added.push(pod.clone()),
        }
        self.change(cluster, row, pod, 1);
    }

    /// A pod less. What one used of a reservation goes back to it, and not to the node.
    pub fn remove(&mut self, cluster: &Cluster, row: Row, pod: &Arc<Pod>) {
        match self.added.iter().position(|known| known.uid == pod.uid) {
            Some(at) => drop(self.added.swap_remove(at)),
            None => self.removed.push(pod.clone()),
        }
        self.change(cluster, row, pod, -1);
    }

    fn change(&mut self, cluster: &Cluster, row: Row, pod: &Arc<Pod>, times: i64) {
        let reservations = cluster.reservations();
        if pod.class.reserve.is_some()
            && let Some(entry) = reservations.get(&pod.uid).filter(|entry| entry.row == Some(row))
        {
            return self.share(cluster, entry, |share| share.is_lifted = times < 0);
        }
        self.sums.shift(&Counted::of(&pod.class.requests), times);
        let is_there = cluster.held(&pod.uid).is_some();
        let sharer = match is_there {
            true => reservations.sharer(pod, row),
            false => reservations.promised_to(&pod.uid).filter(|entry| entry.row == Some(row)),
        };
        if let Some(entry) = sharer {
            self.share(cluster, entry, |share| {
                let requests = &pod.class.requests;
                share.nonzero.0 += requests.nonzero_cpu_milli * times;
                share.nonzero.1 += requests.nonzero_memory * times;
                share.owners += times;
                for id in &entry.record.names {
                    let asked = requests.amounts.get(*id).saturating_mul(times);
                    share.allocated.set(*id, share.allocated.get(*id).saturating_add(asked));
                }
            });
        }
    }

    /// Changes what is supposed of a reservation.
    fn share(&mut self, cluster: &Cluster, entry: &Entry, change: impl FnOnce(&mut Share)) {
        let at = self.shares.iter().position(|share| share.id == entry.id).unwrap_or_else(|| {
            self.shares.push(Share {
                id: entry.id,
                is_lifted: false,
                allocated: ResourceVector::new(),
                nonzero: (0, 0),
                owners: 0,
                effect: Counted::default(),
            });
            self.shares.len() - 1
        });
        let share = &mut self.shares[at];
        self.sums.shift(&share.effect, -1);
        change(share);
        let none = Counted::default();
        let counted = cluster.reservations().counted(&entry.record.pod).unwrap_or(&none);
        share.effect = match share.is_lifted {
            true => Counted::default(),
            false => {
                let (cpu, memory) = entry.nonzero();
                let mut allocated = entry.allocated.clone();
                allocated += &share.allocated;
                entry.rest(&allocated, (cpu + share.nonzero.0, memory + share.nonzero.1))
            }
        };
        share.effect.shift(counted, -1);
        self.sums.shift(&share.effect, 1);
    }

    fn pods(&self) -> i64 {
        let count = |list: &Vec<Arc<Pod>>| i64::try_from(list.len()).unwrap_or(i64::MAX);
        count(&self.added) - count(&self.removed)
    }
}

impl<'a> NodeView<'a> {
    pub fn of(cluster: &'a Cluster, row: Row) -> NodeView<'a> {
        NodeView { cluster, row, delta: None }
    }

    pub fn supposing(cluster: &'a Cluster, row: Row, delta: &'a Delta) -> NodeView<'a> {
        NodeView { cluster, row, delta: Some(delta) }
    }

    pub fn node(&self) -> &'a Node {
        self.cluster.node(self.row)
    }

    pub fn allocatable(&self, id: ResourceId) -> i64 {
        self.cluster.columns.amounts(id).map_or(0, |amounts| amounts.allocatable[self.row.index()])
    }

    pub fn requested(&self, id: ResourceId) -> i64 {
        let counted =
            self.cluster.columns.amounts(id).map_or(0, |amounts| amounts.requested[self.row.index()]);
        match (self.delta, id) {
            (None, _) => counted,
            (Some(delta), ResourceId::PODS) => counted + delta.pods(),
            (Some(delta), id) => counted.saturating_add(delta.sums.amounts.get(id)),
        }
    }

    /// What is requested of a resource as scoring counts it.
    pub fn scored(&self, id: ResourceId) -> i64 {
        let supposed = self.delta.map_or(0, |delta| delta.sums.overdrawn.of(id));
        let overdrawn = self.cluster.columns.overdrawn[self.row.index()].of(id).saturating_add(supposed);
        self.requested(id).saturating_sub(overdrawn)
    }

    pub fn nonzero_cpu_milli(&self) -> i64 {
        let counted = self.cluster.columns.nonzero_cpu[self.row.index()];
        counted.saturating_add(self.delta.map_or(0, |delta| delta.sums.nonzero_cpu_milli))
    }

    pub fn nonzero_memory(&self) -> i64 {
        let counted = self.cluster.columns.nonzero_memory[self.row.index()];
        counted.saturating_add(self.delta.map_or(0, |delta| delta.sums.nonzero_memory))
    }

    /// Whether pods that are there are supposed not to be.
    pub fn is_cleared(&self) -> bool {
        self.delta.is_some_and(|delta| delta.removed.iter().any(|pod| pod.class.reserve.is_none()))
    }

    /// What owners use of a reservation on this node.
    pub fn used(&self, entry: &Entry, id: ResourceId) -> i64 {
        let supposed = self.share(entry).map_or(0, |share| share.allocated.get(id));
        entry.allocated.get(id).saturating_add(supposed)
    }

    /// How many owners use a reservation on this node.
    pub fn owners(&self, entry: &Entry) -> i64 {
        let owners = i64::try_from(entry.owners.len()).unwrap_or(i64::MAX);
        owners.saturating_add(self.share(entry).map_or(0, |share| share.owners))
    }

    fn share(&self, entry: &Entry) -> Option<&'a Share> {
        self.delta.and_then(|delta| delta.shares.iter().find(|share| share.id == entry.id))
    }

    /// The pods there, or supposed to be there.
    pub fn pods(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.with_delta(&self.node().pods.all)
    }

    /// Those of them that keep ports of the host; supposed ones are all among them.
    pub fn pods_with_ports(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.with_delta(&self.node().pods.with_ports)
    }

    /// Those of them with volumes that placement depends on; supposed ones are all among them.
    pub fn pods_with_volumes(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.with_delta(&self.node().pods.with_volumes)
    }

    fn with_delta(&self, counted: &'a [Arc<Pod>]) -> impl Iterator<Item = &'a Arc<Pod>> {
        let (added, removed): (&[_], &[_]) = match self.delta {
            None => (&[], &[]),
            Some(delta) => (&delta.added, &delta.removed),
        };
        let left =
            counted.iter().filter(move |pod| !removed.iter().any(|gone: &Arc<Pod>| gone.uid == pod.uid));
        left.chain(added)
    }
}
