//! The sums again, from the pods alone: what the ledger must equal after any history.

use std::collections::BTreeMap;

use koord_api::resource::ResourceVector;

use super::Cluster;

/// What is counted on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSum {
    pub requested: ResourceVector,
    pub nonzero_cpu_milli: i64,
    pub nonzero_memory: i64,
    pub pods: i64,
    /// UIDs, ascending.
    pub uids: Vec<Box<str>>,
}

impl Cluster {
    /// The sums by node name, from the pods.
    pub fn recount(&self) -> BTreeMap<Box<str>, NodeSum> {
        let mut sums: BTreeMap<Box<str>, NodeSum> = BTreeMap::new();
        for held in self.all_held() {
            let sum = sums.entry(self.node(held.row).name.clone()).or_default();
            let requests = &held.pod.class.requests;
            for (id, units) in requests.amounts.iter() {
                let is_counted = id == koord_api::resource::ResourceId::CPU
                    || id == koord_api::resource::ResourceId::MEMORY
                    || id == koord_api::resource::ResourceId::EPHEMERAL_STORAGE
                    || super::columns::is_scalar(self.resources.name(id));
                if is_counted {
                    sum.requested.set(id, sum.requested.get(id).saturating_add(units));
                }
            }
            sum.nonzero_cpu_milli = sum.nonzero_cpu_milli.saturating_add(requests.nonzero_cpu_milli);
            sum.nonzero_memory = sum.nonzero_memory.saturating_add(requests.nonzero_memory);
            sum.pods += 1;
            sum.uids.push(held.pod.uid.clone());
        }
        sums.values_mut().for_each(|sum| sum.uids.sort());
        sums
    }

    /// The sums by node name, as the columns have them; nodes without pods left out.
    pub fn ledger(&self) -> BTreeMap<Box<str>, NodeSum> {
        let mut sums = BTreeMap::new();
        for (name, row) in &self.rows {
            let at = row.index();
            let mut uids: Vec<Box<str>> =
                self.node(*row).pods.all.iter().map(|pod| pod.uid.clone()).collect();
            uids.sort();
            let sum = NodeSum {
                requested: self.columns.requested(*row),
                nonzero_cpu_milli: self.columns.nonzero_cpu[at],
                nonzero_memory: self.columns.nonzero_memory[at],
                pods: self.columns.pods.requested[at],
                uids,
            };
            if sum != NodeSum::default() {
                sums.insert(name.clone(), sum);
            }
        }
        sums
    }
}
