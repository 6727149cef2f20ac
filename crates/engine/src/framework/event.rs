//! Cluster events as the queue sees them: which resource, which kind of change.
//!
//! A plugin registers the events that may lift its refusals; an incoming event is as specific as the change
//! allows. `Event::matches` is the whole rule between the two. Spec: scheduler-core 1.3.

use std::fmt;
use std::sync::Arc;

/// What changed about an object. Bits, since a registration can name several changes.
///
/// The order of the bits is part of the matching rule, which compares them as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Action(u32);

impl Action {
    pub const NONE: Action = Action(0);
    pub const ADD: Action = Action(1);
    pub const DELETE: Action = Action(1 << 1);
    pub const UPDATE_NODE_ALLOCATABLE: Action = Action(1 << 2);
    pub const UPDATE_NODE_LABEL: Action = Action(1 << 3);
    /// Taints, or `spec.unschedulable` turned off.
    pub const UPDATE_NODE_TAINT: Action = Action(1 << 4);
    pub const UPDATE_NODE_CONDITION: Action = Action(1 << 5);
    pub const UPDATE_NODE_ANNOTATION: Action = Action(1 << 6);
    pub const UPDATE_NODE_DECLARED_FEATURE: Action = Action(1 << 7);
    pub const UPDATE_POD_LABEL: Action = Action(1 << 8);
    /// A request became smaller.
    pub const UPDATE_POD_SCALE_DOWN: Action = Action(1 << 9);
    pub const UPDATE_POD_TOLERATION: Action = Action(1 << 10);
    /// The last scheduling gate went.
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: Action = Action(1 << 11);
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: Action = Action(1 << 12);
    pub const ALL: Action = Action((1 << 13) - 1);
    /// As an event: an update that is none of the specific ones.
    pub const UPDATE: Action = Action(Action::ALL.0 & !(Action::ADD.0 | Action::DELETE.0));

    pub const fn union(self, other: Action) -> Action {
        Action(self.0 | other.0)
    }

    pub const fn intersects(self, other: Action) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::BitOr for Action {
    type Output = Action;

    fn bitor(self, other: Action) -> Action {
        self.union(other)
    }
}

/// Each single action, and the two unions that have a name.
const ACTION_NAMES: &[(Action, &str)] = &[
    (Action::ADD, "Add"),
    (Action::DELETE, "Delete"),
    (Action::UPDATE_NODE_ALLOCATABLE, "UpdateNodeAllocatable"),
    (Action::UPDATE_NODE_LABEL, "UpdateNodeLabel"),
    (Action::UPDATE_NODE_TAINT, "UpdateNodeTaint"),
    (Action::UPDATE_NODE_CONDITION, "UpdateNodeCondition"),
    (Action::UPDATE_NODE_ANNOTATION, "UpdateNodeAnnotation"),
    (Action::UPDATE_NODE_DECLARED_FEATURE, "UpdateNodeDeclaredFeature"),
    (Action::UPDATE_POD_LABEL, "UpdatePodLabel"),
    (Action::UPDATE_POD_SCALE_DOWN, "UpdatePodScaleDown"),
    (Action::UPDATE_POD_TOLERATION, "UpdatePodToleration"),
    (Action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED, "UpdatePodSchedulingGatesEliminated"),
    (Action::UPDATE_POD_GENERATED_RESOURCE_CLAIM, "UpdatePodGeneratedResourceClaim"),
    (Action::ALL, "All"),
    (Action::UPDATE, "Update"),
];

/// The name that metrics use; several actions are joined with `|`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, name)) = ACTION_NAMES.iter().find(|(action, _)| action == self) {
            return f.write_str(name);
        }
        let is_whole_update = self.0 & Action::UPDATE.0 == Action::UPDATE.0;
        let part_of = |action: Action| match action {
            Action::ALL => false,
            Action::UPDATE => is_whole_update,
            _ => self.intersects(action) && !(is_whole_update && Action::UPDATE.intersects(action)),
        };
        for (i, (_, name)) in ACTION_NAMES.iter().filter(|(action, _)| part_of(*action)).enumerate() {
            if i > 0 {
                f.write_str("|")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// Which objects an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Events only: a pod that is assigned to a node.
    AssignedPod,
    /// Events only: a pod that no node has.
    UnscheduledPod,
    /// Registrations only: both of the above.
    Pod,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    StorageClass,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    /// A custom resource as `plural.version.group`.
    Custom(Arc<str>),
    /// Everything.
    Any,
}

impl Resource {
    /// NodeMetrics, under their full name.
    pub fn node_metrics() -> Resource {
        Resource::Custom("nodemetrics.v1alpha1.slo.koordinator.sh".into())
    }

    /// Whether a registration for this resource covers an event of `other`.
    pub(crate) fn covers(&self, other: &Resource) -> bool {
        match self {
            Resource::Any => true,
            Resource::Pod => {
                matches!(other, Resource::Pod | Resource::AssignedPod | Resource::UnscheduledPod)
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::AssignedPod => "AssignedPod",
            // The name under which kube-scheduler's metrics know it.
            Resource::UnscheduledPod => "UnschedulablePod",
            Resource::Pod => "Pod",
            Resource::Node => "Node",
            Resource::PersistentVolume => "PersistentVolume",
            Resource::PersistentVolumeClaim => "PersistentVolumeClaim",
            Resource::CsiNode => "storage.k8s.io/CSINode",
            Resource::CsiDriver => "storage.k8s.io/CSIDriver",
            Resource::CsiStorageCapacity => "storage.k8s.io/CSIStorageCapacity",
            Resource::VolumeAttachment => "storage.k8s.io/VolumeAttachment",
            Resource::StorageClass => "storage.k8s.io/StorageClass",
            Resource::ResourceClaim => "resource.k8s.io/ResourceClaim",
            Resource::ResourceSlice => "resource.k8s.io/ResourceSlice",
            Resource::DeviceClass => "resource.k8s.io/DeviceClass",
            Resource::Custom(name) => name,
            Resource::Any => "*",
        })
    }
}

/// A change of the cluster, or what a plugin registers for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    pub resource: Resource,
    pub action: Action,
    /// A name of its own in metrics; only the queue's wildcard events have one.
    name: Option<&'static str>,
}

impl Event {
    pub const fn new(resource: Resource, action: Action) -> Event {
        Event { resource, action, name: None }
    }

    /// A new pod that waits for a node.
    pub const fn unscheduled_pod_add() -> Event {
        Event::new(Resource::UnscheduledPod, Action::ADD)
    }

    /// An update of a waiting pod that is none of the specific ones.
    pub const fn unscheduled_pod_update() -> Event {
        Event::new(Resource::UnscheduledPod, Action::UPDATE)
    }

    /// A pod that waited for a node is gone.
    pub const fn unscheduled_pod_delete() -> Event {
        Event::new(Resource::UnscheduledPod, Action::DELETE)
    }

    /// Everything may have changed.
    pub const fn wildcard() -> Event {
        Event::new(Resource::Any, Action::ALL)
    }

    /// A pod was in the unschedulable pool for too long.
    pub const fn unschedulable_timeout() -> Event {
        Event { resource: Resource::Any, action: Action::ALL, name: Some("UnschedulableTimeout") }
    }

    /// A reservation may be used from now on by those whom it is for, whatever refused them before.
    pub const fn reservation_available() -> Event {
        Event { resource: Resource::Any, action: Action::ALL, name: Some("ReservationAvailable") }
    }

    /// Somebody wants one pod tried again.
    pub const fn force_activate() -> Event {
        Event { resource: Resource::Any, action: Action::ALL, name: Some("ForceActivate") }
    }

    pub fn is_wildcard(&self) -> bool {
        self.resource == Resource::Any && self.action == Action::ALL
    }

    /// Whether `self`, as registered, covers an incoming event: the same or something less specific.
    pub fn matches(&self, incoming: &Event) -> bool {
        self.is_wildcard()
            || self.resource.covers(&incoming.resource)
                && self.action.intersects(incoming.action)
                && incoming.action <= self.action
    }
}

/// The label of metrics: `AssignedPodDelete`, `NodeAdd`, `ForceActivate`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "{}{}", self.resource, self.action),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota() -> Resource {
        Resource::Custom("elasticquotas.v1alpha1.scheduling.sigs.k8s.io".into())
    }

    #[test]
    fn registrations_cover_what_is_as_specific_or_more() {
        use Resource::*;
        let any_update = Action::UPDATE;
        let label = Action::UPDATE_NODE_LABEL;
        for (name, registered, incoming, want) in [
            ("same", (Node, Action::ADD), (Node, Action::ADD), true),
            ("other action", (Node, Action::ADD), (Node, Action::DELETE), false),
            ("other resource", (Node, Action::ADD), (PersistentVolume, Action::ADD), false),
            ("one of several", (Node, Action::ADD | label), (Node, label), true),
            ("update covers a specific one", (Node, any_update), (Node, label), true),
            ("a specific one does not cover update", (Node, label), (Node, any_update), false),
            (
                "the highest bit does not cover update",
                (Pod, Action::UPDATE_POD_GENERATED_RESOURCE_CLAIM | Action::ADD),
                (AssignedPod, any_update),
                false,
            ),
            ("pod covers assigned", (Pod, Action::DELETE), (AssignedPod, Action::DELETE), true),
            ("pod covers unscheduled", (Pod, any_update), (UnscheduledPod, any_update), true),
            (
                "assigned does not cover unscheduled",
                (AssignedPod, Action::ADD),
                (UnscheduledPod, Action::ADD),
                false,
            ),
            ("any resource", (Any, Action::ADD), (StorageClass, Action::ADD), true),
            ("any resource, other action", (Any, Action::ADD), (StorageClass, Action::DELETE), false),
            ("everything", (Any, Action::ALL), (quota(), any_update), true),
            ("custom", (quota(), Action::ALL), (quota(), Action::DELETE), true),
            (
                "other custom",
                (quota(), Action::ALL),
                (Custom("devices.v1alpha1.x".into()), Action::ADD),
                false,
            ),
            ("a wildcard is no node event", (Node, Action::ALL), (Any, Action::ALL), false),
        ] {
            let registered = Event::new(registered.0, registered.1);
            let incoming = Event::new(incoming.0, incoming.1);
            assert_eq!(registered.matches(&incoming), want, "{name}");
        }
    }

    #[test]
    fn labels_are_those_of_kube_scheduler() {
        for (want, event) in [
            ("AssignedPodDelete", Event::new(Resource::AssignedPod, Action::DELETE)),
            ("AssignedPodUpdatePodLabel", Event::new(Resource::AssignedPod, Action::UPDATE_POD_LABEL)),
            ("UnschedulablePodAdd", Event::unscheduled_pod_add()),
            ("UnschedulablePodUpdate", Event::unscheduled_pod_update()),
            ("NodeAdd", Event::new(Resource::Node, Action::ADD)),
            ("NodeUpdateNodeTaint", Event::new(Resource::Node, Action::UPDATE_NODE_TAINT)),
            ("storage.k8s.io/CSINodeUpdate", Event::new(Resource::CsiNode, Action::UPDATE)),
            ("elasticquotas.v1alpha1.scheduling.sigs.k8s.ioAdd", Event::new(quota(), Action::ADD)),
            ("ForceActivate", Event::force_activate()),
            ("UnschedulableTimeout", Event::unschedulable_timeout()),
            ("*All", Event::wildcard()),
            ("NodeAdd|UpdateNodeLabel", Event::new(Resource::Node, Action::ADD | Action::UPDATE_NODE_LABEL)),
            ("PodAdd|Update", Event::new(Resource::Pod, Action::ADD | Action::UPDATE)),
        ] {
            assert_eq!(event.to_string(), want);
        }
    }
}
