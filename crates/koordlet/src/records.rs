//! What was done to whom, told once and kept twice: as a line of the audit log, and for pods as events on them.
//!
//! [`Records`] is what everyone who acts holds. How events stay few is in `pod_events`. Spec: koordlet-enforce 17.

pub(crate) mod pod_events;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::api::core::v1::ObjectReference;
use koord_api::qos::KubeQos;
use koord_kit::events::{EventType, Flavour, Note, Recorder, Worker, recorder};
use koord_kit::metrics::KitMetrics;

use crate::audit::{Auditor, Subject};
use crate::decide::snapshot::Pod;
use crate::decide::wish::Cause;
use pod_events::{Named, PodEvents};

/// The group of best-effort pods, as records name it.
pub(crate) const BEST_EFFORT: &str = "besteffort";
/// What it is called when something is as it was before koordlet.
pub(crate) const GIVE_BACK: &str = "give back";
/// What shaping traffic is called.
pub(crate) const NETWORK: &str = "netqos reconcile";

/// Who tells users, under the two names that the original has.
#[derive(Clone)]
pub struct Recorders {
    /// `koordlet-qosManager`.
    pub strategies: Recorder,
    /// `koordlet-runtimehook`.
    pub hooks: Recorder,
}

impl Recorders {
    /// Those of a node, and who sends for them.
    pub fn new(client: &kube::Client, node: &str, kit: &KitMetrics) -> (Recorders, [Worker; 2]) {
        let of = |component| {
            let (recorder, worker) = recorder(client.clone(), component, Flavour::Core, kit);
            (recorder, worker.on_host(node))
        };
        let (strategies, first) = of("koordlet-qosManager");
        let (hooks, second) = of("koordlet-runtimehook");
        (Recorders { strategies, hooks }, [first, second])
    }

    fn of(&self, reason: &str) -> &Recorder {
        let is_hook = reason == Cause::RuntimeHook.reason() || reason == NETWORK;
        if is_hook { &self.hooks } else { &self.strategies }
    }
}

/// Takes records. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    auditor: Auditor,
    /// None when nobody wants events.
    events: Option<Events>,
}

#[derive(Clone)]
struct Events {
    recorders: Recorders,
    /// Locked for the time of one note, or of one look at what is due.
    waiting: Arc<Mutex<PodEvents>>,
}

impl Records {
    /// Lines of the audit log alone.
    pub fn only(auditor: Auditor) -> Records {
        Records { auditor, events: None }
    }

    /// And so many events an hour on pods.
    pub fn with_events(auditor: Auditor, recorders: Recorders, per_hour: u32) -> Records {
        let waiting = PodEvents::new(per_hour);
        let events = waiting.map(|waiting| Events { recorders, waiting: Arc::new(Mutex::new(waiting)) });
        Records { auditor, events }
    }

    pub fn auditor(&self) -> &Auditor {
        &self.auditor
    }

    /// Whether somebody wants to hear of it: whoever must work to make a record asks first.
    pub fn are_wanted(&self, level: u32) -> bool {
        self.events.is_some() || self.auditor.is_kept(level)
    }

    /// Takes a record of something that was done.
    pub fn record(&self, level: u32, subject: Subject<'_>, reason: &'static str, message: String) {
        match subject {
            Subject::Pod { uid, namespace, name, container } => {
                if let Some(mut waiting) = self.waiting() {
                    waiting.note_named(uid.into(), (namespace, name), container, reason, &message);
                }
            }
            Subject::Group(BEST_EFFORT) => {
                if let Some(mut waiting) = self.waiting() {
                    waiting.note_best_effort(reason, &message);
                }
            }
            Subject::Group(_) | Subject::Node | Subject::Unknown => {}
        }
        self.auditor.record(level, subject, reason, message);
    }

    /// Takes note for a pod's event only, where the audit log has another line about it.
    pub fn tell_pod(&self, uid: &str, container: &str, reason: &'static str, message: &str) {
        if let Some(mut waiting) = self.waiting() {
            waiting.note(uid, container, reason, message);
        }
    }

    /// The pods of the node now.
    pub fn follow(&self, pods: &[Pod]) {
        let named = |pod: &Pod| {
            let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
            // A pod that has ended is listed until it is deleted; nothing happens to it any more.
            let is_best_effort = pod.id.kube_qos == KubeQos::BestEffort && pod.is_active();
            (pod.id.uid.clone(), Named { namespace, name, is_best_effort })
        };
        if let Some(mut waiting) = self.waiting() {
            waiting.follow(pods.iter().map(named));
        }
    }

    // Differs: upstream has events about evictions and groups of resctrl only; who looks at a pod should see the rest, too.
    /// Makes the events that are due. To be called after every turn.
    pub fn tell(&self, now: Instant) {
        let (Some(events), Some(mut waiting)) = (&self.events, self.waiting()) else { return };
        for telling in waiting.due(now) {
            events.recorders.of(telling.reason).event(Note {
                regarding: pod_reference(&telling.namespace, &telling.name, &telling.uid),
                related: None,
                kind: EventType::Normal,
                reason: camel_case(telling.reason),
                action: String::new(),
                text: telling.text,
            });
        }
    }

    /// The events that would be made now, by pod.
    #[cfg(test)]
    pub(crate) fn due(&self, now: Instant) -> Vec<String> {
        let due = self.waiting().map(|mut waiting| waiting.due(now)).unwrap_or_default();
        due.into_iter()
            .map(|telling| format!("{} {}: {}", telling.name, telling.reason, telling.text))
            .collect()
    }

    /// Forgets what is of no use any more. To be called every few minutes.
    pub fn tidy(&self, now: Instant) {
        let (Some(events), Some(mut waiting)) = (&self.events, self.waiting()) else { return };
        let untold = waiting.tidy(now);
        if untold > 0 {
            tracing::debug!(untold, "pods went, or there were too many, before they were told of changes");
            events.recorders.strategies.count_dropped(untold);
        }
    }

    /// How many things about pods are remembered.
    pub fn kept(&self) -> usize {
        self.waiting().map_or(0, |waiting| waiting.len())
    }

    fn waiting(&self) -> Option<MutexGuard<'_, PodEvents>> {
        // A panic elsewhere leaves notes that are still notes.
        self.events.as_ref().map(|events| events.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A pod as events name it.
pub fn pod_reference(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Reasons of events are one word: `cgroup reconcile` becomes `CgroupReconcile`.
fn camel_case(reason: &str) -> String {
    let words = reason.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .flat_map(|word| word.chars().take(1).map(|c| c.to_ascii_uppercase()).chain(word.chars().skip(1)))
        .collect()
}
