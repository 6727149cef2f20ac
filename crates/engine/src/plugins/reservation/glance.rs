//! The usual case of a pod and its reservation in one go: one reservation on the node that the pod fits into.
//!
//! Says what `Filter::check`, `Restore::lifted` and `Score::score` say together, and nothing where there is more to it.

use koord_api::resource::ResourceId;

use super::nominate::most_allocated;
use super::seek::Seeker;
use super::{Reserving, fit};
use crate::cluster::Row;
use crate::cluster::reservations::{Entry, Source};
use crate::framework::{Cycle, Glance};
use crate::pod::reservation::Policy;

impl Reserving {
    /// The one reservation on a row that the pod may use, if it is of the usual kind and the pod fits into it. A pod that
    /// `is_there` is counted on the row already and must not be in its own way.
    pub(super) fn only_reservation<'a>(
        &self,
        cycle: &Cycle<'a>,
        row: Row,
        is_there: bool,
    ) -> Option<&'a Entry> {
        let class = &cycle.pod.class;
        let reservations = cycle.cluster.reservations();
        // Partners hold more than amounts; the first is the plugin itself.
        if class.reserve.is_some() || class.wants.is_some() || self.partners.len() != 1 {
            return None;
        }
        if reservations.are_ordered() {
            return None;
        }
        let seeker = Seeker::new(cycle.cluster, cycle.pod, &self.settings);
        let mut matched = seeker.matches_on(row);
        let (Some(entry), None) = (matched.next(), matched.next()) else { return None };
        let is_usual = entry.record.source == Source::Object && entry.record.policy != Policy::Restricted;
        let is_spent = entry.record.is_once && !entry.owners.is_empty();
        let amounts = &class.requests.amounts;
        let is_shared = entry.record.names.iter().any(|id| amounts.get(*id) > 0);
        let is_open = is_usual && !is_spent && is_shared;
        let has_room = is_open && self.has_room(cycle, row, entry, is_there);
        has_room.then_some(entry.id).and_then(|id| reservations.entry(id))
    }

    /// Whether the node has room for the pod when it takes first what the reservation still holds.
    fn has_room(&self, cycle: &Cycle<'_>, row: Row, entry: &Entry, is_there: bool) -> bool {
        if self.settings.skips_node_fit {
            return true;
        }
        let amounts = &cycle.pod.class.requests.amounts;
        let fits = |id: ResourceId, wanted: i64, returned: i64| {
            let Some(column) = cycle.cluster.columns.amounts(id) else { return false };
            let own = if is_there { wanted } else { 0 };
            let used = column.requested[row.index()].saturating_sub(own).saturating_sub(returned);
            wanted <= column.allocatable[row.index()].saturating_sub(used)
        };
        let is_ignored = |id: ResourceId| !fit::is_checked(cycle.cluster, &self.settings, id);
        let mut wanted = amounts.iter().filter(|(id, units)| *units > 0 && !is_ignored(*id));
        // The reservation's pod goes with what it holds.
        fits(ResourceId::PODS, 1, 1) && wanted.all(|(id, units)| fits(id, units, entry.available(id)))
    }

    pub(super) fn glance_at<'a>(&self, cycle: &Cycle<'a>, row: Row) -> Option<Glance<'a>> {
        let entry = self.only_reservation(cycle, row, false)?;
        let lifted = cycle.cluster.reservations().counted(&entry.record.pod)?;
        let amounts = &cycle.pod.class.requests.amounts;
        let score = most_allocated(entry, |id| entry.allocated.get(id), amounts);
        Some(Glance { lifted, score })
    }
}
