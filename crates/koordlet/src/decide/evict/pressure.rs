//! Too much of the node in use: from which percent on, and how much to free. Spec: koordlet-enforce 8.2, 9.

use std::fmt;

use crate::decide::convert::percent_trunc;

/// Whole percents of what the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    pub threshold: i64,
    /// Eviction goes down to this.
    pub lower: i64,
}

/// How much is freed, and the numbers that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub amount: i64,
    pub used_percent: i64,
    pub capacity: i64,
    pub pressure: Pressure,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Release { used_percent, capacity, pressure: Pressure { threshold, lower }, .. } = self;
        write!(f, "the node uses {used_percent} % of {capacity}, threshold {threshold} %, lower {lower} %")
    }
}

/// Upstream's words for a threshold that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PressureError {
    #[error("threshold percent is nil")]
    NoThreshold,
    #[error("threshold percent({0}) should equal or greater than 0")]
    Negative(i64),
    #[error("lower percent({lower}) should less than threshold percent({threshold})")]
    LowerNotBelow { lower: i64, threshold: i64 },
    #[error("{0} not config")]
    NotConfigured(&'static str),
    #[error("priorityThresholdPercent({0}) should less than 7999, koor-prod pods should not be killed")]
    PriorityOfProd(i32),
}

impl Pressure {
    /// Without a lower bound it is two percent below the threshold.
    pub fn new(threshold: Option<i64>, lower: Option<i64>) -> Result<Pressure, PressureError> {
        let threshold = threshold.ok_or(PressureError::NoThreshold)?;
        if threshold < 0 {
            return Err(PressureError::Negative(threshold));
        }
        let lower = lower.unwrap_or(threshold - 2);
        if lower >= threshold {
            return Err(PressureError::LowerNotBelow { lower, threshold });
        }
        Ok(Pressure { threshold, lower })
    }

    /// What must be freed; none below the threshold.
    pub fn release(self, used: i64, capacity: i64) -> Option<Release> {
        if capacity <= 0 {
            return None;
        }
        let used_percent = i64::try_from(i128::from(used) * 100 / i128::from(capacity)).unwrap_or(i64::MAX);
        if used_percent < self.threshold {
            return None;
        }
        let amount = percent_trunc(capacity, used_percent.saturating_sub(self.lower));
        Some(Release { amount, used_percent, capacity, pressure: self })
    }
}
