//! A short beginning instead of a long one: of each object only what was said last.
//!
//! Two passes over the same lines, so that no object has to be kept: `note` learns which line is the last about each
//! object, `keep` says which lines stay.

use std::collections::HashMap;

use super::{Entry, RecordError};
use crate::engine::Input;
use crate::engine::input::{Storage, StorageKind, Workload, WorkloadKind};
use crate::time::Time;

/// Which object an input is about.
type Key = (u8, String, String);

/// What is left of a history.
#[derive(Debug, Default)]
pub struct Folder {
    /// Objects that exist, and the number of the line that said so last.
    last: HashMap<Key, u64>,
    noted: u64,
    kept: u64,
    until: Time,
}

impl Folder {
    /// First pass: learns from one line.
    pub fn note(&mut self, line: &[u8]) -> Result<(), RecordError> {
        let number = self.noted;
        self.noted += 1;
        match Entry::decode(line)? {
            Entry::Input { at, input } => {
                self.until = at;
                match about(&input) {
                    Some((key, true)) => drop(self.last.insert(key, number)),
                    Some((key, false)) => drop(self.last.remove(&key)),
                    None => {}
                }
            }
            Entry::Steps(times) => self.until = times.last().copied().unwrap_or(self.until),
            Entry::Cut { at } => self.until = at,
            Entry::Header(_) | Entry::Digest(_) | Entry::Said(_) => {}
        }
        Ok(())
    }

    /// Second pass, over the same lines in the same order: whether the line stays.
    pub fn keep(&mut self, line: &[u8]) -> Result<bool, RecordError> {
        let number = self.kept;
        self.kept += 1;
        Ok(match Entry::decode(line)? {
            Entry::Header(_) => true,
            Entry::Input { input, .. } => {
                about(&input).is_some_and(|(key, _)| self.last.get(&key) == Some(&number))
            }
            Entry::Steps(_) | Entry::Said(_) | Entry::Digest(_) | Entry::Cut { .. } => false,
        })
    }

    /// What goes after the lines that stay.
    pub fn end(&self) -> Vec<u8> {
        let mut line = Vec::new();
        Entry::Cut { at: self.until }.encode(&mut line);
        line
    }
}

/// The object that an input is about, and whether it exists.
fn about(input: &Input) -> Option<(Key, bool)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let named = |kind: u8, metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        ((kind, text(&metadata.namespace), text(&metadata.name)), true)
    };
    Some(match input {
        // By UID: a pod that comes again under its name is another one.
        Input::Pod { object } => ((0, text(&object.metadata.uid), String::new()), true),
        Input::PodGone { uid, .. } => ((0, uid.clone(), String::new()), false),
        Input::Node { object } => named(1, &object.metadata),
        Input::NodeGone { name } => ((1, String::new(), name.clone()), false),
        Input::Namespace { object } => named(2, &object.metadata),
        Input::NamespaceGone { name } => ((2, String::new(), name.clone()), false),
        Input::NodeMetric { object } => named(4, &object.metadata),
        Input::NodeMetricGone { name } => ((4, String::new(), name.clone()), false),
        Input::Budget { object } => named(3, &object.metadata),
        Input::BudgetGone { namespace, name } => ((3, namespace.clone(), name.clone()), false),
        Input::Workload { object } => match object {
            Workload::Service(o) => named(10, &o.metadata),
            Workload::ReplicationController(o) => named(11, &o.metadata),
            Workload::ReplicaSet(o) => named(12, &o.metadata),
            Workload::StatefulSet(o) => named(13, &o.metadata),
        },
        Input::WorkloadGone { kind, namespace, name } => {
            ((10 + place(WORKLOADS, *kind), namespace.clone(), name.clone()), false)
        }
        Input::Storage { object } => match object {
            Storage::PersistentVolume(o) => named(20, &o.metadata),
            Storage::PersistentVolumeClaim(o) => named(21, &o.metadata),
            Storage::StorageClass(o) => named(22, &o.metadata),
            Storage::CsiNode(o) => named(23, &o.metadata),
            Storage::CsiDriver(o) => named(24, &o.metadata),
            Storage::CsiStorageCapacity(o) => named(25, &o.metadata),
            Storage::VolumeAttachment(o) => named(26, &o.metadata),
        },
        Input::StorageGone { kind, namespace, name } => {
            ((20 + place(STORAGE, *kind), namespace.clone(), name.clone()), false)
        }
        Input::Reservation { object } => named(4, &object.metadata),
        Input::ReservationGone { name, .. } => ((4, String::new(), name.clone()), false),
        Input::Outcome { .. } | Input::Activate { .. } | Input::Tick => return None,
    })
}

/// In the order of the numbers above.
const WORKLOADS: &[WorkloadKind] = &[
    WorkloadKind::Service,
    WorkloadKind::ReplicationController,
    WorkloadKind::ReplicaSet,
    WorkloadKind::StatefulSet,
];
const STORAGE: &[StorageKind] = &[
    StorageKind::PersistentVolume,
    StorageKind::PersistentVolumeClaim,
    StorageKind::StorageClass,
    StorageKind::CsiNode,
    StorageKind::CsiDriver,
    StorageKind::CsiStorageCapacity,
    StorageKind::VolumeAttachment,
];

fn place<T: PartialEq>(list: &[T], item: T) -> u8 {
    list.iter().position(|known| *known == item).and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
}
