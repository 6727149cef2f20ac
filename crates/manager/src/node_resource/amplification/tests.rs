//! The cases of manager 9.1.

use koord_api::slo::{SloConfig, key};

use super::super::cpu_normalization::CpuNormalization;
use super::super::testing::{Turn, turn};
use super::super::{Plan, TopologyView};
use super::*;

const NORMALIZATION: &str = CpuNormalizationRatio::KEY;

fn given(config: &str, normalization: Option<&str>, old: Option<&str>) -> Turn {
    let mut given =
        Turn { documents: vec![(key::RESOURCE_AMPLIFICATION, config.to_owned())], ..Turn::default() };
    for (key, text) in [(NORMALIZATION, normalization), (KEY, old)] {
        given.node.annotations.extend(text.map(|text| (key.to_owned(), text.to_owned())));
    }
    given
}

fn annotated(plan: &Plan) -> Option<&str> {
    plan.prepared.annotations.get(KEY).map(String::as_str)
}

#[test]
fn ratios_of_a_node() {
    let on = |ratios: &str| format!(r#"{{"enable":true,"resourceAmplificationRatio":{ratios}}}"#);
    let off = || r#"{"resourceAmplificationRatio":{"cpu":9}}"#.to_owned();
    for (name, config, normalization, want) in [
        (
            "manager#9.1.A1",
            on(r#"{"cpu":1.5,"memory":1.2}"#),
            Some("1.25"),
            Some(r#"{"cpu":1.88,"memory":1.20}"#),
        ),
        ("manager#9.1.A2", off(), Some("1.25"), Some(r#"{"cpu":1.25}"#)),
        ("manager#9.1.A3", off(), Some("1.00"), None),
        ("manager#9.1.A4", on(r#"{"memory":0.8}"#), None, None),
        ("manager#9.1.A5", on(r#"{"cpu":0.9}"#), Some("1.25"), Some(r#"{"cpu":1.12}"#)),
        ("manager#9.1.A6", on(r#"{"cpu":1,"memory":1}"#), None, Some(r#"{"cpu":1.00,"memory":1.00}"#)),
        ("manager#9.1.A7", on(r#"{"cpu":0.5}"#), Some("1.25"), None),
        (
            "manager#9.1.A9",
            on(r#"{"cpu":1.005,"memory":1.125}"#),
            None,
            Some(r#"{"cpu":1.00,"memory":1.12}"#),
        ),
        ("no number that can be written", on(r#"{"cpu":1e308}"#), Some("10"), None),
        ("a normalization of 0", on(r#"{"cpu":1.5}"#), Some("0"), None),
    ] {
        for old in [None, Some(r#"{"cpu":1.33}"#)] {
            let plan = turn(&[&ResourceAmplification], &given(&config, normalization, old));
            assert_eq!(annotated(&plan), want, "{name}");
            assert_eq!(plan.needs_meta, old != want, "{name}");
            assert!(!plan.needs_status, "{name}");
        }
        if let Some(want) = want {
            let same = turn(&[&ResourceAmplification], &given(&config, normalization, Some(want)));
            assert!(!same.needs_meta, "{name}: nothing changed");
        }
    }
}

#[test]
fn errors_are_told() {
    let config = r#"{"enable":true,"resourceAmplificationRatio":{"memory":0.8}}"#;
    let plan = turn(&[&ResourceAmplification], &given(config, None, None));
    let want = "amplification ratio is invalid: ratio with resource type memory and value 0.8 is invalid";
    assert_eq!(plan.runs[0].error.as_deref(), Some(want), "manager#9.1.A4");

    let plan = turn(&[&ResourceAmplification], &given("{bad", None, Some(r#"{"cpu":1.50}"#)));
    assert_eq!(annotated(&plan), None, "manager#9.1.A10");
    assert!(plan.needs_meta && plan.runs[0].error.is_some(), "manager#9.1.A10");
    let mut config = SloConfig::default();
    let loaded = config.load(Some(&[(key::RESOURCE_AMPLIFICATION.to_owned(), "{bad".to_owned())].into()));
    let [event] = &loaded.events[..] else { panic!("{loaded:?}") };
    assert_eq!(event.reason, "ResourceAmplificationCfgUnmarshalFailed", "manager#9.1.A10");
    assert!(event.message.starts_with("failed to unmarshal amplificationCfg, err: "), "manager#9.1.A10");
}

#[test]
fn a_fresh_normalization_counts_in_the_next_round() {
    let config = r#"{"enable":true,"resourceAmplificationRatio":{"cpu":1.5}}"#;
    let normalization = r#"{"enable":true,"ratioModel":{"X":{"baseRatio":1.25}}}"#;
    let cpu =
        TopologyView { cpu_basic_info: Some(r#"{"cpuModel":"X"}"#.to_owned()), ..TopologyView::default() };
    for (name, normalization, old, first, second) in [
        ("manager#9.1.A8", normalization, None, Some(r#"{"cpu":1.50}"#), r#"{"cpu":1.88}"#),
        ("manager#9.1.A11", "{}", Some("abc"), None, r#"{"cpu":1.50}"#),
    ] {
        let mut round = given(config, old, None);
        round.documents.push((key::CPU_NORMALIZATION, normalization.to_owned()));
        round.topology = Some(cpu.clone());
        let plan = turn(&[&CpuNormalization, &ResourceAmplification], &round);
        assert_eq!(annotated(&plan), first, "{name}");
        round.node = plan.prepared;
        let plan = turn(&[&CpuNormalization, &ResourceAmplification], &round);
        assert_eq!(annotated(&plan), Some(second), "{name}");
        assert!(plan.needs_meta && !plan.needs_status, "{name}: only metadata is patched");
    }
}

#[test]
fn a_node_that_is_not_colocated_is_not_amplified() {
    let config = r#"{"enable":true,"resourceAmplificationRatio":{"cpu":1.5}}"#;
    let round = Turn { is_colocated: false, ..given(config, None, Some(r#"{"cpu":1.50}"#)) };
    let plan = turn(&[&ResourceAmplification], &round);
    assert_eq!((annotated(&plan), plan.needs_meta), (None, true));
}
