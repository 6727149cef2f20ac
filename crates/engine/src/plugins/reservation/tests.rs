//! Worked examples of the specification, on clusters that have what they mention and nothing else.

mod preallocation;
mod scoring;
mod seeking;
mod walk;

use std::sync::Arc;

use koord_api::crd::reservation::Reservation;
use serde_json::{Value, json};

use super::*;
use crate::plugins::testing::{World, merged};
use crate::plugins::{inter_pod_affinity, node_ports, node_resources_fit, pod_topology_spread};
use crate::profile::args::DefaultConstraints;
use crate::schedule::{Attempt, Failure, Framework, Memory, Nominated};
use crate::time::Time;

/// A cluster, and a profile with the plugin.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) framework: Framework,
    pub(super) nominated: Nominated,
    memory: Memory,
}

/// What became of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// On a node, using a reservation or none.
    Placed(String, Option<String>),
    /// What users read: reasons of the filters, then what was added.
    Refused(String),
    Failed(String),
}

pub(super) fn placed(node: &str, reservation: &str) -> Fate {
    Fate::Placed(node.to_owned(), (!reservation.is_empty()).then(|| reservation.to_owned()))
}

impl Scene {
    /// Only the plugin itself.
    pub(super) fn new(args: &ReservationArgs) -> Scene {
        Scene::with(args, Vec::new())
    }

    pub(super) fn with(args: &ReservationArgs, others: Vec<Hooks>) -> Scene {
        let own = build(args, Vec::new());
        let all: Vec<Hooks> = others.into_iter().chain([own.clone()]).collect();
        let framework = Framework {
            scheduler: "default-scheduler".into(),
            pre_filters: all.clone(),
            restores: own.restore.clone().into_iter().collect(),
            filters: all,
            post_filters: vec![own.clone()],
            scores: vec![(own.clone(), 1)],
            reserves: vec![own.clone()],
            pre_binds: vec![own],
            ..Framework::default()
        };
        let mut world = World::new();
        world.cluster.set_reservation_args(args);
        Scene { world, framework, nominated: Nominated::default(), memory: Memory::default() }
    }

    /// With what looks at amounts, ports and other pods.
    pub(super) fn whole(args: &ReservationArgs) -> Scene {
        Scene::with(
            args,
            vec![
                node_ports::build(),
                node_resources_fit::build(node_resources_fit::Args::default()),
                pod_topology_spread::build(&DefaultConstraints::System),
                inter_pod_affinity::build(inter_pod_affinity::Args::default()),
            ],
        )
    }

    pub(super) fn node(&mut self, name: &str, cpu: &str) -> &mut Scene {
        self.node_of(name, json!({"cpu": cpu, "memory": "256Gi"}), json!({}))
    }

    pub(super) fn node_of(&mut self, name: &str, allocatable: Value, over: Value) -> &mut Scene {
        let status = json!({"status": {"allocatable": allocatable}});
        self.world.node(name, merged(status, &over));
        self
    }

    /// A reservation on a node, Available and used again and again, for pods labelled `app: x`; `over` has fields of the
    /// object.
    pub(super) fn reserve(&mut self, name: &str, node: &str, requests: Value, over: Value) -> &mut Scene {
        let object = reservation(name, node, &requests, &over);
        let news = self.world.cluster.set_reservation(&object);
        self.world.cluster.confirm(news.new.pod.clone());
        self
    }

    /// The pod of a reservation that waits for a node.
    pub(super) fn pending(&mut self, name: &str, requests: Value, over: Value) -> Arc<Pod> {
        let object = reservation(name, "", &requests, &over);
        self.world.cluster.set_reservation(&object).new.pod.clone()
    }

    /// A pod that asks for this much, labelled `app: x`.
    pub(super) fn pod(&mut self, name: &str, requests: Value, over: Value) -> Arc<Pod> {
        self.world.pod(name, merged(pod(&requests), &over))
    }

    /// A pod on a node that nobody reserves for.
    pub(super) fn fill(&mut self, name: &str, node: &str, requests: Value) -> &mut Scene {
        let over = merged(pod(&requests), &json!({"metadata": {"labels": {"app": "other"}}}));
        self.world.place(name, node, over);
        self
    }

    /// A pod on a node that uses a reservation.
    pub(super) fn owner(&mut self, name: &str, node: &str, requests: Value, uses: &str) -> &mut Scene {
        let over = merged(pod(&requests), &json!({"metadata": {"annotations": uses_annotation(uses)}}));
        self.world.place(name, node, over);
        self
    }

    pub(super) fn attempt(
        &mut self,
        pod: &Arc<Pod>,
        memory: Option<&mut Memory>,
    ) -> Result<crate::schedule::Choice, Failure> {
        self.world.cluster.attend(&pod.class);
        let order = self.world.cluster.visiting_order().to_vec();
        let attempt = Attempt {
            framework: &self.framework,
            nominated: &self.nominated,
            order: &order,
            start: &mut 0,
            random: &mut Random::new(1),
            nominated_row: None,
            now: Time::default(),
            memory,
            extenders: &mut [],
        };
        attempt.run(&self.world.cluster, pod)
    }

    /// Tries a pod, asking about every node and from memory, and takes the place that is found.
    pub(super) fn place(&mut self, pod: &Arc<Pod>) -> Fate {
        let plain = self.attempt(pod, None);
        let mut memory = std::mem::take(&mut self.memory);
        let remembered = self.attempt(pod, Some(&mut memory));
        self.memory = memory;
        let (node, mut slots) = match (plain, remembered) {
            (Ok(plain), Ok(other)) => {
                assert_eq!(plain.feasible_count, other.feasible_count, "{}", pod.key);
                let best = plain.feasible.iter().map(|(_, total)| *total).max();
                let total =
                    |row| plain.feasible.iter().find(|(known, _)| *known == row).map(|(_, total)| *total);
                assert_eq!(total(other.row), best, "{}", pod.key);
                (plain.row, plain.slots)
            }
            (Err(plain), Err(other)) => {
                let (plain, other) = (told(plain), told(other));
                assert_eq!(plain, other, "{}", pod.key);
                return plain;
            }
            (plain, other) => panic!("{}: {plain:?}, from memory {other:?}", pod.key),
        };
        let cluster = &mut self.world.cluster;
        cluster.assume(pod.clone(), node).unwrap();
        let own = self.framework.reserves[0].reserve.clone().unwrap();
        if let Err(status) = own.reserve(cluster, &mut slots, pod, node) {
            own.unreserve(cluster, &mut slots, pod, node);
            cluster.forget(&pod.uid).unwrap();
            return Fate::Failed(status.to_string());
        }
        assert_eq!(cluster.ledger(), cluster.recount(), "{}", pod.key);
        assert_eq!(cluster.reservation_ledger(), cluster.recount_reservations(), "{}", pod.key);
        let used = cluster.reservations().used_by(&pod.uid).and_then(|uid| cluster.reservations().get(uid));
        let used = used.map(|entry| entry.record.name.to_string());
        Fate::Placed(cluster.node(node).name.to_string(), used)
    }

    /// As `place`, and everything is as before.
    pub(super) fn try_out(&mut self, pod: &Arc<Pod>) -> Fate {
        let fate = self.place(pod);
        self.world.cluster.release(&pod.uid);
        fate
    }

    /// What owners use of a reservation, as `name=units` in order of names.
    pub(super) fn allocated(&self, name: &str) -> String {
        let cluster = &self.world.cluster;
        let entry = cluster.reservations().by_name(name).unwrap();
        let list = entry.allocated.to_list(&cluster.resources);
        list.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
    }
}

fn told(failure: Failure) -> Fate {
    match failure {
        Failure::Unfit(unfit) => {
            let text = unfit.message();
            Fate::Refused(text.split_once(": ").map_or(text.clone(), |(_, rest)| rest.to_owned()))
        }
        Failure::Error(status) => Fate::Failed(status.to_string()),
        Failure::NoNodes => Fate::Refused("no nodes".to_owned()),
    }
}

pub(super) fn uses_annotation(reservation: &str) -> Value {
    let mark = json!({"name": reservation, "uid": reservation}).to_string();
    json!({"scheduling.koordinator.sh/reservation-allocated": mark})
}

pub(super) fn affinity(text: &str) -> Value {
    json!({"metadata": {"annotations": {"scheduling.koordinator.sh/reservation-affinity": text}}})
}

pub(super) fn other_app() -> Value {
    json!({"metadata": {"labels": {"app": "other"}}})
}

fn pod(requests: &Value) -> Value {
    json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}})
}

/// A Reservation object; on no node yet when `node` is empty.
pub(super) fn reservation(name: &str, node: &str, requests: &Value, over: &Value) -> Reservation {
    let status = match node {
        "" => json!({"phase": "Pending"}),
        node => json!({"phase": "Available", "nodeName": node, "allocatable": requests}),
    };
    let base = json!({"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation",
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"allocateOnce": false, "ttl": "24h", "owners": [{"labelSelector": {"matchLabels": {"app": "x"}}}],
            "allocatePolicy": "Aligned",
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}},
        "status": status});
    let mut object = merged(base, over);
    // The deprecated policy is an absent field.
    if object["spec"]["allocatePolicy"].is_null() {
        object["spec"].as_object_mut().unwrap().remove("allocatePolicy");
    }
    serde_json::from_value(object).unwrap()
}

pub(super) fn restricted() -> Value {
    json!({"spec": {"allocatePolicy": "Restricted"}})
}
