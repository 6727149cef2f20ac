//! StatefulSets: pods with a name and storage of their own, one after the other.
//!
//! `plan` decides, pure. Here is the shell.
//!
//! Differs: claims stay when a set shrinks or goes, whatever persistentVolumeClaimRetentionPolicy says.

use jiff::Timestamp;
use koord_api::selector::Labels;
use serde::Deserialize;
use serde_json::{Value, json};

use super::claim;
use super::history::{self, Owner, Revision};
use super::pod::Pod;
use super::recorder::about;
use super::shell::{Next, Shell, is_terminating, key_of};
use super::view::{self, Meta, PodSelector};
use crate::status::ApiError;

mod plan;

use plan::Plan;

const COMPONENT: &str = "statefulset-controller";
const RESOURCE: (&str, &str) = ("apps", "statefulsets");
const HASH: &str = "controller.kubernetes.io/hash";
/// On pods: the name of their revision.
const REVISION: &str = "controller-revision-hash";

/// A StatefulSet, checked.
#[derive(Debug, Default)]
struct StatefulSet {
    meta: Meta,
    selector: PodSelector,
    replicas: i64,
    start: i64,
    min_ready_seconds: i64,
    is_parallel: bool,
    /// None: pods change when somebody deletes them.
    partition: Option<i64>,
    history_limit: usize,
    current_replicas: i64,
}

impl StatefulSet {
    fn read(object: &Value) -> Option<StatefulSet> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            selector: PodSelector,
            replicas: Option<i64>,
            ordinals: Option<Ordinals>,
            min_ready_seconds: i64,
            pod_management_policy: String,
            update_strategy: Strategy,
            revision_history_limit: Option<usize>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Ordinals {
            start: i64,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Strategy {
            r#type: String,
            rolling_update: Option<Rolling>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Rolling {
            partition: Option<i64>,
        }
        let spec = Spec::deserialize(&object["spec"]).ok()?;
        let rolling = spec.update_strategy.rolling_update;
        Some(StatefulSet {
            meta: Meta::deserialize(&object["metadata"]).ok()?,
            selector: spec.selector,
            replicas: spec.replicas.unwrap_or(1).max(0),
            start: spec.ordinals.map_or(0, |ordinals| ordinals.start),
            min_ready_seconds: spec.min_ready_seconds,
            is_parallel: spec.pod_management_policy == "Parallel",
            partition: (spec.update_strategy.r#type != "OnDelete")
                .then(|| rolling.and_then(|r| r.partition).unwrap_or(0)),
            history_limit: spec.revision_history_limit.unwrap_or(10),
            current_replicas: object["status"]["currentReplicas"].as_i64().unwrap_or(0),
        })
    }

    /// The number behind the set's name in a pod's.
    fn ordinal(&self, pod: &Pod) -> Option<i64> {
        let number = pod.name.strip_prefix(&*self.meta.name)?.strip_prefix('-')?;
        number.parse().ok().filter(|n: &i64| *n >= 0 && n.to_string() == number)
    }
}

pub(super) async fn sync(shell: &Shell, key: &str) -> Next {
    let Some(stored) = shell.get("apps", "statefulsets", key) else { return Ok(None) };
    let object = stored.value();
    let Some(set) = StatefulSet::read(&object) else { return Ok(None) };
    let now = shell.api.now();
    let owner =
        Owner { kind: "StatefulSet", plural: "statefulsets", label: HASH, meta: &set.meta, object: &object };
    let (update, old) = history::current(shell, &owner).await?;
    let named = object["status"]["currentRevision"].as_str().unwrap_or_default();
    let current = old.iter().find(|revision| *revision.meta.name == *named).unwrap_or(&update);
    let (claims, plan, live) = shell.look(|world| {
        let pods = world.pods_for(&set.meta).filter(|pod| pod.owner.is_some() || set.ordinal(pod).is_some());
        let (own, claims) = claim::claim(&set.meta, &set.selector.0, pods);
        let live: Vec<String> =
            own.iter().filter_map(|pod| pod.labels.label(REVISION)).map(str::to_owned).collect();
        let names = (&*current.meta.name, &*update.meta.name);
        (claims, plan::plan(&set, own, names, now), live)
    });
    let reference = view::controller_ref("apps/v1", "StatefulSet", &set.meta);
    for change in &claims {
        shell.claim(("", "pods"), change, &reference).await?;
    }
    if !claims.is_empty() {
        return Ok(Some(now));
    }
    let result = carry_out(shell, &set, &object, &plan, (current, &update)).await;
    let status = status(&set, &object, &plan, (current, &update));
    if status != object["status"] {
        shell.write_status(RESOURCE, &set.meta, &status).await?;
    }
    result?;
    history::truncate(shell, &old, set.history_limit, |revision| {
        revision.meta.name == current.meta.name || live.iter().any(|name| **name == *revision.meta.name)
    })
    .await?;
    Ok(plan.next)
}

async fn carry_out(
    shell: &Shell,
    set: &StatefulSet,
    object: &Value,
    plan: &Plan,
    (current, update): (&Revision, &Revision),
) -> Result<(), ApiError> {
    for (ordinal, is_update) in &plan.create {
        let revision = if *is_update { update } else { current };
        create_claims(shell, set, object, *ordinal).await?;
        let pod = pod(set, object, revision, *ordinal);
        let name = format!("{}-{ordinal}", set.meta.name);
        let result = shell.create(("", "pods"), &set.meta.namespace, pod).await.map(|_| ());
        tell(shell, set, ("Create", "Pod", &name), &name, &result).await;
        result?;
    }
    for ordinal in &plan.pending {
        create_claims(shell, set, object, *ordinal).await?;
    }
    for (key, uid) in &plan.delete {
        let result = shell.delete(("", "pods"), key, uid, None).await;
        let name = super::shell::split(key).1;
        tell(shell, set, ("Delete", "Pod", name), name, &result).await;
        result?;
    }
    Ok(())
}

async fn tell(
    shell: &Shell,
    set: &StatefulSet,
    (verb, what, name): (&str, &str, &str),
    pod: &str,
    result: &Result<(), ApiError>,
) {
    let about = about("apps/v1", "StatefulSet", &set.meta);
    let owner = &set.meta.name;
    match (result, what) {
        (Ok(()), "Pod") => {
            let text = format!("{verb} Pod {pod} in StatefulSet {owner} successful");
            shell.tell(COMPONENT, &about, &format!("Successful{verb}"), text).await;
        }
        (Ok(()), _) => {
            let text = format!("{verb} Claim {name} Pod {pod} in StatefulSet {owner} success");
            shell.tell(COMPONENT, &about, &format!("Successful{verb}"), text).await;
        }
        (Err(error), _) if is_terminating(error) => {}
        (Err(error), "Pod") => {
            let text = format!("{verb} Pod {pod} in StatefulSet {owner} failed error: {error}");
            shell.warn(COMPONENT, &about, &format!("Failed{verb}"), text).await;
        }
        (Err(error), _) => {
            let text =
                format!("{verb} Claim {name} for Pod {pod} in StatefulSet {owner} failed error: {error}");
            shell.warn(COMPONENT, &about, &format!("Failed{verb}"), text).await;
        }
    }
}

/// Names of a pod's claims, by volume.
fn claims(set: &StatefulSet, object: &Value, ordinal: i64) -> Vec<(String, String)> {
    let templates = object["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    let named = templates.filter_map(|template| template["metadata"]["name"].as_str());
    named.map(|name| (name.to_owned(), format!("{name}-{}-{ordinal}", set.meta.name))).collect()
}

async fn create_claims(
    shell: &Shell,
    set: &StatefulSet,
    object: &Value,
    ordinal: i64,
) -> Result<(), ApiError> {
    let templates = object["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
    let pod = format!("{}-{ordinal}", set.meta.name);
    for (template, (_, name)) in templates.zip(claims(set, object, ordinal)) {
        let key = key_of(&set.meta.namespace, &name);
        if shell.get("", "persistentvolumeclaims", &key).is_some() {
            continue;
        }
        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": template["metadata"], "spec": template["spec"]});
        claim["metadata"]["name"] = json!(name);
        let labels = object["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
        for (key, value) in labels {
            claim["metadata"]["labels"][key] = value.clone();
        }
        let resource = ("", "persistentvolumeclaims");
        let result = shell.create(resource, &set.meta.namespace, claim).await.map(|_| ());
        tell(shell, set, ("Create", "Claim", &name), &pod, &result).await;
        result?;
    }
    Ok(())
}

/// The pod of an ordinal, as a revision has it.
fn pod(set: &StatefulSet, object: &Value, revision: &Revision, ordinal: i64) -> Value {
    let mut template = revision.data["spec"]["template"].clone();
    if let Some(template) = template.as_object_mut() {
        template.remove("$patch");
    }
    let name = format!("{}-{ordinal}", set.meta.name);
    let owner = view::controller_ref("apps/v1", "StatefulSet", &set.meta);
    let mut pod = view::pod_from_template(&template, owner);
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    pod["metadata"]["labels"][REVISION] = json!(&*revision.meta.name);
    pod["spec"]["hostname"] = json!(name);
    if let Some(service) = object["spec"]["serviceName"].as_str().filter(|s| !s.is_empty()) {
        pod["spec"]["subdomain"] = json!(service);
    }
    let claims = claims(set, object, ordinal);
    if !claims.is_empty() {
        let mut volumes: Vec<Value> = claims
            .iter()
            .map(|(volume, claim)| json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}))
            .collect();
        let others = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        let is_other = |volume: &Value| !claims.iter().any(|(name, _)| volume["name"] == name.as_str());
        volumes.extend(others.into_iter().filter(is_other));
        pod["spec"]["volumes"] = json!(volumes);
    }
    pod
}

fn status(
    set: &StatefulSet,
    object: &Value,
    plan: &Plan,
    (current, update): (&Revision, &Revision),
) -> Value {
    let counts = &plan.counts;
    let is_complete = set.partition.is_some()
        && [counts.updated, counts.ready, counts.replicas].iter().all(|count| *count == set.replicas);
    let (current_name, current_count) = match is_complete {
        true => (&update.meta.name, counts.updated),
        false => (&current.meta.name, counts.current),
    };
    let mut status = json!({
        "observedGeneration": set.meta.generation, "replicas": counts.replicas,
        "availableReplicas": counts.available,
        "currentRevision": &**current_name, "updateRevision": &*update.meta.name,
        "collisionCount": object["status"]["collisionCount"].as_i64().unwrap_or(0),
    });
    for (field, count) in [
        ("readyReplicas", counts.ready),
        ("currentReplicas", current_count),
        ("updatedReplicas", counts.updated),
    ] {
        if count > 0 {
            status[field] = json!(count);
        }
    }
    if let Some(conditions) = object["status"].get("conditions") {
        status["conditions"] = conditions.clone();
    }
    status
}

/// When the first of the ready pods becomes available.
fn next_available(set: &StatefulSet, pods: &[&Pod], now: Timestamp) -> Option<Timestamp> {
    let times = pods.iter().filter_map(|pod| pod.available_at(set.min_ready_seconds));
    times.filter(|at| *at > now).min()
}
