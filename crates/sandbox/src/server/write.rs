//! Create, update and patch: one path from a wish to a committed object.
//!
//! Every write runs the same stations: shape, admission, preparation, metadata, validation, commit.
//! A commit that lost a race goes round again with the newer object.

use std::sync::Arc;

use serde_json::Value;

use super::admission::{self, Review};
use super::api::{Answer, Api, FieldValidation, Part, WriteOptions, Written, draft, load};
use super::decode::{Read, go_format, named_twice, read_patched, read_tree};
use crate::kinds::{Admission, Approval, FieldError, Kind, Operation, Path, Subresource, meta};
use crate::patch::managed::keep_times;
use crate::patch::{self, PatchError};
use crate::schema::decode;
use crate::status::ApiError;
use crate::store::{Lost, Stored, key};

/// Names tried for `generateName` before giving up.
const GENERATED_NAMES_MAX: usize = 8;

/// What another write in between is called.
const CONFLICT: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// A change wanted of an object.
#[derive(Clone, Debug)]
pub enum Patch {
    Json(Vec<u8>),
    Merge(Vec<u8>),
    Strategic(Vec<u8>),
    /// Server-side apply: the fields the manager wants.
    Apply(Value),
}

/// The object wanted, given the one there is.
type Change<'a> = &'a (dyn Fn(&Value) -> Result<Read, ApiError> + Send + Sync);

impl Api {
    /// Creates an object from a tree made inside the process.
    pub async fn create(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let object = read_tree(kind, object)?;
        self.create_read(kind, namespace, Read { object, ..Read::default() }, options).await
    }

    /// Replaces an object by a tree made inside the process.
    pub async fn update(
        &self,
        kind: &Arc<Kind>,
        part: Part,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let object = read_tree(kind, object)?;
        let (namespace, name) = (meta::namespace(&object).to_owned(), meta::name(&object).to_owned());
        let read = Read { object, ..Read::default() };
        self.update_read(kind, &namespace, &name, part, read, options).await
    }

    /// Changes an object in place, again after every lost race. `change` says false to leave it.
    pub async fn edit(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        part: Part,
        options: &WriteOptions,
        change: &(dyn Fn(&mut Value) -> Result<bool, ApiError> + Send + Sync),
    ) -> Result<Written, ApiError> {
        let change = |current: &Value| {
            let mut object = current.clone();
            if change(&mut object)? {
                object = read_tree(kind, object)?;
            }
            Ok(Read { object, ..Read::default() })
        };
        self.modify(kind, (namespace, name), part, &change, options).await
    }

    pub(super) async fn create_read(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        read: Read,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let Read { mut object, mut warnings, is_tracked, .. } = read;
        match_namespace(kind, namespace, &mut object)?;
        if !["", "0"].contains(&meta::text(&object, "resourceVersion")) {
            return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        for field in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"] {
            meta::set(&mut object, field, None);
        }
        meta::set(&mut object, "deletionGracePeriodSeconds", None);
        dedup_owners(&mut object, &mut warnings);
        if !is_tracked {
            self.track(kind, None, &mut object, Part::Main, options);
        }
        self.admit(kind, Operation::Create, Part::Main, &mut object, None, options, &mut warnings).await?;
        let base = meta::text(&object, "generateName").to_owned();
        let is_generated = meta::name(&object).is_empty() && !base.is_empty();
        let tries = if is_generated { GENERATED_NAMES_MAX } else { 1 };
        for _ in 0..tries {
            if is_generated {
                let name = meta::generate_name(&base, self.ids().next());
                meta::set(&mut object, "name", Some(Value::from(name)));
            }
            // Only a name that may be taken needs the object once more.
            let mut finished = if is_generated { object.clone() } else { std::mem::take(&mut object) };
            self.prepare_created(kind, &mut finished)?;
            warnings.extend((kind.hooks.warn)(&finished, None));
            warnings.extend(finalizer_warnings(kind, &finished, None));
            self.validate_admission(
                kind,
                Operation::Create,
                Part::Main,
                &finished,
                None,
                options,
                &mut warnings,
            )
            .await?;
            if options.dry_run {
                return self.preview_created(kind, finished, warnings);
            }
            match self.table(kind).create(draft(kind, finished)) {
                Ok(stored) => {
                    self.after_write(kind, None, Some(&stored));
                    return Ok(Written { answer: Answer::Stored(stored), created: true, warnings });
                }
                Err(_) if is_generated => continue,
                Err(existing) => return Err(already_exists(kind, &existing)),
            }
        }
        Err(ApiError::generate_name_conflict(&kind.group, &kind.plural, meta::name(&object)))
    }

    fn preview_created(
        &self,
        kind: &Arc<Kind>,
        object: Value,
        warnings: Vec<String>,
    ) -> Result<Written, ApiError> {
        let (namespace, name) = (meta::namespace(&object), meta::name(&object));
        if let Some(existing) = self.table(kind).get(&key(namespace, name)) {
            return Err(already_exists(kind, &existing));
        }
        Ok(Written { answer: Answer::Tree(object), created: true, warnings })
    }

    /// Fills, prepares and judges a new object.
    fn prepare_created(&self, kind: &Arc<Kind>, object: &mut Value) -> Result<(), ApiError> {
        meta::fill_created(object, kind, self.ids().uid(), self.now());
        if kind.has_status() && !kind.status_on_create {
            remove(object, "status");
        }
        (kind.hooks.prepare_create)(object);
        let mut errors = meta::validate_created(object, kind);
        errors.extend(kind.validate(object, None));
        errors.extend(super::crd::check(kind, object));
        if !errors.is_empty() {
            return Err(kind.invalid(meta::name(object), &errors));
        }
        settle(kind, object);
        Ok(())
    }

    pub(super) async fn update_read(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        part: Part,
        read: Read,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let Read { mut object, warnings, .. } = read;
        match_namespace(kind, namespace, &mut object)?;
        match_name(name, &object)?;
        let is_absent = || self.table(kind).get(&key(namespace, name)).is_none();
        if part == Part::Main && kind.create_on_update && is_absent() {
            if !meta::text(&object, "resourceVersion").is_empty() {
                let why = format!(
                    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                     failed: UID in precondition: {}, UID in object meta: ",
                    registry_key(kind, namespace, name),
                    meta::uid(&object)
                );
                return Err(kind.conflict(name, &why));
            }
            return self
                .create_read(kind, namespace, Read { object, warnings, ..Read::default() }, options)
                .await;
        }
        let change =
            |_: &Value| Ok(Read { object: object.clone(), warnings: warnings.clone(), ..Read::default() });
        self.modify(kind, (namespace, name), part, &change, options).await
    }

    pub(super) async fn patch(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        part: Part,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        if let Patch::Apply(wanted) = patch {
            return self.apply(kind, (namespace, name), part, wanted, options).await;
        }
        let (blamed, twice) = match patch {
            Patch::Strategic(patch) => {
                let tree = serde_json::from_slice(patch).unwrap_or_default();
                (Some(go_format(&tree)), named_twice(patch))
            }
            Patch::Merge(patch) => (None, named_twice(patch)),
            Patch::Json(_) | Patch::Apply(_) => (None, Vec::new()),
        };
        let change = |current: &Value| {
            let tree = apply_patch(kind, current.clone(), patch)?;
            let read = read_patched(kind, tree, blamed.as_deref(), &twice, options.validation)?;
            match_name(name, &read.object)?;
            if kind.namespaced && meta::namespace(&read.object) != namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            Ok(read)
        };
        self.modify(kind, (namespace, name), part, &change, options).await
    }

    /// Reads, changes and commits until no other writer comes between.
    pub(super) async fn modify(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        part: Part,
        change: Change<'_>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let table = self.table(kind);
        let key = key(namespace, name);
        let mut stored = table.get(&key).ok_or_else(|| kind.not_found(name))?;
        loop {
            let current = load(kind, &stored);
            let read = change(&current)?;
            let (object, warnings) =
                self.finish_change(kind, (namespace, name), part, read, &current, options).await?;
            let is_done = is_done_deleting(kind, &object, &current);
            // Who took the last finalizer away sees the object as it would have been.
            let shown = (is_done || options.dry_run).then(|| object.clone());
            let draft = draft(kind, object);
            if draft.is_same_as(&stored) {
                return Ok(Written { answer: Answer::Stored(stored), created: false, warnings });
            }
            if let Some(object) = shown.clone().filter(|_| options.dry_run) {
                return Ok(Written { answer: Answer::Tree(object), created: false, warnings });
            }
            let result = match is_done {
                true => table.remove(&key, stored.revision()),
                false => table.replace(draft, stored.revision()),
            };
            match result {
                Ok(new) => {
                    self.after_write(kind, Some(&stored), table.get(&key).as_ref());
                    let answer = shown.map_or(Answer::Stored(new), Answer::Tree);
                    return Ok(Written { answer, created: false, warnings });
                }
                Err(Lost::Changed(newer)) => stored = newer,
                Err(Lost::Gone) => return Err(kind.not_found(name)),
            }
        }
    }

    /// Everything between the wish and the commit.
    async fn finish_change(
        &self,
        kind: &Arc<Kind>,
        (namespace, name): (&str, &str),
        part: Part,
        read: Read,
        current: &Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>), ApiError> {
        let Read { mut object, mut warnings, is_tracked, is_patched } = read;
        match_namespace(kind, namespace, &mut object)?;
        if !is_patched {
            check_uid(kind, name, &object, current)?;
        }
        check_preconditions(kind, name, part, &mut object, current)?;
        dedup_owners(&mut object, &mut warnings);
        if !is_tracked {
            self.track(kind, Some(current), &mut object, part, options);
        }
        self.admit(kind, Operation::Update, part, &mut object, Some(current), options, &mut warnings).await?;
        prepare_updated(kind, part, &mut object, current);
        let mut errors = meta::validate_updated(&object, current, kind);
        match part {
            Part::Status => errors.extend((kind.hooks.validate_status)(&object, current)),
            Part::Main => errors.extend(kind.validate(&object, Some(current))),
            _ => errors.extend(match kind.hooks.validate_part {
                Some(validate) => validate(part.subresource(), &object, current),
                None => kind.validate(&object, Some(current)),
            }),
        }
        if kind.custom.is_some() && part == Part::Status {
            errors.extend(kind.validate(&object, Some(current)));
        }
        errors.extend(super::crd::check(kind, &object));
        if !errors.is_empty() {
            return Err(kind.invalid(name, &errors));
        }
        if part == Part::Main {
            warnings.extend((kind.hooks.warn)(&object, Some(current)));
            warnings.extend(finalizer_warnings(kind, &object, Some(current)));
        }
        settle(kind, &mut object);
        keep_times(current, &mut object);
        self.validate_admission(
            kind,
            Operation::Update,
            part,
            &object,
            Some(current),
            options,
            &mut warnings,
        )
        .await?;
        Ok((object, warnings))
    }

    /// The kind's own admission, then mutating webhooks.
    #[expect(clippy::too_many_arguments, reason = "what admission sees")]
    async fn admit(
        &self,
        kind: &Arc<Kind>,
        operation: Operation,
        part: Part,
        object: &mut Value,
        old: Option<&Value>,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let namespace = meta::namespace(object).to_owned();
        self.check_namespace(kind, operation, &namespace, object)?;
        let subresource = part.subresource();
        (kind.hooks.admit)(&mut Admission {
            cluster: self,
            operation,
            subresource,
            namespace: &namespace,
            user: &options.user.name,
            object,
            old,
        })?;
        let review = Review { kind, operation, subresource, old, options, delete: None };
        let Some(changed) = admission::mutate(self, &review, object, warnings).await? else { return Ok(()) };
        *object = read_patched(kind, changed, None, &[], FieldValidation::Ignore)?.object;
        dedup_owners(object, warnings);
        // The kind's own admission sees once more what webhooks made of the object.
        (kind.hooks.admit)(&mut Admission {
            cluster: self,
            operation,
            subresource,
            namespace: &namespace,
            user: &options.user.name,
            object,
            old,
        })
    }

    #[expect(clippy::too_many_arguments, reason = "what admission sees")]
    async fn validate_admission(
        &self,
        kind: &Arc<Kind>,
        operation: Operation,
        part: Part,
        object: &Value,
        old: Option<&Value>,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let subresource = part.subresource();
        (kind.hooks.approve)(&Approval { cluster: self, kind, operation, subresource, object, old })?;
        let review = Review { kind, operation, subresource, old, options, delete: None };
        admission::validate(self, &review, object, warnings).await
    }

    /// Content needs a namespace that exists, and new content one that stays.
    pub(super) fn check_namespace(
        &self,
        kind: &Kind,
        operation: Operation,
        namespace: &str,
        object: &Value,
    ) -> Result<(), ApiError> {
        if !kind.namespaced || operation == Operation::Delete {
            return Ok(());
        }
        let found = self.store.table("", "namespaces").get(namespace);
        let found = found.ok_or_else(|| ApiError::not_found("", "namespaces", namespace))?;
        if operation != Operation::Create || found.field("status.phase") != "Terminating" {
            return Ok(());
        }
        let name = [meta::name(object), meta::text(object, "generateName")];
        let name = name.into_iter().find(|n| !n.is_empty()).unwrap_or("Unknown");
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Err(kind.forbidden(name, &why).with_causes(vec![crate::status::Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }]))
    }

    /// What the server itself must do once a write is committed.
    pub(super) fn after_write(&self, kind: &Kind, old: Option<&Arc<Stored>>, new: Option<&Arc<Stored>>) {
        match (kind.storage_group.as_ref(), kind.plural.as_ref()) {
            ("apiextensions.k8s.io", "customresourcedefinitions") => self.crd_written(old, new),
            ("admissionregistration.k8s.io", _) => self.webhooks.forget(),
            _ => {}
        }
    }
}

/// The name is taken, perhaps by an object on its way out.
fn already_exists(kind: &Kind, existing: &Stored) -> ApiError {
    let mut error = ApiError::already_exists(&kind.group, &kind.plural, existing.name());
    if meta::is_deleting(&existing.value()) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// Gives an object the form it rests in.
fn settle(kind: &Kind, object: &mut Value) {
    match kind.builtin_schema() {
        // Definitions rest as JSON, which knows empty lists.
        Some(schema) if kind.group == "apiextensions.k8s.io" => decode::complete(object, schema),
        Some(schema) => decode::settle(object, schema),
        None => {}
    }
}

/// Removes a top-level field.
pub(super) fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Puts a top-level field as it is in `from`.
pub(super) fn restore(object: &mut Value, from: &Value, field: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

fn match_namespace(kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    let wanted = if kind.namespaced { namespace } else { "" };
    let found = meta::namespace(object);
    if found != wanted && !found.is_empty() && !wanted.is_empty() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let wanted = (!wanted.is_empty()).then(|| Value::from(wanted));
    meta::set(object, "namespace", wanted);
    Ok(())
}

fn match_name(name: &str, object: &Value) -> Result<(), ApiError> {
    let found = meta::name(object);
    if found.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Where Kubernetes keeps an object in etcd, for the messages that say so.
fn registry_key(kind: &Kind, namespace: &str, name: &str) -> String {
    let folder = match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "nodes") => "minions".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => format!("{group}/{plural}"),
        (group, plural) if kind.custom.is_some() => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    format!("/registry/{folder}/{}", key(namespace, name))
}

/// Whoever replaces an object by UID means that very one.
fn check_uid(kind: &Kind, name: &str, object: &Value, current: &Value) -> Result<(), ApiError> {
    let (uid, is) = (meta::uid(object), meta::uid(current));
    if uid.is_empty() || uid == is {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
         failed: UID in precondition: {uid}, UID in object meta: {is}",
        registry_key(kind, meta::namespace(current), name)
    );
    Err(kind.conflict(name, &why))
}

/// The writer must have seen this version, if it names one.
fn check_preconditions(
    kind: &Kind,
    name: &str,
    part: Part,
    object: &mut Value,
    current: &Value,
) -> Result<(), ApiError> {
    let version = meta::text(object, "resourceVersion");
    let is = meta::text(current, "resourceVersion");
    match version {
        "" | "0" if kind.unconditional_update || part == Part::Resize => {
            meta::set(object, "resourceVersion", Some(Value::from(is)));
            Ok(())
        }
        "" | "0" => {
            let root = Path::root("metadata");
            let error =
                FieldError::invalid(&root.child("resourceVersion"), 0, "must be specified for an update");
            Err(ApiError::invalid(&kind.group, &kind.plural, name, &[error]))
        }
        _ if version == is => Ok(()),
        _ if version.parse::<u64>().is_err() => {
            let why = format!("strconv.ParseUint: parsing {}: invalid syntax", crate::kinds::quote(version));
            Err(ApiError::new(500, "", why))
        }
        _ => Err(kind.conflict(name, CONFLICT)),
    }
}

/// Keeps what this part of the object may not change.
fn prepare_updated(kind: &Kind, part: Part, object: &mut Value, current: &Value) {
    meta::carry_over(object, current);
    match part {
        Part::Main | Part::Scale => {
            if kind.has_status() {
                restore(object, current, "status");
            }
            (kind.hooks.prepare_update)(object, current);
            if kind.has_generation {
                count_generation(kind, object, current);
            }
        }
        Part::Status => {
            keep_all_but(object, current, &["status", "metadata"]);
            (kind.hooks.prepare_status)(object, current);
        }
        Part::Finalize => {
            let finalizers = object["spec"]["finalizers"].take();
            keep_all_but(object, current, &["metadata"]);
            match finalizers.as_array().is_some_and(|list| !list.is_empty()) {
                true => object["spec"]["finalizers"] = finalizers,
                false => remove(&mut object["spec"], "finalizers"),
            }
        }
        Part::EphemeralContainers | Part::Resize => {
            if part == Part::Resize && !has_same_count(object, current) {
                // Containers came or went: left as it is for validation to refuse.
                return;
            }
            let wanted = object["spec"].take();
            keep_all_but(object, current, &["metadata"]);
            meta::reset_for_status(object, current);
            match part {
                Part::Resize => resize(object, &wanted),
                _ => restore(&mut object["spec"], &wanted, "ephemeralContainers"),
            }
            if kind.has_generation {
                meta::bump_generation(object, current);
            }
        }
    }
}

/// A custom kind without the status subresource counts changes of status, too.
fn count_generation(kind: &Kind, object: &mut Value, current: &Value) {
    if kind.custom.is_some() && !kind.has_status() && object.get("status") != current.get("status") {
        let next = meta::generation(current) + 1;
        return meta::set(object, "generation", Some(Value::from(next)));
    }
    meta::bump_generation(object, current);
}

fn keep_all_but(object: &mut Value, current: &Value, own: &[&str]) {
    let mut kept = current.clone();
    for field in own {
        restore(&mut kept, object, field);
    }
    *object = kept;
}

/// As many containers as before.
fn has_same_count(object: &Value, current: &Value) -> bool {
    let count = |object: &Value, list: &str| object["spec"][list].as_array().map_or(0, Vec::len);
    ["containers", "initContainers"].iter().all(|list| count(object, list) == count(current, list))
}

/// Only the resources and resize policies of containers; other names are left for validation to refuse.
fn resize(object: &mut Value, wanted: &Value) {
    for list in ["containers", "initContainers"] {
        let Some(wanted) = wanted[list].as_array() else { continue };
        let Some(containers) = object["spec"][list].as_array_mut() else { continue };
        if containers.iter().zip(wanted).any(|(old, new)| old["name"] != new["name"]) {
            containers.clone_from(wanted);
            continue;
        }
        for (container, wanted) in containers.iter_mut().zip(wanted) {
            for field in ["resources", "resizePolicy"] {
                restore(container, wanted, field);
            }
        }
    }
}

/// The last finalizer of an object under deletion is gone: so is the object.
fn is_done_deleting(kind: &Kind, object: &Value, current: &Value) -> bool {
    let grace = meta::of(current).and_then(|m| m.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    let is_namespace = kind.group.is_empty() && kind.kind == "Namespace";
    let spec = object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    match is_namespace {
        true => meta::is_deleting(current) && spec && meta::finalizers(object).is_empty(),
        false => grace == Some(0) && meta::finalizers(object).is_empty(),
    }
}

/// Equal owner references once, with a warning.
fn dedup_owners(object: &mut Value, warnings: &mut Vec<String>) {
    let Some(owners) = meta::of_mut(object).get_mut("ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    let mut seen: Vec<Value> = Vec::new();
    let mut twice = Vec::new();
    for owner in owners.drain(..) {
        match seen.contains(&owner) {
            true => twice.push(owner["uid"].as_str().unwrap_or_default().to_owned()),
            false => seen.push(owner),
        }
    }
    *owners = seen;
    if !twice.is_empty() {
        warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// New finalizers of custom resources should say whose they are.
fn finalizer_warnings(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(meta::finalizers).unwrap_or_default();
    let is_new = |name: &&str| !known.contains(name) && !name.contains('/');
    let standard = [meta::FINALIZER_ORPHAN, meta::FINALIZER_FOREGROUND];
    let list = meta::finalizers(object).into_iter().filter(|name| is_new(name) && !standard.contains(name));
    let text = |name: &str| {
        format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name to avoid accidental conflicts with \
             other finalizer writers",
            crate::kinds::quote(name)
        )
    };
    if kind.custom.is_some() { list.map(text).collect() } else { Vec::new() }
}

fn apply_patch(kind: &Kind, current: Value, patch: &Patch) -> Result<Value, ApiError> {
    let result = match patch {
        Patch::Json(patch) => patch::json::apply(current, patch),
        Patch::Merge(patch) => patch::merge::apply(current, patch),
        Patch::Strategic(patch) => match kind.builtin_schema() {
            Some(schema) => patch::strategic::apply(current, patch, schema),
            None => return Err(unsupported_patch(kind)),
        },
        Patch::Apply(_) => return Err(ApiError::internal("apply patches have their own path")),
    };
    result.map_err(|error| match error {
        PatchError::Malformed(why) => ApiError::bad_request(why),
        PatchError::TooLarge(why) => ApiError::too_large(&why),
        PatchError::DoesNotApply(_) => {
            ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request")
                .with_causes(Vec::new())
        }
        PatchError::Unexpected(why) => ApiError::new(500, "", why),
    })
}

/// What a kind accepts as content type of a patch.
pub(super) fn patch_types(kind: &Kind) -> &'static str {
    match kind.custom {
        Some(_) => "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        None => {
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
             application/apply-patch+yaml"
        }
    }
}

pub(super) fn unsupported_patch(kind: &Kind) -> ApiError {
    ApiError::unsupported_media_type(patch_types(kind))
}

/// The part of an object that a subresource of this name writes.
pub(super) fn part(kind: &Kind, subresource: &str) -> Option<Part> {
    if subresource.is_empty() {
        return Some(Part::Main);
    }
    match kind.find_subresource(subresource)? {
        Subresource::Status => Some(Part::Status),
        Subresource::EphemeralContainers => Some(Part::EphemeralContainers),
        Subresource::Resize => Some(Part::Resize),
        Subresource::Finalize => Some(Part::Finalize),
        Subresource::Scale(_) | Subresource::Binding | Subresource::Eviction => None,
    }
}
