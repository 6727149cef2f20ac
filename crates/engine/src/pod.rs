//! Pods as the engine sees them: a small record each, and a class that pods of one kind share.
//!
//! Two pods of one class are interchangeable for scheduling: same namespace, labels and wishes. Objects
//! are compiled into classes once, when they arrive (`compile`); nothing later reads an object again.

use std::borrow::Cow;
use std::num::NonZeroI64;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::selector::{PreferredTerms, RequiredNodeAffinity};

use crate::cluster::load::PodLoad;
use crate::intern::Sym;
use crate::requests::Requests;

mod compile;
pub mod reservation;
pub mod term;

pub use compile::Compiler;
pub(crate) use compile::constraint_without_pods;
pub use reservation::{Operating, Reference, Reserve, Use, Wants};
pub use term::{PodTerm, SpreadConstraint, WeightedTerm};

/// `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    pub namespace: Arc<str>,
    pub name: Box<str>,
}

impl std::fmt::Display for PodKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One pod.
#[derive(Clone, Debug)]
pub struct Pod {
    pub key: PodKey,
    pub uid: Box<str>,
    pub class: Arc<Class>,
    /// `spec.nodeName`; empty when no node has it.
    pub node: Box<str>,
    /// `status.nominatedNodeName`.
    pub nominated: Box<str>,
    /// Seconds since the epoch; none while it has not started.
    pub started: Option<i64>,
    /// The same for when it was scheduled, and when its init containers were through.
    pub scheduled: Option<NonZeroI64>,
    pub initialized: Option<NonZeroI64>,
    pub is_deleting: bool,
    /// A victim of ours that is on its way out.
    pub is_preempted: bool,
    pub generation: i64,
    /// What the condition `PodScheduled` says while it is false.
    pub condition: Option<Box<Told>>,
    /// For noticing that an update changes nothing.
    pub revision: Box<str>,
    /// Where another scheduler wants it to go; most pods have none.
    pub hint: Option<Arc<NodeHint>>,
    /// The name of the Reservation that it stands for: such a pod exists in the scheduler only. Its `uid` is the
    /// Reservation's, and its class has `reserve`.
    pub reserves: Option<Arc<str>>,
    /// The reservation that it uses, as its annotation says.
    pub uses: Option<Arc<Use>>,
    /// What it is as a reservation for others; few pods are.
    pub operates: Option<Arc<Operating>>,
    /// Its rank among pods that reservations may take in; none for pods without the cluster's label.
    pub pre_allocatable: Option<i64>,
}

/// What the annotation for SchedulingHint says. Spec: scheduler-core 9.16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeHint {
    Nodes {
        /// Only these; empty means any.
        only: Box<[Box<str>]>,
        /// These first, in this order.
        preferred: Box<[Box<str>]>,
    },
    /// It cannot be read, for this reason.
    Unreadable(Box<str>),
}

/// What users were told of a pod that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub reason: Box<str>,
    pub message: Box<str>,
    pub observed_generation: i64,
}

impl Pod {
    /// As people know it: `namespace/name`, or `reservation` and its name.
    pub fn title(&self) -> String {
        match &self.reserves {
            Some(name) => format!("reservation {name}"),
            None => self.key.to_string(),
        }
    }

    /// Whether its condition says this already.
    pub fn is_told(&self, reason: &str, message: &str, observed_generation: i64) -> bool {
        self.condition.as_ref().is_some_and(|told| {
            *told.reason == *reason
                && *told.message == *message
                && told.observed_generation == observed_generation
        })
    }
}

/// Everything about a pod that scheduling looks at, shared by all pods alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    pub namespace: Arc<str>,
    /// Ascending by key.
    pub labels: Box<[(Sym, Sym)]>,
    pub scheduler: Arc<str>,
    pub priority: i32,
    /// `preemptionPolicy: Never`.
    pub never_preempts: bool,
    pub requests: Requests,
    pub tolerations: Box<[Toleration]>,
    pub node_affinity: Option<Arc<RequiredNodeAffinity>>,
    /// Node names that required affinity pins through `matchFields`; none when it pins nothing.
    pub pinned: Option<Box<[Box<str>]>>,
    pub preferred_nodes: Option<Arc<PreferredTerms>>,
    pub affinity: Box<[PodTerm]>,
    /// The pods that all terms of `affinity` speak of.
    pub together: Option<Arc<term::PodSet>>,
    pub anti_affinity: Box<[PodTerm]>,
    /// Anti-affinity is in it with negative weights.
    pub preferred_pods: Box<[WeightedTerm]>,
    pub spread: Box<[SpreadConstraint]>,
    pub ports: Box<[HostPort]>,
    /// Normalised image names of all containers, one per container.
    pub images: Box<[Sym]>,
    pub volumes: Box<[Volume]>,
    pub gates: Box<[Box<str>]>,
    pub has_resource_claims: bool,
    /// The workload it belongs to, for default spreading.
    pub owner: Option<Owner>,
    /// All that it belongs to, for owners of reservations.
    pub references: Box<[Reference]>,
    /// What it says of reservations; most pods say nothing.
    pub wants: Option<Arc<Wants>>,
    /// What it holds for others: it is the pod of a Reservation.
    pub reserve: Option<Arc<Reserve>>,
    /// What it is expected to use; none where nobody wants to know.
    pub load: Option<Box<PodLoad>>,
}

/// A toleration as taints are checked against it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    pub key: Box<str>,
    pub operator: Box<str>,
    pub value: Box<str>,
    pub effect: Box<str>,
}

/// A port of the host that the pod needs for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Empty and `0.0.0.0` are the same: all addresses.
    pub address: Box<str>,
    pub protocol: Box<str>,
    pub port: i32,
}

/// The controller of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// A volume that placement depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Volume {
    Claim {
        volume: Box<str>,
        claim: Box<str>,
    },
    /// The claim is made by a controller under a name of its own.
    Ephemeral {
        volume: Box<str>,
    },
    GcePd {
        name: Box<str>,
        read_only: bool,
    },
    AwsEbs {
        id: Box<str>,
    },
    Iscsi {
        iqn: Box<str>,
        read_only: bool,
    },
    Rbd {
        monitors: Box<[Box<str>]>,
        pool: Box<str>,
        image: Box<str>,
        read_only: bool,
    },
    AzureDisk {
        uri: Box<str>,
    },
    Cinder {
        id: Box<str>,
    },
    Portworx {
        id: Box<str>,
    },
    Csi {
        driver: Box<str>,
    },
}

/// A claim that a pod mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    pub claim: Cow<'a, str>,
    /// Made for this pod by a controller.
    pub is_ephemeral: bool,
}

impl Pod {
    /// The claims that it mounts, in the order of its volumes.
    pub fn mounts(&self) -> impl Iterator<Item = Mount<'_>> {
        self.class.volumes.iter().filter_map(|volume| match volume {
            Volume::Claim { claim, .. } => Some(Mount { claim: Cow::Borrowed(claim), is_ephemeral: false }),
            Volume::Ephemeral { volume } => {
                Some(Mount { claim: Cow::Owned(format!("{}-{volume}", self.key.name)), is_ephemeral: true })
            }
            _ => None,
        })
    }
}

impl Class {
    /// The claims that pods of this class mount by name.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().filter_map(|volume| match volume {
            Volume::Claim { claim, .. } => Some(&**claim),
            _ => None,
        })
    }

    /// Whether a claim is mounted, by name or made for the pod.
    pub fn has_claims(&self) -> bool {
        self.volumes.iter().any(|volume| matches!(volume, Volume::Claim { .. } | Volume::Ephemeral { .. }))
    }

    /// The value of a label.
    pub fn label(&self, key: Sym) -> Option<Sym> {
        let at = self.labels.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(self.labels[at].1)
    }

    pub fn tolerates(&self, taint: &core::Taint, counts: impl Fn(&Toleration) -> bool) -> bool {
        self.tolerations.iter().any(|toleration| counts(toleration) && toleration.covers(taint))
    }

    /// Whether another pod's presence can ever matter to it, or its presence to another.
    pub fn has_pod_terms(&self) -> bool {
        !self.affinity.is_empty() || !self.anti_affinity.is_empty() || !self.preferred_pods.is_empty()
    }
}

impl Toleration {
    /// As kube-scheduler matches them. Spec: scheduler-core 6.3.
    pub fn covers(&self, taint: &core::Taint) -> bool {
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        if !fits(&self.effect, &taint.effect) || !fits(&self.key, &taint.key) {
            return false;
        }
        match &*self.operator {
            "" | "Equal" => *self.value == *taint.value.as_deref().unwrap_or_default(),
            "Exists" => true,
            _ => false,
        }
    }
}

impl HostPort {
    fn is_everywhere(&self) -> bool {
        self.address.is_empty() || &*self.address == "0.0.0.0"
    }

    pub fn conflicts(&self, other: &HostPort) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || self.is_everywhere() || other.is_everywhere())
    }
}
