//! Sets of fields: what a manager owns, as FieldsV1 writes it.
//!
//! A set is a tree. Being in the set and having fields below in the set are independent: the owner
//! of `metadata.labels.a` need not own `metadata.labels`.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::schema::fault::quote;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    Field(String),
    /// An element of a keyed list: its key fields as canonical JSON, names sorted.
    Key(String),
    /// An element of a set: its value as canonical JSON.
    Value(String),
    Index(i64),
}

/// Fields below one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// No entry is without meaning: each is a member itself or has members below.
    entries: BTreeMap<Element, Entry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    member: bool,
    below: FieldSet,
}

/// Why a text is no field set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FieldSetError(String);

impl Element {
    pub fn field(name: &str) -> Element {
        Element::Field(name.to_owned())
    }

    /// The element with these key fields.
    pub fn key(mut fields: Vec<(&str, &Value)>) -> Element {
        fields.sort_by_key(|(name, _)| *name);
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}:{}", canonical(&Value::from(*name)), canonical(value)))
            .collect();
        Element::Key(format!("{{{}}}", pairs.join(",")))
    }

    pub fn value(value: &Value) -> Element {
        Element::Value(canonical(value))
    }

    fn parse(text: &str) -> Result<Element, FieldSetError> {
        let bad = |why: &str| FieldSetError(format!("{why}: {text}"));
        let json = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| bad(&error.to_string()));
        match text.split_at_checked(2) {
            Some(("f:", name)) => Ok(Element::field(name)),
            Some(("v:", value)) => Ok(Element::value(&json(value)?)),
            Some(("k:", keys)) => {
                let keys = json(keys)?;
                let fields = keys.as_object().ok_or_else(|| bad("key is not an object"))?;
                Ok(Element::key(fields.iter().map(|(name, value)| (name.as_str(), value)).collect()))
            }
            Some(("i:", index)) => index.parse().map(Element::Index).map_err(|_| bad("bad index")),
            Some((prefix, _)) if !prefix.ends_with(':') => Err(bad("missing colon")),
            Some(_) => Err(FieldSetError("unknown path element type".to_owned())),
            None => Err(FieldSetError("key must be 2 characters long:".to_owned())),
        }
    }

    fn encode(&self) -> String {
        match self {
            Element::Field(name) => format!("f:{name}"),
            Element::Key(keys) => format!("k:{keys}"),
            Element::Value(value) => format!("v:{value}"),
            Element::Index(index) => format!("i:{index}"),
        }
    }
}

/// JSON as Go writes it, so that texts of one value are equal.
fn canonical(value: &Value) -> String {
    koord_api::gojson::to_string(value).unwrap_or_else(|_| value.to_string())
}

impl fmt::Display for Element {
    /// As conflicts name it: `.spec`, `[name="a"]`, `[="x"]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let print = |value: &Value| match value {
            Value::String(text) => quote(text),
            other => other.to_string(),
        };
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(keys) => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let pairs: Vec<String> =
                    keys.iter().map(|(name, value)| format!("{name}={}", print(value))).collect();
                write!(f, "[{}]", pairs.join(","))
            }
            Element::Value(value) => {
                write!(f, "[={}]", print(&serde_json::from_str(value).unwrap_or_default()))
            }
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl FieldSet {
    pub fn new() -> FieldSet {
        FieldSet::default()
    }

    /// The set of these dotted field paths, such as `metadata.name`.
    pub fn of_paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> FieldSet {
        let mut set = FieldSet::new();
        for path in paths {
            set.insert(&path.split('.').map(Element::field).collect::<Vec<_>>());
        }
        set
    }

    /// Reads FieldsV1.
    pub fn parse(value: &Value) -> Result<FieldSet, FieldSetError> {
        let fields = value.as_object().ok_or_else(|| FieldSetError("fields are not an object".to_owned()))?;
        let mut set = FieldSet::new();
        for (name, below) in fields.iter().filter(|(name, _)| *name != ".") {
            let element = Element::parse(name)?;
            let inner = FieldSet::parse(below)?;
            let member = inner.is_empty() || below.get(".").is_some();
            set.entries.insert(element, Entry { member, below: inner });
        }
        Ok(set)
    }

    /// Writes FieldsV1.
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        for (element, entry) in &self.entries {
            let mut below = entry.below.to_json();
            if let Some(below) = below.as_object_mut().filter(|below| entry.member && !below.is_empty()) {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(element.encode(), below);
        }
        Value::Object(fields)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts one path into the set. The empty path stands for nothing.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let entry = self.entries.entry(first.clone()).or_default();
        match rest.is_empty() {
            true => entry.member = true,
            false => entry.below.insert(rest),
        }
    }

    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        self.entries.get(first).is_some_and(|entry| match rest.is_empty() {
            true => entry.member,
            false => entry.below.contains(rest),
        })
    }

    /// Whether the element itself is in the set.
    pub(super) fn has(&self, element: &Element) -> bool {
        self.entries.get(element).is_some_and(|entry| entry.member)
    }

    /// What is in the set below an element.
    pub(super) fn below(&self, element: &Element) -> Option<&FieldSet> {
        self.entries.get(element).map(|entry| &entry.below).filter(|below| !below.is_empty())
    }

    pub fn union(&self, other: &FieldSet) -> FieldSet {
        let mut entries = self.entries.clone();
        for (element, theirs) in &other.entries {
            let ours = entries.entry(element.clone()).or_default();
            ours.member |= theirs.member;
            ours.below = ours.below.union(&theirs.below);
        }
        FieldSet { entries }
    }

    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.filtered(|element, ours| {
            let theirs = other.entries.get(element)?;
            Some(Entry {
                member: ours.member && theirs.member,
                below: ours.below.intersection(&theirs.below),
            })
        })
    }

    /// Without the members of `other`; fields below them stay.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        self.filtered(|element, ours| {
            let Some(theirs) = other.entries.get(element) else { return Some(ours.clone()) };
            Some(Entry { member: ours.member && !theirs.member, below: ours.below.difference(&theirs.below) })
        })
    }

    /// Without the members of `other` and everything below them.
    pub fn exclude(&self, other: &FieldSet) -> FieldSet {
        self.filtered(|element, ours| {
            let Some(theirs) = other.entries.get(element) else { return Some(ours.clone()) };
            (!theirs.member).then(|| Entry { member: ours.member, below: ours.below.exclude(&theirs.below) })
        })
    }

    fn filtered(&self, keep: impl Fn(&Element, &Entry) -> Option<Entry>) -> FieldSet {
        let entries = self.entries.iter().filter_map(|(element, entry)| {
            let entry = keep(element, entry)?;
            (entry.member || !entry.below.is_empty()).then(|| (element.clone(), entry))
        });
        FieldSet { entries: entries.collect() }
    }

    /// Rewrites the set from the inside out: for each element, whether it is a member and what is
    /// below it.
    pub(super) fn map(&self, change: &dyn Fn(&Element, bool, &FieldSet) -> (bool, FieldSet)) -> FieldSet {
        self.filtered(|element, entry| {
            let (member, below) = change(element, entry.member, &entry.below);
            Some(Entry { member, below })
        })
    }

    /// All paths: members of a level before those below, as conflicts list them.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
        for (element, _) in self.entries.iter().filter(|(_, entry)| entry.member) {
            paths.push(prefix.iter().chain([element]).cloned().collect());
        }
        for (element, entry) in &self.entries {
            prefix.push(element.clone());
            entry.below.collect(prefix, paths);
            prefix.pop();
        }
    }
}

/// A path as conflicts name it.
pub fn print_path(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_v1_round_trip() {
        let value = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {".": {}, "v:\"a/b\"": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:ports": {
                    ".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}},
                "f:replicas": {},
            },
        });
        let set = FieldSet::parse(&value).unwrap();
        assert_eq!(set.to_json(), value);
        let paths: Vec<String> = set.paths().iter().map(|path| print_path(path)).collect();
        assert_eq!(
            paths,
            [
                ".metadata.finalizers",
                ".metadata.labels",
                ".metadata.finalizers[=\"a/b\"]",
                ".metadata.labels.app",
                ".spec.replicas",
                ".spec.containers[name=\"a\"]",
                ".spec.containers[name=\"a\"].image",
                ".spec.containers[name=\"a\"].ports",
                ".spec.containers[name=\"a\"].ports[containerPort=80,protocol=\"TCP\"]",
                ".spec.containers[name=\"a\"].ports[containerPort=80,protocol=\"TCP\"].containerPort",
            ]
        );
        for bad in [json!([]), json!({"x": {}}), json!({"x:a": {}}), json!({"k:[]": {}}), json!({"v:": {}})] {
            assert!(FieldSet::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn difference_keeps_what_is_below_and_exclude_does_not() {
        let set = FieldSet::of_paths(["spec", "spec.a", "status.b"]);
        let spec = FieldSet::of_paths(["spec"]);
        assert_eq!(set.difference(&spec), FieldSet::of_paths(["spec.a", "status.b"]));
        assert_eq!(set.exclude(&spec), FieldSet::of_paths(["status.b"]));
    }

    pub(crate) fn any_set() -> impl Strategy<Value = FieldSet> {
        let element = prop_oneof![
            "[ab]".prop_map(Element::Field),
            "[ab]".prop_map(|name| Element::key(vec![("name", &Value::from(name))])),
            "[ab]".prop_map(|name| Element::value(&Value::from(name))),
        ];
        prop::collection::vec(prop::collection::vec(element, 1..4), 0..8).prop_map(|paths| {
            let mut set = FieldSet::new();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn algebra(a in any_set(), b in any_set(), c in any_set()) {
            prop_assert_eq!(FieldSet::parse(&a.to_json()), Ok(a.clone()));
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
            prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            prop_assert!(a.difference(&a).is_empty());
            for path in a.union(&b).paths() {
                prop_assert!(a.contains(&path) || b.contains(&path));
            }
        }
    }
}
