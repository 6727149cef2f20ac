//! Which of the nodes that can take the pod is the best.

use std::sync::Arc;

use super::{Framework, Ties};
use crate::cluster::Row;
use crate::framework::timing::word;
use crate::framework::{Code, Cycle, NodeView, PluginName, Restored, Score, Status};
use crate::random::Random;

/// The weighted sum of all scores, one for each row.
pub(super) fn totals(framework: &Framework, cycle: &mut Cycle<'_>, rows: &[Row]) -> Result<Vec<i64>, Status> {
    rate(framework, cycle, rows, |_, _, _| {})
}

/// As `totals`; `heard` is told each plugin's scores and weight.
pub(super) fn rate(
    framework: &Framework,
    cycle: &mut Cycle<'_>,
    rows: &[Row],
    mut heard: impl FnMut(PluginName, i64, &[i64]),
) -> Result<Vec<i64>, Status> {
    let timing = &framework.timing;
    let begun = timing.begin();
    let active = prepare(framework, cycle, rows);
    timing.end(begun, "PreScore", word(&active));
    let active = active?;
    let all_begun = timing.begin();
    let mut totals = vec![0i64; rows.len()];
    let mut scores = vec![0i64; rows.len()];
    for (name, plugin, weight) in active {
        let begun = timing.begin_plugin();
        plugin.rate(cycle, rows, &mut scores);
        rate_restored(plugin, cycle, rows, &mut scores);
        timing.end_plugin(begun, "Score", name, Code::Success.word());
        timing.asked(name, "Score", rows.len());
        let begun = timing.begin_plugin();
        plugin.normalize(cycle, rows, &mut scores);
        timing.end_plugin(begun, "ScoreExtensionNormalize", name, Code::Success.word());
        for (total, score) in totals.iter_mut().zip(&scores) {
            if !(0..=100).contains(score) {
                timing.end(all_begun, "Score", Code::Error.word());
                return Err(out_of_range(name, *score));
            }
            *total += score * weight;
        }
        heard(name, weight, &scores);
    }
    timing.end(all_begun, "Score", Code::Success.word());
    Ok(totals)
}

/// Rates nodes again that the pod sees otherwise than they are counted.
fn rate_restored(plugin: &Arc<dyn Score>, cycle: &Cycle<'_>, rows: &[Row], scores: &mut [i64]) {
    let Some(restored) = cycle.get::<Restored>() else { return };
    for (row, score) in rows.iter().zip(scores) {
        if let Some(delta) = restored.on(*row) {
            *score = plugin.score(cycle, &NodeView::supposing(cycle.cluster, *row, delta));
        }
    }
}

/// A plugin that rates, and its weight.
type Active<'f> = (PluginName, &'f Arc<dyn Score>, i64);

/// The plugins that have something to say about these nodes.
fn prepare<'f>(
    framework: &'f Framework,
    cycle: &mut Cycle<'_>,
    rows: &[Row],
) -> Result<Vec<Active<'f>>, Status> {
    let mut active = Vec::new();
    for (hooks, weight) in &framework.scores {
        let Some(plugin) = &hooks.score else { continue };
        let begun = framework.timing.begin_plugin();
        let answer = plugin.prepare(cycle, rows);
        let word = if matches!(answer, Ok(false)) { Code::Skip.word() } else { word(&answer) };
        framework.timing.end_plugin(begun, "PreScore", hooks.name, word);
        framework.timing.asked(hooks.name, "PreScore", usize::from(!matches!(answer, Ok(false))));
        match answer {
            Ok(true) => active.push((hooks.name, plugin, *weight)),
            Ok(false) => {}
            Err(status) => {
                let text = format!("running PreScore plugin \"{}\": {status}", hooks.name);
                return Err(Status::error(hooks.name, text));
            }
        }
    }
    Ok(active)
}

fn out_of_range(name: PluginName, score: i64) -> Status {
    let text = format!(
        "applying score defaultWeights on Score plugins: plugin \"{name}\" returns an invalid score {score}, it should \
         in the range of [0, 100] after normalizing"
    );
    Status::error(name, text)
}

/// The place of the best total. There is one at least.
pub(super) fn pick(totals: &[i64], ties: Ties, random: &mut Random) -> usize {
    match ties {
        Ties::Heap => top_of_heap(totals),
        Ties::Random => {
            let best = totals.iter().copied().max().unwrap_or(0);
            let count = totals.iter().filter(|total| **total == best).count();
            let mut places = (0..totals.len()).filter(|at| totals[*at] == best);
            places.nth(random.below(count)).unwrap_or(0)
        }
    }
}

/// The root of a binary heap built in place, as container/heap does. Spec: scheduler-core 3.2.11.
fn top_of_heap(totals: &[i64]) -> usize {
    let mut heap: Vec<usize> = (0..totals.len()).collect();
    for start in (0..heap.len() / 2).rev() {
        let mut at = start;
        loop {
            let left = 2 * at + 1;
            if left >= heap.len() {
                break;
            }
            let right = left + 1;
            let is_right = right < heap.len() && totals[heap[right]] > totals[heap[left]];
            let child = if is_right { right } else { left };
            if totals[heap[child]] <= totals[heap[at]] {
                break;
            }
            heap.swap(at, child);
            at = child;
        }
    }
    heap.first().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_picks() {
        for (key, totals, want) in [
            ("scheduler-core#3.2.K1", &[3, 3, 3][..], 0),
            ("scheduler-core#3.2.K2", &[0, 5, 5], 1),
            ("scheduler-core#3.2.K3", &[1, 1, 5, 5], 3),
            ("scheduler-core#3.2.K4", &[5, 1, 5, 1], 0),
            ("scheduler-core#3.2.K5", &[1, 2, 3, 4, 5, 5, 5, 5], 7),
            ("scheduler-core#3.2.K6", &[0, 0, 0, 7, 0, 0, 7], 3),
            ("scheduler-core#3.2.K7", &[0, 7, 7, 7, 7, 7, 7, 7, 7, 7], 1),
        ] {
            assert_eq!(pick(totals, Ties::Heap, &mut Random::new(0)), want, "{key}");
        }
        let mut random = Random::new(1);
        let drawn: std::collections::BTreeSet<usize> =
            (0..100).map(|_| pick(&[1, 5, 2, 5], Ties::Random, &mut random)).collect();
        assert_eq!(drawn, [1, 3].into());
    }
}
