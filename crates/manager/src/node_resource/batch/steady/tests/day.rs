//! A generated day of load: how much batch allocatable moves, and how often it promises too much.
//!
//! The node has services that follow the hours of the day with noise and bursts, jobs that come and go, an agent that
//! reports every minute and twice falls silent. Every minute the manager takes its turn and writes when it is due.

use std::collections::BTreeMap;

use jiff::Timestamp;
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY, CPU, MEMORY};
use koord_api::priority::PriorityClass;
use koord_api::qos::Qos;
use koord_api::slo::SloConfig;
use koord_kit::cache::{ObjectKey, Uid};
use koord_kit::pods::PodPhase;

use super::*;
use crate::node_resource::plugin::{Input, Options};
use crate::node_resource::settings::Settings;
use crate::node_resource::view::{NodeUsage, NodeView, PodUsage};
use crate::node_resource::{PLUGINS, plan};
use crate::pods::{PodBrief, PodRequests};

const MINUTES: i64 = 24 * 60;
const MIB: f64 = 1024.0 * 1024.0;

/// Numbers that look random and come again with the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// From -1 to 1, most often near 0.
    fn noise(&mut self) -> f64 {
        let sum: u64 = (0..4).map(|_| self.below(1000)).sum();
        f64::from(u32::try_from(sum).unwrap()) / 2000.0 - 1.0
    }
}

/// A pod and what it uses.
struct Load {
    pod: Arc<PodBrief>,
    cores: f64,
    mib: f64,
    /// For services: how strongly it follows the day.
    swing: f64,
    until: i64,
}

/// The node as it really is.
struct Node {
    dice: Dice,
    loads: Vec<Load>,
    born: u64,
    /// Until when services use more, and how much more.
    burst: (i64, f64),
}

impl Node {
    fn new(seed: u64) -> Node {
        let mut node = Node { dice: Dice(seed), loads: Vec::new(), born: 0, burst: (0, 1.0) };
        for _ in 0..6 {
            let swing = 0.2 + 0.1 * node.dice.noise();
            node.land([4_000.0, 8_192.0], [1.6, 5_000.0], swing, i64::MAX);
        }
        node
    }

    /// A new pod: what it requests in milli-cores and MiB, what it uses in cores and MiB.
    fn land(&mut self, request: [f64; 2], [cores, mib]: [f64; 2], swing: f64, until: i64) {
        self.born += 1;
        let name = format!("p{}", self.born);
        let native = Amounts { cpu: milli(request[0] / 1000.0), memory: bytes(request[1]) };
        let pod = PodBrief {
            key: ObjectKey { namespace: "default".into(), name: name.as_str().into() },
            uid: Uid::of(&name),
            created: 0,
            is_deleting: false,
            node: Some("n".into()),
            phase: PodPhase::Running,
            qos: Some(Qos::Ls),
            class: Some(PriorityClass::Prod),
            requests: Arc::new(PodRequests { native, ..PodRequests::default() }),
            numa_nodes: Box::default(),
            quota: None,
            quota_tree: None,
        };
        self.loads.push(Load { pod: Arc::new(pod), cores, mib, swing, until });
    }

    /// Lives through a minute; what each pod uses then.
    fn live(&mut self, minute: i64) -> Vec<(Arc<PodBrief>, Amounts)> {
        self.loads.retain(|load| load.until > minute);
        if self.dice.below(15) == 0 {
            let cores = 1.5 + self.dice.noise();
            let until = minute + 8 + i64::try_from(self.dice.below(30)).unwrap();
            self.land([4_000.0, 4_096.0], [cores, 2_000.0], 0.0, until);
        }
        if self.dice.below(90) == 0 {
            self.burst = (minute + 4, 1.6);
        }
        let hour = f64::from(i32::try_from(minute).unwrap()) / 60.0;
        let day = ((hour - 9.0) * std::f64::consts::TAU / 24.0).sin();
        let burst = if minute < self.burst.0 { self.burst.1 } else { 1.0 };
        let dice = &mut self.dice;
        let use_of = |load: &Load, dice: &mut Dice| {
            let is_service = load.until == i64::MAX;
            let factor = (1.0 + load.swing * day) * if is_service { burst } else { 1.0 };
            Amounts {
                cpu: milli(load.cores * factor * (1.0 + 0.25 * dice.noise())),
                memory: bytes(load.mib * (1.0 + 0.05 * dice.noise())),
            }
        };
        self.loads.iter().map(|load| (load.pod.clone(), use_of(load, dice))).collect()
    }
}

fn milli(cores: f64) -> Quantity {
    Quantity::cores_milli(koord_api::number::truncated(cores * 1000.0))
}

fn bytes(mib: f64) -> Quantity {
    Quantity::bytes(koord_api::number::truncated(mib * MIB))
}

/// What a strategy made of the day, of cpu in milli-cores and of memory in MiB.
#[derive(Debug, Default)]
struct Outcome {
    variation: [i64; 2],
    /// Minutes in which more was promised than there was.
    violations: [usize; 2],
    /// Of what was lent each minute.
    sum: [i64; 2],
    writes: usize,
}

const CORES_MILLI: i64 = 32_000;
const MEMORY_MIB: f64 = 65_536.0;

/// Minutes without reports.
const SILENCE: [std::ops::Range<i64>; 2] = [200..225, 900..930];

fn live_through(seed: u64, document: &str) -> Outcome {
    let mut config = SloConfig::default();
    config.load(Some(&BTreeMap::from([("colocation-config".to_owned(), document.to_owned())])));
    let list = BTreeMap::from([
        (CPU.to_owned(), Quantity::cores_milli(CORES_MILLI)),
        (MEMORY.to_owned(), bytes(MEMORY_MIB)),
    ]);
    let mut view = NodeView {
        name: "n".to_owned(),
        capacity: Some(list.clone()),
        allocatable: Some(list),
        ..NodeView::default()
    };
    let settings = Settings::from(&config.colocation_strategy(view.facts()).unwrap().value);
    let mut node = Node::new(seed);
    let (mut memory, mut metric, mut outcome) = (NodeMemory::default(), None, Outcome::default());
    let mut before: Option<[i64; 2]> = None;
    for minute in 0..MINUTES {
        let now = Timestamp::from_second(minute * 60).unwrap();
        let uses = node.live(minute);
        let system = Amounts { cpu: milli(1.0 + 0.2 * node.dice.noise()), memory: bytes(2_048.0) };
        let pods: Vec<_> = uses.iter().map(|(pod, _)| pod.clone()).collect();
        let input = Input {
            now,
            node: &view,
            config: &config,
            settings: &settings,
            metric: metric.as_ref(),
            pods: &pods,
            topology: None,
            device: None,
            options: Options::default(),
        };
        let plan = plan(PLUGINS, &input, &mut memory);
        if plan.needs_status {
            memory.node_synced = Some(now);
            outcome.writes += 1;
            view = plan.prepared;
        }
        let used: Amounts = uses.iter().map(|(_, used)| *used).sum::<Amounts>() + system;
        outcome.count(&view, used, before);
        // The first report makes the resource appear; that is no movement.
        before = metric.is_some().then(|| published(&view));
        if !SILENCE.iter().any(|silence| silence.contains(&minute)) {
            metric = Some(Arc::new(report(now, &uses, system)));
        }
    }
    outcome
}

fn published(view: &NodeView) -> [i64; 2] {
    let amount = |name| view.allocatable(name).map_or(0, |amount| amount.value());
    [amount(BATCH_CPU), amount(BATCH_MEMORY) >> 20]
}

impl Outcome {
    fn count(&mut self, view: &NodeView, used: Amounts, before: Option<[i64; 2]>) {
        let published = published(view);
        let room = [
            CORES_MILLI * 60 / 100 - used.cpu.milli_value(),
            (bytes(MEMORY_MIB * 0.65) - used.memory).value() >> 20,
        ];
        for at in 0..2 {
            self.sum[at] += published[at];
            self.violations[at] += usize::from(published[at] > room[at].max(0));
            self.variation[at] += before.map_or(0, |before| (published[at] - before[at]).abs());
        }
    }
}

fn report(now: Timestamp, uses: &[(Arc<PodBrief>, Amounts)], system: Amounts) -> MetricView {
    let usage = |(pod, used): &(Arc<PodBrief>, Amounts)| PodUsage {
        namespace: pod.key.namespace.clone(),
        name: pod.key.name.as_ref().into(),
        used: *used,
        class: pod.class,
        qos: pod.qos,
    };
    let mut pods: Vec<PodUsage> = uses.iter().map(usage).collect();
    pods.sort_by(|a, b| a.key().cmp(&b.key()));
    let used: Amounts = uses.iter().map(|(_, used)| *used).sum();
    let node = Some(NodeUsage { used: Some(used + system), system });
    MetricView { update_time: Some(now), node, pods, ..MetricView::default() }
}

#[test]
fn moves_half_as_much_and_promises_no_more() {
    for seed in 1..=8 {
        let plain = live_through(seed, r#"{"enable":true}"#);
        let steady = live_through(seed, r#"{"enable":true,"batchStabilizationWindowSeconds":900}"#);
        let shown = format!("seed {seed}\nby default {plain:?}\nsteadier {steady:?}");
        for (at, what) in ["cpu", "memory"].into_iter().enumerate() {
            assert!(steady.variation[at] * 2 <= plain.variation[at], "{what} moves, {shown}");
            assert!(steady.violations[at] <= plain.violations[at], "{what} is promised, {shown}");
            assert!(steady.sum[at] * 2 >= plain.sum[at], "{what} is still lent, {shown}");
        }
        assert!(plain.violations[0] > 0, "else nothing is shown, {shown}");
        assert!(steady.writes <= plain.writes, "{shown}");
    }
}
