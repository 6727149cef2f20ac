//! A fixed amount of queue work, to be timed from outside: with 100,000 pods queued, five million times a
//! pod is popped, done and added again.
//!
//! `cargo build --release -p koord-engine --example queue_rate`, then
//! `time target/release/examples/queue_rate`: five million rounds over the seconds it took are rounds per
//! second. Filling the queue is 2 % of it.

use std::convert::Infallible;

use koord_engine::framework::event::Event;
use koord_engine::framework::hint::Hint;
use koord_engine::framework::plugin_set::PluginId;
use koord_engine::framework::status::Status;
use koord_engine::queue::{Host, Options, Pod, PodKey, ProfileId, Queue, QueuedPod};
use koord_engine::time::Time;

const PODS: i64 = 100_000;
const ROUNDS: i64 = 5_000_000;

/// Pods without any plugin.
struct Bare;

impl Host for Bare {
    type Content = i64;
    type Change = ();
    type HintFn = Infallible;

    fn pre_enqueue(&mut self, _: PluginId, _: &QueuedPod<i64>) -> Result<(), Status> {
        Ok(())
    }

    fn hint(
        &mut self,
        _: PluginId,
        function: &Infallible,
        _: &QueuedPod<i64>,
        _: &Event,
        (): &(),
    ) -> Result<Hint, Status> {
        match *function {}
    }

    fn is_waiting(&self, _: &Pod<i64>) -> bool {
        true
    }
}

fn pod(number: i64) -> Pod<i64> {
    Pod {
        key: PodKey::new("namespace-of-some-length", &format!("workload-5d8f7c9b6-{number:06}")),
        uid: format!("6f1c2a7e-0000-4000-8000-{number:012}").as_str().into(),
        profile: ProfileId(0),
        priority: i32::try_from(number % 3).unwrap_or(0),
        nominated: None,
        content: number,
    }
}

fn main() {
    let mut queue = Queue::new(Options::default(), vec![Default::default()]);
    for number in 0..PODS {
        queue.add(&mut Bare, pod(number), Time::from_nanos(number));
    }
    let mut numbers = 0;
    for round in 0..ROUNDS {
        let now = Time::from_nanos(PODS + round);
        let Some(record) = queue.pop(&Bare, now) else { break };
        numbers += record.pod.content;
        queue.done(&record.pod.uid);
        queue.add(&mut Bare, record.pod, now);
    }
    assert_eq!(queue.len(), 100_000, "nothing is lost");
    assert!(numbers > 0);
}
