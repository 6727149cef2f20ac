//! The models and how they learn, expire and are saved. Spec: koordlet-observe 9.1, 9.3, 9.5.

use std::collections::BTreeMap;
use std::sync::Arc;

use koord_api::number::{nearest, truncated};
use koord_api::priority::PriorityClass;

use super::histogram::{Histogram, Shape};
use super::{NODE, SYSTEM};

/// What the flags of prediction say.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How old a pod must be before its history counts.
    pub cold_start_ms: i64,
    pub safety_margin_percent: i64,
    pub memory_half_life_ms: i64,
    pub cpu_half_life_ms: i64,
    /// Between trainings, and how far each looks back.
    pub training_interval_ms: i64,
    pub expiration_ms: i64,
    pub checkpoint_interval_ms: i64,
    pub checkpoints_max: usize,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cold_start_ms: 24 * HOUR_MS,
            safety_margin_percent: 10,
            memory_half_life_ms: 24 * HOUR_MS,
            cpu_half_life_ms: 12 * HOUR_MS,
            training_interval_ms: MINUTE_MS,
            expiration_ms: 30 * MINUTE_MS,
            checkpoint_interval_ms: 10 * MINUTE_MS,
            checkpoints_max: 12,
        }
    }
}

impl Settings {
    /// Amounts are multiplied by this before they are taken for peaks.
    pub fn margin(&self) -> f64 {
        nearest(self.safety_margin_percent.saturating_add(100)) / 100.0
    }
}

/// CPU in thousandths of a core and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub cpu_milli: i64,
    pub memory: i64,
}

impl Amount {
    pub fn plus(self, other: Amount) -> Amount {
        self.with(other, i64::saturating_add)
    }

    /// The difference, at least nothing.
    pub fn less(self, other: Amount) -> Amount {
        self.with(other, |a, b| a.saturating_sub(b).max(0))
    }

    pub fn min(self, other: Amount) -> Amount {
        self.with(other, i64::min)
    }

    pub fn max(self, other: Amount) -> Amount {
        self.with(other, i64::max)
    }

    /// Times a factor, without the fraction.
    pub fn times(self, factor: f64) -> Amount {
        self.with(self, |amount, _| truncated(nearest(amount) * factor))
    }

    fn with(self, other: Amount, each: impl Fn(i64, i64) -> i64) -> Amount {
        Amount { cpu_milli: each(self.cpu_milli, other.cpu_milli), memory: each(self.memory, other.memory) }
    }
}

/// What was used over the last interval: cores and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub cores: f64,
    pub memory: f64,
}

/// What one training learns from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Training {
    /// Pods that were measured, with their classes.
    pub pods: Vec<(Arc<str>, Option<PriorityClass>, Sample)>,
    /// None when the node could not be measured.
    pub node: Option<Sample>,
}

/// The answers of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    pub p60: Amount,
    pub p90: Amount,
    pub p95: Amount,
    pub p98: Amount,
    pub max: Amount,
}

impl Peaks {
    /// What counts as the peak: CPU is slowed down when it runs out, memory kills.
    pub fn peak(&self) -> Amount {
        Amount { cpu_milli: self.p95.cpu_milli, memory: self.p98.memory }
    }
}

/// What can be asked about the past.
pub trait History {
    /// What the model of that key answers.
    fn peaks(&self, key: &str) -> Result<Peaks, NotFound>;

    /// Whether what the key stands for was never seen to use anything.
    fn is_idle(&self, key: &str) -> bool;
}

/// There is no such model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("UID {0} not found in predict server")]
pub struct NotFound(pub String);

/// Key of the model of all pods of a class together.
pub fn class_key(class: Option<PriorityClass>) -> String {
    format!("__node-{}__", class.map_or("", PriorityClass::name))
}

/// The classes, and none.
pub(super) fn classes() -> impl Iterator<Item = Option<PriorityClass>> {
    PriorityClass::ALL.into_iter().map(Some).chain([None])
}

/// One thing's history.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) cpu: Histogram,
    pub(super) memory: Histogram,
    pub(super) updated_ms: i64,
    /// None before it was saved.
    pub(super) saved_ms: Option<i64>,
}

/// All models of the node.
#[derive(Clone, Debug)]
pub struct Predictor {
    settings: Settings,
    pub(super) models: BTreeMap<Arc<str>, Model>,
    /// Whether a training took place since the start; nothing is dropped or saved before.
    is_trained: bool,
}

impl Predictor {
    pub fn new(settings: Settings) -> Predictor {
        Predictor { settings, models: BTreeMap::new(), is_trained: false }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn len(&self) -> usize {
        self.models.len()
    }

    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Learns from the last interval.
    pub fn train(&mut self, training: &Training, now_ms: i64) {
        let mut sums: BTreeMap<Option<PriorityClass>, Sample> = BTreeMap::new();
        let mut all = Sample::default();
        for (uid, class, sample) in &training.pods {
            self.learn(uid, *sample, now_ms);
            add(sums.entry(*class).or_default(), *sample);
            add(&mut all, *sample);
        }
        for class in classes() {
            self.learn(&class_key(class), sums.get(&class).copied().unwrap_or_default(), now_ms);
        }
        // Differs: upstream takes a node that was not measured for one whose system uses nothing.
        if let Some(node) = training.node {
            self.learn(NODE, node, now_ms);
            let system = Sample {
                cores: (node.cores - all.cores).max(0.0),
                memory: (node.memory - all.memory).max(0.0),
            };
            self.learn(SYSTEM, system, now_ms);
        }
        self.is_trained = true;
    }

    fn learn(&mut self, key: &str, sample: Sample, now_ms: i64) {
        if !self.models.contains_key(key) {
            let model = self.fresh();
            self.models.insert(key.into(), model);
        }
        let Some(model) = self.models.get_mut(key) else { return };
        model.cpu.add(sample.cores, 1.0, now_ms);
        model.memory.add(sample.memory, 1.0, now_ms);
        model.updated_ms = now_ms;
    }

    pub(super) fn fresh(&self) -> Model {
        Model {
            cpu: Histogram::new(Shape::cpu(), self.settings.cpu_half_life_ms),
            memory: Histogram::new(Shape::memory(), self.settings.memory_half_life_ms),
            updated_ms: i64::MIN,
            saved_ms: None,
        }
    }

    /// Drops models that nobody trained for too long; their files go too.
    pub fn expire(&mut self, now_ms: i64) -> Vec<Arc<str>> {
        if !self.is_trained {
            return Vec::new();
        }
        let oldest = now_ms.saturating_sub(self.settings.expiration_ms);
        let gone: Vec<Arc<str>> = self
            .models
            .iter()
            .filter(|(_, model)| model.updated_ms < oldest)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &gone {
            self.models.remove(key);
        }
        gone
    }

    /// The models to be saved now, the one saved longest ago first. From now on they count as saved.
    pub fn due(&mut self, now_ms: i64) -> Vec<Arc<str>> {
        if !self.is_trained {
            return Vec::new();
        }
        let latest = now_ms.saturating_sub(self.settings.checkpoint_interval_ms);
        let is_due = |model: &Model| model.saved_ms.is_none_or(|saved| saved <= latest);
        let mut due: Vec<(Option<i64>, Arc<str>)> = self
            .models
            .iter()
            .filter(|(_, model)| is_due(model))
            .map(|(key, model)| (model.saved_ms, key.clone()))
            .collect();
        due.sort();
        due.truncate(self.settings.checkpoints_max);
        let keys: Vec<Arc<str>> = due.into_iter().map(|(_, key)| key).collect();
        for key in &keys {
            if let Some(model) = self.models.get_mut(key) {
                model.saved_ms = Some(now_ms);
            }
        }
        keys
    }
}

impl History for Predictor {
    fn peaks(&self, key: &str) -> Result<Peaks, NotFound> {
        let model = self.models.get(key).ok_or_else(|| NotFound(key.to_owned()))?;
        let at = |part: f64| Amount {
            cpu_milli: truncated(model.cpu.percentile(part) * 1000.0),
            memory: truncated(model.memory.percentile(part)),
        };
        Ok(Peaks { p60: at(0.6), p90: at(0.9), p95: at(0.95), p98: at(0.98), max: at(1.0) })
    }

    fn is_idle(&self, key: &str) -> bool {
        self.models.get(key).is_some_and(|model| model.cpu.is_idle() && model.memory.is_idle())
    }
}

fn add(sum: &mut Sample, sample: Sample) {
    sum.cores += sample.cores;
    sum.memory += sample.memory;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;
    /// 2026-01-01 00:00 UTC.
    const NOW: i64 = 1_767_225_600_000;

    fn pods(count: usize) -> Vec<(Arc<str>, Option<PriorityClass>, Sample)> {
        let sample = Sample { cores: 0.1, memory: 256.0 * MIB };
        (0..count).map(|n| (format!("pod-{n:02}").into(), Some(PriorityClass::Prod), sample)).collect()
    }

    fn node() -> Option<Sample> {
        Some(Sample { cores: 4.0, memory: 4096.0 * MIB })
    }

    fn trained(training: &Training) -> Predictor {
        let mut predictor = Predictor::new(Settings::default());
        predictor.train(training, NOW);
        predictor
    }

    #[test]
    fn one_training() {
        let predictor = trained(&Training { pods: pods(13), node: node() });
        let p95 = |key: &str| predictor.peaks(key).map(|peaks| (peaks.p95.cpu_milli, peaks.p95.memory));
        // koordlet-observe#13.7.G26
        assert_eq!(predictor.len(), 20);
        assert_eq!(p95(NODE), Ok((4217, 4_384_414_627)));
        assert_eq!(p95(SYSTEM), Ok((2852, 837_288_753)));
        assert_eq!(p95("__node-koord-prod__"), Ok((1366, 3_588_477_771)));
        assert_eq!(p95("__node-koord-batch__"), Ok((25, 5_242_880)));
        assert_eq!(p95("__node-__"), Ok((25, 5_242_880)));
        assert_eq!(p95("x").unwrap_err().to_string(), "UID x not found in predict server");
    }

    #[test]
    fn a_node_that_was_not_measured_teaches_nothing() {
        // koordlet-observe#13.7.G27, with the system left alone.
        let predictor = trained(&Training::default());
        let keys: Vec<&str> = predictor.models.keys().map(AsRef::as_ref).collect();
        let classes = ["__node-__", "__node-koord-batch__", "__node-koord-free__", "__node-koord-mid__"];
        assert_eq!(keys[..4], classes);
        assert_eq!(keys[4..], ["__node-koord-prod__"]);
        assert_eq!(predictor.peaks("__node-koord-mid__").unwrap().p95.cpu_milli, 25);
    }

    #[test]
    fn models_expire() {
        // koordlet-observe#13.7.G29
        let mut predictor = trained(&Training { pods: pods(1), node: None });
        let half_hour = 30 * MINUTE_MS;
        assert!(predictor.expire(NOW + half_hour).is_empty());
        assert_eq!(predictor.expire(NOW + half_hour + 1).len(), 6);
        assert!(predictor.is_empty());
        let mut untrained = Predictor::new(Settings::default());
        untrained.models.insert("x".into(), untrained.fresh());
        assert!(untrained.expire(NOW).is_empty(), "not before the first training");
        assert!(untrained.due(NOW).is_empty());
    }

    #[test]
    fn models_are_saved_in_turns() {
        // koordlet-observe#13.7.G15 koordlet-observe#13.7.G28
        let mut predictor = trained(&Training { pods: pods(13), node: node() });
        let first = predictor.due(NOW);
        let second = predictor.due(NOW + MINUTE_MS);
        assert_eq!((first.len(), second.len(), predictor.due(NOW + 2 * MINUTE_MS).len()), (12, 8, 0));
        assert!(first.iter().all(|key| !second.contains(key)));
        assert_eq!(predictor.due(NOW + 10 * MINUTE_MS), first, "the one saved longest ago comes first");
        assert_eq!(predictor.due(NOW + 11 * MINUTE_MS), second);
    }
}
