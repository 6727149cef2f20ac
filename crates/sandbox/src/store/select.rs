//! Which objects a reader wants, and what a change means to them.

use koord_api::selector::{FieldSelector, Labels, Selector};

use super::{Change, Event, Stored};

/// Namespace, labels and fields, ANDed.
#[derive(Clone, Debug)]
pub struct Selection {
    pub namespace: Option<String>,
    pub labels: Selector,
    pub fields: FieldSelector,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection { namespace: None, labels: Selector::everything(), fields: FieldSelector::default() }
    }
}

/// What an event looks like through a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// As it is.
    Same,
    /// The object entered the selection.
    Entered,
    /// The object left it: to this reader it is deleted, in the last state it could see.
    Left,
    Unseen,
}

impl Labels for Stored {
    fn label(&self, key: &str) -> Option<&str> {
        Stored::label(self, key)
    }
}

impl Selection {
    pub fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.labels.is_everything() && self.fields.is_everything()
    }

    pub fn matches(&self, object: &Stored) -> bool {
        self.namespace.as_deref().is_none_or(|n| n == object.namespace())
            && (self.labels.is_everything() || self.labels.matches(object))
            && (self.fields.is_everything() || self.fields.matches(|field| object.field(field)))
    }

    pub fn filter(&self, event: &Event) -> Filter {
        let is = self.matches(&event.object);
        let was = event.previous.as_ref().is_some_and(|previous| self.matches(previous));
        match (event.change, was, is) {
            (Change::Added, _, true) | (Change::Modified, true, true) | (Change::Deleted, true, _) => {
                Filter::Same
            }
            (Change::Modified, false, true) => Filter::Entered,
            (Change::Modified, true, false) => Filter::Left,
            _ => Filter::Unseen,
        }
    }
}
