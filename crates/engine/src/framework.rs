//! What plugins and the engine agree on: verdicts, events, extension points.
//!
//! A plugin states where it takes part by handing itself over (`Hooks`); the engine calls it with a `Cycle`,
//! the pod being tried and the cluster it is tried on, and a `NodeView`, a node as it is or as it would be.

pub mod changes;
pub mod cycle;
pub mod event;
pub mod hint;
pub mod hooks;
pub mod parts;
pub mod plugin_set;
pub mod restored;
pub mod sieve;
pub mod status;
pub mod timing;
pub mod view;

pub use cycle::{Cycle, Slot, Slots};
pub use hooks::{
    Agreement, Change, Demand, Filter, Glance, HintFn, HintInput, Hooks, InReservation, Nominating,
    Permission, Permit, PostBind, PostFilter, PostFilterInput, PostFiltered, PreBind, PreEnqueue, PreFilter,
    Preemption, Prefer, Preparation, Reserve, Restore, Scope, Score, wakes_if,
};
pub use restored::Restored;
pub use sieve::Sieve;
pub use status::{Code, Facts, LoadFacts, PluginName, Reason, Status};
pub use view::{Delta, NodeView};
