//! What holds where nobody configured anything. Spec: api 7.3 to 7.7.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::colocation::{CalculatePolicy, ColocationStrategy};
use crate::crd::node_metric::AggregatePolicy;
use crate::crd::node_slo::{
    BlkioQos, CpuBurstPolicy, CpuBurstStrategy, CpuEvictPolicy, CpuPolicy, CpuQos, CpuSuppressPolicy,
    MemoryQos, NetQosPolicy, NetworkQos, ResctrlQos, ResourceQos, ResourceQosPolicies, ResourceQosStrategy,
    ResourceThresholdStrategy,
};
use crate::duration::GoDuration;

/// Nanoseconds of a minute.
const MINUTE: i64 = 60_000_000_000;

pub fn colocation() -> ColocationStrategy {
    let durations = [5, 10, 30].map(|minutes| GoDuration(minutes * MINUTE)).to_vec();
    ColocationStrategy {
        enable: Some(false),
        metric_aggregate_duration_seconds: Some(300),
        metric_report_interval_seconds: Some(60),
        metric_aggregate_policy: Some(AggregatePolicy { durations }),
        metric_memory_collect_policy: Some("usageWithoutPageCache".to_owned()),
        cpu_reclaim_threshold_percent: Some(60),
        cpu_calculate_policy: Some(CalculatePolicy::Usage),
        memory_reclaim_threshold_percent: Some(65),
        memory_calculate_policy: Some(CalculatePolicy::Usage),
        degrade_time_minutes: Some(15),
        update_time_threshold_seconds: Some(300),
        resource_diff_threshold: Some(0.1),
        mid_cpu_threshold_percent: Some(100),
        mid_memory_threshold_percent: Some(100),
        mid_unallocated_percent: Some(0),
        mid_static_cpu_reserved_percent: Some(0),
        mid_static_memory_reserved_percent: Some(0),
        ..ColocationStrategy::default()
    }
}

pub fn threshold() -> ResourceThresholdStrategy {
    ResourceThresholdStrategy {
        enable: Some(false),
        cpu_suppress_threshold_percent: Some(65),
        cpu_suppress_policy: Some(CpuSuppressPolicy::Cpuset),
        memory_evict_threshold_percent: Some(70),
        cpu_evict_policy: Some(CpuEvictPolicy::EvictByRealLimit),
        ..ResourceThresholdStrategy::default()
    }
}

pub fn burst() -> CpuBurstStrategy {
    CpuBurstStrategy {
        policy: Some(CpuBurstPolicy::None),
        cpu_burst_percent: Some(1000),
        cfs_quota_burst_percent: Some(300),
        cfs_quota_burst_period_seconds: Some(-1),
        share_pool_threshold_percent: Some(50),
    }
}

/// What koordlet lays below the NodeSLO's `resourceQOSStrategy`.
pub fn qos() -> ResourceQosStrategy {
    let root = ResourceQos { blkio_qos: Some(blkio()), ..ResourceQos::default() };
    ResourceQosStrategy {
        policies: Some(ResourceQosPolicies {
            cpu_policy: Some(CpuPolicy::GroupIdentity),
            net_qos_policy: Some(NetQosPolicy::Tc),
        }),
        lsr_class: Some(class(cpu(2, true), resctrl(100), memory(95, 20, -25))),
        ls_class: Some(class(cpu(2, true), resctrl(100), memory(95, 20, -25))),
        be_class: Some(class(cpu(-1, false), resctrl(30), memory(95, 20, 50))),
        system_class: Some(class(cpu_none(), resctrl_none(), memory_none())),
        cgroup_root: Some(root),
    }
}

/// What replaces the values of a class whose cpuQOS is switched off.
pub fn cpu_none() -> CpuQos {
    cpu(0, false)
}

/// What replaces the values of a class whose resctrlQOS is switched off.
pub fn resctrl_none() -> ResctrlQos {
    resctrl(100)
}

/// What replaces the values of a class whose memoryQOS is switched off.
pub fn memory_none() -> MemoryQos {
    memory(0, 50, 0)
}

fn class(cpu: CpuQos, resctrl: ResctrlQos, memory: MemoryQos) -> ResourceQos {
    ResourceQos {
        cpu_qos: Some(cpu),
        memory_qos: Some(memory),
        blkio_qos: Some(blkio()),
        resctrl_qos: Some(resctrl),
        network_qos: Some(network()),
    }
}

fn cpu(group_identity: i64, core_expeller: bool) -> CpuQos {
    CpuQos {
        enable: Some(false),
        group_identity: Some(group_identity),
        sched_idle: Some(0),
        core_expeller: Some(core_expeller),
    }
}

fn resctrl(cat_range_end_percent: i64) -> ResctrlQos {
    ResctrlQos {
        enable: Some(false),
        cat_range_start_percent: Some(0),
        cat_range_end_percent: Some(cat_range_end_percent),
        mba_percent: Some(100),
    }
}

fn memory(wmark_ratio: i64, wmark_scale_permill: i64, wmark_min_adj: i64) -> MemoryQos {
    MemoryQos {
        enable: Some(false),
        min_limit_percent: Some(0),
        low_limit_percent: Some(0),
        throttling_percent: Some(0),
        wmark_ratio: Some(wmark_ratio),
        wmark_scale_permill: Some(wmark_scale_permill),
        wmark_min_adj: Some(wmark_min_adj),
        priority_enable: Some(0),
        priority: Some(0),
        oom_kill_group: Some(0),
        ..MemoryQos::default()
    }
}

fn blkio() -> BlkioQos {
    BlkioQos { enable: Some(false), blocks: Vec::new() }
}

fn network() -> NetworkQos {
    let zero = Some(IntOrString::Int(0));
    NetworkQos {
        enable: Some(false),
        ingress_request: zero.clone(),
        ingress_limit: zero.clone(),
        egress_request: zero.clone(),
        egress_limit: zero,
    }
}
