//! DaemonSets: one pod on every node that suits.
//!
//! Which pods there should be is decided in `plan`, pure. Here is the shell.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use koord_api::selector::RequiredNodeAffinity;
use koord_api::toleration::find_untolerated;
use serde::Deserialize;
use serde_json::{Value, json};

use super::claim;
use super::history::{self, Owner};
use super::node::Node;
use super::pod::Pod;
use super::recorder::about;
use super::shell::{Next, Shell};
use super::view::{self, IntOrPercent, Meta, PodSelector};
use super::world::World;
use koord_api::selector::Labels;

mod plan;

use plan::Plan;

const COMPONENT: &str = "daemonset-controller";
const RESOURCE: (&str, &str) = ("apps", "daemonsets");
const HASH: &str = "controller-revision-hash";
const GENERATION: &str = "pod-template-generation";
/// Pods made or deleted in one pass.
const BURST: usize = 250;
/// Between two deletions of a failed pod on one node: at first, and at most.
const FAILED_MIN: SignedDuration = SignedDuration::from_secs(1);
const FAILED_MAX: SignedDuration = SignedDuration::from_mins(15);

/// A DaemonSet, checked.
struct DaemonSet {
    meta: Meta,
    selector: PodSelector,
    min_ready_seconds: i64,
    /// None: pods change when somebody deletes them.
    rolling: Option<Rolling>,
    history_limit: usize,
    node_name: String,
    affinity: RequiredNodeAffinity,
    tolerations: Vec<Toleration>,
    /// Of old; pods that carry it count as updated, too.
    generation: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rolling {
    max_unavailable: Option<IntOrPercent>,
    max_surge: Option<IntOrPercent>,
}

impl DaemonSet {
    fn read(object: &Value) -> Option<DaemonSet> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            selector: PodSelector,
            min_ready_seconds: i64,
            revision_history_limit: Option<usize>,
            update_strategy: Strategy,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Strategy {
            r#type: String,
            rolling_update: Option<Rolling>,
        }
        let spec = Spec::deserialize(&object["spec"]).ok()?;
        let mut template = object["spec"]["template"].clone();
        add_tolerations(&mut template);
        let pod = PodSpec::deserialize(&template["spec"]).ok()?;
        let meta = Meta::deserialize(&object["metadata"]).ok()?;
        let generation = meta.annotation("deprecated.daemonset.template.generation").map(str::to_owned);
        Some(DaemonSet {
            selector: spec.selector,
            min_ready_seconds: spec.min_ready_seconds,
            rolling: (spec.update_strategy.r#type != "OnDelete")
                .then(|| spec.update_strategy.rolling_update.unwrap_or_default()),
            history_limit: spec.revision_history_limit.unwrap_or(10),
            affinity: RequiredNodeAffinity::of(&pod),
            node_name: pod.node_name.unwrap_or_default(),
            tolerations: pod.tolerations.unwrap_or_default(),
            generation,
            meta,
        })
    }

    /// Whether a pod should be made for the node, and whether one there may stay.
    fn suits(&self, node: &Node) -> (bool, bool) {
        let is_named = self.node_name.is_empty() || self.node_name == *node.meta.name;
        if !is_named || !self.affinity.matches(&node.meta.labels, &node.meta.name).unwrap_or(false) {
            return (false, false);
        }
        let untolerated = |effects: &[&str]| {
            let counts = |taint: &k8s_openapi::api::core::v1::Taint| effects.contains(&taint.effect.as_str());
            find_untolerated(&node.taints, &self.tolerations, counts).is_some()
        };
        match untolerated(&["NoSchedule", "NoExecute"]) {
            true => (false, !untolerated(&["NoExecute"])),
            false => (true, true),
        }
    }

    fn is_updated(&self, pod: &Pod, hash: &str) -> bool {
        pod.labels.label(HASH) == Some(hash)
            || (self.generation.is_some() && pod.labels.label(GENERATION) == self.generation.as_deref())
    }
}

/// Tolerations that every daemon gets.
fn add_tolerations(template: &mut Value) {
    let mut wanted = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    if template["spec"]["hostNetwork"] == true {
        wanted.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    if !template["spec"]["tolerations"].is_array() {
        template["spec"]["tolerations"] = json!([]);
    }
    let Some(list) = template["spec"]["tolerations"].as_array_mut() else { return };
    for (key, effect) in wanted {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        match list.iter_mut().find(|t| t["key"] == key && t["effect"] == effect && t["operator"] == "Exists")
        {
            Some(old) => *old = toleration,
            None => list.push(toleration),
        }
    }
}

/// Ties a pod to a node by affinity: the scheduler still has the last word.
fn pin(pod: &mut Value, node: &str) {
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
        terms;
}

pub(super) async fn sync(shell: &Shell, key: &str) -> Next {
    let Some(stored) = shell.get("apps", "daemonsets", key) else { return Ok(None) };
    let object = stored.value();
    let Some(set) = DaemonSet::read(&object) else { return Ok(None) };
    let about = about("apps/v1", "DaemonSet", &set.meta);
    if set.selector.0.is_everything() {
        let text = "This daemon set is selecting all pods. A non-empty selector is required.";
        shell.warn(COMPONENT, &about, "SelectingAll", text.to_owned()).await;
        return Ok(None);
    }
    if set.meta.is_deleting() {
        return Ok(None);
    }
    let now = shell.api.now();
    let owner =
        Owner { kind: "DaemonSet", plural: "daemonsets", label: HASH, meta: &set.meta, object: &object };
    let (current, old) = history::current(shell, &owner).await?;
    let hash = view::read_label(&current.meta, HASH);
    let (claims, plan) = shell.look(|world| decide(&set, world, &hash, now));
    let reference = view::controller_ref("apps/v1", "DaemonSet", &set.meta);
    for change in &claims {
        shell.claim(("", "pods"), change, &reference).await?;
    }
    if !claims.is_empty() {
        return Ok(Some(now));
    }
    for (pod, node, is_failure) in &plan.ended {
        let namespace = &set.meta.namespace;
        match is_failure {
            true => {
                let text =
                    format!("Found failed daemon pod {namespace}/{pod} on node {node}, will try to kill it");
                shell.warn(COMPONENT, &about, "FailedDaemonPod", text).await;
            }
            false => {
                let text = format!(
                    "Found succeeded daemon pod {namespace}/{pod} on node {node}, will try to delete it"
                );
                shell.tell(COMPONENT, &about, "SucceededDaemonPod", text).await;
            }
        }
    }
    let status = status(&object, &set, &plan);
    if status != object["status"] {
        shell.write_status(RESOURCE, &set.meta, &status).await?;
    }
    carry_out(shell, &set, &object, &hash, &plan).await?;
    history::truncate(shell, &old, set.history_limit, |revision| {
        plan.hashes.contains(view::read_label(&revision.meta, HASH).as_str())
    })
    .await?;
    Ok(plan.next)
}

/// The pods of this set by node, and what should become of them.
fn decide(set: &DaemonSet, world: &mut World, hash: &str, now: Timestamp) -> (Vec<claim::Change>, Plan) {
    let mut failed = std::mem::take(&mut world.failed);
    let (own, claims) = claim::claim(&set.meta, &set.selector.0, world.pods_for(&set.meta));
    let mut on_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in own {
        let node = if pod.node.is_empty() { &pod.target } else { &pod.node };
        on_node.entry(node).or_default().push(pod);
    }
    let plan = plan::plan(set, &world.nodes, on_node, hash, &mut failed, now);
    world.failed = failed;
    (claims, plan)
}

async fn carry_out(
    shell: &Shell,
    set: &DaemonSet,
    object: &Value,
    hash: &str,
    plan: &Plan,
) -> Result<(), crate::status::ApiError> {
    let about = about("apps/v1", "DaemonSet", &set.meta);
    let mut template = object["spec"]["template"].clone();
    add_tolerations(&mut template);
    template["metadata"]["labels"][HASH] = json!(hash);
    if let Some(generation) = &set.generation {
        template["metadata"]["labels"][GENERATION] = json!(generation);
    }
    let owner = view::controller_ref("apps/v1", "DaemonSet", &set.meta);
    let mut pod = view::pod_from_template(&template, owner);
    pod["metadata"]["generateName"] = json!(view::pod_prefix(&set.meta.name));
    let pods = plan.create.iter().take(BURST).map(|node| {
        let mut pod = pod.clone();
        pin(&mut pod, node);
        pod
    });
    shell.create_pods(COMPONENT, &about, &set.meta.namespace, pods.collect()).await?;
    for (key, uid) in plan.delete.iter().take(BURST) {
        shell.delete_pod(COMPONENT, &about, (key, uid)).await?;
    }
    Ok(())
}

fn status(object: &Value, set: &DaemonSet, plan: &Plan) -> Value {
    let counts = &plan.counts;
    let mut status = json!({
        "currentNumberScheduled": counts.scheduled, "numberMisscheduled": counts.misscheduled,
        "desiredNumberScheduled": counts.desired, "numberReady": counts.ready,
        "observedGeneration": set.meta.generation,
    });
    for (field, count) in [
        ("updatedNumberScheduled", counts.updated),
        ("numberAvailable", counts.available),
        ("numberUnavailable", counts.desired - counts.available),
    ] {
        if count > 0 {
            status[field] = json!(count);
        }
    }
    for kept in ["collisionCount", "conditions"] {
        if let Some(value) = object["status"].get(kept) {
            status[kept] = value.clone();
        }
    }
    status
}

/// How often pods of a set failed on a node: when last, and how long to wait.
pub(crate) type Failures = HashMap<(Box<str>, Box<str>), (Timestamp, SignedDuration)>;

/// When a failed pod may be deleted; now counts as done.
fn may_delete_failed(
    failures: &mut Failures,
    set: &str,
    node: &str,
    now: Timestamp,
) -> Result<(), Timestamp> {
    let key = (set.into(), node.into());
    match failures.get(&key) {
        Some((last, pause)) if now < *last + *pause => return Err(*last + *pause),
        Some((last, pause)) if now < *last + FAILED_MAX * 2 => {
            let longer = (*pause * 2).min(FAILED_MAX);
            failures.insert(key, (now, longer));
        }
        _ => {
            failures.insert(key, (now, FAILED_MIN));
        }
    }
    Ok(())
}
