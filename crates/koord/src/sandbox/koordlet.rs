//! Koordlets on nodes of the sandbox that are to have a real one: in its process, over the files of the node, connected
//! like any other over HTTPS.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use koord_sandbox::nodes::{Agents, HostNode, Started, Stopped};
use koordlet::flags::{self, Options, Request};
use koordlet::run::{self, Running};
use koordlet::state::MetricPace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::place::{self, Place};

/// The koordlets that run, and who is told where they are.
#[derive(Default)]
pub(super) struct Koordlets {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    running: BTreeMap<String, Running>,
    /// None before the sandbox is ready.
    told: Option<(Place, place::Running)>,
}

impl All {
    fn addresses(&self) -> BTreeMap<String, String> {
        let url = |running: &Running| format!("http://{}", running.address);
        self.running.iter().map(|(node, running)| (node.clone(), url(running))).collect()
    }

    /// Tells where they are now.
    fn tell(&mut self) {
        let koordlets = self.addresses();
        let Some((place, running)) = &mut self.told else { return };
        running.koordlets = koordlets;
        if let Err(error) = place.announce(running) {
            tracing::warn!(error = format!("{error:#}"), "where koordlets are cannot be told");
        }
    }
}

impl Koordlets {
    /// Where each answers, by node.
    pub(super) async fn addresses(&self) -> BTreeMap<String, String> {
        self.all.lock().await.addresses()
    }

    /// From now on whoever looks into the folder learns of those that come and go.
    pub(super) async fn announce(&self, place: &Place, running: &place::Running) -> Result<()> {
        let mut all = self.all.lock().await;
        let mut running = running.clone();
        running.koordlets = all.addresses();
        place.announce(&running)?;
        all.told = Some((place.clone(), running));
        Ok(())
    }

    /// The folder is left alone from now on.
    pub(super) async fn fall_silent(&self) {
        self.all.lock().await.told = None;
    }

    async fn begin(&self, node: HostNode) -> Result<()> {
        let options = options(&node)?;
        let kubeconfig = Kubeconfig::from_yaml(&node.kubeconfig)?;
        let cluster = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let running = run::start(options, cluster).await?;
        let mut all = self.all.lock().await;
        all.running.insert(node.name, running);
        all.tell();
        Ok(())
    }
}

impl Agents for Koordlets {
    fn start(&self, node: HostNode) -> Started<'_> {
        Box::pin(async move { self.begin(node).await.map_err(|error| format!("{error:#}")) })
    }

    fn stop<'a>(&'a self, node: &'a str) -> Stopped<'a> {
        Box::pin(async move {
            let mut all = self.all.lock().await;
            let Some(running) = all.running.remove(node) else { return };
            all.tell();
            drop(all);
            let asked = CancellationToken::new();
            asked.cancel();
            if !running.until(&asked).await {
                tracing::warn!(node, "koordlet had ended before it was asked to");
            }
        })
    }
}

/// As on a machine, except that all of it lies below the node's folder, that nobody has to wait for it, and that pods
/// are evicted by the API server, for there is no container runtime.
fn options(node: &HostNode) -> Result<Options> {
    let data = node.dir.join("data");
    for folder in ["series", "models", "audit"] {
        let folder = data.join(folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let path = |name: &str| node.dir.join(name);
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let mut words = vec![
        flag("cgroup-root-dir", &path("sys/fs/cgroup")),
        flag("proc-root-dir", &path("proc")),
        flag("sys-root-dir", &path("sys")),
        flag("sys-fs-root-dir", &path("sys/fs")),
        flag("var-run-root-dir", &path("run")),
        flag("run-root-dir", &path("run")),
        flag("var-lib-kubelet-dir", &path("kubelet")),
        flag("kubelet-ca-file", &path("kubelet/pki/ca.crt")),
        flag("tsdb-path", &data.join("series")),
        flag("prediction-checkpoint-filepath", &data.join("models")),
        flag("audit-log-dir", &data.join("audit")),
    ];
    let plain = [
        "--addr=127.0.0.1:0",
        "--kube-api-qps=100",
        "--kube-api-burst=200",
        "--kubelet-sync-interval=1s",
        "--node-topology-sync-interval=1s",
        "--only-evict-by-api=true",
        "--feature-gates=AuditEvents=true,AuditEventsHTTPHandler=true",
    ];
    words.extend(plain.map(str::to_owned));
    let variable = |name: &str| match name {
        "NODE_NAME" => Some(node.name.clone()),
        "agent_mode" => Some("hostMode".to_owned()),
        _ => None,
    };
    let Request::Run(mut options) = flags::parse(words, variable)? else {
        bail!("koordlet's flags are not those that start it")
    };
    options.reports.pace = MetricPace::hurried();
    Ok(*options)
}
