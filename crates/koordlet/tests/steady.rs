//! A steady pass of the collectors opens no file and allocates nothing per sample, counted from outside.
//!
//! The test runs itself again with few and with many passes and compares: under `strace`, and with a library in front
//! of the C library that counts calls of its allocator, compiled here since Rust needs a C linker anyway. Where a tool
//! is missing it says so and passes, for `collect::tests` counts opens by the handles' own count everywhere; where `CI`
//! is set, as the benchmark does, it fails.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_linux::cgroup::{Cgroups, Driver, Version};
use koord_linux::root::Root;
use koord_testkit::node_tree::{Cgroup, NodeTree};
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
    let is_v1 = std::env::var(VERSION).unwrap() == "V1";
    let (version, cgroup) = if is_v1 { (Version::V1, Cgroup::V1) } else { (Version::V2, Cgroup::V2) };
    let dir = tempfile::tempdir().unwrap();
    let tree = NodeTree::make(dir.path(), cgroup, 12).unwrap();
    let root = Root::host(dir.path());
    let cgroups = Arc::new(Cgroups::new(&root, version, Driver::Systemd));
    let mut collectors =
        Collectors::new(&root, cgroups, Settings { node_info_interval: HOURS, ..Settings::default() });
    let read = |object: &serde_json::Value| Pod::read(&serde_json::from_value(object.clone()).unwrap());
    let pods: Vec<Pod> = tree.pods().map(read).collect();
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

/// # Panics
/// When `CI` is set, for there a skip is a failure.
fn skip(why: &str) {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!in_ci, "this test needs a tool, and CI is set: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Runs the child, behind other words where there are some.
fn run_child(
    words: &[&str],
    variables: &[(&str, &Path)],
    version: Version,
    passes: u32,
) -> Option<std::process::Output> {
    let own = std::env::current_exe().unwrap();
    let words: Vec<&str> = words.iter().copied().chain([own.to_str().unwrap()]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["--exact", "child", "--test-threads=1"]);
    command.env(PASSES, passes.to_string()).env(VERSION, format!("{version:?}"));
    command.envs(variables.iter().copied());
    match command.output() {
        Ok(output) if output.status.success() => Some(output),
        Ok(output) => {
            skip(&format!("{} does not work here: {}", words[0], String::from_utf8_lossy(&output.stderr)));
            None
        }
        Err(error) => {
            skip(&format!("there is no {}: {error}", words[0]));
            None
        }
    }
}

#[test]
fn no_opens() {
    for version in [Version::V1, Version::V2] {
        let opens = |passes| {
            let log = tempfile::NamedTempFile::new().unwrap();
            let path = log.path().to_str().unwrap();
            let words = ["strace", "-f", "-e", "trace=open,openat,openat2", "-o", path];
            run_child(&words, &[], version, passes)?;
            Some(std::fs::read_to_string(path).unwrap().lines().filter(|line| line.contains("open")).count())
        };
        let Some((few, many)) = opens(FEW).zip(opens(MANY)) else { return };
        eprintln!("{version:?}: {few} opens in {FEW} passes, {many} in {MANY}");
        assert!(few > 60, "{few}");
        // The test's own frame may open one or the other.
        assert!(many.abs_diff(few) <= 8, "{version:?}: {few} {many}");
    }
}

/// Stands before glibc's allocator and tells at the end how often it was called.
const COUNTER: &str = r#"
#include <stdio.h>
#include <stddef.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static _Atomic unsigned long count;
void *malloc(size_t size) { count++; return __libc_malloc(size); }
void *calloc(size_t many, size_t size) { count++; return __libc_calloc(many, size); }
void *realloc(void *old, size_t size) { count++; return __libc_realloc(old, size); }
int posix_memalign(void **out, size_t align, size_t size) { count++; *out = __libc_memalign(align, size); return *out ? 0 : 12; }
__attribute__((destructor)) static void tell(void) { fprintf(stderr, "allocations: %lu\n", count); }
"#;

#[test]
fn no_allocations() {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("count.c"), dir.path().join("count.so"));
    std::fs::write(&source, COUNTER).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).output();
    if !compiled.as_ref().is_ok_and(|output| output.status.success()) {
        return skip(&format!("no C compiler for glibc: {compiled:?}"));
    }
    for version in [Version::V1, Version::V2] {
        let allocations = |passes| -> u64 {
            let output = run_child(&[], &[("LD_PRELOAD", &library)], version, passes).unwrap();
            let report = String::from_utf8(output.stderr).unwrap();
            let line = report.lines().find_map(|line| line.strip_prefix("allocations: "));
            line.unwrap_or_else(|| panic!("{report}")).parse().unwrap()
        };
        let (few, many) = (allocations(FEW), allocations(MANY));
        eprintln!("{version:?}: {few} allocations in {FEW} passes, {many} in {MANY}");
        // The store takes pages 64 at a time. A pass of some 70 samples takes nothing.
        assert!(many.saturating_sub(few) <= 8, "{version:?}: {few} {many}");
    }
}
