//! Random histories against a model of the API: nothing is lost, counted twice or overcommitted.

mod reservations;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::engine::command::StatusPatch;
use reservations::Edit;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Move {
    AddNode(u8),
    RemoveNode(u8),
    AddPod {
        id: u8,
        cpu: u8,
        priority: u8,
    },
    DeletePod(u8),
    AddReservation {
        id: u8,
        cpu: u8,
        form: u8,
    },
    DeleteReservation(u8),
    /// Somebody changes a reservation or a pod.
    Edit {
        id: u8,
        edit: Edit,
    },
    /// A watch event comes twice or late.
    Repeat(u8),
    /// The oldest unanswered command is answered.
    Answer {
        how: How,
        watch_first: bool,
    },
    /// The watch tells what happened meanwhile.
    Watch,
    /// The watch of pods or that of reservations is ahead of the other.
    WatchOne {
        reservations: bool,
    },
    Step,
    Wait(u16),
    /// All watches start over.
    Relist,
    /// The scheduler starts anew. What was on its way is done, or is not.
    Crash {
        is_done: bool,
    },
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Done,
    Failed,
    /// It is done, and the answer says that it is not.
    Lost,
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![8 => Just(How::Done), 2 => Just(How::Failed), 1 => Just(How::Lost)]
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => (0..5u8).prop_map(Move::AddNode),
        1 => (0..5u8).prop_map(Move::RemoveNode),
        6 => (0..24u8, 1..4u8, 0..3u8).prop_map(|(id, cpu, priority)| Move::AddPod { id, cpu, priority }),
        2 => (0..24u8).prop_map(Move::DeletePod),
        1 => (0..24u8).prop_map(Move::Repeat),
        5 => (how(), any::<bool>()).prop_map(|(how, watch_first)| Move::Answer { how, watch_first }),
        3 => Just(Move::Watch),
        8 => Just(Move::Step),
        1 => (1..700u16).prop_map(Move::Wait),
        1 => Just(Move::Relist),
        1 => any::<bool>().prop_map(|is_done| Move::Crash { is_done }),
    ]
}

/// The same, and reservations among them.
fn moves_with_reservations() -> impl Strategy<Value = Move> {
    prop_oneof![
        12 => moves(),
        2 => (0..6u8, 1..4u8, any::<u8>())
            .prop_map(|(id, cpu, form)| Move::AddReservation { id, cpu, form }),
        1 => (0..6u8).prop_map(Move::DeleteReservation),
        1 => any::<bool>().prop_map(|reservations| Move::WatchOne { reservations }),
        1 => (0..24u8, reservations::edits()).prop_map(|(id, edit)| Move::Edit { id, edit }),
    ]
}

/// The API server's truth, and what the engine has not been told of it.
struct Model {
    /// A scheduler that has just started.
    start: fn() -> Lab,
    lab: Lab,
    nodes: BTreeSet<u8>,
    pods: BTreeMap<String, Value>,
    reservations: BTreeMap<String, Value>,
    /// Somebody made more of a node than it has, who is not us.
    is_tampered: bool,
    untold: Vec<Value>,
    unanswered: Vec<Command>,
    generation: u32,
}

impl Model {
    fn new(start: fn() -> Lab) -> Model {
        Model {
            start,
            lab: start(),
            nodes: BTreeSet::new(),
            pods: BTreeMap::new(),
            reservations: BTreeMap::new(),
            is_tampered: false,
            untold: Vec::new(),
            unanswered: Vec::new(),
            generation: 0,
        }
    }

    fn apply(&mut self, step: &Move) {
        match step {
            Move::AddNode(id) => {
                self.nodes.insert(*id);
                self.lab.node(&format!("n{id}"), "4");
            }
            Move::RemoveNode(id) => {
                if self.nodes.remove(id) {
                    self.lab.take(json!({"type": "nodeGone", "name": format!("n{id}")}));
                }
            }
            Move::AddPod { id, cpu, priority } => self.add_pod(*id, *cpu, *priority),
            Move::DeletePod(id) => {
                let name = named(&self.pods, 'p', *id);
                name.into_iter().for_each(|name| self.delete(&name));
            }
            Move::AddReservation { id, cpu, form } => self.add_reservation(*id, *cpu, *form),
            Move::DeleteReservation(id) => {
                let name = named(&self.reservations, 'r', *id);
                name.into_iter().for_each(|name| self.delete_reservation(&name));
            }
            Move::Edit { id, edit } => self.edit(*id, *edit),
            Move::Repeat(id) => self.repeat(*id),
            Move::Answer { how, watch_first } => self.answer(*how, *watch_first),
            Move::Watch => self.watch(),
            Move::WatchOne { reservations } => self.watch_one(*reservations),
            Move::Step => {
                self.lab.step();
            }
            Move::Wait(seconds) => self.lab.tick(u64::from(*seconds)),
            Move::Relist => self.relist(),
            Move::Crash { is_done } => self.crash(*is_done),
        }
        self.unanswered.extend(self.lab.engine.take_commands());
    }

    fn repeat(&mut self, id: u8) {
        let pod = named(&self.pods, 'p', id).map(|name| ("pod", self.pods[&name].clone()));
        let reservation = named(&self.reservations, 'r', id);
        let reservation = reservation.map(|name| ("reservation", self.reservations[&name].clone()));
        for (kind, object) in pod.into_iter().chain(reservation) {
            self.lab.take(json!({"type": kind, "object": object}));
        }
    }

    fn crash(&mut self, is_done: bool) {
        // What was under way when it stopped: the API did it or not, nobody will say.
        for command in std::mem::take(&mut self.unanswered) {
            if is_done {
                self.carry_out(&command);
            }
        }
        let (now, revision) = (self.lab.now, self.lab.revision);
        self.lab = Lab { now, revision, ..(self.start)() };
        for id in self.nodes.clone() {
            self.lab.node(&format!("n{id}"), "4");
        }
        self.relist();
    }

    fn add_pod(&mut self, id: u8, cpu: u8, priority: u8) {
        if named(&self.pods, 'p', id).is_some() {
            return;
        }
        self.generation += 1;
        let name = format!("p{id}-{}", self.generation);
        let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]}});
        let mut rest = json!({"metadata": {"labels": {"a": if id.is_multiple_of(3) { "b" } else { "c" }}},
            "spec": {"priority": priority}});
        if id.is_multiple_of(7) {
            rest["spec"]["affinity"] = anti;
        }
        merge(&mut rest, &reservations::wishes(id));
        let object = self.lab.pod(&name, &cpu.to_string(), &rest);
        self.pods.insert(name, object.clone());
        self.untold.push(json!({"type": "pod", "object": object}));
        self.watch();
    }

    fn delete(&mut self, name: &str) {
        if self.pods.remove(name).is_some() {
            let uid = format!("uid-{name}");
            self.untold.push(json!({"type": "podGone", "namespace": "d", "name": name, "uid": uid}));
        }
    }

    fn watch(&mut self) {
        for input in std::mem::take(&mut self.untold) {
            self.lab.take(input);
        }
    }

    /// Everything as it is now, and deletions that nobody saw.
    fn relist(&mut self) {
        self.untold.clear();
        let engine = &self.lab.engine;
        let held = engine.cluster().all_held().map(|held| &held.pod);
        let waiting = engine.world.waiting.values().map(|waiting| &waiting.pod);
        let known: Vec<(String, String)> = held
            .chain(waiting)
            .filter(|pod| pod.reserves.is_none())
            .map(|pod| (pod.key.name.to_string(), pod.uid.to_string()))
            .collect();
        for (name, uid) in known.into_iter().filter(|(name, _)| !self.pods.contains_key(name)) {
            self.lab.take(json!({"type": "podGone", "namespace": "d", "name": name, "uid": uid}));
        }
        for object in self.pods.values().cloned().collect::<Vec<_>>() {
            self.lab.take(json!({"type": "pod", "object": object}));
        }
        self.relist_reservations();
    }

    /// The oldest command that says something to the API is carried out or not, and its outcome told.
    fn answer(&mut self, how: How, watch_first: bool) {
        while !self.unanswered.is_empty() {
            let command = self.unanswered.remove(0);
            if matches!(command, Command::Tell(_) | Command::Warn(_)) {
                continue;
            }
            if let Command::PatchStatus(patch) = &command {
                self.nominate(patch);
                continue;
            }
            let is_done = how != How::Failed && self.carry_out(&command);
            // A place that was taken and that nobody tells of is given to another; that no one can help.
            let is_bind = matches!(command, Command::Bind(_));
            if watch_first || (is_bind && how == How::Lost) {
                self.watch();
            }
            self.tell_outcome(&command, is_done && how == How::Done);
            return;
        }
    }

    fn tell_outcome(&mut self, command: &Command, is_done: bool) {
        let message = "conflict".to_owned();
        let (uid, outcome) = match (command, is_done) {
            (Command::Bind(binding), true) => (&binding.pod.uid, Outcome::Bound),
            (Command::Bind(binding), false) => (&binding.pod.uid, Outcome::BindFailed { message }),
            (Command::Preempt(order), true) => (&order.preemptor.uid, Outcome::Preempted),
            (Command::Preempt(order), false) => (&order.preemptor.uid, Outcome::PreemptFailed { message }),
            (Command::Prepare(plan), true) => (&plan.pod.as_ref().unwrap().uid, Outcome::Prepared),
            (Command::Prepare(plan), false) => {
                (&plan.pod.as_ref().unwrap().uid, Outcome::PrepareFailed { message })
            }
            (Command::WriteReservation(write), _) if reservations::is_refusal(write) => return,
            (Command::WriteReservation(write), true) => (&write.uid, Outcome::Written),
            (Command::WriteReservation(write), false) => (&write.uid, Outcome::WriteFailed { message }),
            _ => return,
        };
        let uid = uid.to_string();
        self.lab.engine.take(self.lab.now, Input::Outcome { uid, outcome });
    }

    /// What the API does with a command. False when it refuses.
    fn carry_out(&mut self, command: &Command) -> bool {
        match command {
            Command::Bind(binding) => match &binding.pod.reserves {
                Some(name) => self.place_reservation(name, binding),
                None => self.bind(&binding.pod.key.name, &binding.node),
            },
            Command::Preempt(order) => {
                for victim in &order.victims {
                    assert!(victim.reserves.is_none(), "{victim:?} cannot be evicted");
                    self.delete(&victim.key.name);
                }
                true
            }
            Command::Prepare(plan) => self.prepare(plan),
            Command::Unmark(mark) => self.unmark(mark),
            Command::WriteReservation(write) => self.write_reservation(write),
            Command::DeleteReservation { name, uid } => {
                let known = self.reservations.get(&**name);
                if known.is_some_and(|object| object["metadata"]["uid"] == **uid) {
                    self.delete_reservation(name);
                }
                true
            }
            Command::PatchStatus(patch) => {
                self.nominate(patch);
                true
            }
            Command::Tell(_) | Command::Warn(_) => true,
        }
    }

    /// The promise of a node stands in a pod's status.
    fn nominate(&mut self, patch: &StatusPatch) {
        let Some(node) = &patch.nominated else { return };
        let Some(pod) = self.pods.get_mut(&*patch.pod.key.name) else { return };
        self.lab.revision += 1;
        pod["status"]["nominatedNodeName"] = json!(node);
        pod["metadata"]["resourceVersion"] = json!(self.lab.revision.to_string());
        self.untold.push(json!({"type": "pod", "object": pod}));
    }

    /// What the API does with a binding: a pod is bound once, to whatever it is told.
    fn bind(&mut self, name: &str, node: &str) -> bool {
        self.lab.revision += 1;
        let Some(pod) = self.pods.get_mut(name) else { return false };
        if pod["spec"]["nodeName"].is_string() {
            return false;
        }
        pod["spec"]["nodeName"] = json!(node);
        pod["metadata"]["resourceVersion"] = json!(self.lab.revision.to_string());
        self.untold.push(json!({"type": "pod", "object": pod}));
        true
    }

    fn check(&self, at: &str) {
        let cluster = self.lab.engine.cluster();
        assert_eq!(cluster.recount(), cluster.ledger(), "{at}");
        assert_eq!(cluster.recount_reservations(), cluster.reservation_ledger(), "{at}");
        self.check_reservations(at);
        for (name, pod) in self.pods.iter().filter(|(_, pod)| pod["spec"]["nodeName"].is_null()) {
            let uid = format!("uid-{name}");
            let key = crate::queue::PodKey::new("d", name);
            let is_placed = cluster.held(&uid).is_some();
            let is_queued = self.lab.engine.queue.get(&key).is_some();
            let is_untold = self.untold.iter().any(|input| input["object"]["metadata"]["uid"] == *uid);
            assert!(is_placed || is_queued || is_untold, "{at}: {name} is lost: {pod}");
        }
    }

    /// Lets everything come to rest.
    fn finish(&mut self) {
        for _ in 0..60 {
            self.apply(&Move::Watch);
            while !self.unanswered.is_empty() {
                self.apply(&Move::Answer { how: How::Done, watch_first: true });
            }
            self.apply(&Move::Wait(11));
            for _ in 0..40 {
                self.apply(&Move::Step);
            }
        }
        self.check("at rest");
        self.reservations_are_right();
        for (node, used) in &self.promised() {
            assert!(*used <= 4 || self.is_tampered, "{node} has {used} of 4");
        }
    }

    /// A pod or reservation that could be placed is.
    fn nobody_could_be_placed(&mut self) {
        let pods = self.pods.iter().filter(|(_, pod)| pod["spec"]["nodeName"].is_null());
        let waiting = pods.count() + self.reservations.values().filter(|r| reservations::waits(r)).count();
        self.apply(&Move::Crash { is_done: false });
        for _ in 0..waiting {
            let Some(attempted) = self.lab.engine.step(self.lab.now) else { break };
            let is_placed = matches!(attempted.verdict, Verdict::Scheduled { .. });
            assert!(!is_placed, "{} waits though {:?}", attempted.pod.name(), attempted.verdict);
            let written = self.lab.said().into_iter().find(|line| line.contains("owners ["));
            assert_eq!(written, None, "a status was stale");
        }
    }
}

/// The full name of an object, by its letter and number.
fn named(objects: &BTreeMap<String, Value>, letter: char, id: u8) -> Option<String> {
    let start = format!("{letter}{id}-");
    objects.keys().find(|name| name.starts_with(&start)).cloned()
}

fn play(start: fn() -> Lab, steps: &[Move]) {
    let mut model = Model::new(start);
    for (index, step) in steps.iter().enumerate() {
        model.apply(step);
        model.check(&format!("after {index}: {step:?}"));
    }
    model.finish();
    model.nobody_could_be_placed();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn ledgers_are_right_and_no_pod_is_lost_after_any_history(steps in prop::collection::vec(moves(), 1..120)) {
        play(Lab::new, &steps);
    }

    #[test]
    fn the_same_holds_with_reservations(
        steps in prop::collection::vec(moves_with_reservations(), 1..120),
    ) {
        play(super::reservations::lab, &steps);
    }
}
