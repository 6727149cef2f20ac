//! A real API server with everything installed that koord-manager needs, and a way to talk to it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http::Method;
use koord_manager::webhook::paths::{self, Side};
use koord_testkit::ControlPlane;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::balancer::Balancer;

/// Far more than any step takes; only a machine that is badly overloaded gets there.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Where koord-manager lives.
pub(crate) const HOME: &str = "koordinator-system";
pub(crate) const SERVICE: &str = "koordinator-webhook-service";
pub(crate) const SERVER_NAME: &str = "koordinator-webhook-service.koordinator-system.svc";
pub(crate) const MUTATING: &str = "koordinator-mutating-webhook-configuration";
pub(crate) const VALIDATING: &str = "koordinator-validating-webhook-configuration";
pub(crate) const CONFIG: &str = "/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const METRICS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";
pub(crate) const SLOS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodeslos";
pub(crate) const TOPOLOGIES: &str = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies";
pub(crate) const PROFILES: &str = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles";

/// Asks again and again until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
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

/// What the server refused: code and text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) text: String,
}

pub(crate) struct Place {
    pub(crate) cluster: &'static ControlPlane,
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) balancer: Balancer,
    /// Certificates and logs of replicas.
    pub(crate) dir: PathBuf,
    /// Lets in as the account that koord-manager has, with its rights and no others.
    pub(crate) manager: PathBuf,
}

impl Place {
    /// None, with the reason on stderr, where there is no real API server to be had.
    pub(crate) async fn new(dir: &Path) -> Result<Option<Place>> {
        let Some(cluster) = tokio::task::spawn_blocking(koord_testkit::shared).await? else {
            return Ok(None);
        };
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let place = Place {
            cluster,
            client: Client::try_from(config.clone())?,
            config,
            balancer: Balancer::start().await?,
            dir: dir.to_owned(),
            manager: dir.join("manager.kubeconfig"),
        };
        place.install().await?;
        Ok(Some(place))
    }

    async fn install(&self) -> Result<()> {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let (cluster, crds) = (self.cluster, deploy.join("crds"));
        tokio::task::spawn_blocking(move || cluster.install_crds(&crds)).await??;
        self.make_namespace(HOME, &json!({})).await?;
        let rules = std::fs::read_to_string(deploy.join("manager/rbac.yaml"))?;
        self.cluster.apply(&rules)?;
        self.write_manager_kubeconfig()?;
        // The API server asks the Service where to go; this one says: to the balancer.
        let service = json!({"metadata": {"name": SERVICE},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
        self.post(&format!("/api/v1/namespaces/{HOME}/services"), &service).await?;
        for side in Side::ALL {
            let (collection, name) = configuration(side);
            let mut installed = paths::installed(side, name, HOME, SERVICE);
            for entry in installed["webhooks"].as_array_mut().context("a list")? {
                entry["clientConfig"]["service"]["port"] = json!(self.balancer.port);
                // What nobody answers fails, so that no failed call goes unseen.
                if matches!(
                    entry.pointer("/rules/0/resources/0").and_then(Value::as_str),
                    Some("pods" | "elasticquotas")
                ) {
                    entry["failurePolicy"] = json!("Fail");
                }
            }
            self.post(collection, &installed).await?;
        }
        Ok(())
    }

    fn write_manager_kubeconfig(&self) -> Result<()> {
        let token = self.cluster.kubectl_ok([
            "create",
            "token",
            "koord-manager",
            "--namespace",
            HOME,
            "--duration=24h",
        ])?;
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "koord",
            "clusters": [{"name": "koord", "cluster": {"server": self.cluster.server(),
                "certificate-authority": self.cluster.dir().join("pki/ca.crt")}}],
            "users": [{"name": "manager", "user": {"token": token.trim()}}],
            "contexts": [{"name": "koord", "context": {"cluster": "koord", "user": "manager"}}],
        });
        Ok(std::fs::write(&self.manager, text.to_string())?)
    }

    /// Makes a namespace, and waits until pods can be created in it.
    pub(crate) async fn make_namespace(&self, name: &str, labels: &Value) -> Result<()> {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        self.post("/api/v1/namespaces", &namespace).await?;
        eventually("the namespace's account", async || {
            self.find(&format!("/api/v1/namespaces/{name}/serviceaccounts/default")).await
        })
        .await?;
        Ok(())
    }

    /// Sends a request; what the server refuses is an answer, too.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Result<Value, Refusal>> {
        let content_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        self.send(method, path, content_type, body).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Result<Value, Refusal>> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body.map(Value::to_string).unwrap_or_default().into_bytes())?;
        match self.client.request::<Value>(request).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(kube::Error::Api(status)) => {
                Ok(Err(Refusal { code: status.code, text: status.message.clone() }))
            }
            Err(error) => Err(error).with_context(|| path.to_owned()),
        }
    }

    async fn must(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let shown = format!("{method} {path}");
        self.ask(method, path, body)
            .await?
            .map_err(|refusal| anyhow::anyhow!("{shown}: {} {}", refusal.code, refusal.text))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.must(Method::GET, path, None).await
    }

    pub(crate) async fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.ask(Method::GET, path, None).await? {
            Ok(object) => Ok(Some(object)),
            Err(refusal) if refusal.code == 404 => Ok(None),
            Err(refusal) => bail!("{path}: {refusal:?}"),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.must(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value> {
        self.must(Method::PUT, path, Some(body)).await
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        self.must(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        self.must(Method::DELETE, path, Some(&json!({"gracePeriodSeconds": 0}))).await.map(drop)
    }

    /// Server-side apply.
    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Result<Value> {
        let path = format!("{path}?fieldManager=test&force=true");
        let applied = self.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(body)).await?;
        applied.map_err(|refusal| anyhow::anyhow!("{path}: {refusal:?}"))
    }

    /// Asks for something that must be refused.
    pub(crate) async fn refused(&self, method: Method, path: &str, body: &Value) -> Result<Refusal> {
        match self.ask(method, path, Some(body)).await? {
            Ok(_) => bail!("{path} was not refused: {body}"),
            Err(refusal) => Ok(refusal),
        }
    }

    /// Sets the strategies, without the label that lets the webhook look at them.
    pub(crate) async fn configure(&self, data: &Value) -> Result<()> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "slo-controller-config"}, "data": data});
        self.apply(CONFIG, &map).await.map(drop)
    }

    /// Makes a node of 10 CPUs and 20 GiB.
    pub(crate) async fn make_node(&self, name: &str, labels: &Value) -> Result<()> {
        let amounts = json!({"cpu": "10", "memory": "20Gi", "pods": "100"});
        self.post(NODES, &json!({"metadata": {"name": name, "labels": labels}})).await?;
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null}]}});
        self.patch(&format!("{NODES}/{name}/status"), &status).await?;
        Ok(())
    }

    /// Reports what a node and its pods use, as koordlet does, once there is a NodeMetric to report to.
    pub(crate) async fn measure(&self, node: &str, system_milli: i64, pods: &Value) -> Result<()> {
        let usage = |milli: i64| json!({"resources": {"cpu": format!("{milli}m"), "memory": "1Gi"}});
        let now = jiff_now()?;
        let report = json!({"status": {"updateTime": now, "podsMetric": pods,
            "nodeMetric": {"nodeUsage": usage(system_milli), "systemUsage": usage(system_milli)}}});
        let path = format!("{METRICS}/{node}/status");
        eventually(&format!("NodeMetric {node}"), async || {
            match self.ask(Method::PATCH, &path, Some(&report)).await? {
                Ok(_) => Ok(Some(())),
                Err(refusal) if refusal.code == 404 => Ok(None),
                Err(refusal) => bail!("{path}: {refusal:?}"),
            }
        })
        .await
    }

    /// Waits until a node lends this much CPU, in thousandths.
    pub(crate) async fn lends(&self, node: &str, milli: i64) -> Result<Value> {
        eventually(&format!("{node} lends {milli}m"), async || {
            let node = self.get(&format!("{NODES}/{node}")).await?;
            Ok((lent(&node) == Some(milli)).then_some(node))
        })
        .await
    }

    /// Waits for an event about an object.
    pub(crate) async fn told(
        &self,
        namespace: &str,
        object: &str,
        reason: &str,
        part: &str,
    ) -> Result<Value> {
        let path = format!(
            "/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name={object},reason={reason}"
        );
        eventually(&format!("event {reason} about {object} with {part:?}"), async || {
            let listed = self.get(&path).await?;
            let events = listed["items"].as_array().cloned().unwrap_or_default();
            Ok(events
                .into_iter()
                .find(|event| event["message"].as_str().is_some_and(|text| text.contains(part))))
        })
        .await
    }

    /// The last lines of what replicas wrote.
    pub(crate) fn logs(&self) -> Result<String> {
        let mut text = String::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = std::fs::read_to_string(&path)?;
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(60)..].join("\n");
                text += &format!("--- {}\n{tail}\n", path.display());
            }
        }
        Ok(text)
    }
}

/// Where a side's configuration lies, and its name.
pub(crate) fn configuration(side: Side) -> (&'static str, &'static str) {
    match side {
        Side::Mutating => ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", MUTATING),
        Side::Validating => {
            ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", VALIDATING)
        }
    }
}

/// The CPU that a node lends to batch pods, in thousandths.
pub(crate) fn lent(node: &Value) -> Option<i64> {
    let text = node["status"]["allocatable"]["kubernetes.io/batch-cpu"].as_str()?;
    text.parse::<koord_api::quantity::Quantity>().ok().map(|quantity| quantity.value())
}

pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

/// The time as API objects have it.
fn jiff_now() -> Result<String> {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let text = koord_engine::time::Time::from_seconds(i64::try_from(since_epoch)?).to_string();
    ensure!(!text.is_empty(), "a time");
    Ok(text)
}
