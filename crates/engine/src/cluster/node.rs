//! A node's facts that are too wide for columns.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::resource::{ResourceId, ResourceTable, ResourceVector};
use koord_api::transform::allocatable;

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
    /// Type and status of each condition, ascending: what waking pods looks at.
    pub conditions: Vec<(Box<str>, Box<str>)>,
    /// Region and zone, as the order of nodes groups them.
    pub zone: Box<str>,
    pub pods: PodsOnNode,
}

/// Pods counted on a node.
#[derive(Clone, Debug, Default)]
pub struct PodsOnNode {
    /// Most important first: higher priority, then earlier start. Of those that have not started, the last to come
    /// leads, for kube-scheduler reads the clock anew for each comparison; of those that started together, the first.
    pub all: Vec<Arc<Pod>>,
    /// Pods that keep a port of the host.
    pub with_ports: Vec<Arc<Pod>>,
    /// Pods with volumes that placement depends on.
    pub with_volumes: Vec<Arc<Pod>>,
    /// What preemption weighs, for each of `all`: the pods themselves lie all over the memory.
    standings: Vec<Standing>,
}

/// How much a pod on a node counts, and what it leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub priority: i32,
    /// Seconds since the epoch; none while it has not started.
    pub started: Option<i64>,
    pub cpu_milli: i64,
    pub memory: i64,
}

impl Standing {
    fn of(pod: &Pod) -> Standing {
        let amounts = &pod.class.requests.amounts;
        Standing {
            // What is reserved is not taken away for anybody.
            priority: if pod.class.reserve.is_some() { i32::MAX } else { pod.class.priority },
            started: pod.started,
            cpu_milli: amounts.get(ResourceId::CPU),
            memory: amounts.get(ResourceId::MEMORY),
        }
    }

    /// Ascending from the most important.
    fn rank(&self) -> (std::cmp::Reverse<i32>, bool, Option<i64>) {
        // Differs: a pod that has not started counts as started now; here it comes after one that started in the
        // future, by a clock that is ahead of ours.
        (std::cmp::Reverse(self.priority), self.started.is_none(), self.started)
    }
}

impl PodsOnNode {
    pub fn standings(&self) -> &[Standing] {
        &self.standings
    }

    /// Where the pods below a priority begin in `all`.
    pub fn below(&self, priority: i32) -> usize {
        self.standings.partition_point(|standing| standing.priority >= priority)
    }

    /// The lowest priority of any pod here; the highest there is when there is none.
    pub(super) fn lowest_priority(&self) -> i32 {
        self.standings.last().map_or(i32::MAX, |standing| standing.priority)
    }

    pub(super) fn add(&mut self, pod: &Arc<Pod>) {
        if !pod.class.ports.is_empty() {
            self.with_ports.push(pod.clone());
        }
        if !pod.class.volumes.is_empty() {
            self.with_volumes.push(pod.clone());
        }
        let standing = Standing::of(pod);
        let at = match standing.started {
            None => self.standings.partition_point(|other| other.rank() < standing.rank()),
            Some(_) => self.standings.partition_point(|other| other.rank() <= standing.rank()),
        };
        self.all.insert(at, pod.clone());
        self.standings.insert(at, standing);
    }

    pub(super) fn remove(&mut self, pod: &Arc<Pod>) {
        if let Some(at) = self.all.iter().position(|known| known.uid == pod.uid) {
            self.all.remove(at);
            self.standings.remove(at);
        }
        for list in [&mut self.with_ports, &mut self.with_volumes] {
            if let Some(at) = list.iter().position(|known| known.uid == pod.uid) {
                list.swap_remove(at);
            }
        }
    }

    /// The same pod with a new record; it keeps its place unless it weighs more or less now.
    pub(super) fn replace(&mut self, pod: &Arc<Pod>) {
        let Some(at) = self.all.iter().position(|known| known.uid == pod.uid) else { return };
        if self.standings[at] != Standing::of(pod) {
            self.remove(pod);
            self.add(pod);
            return;
        }
        self.all[at] = pod.clone();
        for list in [&mut self.with_ports, &mut self.with_volumes] {
            if let Some(known) = list.iter_mut().find(|known| known.uid == pod.uid) {
                *known = pod.clone();
            }
        }
    }
}

impl Node {
    /// A copy without the pods.
    pub fn without_pods(&self) -> Node {
        Node {
            name: self.name.clone(),
            is_real: self.is_real,
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            taints: self.taints.clone(),
            taint_set: self.taint_set,
            is_unschedulable: self.is_unschedulable,
            allocatable: self.allocatable.clone(),
            images: self.images.clone(),
            conditions: self.conditions.clone(),
            zone: self.zone.clone(),
            pods: PodsOnNode::default(),
        }
    }

    pub(super) fn read(object: &core::Node, names: &mut Names, resources: &mut ResourceTable) -> Node {
        let metadata = &object.metadata;
        let (spec, status) = (object.spec.as_ref(), object.status.as_ref());
        let labels = metadata.labels.clone().unwrap_or_default();
        let mut images = Vec::new();
        for image in status.into_iter().flat_map(|s| s.images.iter().flatten()) {
            let size = image.size_bytes.unwrap_or(0).max(0);
            images.extend(image.names.iter().flatten().map(|name| (names.intern(name), size)));
        }
        images.sort_unstable();
        images.dedup_by_key(|(name, _)| *name);
        // What the node keeps for itself is off from here on, so that fit, scores and preemption agree.
        let mut amounts = ResourceVector::from_list(&allocatable(object), resources);
        amounts.clamp_to_zero();
        let conditions = status.into_iter().flat_map(|s| s.conditions.iter().flatten());
        let mut conditions: Vec<(Box<str>, Box<str>)> =
            conditions.map(|c| (c.type_.as_str().into(), c.status.as_str().into())).collect();
        conditions.sort();
        Node {
            name: metadata.name.as_deref().unwrap_or_default().into(),
            is_real: true,
            zone: zone(&labels),
            labels,
            annotations: metadata.annotations.clone().unwrap_or_default(),
            taints: spec.and_then(|s| s.taints.clone()).unwrap_or_default(),
            taint_set: 0,
            is_unschedulable: spec.and_then(|s| s.unschedulable).unwrap_or(false),
            allocatable: amounts,
            images,
            conditions,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use serde_json::json;

    /// The names on node `n`, and that the rest agrees with them.
    fn names(cluster: &Cluster) -> String {
        let row = cluster.row("n").unwrap();
        let pods = &cluster.node(row).pods;
        let standings: Vec<Standing> = pods.all.iter().map(|pod| Standing::of(pod)).collect();
        assert_eq!(pods.standings(), standings);
        assert_eq!(cluster.columns.lowest_priority[row.index()], pods.lowest_priority());
        pods.all.iter().map(|pod| &*pod.key.name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pods_stand_in_order_of_importance() {
        let mut cluster = Cluster::default();
        let place = |cluster: &mut Cluster, name: &str, priority: i32, started: Option<&str>| {
            let object = json!({"metadata": {"name": name, "namespace": "d", "uid": name},
                "spec": {"nodeName": "n", "priority": priority, "containers": []}, "status": {"startTime": started}});
            let pod = Arc::new(cluster.compile(&serde_json::from_value(object).unwrap()));
            assert_eq!(cluster.confirm(pod), None);
        };
        let (early, late) = (Some("2024-01-01T00:00:00Z"), Some("2024-01-01T00:00:01Z"));
        for (name, priority, started) in [
            ("unstarted", 5, None),
            ("late", 5, late),
            ("early", 5, early),
            ("high", 9, None),
            ("low", -1, early),
            ("newer", 5, None),
            ("twin", 5, early),
        ] {
            place(&mut cluster, name, priority, started);
        }
        assert_eq!(names(&cluster), "high early twin late newer unstarted low");
        let pods = &cluster.node(cluster.row("n").unwrap()).pods;
        assert_eq!([10, 9, 5, 0, -1].map(|priority| pods.below(priority)), [0, 1, 6, 6, 7]);
        // A record that says more moves the pod; one that says the same does not.
        place(&mut cluster, "unstarted", 5, early);
        place(&mut cluster, "newer", 5, None);
        assert_eq!(names(&cluster), "high early twin unstarted late newer low");
        cluster.release("low");
        assert_eq!(names(&cluster), "high early twin unstarted late newer");
    }
}
