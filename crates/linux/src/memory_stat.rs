//! Memory of a group: what it uses, with and without page cache, its limit, its pages per NUMA node.
//!
//! Spec: koordlet-observe 2.3, 2.4.

use crate::cgroup::Version;
use crate::error::Malformed;
use crate::text::{lines, number, pairs, signed, unsigned, words};

/// v1 shows at least this where there is no limit.
const V1_UNLIMITED: u64 = 0x7FFF_FFFF_FFFF_F000;
/// v2 tells bytes; pages are counted in this size whatever the host's is.
const PAGE_BYTES: u64 = 4096;

/// Bytes of `memory.stat`, of a group and all below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStat {
    pub cache: u64,
    pub rss: u64,
    pub inactive_file: u64,
    pub active_file: u64,
    pub inactive_anon: u64,
    pub active_anon: u64,
    pub unevictable: u64,
}

/// In the order of the fields above.
const V1_KEYS: [&str; 7] = [
    "total_cache",
    "total_rss",
    "total_inactive_file",
    "total_active_file",
    "total_inactive_anon",
    "total_active_anon",
    "total_unevictable",
];
const V2_KEYS: [&str; 7] =
    ["file", "anon", "inactive_file", "active_file", "inactive_anon", "active_anon", "unevictable"];

impl MemoryStat {
    /// Every key is required.
    pub fn parse(version: Version, content: &[u8]) -> Result<MemoryStat, Malformed> {
        let keys = if version == Version::V1 { &V1_KEYS } else { &V2_KEYS };
        let mut found = [None; 7];
        for (name, value) in pairs(content) {
            if let Some(at) = keys.iter().position(|key| key.as_bytes() == name) {
                found[at] = number(value);
            }
        }
        let missing =
            |at: usize| Malformed(format!("parse memory.stat failed, err: missing field {}", keys[at]));
        let value = |at: usize| found[at].ok_or_else(|| missing(at));
        Ok(MemoryStat {
            cache: value(0)?,
            rss: value(1)?,
            inactive_file: value(2)?,
            active_file: value(3)?,
            inactive_anon: value(4)?,
            active_anon: value(5)?,
            unevictable: value(6)?,
        })
    }

    pub fn used(&self) -> u64 {
        self.inactive_anon.saturating_add(self.active_anon).saturating_add(self.unevictable)
    }

    pub fn used_with_page_cache(&self) -> u64 {
        self.used().saturating_add(self.active_file).saturating_add(self.inactive_file)
    }
}

/// From `memory.usage_in_bytes` or `memory.current`.
pub fn usage(content: &[u8]) -> Result<u64, Malformed> {
    unsigned(content)
}

/// From `memory.limit_in_bytes` or `memory.max`; no limit is -1.
pub fn limit(version: Version, content: &[u8]) -> Result<i64, Malformed> {
    match version {
        Version::V1 => {
            let bytes = unsigned(content)?;
            Ok(if bytes >= V1_UNLIMITED { -1 } else { i64::try_from(bytes).unwrap_or(-1) })
        }
        Version::V2 => signed(content),
    }
}

/// Pages by NUMA node, from `memory.numa_stat`, put in place of what `into` held.
pub fn numa_pages(version: Version, content: &[u8], into: &mut Vec<(u32, u64)>) -> Result<(), Malformed> {
    into.clear();
    let read = match version {
        Version::V1 => v1_numa_pages(content, into),
        Version::V2 => v2_numa_pages(content, into),
    };
    read.ok_or_else(|| {
        into.clear();
        Malformed("parse cgroup memory numa stat err".into())
    })
}

fn v1_numa_pages(content: &[u8], into: &mut Vec<(u32, u64)>) -> Option<()> {
    let line = lines(content).next().filter(|line| line.starts_with(b"total"))?;
    for word in words(line).skip(1) {
        into.push(numa_word(word)?);
    }
    (!into.is_empty()).then_some(())
}

/// Ids count from 0 on both lines.
fn v2_numa_pages(content: &[u8], into: &mut Vec<(u32, u64)>) -> Option<()> {
    let mut lines = lines(content);
    let anon = lines.next().filter(|line| line.starts_with(b"anon"))?;
    let file = lines.next().filter(|line| line.starts_with(b"file"))?;
    for (at, word) in (0..).zip(words(anon).skip(1)) {
        let (node, bytes) = numa_word(word).filter(|(node, _)| *node == at)?;
        into.push((node, bytes / PAGE_BYTES));
    }
    let mut nodes = into.iter_mut();
    for word in words(file).skip(1) {
        let (node, bytes) = numa_word(word)?;
        let (_, pages) = nodes.next().filter(|(known, _)| *known == node)?;
        *pages = pages.saturating_add(bytes / PAGE_BYTES);
    }
    nodes.next().is_none().then_some(())
}

fn numa_word(word: &[u8]) -> Option<(u32, u64)> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    Some((number(word[..at].strip_prefix(b"N")?)?, number(&word[at + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Version::{V1, V2};

    const V1_STAT: &str = "cache 1\ntotal_cache 15\ntotal_rss 30\ntotal_inactive_anon 10\ntotal_active_anon 20\n\
                           total_unevictable 5\ntotal_active_file 7\ntotal_inactive_file 8\n";

    #[test]
    fn used_memory() {
        // koordlet-observe#13.2.B8
        let stat = MemoryStat::parse(V1, V1_STAT.as_bytes()).unwrap();
        assert_eq!((stat.used(), stat.used_with_page_cache()), (35, 50));
        let v2 = b"anon 30\nfile 15\ninactive_anon 10\nactive_anon 20\ninactive_file 8\nactive_file 7\nunevictable 5\n";
        assert_eq!(MemoryStat::parse(V2, v2), Ok(stat));
        // koordlet-observe#13.2.B9
        let without = V1_STAT.replace("total_unevictable", "other");
        let fault = MemoryStat::parse(V1, without.as_bytes()).unwrap_err().to_string();
        assert_eq!(fault, "parse memory.stat failed, err: missing field total_unevictable");
    }

    #[test]
    fn limits_and_usage() {
        // koordlet-observe#13.2.B38
        assert_eq!(limit(V1, b"9223372036854771712\n"), Ok(-1));
        assert_eq!(limit(V1, b"9223372036854771711\n"), Ok(9_223_372_036_854_771_711));
        assert_eq!(limit(V2, b"max\n"), Ok(-1));
        assert_eq!(usage(b"max"), Ok(9_223_372_036_854_775_807));
        assert!(usage(b" 12").is_err());
        assert_eq!(usage(b"12\n"), Ok(12));
    }

    #[test]
    fn pages_per_numa_node() {
        let pages = |version, text: &str| {
            let mut pages = vec![(9, 9)];
            numa_pages(version, text.as_bytes(), &mut pages).map(|()| pages)
        };
        let v1 = |text: &str| pages(V1, text);
        let v2 = |text: &str| pages(V2, text);
        // koordlet-observe#13.2.B19
        assert_eq!(v1("total=30 N0=10 N1=20\nfile=1 N0=1 N1=0\n").unwrap(), [(0, 10), (1, 20)]);
        // koordlet-observe#13.2.B20
        assert_eq!(v2("anon N0=8192 N1=4095\nfile N0=4096 N1=4096\n").unwrap(), [(0, 3), (1, 1)]);
        // koordlet-observe#13.2.B40
        assert_eq!(v1("total=30 N0=10 N2=20").unwrap(), [(0, 10), (2, 20)]);
        for bad in ["total=30", "", "file=1 N0=1", "total=30 N0"] {
            assert_eq!(v1(bad).unwrap_err().to_string(), "parse cgroup memory numa stat err", "{bad}");
        }
        for bad in
            ["anon N1=8192\nfile N1=1", "anon N0=1 N1=2\nfile N0=1", "file N0=1\nanon N0=1", "anon N0=1"]
        {
            assert!(v2(bad).is_err(), "{bad}");
        }
    }
}
