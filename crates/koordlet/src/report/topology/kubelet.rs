//! What `/configz` tells of a kubelet, read leniently. Spec: koordlet-observe 3.4, 8.2.

use std::collections::BTreeMap;

use koord_api::cpuset::{CpuListError, CpuSet};
use koord_api::crd::node_resource_topology::TopologyPolicy;
use koord_api::keys::resource::{CPU, EPHEMERAL_STORAGE, MEMORY};
use koord_api::quantity::{Quantity, QuantityError};
use koord_api::topology::{CpuTopology, take_by_topology};
use serde_json::Value;

/// The parts of a kubelet's configuration that we look at. What it does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletConfig {
    pub cpu_manager_policy: String,
    pub cpu_manager_options: BTreeMap<String, String>,
    pub topology_manager_policy: String,
    pub topology_manager_scope: String,
    pub reserved_system_cpus: String,
    pub kube_reserved: BTreeMap<String, String>,
    pub system_reserved: BTreeMap<String, String>,
}

/// Why an answer is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("parse kubelet config failed, err: {0}")]
    Json(serde_json::Error),
    #[error("parse kubelet config failed, err: there is no kubeletconfig")]
    Missing,
}

/// Why the CPUs that kubelet keeps for itself are not known.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ReservedError {
    #[error("reservedSystemCPUs cannot be read: {0}")]
    List(#[from] CpuListError),
    #[error("reservedSystemCPUs {reserved} has CPUs that this node has not ({all})")]
    Unknown { reserved: CpuSet, all: CpuSet },
    #[error("{name} cannot be reserved")]
    Resource { name: String },
    #[error("reserved {name} {text:?} cannot be read: {source}")]
    Amount { name: String, text: String, source: QuantityError },
    #[error("reserved {name} {text} is negative")]
    Negative { name: String, text: String },
    #[error("the static policy needs reserved CPUs, and there are none")]
    Nothing,
    #[error("{wanted} CPUs are reserved, and this node has {all}")]
    TooMany { wanted: usize, all: usize },
}

/// What kubelet lets be reserved.
const RESERVABLE: [&str; 4] = [CPU, MEMORY, EPHEMERAL_STORAGE, "pid"];

impl KubeletConfig {
    /// Reads the answer of `/configz`. A field of an unknown type counts as absent.
    pub fn parse(body: &[u8]) -> Result<KubeletConfig, ConfigError> {
        let answer: Value = serde_json::from_slice(body).map_err(ConfigError::Json)?;
        let config = answer.get("kubeletconfig").filter(|config| config.is_object());
        let config = config.ok_or(ConfigError::Missing)?;
        let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let map = |name: &str| {
            let entries = config.get(name).and_then(Value::as_object).into_iter().flatten();
            entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        Ok(KubeletConfig {
            cpu_manager_policy: text("cpuManagerPolicy"),
            cpu_manager_options: map("cpuManagerPolicyOptions"),
            topology_manager_policy: text("topologyManagerPolicy"),
            topology_manager_scope: text("topologyManagerScope"),
            reserved_system_cpus: text("reservedSystemCPUs"),
            kube_reserved: map("kubeReserved"),
            system_reserved: map("systemReserved"),
        })
    }

    pub fn topology_policy(&self) -> TopologyPolicy {
        TopologyPolicy::from_kubelet(&self.topology_manager_policy, &self.topology_manager_scope)
    }

    /// The CPUs that the static policy gives to nobody.
    pub fn reserved_cpus(&self, topology: &CpuTopology) -> Result<CpuSet, ReservedError> {
        let kube = reserved_milli(&self.kube_reserved)?;
        let system = reserved_milli(&self.system_reserved)?;
        if !self.reserved_system_cpus.is_empty() {
            let reserved: CpuSet = self.reserved_system_cpus.parse()?;
            if !reserved.is_subset(topology.all()) {
                return Err(ReservedError::Unknown { reserved, all: topology.all().clone() });
            }
            return if reserved.is_empty() { Err(ReservedError::Nothing) } else { Ok(reserved) };
        }
        let milli = usize::try_from(kube.saturating_add(system)).unwrap_or(0);
        let wanted = milli.div_ceil(1000);
        if wanted == 0 {
            return Err(ReservedError::Nothing);
        }
        let all = topology.all().len();
        take_by_topology(topology, topology.all(), wanted).ok_or(ReservedError::TooMany { wanted, all })
    }
}

/// CPU of a reserved map, whose other entries must make sense too.
fn reserved_milli(reserved: &BTreeMap<String, String>) -> Result<i64, ReservedError> {
    let mut milli = 0;
    for (name, text) in reserved {
        if !RESERVABLE.contains(&name.as_str()) {
            return Err(ReservedError::Resource { name: name.clone() });
        }
        let amount: Quantity = text.parse().map_err(|source| ReservedError::Amount {
            name: name.clone(),
            text: text.clone(),
            source,
        })?;
        if amount.nano() < 0 {
            return Err(ReservedError::Negative { name: name.clone(), text: text.clone() });
        }
        if name == CPU {
            milli = amount.milli_value();
        }
    }
    Ok(milli)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_leniently() {
        let body = br#"{"kubeletconfig":{"cpuManagerPolicy":"static","cpuManagerPolicyOptions":{"full-pcpus-only":"true","x":1},
            "topologyManagerPolicy":"restricted","kubeReserved":{"cpu":"500m"},"systemReserved":null,
            "logging":{"flushFrequency":5000000000},"topologyManagerScope":7,"unknown":[1]}}"#;
        let config = KubeletConfig::parse(body).unwrap();
        assert_eq!(config.cpu_manager_policy, "static");
        assert_eq!(config.cpu_manager_options, [("full-pcpus-only".to_owned(), "true".to_owned())].into());
        assert_eq!(config.kube_reserved, [("cpu".to_owned(), "500m".to_owned())].into());
        assert_eq!(config.topology_manager_scope, "");
        assert_eq!(config.topology_policy().as_str(), "RestrictedContainerLevel");
        let error = KubeletConfig::parse(b"{").unwrap_err().to_string();
        assert!(error.starts_with("parse kubelet config failed, err: "), "{error}");
        assert!(KubeletConfig::parse(b"{}").is_err());
    }
}
