//! The garbage collector: what becomes of objects whose owners go.
//!
//! An object woken here either lost an owner (or may have: the live owner is asked for, so a stale
//! cache deletes nothing), or is an owner on its way out that waits for its dependents.

use std::sync::Arc;

use serde_json::{Value, json};

use super::recorder::about;
use super::shell::{Next, Shell};
use super::view::{Meta, Owner, read_meta};
use super::world::ObjectId;
use crate::kinds::meta::{self, FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::kinds::{Kind, Registry};
use crate::server::Part;
use crate::status::ApiError;
use crate::store::Stored;

const COMPONENT: &str = "garbage-collector-controller";

/// What an owner reference points to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tie {
    /// The owner is there and stays.
    Solid,
    /// There is no such owner.
    Dangling,
    /// The owner goes once this object is gone.
    Waiting,
}

/// What becomes of an object, given its ties.
#[derive(Debug, PartialEq)]
enum Fate {
    Stay,
    /// Owners, by UID, to be forgotten.
    Loosen(Vec<Box<str>>),
    /// With this propagation policy.
    Delete(&'static str),
}

pub(super) async fn sync(shell: &Shell, id: &ObjectId) -> Next {
    let Some((kind, stored)) = shell.find(id) else { return Ok(None) };
    let meta = read_meta(&stored);
    if meta.is_deleting() {
        if meta.has_finalizer(FINALIZER_ORPHAN) {
            orphan_dependents(shell, id, &meta).await?;
        } else if meta.has_finalizer(FINALIZER_FOREGROUND) {
            delete_dependents(shell, id, &meta).await?;
        }
        return Ok(None);
    }
    if meta.owner_references.is_empty() {
        return Ok(None);
    }
    let mut ties = Vec::new();
    let registry = shell.api.registry();
    for owner in &meta.owner_references {
        match tie(shell, &registry, &kind, &meta, owner)? {
            Some(tie) => ties.push((owner.uid.clone(), tie)),
            None => return refuse_namespaced_owner(shell, &kind, &meta, owner).await,
        }
    }
    let has_dependents = shell.look(|world| world.graph.dependents(&meta.uid).next().is_some());
    match fate(&ties, has_dependents, &meta) {
        Fate::Stay => {}
        Fate::Loosen(uids) => loosen(shell, id, &meta.uid, &uids).await?,
        Fate::Delete(policy) => {
            if policy == "Foreground" {
                unblock(shell, id, &meta).await?;
            }
            delete(shell, &kind, &stored, policy).await?;
        }
    }
    Ok(None)
}

/// Asks for the live owner. None when a cluster-scoped object names a namespaced owner.
fn tie(
    shell: &Shell,
    registry: &Registry,
    kind: &Kind,
    meta: &Meta,
    owner: &Owner,
) -> Result<Option<Tie>, ApiError> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let found = registry.find_kind(group, version, &owner.kind);
    // A kind that is not served may come back: its objects are not known to be gone.
    let owner_kind = found.ok_or_else(ApiError::no_such_path)?;
    if owner_kind.namespaced && !kind.namespaced {
        return Ok(None);
    }
    let namespace = if owner_kind.namespaced { &*meta.namespace } else { "" };
    let Ok(live) = shell.api.get(owner_kind, namespace, &owner.name) else {
        return Ok(Some(Tie::Dangling));
    };
    if live.uid() != &*owner.uid {
        return Ok(Some(Tie::Dangling));
    }
    let live = read_meta(&live);
    let waits = live.is_deleting() && live.has_finalizer(FINALIZER_FOREGROUND);
    Ok(Some(if waits { Tie::Waiting } else { Tie::Solid }))
}

fn fate(ties: &[(Box<str>, Tie)], has_dependents: bool, meta: &Meta) -> Fate {
    let loose: Vec<Box<str>> =
        ties.iter().filter(|(_, tie)| *tie != Tie::Solid).map(|(uid, _)| uid.clone()).collect();
    if loose.is_empty() {
        return Fate::Stay;
    }
    if loose.len() < ties.len() {
        return Fate::Loosen(loose);
    }
    let is_awaited = ties.iter().any(|(_, tie)| *tie == Tie::Waiting);
    if (is_awaited && has_dependents) || meta.has_finalizer(FINALIZER_FOREGROUND) {
        return Fate::Delete("Foreground");
    }
    match meta.has_finalizer(FINALIZER_ORPHAN) {
        true => Fate::Delete("Orphan"),
        false => Fate::Delete("Background"),
    }
}

async fn refuse_namespaced_owner(shell: &Shell, kind: &Kind, meta: &Meta, owner: &Owner) -> Next {
    let about = about(&kind.api_version(), &kind.kind, meta);
    let text = format!(
        "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {}",
        owner.api_version,
        owner.kind,
        meta.namespace,
        owner.name,
        owner.uid,
        crate::kinds::quote(&meta.namespace)
    );
    shell.warn(COMPONENT, &about, "OwnerRefInvalidNamespace", text).await;
    Ok(None)
}

async fn delete(shell: &Shell, kind: &Arc<Kind>, stored: &Stored, policy: &str) -> Result<(), ApiError> {
    let resource = (kind.group.as_ref(), kind.plural.as_ref());
    shell.delete(resource, stored.key(), stored.uid(), Some(policy)).await
}

/// Takes owners off an object.
async fn loosen(shell: &Shell, id: &ObjectId, uid: &str, owners: &[Box<str>]) -> Result<(), ApiError> {
    let change = |object: &mut Value| {
        let fields = meta::of_mut(object);
        let Some(list) = fields.get_mut("ownerReferences").and_then(Value::as_array_mut) else { return };
        list.retain(|o| !owners.iter().any(|uid| o["uid"] == **uid));
        if list.is_empty() {
            fields.remove("ownerReferences");
        }
    };
    let resource = (&*id.resource.group, &*id.resource.plural);
    shell.edit(resource, &id.key, uid, Part::Main, &change).await.map(|_| ())
}

/// Where an object and one of its dependents both wait, neither may block the other for ever.
async fn unblock(shell: &Shell, id: &ObjectId, meta: &Meta) -> Result<(), ApiError> {
    let is_circle = shell.look(|world| {
        let dependents: Vec<ObjectId> = world.graph.dependents(&meta.uid).map(|(id, _)| id.clone()).collect();
        dependents.iter().any(|dependent| world.graph.is_waiting(dependent))
    });
    if !is_circle {
        return Ok(());
    }
    let change = |object: &mut Value| {
        let owners = meta::of_mut(object).get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            owner["blockOwnerDeletion"] = json!(false);
        }
    };
    let resource = (&*id.resource.group, &*id.resource.plural);
    shell.edit(resource, &id.key, &meta.uid, Part::Main, &change).await.map(|_| ())
}

/// Lets go of all dependents, and then of the owner.
async fn orphan_dependents(shell: &Shell, id: &ObjectId, owner: &Meta) -> Result<(), ApiError> {
    let dependents: Vec<ObjectId> =
        shell.look(|world| world.graph.dependents(&owner.uid).map(|(id, _)| id.clone()).collect());
    for dependent in &dependents {
        let Some((_, stored)) = shell.find(dependent) else { continue };
        loosen(shell, dependent, stored.uid(), std::slice::from_ref(&owner.uid)).await?;
    }
    remove_finalizer(shell, id, owner, FINALIZER_ORPHAN).await
}

/// Sees that all dependents go; once none blocks, the owner may.
async fn delete_dependents(shell: &Shell, id: &ObjectId, owner: &Meta) -> Result<(), ApiError> {
    let (dependents, is_blocked) = shell.look(|world| {
        let all: Vec<(ObjectId, bool)> =
            world.graph.dependents(&owner.uid).map(|(id, blocks)| (id.clone(), blocks)).collect();
        let is_blocked = all.iter().any(|(_, blocks)| *blocks);
        (all, is_blocked)
    });
    for (dependent, _) in dependents {
        shell.collect(dependent);
    }
    match is_blocked {
        true => Ok(()),
        false => remove_finalizer(shell, id, owner, FINALIZER_FOREGROUND).await,
    }
}

async fn remove_finalizer(shell: &Shell, id: &ObjectId, owner: &Meta, name: &str) -> Result<(), ApiError> {
    let change = |object: &mut Value| {
        let fields = meta::of_mut(object);
        let Some(list) = fields.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
        list.retain(|f| f != name);
        if list.is_empty() {
            fields.remove("finalizers");
        }
    };
    let resource = (&*id.resource.group, &*id.resource.plural);
    shell.edit(resource, &id.key, &owner.uid, Part::Main, &change).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_stays_while_one_owner_does() {
        use Tie::{Dangling, Solid, Waiting};
        let plain = Meta::default();
        let with = |finalizer: &str| Meta { finalizers: vec![finalizer.into()], ..Meta::default() };
        for (name, ties, has_dependents, meta, want) in [
            ("solid", vec![Solid], false, &plain, Fate::Stay),
            ("one of two gone", vec![Solid, Dangling], false, &plain, Fate::Loosen(vec!["1".into()])),
            ("one of two waits", vec![Waiting, Solid], true, &plain, Fate::Loosen(vec!["0".into()])),
            ("gone", vec![Dangling], true, &plain, Fate::Delete("Background")),
            ("awaited leaf", vec![Waiting], false, &plain, Fate::Delete("Background")),
            ("awaited", vec![Waiting, Dangling], true, &plain, Fate::Delete("Foreground")),
            ("orphans its own", vec![Dangling], true, &with(FINALIZER_ORPHAN), Fate::Delete("Orphan")),
            ("foreground", vec![Dangling], true, &with(FINALIZER_FOREGROUND), Fate::Delete("Foreground")),
        ] {
            let ties: Vec<(Box<str>, Tie)> =
                ties.into_iter().enumerate().map(|(i, tie)| (i.to_string().into(), tie)).collect();
            assert_eq!(fate(&ties, has_dependents, meta), want, "{name}");
        }
    }
}
