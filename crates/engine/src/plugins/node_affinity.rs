//! NodeAffinity: the nodes a pod demands or prefers by label and name. Spec: scheduler-core 6.4.

use std::sync::Arc;

use koord_api::selector::{NodeSelector, PreferredTerms};

use crate::cluster::{Cluster, Row};
use crate::framework::hooks::normalize_by_max;
use crate::framework::parts::{Normal, ScorePart};
use crate::framework::{
    Cycle, Demand, Filter, Hooks, NodeView, PreFilter, Preparation, Scope, Score, Status,
};
use crate::pod::Class;

pub const NAME: &str = "NodeAffinity";

/// What the administrator demands or prefers for all pods.
#[derive(Clone, Debug, Default)]
pub struct Added {
    pub required: Option<NodeSelector>,
    pub preferred: Option<PreferredTerms>,
}

pub fn build(added: Added) -> Hooks {
    let plugin = Arc::new(NodeAffinity { added });
    Hooks::new(NAME).pre_filter(plugin.clone()).filter(plugin.clone()).score(plugin)
}

struct NodeAffinity {
    added: Added,
}

impl PreFilter for NodeAffinity {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        let class = &cycle.pod.class;
        let Some(names) = &class.pinned else {
            let is_free = class.node_affinity.is_none() && self.added.required.is_none();
            return Ok(if is_free { Preparation::Skip } else { Preparation::Go });
        };
        if names.is_empty() {
            return Err(Status::unresolvable(NAME, "pod affinity terms conflict"));
        }
        // Names of no node are no reason to refuse: then no node is left to filter.
        let rows = names.iter().filter_map(|name| cycle.cluster.row(name));
        Ok(Preparation::Only(rows.filter(|row| cycle.cluster.node(*row).is_real).collect()))
    }

    fn only_serves_filter(&self, class: &Class) -> bool {
        class.pinned.is_none()
    }
}

impl Filter for NodeAffinity {
    fn scope(&self, class: &Class) -> Scope {
        match class.node_affinity.is_none() && self.added.required.is_none() {
            true => Scope::Nothing,
            false => Scope::Row,
        }
    }

    fn demand(&self, _cycle: &Cycle<'_>) -> Demand {
        Demand::Nothing
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        let node = node.node();
        let added = self.added.required.as_ref();
        if added.is_some_and(|selector| !selector.matches(&node.labels, &node.name).unwrap_or(false)) {
            return Err(Status::unresolvable(NAME, "node(s) didn't match scheduler-enforced node affinity"));
        }
        let own = cycle.pod.class.node_affinity.as_ref();
        if own.is_some_and(|affinity| !affinity.matches(&node.labels, &node.name).unwrap_or(false)) {
            return Err(Status::unresolvable(NAME, "node(s) didn't match Pod's node affinity/selector"));
        }
        Ok(())
    }
}

impl Score for NodeAffinity {
    fn scope(&self, class: &Class) -> Scope {
        match class.preferred_nodes.is_none() && self.added.preferred.is_none() {
            true => Scope::Nothing,
            false => Scope::Row,
        }
    }

    fn prepare(&self, cycle: &mut Cycle<'_>, _rows: &[Row]) -> Result<bool, Status> {
        Ok(Score::scope(self, &cycle.pod.class) != Scope::Nothing)
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let node = node.node();
        let terms = [cycle.pod.class.preferred_nodes.as_deref(), self.added.preferred.as_ref()];
        terms.iter().flatten().map(|terms| terms.score(&node.labels, &node.name)).sum()
    }

    fn normalize(&self, _cycle: &Cycle<'_>, _rows: &[Row], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }

    fn part(&self, _cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        match Score::scope(self, class) {
            Scope::Nothing => ScorePart::Nothing,
            _ => ScorePart::Row(Normal::ByMax { is_reversed: false }),
        }
    }
}
