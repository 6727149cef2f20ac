//! A process of the benchmark: the tree that moves, the collectors, or the plain reader.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A running process. Killed when dropped.
pub(super) struct Role {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Role {
    pub(super) fn start(program: &Path, words: &[&str]) -> Result<Role> {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let output = child.stdout.take().context("the output is piped")?;
        Ok(Role { child, output: BufReader::new(output) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line that it prints.
    pub(super) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let length = self.output.read_line(&mut line)?;
        ensure!(length > 0, "the process ended without a word");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
