//! Some CPUs of a pool: spread over NUMA nodes, threads of one core together. Spec: koordlet-enforce 5.4.

use std::collections::BTreeMap;

use koord_api::cpuset::CpuSet;
use koord_api::topology::{CpuInfo, CpuTopology};

/// So many CPUs of a pool in the order they were taken; none when the pool is too small.
pub fn pick(topology: &CpuTopology, pool: &CpuSet, count: usize) -> Vec<u32> {
    let mut buckets = buckets(topology, pool);
    let available: usize = buckets.iter().map(|bucket| bucket.left.len()).sum();
    if available < count || buckets.is_empty() {
        return Vec::new();
    }
    let mut taken = Vec::with_capacity(count);
    let turn = take_pairs(&mut buckets, &mut taken, count);
    take_singles(&mut buckets, &mut taken, count, turn);
    taken
}

/// CPUs of one NUMA node and socket that are not taken yet, by core and id.
struct Bucket {
    left: Vec<CpuInfo>,
}

/// Differs: buckets are told apart by the pair of numbers, where upstream's arithmetic key can collide (item 6).
fn buckets(topology: &CpuTopology, pool: &CpuSet) -> Vec<Bucket> {
    let mut by_place: BTreeMap<(u32, u32), Vec<CpuInfo>> = BTreeMap::new();
    for cpu in topology.cpus().iter().filter(|cpu| pool.contains(cpu.id)) {
        by_place.entry((cpu.node, cpu.socket)).or_default().push(*cpu);
    }
    let mut buckets: Vec<Bucket> = by_place.into_values().map(|left| Bucket { left }).collect();
    for bucket in &mut buckets {
        bucket.left.sort_by_key(|cpu| (cpu.core, cpu.id));
    }
    // Of equals that one comes first whose first core begins with the lower id.
    buckets.sort_by_key(|bucket| (usize::MAX - bucket.left.len(), bucket.left.first().map(|cpu| cpu.id)));
    buckets
}

/// Takes two threads of one core from each bucket in turn. Returns the bucket whose turn it is next.
fn take_pairs(buckets: &mut [Bucket], taken: &mut Vec<u32>, count: usize) -> usize {
    let mut turn = 0;
    let mut before_round = taken.len();
    while count - taken.len() > 1 {
        let bucket = &mut buckets[turn].left;
        let pair = bucket.windows(2).position(|pair| pair[0].core == pair[1].core);
        if let Some(at) = pair {
            taken.extend(bucket.drain(at..at + 2).map(|cpu| cpu.id));
        }
        turn = (turn + 1) % buckets.len();
        if turn == 0 {
            if taken.len() == before_round {
                break;
            }
            before_round = taken.len();
        }
    }
    turn
}

/// Takes one CPU from each bucket in turn, beginning with the bucket whose turn it is.
fn take_singles(buckets: &mut [Bucket], taken: &mut Vec<u32>, count: usize, mut turn: usize) {
    while taken.len() < count && buckets.iter().any(|bucket| !bucket.left.is_empty()) {
        let bucket = &mut buckets[turn].left;
        if !bucket.is_empty() {
            taken.push(bucket.remove(0).id);
        }
        turn = (turn + 1) % buckets.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::sketch::cpus;

    #[test]
    fn worked_examples() {
        let smt = || cpus(16, |c| c % 8, |c| (c % 8) / 4);
        let flat = || cpus(8, |c| c, |c| c / 4);
        let triple = || cpus(6, |c| c / 3, |_| 0);
        for (key, topology, pool, count, want) in [
            ("koordlet-enforce#18.16", smt(), "0-15", 2, vec![0, 8]),
            ("koordlet-enforce#18.17", smt(), "0-15", 3, vec![0, 8, 4]),
            ("koordlet-enforce#18.18", smt(), "0-15", 5, vec![0, 8, 4, 12, 1]),
            ("koordlet-enforce#18.19", smt(), "0-15", 7, vec![0, 8, 4, 12, 1, 9, 5]),
            ("koordlet-enforce#18.20", flat(), "0-7", 3, vec![0, 4, 1]),
            ("koordlet-enforce#18.21", smt(), "2-7,9-15", 4, vec![4, 12, 2, 10]),
            ("koordlet-enforce#18.22", smt(), "0-2", 4, vec![]),
            ("koordlet-enforce#18.109", smt(), "2-7,9-15", 3, vec![4, 12, 9]),
            (
                "koordlet-enforce#18.110",
                smt(),
                "2-7,9-15",
                13,
                vec![4, 12, 2, 10, 5, 13, 3, 11, 6, 14, 7, 15, 9],
            ),
            ("koordlet-enforce#18.111", smt(), "0,1,4,5,8,9", 3, vec![0, 8, 4]),
            ("koordlet-enforce#18.111 five", smt(), "0,1,4,5,8,9", 5, vec![0, 8, 1, 9, 4]),
            ("koordlet-enforce#18.112", triple(), "0-5", 5, vec![0, 1, 3, 4, 2]),
            // CPU 8, the first of core 0, comes after CPU 4; as seen of the original with reserved CPUs.
            ("of equal buckets the first core decides", smt(), "1-7,8-14", 2, vec![4, 12]),
        ] {
            assert_eq!(pick(&topology, &pool.parse().unwrap(), count), want, "{key}");
        }
    }

    proptest! {
        /// Exactly so many different CPUs of the pool, or none where there are too few.
        #[test]
        fn takes_what_was_asked(
            threads in 1_u32..4, nodes in 1_u32..5, chosen in prop::collection::vec(any::<bool>(), 48),
            count in 0_usize..60,
        ) {
            let topology = cpus(48, |c| c / threads, |c| c % nodes);
            let pool: CpuSet = (0..48).filter(|c| chosen[*c as usize]).collect();
            let taken = pick(&topology, &pool, count);
            let set: CpuSet = taken.iter().copied().collect();
            prop_assert_eq!(set.len(), taken.len());
            prop_assert!(set.is_subset(&pool));
            prop_assert_eq!(taken.len(), if count <= pool.len() { count } else { 0 });
        }
    }
}
