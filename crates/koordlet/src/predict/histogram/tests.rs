//! The worked examples of buckets, fading and answers.

use super::*;

const HOUR_MS: i64 = 3_600_000;
/// 2026-01-01 00:00 UTC, a whole multiple of both half-lives.
const NEW_YEAR_MS: i64 = 1_767_225_600_000;

fn cpu() -> Histogram {
    Histogram::new(Shape::cpu(), 12 * HOUR_MS)
}

fn memory() -> Histogram {
    Histogram::new(Shape::memory(), 24 * HOUR_MS)
}

fn milli(histogram: &Histogram, part: f64) -> i64 {
    truncated(histogram.percentile(part) * 1000.0)
}

#[test]
fn buckets_of_values() {
    assert_eq!((Shape::cpu().buckets(), Shape::memory().buckets()), (158, 205));
    // koordlet-observe#13.7.G1
    for (cores, want) in [(0.0, 0), (0.01, 0), (0.025, 1), (1.0, 22), (4.1, 45), (64.0, 99), (5000.0, 157)] {
        assert_eq!(Shape::cpu().bucket(cores), want, "{cores}");
    }
    // koordlet-observe#13.7.G17
    for (cores, want) in [(-1.0, 0), (1024.0, 156)] {
        assert_eq!(Shape::cpu().bucket(cores), want, "{cores}");
    }
    for (bytes, want) in [(5_i64 << 20, 1), (1 << 30, 49), (10 << 30, 95), (1 << 41, 203), (1 << 50, 204)] {
        assert_eq!(Shape::memory().bucket(nearest(bytes)), want, "{bytes}");
    }
}

#[test]
fn constant_values_answer_with_the_end_of_their_bucket() {
    let constant = |mut histogram: Histogram, value: f64| {
        (0..10).for_each(|minute| histogram.add(value, 1.0, NEW_YEAR_MS + minute * 60_000));
        histogram
    };
    for (key, cores, want) in [
        ("koordlet-observe#13.7.G2", 1.0, 1035),
        ("koordlet-observe#13.7.G3", 0.0, 25),
        ("koordlet-observe#13.7.G18", 5000.0, 1_060_437),
    ] {
        assert_eq!(milli(&constant(cpu(), cores), 0.95), want, "{key}");
    }
    for (key, bytes, want) in [
        ("koordlet-observe#13.7.G3", 0, 5_242_880),
        ("koordlet-observe#13.7.G5", 1 << 30, 1_097_586_419),
        ("koordlet-observe#13.7.G5", 10 << 30, 11_239_309_733),
        ("koordlet-observe#13.7.G18", 1 << 50, 2_203_922_208_858),
    ] {
        assert_eq!(truncated(constant(memory(), nearest(bytes)).percentile(0.98)), want, "{key} {bytes}");
    }
    assert_eq!(cpu().percentile(0.95), 0.0, "empty");
}

#[test]
fn percentiles_of_two_loads() {
    // koordlet-observe#13.7.G4
    for (hour, low, want) in [(0, 95, 1035), (0, 94, 4217), (5, 95, 4217)] {
        let mut histogram = cpu();
        let now = NEW_YEAR_MS + hour * HOUR_MS;
        (0..low).for_each(|_| histogram.add(1.0, 1.0, now));
        (low..100).for_each(|_| histogram.add(4.0, 1.0, now));
        assert_eq!(milli(&histogram, 0.95), want, "{low} of 100 at {hour} h");
    }
}

#[test]
fn a_sample_weighs_twice_as_much_as_one_a_half_life_older() {
    // koordlet-observe#13.7.G6
    let mut histogram = cpu();
    histogram.add(1.0, 1.0, NEW_YEAR_MS);
    histogram.add(4.0, 1.0, NEW_YEAR_MS + 12 * HOUR_MS);
    assert_eq!(histogram.weight(45), 2.0 * histogram.weight(22));
}

#[test]
fn the_reference_is_the_nearest_multiple_of_the_half_life() {
    // koordlet-observe#13.7.G19
    let noon = NEW_YEAR_MS + 12 * HOUR_MS;
    for (histogram, hour, reference, weight) in [
        (cpu(), 5, NEW_YEAR_MS, 1.334_839_854_170_034_4),
        (memory(), 5, NEW_YEAR_MS, 1.155_352_696_872_273),
        (cpu(), 6, noon, 0.707_106_781_186_547_5),
        (memory(), 6, NEW_YEAR_MS, 1.189_207_115_002_721),
    ] {
        let mut histogram = histogram;
        histogram.add(1.0, 1.0, NEW_YEAR_MS + hour * HOUR_MS);
        assert_eq!(histogram.reference_ms, reference, "{hour} h");
        assert!((histogram.total - weight).abs() < 1e-12, "{hour} h: {}", histogram.total);
    }
}

#[test]
fn an_old_load_fades() {
    let mut histogram = cpu();
    (0..24 * 60).for_each(|minute| histogram.add(4.0, 1.0, NEW_YEAR_MS + minute * 60_000));
    let day = NEW_YEAR_MS + 24 * HOUR_MS;
    let percentiles = |histogram: &Histogram| [0.6, 0.9, 0.95, 0.98].map(|part| milli(histogram, part));
    // koordlet-observe#13.7.G20 koordlet-observe#13.7.G21
    for (hours, answers, low, high) in [
        (12, [4217, 4217, 4217, 4217], 10_000, 7500),
        (24, [1035, 4217, 4217, 4217], 10_000, 2500),
        (36, [1035, 1035, 4217, 4217], 10_000, 1071),
        (48, [1035, 1035, 1035, 4217], 10_000, 500),
    ] {
        for minute in (hours - 12) * 60..hours * 60 {
            histogram.add(1.0, 1.0, day + minute * 60_000);
        }
        assert_eq!(percentiles(&histogram), answers, "{hours} h");
        assert_eq!(histogram.save().weights, [(22, low), (45, high)], "{hours} h");
    }
}

#[test]
fn weights_stay_finite_for_years() {
    let mut histogram = cpu();
    for day in 0..3650 {
        histogram.add(1.0, 1.0, NEW_YEAR_MS + day * 24 * HOUR_MS);
    }
    assert!(histogram.total.is_finite() && histogram.total < 1e40);
    assert_eq!(milli(&histogram, 0.95), 1035);
    histogram.add(4.0, 1.0, NEW_YEAR_MS);
    assert_eq!(milli(&histogram, 1.0), 1035, "a clock that steps back adds next to nothing");
}

#[test]
fn a_saved_histogram_answers_as_before() {
    let mut histogram = cpu();
    let now = NEW_YEAR_MS + 5 * HOUR_MS;
    (0..3).for_each(|_| histogram.add(1.0, 1.0, now));
    histogram.add(4.0, 1.0, now);
    histogram.add(64.0, 0.0001, now);
    let saved = histogram.save();
    // koordlet-observe#13.7.G22: the smallest bucket is dropped.
    assert_eq!(saved.weights, [(22, 10_000), (45, 3333)]);
    assert_eq!(saved.reference_ms, Some(NEW_YEAR_MS));
    assert!((saved.total - 5.339_492_900_665_554_5).abs() < 1e-12);
    let mut restored = cpu();
    restored.load(&saved).unwrap();
    assert_eq!(milli(&restored, 0.6), 1035);
    assert_eq!(milli(&restored, 0.95), 4217);
    assert_eq!(cpu().save(), Saved::default());
}

#[test]
fn nonsense_is_not_loaded() {
    let with = |weights: &[(usize, u32)], total: f64| Saved {
        reference_ms: Some(NEW_YEAR_MS),
        weights: weights.to_vec(),
        total,
    };
    let load = |saved: &Saved| {
        let mut histogram = cpu();
        let answer = histogram.load(saved);
        (answer.is_ok(), milli(&histogram, 0.95))
    };
    // koordlet-observe#13.7.G13 koordlet-observe#13.7.G23
    assert_eq!(load(&with(&[(158, 1)], 1.0)), (false, 0));
    assert_eq!(load(&with(&[(3, 5)], -1.0)), (false, 0));
    assert_eq!(load(&with(&[(3, 5)], 0.0)), (true, 0));
    assert_eq!(load(&Saved::default()), (true, 0));
    assert_eq!(load(&with(&[(22, 5)], 1.0)), (true, 1035));
}
