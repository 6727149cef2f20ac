//! LoadAwareScheduling: keeps pods off nodes that are really busy, and prefers idle ones. Spec: scheduler-reservation-loadaware B.
//!
//! Pure over the cluster's book (`cluster::load`), which has the arithmetic; here it becomes verdicts and scores. What a pod
//! is expected to use stands in its class, and a book changes row by row, so answers can be remembered.

use std::sync::Arc;

use crate::cluster::load::{Book, Excess, PodLoad, Refusal, Settings, Source};
use crate::cluster::{Cluster, Row};
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::parts::{Normal, ScorePart};
use crate::framework::{
    Change, Code, Cycle, Demand, Facts, Filter, HintInput, Hooks, LoadFacts, NodeView, Reason, Scope, Score,
    Sieve, Status, wakes_if,
};
use crate::pod::Class;
use crate::profile::args::LoadAwareSchedulingArgs;

pub const NAME: &str = "LoadAwareScheduling";

pub fn build(args: &LoadAwareSchedulingArgs) -> Hooks {
    let settings = Arc::new(Settings::new(args));
    let plugin = Arc::new(LoadAware { settings: settings.clone() });
    let asked = plugin.clone();
    let takes_it = wakes_if(move |input| asked.may_take(input));
    // Differs: upstream does not look whether the node that changed takes the pod now, and leaves pods waiting when a
    // node comes, grows or gets limits of its own.
    let all = Action::ADD | Action::UPDATE | Action::DELETE;
    let pod = Action::DELETE | Action::UPDATE_POD_SCALE_DOWN | Action::UPDATE_POD_LABEL;
    let node = Action::ADD | Action::UPDATE_NODE_ALLOCATABLE | Action::UPDATE_NODE_ANNOTATION;
    Hooks::new(NAME).filter(plugin.clone()).score(plugin).follows_load(settings).woken_by(vec![
        Registration::with(Resource::node_metrics(), all, takes_it.clone()),
        Registration::with(Resource::Pod, pod, takes_it.clone()),
        Registration::with(Resource::Node, node, takes_it),
    ])
}

struct LoadAware {
    settings: Arc<Settings>,
}

impl LoadAware {
    fn book<'a>(&self, cluster: &'a Cluster, class: &'a Class) -> Option<(&'a Book, &'a PodLoad)> {
        Some((cluster.loads().book(&self.settings)?, class.load.as_deref()?))
    }

    fn refusal(&self, cluster: &Cluster, class: &Class, row: Row) -> Option<Refusal> {
        let (book, load) = self.book(cluster, class)?;
        book.refusal(load, row)
    }

    /// Whether the node that an event is about would take the pod now.
    fn may_take(&self, input: &HintInput<'_>) -> bool {
        let name: &str = match input.change {
            Change::Object { name, .. } => name,
            Change::Node { new: Some(node), .. } => &node.name,
            // The pod itself may be expected to use less.
            Change::Pod { .. } if input.is_own() => return true,
            // One without a node was in nobody's sum.
            Change::Pod { old: Some(pod), .. } => &pod.node,
            _ => return true,
        };
        let Some(row) = input.cluster.row(name) else { return false };
        input.cluster.columns.is_real[row.index()]
            && self.refusal(input.cluster, &input.pod.class, row).is_none()
    }

    fn status(&self, refusal: &Refusal) -> Status {
        let reason = match refusal {
            Refusal::Expired { measured } => {
                Reason::with("node(s) nodeMetric expired", Facts::OldMetric { measured: *measured })
            }
            Refusal::Over(excess) => {
                let name = &self.settings.names[excess.resource];
                let aggregated = if excess.is_aggregated { " aggregated" } else { "" };
                let text = format!("node(s) {name}{aggregated} usage exceed threshold");
                Reason::with(text, Facts::Load(Box::new(facts(name, excess))))
            }
        };
        Status::new(Code::Unschedulable, NAME, reason)
    }
}

fn facts(name: &str, excess: &Excess) -> LoadFacts {
    LoadFacts {
        resource: name.into(),
        threshold: excess.threshold,
        expected: excess.expected,
        measured: excess.measured,
        used: excess.base,
        in_flight: excess.in_flight,
        in_flight_pods: excess.in_flight_pods,
        incoming: excess.incoming,
        allocatable: excess.allocatable,
        is_of_prod: excess.source == Source::Prod,
        is_estimated: excess.source == Source::Estimated,
    }
}

impl Filter for LoadAware {
    fn scope(&self, class: &Class) -> Scope {
        if class.load.as_ref().is_some_and(|load| load.is_daemon) { Scope::Nothing } else { Scope::Row }
    }

    /// Pods that leave take their use with them only when it is measured again.
    fn demand(&self, _cycle: &Cycle<'_>) -> Demand {
        Demand::Fixed
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        match self.refusal(cycle.cluster, &cycle.pod.class, node.row) {
            None => Ok(()),
            Some(refusal) => Err(self.status(&refusal)),
        }
    }

    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        let Some((book, load)) = self.book(cycle.cluster, &cycle.pod.class) else { return };
        let refusal = |row: Row| book.refusal(load, row);
        sieve.retain_by_cause(
            |row| refusal(row).map(|refusal| refusal.cause()),
            |row| refusal(row).map(|refusal| self.status(&refusal)),
        );
    }
}

impl Score for LoadAware {
    fn scope(&self, _class: &Class) -> Scope {
        if self.settings.scores() { Scope::Row } else { Scope::Nothing }
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let found = self.book(cycle.cluster, &cycle.pod.class);
        found.map_or(0, |(book, load)| book.score(load, node.row))
    }

    fn part(&self, _cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        match Score::scope(self, class) {
            Scope::Nothing => ScorePart::Nothing,
            _ => ScorePart::Row(Normal::Final),
        }
    }
}

#[cfg(test)]
mod tests;
