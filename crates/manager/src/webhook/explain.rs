//! Which profiles touched a pod, and what each changed: for `koord explain pod`.
//!
//! Pure: the pod as it is now and the facts of the moment. Nothing is written on pods for this; see
//! [`koord_api::rewrite::trace`].

use koord_api::rewrite::trace::{Trace, moved_amounts, trace};
use serde::Serialize;
use serde_json::Value;

use super::facts::Facts;
use super::review::Request;

/// What admission did to a pod, as far as it can be seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodStory {
    /// In the order in which profiles are applied.
    pub profiles: Vec<Trace>,
    /// Amounts that are extended resources now.
    pub amounts: Vec<String>,
}

/// Looks at a pod.
pub fn pod_story(pod: &Value, facts: &Facts) -> PodStory {
    let namespace = Request::default().namespace_of(pod);
    let labels = facts.namespace_labels(&namespace);
    PodStory {
        profiles: trace(pod, &facts.profiles, labels, &facts.priority_classes),
        amounts: moved_amounts(pod),
    }
}

impl PodStory {
    /// For people.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        match self.profiles.is_empty() {
            true => lines.push("Profiles: none selects this pod".to_owned()),
            false => lines.push("Profiles, in the order they are applied:".to_owned()),
        }
        for trace in &self.profiles {
            lines.push(format!("  {}: {}", trace.profile, trace.verdict));
            lines.extend(trace.marks.iter().map(|mark| format!("    {mark}")));
        }
        if !self.amounts.is_empty() {
            lines.push("Extended resources, recorded for the node:".to_owned());
            lines.extend(self.amounts.iter().map(|amount| format!("  {amount}")));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
    use koord_api::keys::pod::annotation::EXTENDED_RESOURCE_SPEC;
    use koord_api::rewrite::profile::Profiles;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_story_in_words() {
        let record = r#"{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}"#;
        let pod = json!({"metadata": {"name": "p", "namespace": "shop", "labels": {"x": "1"},
            "annotations": {EXTENDED_RESOURCE_SPEC: record}}, "spec": {"containers": [{"name": "main"}]}});
        let profiles: Vec<ClusterColocationProfile> = serde_json::from_value(json!([
            {"metadata": {"name": "a"}, "spec": {"labels": {"x": "1"}}},
            {"metadata": {"name": "b"}, "spec": {"schedulerName": "s"}},
        ]))
        .unwrap();
        let facts = Facts { profiles: Profiles::new(&profiles).into(), ..Facts::default() };
        let story = pod_story(&pod, &facts);
        let want = "Profiles, in the order they are applied:
  a: applied
    metadata.labels[x] = \"1\"
  b: not applied
    spec.schedulerName = \"s\" (not there)
Extended resources, recorded for the node:
  container main: requests kubernetes.io/batch-cpu 500";
        assert_eq!(story.text(), want);
        let data = serde_json::to_value(&story).unwrap();
        assert_eq!(data["profiles"][0]["verdict"], json!("applied"));
        assert_eq!(data["profiles"][1]["marks"][0]["seen"], json!({"other": null}));
        assert_eq!(pod_story(&json!({}), &Facts::default()).text(), "Profiles: none selects this pod");
    }
}
