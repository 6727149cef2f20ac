//! How far a container's quota is raised or lowered. Spec: koordlet-enforce 6.3.

use koord_api::crd::node_slo::{CpuBurstPolicy, CpuBurstStrategy};

use super::NodeState;
use crate::decide::convert::percent_trunc;

/// What is done to a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    ScaleUp,
    Remain,
    ScaleDown,
    Reset,
}

impl Operation {
    /// What the container itself asks for.
    pub fn wanted(strategy: &CpuBurstStrategy, is_allowed: bool, throttled: Option<f64>) -> Operation {
        let is_on = matches!(strategy.policy, Some(CpuBurstPolicy::Auto | CpuBurstPolicy::CfsQuotaBurstOnly));
        match throttled {
            _ if !is_on => Operation::Reset,
            _ if !is_allowed => Operation::ScaleDown,
            Some(share) if share > 0.0 => Operation::ScaleUp,
            _ => Operation::Remain,
        }
    }

    /// What the node lets it have.
    pub fn on(self, node: NodeState) -> Operation {
        match (node, self) {
            (_, Operation::Reset) => Operation::Reset,
            (NodeState::Overload, _) => Operation::ScaleDown,
            (NodeState::Cooling | NodeState::Unknown, Operation::ScaleUp) => Operation::Remain,
            (_, operation) => operation,
        }
    }
}

/// Where a quota goes, and why. Microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub operation: Operation,
    /// What the container asked for before the node was looked at.
    pub wanted: Operation,
    /// What its limit says.
    pub base: i64,
    pub ceiling: i64,
    /// -1 is none.
    pub before: i64,
    pub target: i64,
}

impl Move {
    pub fn new(
        base: i64,
        strategy: &CpuBurstStrategy,
        before: i64,
        wanted: Operation,
        node: NodeState,
    ) -> Move {
        let ceiling = match strategy.cfs_quota_burst_percent {
            Some(percent) if percent > 100 => percent_trunc(base, percent),
            _ => base,
        };
        let operation = wanted.on(node);
        let scaled = match operation {
            Operation::ScaleUp => percent_trunc(before, 120),
            Operation::Remain => before,
            Operation::ScaleDown => percent_trunc(before, 80),
            Operation::Reset => base,
        };
        // The lower bound wins, so that a container never has less than its limit.
        let target = scaled.min(ceiling).max(base);
        Move { operation, wanted, base, ceiling, before, target }
    }

    /// What the pod's quota gains.
    ///
    /// Differs: a quota taken back from "none" changes nothing for the pod, where upstream counts from -1
    /// (item 23).
    pub fn delta(&self) -> i64 {
        if self.before < 0 { 0 } else { self.target.saturating_sub(self.before) }
    }
    /// What it has more than its limit says.
    pub fn above(&self) -> i64 {
        self.target.saturating_sub(self.base)
    }
}
