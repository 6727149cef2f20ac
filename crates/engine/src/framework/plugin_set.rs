//! Plugins as small numbers, and sets of them as bits.

use std::fmt;

use super::status::PluginName;

/// A plugin of this process, the same in all profiles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginId(u32);

impl PluginId {
    /// How many plugins there can be: one bit each in a `PluginSet`.
    pub const COUNT_MAX: usize = 128;

    /// The plugin with this number; none when a set has no bit for it.
    pub const fn new(index: u32) -> Option<PluginId> {
        if index < u128::BITS { Some(PluginId(index)) } else { None }
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for PluginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The names of all plugins; a plugin's number is its place in it.
#[derive(Clone, Debug, Default)]
pub struct PluginTable {
    names: Vec<PluginName>,
}

impl PluginTable {
    /// The number of the plugin, which is entered if it is new; none when the table is full.
    pub fn enter(&mut self, name: PluginName) -> Option<PluginId> {
        if let Some(id) = self.find(name) {
            return Some(id);
        }
        let id = u32::try_from(self.names.len()).ok().and_then(PluginId::new)?;
        self.names.push(name);
        Some(id)
    }

    pub fn find(&self, name: &str) -> Option<PluginId> {
        let index = self.names.iter().position(|other| *other == name)?;
        u32::try_from(index).ok().and_then(PluginId::new)
    }

    /// The plugin's name; empty for one that is not in the table.
    pub fn name(&self, id: PluginId) -> PluginName {
        self.names.get(id.index()).copied().unwrap_or_default()
    }
}

/// A set of plugins.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginSet(u128);

impl PluginSet {
    pub const EMPTY: PluginSet = PluginSet(0);

    /// True when it was not in the set before.
    pub fn insert(&mut self, id: PluginId) -> bool {
        let before = self.0;
        self.0 |= 1 << id.0;
        self.0 != before
    }

    pub const fn contains(self, id: PluginId) -> bool {
        self.0 >> id.0 & 1 == 1
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn union(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 | other.0)
    }

    pub const fn intersection(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 & other.0)
    }

    pub const fn intersects(self, other: PluginSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Ascending by number.
    pub fn iter(self) -> impl Iterator<Item = PluginId> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let id = PluginId::new(rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(id)
        })
    }
}

impl FromIterator<PluginId> for PluginSet {
    fn from_iter<I: IntoIterator<Item = PluginId>>(ids: I) -> PluginSet {
        let mut set = PluginSet::EMPTY;
        for id in ids {
            set.insert(id);
        }
        set
    }
}

impl fmt::Debug for PluginSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sets() {
        let id = |index| PluginId::new(index).unwrap();
        let set: PluginSet = [id(127), id(3), id(3), id(0)].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [id(0), id(3), id(127)]);
        assert!(set.contains(id(127)) && !set.contains(id(1)));
        assert!(PluginSet::EMPTY.iter().next().is_none());
        assert_eq!(set.intersection([id(3), id(4)].into_iter().collect()).iter().count(), 1);
        assert_eq!(PluginId::new(128), None);
    }

    #[test]
    fn the_table_gives_each_name_one_number_until_it_is_full() {
        let mut table = PluginTable::default();
        let first = table.enter("NodeName").unwrap();
        assert_eq!(table.enter("NodeName"), Some(first));
        assert_eq!(table.name(first), "NodeName");
        for index in 1..PluginId::COUNT_MAX {
            assert!(table.enter(Box::leak(format!("P{index}").into_boxed_str())).is_some());
        }
        assert_eq!(table.enter("OneTooMany"), None);
        assert_eq!(table.find("OneTooMany"), None);
    }
}
