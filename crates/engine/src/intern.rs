//! Names as small numbers: equal text, equal number, for the life of the engine.

use std::collections::HashMap;
use std::sync::Arc;

/// A text that was interned. Numbers compare as fast as integers and in no meaningful order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sym(u32);

impl Sym {
    /// As an index into a table of our own.
    pub fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// All texts seen so far. Grows with the distinct names of a cluster, never with its history of pods:
/// pod names are not interned.
#[derive(Debug, Default)]
pub struct Names {
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, Sym>,
}

impl Names {
    pub fn intern(&mut self, text: &str) -> Sym {
        if let Some(known) = self.ids.get(text) {
            return *known;
        }
        let sym = Sym(u32::try_from(self.texts.len()).expect("fewer than 2^32 names fit in memory"));
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.ids.insert(text, sym);
        sym
    }

    /// The number of a text that was seen before.
    pub fn find(&self, text: &str) -> Option<Sym> {
        self.ids.get(text).copied()
    }

    pub fn text(&self, sym: Sym) -> &str {
        self.texts.get(sym.index()).map_or("", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number() {
        let mut names = Names::default();
        let (a, b) = (names.intern("zone"), names.intern("rack"));
        assert_eq!(names.intern("zone"), a);
        assert_ne!(a, b);
        assert_eq!((names.text(a), names.find("rack"), names.find("row")), ("zone", Some(b), None));
    }
}
