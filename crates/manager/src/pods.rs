//! Pods as the manager keeps them: what they ask for and which class they are. Spec: manager 5.5, 6.1.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use koord_api::keys::quota::label::NAME as QUOTA_NAME;
use koord_kit::cache::ObjectKey;

/// What the manager keeps of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodBrief {
    pub key: ObjectKey,
    /// None while it has no node.
    pub node: Option<Arc<str>>,
    /// The quota that its label names.
    pub quota: Option<Arc<str>>,
}

impl PodBrief {
    pub fn new(key: &ObjectKey, pod: &Pod) -> PodBrief {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let labels = pod.metadata.labels.as_ref();
        PodBrief {
            key: key.clone(),
            node: node.filter(|name| !name.is_empty()).map(Arc::from),
            quota: labels.and_then(|labels| labels.get(QUOTA_NAME)).map(|name| name.as_str().into()),
        }
    }
}
