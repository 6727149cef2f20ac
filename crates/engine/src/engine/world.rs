//! What the queue asks about pods and plugins, answered from the cluster and the profiles.

use std::sync::Arc;

use super::measure::HintTimes;
use crate::cluster::Cluster;
use crate::framework::event::Event;
use crate::framework::hint::{Hint, Interest, Registrations};
use crate::framework::plugin_set::{PluginId, PluginSet, PluginTable};
use crate::framework::{Change, HintFn, HintInput, Hooks, PluginName, Status};
use crate::hash::UidMap;
use crate::pod::Pod;
use crate::queue::{self, Host, NodeName, PodKey, PodUid, ProfileId, QueuedPod};
use crate::schedule::Framework;
use crate::time::Time;

/// What the queue keeps of a pod.
pub(super) type QueueRecord = QueuedPod<Arc<Pod>>;

/// The cluster, the plugins, and the pods that wait for a node.
pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) frameworks: Vec<Framework>,
    pub(super) plugins: PluginTable,
    pub(super) waiting: UidMap<Waiting>,
    /// Pods without a node that ask for a scheduler which is none of ours; only for explaining.
    pub(super) others: UidMap<Arc<Pod>>,
    /// None when nobody measures.
    pub(super) hint_times: Option<HintTimes>,
}

/// A pod of ours without a node, as the API last told.
pub(super) struct Waiting {
    pub(super) pod: Arc<Pod>,
    pub(super) profile: ProfileId,
    /// What we last wrote as its condition: reason, message, generation.
    pub(super) written: Option<(&'static str, String, i64)>,
    /// When we last told users why it waits.
    pub(super) told_at: Option<Time>,
    /// What we last wrote as its nominated node.
    pub(super) nominated: Option<Box<str>>,
}

impl World {
    /// The profile that a pod asks for, if it is one of ours.
    pub(super) fn profile_of(&self, pod: &Pod) -> Option<ProfileId> {
        let at = self.frameworks.iter().position(|framework| *framework.scheduler == *pod.class.scheduler)?;
        u16::try_from(at).ok().map(ProfileId)
    }

    pub(super) fn framework(&self, profile: ProfileId) -> &Framework {
        &self.frameworks[usize::from(profile.0)]
    }

    pub(super) fn plugin_set(&self, names: impl IntoIterator<Item = PluginName>) -> PluginSet {
        names.into_iter().filter_map(|name| self.plugins.find(name)).collect()
    }

    /// What each profile brings to the queue. Enters all plugins into the table.
    pub(super) fn queue_profiles(&mut self) -> Vec<queue::Profile<HintFn>> {
        let World { frameworks, plugins, .. } = self;
        frameworks.iter().map(|framework| queue_profile(framework, plugins)).collect()
    }
}

fn queue_profile(framework: &Framework, plugins: &mut PluginTable) -> queue::Profile<HintFn> {
    let mut registrations = Registrations::default();
    let scores = framework.scores.iter().map(|(hooks, _)| hooks);
    let lists = [&framework.pre_enqueues, &framework.pre_filters, &framework.filters, &framework.reserves];
    let all = lists.into_iter().chain([&framework.permits, &framework.pre_binds]).flatten().chain(scores);
    for hooks in all {
        let Some(id) = plugins.enter(hooks.name) else { continue };
        registrations.register(id, interest(hooks));
    }
    if let Some(id) = plugins.enter(crate::extender::NAME) {
        registrations.register(id, Interest::Everything);
    }
    let pre_enqueue = framework
        .pre_enqueues
        .iter()
        .filter(|hooks| hooks.pre_enqueue.is_some())
        .filter_map(|hooks| plugins.find(hooks.name))
        .collect();
    queue::Profile { pre_enqueue, registrations }
}

fn interest(hooks: &Hooks) -> Interest<HintFn> {
    match &hooks.interest {
        Some(registrations) => Interest::Only(registrations.clone()),
        None => Interest::Everything,
    }
}

/// A pod as the queue knows it.
pub(super) fn queued(pod: &Arc<Pod>, profile: ProfileId) -> queue::Pod<Arc<Pod>> {
    queue::Pod {
        key: queue_key(pod),
        uid: queue_uid(&pod.uid),
        profile,
        priority: pod.class.priority,
        nominated: (!pod.nominated.is_empty()).then(|| NodeName::from(&*pod.nominated)),
        content: pod.clone(),
    }
}

pub(super) fn queue_key(pod: &Pod) -> PodKey {
    PodKey::new(&pod.key.namespace, &pod.key.name)
}

pub(super) fn queue_uid(uid: &str) -> PodUid {
    PodUid::from(uid)
}

impl Host for World {
    type Content = Arc<Pod>;
    type Change = Change;
    type HintFn = HintFn;

    fn pre_enqueue(&mut self, plugin: PluginId, pod: &QueuedPod<Arc<Pod>>) -> Result<(), Status> {
        let name = self.plugins.name(plugin);
        let hooks = self.framework(pod.pod.profile).pre_enqueues.iter().find(|hooks| hooks.name == name);
        match hooks.and_then(|hooks| hooks.pre_enqueue.as_ref()) {
            Some(gate) => gate.admit(&self.cluster, &pod.pod.content),
            None => Ok(()),
        }
    }

    fn hint(
        &mut self,
        plugin: PluginId,
        function: &HintFn,
        pod: &QueuedPod<Arc<Pod>>,
        event: &Event,
        change: &Change,
    ) -> Result<Hint, Status> {
        let begun = self.hint_times.as_mut().and_then(HintTimes::begin);
        let hint = function(&HintInput { cluster: &self.cluster, pod: &pod.pod.content, event, change });
        if let (Some(begun), Some(times)) = (begun, &mut self.hint_times) {
            times.end(begun, self.plugins.name(plugin), event, hint);
        }
        Ok(hint)
    }

    fn is_waiting(&self, pod: &queue::Pod<Arc<Pod>>) -> bool {
        self.waiting.contains_key(pod.uid.as_str())
    }
}
