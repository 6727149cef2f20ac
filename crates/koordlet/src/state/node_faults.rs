//! Annotations of the Node that cannot be read: each is an event on the Node, once for every text that is wrong.
//!
//! What follows from one is up to whoever reads it; here it is only told. A new annotation that koordlet reads from its
//! Node is one row of `READERS`.

use std::collections::BTreeMap;

use koord_api::annotation::node::{RawAllocatable, SystemQosResource};
use koord_api::annotation::node_reservation::NodeReservation;
use koord_api::annotation::ratio::CpuNormalizationRatio;
use koord_api::annotation::{Annotation, Annotations, read};
use koord_api::cpuset::CpuSet;
use koord_kit::events::{EventType, Note, Recorder};

use super::NodeState;

/// Characters of a text that are told: an annotation may have 256 KiB, and its owner knows it.
const FOUND_MAX: usize = 256;

/// An annotation that koordlet reads from its Node.
struct Reader {
    key: &'static str,
    /// What is wrong with it, if something is.
    fault: fn(&Annotations) -> Option<String>,
    /// What would be taken, for whoever mends it.
    accepted: &'static str,
}

const READERS: [Reader; 4] = [
    Reader {
        key: NodeReservation::KEY,
        fault: |annotations| {
            fault(annotations, |reservation: &NodeReservation| cpu_list(&reservation.reserved_cpus))
        },
        accepted: r#"JSON such as {"resources":{"cpu":"2","memory":"4Gi"},"reservedCPUs":"0-1"}"#,
    },
    Reader {
        key: SystemQosResource::KEY,
        fault: |annotations| fault(annotations, |system: &SystemQosResource| cpu_list(&system.cpuset)),
        accepted: r#"JSON such as {"cpuset":"0-1","cpusetExclusive":true}"#,
    },
    Reader {
        key: CpuNormalizationRatio::KEY,
        fault: |annotations| fault(annotations, |_: &CpuNormalizationRatio| None),
        accepted: "a number above 0 such as 1.20",
    },
    Reader {
        key: RawAllocatable::KEY,
        fault: |annotations| fault(annotations, |_: &RawAllocatable| None),
        accepted: r#"JSON such as {"cpu":"16","memory":"64Gi"}"#,
    },
];

/// What was told last, so that it is told once: the text by its key.
#[derive(Default)]
pub(super) struct NodeFaults {
    told: BTreeMap<&'static str, String>,
}

impl NodeFaults {
    /// Tells what is wrong with this Node that was not before.
    pub(super) fn tell(&mut self, node: &NodeState, recorder: &Recorder) {
        for fault in self.news(node.annotations.as_ref()) {
            tracing::warn!(node = node.name, fault, "an annotation of the node cannot be read");
            recorder.event(Note {
                regarding: node.reference(),
                related: None,
                kind: EventType::Warning,
                reason: "MalformedAnnotation".to_owned(),
                action: "SyncNode".to_owned(),
                text: format!("koordlet cannot read {fault}"),
            });
        }
    }

    fn news(&mut self, annotations: Option<&Annotations>) -> Vec<String> {
        let mut news = Vec::new();
        for Reader { key, fault, accepted } in READERS {
            let text = annotations.and_then(|annotations| annotations.get(key));
            let Some((text, fault)) = text.zip(annotations.and_then(fault)) else {
                self.told.remove(key);
                continue;
            };
            if self.told.get(key) != Some(text) {
                self.told.insert(key, text.clone());
                let found: String = text.chars().take(FOUND_MAX).collect();
                news.push(format!("annotation {key}: {fault}; accepted is {accepted}, found {found:?}"));
            }
        }
        news
    }
}

/// What is wrong with an annotation, or with what it says.
fn fault<T: Annotation>(annotations: &Annotations, judge: fn(&T) -> Option<String>) -> Option<String> {
    match read::<T>(annotations) {
        Ok(value) => value.as_ref().and_then(judge),
        Err(error) => Some(error.reason()),
    }
}

/// What is wrong with a list of CPUs. None at all is no fault.
fn cpu_list(list: &str) -> Option<String> {
    list.parse::<CpuSet>().err().filter(|_| !list.is_empty()).map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use koord_kit::events::{Flavour, recorder};
    use koord_kit::metrics::KitMetrics;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::fake::FakeApi;
    use crate::metrics::KoordletMetrics;

    fn annotated(key: &str, text: &str) -> NodeState {
        let annotations = Some([(key.to_owned(), text.to_owned())].into());
        NodeState { name: "n1".to_owned(), annotations, ..NodeState::default() }
    }

    #[test]
    fn what_is_wrong() {
        let (reservation, system) = (NodeReservation::KEY, SystemQosResource::KEY);
        let (ratio, raw) = (CpuNormalizationRatio::KEY, RawAllocatable::KEY);
        for (key, text, parts) in [
            (reservation, r#"{"reservedCPUs":"0-1"}"#, &[][..]),
            (reservation, r#"{"resources":{"cpu":"2"}}"#, &[]),
            (reservation, "", &[]),
            (reservation, "{", &["accepted is JSON such as", r#"found "{""#]),
            (reservation, r#"{"reservedCPUs":"x"}"#, &["0-1", r#"found "{\"reservedCPUs\":\"x\"}""#]),
            (system, r#"{"cpuset":"0-1"}"#, &[]),
            (system, r#"{"cpuset":"0-"}"#, &[r#"{"cpuset":"0-1","cpusetExclusive":true}"#]),
            (system, "", &[r#"found """#]),
            (ratio, "1.2", &[]),
            (ratio, "0", &["illegal cpu normalization ratio: 0", "a number above 0", r#"found "0""#]),
            (ratio, "fast", &["parse cpu normalization ratio failed"]),
            (raw, r#"{"cpu":"16"}"#, &[]),
            (raw, r#"{"cpu":"many"}"#, &["cpu", r#"{"cpu":"16","memory":"64Gi"}"#]),
            (ratio, &"9".repeat(500), &[&format!("found \"{}\"", "9".repeat(FOUND_MAX))]),
            ("somebody/else", "{", &[]),
        ] {
            let news = NodeFaults::default().news(annotated(key, text).annotations.as_ref());
            assert_eq!(news.len(), usize::from(!parts.is_empty()), "{key} {text}: {news:?}");
            for part in [key].iter().chain(parts).filter(|_| !news.is_empty()) {
                assert!(news[0].contains(part), "{part} is not in {news:?}");
            }
        }
    }

    /// Each text once, however often the Node changes otherwise.
    #[tokio::test]
    async fn each_fault_is_one_event() {
        let server = FakeApi::default();
        let kit = KitMetrics::new(KoordletMetrics::new("n1").internal());
        let client = server.client(|seen| (201, seen.body.clone()));
        let (recorder, worker) = recorder(client, "koordlet-qosManager", Flavour::Core, &kit);
        let mut faults = NodeFaults::default();
        let key = CpuNormalizationRatio::KEY;
        for text in ["1.2", "-1", "-1", "-2", "-2", "1.2", "-2"] {
            faults.tell(&annotated(key, text), &recorder);
        }
        faults.tell(&annotated("a", "b"), &recorder);
        assert!(faults.told.is_empty(), "forgotten with the annotation");
        drop(recorder);
        worker.run(CancellationToken::new()).await;
        let seen = server.seen();
        let found = |at: usize| seen.get(at).map(|seen| seen.body.clone()).unwrap_or_default();
        let text = "koordlet cannot read annotation node.koordinator.sh/cpu-normalization-ratio: \
                    illegal cpu normalization ratio: -1; accepted is a number above 0 such as 1.20, found \"-1\"";
        assert_eq!(found(0)["message"], text);
        assert_eq!(
            (&found(0)["reason"], &found(0)["type"]),
            (&json!("MalformedAnnotation"), &json!("Warning"))
        );
        assert_eq!(found(0)["involvedObject"]["kind"], "Node");
        assert!(found(1)["message"].as_str().is_some_and(|text| text.ends_with("found \"-2\"")), "{seen:?}");
        assert_eq!(found(2)["count"], 2, "mended and broken again");
        assert_eq!(seen.len(), 3);
    }
}
