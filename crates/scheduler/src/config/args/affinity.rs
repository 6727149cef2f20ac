//! InterPodAffinityArgs and NodeAffinityArgs.

use k8s_openapi::api::core::v1::NodeAffinity;
use koord_api::gate::Gates;
use koord_api::selector::{NodeSelector, PreferredTerms, SelectorError};
use koord_engine::profile::args::{
    Args, InterPodAffinityArgs as EngineInterPod, NodeAffinityArgs as EngineNode, Percent,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json};
use crate::config::field::{Fault, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InterPodAffinityArgs {
    hard_pod_affinity_weight: Option<i32>,
    ignore_preferred_terms_of_existing_pods: Option<bool>,
}

impl RawArgs for InterPodAffinityArgs {
    fn set_defaults(&mut self, _: &Gates) {
        self.hard_pod_affinity_weight.get_or_insert(1);
        self.ignore_preferred_terms_of_existing_pods.get_or_insert(false);
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let weight = self.hard_pod_affinity_weight.unwrap_or_default();
        let Some(hard_pod_affinity_weight) = Percent::new(weight.into()) else {
            let path = below(at, "hardPodAffinityWeight");
            return vec![Fault::invalid(path, weight, "not in valid range [0, 100]")];
        };
        out.inter_pod_affinity = EngineInterPod {
            hard_pod_affinity_weight,
            ignore_preferred_terms_of_existing_pods: self
                .ignore_preferred_terms_of_existing_pods
                .unwrap_or_default(),
        };
        Vec::new()
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeAffinityArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    added_affinity: Option<NodeAffinity>,
}

impl RawArgs for NodeAffinityArgs {
    fn set_defaults(&mut self, _: &Gates) {}

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let Some(affinity) = &self.added_affinity else { return Vec::new() };
        let mut faults = Vec::new();
        let mut report = |path: &str, error: SelectorError| {
            faults.extend(error.into_messages().into_iter().map(|text| Fault::new(path, text)));
        };
        let path = |field| format!("{}.{field}", below(at, "addedAffinity"));
        if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
            let path = path("requiredDuringSchedulingIgnoredDuringExecution");
            NodeSelector::new_checked(required, &path).map_or_else(|error| report(&path, error), drop);
        }
        if let Some(preferred) = &affinity.preferred_during_scheduling_ignored_during_execution {
            let path = path("preferredDuringSchedulingIgnoredDuringExecution");
            PreferredTerms::new(preferred, &path).map_or_else(|error| report(&path, error), drop);
        }
        if faults.is_empty() {
            out.node_affinity = EngineNode { added_affinity: Some(affinity.clone()) };
        }
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
