//! The queue's order, waits and retries, on a clock of our own.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::Format;

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn queue() -> Queue<&'static str> {
    Queue::new(Retries::default(), Duration::ZERO)
}

fn take_all(queue: &mut Queue<&'static str>, now: Duration) -> Vec<&'static str> {
    std::iter::from_fn(|| queue.take(now).map(|turn| turn.key)).collect()
}

#[test]
fn a_key_is_there_once_and_in_order() {
    let mut queue = queue();
    assert!(queue.add(at(0), "a"));
    assert!(queue.add(at(1), "b"));
    assert!(!queue.add(at(2), "a"), "already there");
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.take(at(5)), Some(Turn { key: "a", waited: at(5) }));
    assert_eq!(queue.take(at(5)), Some(Turn { key: "b", waited: at(4) }));
    assert_eq!(queue.take(at(5)), None);
}

#[test]
fn a_key_at_work_gets_another_turn_afterwards() {
    let mut queue = queue();
    queue.add(at(0), "a");
    queue.take(at(0));
    assert!(queue.add(at(1), "a"));
    assert!(!queue.add(at(1), "a"));
    assert_eq!(queue.take(at(2)), None, "never twice at once");
    assert_eq!(queue.unfinished(at(2)), Unfinished { total: at(2), longest: at(2) });
    assert_eq!(queue.done(at(3), &"a"), at(3));
    assert_eq!(take_all(&mut queue, at(3)), ["a"]);
    queue.done(at(4), &"a");
    assert!(take_all(&mut queue, at(9)).is_empty());
    assert_eq!(queue.unfinished(at(9)), Unfinished::default());
}

#[test]
fn the_earliest_of_several_times_counts() {
    let mut queue = queue();
    queue.add_after(at(0), "a", at(50));
    queue.add_after(at(0), "b", at(30));
    queue.add_after(at(0), "a", at(90));
    assert_eq!(queue.next_due(), Some(at(30)));
    queue.add_after(at(0), "a", at(20));
    assert_eq!(queue.next_due(), Some(at(20)));
    assert_eq!(take_all(&mut queue, at(19)), [""; 0]);
    assert_eq!(take_all(&mut queue, at(60)), ["a", "b"], "in the order of their times");
    assert_eq!(queue.next_due(), None);
}

#[test]
fn waits_double_up_to_a_limit() {
    // manager 1.5: 5 ms … 1000 s, together with 10 a second and 100 at once.
    let mut queue = queue();
    let waits: Vec<u128> = (0..20_u64).map(|n| queue.retry(at(n * 10_000_000), "a").as_millis()).collect();
    assert_eq!(waits[..6], [5, 10, 20, 40, 80, 160]);
    assert_eq!(waits[17], 655_360);
    assert_eq!(waits[18..], [1_000_000, 1_000_000]);
    queue.forget(&"a");
    assert_eq!(queue.retry(at(1_000_000_000), "a"), at(5));
}

#[test]
fn retries_of_many_keys_share_one_bucket() {
    let mut queue: Queue<u32> = Queue::new(Retries::default(), Duration::ZERO);
    let waits: Vec<Duration> = (0..103).map(|key| queue.retry(at(0), key)).collect();
    assert!(waits[..100].iter().all(|wait| *wait == at(5)));
    assert_eq!(waits[100..], [at(100), at(200), at(300)]);
}

proptest! {
    /// Whatever happens: no key is at work twice, none that is wanted is lost, none is made up.
    #[test]
    fn nothing_is_lost_or_doubled(steps in prop::collection::vec((0..5_u8, 0..4_u8, 0..50_u64), 0..200)) {
        let mut queue: Queue<u8> = Queue::new(Retries::default(), Duration::ZERO);
        let (mut now, mut owed, mut at_work) = (0, BTreeSet::new(), Vec::new());
        let mut known = BTreeSet::new();
        for (what, key, delay) in steps {
            now += delay;
            match what {
                0 => _ = queue.add(at(now), key),
                1 => queue.add_after(at(now), key, at(delay)),
                2 => _ = queue.retry(at(now), key),
                3 => if let Some(turn) = queue.take(at(now)) {
                    prop_assert!(!at_work.contains(&turn.key));
                    prop_assert!(known.contains(&turn.key));
                    owed.remove(&turn.key);
                    at_work.push(turn.key);
                },
                _ => if let Some(key) = at_work.pop() { queue.done(at(now), &key); },
            }
            if what < 3 {
                owed.insert(key);
                known.insert(key);
            }
        }
        for key in at_work {
            queue.done(at(now), &key);
        }
        let end = at(now) + Duration::from_secs(10_000);
        let mut rest = BTreeSet::new();
        while let Some(turn) = queue.take(end) {
            queue.done(end, &turn.key);
            prop_assert!(rest.insert(turn.key), "twice");
        }
        prop_assert!(owed.is_subset(&rest), "{owed:?} was wanted, {rest:?} came");
        prop_assert_eq!(queue.next_due(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_wait_for_additions_and_times() {
    let registry = Metrics::new();
    let metrics = QueueMetrics::new(&registry);
    let queue: Arc<WorkQueue<&str>> = WorkQueue::new("nodeslo", Retries::default(), &metrics);
    let stop = CancellationToken::new();
    let worker = tokio::spawn({
        let (queue, stop) = (queue.clone(), stop.clone());
        async move {
            let mut seen = Vec::new();
            let start = Instant::now();
            while let Some(key) = queue.next(&stop).await {
                seen.push((key, start.elapsed().as_secs()));
                queue.done(&key);
            }
            seen
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.add_after("late", Duration::from_secs(9));
    queue.add("now");
    queue.add_after("soon", Duration::from_secs(2));
    tokio::time::sleep(Duration::from_secs(20)).await;
    stop.cancel();
    assert_eq!(worker.await.unwrap(), [("now", 1), ("soon", 3), ("late", 10)]);
    let page = registry.render(Format::Prometheus);
    for line in [
        "workqueue_adds_total{name=\"nodeslo\"} 3",
        "workqueue_depth{name=\"nodeslo\"} 0",
        "workqueue_unfinished_work_seconds{name=\"nodeslo\"} 0.0",
        "workqueue_work_duration_seconds_count{name=\"nodeslo\"} 3",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
}
