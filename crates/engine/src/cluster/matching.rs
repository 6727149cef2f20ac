//! Which pods a term or constraint speaks of, counted as pods come and go.
//!
//! A `PodSet` that somebody asks about is followed: how many of its pods each node has, and each domain of
//! the keys it is asked with. Terms that pods on nodes hold (anti-affinity above all) are counted by where
//! their holders are. Whether a class of pods is in a set is decided once and remembered, so that a pod's
//! coming costs a few additions however many pods there are.

use std::collections::HashMap;
use std::sync::Arc;

use koord_api::selector::Labels;

use super::Row;
use super::domains::{Domain, Domains, at};
use crate::hash::QuickMap;
use crate::intern::{Names, Sym};
use crate::pod::Class;
use crate::pod::term::{PodSet, PodTerm};

mod sweep;

/// A set that is followed. Numbers keep their meaning while `Matching::version` stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetId(u32);

/// A term that pods on nodes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeldId(u32);

/// What a held term means to other pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// They must stay away.
    RequiredAnti,
    /// They are needed, so they are welcome.
    Required,
    /// They are welcome or not, by weight.
    Preferred(i64),
}

/// Pods per node and per domain.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    rows: QuickMap<Row, i64>,
    /// Per followed key; entry 0 counts pods on nodes without the label.
    domains: Vec<(Sym, Vec<i64>)>,
    total: i64,
}

impl Counts {
    /// On one node.
    pub fn on(&self, row: Row) -> i64 {
        self.rows.get(&row).copied().unwrap_or(0)
    }

    /// Nodes that have any, in no order.
    pub fn rows(&self) -> impl Iterator<Item = (Row, i64)> + '_ {
        self.rows.iter().map(|(row, count)| (*row, *count))
    }

    /// Per domain of a key; none when the key is not followed.
    pub fn by_domain(&self, key: Sym) -> Option<&[i64]> {
        self.domains.iter().find(|(known, _)| *known == key).map(|(_, counts)| counts.as_slice())
    }

    pub fn total(&self) -> i64 {
        self.total
    }

    fn follow(&mut self, key: Sym, domains: &Domains) {
        if self.by_domain(key).is_some() {
            return;
        }
        let mut counts = Vec::new();
        if let Some(column) = domains.key(key) {
            self.rows.iter().for_each(|(row, count)| add(&mut counts, column.of(*row), *count));
        }
        self.domains.push((key, counts));
    }

    fn add(&mut self, row: Row, by: i64, domains: &Domains) {
        let count = self.rows.entry(row).or_default();
        *count += by;
        if *count == 0 {
            self.rows.remove(&row);
        }
        self.total += by;
        for (key, counts) in &mut self.domains {
            if let Some(column) = domains.key(*key) {
                add(counts, column.of(row), by);
            }
        }
    }

    /// Takes a row's part out of the domains, or puts it back: its labels change in between.
    fn shift(&mut self, row: Row, sign: i64, domains: &Domains) {
        let count = self.on(row) * sign;
        if count == 0 {
            return;
        }
        for (key, counts) in &mut self.domains {
            if let Some(column) = domains.key(*key) {
                add(counts, column.of(row), count);
            }
        }
    }
}

fn add(counts: &mut Vec<i64>, domain: Domain, by: i64) {
    if counts.len() <= at(domain) {
        counts.resize(at(domain) + 1, 0);
    }
    counts[at(domain)] += by;
}

/// Everything that is followed.
#[derive(Debug, Default)]
pub struct Matching {
    sets: Vec<FollowedSet>,
    set_ids: HashMap<Arc<PodSet>, SetId>,
    held: Vec<HeldTerm>,
    held_ids: HashMap<(PodTerm, Role), HeldId>,
    /// By address: classes are shared, so equal ones are the same one.
    classes: QuickMap<usize, Memo>,
    namespaces: HashMap<Box<str>, std::collections::BTreeMap<String, String>>,
    version: u64,
    /// Attempts since it was looked for what nobody needs any more.
    attempts: usize,
}

#[derive(Debug)]
struct FollowedSet {
    set: Arc<PodSet>,
    /// All pods of the set, and those of them that are being deleted.
    all: Counts,
    deleting: Counts,
}

#[derive(Debug)]
struct HeldTerm {
    term: PodTerm,
    role: Role,
    holders: Counts,
}

/// How much was followed at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Following {
    sets: usize,
}

/// What is known of a class; what was followed later is looked at when it is asked for.
#[derive(Debug)]
struct Memo {
    class: Arc<Class>,
    /// How many sets there were when all that the class asks about was followed last.
    attended: Option<usize>,
    sets_seen: usize,
    in_sets: Vec<SetId>,
    held_seen: usize,
    /// Terms of others that speak of this class.
    meant_by: Vec<HeldId>,
    /// Its own terms, held by every pod of it.
    holds: Option<Vec<HeldId>>,
    /// Pods of it on nodes.
    pods: QuickMap<Row, (i64, i64)>,
}

impl Memo {
    fn new(class: &Arc<Class>) -> Memo {
        Memo {
            class: class.clone(),
            attended: None,
            sets_seen: 0,
            in_sets: Vec::new(),
            held_seen: 0,
            meant_by: Vec::new(),
            holds: None,
            pods: QuickMap::default(),
        }
    }
}

fn address(class: &Arc<Class>) -> usize {
    Arc::as_ptr(class).addr()
}

/// Labels of a class, as selectors read them.
pub(crate) struct ClassLabels<'a> {
    pub(crate) class: &'a Class,
    pub(crate) names: &'a Names,
}

impl Labels for ClassLabels<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        let value = self.class.label(self.names.find(key)?)?;
        Some(self.names.text(value))
    }
}

/// Whether pods of a class are in a set.
pub fn is_in(
    class: &Class,
    set: &PodSet,
    names: &Names,
    namespace_labels: Option<&std::collections::BTreeMap<String, String>>,
) -> bool {
    let empty = std::collections::BTreeMap::new();
    // Differs: for the terms of the pod that is placed, kube-scheduler asks such a selector once more with no labels at
    // all, so that one for lack of a label means every namespace.
    let by_labels =
        |selector: &koord_api::selector::Selector| selector.matches(namespace_labels.unwrap_or(&empty));
    let is_near = set.namespaces.iter().any(|name| **name == *class.namespace)
        || set.namespace_selector.as_ref().is_some_and(by_labels);
    is_near
        && set.selector.matches(&ClassLabels { class, names })
        && set.and.iter().all(|also| is_in(class, also, names, namespace_labels))
}

impl Matching {
    /// Follows a set under a key; pods that are there already are counted now.
    pub(super) fn follow(&mut self, set: &Arc<PodSet>, key: Sym, names: &Names, domains: &Domains) -> SetId {
        let id = match self.set_ids.get(set) {
            Some(id) => *id,
            None => {
                let id = SetId(u32::try_from(self.sets.len()).expect("fewer sets than pods"));
                let mut followed =
                    FollowedSet { set: set.clone(), all: Counts::default(), deleting: Counts::default() };
                for memo in self.classes.values() {
                    let labels = self.namespaces.get(&*memo.class.namespace);
                    if memo.pods.is_empty() || !is_in(&memo.class, set, names, labels) {
                        continue;
                    }
                    for (row, (all, deleting)) in &memo.pods {
                        followed.all.add(*row, *all, domains);
                        if *deleting != 0 {
                            followed.deleting.add(*row, *deleting, domains);
                        }
                    }
                }
                self.sets.push(followed);
                self.set_ids.insert(set.clone(), id);
                id
            }
        };
        let followed = &mut self.sets[index(id.0)];
        followed.all.follow(key, domains);
        followed.deleting.follow(key, domains);
        id
    }

    pub(super) fn following(&self) -> Following {
        Following { sets: self.sets.len() }
    }

    /// Forgets sets that are followed since then, and what is known of classes without pods on nodes.
    pub(super) fn stop_following(&mut self, since: Following, classes: &[Arc<Class>]) {
        for address in classes.iter().map(address) {
            if self.classes.get(&address).is_some_and(|memo| memo.pods.is_empty()) {
                self.classes.remove(&address);
            }
        }
        if self.sets.len() == since.sets {
            return;
        }
        self.sets.truncate(since.sets);
        self.set_ids.retain(|_, id| index(id.0) < since.sets);
        for memo in self.classes.values_mut() {
            memo.sets_seen = memo.sets_seen.min(since.sets);
            memo.in_sets.retain(|id| index(id.0) < since.sets);
            memo.attended = memo.attended.filter(|sets| *sets <= since.sets);
        }
    }

    /// Whether all that a class asks about is followed. What pods get by default is not looked at.
    pub(super) fn is_attended(&self, class: &Arc<Class>) -> bool {
        self.classes.get(&address(class)).is_some_and(|memo| memo.attended.is_some())
    }

    pub(super) fn set_attended(&mut self, class: &Arc<Class>) {
        let sets = self.sets.len();
        self.classes.entry(address(class)).or_insert_with(|| Memo::new(class)).attended = Some(sets);
    }

    /// Numbers keep their meaning while this stays the same.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether pods of a class are in a set, followed or not.
    pub fn contains(&self, set: &PodSet, class: &Class, names: &Names) -> bool {
        is_in(class, set, names, self.namespaces.get(&*class.namespace))
    }

    pub fn set(&self, set: &PodSet) -> Option<SetId> {
        self.set_ids.get(set).copied()
    }

    /// What a number stands for.
    pub fn pods(&self, id: SetId) -> &PodSet {
        &self.sets[index(id.0)].set
    }

    /// Pods of a set; those being deleted are among them.
    pub fn all(&self, id: SetId) -> &Counts {
        &self.sets[index(id.0)].all
    }

    /// Pods of a set that are being deleted.
    pub fn deleting(&self, id: SetId) -> &Counts {
        &self.sets[index(id.0)].deleting
    }

    /// Where the holders of a term are.
    pub fn holders(&self, id: HeldId) -> &Counts {
        &self.held[index(id.0)].holders
    }

    pub fn held_term(&self, id: HeldId) -> (&PodTerm, Role) {
        let held = &self.held[index(id.0)];
        (&held.term, held.role)
    }

    /// Terms of pods on nodes that speak of pods of this class.
    pub(super) fn meant_by(&mut self, class: &Arc<Class>, names: &Names) -> &[HeldId] {
        let labels = self.namespaces.get(&*class.namespace);
        let memo = self.classes.entry(address(class)).or_insert_with(|| Memo::new(class));
        for (at, held) in self.held.iter().enumerate().skip(memo.held_seen) {
            if is_in(class, &held.term.pods, names, labels) {
                memo.meant_by.push(HeldId(u32::try_from(at).unwrap_or(u32::MAX)));
            }
        }
        memo.held_seen = self.held.len();
        &memo.meant_by
    }

    /// As `meant_by`, for a class that has been looked at in this state.
    pub fn known_meant_by(&self, class: &Arc<Class>) -> &[HeldId] {
        self.classes.get(&address(class)).map_or(&[], |memo| &memo.meant_by)
    }

    /// A pod came to a node (`by` 1) or left it (-1).
    pub(super) fn count(
        &mut self,
        class: &Arc<Class>,
        is_deleting: bool,
        row: Row,
        by: i64,
        names: &Names,
        domains: &Domains,
    ) {
        let labels = self.namespaces.get(&*class.namespace);
        let memo = self.classes.entry(address(class)).or_insert_with(|| Memo::new(class));
        for (at, followed) in self.sets.iter().enumerate().skip(memo.sets_seen) {
            if is_in(class, &followed.set, names, labels) {
                memo.in_sets.push(SetId(u32::try_from(at).unwrap_or(u32::MAX)));
            }
        }
        memo.sets_seen = self.sets.len();
        if memo.holds.is_none() {
            memo.holds = Some(hold(&mut self.held, &mut self.held_ids, class, domains));
        }
        let entry = memo.pods.entry(row).or_default();
        entry.0 += by;
        entry.1 += if is_deleting { by } else { 0 };
        if *entry == (0, 0) {
            memo.pods.remove(&row);
        }
        for id in &memo.in_sets {
            let followed = &mut self.sets[index(id.0)];
            followed.all.add(row, by, domains);
            if is_deleting {
                followed.deleting.add(row, by, domains);
            }
        }
        for id in memo.holds.iter().flatten() {
            self.held[index(id.0)].holders.add(row, by, domains);
        }
        // Rare classes do not pile up: nobody has this one any more but the pod that leaves.
        if memo.pods.is_empty() && Arc::strong_count(class) <= sweep::KEEPERS + 1 {
            self.classes.remove(&address(class));
        }
    }

    /// Classes that have pods on nodes, and where; in no order.
    pub fn placed(&self) -> impl Iterator<Item = (&Arc<Class>, impl Iterator<Item = Row> + '_)> {
        let placed = self.classes.iter().filter(|(_, memo)| !memo.pods.is_empty());
        placed.map(|(_, memo)| (&memo.class, memo.pods.keys().copied()))
    }

    /// A node's labels are about to change (-1) or have changed (1).
    pub(super) fn shift(&mut self, row: Row, sign: i64, domains: &Domains) {
        for followed in &mut self.sets {
            followed.all.shift(row, sign, domains);
            followed.deleting.shift(row, sign, domains);
        }
        self.held.iter_mut().for_each(|held| held.holders.shift(row, sign, domains));
    }

    /// Keys of held terms, which must be followed as domains.
    pub(super) fn held_keys(class: &Class) -> impl Iterator<Item = Sym> + '_ {
        let required = class.anti_affinity.iter().chain(&class.affinity).map(|term| term.topology_key);
        required.chain(class.preferred_pods.iter().map(|weighted| weighted.term.topology_key))
    }

    /// A namespace has these labels now. Everything that selects namespaces is counted anew; false when nothing is.
    pub(super) fn set_namespace(
        &mut self,
        name: &str,
        labels: std::collections::BTreeMap<String, String>,
        names: &Names,
        domains: &Domains,
    ) -> bool {
        if self.namespaces.get(name) == Some(&labels) {
            return false;
        }
        self.namespaces.insert(name.into(), labels);
        self.recount(names, domains);
        true
    }

    /// Decides again who is in which set, and counts.
    fn recount(&mut self, names: &Names, domains: &Domains) {
        let sets: Vec<(Arc<PodSet>, Vec<Sym>)> = self
            .sets
            .iter()
            .map(|followed| {
                (followed.set.clone(), followed.all.domains.iter().map(|(key, _)| *key).collect())
            })
            .collect();
        self.sets.clear();
        self.set_ids.clear();
        for memo in self.classes.values_mut() {
            (memo.sets_seen, memo.held_seen) = (0, 0);
            memo.in_sets.clear();
            memo.meant_by.clear();
        }
        for (set, keys) in sets {
            for key in keys {
                self.follow(&set, key, names, domains);
            }
        }
        // Pods already counted by `follow` must not make it look again.
        let sets = &self.sets;
        for memo in self.classes.values_mut() {
            let labels = self.namespaces.get(&*memo.class.namespace);
            let class = memo.class.clone();
            let inside =
                sets.iter().enumerate().filter(|(_, followed)| is_in(&class, &followed.set, names, labels));
            memo.in_sets = inside.map(|(at, _)| SetId(u32::try_from(at).unwrap_or(u32::MAX))).collect();
            memo.sets_seen = sets.len();
        }
    }
}

/// The terms that pods of a class hold, as numbers; two terms alike are held twice.
fn hold(
    held: &mut Vec<HeldTerm>,
    ids: &mut HashMap<(PodTerm, Role), HeldId>,
    class: &Class,
    domains: &Domains,
) -> Vec<HeldId> {
    let anti = class.anti_affinity.iter().map(|term| (term.clone(), Role::RequiredAnti));
    let required = class.affinity.iter().map(|term| (term.clone(), Role::Required));
    let preferred = class.preferred_pods.iter().map(|w| (w.term.clone(), Role::Preferred(w.weight)));
    anti.chain(required)
        .chain(preferred)
        .map(|(term, role)| {
            *ids.entry((term.clone(), role)).or_insert_with(|| {
                let mut holders = Counts::default();
                holders.follow(term.topology_key, domains);
                held.push(HeldTerm { term, role, holders });
                HeldId(u32::try_from(held.len() - 1).expect("fewer terms than pods"))
            })
        })
        .collect()
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
