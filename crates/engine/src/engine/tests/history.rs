//! Random histories against a model of the API: nothing is lost, counted twice or overcommitted.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Move {
    AddNode(u8),
    RemoveNode(u8),
    AddPod {
        id: u8,
        cpu: u8,
        priority: u8,
    },
    DeletePod(u8),
    /// A watch event comes twice or late.
    Repeat(u8),
    /// The oldest unanswered bind or preemption is answered.
    Answer {
        ok: bool,
        watch_first: bool,
    },
    /// The watch tells what happened meanwhile.
    Watch,
    Step,
    Wait(u16),
    /// All watches start over.
    Relist,
    /// The scheduler starts anew.
    Crash,
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => (0..5u8).prop_map(Move::AddNode),
        1 => (0..5u8).prop_map(Move::RemoveNode),
        6 => (0..24u8, 1..4u8, 0..3u8).prop_map(|(id, cpu, priority)| Move::AddPod { id, cpu, priority }),
        2 => (0..24u8).prop_map(Move::DeletePod),
        1 => (0..24u8).prop_map(Move::Repeat),
        5 => (prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(ok, watch_first)| Move::Answer { ok, watch_first }),
        3 => Just(Move::Watch),
        8 => Just(Move::Step),
        1 => (1..700u16).prop_map(Move::Wait),
        1 => Just(Move::Relist),
        1 => Just(Move::Crash),
    ]
}

/// The API server's truth, and what the engine has not been told of it.
struct Model {
    lab: Lab,
    nodes: BTreeSet<u8>,
    pods: BTreeMap<String, Value>,
    untold: Vec<Value>,
    unanswered: Vec<Command>,
    generation: u32,
}

impl Model {
    fn new() -> Model {
        Model {
            lab: Lab::new(),
            nodes: BTreeSet::new(),
            pods: BTreeMap::new(),
            untold: Vec::new(),
            unanswered: Vec::new(),
            generation: 0,
        }
    }

    fn apply(&mut self, step: &Move) {
        match step {
            Move::AddNode(id) => {
                self.nodes.insert(*id);
                self.lab.node(&format!("n{id}"), "4");
            }
            Move::RemoveNode(id) => {
                if self.nodes.remove(id) {
                    self.lab.take(json!({"type": "nodeGone", "name": format!("n{id}")}));
                }
            }
            Move::AddPod { id, cpu, priority } => self.add_pod(*id, *cpu, *priority),
            Move::DeletePod(id) => {
                let name = self.pods.keys().find(|name| name.starts_with(&format!("p{id}-"))).cloned();
                name.into_iter().for_each(|name| self.delete(&name));
            }
            Move::Repeat(id) => {
                let pod = self.pods.iter().find(|(name, _)| name.starts_with(&format!("p{id}-")));
                if let Some((_, object)) = pod {
                    let object = object.clone();
                    self.lab.take(json!({"type": "pod", "object": object}));
                }
            }
            Move::Answer { ok, watch_first } => self.answer(*ok, *watch_first),
            Move::Watch => self.watch(),
            Move::Step => {
                self.lab.step();
            }
            Move::Wait(seconds) => self.lab.tick(u64::from(*seconds)),
            Move::Relist => self.relist(),
            Move::Crash => {
                let now = self.lab.now;
                // What was under way when it stopped: the API did it or not, nobody will say.
                self.unanswered.clear();
                self.untold.clear();
                self.lab = Lab { engine: Engine::new(&options()).unwrap(), now, revision: self.lab.revision };
                let nodes = self.nodes.clone();
                nodes.iter().for_each(|id| self.lab.node(&format!("n{id}"), "4"));
                self.relist();
            }
        }
        self.unanswered.extend(
            self.lab
                .engine
                .take_commands()
                .into_iter()
                .filter(|command| matches!(command, Command::Bind(_) | Command::Preempt(_))),
        );
    }

    fn add_pod(&mut self, id: u8, cpu: u8, priority: u8) {
        if self.pods.keys().any(|name| name.starts_with(&format!("p{id}-"))) {
            return;
        }
        self.generation += 1;
        let name = format!("p{id}-{}", self.generation);
        let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]}});
        let mut rest = json!({"metadata": {"labels": {"a": if id.is_multiple_of(3) { "b" } else { "c" }}},
            "spec": {"priority": priority}});
        if id.is_multiple_of(7) {
            rest["spec"]["affinity"] = anti;
        }
        let object = self.lab.pod(&name, &cpu.to_string(), &rest);
        self.pods.insert(name, object.clone());
        self.untold.push(json!({"type": "pod", "object": object}));
        self.watch();
    }

    fn delete(&mut self, name: &str) {
        if self.pods.remove(name).is_some() {
            let uid = format!("uid-{name}");
            self.untold.push(json!({"type": "podGone", "namespace": "d", "name": name, "uid": uid}));
        }
    }

    fn watch(&mut self) {
        for input in std::mem::take(&mut self.untold) {
            self.lab.take(input);
        }
    }

    /// Everything as it is now, and deletions that nobody saw.
    fn relist(&mut self) {
        self.untold.clear();
        let known: Vec<(String, String)> = self
            .lab
            .engine
            .cluster()
            .all_held()
            .map(|held| (held.pod.key.name.to_string(), held.pod.uid.to_string()))
            .chain(
                self.lab
                    .engine
                    .world
                    .waiting
                    .values()
                    .map(|waiting| (waiting.pod.key.name.to_string(), waiting.pod.uid.to_string())),
            )
            .collect();
        for (name, uid) in known.into_iter().filter(|(name, _)| !self.pods.contains_key(name)) {
            self.lab.take(json!({"type": "podGone", "namespace": "d", "name": name, "uid": uid}));
        }
        for object in self.pods.values().cloned().collect::<Vec<_>>() {
            self.lab.take(json!({"type": "pod", "object": object}));
        }
    }

    fn answer(&mut self, ok: bool, watch_first: bool) {
        if self.unanswered.is_empty() {
            return;
        }
        match self.unanswered.remove(0) {
            Command::Bind(binding) => {
                let name = binding.pod.key.name.to_string();
                let ok = ok && self.bind(&name, &binding.node);
                if watch_first {
                    self.watch();
                }
                let failed = Outcome::BindFailed { message: "conflict".to_owned() };
                self.lab.outcome(&name, if ok { Outcome::Bound } else { failed });
            }
            Command::Preempt(order) => {
                for victim in order.victims.iter().filter(|_| ok) {
                    self.delete(&victim.key.name);
                }
                let failed = Outcome::PreemptFailed { message: "conflict".to_owned() };
                let name = order.preemptor.key.name.to_string();
                self.lab.outcome(&name, if ok { Outcome::Preempted } else { failed });
            }
            other => panic!("{other:?}"),
        }
    }

    /// What the API does with a binding: a pod is bound once, to whatever it is told.
    fn bind(&mut self, name: &str, node: &str) -> bool {
        self.lab.revision += 1;
        let Some(pod) = self.pods.get_mut(name) else { return false };
        if pod["spec"]["nodeName"].is_string() {
            return false;
        }
        pod["spec"]["nodeName"] = json!(node);
        pod["metadata"]["resourceVersion"] = json!(self.lab.revision.to_string());
        self.untold.push(json!({"type": "pod", "object": pod}));
        true
    }

    fn check(&self, at: &str) {
        let cluster = self.lab.engine.cluster();
        assert_eq!(cluster.recount(), cluster.ledger(), "{at}");
        for (name, pod) in self.pods.iter().filter(|(_, pod)| pod["spec"]["nodeName"].is_null()) {
            let uid = format!("uid-{name}");
            let key = crate::queue::PodKey::new("d", name);
            let is_placed = cluster.held(&uid).is_some();
            let is_queued = self.lab.engine.queue.get(&key).is_some();
            let is_untold = self.untold.iter().any(|input| input["object"]["metadata"]["uid"] == *uid);
            assert!(is_placed || is_queued || is_untold, "{at}: {name} is lost: {pod}");
        }
    }

    /// Lets everything come to rest.
    fn finish(&mut self) {
        for _ in 0..60 {
            self.apply(&Move::Watch);
            while !self.unanswered.is_empty() {
                self.apply(&Move::Answer { ok: true, watch_first: true });
            }
            self.apply(&Move::Wait(11));
            for _ in 0..40 {
                self.apply(&Move::Step);
            }
        }
        self.check("at rest");
        let mut used: BTreeMap<&str, i64> = BTreeMap::new();
        for pod in self.pods.values() {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                let cpu = &pod["spec"]["containers"][0]["resources"]["requests"]["cpu"];
                *used.entry(node).or_default() += cpu.as_str().unwrap().parse::<i64>().unwrap();
            }
        }
        for (node, used) in &used {
            assert!(*used <= 4, "{node} has {used} of 4");
        }
    }

    /// A pod that could be placed is.
    fn nobody_could_be_placed(&mut self) {
        let waiting: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod["spec"]["nodeName"].is_null())
            .map(|(name, _)| name.clone())
            .collect();
        self.apply(&Move::Crash);
        for name in waiting {
            let verdict = self.lab.engine.step(self.lab.now).map(|attempted| attempted.verdict);
            assert!(!matches!(verdict, Some(Verdict::Scheduled { .. })), "{name} waits though {verdict:?}");
            self.lab.engine.take_commands();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn ledgers_are_right_and_no_pod_is_lost_after_any_history(steps in prop::collection::vec(moves(), 1..120)) {
        let mut model = Model::new();
        for (index, step) in steps.iter().enumerate() {
            model.apply(step);
            model.check(&format!("after {index}: {step:?}"));
        }
        model.finish();
        model.nobody_could_be_placed();
    }
}
