//! What koordlet acts on: the NodeSLO over the built-in defaults. Spec: api 7.2, last paragraph.

use serde_json::{Map, Value};

use super::defaults;
use super::strategy::{Strategy, merge};
use crate::crd::node_slo::{
    CpuBurstStrategy, HostApplicationSpec, NodeSloSpec, ResourceQos, ResourceQosStrategy,
    ResourceThresholdStrategy, SystemStrategy,
};

/// Every strategy of a node, with nothing left open that has a default.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    pub threshold: ResourceThresholdStrategy,
    pub qos: ResourceQosStrategy,
    pub burst: CpuBurstStrategy,
    pub system: SystemStrategy,
    pub host_applications: Vec<HostApplicationSpec>,
    /// Of third parties, as they came.
    pub extensions: Map<String, Value>,
}

impl Effective {
    /// Merges a NodeSLO over the defaults. `extensions` are the names that this koordlet knows.
    pub fn new(spec: &NodeSloSpec, extensions: &[&str]) -> Effective {
        let known = |name: &&str| Some(((*name).to_owned(), spec.extension(name)?.clone()));
        Effective {
            threshold: over(&defaults::threshold(), &spec.resource_used_threshold_with_be),
            qos: effective_qos(&spec.resource_qos_strategy),
            burst: over(&defaults::burst(), &spec.cpu_burst_strategy),
            system: spec.system_strategy.clone().unwrap_or_else(SystemStrategy::built_in),
            host_applications: spec.host_applications.clone(),
            extensions: extensions.iter().filter_map(known).collect(),
        }
    }
}

fn over<S: Strategy<Partial = S>>(default: &S, value: &Option<S>) -> S {
    value.as_ref().map_or_else(|| default.clone(), |value| default.over(value))
}

fn effective_qos(value: &Option<ResourceQosStrategy>) -> ResourceQosStrategy {
    let mut qos: ResourceQosStrategy = match value {
        Some(value) => merge(&defaults::qos(), value),
        None => defaults::qos(),
    };
    // SYSTEM and the root keep their values even when switched off.
    for class in [&mut qos.lsr_class, &mut qos.ls_class, &mut qos.be_class].into_iter().flatten() {
        switch_off(class);
    }
    qos
}

/// Replaces the values of every part that is off, so that they are undone on the node.
fn switch_off(class: &mut ResourceQos) {
    if let Some(cpu) = class.cpu_qos.as_mut().filter(|cpu| cpu.enable != Some(true)) {
        *cpu = defaults::cpu_none();
    }
    if let Some(resctrl) = class.resctrl_qos.as_mut().filter(|resctrl| resctrl.enable != Some(true)) {
        *resctrl = defaults::resctrl_none();
    }
    if let Some(memory) = class.memory_qos.as_mut().filter(|memory| memory.enable != Some(true)) {
        *memory = defaults::memory_none();
    }
}
