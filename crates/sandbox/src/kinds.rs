//! The table of kinds, and what each wants: defaults, validation, columns.
//!
//! A `Kind` is data plus plain functions on JSON objects (`Hooks`); nothing here does I/O or reads a
//! clock. One file per API group lists its kinds; a new built-in kind is one row there. CRDs add
//! kinds while the server runs. What all kinds share (metadata, generation, names) is in `meta`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::schema::{Schema, builtin};
use crate::status::ApiError;

mod admissionregistration;
mod apiextensions;
mod apps;
mod batch;
mod cell;
mod check;
mod coordination;
mod core;
mod custom;
mod diff;
mod discovery;
mod events;
mod field;
mod internal;
mod jsonpath;
pub mod meta;
pub mod names;
mod pod_template;
mod policy;
mod rbac;
mod resource;
mod resources;
mod reviews;
mod rules;
mod scheduling;
mod storage;
mod tree;

pub use crate::schema::fault::quote;
pub use crate::schema::{Fault, FieldError};
pub use custom::{Custom, from_crd};
pub use field::Path;
pub use names::NameRule;
pub(crate) use scheduling::system_priority_classes;

/// Text of a built-in kind is static, that of a CRD is not.
pub type Text = Cow<'static, str>;

/// One resource of one group and version.
#[derive(Clone)]
pub struct Kind {
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub plural: Text,
    pub singular: Text,
    pub short_names: Vec<Text>,
    pub categories: Vec<Text>,
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    pub subresources: Vec<Subresource>,
    /// Columns of a server-side Table, `Name` among them; `Hooks::row` gives the cells. None: name and age.
    pub columns: Vec<Column>,
    /// Group of the table the objects live in. Both Event groups share one.
    pub storage_group: Text,
    /// `metadata.generation` starts at 1 and counts changes outside metadata and status.
    pub has_generation: bool,
    /// PUT to a name that does not exist creates it.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// Dependents are left alone by default (the old Job and controller kinds ask for it).
    pub orphans_by_default: bool,
    /// A delete answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// A creator may set the status, too.
    pub status_on_create: bool,
    pub hooks: Hooks,
    /// Only of CRDs.
    pub custom: Option<Arc<Custom>>,
}

/// Judges an update of one part: subresource, new, old.
pub type ValidatePart = fn(&str, &Value, &Value) -> Vec<FieldError>;

/// What a kind does differently. Every field has a neutral default; name only what differs.
#[derive(Clone, Copy)]
pub struct Hooks {
    pub name: NameRule,
    /// Fills absent fields, on every decode: create, update, patch result.
    pub default: fn(&mut Value),
    /// After the framework dropped `status`: the initial status, fields a creator may not set.
    pub prepare_create: fn(&mut Value),
    /// New, old; after the framework put the old `status` back.
    pub prepare_update: fn(&mut Value, &Value),
    /// New, old, for the status subresource; after the framework put everything but status and
    /// metadata back.
    pub prepare_status: fn(&mut Value, &Value),
    /// Object, and the old one on update. Metadata is checked by the framework before.
    pub validate: fn(&Value, Option<&Value>) -> Vec<FieldError>,
    pub validate_status: fn(&Value, &Value) -> Vec<FieldError>,
    /// Subresource, new, old: an update of one part has rules of its own. None: as any update.
    pub validate_part: Option<ValidatePart>,
    /// What Kubernetes' own admission plugins do to this kind: may look at other objects.
    pub admit: fn(&mut Admission<'_>) -> Result<(), ApiError>,
    /// What they refuse, once the object is final and valid.
    pub approve: fn(&Approval<'_>) -> Result<(), ApiError>,
    /// `Warning` headers for create (old is None) and update.
    pub warn: fn(&Value, Option<&Value>) -> Vec<String>,
    /// Fields a fieldSelector may name, besides metadata.name and metadata.namespace.
    pub fields: fn(&Value) -> Vec<(&'static str, String)>,
    /// Their names, for refusing others.
    pub field_names: &'static [&'static str],
    /// Cells, one per column, at this moment.
    pub row: fn(&Value, Timestamp) -> Vec<Value>,
    /// What kubectl may filter rows by: Kubernetes marks pods that have ended.
    pub row_conditions: fn(&Value) -> Option<Value>,
    /// Seconds of grace for a delete that asks for `requested`; None when the kind goes at once.
    pub grace: fn(&Value, Option<i64>) -> Option<i64>,
    /// Where what is stored and what this version shows differ.
    pub convert: Option<Convert>,
}

/// From and to the shape at rest.
#[derive(Clone, Copy)]
pub struct Convert {
    pub to_storage: fn(&mut Value),
    pub from_storage: fn(&mut Value),
}

impl Default for Hooks {
    fn default() -> Hooks {
        Hooks {
            name: names::subdomain,
            default: |_| {},
            prepare_create: |_| {},
            prepare_update: |_, _| {},
            prepare_status: |_, _| {},
            validate: |_, _| Vec::new(),
            validate_status: |_, _| Vec::new(),
            validate_part: None,
            admit: |_| Ok(()),
            approve: |_| Ok(()),
            warn: |_, _| Vec::new(),
            fields: |_| Vec::new(),
            field_names: &[],
            row: |_, _| Vec::new(),
            row_conditions: |_| None,
            grace: |_, _| None,
            convert: None,
        }
    }
}

/// One write as admission sees it.
pub struct Admission<'a> {
    pub cluster: &'a dyn Cluster,
    pub operation: Operation,
    /// Empty, or `status`, `binding`, …
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub user: &'a str,
    /// The new object; Null on delete.
    pub object: &'a mut Value,
    pub old: Option<&'a Value>,
}

/// One write as it will be committed.
pub struct Approval<'a> {
    pub cluster: &'a dyn Cluster,
    pub kind: &'a Kind,
    pub operation: Operation,
    /// Empty, or `status`, `resize`, …
    pub subresource: &'a str,
    pub object: &'a Value,
    pub old: Option<&'a Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub fn text(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// Other objects, as hooks may read them. `namespace` is empty for cluster-scoped kinds.
pub trait Cluster {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;
    /// In order of name; all namespaces when `namespace` is empty.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value>;
    fn now(&self) -> Timestamp;
}

/// A part of an object with a path of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Subresource {
    Status,
    Scale(ScalePaths),
    /// pods/binding and pods/eviction.
    Binding,
    Eviction,
    /// pods/ephemeralcontainers, pods/resize: an update of part of the spec.
    EphemeralContainers,
    Resize,
    /// namespaces/finalize.
    Finalize,
}

impl Subresource {
    pub fn name(&self) -> &'static str {
        match self {
            Subresource::Status => "status",
            Subresource::Scale(_) => "scale",
            Subresource::Binding => "binding",
            Subresource::Eviction => "eviction",
            Subresource::EphemeralContainers => "ephemeralcontainers",
            Subresource::Resize => "resize",
            Subresource::Finalize => "finalize",
        }
    }
}

/// Where a scale finds its numbers: dotted paths such as `spec.replicas`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePaths {
    pub spec_replicas: Text,
    pub status_replicas: Text,
    /// A string in the status, or (built-in kinds) the label selector object at `spec.selector`.
    pub selector: Option<Text>,
}

impl ScalePaths {
    /// The built-in workloads' paths.
    pub fn workload() -> ScalePaths {
        ScalePaths {
            spec_replicas: "spec.replicas".into(),
            status_replicas: "status.replicas".into(),
            selector: Some("spec.selector".into()),
        }
    }
}

/// A column of a server-side Table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: Text,
    /// `string`, `integer`, `date`, …
    pub kind: Text,
    pub format: Text,
    pub description: Text,
    /// 0 is always shown, above only with `-o wide`.
    pub priority: i64,
}

impl Column {
    pub fn new(name: &'static str, kind: &'static str, priority: i64, description: &'static str) -> Column {
        Column {
            name: name.into(),
            kind: kind.into(),
            format: "".into(),
            description: description.into(),
            priority,
        }
    }
}

/// Everything a stored kind offers.
pub const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl Kind {
    /// A built-in kind with all verbs, named as usual: `("apps/v1", "Deployment", "deployments")`.
    pub fn builtin(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Kind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: kind.to_ascii_lowercase().into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            verbs: ALL_VERBS,
            subresources: Vec::new(),
            columns: Vec::new(),
            storage_group: group.into(),
            has_generation: false,
            create_on_update: false,
            unconditional_update: true,
            orphans_by_default: false,
            returns_deleted: false,
            status_on_create: false,
            hooks: Hooks::default(),
            custom: None,
        }
    }

    pub fn cluster_scoped(mut self) -> Kind {
        self.namespaced = false;
        self
    }

    pub fn short(mut self, names: &[&'static str]) -> Kind {
        self.short_names = names.iter().map(|n| Text::from(*n)).collect();
        self
    }

    pub fn category(mut self, name: &'static str) -> Kind {
        self.categories.push(name.into());
        self
    }

    pub fn status(mut self) -> Kind {
        self.subresources.push(Subresource::Status);
        self
    }

    pub fn subresource(mut self, subresource: Subresource) -> Kind {
        self.subresources.push(subresource);
        self
    }

    pub fn generation(mut self) -> Kind {
        self.has_generation = true;
        self
    }

    pub fn columns(mut self, columns: Vec<Column>) -> Kind {
        self.columns = columns;
        self
    }

    pub fn hooks(mut self, hooks: Hooks) -> Kind {
        self.hooks = hooks;
        self
    }

    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone().into_owned(),
            false => format!("{}/{}", self.group, self.version),
        }
    }

    /// The shape of a built-in kind; a CRD's objects are read without one.
    pub fn builtin_schema(&self) -> Option<&'static Schema> {
        match self.custom {
            Some(_) => None,
            None => builtin::by_name(&builtin::type_name(&self.group, &self.version, &self.kind)),
        }
    }

    pub fn custom_schema(&self) -> Option<&Schema> {
        self.custom.as_deref().map(|custom| &custom.schema)
    }

    /// The shape of the whole object, metadata included.
    pub fn typed_schema(&self) -> Option<&Schema> {
        self.custom.as_deref().map(|custom| &custom.typed).or_else(|| self.builtin_schema())
    }

    pub fn schema(&self) -> Option<&Schema> {
        self.custom_schema().or_else(|| self.builtin_schema())
    }

    pub fn fill_defaults(&self, object: &mut Value) {
        match &self.custom {
            Some(custom) => crate::schema::shape::fill_defaults(object, &custom.schema),
            None => (self.hooks.default)(object),
        }
    }

    /// Faults outside metadata.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        match (&self.custom, old) {
            (Some(custom), None) => crate::schema::validate::validate(object, &custom.schema),
            (Some(custom), Some(old)) => {
                crate::schema::validate::validate_update(object, old, &custom.schema)
            }
            (None, old) => (self.hooks.validate)(object, old),
        }
    }

    /// What a field selector may ask this object for.
    pub fn selectable(&self, object: &Value) -> Vec<(Text, String)> {
        match &self.custom {
            Some(custom) => custom.selectable(object),
            None => {
                (self.hooks.fields)(object).into_iter().map(|(name, value)| (name.into(), value)).collect()
            }
        }
    }

    pub fn knows_field(&self, field: &str) -> bool {
        ["metadata.name", "metadata.namespace"].contains(&field)
            || self.hooks.field_names.contains(&field)
            || self.custom.as_ref().is_some_and(|custom| custom.knows_field(field))
    }

    /// What to say of a field that a selector may not name.
    pub fn unknown_field(&self, field: &str) -> String {
        match (self.group.as_ref(), self.kind.as_ref()) {
            ("batch", "Job") => format!("field label {} not supported for Job", quote(field)),
            ("resource.k8s.io", "ResourceSlice") => {
                format!("field label not supported for {}, Kind={}: {field}", self.api_version(), self.kind)
            }
            _ if self.custom.is_none() && self.hooks.field_names.is_empty() => format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                quote(field)
            ),
            _ => format!("field label not supported: {field}"),
        }
    }

    /// Cells of a Table row, one per column.
    pub fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.custom {
            Some(custom) => custom.row(object, now),
            None => (self.hooks.row)(object, now),
        }
    }

    /// Whether what is at rest is not what this version shows.
    pub fn converts(&self) -> bool {
        let is_other = |custom: &Arc<Custom>| !custom.is_storage || custom.fills_on_read;
        self.hooks.convert.is_some() || self.custom.as_ref().is_some_and(is_other)
    }

    pub fn from_storage(&self, object: &mut Value) {
        if let Some(convert) = self.hooks.convert {
            (convert.from_storage)(object);
        }
        if self.custom.as_ref().is_some_and(|custom| !custom.is_storage) {
            object["apiVersion"] = Value::from(self.api_version());
        }
        if self.custom.as_ref().is_some_and(|custom| custom.fills_on_read) {
            self.fill_defaults(object);
        }
    }

    pub fn to_storage(&self, object: &mut Value) {
        if let Some(convert) = self.hooks.convert {
            (convert.to_storage)(object);
        }
        if let Some(custom) = self.custom.as_ref().filter(|custom| !custom.is_storage) {
            object["apiVersion"] = Value::from(custom.storage_api_version.as_str());
        }
    }

    pub fn has_status(&self) -> bool {
        self.subresources.contains(&Subresource::Status)
    }

    pub fn find_subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name() == name)
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    pub fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.group, &self.plural, name)
    }

    pub fn conflict(&self, name: &str, why: &str) -> ApiError {
        ApiError::conflict(&self.group, &self.plural, name, why)
    }

    pub fn forbidden(&self, name: &str, why: &str) -> ApiError {
        ApiError::forbidden(&self.group, &self.plural, name, why)
    }

    pub fn invalid(&self, name: &str, errors: &[FieldError]) -> ApiError {
        // The Event groups share their table, and the name of its group.
        ApiError::invalid(&self.storage_group, &self.kind, name, errors)
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.plural)
    }
}

/// All kinds served at one moment. Immutable: a CRD makes a new one.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    groups: BTreeMap<String, Group>,
}

/// The versions of one group, best first.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub versions: Vec<Version>,
}

#[derive(Clone, Debug)]
pub struct Version {
    pub name: String,
    /// By plural.
    pub kinds: BTreeMap<String, Arc<Kind>>,
}

impl Registry {
    /// The kinds Kubernetes itself brings.
    pub fn builtin() -> Registry {
        let mut registry = Registry::default();
        let groups = [
            admissionregistration::kinds(),
            apiextensions::kinds(),
            apps::kinds(),
            batch::kinds(),
            coordination::kinds(),
            core::kinds(),
            discovery::kinds(),
            events::kinds(),
            policy::kinds(),
            rbac::kinds(),
            resource::kinds(),
            reviews::kinds(),
            scheduling::kinds(),
            storage::kinds(),
        ];
        groups.into_iter().flatten().for_each(|kind| registry.insert(kind));
        registry
    }

    pub fn insert(&mut self, kind: Kind) {
        let group = self.groups.entry(kind.group.clone().into_owned()).or_default();
        let at = match group.versions.iter().position(|v| v.name == kind.version) {
            Some(at) => at,
            None => {
                let rank = version_rank(&kind.version);
                let at = group.versions.partition_point(|v| version_rank(&v.name) >= rank);
                let name = kind.version.clone().into_owned();
                group.versions.insert(at, Version { name, kinds: BTreeMap::new() });
                at
            }
        };
        group.versions[at].kinds.insert(kind.plural.clone().into_owned(), Arc::new(kind));
    }

    /// Takes a resource out of every version of its group.
    pub fn remove(&mut self, group: &str, plural: &str) {
        let Some(found) = self.groups.get_mut(group) else { return };
        for version in &mut found.versions {
            version.kinds.remove(plural);
        }
        found.versions.retain(|v| !v.kinds.is_empty());
        if found.versions.is_empty() {
            self.groups.remove(group);
        }
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let group = self.groups.get(group)?;
        group.versions.iter().find(|v| v.name == version)?.kinds.get(plural)
    }

    /// The best version of a resource.
    pub fn find_resource(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.groups.get(group)?.versions.iter().find_map(|v| v.kinds.get(plural))
    }

    /// By kind, as owner references and manifests name it.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let group = self.groups.get(group)?;
        let version = group.versions.iter().find(|v| v.name == version)?;
        version.kinds.values().find(|k| k.kind == kind)
    }

    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (name.as_str(), group))
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.groups.values().flat_map(|g| &g.versions).flat_map(|v| v.kinds.values())
    }
}

/// Kubernetes' order of versions: v2 before v1 before v1beta2 before v1alpha1 before anything else.
fn version_rank(version: &str) -> (u8, u32, u32) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest[..digits].parse().ok()?;
        let (stage, tail) = match &rest[digits..] {
            "" => return Some((3, major, 0)),
            tail if tail.starts_with("beta") => (2, &tail[4..]),
            tail if tail.starts_with("alpha") => (1, &tail[5..]),
            _ => return None,
        };
        Some((stage, major, tail.parse().ok()?))
    };
    parse().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_best_first() {
        let mut registry = Registry::default();
        for version in ["x.io/v1alpha1", "x.io/v1", "x.io/v1beta1", "x.io/v2", "x.io/odd"] {
            registry.insert(Kind::builtin(version, "Thing", "things"));
        }
        let names: Vec<&str> =
            registry.group("x.io").unwrap().versions.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names, ["v2", "v1", "v1beta1", "v1alpha1", "odd"]);
        assert_eq!(registry.find_resource("x.io", "things").unwrap().version, "v2");
        registry.remove("x.io", "things");
        assert!(registry.group("x.io").is_none());
    }

    #[test]
    fn the_builtin_table_is_sound() {
        let registry = Registry::builtin();
        for kind in registry.kinds() {
            assert_eq!(kind.plural, kind.plural.to_ascii_lowercase(), "{kind:?}");
            let object = serde_json::json!({"metadata": {"name": "a"}});
            let cells = (kind.hooks.row)(&object, Timestamp::UNIX_EPOCH);
            assert_eq!(cells.len(), kind.columns.len(), "{kind:?} cells match columns");
            // Kinds that share a table share its fields, each under its own names.
            let sharing =
                |other: &&Arc<Kind>| other.storage_group == kind.storage_group && other.plural == kind.plural;
            for (field, _) in (kind.hooks.fields)(&object) {
                let is_known = registry.kinds().filter(sharing).any(|k| k.hooks.field_names.contains(&field));
                assert!(is_known, "{kind:?} lists {field}");
            }
        }
    }
}
