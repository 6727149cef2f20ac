//! Terms about other pods: who is meant, and over which topology.

use std::collections::HashSet;
use std::sync::Arc;

use koord_api::selector::Selector;

use crate::intern::Sym;

/// Which pods a term or constraint speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodSet {
    /// These namespaces, and those whose labels `namespace_selector` matches.
    pub namespaces: Box<[Arc<str>]>,
    /// None means no further namespaces; one that matches everything means all.
    pub namespace_selector: Option<Selector>,
    pub selector: Selector,
    /// Only pods that are in all of these, too.
    pub and: Box<[Arc<PodSet>]>,
}

/// A required affinity or anti-affinity term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodTerm {
    pub pods: Arc<PodSet>,
    pub topology_key: Sym,
}

/// A preferred term; negative weights repel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedTerm {
    pub term: PodTerm,
    pub weight: i64,
}

/// How evenly pods must or should be spread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    pub topology_key: Sym,
    pub max_skew: i64,
    pub min_domains: i64,
    /// `DoNotSchedule`; otherwise `ScheduleAnyway`.
    pub is_hard: bool,
    /// Pods of the same namespace that count; keys of `matchLabelKeys` are in their selector.
    pub pods: Arc<PodSet>,
    pub honors_affinity: bool,
    pub honors_taints: bool,
}

impl PodSet {
    /// Pods of one namespace.
    pub fn within(namespace: &Arc<str>, selector: Selector) -> PodSet {
        PodSet {
            namespaces: [namespace.clone()].into(),
            namespace_selector: None,
            selector,
            and: Box::default(),
        }
    }
}

/// The keys of terms, each once. Few, however many terms there are.
pub fn keys(terms: &[PodTerm]) -> Vec<Sym> {
    let mut keys: Vec<Sym> = Vec::new();
    for term in terms {
        if !keys.contains(&term.topology_key) {
            keys.push(term.topology_key);
        }
    }
    keys
}

/// The pods that every term speaks of; none without terms.
pub fn all_of(terms: &[PodTerm]) -> Option<Arc<PodSet>> {
    let mut seen: HashSet<&PodSet> = HashSet::new();
    let mut sets = terms.iter().map(|term| &term.pods).filter(|pods| seen.insert(pods));
    let first = sets.next()?;
    let rest: Box<[Arc<PodSet>]> = sets.cloned().collect();
    Some(match rest.is_empty() {
        true => first.clone(),
        false => Arc::new(PodSet { and: rest, ..(**first).clone() }),
    })
}
