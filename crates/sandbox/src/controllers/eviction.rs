//! NoExecute taints: pods that do not tolerate them go, at once or after a while.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, Taint, Toleration};
use koord_api::toleration::tolerates;
use serde::Deserialize;
use serde_json::Value;

use super::shell::{Next, Shell, split};
use super::view;
use crate::server::Part;

const COMPONENT: &str = "taint-eviction-controller";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Box<str>,
    tolerations: Vec<Toleration>,
}

/// How long a pod may stay.
#[derive(Debug, PartialEq, Eq)]
enum Stay {
    Forever,
    Seconds(i64),
}

pub(super) async fn sync(shell: &Shell, key: &str) -> Next {
    let Some(stored) = shell.get("", "pods", key) else { return Ok(None) };
    let meta = view::read_meta(&stored);
    let Some(pod) = view::read::<Pod>(&stored) else { return Ok(None) };
    let now = shell.api.now();
    let (taints, since) = shell.look(|world| {
        let taints = world.nodes.get(&*pod.spec.node_name).map(|node| node.taints.clone());
        (taints.unwrap_or_default(), world.evictions.get(key).copied())
    });
    let stay = match meta.is_deleting() {
        true => Stay::Forever,
        false => stay(&taints, &pod.spec.tolerations),
    };
    let seconds = match stay {
        Stay::Forever => {
            if since.is_some() {
                shell.look(|world| world.evictions.remove(key));
                if !meta.is_deleting() {
                    tell(shell, key, "Cancelling deletion of Pod").await;
                }
            }
            return Ok(None);
        }
        Stay::Seconds(seconds) => seconds,
    };
    let since = since.unwrap_or(now);
    let due = since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    if due > now {
        shell.look(|world| world.evictions.insert(key.into(), since));
        return Ok(Some(due));
    }
    tell(shell, key, "Marking for deletion Pod").await;
    let change = |pod: &mut Value| {
        let reason = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        super::lost::mark_disrupted(pod, reason, now);
    };
    shell.edit(("", "pods"), key, &meta.uid, Part::Status, &change).await?;
    shell.delete(("", "pods"), key, &meta.uid, None).await?;
    shell.look(|world| world.evictions.remove(key));
    Ok(None)
}

async fn tell(shell: &Shell, key: &str, what: &str) {
    let (namespace, name) = split(key);
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    };
    shell.tell(COMPONENT, &about, "TaintManagerEviction", format!("{what} {key}")).await;
}

/// The shortest of what the tolerations used allow.
fn stay(taints: &[Taint], tolerations: &[Toleration]) -> Stay {
    let mut shortest: Option<i64> = None;
    for taint in taints.iter().filter(|taint| taint.effect == "NoExecute") {
        let Some(toleration) = tolerations.iter().find(|t| tolerates(t, taint)) else {
            return Stay::Seconds(0);
        };
        if let Some(seconds) = toleration.toleration_seconds {
            shortest = Some(shortest.unwrap_or(i64::MAX).min(seconds.max(0)));
        }
    }
    shortest.map_or(Stay::Forever, Stay::Seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, seconds: Option<i64>) -> Toleration {
        let some = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
        Toleration {
            key: some(key),
            operator: some("Exists"),
            toleration_seconds: seconds,
            ..Toleration::default()
        }
    }

    #[test]
    fn the_shortest_toleration_counts() {
        let taint =
            |key: &str, effect: &str| Taint { key: key.into(), effect: effect.into(), ..Taint::default() };
        let gone = vec![taint("a", "NoExecute"), taint("b", "NoExecute"), taint("c", "NoSchedule")];
        for (name, tolerations, want) in [
            ("none", vec![], Stay::Seconds(0)),
            ("one of two", vec![toleration("a", Some(300))], Stay::Seconds(0)),
            ("both", vec![toleration("a", Some(300)), toleration("b", Some(60))], Stay::Seconds(60)),
            ("one for ever", vec![toleration("a", None), toleration("b", Some(60))], Stay::Seconds(60)),
            ("all", vec![toleration("", None)], Stay::Forever),
            ("negative is at once", vec![toleration("", Some(-3))], Stay::Seconds(0)),
        ] {
            assert_eq!(stay(&gone, &tolerations), want, "{name}");
        }
        assert_eq!(stay(&gone[2..], &[]), Stay::Forever, "other effects do not drive out");
    }
}
