use super::*;
use crate::decide::sketch::pod;

fn abc() -> Vec<Pod> {
    let be = |name: &str, request: &str| {
        pod(name).qos("BE").container("c", &[("kubernetes.io/batch-cpu", request)], &[]).read()
    };
    vec![be("a", "1000"), be("b", "2000"), be("c", "3000")]
}

fn request_task<'a>(victims: &[&'a Pod], wanted: i64) -> Task<'a> {
    Task {
        trigger: Trigger::BeCpu,
        kind: Kind::Requested,
        wanted: Amounts::from([(Resource::BatchCpu, wanted)]),
        numbers: "10 % found".to_owned(),
        victims: victims.to_vec(),
        frees: Box::new(|pod| Amounts::from([(Resource::BatchCpu, pod.sum_requests(BATCH_CPU))])),
    }
}

fn used_task<'a>(victims: &[&'a Pod], wanted: i64) -> Task<'a> {
    let used = |pod: &Pod| match pod.name.as_str() {
        "a" => 500,
        "b" => 800,
        _ => 100,
    };
    Task {
        trigger: Trigger::Cpu,
        kind: Kind::Used,
        wanted: Amounts::from([(Resource::Cpu, wanted)]),
        numbers: String::new(),
        victims: victims.to_vec(),
        frees: Box::new(move |pod| Amounts::from([(Resource::Cpu, used(pod))])),
    }
}

/// Victims in order, with whether each was evicted.
fn play(tasks: &[Task<'_>], pending: &[&str], fails: &[&str]) -> (Vec<String>, bool, i64) {
    let pending = pending.iter().map(|uid| Arc::from(*uid)).collect();
    let mut round = Round::new(tasks, &pending);
    let mut tried = Vec::new();
    while let Some(order) = round.next_victim() {
        let is_evicted = !fails.contains(&order.pod.name.as_str());
        tried.push(format!("{}{}", order.pod.name, if is_evicted { "" } else { "!" }));
        round.done(if is_evicted { Outcome::Leaving } else { Outcome::Refused });
    }
    (tried, round.has_evicted, round.released(Kind::Requested, Resource::BatchCpu))
}

#[test]
fn tasks() {
    let pods = abc();
    let [a, b, c] = [&pods[0], &pods[1], &pods[2]];
    let all = [a, b, c];
    let back = [c, b, a];
    let names = |tasks: &[Task<'_>]| play(tasks, &[], &[]).0;
    assert_eq!(names(&[request_task(&all, 3000)]), ["a", "b"], "koordlet-enforce#18.158");
    let two = |used| [request_task(&all, 1500), used_task(&back, used)];
    assert_eq!(names(&two(1350)), ["a", "b", "c"], "koordlet-enforce#18.159");
    assert_eq!(names(&two(1300)), ["a", "b"], "koordlet-enforce#18.160");
    let failing = play(&[request_task(&all, 1500)], &[], &["a"]);
    assert_eq!(failing, (vec!["a!".to_string(), "b".to_string()], true, 2000), "koordlet-enforce#18.161");
    let waiting = play(&[request_task(&all, 1500)], &["a"], &[]);
    assert_eq!((waiting.0, waiting.1), (vec!["b".to_string()], true), "koordlet-enforce#18.162");
    let all_gone = play(&[request_task(&all, 9000)], &["a", "b", "c"], &[]);
    assert_eq!((all_gone.0, all_gone.1), (vec![], false), "koordlet-enforce#18.162");
    assert_eq!(names(&[request_task(&all, 0)]), Vec::<String>::new());
}

/// Pods on their way count though they stand last, so that nobody goes in their place.
#[test]
fn pods_on_their_way_come_first() {
    let pods = abc();
    let all = [&pods[0], &pods[1], &pods[2]];
    assert_eq!(play(&[request_task(&all, 3000)], &["c"], &[]), (vec![], false, 3000));
    let more = play(&[request_task(&all, 3500)], &["c"], &[]);
    assert_eq!(more, (vec!["a".to_string()], true, 4000));
}

/// What ends a round, and what counts.
#[test]
fn outcomes() {
    let pods = abc();
    let all = [&pods[0], &pods[1], &pods[2]];
    let tasks = [request_task(&all, 6000)];
    for (first, tried, evicted, failed, released) in [
        (Outcome::Leaving, 3, true, false, 6000),
        (Outcome::Refused, 3, true, true, 5000),
        (Outcome::Unanswered, 1, false, true, 1000),
        (Outcome::Unreachable, 1, false, true, 0),
    ] {
        let pending = BTreeSet::new();
        let mut round = Round::new(&tasks, &pending);
        let mut count = 0;
        while round.next_victim().is_some() {
            round.done(if count == 0 { first } else { Outcome::Leaving });
            count += 1;
        }
        let found =
            (count, round.has_evicted, round.has_failed, round.released(Kind::Requested, Resource::BatchCpu));
        assert_eq!(found, (tried, evicted, failed, released), "{first:?}");
    }
}

#[test]
fn waits_grow_and_end() {
    let waits: Vec<u64> = [0, 1, 2, 3, 5, 6, 100].map(|count| back_off(count).as_secs()).into();
    assert_eq!(waits, [1, 1, 2, 4, 16, 30, 30]);
}

#[test]
fn orders_tell_their_numbers() {
    let pods = abc();
    let all = [&pods[0], &pods[1], &pods[2]];
    let tasks = [request_task(&all, 2500)];
    let pending = BTreeSet::new();
    let mut round = Round::new(&tasks, &pending);
    let mut texts = Vec::new();
    while let Some(order) = round.next_victim() {
        texts.push(order.numbers);
        round.done(Outcome::Leaving);
    }
    let want = ["freed 0, by this pod 1000", "freed 1000, by this pod 2000"]
        .map(|end| format!("10 % found; kubernetes.io/batch-cpu to free 2500, {end}"));
    assert_eq!(texts, want);
}

#[test]
fn messages() {
    let pods = abc();
    let message = "trigger by koordlet feature BECPUEvict, kill pod: a";
    assert_eq!(Trigger::BeCpu.message(&pods[0]), message);
    let text = format!("evict Pod:default/a, reason: evicted, message: {message}");
    let gone = Trigger::BeCpu.event(&pods[0], "10 % found", None);
    assert_eq!(gone, ("evictPodSuccess", format!("{text}; 10 % found")));
    let failed = Trigger::BeCpu.event(&pods[0], "10 % found", Some("too many requests"));
    assert_eq!(failed, ("evictPodFail", format!("{text}, error too many requests")));
}

#[test]
fn who_may_be_evicted() {
    const POLICY: &str = "koordinator.sh/eviction-policy";
    let is_victim = |sketch: crate::decide::sketch::PodSketch| {
        let pods = [sketch.read()];
        !best_effort_victims(&pods, Trigger::BeMemory).is_empty()
    };
    let be = || pod("a").qos("BE");
    assert!(is_victim(be()));
    assert!(is_victim(be().annotated(POLICY, r#"["BEMemoryEvict"]"#)));
    assert!(!is_victim(be().annotated(POLICY, r#"["BECPUEvict"]"#)));
    assert!(!is_victim(be().annotated(POLICY, "[]")));
    assert!(!is_victim(be().annotated(POLICY, "")));
    assert!(!is_victim(be().phase("Failed")), "ended pods free nothing");
    assert!(!is_victim(pod("a").qos("LS")));
}

#[test]
fn priority_order() {
    const ENABLED: &str = "koordinator.sh/eviction-enabled";
    const EVICTION_PRIORITY: &str = "koordinator.sh/eviction-priority";
    const SUB: &str = "koordinator.sh/priority";
    let mid = |name: &str| pod(name).label(ENABLED, "true").priority(7500);
    let pods: Vec<Pod> = [
        mid("b"),
        mid("f").label(SUB, "x"),
        mid("h").annotated(EVICTION_PRIORITY, "bad"),
        mid("n").annotated(EVICTION_PRIORITY, "3000000000"),
        mid("e").label(SUB, "1"),
        mid("g").annotated(EVICTION_PRIORITY, "-5"),
        mid("m").annotated(EVICTION_PRIORITY, "5"),
        mid("c").priority(5500),
        mid("a").priority(9000),
        pod("i").qos("LS").label(ENABLED, "true"),
        mid("shout").label(ENABLED, "True"),
        mid("unmeasured"),
    ]
    .iter()
    .map(|sketch| sketch.read())
    .collect();
    let used = |pod: &Pod| match pod.name.as_str() {
        "h" => Some(0.9),
        "unmeasured" => None,
        _ => Some(0.5),
    };
    let victims = priority_victims(&pods, Trigger::Cpu, 7999, used);
    let names: Vec<&str> = victims.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["g", "c", "e", "h", "b", "f", "n", "m"], "koordlet-enforce#18.153");
}

#[test]
fn cool_down() {
    let seconds = Duration::from_secs;
    assert!(!is_cooling(seconds(0), None, seconds(4)));
    assert!(is_cooling(seconds(10), Some(seconds(7)), seconds(4)));
    assert!(!is_cooling(seconds(11), Some(seconds(7)), seconds(4)));
}
