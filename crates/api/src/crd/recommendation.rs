//! Recommendation: how much a workload should request. Served and typed; no component writes it. Spec: crds 11.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};

use crate::crd::schema;
use crate::crd::wire::{object, open_enum, wire};
use crate::quantity::ResourceList;
use crate::time::Time;

object! {
    /// How much a workload should request.
    pub struct Recommendation = "analysis.koordinator.sh" / "v1alpha1", "recommendations", NamespaceResourceScope {
        /// For what.
        pub spec: Option<RecommendationSpec>,
        /// How much.
        pub status: Option<RecommendationStatus>,
    }
}

wire! {
    /// For what a recommendation is made.
    #[schemars(extend("required" = ["target"]))]
    pub struct RecommendationSpec {
        pub target: Option<RecommendationTarget>,
    }

    /// A workload, or pods by their labels.
    #[schemars(extend("required" = ["type"]))]
    pub struct RecommendationTarget {
        /// `workload` or `podSelector`.
        #[serde(rename = "type")]
        pub target_type: RecommendationTargetType,
        /// For type workload.
        pub workload: Option<CrossVersionObjectReference>,
        /// For type podSelector.
        #[schemars(schema_with = "schema::label_selector")]
        pub pod_selector: Option<LabelSelector>,
    }

    /// A workload.
    #[schemars(extend("required" = ["kind", "name"]))]
    pub struct CrossVersionObjectReference {
        pub kind: String,
        pub name: String,
        pub api_version: String,
    }

    /// How much is recommended.
    pub struct RecommendationStatus {
        pub pod_status: Option<RecommendedPodStatus>,
        /// When it was computed.
        pub update_time: Option<Time>,
        /// What to know about it.
        #[schemars(schema_with = "schema::conditions")]
        pub conditions: Vec<Condition>,
    }

    /// How much one pod should request.
    pub struct RecommendedPodStatus {
        pub container_statuses: Vec<RecommendedContainerStatus>,
    }

    /// How much one container should request.
    pub struct RecommendedContainerStatus {
        pub container_name: String,
        pub resources: ResourceList,
    }
}

open_enum! {
    /// How the target is named.
    pub enum RecommendationTargetType {
        Workload = "workload",
        PodSelector = "podSelector",
    }

    /// What to know about a recommendation.
    pub enum RecommendationConditionType {
        LowConfidence = "LowConfidence",
        NoObjectsMatched = "NoObjectsMatched",
        FetchingHistory = "FetchingHistory",
        ConfigDeprecated = "ConfigDeprecated",
        ConfigUnsupported = "ConfigUnsupported",
    }
}
