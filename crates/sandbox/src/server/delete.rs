//! Delete: grace periods, finalizers, propagation, and whole collections.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::admission::{self, Review};
use super::api::{Answer, Api, WriteOptions, draft, load};
use crate::kinds::meta::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::kinds::{Admission, FieldError, Kind, Operation, Path, meta};
use crate::status::ApiError;
use crate::store::{Lost, Selection, Stored, key};

/// How an object is to go.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub write: WriteOptions,
    pub grace_seconds: Option<i64>,
    /// `Foreground`, `Background` or `Orphan`.
    pub propagation: Option<String>,
    /// The older way to say `Orphan` or `Background`.
    pub orphan: Option<bool>,
    pub uid: Option<String>,
    pub revision: Option<String>,
    /// Asked for with all others of a collection.
    pub is_collection: bool,
}

impl DeleteOptions {
    /// Adds what the client asked for to the options that webhooks see.
    pub(super) fn describe(&self, options: &mut Value) {
        let preconditions = [("uid", &self.uid), ("resourceVersion", &self.revision)];
        for (field, value) in preconditions {
            if let Some(value) = value {
                options["preconditions"][field] = json!(value);
            }
        }
        if let Some(seconds) = self.grace_seconds {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(policy) = &self.propagation {
            options["propagationPolicy"] = json!(policy);
        }
        if let Some(orphan) = self.orphan {
            options["orphanDependents"] = json!(orphan);
        }
    }
}

/// A delete that went through.
pub struct Deleted {
    pub answer: Answer,
    /// False when grace or finalizers keep it for now.
    pub is_gone: bool,
    pub warnings: Vec<String>,
}

/// What one look at the object decides.
enum Step {
    /// Grace has begun before and nothing changes.
    Pending,
    /// Mark it: grace begins, is shortened, or finalizers must run.
    Mark(Value),
    /// Mark it and take it away at once: its grace is zero.
    MarkAndRemove(Value),
    Remove,
}

impl Api {
    pub async fn delete(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        validate_options(options)?;
        let table = self.table(kind);
        let key = key(namespace, name);
        let mut stored = table.get(&key).ok_or_else(|| kind.not_found(name))?;
        let mut warnings: Vec<String> = warning(kind, options).into_iter().collect();
        // Whoever watches may take away what this request has marked before it can do so itself.
        let mut marked: Option<Arc<Stored>> = None;
        loop {
            let current = load(kind, &stored);
            check_preconditions(kind, options, &stored)?;
            self.admit_delete(kind, (namespace, name), &current, options, &mut warnings).await?;
            let step = self.next_step(kind, current, options)?;
            if options.write.dry_run {
                return Ok(dry_run(kind, &stored, step, warnings));
            }
            let committed = match step {
                Step::Pending => Ok((stored.clone(), false)),
                Step::Mark(marked) => {
                    let draft = draft(kind, marked);
                    match draft.is_same_as(&stored) {
                        true => Ok((stored.clone(), false)),
                        false => table.replace(draft, stored.revision()).map(|new| (new, false)),
                    }
                }
                Step::MarkAndRemove(object) => {
                    table.replace(draft(kind, object), stored.revision()).and_then(|new| {
                        marked = Some(new.clone());
                        table.remove(&key, new.revision()).map(|new| (new, true))
                    })
                }
                Step::Remove => table.remove(&key, stored.revision()).map(|new| (new, true)),
            };
            match overtaken(committed, marked.as_ref()) {
                Ok((object, is_gone)) => {
                    self.after_write(kind, Some(&stored), table.get(&key).as_ref());
                    let answer = match is_gone && !kind.returns_deleted {
                        true => Answer::Tree(success(kind, name, object.uid())),
                        false => Answer::Stored(object),
                    };
                    return Ok(Deleted { answer, is_gone, warnings });
                }
                Err(Lost::Changed(newer)) => stored = newer,
                Err(Lost::Gone) => return Err(kind.not_found(name)),
            }
        }
    }

    /// Deletes all selected; the objects as they were when listed.
    pub async fn delete_collection(
        &self,
        kind: &Arc<Kind>,
        selection: &Selection,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Stored>>, ApiError> {
        validate_options(options)?;
        let options = DeleteOptions { is_collection: true, ..options.clone() };
        let items = self.list(kind, selection);
        for item in &items {
            match self.delete(kind, (item.namespace(), item.name()), &options).await {
                Ok(_) => {}
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(items)
    }

    async fn admit_delete(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        current: &Value,
        options: &DeleteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let is_namespace = kind.group.is_empty() && kind.plural == "namespaces";
        if is_namespace && ["default", "kube-system", "kube-public"].contains(&name) {
            return Err(kind.forbidden(name, "this namespace may not be deleted"));
        }
        let write = &options.write;
        (kind.hooks.admit)(&mut Admission {
            cluster: self,
            operation: Operation::Delete,
            subresource: "",
            namespace,
            user: &write.user.name,
            object: &mut Value::Null,
            old: Some(current),
        })?;
        let review = Review {
            kind,
            operation: Operation::Delete,
            subresource: "",
            old: Some(current),
            options: write,
            delete: Some(options),
        };
        let mut nothing = Value::Null;
        admission::mutate(self, &review, &mut nothing, warnings).await?;
        admission::validate(self, &review, &Value::Null, warnings).await
    }

    fn next_step(&self, kind: &Kind, mut object: Value, options: &DeleteOptions) -> Result<Step, ApiError> {
        let now = self.now();
        let grace = match begin_grace(kind, &mut object, options.grace_seconds, now) {
            Grace::Pending => return Ok(Step::Pending),
            other => other,
        };
        if kind.group.is_empty() && kind.kind == "Namespace" {
            return Ok(namespace_step(object, options, now));
        }
        set_propagation(kind, &mut object, options);
        if super::crd::is_crd(kind) {
            super::crd::hold(&mut object);
        }
        let has_finalizers = !meta::finalizers(&object).is_empty();
        Ok(match grace {
            Grace::Begun(seconds) if seconds > 0 || has_finalizers => Step::Mark(object),
            Grace::Begun(_) => Step::MarkAndRemove(object),
            _ if has_finalizers => {
                mark_deleting(&mut object, now);
                Step::Mark(object)
            }
            _ => Step::Remove,
        })
    }
}

/// A marked object that is gone, or has another in its place, was deleted all the same.
fn overtaken(
    committed: Result<(Arc<Stored>, bool), Lost>,
    marked: Option<&Arc<Stored>>,
) -> Result<(Arc<Stored>, bool), Lost> {
    match (committed, marked) {
        (Err(Lost::Gone), Some(marked)) => Ok((marked.clone(), true)),
        (Err(Lost::Changed(newer)), Some(marked)) if newer.uid() != marked.uid() => {
            Ok((marked.clone(), true))
        }
        (committed, _) => committed,
    }
}

enum Grace {
    /// The kind goes at once.
    None,
    Pending,
    /// Seconds; the object has been marked.
    Begun(i64),
}

/// Applies the grace period to the object's metadata.
fn begin_grace(kind: &Kind, object: &mut Value, requested: Option<i64>, now: Timestamp) -> Grace {
    // Negative values count as one second.
    let requested = requested.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let current = meta::of(object).and_then(|m| m.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    if meta::is_deleting(object) {
        if (kind.hooks.grace)(object, requested).is_none() {
            return Grace::None;
        }
        let Some(current) = current.filter(|seconds| *seconds != 0) else { return Grace::None };
        let Some(mut seconds) = requested else { return Grace::Pending };
        if seconds >= current {
            return Grace::Pending;
        }
        let due: Timestamp = meta::text(object, "deletionTimestamp").parse().unwrap_or(now);
        let mut due = due - SignedDuration::from_secs(current) + SignedDuration::from_secs(seconds);
        if due < now {
            due = now;
            if seconds != 0 {
                seconds = 1;
            }
        }
        meta::set(object, "deletionTimestamp", Some(Value::from(meta::format_time(due))));
        meta::set(object, "deletionGracePeriodSeconds", Some(Value::from(seconds)));
        return Grace::Begun(seconds);
    }
    let Some(seconds) = (kind.hooks.grace)(object, requested) else { return Grace::None };
    let due = now + SignedDuration::from_secs(seconds);
    meta::set(object, "deletionTimestamp", Some(Value::from(meta::format_time(due))));
    meta::set(object, "deletionGracePeriodSeconds", Some(Value::from(seconds)));
    count_deletion(object);
    Grace::Begun(seconds)
}

/// Deletion counts as a change of what is wanted.
fn count_deletion(object: &mut Value) {
    let generation = meta::generation(object);
    if generation > 0 {
        meta::set(object, "generation", Some(Value::from(generation + 1)));
    }
}

fn mark_deleting(object: &mut Value, now: Timestamp) {
    if !meta::is_deleting(object) {
        count_deletion(object);
    }
    let due = meta::text(object, "deletionTimestamp").parse::<Timestamp>();
    if due.is_err() || due.is_ok_and(|due| due > now) {
        meta::set(object, "deletionTimestamp", Some(Value::from(meta::format_time(now))));
    }
    meta::set(object, "deletionGracePeriodSeconds", Some(Value::from(0)));
}

/// A namespace stays, Terminating, until its content is gone and its finalizers are, too.
fn namespace_step(mut object: Value, options: &DeleteOptions, now: Timestamp) -> Step {
    if !meta::is_deleting(&object) {
        meta::set(&mut object, "deletionTimestamp", Some(Value::from(meta::format_time(now))));
        object["status"]["phase"] = Value::from("Terminating");
        let kind = Kind::builtin("v1", "Namespace", "namespaces");
        set_propagation(&kind, &mut object, options);
        return Step::Mark(object);
    }
    let is_free = object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    match is_free && meta::finalizers(&object).is_empty() {
        true => Step::Remove,
        false => Step::Pending,
    }
}

/// Turns the propagation policy into the finalizer that carries it out.
fn set_propagation(kind: &Kind, object: &mut Value, options: &DeleteOptions) {
    if kind.plural == "events" {
        return;
    }
    let has = |finalizer: &str| meta::finalizers(object).contains(&finalizer);
    let (orphan, foreground) = match (options.orphan, options.propagation.as_deref()) {
        (Some(orphan), _) => (orphan, false),
        (None, Some("Orphan")) => (true, false),
        (None, Some("Foreground")) => (false, true),
        (None, Some(_)) => (false, false),
        (None, None) if has(FINALIZER_ORPHAN) => (true, false),
        (None, None) if has(FINALIZER_FOREGROUND) => (false, true),
        (None, None) => (kind.orphans_by_default, false),
    };
    let others = meta::finalizers(object).into_iter();
    let mut list: Vec<Value> =
        others.filter(|f| ![FINALIZER_ORPHAN, FINALIZER_FOREGROUND].contains(f)).map(Value::from).collect();
    if orphan {
        list.push(Value::from(FINALIZER_ORPHAN));
    }
    if foreground {
        list.push(Value::from(FINALIZER_FOREGROUND));
    }
    let list = (!list.is_empty()).then_some(Value::Array(list));
    meta::set(object, "finalizers", list);
}

/// Who deletes a Job without a word on its pods may not expect them to stay.
fn warning(kind: &Kind, options: &DeleteOptions) -> Option<String> {
    let is_silent = options.propagation.is_none() && options.orphan.is_none();
    (is_silent && kind.group == "batch" && kind.orphans_by_default).then(|| {
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
         set propagationPolicy=Orphan to suppress this warning"
            .to_owned()
    })
}

fn validate_options(options: &DeleteOptions) -> Result<(), ApiError> {
    let Some(policy) = &options.propagation else { return Ok(()) };
    let path = Path::root("propagationPolicy");
    let error = if options.orphan.is_some() {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        FieldError::invalid(&path, policy.as_str(), detail)
    } else if !["Foreground", "Background", "Orphan"].contains(&policy.as_str()) {
        FieldError::not_supported(&path, policy.as_str(), ["Foreground", "Background", "Orphan", "nil"])
    } else {
        return Ok(());
    };
    Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]))
}

fn check_preconditions(kind: &Kind, options: &DeleteOptions, stored: &Stored) -> Result<(), ApiError> {
    let conflict = |why: String| ApiError::conflict(&kind.group, &kind.kind, stored.name(), &why);
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != stored.uid()) {
        return Err(conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            stored.uid()
        )));
    }
    let is = stored.revision().to_string();
    if let Some(revision) = options.revision.as_deref().filter(|revision| *revision != is) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record \
             ({is}). The object might have been modified"
        )));
    }
    Ok(())
}

fn dry_run(kind: &Kind, stored: &Arc<Stored>, step: Step, warnings: Vec<String>) -> Deleted {
    let is_gone = matches!(step, Step::Remove | Step::MarkAndRemove(_));
    let answer = match step {
        Step::Mark(marked) => Answer::Tree(marked),
        Step::Pending => Answer::Stored(stored.clone()),
        _ if kind.returns_deleted => Answer::Stored(stored.clone()),
        _ => Answer::Tree(success(kind, stored.name(), stored.uid())),
    };
    Deleted { answer, is_gone, warnings }
}

/// The Status of a delete that is done.
fn success(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": kind.plural, "uid": uid});
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::WriteOptions;
    use crate::store::Limits;

    /// A kubelet removes pods as soon as it sees them marked; for who deleted them that is no failure.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_deletion_that_is_overtaken_is_still_one() {
        let api = Api::new(Limits::default());
        let kind = api.kind("", "pods").unwrap();
        let write = WriteOptions::by("test");
        let options = DeleteOptions { write: write.clone(), ..DeleteOptions::default() };
        let now = DeleteOptions { grace_seconds: Some(0), ..options.clone() };
        for round in 0..300 {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i"}]}});
            api.create(&kind, "default", pod, &write).await.unwrap();
            let first = api.get(&kind, "default", "p").unwrap().revision();
            let other = {
                let (api, kind, now) = (api.clone(), kind.clone(), now.clone());
                tokio::spawn(async move {
                    while let Ok(pod) = api.get(&kind, "default", "p") {
                        if pod.revision() > first {
                            let _ = api.delete(&kind, ("default", "p"), &now).await;
                        }
                    }
                })
            };
            let deleted = api.delete(&kind, ("default", "p"), &options).await;
            assert!(deleted.is_ok_and(|deleted| deleted.is_gone), "round {round}");
            other.await.unwrap();
        }
    }
}
