//! Objects of our own: any JSON to every kind; what was read and written is read the same, and an
//! object that we did not change is written as it came.
#![no_main]

use k8s_openapi::Resource;
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::crd::cluster_network_topology::ClusterNetworkTopology;
use koord_api::crd::decode_object;
use koord_api::crd::device::Device;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::ElasticQuotaProfile;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::node_resource_topology::{v1alpha1, v1alpha2};
use koord_api::crd::node_slo::NodeSLO;
use koord_api::crd::pod_group::PodGroup;
use koord_api::crd::pod_migration_job::PodMigrationJob;
use koord_api::crd::recommendation::Recommendation;
use koord_api::crd::reservation::{Reservation, validate};
use koord_api::crd::schedule_explanation::ScheduleExplanation;
use koord_api::preserve::carry_unknown;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return };
    // Any kind may read it.
    if let Some(object) = value.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
    }
    check::<ClusterColocationProfile>(&value);
    check::<ClusterNetworkTopology>(&value);
    check::<Device>(&value);
    check::<ElasticQuota>(&value);
    check::<ElasticQuotaProfile>(&value);
    check::<NodeMetric>(&value);
    check::<v1alpha1::NodeResourceTopology>(&value);
    check::<v1alpha2::NodeResourceTopology>(&value);
    check::<NodeSLO>(&value);
    check::<PodGroup>(&value);
    check::<PodMigrationJob>(&value);
    check::<Recommendation>(&value);
    check::<ScheduleExplanation>(&value);
    if let Some(reservation) = check::<Reservation>(&value) {
        let pod = reservation.reserve_pod();
        if let Ok(valid) = validate(Some(&reservation)) {
            let _ = valid.owners.matches(&pod);
        }
        let _ = (reservation.expires_at(), reservation.is_expired());
    }
});

fn check<K>(value: &Value) -> Option<K>
where
    K: Resource + DeserializeOwned + Serialize,
{
    let object: K = decode_object(value).ok()?;
    let written = serde_json::to_value(&object).expect("an object that was read can be written");
    // Compared as written: fractions of a second are read and not written.
    let again: K = decode_object(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_value(&again).expect("written once, written again"), written);
    assert_eq!(carry_unknown(value, &written, &written), *value);
    Some(object)
}
