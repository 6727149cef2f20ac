//! Recorded runs of the real kube-scheduler and koord-scheduler, reproduced step by step. The files' format: `data/golden`,
//! as recorded.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be read is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use koord_api::crd::reservation::Reservation;
use koord_api::duration::GoDuration;
use koord_api::keys::pod::annotation::RESERVATION_ALLOCATED;
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY, CPU, MEMORY};
use koord_engine::Engine;
use koord_engine::engine::command::{ReservationChange, ReservationWrite};
use koord_engine::engine::{Attempted, Command, Input, Options, Outcome, Subject, Verdict};
use koord_engine::profile::Profile;
use koord_engine::profile::args::{LoadAwareSchedulingArgs, ResourceWeight};
use koord_engine::profile::expand::{Choice, PluginSet, PluginSets};
use koord_engine::profile::point::Point;
use koord_engine::time::Time;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Recording {
    family: String,
    seed: i64,
    base: Vec<Value>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    create: Vec<Value>,
    #[serde(default)]
    delete: Vec<String>,
    #[serde(default)]
    want: BTreeMap<String, Want>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Want {
    node: String,
    scores: BTreeMap<String, i64>,
    message: String,
    gone: Vec<String>,
    annotations: BTreeMap<String, String>,
}

/// An engine, and the part of an API server that scheduling notices.
struct Run {
    engine: Engine,
    now: i64,
    revision: u64,
    started: i64,
    priorities: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    reservations: BTreeMap<String, Value>,
}

/// kube-scheduler's default plugins with Reservation and LoadAwareScheduling, as `part.yaml` has them.
fn part() -> Profile {
    let choices = |names: &[(&str, i32)]| -> Vec<Choice> {
        names.iter().map(|(name, weight)| Choice { name: (*name).to_owned(), weight: *weight }).collect()
    };
    let adds = |names: &[(&str, i32)]| PluginSet { enabled: choices(names), disabled: Vec::new() };
    let only = |names: &[(&str, i32)]| PluginSet { enabled: choices(names), disabled: vec!["*".to_owned()] };
    let (reservation, load) = (("Reservation", 0), ("LoadAwareScheduling", 0));
    let mut sets = PluginSets::default();
    sets.points[Point::QueueSort] = only(&[("PrioritySort", 0)]);
    sets.points[Point::PreFilter] = adds(&[reservation]);
    sets.points[Point::Filter] = adds(&[load, reservation]);
    sets.points[Point::PostFilter] = only(&[reservation, ("DefaultPreemption", 0)]);
    sets.points[Point::PreScore] = adds(&[reservation]);
    sets.points[Point::Score] = adds(&[("LoadAwareScheduling", 1), ("Reservation", 5000)]);
    sets.points[Point::Reserve] = adds(&[load, reservation]);
    sets.points[Point::PreBind] = adds(&[reservation, ("DefaultPreBind", 0)]);
    sets.points[Point::Bind] = only(&[reservation, ("DefaultBinder", 0)]);
    let name = "default-scheduler";
    let points = PluginSets::defaults().merge(&sets).expand(name).unwrap();
    let mut profile = Profile { points, ..Profile::standard(name) };
    profile.args.node_resources_fit.resources =
        [CPU, MEMORY, BATCH_CPU, BATCH_MEMORY].map(|name| ResourceWeight::new(name, 1)).into();
    profile.args.load_aware_scheduling = LoadAwareSchedulingArgs {
        filter_expired_node_metrics: false,
        node_metric_expiration: GoDuration::from_seconds(300),
        ..LoadAwareSchedulingArgs::default()
    };
    profile
}

impl Run {
    fn new(profile: Profile) -> Run {
        // Picks among equals as kube-scheduler most often did, so that pods seldom have to be moved afterwards: moving
        // one wakes others, which then wait longer than they did in the recording.
        let options = Options { parallelism: 1, ..Options::new(vec![profile]) };
        let engine = Engine::new(&options).unwrap();
        let mut run = Run {
            engine,
            now: 1_700_000_000,
            revision: 1,
            started: 0,
            priorities: BTreeMap::new(),
            pods: BTreeMap::new(),
            reservations: BTreeMap::new(),
        };
        run.take(json!({"type": "namespace", "object": {"metadata": {"name": "default",
            "labels": {"kubernetes.io/metadata.name": "default"}}}}));
        run
    }

    fn time(&self) -> Time {
        Time::from_seconds(self.now)
    }

    fn take(&mut self, input: Value) {
        let input: Input = serde_json::from_value(input).unwrap();
        self.engine.take(self.time(), input);
    }

    fn create(&mut self, object: &Value) {
        let kind = object["kind"].as_str().unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        match kind {
            "PriorityClass" => drop(self.priorities.insert(name, object.clone())),
            "Node" => self.take(json!({"type": "node", "object": object})),
            "NodeMetric" => {
                let mut object = object.clone();
                object["status"]["updateTime"] = json!(self.time().to_string());
                self.take(json!({"type": "nodeMetric", "object": object}));
            }
            "PodDisruptionBudget" => self.take(json!({"type": "budget", "object": object})),
            "Namespace" => self.take(json!({"type": "namespace", "object": object})),
            "Pod" => {
                let pod = self.admit(object);
                self.pods.insert(name.clone(), pod);
                self.tell(&name);
            }
            "Reservation" => {
                let mut object = object.clone();
                self.revision += 1;
                object["metadata"]["uid"] = json!(format!("{name}-{}", self.revision));
                object["metadata"]["creationTimestamp"] = json!(self.time().to_string());
                self.reservations.insert(name.clone(), object);
                self.tell_reservation(&name);
            }
            kind => panic!("{kind} in a recording"),
        }
    }

    fn tell_reservation(&mut self, name: &str) {
        self.revision += 1;
        let revision = self.revision.to_string();
        let object = self.reservations.get_mut(name).unwrap();
        object["metadata"]["resourceVersion"] = json!(revision);
        let object = object.clone();
        self.take(json!({"type": "reservation", "object": object}));
    }

    /// A reservation is bound.
    fn hold_on(&mut self, name: &str, node: &str) {
        let object = self.reservations.get_mut(name).unwrap();
        let mut read: Reservation = serde_json::from_value(object.clone()).unwrap();
        read.set_available(
            node,
            None,
            koord_api::time::Time(jiff::Timestamp::from_second(self.now).unwrap()),
        );
        object["status"] = serde_json::to_value(read.status).unwrap();
        self.tell_reservation(name);
    }

    fn write(&mut self, write: &ReservationWrite) {
        let status = &mut self.reservations.get_mut(&*write.name).unwrap()["status"];
        match &write.change {
            ReservationChange::Owners { owners, allocated, is_consumed } => {
                let owner = |owner: &Subject| json!({"namespace": *owner.key.namespace, "name": *owner.key.name, "uid": *owner.uid});
                status["currentOwners"] = owners.iter().map(owner).collect();
                status["allocated"] = serde_json::to_value(allocated).unwrap();
                if *is_consumed {
                    status["phase"] = json!("Succeeded");
                }
            }
            ReservationChange::Unschedulable { .. } => return,
            change => panic!("{change:?}"),
        }
        self.tell_reservation(&write.name);
        let uid = write.uid.to_string();
        self.engine.take(self.time(), Input::Outcome { uid, outcome: Outcome::Written });
    }

    /// What an API server fills in when a pod is created.
    fn admit(&mut self, object: &Value) -> Value {
        let mut pod = object.clone();
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.revision += 1;
        pod["metadata"]["uid"] = json!(format!("{name}-{}", self.revision));
        let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
        if let Some(class) = self.priorities.get(class) {
            pod["spec"]["priority"] = class["value"].clone();
            pod["spec"]["preemptionPolicy"] = class["preemptionPolicy"].clone();
        }
        for list in ["containers", "initContainers"] {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
                for (resource, amount) in limits {
                    if container["resources"]["requests"][&resource].is_null() {
                        container["resources"]["requests"][&resource] = amount;
                    }
                }
            }
        }
        pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
        pod
    }

    /// Tells the engine of a pod as it is now.
    fn tell(&mut self, name: &str) {
        self.revision += 1;
        let revision = self.revision.to_string();
        let pod = self.pods.get_mut(name).unwrap();
        pod["metadata"]["resourceVersion"] = json!(revision);
        let pod = pod.clone();
        self.take(json!({"type": "pod", "object": pod}));
    }

    fn delete(&mut self, name: &str) {
        let Some(pod) = self.pods.remove(name) else { return };
        self.take(
            json!({"type": "podGone", "namespace": "default", "name": name, "uid": pod["metadata"]["uid"]}),
        );
    }

    /// Lets the engine work until nothing is ready, carrying its commands out. Returns what it tried and who went.
    fn settle(&mut self) -> (Vec<Attempted>, BTreeSet<String>) {
        let (mut tried, mut gone) = (Vec::new(), BTreeSet::new());
        for _ in 0..100 {
            let attempted = self.engine.step(self.time());
            let commands = self.engine.take_commands();
            if attempted.is_none() && commands.is_empty() {
                break;
            }
            tried.extend(attempted);
            commands.into_iter().for_each(|command| self.carry_out(command, &mut gone));
        }
        (tried, gone)
    }

    fn carry_out(&mut self, command: Command, gone: &mut BTreeSet<String>) {
        let ends = |run: &mut Run, uid: &str, outcome| {
            run.engine.take(run.time(), Input::Outcome { uid: uid.to_owned(), outcome });
        };
        match command {
            Command::Bind(binding) => {
                match &binding.pod.reserves {
                    Some(name) => self.hold_on(name, &binding.node),
                    None => self.run_on(&binding.pod.key.name, &binding.node),
                }
                ends(self, &binding.pod.uid, Outcome::Bound);
            }
            Command::Preempt(order) => {
                ends(self, &order.preemptor.uid, Outcome::Preempted);
                for victim in &order.victims {
                    gone.insert(victim.key.name.to_string());
                    self.delete(&victim.key.name);
                }
            }
            Command::PatchStatus(patch) => {
                if let Some(node) = &patch.nominated {
                    let name = patch.pod.key.name.to_string();
                    self.pods.get_mut(&name).unwrap()["status"]["nominatedNodeName"] = json!(node);
                    self.tell(&name);
                }
            }
            Command::Prepare(plan) => {
                let subject = plan.pod.unwrap();
                for (key, value) in &plan.annotations {
                    self.pods.get_mut(&*subject.key.name).unwrap()["metadata"]["annotations"][key] =
                        json!(value);
                }
                self.tell(&subject.key.name);
                ends(self, &subject.uid, Outcome::Prepared);
            }
            Command::WriteReservation(write) => self.write(&write),
            Command::Tell(_) | Command::Warn(_) => {}
            Command::Unmark(_) | Command::DeleteReservation { .. } => panic!("{command:?}"),
        }
    }

    /// A pod uses a reservation, whoever does already.
    fn let_in(&mut self, name: &str, reservation: &str) {
        let used = &self.reservations[reservation];
        let node = used["status"]["nodeName"].as_str().unwrap().to_owned();
        let mark = json!({"name": reservation, "uid": used["metadata"]["uid"]}).to_string();
        self.pods.get_mut(name).unwrap()["metadata"]["annotations"][RESERVATION_ALLOCATED] = json!(mark);
        self.run_on(name, &node);
    }

    /// The name of the reservation that a pod is marked with.
    fn used(annotations: &Value) -> String {
        let mark = annotations[RESERVATION_ALLOCATED].as_str().unwrap_or("{}");
        let mark: Value = serde_json::from_str(mark).unwrap();
        mark["name"].as_str().unwrap_or_default().to_owned()
    }

    /// A pod is bound, and started a second after the one before it.
    fn run_on(&mut self, name: &str, node: &str) {
        self.started += 1;
        let at = jiff::Timestamp::from_second(self.now + self.started).unwrap();
        let pod = self.pods.get_mut(name).unwrap();
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running", "startTime": at.to_string()});
        self.tell(name);
    }

    fn node_name(&self, row: koord_engine::cluster::Row) -> String {
        self.engine.cluster().node(row).name.to_string()
    }

    /// Brings one pod to where the recording has it.
    fn force(&mut self, step: &Step, name: &str, want: &Want) {
        for gone in &want.gone {
            self.delete(gone);
        }
        if let Some(object) = self.reservations.get(name).cloned() {
            let node = object["status"]["nodeName"].as_str().unwrap_or_default();
            if node != want.node {
                self.take(json!({"type": "reservationGone", "name": name, "uid": object["metadata"]["uid"]}));
                self.create(step.create.iter().find(|object| object["metadata"]["name"] == name).unwrap());
                if !want.node.is_empty() {
                    self.hold_on(name, &want.node);
                }
            }
            return;
        }
        let pod = self.pods.get(name).cloned().unwrap_or_default();
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let uses = Run::used(&json!(want.annotations));
        if node == want.node && Run::used(&pod["metadata"]["annotations"]) == uses {
            return;
        }
        self.delete(name);
        let object = step.create.iter().find(|object| object["metadata"]["name"] == name).unwrap();
        let mut pod = self.admit(object);
        if !want.node.is_empty() {
            pod["spec"]["nodeName"] = json!(want.node);
        }
        if let Some(used) = self.reservations.get(&uses) {
            let mark = json!({"name": uses, "uid": used["metadata"]["uid"]}).to_string();
            pod["metadata"]["annotations"][RESERVATION_ALLOCATED] = json!(mark);
        }
        self.pods.insert(name.to_owned(), pod);
        match want.node.as_str() {
            "" => self.tell(name),
            node => self.run_on(name, node),
        }
    }
}

/// The filter part of a message, which is what recordings agree on.
fn first(message: &str) -> &str {
    message.split_once(". ").map_or(message, |(first, _)| first).trim_end_matches('.')
}

/// Pods that the recorded program let into a reservation that was another's already, which the specification does not
/// want (A5.D6): recording, step, pod, reservation. The recording says nothing of them, for they had waited since earlier
/// steps; but whatever comes later was recorded with them in place.
const LET_IN: &[(&str, i64, usize, &str, &str)] = &[("reservation", 3, 23, "p-014", "r-024")];

impl Run {
    /// Nodes with a reservation whose owners use more than it holds: the recorded program gives others more back than
    /// that, and so more than the node has (scheduler-reservation-loadaware#A19.K8).
    fn overdrawn(&self) -> BTreeSet<String> {
        let entries = self.engine.cluster().reservations().all();
        let over = entries.filter(|entry| {
            let held = &entry.record.allocatable;
            entry.allocated.iter().any(|(id, used)| used > held.get(id))
        });
        over.filter_map(|entry| entry.row).map(|row| self.node_name(row)).collect()
    }
}

/// What is different about a pod, if anything is. On nodes that are `overdrawn` it may not fit, though it did in the
/// recording.
fn judge(
    run: &Run,
    name: &str,
    want: &Want,
    (tried, gone): (&[Attempted], &BTreeSet<String>),
    overdrawn: &BTreeSet<String>,
) -> Result<(), String> {
    let is_meant = |pod: &Subject| *pod.reserves.as_deref().unwrap_or(&pod.key.name) == *name;
    let last = tried.iter().rev().find(|attempted| is_meant(&attempted.pod));
    let Some(last) = last else { return Err("was not tried".to_owned()) };
    let node = match &last.verdict {
        Verdict::Scheduled { node } => node.to_string(),
        Verdict::Unschedulable { message } if want.node.is_empty() => {
            return match first(message) == first(&want.message) {
                true => Ok(()),
                false => Err(format!("message\n  want {}\n  got  {message}", want.message)),
            };
        }
        other => return Err(format!("want node {:?} ({}), got {other:?}", want.node, want.message)),
    };
    if want.node.is_empty() {
        return Err(format!("want {}, got node {node}", want.message));
    }
    if *gone != want.gone.iter().cloned().collect() {
        return Err(format!("want {:?} preempted, got {gone:?}", want.gone));
    }
    let got: BTreeMap<String, i64> =
        last.feasible.iter().map(|(row, total)| (run.node_name(*row), *total)).collect();
    // Scores are the same wherever the pod fits.
    let is_counted_better = |node: &String| overdrawn.contains(node) && !got.contains_key(node);
    let strict = |scores: &BTreeMap<String, i64>| -> BTreeMap<String, i64> {
        let scores = scores.iter().filter(|(node, _)| !is_counted_better(node));
        scores.map(|(node, total)| (node.clone(), *total)).collect()
    };
    if want.scores.len() > 1 && !got.is_empty() && strict(&got) != strict(&want.scores) {
        return Err(format!("totals\n  want {:?}\n  got  {got:?}", want.scores));
    }
    if let Some(pod) = run.pods.get(name).filter(|_| node == want.node) {
        let (got, want) = (Run::used(&pod["metadata"]["annotations"]), Run::used(&json!(want.annotations)));
        if got != want {
            return Err(format!("want reservation {want:?}, got {got:?}"));
        }
    }
    let best = want.scores.values().max();
    let is_best_left = || strict(&want.scores).values().max() == want.scores.get(&node);
    let is_refused_there = is_counted_better(&want.node);
    let is_fine = node == want.node
        || (best.is_some() && want.scores.get(&node) == best)
        || (is_refused_there && is_best_left());
    match is_fine {
        true => Ok(()),
        false => Err(format!("want {}, got {node} of {:?}", want.node, want.scores)),
    }
}

fn replay(recording: &Recording, profile: &Profile, seconds: i64) -> Vec<String> {
    let mut run = Run::new(profile.clone());
    let mut differences = Vec::new();
    for object in &recording.base {
        run.create(object);
    }
    for (index, step) in recording.steps.iter().enumerate() {
        run.now += seconds;
        for named in &step.delete {
            run.delete(named.strip_prefix("Pod/").unwrap());
        }
        let overdrawn = run.overdrawn();
        step.create.iter().for_each(|object| run.create(object));
        let (tried, gone) = run.settle();
        for (name, want) in &step.want {
            if let Err(why) = judge(&run, name, want, (&tried, &gone), &overdrawn) {
                differences
                    .push(format!("{}/{} step {index} pod {name}: {why}", recording.family, recording.seed));
            }
            run.force(step, name, want);
        }
        let here = |(family, seed, at, ..): &&(&str, i64, usize, &str, &str)| {
            (*family, *seed, *at) == (recording.family.as_str(), recording.seed, index)
        };
        for (.., pod, reservation) in LET_IN.iter().filter(here) {
            run.let_in(pod, reservation);
        }
        // Pods that wait from earlier steps stay as the recording has them.
        run.settle();
    }
    differences
}

/// Every recording of a folder, with so many seconds between its steps.
fn reproduce(folder: &str, profile: &Profile, seconds: i64, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= least, "{} recordings", paths.len());
    let mut differences = Vec::new();
    for path in paths {
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        let recording: Recording = serde_json::from_str(&text).unwrap();
        differences.extend(replay(&recording, profile, seconds));
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn recordings_of_kube_scheduler_are_reproduced() {
    reproduce("golden", &Profile::standard("default-scheduler"), 20, 16);
}

#[test]
fn recordings_of_koord_scheduler_with_two_plugins_are_reproduced() {
    // Short enough for all measurements to count till the end.
    reproduce("golden-part", &part(), 8, 9);
}
