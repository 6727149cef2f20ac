//! What a plugin does for a class, in terms that the engine can keep up to date row by row.
//!
//! `check`, `score` and `normalize` stay the meaning of a plugin. A part only tells what that meaning depends on, so
//! that the answers for most nodes can be remembered from one attempt to the next (`schedule::memory`). A plugin
//! that has nothing to tell is asked about every node, every time.

use std::hash::Hash;

use koord_api::resource::ResourceId;

use crate::cluster::{Cluster, Columns, Row};
use crate::hash::QuickMap;

/// What the verdicts of a filter depend on, for pods of one class.
pub enum FilterPart {
    /// Every node passes.
    Nothing,
    /// Cordoned nodes are refused, all others pass.
    Cordoned,
    /// Only the set of taints on the node; one without taints passes.
    Taints,
    /// Room for these amounts and for one pod more.
    Room(Room),
    /// Anything of the row itself: its object and the pods there.
    Row,
    /// The row's key and the state of the cluster.
    Tracked(Box<dyn Judge>),
    /// Nobody knows.
    Opaque,
}

/// What the scores of a plugin depend on, for pods of one class.
pub enum ScorePart {
    /// Every node gets nothing.
    Nothing,
    /// Columns of the row; the score is final.
    Columns(Box<dyn ColumnScore>),
    /// Only the set of taints on the node; one without taints gets 0 before normalising.
    Taints(Normal),
    /// Anything of the row itself: its object and the pods there.
    Row(Normal),
    /// The row's key and the state of the cluster.
    Tracked(Box<dyn Rate>),
    /// Nobody knows.
    Opaque,
}

/// How raw scores become final ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normal {
    /// They are final.
    Final,
    /// `hooks::normalize_by_max`.
    ByMax { is_reversed: bool },
}

/// The amounts that a pod asks for, in the order shortages are named.
#[derive(Clone, Debug, Default)]
pub struct Room {
    pub wanted: Vec<(ResourceId, i64)>,
}

impl Room {
    /// Shortages are bits of a word: one for pods, one that says it is hopeless, and one for each amount.
    pub const WANTED_MAX: usize = 62;
    const HOPELESS: u64 = 1 << 63;

    /// Which amounts a row lacks; 0 when the pod fits. Equal numbers read alike.
    pub fn shortage(&self, columns: &Columns, row: Row) -> u64 {
        let mut lacking = u64::from(columns.pods.free(row) < 1);
        for (at, (id, wanted)) in self.wanted.iter().enumerate() {
            let amounts = columns.amounts(*id);
            let (free, allocatable) =
                amounts.map_or((0, 0), |amounts| (amounts.free(row), amounts.allocatable[row.index()]));
            if *wanted > free {
                lacking |= 2 << at;
                lacking |= if *wanted > allocatable { Room::HOPELESS } else { 0 };
            }
        }
        lacking
    }
}

/// A final score from columns alone.
pub trait ColumnScore: Send + Sync {
    fn score(&self, columns: &Columns, row: Row) -> i64;

    /// The formula, when it is one that the engine can compute for many nodes at once.
    fn formula(&self) -> Formula {
        Formula::Own
    }
}

/// Formulas over cpu and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// The weighted mean of what would be left, in percent, of amounts as scoring counts them.
    LeastAllocated {
        cpu_weight: i64,
        memory_weight: i64,
    },
    /// How even the shares taken would be.
    Balanced,
    Own,
}

/// Follows rows for one class, and gives each a key: rows with equal keys are judged and rated alike.
pub trait Follower: Send {
    /// Whether it still follows what matters to the class; otherwise another one takes its place.
    fn is_current(&self, cluster: &Cluster) -> bool;

    /// The key of a row that is new or has changed. Keys of other rows stay as they are.
    fn key(&mut self, cluster: &Cluster, row: Row) -> u32;

    /// Whether every row has the key 0 for good, and none is refused or gets anything.
    fn is_fixed(&self) -> bool {
        false
    }

    /// Whether, at the moment, no row is refused and none gets anything.
    fn is_idle(&self, _cluster: &Cluster) -> bool {
        false
    }

    /// Whether, at the moment, every row has the same key, and need not be asked about to be followed.
    fn is_uniform(&self, _cluster: &Cluster) -> bool {
        false
    }

    /// The row is no node any more.
    fn forget(&mut self, row: Row);
}

/// Filters by key.
pub trait Judge: Follower {
    /// Whether rows with these keys are refused, as the cluster is now; one entry for each.
    fn judge(&mut self, cluster: &Cluster, keys: &[u32], is_refused: &mut [bool]);
}

/// Scores by key.
pub trait Rate: Follower {
    /// Final scores of rows with these keys; `counts` says how many feasible rows each stands for. False when the
    /// plugin adds nothing to any node.
    fn rate(&mut self, cluster: &Cluster, keys: &[u32], counts: &[usize], scores: &mut [i64]) -> bool;
}

/// Keys as small numbers.
pub struct Keys<K> {
    ids: QuickMap<K, u32>,
    all: Vec<K>,
}

impl<K> Default for Keys<K> {
    fn default() -> Keys<K> {
        Keys { ids: QuickMap::default(), all: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash> Keys<K> {
    /// The number of a key, new if nobody had it before.
    pub fn number(&mut self, key: &K) -> u32 {
        if let Some(known) = self.ids.get(key) {
            return *known;
        }
        let number = u32::try_from(self.all.len()).expect("fewer keys than changes of rows");
        self.all.push(key.clone());
        self.ids.insert(key.clone(), number);
        number
    }

    /// A key that was numbered.
    pub fn get(&self, number: u32) -> &K {
        &self.all[usize::try_from(number).unwrap_or(usize::MAX)]
    }

    /// Keys that no row has any more pile up; a follower with too many of them is better made anew.
    pub fn are_few(&self, cluster: &Cluster) -> bool {
        self.all.len() <= 64 + 4 * cluster.columns.rows()
    }
}
