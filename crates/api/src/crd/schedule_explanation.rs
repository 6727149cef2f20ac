//! ScheduleExplanation: why a pod or a gang is not placed. Spec: crds 13.

use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::crd::decode::schemaless;
use crate::crd::schema;
use crate::crd::wire::{object, wire};
use crate::duration::GoDuration;
use crate::time::Time;

object! {
    /// Why a pod or a gang is not placed.
    pub struct ScheduleExplanation = "scheduling.koordinator.sh" / "v1alpha1", "scheduleexplanations", NamespaceResourceScope {
        /// The question.
        pub spec: Option<ScheduleExplanationSpec>,
        /// The answer. Written by koord-scheduler.
        pub status: Option<ScheduleExplanationStatus>,
    }
}

wire! {
    /// The question.
    pub struct ScheduleExplanationSpec {
        /// namespace/name of a pod or job, or the id of a gang group.
        pub question_object_key: String,
        /// A pod that does not exist; not supported yet.
        #[serde(deserialize_with = "schemaless")]
        #[schemars(schema_with = "schema::any")]
        pub question_object_template: Option<PodTemplateSpec>,
        /// How long the question stands; 0 is for ever.
        #[schemars(extend("x-koord-default" = "24h"))]
        pub ttl: Option<GoDuration>,
    }

    /// The answer.
    pub struct ScheduleExplanationStatus {
        pub schedulable: Option<bool>,
        pub schedulable_after_preemption: Option<bool>,
        pub failed_message: String,
        /// When the answer was last confirmed.
        pub last_update_time: Option<Time>,
        /// One answer for each topology domain.
        pub detailed_explanation: Vec<DomainExplanation>,
    }

    /// The answer for one topology domain.
    pub struct DomainExplanation {
        pub topology_domain: String,
        pub schedulable: Option<bool>,
        pub schedulable_after_preemption: Option<bool>,
        pub failed_message: String,
        /// Without preemption.
        pub schedule_explanation: Option<NodeLevelExplanation>,
        /// With preemption.
        pub preempt_explanation: Option<NodeLevelExplanation>,
        /// Who would have to go.
        pub node_possible_victims: Vec<NodePossibleVictims>,
    }

    /// The answer by node.
    pub struct NodeLevelExplanation {
        pub schedulable: Option<bool>,
        pub failed_message: String,
        /// Where pods would go.
        pub feasible_scheduling_result: Vec<SchedulingResult>,
        /// Why nodes do not fit.
        pub node_failed_details: Vec<NodeFailedDetail>,
    }

    /// Where one pod would go.
    pub struct SchedulingResult {
        pub namespace: String,
        pub name: String,
        pub uid: String,
        pub node_name: String,
    }

    /// Nodes that do not fit for the same reason.
    pub struct NodeFailedDetail {
        pub failed_plugin: String,
        pub reason: String,
        /// Whether evicting pods might help.
        pub preempt_might_help: Option<bool>,
        /// In ascending order.
        pub failed_nodes: Vec<String>,
    }

    /// Pods of one node that would have to go.
    pub struct NodePossibleVictims {
        pub node_name: String,
        pub possible_victims: Vec<PossibleVictim>,
    }

    /// One pod that would have to go.
    pub struct PossibleVictim {
        pub namespace: String,
        pub name: String,
        pub uid: String,
        /// Whether it is not running yet, only promised this node.
        pub is_nominated_pod: Option<bool>,
    }
}

impl NodeLevelExplanation {
    /// Puts details and their nodes in the order in which they are published.
    pub fn sort(&mut self) {
        for detail in &mut self.node_failed_details {
            detail.failed_nodes.sort();
        }
        self.node_failed_details.sort_by(|a, b| {
            let key = |d: &NodeFailedDetail| !d.preempt_might_help.unwrap_or_default();
            (&a.failed_plugin, &a.reason, key(a)).cmp(&(&b.failed_plugin, &b.reason, key(b)))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_published_in_order() {
        let detail = |plugin: &str, reason: &str, helps: bool, nodes: &[&str]| NodeFailedDetail {
            failed_plugin: plugin.to_owned(),
            reason: reason.to_owned(),
            preempt_might_help: Some(helps),
            failed_nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        };
        let mut explanation = NodeLevelExplanation {
            node_failed_details: vec![
                detail("B", "r", true, &[]),
                detail("A", "s", false, &["n2", "n1"]),
                detail("A", "s", true, &[]),
                detail("A", "r", false, &[]),
            ],
            ..Default::default()
        };
        explanation.sort();
        let want = vec![
            detail("A", "r", false, &[]),
            detail("A", "s", true, &[]),
            detail("A", "s", false, &["n1", "n2"]),
            detail("B", "r", true, &[]),
        ];
        assert_eq!(explanation.node_failed_details, want);
    }
}
