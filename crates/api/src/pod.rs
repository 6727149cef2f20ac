//! A Kubernetes Pod as we read it: its labels, and what it asks for in all.
//!
//! Sums follow Kubernetes' scheduler. An amount that is no quantity cannot come from an API server and
//! counts as not given. Spec: api 3.2.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

use crate::keys::resource::{CPU, MEMORY};
use crate::quantity::{Quantity, ResourceList};

#[cfg(test)]
pub(crate) mod sketch;

/// Value of a label.
pub fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Value of an annotation.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// What the pod asks for: the larger of its running containers together and any moment of its init
/// phase, with pod-level amounts in place of the sums, plus overhead.
pub fn requests(pod: &Pod) -> ResourceList {
    let mut sum = effective(pod, |r| r.requests.as_ref());
    add(&mut sum, &overhead(pod));
    sum
}

/// What the pod is limited to, counted alike. Overhead is added only to what has a limit.
pub fn limits(pod: &Pod) -> ResourceList {
    let mut sum = effective(pod, |r| r.limits.as_ref());
    for (name, amount) in overhead(pod) {
        if let Some(limit) = sum.get_mut(&name) {
            *limit += amount;
        }
    }
    sum
}

/// A resource list as it stands in an object, with amounts we can count.
pub fn resource_list(wire: Option<&BTreeMap<String, WireQuantity>>) -> ResourceList {
    wire.into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::try_from(amount).ok()?)))
        .collect()
}

/// Picks requests or limits.
type Side = fn(&ResourceRequirements) -> Option<&BTreeMap<String, WireQuantity>>;

fn effective(pod: &Pod, side: Side) -> ResourceList {
    let Some(spec) = &pod.spec else { return ResourceList::new() };
    let of = |c: &Container| resource_list(c.resources.as_ref().and_then(side));
    let mut running = ResourceList::new();
    for container in &spec.containers {
        add(&mut running, &of(container));
    }
    // Sidecars started so far run beside each later init container.
    let (mut sidecars, mut init) = (ResourceList::new(), ResourceList::new());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        let mut moment = sidecars.clone();
        add(&mut moment, &own);
        if is_sidecar(container) {
            add(&mut running, &own);
            sidecars = moment.clone();
        }
        raise(&mut init, moment);
    }
    raise(&mut running, init);
    let pod_level = resource_list(spec.resources.as_ref().and_then(side));
    running.extend(pod_level.into_iter().filter(|(name, _)| is_pod_level_name(name)));
    running
}

fn overhead(pod: &Pod) -> ResourceList {
    resource_list(pod.spec.as_ref().and_then(|s| s.overhead.as_ref()))
}

/// An init container that keeps running beside the others.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

/// Resources that Kubernetes accepts in `spec.resources`.
fn is_pod_level_name(name: &str) -> bool {
    name == CPU || name == MEMORY || name.starts_with("hugepages-")
}

fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += *amount;
    }
}

/// The larger of each amount.
fn raise(sum: &mut ResourceList, other: ResourceList) {
    for (name, amount) in other {
        sum.entry(name).and_modify(|had| *had = (*had).max(amount)).or_insert(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::sketch::{Sketch, pod};
    use super::*;

    fn text(list: &ResourceList) -> Vec<String> {
        list.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    #[test]
    fn requests_as_kubernetes_counts_them() {
        for (name, pod, want) in [
            ("sum", pod().container(&[("cpu", "1500m")], &[]).container(&[("cpu", "500m")], &[]), "cpu=2"),
            ("init is larger", pod().container(&[("cpu", "1")], &[]).init(&[("cpu", "3")], &[]), "cpu=3"),
            (
                "sidecar adds",
                pod().container(&[("cpu", "1")], &[]).sidecar(&[("cpu", "500m")], &[]),
                "cpu=1500m",
            ),
            (
                "an init container runs beside earlier sidecars",
                pod()
                    .container(&[("cpu", "1")], &[])
                    .sidecar(&[("cpu", "1")], &[])
                    .init(&[("cpu", "2")], &[]),
                "cpu=3",
            ),
            (
                "later sidecars do not run beside it",
                pod()
                    .container(&[("cpu", "1")], &[])
                    .init(&[("cpu", "2")], &[])
                    .sidecar(&[("cpu", "1")], &[]),
                "cpu=2",
            ),
            (
                "overhead",
                pod().container(&[("memory", "1Gi")], &[]).overhead(&[("cpu", "250m"), ("memory", "1Gi")]),
                "cpu=250m memory=2Gi",
            ),
            (
                "pod level wins, but not for other names",
                pod()
                    .container(&[("cpu", "1"), ("x.io/y", "1")], &[])
                    .pod_level(&[("cpu", "4"), ("x.io/y", "7")], &[]),
                "cpu=4 x.io/y=1",
            ),
            ("nothing", pod(), ""),
            ("unreadable", pod().container(&[("cpu", "abc")], &[]), ""),
        ] {
            assert_eq!(text(&requests(&pod)).join(" "), want, "{name}");
        }
    }

    #[test]
    fn overhead_does_not_make_a_limit() {
        let pod = pod().container(&[], &[("cpu", "1")]).overhead(&[("cpu", "250m"), ("memory", "1Gi")]);
        assert_eq!(text(&limits(&pod)), ["cpu=1250m"]);
    }
}
