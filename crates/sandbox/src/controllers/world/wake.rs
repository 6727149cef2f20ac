//! What a change wakes: the one list of who looks at what.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::graph::Links;
use super::{Heartbeat, Key, ObjectId, Resource, Work, World};
use crate::controllers::node::Node;
use crate::controllers::pod::Pod;
use crate::controllers::replicaset::ReplicaSet;
use crate::controllers::view::{self, Meta, Owner, PodSelector};
use crate::store::{Change, Stored};

/// Where nodes renew their leases.
const LEASES: &str = "kube-node-lease";
/// Kinds that adopt pods by their selector.
const ADOPTERS: &[Work] = &[Work::ReplicaSet, Work::StatefulSet, Work::DaemonSet, Work::Job];

/// A workload, as far as finding its pods goes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Workload {
    spec: WorkloadSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkloadSpec {
    selector: PodSelector,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lease {
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    renew_time: Box<str>,
}

impl World {
    /// Keeps the graph of owners and wakes the garbage collector.
    pub(super) fn note_owners(
        &mut self,
        resource: &Arc<Resource>,
        change: Change,
        object: &Stored,
        previous: Option<&Stored>,
    ) {
        let id = ObjectId { resource: resource.clone(), key: object.key().into() };
        let new = Links::read(object);
        let mut released: Vec<Owner> = Vec::new();
        if change == Change::Deleted {
            self.graph.remove(&id, &new.owner_references);
            self.graph.forget_waiting(&new.uid);
            let dependents = self.graph.dependents(&new.uid).map(|(id, _)| Key::Object(id.clone()));
            self.wake.extend(dependents);
            released = new.owner_references;
        } else {
            let old = previous.map(Links::read);
            let is_new = old.as_ref().is_none_or(|old| old.uid != new.uid);
            let is_linked_anew =
                is_new || old.as_ref().is_some_and(|old| old.owner_references != new.owner_references);
            if is_linked_anew {
                if let Some(old) = &old {
                    self.graph.remove(&id, &old.owner_references);
                    released.extend(old.owner_references.iter().cloned());
                }
                self.graph.add(&id, &new.owner_references);
            }
            let starts_waiting = new.is_waiting() && old.as_ref().is_none_or(|old| !old.is_waiting());
            self.graph.note_waiting(&id, &new);
            if starts_waiting || (is_linked_anew && !new.owner_references.is_empty()) {
                self.wake.push(Key::Object(id));
            }
        }
        let owners = released.iter().filter_map(|owner| self.graph.waiting(&owner.uid));
        self.wake.extend(owners.cloned().map(Key::Object));
    }

    pub(super) fn note_pod(&mut self, object: &Stored) {
        let Some(pod) = Pod::read(object) else { return };
        let key = object.key();
        if pod.owner.is_none() && pod.deleting.is_none() {
            let adopters = self.selecting(ADOPTERS, &pod.namespace, &pod.labels);
            self.wake.extend(adopters);
        }
        if !pod.node.is_empty() {
            match self.nodes.get(&*pod.node) {
                Some(node) if node.drives_out() || self.evictions.contains_key(key) => {
                    self.push(Work::Taint, key);
                }
                Some(_) => {}
                None => self.push(Work::Lost, key),
            }
        }
        self.wake_pod_owner(&pod);
        if let Some(old) = self.pods.insert(key, pod) {
            self.wake_pod_owner(&old);
        }
    }

    /// Whoever counts this pod.
    fn wake_pod_owner(&mut self, pod: &Pod) {
        let budgets = self.selecting(&[Work::Budget], &pod.namespace, &pod.labels);
        self.wake.extend(budgets);
        let Some(owner) = &pod.owner else { return };
        let key: Arc<str> = crate::store::key(&pod.namespace, &owner.name).into();
        let Some(work) = work_of(owner) else { return };
        if work == Work::ReplicaSet
            && !pod.is_active()
            && let Some(deployment) = self.sets.get(&key).and_then(|set| set.meta.controller().cloned())
        {
            // A Deployment that recreates waits for the last pod.
            self.wake_by_owner(&pod.namespace, &deployment);
        }
        self.wake.push(Key::Work(work, key));
    }

    fn wake_by_owner(&mut self, namespace: &str, owner: &Owner) {
        if let Some(work) = work_of(owner) {
            self.push(work, &crate::store::key(namespace, &owner.name));
        }
    }

    pub(super) fn wake_owner(&mut self, meta: &Meta) {
        if let Some(owner) = meta.controller() {
            self.wake_by_owner(&meta.namespace, owner);
        }
    }

    pub(super) fn note_set(&mut self, object: &Stored) {
        let Some(set) = view::read::<ReplicaSet>(object) else { return };
        match set.meta.controller() {
            Some(_) => self.wake_owner(&set.meta),
            None => {
                let deployments = self.selecting(&[Work::Deployment], &set.meta.namespace, &set.meta.labels);
                self.wake.extend(deployments);
            }
        }
        if let Some(old) = self.sets.insert(object.key().into(), set) {
            self.wake_owner(&old.meta);
        }
        self.note_workload(Work::ReplicaSet, object);
    }

    pub(super) fn note_workload(&mut self, work: Work, object: &Stored) {
        let Some(workload) = view::read::<Workload>(object) else { return };
        self.selecting.insert((work, object.key().into()), workload.spec.selector.0);
        self.push(work, object.key());
    }

    pub(super) fn note_node(&mut self, object: &Stored, now: Timestamp) {
        let Some(mut node) = Node::read(object) else { return };
        let key: Arc<str> = object.key().into();
        let old = self.nodes.remove(&key);
        node.heartbeat.seen = match &old {
            Some(old) if old.heartbeat.text == node.heartbeat.text => old.heartbeat.seen,
            _ => now,
        };
        let is_same_place = old.as_ref().is_some_and(|old| old.is_same_place(&node));
        if !is_same_place {
            self.wake_all(Work::DaemonSet);
        }
        if old.as_ref().is_none_or(|old| old.taints != node.taints)
            && (node.drives_out() || old.as_ref().is_some_and(Node::drives_out))
        {
            let pods = self.pods.on_node(&key).map(|(pod, _)| Key::Work(Work::Taint, pod.clone()));
            self.wake.extend(pods);
        }
        self.missing.remove(&*key);
        self.nodes.insert(key.clone(), node);
        self.wake.push(Key::Work(Work::Node, key));
    }

    pub(super) fn note_lease(&mut self, object: &Stored, now: Timestamp) {
        if object.namespace() != LEASES {
            return;
        }
        let Some(lease) = view::read::<Lease>(object) else { return };
        let name: Arc<str> = object.name().into();
        let known = self.leases.get(&name);
        if known.is_some_and(|known| known.text == lease.spec.renew_time) {
            return;
        }
        self.leases.insert(name.clone(), Heartbeat { text: lease.spec.renew_time, seen: now });
    }

    pub(super) fn note_namespace(&mut self, object: &Stored) {
        if view::read_meta(object).is_deleting() {
            self.terminating.insert(object.name().into());
            self.push(Work::Namespace, object.name());
        }
    }

    pub(super) fn note_volume(&mut self, object: &Stored) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Volume {
            spec: VolumeSpec,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct VolumeSpec {
            claim_ref: Meta,
        }
        let claim = view::read::<Volume>(object).unwrap_or_default().spec.claim_ref;
        self.push(Work::Volume, object.key());
        if claim.name.is_empty() {
            return self.wake_claims();
        }
        let claim: Arc<str> = claim.key().into();
        self.bound.insert(claim.clone(), object.key().into());
        self.wake.push(Key::Work(Work::Claim, claim));
    }

    /// A volume or a class is new: some claim may have waited for it.
    pub(super) fn wake_claims(&mut self) {
        self.push(Work::Claim, "");
    }

    fn wake_all(&mut self, work: Work) {
        let all = self.selecting.keys().filter(|(w, _)| *w == work);
        let keys: Vec<Key> = all.map(|(work, key)| Key::Work(*work, key.clone())).collect();
        self.wake.extend(keys);
    }

    /// Takes a deleted object out of the caches and wakes whoever counted it.
    pub(super) fn forget(&mut self, resource: &Resource, key: &str, now: Timestamp) {
        let work = match (&*resource.group, &*resource.plural) {
            ("", "pods") => return self.forget_pod(key),
            ("", "nodes") => return self.forget_node(key, now),
            ("", "namespaces") => {
                self.terminating.remove(key);
                return;
            }
            ("", "persistentvolumeclaims") => {
                if let Some(volume) = self.bound.get(key).cloned() {
                    self.wake.push(Key::Work(Work::Volume, volume));
                }
                return;
            }
            ("", "persistentvolumes") => {
                let lost: Vec<Arc<str>> =
                    self.bound.iter().filter(|(_, v)| ***v == *key).map(|(c, _)| c.clone()).collect();
                for claim in lost {
                    self.bound.remove(&claim);
                    self.wake.push(Key::Work(Work::Claim, claim));
                }
                return;
            }
            ("coordination.k8s.io", "leases") => {
                if let Some(name) = key.strip_prefix(LEASES).and_then(|rest| rest.strip_prefix('/')) {
                    self.leases.remove(name);
                }
                return;
            }
            ("apps", "replicasets") => {
                if let Some(set) = self.sets.remove(key) {
                    self.wake_owner(&set.meta);
                }
                Work::ReplicaSet
            }
            ("apps", "deployments") => Work::Deployment,
            ("apps", "statefulsets") => Work::StatefulSet,
            ("apps", "daemonsets") => Work::DaemonSet,
            ("batch", "jobs") => Work::Job,
            ("policy", "poddisruptionbudgets") => Work::Budget,
            _ => return,
        };
        self.selecting.remove(&(work, key.into()));
        // Pods of a deleted Job must be let go.
        self.push(work, key);
    }

    fn forget_pod(&mut self, key: &str) {
        self.evictions.remove(key);
        let Some(mut pod) = self.pods.remove(key) else { return };
        pod.deleting.get_or_insert(Timestamp::UNIX_EPOCH);
        self.wake_pod_owner(&pod);
        for claim in &pod.claims {
            self.push(Work::Claim, &crate::store::key(&pod.namespace, claim));
        }
    }

    fn forget_node(&mut self, name: &str, now: Timestamp) {
        self.nodes.remove(name);
        self.push(Work::Node, name);
        self.silent.remove(name);
        self.leases.remove(name);
        self.wake_all(Work::DaemonSet);
        self.missing.insert(name.into(), now);
        let lost: Vec<Key> =
            self.pods.on_node(name).map(|(key, _)| Key::Work(Work::Lost, key.clone())).collect();
        self.wake.extend(lost);
    }
}

/// The controller that an owner reference speaks of.
fn work_of(owner: &Owner) -> Option<Work> {
    Some(match (&*owner.api_version, &*owner.kind) {
        ("apps/v1", "ReplicaSet") => Work::ReplicaSet,
        ("apps/v1", "Deployment") => Work::Deployment,
        ("apps/v1", "StatefulSet") => Work::StatefulSet,
        ("apps/v1", "DaemonSet") => Work::DaemonSet,
        ("batch/v1", "Job") => Work::Job,
        _ => return None,
    })
}
