//! A steady pass of the collectors opens no file and allocates nothing per sample, counted from outside.
//!
//! The test runs itself again under `strace` and `valgrind` with few and with many passes and compares. Where a tool is
//! missing it says so and passes: `collect::tests` counts opens by the handles' own count everywhere.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "../examples/observe/tree.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod tree;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_linux::cgroup::{Cgroups, Driver, Version};
use koord_linux::root::Root;
use koordlet::collect::{Collectors, MemoryPolicy, Moment, Settings};
use koordlet::decide::snapshot::Pod;
use koordlet::store::{Limits, Store};

const PASSES: &str = "KOORD_TEST_PASSES";
const VERSION: &str = "KOORD_TEST_VERSION";
const FEW: u32 = 40;
const MANY: u32 = 140;

/// What the children do; alone it does nothing.
#[test]
fn child() {
    let Ok(passes) = std::env::var(PASSES) else { return };
    let version = if std::env::var(VERSION).unwrap() == "V1" { Version::V1 } else { Version::V2 };
    let dir = tempfile::tempdir().unwrap();
    let tree = tree::Tree::make(dir.path(), version, 12).unwrap();
    let root = Root::host(dir.path());
    let cgroups = Arc::new(Cgroups::new(&root, version, Driver::Systemd));
    let mut collectors =
        Collectors::new(&root, cgroups, Settings { node_info_interval: HOURS, ..Settings::default() });
    let pods: Vec<Pod> = tree.pods.iter().map(Pod::read).collect();
    collectors.set_pods(&pods);
    collectors.set_applications(Some(&[]), MemoryPolicy::default());
    let mut store = Store::new(&Limits::default());
    let start = Instant::now();
    for pass in 0..passes.parse().unwrap() {
        let unix_ms = 1_700_000_000_000 + i64::from(pass) * 1000;
        collectors.pass(Moment { unix_ms, instant: start + Duration::from_secs(1) * pass }, &mut store);
        store.tend(unix_ms);
    }
    assert!(store.stats().series > 12 * 3, "{:?}", store.stats());
}

/// What changes seldom is read once here, since it is not part of every pass.
const HOURS: Duration = Duration::from_secs(1_000_000);

fn child_under(
    tool: &str,
    arguments: &[&str],
    version: Version,
    passes: u32,
) -> Option<std::process::Output> {
    let mut command = Command::new(tool);
    command.args(arguments).arg(std::env::current_exe().unwrap()).args([
        "--exact",
        "child",
        "--test-threads=1",
    ]);
    command.env(PASSES, passes.to_string()).env(VERSION, format!("{version:?}"));
    match command.output() {
        Ok(output) if output.status.success() => Some(output),
        Ok(output) => {
            eprintln!("skipped: {tool} does not work here: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            eprintln!("skipped: there is no {tool}: {error}");
            None
        }
    }
}

#[test]
fn no_opens() {
    for version in [Version::V1, Version::V2] {
        let opens = |passes| {
            let log = tempfile::NamedTempFile::new().unwrap();
            let path: &Path = log.path();
            let arguments = ["-f", "-e", "trace=open,openat,openat2", "-o", path.to_str().unwrap()];
            child_under("strace", &arguments, version, passes)?;
            Some(std::fs::read_to_string(path).unwrap().lines().filter(|line| line.contains("open")).count())
        };
        let Some((few, many)) = opens(FEW).zip(opens(MANY)) else { return };
        eprintln!("{version:?}: {few} opens in {FEW} passes, {many} in {MANY}");
        assert_eq!(few, many, "{version:?}");
    }
}

#[test]
fn no_allocations() {
    for version in [Version::V1, Version::V2] {
        let allocations = |passes| {
            let output = child_under("valgrind", &["--leak-check=no"], version, passes)?;
            allocations(&String::from_utf8_lossy(&output.stderr))
        };
        let Some((few, many)) = allocations(FEW).zip(allocations(MANY)) else { return };
        eprintln!("{version:?}: {few} allocations in {FEW} passes, {many} in {MANY}");
        // The store takes pages 64 at a time, and grows lists now and then; a pass of 60 samples takes none.
        assert!(many.saturating_sub(few) < u64::from(MANY - FEW) / 2, "{version:?}: {few} {many}");
    }
}

/// Of the line `total heap usage: 1,234 allocs, …`.
fn allocations(report: &str) -> Option<u64> {
    let (_, rest) = report.split_once("total heap usage: ")?;
    rest.split(" allocs").next()?.replace(',', "").parse().ok()
}
