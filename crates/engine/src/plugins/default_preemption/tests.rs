//! The spec's worked preemptions, and sums against filters on random clusters. Spec: scheduler-core 6.13.

use serde_json::{Value, json};

use super::*;
use crate::schedule::tests::world::{Spec, World, pod};

mod agreement;

/// What the preemptor gets: node and victims, or the text of preemption.
fn outcome(world: &mut World, preemptor: &Spec) -> String {
    outcome_at(world, preemptor, None)
}

fn outcome_at(world: &mut World, preemptor: &Spec, nominated: Option<&str>) -> String {
    let unfit = world.unfit(preemptor, nominated);
    match (unfit.nominating, &unfit.preemption) {
        (Nominating::Node(row), Some(preemption)) => {
            assert_eq!(row, preemption.row);
            assert_eq!(unfit.help, "", "success has no text");
            let names: Vec<&str> = preemption.victims.iter().map(|victim| &*victim.key.name).collect();
            format!("{}: {}", world.cluster.node(row).name, names.join(" "))
        }
        (Nominating::Clear, None) => unfit.help.clone(),
        (Nominating::Keep, None) => format!("kept, {}", unfit.help),
        other => panic!("{other:?}"),
    }
}

/// Nodes of these sizes with these pods, all of cpu 1.
fn world(nodes: &[(&str, &str, &[Spec])]) -> World {
    let mut world = World::new().without_claims();
    for (name, cpu, pods) in nodes {
        world.node(name, cpu);
        pods.iter().for_each(|pod| world.place(pod, name));
    }
    world
}

/// A pod of cpu 1.
fn one(name: &str, priority: i32) -> Spec {
    pod(name).priority(priority).cpu("1").started(0)
}

fn preemptor(priority: i32, cpu: &str) -> Spec {
    pod("preemptor").priority(priority).cpu(cpu)
}

const NO_VICTIMS: &str =
    "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
const UNHELPFUL: &str = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

#[test]
fn the_most_important_pods_stay() {
    let all = [one("10", 10), one("40", 40), one("20", 20), one("30", 30)];
    let plain = |cpu: &str| pod("plain").priority(0).cpu(cpu);
    for (key, cpu, pods, wants, want) in [
        ("scheduler-core#6.13.P1", "4", &all[..], preemptor(50, "2"), "a: 20 10"),
        (
            "scheduler-core#6.13.P2",
            "4",
            &[one("later", 10).started(5), one("earlier", 10).started(1)],
            preemptor(20, "3"),
            "a: later",
        ),
        ("scheduler-core#6.13.P6", "1", &[one("equal", 50)], preemptor(50, "1"), NO_VICTIMS),
        ("scheduler-core#6.13.P7", "1", &[one("low", 1)], preemptor(50, "2"), UNHELPFUL),
        (
            "scheduler-core#6.13.P14",
            "2",
            &[plain("1"), one("negative", -5)],
            preemptor(1, "1"),
            "a: negative",
        ),
        (
            "scheduler-core#6.13.P20",
            "2",
            &[pod("unstarted").priority(5).cpu("1"), one("started", 5).started(1)],
            preemptor(20, "1"),
            "a: unstarted",
        ),
        (
            "scheduler-core#6.13.P22",
            "1",
            &[one("low", 1)],
            preemptor(50, "1").asks("memory", "9Gi"),
            UNHELPFUL,
        ),
        ("all that is needed", "2", &[one("x", 1), one("y", 2)], preemptor(50, "2"), "a: y x"),
    ] {
        assert_eq!(outcome(&mut world(&[("a", cpu, pods)]), &wants), want, "{key}");
    }
}

#[test]
fn the_cheapest_node_is_taken() {
    let at = |name: &str, priority, minutes| one(name, priority).started(minutes);
    let p4: [&[Spec]; 2] = [&[pod("x").priority(9).cpu("2")], &[one("y", 8), one("z", 8)]];
    let p5: [&[Spec]; 2] = [&[one("x", 8), one("y", 8)], &[one("z", 8), one("w", 1)]];
    let p8: [&[Spec]; 2] =
        [&[one("x", 8), one("y", 1), one("z", 1)], &[one("u", 8).cpu("1500m"), one("v", 8).cpu("1500m")]];
    let p9: [&[Spec]; 2] = [&[at("x", 8, 1)], &[at("y", 8, 5)]];
    let p10: [&[Spec]; 2] = [&[at("x", 8, 10), at("y", 1, 1)], &[at("u", 8, 5), at("v", 1, 20)]];
    for (key, cpu, [a, b], wants, want) in [
        ("scheduler-core#6.13.P4", "2", p4, "2", "b: y z"),
        ("scheduler-core#6.13.P5", "2", p5, "2", "b: z w"),
        ("scheduler-core#6.13.P8", "3", p8, "3", "b: u v"),
        ("scheduler-core#6.13.P9", "1", p9, "1", "b: y"),
        ("scheduler-core#6.13.P10", "2", p10, "2", "a: x y"),
    ] {
        for seed in 0..4 {
            let mut world = world(&[("a", cpu, a), ("b", cpu, b)]);
            world.random = Random::new(seed);
            assert_eq!(outcome(&mut world, &preemptor(20, wants)), want, "{key}, seed {seed}");
        }
    }
}

#[test]
fn budgets_are_kept_where_possible() {
    let guarded = |name: &str, priority| one(name, priority).app("web");
    let mut world_3 = world(&[
        ("a", "1", &[guarded("x", 5)]),
        ("b", "1", &[pod("y").priority(9).cpu("500m"), pod("z").priority(9).cpu("500m")]),
    ]);
    world_3.budget("web", 0, &[]);
    assert_eq!(outcome(&mut world_3, &preemptor(20, "1")), "b: z y", "scheduler-core#6.13.P3");

    for (key, cpu, allowed, disrupted, pods, wants, want, violations) in [
        (
            "scheduler-core#6.13.P11",
            "3",
            1,
            vec![],
            vec![guarded("x1", 5).started(1), guarded("x2", 5).started(2), one("y", 9)],
            "2",
            "a: y x1",
            0,
        ),
        ("scheduler-core#6.13.P12", "2", 0, vec![], vec![guarded("v", 1), one("n", 9)], "1", "a: n", 0),
        ("scheduler-core#6.13.P13", "2", 0, vec!["v"], vec![guarded("v", 1), one("n", 9)], "1", "a: v", 0),
        ("no other way", "2", 0, vec![], vec![guarded("v", 1), one("n", 9)], "2", "a: n v", 1),
    ] {
        let mut world = world(&[("a", cpu, &pods)]);
        world.budget("web", allowed, &disrupted);
        assert_eq!(outcome(&mut world, &preemptor(20, wants)), want, "{key}");
        let unfit = world.unfit(&preemptor(20, wants), None);
        assert_eq!(unfit.preemption.map(|p| p.violations), Some(violations), "{key}");
    }
}

#[test]
fn victims_on_their_way_out_are_waited_for() {
    let leaving = |is_preempted| pod("v").priority(1).cpu("1").leaving(is_preempted);
    let wants = preemptor(20, "1");
    let mut waiting = world(&[("a", "1", &[leaving(true)]), ("b", "1", &[one("x", 1)])]);
    let want = "kept, preemption: not eligible due to a terminating pod on the nominated node.";
    assert_eq!(outcome_at(&mut waiting, &wants, Some("a")), want, "scheduler-core#6.13.P15");

    let mut again = world(&[("a", "1", &[leaving(false)])]);
    let unfit = again.unfit(&wants, Some("a"));
    assert_eq!(unfit.message(), "0/1 nodes are available: 1 Insufficient cpu.", "scheduler-core#6.13.P16");
    let preemption = unfit.preemption.unwrap();
    assert_eq!((preemption.victims.len(), preemption.calls().count()), (1, 0), "scheduler-core#6.13.P16");
    assert_eq!(unfit.nominating, Nominating::Node(preemption.row), "scheduler-core#6.13.P16");

    // A node that is out of the question now is given up.
    let mut cordoned = world(&[("a", "1", &[leaving(true)]), ("b", "1", &[one("x", 1)])]);
    let allocatable = json!({"cpu": "1", "memory": "8Gi", "pods": "9"});
    cordoned.node_with("a", allocatable, json!({"unschedulable": true}), json!({}));
    assert_eq!(outcome_at(&mut cordoned, &wants, Some("a")), "b: x");

    // Nor does a victim of higher priority count.
    let mut higher = world(&[("a", "1", &[leaving(true).priority(30)]), ("b", "1", &[one("x", 1)])]);
    assert_eq!(outcome_at(&mut higher, &wants, Some("a")), "b: x");
}

#[test]
fn ports_are_freed_by_their_holder() {
    let holder = pod("holder").priority(1).cpu("100m").host_port(80);
    let other = pod("other").priority(1).cpu("100m");
    let mut world = world(&[("a", "4", &[holder, other])]);
    let wants = pod("preemptor").priority(20).host_port(80);
    assert_eq!(outcome(&mut world, &wants), "a: holder", "scheduler-core#6.13.P17");
}

#[test]
fn promises_to_higher_pods_are_kept() {
    let mut world = world(&[("a", "1", &[one("v", 1)])]);
    world.promise(&one("hi", 30).with("preemptionPolicy", json!("Never")), "a");
    let want = "preemption: 0/1 nodes are available: 1 Insufficient cpu.";
    assert_eq!(outcome(&mut world, &preemptor(20, "1")), want, "scheduler-core#6.13.P19");
}

/// Required anti-affinity to pods of an app, over zones.
fn apart_from(app: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"});
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

#[test]
fn only_the_node_of_the_pod_in_the_way_is_cured() {
    let mut world = World::new().without_claims();
    let size = json!({"cpu": "4", "memory": "8Gi", "pods": "9"});
    for name in ["a", "b"] {
        world.node_with(name, size.clone(), json!({}), json!({"zone": "z"}));
    }
    world.place(&one("rival", 1).app("rival"), "a");
    world.place(&one("other", 1), "b");
    let wants = preemptor(20, "1").with("affinity", apart_from("rival"));
    assert_eq!(outcome(&mut world, &wants), "a: rival", "scheduler-core#6.13.P21");
}

#[test]
fn a_refusal_that_no_victim_lifts_is_an_error() {
    struct Quota;
    impl crate::framework::PreFilter for Quota {
        fn prepare(
            &self,
            _: &mut crate::framework::Cycle<'_>,
        ) -> Result<crate::framework::Preparation, Status> {
            Err(Status::unschedulable("Quota", "over quota"))
        }
    }
    let quota = Hooks::new("Quota").pre_filter(Arc::new(Quota));
    let pods = [one("x", 1)];
    let nodes: Vec<(String, &[Spec])> = (10..30).map(|i| (format!("n{i}"), &pods[..])).collect();
    let few: Vec<(&str, &str, &[Spec])> =
        nodes[..2].iter().map(|(name, _)| (name.as_str(), "4", &[][..])).collect();
    let mut two = world(&few).with(&quota);
    two.place(&one("x", 1), "n10");
    two.place(&one("y", 1), "n11");
    let want = "kept, preemption: [expected at least one victim pod on node \"n10\", \
                expected at least one victim pod on node \"n11\"]";
    assert_eq!(outcome(&mut two, &preemptor(20, "1")), want);

    let many: Vec<(&str, &str, &[Spec])> =
        nodes.iter().map(|(name, _)| (name.as_str(), "4", &[][..])).collect();
    let mut twenty = world(&many).with(&quota);
    for (name, _) in &nodes {
        twenty.place(&one(&format!("on-{name}"), 1), name);
    }
    let text = outcome(&mut twenty, &preemptor(20, "1"));
    assert!(text.ends_with("on node \"n25\", and 4 more]"), "{text}");
}

#[test]
fn enough_candidates_end_the_search() {
    use crate::profile::args::Percent;
    for (percentage, absolute, nodes, want) in
        [(10, 100, 50, 50), (10, 100, 500, 100), (10, 100, 5000, 500), (0, 0, 7, 0), (100, 0, 7, 7)]
    {
        let limits = CandidateLimits { percentage: Percent::new(percentage).unwrap(), absolute };
        assert_eq!(search::candidates_wanted(limits, nodes), want, "{percentage} % of {nodes}");
    }
    // With one candidate wanted, the first that the offset gives is taken, however dear.
    let limits = CandidateLimits { percentage: Percent::new(0).unwrap(), absolute: 1 };
    let args = DefaultPreemptionArgs { candidates: limits };
    let mut taken: Vec<String> = Vec::new();
    for seed in 0..20 {
        let mut world = world(&[("a", "1", &[one("x", 9)]), ("b", "1", &[one("y", 1)])]);
        world.framework.post_filters = vec![build(&args)];
        world.random = Random::new(seed);
        taken.push(outcome(&mut world, &preemptor(20, "1")));
    }
    taken.sort();
    taken.dedup();
    assert_eq!(taken, ["a: x", "b: y"]);
}

#[test]
fn a_preemptor_waits_while_its_victims_are_told() {
    let mut world = world(&[("a", "1", &[one("v", 1)])]);
    let plugin = build(&DefaultPreemptionArgs::default());
    let gate = plugin.pre_enqueue.clone().unwrap();
    let waiting = world.compile(&preemptor(20, "1"));
    assert_eq!(gate.admit(&world.cluster, &waiting), Ok(()));
    world.cluster.begin_preempting(&waiting.uid, "v");
    let refusal = gate.admit(&world.cluster, &waiting).unwrap_err();
    assert_eq!(refusal.to_string(), "waiting for the preemption for this pod to be finished");
    assert_eq!(refusal.code, Code::Unresolvable);
    world.cluster.end_preempting(&waiting.uid);
    assert_eq!(gate.admit(&world.cluster, &waiting), Ok(()));

    // It hears of deleted pods and never wakes anyone by itself.
    let interest = plugin.interest.unwrap();
    assert_eq!(interest.len(), 1);
    let event = crate::framework::event::Event::new(Resource::AssignedPod, Action::DELETE);
    assert!(interest[0].event.matches(&event));
    let input = HintInput {
        cluster: &world.cluster,
        pod: &waiting,
        event: &event,
        change: &crate::framework::Change::None,
    };
    assert_eq!(interest[0].hint.as_ref().map(|hint| hint(&input)), Some(Hint::Skip));
}
