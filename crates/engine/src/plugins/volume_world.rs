//! A small cluster with storage, for the tests of the volume plugins: nodes a (zone z1) and b (zone z2), the
//! default profile.

use std::sync::Arc;

use serde_json::{Value, json};

use super::registry::{self, Manner};
use super::testing::merged;
use crate::cluster::{Cluster, Row, StorageChange};
use crate::engine::command::BindPlan;
use crate::engine::input::{Storage, StorageKind};
use crate::framework::event::Event;
use crate::framework::hint::Hint;
use crate::framework::{Change, HintInput, Hooks, Slots, Status};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::random::Random;
use crate::schedule::{Attempt, Choice, Failure, Framework, Nominated, Sampling, Ties};
use crate::time::Time;

pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) framework: Framework,
    revision: u64,
}

/// When everything happens.
pub(super) const NOW: Time = Time::from_seconds(1_000);

impl World {
    pub(super) fn new() -> World {
        let manner = Manner { sampling: Sampling::Percent(0), ties: Ties::Heap };
        let framework = registry::framework(&Profile::standard("s"), manner);
        let mut world = World { cluster: Cluster::default(), framework, revision: 0 };
        world.node("a", json!({"topology.kubernetes.io/zone": "z1"}));
        world.node("b", json!({"topology.kubernetes.io/zone": "z2"}));
        world
    }

    pub(super) fn node(&mut self, name: &str, mut labels: Value) {
        labels["kubernetes.io/hostname"] = json!(name);
        let object = json!({"metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}});
        self.cluster.set_node(&serde_json::from_value(object).unwrap());
    }

    pub(super) fn row(&self, node: &str) -> Row {
        self.cluster.row(node).unwrap()
    }

    /// A storage object comes or changes; it gets a new version.
    pub(super) fn put(&mut self, kind: StorageKind, mut object: Value) -> StorageChange {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] =
                json!(format!("uid-{}", object["metadata"]["name"].as_str().unwrap()));
        }
        self.cluster.set_storage(&storage(kind, object)).unwrap()
    }

    pub(super) fn class(&mut self, name: &str, mode: &str, provisioner: &str, rest: Value) -> StorageChange {
        let object = merged(
            json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}),
            &rest,
        );
        self.put(StorageKind::StorageClass, object)
    }

    /// A class that waits for the first pod, with volumes made by hand.
    pub(super) fn waiting_class(&mut self) {
        self.class("w", "WaitForFirstConsumer", "kubernetes.io/no-provisioner", json!({}));
    }

    pub(super) fn claim(&mut self, name: &str, rest: Value) -> StorageChange {
        let object = merged(
            json!({"metadata": {"name": name, "namespace": "d"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "w", "resources": {"requests": {"storage": "5Gi"}}}, "status": {"phase": "Pending"}}),
            &rest,
        );
        self.put(StorageKind::PersistentVolumeClaim, object)
    }

    pub(super) fn bound_claim(&mut self, name: &str, volume: &str, rest: Value) {
        let object = merged(
            json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}),
            &rest,
        );
        self.claim(name, object);
    }

    pub(super) fn volume(&mut self, name: &str, size: &str, rest: Value) -> StorageChange {
        let object = merged(
            json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "w", "capacity": {"storage": size}}, "status": {"phase": "Available"}}),
            &rest,
        );
        self.put(StorageKind::PersistentVolume, object)
    }

    /// A pod with these volumes; `d/p` with UID `p` by the name `p`.
    pub(super) fn pod(&mut self, name: &str, volumes: Value, rest: Value) -> Arc<Pod> {
        let object = merged(
            json!({"metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"containers": [{"name": "c"}], "volumes": volumes}}),
            &rest,
        );
        Arc::new(self.cluster.compile(&serde_json::from_value(object).unwrap()))
    }

    /// A pod that mounts claims.
    pub(super) fn pod_of(&mut self, name: &str, claims: &[&str]) -> Arc<Pod> {
        self.pod(name, mounts(claims), json!({}))
    }

    pub(super) fn place(&mut self, name: &str, node: &str, volumes: Value) -> Arc<Pod> {
        let pod = self.pod(name, volumes, json!({"spec": {"nodeName": node}}));
        assert_eq!(self.cluster.confirm(pod.clone()), None);
        pod
    }

    pub(super) fn attempt(&mut self, pod: &Arc<Pod>) -> Result<Choice, Failure> {
        let order = self.cluster.visiting_order().to_vec();
        let attempt = Attempt {
            framework: &self.framework,
            nominated: &Nominated::default(),
            order: &order,
            start: &mut 0,
            random: &mut Random::new(1),
            nominated_row: None,
            memory: None,
            extenders: &mut [],
            now: NOW,
        };
        attempt.run(&self.cluster, pod)
    }

    /// Nodes that refused the pod and where taking other pods away might help.
    pub(super) fn curable(&mut self, pod: &Arc<Pod>) -> Vec<Row> {
        match self.attempt(pod) {
            Err(Failure::Unfit(unfit)) => unfit.diagnosis.curable(self.cluster.visiting_order()).into_owned(),
            other => panic!("{other:?}"),
        }
    }

    /// The refusal after `0/2 nodes are available: `, up to the full stop, or the nodes that can take the pod.
    pub(super) fn verdict(&mut self, pod: &Arc<Pod>) -> String {
        match self.attempt(pod) {
            Ok(choice) => {
                let names = choice.feasible.iter().map(|(row, _)| &*self.cluster.node(*row).name);
                let mut names: Vec<&str> = names.collect();
                names.sort_unstable();
                names.join(" ")
            }
            Err(Failure::Unfit(unfit)) => {
                let message = unfit.diagnosis.message();
                let (_, rest) = message.split_once("available: ").unwrap();
                rest.strip_suffix('.').unwrap().to_owned()
            }
            Err(Failure::Error(status)) => format!("error: {status}"),
            Err(Failure::NoNodes) => "no nodes".to_owned(),
        }
    }

    /// Places the pod: assume and reserve. The slots are for the steps that follow.
    pub(super) fn reserve(&mut self, pod: &Arc<Pod>) -> (Row, Slots) {
        let Choice { row, mut slots, .. } = self.attempt(pod).unwrap();
        self.cluster.assume(pod.clone(), row).unwrap();
        for plugin in self.framework.reserves.iter().filter_map(|hooks| hooks.reserve.as_ref()) {
            plugin.reserve(&mut self.cluster, &mut slots, pod, row).unwrap();
        }
        (row, slots)
    }

    pub(super) fn unreserve(&mut self, pod: &Arc<Pod>, row: Row, slots: &mut Slots) {
        for plugin in self.framework.reserves.iter().filter_map(|hooks| hooks.reserve.as_ref()) {
            plugin.unreserve(&mut self.cluster, slots, pod, row);
        }
        self.cluster.forget(&pod.uid).unwrap();
    }

    pub(super) fn plan(&self, pod: &Arc<Pod>, row: Row, slots: &Slots) -> BindPlan {
        let mut plan = BindPlan::default();
        for plugin in self.framework.pre_binds.iter().filter_map(|hooks| hooks.pre_bind.as_ref()) {
            plugin.plan(&self.cluster, slots, pod, row, NOW, &mut plan).unwrap();
        }
        plan
    }

    pub(super) fn is_settled(&self, pod: &Arc<Pod>, row: Row, slots: &Slots) -> Result<bool, Status> {
        let plugins = self.framework.pre_binds.iter().filter_map(|hooks| hooks.pre_bind.as_ref());
        let mut is_settled = true;
        for plugin in plugins {
            is_settled &= plugin.is_settled(&self.cluster, slots, pod, row)?;
        }
        Ok(is_settled)
    }

    /// Whether an event wakes a pod that the plugin refused.
    pub(super) fn wakes(&self, hooks: &Hooks, pod: &Arc<Pod>, event: &Event, change: &Change) -> bool {
        let input = HintInput { cluster: &self.cluster, pod, event, change };
        let registrations = hooks.interest.iter().flatten();
        let mut meant = registrations.filter(|registration| registration.event.matches(event));
        meant.any(|registration| registration.hint.as_ref().is_none_or(|hint| hint(&input) == Hint::Queue))
    }

    /// Whether a storage event wakes a pod that the plugin refused.
    pub(super) fn storage_wakes(&self, hooks: &Hooks, pod: &Arc<Pod>, change: StorageChange) -> bool {
        let event = change.event();
        self.wakes(hooks, pod, &event, &Change::Storage(Arc::new(change)))
    }
}

/// A pod's volumes that are these claims.
pub(crate) fn mounts(claims: &[&str]) -> Value {
    let volume = |(i, claim): (usize, &&str)| json!({"name": format!("v{i}"), "persistentVolumeClaim": {"claimName": claim}});
    claims.iter().enumerate().map(volume).collect()
}

/// Affinity of a volume to nodes with a label.
pub(super) fn only_on(key: &str, values: &[&str]) -> Value {
    json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}}})
}

pub(super) fn storage(kind: StorageKind, object: Value) -> Storage {
    fn boxed<T: serde::de::DeserializeOwned>(object: Value) -> Box<T> {
        Box::new(serde_json::from_value(object).unwrap())
    }
    match kind {
        StorageKind::PersistentVolume => Storage::PersistentVolume(boxed(object)),
        StorageKind::PersistentVolumeClaim => Storage::PersistentVolumeClaim(boxed(object)),
        StorageKind::StorageClass => Storage::StorageClass(boxed(object)),
        StorageKind::CsiNode => Storage::CsiNode(boxed(object)),
        StorageKind::CsiDriver => Storage::CsiDriver(boxed(object)),
        StorageKind::CsiStorageCapacity => Storage::CsiStorageCapacity(boxed(object)),
        StorageKind::VolumeAttachment => Storage::VolumeAttachment(boxed(object)),
    }
}
