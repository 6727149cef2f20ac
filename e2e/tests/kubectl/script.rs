//! Scripts as they stand in `e2e/kubectl/*.yaml`, and running them on one side.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Side, folder, within, words};

/// How long `until` tries again.
const UNTIL_LIMIT: Duration = Duration::from_secs(60);
const UNTIL_PAUSE: Duration = Duration::from_millis(200);

/// Commands in a namespace of their own, which has the script's name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    pub(crate) name: String,
    /// Files in the folder where the commands run.
    #[serde(default)]
    files: BTreeMap<String, String>,
    pub(crate) steps: Vec<Step>,
}

/// One kubectl command.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// What stands behind `kubectl`, split as a shell splits it.
    pub(crate) run: String,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Runs it again until standard output matches.
    until: Option<String>,
    /// Looks at the last lines only: progress is told as often as somebody happens to look.
    last: Option<usize>,
    /// The order of lines is chance.
    #[serde(default)]
    unordered: bool,
    /// Neither the order of lines nor how often one comes tells anything: events of a rollout, whose steps fall together
    /// when pods are quick.
    #[serde(default)]
    distinct: bool,
    pub(crate) exit: Option<i32>,
}

/// All scripts, in order of file and place. Names are unique.
pub(crate) fn load() -> Result<Vec<Script>> {
    let entries: Result<Vec<_>, _> = std::fs::read_dir(folder())?.collect();
    let mut files: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let mut scripts: Vec<Script> = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path)?;
        let more: Vec<Script> = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        scripts.extend(more);
    }
    let mut names: Vec<&str> = scripts.iter().map(|script| script.name.as_str()).collect();
    names.sort_unstable();
    ensure!(names.windows(2).all(|pair| pair[0] != pair[1]), "two scripts have one name: {names:?}");
    Ok(scripts)
}

/// What kubectl said and how it ended, per step: `{exit, stdout, stderr}`.
pub(crate) async fn run(side: &Side, script: &Script) -> Result<Vec<Value>> {
    let dir = tempfile::tempdir()?;
    for (name, text) in &script.files {
        std::fs::write(dir.path().join(name), text)?;
    }
    std::fs::write(dir.path().join("kubeconfig"), within(&side.kubeconfig, &script.name)?)?;
    let namespace = format!("create namespace {}", script.name);
    let made = once(side, dir.path(), &Step { run: namespace, ..Step::default() }).await?;
    ensure!(made.exit == 0, "{}: {}", side.name, made.stderr);
    let mut said = Vec::new();
    for (index, step) in script.steps.iter().enumerate() {
        let outcome = repeated(side, dir.path(), step).await;
        let outcome = outcome.with_context(|| format!("{}: step {} ({})", side.name, index + 1, step.run))?;
        said.push(outcome.normal(step));
    }
    Ok(said)
}

/// One end of kubectl.
struct Outcome {
    exit: i32,
    stdout: String,
    stderr: String,
}

impl Outcome {
    fn normal(&self, step: &Step) -> Value {
        let lines = |text: &str| {
            let mut lines = words::normal(text);
            let skipped = step.last.map_or(0, |last| lines.len().saturating_sub(last));
            lines.drain(..skipped);
            if step.unordered || step.distinct {
                lines.sort();
            }
            if step.distinct {
                lines.dedup();
            }
            lines
        };
        json!({"exit": self.exit, "stdout": lines(&self.stdout), "stderr": lines(&self.stderr)})
    }
}

async fn repeated(side: &Side, dir: &Path, step: &Step) -> Result<Outcome> {
    let wanted = step.until.as_deref().map(Regex::new).transpose()?;
    let begun = Instant::now();
    loop {
        let outcome = once(side, dir, step).await?;
        let is_there = wanted.as_ref().is_none_or(|wanted| wanted.is_match(&outcome.stdout));
        if is_there || begun.elapsed() > UNTIL_LIMIT {
            return Ok(outcome);
        }
        tokio::time::sleep(UNTIL_PAUSE).await;
    }
}

async fn once(side: &Side, dir: &Path, step: &Step) -> Result<Outcome> {
    let (kubectl, dir, step) = (side.kubectl.clone(), dir.to_owned(), step.clone());
    tokio::task::spawn_blocking(move || {
        let input = dir.join("stdin");
        std::fs::write(&input, &step.stdin)?;
        let mut command = std::process::Command::new(kubectl);
        command
            .args(split(&step.run)?)
            .current_dir(&dir)
            .env("KUBECONFIG", dir.join("kubeconfig"))
            .env("KUBECACHEDIR", dir.join("cache"))
            .env("KUBERC", "off")
            .env("TMPDIR", &dir)
            .envs(&step.env)
            .stdin(Stdio::from(std::fs::File::open(&input)?));
        let output = command.output()?;
        Ok(Outcome {
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    })
    .await?
}

/// Words, of which single quotes hold together what has blanks.
fn split(text: &str) -> Result<Vec<String>> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in text.chars() {
        match (c, is_quoted) {
            ('\'', _) => is_quoted = !is_quoted,
            (' ', false) => words.push(String::new()),
            (c, _) => words.last_mut().context("begun above")?.push(c),
        }
    }
    ensure!(!is_quoted, "a quote is open in {text}");
    words.retain(|word| !word.is_empty());
    Ok(words)
}
