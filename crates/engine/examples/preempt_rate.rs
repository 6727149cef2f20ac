//! How fast pods take the place of others: 5,000 full nodes, and a pod of high priority for each.
//!
//! `cargo run --release -p koord-engine --example preempt_rate [NODES [WAITING]]`. Each pod is refused, its victims go
//! at once, and it is bound in a second attempt. WAITING is how many preemptors are refused before the first of their
//! victims goes, 1 unless said. Then the same with nobody to take away: attempts that fail everywhere.

#![expect(clippy::print_stdout, reason = "it is for people")]
#![expect(clippy::unwrap_used, reason = "what it is given is its own")]

use std::time::{Duration, Instant};

use koord_engine::Engine;
use koord_engine::engine::{Command, Input, Options, Outcome};
use koord_engine::profile::Profile;
use koord_engine::time::Time;
use serde_json::{Value, json};

/// An engine and what was measured.
struct Bench {
    engine: Engine,
    now: Time,
    attempts: Vec<Duration>,
}

fn input(value: Value) -> Input {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, cpu: &str, priority: i32, node: Option<&str>) -> Input {
    input(json!({"type": "pod", "object": {
        "metadata": {"name": name, "namespace": "d", "uid": name, "resourceVersion": "1"},
        "spec": {"schedulerName": "default-scheduler", "priority": priority, "nodeName": node,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}]},
        "status": {"startTime": node.map(|_| "2024-01-01T00:00:00Z")}}}))
}

impl Bench {
    /// Nodes of cpu 4, each with four pods of `cpu` and `priority`.
    fn new(nodes: usize, cpu: &str, priority: i32) -> Bench {
        let engine = Engine::new(&Options::new(vec![Profile::standard("default-scheduler")])).unwrap();
        let mut bench = Bench { engine, now: Time::from_seconds(1_800_000_000), attempts: Vec::new() };
        for i in 0..nodes {
            let name = format!("node-{i}");
            let allocatable = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
            bench.take(input(json!({"type": "node", "object": {"metadata": {"name": name},
                "status": {"allocatable": allocatable}}})));
            for j in 0..4 {
                bench.take(pod(&format!("low-{i}-{j}"), cpu, priority, Some(&name)));
            }
        }
        bench
    }

    fn take(&mut self, input: Input) {
        self.engine.take(self.now, input);
    }

    fn step(&mut self) -> bool {
        let begun = Instant::now();
        let is_tried = self.engine.step(self.now).is_some();
        if is_tried {
            self.attempts.push(begun.elapsed());
        }
        self.now = self.now + begun.elapsed();
        is_tried
    }

    /// Carries out what the engine wants. Returns how many pods were bound.
    fn obey(&mut self) -> usize {
        let mut bound = 0;
        for command in self.engine.take_commands() {
            match command {
                Command::Bind(binding) => {
                    let uid = binding.pod.uid.to_string();
                    self.take(Input::Outcome { uid, outcome: Outcome::Bound });
                    bound += 1;
                }
                Command::Preempt(order) => {
                    let uid = order.preemptor.uid.to_string();
                    self.take(Input::Outcome { uid, outcome: Outcome::Preempted });
                    for victim in order.victims {
                        let (namespace, name) =
                            (victim.key.namespace.to_string(), victim.key.name.to_string());
                        self.take(Input::PodGone { namespace, name, uid: victim.uid.to_string() });
                    }
                }
                _ => {}
            }
        }
        bound
    }

    fn p99_micros(&mut self) -> f64 {
        self.attempts.sort_unstable();
        let at = (self.attempts.len() * 99 / 100).min(self.attempts.len() - 1);
        self.attempts[at].as_secs_f64() * 1e6
    }
}

fn rate(count: usize, elapsed: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / elapsed.as_secs_f64()
}

fn preempting(nodes: usize, waiting: usize) {
    let mut bench = Bench::new(nodes, "900m", 0);
    for i in 0..nodes {
        bench.take(pod(&format!("high-{i}"), "3", 10, None));
    }
    let (begun, mut bound) = (Instant::now(), 0);
    loop {
        let tried = (0..waiting).take_while(|_| bench.step()).count();
        if tried == 0 {
            break;
        }
        bound += bench.obey();
    }
    let (elapsed, attempts) = (begun.elapsed(), bench.attempts.len());
    println!(
        "preempting, {waiting} at a time: {:.0} pods/s at {nodes} nodes ({bound} bound in {attempts} attempts, p99 {:.0} µs)",
        rate(bound, elapsed),
        bench.p99_micros()
    );
}

fn failing(nodes: usize, cpu: &str, priority: i32, what: &str) {
    let mut bench = Bench::new(nodes, cpu, priority);
    for i in 0..2000 {
        bench.take(pod(&format!("high-{i}"), "4", 10, None));
    }
    let begun = Instant::now();
    while bench.step() {
        bench.obey();
    }
    let (elapsed, attempts) = (begun.elapsed(), bench.attempts.len());
    println!("{what}: {:.0} attempts/s, p99 {:.0} µs", rate(attempts, elapsed), bench.p99_micros());
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().unwrap());
    let nodes = arguments.next().unwrap_or(5_000);
    let waiting = arguments.next().unwrap_or(1);
    preempting(nodes, waiting);
    failing(nodes, "900m", 10, "failing everywhere, nobody to take away");
    failing(nodes, "900m", 20, "failing everywhere, all of higher priority");
}
