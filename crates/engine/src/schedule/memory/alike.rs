//! Nodes in the same state, counted together: for a pod that only asks for room they are one node.
//!
//! A pod nobody has seen the like of is tried on states instead of nodes, 64 at a time, and blocks that cannot hold the
//! best one are left out. The choice is the same as if every node had been rated: the highest total, and each
//! of the nodes that have it as likely as any other.

use fearless_simd::Level;
use koord_api::resource::ResourceId;

use super::super::Framework;
use super::arithmetic::{Amounts, Ask, Block, Bounds, LANES, Lane, is_exact};
use super::assess::{Assessor, Fused};
use super::standing::Outcome;
use crate::cluster::{Cluster, Columns, Row};
use crate::framework::{Cycle, NodeView, Sieve, Status};
use crate::hash::QuickMap;
use crate::number::nearest;
use crate::pod::Class;
use crate::random::Random;

/// Every node by its state.
pub(super) struct Alike {
    level: Level,
    read_to: u64,
    ids: QuickMap<Key, u32>,
    states: Vec<State>,
    blocks: Vec<Block>,
    summaries: Vec<Summary>,
    free: Vec<u32>,
    /// Per row: its state and its place there.
    places: Vec<Option<(u32, u32)>>,
    /// Rows left out of one search.
    aside: Vec<Row>,
    ties: Vec<u32>,
    open: Vec<(f64, usize)>,
}

/// Everything of a row that counts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    allocatable: [i64; 4],
    requested: [i64; 4],
    nonzero: [i64; 2],
    taint_set: u32,
    is_unschedulable: bool,
    /// Scores are not of what is requested.
    overdrawn: [i64; 2],
}

#[derive(Default)]
struct State {
    key: Option<Key>,
    rows: Vec<Row>,
    /// Its amounts do not fit the fused arithmetic.
    is_odd: bool,
}

/// What is known of a block without looking at its states.
#[derive(Clone, Copy, Default)]
struct Summary {
    bounds: Bounds,
    /// Rows of states that are in the block's arithmetic.
    rows: usize,
    odd: usize,
    /// States that have taints or are cordoned.
    marked: usize,
    is_stale: bool,
}

impl Default for Alike {
    fn default() -> Alike {
        Alike {
            level: Level::new(),
            read_to: u64::MAX,
            ids: QuickMap::default(),
            states: Vec::new(),
            blocks: Vec::new(),
            summaries: Vec::new(),
            free: Vec::new(),
            places: Vec::new(),
            aside: Vec::new(),
            ties: Vec::new(),
            open: Vec::new(),
        }
    }
}

impl Key {
    fn of(columns: &Columns, row: Row) -> Key {
        let at = row.index();
        let all = [&columns.cpu, &columns.memory, &columns.storage, &columns.pods];
        Key {
            allocatable: all.map(|amounts| amounts.allocatable[at]),
            requested: all.map(|amounts| amounts.requested[at]),
            nonzero: [columns.nonzero_cpu[at], columns.nonzero_memory[at]],
            taint_set: columns.taint_set[at],
            is_unschedulable: columns.is_unschedulable[at],
            overdrawn: [columns.overdrawn[at].cpu_milli, columns.overdrawn[at].memory],
        }
    }

    fn amounts(&self) -> Amounts {
        Amounts {
            allocatable_cpu: self.allocatable[0],
            allocatable_memory: self.allocatable[1],
            used_cpu: self.requested[0],
            used_memory: self.requested[1],
            nonzero_cpu: self.nonzero[0],
            nonzero_memory: self.nonzero[1],
        }
    }

    fn storage_free(&self) -> i64 {
        self.allocatable[2].saturating_sub(self.requested[2])
    }

    fn has_room_for_pods(&self) -> bool {
        self.allocatable[3].saturating_sub(self.requested[3]) >= 1
    }

    fn is_marked(&self) -> bool {
        self.taint_set != 0 || self.is_unschedulable
    }
}

impl Alike {
    /// Follows the log.
    pub(super) fn caught_up(&mut self, cluster: &Cluster) -> &Alike {
        let log = cluster.changes();
        for row in std::mem::take(&mut self.aside) {
            self.regroup(&cluster.columns, row);
        }
        match log.since(self.read_to) {
            Some(changed) => changed.for_each(|row| self.regroup(&cluster.columns, row)),
            None => {
                *self = Alike { level: self.level, ..Alike::default() };
                (0..cluster.columns.rows())
                    .for_each(|at| self.regroup(&cluster.columns, Row::from_index(at)));
            }
        }
        self.read_to = log.end();
        for (summary, block) in self.summaries.iter_mut().zip(&self.blocks).filter(|(s, _)| s.is_stale) {
            (summary.bounds, summary.is_stale) = (block.bounds(), false);
        }
        self
    }

    /// Numbers of states are below this.
    pub(super) fn state_count(&self) -> usize {
        self.states.len()
    }

    pub(super) fn state_of(&self, row: Row) -> Option<usize> {
        self.places.get(row.index()).copied().flatten().map(|(state, _)| index(state))
    }

    fn regroup(&mut self, columns: &Columns, row: Row) {
        if self.places.len() <= row.index() {
            self.places.resize(row.index() + 1, None);
        }
        let key = columns.is_real[row.index()].then(|| Key::of(columns, row));
        if let Some((state, at)) = self.places[row.index()] {
            if self.states[index(state)].key == key {
                return;
            }
            self.leave(state, at);
        }
        self.places[row.index()] = key.map(|key| self.join(key, row));
    }

    /// Leaves a row out until it is looked at again.
    pub(super) fn set_aside(&mut self, row: Row) {
        if let Some((state, at)) = self.places.get_mut(row.index()).and_then(Option::take) {
            self.leave(state, at);
        }
        self.aside.push(row);
    }

    fn leave(&mut self, state: u32, at: u32) {
        let left = &mut self.states[index(state)];
        left.rows.swap_remove(index(at));
        if let Some(moved) = left.rows.get(index(at)) {
            self.places[moved.index()] = Some((state, at));
        }
        let (block, lane) = (index(state) / LANES, index(state) % LANES);
        let summary = &mut self.summaries[block];
        let Some(key) = left.key else { return };
        let is_counted = !left.is_odd && key.has_room_for_pods();
        summary.rows -= usize::from(is_counted);
        if left.rows.is_empty() {
            summary.odd -= usize::from(left.is_odd);
            summary.marked -= usize::from(key.is_marked());
            summary.is_stale |= is_counted;
            self.blocks[block].clear(lane);
            self.ids.remove(&key);
            left.key = None;
            self.free.push(state);
        }
    }

    fn join(&mut self, key: Key, row: Row) -> (u32, u32) {
        let id = match self.ids.get(&key) {
            Some(id) => *id,
            None => self.new_state(key),
        };
        let state = &mut self.states[index(id)];
        let at = u32::try_from(state.rows.len()).expect("fewer than 2^32 nodes");
        state.rows.push(row);
        let is_counted = !state.is_odd && key.has_room_for_pods();
        self.summaries[index(id) / LANES].rows += usize::from(is_counted);
        (id, at)
    }

    fn new_state(&mut self, key: Key) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.states.push(State::default());
            u32::try_from(self.states.len() - 1).expect("fewer states than nodes")
        });
        let (block, lane) = (index(id) / LANES, index(id) % LANES);
        if self.blocks.len() <= block {
            self.blocks.push(Block::default());
            self.summaries.push(Summary::default());
        }
        let (state, summary) = (&mut self.states[index(id)], &mut self.summaries[block]);
        state.key = Some(key);
        state.is_odd = !key.amounts().are_regular() || key.overdrawn != [0, 0];
        summary.odd += usize::from(state.is_odd);
        summary.marked += usize::from(key.is_marked());
        if !state.is_odd && key.has_room_for_pods() {
            self.blocks[block].set(lane, &key.amounts());
            summary.bounds.include(&self.blocks[block], lane);
        }
        self.ids.insert(key, id);
        id
    }
}

/// A search among states.
pub(super) struct Search<'a> {
    pub(super) framework: &'a Framework,
    pub(super) cycle: &'a Cycle<'a>,
    pub(super) assessor: &'a mut Assessor,
    ask: Ask,
    /// Nothing is asked for when zero.
    storage: i64,
    best: f64,
    feasible: usize,
    raws: Vec<i64>,
    /// Some state that passes gets something that has to be normalised, or a score is out of bounds.
    is_unknown: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        framework: &'a Framework,
        cycle: &'a Cycle<'a>,
        assessor: &'a mut Assessor,
        ask: Ask,
    ) -> Search<'a> {
        let storage = cycle.pod.class.requests.amounts.get(ResourceId::EPHEMERAL_STORAGE).max(0);
        let raws = Vec::new();
        Search { framework, cycle, assessor, ask, storage, best: -1.0, feasible: 0, raws, is_unknown: false }
    }

    /// The best of all rows.
    pub(super) fn choose(&mut self, alike: &mut Alike, random: &mut Random) -> Outcome {
        alike.ties.clear();
        alike.open.clear();
        let mut highest = (f64::NEG_INFINITY, 0);
        for (at, summary) in alike.summaries.iter().enumerate() {
            let is_simple = summary.odd == 0 && summary.marked == 0 && self.storage == 0;
            if is_simple && summary.bounds.fits_none(&self.ask) {
                continue;
            }
            let is_counted = is_simple && summary.bounds.fits_all(&self.ask);
            // One that has to be looked at anyway comes with the highest hopes.
            let bound = if is_counted { summary.bounds.total_max(&self.ask) } else { f64::INFINITY };
            if is_counted {
                self.feasible += summary.rows;
                highest = if bound > highest.0 { (bound, at) } else { highest };
            }
            alike.open.push((bound, at));
        }
        if highest.0 > f64::NEG_INFINITY {
            self.look(alike, highest.1, true);
        }
        for place in 0..alike.open.len() {
            let (bound, at) = alike.open[place];
            let is_done = highest.0 > f64::NEG_INFINITY && at == highest.1;
            if bound >= self.best && !is_done {
                self.look(alike, at, bound < f64::INFINITY);
            }
        }
        if self.is_unknown {
            return Outcome::Unknown;
        }
        self.draw(alike, random)
    }

    fn draw(&self, alike: &Alike, random: &mut Random) -> Outcome {
        if self.feasible == 0 {
            return Outcome::Nobody;
        }
        let best = || alike.ties.iter().map(|state| &alike.states[index(*state)].rows);
        let mut drawn = random.below(best().map(Vec::len).sum());
        for rows in best() {
            match rows.get(drawn) {
                Some(row) => return Outcome::Chosen { row: *row, feasible: self.feasible },
                None => drawn -= rows.len(),
            }
        }
        Outcome::Unknown
    }

    /// Rates the states of a block.
    fn look(&mut self, alike: &mut Alike, block: usize, is_counted: bool) {
        let mut totals: Lane = [-1.0; LANES];
        let highest = alike.blocks[block].rate(alike.level, &self.ask, &mut totals);
        let summary = alike.summaries[block];
        if summary.odd == 0 && summary.marked == 0 && self.storage == 0 {
            if !is_counted {
                let fitting = (0..LANES).filter(|lane| totals[*lane] >= 0.0);
                self.feasible +=
                    fitting.map(|lane| alike.states[block * LANES + lane].rows.len()).sum::<usize>();
            }
            if highest >= self.best && highest >= 0.0 {
                self.keep(&mut alike.ties, block, highest, &totals);
            }
            return;
        }
        let states = alike.states.iter().skip(block * LANES).take(LANES);
        let mut highest = -1.0f64;
        for (state, total) in states.zip(&mut totals) {
            *total = self.closer(state, *total);
            highest = highest.max(*total);
            self.feasible += if *total >= 0.0 { state.rows.len() } else { 0 };
        }
        if highest >= self.best && highest >= 0.0 {
            self.keep(&mut alike.ties, block, highest, &totals);
        }
    }

    fn keep(&mut self, ties: &mut Vec<u32>, block: usize, highest: f64, totals: &Lane) {
        if highest > self.best {
            ties.clear();
            self.best = highest;
        }
        let lanes = totals.iter().enumerate().filter(|(_, total)| **total == highest);
        ties.extend(lanes.filter_map(|(lane, _)| u32::try_from(block * LANES + lane).ok()));
    }

    /// The total of a state that is not like others, by the plugins' own code; -1 when it is refused.
    fn closer(&mut self, state: &State, total: f64) -> f64 {
        let (Some(key), Some(row)) = (&state.key, state.rows.first()) else { return -1.0 };
        let is_suspect = state.is_odd || key.is_marked();
        let is_short = self.storage > 0 && key.storage_free() < self.storage;
        if !is_suspect && (is_short || total < 0.0) {
            return -1.0;
        }
        if is_suspect && self.assessor.refusal(self.framework, self.cycle, *row).is_some() {
            return -1.0;
        }
        self.raws.clear();
        let node = NodeView::of(self.cycle.cluster, *row);
        self.assessor.raw_key(self.framework, self.cycle, &node, &mut self.raws);
        self.is_unknown |= self.raws.iter().any(|raw| *raw != 0);
        if !state.is_odd {
            return total;
        }
        match self.assessor.base(self.framework, self.cycle, *row) {
            Some(base) => nearest(base),
            None => {
                self.is_unknown = true;
                -1.0
            }
        }
    }

    /// Every verdict on the rows there are, once nobody passed.
    pub(super) fn refusals(&mut self, alike: &Alike) -> Sieve {
        let mut samples: Vec<Row> = Vec::new();
        let mut rejected = Vec::with_capacity(alike.places.len());
        for state in alike.states.iter().filter(|state| state.key.is_some()) {
            let Some(row) = state.rows.first() else { continue };
            let Some(number) = self.assessor.refusal(self.framework, self.cycle, *row) else { continue };
            if samples.len() <= index(number) {
                samples.resize(index(number) + 1, *row);
            }
            rejected.extend(state.rows.iter().map(|row| (*row, number)));
        }
        let told = |(at, row): (usize, &Row)| {
            self.assessor.told(self.framework, self.cycle, *row, u32::try_from(at).unwrap_or(0))
        };
        let statuses: Vec<Status> = samples.iter().enumerate().map(told).collect();
        Sieve::of_verdicts(statuses, rejected)
    }
}

/// What pods of a class ask for; none when the amounts are too large to be computed with.
pub(super) fn ask(class: &Class, fused: Fused) -> Option<Ask> {
    let requests = &class.requests;
    let (cpu, memory) = (requests.amounts.get(ResourceId::CPU), requests.amounts.get(ResourceId::MEMORY));
    let (nonzero_cpu, nonzero_memory) = (requests.scored_cpu_milli, requests.scored_memory);
    if ![cpu, memory, nonzero_cpu, nonzero_memory].into_iter().all(is_exact) {
        return None;
    }
    // What is not asked for fits even where more is taken than there is.
    let floor = |amount: i64| if amount > 0 { nearest(amount) } else { f64::MIN };
    Some(Ask {
        cpu_floor: floor(cpu),
        memory_floor: floor(memory),
        cpu: nearest(cpu),
        memory: nearest(memory),
        nonzero_cpu: nearest(nonzero_cpu),
        nonzero_memory: nearest(nonzero_memory),
        least_weight: nearest(fused.least_weight),
        cpu_weight: nearest(fused.cpu_weight),
        memory_weight: nearest(fused.memory_weight),
        balanced_weight: nearest(fused.balanced_weight),
    })
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
