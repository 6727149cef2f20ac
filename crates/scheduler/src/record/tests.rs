//! Recordings in files: bounded, compressed, read back.

use koord_engine::Engine;
use koord_engine::engine::{Options, Outcome};
use koord_engine::profile::Profile;
use serde_json::{Value, json};

use super::*;

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
