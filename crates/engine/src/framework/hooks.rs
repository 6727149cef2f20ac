//! Extension points: one small trait each, plain values in and out.

use std::sync::Arc;
use std::time::Duration;

use koord_api::resource::ResourceId;

use super::event::Event;
use super::hint::{Hint, Registration};
use super::parts::{FilterPart, ScorePart};
use super::{Cycle, NodeView, PluginName, Sieve, Slots, Status};
use crate::cluster::load::Settings;
use crate::cluster::reservations::{Counted, Entry};
use crate::cluster::{Cluster, Node, Row, StorageChange};
use crate::engine::command::BindPlan;
use crate::pod::{Class, Pod};
use crate::random::Random;
use crate::schedule::{Diagnosis, Framework, Nominated, Prepared};
use crate::time::Time;

/// Where one plugin takes part.
#[derive(Clone, Default)]
pub struct Hooks {
    pub name: PluginName,
    pub pre_enqueue: Option<Arc<dyn PreEnqueue>>,
    pub pre_filter: Option<Arc<dyn PreFilter>>,
    pub prefer: Option<Arc<dyn Prefer>>,
    pub restore: Option<Arc<dyn Restore>>,
    pub in_reservation: Option<Arc<dyn InReservation>>,
    pub filter: Option<Arc<dyn Filter>>,
    pub post_filter: Option<Arc<dyn PostFilter>>,
    pub score: Option<Arc<dyn Score>>,
    pub reserve: Option<Arc<dyn Reserve>>,
    pub permit: Option<Arc<dyn Permit>>,
    pub pre_bind: Option<Arc<dyn PreBind>>,
    pub post_bind: Option<Arc<dyn PostBind>>,
    /// How it wants the load of nodes to be followed.
    pub load: Option<Arc<Settings>>,
    /// Which events may lift its refusals; none declared means any may.
    pub interest: Option<Vec<Registration<HintFn>>>,
}

macro_rules! setters {
    ($($point:ident: $trait:ident),*) => {
        $(pub fn $point(mut self, plugin: Arc<dyn $trait>) -> Hooks {
            self.$point = Some(plugin);
            self
        })*
    };
}

impl Hooks {
    pub fn new(name: PluginName) -> Hooks {
        Hooks { name, ..Hooks::default() }
    }

    setters! {
        pre_enqueue: PreEnqueue,
        pre_filter: PreFilter,
        prefer: Prefer,
        restore: Restore,
        in_reservation: InReservation,
        filter: Filter,
        post_filter: PostFilter,
        score: Score,
        reserve: Reserve,
        permit: Permit,
        pre_bind: PreBind,
        post_bind: PostBind
    }

    /// Has a book of the load of nodes kept in the cluster.
    pub fn follows_load(mut self, settings: Arc<Settings>) -> Hooks {
        self.load = Some(settings);
        self
    }

    /// Declares the events that may lift its refusals.
    pub fn woken_by(mut self, registrations: Vec<Registration<HintFn>>) -> Hooks {
        self.interest = Some(registrations);
        self
    }
}

/// What a hint function looks at: the waiting pod, the cluster as it is now, and what changed.
pub struct HintInput<'a> {
    pub cluster: &'a Cluster,
    pub pod: &'a Arc<Pod>,
    pub event: &'a Event,
    pub change: &'a Change,
}

/// Looks closer at an event on behalf of a pod that the plugin refused. Only asked for events it is registered for.
pub type HintFn = Arc<dyn Fn(&HintInput<'_>) -> Hint + Send + Sync>;

/// The objects behind an event.
#[derive(Clone, Debug)]
pub enum Change {
    /// Nothing in particular.
    None,
    /// A pod on a node, or one that waits; `old` is none for new ones, `new` is none for deleted ones.
    Pod {
        old: Option<Arc<Pod>>,
        new: Option<Arc<Pod>>,
    },
    Node {
        old: Option<Arc<Node>>,
        new: Option<Arc<Node>>,
    },
    /// A volume, a claim or one of the objects around them.
    Storage(Arc<StorageChange>),
    /// Any other object, by namespace (empty for cluster kinds) and name; what it says stands in the cluster.
    Object {
        namespace: Arc<str>,
        name: Arc<str>,
    },
}

/// A hint function from a question: does the change help the pod? Asked about something else than it expects, a
/// question answers yes, so that no pod is left waiting by mistake.
pub fn wakes_if(question: impl Fn(&HintInput<'_>) -> bool + Send + Sync + 'static) -> HintFn {
    Arc::new(move |input| if question(input) { Hint::Queue } else { Hint::Skip })
}

impl HintInput<'_> {
    /// Whether the event is about the waiting pod itself.
    pub fn is_own(&self) -> bool {
        let Change::Pod { old, new } = self.change else { return false };
        new.as_ref().or(old.as_ref()).is_some_and(|pod| pod.uid == self.pod.uid)
    }
}

/// Decides whether a pod may enter the active queue.
pub trait PreEnqueue: Send + Sync {
    fn admit(&self, cluster: &Cluster, pod: &Arc<Pod>) -> Result<(), Status>;
}

/// What a PostFilter plugin looks at: the failed attempt and everything needed to try variants of it.
pub struct PostFilterInput<'a> {
    pub cycle: &'a Cycle<'a>,
    pub framework: &'a Framework,
    pub prepared: &'a Prepared,
    pub diagnosis: &'a Diagnosis,
    pub nominated: &'a Nominated,
    /// Nodes in visiting order.
    pub order: &'a [Row],
    /// The node that the pod is promised now.
    pub nominated_row: Option<Row>,
    pub now: Time,
    /// Others who have to agree before room is made; none when nobody is asked.
    pub agreement: Option<&'a dyn Agreement>,
}

/// Others who choose among the nodes where room can be made, before the best of them is taken.
pub trait Agreement {
    /// What is left of the candidates, maybe with other victims; an error is the whole text.
    fn agree(&self, candidates: Vec<Preemption>) -> Result<Vec<Preemption>, String>;
}

/// What a PostFilter plugin answers.
#[derive(Clone, Debug)]
pub struct PostFiltered {
    /// Success ends the search for help; Unschedulable lets the next plugin try; Unresolvable and Error stop it.
    pub status: Status,
    pub nominating: Nominating,
    /// Pods that have to go first.
    pub preemption: Option<Preemption>,
}

/// What becomes of a pod's nomination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nominating {
    /// As it is.
    Keep,
    Clear,
    Node(Row),
}

/// Room to be made on a node.
#[derive(Clone, Debug)]
pub struct Preemption {
    pub row: Row,
    /// Most important first. Those that are leaving already (`is_deleting`) need no further call.
    pub victims: Vec<Arc<Pod>>,
    /// How many of them break a disruption budget.
    pub violations: usize,
}

impl Preemption {
    /// The victims that have to be told, most important first. None at all is possible: then all are on their way.
    pub fn calls(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.victims.iter().filter(|victim| !victim.is_deleting)
    }
}

/// Helps a pod that fits nowhere.
pub trait PostFilter: Send + Sync {
    fn help(&self, input: &PostFilterInput<'_>, random: &mut Random) -> PostFiltered;
}

/// Takes what a pod needs on the chosen node, beyond what the cluster counts by itself.
pub trait Reserve: Send + Sync {
    fn reserve(
        &self,
        cluster: &mut Cluster,
        slots: &mut Slots,
        pod: &Arc<Pod>,
        row: Row,
    ) -> Result<(), Status>;

    /// A pod that others make room for is promised a node, or none any more: what goes with it is kept for it too.
    fn promise(&self, _cluster: &mut Cluster, _pod: &Arc<Pod>, _room: Option<&Preemption>) {}

    /// Gives it back; also called when `reserve` failed or never ran, and more than once.
    fn unreserve(&self, cluster: &mut Cluster, slots: &mut Slots, pod: &Arc<Pod>, row: Row);
}

/// A yes to binding, now or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Go,
    /// Ask again when the plugin says so, at most this long.
    Wait(Duration),
}

/// Has the last word before binding.
pub trait Permit: Send + Sync {
    fn permit(
        &self,
        cluster: &mut Cluster,
        slots: &mut Slots,
        pod: &Arc<Pod>,
        row: Row,
    ) -> Result<Permission, Status>;
}

/// Adds to what is written before a pod is bound.
pub trait PreBind: Send + Sync {
    /// Enters what has to be written into the plan. An empty contribution means that there is nothing to do. A
    /// plugin that has to wait, even without a write, sets `settles_until`.
    fn plan(
        &self,
        cluster: &Cluster,
        slots: &Slots,
        pod: &Arc<Pod>,
        row: Row,
        now: Time,
        plan: &mut BindPlan,
    ) -> Result<(), Status>;

    /// Whether what was written has taken effect, so that the pod can be bound. Asked after the writes, whenever a
    /// volume object changes, until true, an error, or the time is up.
    fn is_settled(
        &self,
        _cluster: &Cluster,
        _slots: &Slots,
        _pod: &Arc<Pod>,
        _row: Row,
    ) -> Result<bool, Status> {
        Ok(true)
    }
}

/// Is told that a pod was bound.
pub trait PostBind: Send + Sync {
    fn bound(&self, cluster: &mut Cluster, slots: &mut Slots, pod: &Arc<Pod>, row: Row);
}

/// What a plugin's answers about a pod of a class depend on.
///
/// The answer must hold for every pod of the class in any cluster, since it is given from the class alone: a plugin
/// that may turn out to be idle, depending on what is in the cluster, says `Cluster` and then skips in `prepare`.
/// What only the pod has and not its class (its node, its hint) is not seen by anything that is kept by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// It has nothing to say: the same answer for every node.
    Nothing,
    /// Only the node's own row: answers stay true until the row changes.
    Row,
    /// Other nodes or objects too: answers are of one cycle.
    Cluster,
}

/// What looking at the pod alone brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Preparation {
    /// Filters of this plugin are to be asked.
    Go,
    /// This plugin has nothing to filter for this pod.
    Skip,
    /// Only these nodes come into question.
    Only(Vec<Row>),
}

/// Looks at the pod before any node, and keeps what the filters need in the cycle.
pub trait PreFilter: Send + Sync {
    fn prepare(&self, cycle: &mut Cycle<'_>) -> Result<Preparation, Status>;

    /// Whether `prepare` does nothing for pods of this class but make ready what the plugin's own `check` and `help`
    /// read: it neither refuses the pod nor names nodes. Then it is left out where verdicts are known without asking.
    fn only_serves(&self, _class: &Class) -> bool {
        false
    }

    /// Whether what holds for this pod holds for every pod of its class, so that it may be remembered by class.
    fn speaks_of_class(&self, _cluster: &Cluster, _pod: &Arc<Pod>) -> bool {
        true
    }

    /// The cycle's state as if `other` were on `row` too.
    fn add_pod(&self, _cycle: &mut Cycle<'_>, _other: &Arc<Pod>, _row: Row) {}

    /// The cycle's state as if `other` were not on `row`.
    fn remove_pod(&self, _cycle: &mut Cycle<'_>, _other: &Arc<Pod>, _row: Row) {}
}

/// Names nodes to be tried before all others; the first that passes the filters is taken. Spec: scheduler-core 9.7.
pub trait Prefer: Send + Sync {
    /// In the order they are to be tried.
    fn prefer(&self, cycle: &Cycle<'_>) -> Vec<Row>;
}

/// Lets a pod look through others that only hold room for it: filters and scores see the node without them. Their ports,
/// amounts and terms are taken out by the engine; whatever else a plugin keeps of a pod it takes out itself, when
/// `PreFilter::remove_pod` tells of it. Spec: scheduler-reservation-loadaware A7.2.
pub trait Restore: Send + Sync {
    /// Whether pods of this class look through anybody anywhere.
    fn concerns(&self, cluster: &Cluster, pod: &Arc<Pod>) -> bool;

    /// The nodes where the pod looks through somebody.
    fn rows(&self, cycle: &Cycle<'_>) -> Vec<Row>;

    /// Through whom on one of them.
    fn lifted(&self, cycle: &Cycle<'_>, row: Row) -> Vec<Arc<Pod>>;

    /// All that this plugin has to say of a row where the pod looks through one other, in one go; none where there is
    /// more to it.
    fn glance<'a>(&self, _cycle: &Cycle<'a>, _row: Row) -> Option<Glance<'a>> {
        None
    }
}

/// A row on which a pod looks through one other, and which the plugin's own filter lets pass.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a> {
    /// What that other counts for.
    pub lifted: &'a Counted,
    /// What the plugin's own score is.
    pub score: i64,
}

/// Has a say about a pod's use of one reservation on a node. Plugins that hold CPUs or devices for reservations take
/// part here. Spec: scheduler-reservation-loadaware A7.4, A7.6.
pub trait InReservation: Send + Sync {
    /// Whether the pod can use it. Reasons are shown to users.
    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>, reservation: &Entry) -> Result<(), Status>;

    /// How well it would be used, 0 to 100; sums are compared.
    fn score(&self, _cycle: &Cycle<'_>, _node: &NodeView<'_>, _reservation: &Entry) -> i64 {
        0
    }
}

/// What of the pods on a node a filter's verdict on a pod depends on: what preemption could change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// On none of them: the node object alone decides.
    Nothing,
    /// On none of them either, though its refusals do not tell (they are `Unschedulable`, not `Unresolvable`).
    Fixed,
    /// Only on whether they leave room for one pod more and for these amounts, all above zero. Refusals for lack of
    /// the same of them read alike.
    Room(Vec<(ResourceId, i64)>),
    Anything,
}

/// Says which nodes a pod cannot run on.
pub trait Filter: Send + Sync {
    fn scope(&self, class: &Class) -> Scope;

    /// What another pod's leaving could change; a filter that can say so makes preemption faster.
    fn demand(&self, _cycle: &Cycle<'_>) -> Demand {
        Demand::Anything
    }

    /// One node: the meaning of the plugin.
    fn check(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> Result<(), Status>;

    /// All nodes left; a plugin that can do better than one by one does so, with the same outcome.
    fn sift(&self, cycle: &Cycle<'_>, sieve: &mut Sieve) {
        sieve.retain(|row| self.check(cycle, &NodeView::of(cycle.cluster, row)));
    }

    /// What `check` depends on, as exactly as the plugin can say.
    fn part(&self, _cluster: &Cluster, class: &Arc<Class>) -> FilterPart {
        match self.scope(class) {
            Scope::Nothing => FilterPart::Nothing,
            Scope::Row => FilterPart::Row,
            Scope::Cluster => FilterPart::Opaque,
        }
    }
}

/// Rates the nodes that are left, 0 to 100 after normalising.
pub trait Score: Send + Sync {
    fn scope(&self, class: &Class) -> Scope;

    /// Prepares the cycle; false when the plugin adds nothing to any node.
    fn prepare(&self, _cycle: &mut Cycle<'_>, _rows: &[Row]) -> Result<bool, Status> {
        Ok(true)
    }

    /// One node: the meaning of the plugin.
    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64;

    /// All nodes at once; `out` has one entry for each row.
    fn rate(&self, cycle: &Cycle<'_>, rows: &[Row], out: &mut [i64]) {
        for (row, score) in rows.iter().zip(out) {
            *score = self.score(cycle, &NodeView::of(cycle.cluster, *row));
        }
    }

    /// From raw scores to 0..=100.
    fn normalize(&self, _cycle: &Cycle<'_>, _rows: &[Row], _scores: &mut [i64]) {}

    /// What final scores depend on, as exactly as the plugin can say.
    fn part(&self, _cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        match self.scope(class) {
            Scope::Nothing => ScorePart::Nothing,
            // How they are normalised only the plugin can tell.
            Scope::Row | Scope::Cluster => ScorePart::Opaque,
        }
    }
}

/// Scales to 100 by the highest; reversed, the highest becomes 0. Spec: scheduler-core 6.
pub fn normalize_by_max(scores: &mut [i64], is_reversed: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        *score = match (max, is_reversed) {
            (0, false) => continue,
            (0, true) => 100,
            (_, false) => 100 * *score / max,
            (_, true) => 100 - 100 * *score / max,
        };
    }
}
