//! Reservations in the model of the API: what users do to them, what our writes make of them, what must hold.

use std::collections::BTreeMap;

use koord_api::crd::reservation::{Reservation, ReservationPhase};
use koord_api::keys::pod::annotation::{RESERVATION_AFFINITY, RESERVATION_ALLOCATED};
use koord_api::keys::pod::label::RESERVATION_IGNORED;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Model, named};
use crate::engine::command::{BindPlan, Binding, ReservationChange, ReservationWrite, Unmark};
use crate::engine::tests::merge;

/// What somebody does to an object beside our own writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    /// Others may use a reservation, or can no longer.
    Owners,
    Unschedulable,
    /// A reservation is being deleted, and something holds it.
    Terminate,
    /// A pod loses the mark of the reservation that it uses.
    Strip,
    /// A pod needs less.
    Shrink,
    /// A pod has done its work.
    Finish,
}

pub(super) fn edits() -> impl Strategy<Value = Edit> {
    prop::sample::select(vec![
        Edit::Owners,
        Edit::Unschedulable,
        Edit::Terminate,
        Edit::Strip,
        Edit::Shrink,
        Edit::Finish,
    ])
}

/// What a pod has to do with reservations.
pub(super) fn wishes(id: u8) -> Value {
    let mut wishes =
        json!({"metadata": {"labels": {"app": if id.is_multiple_of(2) { "web" } else { "api" }}}});
    if id.is_multiple_of(4) {
        wishes["metadata"]["annotations"] = json!({RESERVATION_AFFINITY: "{}"});
    }
    if id == 9 {
        wishes["metadata"]["labels"][RESERVATION_IGNORED] = json!("true");
    }
    wishes
}

/// A change that has no outcome.
pub(super) fn is_refusal(write: &ReservationWrite) -> bool {
    matches!(write.change, ReservationChange::Unschedulable { .. })
}

/// Whether a reservation looks for a node. One that is being deleted does not.
pub(super) fn waits(object: &Value) -> bool {
    read(object).phase() == ReservationPhase::Pending && object["metadata"]["deletionTimestamp"].is_null()
}

fn read(object: &Value) -> Reservation {
    serde_json::from_value(object.clone()).unwrap()
}

/// The UID of the reservation that a pod is marked with.
fn mark(pod: &Value) -> Option<String> {
    let mark = pod["metadata"]["annotations"][RESERVATION_ALLOCATED].as_str()?;
    serde_json::from_str::<Value>(mark).unwrap()["uid"].as_str().map(str::to_owned)
}

fn annotate(pod: &mut Value, key: &str, value: Option<&str>) {
    let annotations = &mut pod["metadata"]["annotations"];
    match value {
        Some(value) => annotations[key] = json!(value),
        None => _ = annotations.as_object_mut().and_then(|annotations| annotations.remove(key)),
    }
}

fn cpu(pod: &Value) -> i64 {
    let cpu = &pod["spec"]["containers"][0]["resources"]["requests"]["cpu"];
    cpu.as_str().unwrap().parse().unwrap()
}

impl Model {
    /// Each bit of the form is a choice.
    pub(super) fn add_reservation(&mut self, id: u8, cpu: u8, form: u8) {
        if named(&self.reservations, 'r', id).is_some() {
            return;
        }
        let is = |bit: u8| form & (1 << bit) != 0;
        self.generation += 1;
        // One that is made anew may have the name of another.
        let name = if is(7) { format!("r{id}-same") } else { format!("r{id}-{}", self.generation) };
        let mut object = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}-{}", self.generation),
                "creationTimestamp": self.lab.now.to_string()},
            "spec": {"ttl": if is(4) { "300s" } else { "24h" }, "allocateOnce": is(0), "preAllocation": is(3),
                "owners": [{"labelSelector": {"matchLabels": {"app": if is(6) { "api" } else { "web" }}}}],
                "template": {"metadata": {"labels": {"a": if is(5) { "b" } else { "c" }}},
                    "spec": {"schedulerName": "s", "containers": [
                        {"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}]}}},
        });
        match (is(1), is(2)) {
            (false, false) => {}
            (true, false) => object["spec"]["allocatePolicy"] = json!("Aligned"),
            (_, true) => object["spec"]["allocatePolicy"] = json!("Restricted"),
        }
        self.reservations.insert(name.clone(), object);
        self.publish_reservation(&name);
        self.watch();
    }

    /// A new version of a reservation, which the watch will tell of.
    fn publish_reservation(&mut self, name: &str) {
        self.lab.revision += 1;
        let object = self.reservations.get_mut(name).unwrap();
        object["metadata"]["resourceVersion"] = json!(self.lab.revision.to_string());
        self.untold.push(json!({"type": "reservation", "object": object}));
    }

    fn publish_pod(&mut self, name: &str) {
        self.lab.revision += 1;
        let pod = self.pods.get_mut(name).unwrap();
        pod["metadata"]["resourceVersion"] = json!(self.lab.revision.to_string());
        self.untold.push(json!({"type": "pod", "object": pod}));
    }

    pub(super) fn delete_reservation(&mut self, name: &str) {
        if let Some(object) = self.reservations.remove(name) {
            let uid = &object["metadata"]["uid"];
            self.untold.push(json!({"type": "reservationGone", "name": name, "uid": uid}));
        }
    }

    pub(super) fn edit(&mut self, id: u8, edit: Edit) {
        match edit {
            Edit::Owners | Edit::Unschedulable | Edit::Terminate => {
                let Some(name) = named(&self.reservations, 'r', id % 6) else { return };
                let spec = &mut self.reservations.get_mut(&name).unwrap()["spec"];
                match edit {
                    Edit::Owners => {
                        let app = &mut spec["owners"][0]["labelSelector"]["matchLabels"]["app"];
                        *app = json!(if *app == "web" { "api" } else { "web" });
                    }
                    Edit::Unschedulable => spec["unschedulable"] = json!(spec["unschedulable"] != true),
                    _ => {
                        let now = json!({"metadata": {"deletionTimestamp": self.lab.now.to_string()}});
                        merge(self.reservations.get_mut(&name).unwrap(), &now);
                    }
                }
                self.publish_reservation(&name);
            }
            Edit::Strip | Edit::Shrink | Edit::Finish => {
                let Some(name) = named(&self.pods, 'p', id) else { return };
                let pod = self.pods.get_mut(&name).unwrap();
                match edit {
                    Edit::Strip => {
                        self.is_tampered |= mark(pod).is_some();
                        annotate(pod, RESERVATION_ALLOCATED, None);
                    }
                    Edit::Shrink => {
                        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
                    }
                    _ => pod["status"] = json!({"phase": "Succeeded"}),
                }
                self.publish_pod(&name);
                if matches!(edit, Edit::Finish) {
                    self.pods.remove(&name);
                }
            }
        }
    }

    /// Only one of the watches has news.
    pub(super) fn watch_one(&mut self, reservations: bool) {
        let is_of_it = |input: &Value| input["type"].as_str().unwrap().starts_with("reservation");
        let (told, untold) =
            std::mem::take(&mut self.untold).into_iter().partition(|input| is_of_it(input) == reservations);
        self.untold = untold;
        let told: Vec<Value> = told;
        told.into_iter().for_each(|input| self.lab.take(input));
    }

    pub(super) fn relist_reservations(&mut self) {
        let known: Vec<(String, String)> = self
            .lab
            .engine
            .keeper
            .all()
            .map(|(uid, known)| (known.name.to_string(), uid.to_owned()))
            .collect();
        // Another one of the same name is told of as a change.
        for (name, uid) in known.into_iter().filter(|(name, _)| !self.reservations.contains_key(name)) {
            self.lab.take(json!({"type": "reservationGone", "name": name, "uid": uid}));
        }
        for object in self.reservations.values().cloned().collect::<Vec<_>>() {
            self.lab.take(json!({"type": "reservation", "object": object}));
        }
    }

    fn now(&self) -> koord_api::time::Time {
        koord_api::time::Time(jiff::Timestamp::from_nanosecond(self.lab.now.nanos().into()).unwrap())
    }

    /// Changes a status as our pipeline does; false when there is no such object, or the change is refused.
    fn change_status(
        &mut self,
        name: &str,
        uid: &str,
        change: impl FnOnce(&mut Reservation) -> bool,
    ) -> bool {
        let Some(object) = self.reservations.get_mut(name) else { return false };
        let mut changed = read(object);
        if object["metadata"]["uid"] != *uid || !change(&mut changed) {
            return false;
        }
        let status = serde_json::to_value(changed.status).unwrap();
        if object["status"] != status {
            object["status"] = status;
            self.publish_reservation(name);
        }
        true
    }

    pub(super) fn place_reservation(&mut self, name: &str, binding: &Binding) -> bool {
        let now = self.now();
        self.change_status(name, &binding.pod.uid, |object| {
            if object.is_finished() || object.node_name().is_some() {
                return object.is_active() && object.node_name() == Some(&binding.node);
            }
            match binding.waits_for_room {
                true => object.set_waiting(&binding.node, None, now),
                false => object.set_available(&binding.node, None, now),
            }
            true
        })
    }

    pub(super) fn write_reservation(&mut self, write: &ReservationWrite) -> bool {
        let now = self.now();
        self.change_status(&write.name, &write.uid, |object| {
            if object.is_finished() {
                return true;
            }
            match &write.change {
                ReservationChange::Unschedulable { message } if !object.is_active() => {
                    object.set_unschedulable(message, now);
                }
                ReservationChange::Available if object.phase() == ReservationPhase::Waiting => {
                    object.end_waiting(now);
                }
                ReservationChange::Unschedulable { .. } | ReservationChange::Available => {}
                ReservationChange::Expired => object.set_expired(now),
                ReservationChange::Owners { owners, allocated, is_consumed } => {
                    let status = object.status.get_or_insert_default();
                    let reference = |uid: &str| serde_json::from_value(json!({"uid": uid})).unwrap();
                    status.current_owners = owners.iter().map(|owner| reference(&owner.uid)).collect();
                    status.allocated.clone_from(allocated);
                    if *is_consumed {
                        object.set_succeeded(now);
                    }
                }
            }
            true
        });
        true
    }

    /// Writes annotations; false when one of the pods is gone.
    pub(super) fn prepare(&mut self, plan: &BindPlan) -> bool {
        let own = plan.pod.iter().filter(|pod| pod.reserves.is_none()).map(|pod| (pod, &plan.annotations));
        let others = plan.others.iter().map(|marked| (&marked.pod, &marked.annotations));
        for (pod, annotations) in others.chain(own) {
            let name = pod.key.name.to_string();
            let Some(object) = self.pods.get_mut(&name) else { return false };
            annotations.iter().for_each(|(key, value)| annotate(object, key, value.as_deref()));
            self.publish_pod(&name);
        }
        true
    }

    pub(super) fn unmark(&mut self, mark: &Unmark) -> bool {
        let name = mark.pod.key.name.to_string();
        let Some(object) = self.pods.get_mut(&name) else { return true };
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() || *node != *mark.node {
            mark.annotations.iter().for_each(|key| annotate(object, key, None));
            self.publish_pod(&name);
        }
        true
    }

    /// None is lost.
    pub(super) fn check_reservations(&self, at: &str) {
        for (name, object) in self.reservations.iter().filter(|(_, object)| waits(object)) {
            let uid = object["metadata"]["uid"].as_str().unwrap();
            let key = crate::queue::PodKey::new("default", uid);
            let is_placed = self.lab.engine.cluster().held(uid).is_some();
            let is_queued = self.lab.engine.queue.get(&key).is_some();
            let is_untold = self.untold.iter().any(|input| input["object"]["metadata"]["uid"] == *uid);
            assert!(is_placed || is_queued || is_untold, "{at}: {name} is lost: {object}");
        }
    }

    /// The pods that use a reservation, with what they ask for, by UID.
    fn owners(&self, object: &Value) -> BTreeMap<String, i64> {
        let (uid, node) = (object["metadata"]["uid"].as_str(), &object["status"]["nodeName"]);
        let owners = self.pods.values().filter(|pod| {
            pod["spec"]["nodeName"].is_string()
                && pod["spec"]["nodeName"] == *node
                && mark(pod).as_deref() == uid
        });
        owners.map(|pod| (pod["metadata"]["uid"].as_str().unwrap().to_owned(), cpu(pod))).collect()
    }

    /// CPUs that are given away or held on each node.
    pub(super) fn promised(&self) -> BTreeMap<String, i64> {
        let mut promised: BTreeMap<String, i64> = BTreeMap::new();
        let mut on = |node: &Value, cpu: i64| {
            *promised.entry(node.as_str().unwrap().to_owned()).or_default() += cpu;
        };
        // Whoever ignores reservations uses what they hold.
        let ignored: Vec<&Value> = self
            .pods
            .values()
            .filter(|pod| pod["metadata"]["labels"][RESERVATION_IGNORED] == "true")
            .map(|pod| &pod["spec"]["nodeName"])
            .collect();
        for pod in self.pods.values().filter(|pod| pod["spec"]["nodeName"].is_string()) {
            on(&pod["spec"]["nodeName"], cpu(pod));
        }
        for object in self.reservations.values().filter(|object| read(object).is_available()) {
            let node = &object["status"]["nodeName"];
            let held = object["status"]["allocatable"]["cpu"].as_str().unwrap().parse::<i64>().unwrap();
            if !ignored.contains(&node) {
                on(node, (held - self.owners(object).values().sum::<i64>()).max(0));
            }
        }
        promised
    }

    /// At rest every status says what is.
    pub(super) fn reservations_are_right(&self) {
        for (name, object) in &self.reservations {
            let read = read(object);
            let owners = self.owners(object);
            assert!(!read.is_due(self.now()), "{name} should have expired: {object}");
            if read.is_allocate_once() {
                assert!(owners.len() <= 1, "{name} is for one and has {owners:?}");
            }
            if !read.is_available() {
                continue;
            }
            let told = read.status.iter().flat_map(|status| &status.current_owners);
            let told: Vec<&str> = told.filter_map(|owner| owner.uid.as_deref()).collect();
            assert_eq!(told, owners.keys().collect::<Vec<_>>(), "{name}: {object}");
            let spec = read.spec.as_ref().unwrap();
            let is_restricted = object["spec"]["allocatePolicy"] == "Restricted";
            let held: i64 = object["status"]["allocatable"]["cpu"].as_str().unwrap().parse().unwrap();
            if is_restricted && spec.pre_allocation != Some(true) {
                assert!(owners.values().sum::<i64>() <= held, "{name} holds {held}: {owners:?}");
            }
        }
    }
}
