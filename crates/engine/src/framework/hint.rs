//! Queueing hints: which events may lift a plugin's refusal, and the function that looks closer.
//!
//! `F` is what the caller uses as hint function; this module only keeps it. Spec: scheduler-core 1.3.

use super::event::{Action, Event, Resource};
use super::plugin_set::{PluginId, PluginSet};

/// What a hint function says about one pod and one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The event changes nothing for the pod.
    Skip,
    /// The pod may fit now.
    Queue,
}

/// An event that may lift a plugin's refusal.
#[derive(Clone, Debug)]
pub struct Registration<F> {
    pub event: Event,
    /// Looks closer; without it the event always wakes the pod.
    pub hint: Option<F>,
}

impl<F> Registration<F> {
    pub fn always(resource: Resource, action: Action) -> Registration<F> {
        Registration { event: Event::new(resource, action), hint: None }
    }

    pub fn with(resource: Resource, action: Action, hint: F) -> Registration<F> {
        Registration { event: Event::new(resource, action), hint: Some(hint) }
    }
}

/// What a plugin declares.
#[derive(Clone, Debug)]
pub enum Interest<F> {
    /// It declares nothing, so any event may help.
    Everything,
    /// These; none at all means that no event wakes what it refused.
    Only(Vec<Registration<F>>),
}

/// The registrations of all plugins of a profile.
#[derive(Clone, Debug)]
pub struct Registrations<F> {
    /// By plugin number.
    plugins: Vec<Vec<Registration<F>>>,
}

impl<F> Default for Registrations<F> {
    fn default() -> Registrations<F> {
        Registrations { plugins: Vec::new() }
    }
}

impl<F> Registrations<F> {
    /// Enters what a plugin declares, in place of what it declared before.
    pub fn register(&mut self, plugin: PluginId, interest: Interest<F>) {
        if self.plugins.len() <= plugin.index() {
            self.plugins.resize_with(plugin.index() + 1, Vec::new);
        }
        self.plugins[plugin.index()] = match interest {
            Interest::Everything => vec![Registration { event: Event::wildcard(), hint: None }],
            Interest::Only(registrations) => with_taints(registrations),
        };
    }

    /// What a plugin registered; nothing for one that is not known.
    pub fn of(&self, plugin: PluginId) -> &[Registration<F>] {
        self.plugins.get(plugin.index()).map_or(&[], Vec::as_slice)
    }

    /// The plugins that registered for the event.
    pub fn interested(&self, event: &Event) -> PluginSet {
        let is_interested = |list: &[Registration<F>]| list.iter().any(|r| r.event.matches(event));
        let ids = (0..).map_while(PluginId::new).zip(&self.plugins);
        ids.filter(|(_, list)| is_interested(list)).map(|(id, _)| id).collect()
    }

    /// The changes of a resource that some plugin wants to hear of; others need not be watched.
    pub fn actions_of(&self, resource: &Resource) -> Action {
        let events = self.plugins.iter().flatten().map(|registration| &registration.event);
        let concerned = events.filter(|event| event.resource.covers(resource));
        concerned.fold(Action::NONE, |all, event| all | event.action)
    }
}

/// A plugin that waits for new nodes also hears of every taint change: a node that is added with taints that
/// are taken off later would otherwise be missed.
fn with_taints<F>(mut registrations: Vec<Registration<F>>) -> Vec<Registration<F>> {
    let registers = |action| {
        let is_one =
            |r: &Registration<F>| r.event.resource == Resource::Node && r.event.action.intersects(action);
        registrations.iter().any(is_one)
    };
    if registers(Action::ADD) && !registers(Action::UPDATE_NODE_TAINT) {
        registrations.push(Registration::always(Resource::Node, Action::UPDATE_NODE_TAINT));
    }
    registrations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32) -> PluginId {
        PluginId::new(index).unwrap()
    }

    fn registered(interest: Interest<u8>) -> Registrations<u8> {
        let mut registrations = Registrations::default();
        registrations.register(id(2), interest);
        registrations
    }

    #[test]
    fn taints_are_added_where_nodes_are_awaited() {
        let node = |action| Registration::with(Resource::Node, action, 7);
        let taint = Event::new(Resource::Node, Action::UPDATE_NODE_TAINT);
        for (name, list, want) in [
            ("Node/Add alone", vec![node(Action::ADD)], vec![Some(7), None]),
            (
                "Node/Add among others",
                vec![node(Action::ADD | Action::UPDATE_NODE_LABEL)],
                vec![Some(7), None],
            ),
            (
                "own taint registration",
                vec![node(Action::ADD), node(Action::UPDATE_NODE_TAINT)],
                vec![Some(7), Some(7)],
            ),
            ("Node/All has taints", vec![node(Action::ALL)], vec![Some(7)]),
            ("no node event", vec![Registration::with(Resource::CsiNode, Action::ADD, 7)], vec![Some(7)]),
            ("labels only", vec![node(Action::UPDATE_NODE_LABEL)], vec![Some(7)]),
        ] {
            let registrations = registered(Interest::Only(list));
            let hints: Vec<_> = registrations.of(id(2)).iter().map(|r| r.hint).collect();
            assert_eq!(hints, want, "{name}");
            if want.len() == 2 {
                assert!(registrations.of(id(2))[1].event.matches(&taint), "{name}");
            }
        }
    }

    #[test]
    fn who_is_interested() {
        let node_add = Event::new(Resource::Node, Action::ADD);
        let only = |list| registered(Interest::Only(list));
        assert!(registered(Interest::Everything).interested(&node_add).contains(id(2)));
        assert!(
            only(vec![Registration::always(Resource::Node, Action::ADD)])
                .interested(&node_add)
                .contains(id(2))
        );
        assert!(only(vec![]).interested(&node_add).is_empty());
        assert!(only(vec![]).of(id(9)).is_empty());
    }

    #[test]
    fn only_wanted_changes_are_watched() {
        let pv = Resource::PersistentVolume;
        let registrations = registered(Interest::Only(vec![
            Registration::always(pv.clone(), Action::ADD),
            Registration::always(pv.clone(), Action::UPDATE),
            Registration::always(Resource::Pod, Action::DELETE),
        ]));
        assert_eq!(registrations.actions_of(&pv), Action::ADD | Action::UPDATE);
        assert_eq!(registrations.actions_of(&Resource::AssignedPod), Action::DELETE);
        assert_eq!(registrations.actions_of(&Resource::StorageClass), Action::NONE);
        assert_eq!(registered(Interest::Everything).actions_of(&pv), Action::ALL);
    }
}
