//! Metrics of koord-manager, under the original's names. Spec: manager 24.
//!
//! Two registries, as upstream has them: [`Metrics`] of the process (client, queues, controllers) at `/metrics`, and the
//! manager's own at `/internal-metrics`.

use std::sync::atomic::AtomicU64;

use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY};
use koord_api::number::nearest;
use koord_api::quantity::Quantity;
use koord_kit::metrics::{Metrics, Tally};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// The manager's own numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ManagerMetrics {
    pub node_metric_reconcile: Outcomes,
    pub node_metric_spec_parse: Outcomes,
    pub node_slo_reconcile: Outcomes,
    pub node_slo_spec_parse: Outcomes,
    pub node_resource_reconcile: Outcomes,
    node_resource_plugins: Family<PluginLabels, Tally>,
    node_extended: Family<ExtendedLabels, Gauge<f64, AtomicU64>>,
    pub is_leader: Gauge,
    controllers: ControllerMetrics,
}

/// How often something went well or failed, by what it was.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(Family<OutcomeLabels, Tally>);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    status: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PluginLabels {
    plugin: &'static str,
    status: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ExtendedLabels {
    node: String,
    resource: &'static str,
    unit: &'static str,
}

/// Extended resources of nodes and the units that their gauge claims. Dashboards know batch-cpu in cores and mid-cpu in
/// thousandths of them, both as `integer`.
const EXTENDED: [(&str, &str); 4] =
    [(BATCH_CPU, "integer"), (BATCH_MEMORY, "byte"), (MID_CPU, "integer"), (MID_MEMORY, "byte")];

/// `succeeded` or `failed`.
pub fn status_word(is_good: bool) -> &'static str {
    if is_good { "succeeded" } else { "failed" }
}

impl Outcomes {
    pub fn count(&self, is_good: bool, reason: &'static str) {
        self.0.get_or_create(&OutcomeLabels { status: status_word(is_good), reason }).inc();
    }

    /// Counts a result and hands it on.
    pub fn of<T, E>(&self, reason: &'static str, result: Result<T, E>) -> Result<T, E> {
        self.count(result.is_ok(), reason);
        result
    }
}

impl ManagerMetrics {
    /// `process` is shown at `/metrics`, `internal` at `/internal-metrics`.
    pub fn new(process: &Metrics, internal: &Metrics) -> ManagerMetrics {
        let ours = ManagerMetrics {
            node_metric_reconcile: Outcomes::default(),
            node_metric_spec_parse: Outcomes::default(),
            node_slo_reconcile: Outcomes::default(),
            node_slo_spec_parse: Outcomes::default(),
            node_resource_reconcile: Outcomes::default(),
            node_resource_plugins: Family::default(),
            node_extended: Family::default(),
            is_leader: Gauge::default(),
            controllers: ControllerMetrics::new(process),
        };
        internal.register(|registry| {
            for (name, help, outcomes) in [
                (
                    "slo_controller_nodemetric_reconcile_count",
                    "the status count of reconciling NodeMetric",
                    &ours.node_metric_reconcile,
                ),
                (
                    "slo_controller_nodemetric_spec_parse_count",
                    "the status count of parsing NodeMetric spec",
                    &ours.node_metric_spec_parse,
                ),
                (
                    "slo_controller_nodeslo_reconcile_count",
                    "the status count of reconciling NodeSLO",
                    &ours.node_slo_reconcile,
                ),
                (
                    "slo_controller_nodeslo_spec_parse_count",
                    "the status count of parsing NodeSLO spec",
                    &ours.node_slo_spec_parse,
                ),
                (
                    "slo_controller_node_resource_reconcile_count",
                    "the status count of reconciling node resources",
                    &ours.node_resource_reconcile,
                ),
            ] {
                registry.register(name, help, outcomes.0.clone());
            }
            registry.register(
                "slo_controller_node_resource_run_plugin_status",
                "the status count of running node resource plugins",
                ours.node_resource_plugins.clone(),
            );
            registry.register(
                "slo_controller_node_extended_resource_allocatable_internal",
                "the internal allocatable of node extended resources which may not be updated at the node status",
                ours.node_extended.clone(),
            );
            registry.register(
                "koordinator_manager_is_leader",
                "Whether this replica runs the controllers: 1 on the leader, 0 elsewhere",
                ours.is_leader.clone(),
            );
        });
        ours
    }

    /// Registered nowhere: for tests.
    pub fn unregistered() -> ManagerMetrics {
        ManagerMetrics::new(&Metrics::bare(), &Metrics::bare())
    }

    /// Counts a step of a plugin of noderesource.
    pub fn count_plugin(&self, plugin: &'static str, is_good: bool, reason: &'static str) {
        let labels = PluginLabels { plugin, status: status_word(is_good), reason };
        self.node_resource_plugins.get_or_create(&labels).inc();
    }

    /// Shows what was worked out for a node; resources that it does not lend are not shown.
    pub fn show_extended(&self, node: &str, amount: impl Fn(&str) -> Option<Quantity>) {
        for (resource, unit) in EXTENDED {
            let labels = ExtendedLabels { node: node.to_owned(), resource, unit };
            match amount(resource).map(|amount| nearest(amount.value())) {
                Some(milli) if resource == BATCH_CPU => {
                    self.node_extended.get_or_create(&labels).set(milli / 1000.0);
                }
                Some(value) => _ = self.node_extended.get_or_create(&labels).set(value),
                None => _ = self.node_extended.remove(&labels),
            }
        }
    }

    pub(crate) fn controllers(&self) -> &ControllerMetrics {
        &self.controllers
    }
}

/// Turns of controllers, under controller-runtime's names.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    turns: Family<TurnLabels, Counter>,
    errors: Family<ControllerLabels, Counter>,
    panics: Family<ControllerLabels, Counter>,
    seconds: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    workers_max: Family<ControllerLabels, Gauge>,
    workers_active: Family<ControllerLabels, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TurnLabels {
    controller: &'static str,
    result: &'static str,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    Success,
    After,
    Error,
    Panic,
}

impl ControllerMetrics {
    fn new(metrics: &Metrics) -> ControllerMetrics {
        let ours = ControllerMetrics {
            turns: Family::default(),
            errors: Family::default(),
            panics: Family::default(),
            seconds: Family::new_with_constructor(turn_histogram),
            workers_max: Family::default(),
            workers_active: Family::default(),
        };
        metrics.register(|registry| {
            registry.register(
                "controller_runtime_reconcile",
                "Total number of reconciliations per controller",
                ours.turns.clone(),
            );
            registry.register(
                "controller_runtime_reconcile_errors",
                "Total number of reconciliation errors per controller",
                ours.errors.clone(),
            );
            registry.register(
                "controller_runtime_reconcile_panics",
                "Total number of reconciliation panics per controller",
                ours.panics.clone(),
            );
            registry.register(
                "controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller",
                ours.seconds.clone(),
            );
            registry.register(
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller",
                ours.workers_max.clone(),
            );
            registry.register(
                "controller_runtime_active_workers",
                "Number of currently used workers per controller",
                ours.workers_active.clone(),
            );
        });
        ours
    }

    pub(crate) fn hired(&self, controller: &'static str, workers: usize) {
        let workers = i64::try_from(workers).unwrap_or(i64::MAX);
        self.workers_max.get_or_create(&ControllerLabels { controller }).set(workers);
        self.workers_active.get_or_create(&ControllerLabels { controller }).set(0);
    }

    pub(crate) fn begun(&self, controller: &'static str) {
        self.workers_active.get_or_create(&ControllerLabels { controller }).inc();
    }

    pub(crate) fn ended(&self, controller: &'static str, end: TurnEnd, seconds: f64) {
        let labels = ControllerLabels { controller };
        let result = match end {
            TurnEnd::Success => "success",
            TurnEnd::After => "requeue_after",
            TurnEnd::Error | TurnEnd::Panic => "error",
        };
        self.turns.get_or_create(&TurnLabels { controller, result }).inc();
        if result == "error" {
            self.errors.get_or_create(&labels).inc();
        }
        if end == TurnEnd::Panic {
            self.panics.get_or_create(&labels).inc();
        }
        self.seconds.get_or_create(&labels).observe(seconds);
        self.workers_active.get_or_create(&labels).dec();
    }
}

/// controller-runtime's buckets.
fn turn_histogram() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
        1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0,
        40.0, 50.0, 60.0,
    ])
}

#[cfg(test)]
mod tests {
    use koord_kit::metrics::Format;

    use super::*;

    #[test]
    fn counters_keep_the_names_of_dashboards() {
        let (process, internal) = (Metrics::bare(), Metrics::bare());
        let metrics = ManagerMetrics::new(&process, &internal);
        metrics.node_slo_reconcile.count(true, "createNodeSLO");
        metrics.node_slo_reconcile.count(true, "createNodeSLO");
        let _ = metrics.node_metric_spec_parse.of("getNodeMetricCollectPolicy", Err::<(), ()>(()));
        metrics.count_plugin("BatchResource", true, "ResourceCalculate");
        let amount = |name: &str| (name != MID_MEMORY).then(|| "12400".parse().unwrap());
        metrics.show_extended("n1", amount);
        metrics.show_extended("n2", amount);
        metrics.show_extended("n2", |_| None);
        metrics.is_leader.set(1);
        metrics.controllers().ended("nodeslo", TurnEnd::Error, 0.2);
        let page = internal.render(Format::Prometheus);
        for line in [
            "# TYPE slo_controller_nodeslo_reconcile_count counter",
            "slo_controller_nodeslo_reconcile_count{status=\"succeeded\",reason=\"createNodeSLO\"} 2",
            "slo_controller_nodemetric_spec_parse_count{status=\"failed\",reason=\"getNodeMetricCollectPolicy\"} 1",
            "slo_controller_node_resource_run_plugin_status{plugin=\"BatchResource\",status=\"succeeded\",\
             reason=\"ResourceCalculate\"} 1",
            "slo_controller_node_extended_resource_allocatable_internal{node=\"n1\",\
             resource=\"kubernetes.io/batch-cpu\",unit=\"integer\"} 12.4",
            "slo_controller_node_extended_resource_allocatable_internal{node=\"n1\",\
             resource=\"kubernetes.io/mid-cpu\",unit=\"integer\"} 12400.0",
            "koordinator_manager_is_leader 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(!page.contains("node=\"n2\"") && !page.contains("mid-memory"), "what is not lent\n{page}");
        let page = process.render(Format::Prometheus);
        for line in [
            "controller_runtime_reconcile_total{controller=\"nodeslo\",result=\"error\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"nodeslo\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
    }
}
