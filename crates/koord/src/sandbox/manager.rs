//! The manager that lives in the sandbox's process, connected like any other over HTTPS, and what its chart installs.

use anyhow::{Context, Result, bail};
use koord_manager::flags::{self, Request};
use koord_manager::run::{self, Running, Setup};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use tokio_util::sync::CancellationToken;

/// What the chart brings besides programs: a namespace that no webhook of ours touches, strategies, and the bands of
/// priorities.
const CHART: [&str; 6] = [
    "{apiVersion: v1, kind: Namespace, metadata: {name: koordinator-system, labels: {control-plane: koordinator}}}",
    r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: '{"enable": true}'
  resource-threshold-config: '{"clusterStrategy": {"enable": true}}'
"#,
    "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-prod}, value: 9000}",
    "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-mid}, value: 7000}",
    "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-batch}, value: 5000}",
    "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-free}, value: 3000}",
];

/// Alone, without limits, and without webhooks, for the sandbox calls none.
const FLAGS: [&str; 4] = [
    "--enable-leader-election=false",
    "--rest-config-qps=-1",
    "--sync-period=0",
    "--feature-gates=WebhookFramework=false",
];

/// A running manager.
pub(super) struct Manager {
    running: Running,
    stop: CancellationToken,
}

impl Manager {
    pub(super) async fn start(kubeconfig: &str) -> Result<Manager> {
        let Request::Run(mut options) = flags::parse(FLAGS, |_| None)? else {
            bail!("the manager's flags are not those that start it")
        };
        options.metrics = Some(([127, 0, 0, 1], 0).into());
        options.health = None;
        let cluster = cluster(kubeconfig).await?;
        install(&cluster).await?;
        let stop = CancellationToken::new();
        let setup = Setup { options: *options, cluster };
        let running = run::start(setup, stop.clone()).await.context("the manager does not start")?;
        Ok(Manager { running, stop })
    }

    /// Where its metrics are.
    pub(super) fn address(&self) -> String {
        self.running.metrics.map(|address| format!("http://{address}")).unwrap_or_default()
    }

    /// Lets it finish what it has begun.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.running.ended().await;
    }
}

async fn cluster(kubeconfig: &str) -> Result<kube::Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Brings what the chart installs back to a sandbox that was emptied.
pub(super) async fn reinstall(kubeconfig: &str) -> Result<()> {
    install(&cluster(kubeconfig).await?).await
}

/// Makes what is not there yet; a cluster that came from a file may have its own.
async fn install(cluster: &kube::Config) -> Result<()> {
    let client = kube::Client::try_from(cluster.clone())?;
    for manifest in CHART {
        let object: DynamicObject = serde_saphyr::from_str(manifest)?;
        let types = object.types.clone().unwrap_or_default();
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => _ = made.with_context(|| format!("cannot make the {} of the chart", types.kind))?,
        }
    }
    Ok(())
}
