//! The worked examples of node reservation, and laws of the choice.

use proptest::prelude::*;

use super::*;
use crate::quantity::Quantity;

/// CPUs numbered so that the threads of a core are neighbours (`apart` 1), or so that each socket's
/// second threads follow all first threads (`apart` = number of cores).
fn node(sockets: u32, cores_per_socket: u32, threads: u32, apart: bool) -> CpuTopology {
    let cores = sockets * cores_per_socket;
    CpuTopology::new((0..cores * threads).map(|id| {
        let core = if apart { id % cores } else { id / threads };
        let socket = core / cores_per_socket;
        CpuInfo { id, core, socket, node: socket }
    }))
}

/// How many CPUs a node reservation asks for. Spec: api 5.3.
fn wanted(cpu: &str) -> usize {
    let cpu: Quantity = serde_json::from_str(cpu).unwrap();
    usize::try_from(cpu.value()).unwrap_or(0)
}

fn pick(topology: &CpuTopology, available: &str, count: usize) -> Option<String> {
    let available = available.parse().unwrap();
    take_by_topology(topology, &available, count).map(|cpus| cpus.to_string())
}

#[test]
fn node_reservation() {
    let neighbours = node(2, 4, 2, false);
    let apart = node(2, 4, 2, true);
    for (key, cpu, count, first, second) in [
        ("api#10.31", "\"5\"", 5, Some("0-4"), Some("0-2,8-9")),
        ("api#10.32", "\"1500m\"", 2, Some("0-1"), Some("0,8")),
        ("api#10.119", "\"9\"", 9, Some("0-8"), Some("0-4,8-11")),
        ("api#10.119", "\"17\"", 17, None, None),
        ("api#10.119", "\"1u\"", 1, Some("0"), Some("0")),
        ("api#10.119", "\"-1\"", 0, Some(""), Some("")),
        ("api#10.119", "1.5", 2, Some("0-1"), Some("0,8")),
    ] {
        assert_eq!(wanted(cpu), count, "{key} {cpu}");
        assert_eq!(pick(&neighbours, "0-15", count).as_deref(), first, "{key} {cpu}");
        assert_eq!(pick(&apart, "0-15", count).as_deref(), second, "{key} {cpu}");
    }
}

#[test]
fn choices() {
    let two = node(2, 4, 2, false);
    for (name, available, count, want) in [
        ("a whole socket", "0-15", 8, "0-7"),
        ("the socket that is whole", "1-15", 8, "8-15"),
        ("whole cores where fewest CPUs are left", "0-9", 2, "8-9"),
        ("a lone thread before breaking a core", "0-2,4-15", 1, "2"),
        ("cores before lone threads", "0-2,4-7", 3, "0-2"),
        ("all", "0-15", 16, "0-15"),
        ("CPUs the node does not have are not counted", "14-20", 2, "14-15"),
    ] {
        assert_eq!(pick(&two, available, count).as_deref(), Some(want), "{name}");
    }
    assert_eq!(pick(&two, "14-20", 3), None);
    // One socket with two NUMA nodes: a whole node stays together.
    let split = CpuTopology::new((0..8).map(|id| CpuInfo { id, core: id, socket: 0, node: id % 2 }));
    assert_eq!(pick(&split, "0-7", 4).as_deref(), Some("0,2,4,6"));
    assert_eq!(pick(&split, "1-7", 5).as_deref(), Some("1-3,5,7"));
}

#[test]
fn queries() {
    let topology = node(2, 2, 2, true);
    let list = |cpus: Option<&CpuSet>| cpus.map(ToString::to_string);
    assert_eq!(list(topology.siblings(1)).as_deref(), Some("1,5"));
    assert_eq!(list(topology.siblings(9)), None);
    assert_eq!(list(topology.socket(1)).as_deref(), Some("2-3,6-7"));
    assert_eq!(list(topology.node(0)).as_deref(), Some("0-1,4-5"));
    assert_eq!(topology.get(6), Some(&CpuInfo { id: 6, core: 2, socket: 1, node: 1 }));
    assert_eq!(topology.cores().map(|(core, _)| core).collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 2), (1, 3)]);
    assert_eq!((topology.sockets().count(), topology.nodes().count(), topology.cpus().len()), (2, 2, 8));
    let twice = CpuInfo { id: 0, core: 7, socket: 7, node: 7 };
    assert_eq!(CpuTopology::new(topology.cpus().iter().copied().chain([twice])), topology);
    // The same core number in two sockets is two cores.
    let reused = CpuTopology::new((0..2).map(|id| CpuInfo { id, core: 0, socket: id, node: 0 }));
    assert_eq!(list(reused.siblings(0)).as_deref(), Some("0"));
}

proptest! {
    #[test]
    fn the_choice_has_the_size_asked_for(
        (sockets, cores, threads) in (1_u32..4, 1_u32..5, 1_u32..3),
        apart in any::<bool>(),
        busy in proptest::collection::btree_set(0_u32..24, 0..12),
        count in 0_usize..26,
    ) {
        let topology = node(sockets, cores, threads, apart);
        let available = topology.all() - &busy.into_iter().collect();
        match take_by_topology(&topology, &available, count) {
            None => prop_assert!(count > available.len()),
            Some(taken) => {
                prop_assert_eq!(taken.len(), count);
                prop_assert!(taken.is_subset(&available));
                // No more cores are broken than needed: fewer CPUs than a core has are taken singly,
                // unless whole free cores ran out.
                let broken = topology.cores().filter(|(_, core)| {
                    core.is_subset(&available) && !core.is_subset(&taken) && !core.is_disjoint(&taken)
                });
                prop_assert!(broken.count() <= 1);
            }
        }
    }
}
