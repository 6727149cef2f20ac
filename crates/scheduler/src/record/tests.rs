//! Recordings in files: bounded, compressed, read back.

use koord_engine::Engine;
use koord_engine::engine::command::Subject;
use koord_engine::engine::{Options, Outcome};
use koord_engine::extender::{Candidate, Extender, Filtered, Kept, Terms};
use koord_engine::profile::Profile;
use serde_json::{Value, json};

use super::*;
use crate::brain::Brain as _;

/// An engine that is recorded, the way the shell does it.
struct Live {
    engine: Engine,
    recorder: Recorder,
    now: i64,
}

impl Live {
    fn new(path: &Path, limit: u64, configuration: &str) -> Live {
        let options = Options { seed: 7, ..Options::new(vec![Profile::standard("default-scheduler")]) };
        let recorder = Recorder::start(path, limit, &Header::new(&options, configuration)).unwrap();
        Live { engine: Engine::new(&options).unwrap(), recorder, now: 1_700_000_000 }
    }

    fn take(&mut self, input: Input) {
        let now = Time::from_seconds(self.now);
        self.recorder.input(now, &input);
        self.engine.take(now, input);
        self.act();
    }

    fn act(&mut self) {
        let commands = self.engine.take_commands();
        self.recorder.commands(&commands);
        for command in commands {
            if let Command::Bind(binding) = command {
                self.take(Input::Outcome { uid: binding.pod.uid.to_string(), outcome: Outcome::Bound });
            }
        }
    }

    fn step(&mut self) {
        self.now += 1;
        let now = Time::from_seconds(self.now);
        self.recorder.step(now);
        drop(self.engine.step(now));
        self.act();
    }

    fn told(&mut self, input: Value) {
        self.take(serde_json::from_value(input).unwrap());
    }

    fn node(&mut self, name: &str) {
        self.told(json!({"type": "node", "object": {"metadata": {"name": name},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}}));
    }

    fn pod(&mut self, name: &str, cpu: &str, padding: &str) {
        self.told(json!({"type": "pod", "object": {
            "metadata": {"name": name, "namespace": "d", "uid": name, "annotations": {"padding": padding}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}}));
    }

    fn gone(&mut self, name: &str) {
        let (namespace, name) = ("d".to_owned(), name.to_owned());
        self.take(Input::PodGone { namespace, uid: name.clone(), name });
    }
}

fn replayed(path: &Path) -> (Vec<Decision>, koord_engine::record::Played) {
    let mut decisions = Vec::new();
    let played = replay(path, |decision| decisions.push(decision)).unwrap();
    (decisions, played)
}

#[test]
fn a_file_is_played_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let configuration = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    for configuration in ["", configuration] {
        let mut live = Live::new(&path, LIMIT_MIN, configuration);
        live.node("n1");
        live.node("n2");
        live.pod("a", "3", "");
        live.step();
        live.recorder.flush();
        live.pod("b", "5", "");
        live.step();
        live.recorder.finish().unwrap();
        let (decisions, played) = replayed(&path);
        assert_eq!(played, koord_engine::record::Played { verified: 4, difference: None, cut: None });
        let text = serde_json::to_value(&decisions).unwrap();
        assert!(text[0]["node"].as_str().is_some_and(|node| node.starts_with('n')), "{text}");
        assert!(text[1]["message"].as_str().unwrap().starts_with("0/2 nodes are available: "), "{text}");
        assert_eq!((&text[1]["pod"], &text[1]["at"]), (&json!("d/b"), &json!("2023-11-14T22:13:22Z")));
    }
}

/// A brain of this configuration that is recorded, with these extenders.
fn recorded(path: &Path, more: &str, extenders: Vec<Box<dyn Extender>>) -> Recorded<Engine> {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
         profiles:\n- schedulerName: mine\n{more}"
    );
    let gates = koord_api::gate::Gates::defaults(koord_api::gate::Component::Scheduler);
    let config = crate::config::parse(Path::new("test"), &text, &Default::default(), &gates).unwrap();
    let options = Options { seed: 9, ..Options::new(config.profiles.clone()) };
    let recorder = Recorder::start(path, LIMIT_MIN, &Header::new(&options, &config.deciding_yaml())).unwrap();
    let (mut engine, heard) = (Engine::new(&options).unwrap(), Heard::default());
    engine.set_extenders(heard.listen(extenders));
    Recorded::new(engine, recorder, heard)
}

fn small_node(name: &str) -> Value {
    json!({"type": "node", "object": {"metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}})
}

fn small_pod(name: &str, cpu: &str, priority: i32) -> Value {
    json!({"type": "pod", "object": {"metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {"schedulerName": "mine", "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}})
}

/// Tells a brain these things, a second apart, with one pod tried after each; what it wants done.
fn lives(brain: &mut Recorded<Engine>, inputs: Vec<Value>) -> Vec<Command> {
    let (mut commands, mut now) = (Vec::new(), Time::from_seconds(1_700_000_000));
    for input in inputs {
        now = now + std::time::Duration::from_secs(1);
        brain.take(now, serde_json::from_value(input).unwrap());
        brain.step(now);
        commands.extend(brain.take_commands());
    }
    commands
}

#[test]
fn a_brain_is_recorded_until_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let mut brain = recorded(&path, "", Vec::new());
    let commands = lives(&mut brain, vec![small_node("n1"), small_pod("a", "1", 0)]);
    drop(brain);
    let (decisions, played) = replayed(&path);
    assert_eq!(played.verified, u64::try_from(commands.len()).unwrap());
    assert!(played.is_same() && decisions.len() == 1 && decisions[0].pod == "d/a", "{decisions:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// Wants another node each time it is asked, and sometimes nothing at all.
struct Moody {
    terms: Terms,
    asked: usize,
}

impl Moody {
    fn turn(&mut self, of: usize) -> usize {
        self.asked += 1;
        self.asked * 7 % of.max(1)
    }
}

impl Extender for Moody {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn filter(&mut self, _: &Subject, nodes: &[Box<str>]) -> Result<Filtered, String> {
        if self.turn(5) == 0 {
            return Err("not now".to_owned());
        }
        let out = nodes[self.turn(nodes.len())].clone();
        let passed = nodes.iter().filter(|node| **node != out).cloned().collect();
        Ok(Filtered { passed, failed: [(out, "not today".to_owned())].into(), ..Filtered::default() })
    }

    fn prioritize(&mut self, _: &Subject, nodes: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, String> {
        Ok(vec![(nodes[self.turn(nodes.len())].clone(), 10)])
    }

    fn preempt(&mut self, _: &Subject, candidates: &[Candidate]) -> Result<Vec<Kept>, String> {
        let chosen = &candidates[self.turn(candidates.len())];
        let victims = chosen.victims.iter().map(|victim| victim.uid.clone()).collect();
        Ok(vec![Kept { node: chosen.node.clone(), victims, violations: chosen.violations }])
    }
}

#[test]
fn what_extenders_said_is_said_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let config = "extenders:\n- {urlPrefix: 'http://x', filterVerb: f, prioritizeVerb: p, weight: 3, preemptVerb: e}\n\
                  - {urlPrefix: 'http://y', filterVerb: f, nodeCacheCapable: true, ignorable: true}\n";
    let terms = Terms { filters: true, ..Terms::default() };
    let first = Terms { weight: Some(3), preempts: true, ..terms.clone() };
    let second = Terms { is_ignorable: true, ..terms };
    let moody = |terms, asked| Box::new(Moody { terms, asked }) as Box<dyn Extender>;
    let mut brain = recorded(&path, config, vec![moody(first, 0), moody(second, 3)]);
    let mut inputs: Vec<Value> = (0..5).map(|number| small_node(&format!("n{number}"))).collect();
    inputs.extend((0..30).map(|number| small_pod(&format!("p{number}"), "1", 0)));
    inputs.extend((0..3).map(|number| small_pod(&format!("urgent{number}"), "3", 100)));
    let commands = lives(&mut brain, inputs);
    drop(brain);
    let bound = |command: &Command| match command {
        Command::Bind(binding) => Some((binding.pod.key.to_string(), binding.node.to_string())),
        _ => None,
    };
    let bound: Vec<(String, String)> = commands.iter().filter_map(bound).collect();
    let (decisions, played) = replayed(&path);
    assert!(played.is_same() && played.verified == u64::try_from(commands.len()).unwrap(), "{played:?}");
    let again = decisions.iter().filter_map(|decision| match &decision.verdict {
        Verdict::Placed { node } => Some((decision.pod.clone(), node.clone())),
        _ => None,
    });
    assert_eq!(again.collect::<Vec<_>>(), bound);
    assert!(!bound.is_empty());
    assert!(commands.iter().any(|command| matches!(command, Command::Preempt(_))), "room was made, too");
}

/// Text that does not compress.
fn noise(seed: u64) -> String {
    let mut state = seed;
    let next = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    });
    next.take(4096).collect()
}

#[test]
fn a_file_stays_within_its_limit_and_can_still_be_played() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let mut live = Live::new(&path, LIMIT_MIN, "");
    live.node("n1");
    live.pod("stays", "1", "");
    live.step();
    for index in 0..2000u64 {
        let name = format!("p{index}");
        live.pod(&name, "1", &noise(index));
        live.step();
        live.gone(&name);
    }
    live.recorder.finish().unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    assert!((1..=LIMIT_MIN).contains(&size), "{size}");
    let (decisions, played) = replayed(&path);
    assert!(played.cut.is_some() && played.is_same());
    assert!(decisions.iter().any(|decision| decision.pod == "d/stays"), "{}", decisions.len());
    assert!(decisions.iter().any(|decision| decision.pod == "d/p1999"));
    assert!(!decisions.iter().any(|decision| decision.pod == "d/p0"));
}

#[test]
fn objects_that_do_not_fit_end_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let mut live = Live::new(&folder.path().join("recording"), LIMIT_MIN, "");
    for index in 0..1000u64 {
        live.pod(&format!("p{index}"), "1", &noise(index));
    }
    let error = live.recorder.finish().unwrap_err();
    assert!(matches!(error, RecordError::TooSmall { limit: LIMIT_MIN, .. }), "{error}");
}

#[test]
fn a_file_that_broke_off_is_played_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let mut live = Live::new(&path, LIMIT_MIN, "");
    live.node("n1");
    live.pod("a", "1", "");
    live.step();
    live.recorder.flush();
    live.pod("b", "1", &noise(1));
    live.step();
    live.recorder.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    let (decisions, played) = replayed(&path);
    assert_eq!(decisions.first().map(|decision| decision.pod.as_str()), Some("d/a"));
    assert!(played.is_same() && played.verified >= 2);
}

#[test]
fn files_that_are_no_recordings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let error = replay(&path, drop).unwrap_err().to_string();
    assert_eq!(error, format!("cannot read the recording {}", path.display()));
    std::fs::write(&path, "hello").unwrap();
    assert!(replay(&path, drop).is_err());
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, b"{\"t\":1,\"i\":{\"type\":\"tick\"}}\n").unwrap();
    std::fs::write(&path, encoder.finish().unwrap()).unwrap();
    let error = replay(&path, drop).unwrap_err().to_string();
    assert_eq!(error, format!("{} does not begin as a recording does", path.display()));
}

#[test]
fn sizes() {
    assert_eq!(parse_size("64Mi").unwrap(), 64 << 20);
    for text in ["", "many", "12", "-1Gi"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}
