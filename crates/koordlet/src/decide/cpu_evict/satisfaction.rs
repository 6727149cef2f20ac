//! Whether best-effort pods get enough of the CPU they request. Spec: koordlet-enforce 8.1.

use std::fmt;

use koord_api::crd::node_slo::{CpuEvictPolicy, ResourceThresholdStrategy};
use koord_api::number::{nearest, truncated};

/// A limit below one core is always used up: there is nothing left to wait for.
const SMALL_LIMIT_MILLI: f64 = 1000.0;

/// A checked configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub lower_percent: i64,
    pub upper_percent: i64,
    pub usage_percent: i64,
    pub is_by_allocatable: bool,
}

/// Upstream's words for a configuration that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("CPUEvictBESatisfactionLowerPercent or CPUEvictBESatisfactionUpperPercent not config")]
    Missing,
    #[error("CPUEvictBESatisfactionLowerPercent({0}) is not valid! must (0,60]")]
    Lower(i64),
    #[error("CPUEvictBESatisfactionUpperPercent({0}) is not valid,must (0,100)")]
    Upper(i64),
    #[error("CPUEvictBESatisfactionUpperPercent({upper}) < CPUEvictBESatisfactionLowerPercent({lower})")]
    Crossed { lower: i64, upper: i64 },
}

impl Config {
    pub fn new(strategy: &ResourceThresholdStrategy) -> Result<Config, ConfigError> {
        let (Some(lower), Some(upper)) = (
            strategy.cpu_evict_be_satisfaction_lower_percent,
            strategy.cpu_evict_be_satisfaction_upper_percent,
        ) else {
            return Err(ConfigError::Missing);
        };
        match (lower, upper) {
            (1..=60, 1..=99) if upper >= lower => {}
            (1..=60, 1..=99) => return Err(ConfigError::Crossed { lower, upper }),
            (1..=60, _) => return Err(ConfigError::Upper(upper)),
            _ => return Err(ConfigError::Lower(lower)),
        }
        Ok(Config {
            lower_percent: lower,
            upper_percent: upper,
            usage_percent: strategy.cpu_evict_be_usage_threshold_percent.unwrap_or(90),
            is_by_allocatable: strategy.cpu_evict_policy == Some(CpuEvictPolicy::EvictByAllocatable),
        })
    }
}

/// Seconds that averages are taken over.
pub fn window_seconds(strategy: &ResourceThresholdStrategy, collect_interval_seconds: i64) -> i64 {
    strategy.cpu_evict_time_window_seconds.unwrap_or(0).max(collect_interval_seconds)
}

/// What was measured of best-effort pods. Milli-cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    pub used: f64,
    pub requested: f64,
    /// What they could really use.
    pub real_limit: f64,
}

/// The readings of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub average: Reading,
    pub latest: Reading,
    /// Samples behind the averages, the least of the three series.
    pub samples: i64,
    pub interval_seconds: i64,
    pub seconds: i64,
}

/// How much is freed, or why nothing is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Release(Release),
    TooFewSamples,
    /// They do not use what they have.
    NotUsed,
    NothingRequested,
    Satisfied,
}

/// How much is freed, and the numbers that led to it. Milli-cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Release {
    pub milli: i64,
    /// What the averages and what the latest values ask for.
    pub by_average: i64,
    pub by_latest: i64,
    pub limit: f64,
    pub requested: f64,
    pub used: f64,
    pub config: Config,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Release { limit, requested, used, config, .. } = self;
        let Config { lower_percent, upper_percent, usage_percent, .. } = config;
        write!(
            f,
            "best-effort pods use {used:.0}m of {limit:.0}m, threshold {usage_percent} %, and request {requested:.0}m: \
             satisfied to {:.0} %, lower {lower_percent} %, upper {upper_percent} %",
            limit * 100.0 / requested
        )
    }
}

/// What best-effort pods must give back so that the rest gets enough.
///
/// `batch_allocatable` is the batch CPU that the node offers, in milli-cores.
pub fn verdict(config: &Config, window: &Window, batch_allocatable: Option<i64>) -> Verdict {
    if window.samples.saturating_mul(window.interval_seconds) < window.seconds / 3 {
        return Verdict::TooFewSamples;
    }
    let limit = |reading: &Reading| match batch_allocatable {
        _ if !config.is_by_allocatable => reading.real_limit,
        Some(0) => 1.0,
        Some(amount) if amount > 0 => nearest(amount),
        _ => -1.0,
    };
    let judge = |reading: &Reading| release(config, reading, limit(reading));
    let by_average = match judge(&window.average) {
        Ok(release) => release,
        Err(verdict) => return verdict,
    };
    let is_same = window.latest.requested == window.average.requested
        && limit(&window.latest) == limit(&window.average);
    let by_latest = match judge(&window.latest) {
        Ok(release) => release,
        Err(verdict) if !is_same || verdict == Verdict::NotUsed => return verdict,
        Err(_) => by_average,
    };
    Verdict::Release(Release {
        milli: if is_same { by_average } else { by_average.min(by_latest) },
        by_average,
        by_latest,
        limit: limit(&window.average),
        requested: window.average.requested,
        used: window.average.used,
        config: *config,
    })
}

/// request · (upper − limit/request), worked out without dividing.
fn release(config: &Config, reading: &Reading, limit: f64) -> Result<i64, Verdict> {
    let percent = |percent: i64, amount: f64| nearest(percent) * amount / 100.0;
    let is_used =
        limit > 0.0 && (limit < SMALL_LIMIT_MILLI || reading.used >= percent(config.usage_percent, limit));
    if !is_used {
        return Err(Verdict::NotUsed);
    }
    if reading.requested <= 0.0 {
        return Err(Verdict::NothingRequested);
    }
    if limit > percent(config.lower_percent, reading.requested) {
        return Err(Verdict::Satisfied);
    }
    match truncated(percent(config.upper_percent, reading.requested) - limit) {
        release if release > 0 => Ok(release),
        _ => Err(Verdict::Satisfied),
    }
}
