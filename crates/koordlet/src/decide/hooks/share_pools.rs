//! CPUs that pods share: what LS pods may use, and what BE pods may. Spec: koordlet-enforce 15.2, last part.

use koord_api::annotation::node_topology::CpuSharedPool;
use koord_api::cpuset::CpuSet;
use koord_api::qos::Qos;
use std::collections::BTreeMap;

use crate::decide::snapshot::{Layout, Pod};

/// The pools by socket and NUMA node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharePools {
    pub ls: Vec<CpuSharedPool>,
    pub be: Vec<CpuSharedPool>,
}

/// Whether a pod's CPUs are ours to give, so that kubelet's own choice for it does not count.
pub fn is_managed(pod: &Pod) -> bool {
    matches!(pod.qos, Some(Qos::Ls | Qos::Be)) || pod.is_pinned()
}

/// The pools of a node. `kubelet` has the CPUs that kubelet's static manager gave to pods, by uid.
///
/// LSE pods have their CPUs for themselves; LSR pods share theirs with BE pods.
pub fn share_pools(layout: &Layout, pods: &[Pod], kubelet: &BTreeMap<String, CpuSet>) -> SharePools {
    let mut open = layout.open_cpus();
    if layout.is_kubelet_static {
        let ours = |uid: &str| pods.iter().any(|pod| *pod.id.uid == *uid && is_managed(pod));
        for cpus in kubelet.iter().filter(|(uid, _)| !ours(uid)).map(|(_, cpus)| cpus) {
            open = &open - cpus;
        }
    }
    let (mut ls, mut be) = (open.clone(), open);
    for pod in pods {
        let pinned = pod.pinned_cpus();
        ls = &ls - &pinned;
        if pod.qos == Some(Qos::Lse) {
            be = &be - &pinned;
        }
    }
    SharePools { ls: by_node(layout, &ls), be: by_node(layout, &be) }
}

fn by_node(layout: &Layout, cpus: &CpuSet) -> Vec<CpuSharedPool> {
    let mut pools: BTreeMap<(u32, u32), CpuSet> = BTreeMap::new();
    for cpu in layout.topology.cpus().iter().filter(|cpu| cpus.contains(cpu.id)) {
        pools.entry((cpu.socket, cpu.node)).or_default().insert(cpu.id);
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
        let mut layout = Layout {
            topology: cpus(16, |c| c / 2, |c| c / 8),
            reserved: "0".parse().unwrap(),
            system: "15".parse().unwrap(),
            is_system_exclusive: true,
            ..Layout::default()
        };
        let pods = [
            pod("lse").qos("LSE").pinned("1-2").read(),
            pod("lsr").qos("LSR").pinned("8-9").read(),
            pod("ls").qos("LS").read(),
        ];
        let kubelet = [("other", "3"), ("ls", "4"), ("lsr", "10")]
            .map(|(uid, cpus)| (uid.to_string(), cpus.parse().unwrap()))
            .into();
        let pools = share_pools(&layout, &pods, &kubelet);
        assert_eq!((texts(&pools.ls), texts(&pools.be)), (vec!["3-7", "10-14"], vec!["3-7", "8-14"]));
        layout.is_kubelet_static = true;
        let pools = share_pools(&layout, &pods, &kubelet);
        assert_eq!((texts(&pools.ls), texts(&pools.be)), (vec!["4-7", "10-14"], vec!["4-7", "8-14"]));
    }

    proptest! {
        /// LS pods never meet a pinned CPU, and share nothing that BE pods could not use.
        #[test]
        fn pools_nest(lse in 0_u32..16, lsr in 0_u32..16, reserved in 0_u32..16) {
            let reserved = (0..reserved).collect();
            let layout = Layout { topology: cpus(16, |c| c, |c| c / 8), reserved, ..Layout::default() };
            let pods = [
                pod("lse").qos("LSE").pinned(&lse.to_string()).read(),
                pod("lsr").qos("LSR").pinned(&lsr.to_string()).read(),
            ];
            let pools = share_pools(&layout, &pods, &BTreeMap::new());
            let join = |pools: &[CpuSharedPool]| texts(pools).join(",").parse::<CpuSet>().unwrap();
            let (ls, be) = (join(&pools.ls), join(&pools.be));
            prop_assert!(ls.is_subset(&be));
            prop_assert!(!ls.contains(lse) && !ls.contains(lsr) && !be.contains(lse));
            prop_assert!(be.is_disjoint(&layout.reserved));
        }
    }
}
