//! Coscheduling. Spec: scheduler-gang-quota A1.3.

use koord_api::annotation::gang::MatchPolicy;
use koord_api::duration::GoDuration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoschedulingArgs {
    /// How long members wait at permit when their gang does not say. Not negative; 0 expires at once.
    pub default_timeout: GoDuration,
    /// Above 0.
    pub controller_workers: usize,
    /// Only the older engine has schedule cycles.
    pub skip_check_schedule_cycle: bool,
    /// Whether a whole job may preempt.
    pub enable_preemption: bool,
    pub aware_network_topology: bool,
    pub default_match_policy: MatchPolicy,
}

impl Default for CoschedulingArgs {
    fn default() -> CoschedulingArgs {
        CoschedulingArgs {
            default_timeout: GoDuration::from_seconds(600),
            controller_workers: 1,
            skip_check_schedule_cycle: false,
            enable_preemption: false,
            aware_network_topology: false,
            default_match_policy: MatchPolicy::OnceSatisfied,
        }
    }
}
