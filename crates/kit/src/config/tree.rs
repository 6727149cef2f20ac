//! The parsed file as a tree whose nodes know their place. Built once, then only read.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

/// A node's index in its tree.
pub(super) type NodeId = usize;

/// Deeper files are not configuration.
const DEPTH_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Fields that stand twice, with the place of the later one. Empty unless they were asked to be let through.
    pub(super) duplicates: Vec<Duplicate>,
}

/// A field that stands twice in its map; the later value counts.
#[derive(Debug)]
pub(super) struct Duplicate {
    pub(super) parent: NodeId,
    pub(super) key: String,
    /// Of the later key.
    pub(super) position: (u64, u64),
}

/// What becomes of a field that stands twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duplicates {
    Refuse,
    Note,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) parent: Option<NodeId>,
    /// How the parent names it: `.field` or `[3]`.
    step: Step,
    /// Line and column, from 1. A map's value is placed at the value, an unknown field is reported there too.
    pub(super) position: (u64, u64),
    pub(super) value: Value,
}

#[derive(Debug)]
enum Step {
    Root,
    Field(String),
    Index(usize),
}

#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<NodeId>),
    Map(Vec<(String, NodeId)>),
}

impl Tree {
    pub(super) fn parse(text: &str, duplicates: Duplicates) -> Result<Tree, (Option<(u64, u64)>, String)> {
        if text.lines().all(|line| line.trim_start().starts_with('#') || line.trim().is_empty()) {
            return Err((None, "the file is empty".to_owned()));
        }
        let policy = match duplicates {
            Duplicates::Refuse => DuplicateKeyPolicy::Error,
            Duplicates::Note => DuplicateKeyPolicy::LastWins,
        };
        let options = serde_saphyr::options! { duplicate_keys: policy };
        let loaded: Loaded = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let position = error.location().map(|place| (place.line(), place.column()));
            (position, plain_message(&error))
        })?;
        let mut tree = Tree { nodes: Vec::new(), duplicates: Vec::new() };
        tree.add(loaded, None, Step::Root, 0)?;
        Ok(tree)
    }

    fn add(
        &mut self,
        loaded: Loaded,
        parent: Option<NodeId>,
        step: Step,
        depth: usize,
    ) -> Result<NodeId, (Option<(u64, u64)>, String)> {
        let position = (loaded.0.referenced.line(), loaded.0.referenced.column());
        if depth > DEPTH_MAX {
            return Err((Some(position), format!("nested deeper than {DEPTH_MAX} levels")));
        }
        let id = self.nodes.len();
        self.nodes.push(Node { parent, step, position, value: Value::Null });
        let value = match loaded.0.value {
            Shape::Null => Value::Null,
            Shape::Bool(value) => Value::Bool(value),
            Shape::Int(value) => Value::Int(value),
            Shape::Unsigned(value) => Value::Unsigned(value),
            Shape::Float(value) => Value::Float(value),
            Shape::Text(value) => Value::Text(value),
            Shape::List(items) => {
                let mut ids = Vec::with_capacity(items.len());
                for (index, item) in items.into_iter().enumerate() {
                    ids.push(self.add(item, Some(id), Step::Index(index), depth + 1)?);
                }
                Value::List(ids)
            }
            Shape::Map(entries) => {
                let mut ids: Vec<(String, NodeId)> = Vec::with_capacity(entries.len());
                for (key, item) in entries {
                    let position = (key.referenced.line(), key.referenced.column());
                    let key = key.value;
                    let item = self.add(item, Some(id), Step::Field(key.clone()), depth + 1)?;
                    match ids.iter_mut().find(|(other, _)| *other == key) {
                        Some(earlier) => {
                            earlier.1 = item;
                            self.duplicates.push(Duplicate { parent: id, key, position });
                        }
                        None => ids.push((key, item)),
                    }
                }
                Value::Map(ids)
            }
        };
        self.nodes[id].value = value;
        Ok(id)
    }

    pub(super) fn root(&self) -> NodeId {
        0
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// The path as users write it.
    pub(super) fn path(&self, id: NodeId) -> String {
        let node = self.node(id);
        let Some(parent) = node.parent else { return String::new() };
        match &node.step {
            Step::Root => self.path(parent),
            Step::Field(name) => self.path_below(parent, name),
            Step::Index(index) => format!("{}[{index}]", self.path(parent)),
        }
    }

    /// The path of a field of a map.
    pub(super) fn path_below(&self, parent: NodeId, field: &str) -> String {
        match self.path(parent).as_str() {
            "" => field.to_owned(),
            above => format!("{above}.{field}"),
        }
    }

    /// The deepest node on the way to a path, and whether it is the path's own.
    pub(super) fn nearest(&self, path: &str) -> (NodeId, bool) {
        let mut id = self.root();
        for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
            let next = match (&self.node(id).value, part.strip_suffix(']')) {
                (Value::List(items), Some(index)) => {
                    index.parse::<usize>().ok().and_then(|i| items.get(i).copied())
                }
                (Value::Map(entries), None) => entries.iter().find(|(key, _)| key == part).map(|(_, id)| *id),
                _ => None,
            };
            match next {
                Some(next) => id = next,
                None => return (id, false),
            }
        }
        (id, true)
    }

    pub(super) fn text_field(&self, id: NodeId, name: &str) -> &str {
        let Value::Map(entries) = &self.node(id).value else { return "" };
        match entries.iter().find(|(key, _)| key == name).map(|(_, id)| &self.node(*id).value) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }
}

/// The parser's own words, without the position it adds, for we print that ourselves.
fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    let cut = first.split(" at line ").next().unwrap_or(first);
    cut.trim_end_matches([':', ',', ' ']).to_owned()
}

/// A node as the parser hands it over.
struct Loaded(Spanned<Shape>);

impl<'de> Deserialize<'de> for Loaded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Loaded, D::Error> {
        Spanned::<Shape>::deserialize(deserializer).map(Loaded)
    }
}

enum Shape {
    Null,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<Loaded>),
    Map(Vec<(Spanned<String>, Loaded)>),
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_none<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(i64::try_from(value).map_or(Shape::Unsigned(value), Shape::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Shape, E> {
        Ok(Shape::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Shape::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Shape::Map(map))
    }
}
