//! The scheduler that lives in the sandbox's process, connected like any other over HTTPS.

use std::path::Path;

use anyhow::{Context, Result, bail};
use koord_scheduler::config;
use koord_scheduler::flags::{self, Listen, Request};
use koord_scheduler::run::{self, Running, Setup};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio_util::sync::CancellationToken;

/// Kubernetes' own plugins under both names that pods are likely to ask for, with Koordinator's under the second; alone and
/// without limits.
const CONFIG: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {qps: -1}
profiles:
- schedulerName: default-scheduler
- schedulerName: koord-scheduler
  plugins:
    multiPoint: {enabled: [{name: Reservation, weight: 5000}, {name: LoadAwareScheduling, weight: 1}]}
    postFilter: {disabled: [{name: '*'}], enabled: [{name: Reservation}, {name: DefaultPreemption}]}
";

/// A running scheduler.
pub(super) struct Scheduler {
    running: Running,
    stop: CancellationToken,
}

impl Scheduler {
    pub(super) async fn start(kubeconfig: &str) -> Result<Scheduler> {
        let Request::Run(mut options) = flags::parse(["--secure-port=0", "--port=0"])? else {
            bail!("the scheduler's flags are not those that start it")
        };
        options.plain = Some(Listen { address: [127, 0, 0, 1].into(), port: 0 });
        let config = config::parse(
            Path::new("the sandbox's configuration"),
            CONFIG,
            &options.overrides,
            &options.gates,
        )?;
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
        let cluster = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let stop = CancellationToken::new();
        let setup = Setup { options: *options, config, cluster, log: None };
        let running = run::start(setup, stop.clone()).await.context("the scheduler does not start")?;
        Ok(Scheduler { running, stop })
    }

    /// Where it answers people.
    pub(super) fn address(&self) -> String {
        self.running.plain.map(|address| format!("http://{address}")).unwrap_or_default()
    }

    /// Lets it finish what it has begun.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.running.ended().await;
    }
}
