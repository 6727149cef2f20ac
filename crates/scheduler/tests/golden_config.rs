//! The configurations under which the golden recordings were made: they load, expand as written beside them, and
//! kube-scheduler's own is written as kube-scheduler writes it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use koord_api::gate::{Component, Gates};
use koord_engine::profile::point::Point;
use koord_scheduler::config::{Overrides, SchedulerConfig, load};
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn config(name: &str) -> SchedulerConfig {
    let gates = Gates::defaults(Component::Scheduler);
    load(Some(&data(name)), &Overrides::default(), &gates).unwrap_or_else(|error| panic!("{error}"))
}

fn points(config: &SchedulerConfig) -> String {
    let mut text = String::new();
    for profile in &config.profiles {
        writeln!(text, "profile {}", profile.scheduler_name).unwrap();
        for (point, list) in profile.points.iter() {
            writeln!(text, "  {}", point.key()).unwrap();
            for enabled in list {
                match point {
                    Point::Score => writeln!(text, "    {} {}", enabled.plugin, enabled.weight).unwrap(),
                    _ => writeln!(text, "    {}", enabled.plugin).unwrap(),
                }
            }
        }
    }
    text
}

#[test]
fn they_expand_as_written() {
    for name in ["kube", "koord", "part"] {
        let config = config(&format!("{name}.yaml"));
        assert_eq!(config.warnings, [], "{name}");
        assert_eq!(config.leader_election, None, "{name}");
        assert_eq!((config.client_connection.qps, config.client_connection.burst), (5000.0, 5000), "{name}");
        let want = std::fs::read_to_string(data(&format!("{name}.points.txt"))).unwrap_or_default();
        assert_eq!(points(&config), want, "{name}");
    }
}

/// `kube.written.yaml` is what kube-scheduler v1.35.4 wrote for `kube.yaml`.
#[test]
fn the_effective_configuration_is_kube_schedulers() {
    let read = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
    let written = config("kube.yaml").to_yaml();
    let mut ours = read(&written);
    let theirs_text = std::fs::read_to_string(data("kube.written.yaml")).unwrap();
    // Koordinator's one addition to every profile.
    let pre_bind = &mut ours["profiles"][0]["plugins"]["preBind"];
    assert_eq!(pre_bind["enabled"][0]["name"], "DefaultPreBind");
    *pre_bind = serde_json::json!({});
    assert_eq!(ours, read(&theirs_text));
    // Line for line the same text, but for that addition.
    let kept = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let (ours, theirs) = (kept(&written), kept(&theirs_text));
    let missing: Vec<&String> = theirs.iter().filter(|line| !ours.contains(line)).collect();
    assert_eq!(missing, ["    preBind: {}"]);
}
