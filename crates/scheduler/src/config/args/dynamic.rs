//! DynamicResourcesArgs.

use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_engine::profile::args::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json};
use crate::config::field::{Fault, below};

/// Checked for the sake of the file; the engine refuses pods with claims and so needs none of it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DynamicResourcesArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    filter_timeout: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binding_timeout: Option<GoDuration>,
}

fn binding_conditions(gates: &Gates) -> bool {
    gates.is_on("DRADeviceBindingConditions") && gates.is_on("DRAResourceClaimDeviceStatus")
}

fn filter_timeouts(gates: &Gates) -> bool {
    gates.is_on("DRASchedulerFilterTimeout")
}

impl RawArgs for DynamicResourcesArgs {
    fn set_defaults(&mut self, gates: &Gates) {
        if filter_timeouts(gates) {
            self.filter_timeout.get_or_insert(GoDuration::from_seconds(10));
        }
        if binding_conditions(gates) {
            self.binding_timeout.get_or_insert(GoDuration::from_seconds(600));
        }
    }

    fn check(&self, at: &str, gates: &Gates, _: &mut Args) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(timeout) = self.filter_timeout {
            let path = below(at, "filterTimeout");
            if !filter_timeouts(gates) {
                let detail = "DRASchedulingFilterTimeout feature gate is disabled";
                faults.push(Fault::forbidden(path, detail));
            } else if timeout < GoDuration::ZERO {
                faults.push(Fault::invalid(path, timeout, "must be zero or positive"));
            }
        }
        if let Some(timeout) = self.binding_timeout {
            let path = below(at, "bindingTimeout");
            if !binding_conditions(gates) {
                let detail =
                    "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled";
                faults.push(Fault::forbidden(path, detail));
            } else if timeout < GoDuration::from_seconds(1) {
                faults.push(Fault::invalid(path, timeout, "must be at least 1 second"));
            }
        }
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
