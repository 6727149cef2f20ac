//! The engine itself, as the shell sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_engine::engine::dump::Dumps;
use koord_engine::engine::measure::Measured;
use koord_engine::engine::{self, Command, Engine, Input, Verdict};
use koord_engine::framework::timing::Stopwatch;
use koord_engine::queue::QueueName;
use koord_engine::time::Time;
use serde_json::{Value, json};

use super::{Attempt, Attempted, Brain, Form, Gauges, View, views};
use crate::config::SchedulerConfig;
use crate::flags::Options;

/// How an engine is set up for a checked configuration.
pub fn engine_options(config: &SchedulerConfig, options: &Options) -> engine::Options {
    engine::Options {
        percentage_of_nodes_to_score: config.percentage_of_nodes_to_score.get(),
        parallelism: i32::try_from(config.parallelism).unwrap_or(i32::MAX),
        initial_backoff: config.pod_initial_backoff,
        max_backoff: config.pod_max_backoff,
        max_in_unschedulable: options.pod_max_in_unschedulable,
        uses_hints: options.gates.is_on("SchedulerQueueingHints"),
        pops_from_backoff: options.gates.is_on("SchedulerPopFromBackoffQ"),
        checks_scheduler: options.gates.is_on("DynamicSchedulerCheck"),
        seed: koord_kit::random::bits(),
        ..engine::Options::new(config.profiles.clone())
    }
}

/// The engine, which measures what it does. The error is the whole text.
pub fn engine(options: &engine::Options) -> Result<Engine, String> {
    let mut engine = Engine::new(options).map_err(|error| error.to_string())?;
    engine.set_stopwatch(Arc::new(Monotonic(Instant::now())));
    Ok(engine)
}

/// The system's own, since it was asked first.
struct Monotonic(Instant);

impl Stopwatch for Monotonic {
    fn read(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Brain for Engine {
    fn take(&mut self, now: Time, input: Input) {
        Engine::take(self, now, input);
    }

    fn step(&mut self, now: Time) -> Option<Attempt> {
        let tried = Engine::step(self, now)?;
        Some(Attempt {
            pod: tried.pod,
            scheduler: tried.scheduler,
            result: match tried.verdict {
                Verdict::Scheduled { .. } => Attempted::Placed,
                Verdict::Unschedulable { .. } => Attempted::Unschedulable,
                Verdict::Error { .. } => Attempted::Error,
                Verdict::Skipped => Attempted::Skipped,
            },
            attempts: tried.attempts,
            waited: tried.since.map(|since| now.since(since)).unwrap_or_default(),
            evaluated: tried.evaluated,
            feasible: tried.feasible_count,
            dumped: tried.dumped,
        })
    }

    fn take_commands(&mut self) -> Vec<Command> {
        Engine::take_commands(self)
    }

    fn wake_at(&self, now: Time) -> Option<Time> {
        Engine::wake_at(self, now)
    }

    fn view(&mut self, now: Time, view: &View) -> Option<Value> {
        match view {
            View::Node(name) => views::node(self, name),
            View::Queue => Some(views::queue(self)),
            View::ExplainPod { namespace, name, form } => {
                let explanation = self.explain(now, namespace, name)?;
                match form {
                    Form::Text => Some(explanation.to_text().into()),
                    Form::Data => serde_json::to_value(explanation).ok(),
                }
            }
            View::ExplainPending(form) => {
                let report = self.explain_pending(now);
                match form {
                    Form::Text => Some(report.to_text().into()),
                    Form::Data => serde_json::to_value(report).ok(),
                }
            }
            View::Load(name) => views::load(self, name),
            View::ExplainReservation { name, form } => {
                let explanation = self.explain_reservation(now, name)?;
                match form {
                    Form::Text => Some(explanation.to_text().into()),
                    Form::Data => serde_json::to_value(explanation).ok(),
                }
            }
            View::NodeReservations(node) => {
                serde_json::to_value(self.node_reservations(node)?).ok().map(|items| json!({"items": items}))
            }
            View::ReservationIndex { with_names } => {
                serde_json::to_value(self.selector_index(*with_names)).ok()
            }
            View::Resources => Some(views::resources(self).into()),
            View::Dump => Some(views::dump(self, now)),
            View::Census => Some(views::census(self)),
            View::Revision { namespace, name } => self.revision_of(namespace, name).map(Value::from),
        }
    }

    fn gauges(&self) -> Gauges {
        let pending = self.pending();
        let part = |part: QueueName| part.to_string();
        Gauges {
            active: pending.active,
            backoff: pending.backoff,
            unschedulable: pending.unschedulable,
            gated: pending.gated,
            nodes: self.cluster().node_count(),
            pods: self.cluster().pod_count(),
            assumed: self.cluster().assumed_count(),
            incoming: self.incoming().map(|(queue, cause, count)| (part(queue), cause, count)).collect(),
            held: self
                .held_up()
                .map(|(plugin, scheduler, count)| (plugin.to_owned(), scheduler.to_owned(), count))
                .collect(),
            in_flight: self.in_flight_events(),
            reservations: self.reservation_gauges(),
        }
    }

    fn preemptions(&mut self) -> Vec<usize> {
        self.take_preemptions().victims
    }

    fn measured(&mut self) -> Measured {
        self.take_measured()
    }

    fn set_dumps(&mut self, dumps: Dumps) {
        Engine::set_dumps(self, dumps);
    }
}
