//! Reading what the engine knows, for people and metrics. Nothing here changes anything.

use std::sync::Arc;

use crate::framework::PluginName;
use crate::pod::Pod;
use crate::queue::{self, QueueName};
use crate::time::Time;

use super::{Engine, Subject};

/// A pod that waits to be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Queued {
    pub pod: Subject,
    pub scheduler: Box<str>,
    pub priority: i32,
    pub attempts: u32,
    /// Since when it is where it is.
    pub since: Time,
    /// When it could first be tried.
    pub first: Option<Time>,
    /// Plugins that refused it last.
    pub rejectors: Vec<PluginName>,
    /// The plugin that holds it back, and its words.
    pub gate: Option<(PluginName, String)>,
    /// The node that it is promised.
    pub nominated: Option<Box<str>>,
    /// What users were last told.
    pub message: Option<String>,
}

impl Engine {
    /// The pods of one part of the queue.
    pub fn queued(&self, part: QueueName) -> Vec<Queued> {
        self.queue.list(&self.world, part).into_iter().map(|record| self.queued_pod(record)).collect()
    }

    fn queued_pod(&self, record: &super::world::QueueRecord) -> Queued {
        let pod = &record.pod.content;
        let told = self.world.waiting.get(&pod.uid).and_then(|waiting| waiting.written.as_ref());
        Queued {
            pod: Subject::of(pod),
            scheduler: self.world.framework(record.pod.profile).scheduler.clone(),
            priority: record.pod.priority,
            attempts: record.attempts,
            since: record.since,
            first: record.initial_attempt,
            rejectors: record.rejectors().iter().map(|id| self.world.plugins.name(id)).collect(),
            gate: record
                .gate
                .as_ref()
                .map(|gate| (self.world.plugins.name(gate.plugin), gate.status.to_string())),
            nominated: self.queue.nominated_node(&record.pod.uid).map(|node| node.as_str().into()),
            message: told
                .map(|(_, message, _)| message.clone())
                .or_else(|| pod.condition.as_ref().map(|told| told.message.to_string())),
        }
    }

    /// Pods without a node, ours and others', that have no place either; in no order.
    pub fn unplaced(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let ours = self.world.waiting.values().map(|waiting| &waiting.pod);
        let has_no_place = |pod: &&Arc<Pod>| self.world.cluster.held(&pod.uid).is_none();
        ours.chain(self.world.others.values()).filter(has_no_place)
    }

    /// The version of a pod that the engine knows; none when it knows no such pod.
    pub fn revision_of(&self, namespace: &str, name: &str) -> Option<&str> {
        let is_it = |pod: &&Arc<Pod>| *pod.key.name == *name && *pod.key.namespace == *namespace;
        let placed = self.world.cluster.all_held().map(|held| &held.pod);
        placed.chain(self.unplaced()).find(is_it).map(|pod| &*pod.revision)
    }

    /// Pods that are being bound, with the node each will have, in no order.
    pub fn binding(&self) -> impl Iterator<Item = (Subject, &str)> {
        self.bindings.values().map(|binding| {
            (Subject::of(&binding.record.pod.content), &*self.world.cluster.node(binding.row).name)
        })
    }

    /// Counter `queue_incoming_pods_total`: part, cause, count.
    pub fn incoming(&self) -> impl Iterator<Item = (QueueName, String, u64)> {
        self.queue.incoming().iter().map(|((part, cause), count)| (*part, cause.to_string(), *count))
    }

    /// Gauge `unschedulable_pods`: plugin, scheduler, count.
    pub fn held_up(&self) -> impl Iterator<Item = (PluginName, &str, u64)> {
        self.queue.unschedulable().iter().map(|((profile, plugin), count)| {
            let queue::ProfileId(at) = *profile;
            let scheduler = &*self.world.frameworks[usize::from(at)].scheduler;
            (self.world.plugins.name(*plugin), scheduler, *count)
        })
    }
}
