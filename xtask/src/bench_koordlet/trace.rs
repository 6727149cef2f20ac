//! Which files a process opens and writes, seen by `strace`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) opened: Vec<PathBuf>,
    /// To files of the kernel's kind: those below the tree.
    pub(super) writes: usize,
    /// With the value that the same file got before.
    pub(super) repeated: usize,
}

impl Calls {
    /// Opens besides so many.
    pub(super) fn others(&self, known: usize) -> usize {
        self.opened.len().saturating_sub(known)
    }
}

/// Values of files by their paths, as far as these are texts.
type Held = HashMap<String, String>;

/// The tree that a process writes to.
pub(super) struct Tree {
    /// Where its files lie.
    pub(super) files: PathBuf,
    /// Where the process finds them, which is elsewhere when they are bound over another directory for it alone.
    pub(super) seen_at: PathBuf,
}

/// Watches a process that writes to this tree. Halfway something is done that makes it write.
pub(super) fn watch(
    pid: u32,
    tree: &Tree,
    time: Duration,
    disturb: impl FnOnce() -> Result<()>,
) -> Result<Calls> {
    let log = tempfile::NamedTempFile::new()?;
    let mut held = Held::new();
    read_all(&tree.files, &tree.seen_at, &mut held);
    ensure!(!held.is_empty(), "{} has no files to compare writes with", tree.files.display());
    let mut strace = Command::new("strace")
        .args(["-f", "-q", "-y", "-s", "200", "-e", "trace=open,openat,openat2,write,pwrite64", "-o"])
        .arg(log.path())
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start strace")?;
    std::thread::sleep(time / 2);
    let disturbed = disturb();
    std::thread::sleep(time / 2);
    let ended = strace.try_wait()?;
    ensure!(ended.is_none(), "strace ended early: it may not look at other processes here");
    strace.kill()?;
    strace.wait()?;
    disturbed?;
    Ok(count(&fs::read_to_string(log.path())?, held))
}

/// What files held before anything was seen, so that the first write of the same is one too many already. They get the
/// names that they are seen at.
fn read_all(dir: &Path, seen_at: &Path, into: &mut Held) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, seen_at) = (entry.path(), seen_at.join(entry.file_name()));
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => read_all(&path, &seen_at, into),
            // Those that cannot be read are only written, and what they hold is not known.
            Ok(kind) if kind.is_file() => {
                if let (Some(name), Ok(text)) = (seen_at.to_str(), fs::read_to_string(&path)) {
                    // Quotas are written without the period that stands beside them.
                    let quota = text.split_whitespace().next().filter(|_| name.ends_with("/cpu.max"));
                    into.insert(name.to_owned(), quota.unwrap_or(text.trim()).to_owned());
                }
            }
            _ => {}
        }
    }
}

fn count(log: &str, mut held: Held) -> Calls {
    let mut calls = Calls::default();
    // A line is `PID call(arguments) = result`.
    for line in log.lines().filter_map(|line| line.split_once(' ')).map(|(_, call)| call.trim_start()) {
        if line.starts_with("open") {
            // The path is the first quoted text.
            calls.opened.extend(line.split('"').nth(1).map(PathBuf::from));
        }
        let Some(arguments) = line.strip_prefix("write(").or_else(|| line.strip_prefix("pwrite64(")) else {
            continue;
        };
        // The file stands as `3</path/of/it>`, the value as a quoted text.
        let parts = arguments.split_once('<').and_then(|(_, rest)| rest.split_once(">, "));
        let Some((path, value)) = parts.filter(|(path, _)| path.contains("/cgroup/")) else { continue };
        // A newline at the end is spelt as in C.
        let value = value.split('"').nth(1).unwrap_or(value).trim_end_matches("\\n").trim().to_owned();
        calls.writes += 1;
        let before = held.insert(path.to_owned(), value.clone());
        calls.repeated += usize::from(before == Some(value));
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_strace() {
        let log = "7  openat(AT_FDCWD</>, \"/tmp/x/sys/fs/cgroup/a\", O_RDONLY) = 5</tmp/x>\n\
                   7  write(5</tmp/x/sys/fs/cgroup/cpu.max>, \"max\", 3) = 3\n\
                   8  write(5</tmp/x/sys/fs/cgroup/cpu.max>, \"50000\", 5) = 5\n\
                   8  write(6</tmp/x/sys/fs/cgroup/cpu.max>, \"50000\", 5) = 5\n\
                   8  write(1</dev/null>, \"50000\", 5) = 5\n";
        let opened = vec![PathBuf::from("/tmp/x/sys/fs/cgroup/a")];
        assert_eq!(count(log, Held::new()), Calls { opened: opened.clone(), writes: 3, repeated: 1 });
        let held = Held::from([("/tmp/x/sys/fs/cgroup/cpu.max".to_owned(), "max".to_owned())]);
        assert_eq!(count(log, held), Calls { opened, writes: 3, repeated: 2 });
    }
    #[test]
    fn files_that_are_seen_elsewhere() -> Result<()> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("pod"))?;
        fs::write(dir.path().join("pod/cpu.max"), "50000 100000\n")?;
        let mut held = Held::new();
        read_all(dir.path(), Path::new("/sys/fs/cgroup/bench"), &mut held);
        let log = "7  write(5</sys/fs/cgroup/bench/pod/cpu.max>, \"50000\", 5) = 5\n";
        let (writes, repeated) = (1, 1);
        assert_eq!(count(log, held), Calls { opened: Vec::new(), writes, repeated });
        Ok(())
    }
}
