//! An order to the programs of traffic control, carried out on a thread of its own: one that hangs holds up nothing else.
//!
//! One order at a time, and a thread for each: they are rare. Who gave it asks whether it has ended, and then takes what
//! became of it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Desired;
use super::shaper::Shaper;
use crate::programs::Fault;

/// How long an order may be under way before it is told. It runs many programs, and each of them may take its time.
const LATE_AFTER: Duration = Duration::from_secs(60);
/// How long the end of the process waits for an order: less than the process itself has to end.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// What the programs are for.
#[derive(Clone)]
pub(super) enum Order {
    /// To make what is wanted, and take away what else there is of ours. `hz` are the ticks of the packet scheduler.
    Shape { desired: Arc<Desired>, hz: i64 },
    /// To take everything away.
    Remove,
}

/// An order that is under way, or has ended.
pub(super) struct Errand {
    order: Order,
    since: Instant,
    thread: JoinHandle<Vec<Fault>>,
    /// Its other half lives as long as the thread.
    end: Receiver<Infallible>,
}

impl Errand {
    pub(super) fn start(shaper: &Arc<Shaper>, order: Order, now: Instant) -> io::Result<Errand> {
        let (shaper, ordered) = (shaper.clone(), order.clone());
        let (alive, end) = channel();
        let thread = thread::Builder::new().name("traffic".to_owned()).spawn(move || {
            let _alive: Sender<Infallible> = alive;
            shaper.carry_out(&ordered)
        })?;
        Ok(Errand { order, since: now, thread, end })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= LATE_AFTER
    }

    /// What was ordered, and what went wrong. Waits for the end.
    pub(super) fn finish(self) -> (Order, Vec<Fault>) {
        let panicked = |_| vec![Fault::Refused("traffic".to_owned(), "the thread panicked".to_owned())];
        (self.order, self.thread.join().unwrap_or_else(panicked))
    }

    /// Waits for the end, but not for ever. False when it did not come.
    pub(super) fn wait(&self) -> bool {
        matches!(self.end.recv_timeout(END_PATIENCE), Err(RecvTimeoutError::Disconnected))
    }
}
