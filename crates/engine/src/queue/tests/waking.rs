//! Gates, activation, updates.

use super::*;

fn gated(name: &str, gates: &[u32]) -> World {
    let mut world = World::new(Options::default());
    for gate in gates {
        world.fake.gates.insert((plugin(*gate), key(name)));
    }
    assert_eq!(world.add(name, 0), QueueName::Gated);
    world.fake.asked.clear();
    world
}

fn asked(world: &World) -> Vec<PluginId> {
    world.fake.asked.iter().map(|(plugin, _)| *plugin).collect()
}

#[test]
fn the_gate_that_holds_is_asked_first_and_the_first_refusal_stops() {
    let mut world = World::new(Options::default());
    world.fake.gates.extend([(plugin(GATE), key("a")), (plugin(GATE2), key("a"))]);
    world.add("a", 0);
    assert_eq!(asked(&world), [plugin(GATE)], "in configured order");
    world.fake.gates.remove(&(plugin(GATE), key("a")));
    world.activate("a");
    assert_eq!(world.waiting("a").gate.map(|gate| gate.plugin), Some(plugin(GATE2)));
    assert_eq!(world.waiting("a").rejectors, plugins(&[GATE, GATE2]));
    world.fake.asked.clear();
    world.activate("a");
    assert_eq!(asked(&world), [plugin(GATE2)], "the holder first");
    world.fake.gates.clear();
    world.fake.asked.clear();
    world.activate("a");
    assert_eq!(asked(&world), [plugin(GATE2), plugin(GATE)], "then the others");
    assert_eq!(world.place("a"), "active");
    assert!(world.queue.get(&key("a")).unwrap().gate.is_none());
    assert_eq!(world.queue.pending(), Pending { active: 1, ..Pending::default() });
}

#[test]
fn a_gate_that_declares_nothing_hears_of_everything_but_timeouts() {
    let mut world = gated("a", &[GATE2]);
    world.event(&node(Action::ADD));
    assert_eq!(asked(&world), [plugin(GATE2)], "scheduler-core#6.14.H14 asked again");
    assert_eq!(world.place("a"), "gated", "scheduler-core#6.14.H14 stays");
    assert_eq!(world.came(QueueName::Unschedulable, "NodeAdd"), 1);
    world.fake.asked.clear();
    world.tick_until(400.0);
    world.event(&Event::wildcard());
    assert!(world.fake.asked.is_empty(), "scheduler-core#6.14.H14 not even evaluated");
    world.fake.gates.clear();
    world.event(&node(Action::ADD));
    assert_eq!(world.place("a"), "active");
}

#[test]
fn only_events_of_the_gate_open_it() {
    let mut world = gated("a", &[GATE]);
    for event in [node(Action::ADD), Event::new(Resource::AssignedPod, Action::DELETE), Event::wildcard()] {
        world.event(&event);
        assert!(world.fake.asked.is_empty(), "{event}");
    }
    world.event(&Event::new(Resource::UnscheduledPod, Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED));
    assert_eq!(asked(&world), [plugin(GATE)]);
}

#[test]
fn scheduling_gates_are_removed_one_by_one() {
    let mut world = gated("a", &[GATE]);
    world.at(1.0);
    world.update(pod("a", 1), &[Event::unscheduled_pod_update()]);
    assert_eq!(world.place("a"), "gated", "scheduler-core#6.14.H15 one of two removed");
    assert!(world.fake.asked.is_empty());
    world.fake.gates.clear();
    let eliminated = Event::new(Resource::UnscheduledPod, Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED);
    world.update(pod("a", 1), &[eliminated]);
    assert_eq!(world.place("a"), "active", "scheduler-core#6.14.H15 both removed");
    let record = world.queue.get(&key("a")).unwrap();
    assert_eq!((record.timestamp, record.initial_attempt), (seconds(0.0), Some(seconds(1.0))));
    let label = "UnschedulablePodUpdatePodSchedulingGatesEliminated";
    assert_eq!(world.came(QueueName::Active, label), 1);
}

#[test]
fn activation_skips_backoff_but_not_gates() {
    let mut world = World::new(Options::default());
    world.refused("pool", &[DEAF], &[]);
    world.refused("error", &[], &[]);
    world.refused("backoff", &[FIT], &[]);
    world.event(&Event::new(Resource::AssignedPod, Action::DELETE));
    assert_eq!(world.place("backoff"), "backoff");
    world.fake.asked.clear();
    for name in ["pool", "error", "backoff", "unknown"] {
        world.activate(name);
    }
    assert_eq!(asked(&world), [plugin(GATE), plugin(GATE2)], "pods in backoff passed them before");
    assert_eq!(world.queue.pending(), Pending { active: 3, ..Pending::default() });
    assert_eq!(world.came(QueueName::Active, "ForceActivate"), 3);
    world.activate("pool");
    assert_eq!(world.came(QueueName::Active, "ForceActivate"), 3, "it is active already");
    assert!(world.queue.in_flight_events().is_empty());

    let mut world = gated("held", &[GATE]);
    world.activate("held");
    assert_eq!(world.place("held"), "gated");
    assert_eq!(world.came(QueueName::Unschedulable, "ForceActivate"), 0);
}

#[test]
fn a_pod_activated_in_flight_is_tried_once_more() {
    for uses_hints in [true, false] {
        let mut world = World::new(Options { uses_hints, ..Options::default() });
        world.add("a", 1);
        world.add("b", 0);
        world.pop();
        world.pop();
        world.activate("a");
        if uses_hints {
            let counts = BTreeMap::from([("ForceActivate".to_owned(), 1), ("PodPopped".to_owned(), 2)]);
            assert_eq!(world.queue.in_flight_events(), counts);
            assert_eq!(world.fail("b", &[DEAF], &[]), Ok(QueueName::Unschedulable), "it is for a only");
        }
        assert_eq!(world.fail("a", &[DEAF], &[]), Ok(QueueName::Backoff), "hints {uses_hints}");
    }
}

#[test]
fn updates_of_a_pod() {
    let label = Event::new(Resource::UnscheduledPod, Action::UPDATE_POD_LABEL);
    let plain = Event::unscheduled_pod_update();
    for (name, rejectors, events, want) in [
        ("a change that its plugin waits for", &[AFFINITY][..], vec![label.clone()], "backoff"),
        ("the second of two changes", &[AFFINITY], vec![plain.clone(), label.clone()], "backoff"),
        ("a change that nobody waits for", &[FIT], vec![label.clone()], "unschedulable"),
        ("a plain update", &[AFFINITY], vec![plain.clone()], "unschedulable"),
    ] {
        let mut world = World::new(Options::default());
        world.refused("a", rejectors, &[]);
        world.update(pod("a", 3), &events);
        assert_eq!(world.place("a"), want, "{name}");
        assert_eq!(world.queue.get(&key("a")).unwrap().pod.priority, 3, "{name}");

        let mut world = World::new(Options::default());
        world.add("a", 0);
        world.pop();
        world.update(pod("a", 3), &events);
        assert!(world.queue.is_empty(), "{name}: not queued while in flight");
        world.fail("a", rejectors, &[]).unwrap();
        assert_eq!(world.place("a"), want, "{name}: in flight");

        let mut world = World::new(Options { pops_from_backoff: false, ..Options::default() });
        world.refused("a", rejectors, &[]);
        world.update(pod("a", 3), &[events.as_slice(), std::slice::from_ref(&plain)].concat());
        assert_eq!(world.place("a"), want, "{name}: in one place only");
        assert_eq!(world.queue.len(), 1);
    }
}

#[test]
fn updates_of_active_and_unknown_pods() {
    let mut world = World::new(Options::default());
    world.add("a", 0);
    world.add("b", 1);
    world.update(pod("a", 2), &[]);
    assert_eq!(world.came(QueueName::Active, "UnschedulablePodAdd"), 2);
    world.update(pod("c", 3), &[]);
    assert_eq!(world.came(QueueName::Active, "UnschedulablePodUpdate"), 1);
    let reborn = Pod { uid: "z".into(), ..pod("b", 9) };
    world.update(reborn, &[]);
    assert_eq!(world.pop_all(), ["z", "c", "a"], "b was another pod");
}
