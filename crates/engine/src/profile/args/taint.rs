//! TaintToleration: how its refusals read. Spec: scheduler-core 6.3.

use crate::plugins::taint_toleration::Wording;

/// Ours alone: kube-scheduler's plugin takes no arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaintTolerationArgs {
    pub wording: Wording,
}
