//! koordlet as a whole process on real kernels: real groups, real processes, limits that bite, and their undoing.
//!
//! `src/bin/passenger` plays the scenes: in a virtual machine with cgroup v2, and on this host's own cgroup v1.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::Path;
use std::process::Command;

use koord_e2e::machine::{Machine, Trip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_passenger");
/// Where Debian has what iptables loads.
const EXTENSIONS: &str = "/usr/lib/x86_64-linux-gnu/xtables";
/// As much as the API server, koordlet and the pods need, besides the machine's files.
const MEMORY_MIB: u32 = 1536;

/// Every scene that was asked for was played to its end.
fn all_passed(scenes: &[&str], status: i32, output: &str) {
    assert_eq!(status, 0, "{output}");
    for scene in scenes {
        let line = format!("scene {scene}: passed");
        assert!(output.contains(&line), "{line}\n{output}");
    }
    output.lines().filter(|line| line.starts_with("scene ")).for_each(|line| eprintln!("{line}"));
}

#[test]
fn koordlet_governs_a_virtual_machine() {
    let Some(machine) = Machine::find() else { return };
    let mut scenes = vec!["suppress", "limits", "evict", "hotplug", "clock", "restart"];
    if machine.has_modules() {
        scenes.extend(["disks", "traffic"]);
    }
    // For whoever works on one of them.
    let chosen = std::env::var("KOORD_SCENES").unwrap_or_default();
    if !chosen.is_empty() {
        scenes = chosen.split(',').collect();
    }
    let arguments = [&["scenes"][..], &scenes].concat();
    let extensions = ["libxt_set.so", "libxt_CLASSIFY.so"].map(|name| Path::new(EXTENSIONS).join(name));
    let trip = Trip {
        programs: &["ip", "tc", "ipset", "iptables"],
        files: &extensions,
        has_modules: true,
        memory_mib: MEMORY_MIB,
        ..Trip::new(Path::new(PROGRAM), &arguments)
    };
    let outcome = machine.run(&trip).unwrap();
    all_passed(&scenes, outcome.status, &outcome.output);
}

/// On this host's own kernel, in groups of the test's own. Where there is no cgroup v1, the machine has it.
#[test]
fn koordlet_governs_this_host() {
    if !Path::new("/sys/fs/cgroup/cpuset/cpuset.cpus").exists() {
        eprintln!("SKIPPED: this host has no cgroup v1");
        return;
    }
    let scenes = ["shared-host"];
    let output = Command::new(PROGRAM).arg("scenes").args(scenes).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    all_passed(&scenes, output.status.code().unwrap_or(-1), &text);
}
