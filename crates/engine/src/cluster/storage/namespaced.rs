//! A map by namespace and name that is asked without building a key.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaced<T> {
    spaces: HashMap<Arc<str>, HashMap<Arc<str>, T>>,
}

impl<T> Default for Namespaced<T> {
    fn default() -> Namespaced<T> {
        Namespaced { spaces: HashMap::new() }
    }
}

impl<T> Namespaced<T> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<&T> {
        self.spaces.get(namespace)?.get(name)
    }

    pub fn insert(&mut self, namespace: Arc<str>, name: Arc<str>, value: T) -> Option<T> {
        self.spaces.entry(namespace).or_default().insert(name, value)
    }

    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<T> {
        let space = self.spaces.get_mut(namespace)?;
        let removed = space.remove(name);
        if space.is_empty() {
            self.spaces.remove(namespace);
        }
        removed
    }

    /// The value of a key, made if it is new.
    pub fn entry(&mut self, namespace: &Arc<str>, name: &str) -> &mut T
    where
        T: Default,
    {
        let space = self.spaces.entry(namespace.clone()).or_default();
        if !space.contains_key(name) {
            space.insert(name.into(), T::default());
        }
        space.get_mut(name).expect("entered in the line above")
    }

    pub fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    /// In no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &T)> {
        let spaces = self.spaces.iter();
        spaces.flat_map(|(namespace, space)| space.iter().map(move |(name, value)| (namespace, name, value)))
    }
}
