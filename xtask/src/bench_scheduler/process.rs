//! A scheduler as a process of its own, and what it costs.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use koord_testkit::{Binaries, Program, Version};

use crate::bench_process;
use crate::bench_sandbox::process::program;

/// Which scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ours,
    Kubernetes,
}

/// A running scheduler. Killed when dropped.
pub(super) struct Scheduler {
    child: Child,
    /// Its configuration lies here.
    _dir: tempfile::TempDir,
}

impl Scheduler {
    pub(super) fn start(kind: Kind, kubeconfig: &Path) -> Result<Scheduler> {
        let dir = tempfile::tempdir()?;
        let config = dir.path().join("config.yaml");
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
             leaderElection: {{leaderElect: false}}\n\
             clientConnection: {{kubeconfig: {}, qps: 100000, burst: 100000}}\n\
             profiles: [{{schedulerName: default-scheduler}}]\n",
            kubeconfig.display()
        );
        std::fs::write(&config, text)?;
        let mut command = match kind {
            Kind::Ours => {
                let mut command = Command::new(program());
                command.args(["scheduler", "--port=0"]);
                command
            }
            Kind::Kubernetes => {
                let programs = Binaries::ensure(&Version::kubernetes()?, None, &[Program::Scheduler])?;
                Command::new(programs.path(Program::Scheduler))
            }
        };
        let log = std::fs::File::create(dir.path().join("log"))?;
        command.arg("--config").arg(&config).arg("--secure-port=0");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Ok(Scheduler { child: child.with_context(|| format!("cannot start {kind:?}"))?, _dir: dir })
    }

    /// CPU time of all its threads so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        bench_process::cpu(self.child.id())
    }

    /// Resident memory now, in MiB.
    pub(super) fn resident_mib(&self) -> Result<f64> {
        bench_process::resident_mib(self.child.id())
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
