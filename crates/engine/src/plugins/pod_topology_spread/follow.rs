//! The counts of a class's constraints, followed row by row.
//!
//! Under a key whose domains are shared, a row's key is its domain, and the domain's count is looked up when the class
//! is tried. Under one that every node has for itself, the count is the key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::soft::{Part, is_hostname, on_row};
use super::{Constraints, PodTopologySpread, column, count};
use crate::cluster::domains::{Domain, at};
use crate::cluster::matching::SetId;
use crate::cluster::{Cluster, Row};
use crate::framework::parts::{FilterPart, Follower, Judge, Keys, Rate, ScorePart};
use crate::framework::{Filter, Scope, Score};
use crate::number::truncated;
use crate::pod::{Class, SpreadConstraint};

impl PodTopologySpread {
    pub(super) fn filter_part(&self, cluster: &Cluster, class: &Arc<Class>) -> FilterPart {
        match Filter::scope(self, class) {
            Scope::Nothing => FilterPart::Nothing,
            _ => FilterPart::Tracked(Box::new(HardOnes { spread: Spread::of(cluster, class, true) })),
        }
    }

    pub(super) fn score_part(&self, cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        match Score::scope(self, class) {
            Scope::Nothing => ScorePart::Nothing,
            _ => ScorePart::Tracked(Box::new(SoftOnes { spread: Spread::of(cluster, class, false) })),
        }
    }
}

/// Either kind of constraints of a class.
struct Spread {
    class: Arc<Class>,
    constraints: Constraints,
    followed: Vec<Followed>,
    needs_all_keys: bool,
    /// At which numbers of sets mean what they do here.
    version: u64,
    /// What each row adds to the domains, constraint by constraint.
    shares: Vec<Share>,
    keys: Keys<Vec<i64>>,
    scratch: Vec<i64>,
}

/// One constraint and its counts.
struct Followed {
    constraint: SpreadConstraint,
    set: Option<SetId>,
    itself: i64,
    way: Way,
    domains: Vec<InDomain>,
    /// Domains that have a node that counts, by how many pods they have.
    tally: BTreeMap<i64, usize>,
}

/// How a row's part of the key comes about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The domain.
    Shared,
    /// The count of the domain, in which no other node is.
    Own,
    /// The count on the node, whoever else has its name.
    Node,
}

#[derive(Clone, Copy, Default)]
struct InDomain {
    /// Nodes that count.
    nodes: u32,
    pods: i64,
}

/// Domain 0 for a row that does not count.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    domain: Domain,
    pods: i64,
}

/// A row that lacks the label.
const LACKING: i64 = -1;

impl Spread {
    fn of(cluster: &Cluster, class: &Arc<Class>, is_hard: bool) -> Spread {
        let constraints = Constraints::of(cluster, class);
        let wanted = if is_hard { constraints.hard() } else { constraints.soft() };
        let followed = wanted.into_iter().map(|constraint| {
            let itself = cluster.matching().contains(&constraint.pods, class, &cluster.names);
            Followed {
                set: cluster.matching().set(&constraint.pods),
                itself: i64::from(itself),
                way: Way::of(cluster, &constraint, is_hard),
                constraint,
                domains: Vec::new(),
                tally: BTreeMap::new(),
            }
        });
        Spread {
            class: class.clone(),
            followed: followed.collect(),
            needs_all_keys: is_hard || !constraints.takes_any_key(),
            constraints,
            version: cluster.matching().version(),
            shares: Vec::new(),
            keys: Keys::default(),
            scratch: Vec::new(),
        }
    }

    fn is_current(&self, cluster: &Cluster) -> bool {
        let is_same = match &self.constraints {
            Constraints::Own(_) => true,
            Constraints::Default(spread) => {
                cluster.default_spread(&self.class).is_some_and(|now| Arc::ptr_eq(&now, spread))
            }
            Constraints::None => cluster.default_spread(&self.class).is_none(),
        };
        let keeps_way = |followed: &Followed| match followed.way {
            Way::Node => true,
            way => way == Way::of(cluster, &followed.constraint, true),
        };
        let is_numbered_so = self.followed.is_empty() || self.version == cluster.matching().version();
        is_same && is_numbered_so && self.keys.are_few(cluster) && self.followed.iter().all(keeps_way)
    }

    fn key(&mut self, cluster: &Cluster, row: Row) -> u32 {
        if self.followed.is_empty() {
            return 0;
        }
        let place = |followed: &Followed| column(cluster, &followed.constraint).map_or(0, |c| c.of(row));
        let has_all_keys = self.followed.iter().all(|followed| place(followed) != 0);
        let count = self.followed.len();
        if self.shares.len() < (row.index() + 1) * count {
            self.shares.resize((row.index() + 1) * count, Share::default());
        }
        self.scratch.clear();
        let shares = &mut self.shares[row.index() * count..][..count];
        for (followed, share) in self.followed.iter_mut().zip(shares) {
            let domain = place(followed);
            let pods = on_row(cluster, followed.set, row);
            if followed.way != Way::Node {
                let is_in = domain != 0
                    && (has_all_keys || !self.needs_all_keys)
                    && count::counts_here(cluster, &self.class, &followed.constraint, row);
                let now = if is_in { Share { domain, pods } } else { Share::default() };
                followed.replace(*share, now);
                *share = now;
            }
            self.scratch.push(match followed.way {
                _ if domain == 0 => LACKING,
                Way::Shared => i64::from(domain),
                Way::Own => share.pods,
                Way::Node => pods,
            });
        }
        self.keys.number(&self.scratch)
    }

    fn forget(&mut self, row: Row) {
        let count = self.followed.len();
        let shares = self.shares.get_mut(row.index() * count..).unwrap_or_default();
        for (followed, share) in self.followed.iter_mut().zip(shares) {
            followed.replace(std::mem::take(share), Share::default());
        }
    }
}

impl Way {
    fn of(cluster: &Cluster, constraint: &SpreadConstraint, is_by_domain: bool) -> Way {
        let is_of_hosts = || column(cluster, constraint).is_some_and(|column| column.is_of_hosts());
        match () {
            () if !is_by_domain && is_hostname(cluster, constraint) => Way::Node,
            () if is_of_hosts() => Way::Own,
            () => Way::Shared,
        }
    }
}

impl Followed {
    /// A row's share is another now.
    fn replace(&mut self, old: Share, new: Share) {
        if old == new {
            return;
        }
        self.add(old, -1);
        self.add(new, 1);
    }

    fn add(&mut self, share: Share, sign: i64) {
        if share.domain == 0 {
            return;
        }
        if self.domains.len() <= at(share.domain) {
            self.domains.resize(at(share.domain) + 1, InDomain::default());
        }
        let domain = &mut self.domains[at(share.domain)];
        let old = *domain;
        domain.nodes = domain.nodes.saturating_add_signed(if sign > 0 { 1 } else { -1 });
        domain.pods += sign * share.pods;
        let new = *domain;
        if old.nodes > 0 {
            let domains = self.tally.entry(old.pods).or_default();
            *domains -= 1;
            if *domains == 0 {
                self.tally.remove(&old.pods);
            }
        }
        if new.nodes > 0 {
            *self.tally.entry(new.pods).or_default() += 1;
        }
    }

    fn pods(&self, part: i64) -> i64 {
        match self.way {
            Way::Own | Way::Node => part,
            Way::Shared => {
                let domain = usize::try_from(part).ok().and_then(|domain| self.domains.get(domain));
                domain.map_or(0, |domain| domain.pods)
            }
        }
    }

    /// The fewest pods that any domain has; 0 while there are too few domains.
    fn fewest(&self) -> i64 {
        let domains = i64::try_from(self.tally.values().sum::<usize>()).unwrap_or(i64::MAX);
        match domains < self.constraint.min_domains {
            true => 0,
            false => self.tally.keys().next().copied().unwrap_or(0),
        }
    }
}

/// The hard constraints of a class.
struct HardOnes {
    spread: Spread,
}

impl Follower for HardOnes {
    fn is_current(&self, cluster: &Cluster) -> bool {
        self.spread.is_current(cluster)
    }

    fn is_fixed(&self) -> bool {
        self.spread.followed.is_empty()
    }

    fn is_idle(&self, _cluster: &Cluster) -> bool {
        self.spread.followed.is_empty()
    }

    fn key(&mut self, cluster: &Cluster, row: Row) -> u32 {
        self.spread.key(cluster, row)
    }

    fn forget(&mut self, row: Row) {
        self.spread.forget(row);
    }
}

impl Judge for HardOnes {
    fn judge(&mut self, _cluster: &Cluster, keys: &[u32], is_refused: &mut [bool]) {
        for (at, followed) in self.spread.followed.iter().enumerate() {
            let most = followed.fewest() + followed.constraint.max_skew - followed.itself;
            for (key, is_refused) in keys.iter().zip(is_refused.iter_mut()) {
                let part = self.spread.keys.get(*key)[at];
                *is_refused |= part == LACKING || followed.pods(part) > most;
            }
        }
    }
}

/// The soft constraints of a class.
struct SoftOnes {
    spread: Spread,
}

impl Follower for SoftOnes {
    fn is_current(&self, cluster: &Cluster) -> bool {
        self.spread.is_current(cluster)
    }

    fn is_fixed(&self) -> bool {
        self.spread.followed.is_empty()
    }

    fn is_idle(&self, _cluster: &Cluster) -> bool {
        self.spread.followed.is_empty()
    }

    fn key(&mut self, cluster: &Cluster, row: Row) -> u32 {
        self.spread.key(cluster, row)
    }

    fn forget(&mut self, row: Row) {
        self.spread.forget(row);
    }
}

impl SoftOnes {
    /// Rows with the key get nothing.
    fn ignores(&self, key: u32) -> bool {
        self.spread.needs_all_keys && self.spread.keys.get(key).contains(&LACKING)
    }

    /// How many values of a constraint's key there are among the rows; to have none is one, too.
    fn values(&self, constraint: usize, rows: &[(u32, usize)]) -> usize {
        let followed = &self.spread.followed[constraint];
        let part = |key: u32| self.spread.keys.get(key)[constraint];
        if followed.way == Way::Node {
            return rows.iter().map(|(_, count)| count).sum();
        }
        let lacking = usize::from(rows.iter().any(|(key, _)| part(*key) == LACKING));
        let with_label = rows.iter().filter(|(key, _)| part(*key) != LACKING);
        if followed.way == Way::Own {
            return lacking + with_label.map(|(_, count)| count).sum::<usize>();
        }
        let mut seen: Vec<i64> = with_label.map(|(key, _)| part(*key)).collect();
        seen.sort_unstable();
        seen.dedup();
        lacking + seen.len()
    }
}

impl Rate for SoftOnes {
    fn rate(&mut self, _cluster: &Cluster, keys: &[u32], counts: &[usize], scores: &mut [i64]) -> bool {
        let all = keys.iter().copied().zip(counts.iter().copied());
        let rows: Vec<(u32, usize)> = all.filter(|(key, _)| !self.ignores(*key)).collect();
        let parts = self.spread.followed.iter().enumerate().map(|(at, followed)| {
            let weighed = Part::new(&followed.constraint, (), self.values(at, &rows));
            (followed, weighed)
        });
        let parts: Vec<(&Followed, Part<()>)> = parts.collect();
        for (key, score) in keys.iter().zip(scores.iter_mut()) {
            let rated = parts.iter().zip(self.spread.keys.get(*key)).filter(|(_, part)| **part != LACKING);
            let sum: f64 = rated.map(|((followed, weighed), part)| weighed.rated(followed.pods(*part))).sum();
            *score = truncated(sum.round());
        }
        super::soft::normalize(scores, |at| self.ignores(keys[at]));
        true
    }
}
