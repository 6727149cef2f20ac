//! ControllerRevisions: the templates that DaemonSets and StatefulSets had, and have.

use serde::Deserialize;
use serde_json::{Value, json};

use super::hash;
use super::shell::{Shell, key_of};
use super::view::{self, Meta};
use crate::server::Part;
use crate::status::ApiError;
use crate::store::Selection;

const REVISIONS: (&str, &str) = ("apps", "controllerrevisions");

/// One template in an owner's past.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Revision {
    #[serde(rename = "metadata")]
    pub(super) meta: Meta,
    pub(super) revision: i64,
    pub(super) data: Value,
}

impl Revision {
    fn digest(&self) -> u64 {
        hash::digest(&self.data)
    }
}

/// Whose past it is.
pub(super) struct Owner<'a> {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    /// The label that carries the hash.
    pub(super) label: &'static str,
    pub(super) meta: &'a Meta,
    pub(super) object: &'a Value,
}

/// The revision of the owner's template as it is now, made if need be, and all others, oldest first.
pub(super) async fn current(shell: &Shell, owner: &Owner<'_>) -> Result<(Revision, Vec<Revision>), ApiError> {
    let mut template = owner.object["spec"]["template"].clone();
    template["$patch"] = json!("replace");
    let data = json!({"spec": {"template": template}});
    let wanted = hash::digest(&data);
    let mut old: Vec<Revision> = list(shell, owner)?;
    old.sort_by(|a, b| (a.revision, &a.meta.name).cmp(&(b.revision, &b.meta.name)));
    // The newest of equal ones.
    let found = old.iter().rposition(|revision| revision.digest() == wanted).map(|at| old.remove(at));
    let next = old.last().map_or(0, |revision| revision.revision) + 1;
    let Some(mut current) = found else {
        return Ok((create(shell, owner, data, next).await?, old));
    };
    if current.revision < next {
        let change = |object: &mut Value| object["revision"] = json!(next);
        let key = current.meta.key();
        shell.edit(REVISIONS, &key, &current.meta.uid, Part::Main, &change).await?;
        current.revision = next;
    }
    Ok((current, old))
}

fn list(shell: &Shell, owner: &Owner<'_>) -> Result<Vec<Revision>, ApiError> {
    let kind = shell.api.kind(REVISIONS.0, REVISIONS.1)?;
    let selection = Selection { namespace: Some(owner.meta.namespace.to_string()), ..Selection::default() };
    let all = shell.api.list(&kind, &selection);
    let is_own = |r: &Revision| r.meta.controller().is_some_and(|o| o.uid == owner.meta.uid);
    Ok(all.iter().filter_map(|stored| view::read::<Revision>(stored)).filter(is_own).collect())
}

async fn create(shell: &Shell, owner: &Owner<'_>, data: Value, revision: i64) -> Result<Revision, ApiError> {
    let collisions = owner.object["status"]["collisionCount"].as_i64();
    let hash = hash::template_hash(&owner.object["spec"]["template"], collisions);
    let name = format!("{}-{hash}", owner.meta.name);
    let mut labels = owner.object["spec"]["template"]["metadata"]["labels"].clone();
    labels[owner.label] = json!(hash);
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": name, "labels": labels,
            "ownerReferences": [view::controller_ref("apps/v1", owner.kind, owner.meta)],
        },
        "data": data, "revision": revision,
    });
    if let Some(annotations) = owner.object["metadata"].get("annotations") {
        object["metadata"]["annotations"] = annotations.clone();
    }
    match shell.create(REVISIONS, &owner.meta.namespace, object).await {
        Ok(stored) => view::read(&stored).ok_or_else(|| ApiError::internal("a revision that cannot be read")),
        Err(error) if error.reason == "AlreadyExists" => {
            let mut status = owner.object["status"].clone();
            status["collisionCount"] = json!(collisions.unwrap_or(0) + 1);
            shell.write_status(("apps", owner.plural), owner.meta, &status).await?;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Deletes the oldest beyond the limit, but for those still in use.
pub(super) async fn truncate(
    shell: &Shell,
    old: &[Revision],
    limit: usize,
    is_live: impl Fn(&Revision) -> bool,
) -> Result<(), ApiError> {
    let excess = old.len().saturating_sub(limit);
    for revision in old.iter().filter(|revision| !is_live(revision)).take(excess) {
        let key = key_of(&revision.meta.namespace, &revision.meta.name);
        shell.delete(REVISIONS, &key, &revision.meta.uid, None).await?;
    }
    Ok(())
}
