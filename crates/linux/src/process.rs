//! What `/proc/<pid>` tells of a process. Spec: koordlet-observe 2.6.

use std::path::PathBuf;

use crate::error::{Error, Malformed};
use crate::root::Root;
use crate::text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub command: String,
    pub state: char,
    pub parent: u32,
    pub group: u32,
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
        Ok(ProcessStat { command: command.to_owned(), state, parent, group })
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

pub(crate) fn dir(root: &Root, pid: u32) -> PathBuf {
    root.proc.join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_may_hold_anything() {
        for (text, command, parent) in
            [("7 (sleep) S 1 7 7 0", "sleep", 1), ("8 (a) b (c)) R 2 8 8", "a) b (c)", 2)]
        {
            let stat = ProcessStat::parse(text).unwrap();
            assert_eq!((stat.command.as_str(), stat.parent), (command, parent), "{text}");
        }
        for text in ["", "7 sleep S 1", "7 (sleep)", "7 (sleep) S x 7"] {
            assert!(ProcessStat::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn this_process_is_found() {
        let root = Root::host("/");
        let own = std::process::id();
        assert!(ProcessStat::read(&root, own).unwrap().parent > 0);
        assert!(!command_line(&root, own).unwrap().is_empty());
        assert!(matches!(command_line(&root, u32::MAX), Err(Error::Missing { .. })));
    }
}
