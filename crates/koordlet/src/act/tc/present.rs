//! What the kernel has of classes and filters, as `tc` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::decide::hooks::tc::{MAJOR, PRIVATE_MIN};

/// The tree of classes with our number at the root of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Another scheduler, or none with our number.
    None,
    /// Packets without a class go to another one than with us.
    Foreign,
    LikeOurs,
}

impl Tree {
    /// Lines such as `qdisc htb 1: root refcnt 2 r2q 10 default 0x2`.
    pub(super) fn of(qdiscs: &str) -> Tree {
        let Some(line) = qdiscs.lines().find(|line| line.contains("qdisc htb 1: root")) else {
            return Tree::None;
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        // Older programs leave the prefix out.
        match after(&words, "default").map(|class| class.trim_start_matches("0x")) {
            Some("2") => Tree::LikeOurs,
            _ => Tree::Foreign,
        }
    }
}

/// The classes and filters of a device.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    /// Minor numbers of classes below our root.
    classes: BTreeSet<u32>,
    /// By their prio. One may be there without a filter in it.
    filters: BTreeMap<u32, Vec<Filter>>,
}

/// A filter of the kinds that we make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// Packets of groups, with its handle.
    Group(u32),
    /// Packets from an address into a class.
    Source {
        ip: Ipv4Addr,
        minor: u32,
    },
    Other,
}

impl Present {
    pub(super) fn read(classes: &str, filters: &str) -> Present {
        Present { classes: read_classes(classes), filters: read_filters(filters) }
    }

    pub(super) fn has_group(&self, handle: u32) -> bool {
        self.filters.values().flatten().any(|filter| *filter == Filter::Group(handle))
    }

    /// Everything at this prio; none when nothing was ever there.
    pub(super) fn at(&self, prio: u32) -> Option<&[Filter]> {
        self.filters.get(&prio).map(Vec::as_slice)
    }

    /// Private classes that nobody wants.
    pub(super) fn stray_classes(&self, wanted: &BTreeSet<u32>) -> Vec<u32> {
        self.classes
            .iter()
            .copied()
            .filter(|minor| *minor >= PRIVATE_MIN && !wanted.contains(minor))
            .collect()
    }

    /// Prios of private filters that nobody wants: ours have the number of their class.
    pub(super) fn stray_filters(&self, wanted: &BTreeSet<u32>) -> Vec<u32> {
        let is_ours = |prio: u32, filter: &Filter| match filter {
            Filter::Group(handle) => *handle == prio,
            Filter::Source { minor, .. } => *minor == prio,
            Filter::Other => false,
        };
        let private = self.filters.iter().filter(|(prio, _)| **prio >= PRIVATE_MIN && !wanted.contains(prio));
        let ours = private.filter(|(prio, filters)| filters.iter().any(|filter| is_ours(**prio, filter)));
        ours.map(|(prio, _)| *prio).collect()
    }
}

/// How many rules put packets from a set's addresses into this class. Lines such as
/// `-A POSTROUTING -m set --match-set ls_class src -j CLASSIFY --set-class 0001:0003`.
pub(super) fn rules_of(rules: &str, set: &str, class: u32) -> usize {
    let is_its = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        after(&words, "--match-set") == Some(set)
            && after(&words, "--set-class").and_then(minor) == Some(class)
    };
    rules.lines().filter(is_its).count()
}

/// Lines such as `class htb 1:2a parent 1:1 prio 2 rate 8Mbit …`.
fn read_classes(text: &str) -> BTreeSet<u32> {
    let root = format!("{MAJOR}:1");
    let minor = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_below = after(&words, "parent") == Some(&root);
        minor(after(&words, "htb")?).filter(|_| is_below)
    };
    text.lines().filter_map(minor).collect()
}

/// A filter is a line that begins with `filter`; what it matches stands in the lines below.
fn read_filters(text: &str) -> BTreeMap<u32, Vec<Filter>> {
    let mut filters: BTreeMap<u32, Vec<Filter>> = BTreeMap::new();
    // The class of the filter whose match comes next, and its prio.
    let mut open: Option<(u32, u32)> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() != Some(&"filter") {
            if let (Some((prio, minor)), Some(ip)) = (open.take(), source(&words)) {
                // The line above stood for it until now.
                let at_prio = filters.entry(prio).or_default();
                at_prio.pop();
                at_prio.push(Filter::Source { ip, minor });
            }
            continue;
        }
        open = None;
        let Some(prio) = after(&words, "pref").and_then(|word| word.parse().ok()) else { continue };
        let at_prio = filters.entry(prio).or_default();
        if let Some(id) = after(&words, "flowid").or_else(|| after(&words, "*flowid")) {
            at_prio.push(Filter::Other);
            open = minor(id).map(|minor| (prio, minor));
        } else if let Some(handle) = after(&words, "handle") {
            let handle = handle.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
            let is_group = words.contains(&"cgroup");
            at_prio.push(handle.filter(|_| is_group).map_or(Filter::Other, Filter::Group));
        }
    }
    filters
}

/// `match 0a000002/ffffffff at 12`: a whole address where packets have their sender's.
fn source(words: &[&str]) -> Option<Ipv4Addr> {
    let [_, address, _, "12"] = words else { return None };
    let bits = address.strip_suffix("/ffffffff")?;
    u32::from_str_radix(bits, 16).ok().map(Ipv4Addr::from)
}

fn after<'w>(words: &[&'w str], name: &str) -> Option<&'w str> {
    let at = words.iter().position(|word| *word == name)?;
    words.get(at + 1).copied()
}

/// Of a class below our handle. Numbers are hexadecimal.
fn minor(id: &str) -> Option<u32> {
    let (major, minor) = id.split_once(':')?;
    let is_ours = u32::from_str_radix(major, 16) == Ok(MAJOR);
    u32::from_str_radix(minor, 16).ok().filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: &str = "\
class htb 1:1 root rate 80Mbit ceil 80Mbit burst 1600b cburst 1600b 
class htb 1:2 parent 1:1 prio 1 rate 24Mbit ceil 80Mbit burst 1599b cburst 1600b 
class htb 1:5 parent 1:1 leaf 8002: prio 2 rate 8Mbit ceil 8Mbit burst 1600b cburst 1600b 
class htb 1:5a parent 1:1 prio 2 rate 8Mbit ceil 8Mbit burst 1600b cburst 1600b 
class htb 2:7 parent 1:1 prio 2 rate 8Mbit ceil 8Mbit burst 1600b cburst 1600b 
class htb 1:8 parent 1:2 prio 2 rate 8Mbit ceil 8Mbit burst 1600b cburst 1600b 
";

    const FILTERS: &str = "\
filter parent 1: protocol ip pref 1 cgroup chain 0 
filter parent 1: protocol ip pref 1 cgroup chain 0 handle 0x2 
filter parent 1: protocol ip pref 5 cgroup chain 0 
filter parent 1: protocol ip pref 5 cgroup chain 0 handle 0x5 
filter parent 1: protocol ip pref 90 u32 chain 0 
filter parent 1: protocol ip pref 90 u32 chain 0 fh 801: ht divisor 1 
filter parent 1: protocol ip pref 90 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 flowid 1:5a not_in_hw 
  match 0a000002/ffffffff at 12
filter parent 1: protocol ip pref 49152 u32 chain 0 fh 802::800 order 2048 key ht 802 bkt 0 flowid 1:5 not_in_hw 
  match 0a000000/ff000000 at 16
";

    #[test]
    fn what_is_shown() {
        let present = Present::read(CLASSES, FILTERS);
        assert_eq!(present.classes, [2, 5, 0x5a].into());
        assert!(present.has_group(2) && !present.has_group(3) && !present.has_group(90));
        let source = Filter::Source { ip: Ipv4Addr::new(10, 0, 0, 2), minor: 0x5a };
        let filters = [
            (1, vec![Filter::Group(2)]),
            (5, vec![Filter::Group(5)]),
            (90, vec![source]),
            (49152, vec![Filter::Other]),
        ];
        assert_eq!(present.filters, filters.into());
        assert_eq!(
            (present.stray_classes(&[5].into()), present.stray_filters(&[5].into())),
            (vec![90], vec![90])
        );
        assert_eq!(present.stray_filters(&BTreeSet::new()), [5, 90], "others' filters stay");
        assert_eq!(Present::read("", ""), Present::default());
    }
}
