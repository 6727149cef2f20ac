//! Backoff, early popping, and what time does.

use super::*;
use std::time::Duration;

/// The first whole second at which a pod that failed at `failed` for the `count`th time is in the active queue.
fn active_at(failed: f64, count: u32, is_error: bool, options: &Options) -> f64 {
    let mut world = World::new(options.clone());
    world.at(failed);
    world.add("a", 0);
    let mut record = world.queue.pop(&world.fake, world.now).unwrap();
    match is_error {
        true => record.consecutive_errors = count - 1,
        false => record.unschedulable_count = count - 1,
    }
    record.unschedulable_plugins = if is_error { PluginSet::EMPTY } else { plugins(&[FIT]) };
    world.queue.add_unschedulable(&mut world.fake, record, world.now).unwrap();
    world.event(&Event::wildcard());
    let wake = world.queue.next_wake(world.now).expect("it waits");
    while world.place("a") != "active" {
        world.tick_until(world.now.since(Time::default()).as_secs_f64() + 1.0);
    }
    assert_eq!(wake, world.now.floor_second(), "next_wake said when");
    world.now.floor_second().since(Time::default()).as_secs_f64()
}

#[test]
fn the_flusher_releases_at_whole_seconds() {
    let early = Options::default();
    let late = Options { pops_from_backoff: false, ..Options::default() };
    for (name, failed, count, is_error, options, want) in [
        ("scheduler-core#10.S20 count 1", 0.0, 1, false, &early, 2.0),
        ("scheduler-core#10.S20 count 2", 0.0, 2, false, &early, 3.0),
        ("scheduler-core#10.S20 count 3", 0.0, 3, false, &early, 5.0),
        ("scheduler-core#10.S20 count 4", 0.0, 4, false, &early, 9.0),
        ("scheduler-core#10.S20 count 5", 0.0, 5, false, &early, 11.0),
        ("scheduler-core#10.S20 count 6", 0.0, 6, false, &early, 11.0),
        ("failed in the middle of a second", 0.5, 1, false, &early, 2.0),
        ("failed at its end", 0.999, 1, false, &early, 2.0),
        ("errors obey the same rule", 0.0, 3, true, &early, 5.0),
        ("without early popping, whole", 0.0, 1, false, &late, 2.0),
        ("without early popping, half", 0.5, 1, false, &late, 2.0),
        ("without early popping, error", 0.5, 2, true, &late, 3.0),
    ] {
        assert_eq!(active_at(failed, count, is_error, options), want, "{name}");
    }
}

#[test]
fn an_idle_scheduler_pops_from_backoff_but_not_after_errors() {
    let mut world = World::new(Options::default());
    for (name, rejectors) in [("error", &[][..]), ("low", &[FIT]), ("high", &[FIT])] {
        world.refused(name, rejectors, &[]);
    }
    // All three in backoff, in one second; the pool's two by an event.
    world.event(&Event::wildcard());
    world.update(pod("low", -5), &[]);
    world.update(pod("high", 5), &[]);
    assert_eq!(world.queue.pending(), Pending { backoff: 3, ..Pending::default() });
    assert!(world.queue.is_ready());
    world.add("ready", -9);
    assert_eq!(world.pop_all(), ["ready", "high", "low"], "the active queue first, then by its order");
    assert_eq!(world.came(QueueName::Active, "PopFromBackoffQ"), 2);
    assert_eq!(world.place("error"), "error backoff");
    assert!(!world.queue.is_ready());
    world.tick_until(2.0);
    assert_eq!(world.came(QueueName::Active, "BackoffComplete"), 1);
    assert_eq!(world.pop_all(), ["error"]);
}

#[test]
fn earlier_seconds_come_before_higher_priority() {
    let mut world = World::new(Options::default());
    world.refused("first", &[FIT], &[]);
    world.at(1.2);
    world.refused("second-low", &[FIT], &[]);
    world.at(1.7);
    world.refused("second-high", &[FIT], &[]);
    world.update(pod("second-low", 1), &[]);
    world.event(&Event::wildcard());
    world.update(pod("first", 0), &[]);
    assert_eq!(world.pop_all(), ["first", "second-high", "second-low"]);
}

#[test]
fn without_early_popping_backoff_is_waited_for_and_gates_are_asked_when_it_ends() {
    let mut world = World::new(Options { pops_from_backoff: false, ..Options::default() });
    world.refused("a", &[FIT], &[]);
    world.refused("b", &[FIT], &[]);
    world.fake.gates.insert((plugin(GATE), key("b")));
    world.event(&Event::wildcard());
    assert_eq!((world.place("a"), world.place("b")), ("backoff", "backoff"));
    assert_eq!(world.pop(), None);
    world.tick_until(2.0);
    assert_eq!((world.place("a"), world.place("b")), ("active", "gated"));
    assert_eq!(world.came(QueueName::Unschedulable, "BackoffComplete"), 1);
}

#[test]
fn gates_are_asked_on_the_way_into_backoff_and_not_again() {
    let mut world = World::new(Options::default());
    world.refused("held", &[FIT], &[]);
    world.refused("free", &[FIT], &[]);
    world.fake.gates.insert((plugin(GATE), key("held")));
    world.event(&Event::wildcard());
    assert_eq!((world.place("held"), world.place("free")), ("gated", "backoff"));
    world.fake.gates.insert((plugin(GATE), key("free")));
    world.fake.asked.clear();
    world.tick_until(2.0);
    assert_eq!(world.place("free"), "active");
    assert!(world.fake.asked.is_empty());
}

#[test]
fn no_backoff_at_all() {
    let mut world = World::new(Options { max_backoff: Duration::ZERO, ..Options::default() });
    assert_eq!(world.refused("a", &[FIT], &[]), QueueName::Unschedulable);
    world.event(&Event::wildcard());
    assert_eq!(world.place("a"), "active");
    world.pop();
    assert_eq!(world.fail("a", &[], &[]), Ok(QueueName::Active), "an error is tried again at once");
}

#[test]
fn what_stays_in_the_pool_for_five_minutes_is_tried_at_the_next_run() {
    let mut world = World::new(Options::default());
    world.queue.tick(&mut world.fake, world.now);
    world.at(10.0);
    world.refused("a", &[DEAF], &[]);
    world.fake.gates.insert((plugin(GATE2), key("held")));
    world.add("held", 0);
    assert_eq!(world.queue.next_wake(world.now), Some(seconds(30.0)));
    assert_eq!(world.waiting("a").moved_at, Some(seconds(330.0)), "310 s is no run of every 30 s");
    assert_eq!(world.waiting("held").moved_at, None);
    world.fake.asked.clear();
    world.tick_until(329.0);
    assert_eq!(world.place("a"), "unschedulable");
    world.tick_until(330.0);
    assert_eq!(world.place("a"), "active", "its backoff was over");
    assert_eq!(world.came(QueueName::Active, "UnschedulableTimeout"), 1);
    world.tick_until(1000.0);
    assert_eq!(world.place("held"), "gated", "gated pods are not flushed");
    assert!(world.fake.asked.iter().all(|(_, pod)| *pod == key("a")), "nor evaluated");
    assert_eq!(world.queue.next_wake(world.now), None);
}

#[test]
fn five_minutes_must_have_passed() {
    let mut world = World::new(Options::default());
    world.queue.tick(&mut world.fake, world.now);
    world.refused("a", &[DEAF], &[]);
    world.tick_until(300.0);
    assert_eq!(world.place("a"), "unschedulable", "exactly five minutes are not more than that");
    // A shell that slept: the run that is due happens when it comes back.
    world.at(375.0);
    world.queue.tick(&mut world.fake, world.now);
    assert_eq!(world.pop().as_deref(), Some("a"));
    world.refused("b", &[DEAF], &[]);
    assert_eq!(world.queue.next_wake(world.now), Some(seconds(390.0)), "runs keep their rhythm");
}

#[test]
fn a_clock_that_is_set_back_strands_nobody() {
    let mut world = World::new(Options::default());
    world.at(7200.25);
    world.add("old", 0);
    world.add("error", 1);
    world.pop();
    world.fail("error", &[], &[]).unwrap();
    world.at(7200.0);
    world.add("same-time", 0);
    assert_eq!(world.queue.get(&key("same-time")).unwrap().timestamp, seconds(7200.25), "jitter");
    world.at(0.5);
    world.add("new", 0);
    world.tick_until(2.0);
    assert_eq!(world.place("error"), "active", "it waits as long as it would have");
    assert_eq!(world.pop_all(), ["error", "old", "same-time", "new"], "and order stays");
}
