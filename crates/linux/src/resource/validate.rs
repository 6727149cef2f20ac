//! Which values a resource takes, before they are written. Spec: koordlet-enforce 2.4.

use koord_api::cpuset::CpuSet;

use super::{Check, Resource};
use crate::cgroup::Version;
use crate::error::Malformed;

/// Error when the kernel would refuse the value, which is in v1's language.
pub fn validate(resource: Resource, version: Version, value: &str) -> Result<(), Malformed> {
    match resource.check(version) {
        Check::Any => Ok(()),
        Check::Range(min, max) => in_range(value, min, max),
        Check::CpuList => cpu_list(value),
        Check::DeviceRange(min, max) => device_values(value, 2, 1, min, max),
        // The values of `maj:min enable=1 ctrl=user rpct=95 …` begin at the fourth word.
        Check::CostQos => device_values(value, 7, 3, 1, i64::MAX),
        Check::CostModel => device_values(value, 8, 2, 1, i64::MAX),
        Check::ClassId => class_id(value),
    }
}

pub(crate) fn in_range(value: &str, min: i64, max: i64) -> Result<(), Malformed> {
    if value.is_empty() {
        return Err(Malformed("value is nil".into()));
    }
    let number = match value {
        "max" => i64::MAX,
        _ => value.parse().map_err(|_| Malformed(format!("value {value} is not an integer")))?,
    };
    if (min..=max).contains(&number) {
        return Ok(());
    }
    Err(Malformed(format!("value {value} is not in [min:{min}, max:{max}]")))
}

fn cpu_list(value: &str) -> Result<(), Malformed> {
    // Differs: upstream takes a reversed range for the empty set, and the kernel then answers EINVAL.
    let is_reversed = |part: &str| {
        part.split_once('-').is_some_and(|(first, last)| match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => first > last,
            _ => true,
        })
    };
    if value.parse::<CpuSet>().is_err() || value.split(',').any(is_reversed) {
        return Err(Malformed(format!("value {value} is not valid cpuset string")));
    }
    Ok(())
}

/// Lines with another number of words are switches such as `enable=0` and `ctrl=auto`, which pass.
fn device_values(value: &str, words: usize, first: usize, min: i64, max: i64) -> Result<(), Malformed> {
    let parts: Vec<&str> = value.split(' ').collect();
    if parts.len() != words {
        return Ok(());
    }
    let mut numbers =
        parts[first..].iter().map(|part| part.split_once('=').map_or(*part, |(_, number)| number));
    numbers.try_for_each(|number| in_range(number, min, max))
}

fn class_id(value: &str) -> Result<(), Malformed> {
    // Differs: upstream reads the digits of `0x…` as decimal ones, and 31 bits otherwise.
    let number = match value.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    };
    number.map(|_| ()).ok_or_else(|| Malformed(format!("value {value} is not a valid net_cls class id")))
}
