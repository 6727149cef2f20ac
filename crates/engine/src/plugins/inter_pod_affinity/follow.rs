//! What verdicts and scores of a class hang on, followed row by row.
//!
//! Under a key whose domains are shared, a row's key is its domain, and counts are looked up when the class is tried.
//! Under one that every node has for itself (hosts), what is counted on the row is the key.

use std::sync::Arc;

use super::{Args, InterPodAffinity, domain};
use crate::cluster::domains::{Domain, at};
use crate::cluster::matching::{Counts, HeldId, Role, SetId};
use crate::cluster::{Cluster, Row};
use crate::framework::parts::{FilterPart, Follower, Judge, Keys, Rate, ScorePart};
use crate::intern::Sym;
use crate::pod::Class;

impl InterPodAffinity {
    pub(super) fn filter_part(cluster: &Cluster, class: &Arc<Class>) -> FilterPart {
        FilterPart::Tracked(Box::new(Wishes::of(cluster, class)))
    }

    pub(super) fn score_part(&self, cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        match self.args.ignore_preferred_terms_of_existing_pods && class.preferred_pods.is_empty() {
            true => ScorePart::Nothing,
            false => ScorePart::Tracked(Box::new(Pulls::of(self.args, cluster, class))),
        }
    }
}

/// Whose pods are counted.
#[derive(Clone, Copy)]
enum Counted {
    Set(SetId),
    Holders(HeldId),
}

impl Counted {
    fn counts(self, cluster: &Cluster) -> &Counts {
        match self {
            Counted::Set(id) => cluster.matching().all(id),
            Counted::Holders(id) => cluster.matching().holders(id),
        }
    }
}

/// A term and where its key stands.
#[derive(Clone, Copy)]
struct Term {
    counted: Counted,
    key: Sym,
    /// Place among shared keys; none when every node has a domain of its own.
    shared: Option<usize>,
    weight: i64,
}

impl Term {
    /// Pods in the row's own domain.
    fn on(&self, cluster: &Cluster, row: Row) -> i64 {
        self.counted.counts(cluster).on(row)
    }

    /// Pods in a shared domain; none without the label.
    fn within(&self, cluster: &Cluster, domain: Domain) -> i64 {
        let counts = self.counted.counts(cluster).by_domain(self.key);
        counts.filter(|_| domain != 0).and_then(|counts| counts.get(at(domain))).copied().unwrap_or(0)
    }

    /// Pods in any domain.
    fn total(&self, cluster: &Cluster) -> i64 {
        let counts = self.counted.counts(cluster);
        counts.by_domain(self.key).map_or(0, |by_domain| counts.total() - by_domain.first().unwrap_or(&0))
    }
}

/// The keys of all terms, and what has to stay as it is.
struct Shape {
    class: Arc<Class>,
    shared: Vec<Sym>,
    own: Vec<Sym>,
    /// Terms of others that were looked at.
    meant_by: usize,
    /// At which numbers of sets and terms mean what they do here.
    version: u64,
}

impl Shape {
    fn of(cluster: &Cluster, class: &Arc<Class>) -> Shape {
        let (matching, class) = (cluster.matching(), class.clone());
        let (meant_by, version) = (matching.known_meant_by(&class).len(), matching.version());
        Shape { class, shared: Vec::new(), own: Vec::new(), meant_by, version }
    }

    fn term(&mut self, cluster: &Cluster, counted: Counted, key: Sym, weight: i64) -> Term {
        let is_own = cluster.domains().key(key).is_some_and(|column| column.is_of_hosts());
        let keys = if is_own { &mut self.own } else { &mut self.shared };
        let place = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        });
        Term { counted, key, shared: (!is_own).then_some(place), weight }
    }

    fn is_current(&self, cluster: &Cluster) -> bool {
        let is_of_hosts = |key: &Sym| cluster.domains().key(*key).is_some_and(|column| column.is_of_hosts());
        let matching = cluster.matching();
        let has_numbers = self.meant_by > 0 || !self.own.is_empty() || !self.shared.is_empty();
        (matching.version() == self.version || !has_numbers)
            && matching.known_meant_by(&self.class).len() == self.meant_by
            && self.own.iter().all(is_of_hosts)
            && !self.shared.iter().any(is_of_hosts)
    }

    fn domains(&self, cluster: &Cluster, row: Row, domains: &mut Vec<Domain>) {
        domains.clear();
        domains.extend(self.shared.iter().map(|key| domain(cluster, *key, row)));
    }
}

/// Required terms of a class, and those of others against it.
struct Wishes {
    shape: Shape,
    affinity: Vec<Term>,
    anti: Vec<Term>,
    /// Anti-affinity of others.
    others: Vec<Term>,
    matches_itself: bool,
    keys: Keys<WishKey>,
    scratch: WishKey,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct WishKey {
    domains: Vec<Domain>,
    /// Lacks the label of a host that pods are wanted on.
    is_lacking: bool,
    /// Lacks a pod that is wanted on the host.
    is_far: bool,
    /// Has a pod that must not be on the host.
    is_taken: bool,
    /// Has a pod that does not want this one on the host.
    is_resented: bool,
}

impl Wishes {
    fn of(cluster: &Cluster, class: &Arc<Class>) -> Wishes {
        let (matching, mut shape) = (cluster.matching(), Shape::of(cluster, class));
        let together = class.together.as_ref().and_then(|together| matching.set(together));
        let affinity = class
            .affinity
            .iter()
            .filter_map(|term| Some(shape.term(cluster, Counted::Set(together?), term.topology_key, 1)));
        let affinity = affinity.collect();
        let own = class
            .anti_affinity
            .iter()
            .filter_map(|term| Some((Counted::Set(matching.set(&term.pods)?), term.topology_key)));
        let others = matching.known_meant_by(class).iter().filter_map(|id| {
            let (term, role) = matching.held_term(*id);
            (role == Role::RequiredAnti).then_some((Counted::Holders(*id), term.topology_key))
        });
        let mut terms = |terms: Vec<(Counted, Sym)>| {
            terms.into_iter().map(|(counted, key)| shape.term(cluster, counted, key, 1)).collect()
        };
        let (anti, others) = (terms(own.collect()), terms(others.collect()));
        let itself = class.together.as_ref();
        let matches_itself = itself.is_some_and(|set| matching.contains(set, class, &cluster.names));
        Wishes {
            shape,
            affinity,
            anti,
            others,
            matches_itself,
            keys: Keys::default(),
            scratch: WishKey::default(),
        }
    }

    fn is_refused(&self, cluster: &Cluster, key: &WishKey, is_first: bool) -> bool {
        let place = |term: &Term| term.shared.map(|at| key.domains[at]);
        let mut is_far = key.is_far;
        for (term, place) in self.affinity.iter().filter_map(|term| Some((term, place(term)?))) {
            if place == 0 {
                return true;
            }
            is_far |= term.within(cluster, place) == 0;
        }
        let is_taken = |term: &Term| place(term).is_some_and(|place| term.within(cluster, place) > 0);
        key.is_lacking
            || is_far && !is_first
            || key.is_taken
            || key.is_resented
            || self.anti.iter().chain(&self.others).any(is_taken)
    }

    fn is_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti.is_empty() && self.others.is_empty()
    }
}

impl Follower for Wishes {
    fn is_current(&self, cluster: &Cluster) -> bool {
        self.keys.are_few(cluster) && self.shape.is_current(cluster)
    }

    fn is_fixed(&self) -> bool {
        self.is_empty()
    }

    fn is_idle(&self, _cluster: &Cluster) -> bool {
        self.is_empty()
    }

    fn key(&mut self, cluster: &Cluster, row: Row) -> u32 {
        if self.is_empty() {
            return 0;
        }
        let has_label = |term: &&Term| domain(cluster, term.key, row) != 0;
        let key = &mut self.scratch;
        self.shape.domains(cluster, row, &mut key.domains);
        let near = || self.affinity.iter().filter(|term| term.shared.is_none());
        key.is_lacking = !near().all(|term| has_label(&term));
        key.is_far = near().any(|term| term.on(cluster, row) == 0);
        let is_there = |terms: &[Term]| {
            let mut own = terms.iter().filter(|term| term.shared.is_none()).filter(has_label);
            own.any(|term| term.on(cluster, row) > 0)
        };
        (key.is_taken, key.is_resented) = (is_there(&self.anti), is_there(&self.others));
        self.keys.number(&self.scratch)
    }

    fn forget(&mut self, _row: Row) {}
}

impl Judge for Wishes {
    fn judge(&mut self, cluster: &Cluster, keys: &[u32], is_refused: &mut [bool]) {
        // The first pod of a group that wants itself has nobody to be near to.
        let is_first = self.matches_itself && self.affinity.iter().all(|term| term.total(cluster) == 0);
        for (key, is_refused) in keys.iter().zip(is_refused) {
            *is_refused = self.is_refused(cluster, self.keys.get(*key), is_first);
        }
    }
}

/// Preferred terms of a class and of others about it.
struct Pulls {
    shape: Shape,
    terms: Vec<Term>,
    keys: Keys<PullKey>,
    scratch: PullKey,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct PullKey {
    domains: Vec<Domain>,
    /// What hosts' own pods make.
    on_host: i64,
}

impl Pulls {
    fn of(args: Args, cluster: &Cluster, class: &Arc<Class>) -> Pulls {
        let (matching, mut shape) = (cluster.matching(), Shape::of(cluster, class));
        let own = class.preferred_pods.iter().filter_map(|weighted| {
            let set = matching.set(&weighted.term.pods)?;
            Some((Counted::Set(set), weighted.term.topology_key, weighted.weight))
        });
        let others = matching.known_meant_by(class).iter().filter_map(|id| {
            let (term, role) = matching.held_term(*id);
            let weight = match role {
                Role::RequiredAnti => return None,
                Role::Required => args.hard_pod_affinity_weight,
                Role::Preferred(weight) => weight,
            };
            Some((Counted::Holders(*id), term.topology_key, weight))
        });
        let terms = own.chain(others).filter(|(.., weight)| *weight != 0);
        let terms = terms.map(|(counted, key, weight)| shape.term(cluster, counted, key, weight)).collect();
        Pulls { shape, terms, keys: Keys::default(), scratch: PullKey::default() }
    }
}

impl Follower for Pulls {
    fn is_current(&self, cluster: &Cluster) -> bool {
        self.keys.are_few(cluster) && self.shape.is_current(cluster)
    }

    fn is_fixed(&self) -> bool {
        self.terms.is_empty()
    }

    fn is_idle(&self, cluster: &Cluster) -> bool {
        self.terms.iter().all(|term| term.counted.counts(cluster).total() == 0)
    }

    fn key(&mut self, cluster: &Cluster, row: Row) -> u32 {
        if self.terms.is_empty() {
            return 0;
        }
        let key = &mut self.scratch;
        self.shape.domains(cluster, row, &mut key.domains);
        let own = self.terms.iter().filter(|term| term.shared.is_none());
        let with_label = own.filter(|term| domain(cluster, term.key, row) != 0);
        key.on_host = with_label.map(|term| term.weight * term.on(cluster, row)).sum();
        self.keys.number(&self.scratch)
    }

    fn forget(&mut self, _row: Row) {}
}

impl Rate for Pulls {
    fn rate(&mut self, cluster: &Cluster, keys: &[u32], _counts: &[usize], scores: &mut [i64]) -> bool {
        if self.is_idle(cluster) {
            return false;
        }
        for (key, score) in keys.iter().zip(scores.iter_mut()) {
            let key = self.keys.get(*key);
            let shared = self
                .terms
                .iter()
                .filter_map(|term| Some(term.weight * term.within(cluster, key.domains[term.shared?])));
            *score = key.on_host + shared.sum::<i64>();
        }
        super::normalize(scores);
        true
    }
}
