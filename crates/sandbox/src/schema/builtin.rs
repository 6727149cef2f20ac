//! Kubernetes' own types: shapes and descriptions from k8s-openapi, everything else from facts.txt.
//!
//! All types are converted once, on first use. A new kind is one line in `ROOTS`.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::{Checks, GoField, Kind, ListType, PatchStrategy, Schema};

/// A built-in type, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(usize);

/// The type of an OpenAPI name such as `io.k8s.api.core.v1.Pod`.
pub fn by_name(name: &str) -> Option<&'static Schema> {
    TYPES.index.get(name).map(|id| by_id(*id))
}

pub(super) fn by_id(id: TypeId) -> &'static Schema {
    // Identifiers are only made for entries of the table.
    &TYPES.list[id.0].1
}

/// The OpenAPI name of a type.
pub fn name_of(id: TypeId) -> &'static str {
    &TYPES.list[id.0].0
}

/// The metadata of every object, built-in or custom.
pub fn object_meta() -> &'static Schema {
    by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("every root refers to ObjectMeta")
}

/// The OpenAPI name of a kind: `io.k8s.api.` and its package for most groups.
pub fn type_name(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        "apiextensions.k8s.io" => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}")
        }
        _ => {
            // The package is the first label of the group: rbac.authorization.k8s.io is rbac.
            let package = group.split('.').next().unwrap_or_default();
            format!("io.k8s.api.{package}.{version}.{kind}")
        }
    }
}

struct Types {
    list: Vec<(String, Schema)>,
    index: HashMap<String, TypeId>,
}

static TYPES: LazyLock<Types> = LazyLock::new(load);

/// Every type a request or an answer can consist of.
const ROOTS: &[fn(&mut SchemaGenerator)] = &[
    root::<api::core::v1::Binding>,
    root::<api::core::v1::ConfigMap>,
    root::<api::core::v1::Endpoints>,
    root::<api::core::v1::Event>,
    root::<api::core::v1::LimitRange>,
    root::<api::core::v1::Namespace>,
    root::<api::core::v1::Node>,
    root::<api::core::v1::PersistentVolume>,
    root::<api::core::v1::PersistentVolumeClaim>,
    root::<api::core::v1::Pod>,
    root::<api::core::v1::PodTemplate>,
    root::<api::core::v1::ReplicationController>,
    root::<api::core::v1::ResourceQuota>,
    root::<api::core::v1::Secret>,
    root::<api::core::v1::Service>,
    root::<api::core::v1::ServiceAccount>,
    root::<api::apps::v1::ControllerRevision>,
    root::<api::apps::v1::DaemonSet>,
    root::<api::apps::v1::Deployment>,
    root::<api::apps::v1::ReplicaSet>,
    root::<api::apps::v1::StatefulSet>,
    root::<api::batch::v1::CronJob>,
    root::<api::batch::v1::Job>,
    root::<api::policy::v1::Eviction>,
    root::<api::policy::v1::PodDisruptionBudget>,
    root::<api::scheduling::v1::PriorityClass>,
    root::<api::storage::v1::CSIDriver>,
    root::<api::storage::v1::CSINode>,
    root::<api::storage::v1::CSIStorageCapacity>,
    root::<api::storage::v1::StorageClass>,
    root::<api::storage::v1::VolumeAttachment>,
    root::<api::storage::v1::VolumeAttributesClass>,
    root::<api::coordination::v1::Lease>,
    root::<api::events::v1::Event>,
    root::<api::rbac::v1::ClusterRole>,
    root::<api::rbac::v1::ClusterRoleBinding>,
    root::<api::rbac::v1::Role>,
    root::<api::rbac::v1::RoleBinding>,
    root::<api::admissionregistration::v1::MutatingWebhookConfiguration>,
    root::<api::admissionregistration::v1::ValidatingAdmissionPolicy>,
    root::<api::admissionregistration::v1::ValidatingAdmissionPolicyBinding>,
    root::<api::admissionregistration::v1::ValidatingWebhookConfiguration>,
    root::<apiextensions::v1::CustomResourceDefinition>,
    root::<api::discovery::v1::EndpointSlice>,
    root::<api::authorization::v1::LocalSubjectAccessReview>,
    root::<api::authorization::v1::SelfSubjectAccessReview>,
    root::<api::authorization::v1::SelfSubjectRulesReview>,
    root::<api::authorization::v1::SubjectAccessReview>,
    root::<api::authentication::v1::SelfSubjectReview>,
    root::<api::authentication::v1::TokenRequest>,
    root::<api::authentication::v1::TokenReview>,
    root::<api::autoscaling::v1::HorizontalPodAutoscaler>,
    root::<api::autoscaling::v1::Scale>,
    root::<api::networking::v1::Ingress>,
    root::<api::networking::v1::IngressClass>,
    root::<api::networking::v1::NetworkPolicy>,
    root::<api::node::v1::RuntimeClass>,
    root::<api::resource::v1::DeviceClass>,
    root::<api::resource::v1::ResourceClaim>,
    root::<api::resource::v1::ResourceClaimTemplate>,
    root::<api::resource::v1::ResourceSlice>,
    root::<meta::DeleteOptions>,
    root::<meta::ListMeta>,
    root::<meta::Status>,
];

fn root<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

fn load() -> Types {
    let mut generator = SchemaSettings::openapi3().into_generator();
    ROOTS.iter().for_each(|root| root(&mut generator));
    // Transforms would rewrite references into a form of their own; the raw definitions are wanted.
    let definitions = generator.take_definitions(false);
    let index: HashMap<String, TypeId> =
        definitions.keys().enumerate().map(|(place, name)| (name.clone(), TypeId(place))).collect();
    let facts = Facts::parse(include_str!("facts.txt"));
    let list = definitions
        .into_iter()
        .map(|(name, raw)| {
            let schema = Reader { index: &index }.named(&name, &raw, facts.types.get(name.as_str()));
            (name, schema)
        })
        .collect();
    Types { list, index }
}

/// facts.txt, by type and field.
struct Facts<'a> {
    types: BTreeMap<&'a str, TypeFacts<'a>>,
}

#[derive(Default)]
struct TypeFacts<'a> {
    atomic: bool,
    fields: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Facts<'a> {
    fn parse(text: &'a str) -> Facts<'a> {
        let mut types: BTreeMap<&str, TypeFacts<'_>> = BTreeMap::new();
        let mut current = "";
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if !line.starts_with(' ') {
                current = first;
                types.entry(current).or_default().atomic = words.any(|word| word == "map=atomic");
            } else {
                types.entry(current).or_default().fields.insert(first, words.collect());
            }
        }
        Facts { types }
    }
}

struct Reader<'a> {
    index: &'a HashMap<String, TypeId>,
}

impl Reader<'_> {
    fn named(&self, name: &str, raw: &Value, facts: Option<&TypeFacts<'_>>) -> Schema {
        let mut schema = self.read(raw);
        schema.kind = match name.strip_prefix("io.k8s.apimachinery.pkg.").unwrap_or(name) {
            "api.resource.Quantity" => Kind::Quantity,
            "apis.meta.v1.Time" => Kind::Time,
            "apis.meta.v1.MicroTime" => Kind::MicroTime,
            "util.intstr.IntOrString" => Kind::IntOrString,
            "runtime.RawExtension" | "apis.meta.v1.FieldsV1" => Kind::Any,
            // Schemas inside a CRD may be objects, flags or lists.
            other if other.contains(".JSONSchemaPropsOr") || other.ends_with("apiextensions.v1.JSON") => {
                Kind::Any
            }
            _ => schema.kind,
        };
        schema.preserve_unknown = schema.kind == Kind::Any;
        // Nobody looks into an extension, so it has one owner.
        schema.atomic = name.ends_with("runtime.RawExtension").then_some(true);
        let Some(facts) = facts else { return schema.with_go_fields() };
        if facts.atomic {
            schema.atomic = Some(true);
        }
        correct_required(&mut schema, facts);
        let required = schema.checks.as_ref().map(|checks| checks.required.clone()).unwrap_or_default();
        for (field, words) in &facts.fields {
            if let Some(below) = schema.properties.get_mut(*field) {
                apply_facts(below, words, required.iter().any(|name| name == field));
            }
        }
        schema.with_go_fields()
    }

    fn read(&self, raw: &Value) -> Schema {
        let Some(fields) = raw.as_object() else { return Schema::default() };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut schema = Schema { description: text("description"), ..Schema::default() };
        if let Some(id) = self.reference(fields) {
            schema.kind = Kind::Type(id);
            return schema;
        }
        schema.kind = kind(fields);
        schema.properties = self.properties(fields);
        schema.additional = fields.get("additionalProperties").map(|raw| Box::new(self.read(raw)));
        schema.items = fields.get("items").map(|raw| Box::new(self.read(raw)));
        let required = fields.get("required").and_then(Value::as_array).into_iter().flatten();
        // k8s-openapi asks for metadata where Kubernetes does not.
        let is_object = schema.properties.contains_key("apiVersion");
        let required: Vec<String> = required
            .filter_map(Value::as_str)
            .filter(|name| !(is_object && *name == "metadata"))
            .map(str::to_owned)
            .collect();
        let format = text("format");
        if !required.is_empty() || !format.is_empty() {
            schema.checks = Some(Box::new(Checks { required, format, ..Checks::default() }));
        }
        schema
    }

    fn reference(&self, fields: &Map<String, Value>) -> Option<TypeId> {
        let direct = fields.get("$ref").and_then(Value::as_str);
        let wrapped = || fields.get("allOf")?.as_array()?.first()?.get("$ref")?.as_str();
        let path = direct.or_else(wrapped)?;
        self.index.get(path.rsplit('/').next()?).copied()
    }

    fn properties(&self, fields: &Map<String, Value>) -> BTreeMap<String, Schema> {
        let raw = fields.get("properties").and_then(Value::as_object);
        raw.into_iter().flatten().map(|(name, raw)| (name.clone(), self.read(raw))).collect()
    }
}

fn kind(fields: &Map<String, Value>) -> Kind {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "object" => Kind::Object,
        "array" => Kind::List,
        "string" if text("format") == "byte" => Kind::Bytes,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => Kind::Any,
    }
}

/// k8s-openapi asks for a few fields more, and one less, than Kubernetes does.
fn correct_required(schema: &mut Schema, facts: &TypeFacts<'_>) {
    for (field, words) in &facts.fields {
        if words.contains(&"optional")
            && let Some(checks) = &mut schema.checks
        {
            checks.required.retain(|name| name != field);
        }
        if words.contains(&"required") {
            schema.checks.get_or_insert_default().required.push((*field).to_owned());
        }
    }
}

fn apply_facts(schema: &mut Schema, words: &[&str], required: bool) {
    let mut go = GoField { always: required, ..GoField::default() };
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "*" => go.pointer = true,
            "!" => go.always = true,
            "~" => go.always = false,
            "zero" => go.omit_zero = true,
            "go" => go.type_name = Some(value.into()),
            "via" => go.via = Some(value.into()),
            "default" => schema.default = serde_json::from_str(value).ok(),
            "list" => schema.list_type = list_type(value),
            "map" => schema.atomic = Some(value == "atomic"),
            "patch" => schema.patch = patch_strategy(value),
            "enum" => {
                let checks = schema.checks.get_or_insert_default();
                checks.allowed = value.split(',').map(Value::from).collect();
            }
            _ => {}
        }
    }
    schema.go = Some(Box::new(go));
}

fn list_type(value: &str) -> ListType {
    match value.split_once(':') {
        Some(("map", keys)) => ListType::Map(keys.split(',').map(str::to_owned).collect()),
        _ if value == "set" => ListType::Set,
        _ => ListType::Atomic,
    }
}

fn patch_strategy(value: &str) -> PatchStrategy {
    let (strategies, key) = value.split_once(':').unwrap_or((value, ""));
    let has = |name: &str| strategies.split(',').any(|one| one == name);
    PatchStrategy {
        merge: has("merge"),
        retain_keys: has("retainKeys"),
        replace: has("replace"),
        key: key.to_owned(),
    }
}

impl Schema {
    /// Gives the fields without a line in facts.txt what follows from `required` alone.
    fn with_go_fields(mut self) -> Schema {
        let required = self.checks.as_ref().map(|checks| checks.required.clone()).unwrap_or_default();
        for (name, below) in &mut self.properties {
            let always = required.contains(name);
            let go = below.go.get_or_insert_with(|| Box::new(GoField { always, ..GoField::default() }));
            let zero = match below.kind {
                Kind::String => Some("".into()),
                Kind::Integer => Some(0.into()),
                Kind::Boolean => Some(false.into()),
                _ => None,
            };
            if below.default.is_none() && go.always && !go.pointer {
                below.default = zero;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_has_its_facts() {
        let pod = by_name(&type_name("", "v1", "Pod")).unwrap();
        let spec = pod.properties["spec"].resolve();
        assert_eq!(spec.properties["containers"].list_type, ListType::Map(vec!["name".into()]));
        assert_eq!(
            spec.properties["containers"].patch,
            PatchStrategy { merge: true, key: "name".into(), ..PatchStrategy::default() }
        );
        assert!(spec.properties["nodeSelector"].is_atomic());
        let container = spec.properties["containers"].items.as_ref().unwrap().resolve();
        assert_eq!(container.properties["name"].default, Some("".into()));
        let port = container.properties["ports"].items.as_ref().unwrap().resolve();
        assert_eq!(port.properties["protocol"].default, Some("TCP".into()));
        let limits = container.properties["resources"].resolve().properties["limits"].additional.as_ref();
        assert_eq!(limits.unwrap().resolve().kind, Kind::Quantity);
    }

    #[test]
    fn every_fact_has_its_field() {
        let facts = Facts::parse(include_str!("facts.txt"));
        // Kinds this server does not serve keep their lines; those it serves must match exactly.
        let mut checked = 0;
        for (name, facts) in facts.types {
            let Some(schema) = by_name(name) else { continue };
            for field in facts.fields.keys() {
                assert!(schema.properties.contains_key(*field), "{name} {field}");
                checked += 1;
            }
        }
        assert!(checked > 900, "{checked}");
    }

    #[test]
    fn names_of_groups() {
        for (group, want) in [
            ("", "io.k8s.api.core.v1.Pod"),
            ("apps", "io.k8s.api.apps.v1.Pod"),
            ("rbac.authorization.k8s.io", "io.k8s.api.rbac.v1.Pod"),
            ("apiextensions.k8s.io", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.Pod"),
        ] {
            assert_eq!(type_name(group, "v1", "Pod"), want);
        }
    }
}
