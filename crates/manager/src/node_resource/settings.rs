//! The colocation strategy of a node with nothing left open. Spec: manager 2.2, 2.4.

use jiff::SignedDuration;
use koord_api::slo::ColocationStrategy;
use koord_api::slo::colocation::CalculatePolicy;
use koord_api::slo::defaults;

/// A [`ColocationStrategy`] as the formulas read it. Percentages are as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub is_enabled: bool,
    pub cpu_reclaim_percent: i64,
    pub memory_reclaim_percent: i64,
    pub cpu_policy: CalculatePolicy,
    pub memory_policy: CalculatePolicy,
    /// How old a report may be.
    pub degrade_after: SignedDuration,
    /// How old what stands on the node may be.
    pub refresh_after: SignedDuration,
    /// A fraction: by how much a value must move to be written before that.
    pub diff_threshold: f64,
    pub batch_cpu_cap_percent: Option<i64>,
    pub batch_memory_cap_percent: Option<i64>,
    /// Over how long the highest demand counts; none is upstream's behaviour.
    pub stabilization: Option<SignedDuration>,
    pub mid_mode: MidMode,
    pub mid_cpu_cap_percent: i64,
    pub mid_memory_cap_percent: i64,
}

/// Where mid resources come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MidMode {
    /// What prod pods are predicted not to need, and a part of what nobody has requested.
    Dynamic { unallocated_percent: i64 },
    /// A fixed part of the node.
    Static { cpu_percent: i64, memory_percent: i64 },
}

impl From<&ColocationStrategy> for Settings {
    fn from(strategy: &ColocationStrategy) -> Settings {
        let default = defaults::colocation();
        let number = |own: Option<i64>, default: Option<i64>| own.or(default).unwrap_or_default();
        let seconds = |own, default| SignedDuration::from_secs(number(own, default));
        let policy = |policy: &Option<CalculatePolicy>| policy.clone().unwrap_or(CalculatePolicy::Usage);
        let degrade_minutes = number(strategy.degrade_time_minutes, default.degrade_time_minutes);
        let mid_mode = match strategy.mid_reclaim_mode.as_deref() {
            Some("static") => MidMode::Static {
                cpu_percent: strategy.mid_static_cpu_reserved_percent.unwrap_or_default(),
                memory_percent: strategy.mid_static_memory_reserved_percent.unwrap_or_default(),
            },
            _ => MidMode::Dynamic {
                unallocated_percent: number(
                    strategy.mid_unallocated_percent,
                    default.mid_unallocated_percent,
                ),
            },
        };
        Settings {
            is_enabled: strategy.enable == Some(true),
            cpu_reclaim_percent: number(
                strategy.cpu_reclaim_threshold_percent,
                default.cpu_reclaim_threshold_percent,
            ),
            memory_reclaim_percent: number(
                strategy.memory_reclaim_threshold_percent,
                default.memory_reclaim_threshold_percent,
            ),
            cpu_policy: policy(&strategy.cpu_calculate_policy),
            memory_policy: policy(&strategy.memory_calculate_policy),
            degrade_after: SignedDuration::from_secs(degrade_minutes.saturating_mul(60)),
            refresh_after: seconds(
                strategy.update_time_threshold_seconds,
                default.update_time_threshold_seconds,
            ),
            diff_threshold: strategy
                .resource_diff_threshold
                .or(default.resource_diff_threshold)
                .unwrap_or_default(),
            batch_cpu_cap_percent: strategy.batch_cpu_threshold_percent,
            batch_memory_cap_percent: strategy.batch_memory_threshold_percent,
            stabilization: strategy
                .batch_stabilization_window_seconds
                .filter(|seconds| *seconds > 0)
                .map(SignedDuration::from_secs),
            mid_mode,
            mid_cpu_cap_percent: number(
                strategy.mid_cpu_threshold_percent,
                default.mid_cpu_threshold_percent,
            ),
            mid_memory_cap_percent: number(
                strategy.mid_memory_threshold_percent,
                default.mid_memory_threshold_percent,
            ),
        }
    }
}
