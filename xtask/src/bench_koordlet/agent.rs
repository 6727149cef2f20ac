//! koordlet as a process of its own, the binary as it is shipped.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use koord_testkit::free_port;

use super::world::World;
use crate::bench_sandbox::process::program;

/// Longer than any start takes.
const LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);
/// Binds the files of the node over a real group of cgroup v2, which is how koordlet tells v2, and becomes koordlet.
const ENTER: &str = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";

/// A running koordlet. Killed when dropped.
pub(super) struct Agent {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Agent {
    pub(super) fn start(world: &World) -> Result<Agent> {
        let port = free_port()?;
        let log = world.dir().join("log");
        let output = File::create(&log)?;
        let mut command = match world.group() {
            None => Command::new(program()),
            Some(group) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", ENTER, "sh"]).args(group.binding()).arg(program());
                command
            }
        };
        command.arg("koordlet").args(world.flags()).arg(format!("--addr=127.0.0.1:{port}"));
        command.env("NODE_NAME", World::NODE).env("agent_mode", "hostMode");
        command.env("KUBECONFIG", world.kubeconfig());
        let child = command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn();
        Ok(Agent { child: child.context("cannot start koord koordlet")?, port, log })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns once everything is measured and strategies have begun.
    pub(super) fn ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("koord koordlet ended with {status}: {}", self.log());
            }
            match self.health() {
                Ok(answer) if answer.starts_with("HTTP/1.1 200") => return Ok(()),
                last if begun.elapsed() > LIMIT => {
                    bail!("koord koordlet is not ready: {last:?}: {}", self.log())
                }
                _ => std::thread::sleep(LOOK),
            }
        }
    }

    fn health(&self) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// What its resident memory is made of.
    pub(super) fn memory(&self) -> Result<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u32>().ok());
            f64::from(kib.unwrap_or(0)) / 1024.0
        };
        Ok(format!("heap {:.1}, of the program {:.1}", mib("RssAnon:"), mib("RssFile:")))
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let from = log.char_indices().rev().nth(2_000).map_or(0, |(at, _)| at);
        log[from..].to_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
