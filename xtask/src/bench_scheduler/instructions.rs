//! Instructions that placing a pod takes, counted by callgrind: unlike seconds they are the same whatever else the
//! machine does. Figures without bars, to be compared from one day to the next.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::workload::Workload;
use crate::step::say;

/// The workloads that others are measured against.
const COUNTED: [&str; 5] = ["basic", "distinct", "loadaware", "reservation", "reservation-shared"];
/// Pods placed in the two runs of each; what comes before the first pod is the same in both.
pub(super) const FEW: usize = 1_000;
pub(super) const MANY: usize = 5_000;

pub(super) fn run(workloads: &[Workload]) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        say("      instructions per pod: not counted, for there is no valgrind (Debian package valgrind)");
        return Ok(());
    }
    for workload in workloads.iter().filter(|workload| COUNTED.contains(&workload.name.as_str())) {
        let more = count(workload, MANY)?.saturating_sub(count(workload, FEW)?);
        let per_pod = more / u64::try_from(MANY - FEW)?;
        let text = format!("{}: {per_pod} instructions per pod", workload.name);
        say(&format!("      {text} at {} nodes", workload.node_count()));
    }
    Ok(())
}

/// Instructions of a process that gets everything ready and places so many pods.
fn count(workload: &Workload, pods: usize) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["bench", "scheduler", "--workload", &workload.name, "--only-place", &pods.to_string()])
        .output()
        .context("cannot run valgrind")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind ended with {}:\n{told}", output.status);
    let collected = told.lines().filter_map(|line| line.split_once("Collected :")).next_back();
    let number = collected.context("valgrind told no number")?.1.trim();
    number.parse().with_context(|| format!("valgrind counted {number:?}"))
}
