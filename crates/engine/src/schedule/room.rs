//! Whether a node has room for a pod, by sums: the whole question for pods that ask for nothing else.

use koord_api::resource::ResourceId;

use super::nominated::Promised;
use super::{Framework, Nominated, Prepared};
use crate::cluster::Row;
use crate::cluster::columns::{Amounts, Columns};
use crate::framework::{Cycle, Demand, PluginName};

/// What a pod asks of a node, when no other pod matters to it but by the room it takes.
pub struct Room<'a> {
    /// The filter that asks for it.
    pub filter: PluginName,
    columns: &'a Columns,
    wanted: Vec<Wanted<'a>>,
    promised: Option<Promised<'a>>,
}

struct Wanted<'a> {
    id: ResourceId,
    units: i64,
    amounts: Option<&'a Amounts>,
}

/// Which amounts are short, as bits: the lowest for pods, then one for each in the order they are asked for. The highest
/// says that the node never has enough of one, whoever goes. Refusals for the same read alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack(pub u64);

/// Amounts that a bit each of `Lack` can name.
const WANTED_MAX: usize = 62;
const HOPELESS: u64 = 1 << 63;

impl<'a> Room<'a> {
    /// None when a filter looks at more than room.
    pub fn of(
        framework: &Framework,
        prepared: &Prepared,
        cycle: &Cycle<'a>,
        nominated: &'a Nominated,
    ) -> Option<Room<'a>> {
        let mut found: Option<(PluginName, Vec<(ResourceId, i64)>)> = None;
        for hooks in framework.filters.iter().filter(|hooks| prepared.is_asked(hooks.name)) {
            let Some(filter) = &hooks.filter else { continue };
            match filter.demand(cycle) {
                Demand::Nothing | Demand::Fixed => {}
                // Two who want room may count it differently.
                Demand::Room(wanted) if found.is_none() => found = Some((hooks.name, wanted)),
                Demand::Room(_) | Demand::Anything => return None,
            }
        }
        let (filter, wanted) = found.filter(|(_, wanted)| wanted.len() <= WANTED_MAX)?;
        let columns = &cycle.cluster.columns;
        let wanted = wanted.into_iter().map(|(id, units)| Wanted { id, units, amounts: columns.amounts(id) });
        let promised = (!nominated.is_empty()).then(|| nominated.view(cycle.pod));
        Some(Room { filter, columns, wanted: wanted.collect(), promised })
    }

    /// The resources asked for.
    pub fn ids(&self) -> impl Iterator<Item = ResourceId> {
        self.wanted.iter().map(|wanted| wanted.id)
    }

    /// What would be left of pods and of each resource with the pod on the row, beside those who are promised it;
    /// below zero where it does not fit.
    pub fn left(&self, row: Row, amounts: &mut Vec<i64>) -> i64 {
        let promised = self.promised.filter(|promised| promised.pods(row) > 0);
        amounts.clear();
        for wanted in &self.wanted {
            let free = wanted.amounts.map_or(0, |amounts| amounts.free(row));
            let kept = promised.map_or(0, |promised| promised.amount(row, wanted.id));
            amounts.push(free.saturating_sub(wanted.units).saturating_sub(kept));
        }
        self.columns.pods.free(row) - 1 - promised.map_or(0, |promised| promised.pods(row))
    }

    /// Whether a row is known to lack cpu, memory or a place for the pod beside those who are promised it, even if every
    /// pod there went. Reads columns only: where this is so, nobody need look at the pods.
    pub fn is_beyond_hope(&self, row: Row) -> bool {
        let Some((pods, cpu, memory)) = self.promised.and_then(|promised| promised.at_once(row)) else {
            return false;
        };
        // Sums that were cut off, or lowered by amounts below zero, may give back more than there seems to be.
        if self.columns.has_odd_sums() {
            return false;
        }
        let lacks = |amounts: &Amounts, wanted: i64, promised: i64| {
            amounts.allocatable[row.index()].saturating_sub(wanted).saturating_sub(promised) < 0
        };
        lacks(&self.columns.pods, 1, pods)
            || self.wanted.iter().any(|wanted| match wanted.id {
                ResourceId::CPU => lacks(&self.columns.cpu, wanted.units, cpu),
                ResourceId::MEMORY => lacks(&self.columns.memory, wanted.units, memory),
                _ => false,
            })
    }

    /// What a row lacks because some of it is promised to others; none where nothing is, or enough is left.
    pub fn lack_beside_promised(&self, row: Row) -> Option<Lack> {
        let promised = self.promised.filter(|promised| promised.pods(row) > 0)?;
        let mut bits = u64::from(self.columns.pods.free(row) < 1 + promised.pods(row));
        for (at, wanted) in self.wanted.iter().enumerate() {
            let (free, all) = wanted
                .amounts
                .map_or((0, 0), |amounts| (amounts.free(row), amounts.allocatable[row.index()]));
            if wanted.units > free.saturating_sub(promised.amount(row, wanted.id)) {
                bits |= 2 << at;
                bits |= if wanted.units > all { HOPELESS } else { 0 };
            }
        }
        (bits != 0).then_some(Lack(bits))
    }
}

impl Lack {
    /// What is short when so much is left.
    pub fn of(pods: i64, amounts: &[i64]) -> Lack {
        let short = amounts.iter().enumerate().map(|(at, left)| u64::from(*left < 0) << (at + 1));
        Lack(short.fold(u64::from(pods < 0), |bits, bit| bits | bit))
    }
}
