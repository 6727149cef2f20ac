//! Every kind by a short name.

use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::crd::cluster_network_topology::ClusterNetworkTopology;
use koord_api::crd::device::Device;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::ElasticQuotaProfile;
use koord_api::crd::node_metric::NodeMetric;
use koord_api::crd::node_resource_topology::{v1alpha1, v1alpha2};
use koord_api::crd::node_slo::NodeSLO;
use koord_api::crd::pod_group::PodGroup;
use koord_api::crd::pod_migration_job::PodMigrationJob;
use koord_api::crd::recommendation::Recommendation;
use koord_api::crd::reservation::Reservation;
use koord_api::crd::schedule_explanation::ScheduleExplanation;

use crate::cluster::Kind;

macro_rules! kinds {
    ($( $name:ident: $scope:ident $kind:ty; )*) => {
        $( pub(crate) fn $name() -> Kind { Kind::$scope::<$kind>() } )*
    };
}

kinds! {
    reservations: cluster Reservation;
    jobs: cluster PodMigrationJob;
    devices: cluster Device;
    network_topologies: cluster ClusterNetworkTopology;
    explanations: namespaced ScheduleExplanation;
    node_metrics: cluster NodeMetric;
    node_slos: cluster NodeSLO;
    profiles: cluster ClusterColocationProfile;
    quota_profiles: namespaced ElasticQuotaProfile;
    recommendations: namespaced Recommendation;
    quotas: namespaced ElasticQuota;
    pod_groups: namespaced PodGroup;
    old_topologies: cluster v1alpha1::NodeResourceTopology;
    topologies: cluster v1alpha2::NodeResourceTopology;
}
