//! What makes the scheduler try a pod again, in plain words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::framework::PluginName;
use crate::framework::event::{Action, Event, Resource};

/// An event, and the plugins whose refusal it may lift.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wake {
    /// `a pod on a node is deleted`.
    pub when: String,
    /// Ascending.
    pub plugins: Vec<String>,
}

/// What is registered, told once for each event.
pub(crate) fn wakes<'a>(registered: impl IntoIterator<Item = (PluginName, &'a Event)>) -> Vec<Wake> {
    let mut by_event: BTreeMap<&'static str, Vec<PluginName>> = BTreeMap::new();
    let mut own: Vec<(String, PluginName)> = Vec::new();
    for (plugin, event) in registered {
        if event.is_wildcard() {
            by_event.entry("anything in the cluster changes").or_default().push(plugin);
            continue;
        }
        match phrases(&event.resource) {
            Some(phrases) => {
                let named = phrases.iter().filter(|(action, _)| event.action.intersects(*action));
                named.for_each(|(_, phrase)| by_event.entry(phrase).or_default().push(plugin));
            }
            None => own.extend(object_phrases(event).into_iter().map(|phrase| (phrase, plugin))),
        }
    }
    let mut wakes: Vec<Wake> =
        by_event.into_iter().map(|(when, plugins)| wake(when.to_owned(), plugins)).collect();
    own.sort();
    for (when, plugin) in own {
        match wakes.iter_mut().find(|wake| wake.when == when) {
            Some(known) if known.plugins.iter().any(|name| name == plugin) => {}
            Some(known) => known.plugins.push(plugin.to_owned()),
            None => wakes.push(wake(when, vec![plugin])),
        }
    }
    wakes
}

fn wake(when: String, mut plugins: Vec<PluginName>) -> Wake {
    plugins.sort_unstable();
    plugins.dedup();
    Wake { when, plugins: plugins.into_iter().map(str::to_owned).collect() }
}

const NODE: &[(Action, &str)] = &[
    (Action::ADD, "a node is added"),
    (Action::DELETE, "a node is removed"),
    (Action::UPDATE_NODE_ALLOCATABLE, "what a node offers changes"),
    (Action::UPDATE_NODE_LABEL, "labels of a node change"),
    (Action::UPDATE_NODE_TAINT, "taints of a node change, or it is uncordoned"),
    (Action::UPDATE_NODE_CONDITION, "conditions of a node change"),
    (Action::UPDATE_NODE_ANNOTATION, "annotations of a node change"),
    (Action::UPDATE_NODE_DECLARED_FEATURE, "features that a node declares change"),
];

const PLACED_POD: &[(Action, &str)] = &[
    (Action::ADD, "a pod comes to a node"),
    (Action::DELETE, "a pod on a node is deleted"),
    (Action::UPDATE_POD_LABEL, "labels of a pod on a node change"),
    (Action::UPDATE_POD_SCALE_DOWN, "a pod on a node asks for less"),
];

const WAITING_POD: &[(Action, &str)] = &[
    (Action::ADD, "another pod comes to wait"),
    (Action::DELETE, "another pod stops waiting"),
    (Action::UPDATE_POD_LABEL, "its labels change"),
    (Action::UPDATE_POD_SCALE_DOWN, "it asks for less"),
    (Action::UPDATE_POD_TOLERATION, "its tolerations change"),
    (Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED, "its scheduling gates are gone"),
    (Action::UPDATE_POD_GENERATED_RESOURCE_CLAIM, "its resource claims are made"),
];

const ANY_POD: &[(Action, &str)] = &[
    (Action::ADD, "a pod comes to a node"),
    (Action::DELETE, "a pod on a node is deleted"),
    (Action::UPDATE_POD_LABEL, "labels of a pod change"),
    (Action::UPDATE_POD_SCALE_DOWN, "a pod asks for less"),
    (Action::UPDATE_POD_TOLERATION, "its tolerations change"),
    (Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED, "its scheduling gates are gone"),
    (Action::UPDATE_POD_GENERATED_RESOURCE_CLAIM, "its resource claims are made"),
];

const NODE_METRIC: &[(Action, &str)] = &[
    (Action::ADD.union(Action::DELETE), "a node begins or ceases to tell its load"),
    (Action::UPDATE, "a node tells its load anew"),
];

fn phrases(resource: &Resource) -> Option<&'static [(Action, &'static str)]> {
    match resource {
        resource if *resource == Resource::node_metrics() => Some(NODE_METRIC),
        Resource::Node => Some(NODE),
        Resource::AssignedPod => Some(PLACED_POD),
        Resource::UnscheduledPod => Some(WAITING_POD),
        Resource::Pod => Some(ANY_POD),
        _ => None,
    }
}

/// Objects that come, change and go.
fn object_phrases(event: &Event) -> Vec<String> {
    let name = event.resource.to_string();
    let name = name.rsplit('/').next().unwrap_or(&name);
    [(Action::ADD, "is added"), (Action::UPDATE, "changes"), (Action::DELETE, "is deleted")]
        .iter()
        .filter(|(action, _)| event.action.intersects(*action))
        .map(|(_, verb)| format!("a {name} {verb}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_in_words() {
        let events = [
            ("NodeResourcesFit", Event::new(Resource::AssignedPod, Action::DELETE)),
            ("NodeResourcesFit", Event::new(Resource::Node, Action::ADD | Action::UPDATE_NODE_ALLOCATABLE)),
            ("NodeAffinity", Event::new(Resource::Node, Action::ADD | Action::UPDATE_NODE_LABEL)),
            ("VolumeBinding", Event::new(Resource::PersistentVolumeClaim, Action::ADD | Action::UPDATE)),
            ("VolumeBinding", Event::new(Resource::CsiNode, Action::ADD)),
            ("Mine", Event::wildcard()),
            ("Quota", Event::new(Resource::Custom("quotas.v1.example.com".into()), Action::ALL)),
        ];
        let wakes = wakes(events.iter().map(|(plugin, event)| (*plugin, event)));
        let lines: Vec<String> =
            wakes.iter().map(|wake| format!("{} ({})", wake.when, wake.plugins.join(", "))).collect();
        assert_eq!(
            lines,
            [
                "a node is added (NodeAffinity, NodeResourcesFit)",
                "a pod on a node is deleted (NodeResourcesFit)",
                "anything in the cluster changes (Mine)",
                "labels of a node change (NodeAffinity)",
                "what a node offers changes (NodeResourcesFit)",
                "a CSINode is added (VolumeBinding)",
                "a PersistentVolumeClaim changes (VolumeBinding)",
                "a PersistentVolumeClaim is added (VolumeBinding)",
                "a quotas.v1.example.com changes (Quota)",
                "a quotas.v1.example.com is added (Quota)",
                "a quotas.v1.example.com is deleted (Quota)",
            ]
        );
    }
}
