//! One program of a control plane: started, watched, stopped, paused, its log at hand.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Program};

pub(crate) struct Process {
    program: Program,
    path: PathBuf,
    args: Vec<String>,
    dir: PathBuf,
    log: PathBuf,
    group: i32,
    child: Option<Child>,
}

impl Process {
    /// Not yet started. Runs in `dir` as a member of `group` and logs to `dir/<name>.log`.
    pub(crate) fn new(program: Program, path: PathBuf, args: Vec<String>, dir: &Path, group: i32) -> Process {
        let log = dir.join(format!("{}.log", program.name()));
        Process { program, path, args, dir: dir.to_path_buf(), log, group, child: None }
    }

    pub(crate) fn program(&self) -> Program {
        self.program
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it, or does nothing when it runs. The log goes on where it ended.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        if self.check().is_ok() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(Error::io("open", &self.log))?;
        let stdout = log.try_clone().map_err(Error::io("open", &self.log))?;
        let child = Command::new(&self.path)
            .args(&self.args)
            .current_dir(&self.dir)
            .process_group(self.group)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(log)
            .spawn()
            .map_err(Error::io("start", &self.path))?;
        self.child = Some(child);
        Ok(())
    }

    /// Ends it at once, as a crash would; also when it is paused.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        self.check()?;
        let pid = self
            .child
            .as_ref()
            .map(Pid::from_child)
            .ok_or(Error::Stopped { component: self.program.name() })?;
        kill_process(pid, signal).map_err(|errno| Error::io("signal", &self.path)(errno.into()))
    }

    /// An error with the end of its log when it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        let component = self.program.name();
        let child = self.child.as_mut().ok_or(Error::Stopped { component })?;
        match child.try_wait().map_err(Error::io("wait for", &self.path))? {
            None => Ok(()),
            Some(status) => {
                Err(Error::Exited { component, status, log: self.log.clone(), tail: self.log_tail() })
            }
        }
    }

    pub(crate) fn not_ready(&self, limit: Duration) -> Error {
        let (component, seconds) = (self.program.name(), limit.as_secs());
        Error::NotReady { component, seconds, log: self.log.clone(), tail: self.log_tail() }
    }

    fn log_tail(&self) -> String {
        const LINES_MAX: usize = 30;
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port on 127.0.0.1 that is free now. Below the range from which the kernel serves outgoing
/// connections, so that only another listener can take it before we do.
pub fn free_port() -> Result<u16, Error> {
    const TRIES: u32 = 100;
    const FIRST: u64 = 16_000;
    const COUNT: u64 = 16_000;
    for _ in 0..TRIES {
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ());
        let port = u16::try_from(FIRST + random % COUNT).unwrap_or(0);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::NoPort { tries: TRIES })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_until;

    #[test]
    fn a_process_that_ends_shows_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let args = vec!["-c".to_string(), "echo cannot go on; exit 3".to_string()];
        let mut process = Process::new(Program::Etcd, "/bin/sh".into(), args, dir.path(), 0);
        assert_eq!(
            process.check().unwrap_err().to_string(),
            "etcd is not running: it was stopped and not started again"
        );
        process.start().unwrap();
        let error = wait_until(Duration::from_secs(10), "the end", || process.check().err()).unwrap();
        let text = error.to_string();
        assert!(text.starts_with("etcd ended with exit status: 3"), "{text}");
        assert!(text.ends_with("etcd.log:\ncannot go on"), "{text}");
    }

    #[test]
    fn ports_are_free_and_outside_the_outgoing_range() {
        for _ in 0..20 {
            let port = free_port().unwrap();
            assert!((16_000..32_000).contains(&port), "{port}");
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }
}
