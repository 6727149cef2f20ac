//! Plugin arguments as files have them: field by field, all optional, defaults filled in later.
//!
//! Each family is a row of [`FAMILIES`] and a struct that says its defaults and what it refuses. The checked form is
//! in the engine. Spec: scheduler-core 7.3 and the argument tables of the other scheduler specs.

mod affinity;
mod device;
mod dynamic;
mod fit;
mod gang;
mod hint;
mod load_aware;
mod numa;
mod preemption;
mod quota;
mod reservation;
mod scarce;
mod spread;
mod taint;
mod volume;

#[cfg(test)]
mod tests;

use std::fmt;

use koord_api::gate::Gates;
use koord_engine::profile::args::Args;
use koord_kit::config::{Decoded, Document, Raw};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::field::Fault;

/// Arguments of one plugin.
pub(super) trait RawArgs: fmt::Debug {
    /// Fills in what the file does not say.
    fn set_defaults(&mut self, gates: &Gates);

    /// Puts the checked form in its place, or says everything that is wrong. `at` is the path of the arguments in
    /// the file, or empty.
    fn check(&self, at: &str, gates: &Gates, out: &mut Args) -> Vec<Fault>;

    /// As a file would have it, without version and kind.
    fn to_json(&self) -> Value;
}

/// When kube-scheduler looks at arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// With the file, whether or not the plugin is on.
    WithFile,
    /// When the plugin is built; paths then start at the arguments.
    WithPlugin,
}

/// The arguments that a plugin takes.
pub(super) struct Family {
    pub(super) plugin: &'static str,
    pub(super) checked: Checked,
    pub(super) empty: fn() -> Box<dyn RawArgs>,
    pub(super) decode: fn(&Document, &Raw) -> Decoded<Box<dyn RawArgs>>,
    /// Not shown where the file says nothing: kube-scheduler's plugin takes no arguments.
    pub(super) is_quiet: bool,
}

impl Family {
    const fn of<T: RawArgs + Default + DeserializeOwned + 'static>(
        plugin: &'static str,
        checked: Checked,
    ) -> Family {
        Family { plugin, checked, empty: || Box::new(T::default()), decode: decode::<T>, is_quiet: false }
    }

    const fn quiet(mut self) -> Family {
        self.is_quiet = true;
        self
    }

    /// The kind that a file gives them.
    pub(super) fn kind(&self) -> String {
        format!("{}Args", self.plugin)
    }
}

fn decode<T: RawArgs + DeserializeOwned + 'static>(
    document: &Document,
    raw: &Raw,
) -> Decoded<Box<dyn RawArgs>> {
    let Decoded { value, unknown } = document.decode_raw_noting_unknown::<T>(raw);
    Decoded { value: value.map(|args| -> Box<dyn RawArgs> { Box::new(args) }), unknown }
}

use Checked::{WithFile, WithPlugin};

pub(super) const FAMILIES: &[Family] = &[
    Family::of::<preemption::DefaultPreemptionArgs>("DefaultPreemption", WithFile),
    Family::of::<affinity::InterPodAffinityArgs>("InterPodAffinity", WithFile),
    Family::of::<affinity::NodeAffinityArgs>("NodeAffinity", WithFile),
    Family::of::<fit::NodeResourcesFitArgs>("NodeResourcesFit", WithPlugin),
    Family::of::<fit::BalancedAllocationArgs>("NodeResourcesBalancedAllocation", WithFile),
    Family::of::<spread::PodTopologySpreadArgs>("PodTopologySpread", WithFile),
    Family::of::<volume::VolumeBindingArgs>("VolumeBinding", WithFile),
    Family::of::<dynamic::DynamicResourcesArgs>("DynamicResources", WithFile),
    Family::of::<load_aware::LoadAwareSchedulingArgs>("LoadAwareScheduling", WithPlugin),
    Family::of::<numa::NodeNumaResourceArgs>("NodeNUMAResource", WithPlugin),
    Family::of::<reservation::ReservationArgs>("Reservation", WithPlugin),
    Family::of::<device::DeviceShareArgs>("DeviceShare", WithPlugin),
    Family::of::<gang::CoschedulingArgs>("Coscheduling", WithPlugin),
    Family::of::<quota::ElasticQuotaArgs>("ElasticQuota", WithPlugin),
    Family::of::<fit::NodeResourcesFitPlusArgs>("NodeResourcesFitPlus", WithPlugin),
    Family::of::<scarce::ScarceResourceAvoidanceArgs>("ScarceResourceAvoidance", WithPlugin),
    Family::of::<hint::SchedulingHintArgs>("SchedulingHint", WithPlugin),
    Family::of::<taint::TaintTolerationArgs>("TaintToleration", WithPlugin).quiet(),
];

pub(super) fn family(plugin: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.plugin == plugin)
}

/// The JSON of a struct of plain values, which cannot fail.
fn json(args: &impl Serialize) -> Value {
    serde_json::to_value(args).unwrap_or_default()
}

/// A list that the file may leave out.
fn listed<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}
