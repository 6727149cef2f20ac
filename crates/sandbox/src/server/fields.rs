//! Who set which field: managed fields on every write, and server-side apply on top of them.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::api::{Api, Part, WriteOptions, Written};
use super::decode::{Read, read_patched};
use crate::kinds::{Kind, meta};
use crate::patch::apply::{self, ApplyError, Context};
use crate::patch::fieldset::FieldSet;
use crate::status::{ApiError, Cause};
use crate::store::key;

static NOTHING: LazyLock<FieldSet> = LazyLock::new(FieldSet::new);
static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_paths(["status"]));
static SPEC: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_paths(["spec"]));

/// Fields that a write of this part cannot change.
fn ignored(kind: &Kind, part: Part) -> &'static FieldSet {
    match part {
        Part::Status => &SPEC,
        _ if kind.has_status() => &STATUS,
        _ => &NOTHING,
    }
}

impl Api {
    /// Records the writer as the owner of what it changed.
    pub(super) fn track(
        &self,
        kind: &Kind,
        live: Option<&Value>,
        object: &mut Value,
        part: Part,
        options: &WriteOptions,
    ) {
        let Some(schema) = kind.typed_schema() else { return };
        let context = Context {
            schema,
            builtin: kind.custom.is_none(),
            api_version: &kind.api_version(),
            kind: &kind.kind,
            manager: &options.manager,
            subresource: part.subresource(),
            now: &meta::format_time(self.now()),
            ignored: ignored(kind, part),
        };
        apply::update(live, object, &context);
    }

    /// Server-side apply: creates the object, or merges what the manager wants into it.
    pub(super) async fn apply(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        part: Part,
        wanted: &Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        check_identity(kind, (namespace, name), wanted)?;
        loop {
            if self.table(kind).get(&key(namespace, name)).is_none() && part == Part::Main {
                let mut read = self.merge_applied(kind, None, part, wanted, options)?;
                meta::set(&mut read.object, "resourceVersion", None);
                match self.create_read(kind, namespace, read, options).await {
                    // Somebody was faster: then there is an object to merge into.
                    Err(error) if error.reason == "AlreadyExists" => continue,
                    other => return other,
                }
            }
            let change = |current: &Value| self.merge_applied(kind, Some(current), part, wanted, options);
            return self.modify(kind, (namespace, name), part, &change, options).await;
        }
    }

    fn merge_applied(
        &self,
        kind: &Kind,
        live: Option<&Value>,
        part: Part,
        wanted: &Value,
        options: &WriteOptions,
    ) -> Result<Read, ApiError> {
        let schema = kind.typed_schema().ok_or_else(ApiError::no_such_path)?;
        let context = Context {
            schema,
            builtin: kind.custom.is_none(),
            api_version: &kind.api_version(),
            kind: &kind.kind,
            manager: &options.manager,
            subresource: part.subresource(),
            now: &meta::format_time(self.now()),
            ignored: ignored(kind, part),
        };
        let merged = apply::apply(live, wanted, options.force, &context).map_err(refusal)?;
        let read = read_patched(kind, merged, None, &[], options.validation)?;
        Ok(Read { is_tracked: true, ..read })
    }
}

fn refusal(error: ApplyError) -> ApiError {
    let message = error.to_string();
    match error {
        ApplyError::BadRequest(_) => ApiError::bad_request(message),
        ApplyError::Failed(_) => ApiError::new(500, "", message),
        ApplyError::Conflict(conflicts) => {
            let causes = conflicts.iter().map(|conflict| Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: conflict.message(),
                field: conflict.field(),
            });
            ApiError::new(409, "Conflict", message).with_causes(causes.collect())
        }
    }
}

fn check_identity(kind: &Kind, (namespace, name): (&str, &str), wanted: &Value) -> Result<(), ApiError> {
    let found = meta::name(wanted);
    if !found.is_empty() && found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let found = meta::namespace(wanted);
    if kind.namespaced && !found.is_empty() && found != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
