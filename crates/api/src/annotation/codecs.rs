//! Every annotation codec in one table, for tools that check texts and for fuzzing.

use super::*;

/// One annotation key and what can be said about it without knowing its type.
#[derive(Clone, Copy)]
pub struct Codec {
    pub key: &'static str,
    pub old_key: Option<&'static str>,
    pub empty: Empty,
    pub on_error: OnError,
    /// Reads a text and writes it again; none when the text counts as absent.
    pub canonical: fn(&str) -> Result<Option<String>, AnnotationError>,
}

const fn codec<T: Annotation>() -> Codec {
    Codec {
        key: T::KEY,
        old_key: T::OLD_KEY,
        empty: T::EMPTY,
        on_error: T::ON_ERROR,
        canonical: |text| Ok(read_text::<T>(T::KEY, text)?.map(|value| value.text())),
    }
}

/// All typed annotations, by family.
pub const CODECS: &[Codec] = &[
    codec::<cpu::ResourceSpec>(),
    codec::<cpu::ResourceStatus>(),
    codec::<cpu::NumaTopologySpec>(),
    codec::<node_topology::CpuTopologyReport>(),
    codec::<node_topology::CpuSharedPools>(),
    codec::<node_topology::BeCpuSharedPools>(),
    codec::<node_topology::PodCpuAllocs>(),
    codec::<node_topology::KubeletCpuManagerPolicy>(),
    codec::<node_topology::CpuBasicInfo>(),
    codec::<node_reservation::NodeReservation>(),
    codec::<node::SystemQosResource>(),
    codec::<crate::slo::ColocationStrategy>(),
    codec::<node::NetworkBandwidth>(),
    codec::<node::RawAllocatable>(),
    codec::<node::OriginExtendedAllocatable>(),
    codec::<node::ThirdPartyAllocations>(),
    codec::<ratio::CpuNormalizationRatio>(),
    codec::<ratio::AmplificationRatios>(),
    codec::<device::DeviceAllocations>(),
    codec::<device::DeviceAllocateHints>(),
    codec::<device::DeviceJointAllocate>(),
    codec::<device::GpuPartitionSpec>(),
    codec::<device::GpuPartitions>(),
    codec::<reservation::ReservationAllocated>(),
    codec::<reservation::ReservationAffinity>(),
    codec::<reservation::RestrictedOptions>(),
    codec::<reservation::ExactMatch>(),
    codec::<reservation::ReservationOwners>(),
    codec::<reservation::ReservationCurrentOwner>(),
    codec::<reservation::ResizeAllocatable>(),
    codec::<eviction::EvictionCost>(),
    codec::<eviction::EvictionPriority>(),
    codec::<eviction::SoftEviction>(),
    codec::<eviction::EvictionPolicy>(),
    codec::<scheduling_hint::SchedulingHint>(),
    codec::<scheduling_hint::NetworkTopologySpec>(),
    codec::<quota::SharedWeight>(),
    codec::<quota::Runtime>(),
    codec::<quota::Request>(),
    codec::<quota::ChildRequest>(),
    codec::<quota::Guaranteed>(),
    codec::<quota::Allocated>(),
    codec::<quota::NonPreemptibleRequest>(),
    codec::<quota::NonPreemptibleUsed>(),
    codec::<quota::TotalResource>(),
    codec::<quota::UnschedulableResource>(),
    codec::<quota::Admission>(),
    codec::<quota::Namespaces>(),
    codec::<quota::ResourceKeys>(),
    codec::<quota::MaxStrictCheckResourceKeys>(),
    codec::<node_side::ExtendedResourceSpec>(),
    codec::<node_side::PodCpuBurst>(),
    codec::<node_side::PodMemoryQos>(),
    codec::<node_side::PodCpuQos>(),
    codec::<node_side::PodBlkioQos>(),
    codec::<node_side::PodResctrl>(),
    codec::<node_side::OomScoreAdj>(),
    codec::<node_side::OomScoreAdjSpec>(),
    codec::<node_side::ReplaceResources>(),
    codec::<network::PodNetworkQos>(),
    codec::<load_aware::UsageThresholds>(),
    codec::<load_aware::EstimatedScalingFactors>(),
    codec::<load_aware::EstimatedAfterPodScheduled>(),
    codec::<load_aware::EstimatedAfterInitialized>(),
];
