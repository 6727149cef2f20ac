//! DefaultPreemptionArgs.

use koord_api::gate::Gates;
use koord_engine::profile::args::{Args, CandidateLimits, DefaultPreemptionArgs as Engine, Percent};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json};
use crate::config::field::{Fault, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DefaultPreemptionArgs {
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
}

impl RawArgs for DefaultPreemptionArgs {
    fn set_defaults(&mut self, _: &Gates) {
        self.min_candidate_nodes_percentage.get_or_insert(10);
        self.min_candidate_nodes_absolute.get_or_insert(100);
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let percentage = self.min_candidate_nodes_percentage.unwrap_or_default();
        let absolute = self.min_candidate_nodes_absolute.unwrap_or_default();
        let percentage_path = below(at, "minCandidateNodesPercentage");
        let absolute_path = below(at, "minCandidateNodesAbsolute");
        let mut faults = Vec::new();
        match Percent::new(percentage.into()) {
            None => faults.push(Fault::invalid(&percentage_path, percentage, "not in valid range [0, 100]")),
            Some(percentage) => {
                out.default_preemption = Engine { candidates: CandidateLimits { percentage, absolute } };
            }
        }
        if absolute < 0 {
            faults.push(Fault::invalid(&absolute_path, absolute, "not in valid range [0, inf)"));
        }
        if (percentage, absolute) == (0, 0) {
            let both = |other: &str| format!("cannot be zero at the same time as {other}");
            faults.push(Fault::invalid(percentage_path, percentage, &both("minCandidateNodesAbsolute")));
            faults.push(Fault::invalid(absolute_path, absolute, &both("minCandidateNodesPercentage")));
        }
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
