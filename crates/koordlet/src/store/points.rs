//! What a query answers: points of time and value, and the numbers that sum them up. Spec: koordlet-observe 4.4.

use koord_api::number::{nearest, truncated};

/// Times from `start_ms` to `end_ms`, both included, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub start_ms: i64,
    pub end_ms: i64,
}

impl Window {
    /// The time that ends at `end_ms` and is so long.
    pub fn before(end_ms: i64, length: std::time::Duration) -> Window {
        let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Window { start_ms: end_ms.saturating_sub(length), end_ms }
    }

    pub(super) fn has(&self, at_ms: i64) -> bool {
        (self.start_ms..=self.end_ms).contains(&at_ms)
    }
}

/// How many values become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aggregate {
    Avg,
    P50,
    P90,
    P95,
    P99,
    Last,
    Count,
}

impl Aggregate {
    /// An unknown name is the average, as upstream.
    pub fn parse(name: &str) -> Aggregate {
        match name {
            "p50" => Aggregate::P50,
            "p90" => Aggregate::P90,
            "p95" => Aggregate::P95,
            "p99" => Aggregate::P99,
            "last" => Aggregate::Last,
            "count" => Aggregate::Count,
            _ => Aggregate::Avg,
        }
    }
}

/// Why points have no such number. Upstream's texts.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum AggregateError {
    #[error("metric input is empty")]
    Empty,
    #[error("metrics percentile must be a fixed-point number between 0.001 to 1.000, {0} is illegal")]
    Percentile(f32),
}

/// Points of one or several series. May be kept and filled again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points {
    pub(super) points: Vec<(i64, f64)>,
}

impl Points {
    pub fn count(&self) -> usize {
        self.points.len()
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// In order of time within each series.
    pub fn iter(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        self.points.iter().copied()
    }

    /// Milliseconds from the oldest to the newest point; 0 when there is at most one.
    pub fn span_ms(&self) -> i64 {
        // Differs: upstream tells the span of the series that was added last.
        let times = || self.points.iter().map(|(at, _)| *at);
        times().max().zip(times().min()).map_or(0, |(newest, oldest)| newest.saturating_sub(oldest))
    }

    pub fn value(&self, aggregate: Aggregate) -> Result<f64, AggregateError> {
        match aggregate {
            Aggregate::Avg => self.average(),
            Aggregate::P50 => self.percentile(0.5),
            Aggregate::P90 => self.percentile(0.9),
            Aggregate::P95 => self.percentile(0.95),
            Aggregate::P99 => self.percentile(0.99),
            Aggregate::Last => self.last(),
            Aggregate::Count => Ok(nearest(i64::try_from(self.points.len()).unwrap_or(i64::MAX))),
        }
    }

    pub fn average(&self) -> Result<f64, AggregateError> {
        if self.points.is_empty() {
            return Err(AggregateError::Empty);
        }
        let sum: f64 = self.points.iter().map(|(_, value)| value).sum();
        Ok(sum / nearest(i64::try_from(self.points.len()).unwrap_or(i64::MAX)))
    }

    /// The value of the newest point; of equally new ones, the first.
    pub fn last(&self) -> Result<f64, AggregateError> {
        let newer = |best: Option<(i64, f64)>, point: &(i64, f64)| match best {
            Some(best) if best.0 >= point.0 => Some(best),
            _ => Some(*point),
        };
        self.points.iter().fold(None, newer).map(|(_, value)| value).ok_or(AggregateError::Empty)
    }

    /// `part` from 0.001 to 1, with three decimals at most.
    pub fn percentile(&self, part: f32) -> Result<f64, AggregateError> {
        let thousandths = f64::from(part) * 1000.0;
        // A third decimal as f32 is off by less than this, a fourth one by more.
        let is_fixed_point = (thousandths - thousandths.round()).abs() < 1e-3;
        if !(0.001..=1.0).contains(&part) || !is_fixed_point {
            return Err(AggregateError::Percentile(part));
        }
        if self.points.is_empty() {
            return Err(AggregateError::Empty);
        }
        let mut values: Vec<f64> = self.points.iter().map(|(_, value)| *value).collect();
        let at = place(values.len(), part);
        let (_, value, _) = values.select_nth_unstable_by(at, f64::total_cmp);
        Ok(*value)
    }
}

/// Where a percentile stands among so many sorted values. Multiplied as f32, as upstream does: the result differs.
#[expect(clippy::cast_precision_loss, reason = "counts of points are exact in f32")]
fn place(count: usize, part: f32) -> usize {
    let index = truncated(f64::from(count as f32 * part)).saturating_sub(1);
    usize::try_from(index).unwrap_or(0).min(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Points {
        Points { points: (0..).zip(values.iter().copied()).collect() }
    }

    #[test]
    fn percentiles() {
        let seven = points(&[5.0, 1.0, 9.0, 3.0, 7.0, 11.0, 13.0]);
        // koordlet-observe#13.1.A1
        assert_eq!(seven.value(Aggregate::P90), Ok(11.0));
        // koordlet-observe#13.1.A2
        assert_eq!(seven.value(Aggregate::P50), Ok(5.0));
        // koordlet-observe#13.1.A3
        for aggregate in [Aggregate::P50, Aggregate::P90, Aggregate::P95, Aggregate::P99] {
            assert_eq!(points(&[42.0]).value(aggregate), Ok(42.0));
        }
        // koordlet-observe#13.1.A4
        assert_eq!(points(&[8.0, 6.0]).value(Aggregate::P99), Ok(6.0));
    }

    #[test]
    fn places_of_percentiles() {
        for (key, count, want) in [
            ("koordlet-observe#13.1.A5", 10, [4, 8, 8, 8]),
            ("koordlet-observe#13.1.A6", 20, [9, 17, 18, 18]),
            ("koordlet-observe#13.1.A7", 60, [29, 53, 56, 58]),
            ("koordlet-observe#13.1.A8", 100, [49, 89, 94, 98]),
            ("koordlet-observe#13.1.A9", 300, [149, 269, 284, 296]),
            ("koordlet-observe#13.1.A10", 1800, [899, 1619, 1709, 1781]),
            ("koordlet-observe#13.1.A16", 3, [0, 1, 1, 1]),
            ("A16", 7, [2, 5, 5, 5]),
            ("A16", 40, [19, 35, 37, 38]),
            ("A16", 200, [99, 179, 189, 197]),
            ("A16", 600, [299, 539, 569, 593]),
            ("A16", 1000, [499, 899, 949, 989]),
        ] {
            assert_eq!([0.5, 0.9, 0.95, 0.99].map(|part| place(count, part)), want, "{key} {count}");
        }
    }

    #[test]
    fn empty_and_odd_questions() {
        // koordlet-observe#13.1.A11
        let none = Points::default();
        assert_eq!(none.value(Aggregate::Avg).unwrap_err().to_string(), "metric input is empty");
        assert_eq!(none.value(Aggregate::Count), Ok(0.0));
        assert_eq!(
            (none.last(), none.percentile(0.5)),
            (Err(AggregateError::Empty), Err(AggregateError::Empty))
        );
        // koordlet-observe#13.1.A12
        let mixed = Points { points: vec![(1, 5.0), (3, 7.0), (2, 9.0)] };
        assert_eq!((mixed.last(), mixed.span_ms(), mixed.count()), (Ok(7.0), 2, 3));
        // koordlet-observe#13.1.A22
        assert_eq!(Points { points: vec![(3, 5.0), (3, 7.0)] }.last(), Ok(5.0));
        assert_eq!(points(&[1.0, 2.0]).value(Aggregate::parse("foo")), Ok(1.5));
        // koordlet-observe#13.1.A23
        for part in [0.001, 0.999, 1.0] {
            assert!(points(&[1.0]).percentile(part).is_ok(), "{part}");
        }
        for part in [0.0, 0.0005, 0.1234, 1.5, -0.5, f32::NAN] {
            assert!(matches!(points(&[1.0]).percentile(part), Err(AggregateError::Percentile(_))), "{part}");
        }
        let fault = points(&[1.0]).percentile(1.5).unwrap_err().to_string();
        assert_eq!(
            fault,
            "metrics percentile must be a fixed-point number between 0.001 to 1.000, 1.5 is illegal"
        );
    }
}
