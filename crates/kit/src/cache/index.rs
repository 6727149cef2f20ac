//! Objects found by a text that they hold, kept in step with their cache.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use super::Delta;

/// Objects by a text that they hold. Made by [`super::CacheBuilder::index`]; cheap to clone.
pub struct Index<V> {
    table: Arc<RwLock<Table<V>>>,
}

/// By text, then by where the object lies in memory, which is its own as long as it is in here.
type Table<V> = HashMap<Arc<str>, HashMap<usize, Arc<V>>>;

/// Takes in a change.
pub(super) type Keeper<V> = Box<dyn Fn(&Delta<V>) + Send + Sync>;

impl<V> Clone for Index<V> {
    fn clone(&self) -> Index<V> {
        Index { table: self.table.clone() }
    }
}

impl<V> Index<V> {
    /// All objects that hold this text, in no order.
    pub fn get(&self, text: &str) -> Vec<Arc<V>> {
        let table = self.table.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        table.get(text).map(|found| found.values().cloned().collect()).unwrap_or_default()
    }
}

/// An index, and what must hear of every change in order.
pub(super) fn index<V: Send + Sync + 'static>(
    key: impl Fn(&V) -> Option<&str> + Send + Sync + 'static,
) -> (Index<V>, Keeper<V>) {
    let table = Arc::new(RwLock::new(Table::new()));
    let index = Index { table: table.clone() };
    let keeper = move |delta: &Delta<V>| {
        let (gone, come) = match delta {
            Delta::Added(new) => (None, Some(new)),
            Delta::Updated { old, new } => (Some(old), Some(new)),
            Delta::Deleted(old) => (Some(old), None),
            Delta::Synced => return,
        };
        let mut table = table.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(gone) = gone {
            remove(&mut table, key(gone), gone);
        }
        if let Some(come) = come {
            add(&mut table, key(come), come);
        }
    };
    (index, Box::new(keeper))
}

fn add<V>(table: &mut Table<V>, text: Option<&str>, object: &Arc<V>) {
    let Some(text) = text else { return };
    let address = Arc::as_ptr(object).addr();
    match table.get_mut(text) {
        Some(found) => _ = found.insert(address, object.clone()),
        None => _ = table.insert(text.into(), HashMap::from([(address, object.clone())])),
    }
}

fn remove<V>(table: &mut Table<V>, text: Option<&str>, object: &Arc<V>) {
    let Some((text, found)) = text.and_then(|text| Some((text, table.get_mut(text)?))) else { return };
    found.remove(&Arc::as_ptr(object).addr());
    if found.is_empty() {
        table.remove(text);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Pod = (u8, Option<&'static str>);

    const NODES: [Option<&str>; 4] = [None, Some("n1"), Some("n2"), Some("n3")];

    proptest! {
        /// After any history the index finds exactly the objects that are there.
        #[test]
        fn the_index_follows(steps in prop::collection::vec((0..6_u8, 0..4_usize, any::<bool>()), 0..60)) {
            let (index, keeper) = index(|pod: &Pod| pod.1);
            let mut there: HashMap<u8, Arc<Pod>> = HashMap::new();
            for (name, node, goes) in steps {
                let new = Arc::new((name, NODES[node]));
                let delta = match (there.remove(&name), goes) {
                    (Some(old), true) => Delta::Deleted(old),
                    (None, true) => Delta::Synced,
                    (Some(old), false) => Delta::Updated { old, new: new.clone() },
                    (None, false) => Delta::Added(new.clone()),
                };
                if !goes {
                    there.insert(name, new);
                }
                keeper(&delta);
            }
            for node in NODES.into_iter().flatten() {
                let mut found: Vec<u8> = index.get(node).iter().map(|pod| pod.0).collect();
                let mut want: Vec<u8> =
                    there.values().filter(|pod| pod.1 == Some(node)).map(|pod| pod.0).collect();
                found.sort_unstable();
                want.sort_unstable();
                prop_assert_eq!(found, want);
            }
        }
    }
}
