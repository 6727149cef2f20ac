//! What the shell needs of the engine, and nothing more: a scripted one can stand in its place in tests.

mod engine;
mod views;

use std::collections::BTreeMap;
use std::time::Duration;

use koord_engine::engine::command::Subject;
use koord_engine::engine::dump::{Dumped, Dumps};
use koord_engine::engine::measure::Measured;
use koord_engine::engine::{Command, Input, ReservationGauge};
use koord_engine::time::Time;
use serde_json::Value;

pub use engine::{engine, engine_options};

/// Decides; owned by one thread.
pub trait Brain: Send + 'static {
    /// Is told something.
    fn take(&mut self, now: Time, input: Input);

    /// Tries one pod; none when none is ready.
    fn step(&mut self, now: Time) -> Option<Attempt>;

    /// What is to be done, in order.
    fn take_commands(&mut self) -> Vec<Command>;

    /// When it wants to hear that time has passed.
    fn wake_at(&self, now: Time) -> Option<Time>;

    /// What people may ask; none when there is nothing under that name.
    fn view(&mut self, now: Time, view: &View) -> Option<Value>;

    /// The numbers that are read when somebody looks at the metrics.
    fn gauges(&self) -> Gauges;

    /// The numbers of victims of preemptions since the last call.
    fn preemptions(&mut self) -> Vec<usize>;

    /// What it measured of itself since the last call.
    fn measured(&mut self) -> Measured;

    /// What later attempts keep for the logs.
    fn set_dumps(&mut self, dumps: Dumps);
}

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub pod: Subject,
    /// The profile that tried.
    pub scheduler: Box<str>,
    pub result: Attempted,
    /// How often this pod was tried, this time included.
    pub attempts: u32,
    /// Since the pod was first ready to be tried.
    pub waited: Duration,
    /// Nodes looked at, and those that passed.
    pub evaluated: usize,
    pub feasible: usize,
    /// What [`Brain::set_dumps`] asked for.
    pub dumped: Option<Box<Dumped>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempted {
    /// A node was chosen; the binding follows.
    Placed,
    Unschedulable,
    Error,
    /// There was nothing to try: the pod is gone, or has a node.
    Skipped,
}

/// What people may ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    Node(String),
    Queue,
    ExplainPod {
        namespace: String,
        name: String,
        form: Form,
    },
    ExplainPending(Form),
    /// What load-aware scheduling has counted of a node; none where it is off.
    Load(String),
    ExplainReservation {
        name: String,
        form: Form,
    },
    /// The reservations on a node.
    NodeReservations(String),
    /// How reservations are found by labels, with their names or not.
    ReservationIndex {
        with_names: bool,
    },
    /// Requests of all pods, for `/metrics/resources`.
    Resources,
    /// Everything, for the log.
    Dump,
    /// Identities of all nodes and pods, for comparing.
    Census,
    /// The version of a pod.
    Revision {
        namespace: String,
        name: String,
    },
}

/// How an explanation is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All the data.
    Data,
    /// For people; the answer is one string.
    Text,
}

/// Numbers of the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
    pub nodes: usize,
    pub pods: usize,
    pub assumed: usize,
    /// Pods that came into a part of the queue: part, why, how many since the start.
    pub incoming: Vec<(String, String, u64)>,
    /// Pods that a plugin holds up: plugin, profile, how many.
    pub held: Vec<(String, String, u64)>,
    /// Events that are kept for pods which are being tried, by label.
    pub in_flight: BTreeMap<String, usize>,
    pub reservations: Vec<ReservationGauge>,
}
