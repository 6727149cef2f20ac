//! Numbers for metrics that only the engine can take. Spec: scheduler-core 8.3.
//!
//! Nothing is measured until somebody brings a clock, and no choice depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Engine, Input};
use crate::framework::PluginName;
use crate::framework::event::Event;
use crate::framework::hint::Hint;
use crate::framework::timing::{Laps, Stopwatch};
use crate::random::Random;
use crate::time::Time;

/// Hints are measured once in so many times.
const HINTS_SAMPLED_OF: usize = 10;

/// What was measured since somebody asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// By profile.
    pub plugins: Vec<(Box<str>, Laps)>,
    pub hints: Vec<HintLap>,
    /// Events of the cluster, by their label, and how long they took.
    pub events: Vec<(String, Duration)>,
    /// Waits at Permit: how they ended, and how long they were.
    pub waits: Vec<(&'static str, Duration)>,
}

/// One call of a hint function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintLap {
    pub plugin: PluginName,
    pub event: String,
    pub hint: &'static str,
    pub took: Duration,
}

/// What is measured while the queue works.
pub(super) struct HintTimes {
    watch: Arc<dyn Stopwatch>,
    random: Random,
    laps: Vec<HintLap>,
}

impl HintTimes {
    fn new(watch: Arc<dyn Stopwatch>) -> HintTimes {
        HintTimes { watch, random: Random::new(0), laps: Vec::new() }
    }

    /// When a hint begins; none when it is not measured.
    pub(super) fn begin(&mut self) -> Option<Duration> {
        (self.random.below(HINTS_SAMPLED_OF) == 0).then(|| self.watch.read())
    }

    pub(super) fn end(&mut self, begun: Duration, plugin: PluginName, event: &Event, hint: Hint) {
        let took = self.watch.read().saturating_sub(begun);
        let hint = match hint {
            Hint::Queue => "Queue",
            Hint::Skip => "QueueSkip",
        };
        self.laps.push(HintLap { plugin, event: event.to_string(), hint, took });
    }
}

/// What the engine keeps of its own.
#[derive(Default)]
pub(super) struct Measuring {
    watch: Option<Arc<dyn Stopwatch>>,
    events: Vec<(String, Duration)>,
    waits: Vec<(&'static str, Duration)>,
}

impl Measuring {
    /// A wait at Permit has ended.
    pub(super) fn waited(&mut self, result: &'static str, since: Time, now: Time) {
        if self.watch.is_some() {
            self.waits.push((result, now.since(since)));
        }
    }

    /// When something is taken; none when that is not measured.
    pub(super) fn begin(&self, input: &Input) -> Option<Duration> {
        let watch = self.watch.as_ref()?;
        let is_event = !matches!(input, Input::Outcome { .. } | Input::Activate { .. } | Input::Tick);
        is_event.then(|| watch.read())
    }
}

impl Engine {
    /// Measures from now on.
    pub fn set_stopwatch(&mut self, watch: Arc<dyn Stopwatch>) {
        for framework in &self.world.frameworks {
            framework.timing.set_stopwatch(watch.clone());
        }
        self.world.hint_times = Some(HintTimes::new(watch.clone()));
        self.queue.remember_events();
        self.measuring.watch = Some(watch);
    }

    /// What was measured since the last call.
    pub fn take_measured(&mut self) -> Measured {
        let frameworks = self.world.frameworks.iter();
        let plugins =
            frameworks.filter_map(|framework| Some((framework.scheduler.clone(), framework.timing.take()?)));
        Measured {
            plugins: plugins.collect(),
            hints: self
                .world
                .hint_times
                .as_mut()
                .map(|times| std::mem::take(&mut times.laps))
                .unwrap_or_default(),
            events: std::mem::take(&mut self.measuring.events),
            waits: std::mem::take(&mut self.measuring.waits),
        }
    }

    /// Gauge `inflight_events`, by label.
    pub fn in_flight_events(&self) -> BTreeMap<String, usize> {
        self.queue.in_flight_events()
    }

    /// What began with [`Measuring::begin`] has been taken.
    pub(super) fn end_event(&mut self, begun: Option<Duration>) {
        let event = self.queue.take_event();
        let (Some(begun), Some(watch), Some(event)) = (begun, &self.measuring.watch, event) else { return };
        self.measuring.events.push((event.to_string(), watch.read().saturating_sub(begun)));
    }
}
