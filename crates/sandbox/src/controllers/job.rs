//! Jobs: so many pods that succeed.
//!
//! `plan` decides, pure. Here is the view it works on, and the shell.
//!
//! Differs: podFailurePolicy, successPolicy and backoffLimitPerIndex are kept but not acted upon.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::claim;
use super::pod::{COMPLETION_INDEX, JOB_TRACKING, Phase, Pod};
use super::recorder::about;
use super::shell::{Next, Shell, split};
use super::view::{self, Meta, PodSelector, find_condition};
use crate::kinds::meta;
use crate::server::Part;
use crate::status::ApiError;

mod indexes;
mod plan;

use plan::Plan;

const COMPONENT: &str = "job-controller";
const RESOURCE: (&str, &str) = ("batch", "jobs");
const INDEX_ENV: &str = "JOB_COMPLETION_INDEX";
/// A generated name is cut to this.
const GENERATED_BASE_MAX: usize = 58;

/// Failures in a row, kept between passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
    last: Option<Timestamp>,
}

/// A Job, checked.
#[derive(Debug, Default)]
struct Job {
    meta: Meta,
    selector: PodSelector,
    parallelism: i64,
    completions: Option<i64>,
    is_indexed: bool,
    is_suspended: bool,
    backoff_limit: i64,
    deadline_seconds: Option<i64>,
    ttl_seconds: Option<i64>,
    restarts_in_place: bool,
    replaces_failed_only: bool,
    /// Somebody else's.
    is_foreign: bool,
    start_time: Option<Timestamp>,
    succeeded: i64,
    failed: i64,
    completed_indexes: String,
    uncounted_succeeded: HashSet<Box<str>>,
    uncounted_failed: HashSet<Box<str>>,
    status: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    selector: PodSelector,
    parallelism: Option<i64>,
    completions: Option<i64>,
    completion_mode: String,
    suspend: bool,
    backoff_limit: Option<i64>,
    active_deadline_seconds: Option<i64>,
    ttl_seconds_after_finished: Option<i64>,
    pod_replacement_policy: String,
    pod_failure_policy: Option<serde::de::IgnoredAny>,
    managed_by: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    start_time: Option<Timestamp>,
    succeeded: i64,
    failed: i64,
    completed_indexes: String,
    uncounted_terminated_pods: Uncounted,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Uncounted {
    succeeded: HashSet<Box<str>>,
    failed: HashSet<Box<str>>,
}

impl Job {
    fn read(object: &Value) -> Option<Job> {
        let spec = Spec::deserialize(&object["spec"]).ok()?;
        let status = match &object["status"] {
            Value::Null => Status::default(),
            status => Status::deserialize(status).ok()?,
        };
        Some(Job {
            meta: Meta::deserialize(&object["metadata"]).ok()?,
            selector: spec.selector,
            parallelism: spec.parallelism.unwrap_or(1),
            completions: spec.completions,
            is_indexed: spec.completion_mode == "Indexed",
            is_suspended: spec.suspend,
            backoff_limit: spec.backoff_limit.unwrap_or(6),
            deadline_seconds: spec.active_deadline_seconds,
            ttl_seconds: spec.ttl_seconds_after_finished,
            restarts_in_place: object["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure",
            replaces_failed_only: spec.pod_replacement_policy == "Failed"
                || spec.pod_failure_policy.is_some(),
            is_foreign: spec.managed_by.is_some_and(|by| by != "kubernetes.io/job-controller"),
            start_time: status.start_time,
            succeeded: status.succeeded,
            failed: status.failed,
            completed_indexes: status.completed_indexes,
            uncounted_succeeded: status.uncounted_terminated_pods.succeeded,
            uncounted_failed: status.uncounted_terminated_pods.failed,
            status: match &object["status"] {
                Value::Null => json!({}),
                status => status.clone(),
            },
        })
    }

    fn is_failed(&self, pod: &Pod) -> bool {
        let is_leaving = pod.deleting.is_some() && pod.phase != Phase::Succeeded;
        pod.phase == Phase::Failed || (!self.replaces_failed_only && is_leaving)
    }

    /// The pod has an index that is wanted, or needs none.
    fn counts_index(&self, pod: &Pod) -> bool {
        !self.is_indexed || pod.index.is_some_and(|index| index >= 0 && index < self.completions.unwrap_or(0))
    }

    /// When it ended.
    fn finished(&self) -> Option<Timestamp> {
        let ends = ["Complete", "Failed"].into_iter().filter_map(|type_| find_condition(&self.status, type_));
        let end = ends.into_iter().find(|c| c["status"] == "True")?;
        end["lastTransitionTime"].as_str()?.parse().ok()
    }
}

pub(super) async fn sync(shell: &Shell, key: &str) -> Next {
    let Some(stored) = shell.get("batch", "jobs", key) else {
        shell.look(|world| world.job_backoffs.remove(key));
        free_strangers(shell, key, None).await?;
        return Ok(None);
    };
    let object = stored.value();
    let Some(job) = Job::read(&object).filter(|job| !job.is_foreign) else { return Ok(None) };
    if job.start_time.is_none() {
        // Perhaps in the place of another of its name.
        free_strangers(shell, key, Some(stored.uid())).await?;
    }
    let now = shell.api.now();
    if let Some(finished) = job.finished() {
        shell.look(|world| world.job_backoffs.remove(key));
        return expire(shell, &job, finished, now).await;
    }
    let (claims, plan) = shell.look(|world| {
        let backoff = world.job_backoffs.get(key).copied().unwrap_or_default();
        let (own, claims) = claim::claim(&job.meta, &job.selector.0, world.pods_for(&job.meta));
        (claims, plan::plan(&job, &own, &backoff, now))
    });
    let owner = view::controller_ref("batch/v1", "Job", &job.meta);
    for change in &claims {
        shell.claim(("", "pods"), change, &owner).await?;
    }
    if !claims.is_empty() {
        return Ok(Some(now));
    }
    carry_out(shell, &job, &object, owner, plan, now).await
}

/// Makes and deletes pods, counts those that ended, and ends the Job.
async fn carry_out(
    shell: &Shell,
    job: &Job,
    object: &Value,
    owner: Value,
    plan: Plan,
    now: Timestamp,
) -> Next {
    let about = about("batch/v1", "Job", &job.meta);
    let pods = plan.create.iter().map(|index| pod(job, &object["spec"]["template"], &owner, *index));
    let result = shell.create_pods(COMPONENT, &about, &job.meta.namespace, pods.collect()).await;
    for (key, uid, is_let_go) in &plan.delete {
        if *is_let_go {
            release(shell, key, uid).await?;
        }
        shell.delete_pod(COMPONENT, &about, (key, uid)).await?;
    }
    if plan.status != object["status"] {
        shell.write_status(RESOURCE, &job.meta, &plan.status).await?;
    }
    shell.look(|world| world.job_backoffs.insert(job.meta.key().into(), plan.backoff));
    for (reason, text) in &plan.events {
        shell.tell(COMPONENT, &about, reason, (*text).to_owned()).await;
    }
    // Pods that vanished were let go by somebody.
    let known: HashSet<Box<str>> = shell.look(|world| {
        let pods = world.pods.owned_by(&job.meta.uid);
        pods.filter(|pod| pod.is_tracked).map(|pod| pod.uid.clone()).collect()
    });
    let noted = job.uncounted_succeeded.iter().chain(&job.uncounted_failed);
    let mut released: HashSet<Box<str>> = noted.filter(|uid| !known.contains(*uid)).cloned().collect();
    for (key, uid) in &plan.release {
        release(shell, key, uid).await?;
        released.insert(uid.clone());
    }
    let settled = plan::settle(&plan.status, &released, plan.finish.as_ref(), now);
    if settled != plan.status {
        shell.write_status(RESOURCE, &job.meta, &settled).await?;
        let is_over = ["Complete", "Failed"].iter().any(|type_| find_condition(&settled, type_).is_some());
        if let Some(end) = plan.finish.as_ref().filter(|_| is_over) {
            match end.is_success {
                true => shell.tell(COMPONENT, &about, "Completed", "Job completed".to_owned()).await,
                false => shell.warn(COMPONENT, &about, &end.reason, end.message.clone()).await,
            }
        }
    }
    match result {
        Err(error) if !super::shell::is_terminating(&error) => Err(error),
        _ => Ok(plan.next),
    }
}

/// Takes the tracking finalizer off a pod.
async fn release(shell: &Shell, key: &str, uid: &str) -> Result<(), ApiError> {
    let change = |pod: &mut Value| {
        let fields = meta::of_mut(pod);
        let Some(list) = fields.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
        list.retain(|f| f != JOB_TRACKING);
        if list.is_empty() {
            fields.remove("finalizers");
        }
    };
    shell.edit(("", "pods"), key, uid, Part::Main, &change).await.map(|_| ())
}

/// Pods of a Job that is gone have nobody to let them go.
async fn free_strangers(shell: &Shell, key: &str, uid: Option<&str>) -> Result<(), ApiError> {
    let (namespace, name) = split(key);
    let strangers: Vec<(String, Box<str>)> = shell.look(|world| {
        let pods = world.pods.in_namespace(namespace).filter(|pod| pod.is_tracked);
        let strangers = pods.filter(|pod| {
            let owner = pod.owner.as_deref();
            owner.is_some_and(|o| *o.kind == *"Job" && *o.name == *name && Some(&*o.uid) != uid)
        });
        strangers.map(|pod| (pod.key(), pod.uid.clone())).collect()
    });
    for (key, uid) in strangers {
        release(shell, &key, &uid).await?;
    }
    Ok(())
}

/// A Job that ended goes after its time to live.
async fn expire(shell: &Shell, job: &Job, finished: Timestamp, now: Timestamp) -> Next {
    let Some(ttl) = job.ttl_seconds.filter(|_| !job.meta.is_deleting()) else { return Ok(None) };
    let due = finished.checked_add(SignedDuration::from_secs(ttl)).unwrap_or(Timestamp::MAX);
    if due > now {
        return Ok(Some(due));
    }
    shell.delete(RESOURCE, &job.meta.key(), &job.meta.uid, Some("Foreground")).await?;
    Ok(None)
}

/// A pod of the Job, for an index if it has them.
fn pod(job: &Job, template: &Value, owner: &Value, index: Option<i64>) -> Value {
    let mut pod = view::pod_from_template(template, owner.clone());
    let mut finalizers = pod["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|f| f == JOB_TRACKING) {
        finalizers.push(json!(JOB_TRACKING));
    }
    pod["metadata"]["finalizers"] = json!(finalizers);
    pod["metadata"]["generateName"] = json!(view::pod_prefix(&job.meta.name));
    let Some(index) = index else { return pod };
    let suffix = format!("-{index}-");
    let mut base: &str = &job.meta.name;
    while base.len() + suffix.len() > GENERATED_BASE_MAX {
        base = &base[..base.len() - 1];
    }
    pod["metadata"]["generateName"] = json!(format!("{base}{suffix}"));
    for map in ["annotations", "labels"] {
        pod["metadata"][map][COMPLETION_INDEX] = json!(index.to_string());
    }
    pod["spec"]["hostname"] = json!(format!("{}-{index}", job.meta.name));
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            add_index_env(container);
        }
    }
    pod
}

fn add_index_env(container: &mut Value) {
    if !container["env"].is_array() {
        container["env"] = json!([]);
    }
    let Some(env) = container["env"].as_array_mut() else { return };
    if !env.iter().any(|variable| variable["name"] == INDEX_ENV) {
        let path = format!("metadata.labels['{COMPLETION_INDEX}']");
        env.push(json!({"name": INDEX_ENV, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
    }
}
