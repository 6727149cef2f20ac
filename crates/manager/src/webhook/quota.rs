//! ElasticQuotas at admission: their tree, what a change of it must keep, and which pods fit in.
//!
//! [`Topology`] is the tree as this replica knows it. [`fill`] completes a new quota, [`validate`] judges changes with the
//! rules of `item` (one quota alone) and `tree` (beside parent and children), [`membership`] finds a pod's quota,
//! [`charge`] and [`evaluator`] count pods against the limit of their quota before they exist. [`handlers`] answer
//! requests, [`watch`] is the cluster's side.
//! Spec: manager 17, 18.

mod amounts;
pub mod info;
mod item;
pub mod ledger;
pub mod topology;
mod tree;

pub mod fill;
pub mod membership;
pub mod validate;

pub mod charge;
pub mod evaluator;

pub mod handlers;
pub mod watch;

#[cfg(test)]
pub(crate) mod sketch;

use koord_api::gate::Gates;

pub use info::{QuotaInfo, QuotaKey};
pub use ledger::Ledger;
pub use topology::Topology;

/// The feature gates that quotas look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaGates {
    /// ElasticQuotaGuaranteeUsage: a min must be guaranteed by what stands above it.
    pub guarantee_usage: bool,
    /// ElasticQuotaEnableUpdateResourceKey: a child may lack resources that its parent has.
    pub update_resource_key: bool,
    /// DisableDefaultQuota: pods belong to the quota of their label or to none.
    pub disable_default: bool,
    /// SupportParentQuotaSubmitPod: pods may belong to a parent.
    pub parent_submits: bool,
    /// EnableQuotaAdmission: pods are counted when they are created.
    pub admission: bool,
    /// EnableQuotaAdmissionOnUpdate: also when they change their quota.
    pub admission_on_update: bool,
    /// ElasticQuotaEvaluationTransformPod and ReplaceResourcesTransformer: their resources are renamed first.
    pub replace_resources: bool,
}

impl QuotaGates {
    pub fn new(gates: &Gates) -> QuotaGates {
        QuotaGates {
            guarantee_usage: gates.is_on("ElasticQuotaGuaranteeUsage"),
            update_resource_key: gates.is_on("ElasticQuotaEnableUpdateResourceKey"),
            disable_default: gates.is_on("DisableDefaultQuota"),
            parent_submits: gates.is_on("SupportParentQuotaSubmitPod"),
            admission: gates.is_on("EnableQuotaAdmission"),
            admission_on_update: gates.is_on("EnableQuotaAdmissionOnUpdate"),
            replace_resources: gates.is_on("ElasticQuotaEvaluationTransformPod")
                && gates.is_on("ReplaceResourcesTransformer"),
        }
    }
}
