//! Metrics of koordlet under the original's names: one table, two registries. Spec: koordlet-observe 11.
//!
//! A metric is a row of `table`; code names the row and gives label values in the row's order. The label `node` is
//! put in front by itself, and nothing with it is recorded before the Node was seen.

mod table;

#[cfg(test)]
mod tests;

pub use table::{Kind, Metric, Page, Stay};

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use koord_kit::metrics::{Metrics, Tally};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Series of an aging family leave so long after they were last told.
const LIFE: Duration = Duration::from_secs(300);

/// Names of labels and their values.
type Labels = Vec<(&'static str, Arc<str>)>;
type Number = Gauge<f64, AtomicU64>;

/// All of koordlet's metrics. Cheap to clone.
#[derive(Clone)]
pub struct KoordletMetrics {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<str>,
    is_node_seen: AtomicBool,
    internal: Arc<Metrics>,
    external: Arc<Metrics>,
    /// In the order of the table.
    families: Vec<Series>,
}

enum Series {
    Gauge { family: Family<Labels, Number>, told: Ages },
    Counter { family: Family<Labels, Tally>, told: Ages },
    Histogram(Family<Labels, Histogram, Buckets>),
}

/// When each series of an aging family was last told. Locked for a moment.
type Ages = Mutex<HashMap<Labels, Instant>>;

/// Makes histograms of one family.
#[derive(Clone, Debug)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl KoordletMetrics {
    pub fn new(node: &str) -> KoordletMetrics {
        let (internal, external) = (Arc::new(Metrics::new()), Arc::new(Metrics::bare()));
        let families = Metric::ALL.iter().map(|metric| register(*metric, &internal, &external)).collect();
        let inner =
            Inner { node: node.into(), is_node_seen: AtomicBool::new(false), internal, external, families };
        KoordletMetrics { inner: Arc::new(inner) }
    }

    pub fn internal(&self) -> &Arc<Metrics> {
        &self.inner.internal
    }

    pub fn external(&self) -> &Arc<Metrics> {
        &self.inner.external
    }

    /// From now on what is labelled with the node is recorded.
    pub fn node_seen(&self) {
        self.inner.is_node_seen.store(true, Ordering::Relaxed);
    }

    pub fn set(&self, metric: Metric, values: &[&str], number: f64) {
        let Some(labels) = self.labels(metric, values) else { return };
        if let Series::Gauge { family, told } = self.series(metric) {
            family.get_or_create(&labels).set(number);
            note(metric, told, labels);
        }
    }

    pub fn count(&self, metric: Metric, values: &[&str]) {
        let Some(labels) = self.labels(metric, values) else { return };
        if let Series::Counter { family, told } = self.series(metric) {
            family.get_or_create(&labels).inc();
            note(metric, told, labels);
        }
    }

    /// A counter of which somebody else keeps the total went up by so many. None makes its row.
    pub fn add(&self, metric: Metric, values: &[&str], many: u64) {
        let Some(labels) = self.labels(metric, values) else { return };
        if let Series::Counter { family, told } = self.series(metric) {
            family.get_or_create(&labels).inc_by(many);
            note(metric, told, labels);
        }
    }

    pub fn observe(&self, metric: Metric, values: &[&str], number: f64) {
        let Some(labels) = self.labels(metric, values) else { return };
        if let Series::Histogram(family) = self.series(metric) {
            family.get_or_create(&labels).observe(number);
        }
    }

    /// Forgets all series of a family, which are about to be told anew.
    pub fn reset(&self, metric: Metric) {
        match self.series(metric) {
            Series::Gauge { family, .. } => family.clear(),
            Series::Counter { family, .. } => family.clear(),
            Series::Histogram(family) => family.clear(),
        }
    }

    /// Drops what was not told for a while. Once a minute is enough.
    pub fn sweep(&self, now: Instant) {
        for series in &self.inner.families {
            match series {
                Series::Gauge { family, told } => expire(family, told, now),
                Series::Counter { family, told } => expire(family, told, now),
                Series::Histogram(_) => {}
            }
        }
    }

    fn series(&self, metric: Metric) -> &Series {
        &self.inner.families[metric.index()]
    }

    /// None before the Node was seen, for what is about it.
    fn labels(&self, metric: Metric, values: &[&str]) -> Option<Labels> {
        let names = metric.row().labels;
        let has_node = names.first() == Some(&"node");
        if has_node && metric != Metric::StartTime && !self.inner.is_node_seen.load(Ordering::Relaxed) {
            return None;
        }
        debug_assert_eq!(names.len(), values.len() + usize::from(has_node), "{}", metric.row().name);
        let node = has_node.then(|| self.inner.node.clone());
        let values = node.into_iter().chain(values.iter().map(|value| Arc::from(*value)));
        Some(names.iter().copied().zip(values).collect())
    }
}

fn register(metric: Metric, internal: &Metrics, external: &Metrics) -> Series {
    let row = metric.row();
    let page = match row.page {
        Page::Internal => internal,
        Page::External => external,
    };
    let ages = Ages::default();
    page.register(|registry| match row.kind {
        Kind::Gauge => {
            let family = Family::<Labels, Number>::default();
            registry.register(row.name, row.help, family.clone());
            Series::Gauge { family, told: ages }
        }
        Kind::Counter => {
            let family = Family::<Labels, Tally>::default();
            registry.register(row.name, row.help, family.clone());
            Series::Counter { family, told: ages }
        }
        Kind::Histogram(bounds) => {
            let family = Family::<Labels, Histogram, Buckets>::new_with_constructor(Buckets(bounds));
            registry.register(row.name, row.help, family.clone());
            Series::Histogram(family)
        }
    })
}

fn expire<M>(family: &Family<Labels, M>, told: &Ages, now: Instant) {
    told.lock().unwrap_or_else(PoisonError::into_inner).retain(|labels, at| {
        let is_fresh = now.saturating_duration_since(*at) <= LIFE;
        if !is_fresh {
            family.remove(labels);
        }
        is_fresh
    });
}

fn note(metric: Metric, told: &Ages, labels: Labels) {
    if metric.row().stay == Stay::WhileTold {
        told.lock().unwrap_or_else(PoisonError::into_inner).insert(labels, Instant::now());
    }
}
