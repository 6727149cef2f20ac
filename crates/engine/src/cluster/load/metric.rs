//! A NodeMetric, read once. Spec: B6a.

use koord_api::annotation::load_aware::AggregationType;
use koord_api::crd::node_metric::{NodeMetric, PodMetricInfo};
use koord_api::duration::GoDuration;
use koord_api::priority::PriorityClass;
use koord_api::quantity::ResourceList;
use koord_api::resource::ResourceId;

use super::estimate::AMOUNT_MAX;
use super::settings::Window;
use crate::time::Time;

/// How often nodes are measured where nobody says.
const REPORT_INTERVAL_SECONDS: i64 = 60;

/// What was measured of one node, in the resources of one book.
#[derive(Debug)]
pub(super) struct Metric {
    /// None when nobody says.
    pub(super) updated: Option<Time>,
    /// Nanoseconds.
    interval: i64,
    /// Whether the node as a whole was measured.
    pub(super) has_node: bool,
    node_usage: Box<[i64]>,
    pub(super) system_usage: Box<[i64]>,
    aggregated: Vec<(AggregationType, GoDuration, Box<[i64]>)>,
    /// Ascending by namespace and name, each once.
    pods: Vec<PodUse>,
}

/// What one pod was seen to use.
#[derive(Debug)]
pub(super) struct PodUse {
    namespace: Box<str>,
    name: Box<str>,
    /// Reported as prod.
    pub(super) is_prod: bool,
    pub(super) usage: Box<[i64]>,
}

/// The resources of a book: names, and the numbers that stand for them.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) names: &'a [Box<str>],
    pub(super) ids: &'a [ResourceId],
}

impl Known<'_> {
    /// The amounts of a list, one for each resource.
    pub(super) fn amounts(self, list: &ResourceList) -> Box<[i64]> {
        let units = |name: &str, id: ResourceId| list.get(name).map_or(0, |amount| id.units(*amount));
        let amounts = self.names.iter().zip(self.ids).map(|(name, id)| units(name, *id));
        amounts.map(|units| units.clamp(-AMOUNT_MAX, AMOUNT_MAX)).collect()
    }
}

impl Metric {
    pub(super) fn read(object: &NodeMetric, known: Known<'_>) -> Metric {
        let policy = object.spec.as_ref().and_then(|spec| spec.metric_collect_policy.as_ref());
        let interval = policy.and_then(|policy| policy.report_interval_seconds);
        let status = object.status.as_ref();
        let info = status.and_then(|status| status.node_metric.as_ref());
        let updated = status.and_then(|status| status.update_time).filter(|time| !time.is_zero());
        let mut aggregated = Vec::new();
        for recorded in info.into_iter().flat_map(|info| &info.aggregated_node_usages) {
            for (kind, usage) in recorded.usage.iter().filter(|(_, usage)| !usage.resources.is_empty()) {
                let kind = AggregationType::from(kind.as_str());
                aggregated.push((kind, recorded.duration, known.amounts(&usage.resources)));
            }
        }
        let none = ResourceList::default();
        Metric {
            updated: updated.map(|time| Time::from(time.0)),
            interval: interval.unwrap_or(REPORT_INTERVAL_SECONDS).saturating_mul(1_000_000_000),
            has_node: info.is_some(),
            node_usage: known.amounts(info.map_or(&none, |info| &info.node_usage.resources)),
            system_usage: known.amounts(info.map_or(&none, |info| &info.system_usage.resources)),
            aggregated,
            pods: status.map(|status| pod_uses(&status.pods_metric, known)).unwrap_or_default(),
        }
    }

    /// What the node uses: a percentile where one is wanted. None when only estimates are left.
    pub(super) fn usage(&self, window: Option<&Window>) -> Option<&[i64]> {
        let Some(window) = window else { return Some(&self.node_usage) };
        let recorded = || self.aggregated.iter().filter(|(kind, _, _)| *kind == window.kind);
        let found = match window.duration {
            GoDuration::ZERO => recorded().max_by_key(|(_, duration, _)| *duration),
            // Of two that are alike the last one counts.
            wanted => {
                return recorded().rfind(|(_, d, _)| *d == wanted).map(|(_, _, usage)| &**usage);
            }
        };
        Some(found.map_or(&self.node_usage, |(_, _, usage)| usage))
    }

    /// What a pod was seen to use.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<&PodUse> {
        let wanted = (namespace, name);
        let found = self.pods.binary_search_by(|pod| (&*pod.namespace, &*pod.name).cmp(&wanted));
        found.ok().map(|at| &self.pods[at])
    }

    /// Whether what a pod was seen to use is too early a figure: it came after the measuring began, or its estimate
    /// counts for longer.
    pub(super) fn is_too_early(&self, since: Time, deadline: Option<Time>) -> bool {
        let Some(updated) = self.updated else { return true };
        let begun = Time::from_nanos(updated.nanos().saturating_sub(self.interval));
        begun < since || deadline.is_some_and(|deadline| deadline > updated)
    }
}

/// A pod without amounts was not measured.
fn pod_uses(items: &[PodMetricInfo], known: Known<'_>) -> Vec<PodUse> {
    let measured = items.iter().filter(|item| !item.pod_usage.resources.is_empty());
    let mut pods: Vec<PodUse> = measured
        .map(|item| PodUse {
            namespace: item.namespace.as_str().into(),
            name: item.name.as_str().into(),
            is_prod: item.priority == PriorityClass::Prod.name(),
            usage: known.amounts(&item.pod_usage.resources),
        })
        .collect();
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    // The last of several counts, as in a map.
    pods.reverse();
    pods.dedup_by(|a, b| a.namespace == b.namespace && a.name == b.name);
    pods.reverse();
    pods
}
