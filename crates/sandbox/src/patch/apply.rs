//! Server-side apply, and the record of owners that every other write keeps up.
//!
//! `apply` merges what a manager wants into the object, drops what it wanted before and no longer
//! does, and refuses to change what others own unless forced. `update` is for all other writes: the
//! writer owns what it changed. Time comes from the caller.

use serde_json::{Value, json};

use super::fieldset::{Element, FieldSet, print_path};
use super::managed::{self, Entry, Identity, Managed, Operation};
use super::typed::{self, Type};
use crate::schema::{Schema, decode};

/// Owner of fields that were set before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Where kubectl's client-side apply keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager whose move from client-side to server-side apply is eased.
const KUBECTL: &str = "kubectl";

/// What a write needs to know about its kind and its writer.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub schema: &'a Schema,
    /// Built-in kinds hold fields that are always written; custom ones do not.
    pub builtin: bool,
    /// Group and version, as objects spell it.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// See `managed::manager_name`.
    pub manager: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// RFC 3339 in UTC, to the second.
    pub now: &'a str,
    /// Fields this request cannot change, such as `status` outside the status subresource.
    pub ignored: &'a FieldSet,
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 400 BadRequest.
    #[error("{0}")]
    BadRequest(String),
    /// 409 Conflict.
    #[error("{}", conflict_message(.0))]
    Conflict(Vec<Conflict>),
    /// 500: the object does not fit its schema, in the API server's words.
    #[error("{0}")]
    Failed(String),
}

/// One field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub identity: Identity,
    pub path: Vec<Element>,
}

impl Conflict {
    /// The field of the Status cause.
    pub fn field(&self) -> String {
        print_path(&self.path)
    }

    /// The message of the Status cause.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.identity.print(None))
    }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", one.message(), one.field());
    }
    let mut lines: Vec<String> = Vec::new();
    let mut last: Option<&Identity> = None;
    for conflict in conflicts {
        if last != Some(&conflict.identity) {
            lines.push(format!("conflicts with {}:", conflict.identity.print(None)));
            last = Some(&conflict.identity);
        }
        lines.push(format!("- {}", conflict.field()));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

impl Context<'_> {
    fn identity(&self, operation: Operation, manager: &str) -> Identity {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Identity {
            manager: manager.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }

    fn of(&self) -> Type<'_> {
        Type::of(self.schema)
    }

    /// The object before there is one.
    fn nothing(&self) -> Value {
        let mut object = json!({"apiVersion": self.api_version, "kind": self.kind});
        if self.builtin {
            decode::complete(&mut object, self.schema);
        }
        object
    }
}

/// Records a create, update or patch: the manager owns what it changed.
///
/// `live` is the object before, `None` on creation. `new` gets its managedFields.
pub fn update(live: Option<&Value>, new: &mut Value, context: &Context<'_>) {
    let theirs = Managed::of(new).ok().filter(|managed| !managed.entries.is_empty());
    let own = || live.and_then(|live| Managed::of(live).ok()).unwrap_or_default();
    let managed = match theirs {
        _ if !context.subresource.is_empty() => own(),
        _ if managed::asks_for_reset(new) => Managed::default(),
        Some(theirs) => theirs,
        None => own(),
    };
    managed::strip(new);
    // An object whose record was cleared stays without one until somebody applies.
    if managed.entries.is_empty() && live.is_some() {
        return;
    }
    let managed = track(live, new, managed, context, context.manager);
    managed.write(new);
}

fn track(
    live: Option<&Value>,
    new: &Value,
    mut managed: Managed,
    context: &Context<'_>,
    manager: &str,
) -> Managed {
    // The old record is in the way of nobody: it belongs to no manager.
    let comparison = match live {
        Some(live) => typed::compare(live, new, context.of()),
        None => typed::compare(&context.nothing(), new, context.of()),
    };
    let comparison = comparison.exclude(context.ignored);
    let changed = comparison.modified.union(&comparison.added);
    for entry in &mut managed.entries {
        let fields = typed::lifted(&entry.fields, context.of());
        entry.fields = fields.difference(&changed).difference(&comparison.removed);
    }
    managed.entries.retain(|entry| !entry.fields.is_empty());
    let owned = changed.difference(&stripped_fields());
    if !owned.is_empty() {
        let identity = context.identity(Operation::Update, manager);
        let fields = match managed.find(&identity) {
            Some(entry) => entry.fields.union(&owned),
            None => owned,
        };
        // The API server loses the time of a write through the scale subresource.
        let time = (context.subresource != "scale").then(|| context.now.to_owned());
        managed.set(Entry { identity, time, fields });
    }
    managed.cap();
    managed
}

/// Fields that belong to nobody.
fn stripped_fields() -> FieldSet {
    FieldSet::of_paths([
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
}

/// Applies `config`. The outcome has its managedFields; defaults are the caller's to fill in.
///
/// `live` is the object before, `None` where the apply creates it.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    force: bool,
    context: &Context<'_>,
) -> Result<Value, ApplyError> {
    check_config(config, context)?;
    let applied = match try_apply(live, config, force, context) {
        Err(ApplyError::Conflict(conflicts)) if context.manager == KUBECTL => {
            let allowed = live.and_then(|live| allowed_by_last_applied(live, context)).unwrap_or_default();
            let left: Vec<Conflict> =
                conflicts.into_iter().filter(|conflict| !allowed.contains(&conflict.path)).collect();
            match left.is_empty() {
                true => try_apply(live, config, true, context),
                false => Err(ApplyError::Conflict(left)),
            }
        }
        other => other,
    };
    applied.map(|object| renew_last_applied(object, config, context))
}

fn check_config(config: &Value, context: &Context<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version != context.api_version || kind != context.kind {
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        return Err(ApplyError::BadRequest(format!("invalid object type: {version}, Kind={kind}")));
    }
    if config.pointer("/metadata/managedFields").is_some_and(|value| !value.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let mut faults = Vec::new();
    typed::check(config, context.of(), "", &mut faults);
    if faults.is_empty() {
        return Ok(());
    }
    let meta = |name: &str| {
        let value = config.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let list = match faults.as_slice() {
        [one] => one.clone(),
        several => {
            format!("errors:\n{}", several.iter().map(|text| format!("  {text}\n")).collect::<String>())
        }
    };
    // The core group is written with its slash.
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    Err(ApplyError::Failed(format!(
        "failed to create typed patch object ({}/{}; {version}, Kind={kind}): {list}",
        meta("namespace"),
        meta("name"),
    )))
}

fn try_apply(
    live: Option<&Value>,
    config: &Value,
    force: bool,
    context: &Context<'_>,
) -> Result<Value, ApplyError> {
    let of = context.of();
    let mut old = live.cloned().unwrap_or_else(|| context.nothing());
    let mut managed = Managed::of(&old)
        .map_err(|error| ApplyError::Failed(format!("failed to decode managed fields: {error}")))?;
    managed::strip(&mut old);
    if managed.entries.is_empty() && live.is_some() {
        managed = track(None, &old, managed, context, BEFORE_FIRST_APPLY);
    }
    for entry in &mut managed.entries {
        entry.fields = typed::lifted(&entry.fields, of);
    }
    let identity = context.identity(Operation::Apply, context.manager);
    let last = managed.find(&identity).map(|entry| entry.fields.clone()).unwrap_or_default();
    let time = managed.find(&identity).and_then(|entry| entry.time.clone());
    let fields = typed::field_set(config, of).exclude(context.ignored);
    managed.set(Entry { identity: identity.clone(), time: time.clone(), fields: fields.clone() });
    let merged = typed::merge(&old, config, of);
    let new = drop_unwanted(merged, &last, &managed, of);
    resolve(&old, &new, &mut managed, &identity, force, context)?;
    let time = if old == new { time } else { Some(context.now.to_owned()) };
    managed.set(Entry { identity, time, fields: fields.difference(&stripped_fields()) });
    let mut object = new;
    managed.write(&mut object);
    Ok(object)
}

/// Drops what the manager applied last time and nobody wants any more.
fn drop_unwanted(merged: Value, last: &FieldSet, managed: &Managed, of: Type<'_>) -> Value {
    if last.is_empty() {
        return merged;
    }
    let parents = |set: &FieldSet| typed::with_named_parents(set, of);
    let all = parents(&typed::field_set(&merged, of));
    let pruned = typed::remove(&merged, &parents(last), of);
    // Back in with what any manager, this one included, owns.
    let owned = managed.entries.iter().fold(FieldSet::new(), |set, entry| set.union(&entry.fields));
    let kept = parents(&typed::field_set(&pruned, of)).union(&parents(&owned));
    let pruned = typed::remove(&merged, &all.difference(&kept), of);
    // And with what went only because something above it did.
    let gone = all.difference(&parents(&typed::field_set(&pruned, of)));
    typed::remove(&merged, &gone.intersection(&parents(last)), of)
}

/// Takes changed fields from other managers, or lists them as conflicts.
fn resolve(
    old: &Value,
    new: &Value,
    managed: &mut Managed,
    identity: &Identity,
    force: bool,
    context: &Context<'_>,
) -> Result<(), ApplyError> {
    let comparison = typed::compare(old, new, context.of()).exclude(context.ignored);
    let changed = comparison.modified.union(&comparison.added);
    let others = || managed.entries.iter().filter(|entry| entry.identity != *identity);
    if !force {
        let mut sorted: Vec<&Entry> = others().collect();
        sorted.sort_by(|a, b| a.identity.sort_key().cmp(&b.identity.sort_key()));
        let conflicts: Vec<Conflict> = sorted
            .into_iter()
            .flat_map(|entry| {
                let paths = entry.fields.intersection(&changed).paths();
                paths.into_iter().map(|path| Conflict { identity: entry.identity.clone(), path })
            })
            .collect();
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflict(conflicts));
        }
    }
    for entry in managed.entries.iter_mut().filter(|entry| entry.identity != *identity) {
        entry.fields = entry.fields.difference(&changed).difference(&comparison.removed);
    }
    managed.entries.retain(|entry| !entry.fields.is_empty());
    Ok(())
}

/// Fields that client-side apply set and that are still as it set them: taking those over from its
/// own record is no conflict.
fn allowed_by_last_applied(live: &Value, context: &Context<'_>) -> Option<FieldSet> {
    let text = live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(context.api_version) {
        return None;
    }
    let of = context.of();
    let comparison = typed::compare(&last, live, of);
    let fields = typed::field_set(&last, of);
    Some(
        fields.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed),
    )
}

/// Keeps client-side apply's annotation in step, as long as the object has one.
fn renew_last_applied(mut object: Value, config: &Value, context: &Context<'_>) -> Value {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let present = annotations.filter(|annotations| {
        annotations.get(LAST_APPLIED).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
    });
    if let Some(annotations) = present.filter(|_| context.manager == KUBECTL) {
        let mut config = config.clone();
        if let Some(own) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            own.remove(LAST_APPLIED);
        }
        let text = koord_api::gojson::to_string(&config).unwrap_or_else(|_| config.to_string());
        annotations.insert(LAST_APPLIED.to_owned(), format!("{text}\n").into());
    }
    object
}

#[cfg(test)]
mod tests;
