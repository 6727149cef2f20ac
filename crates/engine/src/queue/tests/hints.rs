//! Which events wake which pods, while they wait and while they are in flight.

use super::*;

#[test]
fn refused_pods_and_events() {
    let pod_deleted = Event::new(Resource::AssignedPod, Action::DELETE);
    let unscheduled_deleted = Event::new(Resource::UnscheduledPod, Action::DELETE);
    let pv = |action| Event::new(Resource::PersistentVolume, action);
    for (name, unschedulable, pending, event, want) in [
        ("hint says queue", &[FIT][..], &[][..], &pod_deleted, "backoff"),
        ("registered for both kinds of pods", &[FIT], &[], &unscheduled_deleted, "backoff"),
        ("hint says skip", &[AFFINITY], &[], &node(Action::ADD), "unschedulable"),
        ("hint fails", &[AFFINITY], &[], &pv(Action::ADD), "backoff"),
        ("not registered", &[AFFINITY], &[], &pv(Action::UPDATE), "unschedulable"),
        (
            "every taint change wakes who waits for nodes",
            &[FIT],
            &[],
            &node(Action::UPDATE_NODE_TAINT),
            "backoff",
        ),
        ("one of two", &[DEAF, FIT], &[], &pod_deleted, "backoff"),
        ("empty declaration", &[DEAF], &[], &pod_deleted, "unschedulable"),
        ("no declaration", &[ALL_EARS], &[], &pv(Action::DELETE), "backoff"),
        ("wildcard", &[DEAF], &[], &Event::wildcard(), "backoff"),
        ("scheduler-core#6.14.H13", &[], &[FIT], &pod_deleted, "active"),
        ("scheduler-core#6.14.H13 another plugin's event", &[ALL_EARS], &[FIT], &pv(Action::ADD), "backoff"),
        ("scheduler-core#6.14.H13 both", &[ALL_EARS], &[FIT], &pod_deleted, "active"),
        ("scheduler-core#6.14.H13 pending first", &[FIT], &[ALL_EARS], &pod_deleted, "active"),
        ("pending, wildcard", &[], &[FIT], &Event::wildcard(), "backoff"),
    ] {
        let mut waiting = World::new(Options::default());
        assert_eq!(waiting.refused("a", unschedulable, pending), QueueName::Unschedulable, "{name}");
        waiting.event(event);
        assert_eq!(waiting.place("a"), want, "{name}: while it waits");

        let mut flying = World::new(Options::default());
        flying.add("a", 0);
        flying.pop();
        flying.event(&node(Action::UPDATE_NODE_CONDITION));
        flying.event(event);
        // What everybody hears of would hide what is tested.
        if !unschedulable.contains(&ALL_EARS) && !pending.contains(&ALL_EARS) {
            flying.fail("a", unschedulable, pending).unwrap();
            assert_eq!(flying.place("a"), want, "{name}: while it is in flight");
        }

        let mut calm = World::new(Options::default());
        calm.refused("a", unschedulable, pending);
        calm.tick_until(100.0);
        calm.event(event);
        let want = if want == "backoff" { "active" } else { want };
        assert_eq!(calm.place("a"), want, "{name}: when backoff is over");
    }
}

#[test]
fn the_strongest_of_several_events_counts() {
    let mut world = World::new(Options::default());
    world.add("a", 0);
    world.pop();
    world.event(&node(Action::UPDATE_NODE_LABEL));
    world.event(&Event::new(Resource::PersistentVolume, Action::ADD));
    world.event(&Event::new(Resource::AssignedPod, Action::DELETE));
    assert_eq!(world.fail("a", &[AFFINITY], &[FIT]), Ok(QueueName::Active));
}

#[test]
fn events_before_the_attempt_do_not_count() {
    let mut world = World::new(Options::default());
    world.add("other", 1);
    world.add("a", 0);
    world.pop();
    world.event(&Event::new(Resource::AssignedPod, Action::DELETE));
    world.pop();
    assert_eq!(world.fail("a", &[FIT], &[]), Ok(QueueName::Unschedulable));
    assert_eq!(world.fail("other", &[FIT], &[]), Ok(QueueName::Backoff));
    assert!(world.queue.in_flight_events().is_empty());
}

#[test]
fn pods_that_an_event_cannot_concern_are_not_looked_at() {
    let mut world = World::new(Options::default());
    world.refused("fit", &[FIT], &[]);
    world.refused("affinity", &[AFFINITY], &[]);
    world.event(&Event::new(Resource::StorageClass, Action::ADD));
    assert_eq!(world.fake.hints_asked, 0);
    let looked_at = std::cell::RefCell::new(Vec::new());
    let pre_check = |record: &QueuedPod<i32>| {
        looked_at.borrow_mut().push(record.pod.uid.to_string());
        true
    };
    let event = Event::new(Resource::AssignedPod, Action::DELETE);
    world.queue.move_all(&mut world.fake, &event, &0, pre_check, world.now);
    assert_eq!(looked_at.into_inner(), ["fit"]);
    assert_eq!(world.fake.hints_asked, 1);
}

#[test]
fn a_pre_check_keeps_pods_out_but_not_from_those_in_flight() {
    let mut world = World::new(Options::default());
    world.refused("low", &[FIT], &[]);
    world.update(pod("low", 1), &[]);
    world.refused("high", &[FIT], &[]);
    world.add("flying", 0);
    world.pop();
    let event = Event::new(Resource::AssignedPod, Action::DELETE);
    let lower = |record: &QueuedPod<i32>| record.pod.priority <= 5;
    world.queue.move_all(&mut world.fake, &event, &0, lower, world.now);
    assert_eq!((world.place("low"), world.place("high")), ("backoff", "unschedulable"));
    assert_eq!(world.fail("flying", &[FIT], &[]), Ok(QueueName::Backoff));
    assert_eq!(world.came(QueueName::Backoff, "AssignedPodDelete"), 1);
}

#[test]
fn errors_need_no_event() {
    // Without nodes nobody refuses the pod: the attempt fails.
    let mut world = World::new(Options::default());
    assert_eq!(world.refused("a", &[], &[]), QueueName::Backoff);
    assert_eq!(world.place("a"), "error backoff", "scheduler-core#6.14.H16");
    world.tick_until(2.0);
    assert_eq!(world.place("a"), "active", "scheduler-core#6.14.H16");
}

#[test]
fn without_hints_every_move_request_counts() {
    let options = Options { uses_hints: false, ..Options::default() };
    let taint = node(Action::UPDATE_NODE_TAINT);
    for (name, rejectors, event, want) in [
        ("no event", &[FIT][..], None, "unschedulable"),
        ("any event that somebody wants", &[DEAF], Some(&taint), "backoff"),
        ("no verdict", &[], None, "error backoff"),
    ] {
        let mut world = World::new(options.clone());
        world.add("a", 0);
        world.pop();
        if let Some(event) = event {
            world.event(event);
        }
        world.fail("a", rejectors, &[]).unwrap();
        assert_eq!(world.place("a"), want, "{name}");
    }
    // Hint functions are not asked: what is registered wakes.
    let mut world = World::new(options.clone());
    world.refused("a", &[AFFINITY], &[]);
    world.event(&node(Action::ADD));
    assert_eq!((world.place("a"), world.fake.hints_asked), ("backoff", 0));

    let mut world = World::new(options);
    world.refused("a", &[DEAF], &[]);
    let same =
        PodUpdate { pod: pod("a", 1), was_nominated: None, events: &[], change: 0, is_relevant: false };
    world.queue.update(&mut world.fake, same, world.now);
    assert_eq!(world.place("a"), "unschedulable");
    world.update(pod("a", 1), &[]);
    assert_eq!(world.place("a"), "backoff", "any relevant update of the pod itself");
    assert_eq!(world.came(QueueName::Backoff, "UnschedulablePodUpdate"), 1);
    world.pop();
    world.update(pod("a", 1), &[]);
    assert_eq!(world.fail("a", &[DEAF], &[]), Ok(QueueName::Backoff), "also while in flight");
    assert!(world.queue.in_flight_events().is_empty());
}

#[test]
fn an_event_that_nobody_registered_for_is_none() {
    for uses_hints in [true, false] {
        let mut world = World::new(Options { uses_hints, ..Options::default() });
        let mut profile = Profile::default();
        let pods = vec![Registration::with(Resource::Pod, Action::DELETE, Answer::Queue)];
        profile.registrations.register(plugin(FIT), Interest::Only(pods));
        world.queue = Queue::new(Options { uses_hints, ..Options::default() }, vec![profile]);
        world.add("a", 0);
        world.pop();
        world.event(&node(Action::ADD));
        assert_eq!(world.queue.in_flight_events().len(), 1, "only the pod itself");
        assert_eq!(world.fail("a", &[FIT], &[]), Ok(QueueName::Unschedulable), "hints {uses_hints}");
    }
}

#[test]
fn a_pod_of_an_unknown_profile_is_not_stuck() {
    let mut world = World::new(Options::default());
    let stray = Pod { profile: ProfileId(7), ..pod("a", 0) };
    world.queue.add(&mut world.fake, stray, world.now);
    world.pop();
    assert_eq!(world.fail("a", &[FIT], &[]), Ok(QueueName::Unschedulable));
    world.event(&node(Action::ADD));
    assert_eq!(world.place("a"), "backoff");
}

#[test]
fn explanations_name_what_would_help() {
    let mut world = World::new(Options::default());
    world.at(4.5);
    world.refused("a", &[FIT, DEAF], &[]);
    let waiting = world.waiting("a");
    assert_eq!((waiting.since, waiting.backoff_ends), (seconds(4.5), Some(seconds(5.0))));
    assert_eq!(waiting.rejectors, plugins(&[FIT, DEAF]));
    let woken_by: Vec<_> = waiting.woken_by.iter().map(|(by, event)| (*by, event.to_string())).collect();
    let fit = |label: &str| (plugin(FIT), label.to_owned());
    assert_eq!(woken_by, [fit("NodeAdd"), fit("PodDelete"), fit("NodeUpdateNodeTaint")]);

    world.event(&Event::wildcard());
    let waiting = world.waiting("a");
    assert_eq!((waiting.queue, waiting.moved_at), (QueueName::Backoff, Some(seconds(6.0))));
    assert!(waiting.woken_by.is_empty() && waiting.ahead.is_none());

    world.fake.gates.insert((plugin(GATE), key("g")));
    world.add("g", 0);
    let woken_by: Vec<_> = world.waiting("g").woken_by.iter().map(|(_, e)| e.to_string()).collect();
    assert_eq!(woken_by, ["PodUpdatePodSchedulingGatesEliminated"]);
    for (queue, want) in [
        (QueueName::Active, 0),
        (QueueName::Backoff, 1),
        (QueueName::Unschedulable, 0),
        (QueueName::Gated, 1),
    ] {
        assert_eq!(world.queue.list(&world.fake, queue).len(), want, "{queue}");
    }
}
