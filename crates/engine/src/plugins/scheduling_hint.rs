//! SchedulingHint: another scheduler's wish where a pod goes, from an annotation. Spec: scheduler-core 9.16.

use std::sync::Arc;

use crate::cluster::{Cluster, Row};
use crate::framework::{Cycle, Hooks, PreFilter, Prefer, Preparation, Status};
use crate::pod::NodeHint;
use crate::profile::args::SchedulingHintArgs;

pub const NAME: &str = "SchedulingHint";

pub fn build(args: SchedulingHintArgs) -> Hooks {
    let plugin = Arc::new(SchedulingHint { nodes_max: args.max_hint_nodes });
    Hooks::new(NAME).pre_filter(plugin.clone()).prefer(plugin)
}

struct SchedulingHint {
    /// Longer lists are cut.
    nodes_max: usize,
}

/// Names of no node are passed over.
fn rows<'a>(cluster: &'a Cluster, names: &'a [Box<str>]) -> impl Iterator<Item = Row> + 'a {
    let rows = names.iter().filter_map(|name| cluster.row(name));
    rows.filter(|row| cluster.node(*row).is_real)
}

impl PreFilter for SchedulingHint {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        match cycle.pod.hint.as_deref() {
            Some(NodeHint::Unreadable(reason)) => Err(Status::error(NAME, reason.to_string())),
            Some(NodeHint::Nodes { only, .. }) if !only.is_empty() => {
                Ok(Preparation::Only(rows(cycle.cluster, only).collect()))
            }
            _ => Ok(Preparation::Go),
        }
    }
}

impl Prefer for SchedulingHint {
    fn prefer(&self, cycle: &Cycle<'_>) -> Vec<Row> {
        match cycle.pod.hint.as_deref() {
            Some(NodeHint::Nodes { preferred, .. }) => {
                let cut = &preferred[..preferred.len().min(self.nodes_max)];
                rows(cycle.cluster, cut).collect()
            }
            _ => Vec::new(),
        }
    }
}
