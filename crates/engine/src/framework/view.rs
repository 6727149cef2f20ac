//! A node as it is, or as it would be with some pods more or fewer.

use std::sync::Arc;

use koord_api::resource::{ResourceId, ResourceVector};

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
    requested: ResourceVector,
    nonzero_cpu_milli: i64,
    nonzero_memory: i64,
}

impl Delta {
    /// A pod more. One that was removed before comes back.
    pub fn add(&mut self, pod: &Arc<Pod>) {
        match self.removed.iter().position(|known| known.uid == pod.uid) {
            Some(at) => drop(self.removed.swap_remove(at)),
            None => self.added.push(pod.clone()),
        }
        self.requested += &pod.class.requests.amounts;
        self.nonzero_cpu_milli = self.nonzero_cpu_milli.saturating_add(pod.class.requests.nonzero_cpu_milli);
        self.nonzero_memory = self.nonzero_memory.saturating_add(pod.class.requests.nonzero_memory);
    }

    /// A pod less.
    pub fn remove(&mut self, pod: &Arc<Pod>) {
        match self.added.iter().position(|known| known.uid == pod.uid) {
            Some(at) => drop(self.added.swap_remove(at)),
            None => self.removed.push(pod.clone()),
        }
        self.requested -= &pod.class.requests.amounts;
        self.nonzero_cpu_milli = self.nonzero_cpu_milli.saturating_sub(pod.class.requests.nonzero_cpu_milli);
        self.nonzero_memory = self.nonzero_memory.saturating_sub(pod.class.requests.nonzero_memory);
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
            (Some(delta), id) => counted.saturating_add(delta.requested.get(id)),
        }
    }

    pub fn nonzero_cpu_milli(&self) -> i64 {
        let counted = self.cluster.columns.nonzero_cpu[self.row.index()];
        counted.saturating_add(self.delta.map_or(0, |delta| delta.nonzero_cpu_milli))
    }

    pub fn nonzero_memory(&self) -> i64 {
        let counted = self.cluster.columns.nonzero_memory[self.row.index()];
        counted.saturating_add(self.delta.map_or(0, |delta| delta.nonzero_memory))
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
