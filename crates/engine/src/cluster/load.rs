//! What nodes really use, and what pods that came lately are expected to use. Spec: scheduler-reservation-loadaware B.
//!
//! One book for each plugin that asks for it (`Hooks::load`): plugins of different profiles estimate differently. A book
//! follows pods and nodes through the methods of `Cluster` and NodeMetrics through those here; `book` has the sums,
//! `estimate` what a pod is expected to use, `metric` what was measured, `settings` the arguments ready for use.

use std::sync::Arc;

use koord_api::crd::node_metric::NodeMetric;

use super::{Cluster, Row};
use crate::pod::Class;
use crate::time::Time;

mod book;
mod estimate;
mod metric;
mod settings;
mod sheet;

#[cfg(test)]
mod tests;

pub use book::{Account, Book, Excess, Refusal, Source};
pub use estimate::PodLoad;
pub use settings::Settings;

/// All books, and the time they are kept by.
#[derive(Debug, Default)]
pub struct Loads {
    now: Time,
    books: Vec<Book>,
}

impl Loads {
    /// The time as the engine last heard it.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The book of a plugin with these settings.
    pub fn book(&self, settings: &Arc<Settings>) -> Option<&Book> {
        self.books.iter().find(|book| book.is_of(settings))
    }

    /// All of them, in the order of their plugins.
    pub fn books(&self) -> &[Book] {
        &self.books
    }

    pub(super) fn books_mut(&mut self) -> &mut [Book] {
        &mut self.books
    }

    /// Whether a row has measurements.
    pub(super) fn has_metric(&self, row: Row) -> bool {
        self.books.first().is_some_and(|book| book.has_metric(row))
    }
}

impl Cluster {
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Keeps a book with these settings from now on. To be called before any pod or node comes.
    pub fn follow_load(&mut self, settings: &Arc<Settings>) {
        if self.loads.book(settings).is_some() {
            return;
        }
        let number = self.loads.books.len();
        let book = Book::new(settings, number, self.columns.rows(), &mut self.resources);
        self.loads.books.push(book);
        self.compiler.loads.push(settings.clone());
    }

    /// What pods of a class are expected to use, after its requests were changed.
    pub fn estimate_again(&self, class: &mut Class) {
        if let Some(load) = &mut class.load {
            load.estimate(&class.requests.amounts, &self.resources, &self.compiler.loads);
        }
    }

    /// A node was measured. True when it was not before; none when nobody wants to know.
    pub fn set_metric(&mut self, object: &NodeMetric) -> Option<bool> {
        let name = object.metadata.name.as_deref().filter(|name| !name.is_empty())?;
        if self.loads.books.is_empty() {
            return None;
        }
        // The node may come later.
        let row = self.row_for(name);
        let is_new = !self.loads.has_metric(row);
        let now = self.loads.now;
        self.loads.books.iter_mut().for_each(|book| book.set_metric(row, object, now));
        self.touch(row);
        Some(is_new)
    }

    /// What was measured of a node is gone. False when nothing was.
    pub fn remove_metric(&mut self, name: &str) -> bool {
        let Some(row) = self.row(name).filter(|row| self.loads.has_metric(*row)) else { return false };
        self.loads.books.iter_mut().for_each(|book| book.remove_metric(row));
        self.touch(row);
        self.drop_ghost(row);
        true
    }

    /// Time passed: measurements may have become too old. Returns the nodes that pods may be placed on because of it.
    pub fn pass_time(&mut self, now: Time) -> Vec<Arc<str>> {
        self.loads.now = now;
        let mut opened = Vec::new();
        for at in 0..self.loads.books.len() {
            while let Some(row) = self.loads.books[at].next_run_out(now) {
                self.touch(row);
                if self.loads.books[at].opens_when_run_out() {
                    opened.push((*self.node(row).name).into());
                }
            }
        }
        opened
    }

    /// When the next node opens because its measurements run out.
    pub fn next_opening(&self) -> Option<Time> {
        let books = self.loads.books.iter().filter(|book| book.opens_when_run_out());
        books.filter_map(Book::next_timer).min()
    }
}
