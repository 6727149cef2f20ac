//! A pod's own share of cache and memory bandwidth. Spec: koordlet-enforce 15.10.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use koord_api::annotation::Annotation;
use koord_api::annotation::node_side::{PodResctrl, ResctrlPart};

use crate::decide::resctrl::{Platform, ResctrlError, Vendor, Ways, bandwidth, l3_mask, line};
use crate::decide::wish::{Cause, File, Place, Value, Why, Wish};

/// What pods' groups are called, before the uid.
pub const GROUP_PREFIX: &str = "koordlet-";
/// The reason of events on the pod.
pub const EVENT_REASON: &str = "Pod Level Resctrl";
pub const EVENT_CREATED: &str = "Create Resctrl Group";
pub const EVENT_REMOVED: &str = "Remove Resctrl Group";
/// A group younger than this is not removed for want of a pod: the pod list may be older.
pub const YOUNG_SECONDS: u64 = 10;

/// The name of a pod's group.
pub fn group_name(uid: &str) -> String {
    format!("{GROUP_PREFIX}{uid}")
}

/// What a pod's annotation comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schemata {
    pub l3: Option<String>,
    pub mb: Option<String>,
    pub problems: Vec<ResctrlError>,
}

impl Schemata {
    /// Both lines, as they are written.
    pub fn text(&self) -> String {
        [&self.l3, &self.mb].into_iter().flatten().map(String::as_str).collect()
    }

    pub fn wish(&self, uid: &str, platform: &Platform) -> Option<Wish> {
        let text = self.text();
        let place = Place::Resctrl(Arc::from(group_name(uid)));
        let value = Value::Text(text.clone());
        let why = Why::PodResctrl(Because(platform.ways()));
        let wish = Wish::new(place, File::ResctrlSchemata, value, Cause::RuntimeHook).because(&why);
        (!text.is_empty()).then_some(wish)
    }
}

/// What a pod's lines follow from: its annotation, and what there is to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Because(pub Ways);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "annotation {}; {}", PodResctrl::KEY, self.0)
    }
}

/// The lines of a pod's group. A line is written only when every cache has a value.
pub fn schemata(wanted: &PodResctrl, platform: &Platform) -> Schemata {
    let mut out = Schemata::default();
    let mb = values(&wanted.mb, &mut out.problems, |percent, _| match (percent, platform.vendor) {
        (0, _) => Ok(None),
        // How others tell bandwidth is not known.
        (_, Vendor::Other) => Ok(None),
        (percent, vendor) => bandwidth(vendor, percent).map(|value| Some(value.to_string())),
    });
    out.mb = complete("MB", mb, platform);
    let l3 = values(&wanted.llc, &mut out.problems, |_, range| match range {
        [] => Ok(None),
        [start, end] => l3_mask(platform.cbm, *start, *end).map(|mask| Some(format!("{mask:x}"))),
        other => {
            let start = other.first().copied().unwrap_or(0);
            Err(ResctrlError::Range { start, end: other.last().copied().unwrap_or(0) })
        }
    });
    if platform.cache_ids.len() == platform.cache_count {
        out.l3 = complete("L3", l3, platform);
    }
    out
}

/// A value for all caches, and those for single ones.
struct Values {
    all: Option<String>,
    single: BTreeMap<u32, String>,
}

/// None when a value cannot be had: one bad value spoils its part.
///
/// Differs: percentages out of range are refused, where upstream writes them (15.10).
fn values(
    part: &ResctrlPart,
    problems: &mut Vec<ResctrlError>,
    of: impl Fn(i64, &[i64]) -> Result<Option<String>, ResctrlError>,
) -> Option<Values> {
    let read = || -> Result<Values, ResctrlError> {
        let all = of(part.schemata.percent, &part.schemata.range)?;
        let mut single = BTreeMap::new();
        for cache in &part.schemata_per_cache {
            if let (Ok(id), Some(value)) = (u32::try_from(cache.cache_id), of(cache.percent, &cache.range)?) {
                single.insert(id, value);
            }
        }
        Ok(Values { all, single })
    };
    read().map_err(|error| problems.push(error)).ok()
}

fn complete(resource: &str, values: Option<Values>, platform: &Platform) -> Option<String> {
    let values = values?;
    let of = |id: &u32| Some((*id, values.single.get(id).or(values.all.as_ref())?.clone()));
    let all: Option<BTreeMap<u32, String>> = platform.cache_ids.iter().map(of).collect();
    all.filter(|all| !all.is_empty()).map(|all| line(resource, &all))
}

/// Groups whose pods are gone. Ages are in seconds.
pub fn leftovers<'a>(groups: &'a BTreeMap<String, u64>, uids: &BTreeSet<&str>) -> Vec<&'a str> {
    let is_left = |(name, age): &(&'a String, &u64)| {
        let uid = name.strip_prefix(GROUP_PREFIX);
        uid.is_some_and(|uid| !uids.contains(uid)) && **age >= YOUNG_SECONDS
    };
    groups.iter().filter(is_left).map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(annotation: &str, vendor: Vendor) -> String {
        let platform = Platform { vendor, cbm: 0x7ff, cache_ids: vec![0, 1], cache_count: 2 };
        schemata(&PodResctrl::parse(annotation).unwrap(), &platform).text()
    }

    #[test]
    fn worked_examples() {
        let both = r#"{"llc":{"schemata":{"range":[0,50]},"schemataPerCache":[{"cacheID":0,"range":[0,30]}]},
            "mb":{"schemata":{"percent":50},"schemataPerCache":[{"cacheID":1,"percent":20}]}}"#;
        let partial = r#"{"mb":{"schemataPerCache":[{"cacheID":1,"percent":20}]}}"#;
        let bad_range = r#"{"llc":{"schemata":{"range":[50,50]}},"mb":{"schemata":{"percent":30}}}"#;
        for (key, annotation, vendor, want) in [
            ("koordlet-enforce#18.185", both, Vendor::Intel, "L3:0=f;1=3f;\nMB:0=50;1=20;\n"),
            ("koordlet-enforce#18.185", both, Vendor::Amd, "L3:0=f;1=3f;\nMB:0=80;1=32;\n"),
            ("koordlet-enforce#18.185", both, Vendor::Other, "L3:0=f;1=3f;\n"),
            ("koordlet-enforce#18.186", partial, Vendor::Intel, ""),
            ("koordlet-enforce#18.187", bad_range, Vendor::Intel, "MB:0=30;1=30;\n"),
            ("out of range", r#"{"mb":{"schemata":{"percent":500}}}"#, Vendor::Intel, ""),
        ] {
            assert_eq!(text(annotation, vendor), want, "{key}");
        }
    }

    #[test]
    fn the_annotation_is_told() {
        let platform = Platform { vendor: Vendor::Intel, cbm: 0x7ff, cache_ids: vec![0, 1], cache_count: 2 };
        let text = r#"{"llc":{"schemata":{"range":[0,50]}},"mb":{"schemata":{"percent":50}}}"#;
        let lines = schemata(&PodResctrl::parse(text).unwrap(), &platform);
        let want = "update schemata to L3:0=3f;1=3f; MB:0=50;1=50;; annotation node.koordinator.sh/resctrl; \
                    ways 7ff of 2 caches";
        assert_eq!(lines.wish("u", &platform).unwrap().audit_message(None), want);
    }

    #[test]
    fn groups_without_pods() {
        let groups = [("koordlet-a", 60), ("koordlet-b", 60), ("koordlet-c", 9), ("LSR", 60)]
            .map(|(name, age)| (name.to_string(), age))
            .into();
        assert_eq!(leftovers(&groups, &BTreeSet::from(["a"])), ["koordlet-b"]);
    }
}
