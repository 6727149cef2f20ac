//! The two kinds of cluster that the same steps run on.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use koord_sandbox::cluster::{Cluster, Options};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

/// Far more than any step takes; only a machine that is badly overloaded gets there.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// Asks again and again until there is an answer.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if begun.elapsed() > LIMIT {
            bail!("not after {} s: {what}", LIMIT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A cluster without a scheduler and without kubelets.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) config: Config,
    /// What ends with the test.
    sandbox: Option<Cluster>,
}

impl Place {
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Does a kubelet's part: pods that are to go, go.
    pub(crate) async fn bury(&self, test: &str) -> Result<()> {
        let listed = self.pods().list(&ListParams::default().labels(&format!("test={test}"))).await?;
        for pod in listed.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            let name = pod.metadata.name.unwrap_or_default();
            match self.pods().delete(&name, &DeleteParams::default().grace_period(0)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => _ = result?,
            }
        }
        Ok(())
    }

    /// Lets a lease end soon whose holder is no more.
    pub(crate) async fn end_lease(&self, name: &str) -> Result<()> {
        self.change_lease(name, &json!({"leaseDurationSeconds": 1})).await
    }

    /// Gives a lease to somebody else.
    pub(crate) async fn take_lease(&self, name: &str) -> Result<()> {
        self.change_lease(name, &json!({"holderIdentity": "somebody-else"})).await
    }

    async fn change_lease(&self, name: &str, spec: &Value) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-system");
        let patch = Patch::Merge(json!({"spec": spec}));
        leases.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn stop(self) {
        if let Some(cluster) = self.sandbox {
            cluster.stop().await;
        }
    }
}

async fn place(kubeconfig: Kubeconfig, sandbox: Option<Cluster>) -> Result<Place> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Place { client: Client::try_from(config.clone())?, config, sandbox })
}

/// A sandbox with neither nodes nor controllers.
pub(crate) async fn sandbox() -> Result<Place> {
    let options = Options { with_controllers: false, ..Options::default() };
    let cluster = Cluster::start(options, &mut |_| {}).await?;
    place(Kubeconfig::from_yaml(cluster.kubeconfig())?, Some(cluster)).await
}

/// The real API server that tests share; none, with the reason on stderr, where it cannot be had.
pub(crate) async fn real() -> Result<Option<Place>> {
    let Some(cluster) = tokio::task::spawn_blocking(koord_testkit::shared).await? else { return Ok(None) };
    let crds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    tokio::task::spawn_blocking(move || cluster.install_crds(&crds)).await??;
    place(Kubeconfig::read_from(cluster.kubeconfig())?, None).await.map(Some)
}
