//! Which changes of a Node ask for a turn. Pure. Spec: manager 5.1.
//!
//! Upstream gives every event a turn. Heartbeats change nothing that plugins see, and neither does what a turn has
//! just written: these two are told apart from all others, and when in doubt an event is news.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::view::NodeView;

/// What one write makes of a node.
///
/// It names the version that the write is for. The API server takes such a write for that version only, so it is what
/// follows that version, or it did not happen; a node that looks the same again later is never taken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnWrite {
    version: String,
    mark: u64,
}

impl OwnWrite {
    /// None where more may follow from the write than is in it, and where the node has no version.
    pub fn of(node: &Node, before: &NodeView, after: &NodeView) -> Option<OwnWrite> {
        let version = node.metadata.resource_version.clone()?;
        after.settles(before).then(|| OwnWrite { version, mark: after.mark() })
    }

    /// Whether it is what made `view` of `old`.
    pub fn made(&self, old: &Node, view: &NodeView) -> bool {
        old.metadata.resource_version.as_ref() == Some(&self.version) && self.mark == view.mark()
    }
}

/// A node as plugins see it, if that has changed. Most news of nodes are heartbeats, which are told apart at a glance.
pub fn changed_view(old: &Node, new: &Node) -> Option<NodeView> {
    fn amounts(node: &Node) -> Option<[Option<&BTreeMap<String, Quantity>>; 2]> {
        node.status.as_ref().map(|status| [status.capacity.as_ref(), status.allocatable.as_ref()])
    }
    let is_same = old.metadata.labels == new.metadata.labels
        && old.metadata.annotations == new.metadata.annotations
        && amounts(old) == amounts(new);
    let view = (!is_same).then(|| NodeView::of(new))?;
    (view != NodeView::of(old)).then_some(view)
}
