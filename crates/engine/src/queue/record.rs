//! What the queue knows about a pod: who it is, and the history of its attempts.
//!
//! The pod's content is the owner's; the queue only hands it back. Spec: scheduler-core 1.1.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::framework::plugin_set::{PluginId, PluginSet};
use crate::framework::status::Status;
use crate::time::Time;

/// Text that is cheap to copy, compare and hash.
#[derive(Clone)]
struct Name {
    text: Arc<str>,
    /// Of the text; the same in every run.
    hash: u64,
}

impl Name {
    fn new(text: Arc<str>) -> Name {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Name { hash: hasher.finish(), text }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<S: Hasher>(&self, state: &mut S) {
        state.write_u64(self.hash);
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// A name that means one thing only.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Name);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0.text
            }
        }

        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> $name {
                $name(Name::new(text))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(Name::new(text.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

name! {
    /// `namespace/name` of a pod; what the queues know pods by.
    PodKey
}
name! {
    /// `metadata.uid` of a pod; what in-flight pods and nominations are known by.
    PodUid
}
name! {
    /// The name of a node, which need not exist.
    NodeName
}

impl PodKey {
    pub fn new(namespace: &str, name: &str) -> PodKey {
        PodKey(Name::new(format!("{namespace}/{name}").into()))
    }
}

/// A profile: its place in the list that the queue was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileId(pub u16);

/// A pod as its owner hands it over.
#[derive(Clone, Debug)]
pub struct Pod<P> {
    pub key: PodKey,
    pub uid: PodUid,
    pub profile: ProfileId,
    pub priority: i32,
    /// `status.nominatedNodeName`.
    pub nominated: Option<NodeName>,
    pub content: P,
}

/// A pod in the queue, or just taken out of it.
#[derive(Clone, Debug)]
pub struct QueuedPod<P> {
    pub pod: Pod<P>,
    /// When it was last added; what PrioritySort goes by, and where backoff starts.
    pub timestamp: Time,
    /// When it came to where it is now.
    pub since: Time,
    /// When it could first be tried.
    pub initial_attempt: Option<Time>,
    /// How often it was taken out to be tried.
    pub attempts: u32,
    /// How often plugins refused it.
    pub unschedulable_count: u32,
    /// How many of its last attempts in a row failed without a verdict.
    pub consecutive_errors: u32,
    /// The plugins that refused it in its last attempt.
    pub unschedulable_plugins: PluginSet,
    /// Those of them whose event wakes it without backoff.
    pub pending_plugins: PluginSet,
    /// The PreEnqueue plugin that holds it.
    pub gate: Option<Box<Gate>>,
    /// The scheduling cycle that it was last taken out for.
    pub cycle: u64,
    /// When its backoff ends; computed when first needed.
    pub(super) backoff_ends: Option<Time>,
    /// Orders what is otherwise equal: first come, first served.
    pub(super) sequence: u64,
}

/// Why a pod is not let into the active queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    pub plugin: PluginId,
    pub status: Status,
}

impl<P> QueuedPod<P> {
    pub(super) fn new(pod: Pod<P>, now: Time) -> QueuedPod<P> {
        QueuedPod {
            pod,
            timestamp: now,
            since: now,
            initial_attempt: None,
            attempts: 0,
            unschedulable_count: 0,
            consecutive_errors: 0,
            unschedulable_plugins: PluginSet::EMPTY,
            pending_plugins: PluginSet::EMPTY,
            gate: None,
            cycle: 0,
            backoff_ends: None,
            sequence: 0,
        }
    }

    /// All plugins that refused it, pending ones included.
    pub fn rejectors(&self) -> PluginSet {
        self.unschedulable_plugins.union(self.pending_plugins)
    }

    pub fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    /// Forgets the verdicts of the last attempt; a new one begins.
    pub(super) fn start_attempt(&mut self, cycle: u64) {
        self.unschedulable_plugins = PluginSet::EMPTY;
        self.pending_plugins = PluginSet::EMPTY;
        self.gate = None;
        self.cycle = cycle;
    }
}
