//! Arguments of plugins, checked: defaults filled in, units typed, nothing left to verify.
//!
//! One file for each family. `Default` is what a plugin gets when a configuration is silent.

mod affinity;
mod cpu;
mod device;
mod fit;
mod gang;
mod hint;
mod load_aware;
mod preemption;
mod quota;
mod reservation;

mod spread;
mod taint;
mod volume;

pub use affinity::{InterPodAffinityArgs, NodeAffinityArgs};
pub use cpu::{CpuBindDefault, NodeNumaResourceArgs};
pub use device::{DeviceShareArgs, GpuModel, GpuTemplates};
pub use fit::{
    Allocation, BalancedAllocationArgs, FitPlusResource, NodeResourcesFitArgs, NodeResourcesFitPlusArgs,
    ResourceWeight, Scoring, Shape, ShapePoint, Strategy,
};
pub use gang::CoschedulingArgs;
pub use hint::{ScarceResourceAvoidanceArgs, SchedulingHintArgs};
pub use load_aware::{Aggregated, LoadAwareSchedulingArgs, Percents};
pub use preemption::{CandidateLimits, DefaultPreemptionArgs};
pub use quota::{ElasticQuotaArgs, HookPlugin};
pub use reservation::{PreAllocation, ReservationArgs, SelectorIndex};
pub use spread::{DefaultConstraints, PodTopologySpreadArgs};
pub use taint::TaintTolerationArgs;
pub use volume::VolumeBindingArgs;

/// The arguments of every plugin that takes some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Args {
    pub default_preemption: DefaultPreemptionArgs,
    pub inter_pod_affinity: InterPodAffinityArgs,
    pub node_affinity: NodeAffinityArgs,
    pub node_resources_fit: NodeResourcesFitArgs,
    pub balanced_allocation: BalancedAllocationArgs,
    pub pod_topology_spread: PodTopologySpreadArgs,
    pub taint_toleration: TaintTolerationArgs,
    pub volume_binding: VolumeBindingArgs,
    pub load_aware_scheduling: LoadAwareSchedulingArgs,
    pub node_numa_resource: NodeNumaResourceArgs,
    pub reservation: ReservationArgs,
    pub device_share: DeviceShareArgs,
    pub coscheduling: CoschedulingArgs,
    pub elastic_quota: ElasticQuotaArgs,
    pub node_resources_fit_plus: NodeResourcesFitPlusArgs,
    pub scarce_resource_avoidance: ScarceResourceAvoidanceArgs,
    pub scheduling_hint: SchedulingHintArgs,
}

/// From 0 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    pub fn new(value: i64) -> Option<Percent> {
        u8::try_from(value).ok().filter(|value| *value <= 100).map(Percent)
    }

    pub fn get(self) -> i64 {
        i64::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_is_from_0_to_100() {
        for (value, want) in [(-1, None), (0, Some(0)), (100, Some(100)), (101, None), (256, None)] {
            assert_eq!(Percent::new(value).map(Percent::get), want, "{value}");
        }
    }
}
