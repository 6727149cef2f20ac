//! Small clusters for the tests of plugins: what is not mentioned does not matter.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{Cluster, Row};
use crate::framework::event::Event;
use crate::framework::hint::{Hint, Interest, Registrations};
use crate::framework::plugin_set::PluginId;
use crate::framework::{
    Change, Code, Cycle, HintInput, Hooks, NodeView, Preparation, Sieve, Status, changes,
};
use crate::pod::Pod;
use crate::profile::args::DefaultConstraints;

/// The scheduler that pods of tests are for.
pub(crate) const SCHEDULER: &str = "default-scheduler";

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    /// In the order they came.
    nodes: Vec<String>,
}

/// Puts the fields of `over` into `base`, objects into objects.
pub(crate) fn merged(mut base: Value, over: &Value) -> Value {
    match (&mut base, over) {
        (Value::Object(fields), Value::Object(over)) => {
            for (key, value) in over {
                let before = fields.remove(key).unwrap_or(Value::Null);
                fields.insert(key.clone(), merged(before, value));
            }
            base
        }
        _ => over.clone(),
    }
}

impl World {
    pub(crate) fn new() -> World {
        let mut cluster = Cluster::default();
        cluster.set_default_spread(SCHEDULER, &DefaultConstraints::System);
        World { cluster, nodes: Vec::new() }
    }

    /// A large node; `over` has fields of the object.
    pub(crate) fn node(&mut self, name: &str, over: Value) -> &mut World {
        let base = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "100", "memory": "100Gi", "pods": "110"}}});
        let object = serde_json::from_value(merged(base, &over)).unwrap();
        if self.cluster.set_node(&object) {
            self.nodes.push(name.to_owned());
        }
        self
    }

    /// A node with these labels.
    pub(crate) fn labelled(&mut self, name: &str, labels: Value) -> &mut World {
        self.node(name, json!({"metadata": {"labels": labels}}))
    }

    /// A pod that waits; `over` has fields of the object.
    pub(crate) fn pod(&mut self, name: &str, over: Value) -> Arc<Pod> {
        let base = json!({"metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"schedulerName": SCHEDULER, "containers": [{"name": "c"}]}});
        Arc::new(self.cluster.compile(&serde_json::from_value(merged(base, &over)).unwrap()))
    }

    /// A pod on a node.
    pub(crate) fn place(&mut self, name: &str, node: &str, over: Value) -> Arc<Pod> {
        let pod = self.pod(name, merged(over, &json!({"spec": {"nodeName": node}})));
        assert_eq!(self.cluster.confirm(pod.clone()), None);
        pod
    }

    /// So many pods with these labels on a node.
    pub(crate) fn crowd(&mut self, node: &str, count: usize, labels: &Value) {
        for i in 0..count {
            self.place(&format!("{node}-{i}"), node, json!({"metadata": {"labels": labels}}));
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.nodes.iter().filter_map(|name| self.cluster.row(name)).collect()
    }

    /// What a plugin says of each node, in the order they came; empty for those that pass.
    pub(crate) fn filtered(&mut self, hooks: &Hooks, pod: &Arc<Pod>) -> Vec<String> {
        let statuses = self.statuses(hooks, pod);
        statuses.iter().map(|status| status.as_ref().map_or(String::new(), Status::to_string)).collect()
    }

    pub(crate) fn statuses(&mut self, hooks: &Hooks, pod: &Arc<Pod>) -> Vec<Option<Status>> {
        self.cluster.attend(&pod.class);
        let rows = self.rows();
        let mut cycle = Cycle::new(&self.cluster, pod);
        let mut left = rows.clone();
        if let Some(plugin) = &hooks.pre_filter {
            match plugin.prepare(&mut cycle) {
                Ok(Preparation::Go) => {}
                Ok(Preparation::Skip) => return vec![None; rows.len()],
                Ok(Preparation::Only(only)) => left.retain(|row| only.contains(row)),
                Err(status) => return vec![Some(status); rows.len()],
            }
        }
        let plugin = hooks.filter.as_ref().unwrap();
        let mut sieve = Sieve::default();
        sieve.refill(left.clone());
        plugin.sift(&cycle, &mut sieve);
        let verdict = |row: &Row| {
            let left_out = || Status::unresolvable(hooks.name, "left out");
            let one = match left.contains(row) {
                true => plugin.check(&cycle, &NodeView::of(&self.cluster, *row)).err(),
                false => Some(left_out()),
            };
            let sifted = sieve.rejected().find(|(known, _)| known == row).map(|(_, status)| status);
            let is_same = match (&one, sifted) {
                (Some(one), Some(sifted)) => one.reads_like(sifted),
                (None, None) => sieve.left().contains(row),
                _ => !left.contains(row),
            };
            assert!(is_same, "one by one {one:?}, together {sifted:?}");
            one
        };
        rows.iter().map(verdict).collect()
    }

    /// Raw and final scores of these nodes; none when the plugin has nothing to say.
    pub(crate) fn scores(
        &mut self,
        hooks: &Hooks,
        pod: &Arc<Pod>,
        nodes: &[&str],
    ) -> Option<(Vec<i64>, Vec<i64>)> {
        self.cluster.attend(&pod.class);
        let rows: Vec<Row> = nodes.iter().filter_map(|name| self.cluster.row(name)).collect();
        let mut cycle = Cycle::new(&self.cluster, pod);
        let plugin = hooks.score.as_ref().unwrap();
        if !plugin.prepare(&mut cycle, &rows).unwrap() {
            return None;
        }
        let raw: Vec<i64> =
            rows.iter().map(|row| plugin.score(&cycle, &NodeView::of(&self.cluster, *row))).collect();
        let mut scores = vec![7; rows.len()];
        plugin.rate(&cycle, &rows, &mut scores);
        assert_eq!(scores, raw, "one by one and together");
        plugin.normalize(&cycle, &rows, &mut scores);
        Some((raw, scores))
    }

    /// Final scores of all nodes.
    pub(crate) fn rated(&mut self, hooks: &Hooks, pod: &Arc<Pod>) -> Vec<i64> {
        let nodes = self.nodes.clone();
        let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
        self.scores(hooks, pod, &names).unwrap().1
    }

    /// Whether an event wakes a pod that the plugin refused.
    pub(crate) fn wakes(&self, hooks: &Hooks, pod: &Arc<Pod>, event: &Event, change: &Change) -> bool {
        let plugin = PluginId::new(0).unwrap();
        let mut registrations = Registrations::default();
        let interest = hooks.interest.clone().map_or(Interest::Everything, Interest::Only);
        registrations.register(plugin, interest);
        let input = HintInput { cluster: &self.cluster, pod, event, change };
        let said = |hint: &Option<crate::framework::HintFn>| match hint {
            None => Hint::Queue,
            Some(function) => function(&input),
        };
        let mut matching = registrations.of(plugin).iter().filter(|r| r.event.matches(event));
        matching.any(|registration| said(&registration.hint) == Hint::Queue)
    }

    /// Whether a change of a node wakes the pod; the node is changed by it.
    pub(crate) fn node_wakes(&mut self, hooks: &Hooks, pod: &Arc<Pod>, name: &str, over: Value) -> bool {
        use crate::framework::event::{Action, Resource};
        let facts = |world: &World| {
            let row = world.cluster.row(name)?;
            Some(Arc::new(world.cluster.node(row).without_pods())).filter(|node| node.is_real)
        };
        let old = facts(self);
        self.node(name, over);
        let new = facts(self);
        let events = match (&old, &new) {
            (Some(old), Some(new)) => changes::node_events(old, new),
            _ => vec![Event::new(Resource::Node, Action::ADD)],
        };
        let change = Change::Node { old, new };
        events.iter().any(|event| self.wakes(hooks, pod, event, &change))
    }

    /// Whether a change of a pod wakes the waiting one.
    pub(crate) fn pod_wakes(
        &mut self,
        hooks: &Hooks,
        pod: &Arc<Pod>,
        old: Option<&Arc<Pod>>,
        new: Option<&Arc<Pod>>,
    ) -> bool {
        use crate::framework::event::{Action, Resource};
        let is_assigned = new.or(old).is_some_and(|pod| !pod.node.is_empty());
        let resource = if is_assigned { Resource::AssignedPod } else { Resource::UnscheduledPod };
        let events = match (old, new) {
            (Some(old), Some(new)) => changes::pod_events(old, new, is_assigned),
            (None, _) => vec![Event::new(resource, Action::ADD)],
            (_, None) => vec![Event::new(resource, Action::DELETE)],
        };
        let change = Change::Pod { old: old.cloned(), new: new.cloned() };
        events.iter().any(|event| self.wakes(hooks, pod, event, &change))
    }
}

/// Whether a verdict says that taking pods away cannot help.
pub(crate) fn is_hopeless(status: &Option<Status>) -> bool {
    status.as_ref().is_some_and(|status| status.code == Code::Unresolvable)
}
