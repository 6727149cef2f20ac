//! koordlet as a whole process on real kernels: real groups, real processes, limits that bite, and their undoing.
//!
//! `src/bin/passenger` plays the scenes: in virtual machines with cgroup v2 and with v1, and on this host's own cgroup v1.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::Path;
use std::process::Command;

use koord_e2e::machine::{Groups, Machine, Trip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_passenger");
/// Where Debian has what iptables loads.
const EXTENSIONS: &str = "/usr/lib/x86_64-linux-gnu/xtables";
/// Scenes that load modules.
const WITH_MODULES: [&str; 2] = ["disks", "traffic"];
/// Scenes that may be skipped, and for want of what: Debian's kernel has no core scheduling.
const MAY_BE_SKIPPED: [(&str, &str); 1] = [("cookies", "this kernel has no core scheduling")];
/// As much as the API server, koordlet and the pods need, besides the machine's files.
const MEMORY_MIB: u32 = 1536;

/// Every scene that was asked for was played to its end, or may be skipped and says why.
fn all_passed(scenes: &[&str], status: i32, output: &str) {
    assert_eq!(status, 0, "{output}");
    for scene in scenes {
        let is_skipped = MAY_BE_SKIPPED.iter().any(|(excused, why)| {
            excused == scene && output.contains(&format!("scene {scene}: skipped: {why}"))
        });
        let line = format!("scene {scene}: passed");
        assert!(is_skipped || output.contains(&line), "{line}\n{output}");
    }
    let is_told = |line: &&str| line.starts_with("scene ") || line.starts_with("SKIPPED");
    output.lines().filter(is_told).for_each(|line| eprintln!("{line}"));
}

/// Plays scenes in a machine of their own; those of `KOORD_SCENES` alone, for whoever works on one of them.
fn play(cgroups: Groups, scenes: &[&str]) {
    let chosen = std::env::var("KOORD_SCENES").unwrap_or_default();
    let is_chosen = |scene: &&&str| chosen.is_empty() || chosen.split(',').any(|chosen| chosen == **scene);
    let mut scenes: Vec<&str> = scenes.iter().filter(is_chosen).copied().collect();
    let Some(machine) = Machine::find() else { return };
    if !machine.has_modules() {
        eprintln!(
            "SKIPPED: the kernel that KOORD_KERNEL names comes without the modules of {WITH_MODULES:?}"
        );
        scenes.retain(|scene| !WITH_MODULES.contains(scene));
    }
    if scenes.is_empty() {
        return;
    }
    let arguments = [&["scenes"][..], &scenes].concat();
    let extensions = ["libxt_set.so", "libxt_CLASSIFY.so"].map(|name| Path::new(EXTENSIONS).join(name));
    let trip = Trip {
        programs: &["ip", "tc", "ipset", "iptables"],
        files: &extensions,
        has_modules: true,
        memory_mib: MEMORY_MIB,
        cgroups,
        ..Trip::new(Path::new(PROGRAM), &arguments)
    };
    let outcome = machine.run(&trip).unwrap();
    all_passed(&scenes, outcome.status, &outcome.output);
}

#[test]
fn pods_are_governed_in_a_virtual_machine() {
    play(Groups::V2, &["suppress", "limits", "evict", "cookies"]);
}

#[test]
fn koordlet_bears_what_happens_to_a_virtual_machine() {
    play(Groups::V2, &["hotplug", "clock", "restart"]);
}

#[test]
fn disks_and_networks_are_governed_in_a_virtual_machine() {
    play(Groups::V2, &["disks", "traffic"]);
}

#[test]
fn pins_and_what_is_off_by_default_work_in_a_virtual_machine() {
    play(Groups::V2, &["pinned", "gated"]);
}

#[test]
fn pins_and_what_is_off_by_default_work_in_a_virtual_machine_with_cgroup_v1() {
    play(Groups::V1, &["pinned", "gated"]);
}

/// v1 refuses whatever would let a child exceed its parent.
#[test]
fn pods_are_governed_in_a_virtual_machine_with_cgroup_v1() {
    play(Groups::V1, &["suppress", "limits", "evict", "hotplug", "restart"]);
}

/// Plays a scene on this host's own kernel, in groups of the test's own. Where there is no cgroup v1, the machine has it.
fn play_here(scene: &str) {
    let probe =
        Path::new("/sys/fs/cgroup/cpuset").join(format!("koord-probe-{scene}-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)) {
        eprintln!("SKIPPED: this host has no cgroup v1 that can be written: {error}");
        return;
    }
    let output = Command::new(PROGRAM).args(["scenes", scene]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    all_passed(&[scene], output.status.code().unwrap_or(-1), &text);
}

#[test]
fn koordlet_governs_this_host() {
    play_here("shared-host");
}

#[test]
fn containers_of_a_real_containerd_are_governed_and_stopped() {
    play_here("containers");
}
