//! ElasticQuotaProfile: an ElasticQuota as large as a group of nodes. Spec: crds 7.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::crd::schema;
use crate::crd::wire::{object, wire};

object! {
    /// An ElasticQuota that is kept as large as a group of nodes.
    pub struct ElasticQuotaProfile = "quota.koordinator.sh" / "v1alpha1", "elasticquotaprofiles", NamespaceResourceScope {
        /// Which nodes, and which quota.
        pub spec: Option<ElasticQuotaProfileSpec>,
        /// Empty.
        pub status: Option<ElasticQuotaProfileStatus>,
    }
}

wire! {
    /// Which nodes are summed up into which quota.
    #[schemars(extend("required" = ["nodeSelector", "quotaName"]))]
    pub struct ElasticQuotaProfileSpec {
        /// The ElasticQuota to keep.
        pub quota_name: String,
        /// Labels to put on it.
        pub quota_labels: BTreeMap<String, String>,
        /// Share of the nodes' resources, as a decimal such as "0.9".
        pub resource_ratio: Option<String>,
        /// The nodes.
        #[schemars(schema_with = "schema::label_selector")]
        pub node_selector: Option<LabelSelector>,
    }

    /// Nothing yet.
    pub struct ElasticQuotaProfileStatus {}
}
