//! What the queue asks of its owner, and how it is set up.

use std::cmp::Ordering;
use std::time::Duration;

use super::record::{Pod, QueuedPod};
use crate::framework::event::Event;
use crate::framework::hint::{Hint, Registrations};
use crate::framework::plugin_set::PluginId;
use crate::framework::status::Status;

/// The owner of the queue: it knows pods and plugins.
pub trait Host {
    /// The content of a pod, or a handle to it.
    type Content;
    /// The objects behind an event, old and new. Kept while pods are in flight, so cheap to copy.
    type Change: Clone;
    /// What plugins register as their hint functions.
    type HintFn;

    /// Whether a PreEnqueue plugin lets the pod pass.
    fn pre_enqueue(&mut self, plugin: PluginId, pod: &QueuedPod<Self::Content>) -> Result<(), Status>;

    /// Asks a plugin's hint function whether the event may help the pod. An error counts as `Queue`.
    fn hint(
        &mut self,
        plugin: PluginId,
        function: &Self::HintFn,
        pod: &QueuedPod<Self::Content>,
        event: &Event,
        change: &Self::Change,
    ) -> Result<Hint, Status>;

    /// The QueueSort plugin, asked only when `Sort::Host` is set. What it calls equal goes first come, first
    /// served. When its answers change for pods that are queued, call `Queue::resort`.
    fn order(&self, a: &QueuedPod<Self::Content>, b: &QueuedPod<Self::Content>) -> Ordering {
        priority_sort(a, b)
    }

    /// Whether the pod, as last seen in the cluster, exists and has no node. Only such pods are nominated.
    fn is_waiting(&self, pod: &Pod<Self::Content>) -> bool;
}

/// PrioritySort: higher priority first, then the one that waits longer.
pub fn priority_sort<P>(a: &QueuedPod<P>, b: &QueuedPod<P>) -> Ordering {
    b.pod.priority.cmp(&a.pod.priority).then(a.timestamp.cmp(&b.timestamp))
}

/// Who orders the active queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// PrioritySort, from keys kept in the heap.
    #[default]
    Priority,
    /// `Host::order`.
    Host,
}

/// What a profile brings to the queue.
#[derive(Clone, Debug)]
pub struct Profile<F> {
    /// In configured order.
    pub pre_enqueue: Vec<PluginId>,
    pub registrations: Registrations<F>,
}

impl<F> Default for Profile<F> {
    fn default() -> Profile<F> {
        Profile { pre_enqueue: Vec::new(), registrations: Registrations::default() }
    }
}

/// Settings, with kube-scheduler's defaults.
#[derive(Clone, Debug)]
pub struct Options {
    pub initial_backoff: Duration,
    /// Zero: no backoff at all.
    pub max_backoff: Duration,
    pub max_in_unschedulable: Duration,
    /// Gate SchedulerQueueingHints.
    pub uses_hints: bool,
    /// Gate SchedulerPopFromBackoffQ.
    pub pops_from_backoff: bool,
    pub sort: Sort,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            max_in_unschedulable: Duration::from_secs(5 * 60),
            uses_hints: true,
            pops_from_backoff: true,
            sort: Sort::Priority,
        }
    }
}
