//! How often a value was seen, in buckets that grow, with weights that fade. Spec: koordlet-observe 9.2.
//!
//! Weights grow with time instead of old ones being lowered, so that adding a sample touches one bucket. An answer is
//! the upper bound of a bucket.

use koord_api::number::{nearest, truncated};

/// Each bucket is larger than the one before by this ratio.
const RATIO: f64 = 1.05;
/// A weight below this counts as none.
const EPSILON: f64 = 0.0001;
/// After so many half-lives weights are scaled down, before they grow out of a double.
const HALF_LIVES_MAX: i64 = 100;
/// The weight of the heaviest bucket in a checkpoint.
const CHECKPOINT_WEIGHT_MAX: f64 = 10_000.0;
/// Milliseconds from 0001-01-01 to 1970-01-01: multiples of a half-life are counted from there.
const EPOCH_MS: i64 = 62_135_596_800_000;

/// Where buckets begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Size of the first bucket.
    first: f64,
    buckets: usize,
}

impl Shape {
    /// In cores, from 25 milli-cores to 1024.
    pub fn cpu() -> Shape {
        Shape::new(1024.0, 0.025)
    }

    /// In bytes, from 5 MiB to 2 TiB.
    pub fn memory() -> Shape {
        Shape::new(2_199_023_255_552.0, 5_242_880.0)
    }

    fn new(max: f64, first: f64) -> Shape {
        let buckets = (steps(max, first).ceil() + 1.0).max(1.0);
        Shape { first, buckets: usize::try_from(truncated(buckets)).unwrap_or(1) }
    }

    pub fn buckets(self) -> usize {
        self.buckets
    }

    /// The bucket of a value. Negative values lie in the first, values beyond the end in the last.
    pub fn bucket(self, value: f64) -> usize {
        if value < self.first || value.is_nan() {
            return 0;
        }
        usize::try_from(truncated(steps(value, self.first))).unwrap_or(0).min(self.buckets - 1)
    }

    /// The least value of a bucket.
    pub fn start(self, bucket: usize) -> f64 {
        let power = nearest(i64::try_from(bucket).unwrap_or(i64::MAX));
        self.first * (RATIO.powf(power) - 1.0) / (RATIO - 1.0)
    }
}

/// How many buckets lie below a value.
fn steps(value: f64, first: f64) -> f64 {
    (value * (RATIO - 1.0) / first + 1.0).ln() / RATIO.ln()
}

/// Weights by bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    shape: Shape,
    half_life_ms: i64,
    /// The weight of a sample taken now is two to the number of half-lives since then. Unix milliseconds.
    reference_ms: i64,
    /// As many as the highest bucket ever used needs.
    weights: Vec<f64>,
    total: f64,
    /// The lowest and highest bucket with a weight that counts; the wrong way round when there is none.
    min: usize,
    max: usize,
}

impl Histogram {
    pub fn new(shape: Shape, half_life_ms: i64) -> Histogram {
        Histogram {
            shape,
            half_life_ms: half_life_ms.max(1),
            reference_ms: -EPOCH_MS,
            weights: Vec::new(),
            total: 0.0,
            min: shape.buckets - 1,
            max: 0,
        }
    }

    pub fn add(&mut self, value: f64, weight: f64, now_ms: i64) {
        let weight = weight * self.growth(now_ms);
        let bucket = self.shape.bucket(value);
        *self.weight_mut(bucket) += weight;
        self.total += weight;
        if self.weight(bucket) >= EPSILON {
            self.min = self.min.min(bucket);
            self.max = self.max.max(bucket);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.weight(self.min) < EPSILON
    }

    /// Whether nothing was ever seen above the first bucket.
    pub fn is_idle(&self) -> bool {
        self.max == 0
    }

    /// The upper bound of the bucket below which lies this part of the weights; 0 when empty.
    pub fn percentile(&self, part: f64) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let threshold = part * self.total;
        let mut sum = 0.0;
        let reaches = |bucket: &usize| {
            sum += self.weight(*bucket);
            sum >= threshold
        };
        let bucket = (self.min..self.max).find(reaches).unwrap_or(self.max);
        self.shape.start((bucket + 1).min(self.shape.buckets - 1))
    }

    fn weight(&self, bucket: usize) -> f64 {
        self.weights.get(bucket).copied().unwrap_or(0.0)
    }

    fn weight_mut(&mut self, bucket: usize) -> &mut f64 {
        if self.weights.len() <= bucket {
            self.weights.resize(bucket + 1, 0.0);
        }
        &mut self.weights[bucket]
    }

    /// What a sample of now weighs.
    fn growth(&mut self, now_ms: i64) -> f64 {
        let limit = self.reference_ms.saturating_add(self.half_life_ms.saturating_mul(HALF_LIVES_MAX));
        if now_ms > limit {
            self.shift(now_ms);
        }
        self.half_lives(now_ms.saturating_sub(self.reference_ms)).exp2()
    }

    fn half_lives(&self, ms: i64) -> f64 {
        nearest(ms) / nearest(self.half_life_ms)
    }

    /// Moves the reference to the nearest multiple of the half-life.
    fn shift(&mut self, now_ms: i64) {
        let since = now_ms.saturating_add(EPOCH_MS);
        let over = since.rem_euclid(self.half_life_ms);
        let up = if over.saturating_mul(2) < self.half_life_ms { 0 } else { self.half_life_ms };
        let reference = now_ms.saturating_sub(over).saturating_add(up);
        let factor = self.half_lives(self.reference_ms.saturating_sub(reference)).round().exp2();
        self.reference_ms = reference;
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
        self.total *= factor;
        self.settle_ends();
    }

    /// Draws the ends in past buckets that no longer count.
    fn settle_ends(&mut self) {
        let last = self.shape.buckets - 1;
        while self.min < last && self.weight(self.min) < EPSILON {
            self.min += 1;
        }
        while self.max > 0 && self.weight(self.max) < EPSILON {
            self.max -= 1;
        }
    }
}

/// A histogram at rest: weights in ten-thousandths of the heaviest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// Unix milliseconds; none for a histogram without samples.
    pub reference_ms: Option<i64>,
    pub weights: Vec<(usize, u32)>,
    pub total: f64,
}

/// Why a saved histogram makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SavedError {
    #[error("bucket {bucket} does not exist, there are {buckets}")]
    Bucket { bucket: i64, buckets: usize },
    #[error("total weight {total} is negative")]
    Total { total: f64 },
}

impl Histogram {
    pub fn save(&self) -> Saved {
        let heaviest = self.weights.iter().copied().fold(0.0, f64::max);
        let scaled = |(bucket, weight): (usize, &f64)| {
            // Half up, and a bucket that rounds to nothing is dropped.
            let part = (weight / heaviest * CHECKPOINT_WEIGHT_MAX).round();
            let part = u32::try_from(truncated(part)).ok().filter(|part| *part > 0)?;
            Some((bucket, part))
        };
        let weights = if heaviest > 0.0 {
            self.weights.iter().enumerate().filter_map(scaled).collect()
        } else {
            Vec::new()
        };
        let reference_ms = (self.reference_ms > -EPOCH_MS).then_some(self.reference_ms);
        Saved { reference_ms, weights, total: self.total }
    }

    /// Takes the place of what is here. On an error nothing changes.
    pub fn load(&mut self, saved: &Saved) -> Result<(), SavedError> {
        let buckets = self.shape.buckets;
        if let Some((bucket, _)) = saved.weights.iter().find(|(bucket, _)| *bucket >= buckets) {
            return Err(SavedError::Bucket { bucket: i64::try_from(*bucket).unwrap_or(i64::MAX), buckets });
        }
        if saved.total < 0.0 {
            return Err(SavedError::Total { total: saved.total });
        }
        let mut loaded = Histogram::new(self.shape, self.half_life_ms);
        loaded.reference_ms = saved.reference_ms.unwrap_or(-EPOCH_MS);
        let sum: f64 = saved.weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
        if sum > 0.0 && saved.total > 0.0 {
            for (bucket, weight) in &saved.weights {
                *loaded.weight_mut(*bucket) += f64::from(*weight) * saved.total / sum;
            }
            loaded.total = saved.total;
            loaded.min = 0;
            loaded.max = loaded.weights.len().saturating_sub(1);
            loaded.settle_ends();
        }
        *self = loaded;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
