//! Makes what kubectl says on two clusters comparable: ages, names the server made, addresses, versions.

use std::sync::LazyLock;

use regex::Regex;

/// What is replaced, and by what. In this order.
static RULES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<date>"),
        (r"^(---|\+\+\+) \S*(LIVE|MERGED)-\d+(/\S+)\t.*", "$1 $2$3"),
        (r"diff -u -N \S*LIVE-\d+/(\S+) \S*MERGED-\d+/\S+", "diff LIVE/$1 MERGED/$1"),
        (r"\S*/(LIVE|MERGED)-\d+/", "$1/"),
        (r"127\.0\.0\.1:\d+", "<server>"),
        (r"10\.96\.\d+\.\d+", "<cluster ip>"),
        (r#""?resourceVersion"?: "\d+""#, "resourceVersion: <version>"),
        (r"Resource Version: +\d+", "Resource Version: <version>"),
        // The head of a line of kubectl's own log.
        (r"^([IWEF])\d{4} [\d:.]+ +\d+ ", "$1 "),
        // Go hashes a pod template as it lies in memory; others cannot.
        (r"\b(pod-template-hash[=:] ?\S+|pod-template-hash\b)", "pod-template-hash"),
        (r"-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b", "-<hash>"),
        // The suffix of a pod of a controller, and of other generated names.
        (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-<name>"),
        // Ages, alone in a column or in front of a count.
        (r"\b(\d+[smhdy]){1,2}( ago)?( \(x\d+ over (\d+[smhd]){1,2}\))?(\s|$|\))", "<age>$5"),
        (r"[ \t]+", " "),
        (r"^ | $", ""),
    ]
    .map(|(pattern, name)| (Regex::new(pattern).expect("a pattern of our own"), name))
    .to_vec()
});

/// The lines, with a name in place of everything that is chance.
pub(crate) fn normal(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| {
        RULES.iter().fold(line.to_owned(), |line, (rule, name)| rule.replace_all(&line, *name).into_owned())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_gets_a_name() {
        for (text, want) in [
            (
                "web-5d8c7b9f4d-x2x9z   1/1     Running   0          12s",
                "web-<hash>-<name> 1/1 Running 0 <age>",
            ),
            ("Start Time:  Mon, 02 Jan 2006 15:04:05 +0000", "Start Time: <date>"),
            ("  Normal  Pulled  3m2s (x5 over 10m)  kubelet", "Normal Pulled <age> kubelet"),
            ("    resourceVersion: \"123\"", "resourceVersion: <version>"),
            ("pod/web created", "pod/web created"),
        ] {
            assert_eq!(normal(text), [want], "{text}");
        }
    }
}
