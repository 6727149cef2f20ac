//! The kernel tests of koord-linux and koordlet in a virtual machine, where there are cgroup v2, NUMA nodes and
//! hyper-threads.
//!
//! The program that runs there is this one: it carries those tests, and so they run here as well.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[path = "../../../crates/linux/tests/real_cgroups.rs"]
mod real_cgroups;
#[path = "../../../crates/koordlet/tests/real.rs"]
mod real_collectors;
#[path = "../../../crates/linux/tests/real_node.rs"]
mod real_node;

use koord_e2e::machine::{Machine, Trip};

/// What an emulated CPU cannot do, and what Debian's kernel does not have.
const MAY_BE_SKIPPED: [&str; 2] = ["does not count cycles", "has no core scheduling"];

#[test]
fn the_same_tests_pass_in_a_virtual_machine() {
    let Some(machine) = Machine::find() else { return };
    let program = std::env::current_exe().unwrap();
    let arguments = ["real_", "--test-threads=2", "--nocapture"];
    let outcome = machine.run(&Trip::new(&program, &arguments)).unwrap();
    let output = &outcome.output;
    assert_eq!(outcome.status, 0, "{output}");
    let is_excused = |line: &str| MAY_BE_SKIPPED.iter().any(|excuse| line.contains(excuse));
    let skipped: Vec<&str> =
        output.lines().filter(|line| line.contains("skipped:") && !is_excused(line)).collect();
    assert!(skipped.is_empty(), "{skipped:?}\n{output}");
    let passed = output.lines().rev().find_map(|line| line.trim().strip_prefix("test result: ok. "));
    let count = passed.and_then(|line| line.split(' ').next()?.parse::<u32>().ok());
    assert!(count.is_some_and(|count| count >= 13), "{output}");
    eprintln!("in the virtual machine: {} passed", count.unwrap_or(0));
}
