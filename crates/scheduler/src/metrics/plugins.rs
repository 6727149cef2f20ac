//! What single plugins, hints and events take, as the engine measured it. Spec: scheduler-core 8.3.

use std::time::Duration;

use koord_engine::engine::measure::Measured;
use koord_engine::framework::timing::IndexQuery;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Metric;

use super::{Histograms, OperationLabels, TaskLabels};

/// Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub(super) struct PluginMetrics {
    execution: Histograms<ExecutionLabels>,
    evaluations: Family<EvaluationLabels, Counter>,
    hints: Histograms<HintLabels>,
    events: Histograms<EventLabels>,
    waits: Histograms<TaskLabels>,
    volume_errors: Family<OperationLabels, Counter>,
    index_queries: Family<TaskLabels, Counter>,
    index_candidates: Histogram,
    /// Upstream has it without ever counting; ours is no different.
    binder_cache: Family<OperationLabels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ExecutionLabels {
    plugin: &'static str,
    extension_point: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EvaluationLabels {
    plugin: &'static str,
    extension_point: &'static str,
    profile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HintLabels {
    plugin: &'static str,
    event: String,
    hint: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EventLabels {
    event: String,
}

/// From a hundredth of a millisecond, finely, for plugins take little.
fn fine() -> Histogram {
    Histogram::new(exponential_buckets(0.00001, 1.5, 20))
}

impl Default for PluginMetrics {
    fn default() -> PluginMetrics {
        PluginMetrics {
            execution: Family::new_with_constructor(fine),
            evaluations: Family::default(),
            hints: Family::new_with_constructor(fine),
            events: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0001, 2.0, 12))),
            waits: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 15))),
            volume_errors: Family::default(),
            index_queries: Family::default(),
            index_candidates: Histogram::new(exponential_buckets(1.0, 2.0, 16)),
            binder_cache: Family::default(),
        }
    }
}

impl PluginMetrics {
    pub(super) fn show(&self, mut add: impl FnMut(&str, &str, Box<dyn Metric>)) {
        add(
            "plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point",
            Box::new(self.execution.clone()),
        );
        add(
            "plugin_evaluation",
            "Number of attempts to schedule pods by each plugin and the extension point",
            Box::new(self.evaluations.clone()),
        );
        add(
            "queueing_hint_execution_duration_seconds",
            "Duration for running a queueing hint function of a plugin",
            Box::new(self.hints.clone()),
        );
        add(
            "event_handling_duration_seconds",
            "Event handling latency in seconds",
            Box::new(self.events.clone()),
        );
        add("permit_wait_duration_seconds", "Duration of waiting on permit", Box::new(self.waits.clone()));
        add(
            "volume_scheduling_stage_error",
            "Volume scheduling stage error count",
            Box::new(self.volume_errors.clone()),
        );
        add(
            "reservation_selector_index_query",
            "Total number of reservationSelector index queries, labeled by index hit/miss result.",
            Box::new(self.index_queries.clone()),
        );
        add(
            "reservation_selector_index_candidates_count",
            "The number of candidate nodes returned by the reservationSelector white-list index for an index-hit query.",
            Box::new(self.index_candidates.clone()),
        );
        add(
            "volume_binder_cache_requests",
            "Total number for request volume binding cache",
            Box::new(self.binder_cache.clone()),
        );
    }

    /// Takes over what was measured; `point` is told of whole points: profile, point, status, time.
    pub(super) fn measured(
        &self,
        measured: &Measured,
        mut point: impl FnMut(&str, &'static str, &'static str, Duration),
    ) {
        for (profile, laps) in &measured.plugins {
            for lap in &laps.laps {
                let Some(plugin) = lap.plugin else {
                    point(profile, lap.point, lap.status, lap.took);
                    continue;
                };
                let labels = ExecutionLabels { plugin, extension_point: lap.point, status: lap.status };
                self.execution.get_or_create(&labels).observe(lap.took.as_secs_f64());
            }
            laps.queries.iter().for_each(|query| self.queried(*query));
            for ((plugin, extension_point), count) in &laps.asked {
                let labels = EvaluationLabels { plugin, extension_point, profile: profile.to_string() };
                self.evaluations.get_or_create(&labels).inc_by(*count);
            }
        }
        for lap in &measured.hints {
            let labels = HintLabels { plugin: lap.plugin, event: lap.event.clone(), hint: lap.hint };
            self.hints.get_or_create(&labels).observe(lap.took.as_secs_f64());
        }
        for (event, took) in &measured.events {
            let labels = EventLabels { event: event.clone() };
            self.events.get_or_create(&labels).observe(took.as_secs_f64());
        }
        for (result, waited) in &measured.waits {
            self.waits.get_or_create(&TaskLabels { result }).observe(waited.as_secs_f64());
        }
    }

    /// Queries that leave no node are counted and have no size, as upstream's.
    fn queried(&self, query: IndexQuery) {
        let result = if query.candidates.is_some() { "hit" } else { "miss" };
        self.index_queries.get_or_create(&TaskLabels { result }).inc();
        if let Some(candidates) = query.candidates.filter(|candidates| *candidates > 0) {
            self.index_candidates.observe(super::float(candidates));
        }
    }

    /// What users are told of a pod says at which stage its volumes failed, if they did.
    pub(super) fn told(&self, note: &str) {
        const STAGES: [(&str, &str); 3] = [
            ("running \"VolumeBinding\" filter plugin: ", "predicate"),
            ("running Reserve plugin \"VolumeBinding\": ", "assume"),
            ("running PreBind plugin \"VolumeBinding\": ", "bind"),
        ];
        if let Some((_, operation)) = STAGES.iter().find(|(start, _)| note.starts_with(start)) {
            self.volume_errors.get_or_create(&OperationLabels { operation }).inc();
        }
    }
}
