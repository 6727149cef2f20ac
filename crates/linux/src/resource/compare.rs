//! Whether a file already holds a value, and what must be written first when values grow.
//!
//! Values here are encoded: as the version's file takes them. Spec: koordlet-enforce 3.1, 3.3, 3.4.

use std::sync::OnceLock;

use koord_api::cpuset::CpuSet;

use super::{Merge, Resource, device};
use crate::cgroup::Version;
use crate::error::Malformed;

/// v1 shows at least this where there is no limit.
const V1_UNLIMITED: i64 = 0x7FFF_FFFF_FFFF_F000;

/// The part of a file that a resource is about: `cpu.max` holds two.
pub fn current_value(resource: Resource, version: Version, content: &str) -> &str {
    let content = content.trim_matches('\n');
    match (resource, version) {
        (Resource::CfsQuotaUs, Version::V2) => content.split_whitespace().next().unwrap_or_default(),
        (Resource::CfsPeriodUs, Version::V2) => content.split_whitespace().nth(1).unwrap_or_default(),
        _ => content,
    }
}

/// Whether writing `value` would change nothing. `current` is the part that [`current_value`] gives.
pub fn is_same(resource: Resource, value: &str, current: &str) -> bool {
    if resource.is_per_device() {
        return device::is_same(resource, value, current);
    }
    if value == current {
        return true;
    }
    match resource {
        Resource::CpusetCpus => {
            matches!((value.parse::<CpuSet>(), current.parse::<CpuSet>()), (Ok(value), Ok(current)) if value == current)
        }
        Resource::MemoryLimit | Resource::MemoryMin | Resource::MemoryLow | Resource::MemoryHigh => {
            match (bytes(value), bytes(current)) {
                (Some(value), Some(current)) => value == current || is_rounded(value, current),
                _ => false,
            }
        }
        _ => matches!((size(value), size(current)), (Some(value), Some(current)) if value == current),
    }
}

/// The kernel keeps whole pages.
fn is_rounded(value: i64, current: i64) -> bool {
    static PAGE: OnceLock<i64> = OnceLock::new();
    let page = *PAGE.get_or_init(|| i64::try_from(rustix::param::page_size()).unwrap_or(4096));
    value >= page && value / page * page == current
}

fn bytes(text: &str) -> Option<i64> {
    size(text).map(|size| if size >= V1_UNLIMITED { i64::MAX } else { size })
}

/// No limit is more than any.
fn size(text: &str) -> Option<i64> {
    match text {
        "max" | "-1" => Some(i64::MAX),
        _ => text.parse().ok(),
    }
}

/// What to write on the way down, parents first, so that children have room: None when the value does not grow.
///
/// A text that cannot be compared is an error; the value is then written on the way up.
pub fn raised(
    resource: Resource,
    version: Version,
    value: &str,
    current: &str,
) -> Result<Option<String>, Malformed> {
    match resource.merge() {
        Merge::Never => Ok((!is_same(resource, value, current)).then(|| value.to_owned())),
        Merge::Larger => {
            let (wanted, held) = (larger_of(resource, value)?, larger_of(resource, current)?);
            Ok((wanted > held && !is_same(resource, value, current)).then(|| value.to_owned()))
        }
        Merge::LooserCpus => {
            let (wanted, held) = (cpus(value)?, cpus(current)?);
            // An empty set of v2 is the parent's, so it has every CPU that the new one may have.
            if wanted.is_subset(&held) || (version == Version::V2 && held.is_empty()) {
                return Ok(None);
            }
            Ok(Some((&wanted | &held).to_string()))
        }
    }
}

fn larger_of(resource: Resource, text: &str) -> Result<i64, Malformed> {
    // A signed quota or limit means something only when it is -1; a burst and a protection are never negative.
    size(text).ok_or_else(|| Malformed(format!("{} value is not int64: {text}", resource.name())))
}

fn cpus(text: &str) -> Result<CpuSet, Malformed> {
    text.parse().map_err(|_| Malformed(format!("cpuset.cpus value is not valid cpuset: {text}")))
}
