//! A unified diff of two objects, as refusals of changes carry it.

use serde_json::Value;

use super::internal::lines;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// Beyond this many pairs of lines the middle is shown as replaced.
const PAIRS_MAX: usize = 4_000_000;

/// The difference of two objects of Kubernetes' internal type `kind`.
pub(in super::super) fn objects(kind: &str, old: &Value, new: &Value) -> String {
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
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let mut pairs: Vec<(usize, usize)> = (0..head).map(|i| (i, i)).collect();
    let middle = common(&old[head..old_end], &new[head..new_end]);
    pairs.extend(middle.into_iter().map(|(a, b)| (a + head, b + head)));
    pairs.extend((0..tail).map(|i| (old_end + i, new_end + i)));
    let mut runs: Vec<Run> = Vec::new();
    let (mut a, mut b) = (0, 0);
    for (x, y) in pairs.into_iter().chain([(old.len(), new.len())]) {
        if x > a || y > b {
            runs.push(Run { is_same: false, old: (a, x), new: (b, y) });
        }
        if x < old.len() {
            match runs.last_mut().filter(|run| run.is_same) {
                Some(run) => (run.old.1, run.new.1) = (x + 1, y + 1),
                None => runs.push(Run { is_same: true, old: (x, x + 1), new: (y, y + 1) }),
            }
        }
        (a, b) = (x + 1, y + 1);
    }
    runs
}

/// The longest common subsequence, as pairs of places.
fn common(old: &[String], new: &[String]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    if old.len() * width > PAIRS_MAX {
        return Vec::new();
    }
    let mut best = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            best[i * width + j] = match old[i] == new[j] {
                true => best[(i + 1) * width + j + 1] + 1,
                false => best[(i + 1) * width + j].max(best[i * width + j + 1]),
            };
        }
    }
    let mut pairs = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if best[(i + 1) * width + j] >= best[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
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
