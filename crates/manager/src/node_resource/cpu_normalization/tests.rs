//! The cases of manager 8.

use koord_api::keys::node::label::CPU_NORMALIZATION_ENABLED;
use koord_api::slo::{SloConfig, key};

use serde_json::json;

use super::super::TopologyView;
use super::super::fixture::{BATCH_CPU, World, allocatable};
use super::super::testing::{Turn, turn};
use super::*;

const HT_TURBO: &str = r#"{"cpuModel":"X","hyperThreadEnabled":true,"turboEnabled":true}"#;

/// One round: what is configured, labelled (absent when empty) and known of the CPUs, and the old annotation.
struct Case<'a> {
    config: &'a str,
    label: Option<&'a str>,
    cpu: Option<&'a str>,
    old: Option<&'a str>,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Case { config: "{}", label: None, cpu: Some(HT_TURBO), old: None }
    }
}

/// The annotation after the round, whether it is worth a write of its own, and the error if there was one.
fn check(case: &Case<'_>) -> (Option<String>, bool, Option<String>) {
    let topology =
        |cpu: &str| TopologyView { cpu_basic_info: Some(cpu.to_owned()), ..TopologyView::default() };
    let mut given = Turn {
        documents: vec![(key::CPU_NORMALIZATION, case.config.to_owned())],
        topology: case.cpu.map(topology),
        ..Turn::default()
    };
    let mut set = |key: &str, text: Option<&str>, is_label: bool| {
        let texts = if is_label { &mut given.node.labels } else { &mut given.node.annotations };
        texts.extend(text.map(|text| (key.to_owned(), text.to_owned())));
    };
    set("pool", Some("a"), true);
    set(CPU_NORMALIZATION_ENABLED, case.label, true);
    set(KEY, case.old, false);
    let plan = turn(&[&CpuNormalization], &given);
    assert!(!plan.needs_status);
    let error = plan.runs.into_iter().find_map(|run| run.error);
    (plan.prepared.annotations.get(KEY).cloned(), plan.needs_meta, error)
}

fn model(ratios: &str) -> String {
    format!(r#"{{"enable":true,"ratioModel":{{"X":{ratios}}}}}"#)
}

#[test]
fn ratios_by_model_and_switches() {
    let c2 = model(r#"{"hyperThreadEnabledRatio":1.0,"hyperThreadTurboEnabledRatio":1.25}"#);
    let all = model(
        r#"{"baseRatio":1.1,"hyperThreadEnabledRatio":1.2,"turboEnabledRatio":1.3,"hyperThreadTurboEnabledRatio":1.4}"#,
    );
    let c6 = r#"{"enable":true,"defaultRatio":1.1,"ratioModel":{"Y":{"baseRatio":2}}}"#;
    let turbo = |ratio: &str| model(&format!(r#"{{"hyperThreadTurboEnabledRatio":{ratio}}}"#));
    for (name, config, cpu, want) in [
        ("manager#8.C1", "{}", None, "1.00"),
        ("manager#8.C2", &*c2, Some(HT_TURBO), "1.25"),
        ("manager#8.C6", c6, Some(HT_TURBO), "1.10"),
        ("manager#8.C7", &turbo("1.125"), Some(HT_TURBO), "1.12"),
        ("manager#8.C8", &turbo("1.005"), Some(HT_TURBO), "1.00"),
        ("manager#8.C9", &turbo("5.0"), Some(HT_TURBO), "5.00"),
        ("neither", &*all, Some(r#"{"cpuModel":"X"}"#), "1.10"),
        ("hyper-threads", &*all, Some(r#"{"cpuModel":"X","hyperThreadEnabled":true}"#), "1.20"),
        ("turbo", &*all, Some(r#"{"cpuModel":"X","turboEnabled":true}"#), "1.30"),
        ("both", &*all, Some(HT_TURBO), "1.40"),
        (
            "no ratio for both",
            r#"{"enable":true,"defaultRatio":1.5,"ratioModel":{"X":{}}}"#,
            Some(HT_TURBO),
            "1.50",
        ),
    ] {
        let got = check(&Case { config, cpu, ..Case::default() });
        assert_eq!(got, (Some(want.to_owned()), true, None), "{name}");
    }
}

#[test]
fn the_label_has_the_last_word() {
    let on = model(r#"{"hyperThreadTurboEnabledRatio":1.25}"#);
    let off = on.replace("true", "false");
    for (name, config, label, want) in [
        ("manager#8.C3", &on, "false", "1.00"),
        ("switched on by the label alone", &off, "1", "1.25"),
        ("switched off", &off, "F", "1.00"),
    ] {
        let got = check(&Case { config, label: Some(label), ..Case::default() });
        assert_eq!(got, (Some(want.to_owned()), true, None), "{name}");
    }
    for label in ["yes", "on", "tRue", ""] {
        let got = check(&Case { config: &on, label: Some(label), old: Some("1.25"), ..Case::default() });
        assert_eq!((got.0.as_deref(), got.1), (Some("1.25"), false), "manager#8.C10 {label:?}");
        assert!(got.2.is_some(), "manager#8.C10 {label:?}");
    }
}

#[test]
fn an_error_leaves_the_annotation() {
    let turbo = |ratio: &str| model(&format!(r#"{{"hyperThreadTurboEnabledRatio":{ratio}}}"#));
    let c12 = concat!(
        r#"{"enable":true,"ratioModel":{"X":{"hyperThreadTurboEnabledRatio":1.25}},"#,
        r#""nodeConfigs":[{"nodeSelector":{"matchLabels":{"pool":"a"}},"ratioModel":{"X":{"baseRatio":1.5}}}]}"#,
    );
    let c11 = r#"{"enable":true,"defaultRatio":1.1}"#;
    for (name, config, cpu, want) in [
        (
            "manager#8.C4",
            turbo("0.9"),
            Some(HT_TURBO),
            "ratio 0.9 of cpu model \"X\" is out of range, must be from 1 to 5",
        ),
        (
            "manager#8.C9",
            turbo("5.01"),
            Some(HT_TURBO),
            "ratio 5.01 of cpu model \"X\" is out of range, must be from 1 to 5",
        ),
        (
            "manager#8.C11",
            c11.to_owned(),
            None,
            "there is no NodeResourceTopology that describes the node's CPUs",
        ),
        (
            "manager#8.C12",
            c12.to_owned(),
            Some(HT_TURBO),
            "cpu model \"X\" has no ratio with hyper-threading true, turbo true",
        ),
        (
            "manager#8.C15",
            "{bad".to_owned(),
            Some(HT_TURBO),
            "the config of CPU normalization is not available",
        ),
        ("bad info", c11.to_owned(), Some("{"), "annotation node.koordinator.sh/cpu-basic-info: "),
    ] {
        for old in [None, Some("2.00")] {
            let got = check(&Case { config: &config, cpu, old, ..Case::default() });
            assert_eq!((got.0.as_deref(), got.1), (old, false), "{name}");
            let error = got.2.unwrap_or_default();
            assert!(error.starts_with(want), "{name}: {error}");
        }
    }
}

#[test]
fn an_unreadable_document_is_told() {
    let mut config = SloConfig::default();
    let loaded = config.load(Some(&[(key::CPU_NORMALIZATION.to_owned(), "{bad".to_owned())].into()));
    let [event] = &loaded.events[..] else { panic!("{loaded:?}") };
    assert_eq!(event.reason, "CPUNormalizationCfgUnmarshalFailed", "manager#8.C15");
    assert!(
        event.message.starts_with("failed to unmarshal CPUNormalizationCfg, err: "),
        "manager#8.C15 {event:?}"
    );
}

#[test]
fn close_ratios_are_not_worth_a_write() {
    for (name, old, ratio, text, needs_meta) in [
        ("manager#8.C5", "1.25", "1.258", "1.26", false),
        ("manager#8.C13", "1.25", "1.27", "1.27", true),
        ("manager#8.C13", "1.00", "1.01", "1.01", false),
        ("manager#8.C13", "1.29", "1.30", "1.30", false),
        ("manager#8.C14", "abc", "1", "1.00", true),
        ("manager#8.C14", "0", "1", "1.00", true),
    ] {
        let config = model(&format!(r#"{{"hyperThreadTurboEnabledRatio":{ratio}}}"#));
        let got = check(&Case { config: &config, old: Some(old), ..Case::default() });
        assert_eq!(got, (Some(text.to_owned()), needs_meta, None), "{name} {old}");
    }
}

#[test]
fn batch_cpu_is_multiplied_in_the_same_round() {
    for (name, ratio, want) in [
        ("manager#8.C2", "1.25", 15_500),
        ("manager#8.C5", "1.258", 15_624),
        ("manager#8.C7", "1.125", 13_888),
        ("manager#8.C8", "1.005", 12_400),
    ] {
        let mut world = World::n1();
        let config = model(&format!(r#"{{"hyperThreadTurboEnabledRatio":{ratio}}}"#));
        world.config.insert(key::CPU_NORMALIZATION.to_owned(), config);
        world.annotate(KEY, "1.25");
        world.topology = Some(json!({
            "metadata": {"name": "n1", "annotations": {(CpuBasicInfo::KEY): HT_TURBO}},
            "topologyPolicies": [],
            "zones": [],
        }));
        let plan = world.plan();
        assert_eq!(allocatable(&plan, BATCH_CPU), Some(want), "{name}");
        assert!(plan.needs_status, "{name}: the first round writes, and with it the annotation");
    }
}

#[test]
fn a_node_that_is_not_colocated_keeps_its_annotation() {
    let mut given = Turn { is_colocated: false, ..Turn::default() };
    given.node.annotations.insert(KEY.to_owned(), "1.25".to_owned());
    let plan = turn(&[&CpuNormalization], &given);
    assert_eq!(plan.prepared, given.node);
    assert!(!plan.needs_meta);
}
