//! What `/proc/<pid>` tells of a process, and its end. Spec: koordlet-observe 2.6.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, Malformed};
use crate::root::Root;
use crate::text;

/// A process that no other is taken for: ids are used again, but never with the same start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    pub pid: u32,
    /// When it began, in the kernel's ticks since the machine did.
    pub start_ticks: u64,
}

impl Process {
    /// Whether it runs, and nobody else has its id.
    pub fn is_there(self, root: &Root) -> bool {
        ProcessStat::read(root, self.pid).is_ok_and(|stat| stat.start_ticks == self.start_ticks)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub command: String,
    pub state: char,
    pub parent: u32,
    pub group: u32,
    /// See [`Process`].
    pub start_ticks: u64,
}

impl ProcessStat {
    /// `1234 (some command) S 1 1234 …`
    pub fn parse(content: &str) -> Result<ProcessStat, Malformed> {
        let fault = || Malformed(format!("cannot parse process stat {:?}", content.trim_end()));
        let (_, rest) = content.split_once('(').ok_or_else(fault)?;
        // Differs: upstream ends the command at its first `)`, which a command may itself contain.
        let (command, rest) = rest.rsplit_once(')').ok_or_else(fault)?;
        let mut words = rest.split_whitespace();
        let state = words.next().and_then(|word| word.chars().next()).ok_or_else(fault)?;
        let parent = words.next().and_then(|word| word.parse().ok()).ok_or_else(fault)?;
        let group = words.next().and_then(|word| word.parse().ok()).ok_or_else(fault)?;
        // The 22nd word of all, counted with the id and the command.
        let start_ticks = words.nth(16).and_then(|word| word.parse().ok()).ok_or_else(fault)?;
        Ok(ProcessStat { command: command.to_owned(), state, parent, group, start_ticks })
    }

    pub fn read(root: &Root, pid: u32) -> Result<ProcessStat, Error> {
        let path = dir(root, pid).join("stat");
        ProcessStat::parse(&text::read(&path)?).map_err(|source| Error::content(&path, source))
    }
}

/// The words of the command line.
pub fn command_line(root: &Root, pid: u32) -> Result<Vec<String>, Error> {
    let line = text::read(&dir(root, pid).join("cmdline"))?;
    Ok(line.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

/// Kills a process and those of its group that it began. What has ended already needs no ending.
pub fn kill_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

pub(crate) fn dir(root: &Root, pid: u32) -> PathBuf {
    root.proc.join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_may_hold_anything() {
        let rest = "7 0 -1 4194560 95 0 0 0 1 2 3 4 20 0 1 0 5551 2969600 0";
        for (text, command, parent) in [
            (format!("7 (sleep) S 1 7 {rest}"), "sleep", 1),
            (format!("8 (a) b (c)) R 2 8 {rest}"), "a) b (c)", 2),
        ] {
            let stat = ProcessStat::parse(&text).unwrap();
            assert_eq!(
                (stat.command.as_str(), stat.parent, stat.start_ticks),
                (command, parent, 5551),
                "{text}"
            );
        }
        for text in ["", "7 sleep S 1", "7 (sleep)", "7 (sleep) S x 7", "7 (sleep) S 1 7 7 0"] {
            assert!(ProcessStat::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn this_process_is_found() {
        let root = Root::host("/");
        let own = std::process::id();
        let stat = ProcessStat::read(&root, own).unwrap();
        assert!(stat.parent > 0);
        for (pid, start_ticks, is_there) in
            [(own, stat.start_ticks, true), (own, stat.start_ticks + 1, false), (u32::MAX, 0, false)]
        {
            assert_eq!(Process { pid, start_ticks }.is_there(&root), is_there, "{pid} {start_ticks}");
        }
        assert!(!command_line(&root, own).unwrap().is_empty());
        assert!(matches!(command_line(&root, u32::MAX), Err(Error::Missing { .. })));
    }
}
