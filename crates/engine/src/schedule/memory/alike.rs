//! Nodes in the same state, counted together: for a pod that only asks for room they are one node.
//!
//! A pod nobody has seen the like of is tried on states instead of nodes, 64 at a time, and blocks that cannot hold the
//! best one are left out: most of them, for states that are about as full lie in one block (`shelves`). The choice is
//! the same as if every node had been rated: the highest total, and each of the nodes that have it as likely as any
//! other.

use fearless_simd::Level;
use koord_api::resource::ResourceId;

use super::super::Framework;
use super::arithmetic::{Amounts, Ask, Block, Bounds, LANES, Lane};
use super::assess::Assessor;
use super::shelves::Shelves;
use super::standing::Outcome;
use crate::cluster::{Cluster, Columns, Row};
use crate::framework::{Cycle, NodeView, Sieve, Status};
use crate::hash::QuickMap;
use crate::number::nearest;
use crate::random::Random;

/// Every node by its state.
pub(super) struct Alike {
    level: Level,
    read_to: u64,
    ids: QuickMap<Key, u32>,
    /// By number: 64 for each block, used or not.
    states: Vec<State>,
    blocks: Vec<Block>,
    summaries: Vec<Summary>,
    /// Blocks that are used, by how full their states are.
    shelves: Shelves,
    /// Per row: its state and its place there.
    places: Vec<Option<(u32, u32)>>,
    /// Rows left out of one search.
    aside: Vec<Row>,
    /// The best states, and how many rows each has.
    ties: Vec<(u32, usize)>,
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
    /// A bit for each lane that has a state.
    used: u64,
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
            shelves: Shelves::default(),
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

    /// How full nodes in this state are: states that are near each other get totals near each other. Those that have
    /// less memory left than cpu come after all others, for what pods ask of the scarcer one decides.
    fn fullness(&self) -> f64 {
        if !self.amounts().are_regular() {
            return 0.0;
        }
        let share = |at: usize| nearest(self.nonzero[at]) / nearest(self.allocatable[at]);
        let (cpu, memory) = (share(0).min(1.0), share(1).min(1.0));
        if cpu >= memory { cpu } else { 2.0 + memory }
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
        match log.since(self.read_to).filter(|_| !self.shelves.are_sparse(self.ids.len())) {
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

    /// Rows in the same state, state by state: every node, once.
    pub(super) fn alike_rows(&self) -> impl Iterator<Item = &[Row]> {
        self.states.iter().map(|state| state.rows.as_slice()).filter(|rows| !rows.is_empty())
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
        let (rows, summary) = (&mut self.blocks[block].rows[lane], &mut self.summaries[block]);
        *rows = left.rows.len();
        let Some(key) = left.key else { return };
        summary.rows -= usize::from(!left.is_odd && key.has_room_for_pods());
        if left.rows.is_empty() {
            summary.forget(&key, 0, lane);
            self.blocks[block].clear(lane);
            self.ids.remove(&key);
            left.key = None;
            if summary.used == 0 {
                self.shelves.remove(block);
            }
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
        self.blocks[index(id) / LANES].rows[index(id) % LANES] = state.rows.len();
        let is_counted = !state.is_odd && key.has_room_for_pods();
        self.summaries[index(id) / LANES].rows += usize::from(is_counted);
        (id, at)
    }

    fn new_state(&mut self, key: Key) -> u32 {
        let fullness = key.fullness();
        let mut block = self.shelves.find(fullness);
        if self.summaries.get(block).is_some_and(|summary| summary.used == u64::MAX) {
            self.split(block);
            block = self.shelves.find(fullness);
        }
        self.make_room(block);
        let lane = index(self.summaries[block].used.trailing_ones());
        let id = u32::try_from(block * LANES + lane).expect("fewer than 2^32 states");
        self.put(id, key, Vec::new());
        self.ids.insert(key, id);
        id
    }

    /// Makes sure that a block is there.
    fn make_room(&mut self, block: usize) {
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, Block::default());
            self.summaries.resize(block + 1, Summary::default());
            self.states.resize_with((block + 1) * LANES, State::default);
        }
    }

    /// Moves the fuller half of a block's states into another.
    fn split(&mut self, block: usize) {
        let states = &self.states[block * LANES..][..LANES];
        let fullness = |state: &State| state.key.map_or(0.0, |key| key.fullness());
        let mut lanes: Vec<(f64, usize)> = states.iter().map(fullness).zip(0..).collect();
        lanes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let moving = &lanes[LANES / 2..];
        let other = self.shelves.split(block, moving[0].0);
        self.make_room(other);
        for (to, (_, from)) in moving.iter().enumerate() {
            let (old, new) = (block * LANES + from, other * LANES + to);
            let State { key, rows, .. } = std::mem::take(&mut self.states[old]);
            let (Some(key), Ok(new)) = (key, u32::try_from(new)) else { continue };
            self.summaries[block].forget(&key, rows.len(), *from);
            self.blocks[block].clear(*from);
            for row in &rows {
                self.places[row.index()] = self.places[row.index()].map(|(_, at)| (new, at));
            }
            self.ids.insert(key, new);
            self.put(new, key, rows);
        }
        self.summaries[block].is_stale = true;
    }

    /// Puts a state where nobody is.
    fn put(&mut self, id: u32, key: Key, rows: Vec<Row>) {
        let (block, lane) = (index(id) / LANES, index(id) % LANES);
        let (state, summary) = (&mut self.states[index(id)], &mut self.summaries[block]);
        let count = rows.len();
        let is_odd = !key.amounts().are_regular() || key.overdrawn != [0, 0];
        *state = State { key: Some(key), rows, is_odd };
        summary.used |= 1 << lane;
        summary.odd += usize::from(state.is_odd);
        summary.marked += usize::from(key.is_marked());
        self.blocks[block].rows[lane] = count;
        if !state.is_odd && key.has_room_for_pods() {
            summary.rows += count;
            self.blocks[block].set(lane, &key.amounts());
            summary.bounds.include(&self.blocks[block], lane);
        }
    }
}

impl Summary {
    /// A state goes with all its rows; bounds are worked out anew later.
    fn forget(&mut self, key: &Key, rows: usize, lane: usize) {
        let is_odd = !key.amounts().are_regular();
        let is_counted = !is_odd && key.has_room_for_pods();
        self.rows -= if is_counted { rows } else { 0 };
        self.odd -= usize::from(is_odd);
        self.marked -= usize::from(key.is_marked());
        self.used &= !(1 << lane);
        self.is_stale |= is_counted;
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
        let mut drawn = random.below(alike.ties.iter().map(|(_, rows)| rows).sum());
        for (state, rows) in &alike.ties {
            match drawn.checked_sub(*rows) {
                Some(rest) => drawn = rest,
                None => {
                    let row = alike.states[index(*state)].rows[drawn];
                    return Outcome::Chosen { row, feasible: self.feasible };
                }
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
                let lanes = totals.iter().zip(&alike.blocks[block].rows);
                self.feasible +=
                    lanes.filter(|(total, _)| **total >= 0.0).map(|(_, rows)| rows).sum::<usize>();
            }
            if highest >= self.best && highest >= 0.0 {
                self.keep(alike, block, highest, &totals);
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
            self.keep(alike, block, highest, &totals);
        }
    }

    fn keep(&mut self, alike: &mut Alike, block: usize, highest: f64, totals: &Lane) {
        if highest > self.best {
            alike.ties.clear();
            self.best = highest;
        }
        let states = (u32::try_from(block * LANES).unwrap_or(0)..).zip(&alike.blocks[block].rows);
        let best = states.zip(totals).filter(|(_, total)| **total == highest);
        alike.ties.extend(best.map(|((state, rows), _)| (state, *rows)));
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
        self.assessor.raw_key(self.framework, self.cycle, &node, None, &mut self.raws);
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
        let (mut rejected, mut numbers) = (Vec::with_capacity(alike.places.len()), Vec::new());
        for state in alike.states.iter().filter(|state| state.key.is_some()) {
            let Some(row) = state.rows.first() else { continue };
            let Some(number) = self.assessor.refusal(self.framework, self.cycle, *row) else { continue };
            if samples.len() <= index(number) {
                samples.resize(index(number) + 1, *row);
            }
            rejected.extend_from_slice(&state.rows);
            numbers.resize(rejected.len(), number);
        }
        let told = |(at, row): (usize, &Row)| {
            self.assessor.told(self.framework, self.cycle, *row, u32::try_from(at).unwrap_or(0))
        };
        let statuses: Vec<Status> = samples.iter().enumerate().map(told).collect();
        Sieve::of_verdicts(statuses, rejected, numbers)
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
