//! How long admission takes, step by step, under the original's name. Spec: manager 24.2.

use std::time::Duration;

use koord_kit::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::paths::Side;
use super::review::Operation;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    steps: Family<StepLabels, Histogram, fn() -> Histogram>,
    reviews: Family<PathLabel, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PathLabel {
    webhook: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabels {
    webhook_type: &'static str,
    object_type: &'static str,
    operation: &'static str,
    plugin_name: &'static str,
    status: &'static str,
}

impl WebhookMetrics {
    /// `internal` is shown at `/internal-metrics` and `/metrics`.
    pub fn new(internal: &Metrics) -> WebhookMetrics {
        let steps: Family<StepLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 20)));
        internal.register(|registry| {
            registry.register(
                "koord_manager_webhook_webhook_duration_milliseconds",
                "How long a step of admission took, in milliseconds",
                steps.clone(),
            );
        });
        // The original's buckets begin at 5 ms, where ours end for nearly all.
        let reviews: Family<PathLabel, Histogram, fn() -> Histogram> = Family::new_with_constructor(|| {
            let fine = [0.000_25, 0.000_5, 0.001, 0.002];
            let coarse = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
            Histogram::new(fine.into_iter().chain(coarse))
        });
        internal.register(|registry| {
            registry.register(
                "controller_runtime_webhook_latency_seconds",
                "How long a review took, from the whole request to the whole answer",
                reviews.clone(),
            );
        });
        WebhookMetrics { steps, reviews }
    }

    /// A review has been answered.
    pub fn review(&self, webhook: &'static str, took: Duration) {
        self.reviews.get_or_create(&PathLabel { webhook }).observe(took.as_secs_f64());
    }

    /// One step of a handler has ended.
    pub fn step(
        &self,
        side: Side,
        object_type: &'static str,
        operation: Operation,
        plugin_name: &'static str,
        is_fine: bool,
        took: Duration,
    ) {
        let labels = StepLabels {
            webhook_type: side.metric(),
            object_type,
            operation: operation.name(),
            plugin_name,
            status: if is_fine { "allowed" } else { "rejected" },
        };
        self.steps.get_or_create(&labels).observe(took.as_secs_f64() * 1000.0);
    }
}
