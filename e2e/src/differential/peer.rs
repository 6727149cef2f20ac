//! The real kube-scheduler: one process, and the scores that it logs.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Result, ensure};
use koord_testkit::{Binaries, Program, Version};
use regex::Regex;

/// Many requests at once, and every node looked at; all else as it comes.
const CONFIG: &str = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles: [{schedulerName: default-scheduler}]
";

/// None, with the reason on stderr, where it cannot be built.
pub fn program() -> Result<Option<PathBuf>> {
    match Binaries::ensure(&Version::kubernetes()?, None, &[Program::Scheduler]) {
        Ok(binaries) => Ok(Some(binaries.path(Program::Scheduler))),
        // Says why, and fails where a skip is a failure.
        Err(error) if error.is_unavailable() && koord_testkit::shared().is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A running kube-scheduler, which ends with this process at the latest.
pub struct Peer {
    /// A shell that ends it when nobody holds the other end of its input any more.
    keeper: Child,
    log: PathBuf,
    /// How far the log has been read.
    read: u64,
    _dir: tempfile::TempDir,
}

/// What it logged of one pod: by node the total, and by node and plugin the parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logged {
    pub attempts: usize,
    /// Attempts that ended with a refusal or an error.
    pub failures: usize,
    pub totals: BTreeMap<String, i64>,
    pub parts: BTreeMap<String, BTreeMap<String, i64>>,
}

impl Peer {
    pub fn start(program: &Path, kubeconfig: &Path) -> Result<Peer> {
        let dir = tempfile::tempdir()?;
        let log = dir.path().join("scheduler.log");
        let config = dir.path().join("config.yaml");
        let connection = format!(
            "clientConnection: {{qps: 5000, burst: 5000, kubeconfig: {:?}}}\n",
            kubeconfig.display().to_string()
        );
        std::fs::write(&config, format!("{CONFIG}{connection}"))?;
        let script = "\"$@\" </dev/null & child=$!; cat; kill -9 $child; wait $child";
        let keeper = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(program)
            .arg(format!("--config={}", config.display()))
            // The scores, without every request that it sends.
            .args(["--secure-port=0", "--vmodule=schedule_one=10"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()?;
        Ok(Peer { keeper, log, read: 0, _dir: dir })
    }

    /// What it logged since the last time, by `namespace/name` of the pod; of several attempts the last.
    pub fn scores(&mut self) -> Result<BTreeMap<String, Logged>> {
        let mut file = std::fs::File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        let length = file.read_to_string(&mut text)?;
        self.read += u64::try_from(length)?;
        ensure!(!text.starts_with('F') && !text.contains("\nF"), "kube-scheduler gave up:\n{text}");
        Ok(parse(&text))
    }

    pub fn stop(mut self) -> Result<()> {
        drop(self.keeper.stdin.take());
        self.keeper.wait()?;
        Ok(())
    }
}

fn parse(text: &str) -> BTreeMap<String, Logged> {
    static PART: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r#""Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(-?\d+)"#,
        )
        .expect("a fixed pattern")
    });
    static TOTAL: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#""Calculated node's final score for pod" pod="([^"]+)" node="([^"]+)" score=(-?\d+)"#)
            .expect("a fixed pattern")
    });
    static FAILED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#""(?:Unable to schedule pod; |Error scheduling pod; )[^"]*".* pod="([^"]+)""#)
            .expect("a fixed pattern")
    });
    let mut found: BTreeMap<String, Logged> = BTreeMap::new();
    for line in text.lines() {
        if let Some(groups) = PART.captures(line) {
            let parts = &mut found.entry(groups[1].to_owned()).or_default().parts;
            let score = groups[4].parse().unwrap_or_default();
            parts.entry(groups[3].to_owned()).or_default().insert(groups[2].to_owned(), score);
        } else if let Some(groups) = TOTAL.captures(line) {
            let totals = &mut found.entry(groups[1].to_owned()).or_default().totals;
            totals.insert(groups[2].to_owned(), groups[3].parse().unwrap_or_default());
        } else if let Some(pod) = line.split("\"Attempting to schedule pod\" pod=\"").nth(1) {
            // What an earlier attempt said no longer counts.
            let logged = found.entry(pod.split('"').next().unwrap_or_default().to_owned()).or_default();
            (logged.totals, logged.parts) = Default::default();
            logged.attempts += 1;
        } else if let Some(groups) = FAILED.captures(line) {
            found.entry(groups[1].to_owned()).or_default().failures += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_from_the_log() {
        let text = r#"I1116 03:00:00.000001    1 schedule_one.go:130] "Attempting to schedule pod" pod="a/p"
I1116 03:00:00.000002    1 schedule_one.go:830] "Plugin scored node for pod" pod="a/p" plugin="NodeResourcesFit" node="n1" score=97
I1116 03:00:00.000003    1 schedule_one.go:898] "Calculated node's final score for pod" pod="a/p" node="n1" score=397
"#;
        let found = parse(text);
        assert_eq!(found["a/p"].totals["n1"], 397);
        assert_eq!(found["a/p"].parts["n1"]["NodeResourcesFit"], 97);
        let again = format!("{text}x] \"Attempting to schedule pod\" pod=\"a/p\"\n");
        let failed =
            format!("{again}x] \"Unable to schedule pod; no fit; waiting\" pod=\"a/p\" err=\"0/1\"\n");
        let found = parse(&failed);
        assert_eq!((found["a/p"].attempts, found["a/p"].failures), (2, 1));
        assert!(found["a/p"].totals.is_empty());
    }
}
