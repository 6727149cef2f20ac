//! The spec's table of fit scores.

use super::*;

const GIB: i64 = 1 << 30;

fn shape(points: &[(i64, i64)]) -> Strategy {
    let points =
        points.iter().map(|(utilization, score)| ShapePoint { utilization: *utilization, score: score * 10 });
    Strategy::RequestedToCapacityRatio(points.collect())
}

#[test]
fn worked_examples() {
    let s1 = &[(4_000, 10_000, 1), (6 * GIB, 20 * GIB, 1)][..];
    let at = |percent: i64| [(percent, 100, 1)];
    let least = Strategy::LeastAllocated;
    for (key, strategy, amounts, want) in [
        ("scheduler-core#10.S1", least.clone(), s1, 65),
        ("scheduler-core#10.S2", Strategy::MostAllocated, s1, 35),
        ("scheduler-core#10.S3", least.clone(), &[(4_000, 10_000, 1), (21 * GIB, 20 * GIB, 1)], 30),
        ("scheduler-core#10.S5", shape(&[(0, 0), (100, 10)]), &at(45), 45),
        ("scheduler-core#10.S6", shape(&[(0, 10), (100, 0)]), &at(45), 55),
        (
            "scheduler-core#10.S30",
            least.clone(),
            &[(3_100, 10_000, 1), (5 * GIB + (200 << 20), 20 * GIB, 1), (9_500, 10_000, 1)],
            49,
        ),
        (
            "scheduler-core#10.S31",
            least,
            &[(4_000, 10_000, 1), (6 * GIB, 20 * GIB, 1), (9_500, 10_000, 1)],
            45,
        ),
        ("scheduler-core#10.S32", shape(&[(0, 0), (100, 10)]), &[(45, 100, 1), (12, 100, 1)], 29),
        ("scheduler-core#10.S33", shape(&[(50, 0), (100, 10)]), &[(45, 100, 1), (60, 100, 3)], 20),
        ("scheduler-core#10.S34", shape(&[(0, 0), (40, 7), (100, 10)]), &[(45, 100, 1), (45, 100, 1)], 72),
        ("scheduler-core#10.S35", shape(&[(20, 3), (80, 9)]), &at(45), 55),
        ("scheduler-core#10.S36", shape(&[(0, 0), (99, 3), (100, 10)]), &at(120), 100),
    ] {
        assert_eq!(strategy.score(amounts.iter().copied()), want, "{key}");
    }
}
