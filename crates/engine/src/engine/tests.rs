//! Whole histories: events in, commands out.

mod bad_input;
mod extenders;
mod history;
mod load;
mod points;
mod preemption;
mod reservations;
mod volumes;

use serde_json::{Value, json};

use super::*;
use crate::profile::Profile;

/// An engine, a clock, and the API objects it is told of.
pub(super) struct Lab {
    pub(super) engine: Engine,
    pub(super) now: Time,
    revision: u64,
}

impl Lab {
    pub(super) fn new() -> Lab {
        Lab::with(Engine::new(&options()).unwrap())
    }

    pub(super) fn with(engine: Engine) -> Lab {
        Lab { engine, now: Time::from_seconds(1_000_000), revision: 0 }
    }

    pub(super) fn take(&mut self, input: Value) {
        self.engine.take(self.now, serde_json::from_value(input).unwrap());
    }

    pub(super) fn node(&mut self, name: &str, cpu: &str) {
        let allocatable = json!({"cpu": cpu, "memory": "32Gi", "pods": "110"});
        self.take(json!({"type": "node", "object": {"metadata": {"name": name,
            "labels": {"kubernetes.io/hostname": name}}, "status": {"allocatable": allocatable}}}));
    }

    /// A pod's object, a new version each time.
    pub(super) fn pod(&mut self, name: &str, cpu: &str, rest: &Value) -> Value {
        self.revision += 1;
        let mut pod = json!({"metadata": {"name": name, "namespace": "d", "uid": format!("uid-{name}"),
            "resourceVersion": self.revision.to_string()},
            "spec": {"schedulerName": "s", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
        merge(&mut pod, rest);
        pod
    }

    pub(super) fn add(&mut self, name: &str, cpu: &str, rest: Value) {
        let object = self.pod(name, cpu, &rest);
        self.take(json!({"type": "pod", "object": object}));
    }

    pub(super) fn gone(&mut self, name: &str) {
        let uid = format!("uid-{name}");
        self.take(json!({"type": "podGone", "namespace": "d", "name": name, "uid": uid}));
    }

    pub(super) fn outcome(&mut self, name: &str, outcome: Outcome) {
        self.engine.take(self.now, Input::Outcome { uid: format!("uid-{name}"), outcome });
    }

    pub(super) fn tick(&mut self, seconds: u64) {
        self.now = self.now + std::time::Duration::from_secs(seconds);
        self.engine.take(self.now, Input::Tick);
    }

    /// The verdict on the next pod.
    pub(super) fn step(&mut self) -> Option<Verdict> {
        self.engine.step(self.now).map(|attempted| attempted.verdict)
    }

    /// What is to be done, in short.
    pub(super) fn said(&mut self) -> Vec<String> {
        self.engine.take_commands().iter().map(short).collect()
    }
}

pub(super) fn options() -> Options {
    Options::new(vec![Profile::standard("s")])
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => into.clone_from(from),
    }
}

/// A command as one line.
fn short(command: &Command) -> String {
    match command {
        Command::Prepare(plan) => format!("prepare {} on {}", name(plan.pod.as_ref().unwrap()), plan.node),
        Command::Bind(binding) => format!("bind {} to {}", name(&binding.pod), binding.node),
        Command::PatchStatus(patch) => {
            let condition = patch.condition.as_ref().map(|c| format!(" {}: {}", c.reason, c.message));
            let nominated = patch.nominated.as_ref().map(|node| format!(" nominated {node:?}"));
            format!(
                "status of {}:{}{}",
                name(&patch.pod),
                condition.unwrap_or_default(),
                nominated.unwrap_or_default()
            )
        }
        Command::Preempt(order) => {
            let victims: Vec<&str> = order.victims.iter().map(name).collect();
            format!("preempt {} on {} for {}", victims.join(" "), order.node, name(&order.preemptor))
        }
        Command::Tell(note) => format!("{} {}: {}", note.reason, name(&note.about), note.note),
        Command::Unmark(mark) => format!("unmark {}", name(&mark.pod)),
        Command::WriteReservation(write) => format!("reservation {}: {}", write.name, change(&write.change)),
        Command::DeleteReservation { name, .. } => format!("delete reservation {name}"),
        Command::Warn(text) => format!("warn {text}"),
    }
}

fn change(change: &command::ReservationChange) -> String {
    use command::ReservationChange::{Available, Expired, Owners, Unschedulable};
    match change {
        Unschedulable { message } => format!("unschedulable, {message}"),
        Available => "available".to_owned(),
        Expired => "expired".to_owned(),
        Owners { owners, allocated, is_consumed } => {
            let owners: Vec<&str> = owners.iter().map(name).collect();
            let amounts = allocated.iter().map(|(name, amount)| format!("{name} {amount}"));
            let end = if *is_consumed { ", consumed" } else { "" };
            format!("owners [{}] use [{}]{end}", owners.join(" "), amounts.collect::<Vec<_>>().join(" "))
        }
    }
}

fn name(subject: &Subject) -> &str {
    subject.reserves.as_deref().unwrap_or(&subject.key.name)
}

#[test]
fn a_pod_is_bound_and_told_of() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    lab.add("p", "1", json!({}));
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
    assert_eq!(lab.said(), ["bind p to n1"]);
    assert_eq!(lab.step(), None);
    lab.outcome("p", Outcome::Bound);
    assert_eq!(lab.said(), ["Scheduled p: Successfully assigned d/p to n1"]);
    assert_eq!(lab.engine.cluster().assumed_count(), 1);
    lab.add("p", "1", json!({"spec": {"nodeName": "n1"}}));
    assert_eq!((lab.engine.cluster().assumed_count(), lab.engine.cluster().pod_count()), (0, 1));
    lab.gone("p");
    assert_eq!(lab.engine.cluster().pod_count(), 0);
}

#[test]
fn a_pod_that_does_not_fit_waits_for_room() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    lab.add("a", "3", json!({"spec": {"nodeName": "n1"}}));
    lab.add("p", "2", json!({}));
    let message = "0/1 nodes are available: 1 Insufficient cpu.";
    let Some(Verdict::Unschedulable { message: text }) = lab.step() else { panic!() };
    assert!(text.starts_with(message), "{text}");
    let said = lab.said();
    assert!(said[0].starts_with(&format!("FailedScheduling p: {message}")), "{said:?}");
    assert!(said[1].starts_with(&format!("status of p: Unschedulable: {message}")), "{said:?}");
    assert_eq!(lab.step(), None, "nothing changed");
    lab.gone("a");
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }));
}

#[test]
fn the_same_refusal_is_written_once() {
    let mut lab = Lab::new();
    lab.node("n1", "1");
    lab.add("p", "2", json!({}));
    lab.step();
    assert_eq!(lab.said().len(), 2);
    lab.tick(400);
    assert!(lab.step().is_some(), "the pool is searched after five minutes");
    let said = lab.said();
    assert_eq!(said.len(), 1, "an event, no status: {said:?}");
}

#[test]
fn a_failed_bind_gives_the_place_back() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    lab.add("p", "3", json!({}));
    lab.add("q", "3", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Scheduled { .. })));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })));
    lab.said();
    lab.outcome("p", Outcome::BindFailed { message: "no".to_owned() });
    let said = lab.said();
    let text = "running Bind plugin \"DefaultBinder\": no";
    assert_eq!(
        said,
        [format!("FailedScheduling p: {text}"), format!("status of p: SchedulerError: {text}")],
        "scheduler-core 4.1"
    );
    assert_eq!(lab.engine.cluster().pod_count(), 0);
    assert_eq!(lab.step(), Some(Verdict::Scheduled { node: "n1".into() }), "q fits now");
    assert_eq!(lab.step(), None, "p waits out its backoff");
    lab.outcome("q", Outcome::BindFailed { message: "no".to_owned() });
    lab.tick(2);
    assert!(matches!(lab.step(), Some(Verdict::Scheduled { .. })));
}

#[test]
fn an_answer_that_comes_after_the_watch_changes_nothing() {
    for outcome in [Outcome::Bound, Outcome::BindFailed { message: "timed out".to_owned() }] {
        let mut lab = Lab::new();
        lab.node("n1", "4");
        lab.add("p", "1", json!({}));
        lab.step();
        lab.add("p", "1", json!({"spec": {"nodeName": "n1"}}));
        lab.said();
        lab.outcome("p", outcome);
        assert_eq!(lab.said(), ["Scheduled p: Successfully assigned d/p to n1"]);
        assert_eq!((lab.engine.cluster().pod_count(), lab.engine.binding_count()), (1, 0));
        assert_eq!(lab.step(), None);
    }
}

#[test]
fn a_pod_that_is_deleted_while_it_is_bound_leaves_nothing() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    lab.add("p", "1", json!({}));
    lab.step();
    lab.gone("p");
    assert_eq!(lab.engine.cluster().pod_count(), 0);
    lab.outcome("p", Outcome::BindFailed { message: "not found".to_owned() });
    lab.said();
    assert_eq!((lab.step(), lab.engine.binding_count()), (None, 0));
    lab.add("q", "1", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(lab.step(), Some(Verdict::Skipped));
    assert_eq!(lab.said(), ["FailedScheduling q: skip schedule deleting pod: d/q"]);
}

#[test]
fn pods_of_other_schedulers_are_counted_and_not_placed() {
    let mut lab = Lab::new();
    lab.node("n1", "4");
    lab.add("x", "1", json!({"spec": {"schedulerName": "other"}}));
    lab.add("y", "4", json!({"spec": {"schedulerName": "other", "nodeName": "n1"}}));
    assert_eq!(lab.step(), None);
    lab.add("p", "1", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })));
    lab.add("p", "1", json!({"spec": {"schedulerName": "other"}}));
    lab.gone("y");
    assert_eq!(lab.step(), None, "it is not ours any more");
}

#[test]
fn without_nodes_a_pod_waits_as_after_an_error() {
    let mut lab = Lab::new();
    lab.add("p", "1", json!({}));
    let message = "no nodes available to schedule pods".to_owned();
    assert_eq!(lab.step(), Some(Verdict::Unschedulable { message }), "scheduler-core#6.14.H16");
    lab.node("n1", "4");
    assert_eq!(lab.step(), None, "scheduler-core#6.14.H16");
    lab.tick(2);
    assert!(matches!(lab.step(), Some(Verdict::Scheduled { .. })));
}
