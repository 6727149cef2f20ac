//! The arguments of load-aware scheduling, ready for use: amounts by place instead of by name. Spec: B1.

use std::collections::{BTreeMap, BTreeSet};

use koord_api::annotation::load_aware::{AggregationType, UsageThresholds};
use koord_api::duration::GoDuration;
use koord_api::keys::resource::{CPU, MEMORY};

use crate::profile::args::{LoadAwareSchedulingArgs, Percents};

/// How one plugin estimates, filters and scores.
#[derive(Debug)]
pub struct Settings {
    /// The resources it knows, ascending. Everything below that has a number for each is in this order.
    pub names: Box<[Box<str>]>,
    pub(super) factors: Box<[Option<i64>]>,
    /// Whether pods may bring factors and times of their own.
    pub(super) allows_custom: bool,
    /// Seconds; none is off.
    pub(super) after_scheduled: Option<i64>,
    pub(super) after_initialized: Option<i64>,
    pub(super) limits: Limits,
    pub(super) filters_expired: bool,
    pub(super) lets_expired_pass: bool,
    /// Nanoseconds after which a measurement is too old.
    pub(super) expiration: i64,
    pub(super) prod_includes_system: bool,
    pub(super) scores_prod: bool,
    pub(super) score_window: Option<Window>,
    pub(super) weights: Box<[i64]>,
    pub(super) dominant_weight: i64,
    /// Which resources the scarcest is chosen from.
    pub(super) may_dominate: Box<[bool]>,
}

/// What a node's use is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) plain: Levels,
    pub(super) prod: Levels,
    pub(super) aggregated: Option<(Levels, Window)>,
}

/// A percentage for each resource; 0 is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) percents: Box<[i64]>,
    /// Whether any is given.
    pub(super) is_on: bool,
}

/// Which of the recorded percentiles counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) kind: AggregationType,
    /// Zero is the longest there is.
    pub(super) duration: GoDuration,
}

impl Settings {
    pub fn new(args: &LoadAwareSchedulingArgs) -> Settings {
        let names = names(args);
        let by_place = |map: &Percents| -> Box<[i64]> {
            names.iter().map(|name| map.get(&**name).copied().unwrap_or(0)).collect()
        };
        let weights = by_place(&args.resource_weights);
        let is_weighted = weights.iter().any(|weight| *weight > 0);
        // Differs: upstream takes every resource it has heard of, so that one without capacity makes all nodes worst.
        let may_dominate = names.iter().zip(&weights).map(|(name, weight)| match is_weighted {
            true => *weight > 0,
            false => matches!(&**name, CPU | MEMORY),
        });
        let seconds = |duration: Option<GoDuration>| duration.map(|duration| duration.0 / 1_000_000_000);
        let aggregated = args.aggregated.as_ref();
        Settings {
            factors: names.iter().map(|name| args.estimated_scaling_factors.get(&**name).copied()).collect(),
            allows_custom: args.allow_customize_estimation,
            after_scheduled: seconds(args.estimated_after_pod_scheduled),
            after_initialized: seconds(args.estimated_after_initialized),
            limits: Limits {
                plain: Levels::of(&names, &args.usage_thresholds),
                prod: Levels::of(&names, &args.prod_usage_thresholds),
                aggregated: aggregated.filter(|given| !given.usage_thresholds.is_empty()).and_then(|given| {
                    let window = Window::of(given.usage_type.as_ref(), given.usage_duration)?;
                    Some((Levels::of(&names, &given.usage_thresholds), window))
                }),
            },
            filters_expired: args.filter_expired_node_metrics,
            lets_expired_pass: args.enable_schedule_when_node_metrics_expired,
            expiration: args.node_metric_expiration.0,
            prod_includes_system: args.prod_usage_include_sys,
            scores_prod: args.score_according_prod_usage,
            score_window: aggregated
                .and_then(|given| Window::of(given.score_type.as_ref(), given.score_duration)),
            may_dominate: may_dominate.collect(),
            weights,
            dominant_weight: args.dominant_resource_weight,
            names,
        }
    }

    /// Whether nodes are told apart by score at all.
    pub fn scores(&self) -> bool {
        self.dominant_weight > 0 || self.weights.iter().any(|weight| *weight > 0)
    }

    /// The limits of a node that brings some of its own; each part that it has replaces ours as a whole.
    pub(super) fn limits_with(&self, own: UsageThresholds) -> Option<Limits> {
        let own = own.given()?;
        let levels = |own: &Percents, ours: &Levels| match own.is_empty() {
            true => ours.clone(),
            false => Levels::of(&self.names, own),
        };
        let aggregated = own.aggregated_usage.as_ref().and_then(|given| {
            let window = Window::of(given.usage_aggregation_type.as_ref(), given.usage_aggregated_duration)?;
            Some((Levels::of(&self.names, &given.usage_thresholds), window))
        });
        Some(Limits {
            plain: levels(&own.usage_thresholds, &self.limits.plain),
            prod: levels(&own.prod_usage_thresholds, &self.limits.prod),
            aggregated: aggregated.or_else(|| self.limits.aggregated.clone()),
        })
    }
}

/// Cpu, memory and every name that stands in the arguments.
fn names(args: &LoadAwareSchedulingArgs) -> Box<[Box<str>]> {
    let aggregated = args.aggregated.as_ref().map(|given| &given.usage_thresholds);
    let maps: [&BTreeMap<String, i64>; 4] = [
        &args.usage_thresholds,
        &args.prod_usage_thresholds,
        &args.resource_weights,
        &args.estimated_scaling_factors,
    ];
    let mapped = maps.into_iter().chain(aggregated).flat_map(BTreeMap::keys);
    let all: BTreeSet<&str> = [CPU, MEMORY]
        .into_iter()
        .chain(mapped.map(String::as_str))
        .chain(args.supported_resources.iter().map(String::as_str))
        .collect();
    all.into_iter().map(Box::from).collect()
}

impl Levels {
    fn of(names: &[Box<str>], map: &Percents) -> Levels {
        let percents: Box<[i64]> = names.iter().map(|name| map.get(&**name).copied().unwrap_or(0)).collect();
        Levels { is_on: percents.iter().any(|percent| *percent != 0), percents }
    }
}

impl Window {
    /// None without a type.
    fn of(kind: Option<&AggregationType>, duration: Option<GoDuration>) -> Option<Window> {
        let kind = kind.filter(|kind| !kind.as_str().is_empty())?;
        Some(Window { kind: kind.clone(), duration: duration.unwrap_or_default() })
    }
}
