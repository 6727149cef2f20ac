//! What counts as the same answer: placed or not, who is preempted, every score, and the text of a refusal.

use std::collections::{BTreeMap, BTreeSet};

use super::scenario::Outcome;

/// The kind of difference of a pod that one of them tried again.
const WOKEN: &str = "woken";
const TRIED_AGAIN: &str = "tried again";

/// One thing that is not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which kind of thing; a smaller scenario must still differ in the same kind.
    pub what: String,
    pub real: String,
    pub ours: String,
}

impl Difference {
    /// Whether a pod that waited was tried again by our engine and left alone by kube-scheduler.
    pub fn is_tried_by_ours_alone(&self) -> bool {
        self.what == WOKEN && self.ours == TRIED_AGAIN
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n    kube-scheduler: {}\n    koord:          {}", self.what, self.real, self.ours)
    }
}

/// All that differs for one pod. Any node with the best total is as good as any other.
pub fn differences(real: &Outcome, ours: &Outcome) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differ = |what: String, real: String, ours: String| {
        if real != ours {
            found.push(Difference { what, real, ours });
        }
    };
    if real.woken != ours.woken {
        let told = |outcome: &Outcome| if outcome.woken { TRIED_AGAIN } else { "left alone" }.to_owned();
        differ(WOKEN.to_owned(), told(real), told(ours));
        return found;
    }
    if real.node.is_empty() != ours.node.is_empty() {
        let told = |outcome: &Outcome| match outcome.node.as_str() {
            "" => format!("pending: {}", outcome.message),
            node => format!("on {node}"),
        };
        differ("placed".to_owned(), told(real), told(ours));
        return found;
    }
    if real.gone != ours.gone {
        let told = |outcome: &Outcome| format!("{:?} for {}", outcome.gone, outcome.nominated);
        differ("preempted".to_owned(), told(real), told(ours));
    } else if !real.gone.is_empty() {
        differ("nominated".to_owned(), real.nominated.clone(), ours.nominated.clone());
    }
    if real.node.is_empty() {
        differ("message".to_owned(), first(&real.message), first(&ours.message));
        differ("preemption text".to_owned(), preemption(&real.message), preemption(&ours.message));
        return found;
    }
    let names = |outcome: &Outcome| outcome.scores.keys().cloned().collect::<Vec<String>>().join(" ");
    differ("nodes that fit".to_owned(), names(real), names(ours));
    for (plugin, real, ours) in parts(real, ours) {
        differ(format!("scores of {plugin}"), real, ours);
    }
    let both: Vec<&String> = real.scores.keys().filter(|node| ours.scores.contains_key(*node)).collect();
    let totals = |scores: &BTreeMap<String, i64>| {
        let told: Vec<String> = both.iter().map(|node| format!("{node} {}", scores[*node])).collect();
        told.join(", ")
    };
    differ("totals".to_owned(), totals(&real.scores), totals(&ours.scores));
    if !is_best(&real.node, &ours.scores) || !is_best(&ours.node, &real.scores) {
        differ("best node".to_owned(), real.node.clone(), ours.node.clone());
    }
    found
}

/// Whether no node has more. One node alone has no total.
fn is_best(node: &str, scores: &BTreeMap<String, i64>) -> bool {
    scores.is_empty() || scores.get(node).is_some_and(|score| Some(score) == scores.values().max())
}

/// By plugin, the scores that are not the same on both sides. Nothing said is nothing given.
fn parts(real: &Outcome, ours: &Outcome) -> Vec<(String, String, String)> {
    let plugins: BTreeSet<&String> =
        real.parts.values().chain(ours.parts.values()).flat_map(BTreeMap::keys).collect();
    let mut found = Vec::new();
    for plugin in plugins {
        let score = |outcome: &Outcome, node: &String| {
            outcome.parts.get(node).and_then(|parts| parts.get(plugin)).copied().unwrap_or(0)
        };
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for node in real.scores.keys().filter(|node| ours.scores.contains_key(*node)) {
            if score(real, node) != score(ours, node) {
                a.push(format!("{node} {}", score(real, node)));
                b.push(format!("{node} {}", score(ours, node)));
            }
        }
        found.push((plugin.clone(), a.join(", "), b.join(", ")));
    }
    found
}

/// The filters' part of a message; what post-filter plugins add comes in no fixed order.
fn first(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    let text = words.join(" ");
    text.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

/// What preemption says of its own failure, without what other plugins add.
fn preemption(message: &str) -> String {
    let Some((_, text)) = message.split_once("preemption: ") else { return String::new() };
    let text = text.split(", no new claims to deallocate").next().unwrap_or(text);
    text.trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(node: &str, scores: &[(&str, i64)]) -> Outcome {
        let scores: BTreeMap<String, i64> = scores.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect();
        let parts =
            scores.iter().map(|(n, s)| (n.clone(), BTreeMap::from([("Fit".to_owned(), *s)]))).collect();
        Outcome { node: node.to_owned(), scores, parts, ..Outcome::default() }
    }

    fn pending(message: &str) -> Outcome {
        Outcome { message: message.to_owned(), ..Outcome::default() }
    }

    #[test]
    fn ties_are_the_same_and_all_else_is_not() {
        let real = placed("a", &[("a", 5), ("b", 5), ("c", 4)]);
        let gone = |names: &[&str]| Outcome {
            gone: names.iter().map(|name| (*name).to_owned()).collect(),
            ..placed("a", &[])
        };
        let tail =
            "0/2 nodes are available: 2 Too many pods. preemption: 0/2 nodes are available: 2 No victims.";
        let order = "0/2 nodes are available: 2 Too many pods. preemption: 0/2 nodes are available: 2 No victims, no new claims to deallocate.";
        for (name, real, ours, want) in [
            ("tie", real.clone(), placed("b", &[("a", 5), ("b", 5), ("c", 4)]), &[][..]),
            ("pending", real.clone(), pending("x"), &["placed"]),
            (
                "scores",
                real.clone(),
                placed("a", &[("a", 5), ("b", 5), ("c", 3)]),
                &["scores of Fit", "totals"],
            ),
            (
                "best",
                real.clone(),
                placed("b", &[("a", 4), ("b", 5), ("c", 4)]),
                &["scores of Fit", "totals", "best node"],
            ),
            ("choice", real.clone(), placed("c", &[("a", 5), ("b", 5), ("c", 4)]), &["best node"]),
            ("feasible", real, placed("a", &[("a", 5), ("b", 5)]), &["nodes that fit"]),
            (
                "text",
                pending(tail),
                pending("0/2 nodes are available: 2 Insufficient cpu."),
                &["message", "preemption text"],
            ),
            ("order of help", pending(tail), pending(order), &[]),
            ("victims", gone(&["x"]), gone(&["y"]), &["preempted"]),
            ("same victims", gone(&["x"]), gone(&["x"]), &[]),
        ] {
            let found: Vec<String> = differences(&real, &ours).into_iter().map(|d| d.what).collect();
            assert_eq!(found, want, "{name}");
        }
    }
}
