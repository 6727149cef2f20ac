//! Labels that an administrator requires of pods (gate EnablePodEnhancedValidator). Spec: manager 16.6.
//!
//! Pure: the ConfigMap's data in, rules out; the clock comes in when rules are due to be read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use koord_api::gojson;
use koord_api::keys::pod::label::SKIP_ENHANCED_VALIDATION;
use koord_api::pod::label;
use serde::Deserialize;

use super::denial::Denial;

/// Data of a ConfigMap.
pub type Data = BTreeMap<String, String>;

/// What is required now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    is_enabled: bool,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    name: String,
    required_labels: Vec<String>,
    namespace_whitelist: BTreeSet<String>,
}

impl Rules {
    pub fn parse(data: &Data) -> Result<Rules, gojson::Error> {
        let is_enabled = data.get("enable").is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
        let rules = data.get("rules").map(|text| gojson::from_str(text)).transpose()?;
        Ok(Rules { is_enabled, rules: rules.unwrap_or_default() })
    }

    /// The first rule that the pod breaks decides.
    pub fn check(&self, pod: &Pod, namespace: &str) -> Result<(), Denial> {
        if !self.is_enabled || label(pod, SKIP_ENHANCED_VALIDATION) == Some("true") {
            return Ok(());
        }
        let rules = self.rules.iter().filter(|rule| !rule.namespace_whitelist.contains(namespace));
        for rule in rules {
            let required = rule.required_labels.iter().map(String::as_str);
            let missing: Vec<&str> = required.filter(|key| label(pod, key).is_none()).collect();
            match missing.as_slice() {
                [] => {}
                [one] => return Err(Denial::bad_request(format!("required label '{one}' is missing"))),
                several => {
                    let names = several.join(" ");
                    return Err(Denial::bad_request(format!("required labels are missing: [{names}]")));
                }
            }
        }
        Ok(())
    }
}

/// The rules as last read, read again when they are old enough.
#[derive(Debug)]
pub struct Keeper {
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    read_at: Option<Timestamp>,
    rules: Arc<Rules>,
}

impl Keeper {
    pub fn new(interval: Duration) -> Keeper {
        Keeper { interval, state: Mutex::default() }
    }

    /// The rules to apply now. `read` gives the ConfigMap's data, none when there is no ConfigMap; it is called on first
    /// use and then once in an interval. Data that cannot be read is reported and leaves the rules as they were.
    pub fn rules(
        &self,
        now: Timestamp,
        read: impl FnOnce() -> Option<Data>,
        report: impl FnOnce(&gojson::Error),
    ) -> Arc<Rules> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = state.read_at.is_none_or(|read_at| {
            now.duration_since(read_at) >= self.interval.try_into().unwrap_or(jiff::SignedDuration::MAX)
        });
        if is_due {
            state.read_at = Some(now);
            match read().as_ref().map(Rules::parse).transpose() {
                Ok(rules) => state.rules = Arc::new(rules.unwrap_or_default()),
                Err(error) => report(&error),
            }
        }
        state.rules.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn pod(labels: &[(&str, &str)]) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.labels = Some(labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect());
        pod
    }

    fn data(enable: &str, rules: &str) -> Data {
        [("enable".to_owned(), enable.to_owned()), ("rules".to_owned(), rules.to_owned())].into()
    }

    const TWO_RULES: &str = r#"[{"name":"r1","requiredLabels":["a","b"],"namespaceWhitelist":["free"]},{"name":"r2","requiredLabels":["c"]}]"#;

    #[test]
    fn required_labels() {
        let all: &[(&str, &str)] = &[("a", ""), ("b", "1"), ("c", "1")];
        for (name, enable, labels, namespace, want) in [
            ("all there, one empty", "true", all, "ns", ""),
            ("one missing", "true", &all[..2], "ns", "required label 'c' is missing"),
            ("two missing, first rule decides", "true", &[], "ns", "required labels are missing: [a b]"),
            ("spaces and case", " True\n", &all[2..], "ns", "required labels are missing: [a b]"),
            ("excepted namespace", "true", &[], "free", "required label 'c' is missing"),
            ("off", "false", &[], "ns", ""),
            ("yes is not true", "yes", &[], "ns", ""),
            ("exempt", "true", &[(SKIP_ENHANCED_VALIDATION, "true")], "ns", ""),
            (
                "exempt only when true",
                "true",
                &[(SKIP_ENHANCED_VALIDATION, "1")],
                "ns",
                "required labels are missing: [a b]",
            ),
        ] {
            let rules = Rules::parse(&data(enable, TWO_RULES)).unwrap();
            let got = rules.check(&pod(labels), namespace).err().map(|denial| denial.message);
            assert_eq!(got.unwrap_or_default(), want, "{name}");
        }
        let no_rules = Rules::parse(&[("enable".to_owned(), "true".to_owned())].into()).unwrap();
        assert_eq!(no_rules.check(&pod(&[]), "ns"), Ok(()));
    }

    #[test]
    fn rules_are_read_once_in_an_interval_and_bad_ones_keep_the_last() {
        let keeper = Keeper::new(Duration::from_secs(300));
        let reads = Cell::new(0);
        let faults = Cell::new(0);
        let at = |second: i64, data: Option<Data>| {
            let read = || {
                reads.set(reads.get() + 1);
                data
            };
            let now = Timestamp::from_second(second).unwrap();
            let rules = keeper.rules(now, read, |_| faults.set(faults.get() + 1));
            rules.check(&pod(&[]), "ns").is_err()
        };
        let refuses = || Some(data("true", TWO_RULES));
        assert!(!at(0, None), "no ConfigMap");
        assert!(!at(299, refuses()), "not yet due");
        assert!(at(300, refuses()));
        assert!(at(600, Some(data("true", "[{"))), "the last good rules stay");
        assert_eq!((reads.get(), faults.get()), (3, 1));
        assert!(!at(900, None), "the ConfigMap is gone");
    }
}
