//! CoschedulingArgs. Spec: scheduler-gang-quota A1.3.

use koord_api::annotation::gang::MatchPolicy;
use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_engine::profile::args::{Args, CoschedulingArgs as Engine};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json};
use crate::config::field::{Fault, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CoschedulingArgs {
    default_timeout: Option<GoDuration>,
    controller_workers: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_check_schedule_cycle: Option<bool>,
    enable_preemption: Option<bool>,
    aware_network_topology: Option<bool>,
    default_match_policy: Option<String>,
}

const MATCH_POLICIES: [&str; 3] = ["once-satisfied", "only-waiting", "waiting-and-running"];

impl RawArgs for CoschedulingArgs {
    fn set_defaults(&mut self, _: &Gates) {
        self.default_timeout.get_or_insert(GoDuration::from_seconds(600));
        self.controller_workers.get_or_insert(1);
        self.enable_preemption.get_or_insert(false);
        self.aware_network_topology.get_or_insert(false);
        self.default_match_policy.get_or_insert_with(|| MATCH_POLICIES[0].to_owned());
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let mut faults = Vec::new();
        let default_timeout = self.default_timeout.unwrap_or_default();
        if default_timeout < GoDuration::ZERO {
            let path = below(at, "defaultTimeout");
            faults.push(Fault::new(path, "coeSchedulingArgs DefaultTimeoutSeconds invalid"));
        }
        let workers = self.controller_workers.unwrap_or_default();
        let controller_workers = usize::try_from(workers).unwrap_or_default();
        if controller_workers == 0 {
            let path = below(at, "controllerWorkers");
            faults.push(Fault::new(path, "coeSchedulingArgs ControllerWorkers invalid"));
        }
        let policy = self.default_match_policy.as_deref().unwrap_or_default();
        let default_match_policy = MatchPolicy::parse(policy).unwrap_or_else(|| {
            // Differs: upstream takes any word and then treats it as none of them.
            faults.push(Fault::unsupported(below(at, "defaultMatchPolicy"), policy, &MATCH_POLICIES));
            MatchPolicy::OnceSatisfied
        });
        out.coscheduling = Engine {
            default_timeout,
            controller_workers,
            skip_check_schedule_cycle: self.skip_check_schedule_cycle.unwrap_or_default(),
            enable_preemption: self.enable_preemption.unwrap_or_default(),
            aware_network_topology: self.aware_network_topology.unwrap_or_default(),
            default_match_policy,
        };
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
