//! Why a pod is where it is: its state, what every node lacks, who has it, and the cheapest change that would help.
//!
//! Pure data, made on demand without a new attempt (`Engine::explain`) and rendered as JSON, as text (`text`) or as the
//! message of Kubernetes. `survey` asks every plugin about every node, `propose` thinks of single changes, each of
//! which is then tried on the plugins before it is offered.

use serde::{Deserialize, Serialize};

use crate::time::Time;

mod amount;
mod busy;
mod cause;
mod change;
mod holder;
mod new_node;
mod pending;
mod propose;
mod survey;
mod text;
mod waking;

#[cfg(test)]
mod tests;

pub use busy::LoadLack;
pub use cause::{Cause, Check, Lack};
pub use change::{Change, Fix};
pub use holder::{Holder, Reserves};
pub use pending::{PendingGroup, PendingReport};
pub use waking::Wake;

pub(crate) use cause::{causes, checks, summary};
pub(crate) use holder::holders;
pub(crate) use pending::{
    Common, GROUPS_EXPLAINED, Grouping, Member, representative, texts_of, unknown_scheduler,
};
pub(crate) use propose::propose;
pub(crate) use survey::{Against, Judges, NEAREST, Survey};
pub(crate) use waking::wakes;

/// Everything about one pod, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `namespace/name`, or the name of a Reservation.
    pub pod: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reservation: bool,
    pub uid: String,
    pub scheduler: String,
    pub priority: i32,
    /// When all this was so.
    pub at: Time,
    pub state: State,
    /// The answer in one line.
    pub summary: String,
    /// What the event would say if the pod were tried now; none for pods that fit, or have a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What users were told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
    /// All nodes of the cluster.
    pub nodes: usize,
    /// Those that could take the pod now.
    pub nodes_that_fit: usize,
    /// What the message counts, with the numbers behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Cause>,
    /// Single changes after which the pod fits, the cheapest first. Each was tried on the plugins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Fix>,
    /// The nodes that lack the least.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<NearNode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionPlan>,
    /// What makes the scheduler try again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakes: Vec<Wake>,
}

impl Explanation {
    /// Of a Reservation that cannot be scheduled at all.
    pub(crate) fn of_reservation(
        at: Time,
        name: String,
        uid: String,
        state: State,
        summary: String,
    ) -> Explanation {
        Explanation {
            pod: name,
            is_reservation: true,
            uid,
            scheduler: String::new(),
            priority: 0,
            at,
            state,
            summary,
            message: None,
            told: None,
            nodes: 0,
            nodes_that_fit: 0,
            reasons: Vec::new(),
            changes: Vec::new(),
            nearest: Vec::new(),
            preemption: None,
            wakes: Vec::new(),
        }
    }
}

/// Where a pod is on its way to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum State {
    /// It is tried as soon as those before it have been.
    Active {
        since: Time,
        attempts: u32,
        /// 1 is tried next.
        position: usize,
    },
    /// It was tried lately and rests.
    Backoff {
        since: Time,
        attempts: u32,
        ends: Option<Time>,
        /// The last attempt broke, as opposed to finding no node.
        after_error: bool,
    },
    /// No node took it; it waits for something to change.
    Unschedulable {
        since: Time,
        attempts: u32,
        /// When it is tried though nothing changed.
        retried_at: Option<Time>,
    },
    /// A plugin does not let it into the queue.
    Gated { since: Time, plugin: String, message: String },
    /// Being tried.
    InFlight { since: Time },
    /// It has a node, and plugins want to wait before it is bound.
    WaitingAtPermit { since: Time, node: String, waits_for: Vec<PermitWait> },
    /// It has a node; the API is being told.
    Binding { since: Time, node: String, step: BindStep },
    Bound {
        node: String,
        /// When it started there; none while it has not.
        since: Option<Time>,
    },
    /// A Reservation that holds nothing any more.
    Ended { phase: String },
    /// It asks for a scheduler that is none of ours.
    UnknownScheduler {
        /// Ours.
        known: Vec<String>,
    },
}

/// A plugin that wants to wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermitWait {
    pub plugin: String,
    /// When its patience ends.
    pub until: Time,
}

/// How far a bind is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BindStep {
    /// What comes first is being written: volumes, annotations.
    Preparing,
    /// It is written and has to take effect.
    Settling,
    Binding,
}

/// What users were told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    pub message: String,
    /// None when it was before this process began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// A node that lacks little.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NearNode {
    pub node: String,
    /// Everything that is said against it, by all plugins.
    pub checks: Vec<Check>,
    /// The pods there that have most of what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
}

/// What taking pods away could do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionPlan {
    /// Where room would be made; none when preemption does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// How many of them a disruption budget protects.
    #[serde(default)]
    pub violations: usize,
    /// Why not, in the words of the event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why_not: String,
}
