//! How long extension points, plugins and hints take, for metrics. Spec: scheduler-core 8.3.
//!
//! The engine has no clock: whoever wants these numbers brings one. Without it nothing is measured and each place that
//! would be costs a branch. Points are measured in every attempt, single plugins in one of ten, as kube-scheduler does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::status::{Code, PluginName, Status};
use crate::random::Random;

/// A clock that only goes forward.
pub trait Stopwatch: Send + Sync {
    /// Since some moment, always the same.
    fn read(&self) -> Duration;
}

/// Plugins are measured in one attempt of so many.
const SAMPLED_OF: usize = 10;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lap {
    pub point: &'static str,
    /// None for all plugins of the point together.
    pub plugin: Option<PluginName>,
    pub status: &'static str,
    pub took: Duration,
}

/// What was measured of one profile's plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Laps {
    pub laps: Vec<Lap>,
    /// How often each plugin was asked at a point: once for each node where it is asked about nodes.
    pub asked: BTreeMap<(PluginName, &'static str), u64>,
    /// Questions to the index of reservations, in order.
    pub queries: Vec<IndexQuery>,
}

/// A question to the index of reservations by labels. Plugins leave it in the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexQuery {
    /// Nodes that are left; none when the index knows none of the labels.
    pub candidates: Option<usize>,
}

/// The measurements of one profile. Inside a cell, for plugins run behind shared references.
#[derive(Default)]
pub struct Timing {
    running: RefCell<Option<Box<Running>>>,
}

struct Running {
    watch: Arc<dyn Stopwatch>,
    /// Between the beginning of an attempt and its end; what-ifs are not measured.
    is_open: bool,
    is_sampled: bool,
    /// Its own, so that measuring changes no choice.
    random: Random,
    laps: Laps,
    /// Of all points so far: a point inside another does not count twice.
    points: Duration,
}

/// When something began.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: Duration,
    points: Duration,
}

impl Timing {
    pub fn set_stopwatch(&self, watch: Arc<dyn Stopwatch>) {
        *self.running.borrow_mut() = Some(Box::new(Running {
            watch,
            is_open: false,
            is_sampled: false,
            random: Random::new(0),
            laps: Laps::default(),
            points: Duration::ZERO,
        }));
    }

    /// An attempt, or what comes after one, begins.
    pub fn open(&self) {
        if let Some(running) = &mut *self.running.borrow_mut() {
            running.is_open = true;
            running.is_sampled = running.random.below(SAMPLED_OF) == 0;
        }
    }

    pub fn close(&self) {
        if let Some(running) = &mut *self.running.borrow_mut() {
            running.is_open = false;
        }
    }

    /// What was measured since the last call; none when nothing was.
    pub fn take(&self) -> Option<Laps> {
        let mut running = self.running.borrow_mut();
        let laps = &mut running.as_mut()?.laps;
        (*laps != Laps::default()).then(|| std::mem::take(laps))
    }

    /// A point begins; none when it is not measured.
    pub fn begin(&self) -> Option<Mark> {
        let running = self.running.borrow();
        let running = running.as_ref().filter(|running| running.is_open)?;
        Some(Mark { at: running.watch.read(), points: running.points })
    }

    /// A plugin begins; none when it is not measured.
    pub fn begin_plugin(&self) -> Option<Mark> {
        let running = self.running.borrow();
        let running = running.as_ref().filter(|running| running.is_open && running.is_sampled)?;
        Some(Mark { at: running.watch.read(), points: running.points })
    }

    /// All plugins of a point are done. What points inside it took is theirs.
    pub fn end(&self, begun: Option<Mark>, point: &'static str, status: &'static str) {
        let (Some(mark), Some(running)) = (begun, &mut *self.running.borrow_mut()) else { return };
        let inside = running.points.saturating_sub(mark.points);
        let took = running.watch.read().saturating_sub(mark.at).saturating_sub(inside);
        running.points += took;
        running.laps.laps.push(Lap { point, plugin: None, status, took });
    }

    pub fn end_plugin(
        &self,
        begun: Option<Mark>,
        point: &'static str,
        plugin: PluginName,
        status: &'static str,
    ) {
        let (Some(mark), Some(running)) = (begun, &mut *self.running.borrow_mut()) else { return };
        let took = running.watch.read().saturating_sub(mark.at);
        running.laps.laps.push(Lap { point, plugin: Some(plugin), status, took });
    }

    /// The index of reservations was asked.
    pub fn queried(&self, query: IndexQuery) {
        let Some(running) = &mut *self.running.borrow_mut() else { return };
        if running.is_open {
            running.laps.queries.push(query);
        }
    }

    /// A plugin was asked so often.
    pub fn asked(&self, plugin: PluginName, point: &'static str, times: usize) {
        let Some(running) = &mut *self.running.borrow_mut() else { return };
        if running.is_open {
            let times = u64::try_from(times).unwrap_or(u64::MAX);
            *running.laps.asked.entry((plugin, point)).or_default() += times;
        }
    }
}

/// The word of metrics for how something ended.
pub fn word<T>(result: &Result<T, Status>) -> &'static str {
    match result {
        Ok(_) => Code::Success.word(),
        Err(status) => status.code.word(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Each reading is a millisecond later.
    #[derive(Default)]
    pub(crate) struct Ticking(AtomicU64);

    impl Stopwatch for Ticking {
        fn read(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    #[test]
    fn nothing_is_measured_without_a_clock_or_outside_an_attempt() {
        let timing = Timing::default();
        timing.open();
        assert!(timing.begin().is_none() && timing.begin_plugin().is_none());
        timing.end(None, "Filter", "Success");
        timing.asked("P", "Filter", 3);
        assert_eq!(timing.take(), None);
        timing.set_stopwatch(Arc::new(Ticking::default()));
        assert!(timing.begin().is_none(), "no attempt is under way");
        timing.asked("P", "Filter", 3);
        assert_eq!(timing.take(), None);
        timing.open();
        assert!(timing.begin().is_some());
        timing.close();
        assert!(timing.begin().is_none());
    }

    #[test]
    fn a_point_inside_another_counts_once() {
        let timing = Timing::default();
        timing.set_stopwatch(Arc::new(Ticking::default()));
        timing.open();
        let outer = timing.begin();
        let inner = timing.begin();
        timing.end(inner, "PostFilter", "Success");
        timing.end(outer, "Filter", "Unschedulable");
        timing.asked("P", "Filter", 3);
        timing.asked("P", "Filter", 2);
        let laps = timing.take().unwrap();
        let took: Vec<(&str, u128)> = laps.laps.iter().map(|lap| (lap.point, lap.took.as_millis())).collect();
        assert_eq!(took, [("PostFilter", 1), ("Filter", 2)]);
        assert_eq!(laps.asked, [(("P", "Filter"), 5)].into());
        assert_eq!(timing.take(), None);
    }

    #[test]
    fn plugins_are_measured_in_one_attempt_of_ten() {
        let timing = Timing::default();
        timing.set_stopwatch(Arc::new(Ticking::default()));
        let sampled = (0..1000).filter(|_| {
            timing.open();
            timing.begin_plugin().is_some()
        });
        let sampled = sampled.count();
        assert!((50..200).contains(&sampled), "{sampled}");
    }
}
