//! Preemption: how many nodes are tried. Spec: scheduler-core 6.13 and 7.3.

use super::Percent;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultPreemptionArgs {
    pub candidates: CandidateLimits,
}

/// How many candidate nodes a dry run looks for: the larger of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandidateLimits {
    pub percentage: Percent,
    /// Not negative.
    pub absolute: i32,
}

/// Of all nodes, when a configuration is silent.
const PERCENTAGE: Percent = Percent(10);

impl Default for CandidateLimits {
    fn default() -> CandidateLimits {
        CandidateLimits { percentage: PERCENTAGE, absolute: 100 }
    }
}
