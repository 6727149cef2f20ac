//! A node's facts that are too wide for columns.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::pod::resource_list;
use koord_api::resource::{ResourceTable, ResourceVector};

use crate::intern::{Names, Sym};
use crate::pod::Pod;

/// One node, or the ghost of one: pods are counted on it and the object is not there.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub name: Box<str>,
    pub is_real: bool,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub taints: Vec<core::Taint>,
    pub taint_set: u32,
    pub is_unschedulable: bool,
    pub allocatable: ResourceVector,
    /// Image name and size.
    pub images: Vec<(Sym, i64)>,
    /// Type and status of each condition: what waking pods looks at.
    pub conditions: Vec<(Box<str>, Box<str>)>,
    /// Region and zone, as the order of nodes groups them.
    pub zone: Box<str>,
    pub pods: PodsOnNode,
}

/// Pods counted on a node.
#[derive(Clone, Debug, Default)]
pub struct PodsOnNode {
    pub all: Vec<Arc<Pod>>,
    /// Pods that keep a port of the host.
    pub with_ports: Vec<Arc<Pod>>,
}

impl PodsOnNode {
    pub(super) fn add(&mut self, pod: &Arc<Pod>) {
        if !pod.class.ports.is_empty() {
            self.with_ports.push(pod.clone());
        }
        self.all.push(pod.clone());
    }

    pub(super) fn remove(&mut self, pod: &Arc<Pod>) {
        for list in [&mut self.all, &mut self.with_ports] {
            if let Some(at) = list.iter().position(|known| known.uid == pod.uid) {
                list.swap_remove(at);
            }
        }
    }
}

impl Node {
    pub(super) fn read(object: &core::Node, names: &mut Names, resources: &mut ResourceTable) -> Node {
        let metadata = &object.metadata;
        let (spec, status) = (object.spec.as_ref(), object.status.as_ref());
        let labels = metadata.labels.clone().unwrap_or_default();
        let mut images = Vec::new();
        for image in status.into_iter().flat_map(|s| s.images.iter().flatten()) {
            let size = image.size_bytes.unwrap_or(0);
            images.extend(image.names.iter().flatten().map(|name| (names.intern(name), size)));
        }
        images.sort_unstable();
        images.dedup_by_key(|(name, _)| *name);
        let list = resource_list(status.and_then(|s| s.allocatable.as_ref()));
        let conditions = status.into_iter().flat_map(|s| s.conditions.iter().flatten());
        Node {
            name: metadata.name.as_deref().unwrap_or_default().into(),
            is_real: true,
            zone: zone(&labels),
            labels,
            annotations: metadata.annotations.clone().unwrap_or_default(),
            taints: spec.and_then(|s| s.taints.clone()).unwrap_or_default(),
            taint_set: 0,
            is_unschedulable: spec.and_then(|s| s.unschedulable).unwrap_or(false),
            allocatable: ResourceVector::from_list(&list, resources),
            images,
            conditions: conditions.map(|c| (c.type_.as_str().into(), c.status.as_str().into())).collect(),
            pods: PodsOnNode::default(),
        }
    }

    /// The size of an image this node has.
    pub fn image_size(&self, name: Sym) -> Option<i64> {
        self.images.binary_search_by_key(&name, |(name, _)| *name).ok().map(|at| self.images[at].1)
    }
}

/// Region and zone labels, GA names before beta names; empty when there is neither.
fn zone(labels: &BTreeMap<String, String>) -> Box<str> {
    let first = |names: [&str; 2]| {
        names.iter().find_map(|name| labels.get(*name).filter(|value| !value.is_empty())).map(String::as_str)
    };
    let region = first(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    let zone = first(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    match (region, zone) {
        (None, None) => "".into(),
        (region, zone) => format!("{}:\0:{}", region.unwrap_or(""), zone.unwrap_or("")).into(),
    }
}

/// Taints that several nodes have alike: a pod is checked against each set once, not against each node.
#[derive(Debug)]
pub struct TaintSets {
    sets: Vec<TaintSet>,
    ids: HashMap<Vec<Key>, u32>,
    free: Vec<u32>,
    /// Grows whenever a number gets another meaning.
    version: u64,
}

type Key = (String, String, String);

/// One set and how many nodes have it.
#[derive(Clone, Debug, Default)]
pub struct TaintSet {
    pub taints: Vec<core::Taint>,
    nodes: usize,
    key: Vec<Key>,
}

impl Default for TaintSets {
    /// Set 0 is the empty one and always there.
    fn default() -> TaintSets {
        TaintSets {
            sets: vec![TaintSet::default()],
            ids: HashMap::from([(Vec::new(), 0)]),
            free: Vec::new(),
            version: 0,
        }
    }
}

impl TaintSets {
    pub fn get(&self, id: u32) -> &TaintSet {
        &self.sets[usize::try_from(id).unwrap_or(0)]
    }

    /// How many sets there have ever been at once: ids are below this.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether no node has any taint.
    pub fn is_empty(&self) -> bool {
        self.sets.iter().skip(1).all(|set| set.nodes == 0)
    }

    /// What is known of sets by number holds while this stays the same.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Sets that nodes have, the empty one left out.
    pub fn used(&self) -> impl Iterator<Item = (u32, &TaintSet)> {
        let sets = (0..).zip(&self.sets).skip(1);
        sets.filter(|(_, set)| set.nodes > 0)
    }

    pub(super) fn share(&mut self, taints: &[core::Taint]) -> u32 {
        let text = |taint: &core::Taint| {
            (taint.key.clone(), taint.value.clone().unwrap_or_default(), taint.effect.clone())
        };
        // In the node's own order: the first untolerated taint is the one that is named.
        let key: Vec<Key> = taints.iter().map(text).collect();
        let id = match self.ids.get(&key) {
            Some(id) => *id,
            None => {
                let id = self.free.pop().unwrap_or_else(|| {
                    self.sets.push(TaintSet::default());
                    u32::try_from(self.sets.len() - 1).expect("fewer sets than nodes")
                });
                let set = TaintSet { taints: taints.to_vec(), nodes: 0, key: key.clone() };
                self.sets[usize::try_from(id).unwrap_or(0)] = set;
                self.ids.insert(key, id);
                self.version += 1;
                id
            }
        };
        self.sets[usize::try_from(id).unwrap_or(0)].nodes += 1;
        id
    }

    /// A node with this set went; `was_real` is false for a ghost, which never had one.
    pub(super) fn release(&mut self, id: u32, was_real: bool) {
        if !was_real {
            return;
        }
        let set = &mut self.sets[usize::try_from(id).unwrap_or(0)];
        set.nodes -= 1;
        if set.nodes == 0 && id != 0 {
            self.ids.remove(&std::mem::take(&mut set.key));
            set.taints.clear();
            self.free.push(id);
        }
    }
}
