//! ElasticQuota: resources of a group of pods. Our rules live in labels and annotations. Spec: crds 8.

use crate::crd::wire::{object, wire};
use crate::quantity::ResourceList;

/// Name of the quota above all others.
pub const ROOT_QUOTA: &str = "koordinator-root-quota";
/// Name of the quota of system pods.
pub const SYSTEM_QUOTA: &str = "koordinator-system-quota";
/// Name of the quota of pods that name none.
pub const DEFAULT_QUOTA: &str = "koordinator-default-quota";

object! {
    /// Resources of a group of pods.
    pub struct ElasticQuota = "scheduling.sigs.k8s.io" / "v1alpha1", "elasticquotas", NamespaceResourceScope {
        /// What the group may have.
        pub spec: Option<ElasticQuotaSpec>,
        /// What the group has. Written by koord-scheduler.
        pub status: Option<ElasticQuotaStatus>,
    }
}

wire! {
    /// What the group may have.
    pub struct ElasticQuotaSpec {
        /// What it always gets.
        pub min: ResourceList,
        /// What it gets at most.
        pub max: ResourceList,
    }

    /// What the group has.
    pub struct ElasticQuotaStatus {
        pub used: ResourceList,
    }
}
