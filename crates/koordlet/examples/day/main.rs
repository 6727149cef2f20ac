//! Hours of a node as fast as they go: the node's thread with everything that it owns, on a node of plain files.
//!
//! `day DIR v1|v2 CONTAINERS HOURS PERCENT` replaces so many percent of the pods every minute and prints, every ten
//! minutes, the minute and the resident memory in KiB. The last hour ends now, and what is measured is kept in DIR, so
//! that a koordlet that starts there has it. `cargo xtask bench koordlet` runs it.

#![allow(clippy::print_stdout)]

mod world;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use koord_testkit::node_tree::Cgroup;
use world::{Fault, World};

/// What `koord` has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MINUTE_SECONDS: u32 = 60;
const TOLD_MINUTES: u32 = 10;

fn main() -> Result<(), Fault> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [dir, version, containers, hours, percent] = words[..] else {
        return Err("day DIR v1|v2 CONTAINERS HOURS PERCENT".into());
    };
    let cgroup = match version {
        "v1" => Cgroup::V1,
        "v2" => Cgroup::V2,
        _ => return Err(format!("{version} is neither v1 nor v2").into()),
    };
    let (hours, percent): (u32, usize) = (hours.parse()?, percent.parse()?);
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let start_ms = now_ms - i64::from(hours) * 3_600_000;
    let mut world = World::new(Path::new(dir), cgroup, containers.parse()?, start_ms)?;
    let mut due = 0;
    for minute in 1..=hours * 60 {
        for _ in 0..MINUTE_SECONDS {
            world.second()?;
        }
        // Hundredths of pods, so that few pods are replaced seldom rather than never.
        due += world.tree.pods().len() * percent;
        world.tree.replace(due / 100)?;
        due %= 100;
        if minute.is_multiple_of(TOLD_MINUTES) {
            println!("{minute} {}", resident_kib()?);
        }
    }
    world.brain.end();
    Ok(())
}

fn resident_kib() -> Result<u64, Fault> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
