//! Every kind by its name.

use std::fmt::Debug;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource};
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
use koord_api::crd::reservation::Reservation;
use koord_api::crd::schedule_explanation::ScheduleExplanation;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Where namespaced objects of these tests live.
const NAMESPACE: &str = "default";

/// Where objects of a kind live, how their documents begin, and the type behind them.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    api_version: &'static str,
    kind: &'static str,
    pub(crate) plural: &'static str,
    namespaced: bool,
    /// Reads an object into its type and writes it again.
    pub(crate) through_type: fn(&Value) -> Result<Value>,
}

/// A kind by name; the topology, which has two versions, by name and version.
pub(crate) fn kind(name: &str) -> Result<Kind> {
    let kinds = [
        of::<Reservation>(),
        of::<PodMigrationJob>(),
        of::<Device>(),
        of::<ClusterNetworkTopology>(),
        of::<ScheduleExplanation>(),
        of::<NodeMetric>(),
        of::<NodeSLO>(),
        of::<ClusterColocationProfile>(),
        of::<ElasticQuotaProfile>(),
        of::<Recommendation>(),
        of::<ElasticQuota>(),
        of::<PodGroup>(),
        of::<v1alpha1::NodeResourceTopology>(),
        of::<v1alpha2::NodeResourceTopology>(),
    ];
    let (name, version) = name.split_once('.').unwrap_or((name, "v1alpha1"));
    let found = kinds.into_iter().find(|kind| kind.kind == name && kind.api_version.ends_with(version));
    found.with_context(|| format!("no kind of ours is called {name} {version}"))
}

fn of<K>() -> Kind
where
    K: Resource<Scope: Scope> + DeserializeOwned + Serialize + PartialEq + Debug,
{
    Kind {
        api_version: K::API_VERSION,
        kind: K::KIND,
        plural: K::URL_PATH_SEGMENT,
        namespaced: K::Scope::NAMESPACED,
        through_type: |object| {
            let typed: K = decode_object(object)?;
            let written = serde_json::to_value(&typed)?;
            let again: K = decode_object(&written)?;
            ensure!(again == typed, "{typed:?} is read back as {again:?}");
            Ok(written)
        },
    }
}

trait Scope {
    const NAMESPACED: bool;
}

impl Scope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

impl Scope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Kind {
    pub(crate) fn path(&self) -> String {
        let namespace = if self.namespaced { format!("namespaces/{NAMESPACE}/") } else { String::new() };
        format!("/apis/{}/{namespace}{}", self.api_version, self.plural)
    }

    /// A whole object from its fields beside metadata.
    pub(crate) fn object(&self, name: &str, fields: Map<String, Value>) -> Value {
        let mut object = fields;
        object.insert("apiVersion".to_owned(), json!(self.api_version));
        object.insert("kind".to_owned(), json!(self.kind));
        object.insert("metadata".to_owned(), json!({ "name": name }));
        Value::Object(object)
    }
}
