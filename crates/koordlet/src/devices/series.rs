//! Puts what was measured on GPUs into the series store. Spec: koordlet-observe 4.1, 6.1.

use std::collections::HashMap;
use std::sync::Arc;

use koord_linux::cgroup::Cgroups;

use super::gpu::{Reading, Usage};
use super::samples::{Samples, Subject};
use crate::state::PodState;
use crate::store::{AppendError, Batch, Id, Key, Kind, Store};

/// The GPU collector of the node's thread: readings in, series out.
pub struct GpuCollector {
    samples: Samples,
    known: HashMap<Name, Series>,
    batch: Batch,
    round: u64,
    /// What was taken in last.
    last: Option<Arc<Reading>>,
}

/// Whose series: None is the node's.
type Name = (Option<Arc<str>>, u32);

/// The series of somebody's part of one card.
struct Series {
    core: Id,
    memory: Id,
    /// The last round that had a sample of it.
    round: u64,
}

impl GpuCollector {
    pub fn new(cgroups: Arc<Cgroups>) -> GpuCollector {
        GpuCollector {
            samples: Samples::new(cgroups),
            known: HashMap::new(),
            batch: Batch::default(),
            round: 0,
            last: None,
        }
    }

    /// One round. A reading is taken in once: while a driver hangs there are no samples, instead of old ones again.
    pub fn collect(
        &mut self,
        reading: &Arc<Reading>,
        pods: &[Arc<PodState>],
        store: &mut Store,
        now_ms: i64,
    ) -> Result<(), AppendError> {
        if self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, reading)) {
            return Ok(());
        }
        self.last = Some(reading.clone());
        self.round += 1;
        let GpuCollector { samples, known, batch, round, .. } = self;
        samples.round(reading, pods, &mut |subject, usage| {
            let series = known.entry(name(subject, usage)).or_insert_with(|| Series {
                core: Id::default(),
                memory: Id::default(),
                round: 0,
            });
            series.round = *round;
            let [core, memory] = kinds(subject);
            let core = store.place(&mut series.core, || key(core, subject, usage));
            batch.add(core, now_ms, usage.core);
            let memory = store.place(&mut series.memory, || key(memory, subject, usage));
            batch.add(memory, now_ms, usage.memory_bytes);
        });
        self.known.retain(|_, series| series.round == self.round);
        store.commit(now_ms, &mut self.batch)
    }
}

fn name(subject: Subject<'_>, usage: &Usage<'_>) -> Name {
    let owner = match subject {
        Subject::Node => None,
        Subject::Pod(id) | Subject::Container(id) => Some(id.clone()),
    };
    (owner, usage.gpu.minor)
}

fn kinds(subject: Subject<'_>) -> [Kind; 2] {
    match subject {
        Subject::Node => [Kind::NodeGpuCoreUsage, Kind::NodeGpuMemoryUsage],
        Subject::Pod(_) => [Kind::PodGpuCoreUsage, Kind::PodGpuMemoryUsage],
        Subject::Container(_) => [Kind::ContainerGpuCoreUsage, Kind::ContainerGpuMemoryUsage],
    }
}

fn key(kind: Kind, subject: Subject<'_>, usage: &Usage<'_>) -> Key {
    let minor: Arc<str> = usage.gpu.minor.to_string().into();
    match subject {
        Subject::Node => kind.of([&minor, &usage.gpu.uuid]),
        Subject::Pod(id) | Subject::Container(id) => kind.of([id, &minor, &usage.gpu.uuid]),
    }
}

#[cfg(test)]
mod tests {
    use koord_linux::cgroup::{Driver, Version};
    use koord_linux::nvml::GpuUse;
    use koord_linux::root::Root;

    use super::*;
    use crate::devices::gpu::GpuReading;
    use crate::store::{Aggregate, Limits, Window};

    #[test]
    fn readings_become_series() {
        let root = Root::host("/nowhere");
        let cgroups = Arc::new(Cgroups::new(&root, Version::V2, Driver::Cgroupfs));
        let mut collector = GpuCollector::new(cgroups);
        let mut store = Store::new(&Limits::default());
        let reading = |busy: u32| {
            let usage = GpuUse { busy_percent: Some(busy), memory_bytes: Some(4000), ..GpuUse::default() };
            Arc::new(Reading { gpus: vec![GpuReading { minor: 3, uuid: "GPU-3".into(), usage }] })
        };
        let last = reading(40);
        collector.collect(&reading(30), &[], &mut store, 1000).unwrap();
        collector.collect(&last, &[], &mut store, 2000).unwrap();
        collector.collect(&last, &[], &mut store, 3000).unwrap();
        let average = |kind: Kind| {
            let key = kind.of([&"3".into(), &"GPU-3".into()]);
            let points = store.query(&key.into(), Window { start_ms: 0, end_ms: 10_000 });
            points.value(Aggregate::Avg).unwrap()
        };
        assert_eq!(average(Kind::NodeGpuCoreUsage), 35.0, "koordlet-observe#13.4.D6");
        assert_eq!(average(Kind::NodeGpuMemoryUsage), 4000.0, "koordlet-observe#13.4.D6");
        let key = Kind::NodeGpuCoreUsage.of([&"3".into(), &"GPU-3".into()]);
        let points = store.query(&key.into(), Window { start_ms: 0, end_ms: 10_000 });
        assert_eq!(points.value(Aggregate::Count).unwrap(), 2.0, "a driver that hangs has no samples");
        collector.collect(&Arc::default(), &[], &mut store, 4000).unwrap();
        assert!(collector.known.is_empty(), "nothing is kept of cards that left");
    }
}
