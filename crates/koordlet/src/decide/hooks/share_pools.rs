//! CPUs that pods share: what LS pods may use, and what BE pods may. Spec: koordlet-observe 8.3, koordlet-enforce 15.2.

use std::collections::BTreeMap;

use koord_api::annotation::node_topology::CpuSharedPool;
use koord_api::cpuset::CpuSet;
use koord_api::qos::Qos;
use koord_api::topology::CpuTopology;

use crate::decide::snapshot::Pod;

/// The pools by socket and NUMA node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharePools {
    pub ls: Vec<CpuSharedPool>,
    pub be: Vec<CpuSharedPool>,
}

/// CPUs that are not shared, whoever asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Withheld {
    /// Those that kubelet's static manager gave to pods that are not ours.
    pub kubelet: CpuSet,
    /// Those kept for things that are no pods, or for pods of class SYSTEM alone.
    pub node: CpuSet,
}

/// Whether a pod's CPUs are ours to give, so that kubelet's own choice for it does not count.
pub fn is_managed(pod: &Pod) -> bool {
    matches!(pod.qos, Some(Qos::Ls | Qos::Be)) || !pod.pinned_cpus().is_empty()
}

/// The pools of a node. `pods` are those that have not ended.
///
/// LSE pods have their CPUs for themselves; LSR pods share theirs with BE pods. A NUMA node whose last CPU went to pods
/// has no pool; one whose last CPU the node withholds has an empty one.
pub fn share_pools<'p>(
    topology: &CpuTopology,
    withheld: &Withheld,
    pods: impl IntoIterator<Item = &'p Pod>,
) -> SharePools {
    let open = topology.all() - &withheld.kubelet;
    let (mut ls, mut be) = (open.clone(), open);
    for pod in pods {
        let pinned = pod.pinned_cpus();
        ls = &ls - &pinned;
        if pod.qos == Some(Qos::Lse) {
            be = &be - &pinned;
        }
    }
    let pools = |cpus: &CpuSet| by_node(topology, cpus, &withheld.node);
    SharePools { ls: pools(&ls), be: pools(&be) }
}

fn by_node(topology: &CpuTopology, cpus: &CpuSet, withheld: &CpuSet) -> Vec<CpuSharedPool> {
    let mut pools: BTreeMap<(u32, u32), CpuSet> = BTreeMap::new();
    for (node, members) in topology.nodes() {
        let own = members & cpus;
        let socket = own.first().and_then(|cpu| topology.get(cpu)).map(|cpu| cpu.socket);
        if let Some(socket) = socket {
            pools.insert((socket, node), &own - withheld);
        }
    }
    // The kernel numbers sockets and nodes far below the limit of the wire.
    let number = |id: u32| i32::try_from(id).unwrap_or(i32::MAX);
    let pool = |((socket, node), cpus): ((u32, u32), CpuSet)| CpuSharedPool {
        socket: number(socket),
        node: number(node),
        cpuset: cpus.to_string(),
    };
    pools.into_iter().map(pool).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::sketch::{cpus, pod};

    fn texts(pools: &[CpuSharedPool]) -> Vec<&str> {
        pools.iter().map(|pool| pool.cpuset.as_str()).collect()
    }

    #[test]
    fn who_shares_what() {
        let topology = cpus(16, |c| c / 2, |c| c / 8);
        let pods = [
            pod("lse").qos("LSE").pinned("1-2").read(),
            pod("lsr").qos("LSR").pinned("8-9").read(),
            pod("ls").qos("LS").read(),
        ];
        let node: CpuSet = "0,15".parse().unwrap();
        let mut withheld = Withheld { kubelet: CpuSet::new(), node };
        let pools = share_pools(&topology, &withheld, &pods);
        assert_eq!((texts(&pools.ls), texts(&pools.be)), (vec!["3-7", "10-14"], vec!["3-7", "8-14"]));
        withheld.kubelet = "3".parse().unwrap();
        let pools = share_pools(&topology, &withheld, &pods);
        assert_eq!((texts(&pools.ls), texts(&pools.be)), (vec!["4-7", "10-14"], vec!["4-7", "8-14"]));
        withheld.node = "0-7".parse().unwrap();
        let pools = share_pools(&topology, &withheld, &pods);
        assert_eq!(texts(&pools.ls), ["", "10-15"], "withheld by the node: an empty pool");
        withheld.kubelet = "0-7".parse().unwrap();
        let pools = share_pools(&topology, &withheld, &pods);
        assert_eq!(texts(&pools.ls), ["10-15"], "taken by pods: no pool");
    }

    #[test]
    fn whose_cpus_are_ours() {
        for (name, pod, want) in [
            ("LS", pod("a").qos("LS"), true),
            ("BE", pod("a").qos("BE"), true),
            ("pinned", pod("a").qos("LSR").pinned("1"), true),
            ("LSR without CPUs", pod("a").qos("LSR"), false),
            ("CPUs that make no sense", pod("a").qos("LSE").pinned("x"), false),
            ("nothing", pod("a"), false),
        ] {
            assert_eq!(is_managed(&pod.read()), want, "{name}");
        }
    }

    proptest! {
        /// LS pods never meet a pinned CPU, and share nothing that BE pods could not use.
        #[test]
        fn pools_nest(lse in 0_u32..16, lsr in 0_u32..16, reserved in 0_u32..16) {
            let withheld = Withheld { node: (0..reserved).collect(), ..Withheld::default() };
            let pods = [
                pod("lse").qos("LSE").pinned(&lse.to_string()).read(),
                pod("lsr").qos("LSR").pinned(&lsr.to_string()).read(),
            ];
            let pools = share_pools(&cpus(16, |c| c, |c| c / 8), &withheld, &pods);
            let join = |pools: &[CpuSharedPool]| {
                let texts = texts(pools).into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
                texts.join(",").parse::<CpuSet>().unwrap()
            };
            let (ls, be) = (join(&pools.ls), join(&pools.be));
            prop_assert!(ls.is_subset(&be));
            prop_assert!(!ls.contains(lse) && !ls.contains(lsr) && !be.contains(lse));
            prop_assert!(be.is_disjoint(&withheld.node));
        }
    }
}
