//! Fit, LeastAllocated and BalancedAllocation of cpu and memory for 64 states of nodes at once.
//!
//! Every number here is an integer below 2^53 held in a double, so sums, products and floored quotients are exact, and
//! shares are the very quotients that the spec wants (scheduler-core 6.6, 6.7). Amounts that are too large for that
//! are kept out (`is_exact`) and go through the plugins' own code. The instruction set is chosen when the
//! program runs; without wide registers the same code is four times as slow and as right.

use fearless_simd::{Level, dispatch};

use crate::number::nearest;

/// States in a block.
pub(super) const LANES: usize = 64;

/// A hundred times an amount must stay below 2^53.
const AMOUNT_MAX: i64 = 1 << 46;

/// Whether an amount can be computed with here.
pub(super) fn is_exact(amount: i64) -> bool {
    (0..=AMOUNT_MAX).contains(&amount)
}

/// One number for each state.
pub(super) type Lane = [f64; LANES];

/// Amounts of 64 states. One that nobody is in, or that is counted elsewhere, has no room at all.
#[derive(Clone)]
pub(super) struct Block {
    free_cpu: Lane,
    free_memory: Lane,
    allocatable_cpu: Lane,
    allocatable_memory: Lane,
    used_cpu: Lane,
    used_memory: Lane,
    nonzero_cpu: Lane,
    nonzero_memory: Lane,
    /// Nodes in each state.
    pub(super) rows: [usize; LANES],
}

/// What is known of all states in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) free_cpu_max: f64,
    free_cpu_min: f64,
    free_memory_max: f64,
    free_memory_min: f64,
    /// Smallest shares taken, as scoring counts them and as they are.
    nonzero_cpu_min: f64,
    nonzero_memory_min: f64,
    used_cpu_min: f64,
    used_memory_min: f64,
    /// Smallest share that one unit takes.
    unit_cpu_min: f64,
    unit_memory_min: f64,
    /// Scoring counts no less than is really taken.
    counts_all: bool,
}

/// What a pod asks for, and how plugins weigh.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// The least room a node must have: the amount, or anything where nothing is asked.
    pub(super) cpu_floor: f64,
    pub(super) memory_floor: f64,
    pub(super) cpu: f64,
    pub(super) memory: f64,
    pub(super) nonzero_cpu: f64,
    pub(super) nonzero_memory: f64,
    pub(super) least_weight: f64,
    pub(super) cpu_weight: f64,
    pub(super) memory_weight: f64,
    pub(super) balanced_weight: f64,
}

/// The amounts of one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amounts {
    pub(super) allocatable_cpu: i64,
    pub(super) allocatable_memory: i64,
    pub(super) used_cpu: i64,
    pub(super) used_memory: i64,
    pub(super) nonzero_cpu: i64,
    pub(super) nonzero_memory: i64,
}

impl Amounts {
    /// Whether formulas hold as they are written here: amounts are exact, and there is some of each.
    pub(super) fn are_regular(&self) -> bool {
        let all = [
            self.allocatable_cpu,
            self.allocatable_memory,
            self.used_cpu,
            self.used_memory,
            self.nonzero_cpu,
            self.nonzero_memory,
        ];
        all.into_iter().all(is_exact) && self.allocatable_cpu > 0 && self.allocatable_memory > 0
    }
}

impl Ask {
    /// The total of one state that is regular; -1 where the pod does not fit.
    pub(super) fn total(&self, amounts: &Amounts) -> f64 {
        let there = [nearest(amounts.allocatable_cpu), nearest(amounts.allocatable_memory)];
        let used = [nearest(amounts.used_cpu), nearest(amounts.used_memory)];
        let nonzero = [nearest(amounts.nonzero_cpu), nearest(amounts.nonzero_memory)];
        one(self, [there[0] - used[0], there[1] - used[1]], there, used, nonzero)
    }
}

impl Default for Block {
    fn default() -> Block {
        Block {
            free_cpu: [f64::NEG_INFINITY; LANES],
            free_memory: [f64::NEG_INFINITY; LANES],
            allocatable_cpu: [1.0; LANES],
            allocatable_memory: [1.0; LANES],
            used_cpu: [0.0; LANES],
            used_memory: [0.0; LANES],
            nonzero_cpu: [0.0; LANES],
            nonzero_memory: [0.0; LANES],
            rows: [0; LANES],
        }
    }
}

impl Block {
    pub(super) fn set(&mut self, at: usize, amounts: &Amounts) {
        self.free_cpu[at] = nearest(amounts.allocatable_cpu - amounts.used_cpu);
        self.free_memory[at] = nearest(amounts.allocatable_memory - amounts.used_memory);
        self.allocatable_cpu[at] = nearest(amounts.allocatable_cpu);
        self.allocatable_memory[at] = nearest(amounts.allocatable_memory);
        self.used_cpu[at] = nearest(amounts.used_cpu);
        self.used_memory[at] = nearest(amounts.used_memory);
        self.nonzero_cpu[at] = nearest(amounts.nonzero_cpu);
        self.nonzero_memory[at] = nearest(amounts.nonzero_memory);
    }

    pub(super) fn clear(&mut self, at: usize) {
        self.free_cpu[at] = f64::NEG_INFINITY;
        self.free_memory[at] = f64::NEG_INFINITY;
    }

    /// Bounds of the states that have room for anything.
    pub(super) fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        for at in (0..LANES).filter(|at| self.free_cpu[*at] > f64::NEG_INFINITY) {
            bounds.include(self, at);
        }
        bounds
    }

    /// Totals of all states; -1 where the pod does not fit. Returns the highest.
    pub(super) fn rate(&self, level: Level, ask: &Ask, totals: &mut Lane) -> f64 {
        dispatch!(level, _simd => rate(self, ask, totals))
    }
}

impl Default for Bounds {
    /// Of no state.
    fn default() -> Bounds {
        Bounds {
            free_cpu_max: f64::NEG_INFINITY,
            free_cpu_min: f64::INFINITY,
            free_memory_max: f64::NEG_INFINITY,
            free_memory_min: f64::INFINITY,
            nonzero_cpu_min: f64::INFINITY,
            nonzero_memory_min: f64::INFINITY,
            used_cpu_min: f64::INFINITY,
            used_memory_min: f64::INFINITY,
            unit_cpu_min: f64::INFINITY,
            unit_memory_min: f64::INFINITY,
            counts_all: true,
        }
    }
}

impl Bounds {
    pub(super) fn include(&mut self, block: &Block, at: usize) {
        let (cpu, memory) = (block.allocatable_cpu[at], block.allocatable_memory[at]);
        self.free_cpu_max = self.free_cpu_max.max(block.free_cpu[at]);
        self.free_cpu_min = self.free_cpu_min.min(block.free_cpu[at]);
        self.free_memory_max = self.free_memory_max.max(block.free_memory[at]);
        self.free_memory_min = self.free_memory_min.min(block.free_memory[at]);
        self.nonzero_cpu_min = self.nonzero_cpu_min.min(block.nonzero_cpu[at] / cpu);
        self.nonzero_memory_min = self.nonzero_memory_min.min(block.nonzero_memory[at] / memory);
        self.used_cpu_min = self.used_cpu_min.min(block.used_cpu[at] / cpu);
        self.used_memory_min = self.used_memory_min.min(block.used_memory[at] / memory);
        self.unit_cpu_min = self.unit_cpu_min.min(1.0 / cpu);
        self.unit_memory_min = self.unit_memory_min.min(1.0 / memory);
        self.counts_all &= block.nonzero_cpu[at] >= block.used_cpu[at];
        self.counts_all &= block.nonzero_memory[at] >= block.used_memory[at];
    }

    /// No state has room.
    pub(super) fn fits_none(&self, ask: &Ask) -> bool {
        self.free_cpu_max < ask.cpu_floor || self.free_memory_max < ask.memory_floor
    }

    /// Every state has room.
    pub(super) fn fits_all(&self, ask: &Ask) -> bool {
        self.free_cpu_min >= ask.cpu_floor && self.free_memory_min >= ask.memory_floor
    }

    /// No total in the block is higher.
    ///
    /// Both scores of a node together are at most 200 less a hundred times its larger share, for what balance gains
    /// the rest loses; that holds when scoring counts no less than is really asked for.
    pub(super) fn total_max(&self, ask: &Ask) -> f64 {
        let cpu = self.nonzero_cpu_min + ask.nonzero_cpu * self.unit_cpu_min;
        let memory = self.nonzero_memory_min + ask.nonzero_memory * self.unit_memory_min;
        let (cpu_left, memory_left) = ((1.0 - cpu).max(0.0), (1.0 - memory).max(0.0));
        let weights = ask.cpu_weight + ask.memory_weight;
        let least = match weights > 0.0 {
            true => 100.0 * (cpu_left * ask.cpu_weight + memory_left * ask.memory_weight) / weights,
            false => 0.0,
        };
        let mut total = least * ask.least_weight + 100.0 * ask.balanced_weight;
        let counts_all = self.counts_all && ask.nonzero_cpu >= ask.cpu && ask.nonzero_memory >= ask.memory;
        if counts_all && ask.cpu_weight == ask.memory_weight {
            let cpu = (self.used_cpu_min + ask.cpu * self.unit_cpu_min).min(1.0);
            let memory = (self.used_memory_min + ask.memory * self.unit_memory_min).min(1.0);
            let both = ask.least_weight.min(ask.balanced_weight);
            let rest = least * (ask.least_weight - both) + 100.0 * (ask.balanced_weight - both);
            total = total.min((200.0 - 100.0 * cpu.max(memory)) * both + rest);
        }
        // Quotients here are near, not exact; a total is a whole number, so a little more than it does no harm.
        const SLACK: f64 = 1e-6;
        (total + SLACK * (1.0 + ask.least_weight + ask.balanced_weight)).floor()
    }
}

// Inlined into code compiled for each instruction set.
#[inline(always)]
fn rate(block: &Block, ask: &Ask, totals: &mut Lane) -> f64 {
    for (at, total) in totals.iter_mut().enumerate() {
        *total = one(
            ask,
            [block.free_cpu[at], block.free_memory[at]],
            [block.allocatable_cpu[at], block.allocatable_memory[at]],
            [block.used_cpu[at], block.used_memory[at]],
            [block.nonzero_cpu[at], block.nonzero_memory[at]],
        );
    }
    let mut highest = [-1.0f64; 8];
    for totals in totals.chunks_exact(8) {
        for (highest, total) in highest.iter_mut().zip(totals) {
            *highest = if *total > *highest { *total } else { *highest };
        }
    }
    highest.iter().copied().fold(-1.0, f64::max)
}

/// One state, by what there is, what is taken and what scoring counts, of cpu and memory each.
#[inline(always)]
fn one(ask: &Ask, free: [f64; 2], there: [f64; 2], used: [f64; 2], nonzero: [f64; 2]) -> f64 {
    let weights = if ask.least_weight > 0.0 { ask.cpu_weight + ask.memory_weight } else { 1.0 };
    let fits = (free[0] >= ask.cpu_floor) & (free[1] >= ask.memory_floor);
    let cpu_left = percent_left(there[0], nonzero[0] + ask.nonzero_cpu);
    let memory_left = percent_left(there[1], nonzero[1] + ask.nonzero_memory);
    let least = ((cpu_left * ask.cpu_weight + memory_left * ask.memory_weight) / weights).floor();
    let cpu_share = share(used[0] + ask.cpu, there[0]);
    let memory_share = share(used[1] + ask.memory, there[1]);
    let balanced = ((1.0 - ((cpu_share - memory_share) / 2.0).abs()) * 100.0).floor();
    let sum = least * ask.least_weight + balanced * ask.balanced_weight;
    if fits { sum } else { -1.0 }
}

#[inline(always)]
fn percent_left(allocatable: f64, requested: f64) -> f64 {
    let left = allocatable - requested;
    if left < 0.0 { 0.0 } else { (left * 100.0 / allocatable).floor() }
}

#[inline(always)]
fn share(requested: f64, allocatable: f64) -> f64 {
    let share = requested / allocatable;
    if share < 1.0 { share } else { 1.0 }
}
