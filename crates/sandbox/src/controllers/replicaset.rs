//! ReplicaSets: so many pods of one template.
//!
//! Pure but for `sync`. Change which pods go first in `pod::by_deletion`.

use std::collections::HashMap;

use jiff::Timestamp;
use koord_api::selector::Selector;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::claim::{self, Change};
use super::hash;
use super::pod::{Pod, by_deletion};
use super::recorder::about;
use super::shell::{Next, Shell};
use super::view::{
    self, LabelSet, Meta, PodSelector, condition, find_condition, remove_condition, set_condition,
};
use super::world::World;
use crate::status::ApiError;

const COMPONENT: &str = "replicaset-controller";
const RESOURCE: (&str, &str) = ("apps", "replicasets");
/// Pods made or deleted in one pass.
const BURST: usize = 500;

/// A ReplicaSet as the cache keeps it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaSet {
    pub(crate) meta: Meta,
    pub(crate) replicas: i64,
    pub(crate) min_ready_seconds: i64,
    pub(crate) selector: PodSelector,
    pub(crate) template_labels: LabelSet,
    /// Equal for equal templates.
    pub(crate) template: u64,
    pub(crate) status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) replicas: i64,
    pub(crate) ready_replicas: i64,
    pub(crate) available_replicas: i64,
    pub(crate) terminating_replicas: Option<i64>,
    pub(crate) observed_generation: i64,
    pub(crate) conditions: Vec<view::Condition>,
}

impl<'de> Deserialize<'de> for ReplicaSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ReplicaSet, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Wire {
            metadata: Meta,
            spec: Spec,
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            replicas: Option<i64>,
            min_ready_seconds: i64,
            selector: PodSelector,
            template: Value,
        }
        let Wire { metadata, spec, status } = Wire::deserialize(from)?;
        Ok(ReplicaSet {
            meta: metadata,
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds,
            selector: spec.selector,
            template_labels: LabelSet::deserialize(&spec.template["metadata"]["labels"]).unwrap_or_default(),
            template: hash::digest(&spec.template),
            status,
        })
    }
}

/// What one look at a ReplicaSet decides.
#[derive(Debug, PartialEq)]
struct Plan {
    claims: Vec<Change>,
    create: usize,
    /// Keys and UIDs.
    delete: Vec<(String, Box<str>)>,
    counts: Counts,
    /// When a pod becomes available.
    next: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    active: usize,
    labelled: usize,
    ready: usize,
    available: usize,
    terminating: usize,
}

pub(super) async fn sync(shell: &Shell, key: &str) -> Next {
    let Some(stored) = shell.get("apps", "replicasets", key) else { return Ok(None) };
    let Some(set) = view::read::<ReplicaSet>(&stored) else { return Ok(None) };
    let now = shell.api.now();
    let plan = shell.look(|world| plan(&set, world, now));
    let object = stored.value();
    let owner = view::controller_ref("apps/v1", "ReplicaSet", &set.meta);
    for change in &plan.claims {
        shell.claim(("", "pods"), change, &owner).await?;
    }
    if !plan.claims.is_empty() {
        // What changed hands is counted in the next pass.
        return Ok(Some(now));
    }
    let result = manage(shell, &set, &object["spec"]["template"], owner, &plan).await;
    let status = status(&set, &object["status"], &plan.counts, result.as_ref().err(), now);
    if status != object["status"] {
        shell.write_status(RESOURCE, &set.meta, &status).await?;
    }
    result.map(|()| plan.next)
}

/// Makes and deletes pods.
async fn manage(
    shell: &Shell,
    set: &ReplicaSet,
    template: &Value,
    owner: Value,
    plan: &Plan,
) -> Result<(), ApiError> {
    let about = about("apps/v1", "ReplicaSet", &set.meta);
    let mut pod = view::pod_from_template(template, owner);
    pod["metadata"]["generateName"] = json!(view::pod_prefix(&set.meta.name));
    let pods = vec![pod; plan.create];
    shell.create_pods(COMPONENT, &about, &set.meta.namespace, pods).await?;
    for (key, uid) in &plan.delete {
        shell.delete_pod(COMPONENT, &about, (key, uid)).await?;
    }
    Ok(())
}

fn plan(set: &ReplicaSet, world: &World, now: Timestamp) -> Plan {
    let (own, claims) = claim::claim(&set.meta, &set.selector.0, world.pods_for(&set.meta));
    let terminating = own.iter().filter(|pod| pod.is_terminating()).count();
    let active: Vec<&Pod> = own.into_iter().filter(|pod| pod.is_active()).collect();
    let counts = Counts { terminating, ..count(set, &active, now) };
    let wanted = usize::try_from(set.replicas).unwrap_or(0);
    let mut plan = Plan { claims, create: 0, delete: Vec::new(), counts, next: None };
    if counts.ready != counts.available {
        let times = active.iter().filter_map(|pod| pod.available_at(set.min_ready_seconds));
        plan.next = times.filter(|at| *at > now).min();
    }
    if set.meta.is_deleting() {
        return plan;
    }
    if active.len() < wanted {
        plan.create = (wanted - active.len()).min(BURST);
    } else if active.len() > wanted {
        let count = (active.len() - wanted).min(BURST);
        plan.delete = choose(active, &related(set, world), count, now);
    }
    plan
}

fn count(set: &ReplicaSet, active: &[&Pod], now: Timestamp) -> Counts {
    let labels = set.template_labels.0.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let template = Selector::from_labels(&labels);
    let count = |test: &dyn Fn(&Pod) -> bool| active.iter().filter(|pod| test(pod)).count();
    Counts {
        active: active.len(),
        labelled: count(&|pod| template.matches(&pod.labels)),
        ready: count(&Pod::is_ready),
        available: count(&|pod| pod.is_available(set.min_ready_seconds, now)),
        terminating: 0,
    }
}

/// How many active pods of the same Deployment are on each node.
fn related(set: &ReplicaSet, world: &World) -> HashMap<Box<str>, usize> {
    let controller = set.meta.controller().map(|owner| &owner.uid);
    let siblings = world.sets_in(&set.meta.namespace).filter(|other| {
        other.meta.uid == set.meta.uid
            || (controller.is_some() && other.meta.controller().map(|owner| &owner.uid) == controller)
    });
    let mut nodes = HashMap::new();
    for pod in siblings.flat_map(|sibling| world.pods.owned_by(&sibling.meta.uid)) {
        if pod.is_active() {
            *nodes.entry(pod.node.clone()).or_insert(0) += 1;
        }
    }
    nodes
}

/// The pods that can best be missed.
fn choose(
    mut active: Vec<&Pod>,
    related: &HashMap<Box<str>, usize>,
    count: usize,
    now: Timestamp,
) -> Vec<(String, Box<str>)> {
    let rank = |pod: &Pod| related.get(&pod.node).copied().unwrap_or(0);
    active.sort_by(|a, b| by_deletion((a, rank(a)), (b, rank(b)), now));
    active.into_iter().take(count).map(|pod| (pod.key(), pod.uid.clone())).collect()
}

/// The new status.
fn status(set: &ReplicaSet, old: &Value, counts: &Counts, fault: Option<&ApiError>, now: Timestamp) -> Value {
    let mut status = json!({
        "replicas": counts.active,
        "terminatingReplicas": counts.terminating,
        "observedGeneration": set.meta.generation,
    });
    for (field, count) in [
        ("fullyLabeledReplicas", counts.labelled),
        ("readyReplicas", counts.ready),
        ("availableReplicas", counts.available),
    ] {
        if count > 0 {
            status[field] = json!(count);
        }
    }
    if let Some(conditions) = old.get("conditions") {
        status["conditions"] = conditions.clone();
    }
    let has_fault = find_condition(&status, "ReplicaFailure").is_some();
    match fault {
        Some(fault) if !has_fault => {
            let wanted = usize::try_from(set.replicas).unwrap_or(0);
            let reason = if counts.active < wanted { "FailedCreate" } else { "FailedDelete" };
            let new = condition("ReplicaFailure", "True", reason, &fault.message);
            set_condition(&mut status, new, &["lastTransitionTime"], now);
        }
        None if has_fault => remove_condition(&mut status, "ReplicaFailure"),
        _ => {}
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::pod::Phase;
    use crate::controllers::view::Owner;

    fn set(replicas: i64) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "d", "uid": "set", "generation": 2},
            "spec": {"replicas": replicas, "minReadySeconds": 10, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "a"}}}},
        }))
        .unwrap()
    }

    fn pod(name: &str, phase: Phase, ready: Option<i64>) -> Pod {
        Pod {
            name: name.into(),
            namespace: "d".into(),
            uid: name.into(),
            labels: LabelSet([("app".into(), "web".into())].into()),
            owner: Some(Box::new(Owner { uid: "set".into(), controller: true, ..Owner::default() })),
            phase,
            ready: ready.and_then(|s| Timestamp::from_second(s).ok()),
            ..Pod::default()
        }
    }

    fn world(pods: Vec<Pod>) -> World {
        let mut world = World::default();
        for pod in pods {
            world.pods.insert(&pod.key(), pod);
        }
        world
    }

    #[test]
    fn the_number_of_pods_is_kept() {
        let now = Timestamp::from_second(1000).unwrap();
        let leaving = Pod { deleting: Some(now), ..pod("c", Phase::Running, None) };
        let pods = vec![
            pod("a", Phase::Running, Some(10)),
            pod("b", Phase::Running, Some(995)),
            leaving,
            pod("d", Phase::Failed, None),
            pod("e", Phase::Pending, None),
        ];
        let world = world(pods);
        for (replicas, create, delete) in [(5, 2, vec![]), (3, 0, vec![]), (1, 0, vec!["d/e", "d/b"])] {
            let plan = plan(&set(replicas), &world, now);
            assert_eq!(plan.create, create, "{replicas}");
            assert_eq!(plan.delete.iter().map(|(k, _)| k.as_str()).collect::<Vec<_>>(), delete, "{replicas}");
            let counts = Counts { active: 3, labelled: 0, ready: 2, available: 1, terminating: 1 };
            assert_eq!(plan.counts, counts);
            assert_eq!(plan.next, Timestamp::from_second(1005).ok());
        }
        let mut dying = set(5);
        dying.meta.deletion_timestamp = Some(now);
        assert_eq!(plan(&dying, &world, now).create, 0);
    }

    #[test]
    fn a_fault_is_a_condition_until_it_is_over() {
        let now = Timestamp::from_second(0).unwrap();
        let fault = ApiError::forbidden("", "pods", "x", "quota");
        let bad = status(&set(2), &json!({"replicas": 0}), &Counts::default(), Some(&fault), now);
        assert_eq!(bad["conditions"][0]["reason"], "FailedCreate");
        assert_eq!(bad["conditions"][0]["message"], r#"pods "x" is forbidden: quota"#);
        let good = status(&set(2), &bad, &Counts { active: 2, ..Counts::default() }, None, now);
        assert_eq!(good, json!({"replicas": 2, "terminatingReplicas": 0, "observedGeneration": 2}));
    }
}
