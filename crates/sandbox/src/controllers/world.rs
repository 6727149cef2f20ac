//! The caches: what controllers decide by, as of now.
//!
//! Every table of the store is followed by a `Watch`, and `pull` brings them all up to date without
//! waiting: the store is in this process. A controller that pulls before it decides sees its own
//! writes, so there are no expectations to keep. What changed comes out as keys to look at.
//! Change what wakes whom in `wake.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use koord_api::selector::{Labels, Selector};

use super::node::Node;
use super::pod::Pod;
use super::replicaset::ReplicaSet;
use super::view::{self, Meta};
use crate::kinds::Kind;
use crate::server::Api;
use crate::store::{Change, Stored, Watch};

mod graph;
mod wake;

pub(crate) use graph::{Graph, ObjectId};

/// Events taken from a table at once.
const BATCH: usize = 1024;

/// The kinds that own pods, and how controllers are called to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    Budget,
    Namespace,
    Node,
    /// Pods that a NoExecute taint may drive away.
    Taint,
    /// Pods whose node is gone.
    Lost,
    Claim,
    Volume,
}

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A controller and the object's key.
    Work(Work, Arc<str>),
    /// The garbage collector and an object.
    Object(ObjectId),
}

/// A resource of which there is one table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Resource {
    pub(crate) group: Box<str>,
    pub(crate) plural: Box<str>,
}

impl Resource {
    pub(crate) fn of(kind: &Kind) -> Resource {
        Resource { group: kind.storage_group.as_ref().into(), plural: kind.plural.as_ref().into() }
    }
}

/// One table being followed.
struct Feed {
    resource: Arc<Resource>,
    kind: Arc<Kind>,
    watch: Watch,
}

#[derive(Default)]
pub(crate) struct World {
    feeds: Vec<Feed>,
    pub(crate) pods: Pods,
    pub(crate) sets: BTreeMap<Arc<str>, ReplicaSet>,
    pub(crate) nodes: BTreeMap<Arc<str>, Node>,
    /// When a node's lease was last seen to change, and what it said then.
    pub(crate) leases: HashMap<Arc<str>, Heartbeat>,
    /// By controller and `namespace/name`.
    pub(crate) selecting: BTreeMap<(Work, Arc<str>), Selector>,
    pub(crate) graph: Graph,
    /// Namespaces on their way out.
    pub(crate) terminating: HashSet<Box<str>>,
    /// Since when a pod waits to be driven off its node.
    pub(crate) evictions: HashMap<Arc<str>, Timestamp>,
    /// The volume that names a claim, by claim.
    pub(crate) bound: HashMap<Arc<str>, Arc<str>>,
    /// When nodes that pods name were found missing.
    pub(crate) missing: HashMap<Box<str>, Timestamp>,
    /// Nodes that were welcomed, and their UIDs.
    pub(crate) registered: HashMap<Arc<str>, Box<str>>,
    /// Failed pods of DaemonSets.
    pub(crate) failed: super::daemonset::Failures,
    /// Failures of Jobs.
    pub(crate) job_backoffs: HashMap<Arc<str>, super::job::Backoff>,
    /// Nodes found not ready whose pods were marked so.
    pub(crate) silent: HashSet<Box<str>>,
    wake: Vec<Key>,
}

/// A sign of life, and when it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Heartbeat {
    pub(crate) text: Box<str>,
    pub(crate) seen: Timestamp,
}

impl World {
    /// Follows the tables of all kinds served now that are not followed yet: their resources.
    pub(crate) fn follow(&mut self, api: &Api) -> Vec<Arc<Kind>> {
        let mut added = Vec::new();
        let registry = api.registry();
        for kind in registry.kinds() {
            let resource = Resource::of(kind);
            let is_known = self.feeds.iter().any(|f| *f.resource == resource);
            let is_stored = kind.allows("watch") && kind.allows("list") && kind.storage_group == kind.group;
            if is_known || !is_stored || &*resource.plural == "events" {
                continue;
            }
            let (items, watch) = api.list_and_watch(kind);
            let feed = Feed { resource: Arc::new(resource), kind: kind.clone(), watch };
            for item in items {
                self.note(&feed.resource, Change::Added, &item, None, api.now());
            }
            self.feeds.push(feed);
            added.push(kind.clone());
        }
        self.feeds.retain(|feed| registry.find_resource(&feed.kind.group, &feed.kind.plural).is_some());
        added
    }

    /// Takes in everything that happened; the keys to look at.
    pub(crate) fn pull(&mut self, api: &Api) -> Vec<Key> {
        let mut feeds = std::mem::take(&mut self.feeds);
        for feed in &mut feeds {
            loop {
                match feed.watch.take(BATCH) {
                    Ok(events) if events.is_empty() => break,
                    Ok(events) => {
                        let now = api.now();
                        for event in events {
                            let previous = event.previous.as_deref();
                            self.note(&feed.resource, event.change, &event.object, previous, now);
                        }
                    }
                    Err(_) => self.relist(api, feed),
                }
            }
        }
        self.feeds = feeds;
        std::mem::take(&mut self.wake)
    }

    /// The history ran away: compare with what there is.
    fn relist(&mut self, api: &Api, feed: &mut Feed) {
        let (items, watch) = api.list_and_watch(&feed.kind);
        feed.watch = watch;
        let now = api.now();
        let keys: HashSet<&str> = items.iter().map(|item| item.key()).collect();
        for gone in self.known(&feed.resource).into_iter().filter(|key| !keys.contains(&**key)) {
            self.forget(&feed.resource, &gone, now);
            self.graph.forget(&ObjectId { resource: feed.resource.clone(), key: gone });
        }
        // Owners that went unseen are found by asking for them.
        let all = self.graph.all().into_iter();
        self.wake.extend(all.map(Key::Object));
        for item in items {
            self.note(&feed.resource, Change::Added, &item, None, now);
        }
    }

    /// Notes one change and whom it concerns.
    fn note(
        &mut self,
        resource: &Arc<Resource>,
        change: Change,
        object: &Stored,
        previous: Option<&Stored>,
        now: Timestamp,
    ) {
        self.note_owners(resource, change, object, previous);
        if change == Change::Deleted {
            if self.terminating.contains(object.namespace()) {
                self.push(Work::Namespace, object.namespace());
            }
            return self.forget(resource, object.key(), now);
        }
        let key = object.key();
        match (&*resource.group, &*resource.plural) {
            ("", "pods") => self.note_pod(object),
            ("", "nodes") => self.note_node(object, now),
            ("", "namespaces") => self.note_namespace(object),
            ("", "persistentvolumeclaims") => self.push(Work::Claim, key),
            ("", "persistentvolumes") => self.note_volume(object),
            ("storage.k8s.io", "storageclasses") => self.wake_claims(),
            ("coordination.k8s.io", "leases") => self.note_lease(object, now),
            ("apps", "replicasets") => self.note_set(object),
            ("apps", "deployments") => self.note_workload(Work::Deployment, object),
            ("apps", "statefulsets") => self.note_workload(Work::StatefulSet, object),
            ("apps", "daemonsets") => self.note_workload(Work::DaemonSet, object),
            ("apps", "controllerrevisions") => self.wake_owner(&view::read_meta(object)),
            ("batch", "jobs") => self.note_workload(Work::Job, object),
            ("policy", "poddisruptionbudgets") => self.note_workload(Work::Budget, object),
            _ => {}
        }
    }

    /// What the caches hold of a table.
    fn known(&self, resource: &Resource) -> Vec<Arc<str>> {
        let workload = |work: Work| -> Vec<Arc<str>> {
            let all = self.selecting.keys();
            all.filter(|(w, _)| *w == work).map(|(_, key)| key.clone()).collect()
        };
        let mut known = match (&*resource.group, &*resource.plural) {
            ("", "pods") => self.pods.keys().cloned().collect(),
            ("", "nodes") => self.nodes.keys().cloned().collect(),
            ("", "namespaces") => self.terminating.iter().map(|n| n.as_ref().into()).collect(),
            ("apps", "replicasets") => self.sets.keys().cloned().collect(),
            ("apps", "deployments") => workload(Work::Deployment),
            ("apps", "statefulsets") => workload(Work::StatefulSet),
            ("apps", "daemonsets") => workload(Work::DaemonSet),
            ("batch", "jobs") => workload(Work::Job),
            ("policy", "poddisruptionbudgets") => workload(Work::Budget),
            _ => Vec::new(),
        };
        known.extend(self.graph.of(resource));
        known
    }

    fn push(&mut self, work: Work, key: &str) {
        self.wake.push(Key::Work(work, key.into()));
    }

    /// The workloads of a namespace whose selector matches.
    fn selecting(&self, works: &[Work], namespace: &str, labels: &impl Labels) -> Vec<Key> {
        let mut found = Vec::new();
        for work in works {
            let all = in_namespace(&self.selecting, *work, namespace);
            // Only a budget may select all pods of its namespace.
            let may_all = *work == Work::Budget;
            let matching = all.filter(|(_, s)| (may_all || !s.is_everything()) && s.matches(labels));
            found.extend(matching.map(|((work, key), _)| Key::Work(*work, key.clone())));
        }
        found
    }

    /// Pods of this controller, or without one in its namespace.
    pub(crate) fn pods_for<'a>(&'a self, meta: &'a Meta) -> impl Iterator<Item = &'a Pod> {
        self.pods.owned_by(&meta.uid).chain(self.pods.orphans(&meta.namespace))
    }

    /// ReplicaSets of a namespace.
    pub(crate) fn sets_in<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a ReplicaSet> {
        let from: Arc<str> = format!("{namespace}/").into();
        let to: Arc<str> = format!("{namespace}0").into();
        self.sets.range(from..to).map(|(_, set)| set)
    }
}

fn in_namespace<'a>(
    all: &'a BTreeMap<(Work, Arc<str>), Selector>,
    work: Work,
    namespace: &str,
) -> impl Iterator<Item = (&'a (Work, Arc<str>), &'a Selector)> {
    let from: Arc<str> = format!("{namespace}/").into();
    let to: Arc<str> = format!("{namespace}0").into();
    all.range((work, from)..(work, to))
}

/// All pods, and ways to find them.
#[derive(Default)]
pub(crate) struct Pods {
    by_key: BTreeMap<Arc<str>, Pod>,
    /// By UID of the controller.
    by_owner: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    by_node: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    /// Without a controller, by namespace.
    orphans: HashMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl Pods {
    pub(crate) fn get(&self, key: &str) -> Option<&Pod> {
        self.by_key.get(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_key.keys()
    }

    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Pod> {
        self.by_owner.get(uid).into_iter().flatten().filter_map(|key| self.by_key.get(key))
    }

    pub(crate) fn orphans(&self, namespace: &str) -> impl Iterator<Item = &Pod> {
        self.orphans.get(namespace).into_iter().flatten().filter_map(|key| self.by_key.get(key))
    }

    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = (&Arc<str>, &Pod)> {
        self.by_node.get(node).into_iter().flatten().filter_map(|key| self.by_key.get_key_value(key))
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Pod> {
        let from: Arc<str> = format!("{namespace}/").into();
        let to: Arc<str> = format!("{namespace}0").into();
        self.by_key.range(from..to).map(|(_, pod)| pod)
    }

    /// Puts a pod in; what it replaces.
    pub(crate) fn insert(&mut self, key: &str, pod: Pod) -> Option<Pod> {
        let old = self.remove(key);
        let key: Arc<str> = key.into();
        match &pod.owner {
            Some(owner) => self.by_owner.entry(owner.uid.clone()).or_default().insert(key.clone()),
            None => self.orphans.entry(pod.namespace.clone()).or_default().insert(key.clone()),
        };
        if !pod.node.is_empty() {
            self.by_node.entry(pod.node.clone()).or_default().insert(key.clone());
        }
        self.by_key.insert(key, pod);
        old
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Pod> {
        let pod = self.by_key.remove(key)?;
        match &pod.owner {
            Some(owner) => take_out(&mut self.by_owner, &owner.uid, key),
            None => take_out(&mut self.orphans, &pod.namespace, key),
        }
        take_out(&mut self.by_node, &pod.node, key);
        Some(pod)
    }
}

fn take_out(index: &mut HashMap<Box<str>, BTreeSet<Arc<str>>>, name: &str, key: &str) {
    if let Some(keys) = index.get_mut(name) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::view::Owner;
    use proptest::prelude::*;

    fn owner(uid: u8) -> Option<Box<Owner>> {
        (uid > 0)
            .then(|| Box::new(Owner { uid: uid.to_string().into(), controller: true, ..Owner::default() }))
    }

    proptest! {
        /// After any sequence of changes the indexes equal a count from scratch.
        #[test]
        fn indexes_equal_a_recount(steps in prop::collection::vec((0u8..6, 0u8..3, 0u8..3, any::<bool>()), 0..60)) {
            let mut pods = Pods::default();
            for (name, owner_of, node, is_there) in steps {
                let key = format!("d/p{name}");
                if is_there {
                    let node = if node == 0 { String::new() } else { format!("n{node}") };
                    let pod = Pod {
                        name: format!("p{name}").into(), namespace: "d".into(), node: node.into(),
                        owner: owner(owner_of), ..Pod::default()
                    };
                    pods.insert(&key, pod);
                } else {
                    pods.remove(&key);
                }
                let count = |f: &dyn Fn(&Pod) -> bool| pods.by_key.values().filter(|p| f(p)).count();
                prop_assert_eq!(pods.orphans("d").count(), count(&|p| p.owner.is_none()));
                for uid in ["1", "2"] {
                    prop_assert_eq!(pods.owned_by(uid).count(), count(&|p| p.owner.as_ref().is_some_and(|o| *o.uid == *uid)));
                }
                for node in ["n1", "n2"] {
                    prop_assert_eq!(pods.on_node(node).count(), count(&|p| *p.node == *node));
                }
                prop_assert_eq!(pods.in_namespace("d").count(), pods.by_key.len());
                let empty = pods.by_node.values().chain(pods.by_owner.values()).any(BTreeSet::is_empty);
                prop_assert!(!empty);
            }
        }
    }
}
