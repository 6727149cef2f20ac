//! The configurations under which the golden recordings were made: they load, expand as written beside them, and
//! kube-scheduler's own is written as kube-scheduler writes it.

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
    let mut lines = Vec::new();
    for profile in &config.profiles {
        lines.push(format!("profile {}", profile.scheduler_name));
        for (point, list) in profile.points.iter() {
            lines.push(format!("  {}", point.key()));
            lines.extend(list.iter().map(|enabled| match point {
                Point::Score => format!("    {} {}", enabled.plugin, enabled.weight),
                _ => format!("    {}", enabled.plugin),
            }));
        }
    }
    lines.join("\n") + "\n"
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

/// Lines of a good file in any order, with words of it exchanged: refused or taken, and what is taken is written so
/// that it reads back.
fn torn(lines: &[usize], words: &[(usize, usize)]) -> String {
    let text = std::fs::read_to_string(data("koord.yaml")).unwrap_or_default();
    let mut torn: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = torn.len();
    for line in lines {
        let line = torn.remove(line % torn.len().max(1));
        if line.len().is_multiple_of(2) {
            torn.push(line);
        }
    }
    for (at, value) in words {
        let at = at % torn.len().max(1);
        if let Some((key, _)) = torn[at].split_once(": ") {
            let values =
                ["-1", "0", "101", "x", "{}", "[]", "null", "'*'", "9223372036854775808", "1e3", "-1s"];
            torn[at] = format!("{key}: {}", values[value % values.len()]);
        }
    }
    assert!(torn.len() <= count);
    torn.join("\n")
}

proptest::proptest! {
    #[test]
    fn nothing_breaks_the_reader(
        lines in proptest::collection::vec(0_usize..200, 0..6),
        words in proptest::collection::vec((0_usize..200, 0_usize..20), 0..6),
    ) {
        let gates = Gates::defaults(Component::Scheduler);
        let read = |text: &str| koord_scheduler::config::parse(Path::new("a.yaml"), text, &Overrides::default(), &gates);
        match read(&torn(&lines, &words)) {
            Err(error) => assert!(!error.message.is_empty()),
            Ok(config) => {
                let written = config.to_yaml();
                let again = read(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
                assert_eq!(again.profiles, config.profiles);
                assert_eq!(again.to_yaml(), written);
            }
        }
    }
}
