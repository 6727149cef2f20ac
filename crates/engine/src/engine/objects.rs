//! What becomes of nodes and other objects that the API tells of. Spec: scheduler-core 1.3.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::crd::node_metric::NodeMetric;

use super::Engine;
use super::complaints::node_key;
use crate::cluster::{Node, StorageChange};
use crate::framework::event::{Action, Event, Resource};
use crate::framework::{Change, changes};
use crate::time::Time;

impl Engine {
    pub(super) fn node_is(&mut self, now: Time, object: &core::Node) {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let old = self.real_node(name);
        self.complain_of_node(object);
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
        self.stop_complaining(&node_key(name));
        let event = Event::new(Resource::Node, Action::DELETE);
        let change = Change::Node { old: Some(old), new: None };
        self.queue.move_all(&mut self.world, &event, &change, |_| true, now);
        self.world.cluster.remove_node(name);
        self.is_renominating = true;
        self.keeper.touch_all_on(name);
        self.settle_all(now);
    }

    /// Time passed: nodes may have opened because what was measured of them is too old to count.
    pub(super) fn pass_time(&mut self, now: Time) {
        for name in self.world.cluster.pass_time(now) {
            self.load_changed(now, Action::UPDATE, name);
        }
    }

    pub(super) fn node_is_measured(&mut self, now: Time, object: &NodeMetric) {
        let action = match self.world.cluster.set_metric(object) {
            None => return,
            Some(true) => Action::ADD,
            Some(false) => Action::UPDATE,
        };
        self.load_changed(now, action, object.metadata.name.as_deref().unwrap_or_default().into());
    }

    pub(super) fn node_metric_is_gone(&mut self, now: Time, name: &str) {
        if self.world.cluster.remove_metric(name) {
            self.load_changed(now, Action::DELETE, name.into());
        }
    }

    fn load_changed(&mut self, now: Time, action: Action, node: Arc<str>) {
        let event = Event::new(Resource::node_metrics(), action);
        let change = Change::Object { namespace: "".into(), name: node };
        self.queue.move_all(&mut self.world, &event, &change, |_| true, now);
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
