//! The text of a saved model, as upstream writes and reads it. Spec: koordlet-observe 9.5.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use koord_api::gojson;
use koord_api::time::Time;
use serde::{Deserialize, Serialize};

use super::histogram::{Histogram, Saved};
use super::models::{Model, Predictor};

/// Go's zero time, which stands for "never".
const NEVER: &str = "0001-01-01T00:00:00Z";

#[derive(Debug, Serialize, Deserialize)]
struct File {
    #[serde(rename = "UID", default)]
    uid: String,
    #[serde(rename = "CPU", default)]
    cpu: Option<Buckets>,
    #[serde(rename = "Memory", default)]
    memory: Option<Buckets>,
    #[serde(rename = "LastUpdated", default)]
    last_updated: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Buckets {
    reference_timestamp: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    bucket_weights: BTreeMap<String, u32>,
    #[serde(skip_serializing_if = "is_zero")]
    total_weight: f64,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// What could not be taken of a file, though the rest was.
#[derive(Debug, PartialEq)]
pub struct Partly(pub Vec<String>);

impl Predictor {
    /// The file of a model: one line. None when there is no such model.
    pub fn checkpoint(&self, key: &str, now_ms: i64) -> Option<String> {
        let model = self.models.get(key)?;
        let file = File {
            uid: key.to_owned(),
            cpu: Some(Buckets::of(&model.cpu.save())),
            memory: Some(Buckets::of(&model.memory.save())),
            last_updated: Some(time_text(Some(now_ms))),
        };
        Some(gojson::to_string(&file).ok()? + "\n")
    }

    /// Takes a model from the text of its file; it answers at once. An error when the text is no such file; a histogram
    /// that makes no sense starts empty and is named.
    ///
    /// The key is the name of the file; what the text says of it does not count.
    pub fn restore(&mut self, key: &str, text: &str) -> Result<Partly, serde_json::Error> {
        // Bytes after the first value do not count.
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<File>();
        let file = values.next().unwrap_or_else(|| serde_json::from_str(text))?;
        let mut model = self.fresh();
        let mut faults = Vec::new();
        for (name, histogram, buckets) in
            [("CPU", &mut model.cpu, &file.cpu), ("Memory", &mut model.memory, &file.memory)]
        {
            if let Err(fault) = load(histogram, buckets.as_ref()) {
                faults.push(format!("{name} histogram: {fault}"));
            }
        }
        let updated = file.last_updated.as_deref().and_then(millis);
        // A model without a time is dropped by the next expiry unless it is trained before.
        self.insert(
            key.into(),
            Model { updated_ms: updated.unwrap_or(i64::MIN), saved_ms: updated, ..model },
        );
        Ok(Partly(faults))
    }

    fn insert(&mut self, key: Arc<str>, model: Model) {
        self.models.insert(key, model);
    }
}

fn load(histogram: &mut Histogram, buckets: Option<&Buckets>) -> Result<(), String> {
    let Some(buckets) = buckets else { return Err("missing".to_owned()) };
    let mut weights = Vec::new();
    for (bucket, weight) in &buckets.bucket_weights {
        let bucket: usize = bucket.parse().map_err(|_| format!("bucket {bucket} does not exist"))?;
        weights.push((bucket, *weight));
    }
    let saved = Saved {
        reference_ms: buckets.reference_timestamp.as_deref().and_then(millis),
        weights,
        total: buckets.total_weight,
    };
    histogram.load(&saved).map_err(|fault| fault.to_string())
}

impl Buckets {
    fn of(saved: &Saved) -> Buckets {
        Buckets {
            reference_timestamp: Some(time_text(saved.reference_ms)),
            bucket_weights: saved
                .weights
                .iter()
                .map(|(bucket, weight)| (bucket.to_string(), *weight))
                .collect(),
            total_weight: saved.total,
        }
    }
}

/// RFC 3339 in UTC, whole seconds.
fn time_text(ms: Option<i64>) -> String {
    let time = ms.and_then(|ms| Timestamp::from_second(ms.div_euclid(1000)).ok());
    time.map_or_else(|| NEVER.to_owned(), |time| time.to_string())
}

/// Unix milliseconds; none for "never" and for what is no time.
fn millis(text: &str) -> Option<i64> {
    let time = Time::from_str(text).ok().filter(|time| !time.is_zero())?;
    Some(time.0.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::models::{History, Settings, Training};

    /// 2026-01-01 05:00 UTC.
    const NOW: i64 = 1_767_243_600_000;

    fn predictor() -> Predictor {
        Predictor::new(Settings::default())
    }

    fn answers(predictor: &Predictor, key: &str) -> (i64, i64) {
        let peaks = predictor.peaks(key).unwrap();
        (peaks.p95.cpu_milli, peaks.p95.memory)
    }

    #[test]
    fn text_of_a_model() {
        let mut predictor = predictor();
        let mut model = predictor.fresh();
        (0..3).for_each(|_| model.cpu.add(1.0, 1.0, NOW));
        model.cpu.add(4.0, 1.0, NOW);
        model.cpu.add(64.0, 0.0001, NOW);
        predictor.insert("a".into(), model);
        let text = predictor.checkpoint("a", NOW).unwrap();
        // koordlet-observe#13.7.G22
        let want = r#"{"UID":"a","CPU":{"referenceTimestamp":"2026-01-01T00:00:00Z","bucketWeights":{"22":10000,"45":3333},"totalWeight":5.3394929006655545},"Memory":{"referenceTimestamp":"0001-01-01T00:00:00Z"},"LastUpdated":"2026-01-01T05:00:00Z"}"#;
        assert_eq!(text, format!("{want}\n"));
        assert_eq!(predictor.checkpoint("b", NOW), None);
        let mut restored = self::predictor();
        assert_eq!(restored.restore("a", &text).unwrap(), Partly(vec![]));
        assert_eq!(answers(&restored, "a"), (4217, 0));
        assert_eq!(restored.checkpoint("a", NOW).unwrap(), text, "what is restored is saved alike");
    }

    #[test]
    fn what_makes_no_sense_starts_empty() {
        let with =
            |cpu: &str| format!(r#"{{{cpu}"Memory":{{"bucketWeights":{{"3":10000}},"totalWeight":2}}}}"#);
        // koordlet-observe#13.7.G13 koordlet-observe#13.7.G23
        for (name, cpu) in [
            ("no such bucket", r#""CPU":{"bucketWeights":{"158":1},"totalWeight":1},"#),
            ("negative bucket", r#""CPU":{"bucketWeights":{"-1":1},"totalWeight":1},"#),
            ("negative total", r#""CPU":{"bucketWeights":{"1":1},"totalWeight":-1},"#),
            ("no total", r#""CPU":{"bucketWeights":{"3":5}},"#),
            ("nothing", r#""CPU":{},"#),
            ("no key", ""),
        ] {
            let mut predictor = predictor();
            predictor.restore("pod", &with(cpu)).unwrap();
            assert_eq!(answers(&predictor, "pod"), (0, 22_597_468), "{name}");
        }
    }

    #[test]
    fn the_name_of_the_file_counts() {
        // koordlet-observe#13.7.G24
        let text = r#"{"UID":"other","CPU":{"bucketWeights":{"158":1},"totalWeight":1},"Memory":{"bucketWeights":{"3":10000},"totalWeight":2},"LastUpdated":"2026-01-01T05:00:00Z"} more"#;
        let mut predictor = predictor();
        let faults = predictor.restore("pod-01", text).unwrap();
        assert_eq!(faults.0, ["CPU histogram: bucket 158 does not exist, there are 158"]);
        assert_eq!(answers(&predictor, "pod-01"), (0, 22_597_468));
        assert_eq!(predictor.models["pod-01"].updated_ms, NOW);
        assert!(predictor.peaks("other").is_err());
        // koordlet-observe#13.7.G25
        assert!(predictor.restore("x", "garbage").is_err());
        assert!(predictor.restore("x", "").is_err());
    }

    #[test]
    fn a_file_without_a_time_is_dropped_unless_trained() {
        let mut predictor = predictor();
        predictor.restore("old", "{}").unwrap();
        predictor.train(&Training::default(), NOW);
        assert_eq!(predictor.expire(NOW), ["old".into()]);
    }
}
