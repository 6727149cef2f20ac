//! NodeResourcesBalancedAllocation: nodes whose resources fill up evenly. Spec: scheduler-core 6.7.

use std::sync::Arc;

use koord_api::resource::ResourceId;

use crate::cluster::{Cluster, Columns, Row, columns};
use crate::framework::parts::{ColumnScore, Formula, ScorePart};
use crate::framework::{Cycle, Hooks, NodeView, Scope, Score, Status};
use crate::number::{nearest, truncated};
use crate::pod::Class;

pub const NAME: &str = "NodeResourcesBalancedAllocation";

/// Which resources are to be in balance, in the order they are listed.
pub fn build(resources: Vec<Box<str>>) -> Hooks {
    Hooks::new(NAME).score(Arc::new(BalancedAllocation { resources }))
}

struct BalancedAllocation {
    resources: Vec<Box<str>>,
}

impl Score for BalancedAllocation {
    fn scope(&self, _class: &Class) -> Scope {
        Scope::Row
    }

    /// A pod that asks for none of the resources cannot bring them out of balance.
    fn prepare(&self, cycle: &mut Cycle<'_>, _rows: &[Row]) -> Result<bool, Status> {
        let amounts = &cycle.pod.class.requests.amounts;
        let mut ids = self.resources.iter().filter_map(|name| cycle.cluster.resources.id(name));
        Ok(ids.any(|id| amounts.get(id) > 0))
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let amounts = &cycle.pod.class.requests.amounts;
        let fractions = self.resources.iter().filter_map(|name| {
            let id: ResourceId = cycle.cluster.resources.id(name)?;
            let (asked, allocatable) = (amounts.get(id), node.allocatable(id));
            if allocatable <= 0 || asked == 0 && columns::is_scalar(name) {
                return None;
            }
            let requested = node.scored(id).saturating_add(asked).max(0);
            Some((nearest(requested) / nearest(allocatable)).min(1.0))
        });
        score(&fractions.collect::<Vec<f64>>())
    }

    fn part(&self, cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        let amounts = &class.requests.amounts;
        let ids = self.resources.iter().filter_map(|name| Some((name, cluster.resources.id(name)?)));
        let asked: Vec<(ResourceId, i64, bool)> =
            ids.map(|(name, id)| (id, amounts.get(id), columns::is_scalar(name))).collect();
        match asked.iter().any(|(_, asked, _)| *asked > 0) {
            true => ScorePart::Columns(Box::new(Balance { asked })),
            false => ScorePart::Nothing,
        }
    }
}

/// The score of one class from columns.
struct Balance {
    /// Resource, amount, and whether not asking for it leaves it out.
    asked: Vec<(ResourceId, i64, bool)>,
}

impl ColumnScore for Balance {
    fn score(&self, columns: &Columns, row: Row) -> i64 {
        let fraction = |(id, asked, is_scalar): &(ResourceId, i64, bool)| {
            let amounts = columns.amounts(*id)?;
            let (allocatable, requested) =
                (amounts.allocatable[row.index()], columns.scored(amounts, *id, row));
            if allocatable <= 0 || *asked == 0 && *is_scalar {
                return None;
            }
            Some((nearest(requested.saturating_add(*asked)) / nearest(allocatable)).min(1.0))
        };
        match self.asked.as_slice() {
            // Nothing is allocated for the resources that nearly everybody uses.
            [a, b] => match (fraction(a), fraction(b)) {
                (Some(a), Some(b)) => score(&[a, b]),
                (Some(one), None) | (None, Some(one)) => score(&[one]),
                (None, None) => score(&[]),
            },
            all => score(&all.iter().filter_map(fraction).collect::<Vec<f64>>()),
        }
    }

    fn formula(&self) -> Formula {
        match self.asked.as_slice() {
            [(ResourceId::CPU, ..), (ResourceId::MEMORY, ..)] => Formula::Balanced,
            _ => Formula::Own,
        }
    }
}

/// The order of operations is part of the contract: doubles round.
fn score(fractions: &[f64]) -> i64 {
    let deviation = match fractions {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        more => {
            let count = nearest(i64::try_from(more.len()).unwrap_or(i64::MAX));
            let mean = more.iter().sum::<f64>() / count;
            (more.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / count).sqrt()
        }
    };
    truncated((1.0 - deviation) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_examples() {
        for (key, fractions, want) in [
            ("scheduler-core#10.S7", &[0.4, 0.3][..], 95),
            ("scheduler-core#10.S8", &[0.2, 0.5, 0.8], 75),
            ("scheduler-core#10.S9", &[1.0, 0.1], 55),
            ("scheduler-core#10.S37", &[0.4, 0.25], 92),
        ] {
            assert_eq!(score(fractions), want, "{key}");
        }
    }
}
