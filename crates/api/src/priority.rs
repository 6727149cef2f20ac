//! Priority classes: the four bands of pod priority, and what follows from a pod's class.
//!
//! Spec: api 3.1, 3.3.

use std::fmt;
use std::ops::RangeInclusive;

use k8s_openapi::api::core::v1::Pod;

use crate::keys;
use crate::keys::resource::{BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY};
use crate::pod::label;
use crate::qos::{self, Qos};

/// A priority class. No class is `None` around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    Prod,
    Mid,
    Batch,
    Free,
}

impl PriorityClass {
    pub const ALL: [PriorityClass; 4] =
        [PriorityClass::Prod, PriorityClass::Mid, PriorityClass::Batch, PriorityClass::Free];

    /// The class of that name.
    pub fn parse(name: &str) -> Option<PriorityClass> {
        PriorityClass::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The class whose band holds a pod priority.
    pub fn of_value(priority: i32) -> Option<PriorityClass> {
        PriorityClass::ALL.into_iter().find(|class| class.band().contains(&priority))
    }

    /// Name of the class and of its PriorityClass object.
    pub fn name(self) -> &'static str {
        match self {
            PriorityClass::Prod => "koord-prod",
            PriorityClass::Mid => "koord-mid",
            PriorityClass::Batch => "koord-batch",
            PriorityClass::Free => "koord-free",
        }
    }

    /// Pod priorities that belong to the class.
    pub fn band(self) -> RangeInclusive<i32> {
        let low = self.object_value();
        low..=low + 999
    }

    /// Priority of a pod of this class that states none.
    pub fn default_value(self) -> i32 {
        self.object_value() + 500
    }

    /// Value of the installed PriorityClass object.
    pub fn object_value(self) -> i32 {
        match self {
            PriorityClass::Prod => 9000,
            PriorityClass::Mid => 7000,
            PriorityClass::Batch => 5000,
            PriorityClass::Free => 3000,
        }
    }
}

impl fmt::Display for PriorityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The class by label, else by `spec.priority`. A label that names no class hides the priority.
pub fn class_raw(pod: &Pod) -> Option<PriorityClass> {
    match label(pod, keys::pod::label::PRIORITY_CLASS) {
        Some(name) => PriorityClass::parse(name),
        None => pod.spec.as_ref()?.priority.and_then(PriorityClass::of_value),
    }
}

/// The raw class, else the one its QoS implies.
pub fn class_with_default(pod: &Pod) -> Option<PriorityClass> {
    class_raw(pod).or_else(|| qos::with_default(pod).map(class_of_qos))
}

/// The class a QoS class implies.
pub fn class_of_qos(qos: Qos) -> PriorityClass {
    match qos {
        Qos::System | Qos::Lse | Qos::Lsr | Qos::Ls => PriorityClass::Prod,
        Qos::Be => PriorityClass::Batch,
    }
}

/// `spec.priority` unless absent or 0, else the default of the pod's class, else 0.
pub fn value_with_default(pod: &Pod) -> i32 {
    match pod.spec.as_ref().and_then(|spec| spec.priority) {
        Some(priority) if priority != 0 => priority,
        _ => class_with_default(pod).map_or(0, PriorityClass::default_value),
    }
}

/// A sub-priority label that is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("label {}: invalid value {value:?}, expected a 32 bit integer", keys::pod::label::PRIORITY)]
pub struct SubPriorityError {
    pub value: String,
}

/// Order among pods of one class, higher is more important; 0 when the label is absent or empty.
///
/// The base follows from the text, as in `0x10`, `0b11`, `0o17`, `010` (octal), `1_000`.
pub fn sub_priority(pod: &Pod) -> Result<i32, SubPriorityError> {
    match label(pod, keys::pod::label::PRIORITY) {
        None | Some("") => Ok(0),
        Some(text) => parse_any_base(text)
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| SubPriorityError { value: text.to_string() }),
    }
}

/// The same for the pod template of a Reservation, whose label is always decimal.
pub fn reservation_sub_priority(value: Option<&str>) -> Result<i32, SubPriorityError> {
    match value {
        None | Some("") => Ok(0),
        Some(text) => text.parse().map_err(|_| SubPriorityError { value: text.to_string() }),
    }
}

/// An integer in Go's literal syntax with an optional sign.
fn parse_any_base(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, body) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    // One underscore may stand between two digits, or between the base prefix and a digit.
    let body = if base == 10 { body } else { body.strip_prefix('_').unwrap_or(body) };
    let groups: Vec<&str> = body.split('_').collect();
    let is_digits = |group: &&str| !group.is_empty() && group.chars().all(|c| c.is_digit(base));
    if !groups.iter().all(is_digits) {
        return None;
    }
    let value = i64::from_str_radix(&groups.concat(), base).ok()?;
    Some(if negative { -value } else { value })
}

/// The resource that pods of a class use in place of a native one.
///
/// Without a class and for prod a name stays. Batch and mid know cpu and memory only, free knows
/// nothing: `None` is "no such resource".
pub fn resource_name(class: Option<PriorityClass>, native: &str) -> Option<&str> {
    match class {
        None | Some(PriorityClass::Prod) => Some(native),
        Some(class) => extended_name(class, native),
    }
}

/// The extended resource of a class that stands for native cpu or memory.
pub fn extended_name(class: PriorityClass, native: &str) -> Option<&'static str> {
    match (class, native) {
        (PriorityClass::Batch, CPU) => Some(BATCH_CPU),
        (PriorityClass::Batch, MEMORY) => Some(BATCH_MEMORY),
        (PriorityClass::Mid, CPU) => Some(MID_CPU),
        (PriorityClass::Mid, MEMORY) => Some(MID_MEMORY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::PriorityClass::{Batch, Free, Mid, Prod};
    use super::*;
    use crate::keys::pod::label::{PRIORITY, PRIORITY_CLASS};
    use crate::pod::sketch::{Sketch, pod};

    #[test]
    fn bands_and_defaults() {
        for (class, name, band, default, object) in [
            (Prod, "koord-prod", 9000..=9999, 9500, 9000),
            (Mid, "koord-mid", 7000..=7999, 7500, 7000),
            (Batch, "koord-batch", 5000..=5999, 5500, 5000),
            (Free, "koord-free", 3000..=3999, 3500, 3000),
        ] {
            assert_eq!((class.name(), class.band()), (name, band));
            assert_eq!((class.default_value(), class.object_value()), (default, object));
            assert_eq!(PriorityClass::parse(name), Some(class));
        }
    }

    #[test]
    fn class_by_priority() {
        for (value, want) in [
            (9999, Some(Prod)),
            (9000, Some(Prod)),
            (8999, None),
            (7000, Some(Mid)),
            (5999, Some(Batch)),
            (3000, Some(Free)),
            (2999, None),
        ] {
            assert_eq!(class_raw(&pod().priority(value)), want, "api#10.4 {value}");
        }
        assert_eq!(class_raw(&pod()), None, "no priority");
    }

    #[test]
    fn label_and_default_class() {
        let class = |name| pod().label(PRIORITY_CLASS, name);
        for (key, pod, raw, with_default) in [
            ("api#10.5", class("koord-mid").priority(9500), Some(Mid), Some(Mid)),
            ("api#10.6", class("gold").priority(9500).qos("BE"), None, Some(Batch)),
            ("api#10.6", class("gold").priority(5500).qos("LS"), None, Some(Prod)),
            ("api#10.7", pod().qos("BE"), None, Some(Batch)),
            ("api#10.89", class("").priority(9500), None, Some(Batch)),
            ("api#10.91", pod().priority(8999), None, Some(Batch)),
            ("SYSTEM", pod().qos("SYSTEM"), None, Some(Prod)),
            ("no class at all", pod().kube_qos("Gold"), None, None),
        ] {
            assert_eq!((class_raw(&pod), class_with_default(&pod)), (raw, with_default), "{key}");
        }
    }

    #[test]
    fn value() {
        let class = |name| pod().label(PRIORITY_CLASS, name);
        for (key, pod, want) in [
            ("api#10.7", pod().qos("BE"), 5500),
            ("api#10.8", pod().priority(0).qos("LS"), 9500),
            ("api#10.9", pod().priority(5999), 5999),
            ("api#10.89", class("").priority(9500), 9500),
            ("api#10.90 no priority", class("koord-mid"), 7500),
            ("api#10.90 priority 0", class("koord-free").priority(0), 3500),
            ("api#10.91 8999", pod().priority(8999), 8999),
            ("api#10.91 -1", pod().priority(-1), -1),
            ("api#10.91 2000000000", pod().priority(2_000_000_000), 2_000_000_000),
            ("no class", pod().kube_qos("Gold"), 0),
        ] {
            assert_eq!(value_with_default(&pod), want, "{key}");
        }
    }

    #[test]
    fn sub_priority_texts() {
        for (key, text, want) in [
            ("api#10.10", "0x10", Some(16)),
            ("api#10.10", "010", Some(8)),
            ("api#10.10", "5300", Some(5300)),
            ("api#10.10", "abc", None),
            ("empty", "", Some(0)),
            ("api#10.92", "0b11", Some(3)),
            ("api#10.92", "0o17", Some(15)),
            ("api#10.92", "1_000", Some(1000)),
            ("api#10.92", "-5", Some(-5)),
            ("api#10.92", "+7", Some(7)),
            ("api#10.92", "08", None),
            ("api#10.92", "2147483648", None),
            ("api#10.92", " 5", None),
            ("lowest", "-2147483648", Some(i32::MIN)),
            ("upper case base", "0XfF", Some(255)),
            ("after the base", "0x_1", Some(1)),
            ("octal zero", "0_7", Some(7)),
            ("zero", "0", Some(0)),
            ("base alone", "0x", None),
            ("two signs", "+-5", None),
            ("underscore first", "_1", None),
            ("underscore last", "1_", None),
            ("two underscores", "1__0", None),
            ("not ASCII", "0\u{661}", None),
        ] {
            let got = sub_priority(&pod().label(PRIORITY, text));
            assert_eq!(got.clone().ok(), want, "{key} {text:?} {got:?}");
        }
        assert_eq!(sub_priority(&pod()), Ok(0), "api#10.10 absent");
        let error = sub_priority(&pod().label(PRIORITY, "abc")).unwrap_err();
        let text = "label koordinator.sh/priority: invalid value \"abc\", expected a 32 bit integer";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_reservation_reads_it_in_base_ten() {
        assert_eq!(reservation_sub_priority(Some("010")), Ok(10));
        assert_eq!(reservation_sub_priority(None), Ok(0));
        assert!(reservation_sub_priority(Some("0x10")).is_err());
    }

    #[test]
    fn names_by_class() {
        for (class, native, want) in [
            (None, "cpu", Some("cpu")),
            (Some(Prod), "nvidia.com/gpu", Some("nvidia.com/gpu")),
            (Some(Batch), "cpu", Some("kubernetes.io/batch-cpu")),
            (Some(Batch), "memory", Some("kubernetes.io/batch-memory")),
            (Some(Mid), "cpu", Some("kubernetes.io/mid-cpu")),
            (Some(Mid), "memory", Some("kubernetes.io/mid-memory")),
            (Some(Batch), "nvidia.com/gpu", None),
            (Some(Free), "cpu", None),
        ] {
            assert_eq!(resource_name(class, native), want, "{class:?} {native}");
        }
    }
}
