use serde_json::json;

use super::super::world::{Node, Preempted, Waiting};
use super::*;

fn pods(selector: &str) -> Pods {
    let selector = Labelled { text: selector.to_owned(), selector: selector.parse().unwrap() };
    Pods { namespace: "shop".to_owned(), which: Which::Selected(selector) }
}

fn named(name: &str) -> Pods {
    Pods { namespace: "shop".to_owned(), which: Which::Named(name.to_owned()) }
}

/// A running pod `name` of app `web`.
fn pod(name: &str, node: &str) -> Pod {
    Pod {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        node: (!node.is_empty()).then(|| node.to_owned()),
        phase: if node.is_empty() { "Pending" } else { "Running" }.to_owned(),
        is_ready: !node.is_empty(),
        ..Pod::default()
    }
}

fn refused(name: &str, message: &str) -> Pod {
    let said =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    Pod::from_json(&json!({"metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
        "labels": {"app": "web"}}, "status": {"phase": "Pending", "conditions": [said]}}))
}

fn node(name: &str, zone: &str) -> Node {
    Node {
        name: name.to_owned(),
        labels: BTreeMap::from([("zone".to_owned(), zone.to_owned())]),
        allocatable: [("example.com/x".to_owned(), Quantity::cores_milli(1500))].into(),
        is_ready: true,
        is_cordoned: false,
        is_tainted: false,
        cordoned_by: None,
    }
}

fn world(pods: Vec<Pod>) -> World {
    let nodes = vec![node("n1", "a"), node("n2", "b"), node("n3", "c")];
    let seen = pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
    World { pods, nodes, seen, ..World::default() }
}

fn workload(kind: &str) -> ObjectRef {
    ObjectRef { api_version: "v".into(), kind: kind.into(), namespace: "shop".into(), name: "web".into() }
}

fn check(name: &str, expectation: &Expectation, world: &World, is_met: bool, says: &str) {
    let verdict = judge(expectation, world);
    assert_eq!(verdict.is_met, is_met, "{name}: {}", verdict.found);
    assert!(verdict.found.contains(says), "{name}: {says:?} in {:?}", verdict.found);
}

#[test]
fn workloads_are_ready_when_their_rollout_is_over() {
    let meta = json!({"generation": 2});
    for (name, kind, count, object, is_met, says) in [
        ("absent", "Deployment", None, json!(null), false, "does not exist"),
        (
            "done",
            "Deployment",
            Some(3),
            json!({"metadata": meta, "spec": {"replicas": 3}, "status": {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}}),
            true,
            "3 of 3",
        ),
        (
            "as its spec says",
            "Deployment",
            None,
            json!({"spec": {"replicas": 2}, "status": {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}}),
            false,
            "1 of 2 pods ready",
        ),
        (
            "status of an older spec",
            "Deployment",
            Some(3),
            json!({"metadata": meta, "status": {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}}),
            false,
            "still rolling out",
        ),
        (
            "old pods are left",
            "Deployment",
            Some(3),
            json!({"status": {"replicas": 4, "updatedReplicas": 3, "readyReplicas": 3}}),
            false,
            "still rolling out",
        ),
        (
            "old pods only",
            "StatefulSet",
            Some(3),
            json!({"status": {"replicas": 3, "updatedReplicas": 1, "readyReplicas": 3}}),
            false,
            "still rolling out",
        ),
        ("scaled to nothing", "Deployment", Some(0), json!({"status": {}}), true, "0 of 0"),
        (
            "another number",
            "Deployment",
            Some(5),
            json!({"spec": {"replicas": 3}, "status": {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}}),
            false,
            "3 of 5",
        ),
        (
            "replica set",
            "ReplicaSet",
            None,
            json!({"spec": {"replicas": 1}, "status": {"replicas": 1, "readyReplicas": 1}}),
            true,
            "1 of 1",
        ),
        (
            "daemon set",
            "DaemonSet",
            None,
            json!({"status": {"desiredNumberScheduled": 4, "updatedNumberScheduled": 4, "numberReady": 4}}),
            true,
            "4 of 4",
        ),
        (
            "job on its way",
            "Job",
            None,
            json!({"spec": {"completions": 2}, "status": {"succeeded": 1}}),
            false,
            "1 of 2 pods succeeded",
        ),
        (
            "job complete",
            "Job",
            None,
            json!({"spec": {"completions": 2}, "status": {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]}}),
            true,
            "2 of 2",
        ),
    ] {
        let found = Some(object).filter(|object| !object.is_null());
        let mut world = world(vec![]);
        world.objects.insert(workload(kind), found);
        check(name, &Expectation::Ready { object: workload(kind), count }, &world, is_met, says);
    }
}

#[test]
fn pods_are_counted_by_state() {
    let mut unready = pod("c", "n1");
    unready.is_ready = false;
    let mut leaving = pod("d", "n1");
    leaving.is_terminating = true;
    let mut foreign = pod("e", "n1");
    foreign.namespace = "other".to_owned();
    let ended = |name: &str, phase: &str| Pod { phase: phase.to_owned(), is_ready: false, ..pod(name, "n1") };
    let world = world(vec![
        pod("a", "n1"),
        pod("b", ""),
        unready,
        leaving,
        foreign,
        ended("f", "Succeeded"),
        ended("g", "Failed"),
    ]);
    for (name, state, count, is_met, says) in [
        ("scheduled", PodState::Scheduled, Count::Exactly(4), true, "4 of 4 scheduled"),
        ("pending", PodState::Pending, Count::Exactly(1), true, "1 of 1 pending"),
        ("running", PodState::Running, Count::Exactly(2), true, "2 of 2 running"),
        ("ready", PodState::Ready, Count::Exactly(2), false, "1 of 2 ready"),
        ("succeeded", PodState::Succeeded, Count::AtLeast(1), true, "1 of at least 1"),
        ("failed", PodState::Failed, Count::AtLeast(2), false, "1 of at least 2"),
        ("all", PodState::Running, Count::All, false, "2 of 5 running"),
        ("more than wanted", PodState::Running, Count::Exactly(1), false, "2 of 1"),
    ] {
        let wanted = Expectation::Pods { pods: pods("app=web"), state, count, matches: None };
        check(name, &wanted, &world, is_met, says);
    }
    let all = |pods, state| Expectation::Pods { pods, state, count: Count::All, matches: None };
    let all_of_none = all(pods("app=none"), PodState::Running);
    check("none is not all", &all_of_none, &world, false, "0 of 0");
    let one = all(named("a"), PodState::Ready);
    check("by name", &one, &world, true, "pod a: 1 of 1 ready");
}

#[test]
fn pods_may_have_to_look_like_something() {
    let like = |name: &str, priority: i64| Pod {
        object: json!({"spec": {"priority": priority}}).into(),
        ..pod(name, "n1")
    };
    let wanted = |count| Expectation::Pods {
        pods: pods("app=web"),
        state: PodState::Running,
        count,
        matches: Some(json!({"spec": {"priority": 5000}})),
    };
    let alike = world(vec![like("a", 5000), like("b", 5000)]);
    check("all", &wanted(Count::All), &alike, true, "2 of 2 running and as wanted");
    let mixed = world(vec![like("a", 5000), like("b", 0)]);
    check(
        "one differs",
        &wanted(Count::All),
        &mixed,
        false,
        "1 of 2 running and as wanted; of b spec.priority is 0",
    );
    check("enough", &wanted(Count::AtLeast(1)), &mixed, true, "1 of at least 1");
}

#[test]
fn amounts_of_nodes_are_added_up() {
    let amount = |text: &str| Some(text.parse::<Quantity>().unwrap());
    let zone = |text: &str| Some(Labelled { text: text.to_owned(), selector: text.parse().unwrap() });
    let mut world = world(vec![]);
    world.nodes[2].is_tainted = true;
    for (name, nodes, least, most, is_met, says) in [
        (
            "all that take pods",
            None,
            amount("3"),
            None,
            true,
            "example.com/x of 2 nodes: 3, at least 3 wanted",
        ),
        ("too little", None, amount("3001m"), None, false, "at least 3001m wanted"),
        ("within", None, amount("1"), amount("3"), true, ", at most 3 wanted"),
        ("too much", None, None, amount("2"), false, ": 3, at most 2 wanted"),
        ("of some", zone("zone=c"), None, amount("1500m"), true, "of 1 nodes: 1500m"),
        ("of none", zone("zone=x"), None, amount("2"), false, "of 0 nodes: 0"),
    ] {
        let wanted = Expectation::Allocatable { resource: "example.com/x".to_owned(), nodes, least, most };
        check(name, &wanted, &world, is_met, says);
    }
    let absent = Expectation::Allocatable {
        resource: "example.com/y".to_owned(),
        nodes: None,
        least: None,
        most: amount("0"),
    };
    check("absent counts as none", &absent, &world, true, "example.com/y of 2 nodes: 0");
}

#[test]
fn spread_counts_empty_domains_and_pods_outside() {
    let spread = |max_skew, domains_min| Expectation::Spread {
        pods: pods("app=web"),
        over: "zone".to_owned(),
        max_skew,
        domains_min,
    };
    let even = world(vec![pod("a", "n1"), pod("b", "n2"), pod("c", "n3")]);
    check("even", &spread(0, 3), &even, true, "a 1, b 1, c 1");
    check("too few domains", &spread(0, 4), &even, false, "a 1, b 1, c 1");
    let uneven = world(vec![pod("a", "n1"), pod("b", "n1"), pod("c", "n2")]);
    check("an empty domain counts", &spread(1, 0), &uneven, false, "a 2, b 1, c 0");
    check("within a larger skew", &spread(2, 0), &uneven, true, "a 2");
    let mut cordoned = world(vec![pod("a", "n1"), pod("b", "n1"), pod("c", "n2")]);
    cordoned.nodes[2].is_cordoned = true;
    check("nodes that take no pods make no domain", &spread(1, 0), &cordoned, true, "a 2, b 1");
    let waiting = world(vec![pod("a", "n1"), pod("b", "n2"), pod("c", "")]);
    check("a pod without a node", &spread(1, 0), &waiting, false, "1 in none");
    check("no pods at all", &spread(1, 0), &world(vec![]), false, "a 0");
    let mut bare = world(vec![pod("a", "n1")]);
    bare.nodes.iter_mut().for_each(|node| node.labels.clear());
    check("no such label", &spread(1, 0), &bare, false, "no node has this label");
    let mut many = world(vec![pod("a", "n1")]);
    many.nodes = (0..9).map(|i| node(&format!("n{i}"), &format!("z{i}"))).collect();
    check("many domains are counted", &spread(1, 9), &many, true, "0 to 1 in each of 9 domains");
}

#[test]
fn places_are_told_by_node_labels() {
    let on = |nodes: &str| Expectation::OnNodes {
        pods: pods("app=web"),
        nodes: Labelled { text: nodes.to_owned(), selector: nodes.parse().unwrap() },
    };
    let world = world(vec![pod("a", "n1"), pod("b", "n2")]);
    check("both", &on("zone in (a,b)"), &world, true, "2 of 2 on nodes");
    check("one", &on("zone=a"), &world, false, "1 of 2");
    check("nobody", &on("zone=a"), &super::tests::world(vec![]), false, "0 of 0");
    check("no node yet", &on("zone"), &super::tests::world(vec![pod("a", "")]), false, "0 of 1");
    check("an unknown node", &on("zone"), &super::tests::world(vec![pod("a", "n9")]), false, "0 of 1");
}

#[test]
fn refusals_are_matched_by_their_words() {
    let expect = |message: Option<&str>, pattern: Option<&str>, count| Expectation::Unschedulable {
        pods: pods("app=web"),
        count,
        message: message.map(str::to_owned),
        pattern: pattern.map(|pattern| regex::Regex::new(pattern).unwrap()),
    };
    let cpu = "0/3 nodes are available: 3 Insufficient cpu.";
    let both = world(vec![refused("a", cpu), refused("b", "0/3 nodes are available: 3 node(s) had taints.")]);
    check("any words", &expect(None, None, Count::Exactly(2)), &both, true, "2 of 2 fit on no node");
    check("these words", &expect(Some("Insufficient cpu"), None, Count::Exactly(1)), &both, true, "1 of 1");
    check("not all", &expect(Some("Insufficient cpu"), None, Count::All), &both, false, "had taints");
    check(
        "a pattern",
        &expect(None, Some(r"^0/\d nodes .* 3 (Ins|node)"), Count::All),
        &both,
        true,
        "2 of 2",
    );
    check(
        "both at once",
        &expect(Some("cpu"), Some("taints"), Count::AtLeast(1)),
        &both,
        false,
        "0 of at least 1",
    );
    let mut placed = refused("a", cpu);
    placed.node = Some("n1".to_owned());
    check("an old refusal", &expect(None, None, Count::All), &world(vec![placed]), false, "0 of 1");
    check("not looked at", &expect(None, None, Count::All), &world(vec![pod("a", "")]), false, "0 of 1");
    let mut gated = refused("a", "gated");
    gated.unscheduled.as_mut().unwrap().reason = "SchedulingGated".to_owned();
    check("gated is not refused", &expect(None, None, Count::All), &world(vec![gated]), false, "0 of 1");
}

#[test]
fn who_made_room_is_known_after_it_is_gone() {
    let mut world = world(vec![pod("a", "n1"), pod("b", "n2"), pod("urgent", "n1")]);
    world.seen.get_mut("uid-urgent").unwrap().labels.insert("app".to_owned(), "urgent".to_owned());
    world.pods.clear();
    let event = |victim: &str, by: &str| Preempted {
        pod_uid: format!("uid-{victim}"),
        note: format!("Preempted by pod uid-{by} on node n1"),
    };
    // The second one is told twice, the third is of a pod that is not of this scenario.
    world.preempted =
        vec![event("a", "urgent"), event("b", "x"), event("b", "x"), event("stranger", "urgent")];
    let expect = |by: Option<Pods>, count| Expectation::Preempted { pods: pods("app=web"), count, by };
    check("two", &expect(None, Count::Exactly(2)), &world, true, "2 of 2 made room");
    check(
        "one for it",
        &expect(Some(pods("app=urgent")), Count::Exactly(1)),
        &world,
        true,
        "for pods app=urgent",
    );
    check(
        "no more for it",
        &expect(Some(pods("app=urgent")), Count::AtLeast(2)),
        &world,
        false,
        "1 of at least 2",
    );
    check("not for others", &expect(Some(named("zz")), Count::AtLeast(1)), &world, false, "0 of at least 1");
}

#[test]
fn pods_use_what_their_nodes_say() {
    let metric = json!({"status": {"podsMetric": [
        {"namespace": "shop", "name": "a", "podUsage": {"resources": {"cpu": "1500m", "memory": "1Gi"}}},
        {"namespace": "shop", "name": "b", "podUsage": {"resources": {"cpu": "700m"}}},
        {"namespace": "other", "name": "a", "podUsage": {"resources": {"cpu": "9"}}}]}});
    let mut world = world(vec![pod("a", "n1"), pod("b", "n2")]);
    world.used = super::super::world::used(&metric).collect();
    let amount = |text: &str| Some(text.parse::<Quantity>().unwrap());
    for (name, pods, resource, least, most, is_met, says) in [
        (
            "both",
            pods("app=web"),
            "cpu",
            amount("2"),
            amount("3"),
            true,
            "2200m cpu used, at least 2 wanted, at most 3 wanted",
        ),
        ("one", named("a"), "cpu", None, amount("1"), false, "pod a: 1500m cpu used, at most 1 wanted"),
        ("too little", named("b"), "cpu", amount("1"), None, false, "700m cpu used"),
        ("not all measured", pods("app=web"), "memory", None, amount("9Gi"), false, "1 of 2 measured so far"),
        ("nobody", named("c"), "cpu", None, amount("9"), false, "0 of 0 measured so far"),
    ] {
        let expectation = Expectation::Usage { pods, resource: resource.to_owned(), least, most };
        check(name, &expectation, &world, is_met, says);
    }
}

#[test]
fn gone_means_gone() {
    let mut leaving = pod("a", "n1");
    leaving.is_terminating = true;
    let expect = Expectation::Gone { pods: named("a") };
    check("leaving", &expect, &world(vec![leaving]), false, "1 still there");
    check("gone", &expect, &world(vec![pod("b", "n1")]), true, "pod a: gone");
}

#[test]
fn objects_are_compared_by_the_fields_given() {
    let found = json!({"status": {"phase": "Available", "count": 3,
        "conditions": [{"type": "Ready", "status": "True", "reason": "x"}, {"type": "Scheduled", "status": "True"}]}});
    for (name, matches, is_met, says) in [
        ("a field", json!({"status": {"phase": "Available"}}), true, "as wanted"),
        ("nothing asked", json!({}), true, "as wanted"),
        (
            "another value",
            json!({"status": {"phase": "Failed"}}),
            false,
            "status.phase is \"Available\", \"Failed\" wanted",
        ),
        ("absent", json!({"status": {"node": "n1"}}), false, "status.node is not set"),
        (
            "an item of a list",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            true,
            "",
        ),
        (
            "no such item",
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
            false,
            "status.conditions has no item like",
        ),
        ("another type", json!({"status": {"count": "3"}}), false, "status.count is 3, \"3\" wanted"),
    ] {
        let mut world = world(vec![]);
        world.objects.insert(workload("Reservation"), Some(found.clone()));
        check(name, &Expectation::Object { object: workload("Reservation"), matches }, &world, is_met, says);
    }
    let absent = Expectation::Object { object: workload("Reservation"), matches: json!({}) };
    check("absent", &absent, &world(vec![]), false, "does not exist yet");
}

#[test]
fn waiting_pods_are_grouped_by_cause() {
    let mut done = refused("done", "cpu");
    done.node = Some("n1".to_owned());
    let world =
        world(vec![refused("a", "disk"), refused("b", "cpu"), refused("c", "cpu"), pod("d", ""), done]);
    let groups: Vec<(usize, &str)> =
        world.waiting().iter().map(|Waiting { pods, message }| (pods.len(), *message)).collect();
    assert_eq!(groups, [(2, "cpu"), (1, ""), (1, "disk")]);
}
