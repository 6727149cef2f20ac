//! QoS classes: what a pod's label says, and what follows when it says nothing.
//!
//! Spec: api 2.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};

use crate::keys;
use crate::keys::resource::{CPU, MEMORY};
use crate::pod::{label, resource_list};
use crate::quantity::ResourceList;

/// A QoS class. No class is `None` around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// Pinned CPUs shared with nobody.
    Lse,
    /// Pinned CPUs; best-effort pods may use their idle time.
    Lsr,
    /// The shared CPU pool.
    Ls,
    /// Reclaimed resources; may be throttled or killed.
    Be,
    /// System services with limits of their own.
    System,
}

impl Qos {
    pub const ALL: [Qos; 5] = [Qos::Lse, Qos::Lsr, Qos::Ls, Qos::Be, Qos::System];

    /// The class a label value means. Case matters, anything else is no class.
    pub fn parse(text: &str) -> Option<Qos> {
        Qos::ALL.into_iter().find(|qos| qos.as_str() == text)
    }

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Qos::Lse => "LSE",
            Qos::Lsr => "LSR",
            Qos::Ls => "LS",
            Qos::Be => "BE",
            Qos::System => "SYSTEM",
        }
    }

    /// Whether CPUs are pinned for the class.
    pub fn is_pinned(self) -> bool {
        matches!(self, Qos::Lse | Qos::Lsr)
    }

    /// Kubernetes QoS classes a pod of this class normally has.
    pub fn usual_kube_qos(self) -> &'static [KubeQos] {
        match self {
            Qos::System => &KubeQos::ALL,
            Qos::Lse | Qos::Lsr => &[KubeQos::Guaranteed],
            Qos::Ls => &[KubeQos::Guaranteed, KubeQos::Burstable],
            Qos::Be => &[KubeQos::BestEffort],
        }
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kubernetes' own QoS classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KubeQos {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl KubeQos {
    pub const ALL: [KubeQos; 3] = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];

    pub fn parse(text: &str) -> Option<KubeQos> {
        KubeQos::ALL.into_iter().find(|qos| qos.as_str() == text)
    }

    /// As in `status.qosClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            KubeQos::Guaranteed => "Guaranteed",
            KubeQos::Burstable => "Burstable",
            KubeQos::BestEffort => "BestEffort",
        }
    }
}

/// What the label says.
pub fn raw(pod: &Pod) -> Option<Qos> {
    label(pod, keys::pod::label::QOS_CLASS).and_then(Qos::parse)
}

/// What the label says, else what the pod's Kubernetes QoS implies.
pub fn with_default(pod: &Pod) -> Option<Qos> {
    raw(pod).or_else(|| {
        kube_qos(pod).map(|qos| match qos {
            KubeQos::Guaranteed => Qos::Lsr,
            KubeQos::Burstable => Qos::Ls,
            KubeQos::BestEffort => Qos::Be,
        })
    })
}

/// The pod's Kubernetes QoS: its status when that says something, else computed from the spec.
///
/// `None` when the status holds a text that is no class.
pub fn kube_qos(pod: &Pod) -> Option<KubeQos> {
    match pod.status.as_ref().and_then(|s| s.qos_class.as_deref()) {
        None | Some("") => Some(computed_kube_qos(pod)),
        Some(text) => KubeQos::parse(text),
    }
}

/// Kubernetes' rule over native cpu and memory; pod-level resources count instead of the containers'.
pub fn computed_kube_qos(pod: &Pod) -> KubeQos {
    let Some(spec) = &pod.spec else { return KubeQos::BestEffort };
    let mut sum = Sum::default();
    if let Some(resources) = spec.resources.as_ref().filter(|r| is_pod_level(r)) {
        sum.count(Some(resources));
    } else {
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            sum.count(container.resources.as_ref());
        }
    }
    sum.verdict()
}

fn is_pod_level(resources: &ResourceRequirements) -> bool {
    [&resources.requests, &resources.limits].into_iter().flatten().any(|list| !list.is_empty())
}

#[derive(Default)]
struct Sum {
    requests: ResourceList,
    limits: ResourceList,
    /// Some container lacks a cpu or memory limit.
    has_gap: bool,
}

impl Sum {
    fn count(&mut self, resources: Option<&ResourceRequirements>) {
        let requests = native(resources.and_then(|r| r.requests.as_ref()).map(|l| resource_list(Some(l))));
        let limits = native(resources.and_then(|r| r.limits.as_ref()).map(|l| resource_list(Some(l))));
        self.has_gap |= limits.len() < 2;
        for (name, amount) in requests {
            *self.requests.entry(name).or_default() += amount;
        }
        for (name, amount) in limits {
            *self.limits.entry(name).or_default() += amount;
        }
    }

    fn verdict(&self) -> KubeQos {
        if self.requests.is_empty() && self.limits.is_empty() {
            KubeQos::BestEffort
        } else if !self.has_gap && self.requests == self.limits {
            KubeQos::Guaranteed
        } else {
            KubeQos::Burstable
        }
    }
}

/// Cpu and memory above zero.
fn native(list: Option<ResourceList>) -> ResourceList {
    let mut list = list.unwrap_or_default();
    list.retain(|name, amount| (name == CPU || name == MEMORY) && amount.nano() > 0);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::sketch::{Sketch, pod};
    use crate::priority::{self, PriorityClass};

    const BOTH: &[(&str, &str)] = &[("cpu", "1"), ("memory", "1Gi")];

    #[test]
    fn label_and_default() {
        let lsr = pod().qos("lsr");
        for (key, pod, want_raw, want) in [
            ("api#10.1", pod().qos("LSR"), Some(Qos::Lsr), Some(Qos::Lsr)),
            ("api#10.2 Guaranteed", lsr.clone().kube_qos("Guaranteed"), None, Some(Qos::Lsr)),
            ("api#10.2 Burstable", lsr.clone().kube_qos("Burstable"), None, Some(Qos::Ls)),
            ("api#10.2 BestEffort", lsr.kube_qos("BestEffort"), None, Some(Qos::Be)),
            ("other status text", pod().kube_qos("Gold"), None, None),
            ("empty status text", pod().kube_qos(""), None, Some(Qos::Be)),
        ] {
            assert_eq!((raw(&pod), with_default(&pod)), (want_raw, want), "{key}");
        }
    }

    #[test]
    fn computed_from_the_spec() {
        use KubeQos::{BestEffort, Burstable, Guaranteed};
        let prod = Some(PriorityClass::Prod);
        let batch = Some(PriorityClass::Batch);
        let extended = &[("kubernetes.io/batch-cpu", "1k")];
        for (key, pod, kube, qos, class) in [
            ("api#10.3", pod().container(BOTH, BOTH), Guaranteed, Qos::Lsr, prod),
            ("api#10.86", pod().container(&[], BOTH), Burstable, Qos::Ls, prod),
            ("api#10.87 init", pod().container(BOTH, BOTH).init(&[], &[]), Burstable, Qos::Ls, prod),
            (
                "api#10.87 pod level",
                pod().container(&[], &[]).pod_level(BOTH, BOTH),
                Guaranteed,
                Qos::Lsr,
                prod,
            ),
            (
                "api#10.88 zeros",
                pod().container(&[("cpu", "0"), ("memory", "0")], &[]),
                BestEffort,
                Qos::Be,
                batch,
            ),
            ("api#10.88 batch only", pod().container(extended, extended), BestEffort, Qos::Be, batch),
            (
                "requests below limits",
                pod().container(&[("cpu", "1"), ("memory", "1Gi")], &[("cpu", "2"), ("memory", "1Gi")]),
                Burstable,
                Qos::Ls,
                prod,
            ),
            (
                "equal by value, not by text",
                pod().container(&[("cpu", "1000m"), ("memory", "1024Mi")], BOTH),
                Guaranteed,
                Qos::Lsr,
                prod,
            ),
        ] {
            assert_eq!(computed_kube_qos(&pod), kube, "{key}");
            assert_eq!(with_default(&pod), Some(qos), "{key}");
            assert_eq!(priority::class_with_default(&pod), class, "{key}");
        }
        let zeros = pod().container(&[("cpu", "0")], &[]);
        assert_eq!(priority::value_with_default(&zeros), 5500, "api#10.88");
    }
}
