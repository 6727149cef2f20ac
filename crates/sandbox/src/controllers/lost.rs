//! Pods whose node is gone: after a while, so are they.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::shell::{Next, Shell, split};
use crate::server::{DeleteOptions, Part};

pub(super) async fn sync(shell: &Shell, key: &str) -> Next {
    let now = shell.api.now();
    let lost = shell.look(|world| {
        let pod = world.pods.get(key)?;
        if pod.node.is_empty() || world.nodes.contains_key(&*pod.node) {
            return None;
        }
        let since = *world.missing.entry(pod.node.clone()).or_insert(now);
        Some((pod.uid.clone(), since))
    });
    let Some((uid, since)) = lost else { return Ok(None) };
    let grace = SignedDuration::try_from(shell.options.lost_pod_grace_period).unwrap_or(SignedDuration::MAX);
    let due = since.checked_add(grace).unwrap_or(Timestamp::MAX);
    if due > now {
        return Ok(Some(due));
    }
    let change = |pod: &mut Value| {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        if !["Succeeded", "Failed"].contains(&phase) {
            pod["status"]["phase"] = json!("Failed");
            mark_disrupted(pod, ("DeletionByPodGC", "PodGC: node no longer exists"), now);
        }
    };
    if !shell.edit(("", "pods"), key, &uid, Part::Status, &change).await? {
        return Ok(None);
    }
    let kind = shell.api.kind("", "pods")?;
    let options = DeleteOptions {
        write: shell.write.clone(),
        grace_seconds: Some(0),
        uid: Some(uid.to_string()),
        ..DeleteOptions::default()
    };
    match shell.api.delete(&kind, split(key), &options).await {
        Err(error) if error.code != 404 && error.code != 409 => Err(error),
        _ => Ok(None),
    }
}

/// Notes on a pod why it is taken away.
pub(super) fn mark_disrupted(pod: &mut Value, (reason, message): (&str, &str), now: Timestamp) {
    let new = super::view::condition("DisruptionTarget", "True", reason, message);
    super::view::remove_condition(&mut pod["status"], "DisruptionTarget");
    super::view::set_condition(&mut pod["status"], new, &["lastTransitionTime"], now);
}
