//! Ranges of fields, and pairs of which one must be above the other. Spec: api 7.3 to 7.7.
//!
//! Every fault is reported, under upstream's name of the field, at most one for each field.

use super::Faults;
use crate::crd::node_slo::{
    CpuBurstStrategy, CpuQos, MemoryQos, ResctrlQos, ResourceQos, ResourceQosStrategy,
    ResourceThresholdStrategy,
};
use crate::slo::colocation::ColocationStrategy;
use crate::slo::defaults;
use crate::slo::document::Document;
use crate::slo::strategy::{Strategy, SystemPartial, merge};

pub(super) fn colocation(document: &Document<ColocationStrategy>) -> Faults {
    let mut faults = Faults::new();
    let path = "ColocationCfg.ColocationStrategy".to_owned();
    colocation_fields(&document.cluster, Fields { path, faults: &mut faults });
    for (index, item) in document.nodes.iter().enumerate() {
        let path = format!("ColocationCfg.NodeConfigs[{index}].ColocationStrategy");
        colocation_fields(&item.strategy, Fields { path, faults: &mut faults });
    }
    faults
}

fn colocation_fields(strategy: &ColocationStrategy, mut fields: Fields<'_>) {
    fields.min("MetricAggregateDurationSeconds", strategy.metric_aggregate_duration_seconds, 1);
    fields.min("MetricReportIntervalSeconds", strategy.metric_report_interval_seconds, 1);
    fields.min("CPUReclaimThresholdPercent", strategy.cpu_reclaim_threshold_percent, 0);
    fields.min("MemoryReclaimThresholdPercent", strategy.memory_reclaim_threshold_percent, 0);
    fields.min("DegradeTimeMinutes", strategy.degrade_time_minutes, 1);
    fields.min("UpdateTimeThresholdSeconds", strategy.update_time_threshold_seconds, 1);
    match strategy.resource_diff_threshold {
        Some(value) if value <= 0.0 => fields.fault("ResourceDiffThreshold", "must be greater than 0"),
        Some(value) if value > 1.0 => fields.fault("ResourceDiffThreshold", "must be 1 or less"),
        _ => {}
    }
    fields.range("MidCPUThresholdPercent", strategy.mid_cpu_threshold_percent, 0, 100);
    fields.range("MidMemoryThresholdPercent", strategy.mid_memory_threshold_percent, 0, 100);
    fields.range("MidUnallocatedPercent", strategy.mid_unallocated_percent, 0, 100);
    fields.range("MidStaticCPUReservedPercent", strategy.mid_static_cpu_reserved_percent, 0, 100);
    fields.range("MidStaticMemoryReservedPercent", strategy.mid_static_memory_reserved_percent, 0, 100);
    fields.min("BatchCPUThresholdPercent", strategy.batch_cpu_threshold_percent, 0);
    fields.min("BatchMemoryThresholdPercent", strategy.batch_memory_threshold_percent, 0);
    fields.min("BatchStabilizationWindowSeconds", strategy.batch_stabilization_window_seconds, 0);
}

pub(super) fn threshold(document: &Document<ResourceThresholdStrategy>) -> Faults {
    let mut faults = Faults::new();
    let cluster = defaults::threshold().over(&document.cluster);
    let path = "ResourceThresholdCfg.ClusterStrategy".to_owned();
    threshold_fields(&document.cluster, &cluster, Fields { path, faults: &mut faults });
    for (index, item) in document.nodes.iter().enumerate() {
        let path = format!("ResourceThresholdCfg.NodeStrategies[{index}].ResourceThresholdStrategy");
        let merged = cluster.over(&item.strategy);
        threshold_fields(&item.strategy, &merged, Fields { path, faults: &mut faults });
    }
    faults
}

/// `merged` is what will hold where `own` is silent.
fn threshold_fields(
    own: &ResourceThresholdStrategy,
    merged: &ResourceThresholdStrategy,
    mut fields: Fields<'_>,
) {
    fields.range("CPUSuppressThresholdPercent", own.cpu_suppress_threshold_percent, 0, 100);
    fields.range("CPUSuppressMinPercent", own.cpu_suppress_min_percent, 0, 100);
    fields.range("MemoryEvictThresholdPercent", own.memory_evict_threshold_percent, 0, 100);
    fields.range("MemoryEvictLowerPercent", own.memory_evict_lower_percent, 0, 100);
    fields.min("MemoryAllocatableEvictThresholdPercent", own.memory_allocatable_evict_threshold_percent, 0);
    fields.min("MemoryAllocatableEvictLowerPercent", own.memory_allocatable_evict_lower_percent, 0);
    fields.range("CPUEvictBESatisfactionUpperPercent", own.cpu_evict_be_satisfaction_upper_percent, 0, 100);
    fields.range("CPUEvictBESatisfactionLowerPercent", own.cpu_evict_be_satisfaction_lower_percent, 0, 100);
    fields.range("CPUEvictBEUsageThresholdPercent", own.cpu_evict_be_usage_threshold_percent, 0, 100);
    fields.above_zero("CPUEvictTimeWindowSeconds", own.cpu_evict_time_window_seconds);
    fields.range("CPUEvictThresholdPercent", own.cpu_evict_threshold_percent, 0, 100);
    fields.range("CPUEvictLowerPercent", own.cpu_evict_lower_percent, 0, 100);
    fields.min("CPUAllocatableEvictThresholdPercent", own.cpu_allocatable_evict_threshold_percent, 0);
    fields.min("CPUAllocatableEvictLowerPercent", own.cpu_allocatable_evict_lower_percent, 0);
    let priority = own.allocatable_evict_priority_threshold.map(i64::from);
    fields.range("AllocatableEvictPriorityThreshold", priority, 0, 7999);
    threshold_pairs(own, merged, fields);
}

/// Differs: the missing half of a pair is what koordlet will use for it, where upstream refuses a
/// half alone (api 11, item 3). Without a fixed default koordlet stays below the upper half.
fn threshold_pairs(
    own: &ResourceThresholdStrategy,
    merged: &ResourceThresholdStrategy,
    mut fields: Fields<'_>,
) {
    fields.pair(
        Half(
            "MemoryEvictThresholdPercent",
            own.memory_evict_threshold_percent,
            merged.memory_evict_threshold_percent,
        ),
        Half("MemoryEvictLowerPercent", own.memory_evict_lower_percent, merged.memory_evict_lower_percent),
    );
    fields.pair(
        Half(
            "MemoryAllocatableEvictThresholdPercent",
            own.memory_allocatable_evict_threshold_percent,
            merged.memory_allocatable_evict_threshold_percent.or(Some(ALLOCATABLE_UPPER)),
        ),
        Half(
            "MemoryAllocatableEvictLowerPercent",
            own.memory_allocatable_evict_lower_percent,
            merged.memory_allocatable_evict_lower_percent.or(Some(ALLOCATABLE_LOWER)),
        ),
    );
    fields.pair(
        Half(
            "CPUEvictBESatisfactionUpperPercent",
            own.cpu_evict_be_satisfaction_upper_percent,
            merged.cpu_evict_be_satisfaction_upper_percent,
        ),
        Half(
            "CPUEvictBESatisfactionLowerPercent",
            own.cpu_evict_be_satisfaction_lower_percent,
            merged.cpu_evict_be_satisfaction_lower_percent,
        ),
    );
    fields.pair(
        Half("CPUEvictThresholdPercent", own.cpu_evict_threshold_percent, merged.cpu_evict_threshold_percent),
        Half("CPUEvictLowerPercent", own.cpu_evict_lower_percent, merged.cpu_evict_lower_percent),
    );
    fields.pair(
        Half(
            "CPUAllocatableEvictThresholdPercent",
            own.cpu_allocatable_evict_threshold_percent,
            merged.cpu_allocatable_evict_threshold_percent.or(Some(ALLOCATABLE_UPPER)),
        ),
        Half(
            "CPUAllocatableEvictLowerPercent",
            own.cpu_allocatable_evict_lower_percent,
            merged.cpu_allocatable_evict_lower_percent.or(Some(ALLOCATABLE_LOWER)),
        ),
    );
}

/// What koordlet uses for the thresholds over allocatable that nobody set. Spec: api 7.4.
const ALLOCATABLE_UPPER: i64 = 110;
const ALLOCATABLE_LOWER: i64 = 100;

pub(super) fn qos(document: &Document<ResourceQosStrategy>) -> Faults {
    let mut faults = Faults::new();
    let cluster: ResourceQosStrategy = merge(&defaults::qos(), &document.cluster);
    qos_classes(&document.cluster, &cluster, "ResourceQOSCfg.ClusterStrategy", &mut faults);
    for (index, item) in document.nodes.iter().enumerate() {
        let path = format!("ResourceQOSCfg.NodeStrategies[{index}].ResourceQOSStrategy");
        qos_classes(&item.strategy, &merge(&cluster, &item.strategy), &path, &mut faults);
    }
    faults
}

fn qos_classes(own: &ResourceQosStrategy, merged: &ResourceQosStrategy, path: &str, faults: &mut Faults) {
    for (name, own, merged) in [
        ("LSRClass", &own.lsr_class, &merged.lsr_class),
        ("LSClass", &own.ls_class, &merged.ls_class),
        ("BEClass", &own.be_class, &merged.be_class),
        ("SystemClass", &own.system_class, &merged.system_class),
        ("CgroupRoot", &own.cgroup_root, &merged.cgroup_root),
    ] {
        if let (Some(own), Some(merged)) = (own, merged) {
            qos_fields(own, merged, &format!("{path}.{name}"), faults);
        }
    }
}

/// The parts embed a struct of their own name, which shows twice in the path.
fn qos_fields(own: &ResourceQos, merged: &ResourceQos, path: &str, faults: &mut Faults) {
    if let Some(cpu) = &own.cpu_qos {
        cpu_fields(cpu, Fields { path: format!("{path}.CPUQOS.CPUQOS"), faults });
    }
    if let Some(memory) = &own.memory_qos {
        memory_fields(memory, Fields { path: format!("{path}.MemoryQOS.MemoryQOS"), faults });
    }
    if let (Some(own), Some(merged)) = (&own.resctrl_qos, &merged.resctrl_qos) {
        resctrl_fields(own, merged, Fields { path: format!("{path}.ResctrlQOS.ResctrlQOS"), faults });
    }
}

fn cpu_fields(cpu: &CpuQos, mut fields: Fields<'_>) {
    fields.range("GroupIdentity", cpu.group_identity, -1, 2);
    fields.range("SchedIdle", cpu.sched_idle, 0, 1);
}

fn memory_fields(memory: &MemoryQos, mut fields: Fields<'_>) {
    fields.range("MinLimitPercent", memory.min_limit_percent, 0, 100);
    fields.range("LowLimitPercent", memory.low_limit_percent, 0, 100);
    fields.range("ThrottlingPercent", memory.throttling_percent, 0, 100);
    fields.range("WmarkRatio", memory.wmark_ratio, 0, 100);
    fields.range("WmarkScalePermill", memory.wmark_scale_permill, 1, 1000);
    fields.range("WmarkMinAdj", memory.wmark_min_adj, -25, 50);
    fields.range("PriorityEnable", memory.priority_enable, 0, 1);
    fields.range("Priority", memory.priority, 0, 12);
    fields.range("OomKillGroup", memory.oom_kill_group, 0, 1);
    fields.range("PageCacheLimitPercent", memory.page_cache_limit_percent, 0, 100);
}

/// Differs: a missing end of the range is the default of the class, where upstream refuses one end
/// alone (api 10, row 178).
fn resctrl_fields(own: &ResctrlQos, merged: &ResctrlQos, mut fields: Fields<'_>) {
    fields.range("CATRangeStartPercent", own.cat_range_start_percent, 0, 100);
    fields.range("CATRangeEndPercent", own.cat_range_end_percent, 0, 100);
    fields.range("MBAPercent", own.mba_percent, 0, 100);
    let (start, end) = (merged.cat_range_start_percent, merged.cat_range_end_percent);
    fields.pair(
        Half("CATRangeEndPercent", own.cat_range_end_percent, end.or(Some(100))),
        Half("CATRangeStartPercent", own.cat_range_start_percent, start.or(Some(0))),
    );
}

pub(super) fn system(document: &Document<SystemPartial>) -> Faults {
    let mut faults = Faults::new();
    let path = "SystemCfg.ClusterStrategy".to_owned();
    system_fields(&document.cluster, Fields { path, faults: &mut faults });
    for (index, item) in document.nodes.iter().enumerate() {
        let path = format!("SystemCfg.NodeStrategies[{index}].SystemStrategy");
        system_fields(&item.strategy, Fields { path, faults: &mut faults });
    }
    faults
}

fn system_fields(system: &SystemPartial, mut fields: Fields<'_>) {
    fields.above_zero("MinFreeKbytesFactor", system.min_free_kbytes_factor);
    fields.above_zero("WatermarkScaleFactor", system.watermark_scale_factor);
    fields.max("WatermarkScaleFactor", system.watermark_scale_factor, 400);
    fields.range("MemcgReapBackGround", system.memcg_reap_back_ground, 0, 1);
    fields.range("PageCacheLimitEnabled", system.page_cache_limit_enabled, 0, 1);
}

pub(super) fn burst(document: &Document<CpuBurstStrategy>) -> Faults {
    let mut faults = Faults::new();
    burst_fields(&document.cluster, "CPUBurstCfg.ClusterStrategy", &mut faults);
    for (index, item) in document.nodes.iter().enumerate() {
        let path = format!("CPUBurstCfg.NodeStrategies[{index}].CPUBurstStrategy");
        burst_fields(&item.strategy, &path, &mut faults);
    }
    faults
}

fn burst_fields(burst: &CpuBurstStrategy, path: &str, faults: &mut Faults) {
    let mut fields = Fields { path: format!("{path}.CPUBurstConfig"), faults };
    fields.range("CPUBurstPercent", burst.cpu_burst_percent, 1, 10_000);
    fields.min("CFSQuotaBurstPercent", burst.cfs_quota_burst_percent, 100);
    fields.min("CFSQuotaBurstPeriodSeconds", burst.cfs_quota_burst_period_seconds, -1);
    let mut fields = Fields { path: path.to_owned(), faults };
    fields.range("SharePoolThresholdPercent", burst.share_pool_threshold_percent, 0, 100);
}

/// The fields of one struct, and what is wrong with them.
struct Fields<'a> {
    path: String,
    faults: &'a mut Faults,
}

/// Half of a pair: the field's name, its value here, and the value that will hold.
struct Half(&'static str, Option<i64>, Option<i64>);

impl Fields<'_> {
    fn range(&mut self, name: &str, value: Option<i64>, min: i64, max: i64) {
        self.min(name, value, min);
        self.max(name, value, max);
    }

    fn min(&mut self, name: &str, value: Option<i64>, min: i64) {
        if value.is_some_and(|value| value < min) {
            self.fault(name, &format!("must be {} or greater", with_commas(min)));
        }
    }

    fn max(&mut self, name: &str, value: Option<i64>, max: i64) {
        if value.is_some_and(|value| value > max) {
            self.fault(name, &format!("must be {} or less", with_commas(max)));
        }
    }

    fn above_zero(&mut self, name: &str, value: Option<i64>) {
        if value.is_some_and(|value| value <= 0) {
            self.fault(name, "must be greater than 0");
        }
    }

    /// Both halves that are given here are at fault when the upper is not above the lower.
    fn pair(&mut self, Half(upper, own_upper, high): Half, Half(lower, own_lower, low): Half) {
        let (Some(high), Some(low)) = (high, low) else { return };
        if high > low {
            return;
        }
        if own_upper.is_some() {
            self.fault(upper, &format!("must be greater than {lower}"));
        }
        if own_lower.is_some() {
            self.fault(lower, &format!("must be less than {upper}"));
        }
    }

    /// The first fault of a field stands.
    fn fault(&mut self, name: &str, text: &str) {
        let path = format!("{}.{name}", self.path);
        self.faults.entry(path).or_insert_with(|| format!("{name} {text}"));
    }
}

/// 7999 as `7,999`.
fn with_commas(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
