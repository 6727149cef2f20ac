//! What the queue counts: pods that came into each part and why, and whom plugins hold up.
//!
//! Data only; metric pages are rendered elsewhere. Spec: scheduler-core 8.3.

use std::collections::BTreeMap;
use std::fmt;

use super::record::ProfileId;
use crate::framework::event::Event;
use crate::framework::plugin_set::{PluginId, PluginSet};

/// A part of the queue, as metrics and people know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueName {
    Active,
    Backoff,
    Unschedulable,
    Gated,
}

impl QueueName {
    /// The part of the queue as pods move between them: gated pods are in the unschedulable pool.
    pub fn part(self) -> QueueName {
        if self == QueueName::Gated { QueueName::Unschedulable } else { self }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueName::Active => "active",
            QueueName::Backoff => "backoff",
            QueueName::Unschedulable => "unschedulable",
            QueueName::Gated => "gated",
        })
    }
}

/// Why a pod came into a part of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    Event(Event),
    ScheduleAttemptFailure,
    BackoffComplete,
    PopFromBackoffQ,
}

/// The `event` label of `queue_incoming_pods_total`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Event(event) => event.fmt(f),
            Cause::ScheduleAttemptFailure => f.write_str("ScheduleAttemptFailure"),
            Cause::BackoffComplete => f.write_str("BackoffComplete"),
            Cause::PopFromBackoffQ => f.write_str("PopFromBackoffQ"),
        }
    }
}

/// How many pods each part holds: `pending_pods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    incoming: BTreeMap<(QueueName, Cause), u64>,
    unschedulable: BTreeMap<(ProfileId, PluginId), u64>,
    /// What the queue was last told of, if that is to be remembered.
    remembers_event: bool,
    event: Option<Event>,
}

impl Counts {
    pub(super) fn remember_events(&mut self) {
        self.remembers_event = true;
    }

    pub(super) fn heard(&mut self, event: &Event) {
        if self.remembers_event {
            self.event = Some(event.clone());
        }
    }

    pub(super) fn take_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    pub(super) fn came(&mut self, queue: QueueName, cause: &Cause) {
        *self.incoming.entry((queue, cause.clone())).or_default() += 1;
    }

    // Differs: upstream counts refusals, and pods that are deleted stay counted.
    pub(super) fn hold(&mut self, profile: ProfileId, plugins: PluginSet) {
        for plugin in plugins.iter() {
            *self.unschedulable.entry((profile, plugin)).or_default() += 1;
        }
    }

    pub(super) fn release(&mut self, profile: ProfileId, plugins: PluginSet) {
        for plugin in plugins.iter() {
            if let Some(count) = self.unschedulable.get_mut(&(profile, plugin)) {
                *count -= 1;
            }
        }
    }

    pub(super) fn incoming(&self) -> &BTreeMap<(QueueName, Cause), u64> {
        &self.incoming
    }

    pub(super) fn unschedulable(&self) -> &BTreeMap<(ProfileId, PluginId), u64> {
        &self.unschedulable
    }
}
