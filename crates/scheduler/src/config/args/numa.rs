//! NodeNUMAResourceArgs. Spec: scheduler-numa-cpu 4.

use koord_api::gate::Gates;
use koord_engine::profile::args::{Args, CpuBindDefault, NodeNumaResourceArgs as Engine};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fit::{RawScoring, cpu_and_memory};
use super::{RawArgs, json};
use crate::config::field::{Fault, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeNumaResourceArgs {
    #[serde(rename = "defaultCPUBindPolicy")]
    default_cpu_bind_policy: Option<String>,
    scoring_strategy: Option<RawScoring>,
    numa_scoring_strategy: Option<RawScoring>,
}

impl RawArgs for NodeNumaResourceArgs {
    fn set_defaults(&mut self, _: &Gates) {
        // Empty is a policy too: not to bind.
        self.default_cpu_bind_policy.get_or_insert_with(|| "FullPCPUs".to_owned());
        self.scoring_strategy.get_or_insert_with(|| RawScoring::least(cpu_and_memory()));
        self.numa_scoring_strategy.get_or_insert_with(|| RawScoring::least(cpu_and_memory()));
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let mut faults = Vec::new();
        let policy = match self.default_cpu_bind_policy.as_deref().unwrap_or_default() {
            "" => CpuBindDefault::Unbound,
            "FullPCPUs" => CpuBindDefault::FullPcpus,
            "SpreadByPCPUs" => CpuBindDefault::SpreadByPcpus,
            other => {
                let detail = "must specified CPU bind policy FullPCPUs or SpreadByPCPUs";
                faults.push(Fault::invalid(below(at, "defaultCPUBindPolicy"), other, detail));
                CpuBindDefault::Unbound
            }
        };
        let scoring = self.scoring_strategy.clone().unwrap_or_default();
        let numa = self.numa_scoring_strategy.clone().unwrap_or_default();
        let scoring = scoring.check(at, "scoringStrategy", "");
        let numa = numa.check(at, "numaScoringStrategy", "numa ");
        match (scoring, numa) {
            (Ok(scoring), Ok(numa_scoring)) => {
                out.node_numa_resource = Engine { default_cpu_bind_policy: policy, scoring, numa_scoring };
            }
            (scoring, numa) => {
                faults.extend(scoring.err().into_iter().flatten());
                faults.extend(numa.err().into_iter().flatten());
            }
        }
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
