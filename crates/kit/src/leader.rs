//! Leader election by a Lease, with client-go's record, timings and manners, so that ours and a Go client may compete
//! for the same lease.
//!
//! [`Elector`] is the state machine: time and the server's answers go in, requests come out. [`run`] is the thin shell
//! around it. The work that only a leader may do gets a [`Leadership`]:
//!
//! - its token is cancelled when leadership is lost or the process stops, in time for the work to end before anyone
//!   else may lead;
//! - [`Leadership::holds`] is exact at the instant it is asked, even when the process was paused or cut off and has
//!   not noticed yet. Ask it before each write to the cluster.
//!
//! Differs from client-go, to the safe side: a term is counted from when its renewal was *sent*, not answered; another
//! holder seen in the record ends it at once; on a stop the lease is kept until the work has ended and only then
//! released; part seconds of `leaseDuration` are rounded up in the record, not down.

mod elector;
mod shell;

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use elector::{Action, Change, Elector, LostReason, Record, Reply};
pub use shell::{Ended, Leadership, LeaseLock, run};

use koord_api::duration::GoDuration;

/// client-go's factor by which waiting candidates spread their tries.
pub const JITTER_FACTOR: f64 = 1.2;

/// `leaderElection` of a component's configuration, as in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElection {
    pub leader_elect: bool,
    pub lease_duration: GoDuration,
    pub renew_deadline: GoDuration,
    pub retry_period: GoDuration,
    /// Only `leases` is left of what Kubernetes once had.
    pub resource_lock: String,
    pub resource_name: String,
    pub resource_namespace: String,
}

impl Default for LeaderElection {
    fn default() -> LeaderElection {
        LeaderElection {
            leader_elect: true,
            lease_duration: GoDuration(15_000_000_000),
            renew_deadline: GoDuration(10_000_000_000),
            retry_period: GoDuration(2_000_000_000),
            resource_lock: "leases".to_owned(),
            resource_name: String::new(),
            resource_namespace: String::new(),
        }
    }
}

impl LeaderElection {
    /// The timing and what is wrong with the rest, as `(field, message)`.
    pub fn check(&self) -> Result<Timing, Vec<(&'static str, String)>> {
        let mut problems = Vec::new();
        if self.resource_lock != "leases" {
            let found = &self.resource_lock;
            problems.push(("resourceLock", format!("{found:?} is not accepted, expected \"leases\"")));
        }
        for (field, value) in
            [("resourceName", &self.resource_name), ("resourceNamespace", &self.resource_namespace)]
        {
            if self.leader_elect && value.is_empty() {
                problems.push((field, "is required when leaderElect is true".to_owned()));
            }
        }
        let timing = Timing::new(self.lease_duration, self.renew_deadline, self.retry_period);
        match timing {
            Ok(timing) if problems.is_empty() => Ok(timing),
            Ok(_) => Err(problems),
            Err(more) => {
                problems.extend(more);
                Err(problems)
            }
        }
    }
}

/// Checked times of an election: `lease > renew > retry * 1.2 > 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

impl Timing {
    pub fn new(
        lease: GoDuration,
        renew: GoDuration,
        retry: GoDuration,
    ) -> Result<Timing, Vec<(&'static str, String)>> {
        let mut problems = Vec::new();
        let mut positive = |field, value: GoDuration| match u64::try_from(value.0) {
            Ok(nanos) if nanos > 0 => Some(Duration::from_nanos(nanos)),
            _ => {
                problems.push((field, format!("{value} is not accepted, expected more than 0")));
                None
            }
        };
        let times = (
            positive("leaseDuration", lease),
            positive("renewDeadline", renew),
            positive("retryPeriod", retry),
        );
        let (Some(lease), Some(renew), Some(retry)) = times else { return Err(problems) };
        if lease <= renew {
            let message = format!("{lease:?} is not accepted, expected more than renewDeadline ({renew:?})");
            problems.push(("leaseDuration", message));
        }
        if renew <= retry.mul_f64(JITTER_FACTOR) {
            let least = retry.mul_f64(JITTER_FACTOR);
            let message = format!(
                "{renew:?} is not accepted, expected more than {JITTER_FACTOR} times retryPeriod ({least:?})"
            );
            problems.push(("renewDeadline", message));
        }
        if problems.is_empty() { Ok(Timing { lease, renew, retry }) } else { Err(problems) }
    }

    /// client-go's defaults: 15 s, 10 s, 2 s.
    pub const DEFAULT: Timing = Timing {
        lease: Duration::from_secs(15),
        renew: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    /// The lease's length as others read it, whole seconds.
    fn lease_seconds(&self) -> i32 {
        let whole = self.lease.as_secs() + u64::from(self.lease.subsec_nanos() > 0);
        i32::try_from(whole).unwrap_or(i32::MAX)
    }

    /// How long after sending the last good renewal a leader stops: client-go's `retry + renew`, but always well
    /// before the lease itself ends, so that the work has time to end and clocks may differ in speed.
    pub fn give_up_after(&self) -> Duration {
        (self.retry + self.renew).min((self.lease + self.renew) / 2)
    }

    pub fn renew_deadline(&self) -> Duration {
        self.renew
    }
}

/// This process's name in an election: `hostname_uuid`.
pub fn identity() -> String {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let hostname = match hostname.trim() {
        "" => "localhost",
        name => name,
    };
    format!("{hostname}_{}", crate::random::uuid())
}
