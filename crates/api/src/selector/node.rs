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
}

#[cfg(test)]
mod tests;
