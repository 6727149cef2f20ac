//! Local.
use koord_engine::Engine;
use koord_engine::engine::{Command, Input, Options, Outcome};
use koord_engine::profile::Profile;
use koord_engine::time::Time;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant};

fn cpu() -> Duration {
    let t = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(t.split(' ').next().unwrap().parse().unwrap())
}
fn input(v: Value) -> Input {
    serde_json::from_value(v).unwrap()
}
struct B {
    engine: Engine,
    now: Time,
    pods: HashMap<String, Value>,
    made: usize,
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let nodes: Option<usize> = args.get(2).and_then(|a| a.parse().ok());
    let pods: Option<usize> = args.get(3).and_then(|a| a.parse().ok());
    for name in args[1].split(',') {
        let w: Value =
            serde_json::from_str(&std::fs::read_to_string(format!("/work/wt/speed/target/local/{name}.json")).unwrap()).unwrap();
        run(name, &w, nodes, pods);
    }
}
fn run(name: &str, w: &Value, nodes: Option<usize>, pods: Option<usize>) {
    let engine = Engine::new(&Options::new(vec![Profile::standard("default-scheduler")])).unwrap();
    let mut b = B { engine, now: Time::from_seconds(1_800_000_000), pods: HashMap::new(), made: 0 };
    for n in ["default", "sched-0", "sched-1"] {
        b.engine.take(b.now, input(json!({"type": "namespace", "object": {"metadata": {"name": n, "labels": {"kubernetes.io/metadata.name": n}}}})));
    }
    let mut c = 0;
    for g in w["nodes"].as_array().unwrap() {
        let count = nodes.unwrap_or(g["count"].as_u64().unwrap() as usize);
        for i in 0..count {
            let nm = format!("node-{c}");
            c += 1;
            let zone = format!("zone-{}", i % g["zones"].as_u64().unwrap() as usize);
            b.engine.take(b.now, input(json!({"type": "node", "object": {"metadata": {"name": nm, "labels": {"kubernetes.io/hostname": nm, "topology.kubernetes.io/zone": zone}}, "status": {"allocatable": g["allocatable"], "capacity": g["allocatable"], "conditions": [{"type": "Ready", "status": "True"}]}}})));
        }
    }
    for s in w["services"].as_array().into_iter().flatten() {
        b.engine.take(b.now, input(json!({"type": "workload", "object": {"kind": "Service", "metadata": {"name": s["name"], "namespace": "default"}, "spec": {"selector": s["selector"]}}})));
    }
    for g in w["before"].as_array().into_iter().flatten() {
        b.round(w, g, None);
    }
    let mut all = Vec::new();
    let mut el = Duration::ZERO;
    let mut bound = 0;
    let mut told = Duration::ZERO;
    for g in w["measured"].as_array().unwrap() {
        let (t, bo, e, a) = b.round(w, g, pods);
        told += t;
        bound += bo;
        el += e;
        all.extend(a);
    }
    all.sort_unstable();
    let n = all.len();
    println!(
        "{name:32} nodes {c:6} bound {bound:6} attempts {n:6}: {:9.0} pods/s {:8.0} ns/pod | take {:6.0} ns | p50 {:?} p99 {:?} max {:?}",
        bound as f64 / el.as_secs_f64(),
        el.as_nanos() as f64 / bound.max(1) as f64,
        told.as_nanos() as f64 / bound.max(1) as f64,
        all[n / 2],
        all[n * 99 / 100],
        all[n - 1]
    );
}
impl B {
    fn round(
        &mut self,
        w: &Value,
        g: &Value,
        pods: Option<usize>,
    ) -> (Duration, usize, Duration, Vec<Duration>) {
        let ts: Vec<String> = g["templates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| w["templates"][n.as_str().unwrap()].to_string())
            .collect();
        let mut inputs = Vec::new();
        for index in 0..pods.unwrap_or(g["count"].as_u64().unwrap() as usize) {
            let number = self.made;
            self.made += 1;
            let text = ts[index % ts.len()]
                .replace("$index", &index.to_string())
                .replace("$milli", &(100 + number % 997).to_string())
                .replace("$mebi", &(128 + number % 1499).to_string());
            let mut pod: Value = serde_json::from_str(&text).unwrap();
            let uid = format!("00000000-0000-0000-0000-{number:012}");
            pod["metadata"]["name"] = json!(format!("pod-{number}"));
            pod["metadata"]["namespace"] = json!(g["namespace"].as_str().unwrap_or("default"));
            pod["metadata"]["uid"] = json!(uid);
            pod["metadata"]["resourceVersion"] = json!("1");
            pod["spec"]["schedulerName"] = json!("default-scheduler");
            inputs.push(input(json!({"type": "pod", "object": &pod})));
            self.pods.insert(uid, pod);
        }
        let t = Instant::now();
        for i in inputs {
            self.engine.take(self.now, i);
        }
        let told = t.elapsed();
        let (mut bound, mut attempts) = (Vec::new(), Vec::new());
        let begun = cpu();
        loop {
            let started = Instant::now();
            let Some(_) = self.engine.step(self.now) else { break };
            attempts.push(started.elapsed());
            self.now = self.now + started.elapsed();
            for command in self.engine.take_commands() {
                match command {
                    Command::Bind(binding) => {
                        let uid = binding.pod.uid.to_string();
                        self.engine
                            .take(self.now, Input::Outcome { uid: uid.clone(), outcome: Outcome::Bound });
                        bound.push((uid, binding.node));
                    }
                    Command::Preempt(order) => {
                        let uid = order.preemptor.uid.to_string();
                        self.engine.take(self.now, Input::Outcome { uid, outcome: Outcome::Preempted });
                        for v in order.victims {
                            self.engine.take(
                                self.now,
                                Input::PodGone {
                                    namespace: v.key.namespace.to_string(),
                                    name: v.key.name.to_string(),
                                    uid: v.uid.to_string(),
                                },
                            );
                        }
                    }
                    _ => {}
                }
            }
        }
        let el = cpu() - begun;
        for (uid, node) in &bound {
            let Some(mut pod) = self.pods.remove(uid) else { continue };
            pod["spec"]["nodeName"] = json!(node);
            pod["metadata"]["resourceVersion"] = json!("2");
            self.engine.take(self.now, input(json!({"type": "pod", "object": pod})));
        }
        (told, bound.len(), el, attempts)
    }
}
