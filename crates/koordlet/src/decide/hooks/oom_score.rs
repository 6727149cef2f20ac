//! Who is killed first when memory is short. Spec: koordlet-enforce 15.11.

use std::fmt;

use koord_api::annotation::Annotation;
use koord_api::annotation::node_side::{OomScoreAdj, OomScoreAdjSpec, oom_score_adj};

use super::number;
use crate::decide::snapshot::Pod;
use crate::decide::wish::{File, Place, ProcessPlace, Why, Wish};

/// The score of a container: its own, else the pod's; none when nobody says.
pub fn score(pod: &Pod, container: &str) -> Result<Option<i64>, String> {
    let own = pod.oom_score_spec.as_ref().map_err(|error| error.reason())?;
    let (by_pod, fault) = match &pod.oom_score {
        Ok(score) => (*score, None),
        Err(error) => (None, Some(error.reason())),
    };
    match (oom_score_adj(by_pod, own.as_ref(), container), fault) {
        (Some(score), _) if !is_legal(score) => Err(refusal(container, score)),
        (None, Some(fault)) => Err(fault),
        (score, _) => Ok(score),
    }
}

/// What is wrong with single scores of an annotation that can be read otherwise.
pub fn faults(pod: &Pod) -> Vec<String> {
    let Ok(Some(OomScoreAdjSpec(scores))) = &pod.oom_score_spec else { return Vec::new() };
    let wrong = scores.iter().filter(|(_, score)| !is_legal(**score));
    wrong
        .map(|(container, score)| {
            format!("annotation {}: {}", OomScoreAdjSpec::KEY, refusal(container, *score))
        })
        .collect()
}

fn is_legal(score: i64) -> bool {
    (-1000..=1000).contains(&score)
}

fn refusal(container: &str, score: i64) -> String {
    format!("oom score adj {score} of container {container} is not in [-1000, 1000]")
}

/// What the score of a process follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Because {
    pub pid: u32,
    /// Whether the annotation names the container; otherwise it is about the whole pod.
    pub is_containers: bool,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.is_containers { OomScoreAdjSpec::KEY } else { OomScoreAdj::KEY };
        write!(f, "process {}, annotation {key}", self.pid)
    }
}

/// The score for a process of a container.
pub fn wish(score: i64, pod: &Pod, container: &str, process: ProcessPlace) -> Wish {
    let own = pod.oom_score_spec.as_ref().ok().and_then(Option::as_ref);
    let is_containers = oom_score_adj(None, own, container).is_some();
    let why = Why::OomScore(Because { pid: process.pid, is_containers });
    number(Place::Process(Box::new(process)), File::OomScoreAdj, score).because(&why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::sketch::pod;

    #[test]
    fn scores() {
        let of = |spec: &str, all: &str, container: &str| {
            let pod = pod("p").annotated(OomScoreAdjSpec::KEY, spec).annotated(OomScoreAdj::KEY, all);
            score(&pod.read(), container)
        };
        let main = r#"{"main":-500}"#;
        assert_eq!(of(main, "300", "main"), Ok(Some(-500)));
        assert_eq!(of(main, "300", "other"), Ok(Some(300)));
        assert_eq!(of("", "", "main"), Ok(None));
        assert!(of("{", "300", "main").is_err(), "the default is not asked");
        assert!(of(r#"{"main":1001}"#, "", "main").is_err());
        assert!(of("", "x", "main").is_err());
        let spec = r#"{"high":1001,"main":-500,"low":-1001}"#;
        let pod_with = |text: &str| pod("p").annotated(OomScoreAdjSpec::KEY, text).read();
        let want = ["high", "low"].map(|container| {
            let score = if container == "high" { 1001 } else { -1001 };
            format!("annotation {}: {}", OomScoreAdjSpec::KEY, refusal(container, score))
        });
        assert_eq!(faults(&pod_with(spec)), want);
        assert_eq!((faults(&pod_with(main)), faults(&pod_with("{"))), (Vec::new(), Vec::new()));
        assert_eq!(of(main, "x", "main"), Ok(Some(-500)));
        let pod = pod("p").annotated(OomScoreAdjSpec::KEY, main).annotated(OomScoreAdj::KEY, "300").read();
        for (container, key) in [("main", OomScoreAdjSpec::KEY), ("other", OomScoreAdj::KEY)] {
            let process =
                ProcessPlace { pid: 7, start_ticks: 99, pod: pod.id.clone(), container: "c".into() };
            let told = wish(-500, &pod, container, process).audit_message(None);
            assert_eq!(told, format!("update oom_score_adj to -500; process 7, annotation {key}"));
        }
    }
}
