//! What admission keeps of an ElasticQuota. Spec: manager 17, 17.3.

use std::fmt;

use koord_api::annotation::OrAbsent;
use koord_api::annotation::quota::{Guaranteed, Namespaces};
use koord_api::annotation::{Annotation, read};
use koord_api::crd::elastic_quota::{ElasticQuota, ROOT_QUOTA};
use koord_api::keys::quota::label;
use koord_api::quantity::ResourceList;

/// Where a quota lives. Other quotas and pods know it by its name alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuotaKey {
    pub namespace: String,
    pub name: String,
}

impl QuotaKey {
    /// Of an object; a request for it says the namespace when the object does not.
    pub fn of(quota: &ElasticQuota, request_namespace: &str) -> QuotaKey {
        let namespace = quota.metadata.namespace.as_deref().filter(|text| !text.is_empty());
        QuotaKey {
            namespace: namespace.unwrap_or(request_namespace).to_owned(),
            name: quota.metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for QuotaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The part of a quota that rules look at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaInfo {
    pub key: QuotaKey,
    /// Name of the quota above; empty for the root alone.
    pub parent: String,
    pub is_parent: bool,
    pub allows_lending: bool,
    pub allows_force_update: bool,
    /// The top of a tree that an ElasticQuotaProfile made.
    pub is_tree_root: bool,
    /// Empty outside of such trees.
    pub tree_id: String,
    pub min: ResourceList,
    pub max: ResourceList,
    /// Empty when absent or unreadable: the scheduler writes it, and will again.
    pub guaranteed: ResourceList,
    /// Namespaces whose pods belong here; none when the list cannot be read.
    pub namespaces: Vec<String>,
}

impl QuotaInfo {
    pub fn new(key: QuotaKey, quota: &ElasticQuota) -> QuotaInfo {
        let spec = quota.spec.clone().unwrap_or_default();
        let annotations = quota.metadata.annotations.as_ref();
        QuotaInfo {
            parent: parent_of(&key.name, label_of(quota, label::PARENT)),
            is_parent: label_of(quota, label::IS_PARENT) == "true",
            allows_lending: label_of(quota, label::ALLOW_LENT_RESOURCE) != "false",
            allows_force_update: label_of(quota, label::ALLOW_FORCE_UPDATE) == "true",
            is_tree_root: label_of(quota, label::IS_ROOT) == "true",
            tree_id: label_of(quota, label::TREE_ID).to_owned(),
            min: spec.min,
            max: spec.max,
            guaranteed: read::<Guaranteed>(annotations).or_absent(|_| ()).unwrap_or_default().0,
            namespaces: read::<Namespaces>(annotations).or_absent(|_| ()).unwrap_or_default().0,
            key,
        }
    }

    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// Whether the quota stands directly below the root.
    pub fn is_top(&self) -> bool {
        self.parent == ROOT_QUOTA
    }
}

/// A label's value, empty when absent.
pub(super) fn label_of<'q>(quota: &'q ElasticQuota, key: &str) -> &'q str {
    quota.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// An annotation's text, empty when absent.
pub(super) fn annotation_of<A: Annotation>(quota: &ElasticQuota) -> &str {
    quota.metadata.annotations.as_ref().and_then(|all| all.get(A::KEY)).map_or("", String::as_str)
}

fn parent_of(name: &str, label: &str) -> String {
    if label.is_empty() && name != ROOT_QUOTA { ROOT_QUOTA.to_owned() } else { label.to_owned() }
}
