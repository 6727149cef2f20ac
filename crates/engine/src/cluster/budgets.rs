//! Disruption budgets: how many of a kind of pods may be taken away now. Spec: scheduler-core 6.13.4.
//!
//! Selectors are compiled when a budget comes; one that cannot be read, is empty or absent protects nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::policy::v1 as policy;
use koord_api::selector::Selector;

use super::Cluster;
use super::matching::ClassLabels;
use crate::intern::Names;
use crate::pod::{Class, Pod};

/// All budgets, by namespace and name.
#[derive(Debug, Default)]
pub struct Budgets {
    by_namespace: HashMap<Box<str>, BTreeMap<Box<str>, Budget>>,
}

/// One budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    selector: Selector,
    /// How many pods may go now; none or less when the pods are fewer than wanted already.
    pub disruptions_allowed: i32,
    /// Names of pods whose eviction the API server has granted, and which are counted as gone.
    disrupted: BTreeSet<Box<str>>,
}

impl Budget {
    fn read(object: &policy::PodDisruptionBudget) -> Budget {
        let selector = object.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let selector = Selector::new(selector).ok().filter(|selector| !selector.is_everything());
        let status = object.status.as_ref();
        let disrupted = status.into_iter().flat_map(|status| status.disrupted_pods.iter().flatten());
        Budget {
            selector: selector.unwrap_or_else(Selector::nothing),
            disruptions_allowed: status.map_or(0, |status| status.disruptions_allowed),
            disrupted: disrupted.map(|(name, _)| name.as_str().into()).collect(),
        }
    }

    fn protects(&self, class: &Class, names: &Names) -> bool {
        // A pod without labels is in no budget, whatever the selector would say.
        !class.labels.is_empty() && self.selector.matches(&ClassLabels { class, names })
    }
}

impl Budgets {
    pub fn is_empty(&self) -> bool {
        self.by_namespace.is_empty()
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&Budget> {
        self.by_namespace.get(namespace)?.get(name)
    }
}

impl Cluster {
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// A budget came or changed.
    pub fn set_budget(&mut self, object: &policy::PodDisruptionBudget) {
        let text = |text: &Option<String>| -> Box<str> { text.as_deref().unwrap_or_default().into() };
        let namespace = self.budgets.by_namespace.entry(text(&object.metadata.namespace)).or_default();
        namespace.insert(text(&object.metadata.name), Budget::read(object));
    }

    /// A budget went. False when there was none.
    pub fn remove_budget(&mut self, namespace: &str, name: &str) -> bool {
        let Some(budgets) = self.budgets.by_namespace.get_mut(namespace) else { return false };
        let was_there = budgets.remove(name).is_some();
        if budgets.is_empty() {
            self.budgets.by_namespace.remove(namespace);
        }
        was_there
    }
}

/// Tells which pods of a node cannot go without breaking a budget. Remembers which budgets a class is in, so it is
/// made once for all nodes of an attempt.
pub struct Guard<'a> {
    cluster: &'a Cluster,
    classes: HashMap<*const Class, Vec<&'a Budget>>,
    /// Budgets that this node's pods draw on, and what is left of each.
    left: Vec<(&'a Budget, i64)>,
}

impl<'a> Guard<'a> {
    pub fn new(cluster: &'a Cluster) -> Guard<'a> {
        Guard { cluster, classes: HashMap::new(), left: Vec::new() }
    }

    /// For each of the pods of one node, most important first: whether a budget would be broken if it and all before
    /// it went. Empty when no budget can be.
    pub fn violations(&mut self, pods: &[Arc<Pod>]) -> Vec<bool> {
        if self.cluster.budgets.is_empty() {
            return Vec::new();
        }
        self.left.clear();
        pods.iter().map(|pod| self.draw(pod)).collect()
    }

    /// Takes one from every budget that the pod is in; true when one of them has none left.
    fn draw(&mut self, pod: &Pod) -> bool {
        let (cluster, class) = (self.cluster, &pod.class);
        let budgets = self.classes.entry(Arc::as_ptr(class)).or_insert_with(|| {
            let there = cluster.budgets.by_namespace.get(&*class.namespace);
            let there = there.into_iter().flat_map(BTreeMap::values);
            there.filter(|budget| budget.protects(class, &cluster.names)).collect()
        });
        let mut is_broken = false;
        for budget in budgets.iter().filter(|budget| !budget.disrupted.contains(&pod.key.name)) {
            let at = match self.left.iter().position(|(known, _)| std::ptr::eq(*known, *budget)) {
                Some(at) => at,
                None => {
                    self.left.push((budget, i64::from(budget.disruptions_allowed)));
                    self.left.len() - 1
                }
            };
            self.left[at].1 -= 1;
            is_broken |= self.left[at].1 < 0;
        }
        is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn budget(name: &str, selector: Value, allowed: i32) -> policy::PodDisruptionBudget {
        serde_json::from_value(
            json!({"metadata": {"name": name, "namespace": "d"}, "spec": {"selector": selector},
            "status": {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
                "disruptionsAllowed": allowed, "disruptedPods": {"gone": "2024-01-01T00:00:00Z"}}}),
        )
        .unwrap()
    }

    fn pod(cluster: &mut Cluster, name: &str, namespace: &str, labels: Value) -> Arc<Pod> {
        let object =
            json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels}});
        Arc::new(cluster.compile(&serde_json::from_value(object).unwrap()))
    }

    #[test]
    fn each_pod_draws_on_every_budget_it_is_in() {
        let web = json!({"app": "web"});
        let by_app = json!({"matchLabels": {"app": "web"}});
        let broken = json!({"matchExpressions": [{"key": "app", "operator": "Between", "values": ["a"]}]});
        let absent = json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]});
        for (name, budgets, pods, want) in [
            ("one allowed", vec![(by_app.clone(), 1)], vec!["a", "b"], vec![false, true]),
            ("none allowed", vec![(by_app.clone(), 0)], vec!["a"], vec![true]),
            ("below zero", vec![(by_app.clone(), -1)], vec!["a"], vec![true]),
            ("already granted", vec![(by_app.clone(), 0)], vec!["gone", "a"], vec![false, true]),
            (
                "two budgets",
                vec![(by_app.clone(), 2), (by_app.clone(), 1)],
                vec!["a", "b"],
                vec![false, true],
            ),
            ("empty selector", vec![(json!({}), 0)], vec!["a"], vec![false]),
            ("unreadable selector", vec![(broken, 0)], vec!["a"], vec![false]),
            ("no selector", vec![(Value::Null, 0)], vec!["a"], vec![false]),
            ("other pods", vec![(absent, 0)], vec!["a"], vec![false]),
        ] {
            let mut cluster = Cluster::default();
            for (i, (selector, allowed)) in budgets.into_iter().enumerate() {
                cluster.set_budget(&budget(&format!("b{i}"), selector, allowed));
            }
            let pods: Vec<_> =
                pods.into_iter().map(|name| pod(&mut cluster, name, "d", web.clone())).collect();
            assert_eq!(Guard::new(&cluster).violations(&pods), want, "{name}");
        }
    }

    #[test]
    fn budgets_protect_labelled_pods_of_their_namespace() {
        let mut cluster = Cluster::default();
        let anything = json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]});
        cluster.set_budget(&budget("b", anything, 0));
        let pods = [
            pod(&mut cluster, "other", "e", json!({"app": "web"})),
            pod(&mut cluster, "bare", "d", json!({})),
            pod(&mut cluster, "web", "d", json!({"app": "web"})),
        ];
        assert_eq!(Guard::new(&cluster).violations(&pods), [false, false, true]);
        assert_eq!(cluster.budgets().get("d", "b").map(|budget| budget.disruptions_allowed), Some(0));
        assert!(cluster.remove_budget("d", "b") && !cluster.remove_budget("d", "b"));
        assert!(cluster.budgets().is_empty());
        assert!(Guard::new(&cluster).violations(&pods).is_empty());
    }
}
