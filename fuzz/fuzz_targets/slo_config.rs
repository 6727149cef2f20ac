//! slo-controller-config: no document breaks loading, rendering, explaining or admission.
//!
//! The first character picks the key, the rest is its document; a node lies under both.
#![no_main]

use std::collections::BTreeMap;

use koord_api::gojson;
use koord_api::slo::admission::{NodeLabels, Options, admit, admit_node};
use koord_api::slo::render::same_node_slo;
use koord_api::slo::{Effective, NodeFacts, SloConfig, key};
use libfuzzer_sys::fuzz_target;

const EXTENSION: &str = "vendor";
const KEYS: [&str; 9] = [
    key::COLOCATION,
    key::RESOURCE_THRESHOLD,
    key::RESOURCE_QOS,
    key::CPU_BURST,
    key::SYSTEM,
    key::HOST_APPLICATION,
    key::CPU_NORMALIZATION,
    key::RESOURCE_AMPLIFICATION,
    EXTENSION,
];

fuzz_target!(|input: &str| {
    let Some(first) = input.chars().next() else { return };
    let Some(index) = first.to_digit(10).and_then(|digit| usize::try_from(digit).ok()) else { return };
    let Some(key) = KEYS.get(index) else { return };
    let text = &input[1..];
    let data = BTreeMap::from([((*key).to_owned(), text.to_owned())]);
    let labels = BTreeMap::from([("pool".to_owned(), "a".to_owned()), ("k".to_owned(), "1".to_owned())]);
    let annotations = BTreeMap::from([
        ("node.koordinator.sh/colocation-strategy".to_owned(), text.to_owned()),
        ("node.koordinator.sh/network-bandwidth".to_owned(), text.to_owned()),
    ]);

    let mut config = SloConfig::with_extensions([EXTENSION.to_owned()]);
    let loaded = config.load(Some(&data));
    assert!(config.load(Some(&data)).changed.is_empty(), "the same data changes nothing");
    let node = NodeFacts { labels: &labels, annotations: &annotations };
    let spec = config.node_slo_spec(node, None).value;
    let written = gojson::to_string(&spec).expect("plain JSON types");
    assert!(same_node_slo(&gojson::from_str(&written).expect("own text reads"), &spec));
    Effective::new(&spec, &[EXTENSION]);
    let _ = config.colocation_strategy(node);
    let _ = config.metric_policy(node, None);
    let _ = config.explain(node);

    let node = NodeLabels { name: "n", labels: &labels };
    let admitted = admit(None, &data, &[node], &Options::default()).is_ok();
    let _ = admit_node(&data, node);
    // What the webhook lets through, the controllers can read. Two keys may be empty for it.
    let unread = loaded.events.iter().any(|event| event.reason.ends_with("UnmarshalFailed"));
    assert!(!admitted || !unread || index >= 5 || text.is_empty(), "{:?}", loaded.events);
});
