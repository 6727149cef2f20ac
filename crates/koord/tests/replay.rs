//! `koord replay` on recordings of an engine.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be made is a failed test")]

use std::path::Path;
use std::process::{Command, Output};

use koord_engine::Engine;
use koord_engine::engine::{self, Options};
use koord_engine::profile::Profile;
use koord_engine::record::Header;
use koord_engine::time::Time;
use koord_scheduler::record::{LIMIT_MIN, Recorder};
use serde_json::{Value, json};

/// Two pods, one of which fits; the recorder is told of commands that were never given when `lies`.
fn record(path: &Path, lies: bool) {
    let options = Options::new(vec![Profile::standard("default-scheduler")]);
    let mut engine = Engine::new(&options).unwrap();
    let mut recorder = Recorder::start(path, LIMIT_MIN, &Header::new(&options, "")).unwrap();
    let now = Time::from_seconds(1_700_000_000);
    let pod = |name: &str, cpu: &str| {
        json!({"type": "pod", "object": {"metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}})
    };
    let node = json!({"type": "node", "object": {"metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}});
    for input in [node, pod("a", "1"), pod("b", "9")] {
        let input = serde_json::from_value(input).unwrap();
        recorder.input(now, &input);
        engine.take(now, input);
        recorder.step(now);
        drop(engine.step(now));
        recorder.commands(&engine.take_commands());
    }
    if lies {
        recorder.commands(&[engine::Command::Warn("never".to_owned())]);
    }
    recorder.finish().unwrap();
}

fn replay(path: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_koord")).arg("replay").arg(path).args(words).output().unwrap()
}

#[test]
fn decisions_are_printed_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    record(&path, false);
    let output = replay(&path, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "2023-11-14T22:13:20Z d/a -> n1");
    assert!(
        lines[1].starts_with("2023-11-14T22:13:20Z d/b waits: 0/1 nodes are available: 1 Insufficient cpu.")
    );
    assert_eq!(lines[2], "2 decisions; the 3 commands recorded are the same.");
    assert_eq!(output.status.code(), Some(0));
    let output = replay(&path, &["-o", "json"]);
    let data: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(data["decisions"][0], json!({"at": "2023-11-14T22:13:20Z", "pod": "d/a", "node": "n1"}));
    assert_eq!((&data["isSame"], &data["end"]["verified"]), (&json!(true), &json!(3)));
}

#[test]
fn what_differs_or_cannot_be_read_has_its_own_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    record(&path, true);
    let output = replay(&path, &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let end = "They differ from the recorded ones before 2023-11-14T22:13:20Z: 3 commands here, 4 there.";
    assert!(text.contains(end), "{text}");
    let output = replay(&folder.path().join("nothing"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot read the recording"));
}
