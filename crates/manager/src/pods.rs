//! What the manager keeps of a pod. Pure.
//!
//! A [`PodBrief`] is what a cache keeps: what pods of one template share is shared, so that a hundred thousand of them
//! fit in a few dozen megabytes. Spec: manager 5.5, 6.1.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use koord_api::annotation::cpu::ResourceStatus;
use koord_api::annotation::{OrAbsent, read};
use koord_api::keys;
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, OLD_BATCH_NAMES};
use koord_api::pod::{label, requests};
use koord_api::priority::{self, PriorityClass};
use koord_api::qos::{self, Qos};
use koord_api::quantity::{Quantity, ResourceList};
use koord_kit::cache::{ObjectKey, Pool, Uid};
use koord_kit::pods::PodPhase;

use crate::amounts::Amounts;

/// What the manager keeps of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodBrief {
    pub key: ObjectKey,
    pub uid: Uid,
    /// Seconds since 1970.
    pub created: i64,
    /// Whether its deletion was asked for.
    pub is_deleting: bool,
    pub node: Option<Arc<str>>,
    pub phase: PodPhase,
    /// By label, else by the pod's Kubernetes QoS.
    pub qos: Option<Qos>,
    /// By label or `spec.priority`, else by QoS.
    pub class: Option<PriorityClass>,
    pub requests: Arc<PodRequests>,
    /// NUMA nodes that the scheduler gave it: ascending, each once.
    pub numa_nodes: Box<[i32]>,
    /// The quota that it names.
    pub quota: Option<Arc<str>>,
    /// The quota tree that it names.
    pub quota_tree: Option<Arc<str>>,
}

/// Effective requests of a pod, in cores and bytes whatever the resource's own unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRequests {
    pub native: Amounts,
    pub batch: Amounts,
    pub mid: Amounts,
}

impl PodBrief {
    /// Whether it takes part in any sum: neither ended nor lost.
    pub fn is_active(&self) -> bool {
        matches!(self.phase, PodPhase::Pending | PodPhase::Running)
    }

    /// Whether reclaimed resources are what such pods leave over. A pod without a class counts.
    pub fn is_high_priority(&self) -> bool {
        !matches!(self.class, Some(PriorityClass::Batch | PriorityClass::Free))
    }

    /// Namespace and name, as reports have them.
    pub fn names(&self) -> (&str, &str) {
        (&self.key.namespace, &self.key.name)
    }
}

/// Makes briefs, sharing what is equal among all that it made.
#[derive(Default)]
pub struct PodReader {
    texts: Pool<str>,
    requests: Pool<PodRequests>,
}

impl PodReader {
    pub fn brief(&self, key: &ObjectKey, pod: &Pod) -> PodBrief {
        let text = |text: &str| self.texts.text(text);
        let shared = |found: Option<&str>| found.filter(|found| !found.is_empty()).map(text);
        let meta = &pod.metadata;
        PodBrief {
            key: key.clone(),
            uid: Uid::of(meta.uid.as_deref().unwrap_or_default()),
            created: meta.creation_timestamp.as_ref().map_or(0, |Time(time)| time.as_second()),
            is_deleting: meta.deletion_timestamp.is_some(),
            node: shared(pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())),
            phase: PodPhase::of(pod.status.as_ref().and_then(|status| status.phase.as_deref())),
            qos: qos::with_default(pod),
            class: priority::class_with_default(pod),
            requests: self.requests.share(PodRequests::of(pod)),
            numa_nodes: numa_nodes(pod),
            quota: shared(label(pod, keys::pod::label::QUOTA_NAME)),
            quota_tree: shared(label(pod, keys::pod::label::QUOTA_TREE_ID)),
        }
    }
}

impl PodRequests {
    fn of(pod: &Pod) -> PodRequests {
        let mut list = requests(pod);
        for (old, new) in OLD_BATCH_NAMES {
            if let Some(amount) = list.remove(old) {
                list.insert(new.to_owned(), amount);
            }
        }
        PodRequests {
            native: Amounts::of(&list),
            batch: extended(&list, BATCH_CPU, BATCH_MEMORY),
            mid: extended(&list, MID_CPU, MID_MEMORY),
        }
    }
}

/// Extended cpu counts thousandths of a core.
fn extended(list: &ResourceList, cpu: &str, memory: &str) -> Amounts {
    let found = Amounts::named(list, cpu, memory);
    Amounts { cpu: Quantity::cores_milli(found.cpu.value()), memory: found.memory }
}

/// Differs: an id listed twice counts once; upstream then splits the pod over more zones than it is on (DB-30).
fn numa_nodes(pod: &Pod) -> Box<[i32]> {
    // An annotation that cannot be read is the scheduler's to complain about.
    let status = read::<ResourceStatus>(pod.metadata.annotations.as_ref()).or_absent(|_| ());
    let ids = status.map(|status| status.numa_node_resources).unwrap_or_default();
    ids.iter().map(|numa| numa.node).collect::<BTreeSet<i32>>().into_iter().collect()
}

#[cfg(test)]
mod tests;
