//! The scheduler's metrics, under kube-scheduler's and Koordinator's names. Spec: scheduler-core 8.3.
//!
//! What is counted as it happens stands in [`SchedulerMetrics`]; numbers of the moment are asked of the engine when
//! somebody looks ([`SchedulerMetrics::set_gauges`]).

mod plugins;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use koord_engine::engine::measure::Measured;
use koord_kit::metrics::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::brain::{Attempt, Attempted, Gauges};
use plugins::PluginMetrics;

mod reservations;

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub struct SchedulerMetrics {
    attempts: Family<ResultLabels, Counter>,
    attempt_seconds: Histograms<ResultLabels>,
    algorithm_seconds: Histogram,
    sli_seconds: Histograms<AttemptsLabels>,
    pod_attempts: Histogram,
    point_seconds: Histograms<PointLabels>,
    evaluated: Histogram,
    feasible: Histogram,
    preemption_attempts: Counter,
    preemption_victims: Histogram,
    preemption_tasks: Family<TaskLabels, Counter>,
    preemption_seconds: Histograms<TaskLabels>,
    plugins: PluginMetrics,
    timeouts: Family<ProfileLabels, Gauge>,
    late: Gauge,
    tasks: Family<OperationLabels, Gauge>,
    gauges: Arc<Mutex<Gauges>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AttemptsLabels {
    attempts: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PointLabels {
    extension_point: &'static str,
    status: &'static str,
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TaskLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProfileLabels {
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

impl Default for SchedulerMetrics {
    /// Counted but shown nowhere.
    fn default() -> SchedulerMetrics {
        SchedulerMetrics {
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
            algorithm_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            sli_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.01, 2.0, 20))),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            point_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.0001, 2.0, 12))
            }),
            evaluated: Histogram::new(exponential_buckets(1.0, 2.0, 24)),
            feasible: Histogram::new(exponential_buckets(1.0, 2.0, 24)),
            preemption_attempts: Counter::default(),
            preemption_victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            preemption_tasks: Family::default(),
            preemption_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.01, 2.0, 20))
            }),
            plugins: PluginMetrics::default(),
            timeouts: Family::default(),
            late: Gauge::default(),
            tasks: Family::default(),
            gauges: Arc::default(),
        }
    }
}

impl SchedulerMetrics {
    pub fn new(metrics: &Metrics) -> SchedulerMetrics {
        let ours = SchedulerMetrics::default();
        metrics.register(|registry| {
            let scheduler = registry.sub_registry_with_prefix("scheduler");
            let mut add = |name: &str, help: &str, metric: Box<dyn prometheus_client::registry::Metric>| {
                scheduler.register(name, help, BoxedMetric(metric));
            };
            ours.show_attempts(&mut add);
            ours.show_rest(&mut add);
            ours.plugins.show(&mut add);
            registry.register_collector(Box::new(Moment(ours.gauges.clone())));
        });
        ours
    }

    fn show_attempts(&self, mut add: impl FnMut(&str, &str, Box<dyn prometheus_client::registry::Metric>)) {
        add(
            "schedule_attempts",
            "Number of attempts to schedule pods, by the result",
            Box::new(self.attempts.clone()),
        );
        add(
            "scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            Box::new(self.attempt_seconds.clone()),
        );
        add(
            "scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            Box::new(self.algorithm_seconds.clone()),
        );
        add(
            "pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue",
            Box::new(self.sli_seconds.clone()),
        );
        add(
            "pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod",
            Box::new(self.pod_attempts.clone()),
        );
        add(
            "framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point",
            Box::new(self.point_seconds.clone()),
        );
        add(
            "pod_scheduling_evaluated_nodes",
            "Number of nodes looked at for a pod that got one",
            Box::new(self.evaluated.clone()),
        );
        add(
            "pod_scheduling_feasible_nodes",
            "Number of nodes that could take a pod that got one",
            Box::new(self.feasible.clone()),
        );
    }

    fn show_rest(&self, mut add: impl FnMut(&str, &str, Box<dyn prometheus_client::registry::Metric>)) {
        add(
            "preemption_attempts",
            "Total preemption attempts in the cluster till now",
            Box::new(self.preemption_attempts.clone()),
        );
        add(
            "preemption_victims",
            "Number of selected preemption victims",
            Box::new(self.preemption_victims.clone()),
        );
        add(
            "preemption_goroutines_execution",
            "Number of preemption tasks, by the result",
            Box::new(self.preemption_tasks.clone()),
        );
        add(
            "preemption_goroutines_duration_seconds",
            "Duration in seconds for running tasks for the preemption",
            Box::new(self.preemption_seconds.clone()),
        );
        // A gauge by type, for a counter would get an ending that Koordinator's name does not have.
        add(
            "scheduling_timeout",
            "Times a pod was found over the scheduling timeout",
            Box::new(self.timeouts.clone()),
        );
        add("scheduling_timeout_pods", "Pods over the scheduling timeout now", Box::new(self.late.clone()));
        add("goroutines", "Number of running tasks, by what they do", Box::new(self.tasks.clone()));
    }

    /// An attempt has ended; `took` is the algorithm's time.
    pub fn attempted(&self, attempt: &Attempt, took: Duration) {
        let seconds = took.as_secs_f64();
        self.algorithm_seconds.observe(seconds);
        match attempt.result {
            Attempted::Placed => {
                self.evaluated.observe(float(attempt.evaluated));
                self.feasible.observe(float(attempt.feasible));
            }
            Attempted::Unschedulable => self.count("unschedulable", &attempt.scheduler, seconds),
            Attempted::Error => self.count("error", &attempt.scheduler, seconds),
            Attempted::Skipped => {}
        }
    }

    /// A pod got its node; `took` is algorithm and binding.
    pub fn bound(&self, scheduler: &str, attempts: u32, took: Duration, waited: Duration) {
        self.count("scheduled", scheduler, took.as_secs_f64());
        self.pod_attempts.observe(f64::from(attempts));
        let label = if attempts >= 15 { "15+".to_owned() } else { attempts.to_string() };
        self.sli_seconds.get_or_create(&AttemptsLabels { attempts: label }).observe(waited.as_secs_f64());
    }

    /// A binding, or what comes before it, failed.
    pub fn bind_failed(&self, scheduler: &str, took: Duration) {
        self.count("error", scheduler, took.as_secs_f64());
    }

    fn count(&self, result: &'static str, profile: &str, seconds: f64) {
        let labels = ResultLabels { result, profile: profile.to_owned() };
        self.attempts.get_or_create(&labels).inc();
        self.attempt_seconds.get_or_create(&labels).observe(seconds);
    }

    /// What came of the part of an extension point that the shell carries out.
    pub fn carried_out(&self, point: &'static str, profile: &str, succeeded: bool, took: Duration) {
        self.point(profile, point, if succeeded { "Success" } else { "Error" }, took);
    }

    fn point(&self, profile: &str, point: &'static str, status: &'static str, took: Duration) {
        let labels = PointLabels { extension_point: point, status, profile: profile.to_owned() };
        self.point_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// What the engine measured of itself.
    pub fn measured(&self, measured: &Measured) {
        self.plugins
            .measured(measured, |profile, point, status, took| self.point(profile, point, status, took));
    }

    /// Users are told that a pod could not be placed.
    pub fn told_failure(&self, note: &str) {
        self.plugins.told(note);
    }

    /// How long it took to send victims away.
    pub fn preemption_took(&self, succeeded: bool, took: Duration) {
        let result = if succeeded { "success" } else { "error" };
        self.preemption_seconds.get_or_create(&TaskLabels { result }).observe(took.as_secs_f64());
    }

    pub fn preempting(&self, victims: usize) {
        self.preemption_attempts.inc();
        self.preemption_victims.observe(float(victims));
    }

    pub fn preempted(&self, succeeded: bool) {
        let result = if succeeded { "success" } else { "error" };
        self.preemption_tasks.get_or_create(&TaskLabels { result }).inc();
    }

    pub fn overdue(&self, profile: &str) {
        self.timeouts.get_or_create(&ProfileLabels { profile: profile.to_owned() }).inc();
    }

    /// Numbers of the moment, before a page is rendered.
    pub fn set_gauges(&self, gauges: Gauges, binding: usize, late: usize) {
        let to_i64 = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.tasks.get_or_create(&OperationLabels { operation: "binding" }).set(to_i64(binding));
        self.late.set(to_i64(late));
        *self.gauges.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = gauges;
    }
}

/// Exact for any count that a cluster can reach.
fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The registry takes metrics by value; this lets a table of them be walked.
#[derive(Debug)]
struct BoxedMetric(Box<dyn prometheus_client::registry::Metric>);

impl EncodeMetric for BoxedMetric {
    fn encode(&self, encoder: prometheus_client::encoding::MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}

/// The engine's own numbers.
#[derive(Debug)]
struct Moment(Arc<Mutex<Gauges>>);

impl Collector for Moment {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauges = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let pending = [
            ("active", gauges.active),
            ("backoff", gauges.backoff),
            ("unschedulable", gauges.unschedulable),
            ("gated", gauges.gated),
        ];
        let help = "Number of pending pods, by the queue type";
        let rows = pending.map(|(queue, count)| (vec![("queue", queue.to_owned())], count));
        family(&mut encoder, "scheduler_pending_pods", help, &rows)?;
        let sizes = [("nodes", gauges.nodes), ("pods", gauges.pods), ("assumed_pods", gauges.assumed)];
        let help = "Number of nodes, pods, and assumed (bound) pods in the scheduler cache";
        let rows = sizes.map(|(kind, count)| (vec![("type", kind.to_owned())], count));
        family(&mut encoder, "scheduler_cache_size", help, &rows)?;
        let held = gauges.held.iter().map(|(plugin, profile, count)| {
            let labels = vec![("plugin", plugin.clone()), ("profile", profile.clone())];
            (labels, usize::try_from(*count).unwrap_or(usize::MAX))
        });
        let help = "The number of unschedulable pods broken down by plugin name";
        family(&mut encoder, "scheduler_unschedulable_pods", help, &held.collect::<Vec<_>>())?;
        let events = gauges.in_flight.iter().map(|(event, count)| (vec![("event", event.clone())], *count));
        let help = "Number of events currently tracked in the scheduling queue";
        family(&mut encoder, "scheduler_inflight_events", help, &events.collect::<Vec<_>>())?;
        let help = "Number of pods added to scheduling queues by event and queue type";
        let name = "scheduler_queue_incoming_pods";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (queue, event, count) in &gauges.incoming {
            let labels = [("queue", queue.clone()), ("event", event.clone())];
            ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        }
        reservations::encode(&mut encoder, &gauges.reservations)
    }
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: &[(Vec<(&'static str, String)>, usize)],
) -> Result<(), fmt::Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, count) in rows {
        let value = ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX));
        value.encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use koord_api::quantity::ResourceList;
    use koord_engine::engine::ReservationGauge;
    use koord_engine::engine::measure::HintLap;
    use koord_engine::framework::timing::{IndexQuery, Lap, Laps};
    use koord_kit::metrics::Format;

    fn resources<const N: usize>(amounts: [(&str, &str); N]) -> ResourceList {
        amounts.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap())).into()
    }

    #[test]
    fn names_and_labels_are_those_that_dashboards_know() {
        let registry = Metrics::new();
        let metrics = SchedulerMetrics::new(&registry);
        metrics.bound("koord-scheduler", 2, Duration::from_millis(3), Duration::from_millis(30));
        metrics.bind_failed("koord-scheduler", Duration::from_millis(3));
        metrics.carried_out("Bind", "koord-scheduler", true, Duration::from_millis(1));
        metrics.preempting(3);
        metrics.preempted(true);
        metrics.overdue("koord-scheduler");
        let gauges = Gauges {
            active: 1,
            gated: 2,
            nodes: 3,
            incoming: vec![("active".into(), "PodAdd".into(), 5)],
            held: vec![("NodeResourcesFit".into(), "koord-scheduler".into(), 4)],
            in_flight: [("PodPopped".to_owned(), 2)].into(),
            reservations: vec![ReservationGauge {
                name: "r1".into(),
                phase: "Available".into(),
                allocatable: resources([("cpu", "8"), ("memory", "16Gi"), ("example.com/gpu", "2")]),
                allocated: resources([("cpu", "1500m"), ("memory", "4Gi")]),
            }],
            ..Gauges::default()
        };
        metrics.set_gauges(gauges, 7, 1);
        let page = registry.render(Format::Prometheus);
        for line in [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"koord-scheduler\"} 1",
            "scheduler_schedule_attempts_total{result=\"error\",profile=\"koord-scheduler\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_count{result=\"scheduled\",profile=\"koord-scheduler\"} 1",
            "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"2\"} 1",
            "scheduler_pod_scheduling_attempts_bucket{le=\"2.0\"} 1",
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Bind\",status=\"Success\",profile=\"koord-scheduler\"} 1",
            "scheduler_preemption_attempts_total 1",
            "scheduler_preemption_victims_sum 3.0",
            "scheduler_preemption_goroutines_execution_total{result=\"success\"} 1",
            "scheduler_scheduling_timeout{profile=\"koord-scheduler\"} 1",
            "scheduler_scheduling_timeout_pods 1",
            "scheduler_goroutines{operation=\"binding\"} 7",
            "scheduler_pending_pods{queue=\"active\"} 1",
            "scheduler_pending_pods{queue=\"gated\"} 2",
            "scheduler_cache_size{type=\"nodes\"} 3",
            "scheduler_unschedulable_pods{plugin=\"NodeResourcesFit\",profile=\"koord-scheduler\"} 4",
            "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"PodAdd\"} 5",
            "scheduler_inflight_events{event=\"PodPopped\"} 2",
            "scheduler_reservation_status_phase{name=\"r1\",phase=\"Available\"} 1",
            "scheduler_reservation_status_phase{name=\"r1\",phase=\"Waiting\"} 0",
            "scheduler_reservation_resource{type=\"allocatable\",name=\"r1\",resource=\"cpu\",unit=\"core\"} 8.0",
            "scheduler_reservation_resource{type=\"allocated\",name=\"r1\",resource=\"cpu\",unit=\"core\"} 1.5",
            "scheduler_reservation_resource{type=\"utilization\",name=\"r1\",resource=\"cpu\",unit=\"ratio\"} 0.1875",
            "scheduler_reservation_resource{type=\"allocated\",name=\"r1\",resource=\"memory\",unit=\"GiB\"} 4.0",
            "scheduler_reservation_resource{type=\"allocated\",name=\"r1\",resource=\"example.com/gpu\",unit=\"raw\"} 0.0",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
    }

    #[test]
    fn what_the_engine_measures_is_shown() {
        let registry = Metrics::new();
        let metrics = SchedulerMetrics::new(&registry);
        let lap = |plugin, status| Lap { point: "Filter", plugin, status, took: Duration::from_micros(20) };
        metrics.measured(&Measured {
            plugins: vec![(
                "koord-scheduler".into(),
                Laps {
                    laps: vec![lap(None, "Unschedulable"), lap(Some("NodeName"), "Success")],
                    asked: [(("NodeName", "Filter"), 9)].into(),
                    queries: [None, Some(0), Some(3)].map(|candidates| IndexQuery { candidates }).into(),
                },
            )],
            hints: vec![HintLap {
                plugin: "NodeName",
                event: "NodeAdd".to_owned(),
                hint: "QueueSkip",
                took: Duration::from_micros(1),
            }],
            events: vec![("NodeAdd".to_owned(), Duration::from_micros(300))],
            waits: vec![("Success", Duration::from_secs(2))],
        });
        metrics.preemption_took(true, Duration::from_millis(15));
        for note in [
            "running PreBind plugin \"VolumeBinding\": binding volumes: no",
            "running \"VolumeBinding\" filter plugin: no",
            "running \"NodeName\" filter plugin: no",
        ] {
            metrics.told_failure(note);
        }
        let page = registry.render(Format::Prometheus);
        for line in [
            "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Filter\",status=\"Unschedulable\",profile=\"koord-scheduler\"} 1",
            "scheduler_plugin_execution_duration_seconds_bucket{le=\"0.0000225\",plugin=\"NodeName\",extension_point=\"Filter\",status=\"Success\"} 1",
            "scheduler_plugin_evaluation_total{plugin=\"NodeName\",extension_point=\"Filter\",profile=\"koord-scheduler\"} 9",
            "scheduler_reservation_selector_index_query_total{result=\"hit\"} 2",
            "scheduler_reservation_selector_index_query_total{result=\"miss\"} 1",
            "scheduler_reservation_selector_index_candidates_count_count 1",
            "scheduler_reservation_selector_index_candidates_count_bucket{le=\"2.0\"} 0",
            "scheduler_reservation_selector_index_candidates_count_bucket{le=\"4.0\"} 1",
            "scheduler_reservation_selector_index_candidates_count_bucket{le=\"32768.0\"} 1",
            "scheduler_queueing_hint_execution_duration_seconds_count{plugin=\"NodeName\",event=\"NodeAdd\",hint=\"QueueSkip\"} 1",
            "scheduler_event_handling_duration_seconds_count{event=\"NodeAdd\"} 1",
            "scheduler_permit_wait_duration_seconds_sum{result=\"Success\"} 2.0",
            "scheduler_preemption_goroutines_duration_seconds_count{result=\"success\"} 1",
            "scheduler_volume_scheduling_stage_error_total{operation=\"bind\"} 1",
            "scheduler_volume_scheduling_stage_error_total{operation=\"predicate\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
    }
}
