//! A sandbox as users start it: the binary as it is shipped, a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::read;
use crate::root;
use crate::step::say;

/// A running sandbox. Stops when dropped.
pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
    kubeconfig: PathBuf,
}

/// Names a koord to be measured that somebody has built already.
const GIVEN: &str = "KOORD_PROGRAM";

pub(crate) fn program() -> PathBuf {
    if let Some(given) = std::env::var_os(GIVEN) {
        return given.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("shipped/koord")
}

/// Builds the binary as it is shipped.
pub(crate) fn build() -> Result<()> {
    if std::env::var_os(GIVEN).is_some() {
        say(&format!("{GIVEN} is measured: {}", program().display()));
        return Ok(());
    }
    say("building koord as it is shipped, which takes about a quarter of an hour the first time");
    let words = ["build", "--quiet", "--profile", "shipped", "--package", "koord"];
    let status = Command::new(env!("CARGO")).args(words).status()?;
    ensure!(status.success(), "cargo build ended with {status}");
    Ok(())
}

fn command(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("sandbox").args(words).arg("--dir").arg(dir).stdin(Stdio::null());
    command
}

impl Sandbox {
    /// Returns once it is ready.
    pub(crate) fn start(flags: &[&str]) -> Result<Sandbox> {
        let dir = tempfile::tempdir()?;
        let words: Vec<&str> = ["up", "--detach"].iter().chain(flags).copied().collect();
        let output = command(dir.path(), &words).output().context("cannot run koord")?;
        let log = read(&dir.path().join("log")).unwrap_or_default();
        ensure!(output.status.success(), "koord sandbox up ended with {}: {log}", output.status);
        let kubeconfig = dir.path().join("kubeconfig");
        Ok(Sandbox { dir, kubeconfig })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Resident memory now.
    pub(crate) fn resident_mib(&self) -> Result<u64> {
        let running: Value = serde_json::from_str(&read(&self.dir.path().join("running.json"))?)?;
        let status = read(Path::new(&format!("/proc/{}/status", running["pid"])))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024)
    }

    /// Pods whose phase is Running.
    pub(crate) async fn running_pods(&self) -> Result<usize> {
        let output = command(self.dir.path(), &["status", "--output", "json"]).output()?;
        ensure!(output.status.success(), "status: {}", String::from_utf8_lossy(&output.stderr));
        let status: Value = serde_json::from_slice(&output.stdout)?;
        Ok(usize::try_from(status["pods"]["Running"].as_u64().unwrap_or(0))?)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = command(self.dir.path(), &["down"]).output();
    }
}
