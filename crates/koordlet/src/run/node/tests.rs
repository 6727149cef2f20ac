//! The thread with a clock of the test's, on a node of plain files.

use std::path::Path;

use koord_linux::cgroup::Version;
use koord_linux::root::Root;
use koord_testkit::node_tree::{Cgroup, NodeTree};

use super::*;
use crate::flags;
use crate::overheard::overheard;
use crate::run::alone;

/// A thread that knows nothing yet.
async fn brain(dir: &Path, line: &str) -> Brain {
    NodeTree::make(dir, Cgroup::V1, 1).unwrap();
    let [data, models] = ["data", "models"].map(|name| dir.join(name));
    std::fs::create_dir_all(&models).unwrap();
    let paths = [
        format!("--tsdb-path={}", data.display()),
        format!("--prediction-checkpoint-filepath={}", models.display()),
    ];
    let options = flags::of_line(&format!("{} {line}", paths.join(" ")));
    let options = flags::Options { root: Root::host(dir), is_host_mode: true, ..options };
    let cluster = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    alone(options, cluster, Version::V1, State::default()).await.unwrap()
}

fn after(brain: &Brain, seconds: u64) -> Moment {
    let unix_ms = 1_700_000_000_000 + i64::try_from(seconds).unwrap() * 1000;
    Moment { unix_ms, instant: brain.progress.started + Duration::from_secs(seconds) }
}

/// koordlet-observe 9.3, 9.5: every minute, however seldom models learn.
#[tokio::test]
async fn models_are_saved_and_dropped_however_seldom_they_learn() {
    let dir = tempfile::tempdir().unwrap();
    let line = "--prediction-training-interval=2h --prediction-model-checkpoint-max-per-step=2";
    let mut brain = brain(dir.path(), line).await;
    let snapshot = Snapshot::default();
    // A class each; the node was not measured.
    for (seconds, models, files) in [
        (0, 5, 2),
        (59, 5, 2),
        (60, 5, 4),
        (120, 5, 5),
        (30 * 60, 5, 5),
        (31 * 60, 0, 0),
        (2 * 3600 - 1, 0, 0),
        (2 * 3600, 5, 0),
        (2 * 3600 + 1, 5, 0),
    ] {
        brain.learn(&snapshot, after(&brain, seconds));
        let saved = std::fs::read_dir(dir.path().join("models")).unwrap().count();
        assert_eq!((brain.predictor.len(), saved), (models, files), "after {seconds} s");
    }
}

/// koordlet-observe 14 (3).
#[tokio::test]
async fn what_is_waited_for_is_said_every_half_minute() {
    let dir = tempfile::tempdir().unwrap();
    let mut brain = brain(dir.path(), "").await;
    let mut said = Vec::new();
    for second in 0..=61 {
        let now = after(&brain, second);
        let (_, lines) = overheard(|| brain.second(now));
        said.extend(
            lines.into_iter().filter(|line| line.contains("nothing is done")).map(|line| (second, line)),
        );
    }
    let line = "WARN nothing is done yet missing=\"the Node object, the list of NodeSLOs, the kubelet's pods, \
                the list of PersistentVolumeClaims, the CPUs of the node\"";
    assert_eq!(said, [30, 60].map(|second| (second, line.to_owned())));
}

#[tokio::test]
async fn the_store_is_shown_from_the_first_second() {
    let dir = tempfile::tempdir().unwrap();
    for (line, is_shown) in [("", true), ("--tsdb-enable-prometheus-metric=false", false)] {
        let mut brain = brain(dir.path(), line).await;
        brain.second(after(&brain, 0));
        let page = brain.metrics.external().render(Format::Prometheus);
        assert_eq!(page.contains("\nkoordlet_store_memory_bytes{} "), is_shown, "{page}");
    }
}

/// koordlet-observe 11.1: what each second brings.
#[tokio::test]
async fn what_a_second_brings_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let mut brain = brain(dir.path(), "").await;
    // Another tree in the same place, whose numbers the test moves.
    let mut tree = NodeTree::make(dir.path(), Cgroup::V1, 4).unwrap();
    brain.metrics.node_seen();
    for second in 0..3 {
        brain.collectors.pass(after(&brain, second), &mut brain.store);
        tree.turn(TICK).unwrap();
    }
    brain.shown.second(&brain.metrics, &brain.collectors);
    let page = brain.metrics.internal().render(Format::Prometheus);
    let is_own = |line: &&str| line.starts_with("koordlet_") && !line.starts_with("koordlet_start_time");
    let rows: Vec<(&str, f64)> = page
        .lines()
        .filter(is_own)
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.strip_prefix("koordlet_").unwrap(), value.parse().unwrap()))
        .collect();
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    let want = [
        "collect_node_cpu_info_status{node=\"n1\",status=\"succeeded\"}",
        "collect_node_numa_info_status{node=\"n1\",status=\"succeeded\"}",
        "node_used_cpu_cores{node=\"n1\"}",
        "node_used_memory_bytes{node=\"n1\"}",
        "be_suppress_be_used_cpu_cores{node=\"n1\"}",
    ];
    assert_eq!(names, want);
    assert_eq!((rows[0].1, rows[1].1), (1.0, 1.0));
    assert!(rows[2..].iter().all(|(_, value)| *value > 0.0), "{rows:?}");
}
