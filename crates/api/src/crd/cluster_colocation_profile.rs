//! ClusterColocationProfile: what pods are given when they are created. Spec: crds 6.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::crd::schema;
use crate::crd::wire::{object, wire};

object! {
    /// What pods are given when they are created.
    pub struct ClusterColocationProfile = "config.koordinator.sh" / "v1alpha1", "clustercolocationprofiles", ClusterResourceScope {
        /// Which pods, and what they are given.
        pub spec: Option<ClusterColocationProfileSpec>,
        /// Empty.
        pub status: Option<ClusterColocationProfileStatus>,
    }
}

wire! {
    /// Which pods are changed on creation, and how.
    pub struct ClusterColocationProfileSpec {
        /// Namespaces of the pods. Absent or empty matches all.
        #[schemars(schema_with = "schema::label_selector")]
        pub namespace_selector: Option<LabelSelector>,
        /// Labels of the pods. Absent or empty matches all.
        #[schemars(schema_with = "schema::label_selector")]
        pub selector: Option<LabelSelector>,
        /// Chance that the profile is applied: an integer, or a string such as "30%". Absent is always.
        #[schemars(schema_with = "schema::int_or_string")]
        pub probability: Option<IntOrString>,
        /// QoS class to set.
        #[schemars(extend("enum" = ["LSE", "LSR", "LS", "BE", "SYSTEM"]))]
        pub qos_class: String,
        /// Priority class to set; it must exist.
        pub priority_class_name: String,
        /// Koordinator priority to set.
        pub koordinator_priority: Option<i32>,
        /// Labels to set.
        pub labels: BTreeMap<String, String>,
        /// Annotations to set.
        pub annotations: BTreeMap<String, String>,
        /// Labels to copy, from key to value.
        pub label_keys_mapping: BTreeMap<String, String>,
        /// Annotations to copy, from key to value.
        pub annotation_keys_mapping: BTreeMap<String, String>,
        /// Text to append to labels that are there.
        pub label_suffixes: BTreeMap<String, String>,
        /// Scheduler to set.
        pub scheduler_name: String,
        /// A strategic merge patch over the pod.
        #[schemars(schema_with = "schema::any")]
        pub patch: Option<Value>,
    }

    /// Nothing yet.
    pub struct ClusterColocationProfileStatus {}
}
