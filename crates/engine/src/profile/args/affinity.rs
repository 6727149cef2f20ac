//! InterPodAffinity and NodeAffinity. Spec: scheduler-core 7.3.

use k8s_openapi::api::core::v1::NodeAffinity;

use super::Percent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterPodAffinityArgs {
    /// The score for each required term of an existing pod that matches.
    pub hard_pod_affinity_weight: Percent,
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> InterPodAffinityArgs {
        InterPodAffinityArgs {
            hard_pod_affinity_weight: Percent(1),
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeAffinityArgs {
    /// What every pod wants of its node besides its own wishes. Its terms compile without error.
    pub added_affinity: Option<NodeAffinity>,
}
