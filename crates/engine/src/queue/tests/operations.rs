//! Add, Pop, Done, take-back, Delete, order.

use super::*;

fn nominated(name: &str, node: &str) -> Pod<i32> {
    Pod { nominated: Some(node.into()), ..pod(name, 0) }
}

#[test]
fn the_active_queue_goes_by_priority_then_by_age() {
    let mut world = World::new(Options::default());
    for (time, name, priority) in
        [(0.0, "old-low", -1), (1.0, "old", 0), (1.0, "as-old", 0), (2.0, "young", 0), (3.0, "high", 7)]
    {
        world.at(time);
        world.add(name, priority);
    }
    assert_eq!(world.waiting("young").ahead, Some(3));
    assert_eq!(world.pop_all(), ["high", "old", "as-old", "young", "old-low"]);
}

#[test]
fn the_hosts_order_takes_the_place_of_priority_and_can_change() {
    let mut world = World::new(Options { sort: Sort::Host, ..Options::default() });
    for (name, label) in [("b", 2), ("a", 1), ("d", 4), ("c", 3), ("c2", 3)] {
        world.add(name, label);
    }
    let names = |world: &World| -> Vec<String> {
        let list = world.queue.list(&world.fake, QueueName::Active);
        list.iter().map(|record| record.pod.uid.to_string()).collect()
    };
    assert_eq!(names(&world), ["a", "b", "c", "c2", "d"]);
    world.update(pod("a", 9), &[]);
    assert_eq!(world.pop().as_deref(), Some("b"), "an update puts the pod where it now belongs");
    world.fake.is_reversed = true;
    world.queue.resort(&world.fake);
    assert_eq!(world.pop_all(), ["a", "d", "c", "c2"]);
}

#[test]
fn adding_sets_up_the_record() {
    let mut world = World::new(Options::default());
    world.at(5.5);
    assert_eq!(world.add("a", 0), QueueName::Active);
    let record = world.queue.get(&key("a")).unwrap();
    assert_eq!((record.timestamp, record.since), (seconds(5.5), seconds(5.5)));
    assert_eq!(record.initial_attempt, Some(seconds(5.5)));
    assert_eq!((record.attempts, record.unschedulable_count, record.consecutive_errors), (0, 0, 0));
    assert_eq!(world.came(QueueName::Active, "UnschedulablePodAdd"), 1);

    world.fake.gates.insert((plugin(GATE2), key("b")));
    assert_eq!(world.add("b", 0), QueueName::Gated);
    let waiting = world.waiting("b");
    assert_eq!(
        waiting.gate.map(|gate| (gate.plugin, gate.status.to_string())),
        Some((plugin(GATE2), "held".into()))
    );
    assert_eq!((waiting.rejectors, waiting.record.initial_attempt), (plugins(&[GATE2]), None));
    assert_eq!(world.came(QueueName::Unschedulable, "UnschedulablePodAdd"), 1);
    assert_eq!(world.queue.pending(), Pending { active: 1, gated: 1, ..Pending::default() });
}

#[test]
fn a_second_add_changes_nothing_but_the_content_unless_it_is_another_pod() {
    let mut world = World::new(Options::default());
    world.refused("a", &[FIT], &[]);
    world.at(1.0);
    assert_eq!(world.add("a", 5), QueueName::Unschedulable);
    let record = world.queue.get(&key("a")).unwrap();
    assert_eq!((record.attempts, record.pod.priority, record.timestamp), (1, 5, seconds(0.0)));

    let reborn = Pod { uid: "a-reborn".into(), ..pod("a", 0) };
    assert_eq!(world.queue.add(&mut world.fake, reborn, world.now), QueueName::Active);
    let record = world.queue.get(&key("a")).unwrap();
    assert_eq!((record.attempts, record.timestamp), (0, seconds(1.0)));
    assert_eq!(world.queue.pending(), Pending { active: 1, ..Pending::default() });
    assert_eq!(world.queue.unschedulable()[&(ProfileId(0), plugin(FIT))], 0);
}

#[test]
fn popping_starts_an_attempt() {
    let mut world = World::new(Options::default());
    world.refused("a", &[FIT], &[AFFINITY]);
    assert_eq!(world.queue.unschedulable()[&(ProfileId(0), plugin(AFFINITY))], 1);
    world.activate("a");
    world.at(3.0);
    assert_eq!(world.pop().as_deref(), Some("a"));
    let record = &world.flying["a"];
    assert_eq!((record.attempts, record.cycle, world.queue.cycle()), (2, 2, 2));
    assert!(record.rejectors().is_empty() && record.gate.is_none());
    assert_eq!(world.queue.unschedulable()[&(ProfileId(0), plugin(AFFINITY))], 0);
    assert_eq!(world.place("a"), "in flight");
    assert_eq!(
        world.queue.in_flight().map(|f| (f.key.clone(), f.since)).collect::<Vec<_>>(),
        [(key("a"), seconds(3.0))]
    );
    assert_eq!(world.pop(), None);
}

#[test]
fn a_pod_in_flight_is_not_popped_again() {
    let mut world = World::new(Options::default());
    world.add("a", 1);
    world.pop();
    world.add("a", 1);
    world.add("b", 0);
    assert_eq!(world.pop().as_deref(), Some("b"), "the second record of a is dropped");
    assert_eq!(world.queue.cycle(), 2, "and is no cycle");
    assert!(world.queue.is_empty());
}

#[test]
fn a_pod_that_is_queued_already_is_not_taken_back() {
    for (name, queue, want) in [
        ("active", QueueName::Active, "Pod ns/a is already present in the active queue"),
        ("backoff", QueueName::Backoff, "Pod ns/a is already present in the backoff queue"),
        ("pool", QueueName::Unschedulable, "Pod ns/a is already present in the unschedulable queue"),
        ("gated", QueueName::Gated, "Pod ns/a is already present in the unschedulable queue"),
    ] {
        let mut world = World::new(Options::default());
        world.add("a", 0);
        world.pop();
        let first = world.flying["a"].clone();
        match queue {
            QueueName::Active => drop(world.add("a", 0)),
            QueueName::Backoff => drop(world.fail("a", &[], &[])),
            QueueName::Unschedulable => drop(world.fail("a", &[FIT], &[])),
            QueueName::Gated => {
                world.fake.gates.insert((plugin(GATE), key("a")));
                world.add("a", 0);
            }
        }
        world.flying.insert("a".to_owned(), first);
        let error = world.fail("a", &[FIT], &[]).unwrap_err();
        assert_eq!(error.to_string(), want, "{name}");
        assert_eq!(world.queue.in_flight().count(), 0, "{name}: done in any case");
        assert_eq!(world.queue.len(), 1, "{name}");
    }
}

#[test]
fn coming_back_counts_verdicts_and_errors_apart() {
    let mut world = World::new(Options::default());
    world.add("a", 0);
    for (name, rejectors, pending, want) in [
        ("error", &[][..], &[][..], (0, 1)),
        ("another", &[], &[], (0, 2)),
        ("verdict", &[FIT], &[], (1, 0)),
        ("pending counts as one", &[], &[FIT], (2, 0)),
        ("error again", &[], &[], (2, 1)),
    ] {
        assert_eq!(world.pop().as_deref(), Some("a"), "{name}");
        world.fail("a", rejectors, pending).unwrap();
        let record = world.queue.get(&key("a")).unwrap();
        assert_eq!((record.unschedulable_count, record.consecutive_errors), want, "{name}");
        world.activate("a");
    }
    assert_eq!(world.came(QueueName::Backoff, "ScheduleAttemptFailure"), 3);
    assert_eq!(world.came(QueueName::Unschedulable, "ScheduleAttemptFailure"), 2);
    assert_eq!(world.came(QueueName::Active, "ForceActivate"), 5);
}

#[test]
fn deleting_removes_the_pod_wherever_it_is() {
    for name in ["active", "backoff", "error backoff", "unschedulable", "gated", "in flight"] {
        let mut world = World::new(Options::default());
        match name {
            "active" => drop(world.queue.add(&mut world.fake, nominated("a", "n1"), world.now)),
            "backoff" => {
                world.refused("a", &[FIT], &[]);
                world.event(&Event::wildcard());
            }
            "error backoff" => drop(world.refused("a", &[], &[])),
            "unschedulable" => drop(world.refused("a", &[FIT], &[])),
            "gated" => {
                world.fake.gates.insert((plugin(GATE), key("a")));
                world.add("a", 0);
            }
            _ => {
                world.add("a", 0);
                world.pop();
            }
        }
        assert_eq!(world.place("a"), name);
        world.queue.nominate(&world.fake, &pod("a", 0), Nominating::Override(Some("n1".into())));
        world.queue.delete(&world.fake, &key("a"), &"another".into());
        assert_eq!(world.place("a"), name, "another pod's deletion");
        world.queue.delete(&world.fake, &key("a"), &"a".into());
        assert_eq!(world.place("a"), if name == "in flight" { name } else { "nowhere" });
        assert!(world.queue.nominated_on(&"n1".into()).is_empty(), "{name}");
        assert_eq!(world.queue.pending(), Pending::default(), "{name}");
        assert!(world.queue.unschedulable().values().all(|count| *count == 0), "{name}");
    }
}

#[test]
fn a_pod_named_by_next_pod_was_never_popped() {
    let mut world = World::new(Options::default());
    world.queue.add(&mut world.fake, nominated("a", "n1"), world.now);
    let record = world.queue.take(&world.fake, &key("a"), world.now).unwrap();
    assert_eq!((record.attempts, world.queue.cycle()), (0, 0));
    assert_eq!(world.queue.in_flight().count(), 0);
    assert_eq!(world.queue.nominated_on(&"n1".into()).len(), 1, "its nomination stays");
    world.flying.insert("a".to_owned(), record);
    assert_eq!(world.fail("a", &[DEAF], &[]), Ok(QueueName::Backoff), "never directly the pool");
    assert!(world.queue.take(&world.fake, &key("none"), world.now).is_none());
    let mut taken = world.queue.take(&world.fake, &key("a"), world.now).unwrap();
    assert!(taken.rejectors().is_empty());
    taken.unschedulable_plugins = plugins(&[FIT]);
    world.fake.gates.insert((plugin(GATE), key("a")));
    assert_eq!(world.queue.add_unschedulable(&mut world.fake, taken, world.now), Ok(QueueName::Gated));
}

#[test]
fn a_closed_queue_gives_nothing() {
    let mut world = World::new(Options::default());
    world.add("a", 0);
    world.add("b", 0);
    world.pop();
    assert!(world.queue.is_ready());
    world.queue.close();
    assert_eq!(world.pop(), None);
    assert!(!world.queue.is_ready());
    assert_eq!(world.queue.in_flight().count(), 0);
}

#[test]
fn nominations_come_with_the_pod_and_follow_its_updates() {
    let mut world = World::new(Options::default());
    world.fake.gates.insert((plugin(GATE), key("gated")));
    world.fake.not_waiting.insert("bound".into());
    for name in ["a", "gated", "bound"] {
        world.queue.add(&mut world.fake, nominated(name, "n1"), world.now);
    }
    let on = |world: &World, node: &str| -> Vec<String> {
        world.queue.nominated_on(&node.into()).iter().map(|n| n.uid.to_string()).collect()
    };
    assert_eq!(on(&world, "n1"), ["a"], "not one that is held, not one that has a node");
    assert_eq!(world.queue.nominations().count(), 1);

    let update = |world: &mut World, was: Option<&str>, pod: Pod<i32>| {
        let was_nominated = was.map(NodeName::from);
        let update = PodUpdate { pod, was_nominated, events: &[], change: 0, is_relevant: true };
        world.queue.update(&mut world.fake, update, world.now);
    };
    update(&mut world, Some("n1"), nominated("a", "n2"));
    assert_eq!(on(&world, "n2"), ["a"]);
    world.queue.nominate(&world.fake, &pod("a", 0), Nominating::Override(Some("n3".into())));
    update(&mut world, None, pod("a", 0));
    assert_eq!(on(&world, "n3"), ["a"], "kept, since only we know it");
    assert_eq!(world.queue.nominated_node(&"a".into()).map(NodeName::as_str), Some("n3"));
    update(&mut world, Some("n3"), pod("a", 0));
    assert!(world.queue.nominations().next().is_none());
    update(&mut world, None, nominated("new", "n4"));
    assert_eq!(on(&world, "n4"), ["new"], "an update of an unknown pod adds it");
    let generation = world.queue.nominations_generation();
    world.queue.delete_nomination(&"new".into());
    assert!(on(&world, "n4").is_empty() && world.queue.nominations_generation() > generation);
}
