//! The cluster as the scheduler counts it: nodes as rows in columns, pods on them, and nothing twice.
//!
//! One owner, no locks. Every change goes through the methods here, so that columns, per-node lists and the
//! log of changed rows never disagree; `recount` rebuilds the sums from the pods and tests compare.
//! Read `columns` for what a row holds, `order` for the order nodes are visited in, `ledger` for pods that
//! are assumed, confirmed or forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::resource::{ResourceTable, ResourceVector};

use crate::engine::input::{self, StorageKind, Workload, WorkloadKind};
use crate::framework::PluginName;
use crate::hash::QuickMap;
use crate::intern::{Names, Sym};
use crate::pod::reservation::PreAllocatableMarks;
use crate::pod::term::{PodSet, keys};
use crate::pod::{Class, Compiler, Pod, PodKey};
use crate::profile::args::{DefaultConstraints, ReservationArgs};
use crate::time::Time;

pub mod budgets;
pub mod columns;
pub mod domains;
mod ledger;
pub mod load;
pub mod matching;
mod node;
pub mod order;
mod preempting;
mod recount;
pub mod reservations;
pub mod storage;
pub mod workloads;

pub use budgets::Budgets;
pub use columns::Columns;
pub use ledger::{Conflict, Held, Life};
pub use load::Loads;
pub use node::{Node, Standing, TaintSet};
pub use reservations::{Phase, ReservationNews, Reservations, Reserved};
pub use storage::{Storage, StorageChange};

/// The place of a node in all columns. Stays the same while the node exists, and is given to another later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row(pub u32);

impl Row {
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    pub fn from_index(index: usize) -> Row {
        Row(u32::try_from(index).expect("fewer than 2^32 nodes"))
    }
}

/// Nodes, pods and what is counted of them.
#[derive(Debug, Default)]
pub struct Cluster {
    pub names: Names,
    pub resources: ResourceTable,
    pub compiler: Compiler,
    pub columns: Columns,
    nodes: Vec<Node>,
    rows: HashMap<Box<str>, Row>,
    free: Vec<Row>,
    order: order::Order,
    pods: ledger::Ledger,
    taints: node::TaintSets,
    images: QuickMap<Sym, Image>,
    domains: domains::Domains,
    matching: matching::Matching,
    workloads: workloads::Workloads,
    budgets: Budgets,
    preempting: preempting::Preempting,
    storage: storage::Storage,
    reservations: Reservations,
    loads: Loads,
    log: ChangeLog,
    wishes: Vec<Wish>,
}

/// What a plugin wants done to other pods than the one it is asked about; carried out right after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Lets a pod go on that waits at Permit for this plugin.
    Allow { uid: Box<str>, plugin: PluginName },
    /// Ends the wait of a pod at Permit.
    Reject { uid: Box<str>, plugin: PluginName, message: String },
    /// Tries a waiting pod soon.
    Activate { key: PodKey, uid: Box<str> },
}

/// An image that some nodes have.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Nodes that have it, ghosts left out.
    pub nodes: u32,
}

/// Rows in the order they changed. Readers keep their own place in it; one who fell too far behind starts over.
#[derive(Debug, Default)]
pub struct ChangeLog {
    /// The number of the first entry kept.
    first: u64,
    rows: std::collections::VecDeque<Row>,
}

/// Changes kept; reading more than this is no cheaper than looking at all rows.
const CHANGES_KEPT: usize = 1 << 16;

impl ChangeLog {
    pub(crate) fn push(&mut self, row: Row) {
        if self.rows.len() == CHANGES_KEPT {
            self.rows.pop_front();
            self.first += 1;
        }
        self.rows.push_back(row);
    }

    /// Everything may have changed: all readers start over.
    pub(crate) fn start_over(&mut self) {
        self.first = self.end() + 1;
        self.rows.clear();
    }

    /// Where a reader that knows everything stands.
    pub fn end(&self) -> u64 {
        self.first + u64::try_from(self.rows.len()).unwrap_or(u64::MAX)
    }

    /// What changed since; none when that is no longer known.
    pub fn since(&self, place: u64) -> Option<impl Iterator<Item = Row> + '_> {
        let skip = usize::try_from(place.checked_sub(self.first)?).ok()?;
        (skip <= self.rows.len()).then(|| self.rows.range(skip..).copied())
    }
}

impl Cluster {
    /// The record of a pod object.
    pub fn compile(&mut self, object: &core::Pod) -> Pod {
        self.compiler.pod(object, &mut self.names, &mut self.resources)
    }

    pub fn row(&self, name: &str) -> Option<Row> {
        self.rows.get(name).copied()
    }

    pub fn node(&self, row: Row) -> &Node {
        &self.nodes[row.index()]
    }

    /// Nodes in the order they are visited; ghosts are not among them.
    pub fn visiting_order(&mut self) -> &[Row] {
        self.order.rows()
    }

    /// The same, as of the last call of `visiting_order`.
    pub fn visited(&self) -> &[Row] {
        self.order.last_rows()
    }

    /// The order in which a search that begins now would visit nodes. Nothing is remembered, so that asking does not
    /// change what a later search does.
    pub fn would_visit(&self) -> Vec<Row> {
        self.order.upcoming()
    }

    /// How many nodes there are, ghosts left out.
    pub fn node_count(&self) -> usize {
        self.order.len()
    }

    pub fn taint_set(&self, id: u32) -> &TaintSet {
        self.taints.get(id)
    }

    pub fn taint_sets(&self) -> &node::TaintSets {
        &self.taints
    }

    pub fn image(&self, name: Sym) -> Option<&Image> {
        self.images.get(&name)
    }

    pub fn changes(&self) -> &ChangeLog {
        &self.log
    }

    /// A node came or changed. True when it is new.
    pub fn set_node(&mut self, object: &core::Node) -> bool {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let row = self.row_for(name);
        let mut node = Node::read(object, &mut self.names, &mut self.resources);
        node.taint_set = self.taints.share(&node.taints);
        let allocatable = node.allocatable.clone();
        // Mostly a heartbeat: with the same labels a node stays in its domains.
        let known = &self.nodes[row.index()];
        let is_relabelled = !known.is_real || known.labels != node.labels;
        if is_relabelled {
            self.leave_domains(row);
        }
        self.count_images(row, false);
        let old = &mut self.nodes[row.index()];
        let is_new = !old.is_real;
        let (old_zone, new_zone) = (old.zone.clone(), node.zone.clone());
        std::mem::swap(&mut node.pods, &mut old.pods);
        let released = std::mem::replace(old, node);
        self.taints.release(released.taint_set, released.is_real);
        self.count_images(row, true);
        if is_relabelled {
            self.domains.set_node(row, &self.nodes[row.index()], &self.names);
            self.matching.shift(row, 1, &self.domains);
        }
        let node = &self.nodes[row.index()];
        self.columns.set_node(row, &allocatable, node, &self.resources);
        self.loads.books_mut().iter_mut().for_each(|book| book.set_node(row, node));
        match is_new {
            true => self.order.add(row, &new_zone),
            false if old_zone != new_zone => self.order.move_to(row, &old_zone, &new_zone),
            false => {}
        }
        self.touch(row);
        is_new
    }

    /// A node went. Pods that are still counted on it keep it as a ghost.
    pub fn remove_node(&mut self, name: &str) -> bool {
        let Some(row) = self.rows.get(name).copied().filter(|row| self.node(*row).is_real) else {
            return false;
        };
        self.count_images(row, false);
        self.leave_domains(row);
        self.matching.shift(row, 1, &self.domains);
        let zone = self.nodes[row.index()].zone.clone();
        self.order.remove(row, &zone);
        let node = &mut self.nodes[row.index()];
        self.taints.release(node.taint_set, true);
        let pods = std::mem::take(&mut node.pods);
        *node = Node { name: node.name.clone(), pods, ..Node::default() };
        self.columns.clear_node(row);
        self.loads.books_mut().iter_mut().for_each(|book| book.clear_node(row));
        self.touch(row);
        self.drop_ghost(row);
        true
    }

    /// The row of a node, a ghost's if nobody has seen the node yet.
    fn row_for(&mut self, name: &str) -> Row {
        if let Some(row) = self.rows.get(name) {
            return *row;
        }
        let row = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.columns.grow();
            self.loads.books_mut().iter_mut().for_each(load::Book::grow);
            Row::from_index(self.nodes.len() - 1)
        });
        self.nodes[row.index()] = Node { name: name.into(), ..Node::default() };
        self.rows.insert(name.into(), row);
        row
    }

    /// A ghost without pods and measurements is nothing.
    fn drop_ghost(&mut self, row: Row) {
        let node = &self.nodes[row.index()];
        if !node.is_real && node.pods.all.is_empty() && !self.loads.has_metric(row) {
            self.rows.remove(&node.name);
            self.nodes[row.index()] = Node::default();
            self.columns.clear_row(row);
            self.free.push(row);
        }
    }

    fn count_images(&mut self, row: Row, is_there: bool) {
        for (name, _) in &self.nodes[row.index()].images {
            let image = self.images.entry(*name).or_default();
            match is_there {
                true => image.nodes += 1,
                false => image.nodes = image.nodes.saturating_sub(1),
            }
            if image.nodes == 0 {
                self.images.remove(name);
            }
        }
    }

    fn touch(&mut self, row: Row) {
        self.log.push(row);
    }

    /// Takes a row out of the domains it is in. A ghost is in none, and counts as without labels.
    fn leave_domains(&mut self, row: Row) {
        self.matching.shift(row, -1, &self.domains);
        if self.nodes[row.index()].is_real {
            self.domains.unset_node(row);
        }
    }

    /// Follows everything that placing a pod of this class depends on. To be called before an attempt.
    pub fn attend(&mut self, class: &Arc<Class>) {
        if !self.matching.is_attended(class) {
            self.follow_own(class);
            self.matching.set_attended(class);
        }
        // What a pod's class asks about stays followed, so a spread that was known before needs nothing.
        if let (Some(spread), true) = self.workloads.resolve(class, &self.names) {
            for constraint in &spread.constraints {
                self.follow(&constraint.pods, constraint.topology_key);
            }
        }
        self.matching.meant_by(class, &self.names);
        self.reservations.attend(class, &self.names);
    }

    fn follow_own(&mut self, class: &Class) {
        let preferred = class.preferred_pods.iter().map(|weighted| &weighted.term);
        for term in class.anti_affinity.iter().chain(preferred) {
            self.follow(&term.pods, term.topology_key);
        }
        for key in keys(&class.affinity) {
            if let Some(together) = &class.together {
                self.follow(together, key);
            }
        }
        for constraint in &class.spread {
            self.follow(&constraint.pods, constraint.topology_key);
        }
    }

    /// Drops what is followed and nobody asks about any more, now and then. To be called before each attempt.
    pub fn tidy(&mut self) {
        if self.matching.is_due(self.pods.len()) {
            self.matching.sweep(|class| self.workloads.sets_of(class));
            self.domains.retain(|key| self.matching.counts_by(key));
        }
    }

    /// What is followed now, for `stop_following`.
    pub fn following(&self) -> matching::Following {
        self.matching.following()
    }

    /// Lets go of what was followed since, and of classes that no pod has. No pod may have come or gone meanwhile.
    pub fn stop_following(&mut self, since: matching::Following, classes: &[Arc<Class>]) {
        self.matching.stop_following(since, classes);
    }

    /// Counts the pods of a set per domain of a key from now on.
    pub fn follow(&mut self, set: &Arc<PodSet>, key: Sym) {
        self.follow_key(key);
        self.matching.follow(set, key, &self.names, &self.domains);
    }

    fn follow_key(&mut self, key: Sym) {
        if !self.domains.knows(key) {
            let real = self.nodes.iter().enumerate().filter(|(_, node)| node.is_real);
            self.domains.follow(key, &self.names, real.map(|(at, node)| (Row::from_index(at), node)));
        }
    }

    pub fn domains(&self) -> &domains::Domains {
        &self.domains
    }

    pub fn matching(&self) -> &matching::Matching {
        &self.matching
    }

    /// What pods of a scheduler get when they have no spread constraints of their own. A scheduler that is not told of
    /// has no default.
    pub fn set_default_spread(&mut self, scheduler: &str, defaults: &DefaultConstraints) {
        self.workloads.set_defaults(scheduler, defaults, &mut self.names);
    }

    /// What has to be known of reservations and pods before they come. The first profile that asks for it is heard.
    pub fn set_reservation_args(&mut self, args: &ReservationArgs) {
        if args.selector_index.enabled && self.reservations.selectors().is_empty() {
            self.reservations.set_selector_index(&args.selector_index);
        }
        let taking_in = &args.pre_allocation;
        if taking_in.enable_cluster_mode && self.compiler.pre_allocatable.is_none() {
            self.compiler.pre_allocatable = Some(PreAllocatableMarks {
                label: taking_in.cluster_label_key.clone(),
                annotation: taking_in.cluster_priority_annotation_key.clone(),
            });
        }
    }

    /// A Service or an owner of pods came or changed.
    pub fn set_workload(&mut self, object: &Workload) {
        self.workloads.set(object, &mut self.names);
    }

    /// A Service or an owner of pods went. One that nobody knows is fine.
    pub fn remove_workload(&mut self, kind: WorkloadKind, namespace: &str, name: &str) {
        self.workloads.remove(kind, namespace, name);
    }

    /// The spread that pods of a class get by default, if they get any.
    pub fn default_spread(&self, class: &Arc<Class>) -> Option<Arc<workloads::DefaultSpread>> {
        self.workloads.default_spread(class, &self.names)
    }

    /// A namespace has these labels now.
    pub fn set_namespace(&mut self, name: &str, labels: std::collections::BTreeMap<String, String>) {
        if self.matching.set_namespace(name, labels, &self.names, &self.domains) {
            self.log.start_over();
        }
    }

    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// For plugins that reserve volumes.
    pub fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// A volume, a claim or one of the objects around them came or changed. None when that is no news.
    pub fn set_storage(&mut self, object: &input::Storage) -> Option<StorageChange> {
        self.storage.set(object)
    }

    /// One of them went. None when nobody knew it.
    pub fn remove_storage(
        &mut self,
        kind: StorageKind,
        namespace: &str,
        name: &str,
    ) -> Option<StorageChange> {
        self.storage.remove(kind, namespace, name)
    }

    fn count_matches(&mut self, row: Row, pod: &Arc<Pod>, by: i64) {
        for key in matching::Matching::held_keys(&pod.class).collect::<Vec<Sym>>() {
            self.follow_key(key);
        }
        self.matching.count(&pod.class, pod.is_deleting, row, by, &self.names, &self.domains);
    }

    /// Puts a pod's amounts on its row.
    fn occupy(&mut self, row: Row, pod: &Arc<Pod>, since: Time) {
        self.count_matches(row, pod, 1);
        self.count_pod(row, pod);
        self.storage.count_uses(row, &pod.class, true);
        let pods = &mut self.nodes[row.index()].pods;
        pods.add(pod);
        self.columns.lowest_priority[row.index()] = pods.lowest_priority();
        // What is reserved uses nothing; its owners do.
        if pod.class.reserve.is_none() {
            self.loads.books_mut().iter_mut().for_each(|book| book.add_pod(row, pod, since));
        }
        self.touch(row);
    }

    /// Takes a pod's amounts off its row.
    fn vacate(&mut self, row: Row, pod: &Arc<Pod>) {
        self.count_matches(row, pod, -1);
        let is_saturated = self.columns.is_saturated(row);
        self.discount_pod(row, pod);
        self.storage.count_uses(row, &pod.class, false);
        let pods = &mut self.nodes[row.index()].pods;
        pods.remove(pod);
        self.columns.lowest_priority[row.index()] = pods.lowest_priority();
        if is_saturated {
            self.recount_row(row);
        }
        self.loads.books_mut().iter_mut().for_each(|book| book.remove_pod(row, &pod.uid));
        self.touch(row);
        self.drop_ghost(row);
    }

    pub fn wish(&mut self, wish: Wish) {
        self.wishes.push(wish);
    }

    pub(crate) fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }

    /// Amounts of a row as a vector, for explanations and tests.
    pub fn requested(&self, row: Row) -> ResourceVector {
        self.columns.requested(row)
    }
}

#[cfg(test)]
mod tests;
