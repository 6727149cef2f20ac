//! PodTopologySpreadArgs.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use koord_api::gate::Gates;
use koord_engine::profile::args::{Args, DefaultConstraints, PodTopologySpreadArgs as Engine};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json, listed};
use crate::config::field::{Fault, below, check_name};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodTopologySpreadArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    default_constraints: Option<Vec<TopologySpreadConstraint>>,
    defaulting_type: Option<String>,
}

const SYSTEM: &str = "System";
const LIST: &str = "List";
const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];

impl RawArgs for PodTopologySpreadArgs {
    fn set_defaults(&mut self, _: &Gates) {
        if self.defaulting_type.as_deref().unwrap_or_default().is_empty() {
            self.defaulting_type = Some(SYSTEM.to_owned());
        }
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let constraints = listed(&self.default_constraints);
        let kind = self.defaulting_type.as_deref().unwrap_or_default();
        let mut faults = Vec::new();
        if kind != SYSTEM && kind != LIST {
            faults.push(Fault::unsupported(below(at, "defaultingType"), kind, &[SYSTEM, LIST]));
        } else if kind == SYSTEM && !constraints.is_empty() {
            let path = below(at, "defaultingType");
            faults.push(Fault::invalid(path, kind, "when .defaultConstraints are not empty"));
        }
        for i in 0..constraints.len() {
            faults.extend(check_constraint(&below(at, "defaultConstraints"), constraints, i));
        }
        let default_constraints = match kind {
            LIST => DefaultConstraints::List(constraints.to_vec()),
            _ => DefaultConstraints::System,
        };
        out.pod_topology_spread = Engine { default_constraints };
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}

fn check_constraint(path: &str, all: &[TopologySpreadConstraint], i: usize) -> Vec<Fault> {
    let constraint = &all[i];
    let at = format!("{path}[{i}]");
    let mut faults = Vec::new();
    if constraint.max_skew <= 0 {
        faults.push(Fault::invalid(
            below(&at, "maxSkew"),
            constraint.max_skew,
            "not in valid range (0, inf)",
        ));
    }
    let key = below(&at, "topologyKey");
    if constraint.topology_key.is_empty() {
        faults.push(Fault::required(key, "can not be empty"));
    } else {
        faults.extend(check_name(&key, &constraint.topology_key));
    }
    let action = constraint.when_unsatisfiable.as_str();
    if action.is_empty() {
        faults.push(Fault::required(below(&at, "whenUnsatisfiable"), "can not be empty"));
    } else if !ACTIONS.contains(&action) {
        faults.push(Fault::unsupported(below(&at, "whenUnsatisfiable"), action, &ACTIONS));
    }
    if constraint.label_selector.is_some() {
        let detail = "constraint must not define a selector, as they deduced for each pod";
        faults.push(Fault::forbidden(below(&at, "labelSelector"), detail));
    }
    let pair = (&constraint.topology_key, &constraint.when_unsatisfiable);
    if all[..i].iter().any(|other| (&other.topology_key, &other.when_unsatisfiable) == pair) {
        faults.push(Fault::duplicate(at, &format!("{{{}, {}}}", pair.0, pair.1)));
    }
    faults
}
