//! The tree of quotas by name: who stands below whom, and which namespaces belong to whom.
//!
//! One owner, two operations, [`Ledger::put`] and [`Ledger::remove`], both idempotent by the quota's place. Everything
//! else is derived from the quotas that are there, never from the order in which they came, so a rebuild
//! ([`Ledger::recount`]) gives the same. Spec: manager 17.3.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use koord_api::crd::elastic_quota::ROOT_QUOTA;
use koord_api::quantity::ResourceList;
use serde::Serialize;
use serde_json::Value;

use super::info::{QuotaInfo, QuotaKey};

/// Quotas and the indexes over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// By name, then namespace. Names should be unique; where they are not, the first namespace speaks for the name.
    quotas: BTreeMap<String, BTreeMap<String, Arc<QuotaInfo>>>,
    /// Names of the quotas below a name.
    children: BTreeMap<String, BTreeSet<String>>,
    /// Names of the quotas that list a namespace; the first one has it.
    bound: BTreeMap<String, BTreeSet<String>>,
}

impl Ledger {
    /// A ledger of exactly these quotas.
    pub fn recount<'i>(quotas: impl IntoIterator<Item = &'i Arc<QuotaInfo>>) -> Ledger {
        let mut ledger = Ledger::default();
        quotas.into_iter().for_each(|info| ledger.put(info.clone()));
        ledger
    }

    /// The quota is there and looks like this.
    pub fn put(&mut self, info: Arc<QuotaInfo>) {
        let QuotaKey { namespace, name } = info.key.clone();
        self.change(&name, |places| {
            places.insert(namespace, info);
        });
    }

    /// The quota is not there.
    pub fn remove(&mut self, key: &QuotaKey) {
        self.change(&key.name, |places| {
            places.remove(&key.namespace);
        });
    }

    /// The quota that a name means.
    pub fn get(&self, name: &str) -> Option<&QuotaInfo> {
        self.quotas.get(name)?.values().next().map(|info| &**info)
    }

    /// The quota at one place.
    pub fn at(&self, key: &QuotaKey) -> Option<&QuotaInfo> {
        self.quotas.get(&key.name)?.get(&key.namespace).map(|info| &**info)
    }

    /// All places at which a quota of this name lives.
    pub fn places(&self, name: &str) -> impl Iterator<Item = &QuotaInfo> {
        self.quotas.get(name).into_iter().flat_map(|places| places.values()).map(|info| &**info)
    }

    /// The quotas directly below a name, in order of name.
    pub fn children(&self, name: &str) -> impl Iterator<Item = &QuotaInfo> {
        self.children.get(name).into_iter().flatten().filter_map(|child| self.get(child))
    }

    pub fn children_count(&self, name: &str) -> usize {
        self.children.get(name).map_or(0, BTreeSet::len)
    }

    /// Name of the quota whose list holds a namespace.
    pub fn bound_to(&self, namespace: &str) -> Option<&str> {
        self.bound.get(namespace)?.first().map(String::as_str)
    }

    /// The quota that a pod means which names one, or lives in a namespace that belongs to one. Spec: manager 15.4.
    pub fn find(&self, name: &str, namespace: &str) -> Option<&QuotaInfo> {
        self.get(name).or_else(|| self.get(self.bound_to(namespace)?))
    }

    /// What `/elasticQuota` shows. Spec: manager 14.1.
    pub fn summary(&self) -> Value {
        let infos = self.quotas.keys().filter_map(|name| Some((name.as_str(), self.get(name)?)));
        let quotas = infos.map(|(name, info)| (name, Summary::of(info))).collect();
        let mut hierarchy: BTreeMap<&str, Vec<&str>> =
            self.quotas.keys().map(|name| (name.as_str(), Vec::new())).collect();
        hierarchy.entry(ROOT_QUOTA).or_default();
        for (name, children) in &self.children {
            hierarchy.insert(name, children.iter().map(String::as_str).collect());
        }
        serde_json::to_value(TopologySummary { quotas, hierarchy }).unwrap_or_default()
    }

    /// Changes the places of a name, with the indexes following the quota that speaks for it.
    fn change(&mut self, name: &str, edit: impl FnOnce(&mut BTreeMap<String, Arc<QuotaInfo>>)) {
        let mut places = self.quotas.remove(name).unwrap_or_default();
        if let Some(before) = places.values().next() {
            unlink(&mut self.children, &before.parent, name);
            before.namespaces.iter().for_each(|namespace| unlink(&mut self.bound, namespace, name));
        }
        edit(&mut places);
        if let Some(after) = places.values().next() {
            // The root alone has no parent; nothing stands above it.
            if !after.parent.is_empty() {
                link(&mut self.children, &after.parent, name);
            }
            after.namespaces.iter().for_each(|namespace| link(&mut self.bound, namespace, name));
            self.quotas.insert(name.to_owned(), places);
        }
    }
}

fn link(index: &mut BTreeMap<String, BTreeSet<String>>, key: &str, name: &str) {
    index.entry(key.to_owned()).or_default().insert(name.to_owned());
}

fn unlink(index: &mut BTreeMap<String, BTreeSet<String>>, key: &str, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

#[derive(Serialize)]
struct TopologySummary<'l> {
    #[serde(rename = "quotaInfoMap")]
    quotas: BTreeMap<&'l str, Summary<'l>>,
    #[serde(rename = "quotaHierarchyInfo")]
    hierarchy: BTreeMap<&'l str, Vec<&'l str>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'l> {
    name: &'l str,
    parent_name: &'l str,
    is_parent: bool,
    allow_lent_resource: bool,
    max: &'l ResourceList,
    min: &'l ResourceList,
}

impl Summary<'_> {
    fn of(info: &QuotaInfo) -> Summary<'_> {
        Summary {
            name: info.name(),
            parent_name: &info.parent,
            is_parent: info.is_parent,
            allow_lent_resource: info.allows_lending,
            max: &info.max,
            min: &info.min,
        }
    }
}
