//! A unified diff of two objects, as refusals of changes carry it.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;

use super::internal::lines;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// From this many lines on, lines that repeat a lot do not guide the search.
const LONG_LINES: usize = 200;

/// The difference of two objects of Kubernetes' internal type `kind`.
pub(super) fn objects(kind: &str, old: &Value, new: &Value) -> String {
    unified(&lines(kind, old), &lines(kind, new))
}

/// A run of lines: of `old` from..to, of `new` from..to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    is_same: bool,
    old: (usize, usize),
    new: (usize, usize),
}

fn unified(old: &[String], new: &[String]) -> String {
    let mut out = String::new();
    for hunk in hunks(&runs(old, new)) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let old_range = range(first.old.0, last.old.1);
        out.push_str(&format!("@@ -{old_range} +{} @@\n", range(first.new.0, last.new.1)));
        for run in &hunk {
            if run.is_same {
                old[run.old.0..run.old.1].iter().for_each(|line| out.push_str(&format!(" {line}\n")));
                continue;
            }
            old[run.old.0..run.old.1].iter().for_each(|line| out.push_str(&format!("-{line}\n")));
            new[run.new.0..run.new.1].iter().for_each(|line| out.push_str(&format!("+{line}\n")));
        }
    }
    out
}

fn range(from: usize, to: usize) -> String {
    match to - from {
        0 => format!("{from},0"),
        1 => format!("{}", from + 1),
        count => format!("{},{count}", from + 1),
    }
}

/// Alternating equal and different runs.
fn runs(old: &[String], new: &[String]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let (mut a, mut b) = (0, 0);
    let end = Block { old: old.len(), new: new.len(), length: 0 };
    for block in blocks(old, new).into_iter().chain([end]) {
        if block.old > a || block.new > b {
            runs.push(Run { is_same: false, old: (a, block.old), new: (b, block.new) });
        }
        (a, b) = (block.old + block.length, block.new + block.length);
        match runs.last_mut().filter(|run| run.is_same) {
            Some(run) => (run.old.1, run.new.1) = (a, b),
            None if block.length > 0 => {
                runs.push(Run { is_same: true, old: (block.old, a), new: (block.new, b) });
            }
            None => {}
        }
    }
    runs
}

/// Equal lines: where they begin in both, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    old: usize,
    new: usize,
    length: usize,
}

/// Equal blocks as difflib finds them, which Kubernetes uses: the longest first, then left and right of it.
fn blocks(old: &[String], new: &[String]) -> Vec<Block> {
    let places = places(new);
    let mut found = Vec::new();
    let mut todo = vec![(0..old.len(), 0..new.len())];
    while let Some((a, b)) = todo.pop() {
        let block = longest(old, new, &places, (&a, &b));
        if block.length == 0 {
            continue;
        }
        todo.push((a.start..block.old, b.start..block.new));
        todo.push((block.old + block.length..a.end, block.new + block.length..b.end));
        found.push(block);
    }
    found.sort_unstable();
    found
}

/// Where each line stands. Lines that are everywhere in a long text are no guide, and left out.
fn places(lines: &[String]) -> HashMap<&str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, line) in lines.iter().enumerate() {
        places.entry(line).or_default().push(i);
    }
    if lines.len() >= LONG_LINES {
        let most = lines.len() / 100 + 1;
        places.retain(|_, at| at.len() <= most);
    }
    places
}

fn longest(
    old: &[String],
    new: &[String],
    places: &HashMap<&str, Vec<usize>>,
    (a, b): (&Range<usize>, &Range<usize>),
) -> Block {
    let mut best = Block { old: a.start, new: b.start, length: 0 };
    let mut ending: HashMap<usize, usize> = HashMap::new();
    for i in a.clone() {
        let mut next = HashMap::new();
        for j in places.get(old[i].as_str()).into_iter().flatten().copied().filter(|j| b.contains(j)) {
            let before = j.checked_sub(1).and_then(|j| ending.get(&j)).copied().unwrap_or(0);
            next.insert(j, before + 1);
            if before + 1 > best.length {
                best = Block { old: i - before, new: j - before, length: before + 1 };
            }
        }
        ending = next;
    }
    while best.old > a.start && best.new > b.start && old[best.old - 1] == new[best.new - 1] {
        best = Block { old: best.old - 1, new: best.new - 1, length: best.length + 1 };
    }
    let after = |block: &Block| (block.old + block.length, block.new + block.length);
    while after(&best).0 < a.end && after(&best).1 < b.end && old[after(&best).0] == new[after(&best).1] {
        best.length += 1;
    }
    best
}

/// Changes with a little of what is around them; close ones together.
fn hunks(runs: &[Run]) -> Vec<Vec<Run>> {
    let mut hunks: Vec<Vec<Run>> = vec![Vec::new()];
    for (i, run) in runs.iter().enumerate() {
        if !run.is_same {
            hunks.last_mut().expect("starts with one").push(*run);
            continue;
        }
        let length = run.old.1 - run.old.0;
        let (is_first, is_last) = (i == 0, i + 1 == runs.len());
        let start = |run: Run| Run {
            old: (run.old.1.saturating_sub(CONTEXT).max(run.old.0), run.old.1),
            new: (run.new.1.saturating_sub(CONTEXT).max(run.new.0), run.new.1),
            ..run
        };
        let end = |run: Run| Run {
            old: (run.old.0, run.old.1.min(run.old.0 + CONTEXT)),
            new: (run.new.0, run.new.1.min(run.new.0 + CONTEXT)),
            ..run
        };
        if is_first {
            hunks.last_mut().expect("starts with one").push(start(*run));
        } else if is_last {
            hunks.last_mut().expect("starts with one").push(end(*run));
        } else if length > 2 * CONTEXT {
            hunks.last_mut().expect("starts with one").push(end(*run));
            hunks.push(vec![start(*run)]);
        } else {
            hunks.last_mut().expect("starts with one").push(*run);
        }
    }
    hunks.retain(|hunk| hunk.iter().any(|run| !run.is_same));
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_are_shown_as_kubernetes_shows_them() {
        let old = json!({"containers": [{"name": "c", "image": "nginx"}], "securityContext": {}});
        let mut new = old.clone();
        new["containers"][0]["name"] = json!("d");
        new["hostNetwork"] = json!(true);
        // Recorded from kube-apiserver v1.35.4.
        let want = r#"@@ -3,7 +3,7 @@
  "InitContainers": null,
  "Containers": [
   {
-   "Name": "c",
+   "Name": "d",
    "Image": "nginx",
    "Command": null,
    "Args": null,
"#;
        let got = objects("PodSpec", &old, &new);
        assert!(got.starts_with(want), "{got}");
        assert!(got.contains("-  \"HostNetwork\": false,\n+  \"HostNetwork\": true,\n"), "{got}");
        assert_eq!(objects("PodSpec", &old, &old), "");
    }

    #[test]
    fn ranges_and_ends() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(unified(&lines("a b c"), &lines("a b c d")), "@@ -1,3 +1,4 @@\n a\n b\n c\n+d\n");
        assert_eq!(unified(&lines("a"), &lines("b")), "@@ -1 +1 @@\n-a\n+b\n");
        let far = unified(&lines("x 1 2 3 4 5 6 7 y"), &lines("X 1 2 3 4 5 6 7 Y"));
        assert_eq!(far.matches("@@ -").count(), 2, "{far}");
    }
}
