//! Namespaces on their way out: everything in them goes first.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::shell::{Next, Shell};
use super::view::{self, read_meta};
use crate::kinds::Kind;
use crate::server::{DeleteOptions, Part};
use crate::store::Selection;

const RESOURCE: (&str, &str) = ("", "namespaces");
/// The finalizer that stands for the content.
const FINALIZER: &str = "kubernetes";
/// Looked at again even if nothing is seen to go.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Type, and reason and message while all is well.
const CONDITIONS: &[(&str, &str, &str)] = &[
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// What is still there.
#[derive(Debug, Default, PartialEq)]
struct Remains {
    /// `pods.`, `deployments.apps`, and how many.
    content: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    faults: Vec<String>,
}

pub(super) async fn sync(shell: &Shell, name: &str) -> Next {
    let Some(stored) = shell.get("", "namespaces", name) else { return Ok(None) };
    let object = stored.value();
    let meta = read_meta(&stored);
    let has_content =
        object["spec"]["finalizers"].as_array().is_some_and(|f| f.iter().any(|f| f == FINALIZER));
    if !meta.is_deleting() || !has_content {
        return Ok(None);
    }
    let remains = empty(shell, name).await;
    let now = shell.api.now();
    let status = status(&object["status"], &remains, now);
    if status != object["status"] {
        shell.write_status(RESOURCE, &meta, &status).await?;
    }
    if !remains.content.is_empty() || !remains.faults.is_empty() {
        return Ok(now.checked_add(AGAIN).ok());
    }
    let change = |object: &mut Value| {
        if let Some(list) = object["spec"]["finalizers"].as_array_mut() {
            list.retain(|f| f != FINALIZER);
        }
    };
    shell.edit(RESOURCE, name, &meta.uid, Part::Finalize, &change).await?;
    Ok(None)
}

/// The kinds whose objects live in namespaces, once each.
fn kinds(shell: &Shell) -> Vec<Arc<Kind>> {
    let registry = shell.api.registry();
    let mut kinds: Vec<Arc<Kind>> = Vec::new();
    for kind in registry.kinds().filter(|kind| kind.namespaced && kind.allows("delete")) {
        let is_same = |k: &Arc<Kind>| k.storage_group == kind.storage_group && k.plural == kind.plural;
        if !kinds.iter().any(is_same) {
            kinds.push(kind.clone());
        }
    }
    kinds
}

/// Deletes all there is.
async fn empty(shell: &Shell, namespace: &str) -> Remains {
    let mut remains = Remains::default();
    let selection = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
    let options = DeleteOptions {
        write: shell.write.clone(),
        propagation: Some("Background".to_owned()),
        ..DeleteOptions::default()
    };
    for kind in kinds(shell) {
        if shell.api.list(&kind, &selection).is_empty() {
            continue;
        }
        if let Err(error) = shell.api.delete_collection(&kind, &selection, &options).await {
            remains.faults.push(error.to_string());
        }
        let left = shell.api.list(&kind, &selection);
        if left.is_empty() {
            continue;
        }
        remains.content.insert(format!("{}.{}", kind.plural, kind.group), left.len());
        for finalizer in left.iter().flat_map(|item| read_meta(item).finalizers) {
            *remains.finalizers.entry(finalizer.into()).or_insert(0) += 1;
        }
    }
    remains
}

fn status(old: &Value, remains: &Remains, now: Timestamp) -> Value {
    let mut status = old.clone();
    let list = |of: &BTreeMap<String, usize>, verb: &str| {
        let parts: Vec<String> =
            of.iter().map(|(what, count)| format!("{what} {verb} {count} resource instances")).collect();
        parts.join(", ")
    };
    for (type_, reason, message) in CONDITIONS {
        let failed = match *type_ {
            "NamespaceDeletionContentFailure" if !remains.faults.is_empty() => Some((
                "ContentDeletionFailed",
                format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    remains.faults.len(),
                    remains.faults.join(", ")
                ),
            )),
            "NamespaceContentRemaining" if !remains.content.is_empty() => Some((
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", list(&remains.content, "has")),
            )),
            "NamespaceFinalizersRemaining" if !remains.finalizers.is_empty() => Some((
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    list(&remains.finalizers, "in")
                ),
            )),
            _ => None,
        };
        let new = match failed {
            Some((reason, message)) => view::condition(type_, "True", reason, &message),
            None => view::condition(type_, "False", reason, message),
        };
        replace(&mut status, new, now);
    }
    status
}

/// In place: these conditions keep their order.
fn replace(status: &mut Value, mut new: Value, now: Timestamp) {
    let now = super::shell::time(now);
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == new["type"]) {
        Some(old) => {
            let is_same = old["status"] == new["status"];
            new["lastTransitionTime"] = if is_same { old["lastTransitionTime"].clone() } else { now };
            *old = new;
        }
        None => {
            new["lastTransitionTime"] = now;
            list.push(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_is_told() {
        let now = Timestamp::UNIX_EPOCH;
        let remains = Remains {
            content: BTreeMap::from([("pods.".to_owned(), 2), ("things.x.io".to_owned(), 1)]),
            finalizers: BTreeMap::from([("x.io/hold".to_owned(), 1)]),
            faults: Vec::new(),
        };
        let first = status(&json!({"phase": "Terminating"}), &remains, now);
        let text = |status: &Value, i: usize| status["conditions"][i]["message"].as_str().unwrap().to_owned();
        assert_eq!(
            text(&first, 3),
            "Some resources are remaining: pods. has 2 resource instances, things.x.io has 1 resource instances"
        );
        assert_eq!(
            text(&first, 4),
            "Some content in the namespace has finalizers remaining: x.io/hold in 1 resource instances"
        );
        assert_eq!(first["conditions"][0]["status"], "False");
        let later = Timestamp::from_second(60).unwrap();
        let last = status(&first, &Remains::default(), later);
        assert_eq!(text(&last, 3), "All content successfully removed");
        assert_eq!(last["conditions"][3]["lastTransitionTime"], "1970-01-01T00:01:00Z");
        assert_eq!(last["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(last["phase"], "Terminating");
    }
}
