//! Who is killed first when memory is short. Spec: koordlet-enforce 15.11.

use std::fmt;

use koord_api::annotation::Annotation;
use koord_api::annotation::node_side::{OomScoreAdj, OomScoreAdjSpec, oom_score_adj};

use super::number;
use crate::decide::snapshot::Pod;
use crate::decide::wish::{File, Place, Why, Wish};

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

/// Which annotation has the score of a container.
pub fn because(pod: &Pod, container: &str) -> Because {
    let own = pod.oom_score_spec.as_ref().ok().and_then(Option::as_ref);
    if oom_score_adj(None, own, container).is_some() { Because::Container } else { Because::Pod }
}

/// What a score follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The annotation names the container.
    Container,
    Pod,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self {
            Because::Container => OomScoreAdjSpec::KEY,
            Because::Pod => OomScoreAdj::KEY,
        };
        write!(f, "annotation {key}")
    }
}

/// The score for a process of a container, which is a [`Place::Process`].
pub fn wish(score: i64, process: Place, because: Because) -> Wish {
    number(process, File::OomScoreAdj, score).because(&Why::OomScore(because))
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
        assert_eq!(of(main, "x", "main"), Ok(Some(-500)));
        let pod = pod("p").annotated(OomScoreAdjSpec::KEY, main).annotated(OomScoreAdj::KEY, "300").read();
        for (container, key) in [("main", OomScoreAdjSpec::KEY), ("other", OomScoreAdj::KEY)] {
            let process = Place::Process { pid: 7, start_ticks: 99 };
            let wish = wish(-500, process, because(&pod, container));
            assert_eq!(wish.audit_message(None), format!("update oom_score_adj to -500; annotation {key}"));
        }
    }
}
