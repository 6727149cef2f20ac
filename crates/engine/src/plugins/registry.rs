//! From a profile to plugins that run: one row for each plugin that is built.

use std::collections::HashMap;

use koord_api::selector::{NodeSelector, PreferredTerms};

use super::{
    balanced_allocation, default_preemption, dynamic_resources, image_locality, inter_pod_affinity,
    load_aware, node_affinity, node_name, node_ports, node_resources_fit, node_resources_fit_plus,
    node_unschedulable, node_volume_limits, pod_topology_spread, reservation, scarce_resource_avoidance,
    scheduling_gates, scheduling_hint, taint_toleration, volume_binding, volume_restrictions, volume_zone,
};
use crate::framework::timing::Timing;
use crate::framework::{Hooks, PluginName};
use crate::profile::Profile;
use crate::profile::args::{self, Args};
use crate::profile::point::Point;
use crate::schedule::{Framework, Sampling, Ties};

/// What holds for all profiles.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    pub sampling: Sampling,
    pub ties: Ties,
}

/// The plugins of a profile, point by point.
pub fn framework(profile: &Profile, manner: Manner) -> Framework {
    let mut built: HashMap<PluginName, Hooks> = HashMap::new();
    if profile.points.iter().any(|(_, enabled)| enabled.iter().any(|e| e.plugin == reservation::NAME)) {
        built.insert(reservation::NAME, reserving(profile));
    }
    let mut at = |point: Point| -> Vec<Hooks> {
        let mut hooks = |name: PluginName| {
            built
                .entry(name)
                .or_insert_with(|| build(name, &profile.args).unwrap_or(Hooks::new(name)))
                .clone()
        };
        profile.points[point].iter().map(|enabled| hooks(enabled.plugin)).collect()
    };
    let weights = profile.points[Point::Score].iter().map(|enabled| enabled.weight);
    let pre_filters = at(Point::PreFilter);
    Framework {
        scheduler: profile.scheduler_name.as_str().into(),
        pre_enqueues: at(Point::PreEnqueue),
        restores: pre_filters.iter().filter_map(|hooks| hooks.restore.clone()).collect(),
        pre_filters,
        filters: at(Point::Filter),
        post_filters: at(Point::PostFilter),
        scores: at(Point::Score).into_iter().zip(weights).collect(),
        reserves: at(Point::Reserve),
        permits: at(Point::Permit),
        pre_binds: at(Point::PreBind),
        post_binds: at(Point::PostBind),
        sampling: match profile.percentage_of_nodes_to_score {
            Some(percent) if percent.get() > 0 => Sampling::Percent(percent.get()),
            _ => manner.sampling,
        },
        ties: manner.ties,
        timing: Timing::default(),
    }
}

/// Reservation, and those of the profile who have a say about reservations beside it.
fn reserving(profile: &Profile) -> Hooks {
    let others =
        profile.points[Point::Filter].iter().filter_map(|enabled| build(enabled.plugin, &profile.args));
    let partners = others.filter_map(|hooks| hooks.in_reservation).collect();
    reservation::build(&profile.args.reservation, partners)
}

/// Whether naming the plugin in a profile has an effect yet.
pub fn is_built(name: &str) -> bool {
    NAME_ONLY.contains(&name) || build(name, &Args::default()).is_some()
}

/// Plugins whose work is done by the engine itself.
const NAME_ONLY: &[&str] = &["PrioritySort", "DefaultBinder", "DefaultPreBind"];

/// One plugin with its arguments; none when it is not built.
fn build(name: &str, args: &Args) -> Option<Hooks> {
    Some(match name {
        scheduling_gates::NAME => scheduling_gates::build(),
        node_resources_fit_plus::NAME => node_resources_fit_plus::build(&args.node_resources_fit_plus),
        scarce_resource_avoidance::NAME => scarce_resource_avoidance::build(&args.scarce_resource_avoidance),
        scheduling_hint::NAME => scheduling_hint::build(args.scheduling_hint),
        node_unschedulable::NAME => node_unschedulable::build(),
        node_name::NAME => node_name::build(),
        taint_toleration::NAME => taint_toleration::build(args.taint_toleration.wording),
        node_affinity::NAME => node_affinity::build(added(&args.node_affinity)),
        node_ports::NAME => node_ports::build(),
        node_resources_fit::NAME => node_resources_fit::build(fit(&args.node_resources_fit)),
        volume_restrictions::NAME => volume_restrictions::build(),
        node_volume_limits::NAME => node_volume_limits::build(),
        volume_binding::NAME => volume_binding::build(&args.volume_binding),
        volume_zone::NAME => volume_zone::build(),
        pod_topology_spread::NAME => {
            pod_topology_spread::build(&args.pod_topology_spread.default_constraints)
        }
        inter_pod_affinity::NAME => inter_pod_affinity::build(inter_pod_affinity::Args {
            hard_pod_affinity_weight: args.inter_pod_affinity.hard_pod_affinity_weight.get(),
            ignore_preferred_terms_of_existing_pods: args
                .inter_pod_affinity
                .ignore_preferred_terms_of_existing_pods,
        }),
        balanced_allocation::NAME => {
            let names = args.balanced_allocation.resources.iter().map(|name| name.as_str().into());
            balanced_allocation::build(names.collect())
        }
        image_locality::NAME => image_locality::build(),
        default_preemption::NAME => default_preemption::build(&args.default_preemption),
        dynamic_resources::NAME => dynamic_resources::build(),
        reservation::NAME => reservation::build(&args.reservation, Vec::new()),
        load_aware::NAME => load_aware::build(&args.load_aware_scheduling),
        _ => return None,
    })
}

fn added(args: &args::NodeAffinityArgs) -> node_affinity::Added {
    let affinity = args.added_affinity.as_ref();
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
    node_affinity::Added {
        required: required.map(|selector| NodeSelector::new(selector, "addedAffinity.required")),
        preferred: preferred.and_then(|terms| PreferredTerms::new(terms, "addedAffinity.preferred").ok()),
    }
}

fn fit(args: &args::NodeResourcesFitArgs) -> node_resources_fit::Args {
    let boxed = |names: &[String]| names.iter().map(|name| name.as_str().into()).collect();
    node_resources_fit::Args {
        strategy: match &args.strategy {
            args::Strategy::LeastAllocated => node_resources_fit::Strategy::LeastAllocated,
            args::Strategy::MostAllocated => node_resources_fit::Strategy::MostAllocated,
            args::Strategy::RequestedToCapacityRatio(shape) => {
                // Scores of a shape go to 10, those of nodes to 100.
                let point = |point: &args::ShapePoint| node_resources_fit::ShapePoint {
                    utilization: point.utilization,
                    score: 10 * point.score,
                };
                let points = shape.points().iter().map(point).collect();
                node_resources_fit::Strategy::RequestedToCapacityRatio(points)
            }
        },
        resources: args.resources.iter().map(|r| (r.name.as_str().into(), r.weight)).collect(),
        ignored: boxed(&args.ignored_resources),
        ignored_groups: boxed(&args.ignored_resource_groups),
    }
}
