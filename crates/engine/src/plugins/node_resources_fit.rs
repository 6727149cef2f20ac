//! NodeResourcesFit: a node must have room, and how much it would have left makes its score.
//! Spec: scheduler-core 6.6. The meaning is in `shortages` and `strategy`; `columns` reads many rows at once.

use std::sync::Arc;

use koord_api::resource::{ResourceId, ResourceTable};

use crate::cluster::{Cluster, Columns, Row, columns};
use crate::framework::event::{Action, Resource};
use crate::framework::hint::Registration;
use crate::framework::parts::{ColumnScore, FilterPart, Formula, Room, ScorePart};
use crate::framework::{
    Change, Code, Cycle, Demand, Facts, Filter, HintInput, Hooks, NodeView, Reason, Scope, Score, Sieve,
    Status, wakes_if,
};
use crate::pod::Class;

mod strategy;

pub use strategy::{ShapePoint, Strategy};

pub const NAME: &str = "NodeResourcesFit";

/// How the plugin is set.
#[derive(Clone, Debug)]
pub struct Args {
    pub strategy: Strategy,
    /// Names and weights, in the order they are listed.
    pub resources: Vec<(Box<str>, i64)>,
    /// Extended resources that are somebody else's business.
    pub ignored: Vec<Box<str>>,
    /// The same by the part of the name before the slash.
    pub ignored_groups: Vec<Box<str>>,
}

impl Default for Args {
    fn default() -> Args {
        Args {
            strategy: Strategy::LeastAllocated,
            resources: vec![("cpu".into(), 1), ("memory".into(), 1)],
            ignored: Vec::new(),
            ignored_groups: Vec::new(),
        }
    }
}

pub fn build(args: Args) -> Hooks {
    let plugin = Arc::new(Fit { args });
    let asked = plugin.clone();
    let after_node = wakes_if(move |input| asked.is_enlarged(input));
    Hooks::new(NAME).filter(plugin.clone()).score(plugin).woken_by(vec![
        Registration::with(
            Resource::Pod,
            Action::DELETE | Action::UPDATE_POD_SCALE_DOWN,
            wakes_if(frees_something),
        ),
        Registration::with(Resource::Node, Action::ADD | Action::UPDATE_NODE_ALLOCATABLE, after_node),
    ])
}

/// A pod with a place, or the promise of one, went or asks for less of what this one asks for; or this one does.
fn frees_something(input: &HintInput<'_>) -> bool {
    let Change::Pod { old: Some(old), new } = input.change else { return true };
    let Some(new) = new else { return !old.node.is_empty() || !old.nominated.is_empty() };
    let (before, after) = (&old.class.requests.amounts, &new.class.requests.amounts);
    let mut wanted = input.pod.class.requests.amounts.iter().filter(|(_, units)| *units > 0);
    input.is_own() || !new.node.is_empty() && wanted.any(|(id, _)| before.get(id) > after.get(id))
}

struct Fit {
    args: Args,
}

/// Resources of one pod whose shortages fit into one number, two bits each.
const CAUSES_MAX: usize = 31;

/// One amount that a node is short of.
struct Shortage {
    id: ResourceId,
    wanted: i64,
    used: i64,
    allocatable: i64,
}

impl Fit {
    fn is_ignored(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or("", |(group, _)| group);
        self.args.ignored.iter().any(|ignored| **ignored == *name)
            || self.args.ignored_groups.iter().any(|ignored| !group.is_empty() && **ignored == *group)
    }

    /// What is checked of the pod's requests.
    fn checked<'a>(
        &'a self,
        class: &'a Class,
        table: &'a ResourceTable,
    ) -> impl Iterator<Item = (ResourceId, i64)> + 'a {
        let asked = class.requests.amounts.iter().filter(|(_, units)| *units > 0);
        asked.filter(|(id, _)| match *id {
            ResourceId::CPU | ResourceId::MEMORY | ResourceId::EPHEMERAL_STORAGE => true,
            id => columns::is_scalar(table.name(id)) && !self.is_ignored(table.name(id)),
        })
    }

    /// A node came that could take the pod if it were empty, or one became large enough.
    fn is_enlarged(&self, input: &HintInput<'_>) -> bool {
        let Change::Node { old, new: Some(new) } = input.change else { return true };
        let wanted = || self.checked(&input.pod.class, &input.cluster.resources);
        let has_room = new.allocatable.get(ResourceId::PODS) >= 1
            && wanted().all(|(id, units)| units <= new.allocatable.get(id));
        let Some(old) = old else { return has_room };
        let has_more = |id: ResourceId| new.allocatable.get(id) > old.allocatable.get(id);
        has_room && (has_more(ResourceId::PODS) || wanted().any(|(id, _)| has_more(id)))
    }

    /// What the pod asks of a node, in the order shortages are named. Scalars in the order of their names.
    fn wanted(&self, cluster: &Cluster, class: &Class) -> Vec<(ResourceId, i64)> {
        let table = &cluster.resources;
        let mut wanted: Vec<(ResourceId, i64)> = self.checked(class, table).collect();
        let rank = |id: ResourceId| match id {
            ResourceId::CPU => 0,
            ResourceId::MEMORY => 1,
            ResourceId::EPHEMERAL_STORAGE => 2,
            _ => 3,
        };
        wanted.sort_by_key(|(id, _)| (rank(*id), table.name(*id)));
        wanted
    }

    fn refusal(&self, cycle: &Cycle<'_>, pods: Option<Shortage>, shortages: Vec<Shortage>) -> Status {
        let table = &cycle.cluster.resources;
        let is_hopeless = shortages.iter().any(|shortage| shortage.wanted > shortage.allocatable);
        let text = |shortage: &Shortage| match shortage.id {
            ResourceId::PODS => "Too many pods".to_owned(),
            id => format!("Insufficient {}", table.name(id)),
        };
        let reasons = pods.iter().chain(&shortages).map(|shortage| {
            let facts = Facts::Shortage {
                resource: table.name(shortage.id).into(),
                wanted: shortage.wanted,
                used: shortage.used,
                allocatable: shortage.allocatable,
            };
            Reason::with(text(shortage), facts)
        });
        let code = if is_hopeless { Code::Unresolvable } else { Code::Unschedulable };
        Status { code, reasons: reasons.collect(), plugin: NAME }
    }
}

/// A reservation that may be placed before there is room: it only has to fit on the node when that is empty.
fn is_patient(class: &Class) -> bool {
    class.reserve.as_ref().is_some_and(|reserve| reserve.may_wait())
}

impl Filter for Fit {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status> {
        let is_patient = is_patient(&cycle.pod.class);
        let shortage = |(id, wanted): (ResourceId, i64)| {
            let used = if is_patient { 0 } else { node.requested(id) };
            let allocatable = node.allocatable(id);
            (wanted > allocatable.saturating_sub(used)).then_some(Shortage { id, wanted, used, allocatable })
        };
        let pods = shortage((ResourceId::PODS, 1));
        let shortages: Vec<Shortage> =
            self.wanted(cycle.cluster, &cycle.pod.class).into_iter().filter_map(shortage).collect();
        match pods.is_none() && shortages.is_empty() {
            true => Ok(()),
            false => Err(self.refusal(cycle, pods, shortages)),
        }
    }

    fn demand(&self, cycle: &Cycle<'_>) -> Demand {
        match is_patient(&cycle.pod.class) {
            true => Demand::Nothing,
            false => Demand::Room(self.wanted(cycle.cluster, &cycle.pod.class)),
        }
    }

    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        let columns = &cycle.cluster.columns;
        let wanted = self.wanted(cycle.cluster, &cycle.pod.class);
        let amounts: Vec<_> = wanted.iter().map(|(id, wanted)| (columns.amounts(*id), *wanted)).collect();
        if amounts.len() > CAUSES_MAX || is_patient(&cycle.pod.class) {
            return sieve.retain(|row| self.check(cycle, &NodeView::of(cycle.cluster, row)));
        }
        let pods = &columns.pods;
        // One bit for what is short, and one for what the node never has.
        let cause_of = |row: Row| {
            let mut cause = u64::from(pods.free(row) < 1);
            for (at, (amounts, wanted)) in amounts.iter().enumerate() {
                let (free, allocatable) =
                    amounts.map_or((0, 0), |amounts| (amounts.free(row), amounts.allocatable[row.index()]));
                cause |= u64::from(*wanted > free) << (2 * at + 1);
                cause |= u64::from(*wanted > free && *wanted > allocatable) << (2 * at + 2);
            }
            (cause != 0).then_some(cause)
        };
        sieve.retain_by_cause(cause_of, |row| self.check(cycle, &NodeView::of(cycle.cluster, row)).err());
    }

    fn part(&self, cluster: &Cluster, class: &Arc<Class>) -> FilterPart {
        let wanted = self.wanted(cluster, class);
        match wanted.len() <= Room::WANTED_MAX && !is_patient(class) {
            true => FilterPart::Room(Room { wanted }),
            false => FilterPart::Row,
        }
    }
}

impl Score for Fit {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let requests = &cycle.pod.class.requests;
        let amounts = self.args.resources.iter().filter_map(|(name, weight)| {
            let id = cycle.cluster.resources.id(name)?;
            let allocatable = node.allocatable(id);
            let asked = requests.amounts.get(id);
            let requested = match id {
                ResourceId::CPU => node.nonzero_cpu_milli().saturating_add(requests.scored_cpu_milli),
                ResourceId::MEMORY => node.nonzero_memory().saturating_add(requests.scored_memory),
                // What the pod does not ask for says nothing about this pod.
                _ if asked == 0 && columns::is_scalar(name) => return None,
                _ => node.requested(id).saturating_add(asked),
            };
            (allocatable > 0).then_some((requested.max(0), allocatable, *weight))
        });
        self.args.strategy.score(amounts)
    }

    fn part(&self, cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        let requests = &class.requests;
        let amounts = self.args.resources.iter().filter_map(|(name, weight)| {
            let id = cluster.resources.id(name)?;
            let asked = requests.amounts.get(id);
            let asked = match id {
                ResourceId::CPU => requests.scored_cpu_milli,
                ResourceId::MEMORY => requests.scored_memory,
                _ if asked == 0 && columns::is_scalar(name) => return None,
                _ => asked,
            };
            Some((id, asked, *weight))
        });
        ScorePart::Columns(Box::new(Allocation {
            strategy: self.args.strategy.clone(),
            amounts: amounts.collect(),
        }))
    }
}

/// The score of one class from columns.
struct Allocation {
    strategy: Strategy,
    /// Resource, amount as scoring counts it, and weight.
    amounts: Vec<(ResourceId, i64, i64)>,
}

impl ColumnScore for Allocation {
    fn score(&self, columns: &Columns, row: Row) -> i64 {
        let amounts = self.amounts.iter().filter_map(|(id, asked, weight)| {
            let amounts = columns.amounts(*id)?;
            let counted = match *id {
                ResourceId::CPU => columns.nonzero_cpu[row.index()],
                ResourceId::MEMORY => columns.nonzero_memory[row.index()],
                _ => amounts.requested[row.index()],
            };
            let allocatable = amounts.allocatable[row.index()];
            (allocatable > 0).then_some((counted.saturating_add(*asked), allocatable, *weight))
        });
        self.strategy.score(amounts)
    }

    fn formula(&self) -> Formula {
        match (&self.strategy, self.amounts.as_slice()) {
            (
                Strategy::LeastAllocated,
                [(ResourceId::CPU, _, cpu_weight), (ResourceId::MEMORY, _, memory_weight)],
            ) => Formula::LeastAllocated { cpu_weight: *cpu_weight, memory_weight: *memory_weight },
            _ => Formula::Own,
        }
    }
}

#[cfg(test)]
mod tests;
