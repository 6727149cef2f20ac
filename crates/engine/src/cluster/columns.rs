//! What the hot loops read: one array per quantity, one entry per row.

use koord_api::resource::{ResourceId, ResourceTable, ResourceVector};

use super::reservations::{Counted, Overdrawn};
use super::{Node, Row};
use crate::requests::Requests;

/// Structure of arrays; all arrays are of one length.
#[derive(Debug, Default)]
pub struct Columns {
    /// A node object exists; otherwise the row is a ghost or unused, and nothing may be placed there.
    pub is_real: Vec<bool>,
    pub is_unschedulable: Vec<bool>,
    pub taint_set: Vec<u32>,
    pub cpu: Amounts,
    pub memory: Amounts,
    pub storage: Amounts,
    pub pods: Amounts,
    /// Requests as scoring counts them.
    pub nonzero_cpu: Vec<i64>,
    pub nonzero_memory: Vec<i64>,
    /// What scoring takes off what is requested: see `Counted`.
    pub overdrawn: Vec<Overdrawn>,
    /// The lowest priority of a pod on the row; the highest there is without pods. Where it is no lower than a pod's
    /// own, that pod need not look for anyone to take away.
    pub lowest_priority: Vec<i32>,
    /// Every other resource that some node has or some pod on a node asks for.
    scalars: Vec<(ResourceId, Amounts)>,
    /// How many real rows are cordoned: mostly none, and then nobody looks.
    unschedulable_count: usize,
    /// A pod that was counted asked for less than nothing, or for so much that a sum may have been cut off, or used a
    /// reservation.
    has_odd_sums: bool,
}

/// A thousand pods of a node that ask for so much each stay below what a sum can hold.
const AMOUNT_MAX: i64 = 1 << 53;

/// What there is of one resource and what is taken, per row.
#[derive(Clone, Debug, Default)]
pub struct Amounts {
    pub allocatable: Vec<i64>,
    pub requested: Vec<i64>,
}

impl Amounts {
    fn grow(&mut self) {
        self.allocatable.push(0);
        self.requested.push(0);
    }

    pub fn free(&self, row: Row) -> i64 {
        self.allocatable[row.index()].saturating_sub(self.requested[row.index()])
    }
}

impl Columns {
    pub fn rows(&self) -> usize {
        self.is_real.len()
    }

    /// The amounts of a resource; none when no node has it and no pod on a node asks for it.
    pub fn amounts(&self, id: ResourceId) -> Option<&Amounts> {
        match id {
            ResourceId::CPU => Some(&self.cpu),
            ResourceId::MEMORY => Some(&self.memory),
            ResourceId::EPHEMERAL_STORAGE => Some(&self.storage),
            ResourceId::PODS => Some(&self.pods),
            id => self.scalars.iter().find(|(known, _)| *known == id).map(|(_, amounts)| amounts),
        }
    }

    pub fn has_unschedulable(&self) -> bool {
        self.unschedulable_count > 0
    }

    /// Whether what is requested on a row may be less than what the pods there ask for. Once so, for good: it comes
    /// with the first owner of a reservation, or with objects that no API server lets through.
    pub fn has_odd_sums(&self) -> bool {
        self.has_odd_sums
    }

    pub(super) fn grow(&mut self) {
        self.is_real.push(false);
        self.is_unschedulable.push(false);
        self.taint_set.push(0);
        self.nonzero_cpu.push(0);
        self.nonzero_memory.push(0);
        self.overdrawn.push(Overdrawn::default());
        self.lowest_priority.push(i32::MAX);
        for amounts in [&mut self.cpu, &mut self.memory, &mut self.storage, &mut self.pods] {
            amounts.grow();
        }
        self.scalars.iter_mut().for_each(|(_, amounts)| amounts.grow());
    }

    /// What a node object says of its row.
    pub(super) fn set_node(
        &mut self,
        row: Row,
        allocatable: &ResourceVector,
        node: &Node,
        table: &ResourceTable,
    ) {
        self.clear_node(row);
        let at = row.index();
        self.is_real[at] = true;
        self.is_unschedulable[at] = node.is_unschedulable;
        self.unschedulable_count += usize::from(node.is_unschedulable);
        self.taint_set[at] = node.taint_set;
        for (id, units) in allocatable.iter() {
            if let Some(amounts) = self.amounts_mut(id, table) {
                amounts.allocatable[at] = units;
            }
        }
    }

    /// Forgets the node object, not the pods counted on the row.
    pub(super) fn clear_node(&mut self, row: Row) {
        let at = row.index();
        self.unschedulable_count -= usize::from(self.is_real[at] && self.is_unschedulable[at]);
        self.is_real[at] = false;
        self.is_unschedulable[at] = false;
        self.taint_set[at] = 0;
        for amounts in self.all_mut() {
            amounts.allocatable[at] = 0;
        }
    }

    /// Makes the row fit for another node.
    pub(super) fn clear_row(&mut self, row: Row) {
        self.clear_node(row);
        let at = row.index();
        (self.nonzero_cpu[at], self.nonzero_memory[at]) = (0, 0);
        self.overdrawn[at] = Overdrawn::default();
        self.lowest_priority[at] = i32::MAX;
        for amounts in self.all_mut() {
            amounts.requested[at] = 0;
        }
    }

    /// Adds a pod's amounts `times` over: 1, or -1 to take them away.
    pub(super) fn add(&mut self, row: Row, requests: &Requests, times: i64, table: &ResourceTable) {
        let at = row.index();
        self.has_odd_sums |= requests.amounts.iter().any(|(_, units)| !(0..=AMOUNT_MAX).contains(&units));
        self.add_amounts(row, &requests.amounts, times, table);
        self.pods.requested[at] += times;
        let (cpu, memory) = (requests.nonzero_cpu_milli, requests.nonzero_memory);
        self.nonzero_cpu[at] = self.nonzero_cpu[at].saturating_add(cpu.saturating_mul(times));
        self.nonzero_memory[at] = self.nonzero_memory[at].saturating_add(memory.saturating_mul(times));
    }

    /// The same for what a pod counts for in place of what it asks; the pod itself is not counted.
    pub(super) fn count(&mut self, row: Row, counted: &Counted, times: i64, table: &ResourceTable) {
        let at = row.index();
        // What owners take of a reservation is not taken off the node a second time.
        self.has_odd_sums = true;
        self.add_amounts(row, &counted.amounts, times, table);
        let add = |sum: &mut i64, by: i64| *sum = sum.saturating_add(by.saturating_mul(times));
        add(&mut self.nonzero_cpu[at], counted.nonzero_cpu_milli);
        add(&mut self.nonzero_memory[at], counted.nonzero_memory);
        add(&mut self.overdrawn[at].cpu_milli, counted.overdrawn.cpu_milli);
        add(&mut self.overdrawn[at].memory, counted.overdrawn.memory);
    }

    /// The number of pods is counted, whatever one may ask for under that name.
    fn add_amounts(&mut self, row: Row, amounts: &ResourceVector, times: i64, table: &ResourceTable) {
        let at = row.index();
        for (id, units) in amounts.iter().filter(|(id, _)| *id != ResourceId::PODS) {
            if let Some(amounts) = self.amounts_mut(id, table) {
                amounts.requested[at] = amounts.requested[at].saturating_add(units.saturating_mul(times));
            }
        }
    }

    /// What is requested of a resource on a row as scoring counts it.
    pub fn scored(&self, amounts: &Amounts, id: ResourceId, row: Row) -> i64 {
        let overdrawn = self.overdrawn[row.index()].of(id);
        amounts.requested[row.index()].saturating_sub(overdrawn)
    }

    /// Whether a sum of the row has reached the end of its range, so that nothing can be taken off it any more.
    pub(super) fn is_saturated(&self, row: Row) -> bool {
        let at = row.index();
        let named = [&self.cpu, &self.memory, &self.storage, &self.pods];
        let amounts = named.into_iter().chain(self.scalars.iter().map(|(_, amounts)| amounts));
        let sums = amounts.map(|amounts| amounts.requested[at]);
        sums.chain([self.nonzero_cpu[at], self.nonzero_memory[at]])
            .any(|sum| sum == i64::MAX || sum == i64::MIN)
    }

    /// Counts anew what the row's pods count for. Sums that leave their range come out at its end, whatever the order.
    pub(super) fn recount(&mut self, row: Row, all: impl Iterator<Item = Counted>, table: &ResourceTable) {
        let at = row.index();
        (self.nonzero_cpu[at], self.nonzero_memory[at]) = (0, 0);
        self.overdrawn[at] = Overdrawn::default();
        self.all_mut().for_each(|amounts| amounts.requested[at] = 0);
        let mut nonzero = (0i128, 0i128);
        for counted in all {
            self.pods.requested[at] += 1;
            self.count(row, &counted, 1, table);
            nonzero.0 += i128::from(counted.nonzero_cpu_milli);
            nonzero.1 += i128::from(counted.nonzero_memory);
        }
        (self.nonzero_cpu[at], self.nonzero_memory[at]) = (clamped(nonzero.0), clamped(nonzero.1));
    }

    /// What is requested on a row, pods left out.
    pub(super) fn requested(&self, row: Row) -> ResourceVector {
        let mut vector = ResourceVector::new();
        let named = [
            (ResourceId::CPU, &self.cpu),
            (ResourceId::MEMORY, &self.memory),
            (ResourceId::EPHEMERAL_STORAGE, &self.storage),
        ];
        let scalars = self.scalars.iter().map(|(id, amounts)| (*id, amounts));
        for (id, amounts) in named.into_iter().chain(scalars) {
            vector.set(id, amounts.requested[row.index()]);
        }
        vector
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Amounts> {
        let named = [&mut self.cpu, &mut self.memory, &mut self.storage, &mut self.pods];
        named.into_iter().chain(self.scalars.iter_mut().map(|(_, amounts)| amounts))
    }

    /// The column of a resource, made at first use; none for names that are no resource of a node.
    fn amounts_mut(&mut self, id: ResourceId, table: &ResourceTable) -> Option<&mut Amounts> {
        match id {
            ResourceId::CPU => return Some(&mut self.cpu),
            ResourceId::MEMORY => return Some(&mut self.memory),
            ResourceId::EPHEMERAL_STORAGE => return Some(&mut self.storage),
            ResourceId::PODS => return Some(&mut self.pods),
            _ => {}
        }
        let at = match self.scalars.iter().position(|(known, _)| *known == id) {
            Some(at) => at,
            None if is_scalar(table.name(id)) => {
                let zeros = vec![0; self.rows()];
                self.scalars.push((id, Amounts { allocatable: zeros.clone(), requested: zeros }));
                self.scalars.len() - 1
            }
            None => return None,
        };
        Some(&mut self.scalars[at].1)
    }
}

/// The nearest that a column can hold.
pub(super) fn clamped(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

/// Resources counted beside the four named ones. Spec: scheduler-core 2.1.
pub fn is_scalar(name: &str) -> bool {
    let is_extended = name.contains('/') && !name.starts_with("requests.");
    is_extended || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}
