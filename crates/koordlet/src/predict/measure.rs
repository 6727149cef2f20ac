//! What one training learns from, read from the series store. Spec: koordlet-observe 9.3.

use std::sync::Arc;

use super::{Sample, Training};
use crate::state::Snapshot;
use crate::store::{Aggregate, Key, Kind, Store, Window};

/// What pods and node used over the last `interval_ms`.
///
/// Differs: upstream goes on asking for pods that have ended.
pub fn training(store: &Store, snapshot: &Snapshot, interval_ms: i64, now_ms: i64) -> Training {
    let window = Window { start_ms: now_ms.saturating_sub(interval_ms), end_ms: now_ms };
    let p90 = |key: Key| store.query(&key.into(), window).value(Aggregate::P90).ok();
    let of_pod = |uid: &Arc<str>| {
        Some(Sample {
            cores: p90(Kind::PodCpuUsage.of([uid]))?,
            memory: p90(Kind::PodMemoryUsage.of([uid]))?,
        })
    };
    let of_node = || {
        Some(Sample { cores: p90(Kind::NodeCpuUsage.of([]))?, memory: p90(Kind::NodeMemoryUsage.of([]))? })
    };
    let pods = snapshot.pods.iter().filter(|pod| !pod.is_finished).filter_map(|state| {
        let sample = of_pod(state.uid())?;
        Some((state.uid().clone(), state.pod.priority_class, sample))
    });
    Training { pods: pods.collect(), node: of_node() }
}

#[cfg(test)]
mod tests {
    use koord_api::priority::PriorityClass;
    use koord_linux::cgroup::Driver;

    use super::*;
    use crate::decide::sketch::pod;
    use crate::state::PodState;
    use crate::store::{Batch, Limits};

    const NOW: i64 = 1_767_243_600_000;

    #[test]
    fn the_last_minute_counts() {
        let mut store = Store::new(&Limits::default());
        let add = |store: &mut Store, key: Key, values: &[(i64, f64)]| {
            let id = store.find(key);
            for (back, value) in values {
                let mut batch = Batch::default();
                batch.add(id, NOW - back, *value);
                store.commit(NOW - back, &mut batch).unwrap();
            }
        };
        let uid: Arc<str> = "web".into();
        add(
            &mut store,
            Kind::PodCpuUsage.of([&uid]),
            &[(90_000, 9.0), (60_000, 1.0), (30_000, 2.0), (0, 3.0)],
        );
        add(&mut store, Kind::PodMemoryUsage.of([&uid]), &[(10_000, 5.0)]);
        add(&mut store, Kind::PodCpuUsage.of([&"over".into()]), &[(0, 1.0)]);
        add(&mut store, Kind::PodMemoryUsage.of([&"over".into()]), &[(0, 1.0)]);
        add(&mut store, Kind::PodCpuUsage.of([&"half".into()]), &[(0, 1.0)]);
        let pods = [pod("web").kube_qos("Burstable"), pod("over").phase("Succeeded"), pod("half")];
        let pods = pods.iter().map(|pod| Arc::new(PodState::read(pod.object(), Driver::Systemd)));
        let snapshot = Snapshot { pods: pods.collect(), ..Snapshot::default() };
        let learnt = training(&store, &snapshot, 60_000, NOW);
        // Of three values the second largest is the 90th percentile, by upstream's way of counting.
        let sample = Sample { cores: 2.0, memory: 5.0 };
        assert_eq!(learnt.pods, [(uid, Some(PriorityClass::Prod), sample)]);
        assert_eq!(learnt.node, None);
    }
}
