//! Patches of a pod's status: condition and nomination.

use http::Method;
use jiff::Timestamp;
use koord_engine::engine::command::{StatusPatch, Subject};
use serde_json::{Value, json};

use super::Shared;
use super::api::{Failure, STRATEGIC, patiently, pod_path};

/// Writes what the engine says of a pod that waits. What fails for good is let go: the next attempt says it again.
pub(super) async fn patch(shared: &Shared, patch: &StatusPatch) {
    if shared.check_lead().is_err() {
        return;
    }
    let mut status = json!({});
    if let Some(condition) = &patch.condition {
        let mut row = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": condition.reason,
            "message": condition.message,
            "lastProbeTime": null,
        });
        // Merged by type: what is left out stays, and the time of a transition is that of a changed status.
        if condition.is_new {
            row["lastTransitionTime"] = second(Timestamp::now()).into();
        }
        if condition.observed_generation > 0 {
            row["observedGeneration"] = condition.observed_generation.into();
        }
        status["conditions"] = json!([row]);
    }
    if let Some(node) = &patch.nominated {
        status["nominatedNodeName"] = nomination(node);
    }
    if let Err(failure) = write(shared, &patch.pod, status).await
        && !failure.is_gone()
    {
        tracing::warn!(pod = %patch.pod.key, error = %failure, "pod status could not be written");
    }
}

/// Merges into the status of exactly this pod.
pub(super) async fn write(shared: &Shared, pod: &Subject, status: Value) -> Result<(), Failure> {
    let body = json!({"metadata": {"uid": pod.uid}, "status": status}).to_string().into_bytes();
    let path = pod_path(&pod.key, "/status");
    patiently(Failure::is_passing, || shared.api.send(Method::PATCH, &path, STRATEGIC, body.clone())).await
}

/// Empty clears it.
fn nomination(node: &str) -> Value {
    if node.is_empty() { Value::Null } else { node.into() }
}

/// A time as conditions have it.
pub(super) fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
