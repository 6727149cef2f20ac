use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::keys::node::annotation as node_key;
use crate::keys::node_topology::annotation as topology_key;
use crate::keys::pod::annotation as pod_key;
use crate::keys::{device, gang, quota as quota_keys, reservation as reservation_keys};

fn codec(key: &str) -> &'static Codec {
    CODECS.iter().find(|codec| codec.key == key).unwrap_or_else(|| panic!("no codec for {key}"))
}

/// The three lists of spec api 1.4, for keys that have a type here.
#[test]
fn a_key_without_text() {
    let absent = [
        node_key::RESERVATION,
        reservation_keys::annotation::RESTRICTED_OPTIONS,
        reservation_keys::annotation::RESIZE_ALLOCATABLE,
        pod_key::EXACT_MATCH_RESERVATION,
        pod_key::RESERVATION_OWNERS,
        pod_key::RESERVATION_CURRENT_OWNER,
        device::annotation::GPU_PARTITIONS,
        gang::annotation::NETWORK_TOPOLOGY_SPEC,
        pod_key::NETWORK_QOS,
        pod_key::REPLACE_RESOURCES,
        pod_key::SCHEDULING_HINT,
        pod_key::OOM_SCORE_ADJ,
        pod_key::OOM_SCORE_ADJ_SPEC,
        pod_key::LOAD_ESTIMATED_SCALING_FACTORS,
        pod_key::LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED,
        pod_key::LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED,
    ];
    let broken = [
        pod_key::RESOURCE_SPEC,
        pod_key::RESOURCE_STATUS,
        pod_key::NUMA_TOPOLOGY_SPEC,
        topology_key::CPU_TOPOLOGY,
        topology_key::CPU_SHARED_POOLS,
        topology_key::BE_CPU_SHARED_POOLS,
        topology_key::POD_CPU_ALLOCS,
        topology_key::CPU_MANAGER_POLICY,
        topology_key::CPU_BASIC_INFO,
        node_key::SYSTEM_QOS_RESOURCE,
        pod_key::DEVICE_ALLOCATED,
        pod_key::DEVICE_ALLOCATE_HINT,
        pod_key::DEVICE_JOINT_ALLOCATE,
        pod_key::GPU_PARTITION_SPEC,
        pod_key::RESERVATION_ALLOCATED,
        pod_key::EXTENDED_RESOURCE_SPEC,
        node_key::USAGE_THRESHOLDS,
        pod_key::SOFT_EVICTION,
        pod_key::CPU_BURST,
        pod_key::CPU_QOS,
        pod_key::MEMORY_QOS,
        pod_key::RESCTRL,
        node_key::COLOCATION_STRATEGY,
        node_key::NETWORK_BANDWIDTH,
        node_key::CPU_NORMALIZATION_RATIO,
        node_key::RESOURCE_AMPLIFICATION_RATIO,
        node_key::RAW_ALLOCATABLE,
        node_key::ORIGIN_EXTENDED_ALLOCATABLE,
        node_key::THIRD_PARTY_ALLOCATIONS,
        pod_key::EVICTION_COST,
        pod_key::EVICTION_PRIORITY,
        pod_key::EVICTION_POLICY,
    ];
    let value = [pod_key::RESERVATION_AFFINITY, pod_key::BLKIO_QOS];
    let mut seen = BTreeSet::new();
    let quota =
        CODECS.iter().map(|codec| codec.key).filter(|key| key.starts_with(crate::keys::domain::QUOTA));
    for key in absent.into_iter().chain(quota) {
        assert_eq!((codec(key).canonical)(""), Ok(None), "{key}");
        seen.insert(key);
    }
    for key in broken {
        assert!((codec(key).canonical)("").is_err(), "{key}");
        seen.insert(key);
    }
    for key in value {
        assert_eq!((codec(key).canonical)(""), Ok(Some("{}".to_string())), "{key}");
        seen.insert(key);
    }
    let all: BTreeSet<&str> = CODECS.iter().map(|codec| codec.key).collect();
    assert_eq!(seen, all, "each codec stands in one of the lists");
    assert_eq!(all.len(), CODECS.len(), "no key has two codecs");
    assert!(all.contains(quota_keys::annotation::SHARED_WEIGHT));
}

#[test]
fn a_text_that_is_no_json_is_an_error_with_key_and_place() {
    for codec in CODECS
        .iter()
        .filter(|codec| (codec.canonical)("{}").is_ok() && codec.key != pod_key::REPLACE_RESOURCES)
    {
        let error = (codec.canonical)("{\"a\":x}").unwrap_err();
        assert_eq!(error.key, codec.key);
        assert_eq!(error.offset(), Some(5), "{error}");
        assert!(
            error.to_string().starts_with(&format!("annotation {}: invalid character 'x'", codec.key)),
            "{error}"
        );
        assert_eq!(error.then, codec.on_error);
    }
}

/// Words that lead deep into the readers.
fn vocabulary() -> impl Strategy<Value = String> {
    let words = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "null",
        "true",
        "-1",
        "1e3",
        "0.5",
        "\"\"",
        "\"1Gi\"",
        "\"5m\"",
        "\"0-3\"",
        "\"resources\"",
        "\"cpu\"",
        "\"gpu\"",
        "\"minor\"",
        "\"2\"",
        "\"policy\"",
        "\"auto\"",
        "\"wmarkRatio\"",
        "\"timestamp\"",
        "\"2023-04-05T06:07:08Z\"",
        "\"detail\"",
        "\"blocks\"",
        "\"llc\"",
        "\"tolerations\"",
        "\"usageThresholds\"",
        "\"allocations\"",
        "\"x\"",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    /// No text makes a reader panic, and what was read and written reads and writes the same.
    #[test]
    fn reading_and_writing_is_stable(text in prop_oneof![vocabulary(), ".*", r#"\{"[a-zA-Z]{1,12}":.{0,20}\}"#]) {
        for codec in CODECS {
            // An empty text may count as absent, as it does for a list of nothing to replace.
            if let Ok(Some(once)) = (codec.canonical)(&text)
                && !once.is_empty()
            {
                let twice = (codec.canonical)(&once);
                prop_assert_eq!(twice, Ok(Some(once)), "{}", codec.key);
            }
        }
    }
}
