//! Programs of the host, run where they are.

use std::path::PathBuf;
use std::process::Command;

/// Runs a program and gives what it prints; or why it failed.
pub(in crate::act) trait Programs: Send {
    fn run(&self, words: &[&str]) -> Result<String, String>;
}

/// The host's own programs.
pub(in crate::act) struct Host {
    /// The namespace of the host's files; none when this process sees them itself.
    pub(in crate::act) mounts: Option<PathBuf>,
}

impl Programs for Host {
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let Some((program, arguments)) = words.split_first() else { return Ok(String::new()) };
        let mut command = match &self.mounts {
            Some(mounts) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--mount={}", mounts.display())).arg(program);
                command
            }
            None => Command::new(program),
        };
        let output = command.args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}", words.join(" "), said.trim()))
    }
}
