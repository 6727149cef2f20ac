//! What an object may look like: types, defaults, pruning, validation; for built-in kinds and CRDs.
//!
//! One `Schema` tree serves all. `crd` makes one from a CRD and refuses bad ones, `builtin` makes
//! them for Kubernetes' own types, `decode` reads a body, `shape` prunes and defaults, `validate`
//! judges values, `openapi` describes everything to kubectl. Pure: no clock, no I/O.

pub mod builtin;
pub mod crd;
pub mod decode;
pub mod fault;
pub mod openapi;
pub mod shape;
pub mod validate;

mod format;
mod pattern;

use std::collections::BTreeMap;

use serde_json::Value;

pub use fault::{Fault, FieldError};
pub use pattern::Pattern;

/// The shape of one value and of everything below it.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub kind: Kind,
    /// Named fields of an object.
    pub properties: BTreeMap<String, Schema>,
    /// What every other field of an object looks like; an object with it is a map.
    pub additional: Option<Box<Schema>>,
    /// What the elements of a list look like.
    pub items: Option<Box<Schema>>,
    pub nullable: bool,
    pub default: Option<Value>,
    /// Fields without a schema are kept instead of pruned.
    pub preserve_unknown: bool,
    /// A whole object with apiVersion, kind and metadata stands here.
    pub embedded: bool,
    pub list_type: ListType,
    /// Whether the object is owned and replaced as a whole; a field may say otherwise than its type.
    pub atomic: Option<bool>,
    pub patch: PatchStrategy,
    pub checks: Option<Box<Checks>>,
    /// How Go holds the field; only fields of built-in types have it.
    pub go: Option<Box<GoField>>,
    pub title: String,
    pub description: String,
}

/// The JSON type wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Any,
    Object,
    List,
    String,
    Integer,
    Number,
    Boolean,
    /// A whole number or a text: ports, percentages.
    IntOrString,
    /// A quantity, as text or number; kept in its canonical form.
    Quantity,
    /// A point in time, to the second.
    Time,
    /// A point in time, to the microsecond.
    MicroTime,
    /// Binary data in base64.
    Bytes,
    /// A built-in type that others share; `Schema::resolve` finds it.
    Type(builtin::TypeId),
}

/// How the elements of a list are told apart when several writers share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// They are not: the list has one owner.
    #[default]
    Atomic,
    Set,
    /// By these fields of each element.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Elements are merged instead of the list replaced.
    pub merge: bool,
    /// An object is merged, and keys the patch does not name are dropped.
    pub retain_keys: bool,
    /// The object is replaced instead of merged.
    pub replace: bool,
    /// The field that tells elements apart; empty for scalars.
    pub key: String,
}

/// How a Go struct holds a field. It decides what an empty value looks like on the wire, and what
/// a decoding failure calls the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoField {
    /// Held by pointer: an empty value is a value.
    pub pointer: bool,
    /// Written even when empty.
    pub always: bool,
    /// A zero time is left out instead of written as null.
    pub omit_zero: bool,
    /// The Go type, where the schema does not tell it.
    pub type_name: Option<Box<str>>,
    /// The embedded struct the field comes from.
    pub via: Option<Box<str>>,
}

/// Limits on a value, beyond its type.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    pub required: Vec<String>,
    pub allowed: Vec<Value>,
    pub format: String,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<i64>,
    pub max_length: Option<i64>,
    pub pattern: Option<Pattern>,
    pub min_items: Option<i64>,
    pub max_items: Option<i64>,
    pub unique_items: bool,
    pub min_properties: Option<i64>,
    pub max_properties: Option<i64>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

impl Kind {
    /// The type as OpenAPI spells it; empty for a value of any type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Any => "",
            Kind::Object => "object",
            Kind::List => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::IntOrString | Kind::Quantity => "integer,string",
            Kind::Time | Kind::MicroTime | Kind::Bytes => "string",
            Kind::Type(_) => "object",
        }
    }
}

impl Schema {
    /// The schema itself, or the shared type it stands for.
    pub fn resolve(&self) -> &Schema {
        match self.kind {
            Kind::Type(id) => builtin::by_id(id),
            _ => self,
        }
    }

    /// Whether the value has one owner and is replaced as a whole, whatever it holds.
    pub fn is_atomic(&self) -> bool {
        self.atomic.or(self.resolve().atomic).unwrap_or(false)
    }

    /// The schema of a field: its own, or that of all map values.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(self.additional.as_deref())
    }
}
