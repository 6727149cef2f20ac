//! Short quotas and a small cluster of them for tests: what is not mentioned does not matter.

use jiff::Timestamp;
use koord_api::crd::elastic_quota::{ElasticQuota, ElasticQuotaSpec, ElasticQuotaStatus};
use koord_api::keys::quota::{annotation, label};
use koord_api::quantity::ResourceList;
use serde::Deserialize;

use super::fill::fill;
use super::info::{QuotaInfo, QuotaKey};
use super::topology::Topology;
use super::validate::{BoundPods, Change, Labelled, admit};
use super::{Ledger, QuotaGates};

/// Where quotas live unless they say otherwise.
pub(crate) const NAMESPACE: &str = "qns";

/// Amounts as `cpu=40 memory=1Gi`.
pub(crate) fn amounts(text: &str) -> ResourceList {
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').expect("name=amount"));
    pairs.map(|(name, amount)| (name.to_owned(), amount.parse().expect("a quantity"))).collect()
}

pub(crate) fn quota(name: &str) -> ElasticQuota {
    let mut quota = ElasticQuota { spec: Some(ElasticQuotaSpec::default()), ..ElasticQuota::default() };
    quota.metadata.name = Some(name.to_owned());
    quota.metadata.namespace = Some(NAMESPACE.to_owned());
    quota
}

pub(crate) trait Sketch: Sized {
    fn edit(self, edit: impl FnOnce(&mut ElasticQuota)) -> Self;

    fn label(self, key: &str, value: &str) -> Self {
        let (key, value) = (key.to_owned(), value.to_owned());
        self.edit(|quota| drop(quota.metadata.labels.get_or_insert_default().insert(key, value)))
    }
    fn unlabel(self, key: &str) -> Self {
        self.edit(|quota| drop(quota.metadata.labels.get_or_insert_default().remove(key)))
    }
    fn annotation(self, key: &str, value: &str) -> Self {
        let (key, value) = (key.to_owned(), value.to_owned());
        self.edit(|quota| drop(quota.metadata.annotations.get_or_insert_default().insert(key, value)))
    }
    fn within(self, namespace: &str) -> Self {
        self.edit(|quota| quota.metadata.namespace = Some(namespace.to_owned()))
    }
    fn below(self, parent: &str) -> Self {
        self.label(label::PARENT, parent)
    }
    fn parent(self, is: bool) -> Self {
        self.label(label::IS_PARENT, if is { "true" } else { "false" })
    }
    fn tree(self, id: &str) -> Self {
        self.label(label::TREE_ID, id)
    }
    fn root_of_tree(self) -> Self {
        self.label(label::IS_ROOT, "true")
    }
    fn forced(self) -> Self {
        self.label(label::ALLOW_FORCE_UPDATE, "true")
    }
    fn min(self, text: &str) -> Self {
        self.edit(|quota| quota.spec.get_or_insert_default().min = amounts(text))
    }
    fn max(self, text: &str) -> Self {
        self.edit(|quota| quota.spec.get_or_insert_default().max = amounts(text))
    }
    fn used(self, text: &str) -> Self {
        self.edit(|quota| quota.status = Some(ElasticQuotaStatus { used: amounts(text) }))
    }
    fn guaranteed(self, cpu: &str) -> Self {
        self.annotation(annotation::GUARANTEED, &format!(r#"{{"cpu":"{cpu}"}}"#))
    }
    fn namespaces(self, list: &str) -> Self {
        self.annotation(annotation::NAMESPACES, list)
    }
}

impl Sketch for ElasticQuota {
    fn edit(mut self, edit: impl FnOnce(&mut ElasticQuota)) -> ElasticQuota {
        edit(&mut self);
        self
    }
}

pub(crate) fn info(quota: &ElasticQuota) -> QuotaInfo {
    QuotaInfo::new(QuotaKey::of(quota, ""), quota)
}

/// Pods as namespace, name and the quota of their label.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods(pub(crate) Vec<(&'static str, &'static str, &'static str)>);

impl BoundPods for Pods {
    fn labelled(&self, quota: &str) -> Labelled {
        let pods = self.0.iter().filter(|(_, _, label)| *label == quota);
        Labelled::new(pods.map(|(namespace, name, _)| (*namespace, *name)))
    }

    fn any_in(&self, namespace: &str) -> bool {
        self.0.iter().any(|(at, _, _)| *at == namespace)
    }
}

/// A cluster whose quotas all go through admission, as they do for users.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) topology: Topology,
    pub(crate) quotas: Vec<ElasticQuota>,
    pub(crate) pods: Pods,
    pub(crate) gates: QuotaGates,
    pub(crate) now: Timestamp,
}

impl Cluster {
    /// With quotas that are simply there.
    pub(crate) fn with(quotas: impl IntoIterator<Item = ElasticQuota>) -> Cluster {
        let mut cluster = Cluster::default();
        for quota in quotas {
            cluster.topology.show(info(&quota));
            cluster.quotas.push(quota);
        }
        cluster
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        self.topology.ledger()
    }

    /// The answer to a create, empty when allowed; then the watch shows the quota.
    pub(crate) fn create(&mut self, quota: ElasticQuota) -> String {
        let mut tree = serde_json::to_value(&quota).expect("an object");
        let filled =
            fill(&mut tree, self.ledger()).map(|_| ElasticQuota::deserialize(&tree).expect("a quota"));
        let filled = match filled {
            Ok(filled) => filled,
            Err(denial) => return denial.message,
        };
        let answer = self.ask(&filled, Change::Create { quota: &filled }, false);
        if answer.is_empty() {
            self.topology.show(info(&filled));
            self.quotas.push(filled);
        }
        answer
    }

    /// The answer to an update of the quota of this name; then the watch shows it.
    pub(crate) fn update(&mut self, name: &str, edit: impl FnOnce(ElasticQuota) -> ElasticQuota) -> String {
        let index = self.quotas.iter().position(|quota| quota.metadata.name.as_deref() == Some(name));
        let index = index.unwrap_or_else(|| panic!("no quota {name}"));
        let old = self.quotas[index].clone();
        let new = edit(old.clone());
        let answer = self.ask(&new, Change::Update { old: &old, quota: &new }, false);
        if answer.is_empty() {
            self.topology.show(info(&new));
            self.quotas[index] = new;
        }
        answer
    }

    pub(crate) fn delete(&mut self, name: &str) -> String {
        let answer = self.ask(&quota(name), Change::Delete, false);
        if answer.is_empty() {
            self.quotas.retain(|quota| quota.metadata.name.as_deref() != Some(name));
            self.topology.gone(&QuotaKey::of(&quota(name), ""));
        }
        answer
    }

    /// Only asks; the watch shows nothing.
    pub(crate) fn ask(&mut self, quota: &ElasticQuota, change: Change<'_>, is_dry_run: bool) -> String {
        let key = QuotaKey::of(quota, "");
        let answer = admit(&mut self.topology, &key, change, &self.pods, self.gates, is_dry_run, self.now);
        assert_eq!(*self.topology.ledger(), self.topology.recount());
        answer.err().map_or_else(String::new, |denial| {
            assert_eq!(denial.code, 400);
            denial.message
        })
    }
}
