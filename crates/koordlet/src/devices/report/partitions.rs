//! Which accelerators talk fast to each other, from the links that each describes. Spec: koordlet-observe 6.6.

use std::collections::{BTreeMap, BTreeSet};

use koord_api::annotation::device::{GpuPartition, GpuPartitions};

use crate::devices::xpu::Xpu;

/// All partitions are equally good, as far as the files tell.
const SCORE: i64 = 1;

/// Groups by their size. Of equal groups the first counts; links without peers or a type, and minors that are no
/// numbers, are left out.
pub(super) fn of(xpus: &[Xpu]) -> GpuPartitions {
    let mut seen: BTreeSet<Vec<i64>> = BTreeSet::new();
    let mut partitions: BTreeMap<i64, Vec<GpuPartition>> = BTreeMap::new();
    for (xpu, topology) in xpus.iter().filter_map(|xpu| Some((xpu, xpu.topology.as_ref()?))) {
        let links = topology.p2p_links.iter();
        for link in links.filter(|link| !link.peer_minor.is_empty() && !link.link_type.is_empty()) {
            let words = link.peer_minor.split(',').chain([xpu.minor.as_str()]);
            let minors: BTreeSet<i64> = words.filter_map(|word| word.trim().parse().ok()).collect();
            let minors: Vec<i64> = minors.into_iter().collect();
            if minors.is_empty() || !seen.insert(minors.clone()) {
                continue;
            }
            let size = i64::try_from(minors.len()).unwrap_or(i64::MAX);
            partitions.entry(size).or_default().push(GpuPartition {
                minors,
                gpu_link_type: link.link_type.clone(),
                allocation_score: SCORE,
                ..GpuPartition::default()
            });
        }
    }
    GpuPartitions(partitions)
}
