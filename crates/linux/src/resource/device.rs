//! Lines of per-device files: `8:16 100`, `8:16 rbps=max wiops=5`, `8:16 enable=1 ctrl=user rpct=95.00 …`.

use std::fmt;
use std::str::FromStr;

use super::Resource;
use crate::error::Malformed;

/// Weight of a disk that has no line: what the file says of all such.
const WEIGHT_DEFAULT: &str = "default";

/// A disk's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

impl FromStr for Device {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Device, Malformed> {
        let numbers =
            text.split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let (major, minor) =
            numbers.ok_or_else(|| Malformed(format!("{text:?} is no device such as 8:16")))?;
        Ok(Device { major, minor })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A line of such a file. `default 100` and the like are no device's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLine<'a> {
    pub device: Device,
    pub words: Vec<&'a str>,
}

impl DeviceLine<'_> {
    pub fn parse(line: &str) -> Option<DeviceLine<'_>> {
        let mut words = line.split_whitespace();
        let device = words.next()?.parse().ok()?;
        Some(DeviceLine { device, words: words.collect() })
    }

    /// The value of `key=value`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.words
            .iter()
            .filter_map(|word| word.split_once('='))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }
}

/// The line of a device in a file.
pub(crate) fn line_of(content: &str, device: Device) -> Option<DeviceLine<'_>> {
    content.lines().filter_map(DeviceLine::parse).find(|line| line.device == device)
}

/// What v1's throttle files are called inside v2's `io.max`.
pub(crate) fn limit_key(resource: Resource) -> Option<&'static str> {
    match resource {
        Resource::ReadIops => Some("riops"),
        Resource::WriteIops => Some("wiops"),
        Resource::ReadBps => Some("rbps"),
        Resource::WriteBps => Some("wbps"),
        _ => None,
    }
}

/// What must be written, in v1's language, so that a file says of a device what it says now. What it does not speak of
/// has no limit, the weight of all such disks, and no model of its own.
pub fn value_of_device(resource: Resource, content: &str, device: Device) -> String {
    let line = line_of(content, device);
    let setting = match (resource, &line) {
        (Resource::IoCostQos, None) => "enable=0".to_owned(),
        (Resource::IoCostModel, None) => "ctrl=auto".to_owned(),
        (Resource::IoWeight, None) => WEIGHT_DEFAULT.to_owned(),
        (_, None) => "0".to_owned(),
        (_, Some(line)) => match limit_key(resource).and_then(|key| line.value(key)) {
            Some("max") => "0".to_owned(),
            Some(limit) => limit.to_owned(),
            None => line.words.join(" "),
        },
    };
    format!("{device} {setting}")
}

/// Whether the file already says what `value` asks of its device. Spec: koordlet-enforce 3.4.
pub(crate) fn is_same(resource: Resource, value: &str, content: &str) -> bool {
    let Some(wanted) = DeviceLine::parse(value) else {
        return content.lines().any(|line| line == value);
    };
    let current = line_of(content, wanted.device);
    match &wanted.words[..] {
        // v1 removes an entry by 0, so there is nothing to remove where there is none.
        ["0"] => current.is_none(),
        // Where nothing is said, io.max has no limit.
        [word] if limit_key(resource).is_some() && word.ends_with("=max") && current.is_none() => true,
        ["default"] if resource == Resource::IoWeight && current.is_none() => true,
        // v2 tells first what holds for every disk that has no line.
        [weight] if resource == Resource::IoWeight && current.is_none() => {
            content.lines().any(|line| line.strip_prefix("default ") == Some(weight))
        }
        // Differs: upstream compares whole lines, which the kernel prints otherwise (`rpct=95.00`, and more keys).
        words => current.is_some_and(|current| words.iter().all(|word| says(&current, word))),
    }
}

fn says(current: &DeviceLine<'_>, word: &str) -> bool {
    let Some((key, wanted)) = word.split_once('=') else { return current.words.first() == Some(&word) };
    current.value(key).is_some_and(|value| {
        value == wanted
            || matches!((value.parse::<f64>(), wanted.parse::<f64>()), (Ok(value), Ok(wanted)) if value == wanted)
    })
}
