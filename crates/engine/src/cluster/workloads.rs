//! Services and owners of pods, whose selectors say which pods are of one kind: the default spreading.
//!
//! A pod without spread constraints of its own gets its profile's, with the selector of its Services and its owner.
//! That is worked out once for each class and kept until a workload of the namespace changes; counts of the pods are
//! those of `matching`, kept as pods come and go. Spec: scheduler-core 6.10.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1 as core;
use koord_api::selector::{Operator, Selector};

use crate::engine::input::{Workload, WorkloadKind};
use crate::intern::{Names, Sym};
use crate::pod::term::PodSet;
use crate::pod::{Class, Owner, SpreadConstraint, constraint_without_pods};
use crate::profile::args::DefaultConstraints;

/// What pods of a class get by default.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultSpread {
    /// In the order of the configuration; all of them count the same pods.
    pub constraints: Box<[SpreadConstraint]>,
    /// They are the built-in ones, which leave nodes without the label in.
    pub is_system: bool,
}

/// Selectors by namespace, and what was made of them.
#[derive(Debug, Default)]
pub struct Workloads {
    namespaces: HashMap<Box<str>, InNamespace>,
    /// By scheduler name; a scheduler that is not here spreads nothing by default.
    profiles: HashMap<Box<str>, ProfileDefaults>,
    /// Grows with every change of a selector.
    version: u64,
    known: HashMap<ByAddress, Known>,
    /// The number of entries at which dead ones are dropped.
    swept_at: usize,
}

#[derive(Debug)]
struct ProfileDefaults {
    constraints: Box<[SpreadConstraint]>,
    is_system: bool,
}

#[derive(Debug, Default)]
struct InNamespace {
    /// The last change of a selector here.
    version: u64,
    /// Labels that each Service asks for, ascending.
    services: HashMap<Box<str>, Box<[(Sym, Sym)]>>,
    /// Services by the first of these labels.
    by_label: HashMap<(Sym, Sym), Vec<Box<str>>>,
    owners: HashMap<(WorkloadKind, Box<str>), Selector>,
}

/// What was worked out for a class, at which version of its namespace.
#[derive(Debug)]
struct Known {
    version: u64,
    spread: Option<Arc<DefaultSpread>>,
}

/// A class by identity, without keeping it alive.
#[derive(Debug)]
struct ByAddress(Weak<Class>);

impl PartialEq for ByAddress {
    fn eq(&self, other: &ByAddress) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for ByAddress {}

impl Hash for ByAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

/// Few entries are not worth a sweep.
const SWEPT_FROM: usize = 1024;

impl Workloads {
    /// What pods of a scheduler get when they have no constraints of their own.
    pub(super) fn set_defaults(&mut self, scheduler: &str, defaults: &DefaultConstraints, names: &mut Names) {
        let system = [soft("kubernetes.io/hostname", 3), soft("topology.kubernetes.io/zone", 5)];
        let (list, is_system) = match defaults {
            DefaultConstraints::System => (&system[..], true),
            DefaultConstraints::List(list) => (list.as_slice(), false),
        };
        let constraints = list.iter().map(|constraint| constraint_without_pods(constraint, names)).collect();
        self.profiles.insert(scheduler.into(), ProfileDefaults { constraints, is_system });
        self.known.clear();
    }

    pub(super) fn set(&mut self, object: &Workload, names: &mut Names) {
        let metadata = match object {
            Workload::Service(object) => &object.metadata,
            Workload::ReplicationController(object) => &object.metadata,
            Workload::ReplicaSet(object) => &object.metadata,
            Workload::StatefulSet(object) => &object.metadata,
        };
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let read = |selector| Selector::new(Some(selector)).ok();
        let there = self.namespaces.entry(namespace.into()).or_default();
        let (kind, selector) = match object {
            Workload::Service(service) => {
                let labels = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                let is_changed = there.set_service(name, labels, names);
                self.note(namespace, is_changed);
                return;
            }
            Workload::ReplicationController(owner) => {
                let labels = owner.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                (WorkloadKind::ReplicationController, labels.map(Selector::from_labels))
            }
            Workload::ReplicaSet(owner) => {
                let selector = owner.spec.as_ref().map(|spec| &spec.selector);
                (WorkloadKind::ReplicaSet, selector.and_then(read))
            }
            Workload::StatefulSet(owner) => {
                let selector = owner.spec.as_ref().map(|spec| &spec.selector);
                (WorkloadKind::StatefulSet, selector.and_then(read))
            }
        };
        let is_changed = there.set_owner(kind, name, selector);
        self.note(namespace, is_changed);
    }

    pub(super) fn remove(&mut self, kind: WorkloadKind, namespace: &str, name: &str) {
        let Some(there) = self.namespaces.get_mut(namespace) else { return };
        let is_changed = match kind {
            WorkloadKind::Service => there.remove_service(name),
            kind => there.set_owner(kind, name, None),
        };
        self.note(namespace, is_changed);
    }

    /// What was worked out for a namespace before a change no longer counts.
    fn note(&mut self, namespace: &str, is_changed: bool) {
        self.version += 1;
        let Some(there) = self.namespaces.get_mut(namespace) else { return };
        if is_changed {
            there.version = self.version;
        }
        if there.services.is_empty() && there.owners.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// What pods of a class get by default. Quick after `resolve`.
    pub(super) fn default_spread(&self, class: &Arc<Class>, names: &Names) -> Option<Arc<DefaultSpread>> {
        let there = self.concerned(class)?;
        match self.known.get(&ByAddress(Arc::downgrade(class))) {
            Some(known) if known.version == there.version => known.spread.clone(),
            _ => self.work_out(there, class, names),
        }
    }

    /// As `default_spread`, and remembers the answer; the flag is true when it is new.
    pub(super) fn resolve(
        &mut self,
        class: &Arc<Class>,
        names: &Names,
    ) -> (Option<Arc<DefaultSpread>>, bool) {
        let Some(there) = self.concerned(class) else { return (None, false) };
        let key = ByAddress(Arc::downgrade(class));
        let version = there.version;
        if let Some(known) = self.known.get(&key).filter(|known| known.version == version) {
            return (known.spread.clone(), false);
        }
        let mut spread = self.work_out(there, class, names);
        // Others keep what they made of it: the same again stays the same.
        if let Some(known) = self.known.get(&key).filter(|known| known.spread == spread) {
            spread = known.spread.clone();
        }
        self.sweep();
        self.known.insert(key, Known { version, spread: spread.clone() });
        (spread, true)
    }

    /// The sets that a class asked about when that was last worked out.
    pub(super) fn sets_of(&self, class: &Arc<Class>) -> Vec<Arc<PodSet>> {
        let known = self.known.get(&ByAddress(Arc::downgrade(class)));
        let constraints = known.and_then(|known| known.spread.as_ref()).map(|spread| &spread.constraints);
        constraints.into_iter().flatten().map(|constraint| constraint.pods.clone()).collect()
    }

    /// The namespace of a class, if what is there can matter to it.
    fn concerned(&self, class: &Class) -> Option<&InNamespace> {
        self.namespaces.get(&*class.namespace).filter(|_| class.spread.is_empty())
    }

    fn work_out(&self, there: &InNamespace, class: &Class, names: &Names) -> Option<Arc<DefaultSpread>> {
        let profile = self.profiles.get(&*class.scheduler)?;
        let selector = there.selector(class, names);
        // Pods that nothing selects are not of one kind.
        let is_idle = profile.constraints.is_empty() || selector.is_everything();
        (!is_idle).then(|| Arc::new(profile.with(selector, class)))
    }

    /// Forgets classes that nobody has any more.
    fn sweep(&mut self) {
        if self.known.len() >= self.swept_at.max(SWEPT_FROM) {
            self.known.retain(|class, _| class.0.strong_count() > 0);
            self.swept_at = 2 * self.known.len();
        }
    }
}

/// One of the built-in constraints.
fn soft(key: &str, max_skew: i32) -> core::TopologySpreadConstraint {
    core::TopologySpreadConstraint {
        max_skew,
        topology_key: key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..core::TopologySpreadConstraint::default()
    }
}

impl ProfileDefaults {
    fn with(&self, selector: Selector, class: &Class) -> DefaultSpread {
        let pods = Arc::new(PodSet::within(&class.namespace, selector));
        let with_pods =
            |constraint: &SpreadConstraint| SpreadConstraint { pods: pods.clone(), ..constraint.clone() };
        DefaultSpread {
            constraints: self.constraints.iter().map(with_pods).collect(),
            is_system: self.is_system,
        }
    }
}

impl InNamespace {
    /// True when that is news.
    fn set_service(
        &mut self,
        name: &str,
        labels: Option<&BTreeMap<String, String>>,
        names: &mut Names,
    ) -> bool {
        let mut pairs: Vec<(Sym, Sym)> = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| (names.intern(key), names.intern(value)))
            .collect();
        pairs.sort_unstable();
        if self.services.get(name).is_some_and(|known| **known == *pairs) {
            return false;
        }
        let was_there = self.remove_service(name);
        // A Service without a selector means no pods.
        let Some(first) = pairs.first() else { return was_there };
        self.by_label.entry(*first).or_default().push(name.into());
        self.services.insert(name.into(), pairs.into());
        true
    }

    fn remove_service(&mut self, name: &str) -> bool {
        let Some(pairs) = self.services.remove(name) else { return false };
        let index = pairs.first().and_then(|first| Some((first, self.by_label.get_mut(first)?)));
        if let Some((first, names)) = index {
            names.retain(|known| **known != *name);
            if names.is_empty() {
                self.by_label.remove(first);
            }
        }
        true
    }

    fn set_owner(&mut self, kind: WorkloadKind, name: &str, selector: Option<Selector>) -> bool {
        let key = (kind, name.into());
        let is_news = self.owners.get(&key) != selector.as_ref();
        match selector {
            Some(selector) => self.owners.insert(key, selector),
            None => self.owners.remove(&key),
        };
        is_news
    }

    /// Everything that the pod's Services and its owner ask for, together.
    fn selector(&self, class: &Class, names: &Names) -> Selector {
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        let meant = class.labels.iter().filter_map(|pair| self.by_label.get(pair)).flatten();
        for pairs in meant.filter_map(|name| self.services.get(name)) {
            if pairs.iter().all(|(key, value)| class.label(*key) == Some(*value)) {
                let texts =
                    pairs.iter().map(|(key, value)| (names.text(*key).into(), names.text(*value).into()));
                labels.extend(texts);
            }
        }
        let owner = class.owner.as_ref().and_then(|owner| Some((owner_kind(owner)?, owner.name.clone())));
        match owner.and_then(|key| self.owners.get(&key)) {
            None => Selector::from_labels(&labels),
            Some(own) => {
                // What both ask for is asked for once.
                let asks = |key: &str, value: &str| {
                    own.requirements().iter().any(|requirement| {
                        requirement.operator() == Operator::Equals
                            && requirement.key() == key
                            && requirement.values().iter().any(|wanted| wanted == value)
                    })
                };
                labels.retain(|key, value| !asks(key, value));
                Selector::from_labels(&labels).joined(own)
            }
        }
    }
}

/// The kinds of owners that have a selector we know.
fn owner_kind(owner: &Owner) -> Option<WorkloadKind> {
    match (&*owner.api_version, &*owner.kind) {
        ("v1", "ReplicationController") => Some(WorkloadKind::ReplicationController),
        ("apps/v1", "ReplicaSet") => Some(WorkloadKind::ReplicaSet),
        ("apps/v1", "StatefulSet") => Some(WorkloadKind::StatefulSet),
        _ => None,
    }
}
