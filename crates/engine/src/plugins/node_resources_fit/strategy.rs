//! From how full a node would be to a score. Spec: scheduler-core 6.6; every division rounds as written there.

/// Which nodes are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The emptiest.
    LeastAllocated,
    /// The fullest.
    MostAllocated,
    /// By a curve through these points, ascending by utilization.
    RequestedToCapacityRatio(Vec<ShapePoint>),
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapePoint {
    /// 0 to 100.
    pub utilization: i64,
    /// 0 to 100: ten times what the configuration says.
    pub score: i64,
}

impl Strategy {
    /// The score of (requested with the pod, allocatable, weight) per resource; none counted is 0.
    pub fn score(&self, amounts: impl Iterator<Item = (i64, i64, i64)>) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (requested, allocatable, weight) in amounts {
            let score = self.one(requested, allocatable);
            // Only this strategy leaves a zero out of the mean.
            if matches!(self, Strategy::RequestedToCapacityRatio(_)) && score <= 0 {
                continue;
            }
            sum += score * weight;
            weights += weight;
        }
        match (weights, self) {
            (0, _) => 0,
            (_, Strategy::RequestedToCapacityRatio(_)) => (2 * sum + weights) / (2 * weights),
            _ => sum / weights,
        }
    }

    /// The score of one resource; `allocatable` is above 0.
    pub(crate) fn one(&self, requested: i64, allocatable: i64) -> i64 {
        let percent = |part: i64| match part.checked_mul(100) {
            Some(scaled) => scaled / allocatable,
            None => i64::try_from(i128::from(part) * 100 / i128::from(allocatable)).unwrap_or(i64::MAX),
        };
        match self {
            Strategy::LeastAllocated if requested > allocatable => 0,
            Strategy::LeastAllocated => percent(allocatable - requested),
            Strategy::MostAllocated => percent(requested.min(allocatable)),
            Strategy::RequestedToCapacityRatio(shape) => {
                curve(shape, if requested > allocatable { 100 } else { percent(requested) })
            }
        }
    }
}

/// Linear between points, flat outside.
fn curve(shape: &[ShapePoint], utilization: i64) -> i64 {
    let Some(at) = shape.iter().position(|point| utilization <= point.utilization) else {
        return shape.last().map_or(0, |point| point.score);
    };
    let point = shape[at];
    if at == 0 {
        return point.score;
    }
    let before = shape[at - 1];
    before.score
        + (point.score - before.score) * (utilization - before.utilization)
            / (point.utilization - before.utilization)
}
