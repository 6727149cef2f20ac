//! From a Pod object to a record and its class.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroI64;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::annotation::read;
use koord_api::annotation::scheduling_hint::SchedulingHint;
use koord_api::crd::reservation::Reservation;
use koord_api::pod::is_sidecar;
use koord_api::resource::ResourceTable;
use koord_api::selector::{PreferredTerms, RequiredNodeAffinity, Selector};
use koord_api::transform::PodTransform;

use super::reservation::{self, PreAllocatableMarks, Reserve};
use super::term::{PodSet, PodTerm, SpreadConstraint, WeightedTerm, all_of};
use super::{Class, HostPort, NodeHint, Owner, Pod, PodKey, Told, Toleration, Volume};
use crate::cluster::load::{PodLoad, Settings};
use crate::cluster::storage::migration::is_managed;
use crate::intern::{Names, Sym};
use crate::requests;

/// Turns objects into records; pods alike get one class.
#[derive(Debug, Default)]
pub struct Compiler {
    classes: HashSet<Arc<Class>>,
    /// Changes that are made to pods before they are read. Old resource names and the label for the scheduler's name
    /// are always looked at.
    pub transform: PodTransform,
    /// How pods are marked that any reservation may take in; none when no profile does that.
    pub pre_allocatable: Option<PreAllocatableMarks>,
    /// Who wants to know what pods are expected to use.
    pub(crate) loads: Vec<Arc<Settings>>,
}

/// Classes looked through before one that nobody uses is let go.
const CLASSES_SWEPT_FROM: usize = 1024;

impl Compiler {
    /// The record of a pod. Faults in selectors make terms that match nothing, as in kube-scheduler.
    pub fn pod(&mut self, object: &core::Pod, names: &mut Names, resources: &mut ResourceTable) -> Pod {
        let pod = self.read(object, None, names, resources);
        let (uses, operates) = (reservation::uses(object), reservation::operates(object));
        let marks = self.pre_allocatable.as_ref();
        let pre_allocatable = marks.and_then(|marks| reservation::pre_allocatable(object, marks));
        Pod { uses, operates, pre_allocatable, ..pod }
    }

    /// The pod that stands for a Reservation.
    pub fn reserve_pod(
        &mut self,
        object: &Reservation,
        reserve: Reserve,
        names: &mut Names,
        resources: &mut ResourceTable,
    ) -> Pod {
        let pod = self.read(&object.reserve_pod(), Some(Arc::new(reserve)), names, resources);
        let revision = object.metadata.resource_version.as_deref().unwrap_or_default().into();
        let name = object.metadata.name.as_deref().unwrap_or_default().into();
        Pod {
            revision,
            reserves: Some(name),
            is_deleting: object.metadata.deletion_timestamp.is_some(),
            ..pod
        }
    }

    fn read(
        &mut self,
        object: &core::Pod,
        reserve: Option<Arc<Reserve>>,
        names: &mut Names,
        resources: &mut ResourceTable,
    ) -> Pod {
        let mut changed = None;
        if self.transform.concerns(object) {
            // An annotation that cannot be read stays as it is; whoever needs it refuses the pod.
            self.transform.apply(changed.insert(object.clone()), |_| {});
        }
        let object = changed.as_ref().unwrap_or(object);
        let empty = core::PodSpec::default();
        let spec = object.spec.as_ref().unwrap_or(&empty);
        let class = class(object, spec, names, resources, &self.loads);
        let class = self.share(match reserve {
            None => class,
            // What its template says of reservations is meant for nobody.
            reserve => Class { reserve, wants: None, ..class },
        });
        let metadata = &object.metadata;
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let status = object.status.as_ref();
        let is_preempted = status.into_iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| {
            c.type_ == "DisruptionTarget"
                && c.status == "True"
                && c.reason.as_deref() == Some("PreemptionByScheduler")
        });
        let told = status.into_iter().flat_map(|s| s.conditions.iter().flatten());
        let mut told = told.filter(|c| c.type_ == "PodScheduled" && c.status == "False").map(|c| {
            Box::new(Told {
                reason: text(&c.reason),
                message: text(&c.message),
                observed_generation: c.observed_generation.unwrap_or(0),
            })
        });
        Pod {
            condition: told.next_back(),
            key: PodKey { namespace: class.namespace.clone(), name: text(&metadata.name) },
            uid: text(&metadata.uid),
            node: text(&spec.node_name),
            nominated: text(&status.and_then(|s| s.nominated_node_name.clone())),
            started: status.and_then(|s| s.start_time.as_ref()).map(|time| time.0.as_second()),
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_preempted,
            scheduled: since(status, "PodScheduled"),
            initialized: since(status, "Initialized"),
            generation: metadata.generation.unwrap_or(0),
            revision: text(&metadata.resource_version),
            hint: hint(object),
            reserves: None,
            uses: None,
            operates: None,
            pre_allocatable: None,
            class,
        }
    }

    fn share(&mut self, class: Class) -> Arc<Class> {
        if let Some(known) = self.classes.get(&class) {
            return known.clone();
        }
        if self.classes.len() >= CLASSES_SWEPT_FROM && self.classes.len().is_power_of_two() {
            self.classes.retain(|class| Arc::strong_count(class) > 1);
        }
        let class = Arc::new(class);
        self.classes.insert(class.clone());
        class
    }

    /// How many classes are known, for tests and metrics.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }
}

fn class(
    object: &core::Pod,
    spec: &core::PodSpec,
    names: &mut Names,
    resources: &mut ResourceTable,
    loads: &[Arc<Settings>],
) -> Class {
    let none = BTreeMap::new();
    let namespace: Arc<str> = object.metadata.namespace.as_deref().unwrap_or_default().into();
    let pod_labels = object.metadata.labels.as_ref().unwrap_or(&none);
    let mut labels: Vec<(Sym, Sym)> =
        pod_labels.iter().map(|(key, value)| (names.intern(key), names.intern(value))).collect();
    labels.sort_unstable();
    let affinity = spec.affinity.as_ref();
    let required = RequiredNodeAffinity::of(spec);
    let preferred = affinity
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref())
        .and_then(|terms| PreferredTerms::new(terms, "").ok());
    let mut terms = Terms { namespace: &namespace, names };
    let (pods, anti) = terms.required(affinity);
    let preferred_pods = terms.preferred(affinity);
    let spread = terms.spread(spec, pod_labels);
    let requests = requests::of(object, resources);
    let load = (!loads.is_empty()).then(|| PodLoad::of(object, &requests.amounts, resources, loads));
    Class {
        labels: labels.into(),
        scheduler: spec.scheduler_name.as_deref().unwrap_or("default-scheduler").into(),
        priority: spec.priority.unwrap_or(0),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        requests,
        tolerations: spec.tolerations.iter().flatten().map(toleration).collect(),
        pinned: pinned(affinity),
        node_affinity: (!required.is_everything()).then(|| Arc::new(required)),
        preferred_nodes: preferred.filter(|terms| *terms != PreferredTerms::default()).map(Arc::new),
        together: all_of(&pods),
        affinity: pods,
        anti_affinity: anti,
        preferred_pods,
        spread,
        ports: ports(spec),
        images: images(spec, names),
        volumes: spec.volumes.iter().flatten().filter_map(volume).collect(),
        gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str().into()).collect(),
        has_resource_claims: spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
        owner: owner(object),
        references: reservation::references(object),
        wants: reservation::wants(object),
        reserve: None,
        load: load.map(Box::new),
        namespace,
    }
}

/// Since when a condition is true.
fn since(status: Option<&core::PodStatus>, condition: &str) -> Option<NonZeroI64> {
    let mut conditions = status?.conditions.iter().flatten();
    let found = conditions.find(|known| known.type_ == condition).filter(|known| known.status == "True")?;
    NonZeroI64::new(found.last_transition_time.as_ref()?.0.as_second())
}

fn toleration(toleration: &core::Toleration) -> Toleration {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    Toleration {
        key: text(&toleration.key),
        operator: text(&toleration.operator),
        value: text(&toleration.value),
        effect: text(&toleration.effect),
    }
}

fn owner(object: &core::Pod) -> Option<Owner> {
    let owners = object.metadata.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true))?;
    Some(Owner {
        api_version: owner.api_version.as_str().into(),
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
    })
}

fn hint(object: &core::Pod) -> Option<Arc<NodeHint>> {
    let names =
        |names: Vec<String>| names.into_iter().map(String::into_boxed_str).collect::<Box<[Box<str>]>>();
    let hint = match read::<SchedulingHint>(object.metadata.annotations.as_ref()) {
        Ok(hint) => {
            let SchedulingHint { node_names, preferred_node_names, .. } = hint?;
            NodeHint::Nodes { only: names(node_names), preferred: names(preferred_node_names) }
        }
        Err(error) => NodeHint::Unreadable(error.reason().into()),
    };
    Some(Arc::new(hint))
}

/// Ports that the host must have free: those of containers and sidecars.
fn ports(spec: &core::PodSpec) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let protocol = port.protocol.as_deref().filter(|p| !p.is_empty()).unwrap_or("TCP");
            let address = port.host_ip.as_deref().unwrap_or_default();
            Some(HostPort { address: address.into(), protocol: protocol.into(), port: number })
        })
        .collect()
}

/// Names as nodes report them: with a tag. Spec: scheduler-core 6.8.
fn images(spec: &core::PodSpec, names: &mut Names) -> Box<[Sym]> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let images = containers.map(|container| container.image.as_deref().unwrap_or_default());
    images.map(|image| names.intern(&normal_image(image))).collect()
}

/// The name with `:latest` where it has neither tag nor digest.
pub(crate) fn normal_image(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') { image.to_owned() } else { format!("{image}:latest") }
}

fn volume(volume: &core::Volume) -> Option<Volume> {
    let name = volume.name.as_str();
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(Volume::Claim { volume: name.into(), claim: claim.claim_name.as_str().into() });
    }
    if volume.ephemeral.is_some() {
        return Some(Volume::Ephemeral { volume: name.into() });
    }
    if let Some(disk) = &volume.gce_persistent_disk {
        let read_only = disk.read_only.unwrap_or(false);
        return Some(Volume::GcePd { name: disk.pd_name.as_str().into(), read_only });
    }
    if let Some(disk) = &volume.aws_elastic_block_store {
        return Some(Volume::AwsEbs { id: disk.volume_id.as_str().into() });
    }
    if let Some(disk) = &volume.iscsi {
        return Some(Volume::Iscsi {
            iqn: disk.iqn.as_str().into(),
            read_only: disk.read_only.unwrap_or(false),
        });
    }
    if let Some(disk) = &volume.rbd {
        return Some(Volume::Rbd {
            monitors: disk.monitors.iter().map(|monitor| monitor.as_str().into()).collect(),
            pool: disk.pool.as_deref().unwrap_or("rbd").into(),
            image: disk.image.as_str().into(),
            read_only: disk.read_only.unwrap_or(false),
        });
    }
    if let Some(disk) = &volume.azure_disk {
        // Other kinds have no driver, so nothing counts them.
        let has_driver = disk.kind.as_deref().is_none_or(is_managed);
        return has_driver.then(|| Volume::AzureDisk { uri: disk.disk_uri.as_str().into() });
    }
    if let Some(disk) = &volume.cinder {
        return Some(Volume::Cinder { id: disk.volume_id.as_str().into() });
    }
    if let Some(disk) = &volume.portworx_volume {
        return Some(Volume::Portworx { id: disk.volume_id.as_str().into() });
    }
    volume.csi.as_ref().map(|csi| Volume::Csi { driver: csi.driver.as_str().into() })
}

/// The nodes that every required term pins by name. Spec: scheduler-core 6.4.
fn pinned(affinity: Option<&core::Affinity>) -> Option<Box<[Box<str>]>> {
    let required = affinity?.node_affinity.as_ref()?;
    let terms = &required.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    if terms.is_empty() {
        return None;
    }
    let mut all: Vec<Box<str>> = Vec::new();
    for term in terms {
        let mut named: Option<Vec<&str>> = None;
        for field in term.match_fields.iter().flatten() {
            if field.key != "metadata.name" || field.operator != "In" {
                continue;
            }
            let values = field.values.iter().flatten().map(String::as_str);
            named = Some(match named {
                None => values.collect(),
                Some(so_far) => values.filter(|value| so_far.contains(value)).collect(),
            });
        }
        // A term that pins nothing leaves all nodes open.
        for name in named? {
            if !all.iter().any(|known| **known == *name) {
                all.push(name.into());
            }
        }
    }
    Some(all.into())
}

/// What terms about other pods need to be read.
struct Terms<'a> {
    namespace: &'a Arc<str>,
    names: &'a mut Names,
}

impl Terms<'_> {
    fn required(&mut self, affinity: Option<&core::Affinity>) -> (Box<[PodTerm]>, Box<[PodTerm]>) {
        let pods = affinity
            .and_then(|a| a.pod_affinity.as_ref())
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref());
        let anti = affinity
            .and_then(|a| a.pod_anti_affinity.as_ref())
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref());
        let pods = pods.unwrap_or_default().iter().map(|term| self.term(term)).collect();
        let anti = anti.unwrap_or_default().iter().map(|term| self.term(term)).collect();
        (pods, anti)
    }

    fn preferred(&mut self, affinity: Option<&core::Affinity>) -> Box<[WeightedTerm]> {
        let pods = affinity
            .and_then(|a| a.pod_affinity.as_ref())
            .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref());
        let anti = affinity
            .and_then(|a| a.pod_anti_affinity.as_ref())
            .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_deref());
        let pods = pods.unwrap_or_default().iter().map(|term| (term, 1));
        let anti = anti.unwrap_or_default().iter().map(|term| (term, -1));
        pods.chain(anti)
            .map(|(term, sign)| WeightedTerm {
                term: self.term(&term.pod_affinity_term),
                weight: i64::from(term.weight) * sign,
            })
            .collect()
    }

    fn term(&mut self, term: &core::PodAffinityTerm) -> PodTerm {
        let mut namespaces: Vec<Arc<str>> =
            term.namespaces.iter().flatten().map(|name| name.as_str().into()).collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(self.namespace.clone());
        }
        let read = |selector| Selector::new(Some(selector)).unwrap_or_else(|_| Selector::nothing());
        let pods = PodSet {
            namespaces: namespaces.into(),
            namespace_selector: term.namespace_selector.as_ref().map(read),
            // Without a selector no pod is meant.
            selector: term.label_selector.as_ref().map_or_else(Selector::nothing, read),
            and: Box::default(),
        };
        PodTerm { pods: Arc::new(pods), topology_key: self.names.intern(&term.topology_key) }
    }

    fn spread(&mut self, spec: &core::PodSpec, labels: &BTreeMap<String, String>) -> Box<[SpreadConstraint]> {
        let constraints = spec.topology_spread_constraints.iter().flatten();
        constraints
            .map(|constraint| SpreadConstraint {
                pods: Arc::new(PodSet::within(self.namespace, spread_selector(constraint, labels))),
                ..constraint_without_pods(constraint, self.names)
            })
            .collect()
    }
}

/// A constraint that counts no pods yet.
pub(crate) fn constraint_without_pods(
    constraint: &core::TopologySpreadConstraint,
    names: &mut Names,
) -> SpreadConstraint {
    SpreadConstraint {
        topology_key: names.intern(&constraint.topology_key),
        max_skew: i64::from(constraint.max_skew),
        min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
        is_hard: constraint.when_unsatisfiable == "DoNotSchedule",
        pods: Arc::new(PodSet::within(&"".into(), Selector::nothing())),
        honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
    }
}

/// The constraint's selector with the pod's own values of `matchLabelKeys`; an empty one counts no pods.
fn spread_selector(
    constraint: &core::TopologySpreadConstraint,
    labels: &BTreeMap<String, String>,
) -> Selector {
    let Some(mut selector) = constraint.label_selector.clone() else { return Selector::nothing() };
    let mut own = selector.match_labels.take().unwrap_or_default();
    for key in constraint.match_label_keys.iter().flatten() {
        if let Some(value) = labels.get(key) {
            own.insert(key.clone(), value.clone());
        }
    }
    selector.match_labels = Some(own);
    match Selector::new(Some(&selector)) {
        Ok(selector) if !selector.is_everything() => selector,
        _ => Selector::nothing(),
    }
}
