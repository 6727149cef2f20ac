//! NodeAffinity: the nodes a pod demands or prefers by label and name. Spec: scheduler-core 6.4.

use std::sync::Arc;

use koord_api::selector::{NodeSelector, PreferredTerms};

use crate::cluster::{Cluster, Node, Row};
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::hooks::normalize_by_max;
use crate::framework::parts::{Normal, ScorePart};
use crate::framework::{
    Change, Cycle, Demand, Filter, HintInput, Hooks, NodeView, PreFilter, Preparation, Scope, Score, Status,
    wakes_if,
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
    let asked = plugin.clone();
    let after_node = wakes_if(move |input| asked.is_gained(input));
    Hooks::new(NAME).pre_filter(plugin.clone()).filter(plugin.clone()).score(plugin).woken_by(vec![
        Registration::with(Resource::Node, Action::ADD | Action::UPDATE_NODE_LABEL, after_node),
    ])
}

struct NodeAffinity {
    added: Added,
}

impl NodeAffinity {
    /// What keeps a pod off a node, if anything does.
    fn complaint(&self, class: &Class, node: &Node) -> Option<&'static str> {
        let added = self.added.required.as_ref();
        if added.is_some_and(|selector| !selector.matches(&node.labels, &node.name).unwrap_or(false)) {
            return Some("node(s) didn't match scheduler-enforced node affinity");
        }
        let own = class.node_affinity.as_ref();
        if own.is_some_and(|affinity| !affinity.matches(&node.labels, &node.name).unwrap_or(false)) {
            return Some("node(s) didn't match Pod's node affinity/selector");
        }
        None
    }

    /// A node that the pod wants came, or one changed into such a node.
    fn is_gained(&self, input: &HintInput<'_>) -> bool {
        let Change::Node { old, new: Some(new) } = input.change else { return true };
        let is_wanted = |node: &Node| self.complaint(&input.pod.class, node).is_none();
        is_wanted(new) && !old.as_deref().is_some_and(is_wanted)
    }
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

    fn only_serves(&self, class: &Class) -> bool {
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
        match self.complaint(&cycle.pod.class, node.node()) {
            None => Ok(()),
            Some(text) => Err(Status::unresolvable(NAME, text)),
        }
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
