//! What a pod asks for: the true amounts, and those that scoring assumes where nothing is asked.
//!
//! Pure. Spec: scheduler-core 5.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use koord_api::pod::is_sidecar;
use koord_api::quantity::Quantity;
use koord_api::resource::{ResourceId, ResourceTable, ResourceVector};

/// What scoring assumes of a container that asks for no cpu.
pub const CPU_ASSUMED_MILLI: i64 = 100;
/// What scoring assumes of a container that asks for no memory.
pub const MEMORY_ASSUMED_BYTES: i64 = 200 << 20;

/// Both sums of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    pub amounts: ResourceVector,
    /// What a node counts where it is scored.
    pub nonzero_cpu_milli: i64,
    pub nonzero_memory: i64,
    /// What the pod itself adds to that when NodeResourcesFit scores: as in kube-scheduler 1.35, without what is asked
    /// for the pod as a whole.
    pub scored_cpu_milli: i64,
    pub scored_memory: i64,
    /// What it may use at most, where it says so. Only told of, for metrics.
    pub limits: ResourceVector,
}

type WireList = BTreeMap<String, WireQuantity>;

/// Sums a pod's requests. A pod on a node counts what its containers really have while they are resized.
pub fn of(pod: &Pod, table: &mut ResourceTable) -> Requests {
    let Some(spec) = &pod.spec else { return Requests::default() };
    let is_assigned = spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    let resize = if is_assigned { Resize::of(pod) } else { Resize::default() };
    let level = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let assumed = Assumed::in_nodes(spec, level);
    let mut amounts =
        aggregate(spec, |container| resize.request(container, table_of(container, table), table));
    let nonzero = aggregate(spec, |container| {
        let mut vector = resize.request(container, table_of(container, table), table);
        assumed.fill(container, &mut vector);
        vector
    });
    let scored = match level {
        Some(_) => aggregate(spec, |container| {
            let mut vector = resize.request(container, table_of(container, table), table);
            Assumed { cpu: true, memory: true }.fill(container, &mut vector);
            vector
        }),
        None => nonzero.clone(),
    };
    let mut nonzero = nonzero;
    for (name, amount) in level.into_iter().flatten() {
        if !is_for_pods(name) {
            continue;
        }
        let Ok(amount) = Quantity::try_from(amount) else { continue };
        let id = table.intern(name);
        let units = id.units(amount).max(0);
        amounts.set(id, units);
        nonzero.set(id, units);
    }
    let overhead = vector_of(spec.overhead.as_ref(), table);
    amounts += &overhead;
    nonzero += &overhead;
    Requests {
        nonzero_cpu_milli: nonzero.get(ResourceId::CPU),
        nonzero_memory: nonzero.get(ResourceId::MEMORY),
        scored_cpu_milli: scored.get(ResourceId::CPU).saturating_add(overhead.get(ResourceId::CPU)),
        scored_memory: scored.get(ResourceId::MEMORY).saturating_add(overhead.get(ResourceId::MEMORY)),
        limits: limits_of(spec, &overhead, table),
        amounts,
    }
}

/// Sums a pod's limits. A container without one adds nothing, and overhead counts only beside a limit.
pub fn limits(pod: &Pod, table: &mut ResourceTable) -> ResourceVector {
    let Some(spec) = &pod.spec else { return ResourceVector::new() };
    let overhead = vector_of(spec.overhead.as_ref(), table);
    limits_of(spec, &overhead, table)
}

fn limits_of(spec: &PodSpec, overhead: &ResourceVector, table: &mut ResourceTable) -> ResourceVector {
    let mut limits = aggregate(spec, |container| {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        vector_of(limits, table)
    });
    let level = spec.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    for (name, amount) in level.into_iter().flatten().filter(|(name, _)| is_for_pods(name)) {
        let Ok(amount) = Quantity::try_from(amount) else { continue };
        let id = table.intern(name);
        limits.set(id, id.units(amount));
    }
    for (id, units) in overhead.iter() {
        let limit = limits.get(id);
        if limit != 0 {
            limits.set(id, limit.saturating_add(units));
        }
    }
    limits
}

/// The larger of all running containers together and any moment of the init phase.
fn aggregate(spec: &PodSpec, mut of: impl FnMut(&Container) -> ResourceVector) -> ResourceVector {
    let mut running = ResourceVector::new();
    for container in &spec.containers {
        running += &of(container);
    }
    let (mut sidecars, mut init) = (ResourceVector::new(), ResourceVector::new());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        let mut moment = sidecars.clone();
        moment += &own;
        if is_sidecar(container) {
            running += &own;
            sidecars = moment.clone();
        }
        init.max_assign(&moment);
    }
    running.max_assign(&init);
    running
}

fn table_of(container: &Container, table: &mut ResourceTable) -> ResourceVector {
    vector_of(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()), table)
}

fn vector_of(list: Option<&WireList>, table: &mut ResourceTable) -> ResourceVector {
    let amounts = list.into_iter().flatten();
    // An amount that is no quantity, or below zero, cannot come from an API server. The one counts as not given, the
    // other as nothing. Differs: upstream takes what is below zero off the sums.
    let amounts =
        amounts.filter_map(|(name, amount)| Some((name.as_str(), Quantity::try_from(amount).ok()?)));
    let mut vector = ResourceVector::from_amounts(amounts, table);
    vector.clamp_to_zero();
    vector
}

/// Whether it can be asked for the pod as a whole.
fn is_for_pods(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// Which amounts are assumed where a container names none.
struct Assumed {
    cpu: bool,
    memory: bool,
}

impl Assumed {
    /// Where something is asked for the pod as a whole, only what nobody names at all is assumed.
    fn in_nodes(spec: &PodSpec, level: Option<&WireList>) -> Assumed {
        if !level.is_some_and(|list| list.keys().any(|name| is_for_pods(name))) {
            return Assumed { cpu: true, memory: true };
        }
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let lists = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
        let lists: Vec<&WireList> = lists.chain(level).chain(&spec.overhead).collect();
        let is_named = |name: &str| lists.iter().any(|list| list.contains_key(name));
        Assumed { cpu: !is_named("cpu"), memory: !is_named("memory") }
    }

    fn fill(&self, container: &Container, vector: &mut ResourceVector) {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let names = |name: &str| requests.is_some_and(|list| list.contains_key(name));
        if self.cpu && !names("cpu") {
            vector.set(ResourceId::CPU, CPU_ASSUMED_MILLI);
        }
        if self.memory && !names("memory") {
            vector.set(ResourceId::MEMORY, MEMORY_ASSUMED_BYTES);
        }
    }
}

/// A resize in place that is under way.
#[derive(Default)]
struct Resize<'a> {
    statuses: Vec<&'a ContainerStatus>,
    is_infeasible: bool,
}

impl<'a> Resize<'a> {
    fn of(pod: &'a Pod) -> Resize<'a> {
        let Some(status) = &pod.status else { return Resize::default() };
        let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
        let statuses = all.filter(|s| s.resources.is_some() || s.allocated_resources.is_some()).collect();
        let is_infeasible = status.conditions.iter().flatten().any(|condition| {
            condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
        });
        Resize { statuses, is_infeasible }
    }

    /// The largest of what the container wants, has and was granted; not what it wants when it cannot have it.
    fn request(
        &self,
        container: &Container,
        wanted: ResourceVector,
        table: &mut ResourceTable,
    ) -> ResourceVector {
        let Some(status) = self.statuses.iter().find(|status| status.name == container.name) else {
            return wanted;
        };
        let actual = status.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let mut largest = vector_of(actual, table);
        largest.max_assign(&vector_of(status.allocated_resources.as_ref(), table));
        if !self.is_infeasible {
            largest.max_assign(&wanted);
        }
        largest
    }
}

#[cfg(test)]
mod tests;
