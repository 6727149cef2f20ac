//! Nodes as one pod sees them: without those who only hold room for it.
//!
//! A pod that may use a reservation looks through the reservation's pod. `Restore` says where and through whom; a cycle
//! that has to ask about many nodes keeps what was found.

use std::sync::Arc;

use super::{Cycle, Delta, Restore};
use crate::cluster::Row;
use crate::hash::QuickMap;
use crate::pod::Pod;

/// The nodes that a pod sees otherwise than they are counted.
#[derive(Clone, Default)]
pub struct Restored {
    rows: QuickMap<Row, Delta>,
    lifted: Vec<(Row, Arc<Pod>)>,
}

impl Restored {
    /// Asks about all rows at once.
    pub fn of(restores: &[Arc<dyn Restore>], cycle: &Cycle<'_>) -> Restored {
        let mut restored = Restored::default();
        let mut rows: Vec<Row> = restores.iter().flat_map(|plugin| plugin.rows(cycle)).collect();
        rows.sort_unstable();
        rows.dedup();
        for row in rows {
            let lifted = lifted(restores, cycle, row);
            if let Some(delta) = without(cycle, row, &lifted) {
                restored.rows.insert(row, delta);
                restored.lifted.extend(lifted.into_iter().map(|pod| (row, pod)));
            }
        }
        restored
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn on(&self, row: Row) -> Option<&Delta> {
        self.rows.get(&row)
    }

    /// Everyone who is looked through, in order of rows.
    pub fn lifted(&self) -> &[(Row, Arc<Pod>)] {
        &self.lifted
    }
}

fn lifted(restores: &[Arc<dyn Restore>], cycle: &Cycle<'_>, row: Row) -> Vec<Arc<Pod>> {
    restores.iter().flat_map(|plugin| plugin.lifted(cycle, row)).collect()
}

fn without(cycle: &Cycle<'_>, row: Row, lifted: &[Arc<Pod>]) -> Option<Delta> {
    let mut delta = Delta::default();
    lifted.iter().for_each(|pod| delta.remove(cycle.cluster, row, pod));
    (!lifted.is_empty()).then_some(delta)
}

/// What one node looks like to the pod; none when it is as it is counted.
pub fn seen(restores: &[Arc<dyn Restore>], cycle: &Cycle<'_>, row: Row) -> Option<Delta> {
    match cycle.get::<Restored>() {
        Some(restored) => restored.on(row).cloned(),
        None if restores.is_empty() => None,
        None => without(cycle, row, &lifted(restores, cycle, row)),
    }
}

/// Whether a node looks different to the pod than it is counted.
pub fn is_seen_otherwise(restores: &[Arc<dyn Restore>], cycle: &Cycle<'_>, row: Row) -> bool {
    match cycle.get::<Restored>() {
        Some(restored) => restored.on(row).is_some(),
        None => restores.iter().any(|plugin| !plugin.lifted(cycle, row).is_empty()),
    }
}

impl Cycle<'_> {
    /// Pods that this one looks through, where the cycle keeps them.
    pub fn lifted(&self) -> &[(Row, Arc<Pod>)] {
        self.get::<Restored>().map_or(&[], Restored::lifted)
    }
}
