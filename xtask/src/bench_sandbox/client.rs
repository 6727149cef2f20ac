//! The client of the benchmark: lean, so that it is the server that is measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

/// Requests at once.
const WORKERS: usize = 32;

/// A server and a client for it.
pub(crate) struct Target {
    client: Client<hyper_rustls::HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Uri,
    /// Names never repeat, so a later load does not meet an earlier one's pods.
    made: AtomicUsize,
    bound: AtomicUsize,
}

/// What to do many times.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    Create,
    /// Pods that stand on nodes from the start.
    CreateOn {
        nodes: u32,
    },
    /// Binds pods that `Create` made.
    Bind,
}

/// How it went.
pub(crate) struct Outcome {
    count: usize,
    elapsed: Duration,
    latencies: Vec<Duration>,
}

/// A load with others watching.
pub(crate) struct Watched {
    pub(crate) load: Outcome,
    pub(crate) lag: Duration,
    events: usize,
}

impl Target {
    pub(crate) async fn new(kubeconfig: &Path) -> Result<Target> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        let https = config.rustls_https_connector_with_connector(connector)?;
        let client = Client::builder(TokioExecutor::new()).build(https);
        let zero = || AtomicUsize::new(0);
        Ok(Target { client, base: config.cluster_url, made: zero(), bound: zero() })
    }

    fn uri(&self, path: &str) -> Result<Uri> {
        Ok(format!("{}{path}", self.base.to_string().trim_end_matches('/')).parse()?)
    }

    pub(crate) async fn post(&self, path: &str, body: String) -> Result<()> {
        self.send(Method::POST, path, body).await.map(drop)
    }

    /// Sends a request that must succeed; a patch is a merge patch.
    pub(crate) async fn send(&self, method: Method, path: &str, body: String) -> Result<Bytes> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(self.uri(path)?)
            .header("content-type", kind)
            .body(Full::new(Bytes::from(body)))?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Opens a watch; its body is one event a line.
    pub(crate) async fn open_watch(&self, path: &str) -> Result<Incoming> {
        let response = self.client.request(Request::get(self.uri(path)?).body(Full::default())?).await?;
        ensure!(response.status() == StatusCode::OK, "{path}: {}", response.status());
        Ok(response.into_body())
    }

    async fn step(&self, load: Load) -> Result<()> {
        match load {
            Load::Create | Load::CreateOn { .. } => {
                let number = self.made.fetch_add(1, Ordering::Relaxed);
                let node = match load {
                    Load::CreateOn { nodes } => Some(format!("node-{}", number % usize::try_from(nodes)?)),
                    _ => None,
                };
                self.post("/api/v1/namespaces/default/pods", pod(number, node.as_deref())).await
            }
            Load::Bind => {
                let name = format!("web-{}", self.bound.fetch_add(1, Ordering::Relaxed));
                let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}});
                let path = format!("/api/v1/namespaces/default/pods/{name}/binding");
                self.post(&path, binding.to_string()).await
            }
        }
    }

    /// Reads one watch until it has seen `count` pods added.
    async fn watch(&self, from: &str, count: usize, seen: &AtomicUsize) -> Result<()> {
        let path = format!("/api/v1/namespaces/default/pods?watch=1&resourceVersion={from}");
        let mut body = self.open_watch(&path).await?;
        let mut left = count;
        while left > 0 {
            let frame = body.frame().await.context("a watch ended early")??;
            let Some(data) = frame.data_ref() else { continue };
            // One event a line; all are additions, for nothing else happens.
            let events = data.iter().filter(|byte| **byte == b'\n').count();
            seen.fetch_add(events, Ordering::Relaxed);
            left = left.saturating_sub(events);
        }
        Ok(())
    }

    pub(crate) async fn revision(&self) -> Result<String> {
        let request =
            Request::get(self.uri("/api/v1/namespaces/default/pods?limit=1")?).body(Full::default())?;
        let body = self.client.request(request).await?.into_body().collect().await?.to_bytes();
        let list: serde_json::Value = serde_json::from_slice(&body)?;
        Ok(list["metadata"]["resourceVersion"].as_str().context("a list without revision")?.to_owned())
    }
}

fn pod(number: usize, node: Option<&str>) -> String {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{number}"), "labels": {"app": "web", "tier": "front"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "name": "http"}]}]}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod.to_string()
}

/// Does `load` `count` times, `WORKERS` at once.
pub(crate) async fn run(target: &Arc<Target>, load: Load, count: usize) -> Result<Outcome> {
    // Connections, caches and branch predictors are warm before the clock starts.
    for _ in 0..WORKERS {
        target.step(load).await?;
    }
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let workers = (0..WORKERS).map(|_| {
        let (target, next) = (target.clone(), next.clone());
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let begun = Instant::now();
                target.step(load).await?;
                latencies.push(begun.elapsed());
            }
            anyhow::Ok(latencies)
        })
    });
    let latencies = try_join_all(workers).await?.into_iter().collect::<Result<Vec<_>>>()?.concat();
    let elapsed = begun.elapsed();
    let mut latencies = latencies;
    latencies.sort_unstable();
    Ok(Outcome { count, elapsed, latencies })
}

/// Creates objects, many at once.
pub(crate) async fn make(target: &Arc<Target>, path: &str, bodies: Vec<String>) -> Result<()> {
    let (bodies, next) = (Arc::new(bodies), Arc::new(AtomicUsize::new(0)));
    let workers = (0..WORKERS).map(|_| {
        let (target, bodies, next) = (target.clone(), bodies.clone(), next.clone());
        let path = path.to_owned();
        tokio::spawn(async move {
            while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                target.post(&path, body.clone()).await?;
            }
            anyhow::Ok(())
        })
    });
    try_join_all(workers).await?.into_iter().collect()
}

/// Creates pods while `watchers` follow; ends when all have seen all.
pub(crate) async fn watched(target: &Arc<Target>, watchers: usize, pods: usize) -> Result<Watched> {
    let from = target.revision().await?;
    let seen = Arc::new(AtomicUsize::new(0));
    // `run` makes a few more to warm up.
    let expected = pods + WORKERS;
    let tasks: Vec<_> = (0..watchers)
        .map(|_| {
            let (target, from, seen) = (target.clone(), from.clone(), seen.clone());
            tokio::spawn(async move { target.watch(&from, expected, &seen).await })
        })
        .collect();
    let load = run(target, Load::Create, pods).await?;
    let done = Instant::now();
    for task in try_join_all(tasks).await? {
        task?;
    }
    Ok(Watched { load, lag: done.elapsed(), events: seen.load(Ordering::Relaxed) })
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        float(self.count) / self.elapsed.as_secs_f64()
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let at = (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(at).copied().unwrap_or_default()
    }
}

impl Watched {
    pub(crate) fn events_per_second(&self) -> f64 {
        float(self.events) / (self.load.elapsed + self.lag).as_secs_f64()
    }
}

pub(crate) fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
