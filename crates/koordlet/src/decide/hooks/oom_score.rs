//! Who is killed first when memory is short. Spec: koordlet-enforce 15.11.

use koord_api::annotation::node_side::oom_score_adj;

use super::number;
use crate::decide::snapshot::Pod;
use crate::decide::wish::{File, Place, Wish};

/// The score of a container: its own, else the pod's; none when nobody says.
pub fn score(pod: &Pod, container: &str) -> Result<Option<i64>, String> {
    let own = pod.oom_score_spec.as_ref().map_err(|error| error.reason())?;
    let (by_pod, fault) = match &pod.oom_score {
        Ok(score) => (*score, None),
        Err(error) => (None, Some(error.reason())),
    };
    match (oom_score_adj(by_pod, own.as_ref(), container), fault) {
        (Some(score), _) if !(-1000..=1000).contains(&score) => {
            Err(format!("oom score adj {score} of container {container} is not in [-1000, 1000]"))
        }
        (None, Some(fault)) => Err(fault),
        (score, _) => Ok(score),
    }
}

/// The score for a process of a container, which is a [`Place::Process`].
pub fn wish(score: i64, process: Place) -> Wish {
    number(process, File::OomScoreAdj, score)
}

#[cfg(test)]
mod tests {
    use koord_api::annotation::Annotation;
    use koord_api::annotation::node_side::{OomScoreAdj, OomScoreAdjSpec};

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
        assert_eq!(of(main, "x", "main"), Ok(Some(-500)));
        let process = Place::Process { pid: 7, start_ticks: 99 };
        assert_eq!(wish(-500, process.clone()), number(process, File::OomScoreAdj, -500));
    }
}
