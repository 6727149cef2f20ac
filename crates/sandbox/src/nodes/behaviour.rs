//! What a pod's annotations ask of the hollow kubelet.
//!
//! Pure. A text that cannot be read counts as absent and is told to the caller, who tells the user.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use koord_api::duration::GoDuration;
use serde_json::{Map, Value};

use super::annotation::{
    ALL, CPU_USAGE, DOMAIN, EXIT_CODE, FAIL_AFTER, FAILURE_RATE, INIT_TIME, MEMORY_USAGE, READY_DELAY,
    RUN_TIME, START_DELAY, STOP_DELAY,
};
use super::profile::{self, Measure, Wanted};

/// What a pod asks for. None: whatever the fleet does by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Behaviour {
    pub run_time: Option<Duration>,
    pub start_delay: Option<Duration>,
    pub ready_delay: Option<Duration>,
    pub init_time: Option<Duration>,
    pub stop_delay: Option<Duration>,
    pub exit_code: Option<u8>,
    pub fail_after: Option<Duration>,
    /// From 0 to 1.
    pub failure_rate: Option<f64>,
}

/// The profiles a pod asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    pub cpu: Option<Wanted>,
    pub memory: Option<Wanted>,
}

/// An annotation that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub key: String,
    pub value: String,
    pub accepted: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "annotation {}: {:?} is not accepted, expected {}", self.key, self.value, self.accepted)
    }
}

/// Annotations of a pod, as JSON has them.
pub type Annotations = Map<String, Value>;

const A_DURATION: &str = "a duration such as 30s or 1h30m";

/// What the annotations ask for; those that cannot be read are left out.
pub fn read(annotations: Option<&Annotations>) -> Behaviour {
    let get = |key: &str| annotations.and_then(|list| list.get(key)).and_then(Value::as_str);
    Behaviour {
        run_time: get(RUN_TIME).and_then(duration),
        start_delay: get(START_DELAY).and_then(duration),
        ready_delay: get(READY_DELAY).and_then(duration),
        init_time: get(INIT_TIME).and_then(duration),
        stop_delay: get(STOP_DELAY).and_then(duration),
        exit_code: get(EXIT_CODE).and_then(|text| text.trim().parse().ok()),
        fail_after: get(FAIL_AFTER).and_then(duration),
        failure_rate: get(FAILURE_RATE).and_then(rate),
    }
}

/// The profiles the annotations ask for, and everything of ours among them that cannot be used.
pub fn usage(annotations: &BTreeMap<String, String>) -> (Usage, Vec<Problem>) {
    let mut usage = Usage::default();
    let mut problems = Vec::new();
    for (key, value) in annotations.iter().filter(|(key, _)| key.starts_with(DOMAIN)) {
        let fault = match key.as_str() {
            CPU_USAGE => take(&mut usage.cpu, Measure::Cpu, value),
            MEMORY_USAGE => take(&mut usage.memory, Measure::Memory, value),
            EXIT_CODE => value.trim().parse::<u8>().err().map(|_| "a whole number from 0 to 255".to_owned()),
            FAILURE_RATE => rate(value).is_none().then(|| "a share such as 20% or 0.2".to_owned()),
            key if ALL.contains(&key) => duration(value).is_none().then(|| A_DURATION.to_owned()),
            _ => Some(format!("one of the keys {}", ALL.join(", "))),
        };
        if let Some(accepted) = fault {
            problems.push(Problem { key: key.clone(), value: value.clone(), accepted });
        }
    }
    (usage, problems)
}

fn take(into: &mut Option<Wanted>, measure: Measure, text: &str) -> Option<String> {
    match profile::parse(measure, text) {
        Ok(wanted) => {
            *into = Some(wanted);
            None
        }
        Err(accepted) => Some(accepted),
    }
}

fn duration(text: &str) -> Option<Duration> {
    text.trim().parse::<GoDuration>().ok()?.to_std()
}

fn rate(text: &str) -> Option<f64> {
    let text = text.trim();
    let rate: f64 = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&rate).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotations_are_read_and_faults_told() {
        for (key, value, good) in [
            (RUN_TIME, "90s", true),
            (RUN_TIME, "90", false),
            (RUN_TIME, "-1s", false),
            (START_DELAY, "1m", true),
            (READY_DELAY, "0", true),
            (STOP_DELAY, "never", false),
            (EXIT_CODE, "255", true),
            (EXIT_CODE, "256", false),
            (FAIL_AFTER, "1h30m", true),
            (FAILURE_RATE, "20%", true),
            (FAILURE_RATE, "0.2", true),
            (FAILURE_RATE, "2", false),
            (FAILURE_RATE, "NaN", false),
            (CPU_USAGE, "60%", true),
            (CPU_USAGE, "lots", false),
            (MEMORY_USAGE, "trace:a/b", true),
            ("sandbox.koord.sh/run-tiem", "1s", false),
        ] {
            let annotations = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            let (usage, problems) = usage(&annotations);
            assert_eq!(problems.is_empty(), good, "{key}: {value}: {problems:?}");
            let object = json!({ key: value });
            let is_set = read(object.as_object()) != Behaviour::default() || usage != Usage::default();
            assert_eq!(is_set, good, "{key}: {value}");
        }
    }

    #[test]
    fn a_problem_says_what_is_accepted() {
        let annotations = BTreeMap::from([(RUN_TIME.to_owned(), "abc".to_owned())]);
        assert_eq!(
            usage(&annotations).1[0].to_string(),
            "annotation sandbox.koord.sh/run-time: \"abc\" is not accepted, expected a duration such as 30s or 1h30m"
        );
        assert_eq!(usage(&BTreeMap::from([("other".to_owned(), "x".to_owned())])).1, []);
    }
}
