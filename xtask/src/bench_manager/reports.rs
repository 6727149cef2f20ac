//! What agents report, and how many writes the rules ask for in answer.
//!
//! The rules are the specification's, told anew: a node is written when one of its amounts moved by more than a tenth,
//! or when it was last in order longer ago than the refresh time and is not exactly right. Spec: manager 5.4, 6.5.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::load::Chance;
use super::nodes::{CPU_MILLI, MEMORY_BYTES, PODS_PER_NODE, PROD_PER_NODE, ZONES, is_prod, pod_name};

/// A tenth.
const THRESHOLD: f64 = 0.1;
/// What the system uses of a node, in percent.
const SYSTEM_PERCENT: i64 = 3;
/// How far usage strays from one report to the next, as a part of the node.
const NOISE: f64 = 0.004;
/// How far it goes when load really changes.
const JUMP: f64 = 0.06;

/// The strategy that the model goes by, as it stands in the ConfigMap.
#[derive(Clone, Copy)]
pub(super) struct Strategy {
    pub(super) cpu_reclaim_percent: i64,
    pub(super) memory_reclaim_percent: i64,
    pub(super) refresh: Duration,
}

impl Strategy {
    pub(super) fn config(self) -> String {
        json!({"enable": true, "cpuReclaimThresholdPercent": self.cpu_reclaim_percent,
            "memoryReclaimThresholdPercent": self.memory_reclaim_percent,
            "updateTimeThresholdSeconds": self.refresh.as_secs(), "metricReportIntervalSeconds": 60})
        .to_string()
    }
}

/// Writes that the rules ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needed {
    pub(super) nodes: u32,
    pub(super) topologies: u32,
}

/// All agents.
pub(super) struct Agents {
    agents: Vec<Agent>,
    pub(super) strategy: Strategy,
    pub(super) needed: Needed,
    /// How often load really changes, of all reports.
    pub(super) jumps: f64,
}

/// The agent of one node, and what its node was last written with.
struct Agent {
    number: usize,
    chance: Chance,
    /// What prod pods use of the node.
    level: f64,
    last: Option<Usage>,
    node: Written<4>,
    zone: Written<2>,
}

/// Amounts as last written, and when they were last in order.
struct Written<const N: usize> {
    amounts: Option<[i64; N]>,
    synced: Option<Instant>,
}

/// One report.
struct Usage {
    prod: Vec<[i64; 2]>,
    reclaimable: [i64; 2],
}

impl Agents {
    pub(super) fn new(count: usize, strategy: Strategy) -> Agents {
        let agent = |number: usize| {
            let mut chance = Chance(u64::try_from(number).unwrap_or_default());
            let level = 0.15 + 0.2 * chance.unit();
            Agent { number, chance, level, last: None, node: Written::none(), zone: Written::none() }
        };
        Agents { agents: (0..count).map(agent).collect(), strategy, needed: Needed::default(), jumps: 0.0 }
    }

    /// The next report of a node, as the body of a patch.
    pub(super) fn report(&mut self, node: usize, now: Instant) -> String {
        let agent = &mut self.agents[node];
        if agent.chance.unit() < self.jumps {
            let up = agent.level < 0.2 || (agent.level < 0.3 && agent.chance.unit() < 0.5);
            agent.level += if up { JUMP } else { -JUMP };
        }
        let usage = agent.measure();
        let (node, zone) = amounts(self.strategy, &usage);
        self.needed.nodes += u32::from(agent.node.is_due_together(node, now, self.strategy.refresh));
        self.needed.topologies += u32::from(agent.zone.is_due_apart(zone, now, self.strategy.refresh));
        let status = status(agent.number, &usage);
        agent.last = Some(usage);
        json!({"status": status}).to_string()
    }

    /// Every node was just written under a new strategy, with what was reported last.
    pub(super) fn rewritten(&mut self, strategy: Strategy, now: Instant) {
        self.strategy = strategy;
        for agent in &mut self.agents {
            if let Some(usage) = &agent.last {
                let (node, zone) = amounts(strategy, usage);
                agent.node = Written { amounts: Some(node), synced: Some(now) };
                agent.zone = Written { amounts: Some(zone), synced: Some(now) };
            }
        }
    }
}

impl Agent {
    fn measure(&mut self) -> Usage {
        let share =
            |whole: i64, part: f64, pods: usize| scaled(whole, part) / i64::try_from(pods).unwrap_or(1);
        let level = self.level + NOISE * self.chance.around_zero();
        let memory = self.level + NOISE * self.chance.around_zero();
        let prod = [share(CPU_MILLI, level, PROD_PER_NODE), share(MEMORY_BYTES, memory, PROD_PER_NODE)];
        let reclaimable = 0.06 * (1.0 + 0.01 * self.chance.around_zero());
        Usage {
            prod: vec![prod; PROD_PER_NODE],
            reclaimable: [scaled(CPU_MILLI, reclaimable), scaled(MEMORY_BYTES, reclaimable)],
        }
    }
}

fn scaled(whole: i64, part: f64) -> i64 {
    // Whole thousandths keep this exact enough, and free of lossy casts.
    let thousandths = (part * 1e6).round().clamp(0.0, 4e9);
    let thousandths: i64 = format!("{thousandths:.0}").parse().unwrap_or_default();
    whole / 1_000 * thousandths / 1_000
}

/// Batch cpu and memory and mid cpu and memory of a node; batch cpu and memory of each zone.
fn amounts(strategy: Strategy, usage: &Usage) -> ([i64; 4], [i64; 2]) {
    let batch = |at: usize, whole: i64, percent: i64| {
        let used: i64 = usage.prod.iter().map(|pod| pod[at]).sum();
        let margin = whole * (100 - percent) / 100;
        (whole - margin - whole * SYSTEM_PERCENT / 100 - used).max(0)
    };
    let cpu = batch(0, CPU_MILLI, strategy.cpu_reclaim_percent);
    let memory = batch(1, MEMORY_BYTES, strategy.memory_reclaim_percent);
    let [mid_cpu, mid_memory] = usage.reclaimable;
    ([cpu, memory, mid_cpu, mid_memory], [cpu / ZONES, memory / ZONES])
}

fn moved(old: i64, new: i64) -> bool {
    let float = |amount: i64| -> f64 { format!("{amount}").parse().unwrap_or_default() };
    float(new - old).abs() > float(old) * THRESHOLD
}

impl<const N: usize> Written<N> {
    fn none() -> Written<N> {
        Written { amounts: None, synced: None }
    }

    fn is_old(&self, now: Instant, refresh: Duration) -> bool {
        self.synced.is_none_or(|synced| now - synced > refresh)
    }

    /// All amounts are written when one has moved. In order without a write is in order, too.
    fn is_due_together(&mut self, new: [i64; N], now: Instant, refresh: Duration) -> bool {
        let has_moved = match &self.amounts {
            None => true,
            Some(old) => old.iter().zip(new).any(|(old, new)| moved(*old, new)),
        };
        if !has_moved && !self.is_old(now, refresh) {
            return false;
        }
        self.synced = Some(now);
        self.amounts.replace(new) != Some(new)
    }

    /// Only amounts that have moved are written, unless a refresh is due.
    fn is_due_apart(&mut self, new: [i64; N], now: Instant, refresh: Duration) -> bool {
        let wanted = match self.amounts {
            Some(old) if !self.is_old(now, refresh) => {
                std::array::from_fn(|at| if moved(old[at], new[at]) { new[at] } else { old[at] })
            }
            _ => new,
        };
        let is_due = self.amounts.replace(wanted) != Some(wanted);
        if is_due {
            self.synced = Some(now);
        }
        is_due
    }
}

fn map([cpu, memory]: [i64; 2]) -> Value {
    json!({"resources": {"cpu": format!("{cpu}m"), "memory": memory.to_string()}})
}

/// As koordlet writes it: the node, the system, percentiles of both over three windows, and every pod.
fn status(node: usize, usage: &Usage) -> Value {
    let system = [CPU_MILLI * SYSTEM_PERCENT / 100, MEMORY_BYTES * SYSTEM_PERCENT / 100];
    let batch = [CPU_MILLI / 100, MEMORY_BYTES / 100];
    let mut all = system;
    let mut pods = Vec::new();
    for pod in 0..PODS_PER_NODE {
        let used = usage.prod.get(pod).copied().filter(|_| is_prod(pod)).unwrap_or(batch);
        all = [all[0] + used[0], all[1] + used[1]];
        let (namespace, name) = pod_name(node, pod);
        let (priority, qos) = if is_prod(pod) { ("koord-prod", "LS") } else { ("koord-batch", "BE") };
        pods.push(json!({"namespace": namespace, "name": name, "podUsage": map(used), "priority": priority, "qos": qos}));
    }
    let windows = |used: [i64; 2]| -> Vec<Value> {
        let window = |length: &&str| {
            let kinds = ["avg", "p99", "p95", "p90", "p50"].map(|kind| (kind.to_owned(), map(used)));
            json!({"duration": length, "usage": Value::Object(kinds.into_iter().collect())})
        };
        ["5m0s", "10m0s", "30m0s"].iter().map(window).collect()
    };
    json!({"updateTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "nodeMetric": {"nodeUsage": map(all), "aggregatedNodeUsages": windows(all),
            "systemUsage": map(system), "aggregatedSystemUsages": windows(system)},
        "podsMetric": pods,
        "prodReclaimableMetric": {"resource": map(usage.reclaimable)}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_writes() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let refresh = Duration::from_secs(300);
        let mut node = Written::<2>::none();
        let mut zone = Written::<2>::none();
        for (name, second, new, want_node, want_zone) in [
            ("the first", 0, [100, 100], true, true),
            ("a tenth is not more than a tenth", 60, [110, 100], false, false),
            ("more than a tenth", 120, [111, 105], true, true),
            ("what was written counts", 180, [115, 111], false, true),
            ("not yet old", 420, [116, 106], false, false),
            ("old", 421, [116, 106], true, false),
            ("the zone is old", 481, [116, 106], false, true),
            ("old and right: no write, and in order again", 722, [116, 106], false, false),
            ("so this is not old", 782, [117, 106], false, true),
        ] {
            assert_eq!(node.is_due_together(new, at(second), refresh), want_node, "{name}: node");
            assert_eq!(zone.is_due_apart(new, at(second), refresh), want_zone, "{name}: zone");
        }
    }

    #[test]
    fn small_noise_needs_no_writes() {
        let strategy = Strategy {
            cpu_reclaim_percent: 60,
            memory_reclaim_percent: 65,
            refresh: Duration::from_secs(300),
        };
        let mut agents = Agents::new(50, strategy);
        let now = Instant::now();
        for node in 0..50 {
            agents.report(node, now);
        }
        assert_eq!(agents.needed, Needed { nodes: 50, topologies: 50 });
        for node in (0..50).chain(0..50) {
            agents.report(node, now);
        }
        assert_eq!(agents.needed, Needed { nodes: 50, topologies: 50 });
        agents.jumps = 1.0;
        (0..50).for_each(|node| drop(agents.report(node, now)));
        assert_eq!(agents.needed, Needed { nodes: 100, topologies: 100 });
    }
}
