//! What handlers know of the cluster at one moment.
//!
//! Plain values behind `Arc`s: a change of one part leaves the others shared, and a handler sees one moment however long
//! it takes. [`Facts`] is immutable once given out; [`Board`] holds the newest.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::scheduling::v1::PriorityClass;
use koord_api::annotation::quota::Namespaces;
use koord_api::annotation::read;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::ElasticQuotaProfile;
use koord_api::gate::{Component, Gates};
use koord_api::keys::quota::label::TREE_ID;
use koord_api::rewrite::profile::{PriorityClassFacts, Profiles};
use koord_api::rewrite::quota_tree;
use serde_json::Value;

/// Labels of an object.
pub type Texts = BTreeMap<String, String>;

/// The cluster, as far as admission looks at it.
#[derive(Clone)]
pub struct Facts {
    pub gates: Arc<Gates>,
    /// Namespaces in which nothing is refused for a fault that is not the user's.
    pub protected: Arc<[String]>,
    pub profiles: Arc<Profiles>,
    /// Labels of namespaces, by name.
    pub namespaces: Arc<BTreeMap<String, Arc<Texts>>>,
    /// A namespace that the watch has not told of yet.
    pub new_namespace: Option<(String, Arc<Texts>)>,
    pub priority_classes: Arc<BTreeMap<String, PriorityClassFacts>>,
    pub quota_trees: Arc<QuotaTrees>,
    /// The data of slo-controller-config; none while it cannot be read.
    pub config: Option<Arc<Texts>>,
}

impl Facts {
    /// An empty cluster. `own_namespace` is that of the manager itself.
    pub fn new(gates: Gates, own_namespace: &str) -> Facts {
        Facts {
            gates: Arc::new(gates),
            protected: ["kube-system".to_owned(), own_namespace.to_owned()].into(),
            profiles: Arc::default(),
            namespaces: Arc::default(),
            new_namespace: None,
            priority_classes: Arc::default(),
            quota_trees: Arc::default(),
            config: None,
        }
    }

    /// Labels of a namespace; none when it is not known.
    pub fn namespace_labels(&self, name: &str) -> Option<&Texts> {
        let new = self.new_namespace.as_ref().filter(|(new, _)| new == name).map(|(_, labels)| labels);
        self.namespaces.get(name).or(new).map(|labels| &**labels)
    }

    pub fn is_protected(&self, namespace: &str) -> bool {
        self.protected.iter().any(|protected| protected == namespace)
    }
}

impl Default for Facts {
    fn default() -> Facts {
        Facts::new(Gates::defaults(Component::Manager), "koordinator-system")
    }
}

/// What profiles take over from a PriorityClass.
pub fn priority_class_facts(class: &PriorityClass) -> PriorityClassFacts {
    PriorityClassFacts { value: class.value, preemption_policy: class.preemption_policy.clone() }
}

/// Which nodes the pods of a quota tree must be on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaTrees {
    /// Tree of each quota, empty for none.
    trees: BTreeMap<String, String>,
    /// The quota that a namespace is bound to.
    bound: BTreeMap<String, String>,
    /// Requirements on nodes, by tree.
    nodes: BTreeMap<String, Vec<Value>>,
}

impl QuotaTrees {
    /// `profiles` in the order of their keys: the first of a tree counts.
    pub fn new<'a>(
        quotas: impl IntoIterator<Item = &'a ElasticQuota>,
        profiles: impl IntoIterator<Item = &'a ElasticQuotaProfile>,
    ) -> QuotaTrees {
        let mut all = QuotaTrees::default();
        for quota in quotas {
            let name = quota.metadata.name.clone().unwrap_or_default();
            let tree = quota.metadata.labels.as_ref().and_then(|labels| labels.get(TREE_ID));
            let bound = read::<Namespaces>(quota.metadata.annotations.as_ref()).ok().flatten();
            for namespace in bound.map(|bound| bound.0).unwrap_or_default() {
                all.bound.insert(namespace, name.clone());
            }
            all.trees.insert(name, tree.cloned().unwrap_or_default());
        }
        for profile in profiles {
            let tree = profile.metadata.labels.as_ref().and_then(|labels| labels.get(TREE_ID));
            let Some(tree) = tree.filter(|tree| !tree.is_empty()) else { continue };
            let selector = profile.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
            let required = selector.map(quota_tree::requirements).unwrap_or_default();
            all.nodes.entry(tree.clone()).or_insert(required);
        }
        all
    }

    /// What nodes must have for the pods of a quota. A name that is unknown falls back to the namespace's quota.
    pub fn requirements(&self, quota_label: Option<&str>, namespace: &str) -> &[Value] {
        let name = quota_label.filter(|name| !name.is_empty()).unwrap_or(namespace);
        let bound = || self.trees.get(self.bound.get(namespace)?);
        let tree = self.trees.get(name).or_else(bound);
        tree.and_then(|tree| self.nodes.get(tree)).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The newest facts.
pub struct Board(RwLock<Arc<Facts>>);

impl Board {
    pub fn new(facts: Facts) -> Board {
        Board(RwLock::new(Arc::new(facts)))
    }

    pub fn now(&self) -> Arc<Facts> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes some of the facts for all requests to come.
    pub fn change(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut facts));
    }
}

#[cfg(test)]
mod tests {
    use koord_api::keys::quota::annotation::NAMESPACES;
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_of_a_quota() {
        let quotas: Vec<ElasticQuota> = serde_json::from_value(json!([
            {"metadata": {"name": "tree", "labels": {TREE_ID: "t1"},
                "annotations": {NAMESPACES: "[\"bound\"]"}}},
            {"metadata": {"name": "plain"}},
            {"metadata": {"name": "lost", "labels": {TREE_ID: "t9"}}},
            {"metadata": {"name": "any", "labels": {TREE_ID: "t2"}}},
        ]))
        .unwrap();
        let profile = |tree: &str, selector: Value| -> ElasticQuotaProfile {
            serde_json::from_value(
                json!({"metadata": {"labels": {TREE_ID: tree}}, "spec": {"nodeSelector": selector}}),
            )
            .unwrap()
        };
        let profiles = [
            profile("t1", json!({"matchLabels": {"pool": "a"}})),
            profile("t1", json!({"matchLabels": {"pool": "second"}})),
            profile("t2", json!(null)),
            profile("t2", json!({"matchLabels": {"pool": "b"}})),
        ];
        let trees = QuotaTrees::new(&quotas, &profiles);
        let pool_a = json!([{"key": "pool", "operator": "In", "values": ["a"]}]);
        for (name, label, namespace, want) in [
            ("by label", Some("tree"), "ns", pool_a.clone()),
            ("manager#15.4.T4", Some("plain"), "bound", json!([])),
            ("manager#15.4.T6", None, "bound", pool_a.clone()),
            ("manager#15.4.T6, an empty label", Some(""), "bound", pool_a.clone()),
            ("manager#15.4.T7", Some("ghost"), "bound", pool_a.clone()),
            ("by the namespace's own name", None, "tree", pool_a),
            ("unknown", Some("ghost"), "ns", json!([])),
            ("a tree without profile", Some("lost"), "ns", json!([])),
            ("the first profile has no selector", Some("any"), "ns", json!([])),
        ] {
            assert_eq!(json!(trees.requirements(label, namespace)), want, "{name}");
        }
    }

    #[test]
    fn a_moment_does_not_change() {
        let board = Board::new(Facts::default());
        let before = board.now();
        let labels = Arc::new(Texts::from([("a".to_owned(), "b".to_owned())]));
        board.change(|facts| facts.new_namespace = Some(("new".into(), labels.clone())));
        assert_eq!(before.namespace_labels("new"), None);
        assert_eq!(board.now().namespace_labels("new"), Some(&*labels));
        assert!(board.now().is_protected("kube-system") && !board.now().is_protected("new"));
    }
}
