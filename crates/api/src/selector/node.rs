//! Node selectors and node affinity, as kube-scheduler compiles and matches them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;

use super::field::{FieldSelector, FieldTerm};
use super::label::{Labels, Operator, Requirement, Selector};
use super::syntax::{SelectorError, invalid_list, unsupported};

/// A compiled node selector: terms, of which one must match.
///
/// A term with an error matches nothing; the errors come up when no other term matches either.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSelector {
    terms: Vec<Result<Term, Vec<String>>>,
}

/// Conditions on labels and fields of a node, ANDed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Term {
    labels: Selector,
    fields: FieldSelector,
}

impl NodeSelector {
    /// Compiles the terms; an empty term matches nothing. `path` goes before the field names in
    /// errors and may be empty.
    pub fn new(selector: &core::NodeSelector, path: &str) -> NodeSelector {
        let path =
            if path.is_empty() { "nodeSelectorTerms".into() } else { format!("{path}.nodeSelectorTerms") };
        let terms = selector.node_selector_terms.iter().enumerate();
        let filled = terms.filter(|(_, term)| !is_empty(term));
        NodeSelector { terms: filled.map(|(i, term)| Term::new(term, &format!("{path}[{i}]"))).collect() }
    }

    /// As `new`, with the errors of all terms at once.
    pub fn new_checked(selector: &core::NodeSelector, path: &str) -> Result<NodeSelector, SelectorError> {
        let compiled = NodeSelector::new(selector, path);
        SelectorError::check(compiled.errors())?;
        Ok(compiled)
    }

    /// Whether a node matches. Errors of terms are reported only when no term matches.
    pub fn matches(&self, labels: &(impl Labels + ?Sized), name: &str) -> Result<bool, SelectorError> {
        if self.terms.iter().flatten().any(|term| term.matches(labels, name)) {
            return Ok(true);
        }
        SelectorError::check(self.errors()).map(|()| false)
    }

    fn errors(&self) -> Vec<String> {
        self.terms.iter().filter_map(|term| term.as_ref().err()).flatten().cloned().collect()
    }
}

fn is_empty(term: &core::NodeSelectorTerm) -> bool {
    let is_empty = |list: &Option<Vec<_>>| list.as_ref().is_none_or(Vec::is_empty);
    is_empty(&term.match_expressions) && is_empty(&term.match_fields)
}

impl Term {
    fn new(term: &core::NodeSelectorTerm, path: &str) -> Result<Term, Vec<String>> {
        let mut errors = Vec::new();
        let mut requirements = Vec::new();
        for (i, expression) in term.match_expressions.iter().flatten().enumerate() {
            match label_requirement(expression, &format!("{path}.matchExpressions[{i}]")) {
                Ok(requirement) => requirements.push(requirement),
                Err(error) => errors.extend(error.into_messages()),
            }
        }
        let mut fields = Vec::new();
        for (i, expression) in term.match_fields.iter().flatten().enumerate() {
            match field_term(expression, &format!("{path}.matchFields[{i}]")) {
                Ok(field) => fields.push(field),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Term { labels: Selector::all_of(requirements), fields: FieldSelector::all_of(fields) })
    }

    fn matches(&self, labels: &(impl Labels + ?Sized), name: &str) -> bool {
        let field = |field: &str| if field == "metadata.name" { name } else { "" };
        // A node without a name has no fields to test.
        self.labels.matches(labels) && (name.is_empty() || self.fields.matches(field))
    }
}

fn label_requirement(
    expression: &core::NodeSelectorRequirement,
    path: &str,
) -> Result<Requirement, SelectorError> {
    const SUPPORTED: [(&str, Operator); 6] = [
        ("In", Operator::In),
        ("NotIn", Operator::NotIn),
        ("Exists", Operator::Exists),
        ("DoesNotExist", Operator::DoesNotExist),
        ("Gt", Operator::GreaterThan),
        ("Lt", Operator::LessThan),
    ];
    let Some((_, operator)) = SUPPORTED.iter().find(|(name, _)| *name == expression.operator) else {
        let names = SUPPORTED.map(|(name, _)| name);
        return Err(SelectorError::new(unsupported(
            &format!("{path}.operator"),
            &expression.operator,
            &names,
        )));
    };
    Requirement::new(&expression.key, *operator, expression.values.clone(), path)
}

fn field_term(expression: &core::NodeSelectorRequirement, path: &str) -> Result<FieldTerm, String> {
    let is_equal = match expression.operator.as_str() {
        "In" => true,
        "NotIn" => false,
        other => return Err(unsupported(&format!("{path}.operator"), other, &["In", "NotIn"])),
    };
    match expression.values.as_deref() {
        Some([value]) => Ok(FieldTerm { field: expression.key.clone(), value: value.clone(), is_equal }),
        values => Err(invalid_list(&format!("{path}.values"), values, "must have one element")),
    }
}

/// Compiled preferences for nodes, each with a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PreferredTerms {
    terms: Vec<(i64, Term)>,
}

impl PreferredTerms {
    /// Compiles the preferences; those without weight or conditions are skipped unread.
    pub fn new(terms: &[core::PreferredSchedulingTerm], path: &str) -> Result<PreferredTerms, SelectorError> {
        let mut compiled = Vec::new();
        let mut errors = Vec::new();
        for (i, term) in terms.iter().enumerate() {
            if term.weight == 0 || is_empty(&term.preference) {
                continue;
            }
            match Term::new(&term.preference, &format!("{path}[{i}]")) {
                Ok(preference) => compiled.push((i64::from(term.weight), preference)),
                Err(wrong) => errors.extend(wrong),
            }
        }
        SelectorError::check(errors)?;
        Ok(PreferredTerms { terms: compiled })
    }

    /// The sum of the weights that apply to a node.
    pub fn score(&self, labels: &(impl Labels + ?Sized), name: &str) -> i64 {
        self.terms.iter().filter(|(_, term)| term.matches(labels, name)).map(|(weight, _)| weight).sum()
    }
}

/// What a pod demands of its node: `nodeSelector` and required node affinity together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequiredNodeAffinity {
    labels: Selector,
    affinity: Option<NodeSelector>,
}

impl RequiredNodeAffinity {
    pub fn of(pod: &core::PodSpec) -> RequiredNodeAffinity {
        let none = BTreeMap::new();
        let required = pod
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref())
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        RequiredNodeAffinity {
            labels: Selector::from_labels(pod.node_selector.as_ref().unwrap_or(&none)),
            affinity: required.map(|required| NodeSelector::new(required, "")),
        }
    }

    /// Whether every node matches.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.affinity.is_none()
    }

    pub fn matches(&self, labels: &(impl Labels + ?Sized), name: &str) -> Result<bool, SelectorError> {
        if !self.labels.matches(labels) {
            return Ok(false);
        }
        self.affinity.as_ref().map_or(Ok(true), |affinity| affinity.matches(labels, name))
    }

    /// The same with one condition less, for each condition, and without all of a kind, with what is gone. A term that
    /// would be left without conditions matches every node, so the whole affinity goes with it.
    pub fn relaxations(&self) -> Vec<(Relaxed, RequiredNodeAffinity)> {
        let mut all = Vec::new();
        for at in 0..self.labels.requirements().len() {
            let (gone, labels) = without(self.labels.requirements(), at);
            let labels = Selector::all_of(labels);
            let affinity = self.affinity.clone();
            all.push((Relaxed::NodeSelector(gone.to_string()), RequiredNodeAffinity { labels, affinity }));
        }
        for (number, term) in self.affinity.iter().flat_map(|affinity| affinity.terms.iter().enumerate()) {
            let Ok(term) = term else { continue };
            for (gone, left) in term.relaxations() {
                let affinity = left.map(|left| {
                    let mut terms = self.affinity.as_ref().map(|a| a.terms.clone()).unwrap_or_default();
                    terms[number] = Ok(left);
                    NodeSelector { terms }
                });
                let labels = self.labels.clone();
                all.push((Relaxed::Affinity(gone), RequiredNodeAffinity { labels, affinity }));
            }
        }
        if self.labels.requirements().len() > 1 {
            let (gone, affinity) = (self.labels.to_string(), self.affinity.clone());
            let left = RequiredNodeAffinity { labels: Selector::everything(), affinity };
            all.push((Relaxed::NodeSelector(gone), left));
        }
        if self.affinity.is_some() {
            let left = RequiredNodeAffinity { labels: self.labels.clone(), affinity: None };
            all.push((Relaxed::WholeAffinity, left));
        }
        all
    }
}

/// What a relaxed affinity does without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relaxed {
    /// These labels of `nodeSelector`.
    NodeSelector(String),
    /// This condition of required node affinity.
    Affinity(String),
    /// Required node affinity as a whole.
    WholeAffinity,
}

impl Term {
    /// Each condition's text and what is left without it; none when nothing is.
    fn relaxations(&self) -> Vec<(String, Option<Term>)> {
        let mut all = Vec::new();
        let kept =
            |term: Term| (!term.labels.is_everything() || !term.fields.is_everything()).then_some(term);
        for at in 0..self.labels.requirements().len() {
            let (gone, labels) = without(self.labels.requirements(), at);
            let left = Term { labels: Selector::all_of(labels), fields: self.fields.clone() };
            all.push((gone.to_string(), kept(left)));
        }
        for at in 0..self.fields.terms().len() {
            let (gone, fields) = without(self.fields.terms(), at);
            let left = Term { labels: self.labels.clone(), fields: FieldSelector::all_of(fields) };
            all.push((FieldSelector::all_of(vec![gone]).to_string(), kept(left)));
        }
        all
    }
}

/// One of several, and the others.
fn without<T: Clone>(list: &[T], at: usize) -> (T, Vec<T>) {
    let mut left = list.to_vec();
    let gone = left.remove(at);
    (gone, left)
}

#[cfg(test)]
mod tests;
