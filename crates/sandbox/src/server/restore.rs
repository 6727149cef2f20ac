//! Whole clusters at once: bringing one in from a dump, and starting over.
//!
//! An object with a uid has lived before: it goes in as it is, status and owners included, and no
//! admission looks at it. One without is a manifest and is applied as a user would. Everything is
//! read and judged before the first commit, so a bad dump changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use serde::Serialize;
use serde_json::Value;

use super::api::{Api, FieldValidation, Part, WriteOptions, draft};
use super::decode::{Format, read};
use super::write::Patch;
use crate::dump::{Dump, DumpError, Item};
use crate::kinds::{Kind, Registry, from_crd, meta};
use crate::status::ApiError;
use crate::store::{Draft, Lost, Table};

/// Problems named before the rest is only counted.
const PROBLEMS_SHOWN: usize = 20;

/// Why a dump was not brought in.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Dump(#[from] DumpError),
    #[error("{}", list_problems(.0))]
    Objects(Vec<String>),
}

/// What a dump brought.
#[derive(Clone, Debug, Default, Serialize, serde::Deserialize, PartialEq, Eq)]
pub struct Restored {
    /// Objects that went in as they were.
    pub restored: usize,
    /// Manifests applied.
    pub applied: usize,
    /// Namespaces made because objects needed them.
    pub namespaces: Vec<String>,
    /// Objects left out because their kind is not served, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Manifests refused, and why.
    pub refused: Vec<String>,
}

/// An object read and waiting for its commit.
struct Ready {
    kind: Arc<Kind>,
    draft: Draft,
}

/// Everything a dump holds, sorted by what happens to it.
#[derive(Default)]
struct Plan {
    definitions: Vec<Ready>,
    namespaces: Vec<Ready>,
    others: Vec<Ready>,
    manifests: Vec<(Arc<Kind>, Value)>,
    wanted_namespaces: BTreeSet<String>,
    skipped: BTreeMap<String, usize>,
    problems: Vec<String>,
}

impl Api {
    /// Brings in what a dump holds. Objects already there under the same name are replaced.
    pub async fn restore(&self, dump: &Dump) -> Result<Restored, RestoreError> {
        let plan = self.plan(dump)?;
        let mut outcome = Restored { skipped: plan.skipped, ..Restored::default() };
        for ready in plan.definitions.into_iter().chain(plan.namespaces) {
            self.put(ready);
            outcome.restored += 1;
        }
        for name in plan.wanted_namespaces {
            if self.make_namespace(&name) {
                outcome.namespaces.push(name);
            }
        }
        outcome.restored += plan.others.len();
        for ready in plan.others {
            self.put(ready);
        }
        for (kind, object) in plan.manifests {
            let name = meta::name(&object).to_owned();
            match self.apply_manifest(&kind, object).await {
                Ok(()) => outcome.applied += 1,
                Err(error) => outcome.refused.push(format!("{} {name}: {}", kind.kind, error.message)),
            }
        }
        Ok(outcome)
    }

    /// Takes everything away: an empty cluster with the kinds and namespaces of a new one. Watches see
    /// every object go.
    pub fn clear(&self) {
        for table in self.store.tables() {
            table.clear();
        }
        {
            let _guard = self.kinds_writer.lock().unwrap_or_else(PoisonError::into_inner);
            self.set_registry(Registry::builtin());
        }
        self.webhooks.forget();
        self.make_first_objects();
    }

    fn plan(&self, dump: &Dump) -> Result<Plan, RestoreError> {
        let items = dump.items()?;
        let mut plan = Plan::default();
        let mut registry = (*self.registry()).clone();
        // Definitions first: the kinds of other items may be theirs.
        for item in items.iter().filter(|item| item.kind == "CustomResourceDefinition") {
            plan.take(&registry, item);
            let Ok(definition) = serde_json::from_str::<Value>(item.json) else { continue };
            from_crd(&definition).unwrap_or_default().into_iter().for_each(|kind| registry.insert(kind));
        }
        for item in items.iter().filter(|item| item.kind != "CustomResourceDefinition") {
            plan.take(&registry, item);
        }
        match plan.problems.is_empty() {
            true => Ok(plan),
            false => Err(RestoreError::Objects(plan.problems)),
        }
    }

    fn put(&self, ready: Ready) {
        let Ready { kind, draft } = ready;
        let table = self.table(&kind);
        let old = table.get(draft.key());
        let key = draft.key().to_owned();
        overwrite(&table, draft);
        self.after_write(&kind, old.as_ref(), table.get(&key).as_ref());
    }

    async fn apply_manifest(&self, kind: &Arc<Kind>, object: Value) -> Result<(), ApiError> {
        let options = WriteOptions { force: true, ..WriteOptions::by("koord-sandbox") };
        let (namespace, name) = (meta::namespace(&object).to_owned(), meta::name(&object).to_owned());
        if name.is_empty() {
            return self.create(kind, &namespace, object, &options).await.map(|_| ());
        }
        let patch = Patch::Apply(object);
        self.patch(kind, (&namespace, &name), Part::Main, &patch, &options).await.map(|_| ())
    }
}

impl Plan {
    fn take(&mut self, registry: &Registry, item: &Item<'_>) {
        let (group, version) = item.group_version();
        let Some(kind) = registry.find_kind(group, version, &item.kind).filter(|kind| kind.allows("list"))
        else {
            *self.skipped.entry(format!("{} {}", item.api_version, item.kind)).or_default() += 1;
            return;
        };
        if let Err(problem) = self.sort(kind, item) {
            self.problems.push(problem);
        }
    }

    fn sort(&mut self, kind: &Arc<Kind>, item: &Item<'_>) -> Result<(), String> {
        let raw: Value = serde_json::from_str(item.json).map_err(|error| error.to_string())?;
        let (namespace, name) = (meta::namespace(&raw).to_owned(), meta::name(&raw).to_owned());
        let called = format!("{} {}", kind.kind, crate::store::key(&namespace, &name));
        if kind.namespaced == namespace.is_empty() && !(kind.namespaced && meta::uid(&raw).is_empty()) {
            let want = if kind.namespaced { "needs a" } else { "has a" };
            return Err(format!("{called}: metadata.namespace: a {} {want} namespace", scope(kind)));
        }
        if meta::uid(&raw).is_empty() {
            let mut raw = raw;
            if kind.namespaced && namespace.is_empty() {
                meta::set(&mut raw, "namespace", Some(Value::from("default")));
            }
            self.want_namespace(kind, meta::namespace(&raw));
            self.manifests.push((kind.clone(), raw));
            return Ok(());
        }
        if name.is_empty() {
            return Err(format!("{called}: metadata.name: an object that has lived before needs one"));
        }
        let object = read(kind, Format::Json, item.json.as_bytes(), FieldValidation::Ignore)
            .map_err(|error| format!("{called}: {}", error.message))?
            .object;
        self.want_namespace(kind, &namespace);
        let ready = Ready { kind: kind.clone(), draft: draft(kind, object) };
        match (kind.group.as_ref(), kind.plural.as_ref()) {
            ("apiextensions.k8s.io", "customresourcedefinitions") => {
                if let Err(faults) = from_crd(&raw) {
                    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                    return Err(format!("{called}: {}", faults.join(", ")));
                }
                self.definitions.push(ready);
            }
            ("", "namespaces") => self.namespaces.push(ready),
            _ => self.others.push(ready),
        }
        Ok(())
    }

    fn want_namespace(&mut self, kind: &Kind, namespace: &str) {
        if kind.namespaced {
            self.wanted_namespaces.insert(namespace.to_owned());
        }
    }
}

fn scope(kind: &Kind) -> String {
    format!("{} {}", if kind.namespaced { "namespaced" } else { "cluster-scoped" }, kind.kind)
}

/// Commits over whatever is there.
fn overwrite(table: &Table, draft: Draft) {
    loop {
        let result = match table.get(draft.key()) {
            None => table.create(draft.clone()).map_err(Lost::Changed),
            Some(there) => table.replace(draft.clone(), there.revision()),
        };
        // Somebody came between: look again.
        if result.is_ok() {
            return;
        }
    }
}

fn list_problems(problems: &[String]) -> String {
    let mut text = format!("{} objects cannot be brought in:", problems.len());
    for problem in problems.iter().take(PROBLEMS_SHOWN) {
        text.push_str("\n  ");
        text.push_str(problem);
    }
    if problems.len() > PROBLEMS_SHOWN {
        text.push_str(&format!("\n  and {} more", problems.len() - PROBLEMS_SHOWN));
    }
    text
}
