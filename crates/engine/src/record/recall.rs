//! Extenders that say once more what was recorded of them.

use std::collections::VecDeque;

use crate::engine::command::Subject;
use crate::extender::{Candidate, Extender, Filtered, Kept, Said, Terms};

/// One of them, for one step.
pub(super) struct Recalled {
    terms: Terms,
    said: VecDeque<Said>,
}

/// All of them, with what they say in the next step.
pub(super) fn recalled(terms: &[Terms], said: Vec<(usize, Said)>) -> Vec<Box<dyn Extender>> {
    let mut all: Vec<Recalled> =
        terms.iter().map(|terms| Recalled { terms: terms.clone(), said: VecDeque::new() }).collect();
    for (at, said) in said {
        if let Some(extender) = all.get_mut(at) {
            extender.said.push_back(said);
        }
    }
    all.into_iter().map(|extender| Box::new(extender) as Box<dyn Extender>).collect()
}

/// What an engine is told that asks for something else than the original did.
fn unheard<T>() -> Result<T, String> {
    Err("the recording has no such answer".to_owned())
}

impl Extender for Recalled {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn filter(&mut self, _: &Subject, _: &[Box<str>]) -> Result<Filtered, String> {
        match self.said.pop_front() {
            Some(Said::Filter(said)) => said,
            _ => unheard(),
        }
    }

    fn prioritize(&mut self, _: &Subject, _: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, String> {
        match self.said.pop_front() {
            Some(Said::Prioritize(said)) => said,
            _ => unheard(),
        }
    }

    fn preempt(&mut self, _: &Subject, _: &[Candidate]) -> Result<Vec<Kept>, String> {
        match self.said.pop_front() {
            Some(Said::Preempt(said)) => said,
            _ => unheard(),
        }
    }
}
