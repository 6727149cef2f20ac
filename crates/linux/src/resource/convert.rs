//! Between v1's language and v2's files. Spec: koordlet-enforce 2.5.

use super::device::{self, DeviceLine};
use super::{Resource, validate};
use crate::cgroup::Version;
use crate::error::Malformed;

const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;
const WEIGHT_MIN: i64 = 1;
const WEIGHT_MAX: i64 = 10_000;

/// `cpu.weight` of `cpu.shares`.
pub fn weight_of_shares(shares: i64) -> Result<i64, Malformed> {
    check_range("cpu.weight", shares, SHARES_MIN, SHARES_MAX)?;
    Ok((1 + (shares - 2) * 9999 / 262_142).clamp(WEIGHT_MIN, WEIGHT_MAX))
}

/// `cpu.shares` of `cpu.weight`.
pub fn shares_of_weight(weight: i64) -> Result<i64, Malformed> {
    check_range("cpu.weight", weight, WEIGHT_MIN, WEIGHT_MAX)?;
    Ok(((weight - 1) * 262_142 / 9999 + 2).clamp(SHARES_MIN, SHARES_MAX))
}

fn check_range(name: &str, value: i64, min: i64, max: i64) -> Result<(), Malformed> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Malformed(format!("invalid {name} value, err: value {value} is not in [min:{min}, max:{max}]")))
}

/// A value in v1's language, checked, as the version's file takes it.
pub fn encode(resource: Resource, version: Version, value: &str) -> Result<String, Malformed> {
    validate(resource, version, value)?;
    convert(resource, version, value)
}

/// The same without a check: what the kernel once held it may hold again.
pub fn convert(resource: Resource, version: Version, value: &str) -> Result<String, Malformed> {
    if version == Version::V1 {
        return Ok(value.to_owned());
    }
    match resource {
        Resource::CpuShares => {
            let shares = value.parse().map_err(|_| Malformed(format!("value {value} is not an integer")))?;
            Ok(weight_of_shares(shares)?.to_string())
        }
        Resource::CfsQuotaUs | Resource::MemoryLimit if value == "-1" => Ok("max".into()),
        _ => match device::limit_key(resource) {
            Some(key) => encode_limit(key, value),
            None => Ok(value.to_owned()),
        },
    }
}

/// `8:0 100` becomes `8:0 riops=100`; 0 takes the limit away.
fn encode_limit(key: &str, value: &str) -> Result<String, Malformed> {
    let line = DeviceLine::parse(value).filter(|line| line.words.len() == 1);
    let line = line.ok_or_else(|| Malformed(format!("value {value} is no device with its limit")))?;
    let limit = if line.words[0] == "0" { "max" } else { line.words[0] };
    Ok(format!("{} {key}={limit}", line.device))
}
