//! The manager that lives in the sandbox's process, connected like any other over HTTPS, and what its chart installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use koord_kit::http::Listen;
use koord_manager::flags::{self, Request};
use koord_manager::run::{self, Running, Setup};
use koord_manager::webhook::paths::{self, Side};
use koord_manager::webhook::settings::Settings;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use serde_json::Value;
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

/// Alone and without limits.
const FLAGS: [&str; 3] = ["--enable-leader-election=false", "--rest-config-qps=-1", "--sync-period=0"];

/// How long admission may take to come up; usually it is there at once.
const ADMISSION_PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// A running manager.
pub(super) struct Manager {
    running: Running,
    stop: CancellationToken,
    certificates: PathBuf,
}

impl Manager {
    /// Starts it; the keys of its webhook server are kept in a folder of its own.
    pub(super) async fn start(kubeconfig: &str, certificates: PathBuf) -> Result<Manager> {
        let variable = |name: &str| match name {
            "WEBHOOK_HOST" => Some("127.0.0.1".to_owned()),
            "WEBHOOK_PORT" => Some("0".to_owned()),
            _ => None,
        };
        let Request::Run(mut options) = flags::parse(FLAGS, variable)? else {
            bail!("the manager's flags are not those that start it")
        };
        options.metrics = Some(Listen::At(([127, 0, 0, 1], 0).into()));
        options.health = None;
        options.webhook.cert_dir.clone_from(&certificates);
        let cluster = cluster(kubeconfig).await?;
        install(&cluster).await?;
        let stop = CancellationToken::new();
        let setup = Setup { options: *options, cluster };
        let running = run::start(setup, stop.clone()).await.context("the manager does not start")?;
        Ok(Manager { running, stop, certificates })
    }

    /// Waits until the API server would get an answer from the webhooks; where they are.
    pub(super) async fn admission(&self) -> Result<String> {
        let served = self.running.admission.as_ref().context("the manager's webhooks are off")?;
        let begun = Instant::now();
        while let Err(reason) = served.readiness.get() {
            if begun.elapsed() > ADMISSION_PATIENCE {
                bail!("the manager's webhooks do not answer: {reason}");
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(format!("https://127.0.0.1:{}", served.port))
    }

    /// Where its metrics are.
    pub(super) fn address(&self) -> String {
        self.running.metrics.map(|address| format!("http://{address}")).unwrap_or_default()
    }

    /// Lets it finish what it has begun.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.running.ended().await;
        // A sandbox that is gone needs no keys; where they stay, the next one uses them.
        let _ = fs::remove_dir_all(&self.certificates);
    }
}

/// The folder of its keys.
pub(super) fn certificates(dir: &Path) -> PathBuf {
    dir.join("webhook-certificates")
}

async fn cluster(kubeconfig: &str) -> Result<kube::Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Brings what the chart installs back to a sandbox that was emptied, and waits until its manager has taken it up.
pub(super) async fn reinstall(kubeconfig: &str) -> Result<()> {
    let cluster = cluster(kubeconfig).await?;
    install(&cluster).await?;
    let client = kube::Client::try_from(cluster)?;
    let begun = Instant::now();
    for configuration in configurations()? {
        let api = api_of(&client, &configuration)?;
        let name = configuration.metadata.name.unwrap_or_default();
        while !api.get(&name).await.is_ok_and(|found| is_aimed(&found)) {
            if begun.elapsed() > ADMISSION_PATIENCE {
                bail!("the manager does not take up {name}; admission does not work");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Whether the API server calls somebody by it.
fn is_aimed(configuration: &DynamicObject) -> bool {
    configuration.data["webhooks"][0]["clientConfig"]["url"].is_string()
}

/// Makes what is not there yet; a cluster that came from a file may have its own.
async fn install(cluster: &kube::Config) -> Result<()> {
    let client = kube::Client::try_from(cluster.clone())?;
    let mut objects = Vec::new();
    for manifest in CHART {
        objects.push(serde_saphyr::from_str(manifest)?);
    }
    objects.extend(configurations()?);
    for object in &objects {
        match api_of(&client, object)?.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => {
                let kind = || object.types.clone().unwrap_or_default().kind;
                made.with_context(|| format!("cannot make the {} of the chart", kind()))?;
            }
        }
    }
    Ok(())
}

/// The webhook configurations as the chart has them, except that nobody is called who does not answer yet: the manager
/// finds the entries in the annotation in which it keeps them.
fn configurations() -> Result<Vec<DynamicObject>> {
    let settings = Settings::new(|_| None)?;
    let made = |side: Side| {
        let name = settings.configuration_name(side);
        let mut made = paths::installed(side, name, &settings.namespace, &settings.service_name);
        made["metadata"]["annotations"]["template"] = made["webhooks"].take().to_string().into();
        made["webhooks"] = Value::Array(Vec::new());
        made
    };
    Side::ALL.into_iter().map(|side| Ok(serde_json::from_value(made(side))?)).collect()
}

fn api_of(client: &kube::Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.clone().unwrap_or_default();
    let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    Ok(match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    })
}
