//! Gangs: pods that start together or not at all. Spec: api 5.8.

use std::cmp::Ordering;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Annotations;
use crate::crd::pod_group::PodGroup;
use crate::duration::GoDuration;
use crate::gojson;
use crate::keys::gang::{annotation as key, label};
use crate::pod;

/// What the scheduler assumes where a gang says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangDefaults {
    pub waiting_time: GoDuration,
    pub match_policy: MatchPolicy,
}

impl Default for GangDefaults {
    fn default() -> GangDefaults {
        GangDefaults {
            waiting_time: GoDuration(600 * NANOS_PER_SECOND),
            match_policy: MatchPolicy::OnceSatisfied,
        }
    }
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// What happens to placed pods when a member cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GangMode {
    /// They give up together.
    Strict,
    /// They keep their place until the waiting time is over.
    NonStrict,
}

/// Which members count towards the minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchPolicy {
    OnlyWaiting,
    WaitingAndRunning,
    /// Once it was reached it counts as reached for good.
    OnceSatisfied,
}

impl MatchPolicy {
    pub fn parse(text: &str) -> Option<MatchPolicy> {
        match text {
            "only-waiting" => Some(MatchPolicy::OnlyWaiting),
            "waiting-and-running" => Some(MatchPolicy::WaitingAndRunning),
            "once-satisfied" => Some(MatchPolicy::OnceSatisfied),
            _ => None,
        }
    }
}

/// A gang as one of its pods, or its PodGroup, describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    /// `<namespace>/<name>`.
    pub id: String,
    pub min_available: i32,
    /// At least `min_available`.
    pub total: i32,
    pub mode: GangMode,
    pub match_policy: MatchPolicy,
    pub waiting_time: GoDuration,
    /// Ids of the gangs that must be satisfied together; the own one when no list is given.
    pub groups: Vec<String>,
}

/// A gang that cannot be set up, so that its pods wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gang {gang}: {key} is {value:?}, expected the smallest number of pods to start")]
pub struct GangError {
    pub gang: String,
    pub key: &'static str,
    /// Empty when absent.
    pub value: String,
}

/// Name of the gang of a pod, if it is in one.
pub fn gang_name(pod: &Pod) -> Option<&str> {
    let given = |text: &&str| !text.is_empty();
    pod::label(pod, label::POD_GROUP)
        .filter(given)
        .or_else(|| pod::label(pod, label::OLD_POD_GROUP_NAME).filter(given))
        .or_else(|| pod::annotation(pod, key::NAME).filter(given))
}

impl Gang {
    /// The gang a pod describes; none when it is in none.
    pub fn of_pod(pod: &Pod, defaults: GangDefaults) -> Option<Result<Gang, GangError>> {
        let name = gang_name(pod)?;
        let id = gang_id(&pod.metadata, name);
        // The label of the old coscheduling wins over the annotation, even when it makes no sense.
        let (min_key, min_text) = match pod::label(pod, label::MIN_AVAILABLE) {
            Some(text) => (label::MIN_AVAILABLE, text),
            None => (key::MIN_AVAILABLE, pod::annotation(pod, key::MIN_AVAILABLE).unwrap_or("")),
        };
        let Ok(min_available) = min_text.parse() else {
            return Some(Err(GangError { gang: id, key: min_key, value: min_text.to_string() }));
        };
        let waiting = pod::annotation(pod, key::WAITING_TIME).and_then(|text| text.parse().ok());
        Some(Ok(Gang::new(id, min_available, waiting, pod.metadata.annotations.as_ref(), defaults)))
    }

    /// The gang a PodGroup describes.
    pub fn of_pod_group(group: &PodGroup, defaults: GangDefaults) -> Gang {
        let id = gang_id(&group.metadata, group.metadata.name.as_deref().unwrap_or_default());
        let spec = group.spec.clone().unwrap_or_default();
        let waiting =
            spec.schedule_timeout_seconds.map(|seconds| GoDuration(i64::from(seconds) * NANOS_PER_SECOND));
        let annotations = group.metadata.annotations.as_ref();
        Gang::new(id, spec.min_member.unwrap_or_default(), waiting, annotations, defaults)
    }

    fn new(
        id: String,
        min_available: i32,
        waiting: Option<GoDuration>,
        annotations: Option<&Annotations>,
        defaults: GangDefaults,
    ) -> Gang {
        let text = |key: &str| annotations.and_then(|a| a.get(key)).map_or("", String::as_str);
        let total = text(key::TOTAL_NUMBER).parse().unwrap_or(min_available).max(min_available);
        let mode = match text(key::MODE) {
            "NonStrict" => GangMode::NonStrict,
            _ => GangMode::Strict,
        };
        let match_policy = match text(key::MATCH_POLICY) {
            "" => text(key::ALIAS_MATCH_POLICY),
            given => given,
        };
        let groups: Vec<String> = gojson::from_str(text(key::GROUPS)).unwrap_or_default();
        Gang {
            min_available,
            total,
            mode,
            match_policy: MatchPolicy::parse(match_policy).unwrap_or(defaults.match_policy),
            waiting_time: waiting.filter(|time| time.0 > 0).unwrap_or(defaults.waiting_time),
            groups: if groups.is_empty() { vec![id.clone()] } else { groups },
            id,
        }
    }

    /// Id of the group of gangs: their ids sorted, as often as they are listed.
    pub fn group_id(&self) -> String {
        let mut groups = self.groups.clone();
        groups.sort_unstable();
        groups.join(",")
    }
}

fn gang_id(metadata: &ObjectMeta, name: &str) -> String {
    format!("{}/{name}", metadata.namespace.as_deref().unwrap_or_default())
}

/// Place of a pod among its gang, from 0; none when absent, broken or negative.
pub fn network_topology_index(pod: &Pod) -> Option<i64> {
    let text = pod::annotation(pod, key::NETWORK_TOPOLOGY_INDEX)?;
    text.parse().ok().filter(|index| *index >= 0)
}

/// Order of a gang's pods in the network: by index, those without one last, then by name.
pub fn by_network_index(a: &Pod, b: &Pod) -> Ordering {
    let rank = |pod: &Pod| {
        let index = network_topology_index(pod);
        (index.is_none(), index)
    };
    rank(a).cmp(&rank(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::pod_group::PodGroupSpec;
    use crate::pod::sketch::{Sketch, pod};

    fn gang(pod: &Pod) -> Gang {
        Gang::of_pod(pod, GangDefaults::default()).unwrap().unwrap()
    }

    fn member() -> Pod {
        pod().named("default", "p").annotation(key::NAME, "g").annotation(key::MIN_AVAILABLE, "3")
    }

    #[test]
    fn names() {
        let all = member().label(label::OLD_POD_GROUP_NAME, "old").label(label::POD_GROUP, "new");
        assert_eq!(gang_name(&all), Some("new"));
        assert_eq!(gang_name(&member().label(label::OLD_POD_GROUP_NAME, "old")), Some("old"));
        assert_eq!(gang_name(&member()), Some("g"));
        assert_eq!(gang_name(&pod()), None);
        assert_eq!(gang(&member()).id, "default/g");
        assert!(Gang::of_pod(&pod(), GangDefaults::default()).is_none());
    }

    #[test]
    fn numbers() {
        for text in ["2", "x", "0", ""] {
            assert_eq!(gang(&member().annotation(key::TOTAL_NUMBER, text)).total, 3, "api#10.41 {text:?}");
        }
        assert_eq!(gang(&member()).total, 3, "api#10.41 absent");
        assert_eq!(gang(&member().annotation(key::TOTAL_NUMBER, "5")).total, 5);

        let min = |pod: Pod| Gang::of_pod(&pod, GangDefaults::default()).unwrap().map(|g| g.min_available);
        let bare = || pod().named("default", "p").annotation(key::NAME, "g");
        assert!(min(bare()).is_err(), "api#10.130 absent");
        assert!(min(bare().annotation(key::MIN_AVAILABLE, "abc")).is_err(), "api#10.130");
        assert_eq!(min(member().label(label::MIN_AVAILABLE, "7")), Ok(7), "api#10.130");
        let error = min(member().label(label::MIN_AVAILABLE, "x")).unwrap_err();
        let want = "gang default/g: pod-group.scheduling.sigs.k8s.io/min-available is \"x\", expected the smallest number of pods to start";
        assert_eq!(error.to_string(), want, "api#10.130");
    }

    #[test]
    fn other_settings() {
        let odd = member()
            .annotation(key::MODE, "foo")
            .annotation(key::MATCH_POLICY, "bar")
            .annotation(key::WAITING_TIME, "-5s")
            .annotation(key::GROUPS, "{");
        let odd = gang(&odd);
        assert_eq!(odd.mode, GangMode::Strict, "api#10.131");
        assert_eq!(odd.match_policy, MatchPolicy::OnceSatisfied, "api#10.131");
        assert_eq!(odd.waiting_time.to_string(), "10m0s", "api#10.131");
        assert_eq!(odd.group_id(), "default/g", "api#10.131");

        let good = member()
            .annotation(key::MODE, "NonStrict")
            .annotation(key::ALIAS_MATCH_POLICY, "only-waiting")
            .annotation(key::WAITING_TIME, "90s");
        let good = gang(&good);
        assert_eq!((good.mode, good.match_policy), (GangMode::NonStrict, MatchPolicy::OnlyWaiting));
        assert_eq!(good.waiting_time.to_string(), "1m30s");
        for text in ["", "0s", "x"] {
            let waiting = gang(&member().annotation(key::WAITING_TIME, text)).waiting_time;
            assert_eq!(waiting.to_string(), "10m0s", "{text:?}");
        }
    }

    #[test]
    fn groups() {
        let id = |text: &str| gang(&member().annotation(key::GROUPS, text)).group_id();
        assert_eq!(id(r#"["b/x","a/y"]"#), "a/y,b/x", "api#10.42");
        let doubled = r#"["default/b","default/a","default/a"]"#;
        assert_eq!(id(doubled), "default/a,default/a,default/b", "api#10.132");
        assert_eq!(id("[]"), "default/g");
        assert_eq!(id(""), "default/g");
    }

    #[test]
    fn from_a_pod_group() {
        let mut group = PodGroup { metadata: member().metadata, ..PodGroup::default() };
        group.spec = Some(PodGroupSpec {
            min_member: Some(4),
            schedule_timeout_seconds: Some(30),
            ..PodGroupSpec::default()
        });
        let gang = Gang::of_pod_group(&group, GangDefaults::default());
        assert_eq!((gang.id.as_str(), gang.min_available, gang.total), ("default/p", 4, 4));
        assert_eq!(gang.waiting_time.to_string(), "30s");
    }

    #[test]
    fn order_in_the_network() {
        let member = |name: &str, index: &str| {
            let pod = pod().named("default", name);
            if index.is_empty() { pod } else { pod.annotation(key::NETWORK_TOPOLOGY_INDEX, index) }
        };
        let mut pods = [member("d", ""), member("b", ""), member("a", "2"), member("c", "1")];
        pods.sort_by(by_network_index);
        let names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        assert_eq!(names, ["c", "a", "b", "d"], "api#10.139");
        assert_eq!(network_topology_index(&member("x", "-1")), None);
        assert_eq!(network_topology_index(&member("x", "y")), None);
    }
}
