//! CustomResourceDefinitions from the types beside this file.
//!
//! Pure: JSON values out; `cargo xtask gen` writes them to deploy/crds. What a kind is called and
//! how `kubectl get` prints it stands here, what it holds stands with its type. Spec: crds 0.

mod structural;

use k8s_openapi::{ListableResource, Resource};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::cluster_colocation_profile::ClusterColocationProfile;
use super::cluster_network_topology::ClusterNetworkTopology;
use super::device::Device;
use super::elastic_quota::ElasticQuota;
use super::elastic_quota_profile::ElasticQuotaProfile;
use super::node_metric::NodeMetric;
use super::node_resource_topology::{v1alpha1, v1alpha2};
use super::node_slo::NodeSLO;
use super::pod_group::PodGroup;
use super::pod_migration_job::PodMigrationJob;
use super::recommendation::Recommendation;
use super::reservation::Reservation;
use super::schedule_explanation::ScheduleExplanation;

/// One manifest: the name of its file, and what stands in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// `<group>_<plural>.yaml`
    pub file_name: String,
    /// A CustomResourceDefinition.
    pub content: Value,
}

/// All manifests, by file name.
pub fn manifests() -> Vec<Manifest> {
    let mut manifests: Vec<Manifest> = kinds().iter().map(Kind::manifest).collect();
    manifests.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    manifests
}

/// The API server refuses groups of Kubernetes itself without a review.
const SCHEDULER_PLUGINS_REVIEW: &str = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52";
const NODE_TOPOLOGY_REVIEW: &str = "https://github.com/kubernetes/enhancements/pull/1870";

fn kinds() -> Vec<Kind> {
    vec![
        Kind::of::<Reservation>(Scope::Cluster).status().columns(&[
            ("Phase", "string", ".status.phase", "The phase of reservation"),
            AGE,
            ("Node", "string", ".status.nodeName", ""),
            ("TTL", "string", ".spec.ttl", ""),
            ("Expires", "string", ".spec.expires", ""),
        ]),
        Kind::of::<PodMigrationJob>(Scope::Cluster).short("pmj").status().columns(&[
            ("Phase", "string", ".status.phase", "The phase of PodMigrationJob"),
            ("Status", "string", ".status.status", "The status of PodMigrationJob"),
            AGE,
            ("Node", "string", ".status.nodeName", ""),
            ("Reservation", "string", ".spec.reservationOptions.reservationRef.name", ""),
            ("PodNamespace", "string", ".spec.podRef.namespace", ""),
            ("Pod", "string", ".spec.podRef.name", ""),
            ("NewPod", "string", ".status.podRef.name", ""),
            ("TTL", "string", ".spec.ttl", ""),
        ]),
        Kind::of::<Device>(Scope::Cluster),
        Kind::of::<ClusterNetworkTopology>(Scope::Cluster).status(),
        Kind::of::<ScheduleExplanation>(Scope::Namespaced).short("sched-exp").status(),
        Kind::of::<NodeMetric>(Scope::Cluster).status(),
        Kind::of::<NodeSLO>(Scope::Cluster).status(),
        Kind::of::<ClusterColocationProfile>(Scope::Cluster).status(),
        Kind::of::<ElasticQuotaProfile>(Scope::Namespaced).short("eqp"),
        Kind::of::<Recommendation>(Scope::Namespaced).short("recom").status().columns(&[
            AGE,
            ("Type", "string", ".spec.target.type", ""),
            ("Kind", "string", ".spec.target.workload.kind", ""),
            ("Name", "string", ".spec.target.workload.name", ""),
            ("LastUpdateTime", "date", ".status.updateTime", ""),
        ]),
        Kind::of::<ElasticQuota>(Scope::Namespaced).reviewed(SCHEDULER_PLUGINS_REVIEW),
        Kind::of::<PodGroup>(Scope::Namespaced).reviewed(SCHEDULER_PLUGINS_REVIEW),
        Kind::of::<v1alpha1::NodeResourceTopology>(Scope::Cluster)
            .short("node-res-topo")
            .reviewed(NODE_TOPOLOGY_REVIEW)
            .stored_as::<v1alpha2::NodeResourceTopology>(),
    ]
}

/// Name, type, JSONPath and description of a column of `kubectl get`.
type Column = (&'static str, &'static str, &'static str, &'static str);

const AGE: Column = ("Age", "date", ".metadata.creationTimestamp", "");

#[derive(Clone, Copy)]
enum Scope {
    Cluster,
    Namespaced,
}

struct Kind {
    group: &'static str,
    kind: &'static str,
    list_kind: &'static str,
    plural: &'static str,
    scope: Scope,
    /// Oldest first; the last one is stored.
    versions: Vec<(&'static str, Value)>,
    short_name: Option<&'static str>,
    status: bool,
    columns: &'static [Column],
    review: Option<&'static str>,
}

impl Kind {
    fn of<K: ListableResource + JsonSchema>(scope: Scope) -> Kind {
        Kind {
            group: K::GROUP,
            kind: K::KIND,
            list_kind: K::LIST_KIND,
            plural: K::URL_PATH_SEGMENT,
            scope,
            versions: vec![(K::VERSION, structural::schema::<K>())],
            short_name: None,
            status: false,
            columns: &[],
            review: None,
        }
    }

    fn stored_as<K: Resource + JsonSchema>(mut self) -> Kind {
        self.versions.push((K::VERSION, structural::schema::<K>()));
        self
    }

    fn short(self, name: &'static str) -> Kind {
        Kind { short_name: Some(name), ..self }
    }

    fn status(self) -> Kind {
        Kind { status: true, ..self }
    }

    fn columns(self, columns: &'static [Column]) -> Kind {
        Kind { columns, ..self }
    }

    fn reviewed(self, review: &'static str) -> Kind {
        Kind { review: Some(review), ..self }
    }

    fn manifest(&self) -> Manifest {
        let mut metadata = json!({ "name": format!("{}.{}", self.plural, self.group) });
        if let Some(review) = self.review {
            metadata["annotations"] = json!({ "api-approved.kubernetes.io": review });
        }
        let mut names = json!({
            "kind": self.kind,
            "listKind": self.list_kind,
            "plural": self.plural,
            "singular": self.kind.to_lowercase(),
        });
        if let Some(short_name) = self.short_name {
            names["shortNames"] = json!([short_name]);
        }
        let content = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": self.group,
                "names": names,
                "scope": match self.scope { Scope::Cluster => "Cluster", Scope::Namespaced => "Namespaced" },
                "versions": self.versions(),
            },
        });
        Manifest { file_name: format!("{}_{}.yaml", self.group, self.plural), content }
    }

    fn versions(&self) -> Vec<Value> {
        let stored = self.versions.last().map(|(name, _)| *name);
        let version = |(name, schema): &(&str, Value)| {
            let mut version = json!({
                "name": name,
                "served": true,
                "storage": stored == Some(*name),
                "schema": { "openAPIV3Schema": schema },
            });
            if self.status {
                version["subresources"] = json!({ "status": {} });
            }
            if !self.columns.is_empty() {
                version["additionalPrinterColumns"] = self.columns.iter().map(column).collect();
            }
            version
        };
        self.versions.iter().map(version).collect()
    }
}

fn column((name, of_type, path, description): &Column) -> Value {
    let mut column = json!({ "name": name, "type": of_type, "jsonPath": path });
    if !description.is_empty() {
        column["description"] = json!(description);
    }
    column
}

#[cfg(test)]
mod tests;
