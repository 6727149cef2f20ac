//! What a node keeps for things that are not pods. Spec: api 5.3.

use serde::{Deserialize, Serialize};

use super::json_annotation;
use crate::cpuset::CpuSet;
use crate::crd::wire::{Omit, empty_as_none, open_enum};
use crate::keys::node::annotation::RESERVATION;
use crate::keys::resource::{BATCH_CPU, BATCH_MEMORY, CPU};
use crate::quantity::{Quantity, ResourceList};

/// Resources and CPUs kept out of scheduling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReservation {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub resources: ResourceList,
    /// CPU list; see [`NodeReservation::cpus`].
    #[serde(rename = "reservedCPUs", skip_serializing_if = "Omit::omit")]
    pub reserved_cpus: String,
    #[serde(rename = "applyPolicy", skip_serializing_if = "Omit::omit", deserialize_with = "empty_as_none")]
    pub apply_policy: Option<ApplyPolicy>,
}

json_annotation!(NodeReservation, RESERVATION, Absent, Absent);

open_enum! {
    /// What a node reservation does.
    pub enum ApplyPolicy {
        /// Lessens what can be scheduled, and keeps the CPUs away.
        Default = "Default",
        /// Only keeps the CPUs away.
        ReservedCpusOnly = "ReservedCPUsOnly",
    }
}

/// The CPUs a reservation asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservedCpus {
    /// These very ones; empty when the list cannot be read.
    Cpus(CpuSet),
    /// So many, chosen by topology.
    Count(usize),
}

impl NodeReservation {
    /// A list counts alone; without one it is the cpu amount, rounded up to whole CPUs.
    pub fn cpus(&self) -> ReservedCpus {
        if !self.reserved_cpus.is_empty() {
            return ReservedCpus::Cpus(self.reserved_cpus.parse().unwrap_or_default());
        }
        let milli = self.resources.get(CPU).map_or(0, |amount| amount.milli_value()).max(0);
        ReservedCpus::Count(usize::try_from(milli).unwrap_or(usize::MAX).div_ceil(1000))
    }

    /// The copy for NodeResourceTopology, with the CPUs filled in.
    ///
    /// `take` picks so many CPUs of the node by topology, none when there are not enough.
    pub fn with_cpus(&self, take: impl FnOnce(usize) -> Option<CpuSet>) -> NodeReservation {
        let cpus = match self.cpus() {
            ReservedCpus::Cpus(cpus) => cpus,
            ReservedCpus::Count(0) => CpuSet::default(),
            ReservedCpus::Count(count) => take(count).unwrap_or_default(),
        };
        NodeReservation { reserved_cpus: cpus.to_string(), ..self.clone() }
    }

    /// Whether the amounts lessen what can be scheduled on the node.
    pub fn lessens_allocatable(&self) -> bool {
        matches!(self.apply_policy, None | Some(ApplyPolicy::Default))
    }

    /// Takes the amounts off what a node has to offer. A list of CPUs counts in place of the cpu amount; one that
    /// cannot be read cancels everything. Batch amounts are left alone, since the manager has taken its part off.
    ///
    /// Differs: upstream adds what the node lacks with 0, and a negative amount enlarges the node.
    /// Spec: scheduler-core 9.9.
    pub fn lessen(&self, allocatable: &mut ResourceList) {
        if !self.lessens_allocatable() {
            return;
        }
        let mut reserved = self.resources.clone();
        if !self.reserved_cpus.is_empty() {
            let Ok(cpus) = self.reserved_cpus.parse::<CpuSet>() else { return };
            let milli = i64::try_from(cpus.len()).unwrap_or(i64::MAX).saturating_mul(1000);
            reserved.insert(CPU.to_owned(), Quantity::cores_milli(milli));
        }
        let zero = Quantity::default();
        for (name, amount) in reserved {
            let is_left_alone = name == BATCH_CPU || name == BATCH_MEMORY || amount <= zero;
            if let Some(left) = allocatable.get_mut(&name).filter(|_| !is_left_alone) {
                *left = (*left - amount).max(zero);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{Annotation, Annotations, OrAbsent, read};
    use crate::topology::{CpuInfo, CpuTopology, take_by_topology};

    /// What koordlet writes on the NodeResourceTopology for a Node's annotation.
    fn copied(text: &str, take: impl FnOnce(usize) -> Option<CpuSet>) -> String {
        let annotations = Annotations::from([(RESERVATION.to_string(), text.to_string())]);
        read::<NodeReservation>(&annotations).or_absent(|_| ()).unwrap_or_default().with_cpus(take).text()
    }

    #[test]
    fn given_cpus() {
        let given = NodeReservation::parse(r#"{"resources":{"cpu":"5"},"reservedCPUs":"0-1"}"#).unwrap();
        assert_eq!(given.cpus(), ReservedCpus::Cpus("0-1".parse().unwrap()), "api#10.33");
        let never = |_| panic!("nothing to choose");
        assert_eq!(copied(r#"{"reservedCPUs":"3,1,2,1"}"#, never), r#"{"reservedCPUs":"1-3"}"#, "api#10.120");
        assert_eq!(copied(r#"{"reservedCPUs":"x"}"#, never), "{}", "api#10.120");
        assert_eq!(copied("null", never), "{}", "api#10.120");
        assert_eq!(copied("", never), "{}");
        assert_eq!(copied("{", never), "{}");
    }

    /// 16 CPUs on 2 sockets with 2 threads per core, the threads of a core `apart` numbers away.
    fn node(apart: u32) -> CpuTopology {
        CpuTopology::new((0..16).map(|id| {
            let core = if apart == 1 { id / 2 } else { id % apart };
            CpuInfo { id, core, socket: core / 4, node: core / 4 }
        }))
    }

    #[test]
    fn cpus_chosen_by_topology() {
        let filled = |cpu: &str, cpus: &str| match cpus {
            "" => format!(r#"{{"resources":{{"cpu":"{cpu}"}}}}"#),
            cpus => format!(r#"{{"resources":{{"cpu":"{cpu}"}},"reservedCPUs":"{cpus}"}}"#),
        };
        for (key, given, written, neighbours, apart) in [
            ("api#10.31", r#""5""#, "5", "0-4", "0-2,8-9"),
            ("api#10.32", r#""1500m""#, "1500m", "0-1", "0,8"),
            ("api#10.119", r#""9""#, "9", "0-8", "0-4,8-11"),
            ("api#10.119", r#""17""#, "17", "", ""),
            ("api#10.119", r#""1u""#, "1u", "0", "0"),
            ("api#10.119", r#""-1""#, "-1", "", ""),
            ("api#10.119", "1.5", "1500m", "0-1", "0,8"),
        ] {
            let text = format!(r#"{{"resources":{{"cpu":{given}}}}}"#);
            for (topology, cpus) in [(node(1), neighbours), (node(8), apart)] {
                let got = copied(&text, |count| take_by_topology(&topology, topology.all(), count));
                assert_eq!(got, filled(written, cpus), "{key}");
            }
        }
    }

    #[test]
    fn policies() {
        let lessens = |text: &str| NodeReservation::parse(text).unwrap().lessens_allocatable();
        assert!(lessens("{}") && lessens(r#"{"applyPolicy":"Default"}"#) && lessens(r#"{"applyPolicy":""}"#));
        assert!(!lessens(r#"{"applyPolicy":"ReservedCPUsOnly"}"#) && !lessens(r#"{"applyPolicy":"Foo"}"#));
        let text = r#"{"resources":{"cpu":"1"},"reservedCPUs":"0","applyPolicy":"ReservedCPUsOnly"}"#;
        assert_eq!(NodeReservation::parse(text).unwrap().text(), text);
    }
}
