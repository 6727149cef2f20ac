//! A PersistentVolumeClaim as placement sees it.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::selector::Selector;

use super::volume::{AccessModes, Size, class_name, storage};

/// On a claim: both sides know of each other. The value does not matter.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim: the node that a volume is to be made for.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// One PersistentVolumeClaim, as the API has it.
#[derive(Clone, Debug)]
pub struct Claim {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Box<str>,
    pub revision: Box<str>,
    pub class: Arc<str>,
    pub request: Option<Size>,
    /// The volume it has or will have; empty when there is none yet.
    pub volume: Box<str>,
    pub is_bind_completed: bool,
    pub is_lost: bool,
    pub is_deleting: bool,
    pub modes: AccessModes,
    pub is_block: bool,
    pub attributes_class: Box<str>,
    /// Which volumes may serve it; an error is a selector that cannot be read.
    pub selector: Option<Result<Selector, Box<str>>>,
    pub selected_node: Option<Box<str>>,
    pub has_annotations: bool,
    /// The UID of the pod that it was made for, or of whatever else owns it.
    pub controller: Box<str>,
    /// The whole object, while a node may still have to be written into it.
    pub object: Option<Arc<core::PersistentVolumeClaim>>,
}

impl Claim {
    pub(super) fn read(object: &core::PersistentVolumeClaim) -> Claim {
        let empty = core::PersistentVolumeClaimSpec::default();
        let spec = object.spec.as_ref().unwrap_or(&empty);
        let metadata = &object.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        let text = |text: &Option<String>| -> Box<str> { text.as_deref().unwrap_or_default().into() };
        let mut owners = metadata.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let read = |selector| Selector::new(Some(selector)).map_err(|error| error.to_string().into());
        Claim {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            uid: text(&metadata.uid),
            revision: text(&metadata.resource_version),
            class: class_name(metadata.annotations.as_ref(), spec.storage_class_name.as_deref()).into(),
            request: storage(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref())),
            volume: text(&spec.volume_name),
            is_bind_completed: annotation(BIND_COMPLETED).is_some(),
            is_lost: object.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost"),
            is_deleting: metadata.deletion_timestamp.is_some(),
            modes: AccessModes::read(spec.access_modes.as_ref()),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: text(&spec.volume_attributes_class_name),
            selector: spec.selector.as_ref().map(read),
            selected_node: annotation(SELECTED_NODE).map(|node| node.as_str().into()),
            has_annotations: metadata.annotations.is_some(),
            controller: controller.map(|owner| owner.uid.as_str()).unwrap_or_default().into(),
            object: spec.volume_name.as_ref().is_none_or(String::is_empty).then(|| Arc::new(object.clone())),
        }
    }

    /// Whether it has its volume and nothing more is to be done.
    pub fn is_bound(&self) -> bool {
        !self.volume.is_empty() && self.is_bind_completed
    }
}
