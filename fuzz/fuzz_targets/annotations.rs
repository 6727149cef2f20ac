//! Annotations: any text to every reader; what was read and written is read and written the same.
#![no_main]

use k8s_openapi::api::core::v1::Pod;
use koord_api::annotation::gang::{self, Gang, GangDefaults};
use koord_api::annotation::{Annotations, CODECS};
use koord_api::transform::PodTransform;
use koord_api::{keys, priority, rewrite, validity};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for codec in CODECS {
        let Ok(Some(once)) = (codec.canonical)(text) else { continue };
        // An empty text may count as absent.
        if !once.is_empty() {
            assert_eq!((codec.canonical)(&once), Ok(Some(once)), "{}", codec.key);
        }
    }
    let mut pod = pod(text);
    let _ = Gang::of_pod(&pod, GangDefaults::default());
    let _ = gang::network_topology_index(&pod);
    let _ = priority::sub_priority(&pod);
    let _ = validity::check_create(&pod);
    if let Ok(mut tree) = serde_json::to_value(&pod) {
        let _ = rewrite::resources::record_extended(&mut tree, rewrite::resources::Recorded::Batch);
    }
    let on = PodTransform { replace_resources: true, priority: true, preemption_policy: true };
    on.apply(&mut pod, |_| ());
});

/// A pod that carries the text under every key.
fn pod(text: &str) -> Pod {
    let mut pod = Pod::default();
    let gang = [
        keys::gang::annotation::NAME,
        keys::gang::annotation::MIN_AVAILABLE,
        keys::gang::annotation::TOTAL_NUMBER,
        keys::gang::annotation::WAITING_TIME,
        keys::gang::annotation::GROUPS,
        keys::gang::annotation::NETWORK_TOPOLOGY_INDEX,
    ];
    let keys = CODECS.iter().map(|codec| codec.key).chain(gang);
    pod.metadata.annotations =
        Some(keys.map(|key| (key.to_string(), text.to_string())).collect::<Annotations>());
    pod.metadata.labels = Some([(keys::pod::label::PRIORITY.to_string(), text.to_string())].into());
    pod
}
