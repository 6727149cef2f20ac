//! Which profiles a pod shows the marks of: for those who ask why it looks as it does.
//!
//! Nothing is written on pods for this. What a profile does is known, so its marks can be looked for on the pod as
//! it is; what a later profile set in the same place hides an earlier mark. Pure, like all of admission.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::profile::{PriorityClassFacts, Profile, Profiles};
use crate::annotation::node_side::ExtendedResourceSpec;
use crate::annotation::{Annotation, read_text};
use crate::keys::pod::label::{PRIORITY, QOS_CLASS};

/// What one profile set on a pod, as far as it can be seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    pub profile: String,
    pub verdict: Verdict,
    /// In the order in which the profile sets them.
    pub marks: Vec<Mark>,
}

/// Whether a profile was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Everything it sets is there, or was set anew by a later profile.
    Applied,
    /// Some of it is there: the pod or the profile was changed since.
    Partly,
    /// It selects the pod, and nothing of it is there: chance kept it away, or it is newer than the pod.
    NotApplied,
}

/// One thing that a profile sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// Such as `metadata.labels[koordinator.sh/qosClass]` or `spec.schedulerName`.
    pub field: String,
    pub value: Value,
    pub seen: Seen,
}

/// What the pod shows in the place of a mark.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Seen {
    Same,
    /// A later profile has set the same field.
    SetBy(String),
    /// Something else; null when nothing is there.
    Other(Value),
}

/// Looks for the marks of all profiles that select the pod, or left all of theirs on it.
pub fn trace(
    pod: &Value,
    profiles: &Profiles,
    namespace_labels: Option<&BTreeMap<String, String>>,
    priority_classes: &BTreeMap<String, PriorityClassFacts>,
) -> Vec<Trace> {
    let all: Vec<(&Profile, Vec<Mark>)> =
        profiles.iter().map(|profile| (profile, marks(pod, profile, priority_classes))).collect();
    let relevant: Vec<(&Profile, Vec<Mark>)> = all
        .into_iter()
        .filter(|(profile, marks)| {
            let all_there = !marks.is_empty() && marks.iter().all(|mark| mark.seen == Seen::Same);
            all_there || profile.matches(pod, namespace_labels)
        })
        .collect();
    let mut traces = Vec::with_capacity(relevant.len());
    for (at, (profile, marks)) in relevant.iter().enumerate() {
        let later = relevant.get(at + 1..).unwrap_or_default();
        let marks: Vec<Mark> = marks.iter().map(|mark| hide(mark.clone(), later)).collect();
        traces.push(Trace { profile: profile.name().to_owned(), verdict: judge(&marks), marks });
    }
    traces
}

/// Amounts that were moved to extended resources, container by container, as the record on the pod tells.
pub fn moved_amounts(pod: &Value) -> Vec<String> {
    let key = ExtendedResourceSpec::KEY;
    let text = pod.pointer("/metadata/annotations").and_then(|texts| texts.get(key)).and_then(Value::as_str);
    let record: ExtendedResourceSpec =
        text.and_then(|text| read_text(key, text).ok().flatten()).unwrap_or_default();
    let mut lines = Vec::new();
    for (container, amounts) in &record.containers {
        for (side, list) in [("requests", &amounts.requests), ("limits", &amounts.limits)] {
            for (name, amount) in list {
                lines.push(format!("container {container}: {side} {name} {amount}"));
            }
        }
    }
    lines
}

/// A mark that is not there is a later profile's work if that one set the same field.
fn hide(mark: Mark, later: &[(&Profile, Vec<Mark>)]) -> Mark {
    if mark.seen == Seen::Same {
        return mark;
    }
    let sets_too =
        |marks: &Vec<Mark>| marks.iter().any(|other| other.field == mark.field && other.seen == Seen::Same);
    match later.iter().find(|(_, marks)| sets_too(marks)) {
        Some((profile, _)) => Mark { seen: Seen::SetBy(profile.name().to_owned()), ..mark },
        None => mark,
    }
}

fn judge(marks: &[Mark]) -> Verdict {
    let missing = marks.iter().filter(|mark| matches!(mark.seen, Seen::Other(_))).count();
    match missing {
        0 => Verdict::Applied,
        _ if missing == marks.len() => Verdict::NotApplied,
        _ => Verdict::Partly,
    }
}

/// Everything that the profile would set on this pod, compared with what is there.
fn marks(
    pod: &Value,
    profile: &Profile,
    priority_classes: &BTreeMap<String, PriorityClassFacts>,
) -> Vec<Mark> {
    let spec = profile.spec();
    let mut marks = Vec::new();
    for (which, set, mapping) in [
        ("labels", &spec.labels, &spec.label_keys_mapping),
        ("annotations", &spec.annotations, &spec.annotation_keys_mapping),
    ] {
        marks.extend(set.iter().map(|(key, value)| text_mark(pod, which, key, value)));
        for (from, to) in mapping {
            let copied = text(pod, which, from).unwrap_or_default();
            marks.push(text_mark(pod, which, to, copied));
        }
    }
    for (key, suffix) in &spec.label_suffixes {
        if let Some(found) = text(pod, "labels", key) {
            let seen = if found.ends_with(suffix) { Seen::Same } else { Seen::Other(json!(found)) };
            marks.push(Mark { field: text_field("labels", key), value: json!(format!("…{suffix}")), seen });
        }
    }
    if !spec.scheduler_name.is_empty() {
        marks.push(spec_mark(pod, "schedulerName", json!(spec.scheduler_name)));
    }
    if !spec.qos_class.is_empty() {
        marks.push(text_mark(pod, "labels", QOS_CLASS, &spec.qos_class));
    }
    if !spec.priority_class_name.is_empty() {
        marks.push(spec_mark(pod, "priorityClassName", json!(spec.priority_class_name)));
        if let Some(class) = priority_classes.get(&spec.priority_class_name) {
            marks.push(spec_mark(pod, "priority", json!(class.value)));
        }
    }
    if let Some(priority) = spec.koordinator_priority {
        marks.push(text_mark(pod, "labels", PRIORITY, &priority.to_string()));
    }
    if let Some(patch) = &spec.patch {
        patch_marks(Some(pod), patch, &mut Vec::new(), &mut marks);
    }
    drop_repeated(marks)
}

/// Of several marks in one place the last one counts, as for the pod.
fn drop_repeated(marks: Vec<Mark>) -> Vec<Mark> {
    let repeated = |at: usize, field: &str| marks[at + 1..].iter().any(|later| later.field == field);
    let last = (0..marks.len()).filter(|at| !repeated(*at, &marks[*at].field));
    last.map(|at| marks[at].clone()).collect()
}

/// The leaves of a patch: objects are entered, lists of named elements too, anything else is compared whole.
fn patch_marks(found: Option<&Value>, patch: &Value, path: &mut Vec<String>, marks: &mut Vec<Mark>) {
    let named = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
    match patch {
        Value::Object(fields) => {
            for (name, below) in fields.iter().filter(|(name, _)| !name.starts_with('$')) {
                let in_texts = matches!(path.last().map(String::as_str), Some("labels" | "annotations"));
                path.push(if in_texts { format!("[{name}]") } else { name.clone() });
                patch_marks(found.and_then(|found| found.get(name)), below, path, marks);
                path.pop();
            }
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(|item| named(item).is_some()) => {
            for item in items {
                let name = named(item).unwrap_or_default();
                let partner = found.and_then(Value::as_array).into_iter().flatten();
                let partner = partner.into_iter().find(|other| named(other).as_ref() == Some(&name));
                path.push(format!("[{name}]"));
                patch_marks(partner, item, path, marks);
                path.pop();
            }
        }
        leaf => {
            let there = found.unwrap_or(&Value::Null);
            let seen = if there == leaf { Seen::Same } else { Seen::Other(there.clone()) };
            marks.push(Mark { field: path.join(".").replace(".[", "["), value: leaf.clone(), seen });
        }
    }
}

fn text<'a>(pod: &'a Value, which: &str, key: &str) -> Option<&'a str> {
    pod.get("metadata")?.get(which)?.get(key)?.as_str()
}

fn text_field(which: &str, key: &str) -> String {
    format!("metadata.{which}[{key}]")
}

fn text_mark(pod: &Value, which: &str, key: &str, value: &str) -> Mark {
    let seen = match text(pod, which, key) {
        Some(found) if found == value => Seen::Same,
        found => Seen::Other(json!(found)),
    };
    Mark { field: text_field(which, key), value: json!(value), seen }
}

fn spec_mark(pod: &Value, field: &str, value: Value) -> Mark {
    let found = pod.get("spec").and_then(|spec| spec.get(field)).cloned().unwrap_or(Value::Null);
    let seen = if found == value { Seen::Same } else { Seen::Other(found) };
    Mark { field: format!("spec.{field}"), value, seen }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.field, self.value)?;
        match &self.seen {
            Seen::Same => Ok(()),
            Seen::SetBy(profile) => write!(f, " (set anew by profile {profile})"),
            Seen::Other(Value::Null) => write!(f, " (not there)"),
            Seen::Other(found) => write!(f, " (the pod has {found})"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Applied => "applied",
            Verdict::Partly => "applied in part, or changed since",
            Verdict::NotApplied => "not applied",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::cluster_colocation_profile::ClusterColocationProfile;
    use crate::rewrite::profile::{Surroundings, apply};

    fn profile(name: &str, spec: Value) -> ClusterColocationProfile {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    fn classes() -> BTreeMap<String, PriorityClassFacts> {
        [("koord-batch".to_owned(), PriorityClassFacts { value: 5000, preemption_policy: None })].into()
    }

    fn seen(pod: &Value, profiles: &Profiles) -> Vec<String> {
        let mut lines = Vec::new();
        for trace in trace(pod, profiles, None, &classes()) {
            lines.push(format!("{}: {}", trace.profile, trace.verdict));
            lines.extend(trace.marks.iter().map(|mark| format!("  {mark}")));
        }
        lines
    }

    #[test]
    fn marks_of_profiles() {
        let profiles = Profiles::new(&[
            profile("a", json!({"labels": {"x": "1", "y": "1"}, "labelSuffixes": {"y": "-s"}})),
            profile(
                "b",
                json!({"selector": {"matchLabels": {"app": "web"}}, "labels": {"x": "2"}, "qosClass": "BE",
                "priorityClassName": "koord-batch", "koordinatorPriority": 7, "schedulerName": "s",
                "annotationKeysMapping": {"from": "to"},
                "patch": {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "c", "image": "i:2"}]}}}),
            ),
            profile("c", json!({"probability": 0, "labels": {"z": "1"}})),
            profile("d", json!({"selector": {"matchLabels": {"app": "db"}}, "labels": {"w": "1"}})),
        ]);
        let mut pod = json!({"metadata": {"labels": {"app": "web"}, "annotations": {"from": "v"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        let around = Surroundings {
            profiles: &profiles,
            namespace_labels: None,
            priority_classes: &classes(),
            skip_resources: false,
        };
        apply(&mut pod, around, || 0).unwrap();
        let want = [
            "a: applied",
            "  metadata.labels[x] = \"1\" (set anew by profile b)",
            "  metadata.labels[y] = \"…-s\"",
            "b: applied",
            "  metadata.labels[x] = \"2\"",
            "  metadata.annotations[to] = \"v\"",
            "  spec.schedulerName = \"s\"",
            "  metadata.labels[koordinator.sh/qosClass] = \"BE\"",
            "  spec.priorityClassName = \"koord-batch\"",
            "  spec.priority = 5000",
            "  metadata.labels[koordinator.sh/priority] = \"7\"",
            "  metadata.labels[app] = \"other\"",
            "  spec.containers[c].image = \"i:2\"",
            "  spec.containers[c].name = \"c\"",
            "c: not applied",
            "  metadata.labels[z] = \"1\" (not there)",
        ];
        assert_eq!(seen(&pod, &profiles), want, "b no longer selects the pod, but left all its marks");

        pod["metadata"]["labels"]["y"] = json!("changed");
        pod["metadata"]["labels"]["x"] = json!("3");
        assert_eq!(
            seen(&pod, &profiles)[..3],
            [
                "a: not applied",
                "  metadata.labels[x] = \"1\" (the pod has \"3\")",
                "  metadata.labels[y] = \"…-s\" (the pod has \"changed\")",
            ]
        );
    }

    #[test]
    fn amounts_by_container() {
        let record = r#"{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}"#;
        let pod = json!({"metadata": {"annotations": {ExtendedResourceSpec::KEY: record}}});
        assert_eq!(moved_amounts(&pod), ["container main: requests kubernetes.io/batch-cpu 500"]);
        assert!(moved_amounts(&json!({})).is_empty());
        let broken = json!({"metadata": {"annotations": {ExtendedResourceSpec::KEY: "{"}}});
        assert!(moved_amounts(&broken).is_empty());
    }
}
