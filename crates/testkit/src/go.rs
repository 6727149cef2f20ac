//! Running the Go toolchain: is it there and new enough, get sources, build one program.
//!
//! The user's own settings (GOPROXY, GOFLAGS, GOTOOLCHAIN, …) hold. Only what would make a build
//! depend on this machine is switched off: workspaces and cgo.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::cache::say;
use crate::watchdog::Watchdog;

/// What the pinned Kubernetes and our Go peers ask for.
pub(crate) const GO_NEEDED: &str = "1.25";

/// How often a build that takes long says that it is still alive.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// One program to build from the module in `dir`.
pub(crate) struct Build<'a> {
    pub(crate) what: &'a str,
    pub(crate) dir: &'a Path,
    pub(crate) package: &'a str,
    pub(crate) flags: &'a [String],
    pub(crate) output: &'a Path,
}

fn go(dir: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(dir).env("GOWORK", "off").env("CGO_ENABLED", "0").stdin(Stdio::null());
    command
}

/// Runs Go to its end and returns what it printed.
pub(crate) fn run(what: &str, dir: &Path, args: &[&str]) -> Result<GoOutput, Error> {
    let output = go(dir).args(args).output().map_err(|source| spawn_error(what, dir, source))?;
    Ok(GoOutput {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

pub(crate) struct GoOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Fails unless the Go that would build the module in `dir` is at least `needed`.
pub(crate) fn require(what: &str, dir: &Path, needed: &str) -> Result<(), Error> {
    let answer = run(what, dir, &["env", "GOVERSION"])?;
    let text = answer.stdout.trim();
    let Some(found) = text.strip_prefix("go") else {
        return Ok(()); // A development build: its number says nothing, let the compiler judge.
    };
    if release(found) < release(needed) {
        let (needed, found) = (needed.to_string(), found.to_string());
        return Err(Error::GoTooOld { what: what.to_string(), needed, found });
    }
    Ok(())
}

/// `1.25.0` and `1.26rc1 X:something` as comparable numbers.
fn release(text: &str) -> Vec<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut numbers: Vec<u32> = text[..end].split('.').filter_map(|part| part.parse().ok()).collect();
    numbers.resize(3, 0);
    numbers
}

/// Downloads every module that `packages` need, so that a build that fails later is not the
/// network's fault.
pub(crate) fn fetch(what: &str, dir: &Path, mode: &str, packages: &[&str]) -> Result<(), Error> {
    let mut args = vec!["list", mode, "-deps", "-f", "{{.ImportPath}}"];
    args.extend(packages);
    let answer = run(what, dir, &args)?;
    if answer.status.success() {
        return Ok(());
    }
    let (what, output) = (what.to_string(), tail(&answer.stderr));
    Err(if is_network(&output) { Error::Download { what, output } } else { Error::Build { what, output } })
}

/// Go names the address, or the setting that forbids it, when it could not get something.
fn is_network(output: &str) -> bool {
    ["Get \"http", "reading http", "GOPROXY=", "unable to access"].iter().any(|sign| output.contains(sign))
}

/// Builds one program. `output` appears whole or not at all, and a build whose caller dies ends.
pub(crate) fn build(job: &Build<'_>) -> Result<(), Error> {
    let (out_dir, name) = match (job.output.parent(), job.output.file_name()) {
        (Some(dir), Some(name)) => (dir, name),
        _ => return Err(Error::io("write", job.output)(io::ErrorKind::InvalidFilename.into())),
    };
    fs::create_dir_all(out_dir).map_err(Error::io("create", out_dir))?;
    let scratch = tempfile::Builder::new().prefix(".build-").tempdir_in(out_dir);
    let scratch = scratch.map_err(Error::io("create a folder in", out_dir))?.keep();
    let watchdog = Watchdog::start(&scratch)?;
    let (binary, log) = (scratch.join(name), scratch.join("log"));
    let stderr = File::create(&log).map_err(Error::io("create", &log))?;
    let mut command = go(job.dir);
    command.args(["build", "-trimpath"]).args(job.flags).arg("-o").arg(&binary).arg(job.package);
    command.stdout(Stdio::null()).stderr(stderr).process_group(watchdog.group());
    let mut child = command.spawn().map_err(|source| spawn_error(job.what, job.dir, source))?;
    if !wait(&mut child, job)?.success() {
        let text = fs::read_to_string(&log).unwrap_or_default();
        return Err(Error::Build { what: job.what.to_string(), output: tail(&text) });
    }
    fs::rename(&binary, job.output).map_err(Error::io("put in place", job.output))
}

fn wait(child: &mut Child, job: &Build<'_>) -> Result<ExitStatus, Error> {
    let start = Instant::now();
    let mut beat = HEARTBEAT;
    loop {
        if let Some(status) = child.try_wait().map_err(Error::io("wait for go in", job.dir))? {
            return Ok(status);
        }
        if start.elapsed() >= beat {
            say(&format!("still building {} ({} s)", job.what, start.elapsed().as_secs()));
            beat += HEARTBEAT;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn spawn_error(what: &str, dir: &Path, source: io::Error) -> Error {
    // A missing working folder gives the same code as a missing program.
    if source.kind() == io::ErrorKind::NotFound && dir.is_dir() {
        return Error::GoMissing { what: what.to_string() };
    }
    Error::io("run go in", dir)(source)
}

/// The end of a compiler's output, without the lines that only list downloads.
pub(crate) fn tail(text: &str) -> String {
    const LINES_MAX: usize = 40;
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("go: downloading")).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_releases_compare_as_numbers() {
        for (older, newer) in
            [("1.9", "1.25"), ("1.25.0", "1.25.1"), ("1.24.7", "1.25"), ("1.25.9", "1.26rc1 X:nodwarf5")]
        {
            assert!(release(older) < release(newer), "{older} {newer}");
        }
        assert_eq!(release("1.25"), release("1.25.0"));
    }

    #[test]
    fn a_lack_of_network_is_told_from_a_fault_of_ours() {
        for (output, want) in [
            (
                r#"m@v1: Get "https://proxy/m/@v/v1.info": dial tcp 127.0.0.1:1: connect: connection refused"#,
                true,
            ),
            ("m@v1: reading https://proxy/m/@v/v1.zip: 502 Bad Gateway", true),
            ("module m: module lookup disabled by GOPROXY=off", true),
            ("main.go:3:8: no required module provides package x.org/y; to add it:\n\tgo get x.org/y", false),
            ("missing go.sum entry for module providing package x.org/y", false),
        ] {
            assert_eq!(is_network(output), want, "{output}");
        }
    }

    #[test]
    fn output_keeps_the_end_and_drops_downloads() {
        let text = (0..100).map(|n| format!("go: downloading m{n}\nline {n}\n")).collect::<String>();
        let got = tail(&text);
        assert_eq!(got.lines().count(), 40);
        assert!(got.starts_with("line 60\n") && got.ends_with("line 99"), "{got}");
    }
}
