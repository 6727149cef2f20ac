//! Making room: victims are marked, deleted and told, the last one after all others. Spec: scheduler-core 6.13.8.

use futures::stream::{FuturesUnordered, StreamExt};
use http::Method;
use jiff::Timestamp;
use koord_engine::engine::command::{Note, PreemptOrder, Subject};
use serde_json::json;

use super::Shared;
use super::api::{Failure, JSON, patiently, pod_path};
use super::status;

/// Carries the order out; the error is the first that came up.
pub(super) async fn preempt(shared: &Shared, order: &PreemptOrder) -> Result<(), String> {
    shared.check_lead()?;
    let Some((last, others)) = order.victims.split_last() else { return Ok(()) };
    let mut deletions: FuturesUnordered<_> =
        others.iter().map(|victim| evict(shared, order, victim)).collect();
    let mut first_failure = None;
    while let Some(result) = deletions.next().await {
        first_failure = first_failure.or(result.err());
    }
    match first_failure {
        Some(failure) => Err(failure.to_string()),
        None => evict(shared, order, last).await.map_err(|failure| failure.to_string()),
    }
}

async fn evict(shared: &Shared, order: &PreemptOrder, victim: &Subject) -> Result<(), Failure> {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": format!("{}: preempting to accommodate a higher priority pod", order.scheduler),
        "lastProbeTime": null,
        "lastTransitionTime": status::second(Timestamp::now()),
    });
    match status::write(shared, victim, json!({"conditions": [condition]})).await {
        Err(failure) if is_another(&failure) => return Ok(()),
        result => result?,
    }
    // Differs: the uid is a condition, so that a pod made again under the name of a victim is left alone.
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": victim.uid}});
    let (path, body) = (pod_path(&victim.key, ""), body.to_string().into_bytes());
    let deleted =
        patiently(Failure::is_passing, || shared.api.send(Method::DELETE, &path, JSON, body.clone())).await;
    match deleted {
        Err(failure) if is_another(&failure) => return Ok(()),
        result => result?,
    }
    tracing::info!(pod = %victim.key, preemptor = %order.preemptor.key, node = %order.node, "pod preempted");
    shared.notes.tell(Box::new(Note {
        about: victim.clone(),
        related: Some(order.preemptor.clone()),
        scheduler: order.scheduler.clone(),
        is_warning: false,
        reason: "Preempted",
        action: "Preempting",
        note: format!("Preempted by pod {} on node {}", order.preemptor.uid, order.node),
    }));
    Ok(())
}

/// The victim is gone, or another pod has its name.
fn is_another(failure: &Failure) -> bool {
    failure.is_gone() || failure.is_conflict()
}
