//! The engine alone: pods waiting, nodes known, every node scored; how long until all have a place.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use koord_engine::Engine;
use koord_engine::engine::{Command, Input, Options, Outcome};
use koord_engine::time::Time;
use serde_json::{Value, json};

use super::instructions::MANY;
use super::workload::{Pods, Workload, input};
use crate::bench_report::{Report, millis};
use crate::step::say;

/// What one workload took.
pub(super) struct Measured {
    pods: usize,
    /// Time in the engine from the first attempt to the last bind.
    elapsed: Duration,
    /// Time for telling it of the pods, before that.
    told: Duration,
    attempts: Vec<Duration>,
}

impl Measured {
    pub(super) fn per_second(&self) -> f64 {
        float(self.pods) / self.elapsed.as_secs_f64()
    }

    fn nanos_per_pod(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e9 / float(self.pods)
    }

    fn p99(&self) -> Duration {
        let mut sorted = self.attempts.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * 99 / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or_default()
    }
}

/// The uid of a pod and its node.
type Bound = (String, Box<str>);

/// An engine with a clock that only moves while it works.
struct Bench {
    engine: Engine,
    now: Time,
    pods: HashMap<String, Value>,
    made: usize,
}

impl Bench {
    fn new(workload: &Workload) -> Result<Bench> {
        let engine = Engine::new(&Options::new(vec![workload.profile()?]))?;
        let mut bench =
            Bench { engine, now: Time::from_seconds(1_800_000_000), pods: HashMap::new(), made: 0 };
        for input in workload.base(bench.now)? {
            bench.engine.take(bench.now, input);
        }
        for group in &workload.before {
            let tried = bench.round(workload, group)?;
            ensure!(!group.fits || tried.pods == group.count, "{} of {} placed", tried.pods, group.count);
        }
        Ok(bench)
    }

    /// Tells of a group of pods and places them.
    fn round(&mut self, workload: &Workload, group: &Pods) -> Result<Measured> {
        let told = self.tell(workload, group)?;
        let (bound, elapsed, attempts) = self.drain(usize::MAX);
        // The watch tells of what was bound; not part of the figure.
        for (uid, node) in &bound {
            let Some(mut pod) = self.pods.remove(uid) else { continue };
            pod["spec"]["nodeName"] = json!(node);
            pod["metadata"]["resourceVersion"] = json!("2");
            let object = input(json!({"type": "pod", "object": pod}))?;
            self.engine.take(self.now, object);
        }
        Ok(Measured { pods: bound.len(), elapsed, told, attempts })
    }

    /// Tells of a group of pods. Returns the time that the engine took for it.
    fn tell(&mut self, workload: &Workload, group: &Pods) -> Result<Duration> {
        let mut inputs = Vec::new();
        for mut pod in workload.pods(group, self.made)? {
            let uid = format!("00000000-0000-0000-0000-{:012}", self.made);
            self.made += 1;
            pod["metadata"]["uid"] = json!(uid);
            pod["metadata"]["resourceVersion"] = json!("1");
            pod["spec"]["schedulerName"] = json!("default-scheduler");
            inputs.push(input(json!({"type": "pod", "object": &pod}))?);
            self.pods.insert(uid, pod);
        }
        let begun = Instant::now();
        for input in inputs {
            self.engine.take(self.now, input);
        }
        Ok(begun.elapsed())
    }

    /// Lets the engine work until so many pods are bound or nothing is ready. Everything it is asked to do succeeds
    /// at once.
    fn drain(&mut self, pods_max: usize) -> (Vec<Bound>, Duration, Vec<Duration>) {
        let (mut bound, mut attempts) = (Vec::new(), Vec::new());
        let begun = Instant::now();
        while bound.len() < pods_max {
            let started = Instant::now();
            let Some(_) = self.engine.step(self.now) else { break };
            attempts.push(started.elapsed());
            self.now = self.now + started.elapsed();
            let mut commands = VecDeque::from(self.engine.take_commands());
            while let Some(command) = commands.pop_front() {
                match command {
                    Command::Bind(binding) => {
                        let uid = binding.pod.uid.to_string();
                        self.engine
                            .take(self.now, Input::Outcome { uid: uid.clone(), outcome: Outcome::Bound });
                        bound.push((uid, binding.node));
                    }
                    Command::Prepare(plan) => {
                        let uid = plan.pod.map(|pod| pod.uid.to_string()).unwrap_or_default();
                        self.engine.take(self.now, Input::Outcome { uid, outcome: Outcome::Prepared });
                    }
                    Command::Preempt(order) => {
                        let uid = order.preemptor.uid.to_string();
                        self.engine.take(self.now, Input::Outcome { uid, outcome: Outcome::Preempted });
                        for victim in order.victims {
                            let gone = Input::PodGone {
                                namespace: victim.key.namespace.to_string(),
                                name: victim.key.name.to_string(),
                                uid: victim.uid.to_string(),
                            };
                            self.engine.take(self.now, gone);
                        }
                    }
                    _ => {}
                }
                commands.extend(self.engine.take_commands());
            }
        }
        (bound, begun.elapsed(), attempts)
    }
}

/// One workload in an engine of its own.
pub(super) fn measure(workload: &Workload) -> Result<Measured> {
    let mut bench = Bench::new(workload)?;
    let mut whole = Measured { pods: 0, elapsed: Duration::ZERO, told: Duration::ZERO, attempts: Vec::new() };
    for group in &workload.measured {
        let part = bench.round(workload, group)?;
        ensure!(part.pods == group.count, "{}: {} of {} placed", workload.name, part.pods, group.count);
        whole.pods += part.pods;
        whole.elapsed += part.elapsed;
        whole.told += part.told;
        whole.attempts.extend(part.attempts);
    }
    Ok(whole)
}

/// Gets a workload ready and places so many of its pods: all that is done in a process whose instructions are counted.
pub(super) fn only_place(workload: &Workload, pods: usize) -> Result<()> {
    let workload = workload.scaled(workload.node_count(), MANY);
    let mut bench = Bench::new(&workload)?;
    for group in &workload.measured {
        bench.tell(&workload, group)?;
    }
    let (bound, ..) = bench.drain(pods);
    ensure!(bound.len() == pods, "{}: {} of {pods} placed", workload.name, bound.len());
    Ok(())
}

/// How often each workload is measured; the fastest counts, since all that others do on the machine only slows.
const ROUNDS: usize = 11;

/// Several runs of one workload.
struct Runs {
    fastest: Measured,
    /// Its rate as a part of the first workload's, each time in the same turn.
    of_first: Vec<f64>,
}

impl Runs {
    /// The one in the middle: a slow moment of the machine changes single ones.
    fn part_of_first(&self) -> f64 {
        let mut sorted = self.of_first.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }
}

/// Several runs of each workload, taken in turns so that a slow minute of the machine meets all alike.
fn in_turns(workloads: &[Workload]) -> Result<Vec<Runs>> {
    let mut all: Vec<Runs> = Vec::new();
    for _ in 0..ROUNDS {
        let mut first = None;
        for (number, workload) in workloads.iter().enumerate() {
            let measured = measure(workload)?;
            let part = measured.per_second() / *first.get_or_insert(measured.per_second());
            match all.get_mut(number) {
                None => all.push(Runs { fastest: measured, of_first: vec![part] }),
                Some(runs) => {
                    runs.of_first.push(part);
                    if measured.elapsed < runs.fastest.elapsed {
                        runs.fastest = measured;
                    }
                }
            }
        }
    }
    Ok(all)
}

/// Every workload with its bars.
pub(super) fn workloads(report: &mut Report, workloads: &[Workload]) -> Result<()> {
    for (workload, runs) in workloads.iter().zip(in_turns(workloads)?) {
        let measured = &runs.fastest;
        let rate = measured.per_second();
        let told = 1e6 * measured.told.as_secs_f64() / float(measured.pods);
        let part = runs.part_of_first();
        let text = format!(
            "{}: {rate:.0} pods/s at {} nodes, {part:.2} of {}, and {told:.1} µs to take a pod in",
            workload.name,
            workload.node_count(),
            workloads[0].name
        );
        match (workload.bars.pods_per_second, workload.bars.of_basic) {
            (Some(bar), _) => report.figure(&text, &format!("{bar:.0} pods/s"), rate >= bar),
            (_, Some(bar)) => report.figure(&text, &format!("{bar} of basic"), part >= bar),
            _ => say(&format!("      {text}")),
        }
        if let Some(bar) = workload.bars.attempt_p99_micros {
            let p99 = millis(measured.p99()) * 1e3;
            let text = format!("{}: p99 of an attempt {p99:.1} µs", workload.name);
            report.figure(&text, &format!("{bar:.0} µs"), p99 <= bar);
        }
    }
    Ok(())
}

/// How the cost of a pod grows with the cluster.
pub(super) fn growth(report: &mut Report, workloads: &[Workload]) -> Result<()> {
    for (name, bar) in [("basic", 3.0), ("distinct", 12.0)] {
        let Some(workload) = workloads.iter().find(|workload| workload.name == name) else { continue };
        let sizes = [workload.scaled(1_000, 5_000), workload.scaled(50_000, 5_000)];
        let [small, large] = &in_turns(&sizes)?[..] else { continue };
        let (small, large) = (small.fastest.nanos_per_pod(), large.fastest.nanos_per_pod());
        let times = large / small;
        let text = format!("{name}: {small:.0} ns per pod at 1,000 nodes, {large:.0} at 50,000: {times:.1}x");
        report.figure(&text, &format!("{bar}x"), times <= bar);
    }
    Ok(())
}

pub(super) fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
