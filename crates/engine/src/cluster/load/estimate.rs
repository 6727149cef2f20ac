//! What a pod is expected to use, from what it asks for. Spec: B2.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use koord_api::annotation::load_aware::{
    EstimatedAfterInitialized, EstimatedAfterPodScheduled, EstimatedScalingFactors,
};
use koord_api::annotation::{Annotation, read};
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY, CPU, MEMORY};
use koord_api::priority::{PriorityClass, class_with_default, resource_name};
use koord_api::resource::{ResourceTable, ResourceVector};

use super::settings::Settings;
use crate::number::{nearest, truncated};
use crate::requests;

/// A pod that asks for nothing is expected to use this much.
const CPU_ASSUMED_MILLI: i64 = 250;
const MEMORY_ASSUMED_BYTES: i64 = 200 << 20;

/// Amounts are kept within this, so that sums over a node stay exact: more than any node has of anything.
pub(super) const AMOUNT_MAX: i64 = 1 << 50;

/// What load-aware scheduling wants to know of pods of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodLoad {
    /// Some owner is a DaemonSet.
    pub is_daemon: bool,
    priority: Option<PriorityClass>,
    limits: ResourceVector,
    custom: Custom,
    /// One for each book.
    estimates: Box<[Estimate]>,
}

/// What pods may say for themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Custom {
    /// Percent by resource, ascending by name.
    factors: Box<[(Box<str>, i64)]>,
    /// Seconds.
    after_scheduled: Option<i64>,
    after_initialized: Option<i64>,
}

/// What a pod is expected to use by the settings of one book.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Estimate {
    /// One for each resource of the book.
    pub(super) amounts: Box<[i64]>,
    /// Seconds for which the estimate counts whatever is measured; none is off.
    pub(super) after_scheduled: Option<i64>,
    pub(super) after_initialized: Option<i64>,
}

impl PodLoad {
    /// Reads a pod that asks for these amounts.
    pub(crate) fn of(
        pod: &core::Pod,
        requested: &ResourceVector,
        table: &mut ResourceTable,
        books: &[Arc<Settings>],
    ) -> PodLoad {
        let owners = pod.metadata.owner_references.iter().flatten();
        let custom =
            if books.iter().any(|book| book.allows_custom) { custom(pod) } else { Custom::default() };
        let mut load = PodLoad {
            is_daemon: owners.into_iter().any(|owner| owner.kind == "DaemonSet"),
            priority: class_with_default(pod),
            limits: requests::limits(pod, table),
            custom,
            estimates: Box::default(),
        };
        load.estimate(requested, table, books);
        load
    }

    /// Estimates again, for a pod that asks for other amounts.
    pub(crate) fn estimate(
        &mut self,
        requested: &ResourceVector,
        table: &ResourceTable,
        books: &[Arc<Settings>],
    ) {
        self.estimates = books.iter().map(|book| self.by(book, requested, table)).collect();
    }

    pub fn is_prod(&self) -> bool {
        self.priority == Some(PriorityClass::Prod)
    }

    pub(super) fn in_book(&self, number: usize) -> Option<&Estimate> {
        self.estimates.get(number)
    }

    /// What a book with this number expects, one amount for each of its resources.
    pub fn amounts(&self, number: usize) -> &[i64] {
        self.in_book(number).map_or(&[], |estimate| &estimate.amounts)
    }

    fn by(&self, book: &Settings, requested: &ResourceVector, table: &ResourceTable) -> Estimate {
        let custom = Some(&self.custom).filter(|_| book.allows_custom);
        let own_factor = |name: &str| {
            let factors = &custom?.factors;
            factors.binary_search_by(|(known, _)| (**known).cmp(name)).ok().map(|at| factors[at].1)
        };
        let amounts = book.names.iter().zip(&book.factors).map(|(name, factor)| {
            let factor = own_factor(name).or(*factor)?;
            let real_name = resource_name(self.priority, name)?;
            let of = |amounts: &ResourceVector| table.id(real_name).map_or(0, |id| amounts.get(id));
            Some(expected(real_name, of(requested), of(&self.limits), factor))
        });
        let lasting = |own: Option<i64>, given: Option<i64>| {
            own.filter(|seconds| *seconds >= 0).or(given).filter(|seconds| *seconds > 0)
        };
        Estimate {
            amounts: amounts.map(|amount| amount.unwrap_or(0)).collect(),
            after_scheduled: lasting(custom.and_then(|c| c.after_scheduled), book.after_scheduled),
            after_initialized: lasting(custom.and_then(|c| c.after_initialized), book.after_initialized),
        }
    }
}

/// The larger of request and limit, by its factor, at most the limit.
fn expected(name: &str, request: i64, limit: i64, factor: i64) -> i64 {
    let amount = request.max(limit);
    if amount <= 0 {
        return match name {
            CPU | BATCH_CPU => CPU_ASSUMED_MILLI,
            MEMORY | BATCH_MEMORY => MEMORY_ASSUMED_BYTES,
            _ => 0,
        };
    }
    let scaled = truncated((nearest(amount) * nearest(factor) / 100.0).round());
    let capped = if limit > 0 { scaled.min(limit) } else { scaled };
    capped.clamp(-AMOUNT_MAX, AMOUNT_MAX)
}

/// What cannot be read counts as absent.
fn custom(pod: &core::Pod) -> Custom {
    fn own<T: Annotation>(pod: &core::Pod) -> Option<T> {
        read::<T>(pod.metadata.annotations.as_ref()).ok().flatten()
    }
    let factors = own::<EstimatedScalingFactors>(pod).map(|given| given.0).unwrap_or_default();
    Custom {
        factors: factors.into_iter().map(|(name, percent)| (name.into(), percent)).collect(),
        after_scheduled: own::<EstimatedAfterPodScheduled>(pod).map(|given| given.0),
        after_initialized: own::<EstimatedAfterInitialized>(pod).map(|given| given.0),
    }
}
