//! Why a pod found no node, as Koordinator logs it for programs. Spec: scheduler-core 9.14.

use koord_engine::engine::command::Subject;
use koord_engine::engine::dump::{Detail, Diagnosed};
use koord_engine::time::Time;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// One attempt that failed.
#[derive(Debug)]
pub struct Diagnosis {
    pub at: Time,
    pub pod: Subject,
    pub diagnosed: Diagnosed,
}

impl Diagnosis {
    /// The line of the log.
    pub fn line(&self) -> String {
        let (key, uid) = (&self.pod.key, &self.pod.uid);
        format!("dump diagnosis for {key}, targetPod: {key}/{uid}: {}", self.to_json())
    }

    fn to_json(&self) -> Value {
        let Diagnosed { nominated, of_pod, details, help } = &self.diagnosed;
        let mut json = Map::new();
        json.insert("timestamp".to_owned(), self.at.to_string().into());
        json.insert("questionedKey".to_owned(), self.pod.key.to_string().into());
        if !nominated.is_empty() {
            json.insert("nominatedNode".to_owned(), (**nominated).into());
        }
        if let Some(message) = of_pod {
            json.insert("preFilterMessage".to_owned(), message.as_str().into());
        }
        json.insert("isRootCausePod".to_owned(), true.into());
        let mut schedule = json!({"alreadyWaitForBound": 0});
        if !details.is_empty() {
            schedule["nodeFailedDetails"] = details.iter().map(detail).collect();
        }
        json.insert("scheduleDiagnosis".to_owned(), schedule);
        let preemption = match help.as_str() {
            "" => Value::Null,
            help => json!({"dryRunFilterDiagnosis": null, "otherDiagnosis": null, "failedMessage": help}),
        };
        json.insert("preemptionDiagnosis".to_owned(), preemption);
        json.into()
    }
}

fn detail(detail: &Detail) -> Value {
    let Detail { reason, plugin, preemption_may_help, nodes } = detail;
    let mut json = Map::new();
    for (key, text) in [("reason", reason.as_str()), ("failedPlugin", plugin)] {
        if !text.is_empty() {
            json.insert(key.to_owned(), text.into());
        }
    }
    json.insert("preemptMightHelp".to_owned(), (*preemption_may_help).into());
    json.insert("failedNodes".to_owned(), json!(nodes));
    json.into()
}

/// Writes diagnoses to the log as they come, until nobody sends any.
pub async fn log_all(mut diagnoses: mpsc::Receiver<Diagnosis>) {
    while let Some(diagnosis) = diagnoses.recv().await {
        tracing::info!("{}", diagnosis.line());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use koord_engine::pod::PodKey;

    #[test]
    fn a_diagnosis_reads_as_koordinators() {
        let pod = Subject {
            key: PodKey { namespace: "ns".into(), name: "p".into() },
            uid: "uid-p".into(),
            reserves: None,
        };
        let detail = Detail {
            reason: "Insufficient cpu".to_owned(),
            plugin: "NodeResourcesFit",
            preemption_may_help: true,
            nodes: vec!["a".into(), "b".into()],
        };
        let diagnosed = Diagnosed {
            nominated: "c".into(),
            of_pod: None,
            details: vec![detail],
            help: "preemption: no".to_owned(),
        };
        let diagnosis = Diagnosis { at: Time::from_seconds(1_700_000_000), pod, diagnosed };
        assert_eq!(
            diagnosis.line(),
            "dump diagnosis for ns/p, targetPod: ns/p/uid-p: {\"isRootCausePod\":true,\"nominatedNode\":\"c\",\
             \"preemptionDiagnosis\":{\"dryRunFilterDiagnosis\":null,\"failedMessage\":\"preemption: no\",\
             \"otherDiagnosis\":null},\"questionedKey\":\"ns/p\",\"scheduleDiagnosis\":{\"alreadyWaitForBound\":0,\
             \"nodeFailedDetails\":[{\"failedNodes\":[\"a\",\"b\"],\"failedPlugin\":\"NodeResourcesFit\",\
             \"preemptMightHelp\":true,\"reason\":\"Insufficient cpu\"}]},\"timestamp\":\"2023-11-14T22:13:20Z\"}"
        );
    }
}
