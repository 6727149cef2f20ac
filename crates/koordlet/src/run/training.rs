//! What models learn from: the high end of what pods and the node used of late. Spec: koordlet-observe 9.3.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::predict::{Sample, Training};
use crate::state::Snapshot;
use crate::store::{Kind, Points, Store, Window};

/// The part of samples that a model learns.
const PART: f32 = 0.9;

/// Pods without samples of both kinds are left out, and so are those that ended.
pub(super) fn gather(store: &Store, snapshot: &Snapshot, interval: Duration, now_ms: i64) -> Training {
    let window = Window::before(now_ms, interval);
    let node = one(store, Kind::NodeCpuUsage, window).zip(one(store, Kind::NodeMemoryUsage, window));
    let cores = by_property(store, Kind::PodCpuUsage, window);
    let memory = by_property(store, Kind::PodMemoryUsage, window);
    let running = snapshot.pods.iter().filter(|state| !state.is_finished);
    let pods = running.filter_map(|state| {
        let uid = state.uid();
        let sample = Sample { cores: *cores.get(uid)?, memory: *memory.get(uid)? };
        Some((uid.clone(), state.pod.priority_class, sample))
    });
    Training { pods: pods.collect(), node: node.map(|(cores, memory)| Sample { cores, memory }) }
}

fn one(store: &Store, kind: Kind, window: Window) -> Option<f64> {
    store.query(&kind.select(&[]).ok()?, window).percentile(PART).ok()
}

/// A value for each series of a kind, by its first property.
fn by_property(store: &Store, kind: Kind, window: Window) -> HashMap<Arc<str>, f64> {
    let mut points = Points::default();
    let mut values = HashMap::new();
    for (key, id) in store.series(kind) {
        store.read(id, window, &mut points);
        if let (Some(name), Ok(value)) = (key.values().first(), points.percentile(PART)) {
            values.insert(name.clone(), value);
        }
    }
    values
}
