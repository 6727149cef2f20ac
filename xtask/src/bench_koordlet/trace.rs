//! Which files a process opens and writes, seen by `strace`.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

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

/// None where there is no strace.
pub(super) fn watch(pid: u32, time: Duration) -> Result<Option<Calls>> {
    let log = tempfile::NamedTempFile::new()?;
    let started = Command::new("strace")
        .args(["-f", "-q", "-y", "-s", "200", "-e", "trace=open,openat,openat2,write,pwrite64", "-o"])
        .arg(log.path())
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut strace = match started {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        started => started.context("cannot start strace")?,
    };
    std::thread::sleep(time);
    strace.kill()?;
    strace.wait()?;
    Ok(Some(count(&std::fs::read_to_string(log.path())?)))
}

fn count(log: &str) -> Calls {
    let mut calls = Calls::default();
    let mut held: HashMap<&str, &str> = HashMap::new();
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
        let value = value.rsplit_once(',').map_or(value, |(value, _)| value);
        calls.writes += 1;
        calls.repeated += usize::from(held.insert(path, value) == Some(value));
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
        assert_eq!(count(log), Calls { opened, writes: 3, repeated: 1 });
    }
}
