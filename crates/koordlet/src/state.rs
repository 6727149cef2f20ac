//! What koordlet knows of its node: the Node, its strategies, its pods, its CPUs.
//!
//! One [`Snapshot`] at a time, never changed once published; whoever reads takes an `Arc` and works with it for as
//! long as it likes. Parts that did not change are the same `Arc` as before, so comparing is comparing pointers.
//! [`News`] tells a reader which parts are new since it last looked: that is what callbacks are here, and a reader that
//! was busy sees the newest state once. Spec: koordlet-observe 3.

mod node_faults;
mod snapshot;

pub mod kubelet;
pub mod pleg;
pub mod pods;

pub mod claims;
pub mod objects;

#[cfg(test)]
pub(crate) mod fake_kubelet;

pub use snapshot::{Hardware, MetricPace, MetricPolicy, NodeState, PodState, Snapshot, Synced};

use std::sync::Arc;

use tokio::sync::watch;

/// Where the newest snapshot is. Cheap to clone.
#[derive(Clone, Debug)]
pub struct State {
    latest: Arc<watch::Sender<Arc<Snapshot>>>,
}

impl Default for State {
    fn default() -> State {
        State::new(Snapshot::default())
    }
}

impl State {
    pub fn new(first: Snapshot) -> State {
        State { latest: Arc::new(watch::Sender::new(Arc::new(first))) }
    }

    /// The newest snapshot. Never waits for more than the time it takes to copy a pointer.
    pub fn load(&self) -> Arc<Snapshot> {
        self.latest.borrow().clone()
    }

    /// Publishes a changed copy. Only the pointers of parts are copied.
    pub fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        self.latest.send_modify(|latest| {
            let mut next = Snapshot::clone(latest);
            change(&mut next);
            *latest = Arc::new(next);
        });
    }

    /// For readers that want to wait for the next snapshot.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.latest.subscribe()
    }

    /// Waits until a snapshot is as wanted.
    pub async fn wait_for(&self, is_wanted: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let mut receiver = self.latest.subscribe();
        match receiver.wait_for(|snapshot| is_wanted(snapshot)).await {
            Ok(snapshot) => snapshot.clone(),
            // The sender lives as long as `self`.
            Err(_) => self.load(),
        }
    }
}

/// How often each part was told anew. Parts are told by name in the original: NodeSLOSpec, AllPods, NodeTopology,
/// NodeMetadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Editions {
    pub slo: u64,
    /// Counts every answer of the kubelet, changed or not.
    pub pods: u64,
    pub layout: u64,
    /// Labels and annotations of the Node.
    pub node_metadata: u64,
}

/// What is new to one reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    pub slo: bool,
    pub pods: bool,
    pub layout: bool,
    pub node_metadata: bool,
}

impl Editions {
    /// What is newer in `latest` than here; from now on it is known.
    pub fn catch_up(&mut self, latest: &Snapshot) -> News {
        let seen = std::mem::replace(self, latest.editions);
        News {
            slo: seen.slo != self.slo,
            pods: seen.pods != self.pods,
            layout: seen.layout != self.layout,
            node_metadata: seen.node_metadata != self.node_metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_each_change_once_and_only_the_newest_state() {
        let state = State::default();
        let mut seen = Editions::default();
        assert_eq!(seen.catch_up(&state.load()), News::default());
        let held = state.load();
        for _ in 0..3 {
            state.update(|snapshot| snapshot.editions.pods += 1);
        }
        state.update(|snapshot| snapshot.editions.slo += 1);
        let news = seen.catch_up(&state.load());
        assert_eq!(news, News { slo: true, pods: true, ..News::default() });
        assert_eq!(seen.catch_up(&state.load()), News::default());
        assert_eq!(held.editions, Editions::default(), "a snapshot in use does not change");
    }

    #[test]
    fn parts_that_did_not_change_are_shared() {
        let state = State::default();
        let before = state.load();
        state.update(|snapshot| snapshot.synced.slo = true);
        assert!(Arc::ptr_eq(&before.pods, &state.load().pods));
    }
}
