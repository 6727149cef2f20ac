//! How an engine is set up.

use std::time::Duration;

use crate::profile::{Profile, ProfileError, check_together};

/// Settings of one scheduler.
#[derive(Clone, Debug)]
pub struct Options {
    /// At least one.
    pub profiles: Vec<Profile>,
    /// Percent of nodes to look for where a profile says nothing; 0 looks at all of them.
    pub percentage_of_nodes_to_score: i64,
    /// 1 asks for exactly the choices of kube-scheduler with this setting; anything else has no effect.
    pub parallelism: i32,
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    pub max_in_unschedulable: Duration,
    /// Gate SchedulerQueueingHints.
    pub uses_hints: bool,
    /// Gate SchedulerPopFromBackoffQ.
    pub pops_from_backoff: bool,
    /// Gate DynamicSchedulerCheck: whether a pod still asks for the profile that placed it is looked at before its bind.
    pub checks_scheduler: bool,
    /// The same seed and inputs give the same choices.
    pub seed: u64,
}

impl Options {
    /// Kube-scheduler's defaults for these profiles.
    pub fn new(profiles: Vec<Profile>) -> Options {
        Options {
            profiles,
            percentage_of_nodes_to_score: 0,
            parallelism: 16,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            max_in_unschedulable: Duration::from_secs(300),
            uses_hints: true,
            pops_from_backoff: true,
            checks_scheduler: true,
            seed: 0,
        }
    }

    pub(super) fn check(&self) -> Result<(), ProfileError> {
        check_together(&self.profiles).into_iter().next().map_or(Ok(()), Err)
    }
}
