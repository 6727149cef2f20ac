//! What storage classes and drivers say: where volumes can be made, how large, and how many a node takes.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1 as storage;
use koord_api::quantity::Quantity;
use koord_api::selector::Selector;

use super::migration::InTree;

/// On a CSINode: the in-tree plugins whose volumes go through drivers there, with commas between.
const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClass {
    pub revision: Box<str>,
    pub provisioner: Box<str>,
    /// None when the API did not say, which is a fault.
    pub binding: Option<BindingMode>,
    /// Terms of which one must match; each is a list of labels and allowed values.
    pub topologies: Box<[Topology]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingMode {
    Immediate,
    /// Bound or made when the first pod that uses it has a node.
    WaitForFirstConsumer,
}

type Topology = Box<[(Box<str>, Box<[Box<str>]>)]>;

impl StorageClass {
    pub(super) fn read(object: &storage::StorageClass) -> StorageClass {
        let terms = object.allowed_topologies.iter().flatten();
        let topology = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| -> Topology {
            let labels = term.match_label_expressions.iter().flatten();
            labels
                .map(|label| {
                    (label.key.as_str().into(), label.values.iter().map(|v| v.as_str().into()).collect())
                })
                .collect()
        };
        StorageClass {
            revision: object.metadata.resource_version.as_deref().unwrap_or_default().into(),
            provisioner: object.provisioner.as_str().into(),
            binding: object.volume_binding_mode.as_deref().map(|mode| match mode {
                "WaitForFirstConsumer" => BindingMode::WaitForFirstConsumer,
                _ => BindingMode::Immediate,
            }),
            topologies: terms.map(topology).collect(),
        }
    }

    /// Whether volumes can be made for it at all.
    pub fn is_provisioned(&self) -> bool {
        !self.provisioner.is_empty() && &*self.provisioner != NO_PROVISIONER
    }

    /// Whether a volume can be made for a node with these labels.
    pub fn allows(&self, labels: &BTreeMap<String, String>) -> bool {
        let has_one = |(key, values): &(Box<str>, Box<[Box<str>]>)| {
            labels.get(&**key).is_some_and(|found| values.iter().any(|value| **value == **found))
        };
        self.topologies.is_empty()
            || self.topologies.iter().any(|term| !term.is_empty() && term.iter().all(has_one))
    }
}

/// What drivers on a node say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNode {
    pub revision: Box<str>,
    /// Drivers there and how many volumes each takes; no number is no limit.
    pub limits: Box<[(Box<str>, Option<i32>)]>,
    pub migrated: Box<str>,
}

impl CsiNode {
    pub(super) fn read(object: &storage::CSINode) -> CsiNode {
        let drivers = object.spec.drivers.iter();
        let annotations = object.metadata.annotations.as_ref();
        CsiNode {
            revision: object.metadata.resource_version.as_deref().unwrap_or_default().into(),
            limits: drivers
                .map(|driver| {
                    let limit = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
                    (driver.name.as_str().into(), limit)
                })
                .collect(),
            migrated: annotations.and_then(|all| all.get(MIGRATED_PLUGINS)).map_or("", String::as_str).into(),
        }
    }

    /// How many volumes of a driver the node takes; none when there is no limit.
    pub fn limit(&self, driver: &str) -> Option<i32> {
        // The last entry of a name counts, as in a map that is filled in order.
        self.limits.iter().rev().find(|(name, limit)| **name == *driver && limit.is_some())?.1
    }

    /// Whether the volumes of an in-tree plugin go through its driver here.
    pub fn has_migrated(&self, plugin: InTree) -> bool {
        self.migrated.split(',').any(|name| name == plugin.name())
    }

    /// Whether some driver takes more volumes than before.
    pub(super) fn has_grown(&self, before: &CsiNode) -> bool {
        let limit = |node: &CsiNode, driver: &str| node.limit(driver).unwrap_or(0);
        self.limits.iter().any(|(driver, _)| limit(self, driver) > limit(before, driver))
    }
}

/// How large a volume can be made for some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub revision: Box<str>,
    pub class: Box<str>,
    /// The largest volume in bytes; none when that is unknown.
    pub limit: Option<i64>,
    /// The nodes it is about; none when there are none.
    pub nodes: Option<Selector>,
}

impl Capacity {
    pub(super) fn read(object: &storage::CSIStorageCapacity) -> Capacity {
        let limit = object.maximum_volume_size.as_ref().or(object.capacity.as_ref());
        Capacity {
            revision: object.metadata.resource_version.as_deref().unwrap_or_default().into(),
            class: object.storage_class_name.as_str().into(),
            limit: limit.and_then(|limit| Quantity::try_from(limit).ok()).map(Quantity::value),
            nodes: object.node_topology.as_ref().and_then(|topology| Selector::new(Some(topology)).ok()),
        }
    }

    /// Whether a volume of so many bytes can be made for a node with these labels.
    pub fn is_enough(&self, bytes: i64, labels: &BTreeMap<String, String>) -> bool {
        self.limit.is_some_and(|limit| limit >= bytes)
            && self.nodes.as_ref().is_some_and(|nodes| nodes.matches(labels))
    }

    /// Whether larger volumes can be made than before.
    pub(super) fn has_grown(&self, before: &Capacity) -> bool {
        self.limit.is_some_and(|limit| before.limit.is_none_or(|before| limit > before))
    }
}

/// A volume that is, or is to be, attached to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub revision: Box<str>,
    pub node: Box<str>,
    pub driver: Box<str>,
    /// Empty when it is no PersistentVolume.
    pub volume: Box<str>,
}

impl Attachment {
    pub(super) fn read(object: &storage::VolumeAttachment) -> Attachment {
        let volume = object.spec.source.persistent_volume_name.as_deref();
        Attachment {
            revision: object.metadata.resource_version.as_deref().unwrap_or_default().into(),
            node: object.spec.node_name.as_str().into(),
            driver: object.spec.attacher.as_str().into(),
            volume: volume.unwrap_or_default().into(),
        }
    }
}
