//! Objects that follow a node by name: made with it, changed with the strategies, gone with it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Mutex;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::Node;
use koord_api::slo::{Ignored, NodeFacts};
use koord_kit::events::{EventType, Note, Recorder, reference};
use koord_kit::write::{Part, Place, merge_patch};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Failure, Key};
use crate::metrics::Outcomes;
use crate::node_metric::Plan;

/// How a kind that follows nodes is written.
pub(super) struct Follower<S, K> {
    pub(super) client: kube::Client,
    pub(super) set_spec: fn(&mut K, S),
    pub(super) outcomes: Outcomes,
    /// What creating, updating and deleting are counted as.
    pub(super) reasons: [&'static str; 3],
}

impl<S, K> Follower<S, K>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Default
        + Debug,
{
    /// Does as planned. What someone else has done meanwhile is no failure: the cache will tell, and wake us.
    pub(super) async fn carry_out(
        &self,
        key: &Key,
        plan: Plan<S>,
        present: Option<&K>,
    ) -> Result<(), Failure> {
        let api: Api<K> = Api::all(self.client.clone());
        let [create, update, delete] = self.reasons;
        match (plan, present) {
            (Plan::Nothing, _) => Ok(()),
            (Plan::Create(spec), _) => {
                let mut object = K::default();
                object.meta_mut().name = Some(key.name.to_string());
                (self.set_spec)(&mut object, spec);
                let created = api.create(&PostParams::default(), &object).await.map(drop);
                self.outcomes.of(create, created.or_else(|error| pass(error, 409)))
            }
            (Plan::Update(spec), Some(before)) => {
                let mut after = K::clone(before);
                (self.set_spec)(&mut after, spec);
                let place = Place { namespace: None, name: &key.name };
                let patched = merge_patch(&self.client, place, Part::Object, before, &after, false).await;
                let patched = match patched {
                    Err(error) if error.is_not_found() => Ok(()),
                    other => other.map(drop).map_err(Failure::from),
                };
                self.outcomes.of(update, patched)
            }
            (Plan::Update(_), None) => Ok(()),
            (Plan::Delete, _) => {
                let deleted = api.delete(&key.name, &DeleteParams::default()).await.map(drop);
                self.outcomes.of(delete, deleted.or_else(|error| pass(error, 404)))
            }
        }
    }
}

/// An answer that says that it was done already is as good as done.
fn pass(error: kube::Error, code: u16) -> Result<(), Failure> {
    match error {
        kube::Error::Api(status) if status.code == code => Ok(()),
        error => Err(error.into()),
    }
}

/// Labels and annotations of a node.
pub(super) fn facts(node: &Node) -> NodeFacts<'_> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    NodeFacts {
        labels: node.metadata.labels.as_ref().unwrap_or(&NONE),
        annotations: node.metadata.annotations.as_ref().unwrap_or(&NONE),
    }
}

/// Whether two states of a node may mean different strategies.
///
/// Differs: also by the two annotations, where upstream waits for another reason to look (DB-20).
pub(super) fn node_differs(old: &Node, new: &Node) -> bool {
    use koord_api::keys::node::annotation::{COLOCATION_STRATEGY, NETWORK_BANDWIDTH};
    let (old, new) = (facts(old), facts(new));
    let differs = |key: &str| old.annotations.get(key) != new.annotations.get(key);
    old.labels != new.labels || differs(COLOCATION_STRATEGY) || differs(NETWORK_BANDWIDTH)
}

/// Tells people, once for each value, what on their Nodes is not used.
pub(super) struct Complaints {
    recorder: Recorder,
    /// The values told last, by node. Locked for a look.
    told: Mutex<HashMap<Key, Vec<Ignored>>>,
}

impl Complaints {
    pub(super) fn new(recorder: Recorder) -> Complaints {
        Complaints { recorder, told: Mutex::new(HashMap::new()) }
    }

    pub(super) fn tell(&self, key: &Key, node: Option<&Node>, ignored: Vec<Ignored>) {
        let mut told = self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(node) = node.filter(|_| !ignored.is_empty()) else {
            told.remove(key);
            return;
        };
        let before = told.get(key).map(Vec::as_slice).unwrap_or_default();
        for complaint in ignored.iter().filter(|complaint| !before.contains(complaint)) {
            self.recorder.event(note(node, complaint));
        }
        told.insert(key.clone(), ignored);
    }
}

fn note(node: &Node, Ignored { key, value, reason }: &Ignored) -> Note {
    Note {
        regarding: reference(node),
        related: None,
        kind: EventType::Warning,
        reason: "InvalidNodeSetting".to_owned(),
        action: String::new(),
        text: format!("{key}={value:?} is ignored: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_differs_by_what_strategies_look_at() {
        let node = |metadata: serde_json::Value, status: serde_json::Value| -> Node {
            serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
        };
        let plain = node(json!({"name": "n", "labels": {"pool": "a"}}), json!({}));
        let annotated = |key: &str, value: &str| {
            node(json!({"name": "n", "labels": {"pool": "a"}, "annotations": {key: value}}), json!({}))
        };
        let (strategy, bandwidth) =
            ("node.koordinator.sh/colocation-strategy", "node.koordinator.sh/network-bandwidth");
        for (name, new, want) in [
            ("labels", node(json!({"name": "n", "labels": {"pool": "b"}}), json!({})), true),
            ("manager#26.DB-20", annotated(strategy, "{}"), true),
            ("manager#26.DB-20", annotated(bandwidth, "1G"), true),
            ("another annotation", annotated("lab/name", "n"), false),
            (
                "a heartbeat",
                node(
                    json!({"name": "n", "labels": {"pool": "a"}}),
                    json!({"nodeInfo": null, "phase": "Running"}),
                ),
                false,
            ),
        ] {
            assert_eq!(node_differs(&plain, &new), want, "{name}");
            assert_eq!(node_differs(&new, &plain), want, "{name}, the other way round");
        }
        assert!(node_differs(&annotated(bandwidth, "1G"), &annotated(bandwidth, "2G")), "manager#26.DB-20");
    }
}
