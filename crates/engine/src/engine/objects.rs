//! What becomes of nodes and other objects that the API tells of. Spec: scheduler-core 1.3.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::Engine;
use crate::cluster::{Node, StorageChange};
use crate::framework::event::{Action, Event, Resource};
use crate::framework::{Change, changes};
use crate::time::Time;

impl Engine {
    pub(super) fn node_is(&mut self, now: Time, object: &core::Node) {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let old = self.real_node(name);
        self.world.cluster.set_node(object);
        let new = self.real_node(name);
        let events = match (&old, &new) {
            (None, Some(_)) => {
                self.is_renominating = true;
                vec![Event::new(Resource::Node, Action::ADD)]
            }
            (Some(old), Some(new)) => changes::node_events(old, new),
            _ => return,
        };
        // A node that lost a label may no longer reach the volumes of a pod on its way there.
        let has_changed = !events.is_empty();
        for event in events {
            let change = Change::Node { old: old.clone(), new: new.clone() };
            self.queue.move_all(&mut self.world, &event, &change, |_| true, now);
        }
        if has_changed {
            self.settle_all(now);
        }
    }

    pub(super) fn node_is_gone(&mut self, now: Time, name: &str) {
        let Some(old) = self.real_node(name) else { return };
        let event = Event::new(Resource::Node, Action::DELETE);
        let change = Change::Node { old: Some(old), new: None };
        self.queue.move_all(&mut self.world, &event, &change, |_| true, now);
        self.world.cluster.remove_node(name);
        self.is_renominating = true;
        self.keeper.touch_all_on(name);
        self.settle_all(now);
    }

    fn real_node(&self, name: &str) -> Option<Arc<Node>> {
        let row = self.world.cluster.row(name)?;
        let node = self.world.cluster.node(row);
        node.is_real.then(|| Arc::new(node.without_pods()))
    }

    /// A volume, a claim or an object around them came, changed or went; none when that was no news.
    pub(super) fn storage_changed(&mut self, now: Time, change: Option<StorageChange>) {
        let Some(change) = change else { return };
        let event = change.event();
        let change = Change::Storage(Arc::new(change));
        self.queue.move_all(&mut self.world, &event, &change, |_| true, now);
        self.settle_all(now);
    }
}
