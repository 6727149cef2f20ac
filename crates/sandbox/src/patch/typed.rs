//! Objects seen through their schema: which fields they set, how two differ, how one merges into
//! another, and what is left when fields go.
//!
//! Lists with keys and sets have elements of their own; atomic lists and maps are one field.

mod change;

use serde_json::Value;

use super::fieldset::{Element, FieldSet};
use crate::schema::{Kind, ListType, Schema};

pub(super) use change::{merge, remove};

/// The type of a value, as far as it is known.
#[derive(Clone, Copy)]
pub(super) enum Type<'a> {
    /// A schema; `open` where an enclosing object keeps unknown fields.
    Known { schema: &'a Schema, open: bool },
    /// Maps have fields, everything else is one value.
    Deduced,
    /// One value, whatever it holds.
    Whole,
}

/// What a value is, to those who share it.
pub(super) enum Form<'a> {
    Scalar,
    List { items: Type<'a>, list_type: &'a ListType },
    Map { fields: Fields<'a>, atomic: bool },
}

#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    schema: Option<&'a Schema>,
    open: bool,
}

impl<'a> Fields<'a> {
    /// The type of a field; `None` where the schema does not know it.
    pub(super) fn get(self, name: &str) -> Option<Type<'a>> {
        let Some(schema) = self.schema else { return Some(Type::Deduced) };
        match schema.properties.get(name).or(schema.additional.as_deref()) {
            Some(below) => Some(Type::Known { schema: below, open: self.open || below.preserve_unknown }),
            None => (self.open || schema.properties.is_empty()).then_some(Type::Deduced),
        }
    }

    /// Whether the field is named, not just a key of a map.
    pub(super) fn is_named(self, name: &str) -> bool {
        self.schema.is_some_and(|schema| schema.properties.contains_key(name))
    }
}

const ATOMIC: &ListType = &ListType::Atomic;

impl<'a> Type<'a> {
    pub(super) fn of(schema: &'a Schema) -> Type<'a> {
        Type::Known { schema, open: schema.resolve().preserve_unknown }
    }

    /// The form of a value of this type. A type that leaves it open takes it from the value.
    pub(super) fn form(self, value: Option<&Value>) -> Form<'a> {
        let Type::Known { schema, open } = self else {
            return match value {
                Some(Value::Array(_)) => Form::List { items: Type::Whole, list_type: ATOMIC },
                Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Form::Scalar,
                _ => Form::Map {
                    fields: Fields { schema: None, open: true },
                    atomic: matches!(self, Type::Whole),
                },
            };
        };
        let outer = schema;
        let schema = outer.resolve();
        let open = open || schema.preserve_unknown;
        let map = || Form::Map { fields: Fields { schema: Some(schema), open }, atomic: outer.is_atomic() };
        let items = match &schema.items {
            Some(items) => Type::Known { schema: items, open: open || items.preserve_unknown },
            None => Type::Whole,
        };
        let list = || Form::List { items, list_type: &outer.list_type };
        match (schema.kind, value) {
            (Kind::Object, _) | (Kind::Any, None | Some(Value::Null | Value::Object(_))) => map(),
            (Kind::List, _) | (Kind::Any, Some(Value::Array(_))) => list(),
            _ => Form::Scalar,
        }
    }
}

/// The path element of a list's element.
pub(super) fn element_of(item: &Value, items: Type<'_>, list_type: &ListType) -> Result<Element, String> {
    match list_type {
        ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListType::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            scalar => Ok(Element::value(scalar)),
        },
        ListType::Map(keys) => key_of(item, items, keys),
    }
}

fn key_of(item: &Value, items: Type<'_>, keys: &[String]) -> Result<Element, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let default = |key: &String| match items {
        Type::Known { schema, .. } => {
            schema.resolve().properties.get(key).and_then(|field| field.default.as_ref())
        }
        _ => None,
    };
    let found: Vec<(&str, &Value)> = keys
        .iter()
        .filter_map(|key| Some((key.as_str(), fields.get(key).or_else(|| default(key))?)))
        .collect();
    match found.is_empty() {
        false => Ok(Element::key(found)),
        true => {
            let names: Vec<String> = keys.iter().map(|key| crate::schema::fault::quote(key)).collect();
            Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ))
        }
    }
}

/// The fields a value sets.
pub(super) fn field_set(value: &Value, of: Type<'_>) -> FieldSet {
    let mut set = FieldSet::new();
    collect(value, of, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, of: Type<'_>, path: &mut Vec<Element>, set: &mut FieldSet) {
    match of.form(Some(value)) {
        Form::Scalar | Form::Map { atomic: true, .. } | Form::List { list_type: ListType::Atomic, .. } => {
            set.insert(path);
        }
        Form::List { items, list_type } => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let elements: Vec<Option<Element>> =
                list.iter().map(|item| element_of(item, items, list_type).ok()).collect();
            for (item, element) in list.iter().zip(&elements) {
                let Some(element) = element else { continue };
                path.push(element.clone());
                // A repeated key has no fields that could be told apart.
                let repeated = elements.iter().filter(|other| other.as_ref() == Some(element)).count() > 1;
                if !repeated {
                    collect(item, items, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        Form::Map { fields, .. } => {
            for (name, value) in value.as_object().into_iter().flatten() {
                path.push(Element::field(name));
                collect(value, fields.get(name).unwrap_or(Type::Deduced), path, set);
                let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if empty || !fields.is_named(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

/// How one object differs from another.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    pub(super) fn exclude(self, fields: &FieldSet) -> Comparison {
        Comparison {
            removed: self.removed.exclude(fields),
            modified: self.modified.exclude(fields),
            added: self.added.exclude(fields),
        }
    }
}

/// Compares two objects of one type.
pub(super) fn compare(old: &Value, new: &Value, of: Type<'_>) -> Comparison {
    let mut comparison = Comparison::default();
    differ(Some(old), Some(new), of, &mut Vec::new(), &mut comparison);
    comparison
}

fn differ(
    old: Option<&Value>,
    new: Option<&Value>,
    of: Type<'_>,
    path: &mut Vec<Element>,
    comparison: &mut Comparison,
) {
    // Most of an object stays as it is in most writes.
    if old == new {
        return;
    }
    let same_form = |a: &Form<'_>, b: &Form<'_>| std::mem::discriminant(a) == std::mem::discriminant(b);
    let (old_form, new_form) = (of.form(old), of.form(new));
    let leaf = match (old, new) {
        (_, None) => walk(old, new, old_form, path, comparison),
        (Some(_), Some(_)) if !same_form(&old_form, &new_form) => {
            walk(old, new, old_form, path, comparison);
            walk(old, new, new_form, path, comparison)
        }
        _ => walk(old, new, new_form, path, comparison),
    };
    if leaf {
        return;
    }
    match (old, new) {
        (None, _) => comparison.added.insert(path),
        (_, None) => comparison.removed.insert(path),
        _ => {}
    }
}

/// Whether the value was compared as a whole.
fn walk(
    old: Option<&Value>,
    new: Option<&Value>,
    form: Form<'_>,
    path: &mut Vec<Element>,
    comparison: &mut Comparison,
) -> bool {
    match form {
        Form::List { items, list_type } if *list_type != ListType::Atomic => {
            let old_items = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let new_items = new.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if !(old_items.is_empty() && new_items.is_empty()) {
                differ_lists(old_items, new_items, items, list_type, path, comparison);
                return false;
            }
        }
        Form::Map { fields, atomic: false } => {
            let empty = serde_json::Map::new();
            let old_fields = old.and_then(Value::as_object).unwrap_or(&empty);
            let new_fields = new.and_then(Value::as_object).unwrap_or(&empty);
            if !(old_fields.is_empty() && new_fields.is_empty()) {
                let only_new = new_fields.keys().filter(|name| !old_fields.contains_key(*name));
                for name in old_fields.keys().chain(only_new) {
                    path.push(Element::field(name));
                    let of = fields.get(name).unwrap_or(Type::Deduced);
                    differ(old_fields.get(name), new_fields.get(name), of, path, comparison);
                    path.pop();
                }
                return false;
            }
        }
        _ => {}
    }
    match (old, new) {
        (None, _) => comparison.added.insert(path),
        (_, None) => comparison.removed.insert(path),
        (Some(old), Some(new)) if old != new => comparison.modified.insert(path),
        _ => {}
    }
    true
}

fn differ_lists(
    old: &[Value],
    new: &[Value],
    items: Type<'_>,
    list_type: &ListType,
    path: &mut Vec<Element>,
    comparison: &mut Comparison,
) {
    let group = |list: &'_ [Value]| -> Vec<(Element, usize)> {
        let indexed = list.iter().enumerate();
        indexed.filter_map(|(place, item)| Some((element_of(item, items, list_type).ok()?, place))).collect()
    };
    let (old_keys, new_keys) = (group(old), group(new));
    let mut seen: Vec<&Element> = Vec::new();
    for (element, _) in old_keys.iter().chain(&new_keys) {
        if seen.contains(&element) {
            continue;
        }
        seen.push(element);
        let pick = |keys: &[(Element, usize)]| -> Vec<usize> {
            keys.iter().filter(|(key, _)| key == element).map(|(_, place)| *place).collect()
        };
        let (ours, theirs) = (pick(&old_keys), pick(&new_keys));
        path.push(element.clone());
        match (ours.as_slice(), theirs.as_slice()) {
            ([] | [_], [] | [_]) => {
                let (ours, theirs) = (ours.first().map(|at| &old[*at]), theirs.first().map(|at| &new[*at]));
                differ(ours, theirs, items, path, comparison);
            }
            ([_, _, ..], [_, _, ..]) => {
                let same =
                    ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| old[*a] == new[*b]);
                if !same {
                    comparison.modified.insert(path);
                }
            }
            ([_, _, ..], one) => {
                if let Some(place) = one.first() {
                    differ(None, Some(&new[*place]), items, path, comparison);
                }
                comparison.removed.insert(path);
            }
            (one, _) => {
                if let Some(place) = one.first() {
                    differ(Some(&old[*place]), None, items, path, comparison);
                }
                comparison.added.insert(path);
            }
        }
        path.pop();
    }
}

/// Named fields that have members below become members themselves, so that removing the last
/// field below removes the field.
pub(super) fn with_named_parents(set: &FieldSet, of: Type<'_>) -> FieldSet {
    set.map(&|element, member, below| {
        let (named, inner) = match (element, of.form(None)) {
            (Element::Field(name), Form::Map { fields, .. }) => (fields.is_named(name), fields.get(name)),
            (Element::Key(_), Form::List { items, .. }) => (false, Some(items)),
            _ => (false, None),
        };
        let member = member || (named && !below.is_empty());
        (member, with_named_parents(below, inner.unwrap_or(Type::Deduced)))
    })
}

/// Fields recorded inside what has become one value are lifted to it.
pub(super) fn lifted(set: &FieldSet, of: Type<'_>) -> FieldSet {
    set.map(&|element, member, below| {
        let inner = match (element, of.form(None)) {
            (Element::Field(name), Form::Map { fields, .. }) => fields.get(name),
            (Element::Key(_), Form::List { items, .. }) => Some(items),
            _ => None,
        };
        let Some(inner) = inner else { return (member, below.clone()) };
        let whole = match inner.form(None) {
            Form::Map { atomic, .. } => atomic,
            Form::List { list_type, .. } => *list_type == ListType::Atomic,
            Form::Scalar => false,
        };
        match whole && !below.is_empty() {
            true => (true, FieldSet::new()),
            false => (member, lifted(below, inner)),
        }
    })
}

fn check_scalar(value: &Value, kind: Kind) -> Option<String> {
    let go_type = match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let printed = super::strategic::print(value);
    match (kind, value) {
        (Kind::Integer | Kind::Number, Value::Number(_)) => None,
        (Kind::Integer | Kind::Number, _) => Some(format!("expected numeric (int or float), got {go_type}")),
        (Kind::Boolean, Value::Bool(_)) => None,
        (Kind::Boolean, _) => Some(format!("expected boolean, got &{{{printed}}}")),
        (Kind::String | Kind::Time | Kind::MicroTime | Kind::Bytes, Value::String(_)) => None,
        (Kind::String | Kind::Time | Kind::MicroTime | Kind::Bytes, _) => {
            let literal = match value {
                Value::Array(_) | Value::Object(_) => {
                    format!("{go_type}{}", printed.trim_start_matches("map"))
                }
                _ => printed,
            };
            Some(format!("expected string, got &value.valueUnstructured{{Value:{literal}}}"))
        }
        (_, Value::Array(_) | Value::Object(_)) => Some(format!("expected any scalar, got &{{{printed}}}")),
        _ => None,
    }
}

/// What is wrong with an object that is to be applied.
pub(super) fn check(value: &Value, of: Type<'_>, path: &str, faults: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    let expected =
        |what: &str| format!("{path}: expected {what}, got &{{{}}}", super::strategic::print(value));
    match of.form(Some(value)) {
        Form::Scalar => {
            let Type::Known { schema, .. } = of else { return };
            faults.extend(check_scalar(value, schema.resolve().kind).map(|text| format!("{path}: {text}")));
        }
        Form::List { items, list_type } => {
            let Some(list) = value.as_array() else { return faults.push(expected("list")) };
            let mut seen: Vec<Element> = Vec::new();
            for (index, item) in list.iter().enumerate() {
                let step = match list_type {
                    ListType::Atomic => Element::Index(i64::try_from(index).unwrap_or(i64::MAX)),
                    keyed => match element_of(item, items, keyed) {
                        Ok(element) => element,
                        Err(text) => return faults.push(format!("{path}: element {index}: {text}")),
                    },
                };
                if seen.contains(&step) {
                    faults.push(format!("{path}: duplicate entries for key {step}"));
                }
                check(item, items, &format!("{path}{step}"), faults);
                seen.push(step);
            }
        }
        Form::Map { fields, .. } => {
            let Some(map) = value.as_object() else { return faults.push(expected("map")) };
            for (name, value) in map {
                match fields.get(name) {
                    Some(of) => check(value, of, &format!("{path}.{name}"), faults),
                    None => return faults.push(format!("{path}.{name}: field not declared in schema")),
                }
            }
        }
    }
}
