//! ScarceResourceAvoidance and SchedulingHint. Spec: scheduler-core 9.16 and 9.18.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScarceResourceAvoidanceArgs {
    /// Resources that pods without need of them should stay away from.
    pub resources: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulingHintArgs {
    /// Above 0.
    pub max_hint_nodes: usize,
}

impl Default for SchedulingHintArgs {
    fn default() -> SchedulingHintArgs {
        SchedulingHintArgs { max_hint_nodes: 100 }
    }
}
