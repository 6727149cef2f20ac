//! Others who have a say. Spec: scheduler-core 3.5, 3.2.8, 3.2.10, 4 step 5, 6.13.5.

use std::sync::Mutex;

use super::*;
use crate::extender::{Candidate, Extender, Filtered, Kept, Terms};

/// Answers as prepared and remembers what it was asked.
#[derive(Default)]
struct Fake {
    terms: Terms,
    passed: Vec<&'static str>,
    failed: Vec<(&'static str, &'static str)>,
    unresolvable: Vec<(&'static str, &'static str)>,
    scores: Vec<(&'static str, i64)>,
    /// Nodes that it keeps, with the UIDs of their victims.
    keeps: Vec<(&'static str, Vec<&'static str>)>,
    error: Option<&'static str>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn answer<T>(&self, what: String, answer: T) -> Result<T, String> {
        self.asked.lock().unwrap().push(what);
        self.error.map_or(Ok(answer), |error| Err(error.to_owned()))
    }
}

fn texts(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<Box<str>, String> {
    pairs.iter().map(|(name, text)| ((*name).into(), (*text).to_owned())).collect()
}

impl Extender for Fake {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn filter(&mut self, pod: &Subject, nodes: &[Box<str>]) -> Result<Filtered, String> {
        let answer = Filtered {
            passed: self.passed.iter().map(|name| (*name).into()).collect(),
            failed: texts(&self.failed),
            unresolvable: texts(&self.unresolvable),
        };
        self.answer(format!("filter {} {}", pod.key.name, nodes.join(" ")), answer)
    }

    fn prioritize(&mut self, pod: &Subject, nodes: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, String> {
        let scores = self.scores.iter().map(|(name, score)| ((*name).into(), *score)).collect();
        self.answer(format!("prioritize {} {}", pod.key.name, nodes.join(" ")), scores)
    }

    fn preempt(&mut self, pod: &Subject, candidates: &[Candidate]) -> Result<Vec<Kept>, String> {
        let offered: Vec<String> = candidates
            .iter()
            .map(|candidate| {
                let victims: Vec<&str> = candidate.victims.iter().map(name).collect();
                format!("{}: {}", candidate.node, victims.join(" "))
            })
            .collect();
        let what = format!("preempt {} {}", pod.key.name, offered.join(", "));
        let kept = |(node, uids): &(&str, Vec<&str>)| Kept {
            node: (*node).into(),
            victims: uids.iter().map(|uid| (*uid).into()).collect(),
            violations: 0,
        };
        self.answer(what, self.keeps.iter().map(kept).collect())
    }
}

fn filters() -> Terms {
    Terms { filters: true, ..Terms::default() }
}

/// Three nodes, these extenders, and what they will have been asked.
fn lab(fakes: Vec<Fake>) -> (Lab, Arc<Mutex<Vec<String>>>) {
    let (mut lab, asked) = (Lab::new(), Arc::new(Mutex::new(Vec::new())));
    for node in ["n1", "n2", "n3"] {
        lab.node(node, "4");
    }
    let fakes = fakes.into_iter().map(|fake| Fake { asked: asked.clone(), ..fake });
    lab.engine.set_extenders(fakes.map(|fake| Box::new(fake) as Box<dyn Extender>).collect());
    (lab, asked)
}

fn scheduled(node: &str) -> Option<Verdict> {
    Some(Verdict::Scheduled { node: node.into() })
}

#[test]
fn each_sees_what_the_one_before_it_left() {
    let first = Fake { terms: filters(), passed: vec!["n2", "n3"], ..Fake::default() };
    let second = Fake { terms: filters(), passed: vec!["n3"], ..Fake::default() };
    let (mut lab, asked) = lab(vec![first, second]);
    lab.add("p", "1", json!({}));
    assert_eq!(lab.step(), scheduled("n3"));
    let asked = asked.lock().unwrap();
    let mut nodes: Vec<&str> = asked[0].split(' ').collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["filter", "n1", "n2", "n3", "p"]);
    assert!(asked[1].starts_with("filter p ") && !asked[1].contains("n1"), "{asked:?}");
}

#[test]
fn their_reasons_are_told_and_anything_wakes_the_pod() {
    let fake = Fake {
        terms: filters(),
        failed: vec![("n1", "no licence"), ("n2", "both")],
        unresolvable: vec![("n2", "wrong rack")],
        ..Fake::default()
    };
    let (mut lab, asked) = lab(vec![fake]);
    lab.add("p", "1", json!({}));
    let Some(Verdict::Unschedulable { message }) = lab.step() else { panic!("refused") };
    // n3 went without a word.
    let (fit, preemption) = message.split_once(" preemption: ").unwrap();
    assert_eq!(fit, "0/3 nodes are available: 1 no licence, 1 wrong rack. no new claims to deallocate,");
    assert!(preemption.contains("1 No preemption victims found for incoming pod"), "{preemption}");
    assert!(preemption.contains("2 Preemption is not helpful for scheduling"), "{preemption}");
    lab.tick(20);
    assert_eq!(lab.step(), None);
    lab.node("n4", "4");
    assert!(lab.step().is_some(), "woken by an event");
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[test]
fn failures_count_unless_they_may_be_ignored() {
    for (is_ignorable, want) in [(true, None), (false, Some("connection refused"))] {
        let terms = Terms { is_ignorable, ..filters() };
        let (mut lab, _) = lab(vec![Fake { terms, error: Some("connection refused"), ..Fake::default() }]);
        lab.add("p", "1", json!({}));
        match (lab.step(), want) {
            (Some(Verdict::Scheduled { .. }), None) => {}
            (Some(Verdict::Error { message }), Some(want)) => assert_eq!(message, want),
            (verdict, _) => panic!("{is_ignorable}: {verdict:?}"),
        }
    }
}

#[test]
fn their_scores_are_weighed_and_added() {
    let scoring = |weight| Terms { weight: Some(weight), ..Terms::default() };
    let first = Fake { terms: scoring(3), scores: vec![("n1", 10), ("n2", 1)], ..Fake::default() };
    let second = Fake { terms: scoring(1), scores: vec![("n2", 10), ("n9", 10)], ..Fake::default() };
    let broken = Fake { terms: scoring(9), scores: vec![("n3", 10)], error: Some("down"), ..Fake::default() };
    let (mut lab, _) = lab(vec![first, second, broken]);
    lab.add("p", "1", json!({}));
    let attempted = lab.engine.step(lab.now).unwrap();
    assert_eq!(attempted.verdict, Verdict::Scheduled { node: "n1".into() });
    let cluster = lab.engine.cluster();
    let total = |node: &str| {
        let row = cluster.row(node).unwrap();
        attempted.feasible.iter().find(|(known, _)| *known == row).unwrap().1
    };
    // The plugins find all three alike.
    assert_eq!((total("n1") - total("n3"), total("n2") - total("n3")), (300, 130));
}

#[test]
fn only_pods_that_ask_for_their_resources_are_theirs() {
    let terms = Terms { managed: vec!["example.com/x".into()], binds: true, ..filters() };
    let (mut lab, asked) = lab(vec![Fake { terms, passed: vec!["n2"], ..Fake::default() }]);
    let allocatable = json!({"cpu": "4", "memory": "32Gi", "pods": "110", "example.com/x": "4"});
    lab.take(json!({"type": "node", "object": {"metadata": {"name": "n2"}, "status": {"allocatable": allocatable}}}));
    lab.add("plain", "1", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Scheduled { .. })));
    assert!(asked.lock().unwrap().is_empty());
    let binder = |commands: Vec<Command>| match commands.as_slice() {
        [Command::Bind(binding)] => binding.extender,
        other => panic!("{other:?}"),
    };
    assert_eq!(binder(lab.engine.take_commands()), None);
    let requests = json!({"requests": {"example.com/x": "1"}});
    lab.add("theirs", "1", json!({"spec": {"containers": [{"name": "c", "resources": requests}]}}));
    assert_eq!(lab.step(), scheduled("n2"));
    assert_eq!(*asked.lock().unwrap(), ["filter theirs n2"]);
    assert_eq!(binder(lab.engine.take_commands()), Some(0));
    lab.outcome("theirs", Outcome::BindFailed { message: "no".to_owned() });
    let said = lab.said();
    assert!(said.contains(&"FailedScheduling theirs: no".to_owned()), "{said:?}");
}

#[test]
fn the_promised_node_needs_their_word_too() {
    let (mut lab, asked) = lab(vec![Fake { terms: filters(), passed: vec!["n3"], ..Fake::default() }]);
    lab.add("p", "1", json!({"status": {"nominatedNodeName": "n1"}}));
    assert_eq!(lab.step(), scheduled("n3"));
    assert_eq!(asked.lock().unwrap()[0], "filter p n1");
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[test]
fn room_is_made_only_as_they_agree() {
    let preempts = |is_ignorable| Terms { preempts: true, is_ignorable, ..Terms::default() };
    let of = |uids: Option<Vec<&'static str>>| {
        let keeps = uids.into_iter().map(|uids| ("n", uids)).collect();
        Fake { terms: preempts(false), keeps, ..Fake::default() }
    };
    let broken =
        |is_ignorable| Fake { terms: preempts(is_ignorable), error: Some("down"), ..Fake::default() };
    for (name, fake, want, text) in [
        ("as proposed", of(Some(vec!["uid-v2", "uid-v1"])), Some("preempt v2 v1 on n for p"), ""),
        ("one more", of(Some(vec!["uid-v0", "uid-v2", "uid-v1"])), Some("preempt v2 v1 v0 on n for p"), ""),
        ("dropped", of(None), None, " preemption: no candidate node for preemption"),
        ("nobody", of(Some(vec![])), None, " preemption: expected at least one victim pod on node \"n\""),
        (
            "a stranger",
            of(Some(vec!["uid-x"])),
            None,
            " preemption: an extender claims to preempt pod (UID: uid-x) on node: n, but the pod is not found on that node",
        ),
        (
            "a strange node",
            Fake { terms: preempts(false), keeps: vec![("x", vec!["uid-v1"])], ..Fake::default() },
            None,
            " preemption: nodeinfo not found for node name \"x\"",
        ),
        (
            "nobody, ignorable",
            Fake { terms: preempts(true), keeps: vec![("n", vec![])], ..Fake::default() },
            None,
            " preemption: no candidate node for preemption",
        ),
        ("failed", broken(false), None, " preemption: down"),
        ("failed, ignorable", broken(true), Some("preempt v2 v1 on n for p"), ""),
    ] {
        let mut lab = Lab::new();
        lab.node("n", "3");
        for (victim, cpu, priority) in [("v0", "0", 1), ("v1", "1", 2), ("v2", "1", 3)] {
            lab.add(victim, cpu, json!({"spec": {"nodeName": "n", "priority": priority}}));
        }
        lab.engine.set_extenders(vec![Box::new(fake)]);
        lab.add("p", "3", json!({"spec": {"priority": 20}}));
        // An error stands alone.
        let is_verdict = text.contains("no candidate node");
        let before = if is_verdict { " no new claims to deallocate," } else { "" };
        let message = format!("0/1 nodes are available: 1 Insufficient cpu.{before}{text}");
        assert_eq!(lab.step(), Some(Verdict::Unschedulable { message }), "{name}");
        let said = lab.said();
        let order = said.iter().find(|line| line.starts_with("preempt "));
        assert_eq!(order.map(String::as_str), want, "{name}: {said:?}");
    }
}

#[test]
fn every_node_where_room_can_be_made_is_offered() {
    let fake = |keeps| Fake { terms: Terms { preempts: true, ..Terms::default() }, keeps, ..Fake::default() };
    let all = |nodes: &[&'static str]| {
        let victim = |node: &&'static str| match *node {
            "n1" => ("n1", vec!["uid-v1"]),
            "n2" => ("n2", vec!["uid-v2"]),
            _ => ("n3", vec!["uid-v3"]),
        };
        fake(nodes.iter().map(victim).collect())
    };
    for (name, fakes, want) in [
        ("the cheapest of all", vec![all(&["n3", "n2", "n1"])], "preempt v1 on n1 for p"),
        ("the cheapest that is left", vec![all(&["n3", "n2"])], "preempt v2 on n2 for p"),
        ("one after the other", vec![all(&["n3", "n2"]), all(&["n3"])], "preempt v3 on n3 for p"),
    ] {
        let count = fakes.len();
        let (mut lab, asked) = lab(fakes);
        for (victim, node, priority) in [("v1", "n1", 1), ("v2", "n2", 2), ("v3", "n3", 3)] {
            lab.add(victim, "4", json!({"spec": {"nodeName": node, "priority": priority}}));
        }
        lab.add("p", "4", json!({"spec": {"priority": 20}}));
        assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })), "{name}");
        let said = lab.said();
        assert!(said.iter().any(|line| line == want), "{name}: {said:?}");
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), count, "{name}");
        for offered in ["n1: v1", "n2: v2", "n3: v3"] {
            assert!(asked[0].contains(offered), "{name}: {asked:?}");
        }
        if count == 2 {
            assert!(!asked[1].contains("n1"), "{name}: {asked:?}");
        }
    }
}
