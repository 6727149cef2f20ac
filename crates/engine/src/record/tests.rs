//! Recordings that are written, read and played again.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Engine;
use crate::engine::Outcome;

fn options(seed: u64) -> Options {
    Options { seed, ..Options::new(vec![Profile::standard("default-scheduler")]) }
}

/// One thing that happens to a recorded engine.
#[derive(Clone, Debug)]
enum Move {
    Node { id: u8, cpu: u8, zone: u8 },
    NodeGone(u8),
    Pod { id: u8, cpu: u8, priority: u8, kind: u8 },
    PodGone(u8),
    Answer(bool),
    Step,
    Wait(u16),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        2 => (0..6u8, 1..8u8, 0..3u8).prop_map(|(id, cpu, zone)| Move::Node { id, cpu, zone }),
        1 => (0..6u8).prop_map(Move::NodeGone),
        6 => (0..40u8, 1..4u8, 0..3u8, 0..5u8)
            .prop_map(|(id, cpu, priority, kind)| Move::Pod { id, cpu, priority, kind }),
        2 => (0..40u8).prop_map(Move::PodGone),
        4 => prop::bool::weighted(0.8).prop_map(Move::Answer),
        8 => Just(Move::Step),
        1 => (1..400u16).prop_map(Move::Wait),
    ];
    prop::collection::vec(one, 1..150)
}

fn node(id: u8, cpu: u8, zone: u8) -> Value {
    let name = format!("n{id}");
    json!({"type": "node", "object": {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": format!("z{zone}")}},
        "status": {"allocatable": {"cpu": cpu.to_string(), "memory": "32Gi", "pods": "110"}}}})
}

fn pod(id: u8, cpu: u8, priority: u8, kind: u8, revision: u64) -> Value {
    let selector = json!({"matchLabels": {"app": format!("a{}", id % 3)}});
    let mut spec = json!({"priority": priority,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}]});
    match kind {
        0 => {
            spec["topologySpreadConstraints"] = json!([{"topologyKey": "zone", "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}])
        }
        1 => {
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]}})
        }
        2 => spec["nodeSelector"] = json!({"zone": "z1"}),
        _ => {}
    }
    json!({"type": "pod", "object": {"metadata": {"name": format!("p{id}"), "namespace": "d", "uid": format!("u{id}"),
        "labels": {"app": format!("a{}", id % 3)}, "resourceVersion": revision.to_string()}, "spec": spec}})
}

/// An engine that works, and is written down if somebody wants that.
struct Work {
    engine: Engine,
    taker: Taker,
    now: Time,
    revision: u64,
    unanswered: Vec<String>,
    commands: Vec<Command>,
    /// Asks for explanations all the time.
    is_curious: bool,
    lines: Vec<u8>,
}

impl Work {
    fn new(seed: u64, is_curious: bool) -> Work {
        let options = options(seed);
        Work {
            engine: Engine::new(&options).unwrap(),
            taker: Taker::new(&Header::new(&options, "")),
            now: Time::from_seconds(1_700_000_000),
            revision: 0,
            unanswered: Vec::new(),
            commands: Vec::new(),
            is_curious,
            lines: Vec::new(),
        }
    }

    fn take(&mut self, input: Input) {
        self.taker.input(self.now, &input);
        self.engine.take(self.now, input);
    }

    fn apply(&mut self, step: &Move) {
        match step {
            Move::Node { id, cpu, zone } => {
                self.take(serde_json::from_value(node(*id, *cpu, *zone)).unwrap())
            }
            Move::NodeGone(id) => self.take(Input::NodeGone { name: format!("n{id}") }),
            Move::Pod { id, cpu, priority, kind } => {
                self.revision += 1;
                let input = pod(*id, *cpu, *priority, *kind, self.revision);
                self.take(serde_json::from_value(input).unwrap());
            }
            Move::PodGone(id) => {
                let (name, uid) = (format!("p{id}"), format!("u{id}"));
                self.take(Input::PodGone { namespace: "d".to_owned(), name, uid });
            }
            Move::Answer(ok) => {
                let Some(uid) = self.unanswered.pop() else { return };
                let failed = Outcome::BindFailed { message: "no".to_owned() };
                self.take(Input::Outcome { uid, outcome: if *ok { Outcome::Bound } else { failed } });
            }
            Move::Step => {
                self.taker.step(self.now);
                drop(self.engine.step(self.now));
            }
            Move::Wait(seconds) => {
                self.now = self.now + Duration::from_secs(u64::from(*seconds));
                self.take(Input::Tick);
            }
        }
        if self.is_curious {
            self.engine.explain_pending(self.now);
            let next = self.revision % 40;
            self.engine.explain(self.now, "d", &format!("p{next}"));
        }
        let commands = self.engine.take_commands();
        self.taker.commands(&commands);
        for command in &commands {
            if let Command::Bind(binding) = command {
                self.unanswered.push(binding.pod.uid.to_string());
            }
        }
        self.commands.extend(commands);
        if self.revision.is_multiple_of(7) {
            self.lines.extend(self.taker.take_lines());
        }
    }

    fn end(mut self) -> (Vec<u8>, Vec<Command>) {
        self.lines.extend(self.taker.take_lines());
        (self.lines, self.commands)
    }
}

fn played(lines: &[u8]) -> (Vec<Command>, Played) {
    let mut player: Option<Player> = None;
    let mut commands = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let entry = Entry::decode(line).unwrap();
        if let Entry::Header(header) = &entry {
            let options = header.options(vec![Profile::standard(&header.scheduler)]);
            player = Some(Player::new(Engine::new(&options).unwrap(), Vec::new()));
        }
        commands.extend(player.as_mut().unwrap().play(entry));
    }
    (commands, player.unwrap().end())
}

fn folded(lines: &[u8]) -> Vec<u8> {
    let mut folder = Folder::default();
    let each = || lines.split_inclusive(|byte| *byte == b'\n');
    each().for_each(|line| folder.note(line).unwrap());
    let mut left: Vec<u8> = each().filter(|line| folder.keep(line).unwrap()).flatten().copied().collect();
    left.extend(folder.end());
    left
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_decides_the_same(moves in moves(), seed in any::<u64>()) {
        let mut work = Work::new(seed, false);
        moves.iter().for_each(|step| work.apply(step));
        let (lines, commands) = work.end();
        let (again, end) = played(&lines);
        prop_assert_eq!(&again, &commands);
        prop_assert!(end.is_same());
        prop_assert_eq!(end.verified, u64::try_from(commands.len()).unwrap());
    }

    #[test]
    fn explaining_changes_no_decision(moves in moves(), seed in any::<u64>()) {
        let (mut quiet, mut curious) = (Work::new(seed, false), Work::new(seed, true));
        for (index, step) in moves.iter().enumerate() {
            quiet.apply(step);
            curious.apply(step);
            prop_assert_eq!(&quiet.commands, &curious.commands, "after {}: {:?}", index, step);
        }
    }

    #[test]
    fn a_folded_history_has_the_same_objects(moves in moves()) {
        let mut work = Work::new(1, false);
        // Without steps nothing is assumed, and objects are all there is.
        moves.iter().filter(|step| !matches!(step, Move::Step)).for_each(|step| work.apply(step));
        let pods = |engine: &Engine| engine.pending();
        let (nodes, waiting) = (work.engine.cluster().node_count(), pods(&work.engine));
        let (lines, _) = work.end();
        let mut player = Player::new(Engine::new(&options(1)).unwrap(), Vec::new());
        let short = folded(&lines);
        for line in short.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            player.play(Entry::decode(line).unwrap());
        }
        prop_assert_eq!(player.engine().cluster().node_count(), nodes);
        let total = |pending: crate::queue::Pending| pending.active + pending.backoff + pending.unschedulable + pending.gated;
        prop_assert_eq!(total(pods(player.engine())), total(waiting));
        prop_assert!(player.end().cut.is_some() && player.end().is_same());
        prop_assert_eq!(folded(&short), short);
    }
}

#[test]
fn what_differs_is_noticed() {
    let mut work = Work::new(3, false);
    for step in [
        Move::Node { id: 1, cpu: 4, zone: 0 },
        Move::Node { id: 2, cpu: 4, zone: 0 },
        Move::Pod { id: 1, cpu: 1, priority: 0, kind: 4 },
        Move::Step,
    ] {
        work.apply(&step);
    }
    let (lines, _) = work.end();
    assert_eq!(played(&lines).1.verified, 1);
    let text = String::from_utf8(lines).unwrap();
    let (_, end) = played(text.replace(r#""cpu":"1""#, r#""cpu":"7""#).as_bytes());
    let difference = end.difference.unwrap();
    assert_eq!((difference.recorded, difference.replayed), (1, 2));
}

#[test]
fn entries_are_lines() {
    let times = vec![Time::from_nanos(5), Time::from_nanos(7), Time::from_nanos(6)];
    for (entry, want) in [
        (Entry::Steps(times), r#"{"t":5,"s":[2,-1]}"#),
        (Entry::Cut { at: Time::from_nanos(9) }, r#"{"cut":9}"#),
        (Entry::Digest(Digest { commands: 1, hash: 2 }), r#"{"d":{"commands":1,"hash":2}}"#),
        (
            Entry::Input { at: Time::from_nanos(1), input: Box::new(Input::Tick) },
            r#"{"t":1,"i":{"type":"tick"}}"#,
        ),
    ] {
        let mut line = Vec::new();
        entry.encode(&mut line);
        assert_eq!(String::from_utf8(line.clone()).unwrap(), format!("{want}\n"));
        assert_eq!(Entry::decode(&line), Ok(entry));
    }
    let header = Header::new(&options(4), "kind: x");
    let mut line = Vec::new();
    Entry::Header(Box::new(header.clone())).encode(&mut line);
    assert_eq!(Entry::decode(&line), Ok(Entry::Header(Box::new(header.clone()))));
    let newer = Header { recording: 2, ..header };
    let mut line = Vec::new();
    Entry::Header(Box::new(newer)).encode(&mut line);
    let error = Entry::decode(&line).unwrap_err().to_string();
    assert_eq!(error, "a recording of version 2; this program reads version 1");
    assert!(Entry::decode(b"{}").is_err() && Entry::decode(b"").is_err());
}
