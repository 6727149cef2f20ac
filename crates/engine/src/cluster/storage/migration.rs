//! In-tree volumes as the CSI drivers know them that took them over. Spec: scheduler-core 6.11.
//!
//! Only what placement looks at is translated: the driver, the volume's handle and the labels that its node
//! affinity speaks of.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as core;
use koord_api::selector::NodeSelector;

pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// Several zones in one label value.
pub const ZONE_SEPARATOR: &str = "__";

/// What a handle says where the volume does not tell.
const UNSPECIFIED: &str = "UNSPECIFIED";

/// A plugin that was part of Kubernetes and now is a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InTree {
    AwsEbs,
    GcePd,
    AzureDisk,
    Cinder,
    Portworx,
}

impl InTree {
    const ALL: [InTree; 5] =
        [InTree::AwsEbs, InTree::GcePd, InTree::AzureDisk, InTree::Cinder, InTree::Portworx];

    /// The plugin that a storage class names as its provisioner.
    pub fn of_provisioner(name: &str) -> Option<InTree> {
        InTree::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            InTree::AwsEbs => "kubernetes.io/aws-ebs",
            InTree::GcePd => "kubernetes.io/gce-pd",
            InTree::AzureDisk => "kubernetes.io/azure-disk",
            InTree::Cinder => "kubernetes.io/cinder",
            InTree::Portworx => "kubernetes.io/portworx-volume",
        }
    }

    pub fn driver(self) -> &'static str {
        match self {
            InTree::AwsEbs => "ebs.csi.aws.com",
            InTree::GcePd => "pd.csi.storage.gke.io",
            InTree::AzureDisk => "disk.csi.azure.com",
            InTree::Cinder => "cinder.csi.openstack.org",
            InTree::Portworx => "pxd.portworx.com",
        }
    }

    /// The label by which the driver names zones; none for those whose affinity stays as it is.
    fn zone_label(self) -> Option<&'static str> {
        match self {
            InTree::AwsEbs => Some("topology.ebs.csi.aws.com/zone"),
            InTree::GcePd => Some("topology.gke.io/zone"),
            InTree::Cinder => Some("topology.cinder.csi.openstack.org/zone"),
            InTree::AzureDisk | InTree::Portworx => None,
        }
    }
}

/// An in-tree volume and its translation.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    pub plugin: InTree,
    /// Or why it cannot be translated.
    pub translated: Result<Translated, Box<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    pub handle: Box<str>,
    pub affinity: Option<NodeSelector>,
}

impl Migration {
    /// The translation of a volume; none when it is not an in-tree one.
    pub fn of(object: &core::PersistentVolume) -> Option<Migration> {
        let spec = object.spec.as_ref()?;
        let (plugin, handle) = if let Some(disk) = &spec.aws_elastic_block_store {
            (InTree::AwsEbs, ebs_handle(&disk.volume_id))
        } else if let Some(disk) = &spec.gce_persistent_disk {
            (InTree::GcePd, gce_handle(object, &disk.pd_name))
        } else if let Some(disk) = &spec.azure_disk {
            (InTree::AzureDisk, azure_handle(disk))
        } else if let Some(disk) = &spec.cinder {
            (InTree::Cinder, Ok(disk.volume_id.clone()))
        } else if let Some(disk) = &spec.portworx_volume {
            (InTree::Portworx, Ok(disk.volume_id.clone()))
        } else {
            return None;
        };
        let translated = handle.map_err(Box::from).map(|handle| {
            let required = affinity(object, plugin.zone_label());
            Translated {
                handle: handle.into(),
                affinity: required.map(|selector| NodeSelector::new(&selector, "")),
            }
        });
        Some(Migration { plugin, translated })
    }
}

/// The id of an EBS volume, also from `aws://zone/vol-1`.
pub fn ebs_handle(id: &str) -> Result<String, String> {
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = rest.split_once('/').map_or("", |(_, path)| path).trim_matches('/');
    match path.starts_with("vol-") && !path.contains('/') {
        true => Ok(path.to_owned()),
        false => Err(format!(
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})"
        )),
    }
}

/// The handle of a disk whose zone is not known.
pub fn gce_inline_handle(name: &str) -> String {
    format!("projects/{UNSPECIFIED}/zones/{UNSPECIFIED}/disks/{name}")
}

fn gce_handle(object: &core::PersistentVolume, name: &str) -> Result<String, String> {
    let label =
        |key: &str| object.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let zones = label(BETA_ZONE).filter(|zones| !zones.is_empty()).or(label(ZONE)).unwrap_or_default();
    let zones: Vec<&str> = zones.split(ZONE_SEPARATOR).collect();
    match zones.as_slice() {
        [""] => Ok(gce_inline_handle(name)),
        [zone] => Ok(format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{name}")),
        zones => {
            let region =
                gce_region(zones).map_err(|why| format!("failed to get region from zones: {why}"))?;
            Ok(format!("projects/{UNSPECIFIED}/regions/{region}/disks/{name}"))
        }
    }
}

/// The region that all zones are in.
fn gce_region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        match zone.split('-').collect::<Vec<_>>().as_slice() {
            [locale, region, _] => regions.insert(format!("{locale}-{region}")),
            _ => {
                return Err(format!(
                    "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
                ));
            }
        };
    }
    match (regions.pop_first(), regions.is_empty()) {
        (Some(region), true) => Ok(region),
        (first, _) => {
            let all: Vec<String> = first.into_iter().chain(regions).map(|region| region + ":{}").collect();
            Err(format!("multiple or no regions gotten from zones, got: map[{}]", all.join(" ")))
        }
    }
}

fn azure_handle(disk: &core::AzureDiskVolumeSource) -> Result<String, String> {
    match disk.kind.as_deref() {
        Some(kind) if !is_managed(kind) => Err(format!("kind({kind}) is not supported in csi migration")),
        _ => Ok(disk.disk_uri.clone()),
    }
}

/// The only kind of Azure disk that the driver takes.
pub fn is_managed(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("Managed")
}

/// The required affinity in the driver's words: its own label for zones, and no beta label for regions.
fn affinity(object: &core::PersistentVolume, zone_label: Option<&str>) -> Option<core::NodeSelector> {
    let own = object.spec.as_ref()?.node_affinity.as_ref().and_then(|affinity| affinity.required.clone());
    let Some(driver_label) = zone_label else { return own };
    let none = Default::default();
    let labels = object.metadata.labels.as_ref().unwrap_or(&none);
    let mut required = own.unwrap_or_default();
    let speaks_of = |key: &str| expressions(&required).any(|expression| expression.key == key);
    let (zone, region) = match () {
        () if speaks_of(ZONE) => (ZONE, REGION),
        () if speaks_of(BETA_ZONE) => (BETA_ZONE, BETA_REGION),
        () if labels.contains_key(ZONE) => (ZONE, REGION),
        () if labels.contains_key(BETA_ZONE) => (BETA_ZONE, BETA_REGION),
        () => (ZONE, REGION),
    };
    if has_values(&required, zone) {
        rename(&mut required, zone, driver_label);
    } else if let Some(zones) = labels.get(zone) {
        add(&mut required, driver_label, zones);
    }
    if region == BETA_REGION && has_values(&required, BETA_REGION) {
        rename(&mut required, BETA_REGION, REGION);
    }
    let had_affinity = object.spec.as_ref()?.node_affinity.as_ref().is_some_and(|a| a.required.is_some());
    (had_affinity || !required.node_selector_terms.is_empty()).then_some(required)
}

fn expressions(selector: &core::NodeSelector) -> impl Iterator<Item = &core::NodeSelectorRequirement> {
    selector.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten())
}

fn has_values(selector: &core::NodeSelector, key: &str) -> bool {
    expressions(selector).any(|e| e.key == key && e.values.as_ref().is_some_and(|values| !values.is_empty()))
}

fn rename(selector: &mut core::NodeSelector, from: &str, to: &str) {
    let terms = selector.node_selector_terms.iter_mut();
    let expressions = terms.flat_map(|term| term.match_expressions.iter_mut().flatten());
    expressions
        .filter(|expression| expression.key == from)
        .for_each(|expression| expression.key = to.to_owned());
}

/// Adds the zones of a label to every term.
fn add(selector: &mut core::NodeSelector, key: &str, zones: &str) {
    let zones: BTreeSet<&str> =
        zones.split(ZONE_SEPARATOR).map(str::trim).filter(|zone| !zone.is_empty()).collect();
    if zones.is_empty() {
        return;
    }
    if selector.node_selector_terms.is_empty() {
        selector.node_selector_terms.push(core::NodeSelectorTerm::default());
    }
    let expression = core::NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(zones.into_iter().map(str::to_owned).collect()),
    };
    for term in &mut selector.node_selector_terms {
        term.match_expressions.get_or_insert_default().push(expression.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn migrated(labels: Value, spec: Value) -> Migration {
        let object = json!({"metadata": {"name": "pv", "labels": labels}, "spec": spec});
        Migration::of(&serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn handles_are_the_drivers_own() {
        let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
        let gce = json!({"gcePersistentDisk": {"pdName": "d"}});
        let azure = |kind: &str| json!({"azureDisk": {"diskName": "d", "diskURI": "/d", "kind": kind}});
        let failed = "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume";
        for (name, labels, spec, want) in [
            ("ebs", json!({}), ebs("vol-1"), Ok("vol-1")),
            ("ebs url", json!({}), ebs("aws://us-east-1a/vol-1"), Ok("vol-1")),
            ("ebs url without zone", json!({}), ebs("aws:///vol-1"), Ok("vol-1")),
            ("ebs url of something else", json!({}), ebs("aws://z/x"), Err(format!("{failed} (aws://z/x)"))),
            ("gce", json!({}), gce.clone(), Ok("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d")),
            ("gce zone", json!({ZONE: "r-1-a"}), gce.clone(), Ok("projects/UNSPECIFIED/zones/r-1-a/disks/d")),
            (
                "gce region",
                json!({BETA_ZONE: "r-1-a__r-1-b"}),
                gce.clone(),
                Ok("projects/UNSPECIFIED/regions/r-1/disks/d"),
            ),
            (
                "gce two regions",
                json!({ZONE: "r-1-a__r-2-b"}),
                gce.clone(),
                Err("failed to get region from zones: multiple or no regions gotten from zones, got: \
                     map[r-1:{} r-2:{}]"
                    .to_owned()),
            ),
            ("azure", json!({}), azure("managed"), Ok("/d")),
            (
                "azure blob",
                json!({}),
                azure("Dedicated"),
                Err("kind(Dedicated) is not supported in csi migration".to_owned()),
            ),
            ("cinder", json!({}), json!({"cinder": {"volumeID": "c"}}), Ok("c")),
            ("portworx", json!({}), json!({"portworxVolume": {"volumeID": "p"}}), Ok("p")),
        ] {
            let found = migrated(labels, spec).translated.map(|translated| translated.handle);
            assert_eq!(found, want.map(Box::from).map_err(Box::from), "{name}");
        }
        assert_eq!(Migration::of(&core::PersistentVolume::default()), None);
    }

    #[test]
    fn zones_get_the_drivers_label() {
        let ebs_zone = "topology.ebs.csi.aws.com/zone";
        let affinity = |key: &str| {
            json!({"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": "In", "values": ["z1"]}]}]}})
        };
        for (name, labels, affinity, node, want) in [
            ("renamed", json!({}), affinity(ZONE), (ebs_zone, "z1"), true),
            ("renamed, other zone", json!({}), affinity(ZONE), (ebs_zone, "z2"), false),
            ("renamed, node with the old label", json!({}), affinity(ZONE), (ZONE, "z1"), false),
            ("beta renamed", json!({}), affinity(BETA_ZONE), (ebs_zone, "z1"), true),
            ("from the label", json!({ZONE: "z1__z2"}), json!(null), (ebs_zone, "z2"), true),
            ("from the label, other zone", json!({ZONE: "z1__z2"}), json!(null), (ebs_zone, "z3"), false),
            ("neither", json!({}), json!(null), ("a", "b"), true),
            (
                "hostname stays",
                json!({}),
                affinity("kubernetes.io/hostname"),
                ("kubernetes.io/hostname", "z1"),
                true,
            ),
        ] {
            let spec = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}, "nodeAffinity": affinity});
            let translated = migrated(labels, spec).translated.unwrap();
            let labels = BTreeMap::from([(node.0.to_owned(), node.1.to_owned())]);
            let matches = translated.affinity.is_none_or(|affinity| affinity.matches(&labels, "").unwrap());
            assert_eq!(matches, want, "{name}");
        }
    }

    #[test]
    fn regions_lose_their_beta_label() {
        let required = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": BETA_ZONE, "operator": "In", "values": ["z1"]},
            {"key": BETA_REGION, "operator": "In", "values": ["r1"]}]}]}});
        let spec = json!({"cinder": {"volumeID": "c"}, "nodeAffinity": required});
        let affinity = migrated(json!({}), spec).translated.unwrap().affinity.unwrap();
        let node = |region: &str| {
            BTreeMap::from([
                ("topology.cinder.csi.openstack.org/zone".to_owned(), "z1".to_owned()),
                (region.to_owned(), "r1".to_owned()),
            ])
        };
        assert_eq!(affinity.matches(&node(REGION), ""), Ok(true));
        assert_eq!(affinity.matches(&node(BETA_REGION), ""), Ok(false));
    }
}
