//! Ends processes and deletes their folder when the owner is gone, even by SIGKILL.
//!
//! Two small processes, and no signal handler or other code that must still run in the owner:
//! - the *reaper*, a shell that waits for the end of a pipe whose other end only the owner holds.
//!   When the owner closes it, or dies, the reaper kills the process group and deletes the folder;
//! - the *anchor*, the first member of the process group that the components join. It ends only
//!   with the reaper, so the group's number cannot pass to strangers while the reaper may use it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Error;

/// Reads the group's number, waits for the end of input, then clears up. A killed process may
/// still finish a write, so that deleting may need a second try.
const REAPER: &str = r#"
read -r group
while read -r _; do :; done
[ -n "$group" ] && kill -9 "-$group"
tries=0
until rm -rf "$1" || [ "$tries" -ge 50 ]; do tries=$((tries + 1)); sleep 0.1; done
"#;

pub(crate) struct Watchdog {
    dir: PathBuf,
    reaper: Child,
    anchor: Child,
    /// The pipe whose end is the signal.
    alive: Option<ChildStdin>,
}

impl Watchdog {
    /// Takes charge of `dir`: whatever happens next, it is deleted in the end.
    pub(crate) fn start(dir: &Path) -> Result<Watchdog, Error> {
        let failed = || Error::io("start a watchdog for", dir);
        let mut reaper =
            shell(REAPER).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed())?;
        let mut alive = reaper.stdin.take();
        let held_by_reaper = reaper.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let anchor = shell("read -r _").stdin(held_by_reaper).stdout(Stdio::null()).spawn();
        let anchor = anchor.map_err(failed())?;
        if let Some(pipe) = &mut alive {
            writeln!(pipe, "{}", anchor.id()).map_err(failed())?;
        }
        Ok(Watchdog { dir: dir.to_path_buf(), reaper, anchor, alive })
    }

    /// The process group that dies with the owner, for [`CommandExt::process_group`].
    pub(crate) fn group(&self) -> i32 {
        // A group of its own for each process, should numbers ever outgrow what systems use.
        i32::try_from(self.anchor.id()).unwrap_or(0)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.reaper.wait();
        // Both have ended unless somebody killed the reaper; then its work falls to us.
        let _ = self.anchor.kill();
        let _ = self.anchor.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// In a process group of its own, so that Ctrl-C in a terminal does not reach it.
fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "koord-testkit-watchdog"]);
    command.current_dir("/").stderr(Stdio::null()).process_group(0);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_until;
    use std::time::Duration;

    #[test]
    fn ends_its_group_and_folder() {
        let dir = tempfile::tempdir().unwrap().keep();
        std::fs::create_dir_all(dir.join("deep/er")).unwrap();
        let watchdog = Watchdog::start(&dir).unwrap();
        let mut member = Command::new("sleep").arg("600").process_group(watchdog.group()).spawn().unwrap();
        assert!(member.try_wait().unwrap().is_none());
        drop(watchdog);
        wait_until(Duration::from_secs(10), "the member to end", || member.try_wait().unwrap()).unwrap();
        assert!(!dir.exists());
    }

    #[test]
    fn a_killed_reaper_leaves_no_folder_either() {
        let dir = tempfile::tempdir().unwrap().keep();
        let mut watchdog = Watchdog::start(&dir).unwrap();
        watchdog.reaper.kill().unwrap();
        drop(watchdog);
        assert!(!dir.exists());
    }
}
