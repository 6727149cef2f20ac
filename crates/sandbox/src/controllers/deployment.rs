//! Deployments: from one ReplicaSet to the next, without a gap.
//!
//! `rollout` decides what becomes of the ReplicaSets, `status` what users are told; both are pure.
//! Here is the view they share, and the shell.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::claim::Change;
use super::hash;
use super::recorder::about;
use super::replicaset::ReplicaSet;
use super::shell::{Next, Shell, is_terminating};
use super::view::{self, IntOrPercent, Meta, PodSelector};
use super::world::World;
use crate::server::Part;
use crate::status::ApiError;

mod rollout;
mod status;

use rollout::{Plan, Step};

const COMPONENT: &str = "deployment-controller";
const RESOURCE: (&str, &str) = ("apps", "deployments");
const SETS: (&str, &str) = ("apps", "replicasets");

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// What stands for "no limit" in a deadline or a history length.
const UNLIMITED: i64 = i32::MAX as i64;

/// A Deployment, checked.
#[derive(Clone, Debug)]
struct Deployment {
    meta: Meta,
    replicas: i64,
    min_ready_seconds: i64,
    is_paused: bool,
    strategy: Strategy,
    /// Seconds without progress before it counts as stuck.
    deadline: Option<i64>,
    history_limit: Option<i64>,
    selector: PodSelector,
    /// As `ReplicaSet::template`.
    template_digest: u64,
    spec: Value,
    status: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    Recreate,
    /// Pods above and below the wanted number, resolved.
    Rolling {
        surge: i64,
        unavailable: i64,
    },
}

impl Deployment {
    fn read(object: &Value) -> Option<Deployment> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            replicas: Option<i64>,
            min_ready_seconds: i64,
            paused: bool,
            strategy: StrategySpec,
            progress_deadline_seconds: Option<i64>,
            revision_history_limit: Option<i64>,
            selector: PodSelector,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct StrategySpec {
            r#type: String,
            rolling_update: Option<Rolling>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Rolling {
            max_surge: Option<IntOrPercent>,
            max_unavailable: Option<IntOrPercent>,
        }
        let spec = Spec::deserialize(&object["spec"]).ok()?;
        let replicas = spec.replicas.unwrap_or(1);
        let rolling = spec.strategy.rolling_update.unwrap_or_default();
        let strategy = match spec.strategy.r#type.as_str() {
            "Recreate" => Strategy::Recreate,
            _ => fenceposts(rolling.max_surge.as_ref(), rolling.max_unavailable.as_ref(), replicas),
        };
        Some(Deployment {
            meta: Meta::deserialize(&object["metadata"]).ok()?,
            replicas,
            min_ready_seconds: spec.min_ready_seconds,
            is_paused: spec.paused,
            strategy,
            deadline: spec.progress_deadline_seconds.filter(|seconds| *seconds != UNLIMITED),
            history_limit: spec.revision_history_limit.filter(|limit| *limit != UNLIMITED),
            selector: spec.selector,
            template_digest: hash::digest(&object["spec"]["template"]),
            spec: object["spec"].clone(),
            status: object["status"].clone(),
        })
    }

    fn max_surge(&self) -> i64 {
        match self.strategy {
            Strategy::Rolling { surge, .. } => surge,
            Strategy::Recreate => 0,
        }
    }

    fn max_unavailable(&self) -> i64 {
        match self.strategy {
            Strategy::Rolling { unavailable, .. } => unavailable.min(self.replicas),
            Strategy::Recreate => 0,
        }
    }

    fn number(&self, field: &str) -> i64 {
        self.status[field].as_i64().unwrap_or(0)
    }
}

/// How far a rollout may go above and below; one of them moves, or nothing would.
fn fenceposts(surge: Option<&IntOrPercent>, unavailable: Option<&IntOrPercent>, replicas: i64) -> Strategy {
    let resolve = |value: Option<&IntOrPercent>, up| value.and_then(|v| v.of(replicas, up)).unwrap_or(0);
    match (resolve(surge, true), resolve(unavailable, false)) {
        (0, 0) => Strategy::Rolling { surge: 0, unavailable: 1 },
        (surge, unavailable) => Strategy::Rolling { surge, unavailable },
    }
}

pub(super) async fn sync(shell: &Shell, key: &str) -> Next {
    let Some(stored) = shell.get(RESOURCE.0, RESOURCE.1, key) else { return Ok(None) };
    let Some(deployment) = Deployment::read(&stored.value()) else { return Ok(None) };
    let now = shell.api.now();
    if deployment.selector.0.is_everything() {
        return refuse_everything(shell, &deployment).await;
    }
    let (sets, claims, has_old_pods) = shell.look(|world| snapshot(&deployment, world));
    if !claims.is_empty() {
        let owner = view::controller_ref("apps/v1", "Deployment", &deployment.meta);
        for change in &claims {
            shell.claim(SETS, change, &owner).await?;
        }
        return Ok(Some(now));
    }
    let plan = rollout::plan(&deployment, sets, &has_old_pods, now);
    carry_out(shell, &deployment, plan, now).await
}

async fn refuse_everything(shell: &Shell, deployment: &Deployment) -> Next {
    let text = "This deployment is selecting all pods. A non-empty selector is required.";
    let about = about("apps/v1", "Deployment", &deployment.meta);
    shell.warn(COMPONENT, &about, "SelectingAll", text.to_owned()).await;
    if deployment.number("observedGeneration") < deployment.meta.generation {
        let mut status = deployment.status.clone();
        status["observedGeneration"] = json!(deployment.meta.generation);
        shell.write_status(RESOURCE, &deployment.meta, &status).await?;
    }
    Ok(None)
}

/// UIDs of ReplicaSets that still have pods.
type Occupied = Vec<Box<str>>;

/// The Deployment's ReplicaSets, those that must change hands, and which still have pods.
fn snapshot(deployment: &Deployment, world: &World) -> (Vec<ReplicaSet>, Vec<Change>, Occupied) {
    let (mut own, mut claims) = (Vec::new(), Vec::new());
    let meta = &deployment.meta;
    for set in world.sets_in(&meta.namespace) {
        let change = |adopts| Change { key: set.meta.key(), uid: set.meta.uid.clone(), adopts };
        let controller = set.meta.controller().map(|owner| &owner.uid);
        let is_own = controller == Some(&meta.uid);
        if !is_own && controller.is_some() {
            continue;
        }
        match (is_own, deployment.selector.0.matches(&set.meta.labels)) {
            (true, true) => own.push(set.clone()),
            (true, false) if !meta.is_deleting() => claims.push(change(false)),
            (false, true) if !meta.is_deleting() && !set.meta.is_deleting() => claims.push(change(true)),
            _ => {}
        }
    }
    let is_occupied = |set: &&ReplicaSet| world.pods.owned_by(&set.meta.uid).any(|pod| !pod.is_terminal());
    let occupied = own.iter().filter(is_occupied).map(|set| set.meta.uid.clone()).collect();
    (own, claims, occupied)
}

async fn carry_out(shell: &Shell, deployment: &Deployment, plan: Plan, now: Timestamp) -> Next {
    let about = about("apps/v1", "Deployment", &deployment.meta);
    for step in &plan.steps {
        match step {
            Step::Create { set, replicas } => create(shell, deployment, set, *replicas, now).await?,
            Step::Annotate { key, uid, annotations, min_ready_seconds } => {
                let change = |object: &mut Value| {
                    object["metadata"]["annotations"] = json!(annotations);
                    object["spec"]["minReadySeconds"] = json!(min_ready_seconds);
                };
                shell.edit(SETS, key, uid, Part::Main, &change).await?;
            }
            Step::Scale { key, uid, from, to } => {
                let (desired, max) = (deployment.replicas, deployment.replicas + deployment.max_surge());
                let change = |object: &mut Value| {
                    object["spec"]["replicas"] = json!(to);
                    object["metadata"]["annotations"][DESIRED_REPLICAS] = json!(desired.to_string());
                    object["metadata"]["annotations"][MAX_REPLICAS] = json!(max.to_string());
                };
                let is_done = shell.edit(SETS, key, uid, Part::Main, &change).await?;
                if is_done && from != to {
                    let direction = if from < to { "up" } else { "down" };
                    let name = super::shell::split(key).1;
                    let text = format!("Scaled {direction} replica set {name} from {from} to {to}");
                    shell.tell(COMPONENT, &about, "ScalingReplicaSet", text).await;
                }
            }
            Step::Delete { key, uid } => shell.delete(SETS, key, uid, Some("Background")).await?,
        }
    }
    let is_same = plan.status == deployment.status
        && plan.revision.as_deref().is_none_or(|r| deployment.meta.annotation(REVISION) == Some(r));
    if !is_same {
        let change = |object: &mut Value| {
            object["status"] = plan.status.clone();
            if let Some(revision) = &plan.revision {
                object["metadata"]["annotations"][REVISION] = json!(revision);
            }
        };
        shell.edit(RESOURCE, &deployment.meta.key(), &deployment.meta.uid, Part::Status, &change).await?;
    }
    Ok(plan.next)
}

/// Creates the new ReplicaSet; a name that is taken by another template is a collision.
async fn create(
    shell: &Shell,
    deployment: &Deployment,
    set: &Value,
    replicas: i64,
    now: Timestamp,
) -> Result<(), ApiError> {
    let about = about("apps/v1", "Deployment", &deployment.meta);
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let error = match shell.create(SETS, &deployment.meta.namespace, set.clone()).await {
        Ok(_) => {
            if replicas > 0 {
                let text = format!("Scaled up replica set {name} from 0 to {replicas}");
                shell.tell(COMPONENT, &about, "ScalingReplicaSet", text).await;
            }
            return Ok(());
        }
        Err(error) => error,
    };
    if error.reason == "AlreadyExists" {
        let collisions = deployment.status["collisionCount"].as_i64().unwrap_or(0) + 1;
        let mut status = deployment.status.clone();
        status["collisionCount"] = json!(collisions);
        shell.write_status(RESOURCE, &deployment.meta, &status).await?;
    } else if !is_terminating(&error) {
        let text = format!("Failed to create new replica set {}: {error}", crate::kinds::quote(name));
        if deployment.deadline.is_some() {
            let mut status = deployment.status.clone();
            let new = view::condition("Progressing", "False", "ReplicaSetCreateError", &text);
            view::set_condition(&mut status, new, status::TIMES, now);
            shell.write_status(RESOURCE, &deployment.meta, &status).await?;
        }
        shell.warn(COMPONENT, &about, "ReplicaSetCreateError", text).await;
    }
    Err(error)
}

/// When a Deployment that makes no progress counts as stuck.
fn deadline(since: Option<Timestamp>, seconds: i64) -> Option<Timestamp> {
    since.and_then(|since| since.checked_add(SignedDuration::from_secs(seconds)).ok())
}

#[cfg(test)]
mod tests;
