//! A controller's line of work: keys of changed objects, each at most once, with waits after failures.
//!
//! [`Queue`] decides (pure); [`WorkQueue`] is the same with a clock, shared between those who add and those who work,
//! and counted under the names that controllers everywhere use ([`QueueMetrics`]).

mod core;

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::core::{Queue, Retries, Turn, Unfinished};
use crate::metrics::Metrics;

/// A queue that tasks share. Reads and writes never wait; only [`WorkQueue::next`] does.
pub struct WorkQueue<K> {
    name: &'static str,
    start: Instant,
    /// Locked for single operations of the queue.
    queue: Mutex<Queue<K>>,
    /// Told of every change that may give a waiting worker something to do.
    changed: Notify,
    metrics: QueueMetrics,
}

impl<K: Clone + Eq + Hash + Send + 'static> WorkQueue<K> {
    pub fn new(name: &'static str, retries: Retries, metrics: &QueueMetrics) -> Arc<WorkQueue<K>> {
        let queue = Arc::new(WorkQueue {
            name,
            start: Instant::now(),
            queue: Mutex::new(Queue::new(retries, Duration::ZERO)),
            changed: Notify::new(),
            metrics: metrics.clone(),
        });
        let weak = Arc::downgrade(&queue);
        metrics
            .watch(name, move || weak.upgrade().map(|queue| queue.lock().unfinished(queue.start.elapsed())));
        queue
    }

    /// Wants a key now.
    pub fn add(&self, key: K) {
        let mut queue = self.lock();
        if queue.add(self.start.elapsed(), key) {
            self.count(&mut queue);
            self.changed.notify_one();
        }
    }

    /// Wants a key in a while.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.lock().add_after(self.start.elapsed(), key, delay);
        self.changed.notify_one();
    }

    /// Wants a key again after a failure; says in how long.
    pub fn retry(&self, key: K) -> Duration {
        let delay = self.lock().retry(self.start.elapsed(), key);
        self.metrics.retries.get_or_create(&self.labels()).inc();
        self.changed.notify_one();
        delay
    }

    /// A key went well.
    pub fn forget(&self, key: &K) {
        self.lock().forget(key);
    }

    /// Waits for the next key; `None` once `stop` is cancelled. [`WorkQueue::done`] must follow.
    pub async fn next(&self, stop: &CancellationToken) -> Option<K> {
        loop {
            if stop.is_cancelled() {
                return None;
            }
            let (turn, due) = {
                let mut queue = self.lock();
                let turn = queue.take(self.start.elapsed());
                self.count(&mut queue);
                if !queue.is_empty() {
                    // For the other workers: of several additions a sleeper hears once.
                    self.changed.notify_one();
                }
                (turn, queue.next_due())
            };
            if let Some(turn) = turn {
                let waited = turn.waited.as_secs_f64();
                self.metrics.waited.get_or_create(&self.labels()).observe(waited);
                return Some(turn.key);
            }
            let due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(self.start + due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = due => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    /// Ends a key's turn.
    pub fn done(&self, key: &K) {
        let worked = {
            let mut queue = self.lock();
            let worked = queue.done(self.start.elapsed(), key);
            self.count(&mut queue);
            worked
        };
        self.metrics.worked.get_or_create(&self.labels()).observe(worked.as_secs_f64());
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queue<K>> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn labels(&self) -> QueueLabels {
        QueueLabels { name: self.name }
    }

    fn count(&self, queue: &mut Queue<K>) {
        let depth = i64::try_from(queue.len()).unwrap_or(i64::MAX);
        self.metrics.depth.get_or_create(&self.labels()).set(depth);
        self.metrics.adds.get_or_create(&self.labels()).inc_by(queue.count_added());
    }
}

/// Work queues under client-go's names.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    depth: Family<QueueLabels, Gauge>,
    adds: Family<QueueLabels, Counter>,
    retries: Family<QueueLabels, Counter>,
    waited: Family<QueueLabels, Histogram, fn() -> Histogram>,
    worked: Family<QueueLabels, Histogram, fn() -> Histogram>,
    unfinished: Inspections,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    name: &'static str,
}

impl QueueMetrics {
    pub fn new(metrics: &Metrics) -> QueueMetrics {
        let ours = QueueMetrics::unregistered();
        metrics.register(|registry| {
            registry.register("workqueue_depth", "Current depth of workqueue", ours.depth.clone());
            registry.register(
                "workqueue_adds",
                "Total number of adds handled by workqueue",
                ours.adds.clone(),
            );
            registry.register(
                "workqueue_retries",
                "Total number of retries handled by workqueue",
                ours.retries.clone(),
            );
            registry.register(
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
                ours.waited.clone(),
            );
            registry.register(
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes",
                ours.worked.clone(),
            );
            registry.register_collector(Box::new(ours.unfinished.clone()));
        });
        ours
    }

    /// Counted but shown nowhere: for tests.
    pub fn unregistered() -> QueueMetrics {
        QueueMetrics {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(duration_histogram),
            worked: Family::new_with_constructor(duration_histogram),
            unfinished: Inspections::default(),
        }
    }

    fn watch(&self, name: &'static str, look: impl Fn() -> Option<Unfinished> + Send + Sync + 'static) {
        let mut all = self.unfinished.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.retain(|inspection| inspection.name != name);
        all.push(Inspection { name, look: Box::new(look) });
    }
}

fn duration_histogram() -> Histogram {
    Histogram::new([1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0])
}

/// What is being worked on is asked for when somebody wants to know.
#[derive(Clone, Default)]
struct Inspections(Arc<Mutex<Vec<Inspection>>>);

struct Inspection {
    name: &'static str,
    look: Box<dyn Fn() -> Option<Unfinished> + Send + Sync>,
}

impl fmt::Debug for Inspections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspections")
    }
}

impl Collector for Inspections {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let seen: Vec<_> = all.iter().filter_map(|one| Some((one.name, (one.look)()?))).collect();
        for (metric, help, value) in [
            (
                "workqueue_unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and hasn't been observed by work_duration",
                (|seen| seen.total) as fn(&Unfinished) -> Duration,
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running",
                |seen| seen.longest,
            ),
        ] {
            let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Gauge)?;
            for (name, unfinished) in &seen {
                let gauge = ConstGauge::new(value(unfinished).as_secs_f64());
                gauge.encode(family.encode_family(&QueueLabels { name })?)?;
            }
        }
        Ok(())
    }
}
