//! A brain whose every experience is written down.

use std::time::Duration;

use koord_engine::engine::dump::Dumps;
use koord_engine::engine::measure::Measured;
use koord_engine::engine::{Command, Input};
use koord_engine::time::Time;
use serde_json::Value;

use super::{Heard, Recorder};
use crate::brain::{Attempt, Brain, Gauges, View};

/// A quiet scheduler's last minutes are on the disk, too.
const FLUSHED_EVERY: Duration = Duration::from_secs(5);

/// Tells a recorder what it tells the brain. What people ask changes nothing and is not recorded.
pub struct Recorded<B> {
    brain: B,
    /// None once it has ended.
    recorder: Option<Recorder>,
    heard: Heard,
    now: Time,
    flushed: Time,
}

impl<B: Brain> Recorded<B> {
    /// `heard` is where the brain's extenders are overheard.
    pub fn new(brain: B, recorder: Recorder, heard: Heard) -> Recorded<B> {
        Recorded { brain, recorder: Some(recorder), heard, now: Time::MIN, flushed: Time::MIN }
    }
}

impl<B: Brain> Brain for Recorded<B> {
    fn take(&mut self, now: Time, input: Input) {
        self.now = now;
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &input);
        }
        self.brain.take(now, input);
    }

    fn step(&mut self, now: Time) -> Option<Attempt> {
        self.now = now;
        let attempt = self.brain.step(now);
        let said = self.heard.take();
        if let Some(recorder) = &mut self.recorder {
            recorder.said(&said);
            recorder.step(now);
        }
        attempt
    }

    fn take_commands(&mut self) -> Vec<Command> {
        let commands = self.brain.take_commands();
        let Some(recorder) = &mut self.recorder else { return commands };
        recorder.commands(&commands);
        if self.now.since(self.flushed) >= FLUSHED_EVERY {
            self.flushed = self.now;
            recorder.flush();
        }
        if let Some(problem) = recorder.take_problem() {
            tracing::warn!(error = &problem as &dyn std::error::Error, "the recording has ended");
            self.recorder = None;
        }
        commands
    }

    fn wake_at(&self, now: Time) -> Option<Time> {
        self.brain.wake_at(now)
    }

    fn view(&mut self, now: Time, view: &View) -> Option<Value> {
        self.brain.view(now, view)
    }

    fn gauges(&self) -> Gauges {
        self.brain.gauges()
    }

    fn preemptions(&mut self) -> Vec<usize> {
        self.brain.preemptions()
    }

    fn measured(&mut self) -> Measured {
        self.brain.measured()
    }

    fn set_dumps(&mut self, dumps: Dumps) {
        self.brain.set_dumps(dumps);
    }
}

/// What was experienced up to the end is worth most.
impl<B> Drop for Recorded<B> {
    fn drop(&mut self) {
        if let Some(Err(problem)) = self.recorder.take().map(Recorder::finish) {
            tracing::warn!(error = &problem as &dyn std::error::Error, "the recording has no end");
        }
    }
}
