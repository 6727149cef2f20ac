//! Profiles: which plugins run at which point, in which order, with which weights and arguments.
//!
//! Checked values only: a [`Profile`] can run as it stands. Files are read in the scheduler crate. A new plugin is a
//! row in `profile/plugins.rs`; its arguments are a struct in `profile/args`. Spec: scheduler-core 7.

pub mod args;
pub mod expand;
pub mod plugins;
pub mod point;

use args::{Args, Percent};
use expand::{Enabled, ExpandError, PluginSets};
use point::{PerPoint, Point};

/// How the pods of one scheduler name are scheduled.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub scheduler_name: String,
    /// Takes the place of the global one; 0 lets the number of nodes decide.
    pub percentage_of_nodes_to_score: Option<Percent>,
    /// What runs at each point, in order.
    pub points: PerPoint<Vec<Enabled>>,
    /// Arguments of every plugin, also of those that are off.
    pub args: Args,
}

impl Profile {
    /// kube-scheduler's default plugins under this name.
    pub fn standard(scheduler_name: &str) -> Profile {
        let points = PluginSets::defaults().expand(scheduler_name).unwrap_or_default();
        Profile {
            scheduler_name: scheduler_name.to_owned(),
            percentage_of_nodes_to_score: None,
            points,
            args: Args::default(),
        }
    }

    /// Whether a plugin takes part at a point.
    pub fn runs(&self, plugin: &str, point: Point) -> bool {
        self.points[point].iter().any(|enabled| enabled.plugin == plugin)
    }

    /// Whether pods are spread, by constraints of their own or by default.
    pub fn spreads(&self) -> bool {
        let points = [Point::PreFilter, Point::Filter, Point::Score];
        points.into_iter().any(|point| self.runs("PodTopologySpread", point))
    }

    /// Whether the load of nodes counts.
    pub fn follows_load(&self) -> bool {
        [Point::Filter, Point::Score].into_iter().any(|point| self.runs("LoadAwareScheduling", point))
    }

    /// Whether pods use reservations, and reservations are placed.
    pub fn reserves(&self) -> bool {
        self.runs("Reservation", Point::Reserve)
    }

    /// The plugin that sorts the queue; a checked profile has exactly one.
    pub fn queue_sort(&self) -> Option<&'static str> {
        self.points[Point::QueueSort].first().map(|enabled| enabled.plugin)
    }

    /// What runs but cannot work as meant: a plugin that checks without taking what it checked. Spec: scheduler-core 7.4.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for plugin in KEEPS_ACCOUNTS {
            let checks = CHECKS.into_iter().find(|point| self.runs(plugin, *point));
            if let (Some(point), false) = (checks, self.runs(plugin, Point::Reserve)) {
                warnings.push(format!("plugin {plugin} is enabled at {} but not at reserve", point.key()));
            }
        }
        warnings
    }
}

/// Plugins that check against accounts which their reserve step keeps.
const KEEPS_ACCOUNTS: [&str; 5] =
    ["Reservation", "NodeNUMAResource", "DeviceShare", "ElasticQuota", "Coscheduling"];
/// Where they check, the most telling first.
const CHECKS: [Point; 3] = [Point::Filter, Point::PreFilter, Point::Permit];

/// Why a profile, or a set of profiles, cannot be. The texts are kube-scheduler's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("initializing profiles: creating profile for scheduler name {scheduler}: {fault}")]
    Plugins { scheduler: String, fault: ExpandError },
    /// `message` is the plugin's own complaint about its arguments.
    #[error(
        "initializing profiles: creating profile for scheduler name {scheduler}: initializing plugin {plugin:?}: {message}"
    )]
    Args { scheduler: String, plugin: String, message: String },
    #[error("initializing profiles: scheduler name is needed")]
    NoName,
    #[error("initializing profiles: duplicate profile with scheduler name {scheduler:?}")]
    Duplicate { scheduler: String },
    #[error(
        "initializing profiles: different queue sort plugins for profile {scheduler:?}: {found:?}, first: {first:?}"
    )]
    QueueSort { scheduler: String, found: &'static str, first: &'static str },
}

/// What keeps profiles from running side by side: they share one queue, and pods choose them by name.
pub fn check_together(profiles: &[Profile]) -> Vec<ProfileError> {
    let mut errors = Vec::new();
    for (i, profile) in profiles.iter().enumerate() {
        let scheduler = profile.scheduler_name.clone();
        if scheduler.is_empty() {
            errors.push(ProfileError::NoName);
        } else if profiles[..i].iter().any(|other| other.scheduler_name == scheduler) {
            errors.push(ProfileError::Duplicate { scheduler });
        } else if let (Some(found), Some(first)) = (profile.queue_sort(), profiles[0].queue_sort())
            && found != first
        {
            errors.push(ProfileError::QueueSort { scheduler, found, first });
        }
    }
    errors
}

#[cfg(test)]
mod tests;
