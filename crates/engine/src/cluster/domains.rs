//! Topology: for each label that pods are spread or kept together by, which nodes share its value.

use std::collections::HashMap;

use super::Row;
use crate::hash::QuickMap;
use crate::intern::{Names, Sym};

/// A value of a topology label, numbered within its key. 0 is for nodes that lack the label.
pub type Domain = u32;

/// Domains of all nodes under every key that somebody asked about.
#[derive(Debug, Default)]
pub struct Domains {
    keys: QuickMap<Sym, KeyColumn>,
}

/// One label key as a column.
#[derive(Debug, Default)]
pub struct KeyColumn {
    /// Per row.
    pub domain: Vec<Domain>,
    values: HashMap<Box<str>, Domain>,
    /// Real nodes per domain; entry 0 counts those without the label.
    nodes: Vec<u32>,
    /// Domains of several nodes.
    shared: usize,
    names: Vec<Box<str>>,
}

impl KeyColumn {
    /// The domain of a row; 0 without the label.
    pub fn of(&self, row: Row) -> Domain {
        self.domain.get(row.index()).copied().unwrap_or(0)
    }

    /// Numbers of domains are below this.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    /// How many real nodes a domain has.
    pub fn nodes(&self, domain: Domain) -> u32 {
        self.nodes.get(at(domain)).copied().unwrap_or(0)
    }

    /// Whether every node has a domain of its own, as hosts have.
    pub fn is_of_hosts(&self) -> bool {
        self.shared == 0
    }

    /// The label's value, for people.
    pub fn name(&self, domain: Domain) -> &str {
        self.names.get(at(domain)).map_or("", |name| name)
    }

    fn number(&mut self, value: Option<&str>) -> Domain {
        if self.nodes.is_empty() {
            self.nodes.push(0);
            self.names.push("".into());
        }
        let Some(value) = value else { return 0 };
        if let Some(known) = self.values.get(value) {
            return *known;
        }
        let number = u32::try_from(self.nodes.len()).expect("fewer values than nodes");
        self.values.insert(value.into(), number);
        self.nodes.push(0);
        self.names.push(value.into());
        number
    }

    fn set(&mut self, row: Row, value: Option<&str>) {
        let number = self.number(value);
        if self.domain.len() <= row.index() {
            self.domain.resize(row.index() + 1, 0);
        }
        self.domain[row.index()] = number;
        self.nodes[at(number)] += 1;
        self.shared += usize::from(number != 0 && self.nodes[at(number)] == 2);
    }

    fn unset(&mut self, row: Row) {
        let number = std::mem::take(&mut self.domain[row.index()]);
        self.nodes[at(number)] -= 1;
        self.shared -= usize::from(number != 0 && self.nodes[at(number)] == 1);
    }
}

/// As an index.
pub fn at(domain: Domain) -> usize {
    usize::try_from(domain).unwrap_or(usize::MAX)
}

impl Domains {
    pub fn key(&self, key: Sym) -> Option<&KeyColumn> {
        self.keys.get(&key)
    }

    pub fn knows(&self, key: Sym) -> bool {
        self.keys.contains_key(&key)
    }

    /// Begins to follow a key, with the nodes there are.
    pub(super) fn follow<'a>(
        &mut self,
        key: Sym,
        names: &Names,
        nodes: impl Iterator<Item = (Row, &'a super::Node)>,
    ) {
        let text = names.text(key);
        let mut column = KeyColumn::default();
        column.number(None);
        for (row, node) in nodes {
            column.set(row, node.labels.get(text).map(String::as_str));
        }
        self.keys.insert(key, column);
    }

    /// Drops the keys that nobody needs.
    pub(super) fn retain(&mut self, mut is_needed: impl FnMut(Sym) -> bool) {
        self.keys.retain(|key, _| is_needed(*key));
    }

    /// A node appeared or got other labels.
    pub(super) fn set_node(&mut self, row: Row, node: &super::Node, names: &Names) {
        for (key, column) in &mut self.keys {
            column.set(row, node.labels.get(names.text(*key)).map(String::as_str));
        }
    }

    /// A node went, or is about to change.
    pub(super) fn unset_node(&mut self, row: Row) {
        self.keys.values_mut().for_each(|column| column.unset(row));
    }
}
