//! Extenders whose every answer is noted.

use std::sync::{Arc, Mutex, PoisonError};

use koord_engine::engine::command::Subject;
use koord_engine::extender::{Candidate, Extender, Filtered, Kept, Said, Terms};

/// What extenders said since somebody looked, and which of them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<(usize, Said)>>>);

impl Heard {
    /// The same extenders, overheard.
    pub fn listen(&self, extenders: Vec<Box<dyn Extender>>) -> Vec<Box<dyn Extender>> {
        let overhear =
            |(at, inner)| Box::new(Overheard { inner, at, heard: self.clone() }) as Box<dyn Extender>;
        extenders.into_iter().enumerate().map(overhear).collect()
    }

    pub(super) fn take(&self) -> Vec<(usize, Said)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, at: usize, said: Said) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((at, said));
    }
}

struct Overheard {
    inner: Box<dyn Extender>,
    at: usize,
    heard: Heard,
}

impl Extender for Overheard {
    fn terms(&self) -> &Terms {
        self.inner.terms()
    }

    fn filter(&mut self, pod: &Subject, nodes: &[Box<str>]) -> Result<Filtered, String> {
        let said = self.inner.filter(pod, nodes);
        self.heard.add(self.at, Said::Filter(said.clone()));
        said
    }

    fn prioritize(&mut self, pod: &Subject, nodes: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, String> {
        let said = self.inner.prioritize(pod, nodes);
        self.heard.add(self.at, Said::Prioritize(said.clone()));
        said
    }

    fn preempt(&mut self, pod: &Subject, candidates: &[Candidate]) -> Result<Vec<Kept>, String> {
        let said = self.inner.preempt(pod, candidates);
        self.heard.add(self.at, Said::Preempt(said.clone()));
        said
    }
}
