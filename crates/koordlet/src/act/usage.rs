//! What strategies ask the store: the newest values, and averages over a window. Spec: koordlet-enforce 4.

use std::sync::Arc;
use std::time::Duration;

use crate::decide::snapshot::{CpuUsage, MemoryUsage, Pod};
use crate::store::{Key, Kind, Points, Store, Window};

/// How a series becomes one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    /// The newest, if it is in the window.
    Last,
    Average,
}

/// The window that the newest value must be in: twice the time between two measurements.
pub(super) fn recent(now_ms: i64, interval: Duration) -> Window {
    Window::before(now_ms, interval.saturating_mul(2))
}

/// CPU of the node, of pods and of host applications.
pub(super) fn cpu(store: &Store, window: Window, sum: Sum) -> CpuUsage {
    let mut usage = CpuUsage::default();
    each(store, Kind::NodeCpuUsage, window, sum, |_, value| usage.node = Some(value));
    each(store, Kind::PodCpuUsage, window, sum, |key, value| {
        usage.pods.extend(first(key).map(|uid| (uid, value)));
    });
    each(store, Kind::HostApplicationCpuUsage, window, sum, |key, value| {
        usage.applications.extend(first(key).map(|name| (name.to_string(), value)));
    });
    usage
}

/// Leaves out pods that have left the list. Pods stand in order of uid.
///
/// Differs: upstream takes their last samples for those of services (row 8 of section 18), so that a best-effort pod that
/// has just ended shrinks the others for two seconds.
pub(super) fn keep_listed(usage: &mut CpuUsage, pods: &[Pod]) {
    usage.pods.retain(|uid, _| pods.binary_search_by(|pod| pod.id.uid.cmp(uid)).is_ok());
}

/// Memory of the node and of pods.
pub(super) fn memory(store: &Store, window: Window, sum: Sum) -> MemoryUsage {
    let mut usage = MemoryUsage::default();
    each(store, Kind::NodeMemoryUsage, window, sum, |_, value| usage.node = Some(value));
    each(store, Kind::PodMemoryUsage, window, sum, |key, value| {
        usage.pods.extend(first(key).map(|uid| (uid, value)));
    });
    usage
}

/// One value of every series of a kind that has one.
pub(super) fn each(store: &Store, kind: Kind, window: Window, sum: Sum, mut take: impl FnMut(&Key, f64)) {
    if sum == Sum::Last {
        return store.newest_of_all(kind, window).for_each(|(key, value)| take(key, value));
    }
    let mut points = Points::default();
    for (key, id) in store.series(kind) {
        store.read(id, window, &mut points);
        if let Ok(value) = points.average() {
            take(key, value);
        }
    }
}

/// The average of one series.
pub(super) fn average(store: &Store, key: &Key, window: Window) -> Option<f64> {
    let mut points = Points::default();
    store.read(store.known(key)?, window, &mut points);
    points.average().ok()
}

fn first(key: &Key) -> Option<Arc<str>> {
    key.values().first().cloned()
}
