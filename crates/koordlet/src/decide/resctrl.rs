//! Shares of the last-level cache and of memory bandwidth, by QoS class. Spec: koordlet-enforce 13.
//!
//! The arithmetic (`l3_mask`, `bandwidth`) serves single pods too (`hooks::pod_resctrl`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use koord_api::crd::node_slo::{ResctrlQos, ResourceQosStrategy};
use koord_api::qos::Qos;

use super::snapshot::Pod;
use super::why::OrNone;
use super::wish::{Cause, File, Place, Value, Why, Wish};

/// The classes' groups.
pub const GROUPS: [Qos; 3] = [Qos::Lsr, Qos::Ls, Qos::Be];

/// What AMD calls unlimited.
const AMD_UNLIMITED: i64 = 2048;
/// Gb/s of one core complex at full bandwidth: 25 GB/s, of which 80 % can be had.
const AMD_GBPS: i64 = 160;

/// Who made the CPU: it decides how bandwidth is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Intel,
    Amd,
    Other,
}

impl Vendor {
    /// By `vendor_id` of the CPU.
    pub fn of(vendor_id: &str) -> Vendor {
        match vendor_id {
            "GenuineIntel" => Vendor::Intel,
            "AuthenticAMD" => Vendor::Amd,
            _ => Vendor::Other,
        }
    }
}

/// What the kernel says about resctrl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub vendor: Vendor,
    /// All ways of the cache.
    pub cbm: u32,
    /// Ids of the caches as the root's `schemata` lists them; they need not be contiguous.
    pub cache_ids: Vec<u32>,
    /// Caches that the CPU topology counts.
    pub cache_count: usize,
}

impl Platform {
    /// Reads the mask as the node's CPU info gives it: hexadecimal without a prefix.
    pub fn cbm_of(text: &str) -> Option<u32> {
        u32::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'))
    }

    pub fn ways(&self) -> Ways {
        Ways { cbm: self.cbm, caches: self.cache_ids.len() }
    }
}

/// Why a line is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResctrlError {
    #[error("illegal cbm {0}")]
    Cbm(u32),
    #[error("illegal l3 cat percent: start {start}, end {end}")]
    Range { start: i64, end: i64 },
    #[error("illegal mba percent: {0}")]
    Bandwidth(i64),
    #[error("read resctrl schemata failed, L3 masks has invalid count {ids}, l3Num {count}")]
    Caches { ids: usize, count: usize },
}

/// The ways of the cache between two percentages. Spec: koordlet-enforce 13.2.
///
/// Differs: no ways at all become one, since the kernel refuses an empty mask, and a mask without any way is an
/// error (13.2, item 12).
pub fn l3_mask(cbm: u32, start: i64, end: i64) -> Result<u32, ResctrlError> {
    let width = i64::from(cbm.trailing_ones());
    if cbm == 0 || cbm.count_ones() + cbm.leading_zeros() != u32::BITS {
        return Err(ResctrlError::Cbm(cbm));
    }
    if !(0 <= start && start < end && end <= 100) {
        return Err(ResctrlError::Range { start, end });
    }
    let way = |percent: i64| (width * percent + 99) / 100;
    let last = way(end);
    let first = way(start).min(last - 1);
    let ones = |count: i64| (1_u64 << count) - 1;
    Ok(u32::try_from(ones(last) & !ones(first)).unwrap_or(cbm))
}

/// Bandwidth in the vendor's unit. Spec: koordlet-enforce 13.3.
pub fn bandwidth(vendor: Vendor, percent: i64) -> Result<i64, ResctrlError> {
    match (vendor, percent) {
        (_, ..=0 | 101..) => Err(ResctrlError::Bandwidth(percent)),
        (Vendor::Amd, 100) => Ok(AMD_UNLIMITED),
        (Vendor::Amd, _) => Ok(AMD_GBPS * percent / 100),
        _ => Ok((percent + 9) / 10 * 10),
    }
}

/// A line of `schemata`, ids ascending: `L3:0=f;1=f;`.
pub fn line(resource: &str, values: &BTreeMap<u32, String>) -> String {
    let mut line = format!("{resource}:");
    for (id, value) in values {
        // Writing to a string cannot fail.
        let _ = write!(line, "{id}={value};");
    }
    line.push('\n');
    line
}

/// What a cycle wants, and what it could not do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub wishes: Vec<Wish>,
    pub problems: Vec<(Qos, ResctrlError)>,
}

/// The schemata of every class. A class that is switched off has values that limit nothing.
pub fn schemata(strategy: &ResourceQosStrategy, platform: &Platform) -> Plan {
    let mut plan = Plan::default();
    for class in GROUPS {
        let Some(config) = config(strategy, class) else { continue };
        let (ids, count) = (platform.cache_ids.len(), platform.cache_count);
        if ids != count {
            plan.problems.push((class, ResctrlError::Caches { ids, count }));
            continue;
        }
        for text in lines(config, platform) {
            match text {
                Ok(text) => {
                    let why = Why::Resctrl(Numbers::new(class, config, platform));
                    plan.wishes.push(wish(class, File::ResctrlSchemata, Value::Text(text)).because(&why));
                }
                Err(error) => plan.problems.push((class, error)),
            }
        }
    }
    plan
}

/// What a class's lines follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub class: Qos,
    pub is_on: bool,
    /// Percent of the ways, from and to.
    pub start: Option<i64>,
    pub end: Option<i64>,
    pub bandwidth_percent: Option<i64>,
    pub ways: Ways,
}

impl Numbers {
    fn new(class: Qos, config: &ResctrlQos, platform: &Platform) -> Numbers {
        Numbers {
            class,
            is_on: config.enable == Some(true),
            start: config.cat_range_start_percent,
            end: config.cat_range_end_percent,
            bandwidth_percent: config.mba_percent,
            ways: platform.ways(),
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numbers { class, is_on, start, end, bandwidth_percent, ways } = *self;
        write!(f, "class {}, enable {is_on}: ", class.as_str())?;
        write!(f, "catRange {} to {} %, ", OrNone(start), OrNone(end))?;
        write!(f, "mbaPercent {}; {ways}", OrNone(bandwidth_percent))
    }
}

/// What the machine can share out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    pub cbm: u32,
    pub caches: usize,
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ways {:x} of {} caches", self.cbm, self.caches)
    }
}

/// The L3 and the MB line of a class; a fault in one does not stop the other.
fn lines(config: &ResctrlQos, platform: &Platform) -> Vec<Result<String, ResctrlError>> {
    let all = |value: String| platform.cache_ids.iter().map(|id| (*id, value.clone())).collect();
    let mut lines = Vec::new();
    if let (Some(start), Some(end)) = (config.cat_range_start_percent, config.cat_range_end_percent) {
        lines.push(l3_mask(platform.cbm, start, end).map(|mask| line("L3", &all(format!("{mask:x}")))));
    }
    if let Some(percent) = config.mba_percent {
        lines.push(bandwidth(platform.vendor, percent).map(|value| line("MB", &all(value.to_string()))));
    }
    lines
}

fn wish(class: Qos, file: File, value: Value) -> Wish {
    let cause = if file == File::ResctrlTasks { Cause::ResctrlTasks } else { Cause::Resctrl };
    Wish::new(Place::Resctrl(Arc::from(class.as_str())), file, value, cause)
}

fn config(strategy: &ResourceQosStrategy, class: Qos) -> Option<&ResctrlQos> {
    let class = match class {
        Qos::Lse | Qos::Lsr => &strategy.lsr_class,
        Qos::Ls => &strategy.ls_class,
        Qos::Be => &strategy.be_class,
        Qos::System => return None,
    };
    class.as_ref()?.resctrl_qos.as_ref()
}

/// The group that a pod's threads belong to; none when they stay where they are.
pub fn group(strategy: &ResourceQosStrategy, pod: &Pod) -> Option<Qos> {
    let is_own = !matches!(pod.resctrl, Ok(None));
    let class = if pod.class == Qos::Lse { Qos::Lsr } else { pod.class };
    let is_on = config(strategy, class)?.enable == Some(true);
    (pod.is_active() && !is_own && is_on).then_some(class)
}

/// Threads that are not yet in their class's group.
///
/// `present` are the threads of each group, absent when they cannot be read; `threads` are those of a pod's
/// containers and sandbox.
pub fn tasks<'a>(
    strategy: &ResourceQosStrategy,
    pods: &'a [Pod],
    present: &BTreeMap<Qos, BTreeSet<u32>>,
    threads: impl Fn(&'a Pod) -> &'a [u32],
) -> Vec<Wish> {
    let mut missing: BTreeMap<Qos, BTreeSet<u32>> = BTreeMap::new();
    for pod in pods {
        let Some(class) = group(strategy, pod) else { continue };
        let is_missing = |id: &&u32| present.get(&class).is_none_or(|ids| !ids.contains(*id));
        missing.entry(class).or_default().extend(threads(pod).iter().filter(is_missing));
    }
    let wishes = GROUPS.iter().filter_map(|class| {
        let ids: Vec<u32> = missing.get(class)?.iter().copied().collect();
        (!ids.is_empty()).then(|| wish(*class, File::ResctrlTasks, Value::Tasks(ids)))
    });
    wishes.collect()
}

#[cfg(test)]
mod tests;
