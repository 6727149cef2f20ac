//! Steps: long work that says what it is doing, how long it took, and what went wrong.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// One line for the person who waits.
pub(crate) fn say(line: &str) {
    // Nothing useful remains to be done when standard error is gone.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The steps of one task, with the time that each took.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
}

impl Steps {
    /// Runs one step under a heading.
    pub(crate) fn run(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        say(&format!("\n=== {name}"));
        let start = Instant::now();
        work().with_context(|| format!("step \"{name}\" failed"))?;
        self.done.push((name.to_owned(), start.elapsed()));
        Ok(())
    }

    /// Says how long each step took.
    pub(crate) fn summary(&self) {
        say("\n=== all steps passed");
        for (name, time) in &self.done {
            say(&format!("{:>6.1} s  {name}", time.as_secs_f64()));
        }
        let total: Duration = self.done.iter().map(|(_, time)| *time).sum();
        say(&format!("{:>6.1} s  in all", total.as_secs_f64()));
    }
}

/// Runs a command in the repository's root, showing its output; an exit other than 0 is an error.
pub(crate) fn exec(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    say(&format!("$ {shown}"));
    let status =
        command.current_dir(crate::root()).status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// `cargo` as it was called for us, with the given words.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words);
    command
}

fn shown(command: &Command) -> String {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| std::path::Path::new(word).display().to_string())
        .collect();
    let program = words[0].rsplit('/').next().unwrap_or(&words[0]).to_owned();
    std::iter::once(program).chain(words[1..].iter().cloned()).collect::<Vec<_>>().join(" ")
}
