//! Pods on nodes: assumed by us, confirmed by the API, forgotten when a bind fails. Spec: scheduler-core 2.4.
//!
//! Each pod is counted on one row at most, by its UID, whatever order events come in. Unlike upstream nothing
//! here ends the process: an event that contradicts what we know is taken as the truth and reported.

use std::sync::Arc;

use super::{Cluster, Row};
use crate::hash::UidMap;
use crate::pod::Pod;
use crate::time::Time;

/// How sure we are of a pod's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// We chose the node; the API does not know or has not told us yet.
    Assumed,
    /// The API says so.
    Confirmed,
}

/// A pod that is counted.
#[derive(Clone, Debug)]
pub struct Held {
    pub pod: Arc<Pod>,
    pub row: Row,
    pub life: Life,
    /// When it was scheduled: as the API says, else when we first heard of it there.
    pub since: Time,
}

/// What was not as expected; the ledger is right all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error("pod {0} is in the cache, so can't be assumed")]
    AlreadyCounted(String),
    #[error("pod {0} wasn't assumed so cannot be forgotten")]
    NotAssumed(String),
    #[error("pod {pod} was assumed on {assumed} but is on {actual}")]
    Elsewhere { pod: String, assumed: String, actual: String },
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    held: UidMap<Held>,
    assumed: usize,
}

impl Ledger {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

impl Cluster {
    pub fn held(&self, uid: &str) -> Option<&Held> {
        self.pods.held.get(uid)
    }

    /// Every pod that is counted, in no order.
    pub fn all_held(&self) -> impl Iterator<Item = &Held> {
        self.pods.held.values()
    }

    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    pub fn assumed_count(&self) -> usize {
        self.pods.assumed
    }

    pub fn is_assumed(&self, uid: &str) -> bool {
        self.held(uid).is_some_and(|held| held.life == Life::Assumed)
    }

    /// Counts a pod on the node we chose for it.
    pub fn assume(&mut self, pod: Arc<Pod>, row: Row) -> Result<(), Conflict> {
        if self.pods.held.contains_key(&pod.uid) {
            return Err(Conflict::AlreadyCounted(pod.key.to_string()));
        }
        self.hold(pod, row, Life::Assumed, None);
        Ok(())
    }

    /// Gives up an assumption. A pod nobody counts is fine: it may have been deleted meanwhile.
    pub fn forget(&mut self, uid: &str) -> Result<(), Conflict> {
        match self.pods.held.get(uid) {
            None => Ok(()),
            Some(held) if held.life == Life::Confirmed => Err(Conflict::NotAssumed(held.pod.key.to_string())),
            Some(_) => {
                self.release(uid);
                Ok(())
            }
        }
    }

    /// The API tells of a pod on a node: new to us, what we assumed, or changed.
    pub fn confirm(&mut self, pod: Arc<Pod>) -> Option<Conflict> {
        let row = self.row_for(&pod.node);
        let conflict = match self.pods.held.get(&pod.uid) {
            Some(held) if held.row != row => Some(Conflict::Elsewhere {
                pod: pod.key.to_string(),
                assumed: self.node(held.row).name.to_string(),
                actual: pod.node.to_string(),
            }),
            Some(held)
                if Arc::ptr_eq(&held.pod.class, &pod.class)
                    && held.pod.is_deleting == pod.is_deleting
                    && held.pod.uses == pod.uses
                    && held.pod.operates.is_none()
                    && pod.operates.is_none() =>
            {
                // What is counted is the same; only the record is new, and that we are sure now.
                self.replace_record(pod, row);
                return None;
            }
            _ => None,
        };
        let known = self.pods.held.get(&pod.uid).filter(|held| held.row == row).map(|held| held.since);
        self.release(&pod.uid.clone());
        // Releasing may have dropped the last pod of a ghost, and its row with it.
        let row = self.row_for(&pod.node);
        self.hold(pod, row, Life::Confirmed, known);
        conflict
    }

    /// A pod is gone. False when nobody counted it.
    pub fn release(&mut self, uid: &str) -> bool {
        let Some(held) = self.pods.held.remove(uid) else { return false };
        self.pods.assumed -= usize::from(held.life == Life::Assumed);
        self.leave_reservations(&held.pod);
        self.vacate(held.row, &held.pod);
        true
    }

    fn hold(&mut self, pod: Arc<Pod>, row: Row, life: Life, known: Option<Time>) {
        let since = self.since(&pod, known);
        self.occupy(row, &pod, since);
        self.pods.assumed += usize::from(life == Life::Assumed);
        self.pods.held.insert(pod.uid.clone(), Held { pod: pod.clone(), row, life, since });
        self.enter_reservations(row, &pod, life);
    }

    // Differs: for a pod that never says when it was scheduled, upstream begins anew with every change of a condition,
    // so that it stays in flight.
    fn since(&self, pod: &Pod, known: Option<Time>) -> Time {
        let told = pod.scheduled.map(|at| Time::from_seconds(at.get()));
        told.or(known).unwrap_or_else(|| self.loads.now())
    }

    /// The row is marked as changed only where the time counts: attempts look at the classes of pods on nodes.
    fn replace_record(&mut self, pod: Arc<Pod>, row: Row) {
        self.nodes[row.index()].pods.replace(&pod);
        let since = self.since(&pod, self.held(&pod.uid).map(|held| held.since));
        let books = self.loads.books_mut();
        // What is reserved uses nothing; its owners do.
        if pod.class.reserve.is_none() && !books.is_empty() {
            for book in books {
                book.remove_pod(row, &pod.uid);
                book.add_pod(row, &pod, since);
            }
            self.touch(row);
        }
        if let Some(held) = self.pods.held.get_mut(&pod.uid) {
            self.pods.assumed -= usize::from(held.life == Life::Assumed);
            *held = Held { pod, row, life: Life::Confirmed, since };
        }
    }
}
