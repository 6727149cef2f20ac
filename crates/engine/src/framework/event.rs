//! Cluster events as the queue sees them: which resource, which kind of change.

/// What changed about an object. Bits, since one update can be several changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Action(u32);

/// Which objects an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Registered: any pod. As an event: a pod that is assigned to a node.
    AssignedPod,
    /// A pod that no node has.
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
    /// A custom resource as `plural.version.group`.
    Custom(Box<str>),
    /// Everything.
    Any,
}
