//! Every plugin that a profile may name, and the points it implements. A new plugin is one new row.
//!
//! The rows with a default weight are kube-scheduler's default set, in its order. Spec: scheduler-core 6 and 7.2.

use super::point::{Point, PointSet};
use crate::framework::status::PluginName;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub name: PluginName,
    pub points: PointSet,
    /// Whether it is on by default, at every point it implements, and with which weight; 0 is none given.
    pub default_weight: Option<i32>,
}

/// On by default, with this weight.
const fn standard(name: PluginName, weight: i32, points: &[Point]) -> Plugin {
    Plugin { name, points: PointSet::of(points), default_weight: Some(weight) }
}

/// On only where a configuration says so.
const fn optional(name: PluginName, points: &[Point]) -> Plugin {
    Plugin { name, points: PointSet::of(points), default_weight: None }
}

use Point::{
    Bind, Filter, Permit, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve,
    Score,
};

pub const PLUGINS: &[Plugin] = &[
    standard("SchedulingGates", 0, &[PreEnqueue]),
    standard("PrioritySort", 0, &[QueueSort]),
    standard("NodeUnschedulable", 0, &[Filter]),
    standard("NodeName", 0, &[Filter]),
    standard("TaintToleration", 3, &[Filter, PreScore, Score]),
    standard("NodeAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    standard("NodePorts", 0, &[PreFilter, Filter]),
    standard("NodeResourcesFit", 1, &[PreFilter, Filter, PreScore, Score]),
    standard("VolumeRestrictions", 0, &[PreFilter, Filter]),
    standard("NodeVolumeLimits", 0, &[PreFilter, Filter]),
    standard("VolumeBinding", 0, &[PreFilter, Filter, PreScore, Score, Reserve, PreBind]),
    standard("VolumeZone", 0, &[PreFilter, Filter]),
    standard("PodTopologySpread", 2, &[PreFilter, Filter, PreScore, Score]),
    standard("InterPodAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    standard("DynamicResources", 2, &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind]),
    standard("DefaultPreemption", 0, &[PreEnqueue, PostFilter]),
    standard("NodeResourcesBalancedAllocation", 1, &[PreScore, Score]),
    standard("ImageLocality", 1, &[Score]),
    standard("DefaultBinder", 0, &[Bind]),
    optional("Reservation", &[PreFilter, Filter, PostFilter, PreScore, Score, Reserve, PreBind, Bind]),
    optional("LoadAwareScheduling", &[PreFilter, Filter, Score, Reserve]),
    optional("NodeNUMAResource", &[PreFilter, Filter, PreScore, Score, Reserve, PreBind]),
    optional("DeviceShare", &[PreFilter, Filter, PreScore, Score, Reserve, PreBind]),
    optional(
        "Coscheduling",
        &[PreEnqueue, QueueSort, PreFilter, PostFilter, PreScore, Score, Reserve, Permit, PreBind, PostBind],
    ),
    optional("ElasticQuota", &[PreFilter, PostFilter, Reserve]),
    optional("DefaultPreBind", &[PreBind]),
    optional("NodeResourcesFitPlus", &[PreScore, Score]),
    optional("ScarceResourceAvoidance", &[PreScore, Score]),
    optional("SchedulingHint", &[PreFilter]),
];

/// The row of a plugin.
pub fn find(name: &str) -> Option<&'static Plugin> {
    PLUGINS.iter().find(|plugin| plugin.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_every_plugin_takes_part_somewhere() {
        let names: BTreeSet<&str> = PLUGINS.iter().map(|plugin| plugin.name).collect();
        assert_eq!(names.len(), PLUGINS.len());
        for plugin in PLUGINS {
            assert!(Point::ALL.iter().any(|point| plugin.points.contains(*point)), "{}", plugin.name);
            let weighs = plugin.default_weight.is_some_and(|weight| weight != 0);
            assert!(!weighs || plugin.points.contains(Score), "{} has a weight but no score", plugin.name);
        }
        assert!(find("NodeName").is_some() && find("nodename").is_none());
    }
}
