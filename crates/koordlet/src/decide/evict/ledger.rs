//! More requested than there is to give: which resources, and how much to free. Spec: koordlet-enforce 8.3.

use std::fmt::Write as _;

use koord_api::priority::PriorityClass;
use koord_api::quantity::ResourceList;

use super::pressure::PressureError;
use super::{Amounts, Resource};
use crate::decide::convert::percent_trunc;
use crate::decide::snapshot::{Pod, whole};

/// The highest priority that may be evicted for what it requests: prod never is.
const PRIORITY_MAX: i32 = 7999;
/// What nobody set, in percent. The manager checks pairs of bounds by the same. Spec: api 7.4.
const THRESHOLD_DEFAULT: i64 = 110;
const LOWER_DEFAULT: i64 = 100;

/// A checked configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub threshold: i64,
    pub lower: i64,
    pub priority_max: i32,
}

/// What one resource is short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub resource: Resource,
    pub requested: i64,
    pub allocatable: i64,
    pub release: i64,
}

impl Ledger {
    /// Differs: bounds that nobody set have their documented defaults, where upstream asks for both and evicts nobody.
    pub fn new(
        threshold: Option<i64>,
        lower: Option<i64>,
        priority_max: Option<i32>,
    ) -> Result<Ledger, PressureError> {
        let (threshold, lower) = (threshold.unwrap_or(THRESHOLD_DEFAULT), lower.unwrap_or(LOWER_DEFAULT));
        let priority_name = "AllocatableEvictPriorityThreshold";
        let priority_max = priority_max.ok_or(PressureError::NotConfigured(priority_name))?;
        if threshold < 0 {
            return Err(PressureError::Negative(threshold));
        }
        if lower >= threshold {
            return Err(PressureError::LowerNotBelow { lower, threshold });
        }
        if priority_max > PRIORITY_MAX {
            return Err(PressureError::PriorityOfProd(priority_max));
        }
        Ok(Ledger { threshold, lower, priority_max })
    }

    /// Resources of which more is requested than the threshold allows.
    ///
    /// Differs: plain cpu and memory are not counted, since no victim could free them and upstream then evicts
    /// every pod it may (item 26).
    pub fn shortages(
        self,
        pods: &[Pod],
        allocatable: &ResourceList,
        resources: [Resource; 2],
    ) -> Vec<Shortage> {
        let shortage = |resource: Resource| {
            let claims = pods.iter().filter(|pod| pod.is_active() && pod.priority <= self.priority_max);
            let requested = claims.filter_map(|pod| request(pod, resource)).fold(0_i64, i64::saturating_add);
            let allocatable = whole(allocatable, resource.name()).unwrap_or(0);
            let is_over = i128::from(requested) * 100 > i128::from(allocatable) * i128::from(self.threshold);
            let release = match allocatable {
                ..=0 => requested,
                _ if is_over => requested.saturating_sub(percent_trunc(allocatable, self.lower)),
                _ => 0,
            };
            (release > 0).then_some(Shortage { resource, requested, allocatable, release })
        };
        resources.into_iter().filter_map(shortage).collect()
    }
}

/// The shortages in words.
pub fn numbers(ledger: &Ledger, shortages: &[Shortage]) -> String {
    let Ledger { threshold, lower, .. } = ledger;
    let mut text = format!("threshold {threshold} %, lower {lower} %");
    for Shortage { resource, requested, allocatable, .. } in shortages {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {} {requested} requested of {allocatable}", resource.name());
    }
    text
}

/// What a pod's going frees of the resources that are short.
pub fn frees(pod: &Pod, shortages: &[Shortage]) -> Amounts {
    let of = |shortage: &Shortage| Some((shortage.resource, request(pod, shortage.resource)?));
    shortages.iter().filter_map(of).collect()
}

/// What a pod requests of a resource that belongs to its class.
fn request(pod: &Pod, resource: Resource) -> Option<i64> {
    let class = match resource {
        Resource::MidCpu | Resource::MidMemory => PriorityClass::Mid,
        Resource::BatchCpu | Resource::BatchMemory => PriorityClass::Batch,
        Resource::Cpu | Resource::Memory => return None,
    };
    (pod.priority_class == Some(class))
        .then(|| pod.sum_requests(resource.name()))
        .filter(|amount| *amount > 0)
}
