//! Roots of quota trees made from ElasticQuotaProfiles: a quota as large as the nodes that a profile selects.
//!
//! Pure: profile, nodes and the present quota in, the wanted quota out. `controllers::quota_profile` writes it.
//! Spec: manager 13.

use k8s_openapi::api::core::v1::Node;
use koord_api::annotation::quota::{ResourceKeys, TotalResource, UnschedulableResource};
use koord_api::annotation::{AnnotationError, OrAbsent, read, write};
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::{ElasticQuotaProfile, ElasticQuotaProfileSpec};
use koord_api::keys::quota::label::{IS_ROOT, PROFILE, TREE_ID};
use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::pod::resource_list;
use koord_api::quantity::{Family, Quantity, ResourceList};
use koord_api::selector::{Selector, SelectorError};

use crate::amounts::{scale_milli_trunc, scale_trunc};

/// What a root quota may use at most: so much that it never binds, and sums of two thousand still fit.
const MAX_UNBOUND: i64 = i64::MAX / 2000;

/// Resources of a root quota unless its profile names others.
const RESOURCE_KEYS_DEFAULT: [&str; 2] = [CPU, MEMORY];

/// What the nodes of a profile have together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    pub total: ResourceList,
    /// The part of it that takes no pods at the moment.
    pub unschedulable: ResourceList,
}

impl Pool {
    /// Sums up the nodes that the profile selects, and takes the profile's share of them.
    pub fn new<'n>(
        spec: &ElasticQuotaProfileSpec,
        nodes: impl IntoIterator<Item = &'n Node>,
    ) -> Result<Pool, SelectorError> {
        let selector = Selector::new(spec.node_selector.as_ref())?;
        let mut pool = Pool::default();
        for node in nodes.into_iter().filter(|node| selector.matches(&node.metadata.labels)) {
            let allocatable = resource_list(node.status.as_ref().and_then(|s| s.allocatable.as_ref()));
            add(&mut pool.total, &allocatable);
            if !is_schedulable(node) {
                add(&mut pool.unschedulable, &allocatable);
            }
        }
        if let Some(ratio) = &spec.resource_ratio {
            let ratio = ratio_of(ratio);
            take_share(&mut pool.total, ratio);
            take_share(&mut pool.unschedulable, ratio);
        }
        Ok(pool)
    }
}

/// The id of a profile's tree where nobody chose one: the 64-bit FNV-1a hash of its place, in decimal.
pub fn tree_id(namespace: &str, name: &str) -> String {
    fnv1a(format!("{namespace}/{name}").as_bytes()).to_string()
}

/// The id that the profile is labelled with.
pub fn labelled_tree_id(profile: &ElasticQuotaProfile) -> Option<&str> {
    let labels = profile.metadata.labels.as_ref()?;
    labels.get(TREE_ID).map(String::as_str).filter(|id| !id.is_empty())
}

/// Makes a quota, new or present, the root of the profile's tree. Labels and annotations of others stay.
pub fn shape(
    quota: &mut ElasticQuota,
    profile: &ElasticQuotaProfile,
    tree_id: &str,
    pool: &Pool,
    report: impl FnOnce(&AnnotationError),
) {
    let keys = read::<ResourceKeys>(profile.metadata.annotations.as_ref()).or_absent(report);
    let keys = keys.map_or_else(|| RESOURCE_KEYS_DEFAULT.map(str::to_owned).to_vec(), |keys| keys.0);
    let spec = quota.spec.get_or_insert_default();
    let min = |key: &String| (key.clone(), pool.total.get(key).copied().unwrap_or_default());
    let max = |key: &String| (key.clone(), Quantity::from_value(MAX_UNBOUND, Family::DecimalSi));
    spec.min = keys.iter().map(min).collect();
    spec.max = keys.iter().map(max).collect();

    let labels = quota.metadata.labels.get_or_insert_default();
    let mut set = |key: &str, value: &str| _ = labels.insert(key.to_owned(), value.to_owned());
    set(PROFILE, profile.metadata.name.as_deref().unwrap_or_default());
    for (key, value) in profile.spec.iter().flat_map(|spec| &spec.quota_labels) {
        set(key, value);
    }
    set(TREE_ID, tree_id);
    set(IS_ROOT, "true");

    let annotations = quota.metadata.annotations.get_or_insert_default();
    write(annotations, &TotalResource(pool.total.clone()));
    write(annotations, &UnschedulableResource(pool.unschedulable.clone()));
}

/// Ready and not cordoned.
fn is_schedulable(node: &Node) -> bool {
    let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    !is_cordoned && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += *amount;
    }
}

/// A share above 0 and up to 1; any other text is the whole.
fn ratio_of(text: &str) -> f64 {
    text.parse().ok().filter(|ratio| *ratio > 0.0 && *ratio <= 1.0).unwrap_or(1.0)
}

fn take_share(list: &mut ResourceList, ratio: f64) {
    for (name, amount) in list {
        *amount = match name.as_str() {
            CPU => scale_milli_trunc(*amount, ratio).with_family(Family::DecimalSi),
            MEMORY => scale_trunc(*amount, ratio).with_family(Family::BinarySi),
            _ => scale_trunc(*amount, ratio).with_family(Family::DecimalSi),
        };
    }
}

/// FNV-1a with 64 bits.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
