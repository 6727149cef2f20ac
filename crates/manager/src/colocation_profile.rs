//! ClusterColocationProfiles for pods that were there before them and still wait for a node.
//!
//! Pure: which pods a round may change, and the patch each of them gets. `controllers::colocation_profile` lists and
//! writes. Spec: manager 12.

use std::collections::HashMap;
use std::time::Duration;

use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::keys::profile::label::CONTROLLER_MANAGED;
use koord_api::rewrite::profile::{Profile, ProfileError};
use koord_api::selector::{Selector, SelectorError};
use koord_kit::cache::Uid;
use koord_kit::client::limit::TokenBucket;
use koord_kit::write::difference;
use serde_json::Value;

use crate::quota_profile::fnv1a;

/// How often pods may be changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// How long a pod that was seen to is left alone.
    pub force_update_after: Duration,
    /// Pods a second over time, and at once after a quiet time.
    pub qps: f64,
    pub burst: f64,
}

/// Whether waiting pods are to follow a profile.
pub fn is_followed(profile: &ClusterColocationProfile, by_default: bool) -> bool {
    let labels = profile.metadata.labels.as_ref();
    let asked = labels.and_then(|labels| labels.get(CONTROLLER_MANAGED)).is_some_and(|text| text == "true");
    profile.metadata.deletion_timestamp.is_none() && (by_default || asked)
}

/// Pods that a profile may select; none at all without a selector, unlike at admission.
pub fn pods_of(profile: &ClusterColocationProfile) -> Result<Selector, SelectorError> {
    let Some(spec) = &profile.spec else { return Ok(Selector::nothing()) };
    // One that cannot be read would quietly match nothing.
    Selector::new(spec.namespace_selector.as_ref())?;
    Selector::new(spec.selector.as_ref())
}

/// The number from 0 to 99 that decides whether a profile with a probability is for a pod.
///
/// Differs: upstream draws again in every round, until nearly every pod that waits long enough has been lucky. The
/// same pair draws the same number here, also after a restart (manager 26, DB-38).
pub fn draw(profile: Uid, pod: Uid) -> i64 {
    // Hashing the hash once more spreads the last bits, which FNV leaves alike for alike inputs.
    let hash = fnv1a(format!("{profile:?}/{pod:?}").as_bytes());
    i64::try_from(fnv1a(&hash.to_be_bytes()) % 100).unwrap_or_default()
}

/// The JSON merge patch that makes a pod follow a profile; none when it does.
pub fn patch(profile: &Profile, pod: &Value) -> Result<Option<Value>, ProfileError> {
    let mut after = pod.clone();
    profile.apply_late(&mut after)?;
    Ok(difference(pod, &after))
}

/// Whether a pod waits for a node.
pub fn is_waiting(pod: &Value) -> bool {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
    text("/spec/nodeName").is_empty() && text("/status/phase") == "Pending"
}

/// What was done lately, and how much more may be done now.
#[derive(Debug)]
pub struct Journal {
    /// When a version of a profile was last applied to a pod.
    seen: HashMap<(String, Uid), Duration>,
    bucket: TokenBucket,
    keep: Duration,
}

/// Whether a pod is to be changed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Now,
    /// It was seen to a short while ago.
    Seen,
    /// Too many at once; the next round will do.
    Limited,
}

impl Journal {
    pub fn new(pace: Pace, now: Duration) -> Journal {
        Journal {
            seen: HashMap::new(),
            bucket: TokenBucket::new(pace.qps, pace.burst, now),
            keep: pace.force_update_after,
        }
    }

    /// Asks for a turn; one that is given counts against the rate.
    pub fn turn(&mut self, profile_version: &str, pod: Uid, now: Duration) -> Turn {
        if self.seen.get(&(profile_version.to_owned(), pod)).is_some_and(|at| now < *at + self.keep) {
            Turn::Seen
        } else if self.bucket.try_take(now) {
            Turn::Now
        } else {
            Turn::Limited
        }
    }

    /// A pod follows this version of a profile.
    pub fn note(&mut self, profile_version: &str, pod: Uid, now: Duration) {
        self.seen.insert((profile_version.to_owned(), pod), now);
    }

    /// Forgets what no longer counts, so that the journal is no larger than what waits.
    pub fn expire(&mut self, now: Duration) {
        self.seen.retain(|_, at| now < *at + self.keep);
    }
}

#[cfg(test)]
mod tests;
