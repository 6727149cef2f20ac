//! A PersistentVolume as placement sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use koord_api::quantity::Quantity;
use koord_api::selector::NodeSelector;

use super::Claim;
use super::driver::CsiNode;
use super::migration::{BETA_REGION, BETA_ZONE, Migration, REGION, ZONE, ZONE_SEPARATOR};

/// The name of a class where a volume or claim has it in an annotation.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// One PersistentVolume, as the API has it.
#[derive(Clone, Debug)]
pub struct Volume {
    pub name: Arc<str>,
    pub revision: Box<str>,
    pub class: Arc<str>,
    pub size: Size,
    pub modes: AccessModes,
    pub is_block: bool,
    pub attributes_class: Box<str>,
    pub labels: BTreeMap<String, String>,
    /// Zones and regions that it can be reached from.
    pub zones: Box<[Zones]>,
    pub affinity: Option<NodeSelector>,
    pub pin: Option<Pin>,
    pub claim: Option<ClaimRef>,
    pub is_available: bool,
    pub is_deleting: bool,
    /// Driver and handle.
    pub csi: Option<(Box<str>, Box<str>)>,
    pub migration: Option<Box<Migration>>,
    /// The whole object, while a claim may still have to be written into it.
    pub object: Option<Arc<core::PersistentVolume>>,
}

/// Storage in billionths of a byte, exact.
pub type Size = i128;

/// Who a volume belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRef {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// Empty when a user wrote it without.
    pub uid: Box<str>,
}

/// A label of zones or regions and the values that a volume allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    pub key: &'static str,
    pub values: Box<[Box<str>]>,
}

/// A label that a node must have, with one of these values, to come into question at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub key: Box<str>,
    pub values: Box<[Box<str>]>,
}

/// How a volume can be mounted, or a claim wants it to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessModes(u8);

impl AccessModes {
    const ONCE_POD: u8 = 1 << 3;

    pub(super) fn read(modes: Option<&Vec<String>>) -> AccessModes {
        let bit = |mode: &String| match mode.as_str() {
            "ReadWriteOnce" => 1,
            "ReadOnlyMany" => 1 << 1,
            "ReadWriteMany" => 1 << 2,
            "ReadWriteOncePod" => AccessModes::ONCE_POD,
            _ => 1 << 4,
        };
        AccessModes(modes.into_iter().flatten().map(bit).fold(0, |all, bit| all | bit))
    }

    pub fn is_once_pod(self) -> bool {
        self.0 & AccessModes::ONCE_POD != 0
    }

    /// Whether everything that is wanted is here.
    pub fn has(self, wanted: AccessModes) -> bool {
        wanted.0 & !self.0 == 0
    }
}

impl Volume {
    pub(super) fn read(object: &core::PersistentVolume) -> Volume {
        let empty = core::PersistentVolumeSpec::default();
        let spec = object.spec.as_ref().unwrap_or(&empty);
        let metadata = &object.metadata;
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let claim = spec.claim_ref.as_ref().map(ClaimRef::read);
        let is_settled = claim.as_ref().is_some_and(|claim| !claim.uid.is_empty());
        let labels = metadata.labels.clone().unwrap_or_default();
        Volume {
            name: metadata.name.as_deref().unwrap_or_default().into(),
            revision: metadata.resource_version.as_deref().unwrap_or_default().into(),
            class: class_name(metadata.annotations.as_ref(), spec.storage_class_name.as_deref()).into(),
            size: storage(spec.capacity.as_ref()).unwrap_or(0),
            modes: AccessModes::read(spec.access_modes.as_ref()),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: spec.volume_attributes_class_name.as_deref().unwrap_or_default().into(),
            zones: zones(&labels),
            labels,
            affinity: required.map(|selector| NodeSelector::new(selector, "")),
            pin: required.and_then(Pin::of),
            claim,
            is_available: object.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Available"),
            is_deleting: metadata.deletion_timestamp.is_some(),
            csi: spec.csi.as_ref().map(|csi| (csi.driver.as_str().into(), csi.volume_handle.as_str().into())),
            migration: Migration::of(object).map(Box::new),
            object: (!is_settled).then(|| Arc::new(object.clone())),
        }
    }

    /// Whether nobody has it and somebody may.
    pub(super) fn is_free(&self) -> bool {
        self.claim.is_none() && self.is_available && !self.is_deleting
    }

    /// Whether a node with these labels can reach it, or why not.
    pub fn reaches(&self, labels: &BTreeMap<String, String>) -> Result<(), String> {
        reaches(self.affinity.as_ref(), labels)
    }

    /// As `reaches`, in the words of the driver where the node has moved to it. The outer error is a volume that
    /// cannot be translated.
    pub fn reaches_on(
        &self,
        node: Option<&CsiNode>,
        labels: &BTreeMap<String, String>,
    ) -> Result<Result<(), String>, String> {
        let migration = self.migration.as_ref();
        let moved =
            migration.filter(|migration| node.is_some_and(|node| node.has_migrated(migration.plugin)));
        match moved.map(|migration| &migration.translated) {
            None => Ok(self.reaches(labels)),
            Some(Ok(translated)) => Ok(reaches(translated.affinity.as_ref(), labels)),
            Some(Err(why)) => Err(format!("could not translate pv: {why}")),
        }
    }
}

fn reaches(affinity: Option<&NodeSelector>, labels: &BTreeMap<String, String>) -> Result<(), String> {
    match affinity.map_or(Ok(true), |affinity| affinity.matches(labels, "")) {
        Ok(true) => Ok(()),
        Ok(false) => Err("no matching NodeSelectorTerms".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl ClaimRef {
    fn read(reference: &core::ObjectReference) -> ClaimRef {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        ClaimRef {
            namespace: text(&reference.namespace).into(),
            name: text(&reference.name).into(),
            uid: text(&reference.uid).into(),
        }
    }

    pub fn to(claim: &Claim) -> ClaimRef {
        ClaimRef { namespace: claim.namespace.clone(), name: claim.name.clone(), uid: claim.uid.clone() }
    }

    /// Whether it means this claim and no other of the same name.
    pub fn means(&self, claim: &Claim) -> bool {
        self.namespace == claim.namespace
            && self.name == claim.name
            && (self.uid.is_empty() || self.uid == claim.uid)
    }
}

impl Pin {
    /// A label that all terms want; of several the one with the fewest values.
    fn of(selector: &core::NodeSelector) -> Option<Pin> {
        let (first, others) = selector.node_selector_terms.split_first()?;
        let of_key = |key: &str| {
            let mut values = values_of(first, key)?.clone();
            for term in others {
                values.extend(values_of(term, key)?.iter().cloned());
            }
            values.sort();
            values.dedup();
            Some(Pin { key: key.into(), values: values.into_iter().map(Box::from).collect() })
        };
        let keys = first.match_expressions.iter().flatten().map(|expression| expression.key.as_str());
        keys.filter_map(of_key).min_by_key(|pin| pin.values.len())
    }
}

fn values_of<'a>(term: &'a core::NodeSelectorTerm, key: &str) -> Option<&'a Vec<String>> {
    let mut expressions = term.match_expressions.iter().flatten();
    expressions.find(|e| e.key == key && e.operator == "In").and_then(|e| e.values.as_ref())
}

/// Labels of zones and regions; a value that cannot be read is no constraint.
fn zones(labels: &BTreeMap<String, String>) -> Box<[Zones]> {
    let read = |key: &'static str| {
        let values: Vec<&str> = labels.get(key)?.split(ZONE_SEPARATOR).map(str::trim).collect();
        let is_readable = !values.contains(&"");
        is_readable.then(|| Zones { key, values: values.into_iter().map(Box::from).collect() })
    };
    [BETA_ZONE, BETA_REGION, ZONE, REGION].into_iter().filter_map(read).collect()
}

/// The class of a volume or claim, the old annotation first.
pub(super) fn class_name<'a>(
    annotations: Option<&'a BTreeMap<String, String>>,
    field: Option<&'a str>,
) -> &'a str {
    let annotated = annotations.and_then(|annotations| annotations.get(BETA_CLASS)).map(String::as_str);
    annotated.or(field).unwrap_or_default()
}

/// The amount of storage in a list; one that cannot be read is absent.
pub(super) fn storage(list: Option<&BTreeMap<String, WireQuantity>>) -> Option<Size> {
    let amount = list?.get("storage")?;
    Quantity::try_from(amount).ok().map(Quantity::nano)
}
