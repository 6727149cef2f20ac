//! The sums again, from the pods alone: what the ledger must equal after any history.

use std::collections::BTreeMap;
use std::sync::Arc;

use koord_api::resource::{ResourceId, ResourceVector};

use super::columns::clamped;
use super::reservations::{Counted, Phase, Source};
use super::{Cluster, Held, Life};

/// What is counted on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSum {
    pub requested: ResourceVector,
    pub nonzero_cpu_milli: i64,
    pub nonzero_memory: i64,
    pub pods: i64,
    /// UIDs, ascending.
    pub uids: Vec<Box<str>>,
}

/// What is used of one reservation, and what its pod still counts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationSum {
    pub allocated: ResourceVector,
    pub counted: Counted,
    /// UIDs, ascending.
    pub owners: Vec<Box<str>>,
}

impl Cluster {
    /// The sums by node name, from the pods.
    pub fn recount(&self) -> BTreeMap<Box<str>, NodeSum> {
        let mut sums: BTreeMap<Box<str>, NodeSum> = BTreeMap::new();
        let mut nonzero: BTreeMap<Box<str>, (i128, i128)> = BTreeMap::new();
        for held in self.all_held() {
            let sum = sums.entry(self.node(held.row).name.clone()).or_default();
            let counted = self.recount_reservation(held).map(|sum| sum.counted);
            let counted = counted.unwrap_or_else(|| Counted::of(&held.pod.class.requests));
            for (id, units) in counted.amounts.iter() {
                let is_counted = id == ResourceId::CPU
                    || id == ResourceId::MEMORY
                    || id == ResourceId::EPHEMERAL_STORAGE
                    || super::columns::is_scalar(self.resources.name(id));
                if is_counted {
                    sum.requested.set(id, sum.requested.get(id).saturating_add(units));
                }
            }
            let nonzero = nonzero.entry(self.node(held.row).name.clone()).or_default();
            nonzero.0 += i128::from(counted.nonzero_cpu_milli);
            nonzero.1 += i128::from(counted.nonzero_memory);
            sum.pods += 1;
            sum.uids.push(held.pod.uid.clone());
        }
        for (sum, nonzero) in sums.values_mut().zip(nonzero.into_values()) {
            sum.uids.sort();
            (sum.nonzero_cpu_milli, sum.nonzero_memory) = (clamped(nonzero.0), clamped(nonzero.1));
        }
        sums
    }

    /// What a reservation's pod counts for and who uses it, from the pods; none for other pods.
    fn recount_reservation(&self, held: &Held) -> Option<ReservationSum> {
        let reserve = held.pod.class.reserve.as_ref()?;
        let entry = self.reservations().get(&held.pod.uid)?;
        let record = &entry.record;
        let uses = |other: &Held| match other.life {
            Life::Confirmed if other.pod.uses.is_some() => {
                other.pod.uses.as_ref().is_some_and(|uses| uses.uid == record.uid)
            }
            // What was chosen for it stands in no object yet.
            _ => self.reservations().used_by(&other.pod.uid) == Some(&record.uid),
        };
        let users = self.all_held().filter(|other| other.row == held.row && uses(other));
        let mut users: Vec<&Held> = users.collect();
        users.sort_by(|a, b| a.pod.uid.cmp(&b.pod.uid));
        let mut sum = ReservationSum {
            allocated: ResourceVector::new(),
            counted: Counted::of(&held.pod.class.requests),
            owners: users.iter().map(|user| user.pod.uid.clone()).collect(),
        };
        let mut nonzero: (i64, i64) = (0, 0);
        for requests in users.iter().map(|user| &user.pod.class.requests) {
            for id in &record.names {
                let used = sum.allocated.get(*id).saturating_add(requests.amounts.get(*id));
                sum.allocated.set(*id, used);
            }
            nonzero.0 = requests.nonzero_cpu_milli.saturating_add(nonzero.0);
            nonzero.1 = requests.nonzero_memory.saturating_add(nonzero.1);
        }
        let is_usable = record.phase == Phase::Available && record.owners.is_ok();
        let is_spent = record.is_once && !users.is_empty();
        let is_up_to_date =
            reserve.policy == record.policy && Arc::ptr_eq(&held.pod.class, &record.pod.class);
        if !is_usable || is_spent || !is_up_to_date {
            return Some(sum);
        }
        for id in &record.names {
            let (asked, used) = (sum.counted.amounts.get(*id), sum.allocated.get(*id));
            let held = record.allocatable.get(*id).min(asked).max(0);
            sum.counted.amounts.set(*id, asked.saturating_sub(used.clamp(0, held)));
        }
        let allocated = sum.allocated.clone();
        let over = |id: ResourceId| allocated.get(id).saturating_sub(record.allocatable.get(id)).max(0);
        if record.names.contains(&ResourceId::CPU) {
            sum.counted.nonzero_cpu_milli = sum.counted.nonzero_cpu_milli.saturating_sub(nonzero.0);
            sum.counted.overdrawn.cpu_milli = over(ResourceId::CPU);
        }
        if record.names.contains(&ResourceId::MEMORY) {
            sum.counted.nonzero_memory = sum.counted.nonzero_memory.saturating_sub(nonzero.1);
            sum.counted.overdrawn.memory = over(ResourceId::MEMORY);
        }
        Some(sum)
    }

    /// Reservations on nodes by name, from the pods.
    pub fn recount_reservations(&self) -> BTreeMap<Box<str>, ReservationSum> {
        let sums = self.all_held().filter_map(|held| {
            let name = held.pod.reserves.as_deref()?.into();
            Some((name, self.recount_reservation(held)?))
        });
        sums.collect()
    }

    /// The same, as the ledger has them.
    pub fn reservation_ledger(&self) -> BTreeMap<Box<str>, ReservationSum> {
        let placed = self.reservations().all().filter(|entry| entry.record.source == Source::Object);
        let sums = placed.filter_map(|entry| {
            entry.row?;
            let sum = ReservationSum {
                allocated: entry.allocated.clone(),
                counted: self.reservations().counted(&entry.record.pod)?.clone(),
                owners: entry.owners.iter().map(|owner| owner.pod.uid.clone()).collect(),
            };
            Some((entry.record.name.clone(), sum))
        });
        sums.collect()
    }

    /// The sums by node name, as the columns have them; nodes without pods left out.
    pub fn ledger(&self) -> BTreeMap<Box<str>, NodeSum> {
        let mut sums = BTreeMap::new();
        for (name, row) in &self.rows {
            let at = row.index();
            let mut uids: Vec<Box<str>> =
                self.node(*row).pods.all.iter().map(|pod| pod.uid.clone()).collect();
            uids.sort();
            let sum = NodeSum {
                requested: self.columns.requested(*row),
                nonzero_cpu_milli: self.columns.nonzero_cpu[at],
                nonzero_memory: self.columns.nonzero_memory[at],
                pods: self.columns.pods.requested[at],
                uids,
            };
            if sum != NodeSum::default() {
                sums.insert(name.clone(), sum);
            }
        }
        sums
    }
}
