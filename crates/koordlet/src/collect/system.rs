//! What neither pods nor host applications use. Spec: koordlet-observe 5.5.

use std::time::{Duration, Instant};

use super::group::{bytes, to_millionths};
use super::node::NumaUsage;
use super::{Pass, Shared, Usage, node};
use crate::store::{Id, Kind};

pub(super) struct Collector {
    outdated_after: Duration,
    cpu: Id,
    memory: Id,
    /// By NUMA node, in the order of the node's collector.
    numa: Vec<(Id, Id)>,
    numa_scratch: Vec<NumaUsage>,
}

impl Collector {
    pub(super) fn new(outdated_after: Duration) -> Collector {
        Collector {
            outdated_after,
            cpu: Id::default(),
            memory: Id::default(),
            numa: Vec::new(),
            numa_scratch: Vec::new(),
        }
    }

    pub(super) fn run(
        &mut self,
        pass: &mut Pass<'_>,
        node: &node::Collector,
        pods: Shared<Usage>,
        apps: Shared<Usage>,
        pods_numa: Option<(Instant, &[(u32, u64)])>,
    ) {
        let now = pass.now.instant;
        let recent = |shared: Shared<Usage>| fresh(now, self.outdated_after, shared);
        let (Some(whole), Some(pods), Some(apps)) = (recent(node.used()), recent(pods), recent(apps)) else {
            return;
        };
        let system = rest(whole, pods, apps);
        let at_ms = pass.now.unix_ms;
        let cpu = pass.store.place(&mut self.cpu, || Kind::SysCpuUsage.of([]));
        pass.batch.add(cpu, at_ms, system.cores);
        let memory = pass.store.place(&mut self.memory, || Kind::SysMemoryUsage.of([]));
        pass.batch.add(memory, at_ms, system.bytes);
        self.run_numa(pass, node, system.cores, pods_numa);
        pass.commit("SystemResourceCollector");
    }

    fn run_numa(
        &mut self,
        pass: &mut Pass<'_>,
        node: &node::Collector,
        system_cores: f64,
        pods: Option<(Instant, &[(u32, u64)])>,
    ) {
        let now = pass.now.instant;
        let pods =
            pods.filter(|(at, _)| now.duration_since(*at) <= self.outdated_after).map(|(_, pods)| pods);
        self.numa_scratch.clear();
        self.numa_scratch.extend(node.numa_used().map(|(_, usage)| usage));
        let numa = numa_rest(&self.numa_scratch, system_cores, pods, |shared| {
            fresh(now, self.outdated_after, shared)
        });
        self.numa.resize(self.numa_scratch.len(), (Id::default(), Id::default()));
        for (((cores, bytes), (name, _)), slots) in numa.zip(node.numa_used()).zip(&mut self.numa) {
            if let Some(cores) = cores {
                let id = pass.store.place(&mut slots.0, || Kind::SysNumaCpuUsage.of([name]));
                pass.batch.add(id, pass.now.unix_ms, cores);
            }
            if let Some(bytes) = bytes {
                let id = pass.store.place(&mut slots.1, || Kind::SysNumaMemoryUsage.of([name]));
                pass.batch.add(id, pass.now.unix_ms, bytes);
            }
        }
    }
}

/// The value, unless it is missing or too old.
fn fresh<T: Copy>(now: Instant, outdated_after: Duration, shared: Shared<T>) -> Option<T> {
    shared.filter(|(at, _)| now.duration_since(*at) <= outdated_after).map(|(_, value)| value)
}

fn rest(node: Usage, pods: Usage, apps: Usage) -> Usage {
    Usage {
        cores: to_millionths((node.cores - pods.cores - apps.cores).max(0.0)),
        bytes: (node.bytes - pods.bytes - apps.bytes).max(0.0),
    }
}

/// CPU and memory by NUMA node: CPU in proportion to what the nodes use, memory without that of pods.
fn numa_rest<'n>(
    nodes: &'n [NumaUsage],
    system_cores: f64,
    pods: Option<&'n [(u32, u64)]>,
    fresh: impl Fn(Shared<f64>) -> Option<f64> + 'n,
) -> impl Iterator<Item = (Option<f64>, Option<f64>)> + 'n {
    // Nodes without CPUs have no point and do not count; one that is too old tells that the sum is not known.
    let total: Option<f64> =
        nodes.iter().filter(|numa| numa.cores.is_some()).map(|numa| fresh(numa.cores)).sum();
    nodes.iter().map(move |numa| {
        let cores = total.zip(fresh(numa.cores)).map(|(total, cores)| {
            if total > 0.0 { to_millionths(system_cores * cores / total) } else { 0.0 }
        });
        let of_pods =
            pods.map(|pods| pods.iter().find(|(id, _)| *id == numa.id).map_or(0, |(_, bytes)| *bytes));
        let memory = of_pods.zip(fresh(numa.bytes)).map(|(pods, used)| (used - bytes(pods)).max(0.0));
        (cores, memory)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left() {
        let usage = |cores, bytes| Usage { cores, bytes };
        // koordlet-observe#13.2.B13
        let apps = usage(1.0, 100.0);
        assert_eq!(rest(usage(10.0, 1000.0), usage(7.5, 700.0), apps), usage(1.5, 200.0));
        assert_eq!(rest(usage(10.0, 1000.0), usage(12.0, 1200.0), apps), usage(0.0, 0.0));
    }

    #[test]
    fn old_values_do_not_count() {
        let start = Instant::now();
        let after =
            |seconds| fresh(start + Duration::from_secs(seconds), Duration::from_secs(10), Some((start, 1)));
        assert_eq!((after(11), after(10)), (None, Some(1)));
        assert_eq!(fresh::<i32>(start, Duration::from_secs(10), None), None);
    }

    #[test]
    fn what_is_left_by_numa_node() {
        let at = Instant::now();
        let numa = |id, cores, bytes| NumaUsage { id, cores: Some((at, cores)), bytes: Some((at, bytes)) };
        let value = |shared: Shared<f64>| shared.map(|(_, value)| value);
        let nodes = [numa(0, 6.0, 600.0), numa(1, 4.0, 400.0)];
        let left = |nodes: &[NumaUsage], pods: Option<&[(u32, u64)]>| {
            numa_rest(nodes, 1.5, pods, value).collect::<Vec<_>>()
        };
        // koordlet-observe#13.2.B33
        assert_eq!(left(&nodes, Some(&[(0, 650)])), [(Some(0.9), Some(0.0)), (Some(0.6), Some(400.0))]);
        assert_eq!(left(&nodes, None), [(Some(0.9), None), (Some(0.6), None)]);
        assert_eq!(left(&[numa(0, 0.0, 600.0)], Some(&[])), [(Some(0.0), Some(600.0))]);
        // Memory alone, as CXL brings it, leaves the others what they use.
        let memory_only = NumaUsage { id: 2, cores: None, bytes: Some((at, 50.0)) };
        assert_eq!(
            left(&[nodes[0], memory_only, nodes[1]], Some(&[])),
            [(Some(0.9), Some(600.0)), (None, Some(50.0)), (Some(0.6), Some(400.0))]
        );
        assert_eq!(left(&[memory_only], Some(&[])), [(None, Some(50.0))]);
        let is_new = |shared: Shared<f64>| value(shared).filter(|cores| *cores != 4.0);
        let left: Vec<_> = numa_rest(&nodes, 1.5, None, is_new).collect();
        assert_eq!(left, [(None, None), (None, None)], "a node that was measured once and is not any more");
    }
}
