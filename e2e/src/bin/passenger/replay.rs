//! The kernel's rule, played over everything that koordlet wrote: a child's CPUs are among its parent's, and its quota
//! is not above the nearest one over it. v1 refuses what breaks it; v2 takes it, and then does less than was asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use koord_api::cpuset::CpuSet;
use serde_json::Value;

/// Values by file.
type Files = BTreeMap<PathBuf, String>;

/// Replays the writes of koordlet's logs on a picture of the files from before, and says how many there were.
pub(crate) fn check(first: &[(PathBuf, String)], log: &str) -> Result<usize> {
    let mut files: Files = first.iter().cloned().collect();
    let mut count = 0;
    for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if line["msg"] != "write" {
            continue;
        }
        let field =
            |name: &str| line[name].as_str().with_context(|| format!("a write without {name}: {line}"));
        let (path, value) = (PathBuf::from(field("path")?), field("value")?.trim().to_owned());
        let is_refused = !line["error"].is_null() && !field("error")?.is_empty();
        if is_refused && value.is_empty() && path.ends_with("cpuset.cpus") {
            // A set that was the parent's: not every kernel takes one from a group with processes, which is tried first.
            continue;
        }
        ensure!(!is_refused, "a write was refused: {line}");
        take_offline(&mut files, &path, field("before")?);
        files.insert(path.clone(), value);
        keeps_rule(&files, &path).with_context(|| format!("write {count}: {line}"))?;
        count += 1;
    }
    Ok(count)
}

/// v1 takes a CPU that goes offline from every set, and tells nobody: CPUs that a set lost by itself are gone below it too.
fn take_offline(files: &mut Files, path: &Path, before: &str) {
    let parsed = |text: &str| text.trim().parse::<CpuSet>().unwrap_or_default();
    let (before, known) = (parsed(before), files.get(path).map(|known| parsed(known)).unwrap_or_default());
    let lost = &known - &before;
    if !path.ends_with("cpuset.cpus") || before.is_empty() || lost.is_empty() {
        return;
    }
    let is_below = |other: &Path| path.parent().is_some_and(|dir| other.starts_with(dir));
    let below = files.iter_mut().filter(|(other, _)| other.ends_with("cpuset.cpus") && is_below(other));
    below.for_each(|(_, cpus)| *cpus = (&parsed(cpus) - &lost).to_string());
}

/// Whether a file fits below those above it, and over those below it.
fn keeps_rule(files: &Files, path: &Path) -> Result<()> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    let fits: fn(&str, &str) -> bool = match name {
        "cpuset.cpus" => cpus_fit,
        "cpu.max" | "cpu.cfs_quota_us" => quota_fits,
        _ => return Ok(()),
    };
    let is_below = |other: &Path| path.parent().is_some_and(|dir| other.starts_with(dir));
    // Groups that have gone since are nobody's children any more.
    let below = files.keys().filter(|other| other.file_name() == path.file_name());
    let below = below.filter(|other| is_below(other) && other.exists());
    for child in below {
        let mut above = child.parent().and_then(Path::parent);
        while let Some(dir) = above {
            let limit = files.get(&dir.join(name)).filter(|value| !is_open(value));
            if let Some(limit) = limit {
                ensure!(fits(&files[child], limit), "{} {:?} above {limit:?}", child.display(), files[child]);
                break;
            }
            above = dir.parent();
        }
    }
    Ok(())
}

/// Whether a group has no limit of its own.
fn is_open(value: &str) -> bool {
    matches!(value.split(' ').next(), None | Some("" | "max" | "-1"))
}

fn cpus_fit(child: &str, parent: &str) -> bool {
    let parsed = |text: &str| text.parse::<CpuSet>().unwrap_or_default();
    parsed(child).is_subset(&parsed(parent))
}

fn quota_fits(child: &str, parent: &str) -> bool {
    let parsed = |text: &str| text.split(' ').next().and_then(|word| word.parse::<i64>().ok());
    is_open(child) || parsed(child) <= parsed(parent)
}
