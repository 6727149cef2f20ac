//! The steadier strategy: batch resources shrink at once, and grow only when demand has stayed low. Pure.
//!
//! On with `batchStabilizationWindowSeconds` in colocation-config. What counts as taken is the highest of the window,
//! as with the stabilization window of a HorizontalPodAutoscaler. A pod that is missing in one report keeps what it
//! used in the last; one that has just landed counts with what its neighbours make likely; and a gap in the reports is
//! bridged for as long as the window is. A changed strategy counts at once: only demand is remembered, never results.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use koord_api::quantity::Quantity;
use koord_api::slo::colocation::CalculatePolicy;

use super::claims::Tenants;
use crate::amounts::Amounts;
use crate::node_resource::base::is_fresh;
use crate::node_resource::plugin::Input;
use crate::node_resource::settings::Settings;
use crate::node_resource::view::{MetricView, PodUsage};

/// What is remembered of a node.
#[derive(Clone, Debug, Default)]
pub struct Steady {
    window: SignedDuration,
    policies: Option<(CalculatePolicy, CalculatePolicy)>,
    /// The last report that measured everyone who had been measured before.
    metric: Option<Arc<MetricView>>,
    /// Of the node, then of its zones.
    places: Vec<Peaks>,
}

/// The highest demands of the window.
#[derive(Clone, Debug, Default)]
struct Peaks {
    cpu: Window,
    memory: Window,
}

/// Amounts that no later one has reached, oldest and largest first.
#[derive(Clone, Debug, Default)]
struct Window(VecDeque<(Timestamp, Quantity)>);

impl Steady {
    /// Begins a turn: forgets what is too old, and all demand when it is counted differently now.
    pub(super) fn turn(&mut self, now: Timestamp, window: SignedDuration, settings: &Settings) {
        self.window = window;
        let policies = Some((settings.cpu_policy.clone(), settings.memory_policy.clone()));
        if self.policies != policies {
            self.policies = policies;
            self.places.clear();
        }
        let trusted = settings.degrade_after.saturating_add(window);
        self.metric = self.metric.take().filter(|metric| is_fresh(metric, now, trusted));
    }

    /// The report to go by while there is no fresh one.
    pub(super) fn bridge(&self, input: &Input<'_>) -> Option<Arc<MetricView>> {
        let trusted = input.settings.degrade_after.saturating_add(self.window);
        let present = input.metric.filter(|metric| metric.node.is_some());
        present.or(self.metric.as_ref()).filter(|metric| is_fresh(metric, input.now, trusted)).cloned()
    }

    /// What a pod used when it was last measured.
    pub(super) fn used_before(&self, key: (&str, &str)) -> Option<&PodUsage> {
        self.metric.as_ref()?.pod(key)
    }

    /// Takes the place of the last report, unless that one still says more.
    pub(super) fn remember(&mut self, metric: &Arc<MetricView>, tenants: &Tenants<'_>) {
        if tenants.borrowed == 0 || self.metric.is_none() {
            self.metric = Some(metric.clone());
        }
    }

    /// The highest demand of the window at a place, this one included.
    pub(super) fn hold(&mut self, place: usize, now: Timestamp, taken: Amounts) -> Amounts {
        if self.places.len() <= place {
            self.places.resize_with(place + 1, Peaks::default);
        }
        let since = now.checked_sub(self.window).unwrap_or(Timestamp::MIN);
        let peaks = &mut self.places[place];
        Amounts {
            cpu: peaks.cpu.highest(since, now, taken.cpu),
            memory: peaks.memory.highest(since, now, taken.memory),
        }
    }
}

impl Window {
    fn highest(&mut self, since: Timestamp, now: Timestamp, amount: Quantity) -> Quantity {
        let peaks = &mut self.0;
        while peaks.front().is_some_and(|(time, _)| *time < since) {
            peaks.pop_front();
        }
        while peaks.back().is_some_and(|(_, earlier)| *earlier <= amount) {
            peaks.pop_back();
        }
        peaks.push_back((now, amount));
        peaks.front().map_or(amount, |(_, highest)| *highest)
    }
}

#[cfg(test)]
mod tests;
