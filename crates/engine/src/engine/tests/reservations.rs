//! The life of reservations: their pods in the queue, binds that are writes, owners, ends. Spec:
//! scheduler-reservation-loadaware A4, A9, A25.

mod complaints;
mod transitions;

use serde_json::{Value, json};

use super::{Lab, merge};
use crate::engine::{Engine, Input, Options, Outcome, Verdict};
use crate::profile::Profile;
use crate::profile::args::ReservationArgs;
use crate::profile::expand::Enabled;
use crate::profile::point::Point;

/// A scheduler that knows reservations.
pub(super) fn lab() -> Lab {
    lab_with(|_| {})
}

fn lab_with(set: impl FnOnce(&mut ReservationArgs)) -> Lab {
    let mut profile = Profile::standard("s");
    set(&mut profile.args.reservation);
    for point in [
        Point::PreFilter,
        Point::Filter,
        Point::PostFilter,
        Point::PreScore,
        Point::Score,
        Point::Reserve,
        Point::PreBind,
    ] {
        profile.points[point].insert(0, Enabled { plugin: "Reservation", weight: 1 });
    }
    // As Koordinator ships it: DynamicResources there would end the answer with an error of its own.
    profile.points[Point::PostFilter].retain(|enabled| enabled.plugin != "DynamicResources");
    Lab::with(Engine::new(&Options::new(vec![profile])).unwrap())
}

/// The same after a restart: it knows what it is told, and nothing else.
fn lab_again() -> Lab {
    lab()
}

impl Lab {
    /// A Reservation for pods with the label app=web, of 4 CPUs; a new version each time.
    fn reservation(&mut self, name: &str, rest: Value) {
        self.revision += 1;
        let mut object = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "1970-01-12T13:46:40Z",
                "resourceVersion": self.revision.to_string() },
            "spec": { "ttl": "24h", "owners": [{ "labelSelector": { "matchLabels": { "app": "web" } } }],
                "template": { "spec": { "schedulerName": "s",
                    "containers": [{ "name": "c", "resources": { "requests": { "cpu": "4" } } }] } } },
        });
        merge(&mut object, &rest);
        self.take(json!({ "type": "reservation", "object": object }));
    }

    /// It is on a node, and holds 4 CPUs there.
    fn available(&mut self, name: &str, node: &str, rest: Value) {
        let mut status =
            json!({ "status": { "phase": "Available", "nodeName": node, "allocatable": { "cpu": "4" } } });
        merge(&mut status, &rest);
        self.reservation(name, status);
    }

    fn reservation_gone(&mut self, name: &str) {
        let uid = format!("uid-{name}");
        self.take(json!({ "type": "reservationGone", "name": name, "uid": uid }));
    }

    /// A pod that may use it.
    fn web(&mut self, name: &str, cpu: &str, rest: Value) {
        let mut labels = json!({ "metadata": { "labels": { "app": "web" } } });
        merge(&mut labels, &rest);
        self.add(name, cpu, labels);
    }

    /// A pod that uses a reservation and is on a node.
    fn owner(&mut self, name: &str, cpu: &str, node: &str, reservation: &str) {
        self.web(name, cpu, owned(node, reservation));
    }

    /// What a node has promised, in milli CPUs.
    fn promised(&self, node: &str) -> i64 {
        let cluster = self.engine.cluster();
        let row = cluster.row(node).unwrap();
        cluster.requested(row).get(koord_api::resource::ResourceId::CPU)
    }

    /// How many pods wait in the queue.
    fn queued(&self) -> usize {
        let pending = self.engine.pending();
        pending.active + pending.backoff + pending.unschedulable + pending.gated
    }
}

fn owned(node: &str, reservation: &str) -> Value {
    let mark = json!({ "name": reservation, "uid": format!("uid-{reservation}") }).to_string();
    json!({ "metadata": { "annotations": { "scheduling.koordinator.sh/reservation-allocated": mark } },
        "spec": { "nodeName": node } })
}

fn must_reserve() -> Value {
    json!({ "metadata": { "annotations": { "scheduling.koordinator.sh/reservation-affinity": "{}" } } })
}

#[test]
fn a_reservation_is_placed_used_and_consumed() {
    let mut lab = lab();
    lab.node("n1", "8");
    lab.reservation("r", json!({}));
    assert!(lab.step().is_some());
    assert_eq!(lab.said(), ["bind r to n1"]);
    lab.outcome("r", Outcome::Bound);
    assert_eq!(lab.said(), ["Scheduled r: Successfully assigned r to n1"]);
    lab.available("r", "n1", json!({}));
    assert_eq!(lab.promised("n1"), 4000);
    lab.web("p", "3", must_reserve());
    assert!(lab.step().is_some());
    assert_eq!(lab.said(), ["prepare p on n1"]);
    lab.outcome("p", Outcome::Prepared);
    lab.outcome("p", Outcome::Bound);
    assert_eq!(
        lab.said(),
        [
            "bind p to n1",
            "Scheduled p: Successfully assigned d/p to n1",
            "ReservationAllocated p: Allocated from reservation r"
        ]
    );
    lab.owner("p", "3", "n1", "r");
    lab.step();
    assert_eq!(lab.said(), ["reservation r: owners [p] use [cpu 3], consumed"]);
    let done = json!({ "status": { "phase": "Succeeded", "currentOwners": [{ "uid": "uid-p" }],
        "allocated": { "cpu": "3" } } });
    lab.available("r", "n1", done);
    lab.step();
    assert_eq!((lab.said().len(), lab.promised("n1")), (0, 3000), "only the owner counts");
    lab.gone("p");
    assert_eq!(
        lab.said(),
        ["OwnerLost r: Pod d/p was deleted before it started; the reservation stays consumed"]
    );
    lab.tick(25 * 3600);
    lab.step();
    assert_eq!(lab.said(), ["delete reservation r"]);
    lab.reservation_gone("r");
    assert_eq!(lab.engine.cluster().reservations().all().count(), 0);
}

#[test]
fn one_that_fits_nowhere_says_so_on_its_own_object() {
    let mut lab = lab();
    lab.node("n1", "2");
    lab.reservation("r", json!({}));
    lab.step();
    let said = lab.said();
    assert_eq!(said.len(), 2, "{said:?}");
    let text = "0/1 nodes are available: 1 Insufficient cpu.";
    assert!(said[0].starts_with(&format!("FailedScheduling r: {text}")), "{said:?}");
    assert!(said[1].starts_with(&format!("reservation r: unschedulable, {text}")), "{said:?}");
    lab.tick(400);
    lab.step();
    let again = lab.said();
    assert_eq!((again.len(), &again[1]), (2, &said[1]), "when it was last tried is written");
    lab.engine.take(lab.now, Input::Activate { namespace: "default".into(), name: "uid-r".into() });
    lab.tick(30);
    assert!(lab.step().is_some());
    assert_eq!(lab.said().len(), 1, "but not after every attempt");
    // A restart: what the object says is not said again.
    let told = said[1].strip_prefix("reservation r: unschedulable, ").unwrap().to_owned();
    let mut lab = lab_again();
    lab.node("n1", "2");
    let condition = json!({ "type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": told,
            "lastProbeTime": "1970-01-12T13:46:39Z" });
    lab.reservation("r", json!({ "status": { "conditions": [condition] } }));
    lab.step();
    assert_eq!(lab.said().len(), 1, "only an event");
    lab.node("n2", "8");
    assert!(lab.step().is_some());
    assert_eq!(lab.said(), ["bind r to n2"]);
}

#[test]
fn one_whose_time_is_over_or_whose_node_is_gone_ends() {
    let mut lab = lab();
    lab.node("n1", "8");
    lab.available("late", "n1", json!({ "spec": { "ttl": "1h" } }));
    lab.available("lost", "n2", json!({}));
    lab.reservation(
        "never",
        json!({ "spec": { "ttl": "1h", "template": { "spec": { "nodeName": "n9" } } } }),
    );
    lab.step();
    let said = lab.said();
    assert!(said.contains(&"reservation lost: expired".to_owned()), "{said:?}");
    assert_eq!(said.iter().filter(|line| line.contains("expired")).count(), 1, "{said:?}");
    lab.tick(3601);
    while lab.step().is_some() {}
    let said = lab.said();
    for name in ["late", "never"] {
        assert!(said.contains(&format!("reservation {name}: expired")), "{said:?}");
    }
    lab.take(json!({ "type": "nodeGone", "name": "n1" }));
    lab.available("late", "n1", json!({ "status": { "phase": "Failed" } }));
    assert_eq!(lab.engine.cluster().held("uid-late").map(|held| held.row), None);
}

#[test]
fn one_that_waits_for_room_gets_it() {
    let mut lab = lab();
    lab.node("n1", "8");
    lab.add("other", "6", json!({ "spec": { "nodeName": "n1" } }));
    let pre = json!({ "spec": { "preAllocation": true, "allocatePolicy": "Aligned" } });
    lab.reservation("r", pre.clone());
    assert!(lab.step().is_some());
    let commands = lab.engine.take_commands();
    let waits = commands
        .iter()
        .any(|command| matches!(command, crate::engine::Command::Bind(binding) if binding.waits_for_room));
    assert!(waits, "{commands:?}");
    lab.outcome("r", Outcome::Bound);
    let mut waiting = pre.clone();
    merge(&mut waiting, &json!({ "status": { "phase": "Waiting" } }));
    lab.available("r", "n1", waiting);
    lab.said();
    // Nobody can use it, nor what it waits for.
    lab.web("p", "1", must_reserve());
    lab.step();
    assert!(lab.said()[0].contains("no reservations match reservation affinity"));
    lab.step();
    assert_eq!(lab.said().len(), 0);
    lab.gone("other");
    while lab.step().is_some() {}
    assert_eq!(lab.said().iter().filter(|line| *line == "reservation r: available").count(), 1);
}

#[test]
fn one_that_takes_a_running_pod_in_needs_no_more_room() {
    let mut lab = lab();
    lab.node("n1", "4");
    lab.web("running", "3", json!({ "spec": { "nodeName": "n1" } }));
    let spec =
        json!({ "spec": { "preAllocation": true, "allocatePolicy": "Restricted", "allocateOnce": false } });
    lab.reservation("r", spec.clone());
    assert!(lab.step().is_some());
    assert_eq!(lab.said(), ["prepare r on n1"], "the running pod is marked");
    lab.outcome("r", Outcome::Prepared);
    let commands = lab.engine.take_commands();
    let bound = commands.iter().find_map(|command| match command {
        crate::engine::Command::Bind(binding) => Some(binding.waits_for_room),
        _ => None,
    });
    assert_eq!(bound, Some(false), "{commands:?}");
    lab.outcome("r", Outcome::Bound);
    lab.owner("running", "3", "n1", "r");
    lab.available("r", "n1", spec);
    lab.said();
    lab.step();
    assert_eq!(lab.said(), ["reservation r: owners [running] use [cpu 3]"]);
    assert_eq!(lab.promised("n1"), 4000, "counted once");
}

#[test]
fn a_restart_begins_from_objects_alone() {
    let mut lab = lab();
    // In whatever order they are listed.
    lab.owner("p", "3", "n1", "r");
    lab.node("n1", "8");
    // A mark without a node: the scheduler stopped between the mark and the bind.
    let mut unbound = owned("", "r");
    unbound["spec"] = json!({});
    lab.web("q", "1", unbound);
    let rest = json!({ "spec": { "allocateOnce": false },
        "status": { "currentOwners": [{ "uid": "uid-gone" }], "allocated": { "cpu": "2" } } });
    lab.available("r", "n1", rest);
    assert_eq!(lab.promised("n1"), 4000, "the owner is within");
    let was_leading = lab.said();
    assert!(was_leading.is_empty(), "a follower writes nothing: {was_leading:?}");
    assert!(lab.step().is_some());
    let said = lab.said();
    assert_eq!(said[0], "reservation r: owners [p] use [cpu 3]", "the stale status is put right: {said:?}");
    assert_eq!(said[1], "prepare q on n1", "{said:?}");
}

#[test]
fn inputs_of_reservations_can_be_recorded() {
    let input: Input =
        serde_json::from_value(json!({ "type": "reservationGone", "name": "r", "uid": "u" })).unwrap();
    let text = serde_json::to_string(&input).unwrap();
    assert_eq!(serde_json::from_str::<Input>(&text).unwrap(), input);
}

/// Refused for lack of room, a pod is not the Reservation plugin's business; the reservation made for it helps all the same.
#[test]
fn a_reservation_calls_those_it_is_for() {
    let mut lab = lab();
    lab.node("n1", "4");
    lab.reservation("r", json!({ "spec": { "allocateOnce": false } }));
    lab.step();
    lab.outcome("r", Outcome::Bound);
    // The room is taken, and nobody may use it yet.
    lab.web("p", "2", json!({}));
    lab.add("other", "2", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })));
    lab.available("r", "n1", json!({ "spec": { "allocateOnce": false } }));
    lab.tick(2);
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
    assert_eq!(lab.step(), None, "others are left alone");
}

/// A reservation that takes in a pod that runs already asks for less room from then on.
#[test]
fn room_that_a_reservation_gives_back_is_used() {
    let mut lab = lab();
    lab.node("n1", "8");
    lab.owner("p", "4", "n1", "r");
    let shape = json!({ "spec": { "allocateOnce": false } });
    lab.reservation("r", shape.clone());
    lab.step();
    lab.outcome("r", Outcome::Bound);
    assert_eq!(lab.promised("n1"), 8000, "nobody can use it yet");
    lab.add("other", "2", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })));
    lab.available("r", "n1", shape);
    assert_eq!(lab.promised("n1"), 4000);
    lab.tick(2);
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
}
