//! Where a pod is, since when, why, and what will wake it: the queue's part of an explanation.

use super::heap::Heap;
use super::store::Place;
use super::{Gate, Host, PodKey, PodUid, Queue, QueueName, QueuedPod, order};
use crate::framework::event::Event;
use crate::framework::plugin_set::{PluginId, PluginSet};
use crate::time::Time;

/// Where a pod is.
#[derive(Debug)]
pub enum Whereabouts<'a, P> {
    Queued(Waiting<'a, P>),
    /// Being scheduled or bound, since then.
    InFlight {
        since: Time,
    },
}

/// Why a queued pod waits, and for what.
#[derive(Debug)]
pub struct Waiting<'a, P> {
    pub record: &'a QueuedPod<P>,
    pub queue: QueueName,
    /// When it came there.
    pub since: Time,
    /// The plugins that refused it last; none after an error, or before the first attempt.
    pub rejectors: PluginSet,
    pub gate: Option<&'a Gate>,
    /// Its last attempt failed without a verdict, so it is not tried before its backoff ends.
    pub is_error: bool,
    /// How many pods of the active queue are tried before it.
    pub ahead: Option<usize>,
    /// When its backoff ends; it may be over.
    pub backoff_ends: Option<Time>,
    /// When it goes to the active queue though nothing happens.
    pub moved_at: Option<Time>,
    /// The events that may wake it, by plugin. A hint function may still see that one does not help.
    pub woken_by: Vec<(PluginId, &'a Event)>,
}

impl<H: Host> Queue<H> {
    /// Where the pod is; none when the queue does not know it.
    pub fn whereabouts(&self, host: &H, key: &PodKey, uid: &PodUid) -> Option<Whereabouts<'_, H::Content>> {
        if let Some(flying) = self.in_flight.find(uid) {
            return Some(Whereabouts::InFlight { since: flying.since });
        }
        let slot = self.store.find(key)?;
        let record = self.store.get(slot);
        let place = self.store.place(slot);
        let is_before = order(self.options.sort, &self.store, host);
        let moved_at = match place {
            Place::Backoff | Place::ErrorBackoff => record.backoff_ends.map(Time::next_second),
            Place::Pool if !record.is_gated() => {
                Some(self.pool_search_after(record.timestamp + self.options.max_in_unschedulable))
            }
            Place::Pool | Place::Active | Place::Nowhere => None,
        };
        Some(Whereabouts::Queued(Waiting {
            record,
            queue: self.queue_of(slot),
            since: record.since,
            rejectors: record.rejectors(),
            gate: record.gate.as_deref(),
            is_error: place == Place::ErrorBackoff,
            ahead: self
                .active
                .entry(slot)
                .map(|own| self.active.entries().iter().filter(|other| is_before(other, own)).count()),
            backoff_ends: record.backoff_ends,
            moved_at,
            woken_by: if place == Place::Pool { self.woken_by(record) } else { Vec::new() },
        }))
    }

    /// The pods of one queue: the active one as it would be popped, backoff by its end, the others as they
    /// came.
    pub fn list(&self, host: &H, queue: QueueName) -> Vec<&QueuedPod<H::Content>> {
        let sorted = |heap: &Heap, sort| {
            let is_before = order(sort, &self.store, host);
            let mut entries = heap.entries().to_vec();
            entries.sort_by(|a, b| is_before(b, a).cmp(&is_before(a, b)));
            entries.into_iter().map(|entry| self.store.get(entry.slot)).collect::<Vec<_>>()
        };
        match queue {
            QueueName::Active => sorted(&self.active, self.options.sort),
            QueueName::Backoff => {
                let mut records = sorted(&self.backoff, self.backoff_sort());
                records.extend(sorted(&self.error_backoff, super::Sort::Priority));
                records.sort_by_key(|record| record.backoff_ends);
                records
            }
            QueueName::Unschedulable | QueueName::Gated => {
                let is_gated = queue == QueueName::Gated;
                let in_pool = self.store.iter().filter(|(place, _)| *place == Place::Pool);
                let mut records: Vec<_> = in_pool
                    .map(|(_, record)| record)
                    .filter(|record| record.is_gated() == is_gated)
                    .collect();
                records.sort_by_key(|record| record.sequence);
                records
            }
        }
    }

    /// The pods that wait for something to change, in no order.
    pub fn pooled(&self) -> impl Iterator<Item = &QueuedPod<H::Content>> {
        self.pool.groups().flat_map(|(_, slots)| slots).map(|slot| self.store.get(*slot))
    }

    /// Pods that are being scheduled or bound, in the order in which they were taken out.
    pub fn in_flight(&self) -> impl Iterator<Item = &super::Flying> {
        self.in_flight.pods()
    }

    /// What is registered by the plugins that refused the pod. Of a gated pod only what its gate hears of
    /// counts, besides its own updates.
    fn woken_by(&self, record: &QueuedPod<H::Content>) -> Vec<(PluginId, &Event)> {
        let Some(profile) = self.profiles.get(usize::from(record.pod.profile.0)) else {
            return Vec::new();
        };
        let plugins = match &record.gate {
            Some(gate) => [gate.plugin].into_iter().collect(),
            None => record.rejectors(),
        };
        let registered = |plugin| {
            let list = profile.registrations.of(plugin).iter();
            list.map(move |registration| (plugin, &registration.event))
        };
        plugins.iter().flat_map(registered).collect()
    }
}
