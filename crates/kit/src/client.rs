//! The connection to the API server: found as Kubernetes' own programs find it, limited, retried, timed, counted.
//!
//! [`connect`] gives an ordinary `kube::Client`. Below it every request passes, from the outside in: retries
//! ([`service`]), the token bucket of `clientConnection` ([`limit`]), a time limit, and the request metrics. The
//! stack is our own rather than kube's default one, which has neither limits nor TCP keep-alive and logs every
//! refused request as an error.

pub mod limit;
pub mod service;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde::{Deserialize, Serialize};
use tower::{BoxError, Layer};

use crate::metrics::ClientMetrics;
use limit::RateLimiter;
use service::{ApiService, RetryPolicy};

/// A dead peer is noticed after this and three probes, so that a watch cannot hang on a half-open connection.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The API server itself gives up on a request after a minute; a little more lets its answer arrive.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(65);

/// `clientConnection` of a component's configuration, as in Kubernetes.
///
/// Both content types are accepted for compatibility and have no effect: requests are made in JSON, the one form that
/// all kinds have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnection {
    /// Path of a kubeconfig file; empty means the environment, then the cluster this process runs in.
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    /// Requests per second over time. Negative means no limit; 0 means the default of 5.
    pub qps: f32,
    /// Requests at once after a quiet time. 0 means the default of 10.
    pub burst: i32,
}

impl Default for ClientConnection {
    /// The values that Kubernetes recommends to its own components.
    fn default() -> ClientConnection {
        ClientConnection {
            kubeconfig: String::new(),
            accept_content_types: String::new(),
            content_type: "application/vnd.kubernetes.protobuf".to_owned(),
            qps: 50.0,
            burst: 100,
        }
    }
}

impl ClientConnection {
    /// What cannot be used, as `(field, message)`.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if !self.qps.is_finite() {
            problems.push(("qps", format!("{} is not accepted, expected a number", self.qps)));
        }
        if self.burst < 0 {
            problems.push(("burst", format!("{} is not accepted, expected 0 or more", self.burst)));
        }
        problems
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    pub connection: ClientConnection,
    /// See [`user_agent`].
    pub user_agent: String,
    /// For a whole request that is not a watch, and for the first answer of one that is.
    pub timeout: Duration,
    pub retry: RetryPolicy,
    pub metrics: Option<ClientMetrics>,
}

impl ClientOptions {
    pub fn new(component: &str, connection: ClientConnection) -> ClientOptions {
        ClientOptions {
            connection,
            user_agent: user_agent(component, ""),
            timeout: REQUEST_TIMEOUT_DEFAULT,
            retry: RetryPolicy::default(),
            metrics: None,
        }
    }

    /// A client for the leader lease: its own budget, so that busy work cannot starve a renewal, no retries, for the
    /// election retries by its own clock, and no request longer than the renewal may take.
    pub fn for_leader_election(&self, renew_deadline: Duration) -> ClientOptions {
        ClientOptions {
            user_agent: format!("{}/leader-election", self.user_agent),
            timeout: renew_deadline,
            retry: RetryPolicy::NEVER,
            ..self.clone()
        }
    }
}

/// How requests name us: `koord-scheduler/0.1.0 (linux/amd64) koord/abcdef0`.
pub fn user_agent(component: &str, commit: &str) -> String {
    let arch = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let commit = if commit.is_empty() { "unknown" } else { commit };
    format!("{component}/{} ({}/{arch}) koord/{commit}", env!("CARGO_PKG_VERSION"), env::consts::OS)
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot use kubeconfig {path}")]
    Kubeconfig { path: PathBuf, source: KubeconfigError },
    #[error("cannot use the kubeconfig that KUBECONFIG={value:?} names")]
    Environment { value: String, source: KubeconfigError },
    #[error("cannot use the service account of this pod")]
    InCluster(#[source] InClusterError),
    #[error(
        "no cluster to talk to: no kubeconfig was given, KUBECONFIG is not set, this is not a pod \
         (KUBERNETES_SERVICE_HOST is not set) and {home} does not exist"
    )]
    Nowhere { home: PathBuf },
    #[error("cannot make a client for {url}")]
    Build { url: String, source: kube::Error },
}

/// Connects as [`ClientOptions`] say. Nothing is sent yet.
pub async fn connect(options: &ClientOptions) -> Result<kube::Client, ClientError> {
    let config = config(&options.connection.kubeconfig).await?;
    client(config, options)
}

/// A client for a cluster that is already known.
pub fn client(mut config: kube::Config, options: &ClientOptions) -> Result<kube::Client, ClientError> {
    let url = config.cluster_url.to_string();
    if let Ok(agent) = http::HeaderValue::from_str(&options.user_agent) {
        config.headers.push((http::header::USER_AGENT, agent));
    }
    build(&config, options).map_err(|source| ClientError::Build { url, source })
}

fn build(config: &kube::Config, options: &ClientOptions) -> Result<kube::Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    let https = config.rustls_https_connector_with_connector(connector)?;
    let wire = hyper_util::client::legacy::Builder::new(TokioExecutor::new()).build(https);
    let wire = config.extra_headers_layer()?.layer(MapErr(wire));
    let wire = tower::util::option_layer(config.auth_layer()?).layer(wire);
    let wire = config.base_uri_layer().layer(wire);
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let limiter = RateLimiter::new(options.connection.qps, options.connection.burst);
    let service = ApiService::new(wire, limiter, options, host);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

/// Turns any error into a `BoxError`, which the layers above agree on.
#[derive(Clone)]
struct MapErr<S>(S);

impl<S, R> tower::Service<R> for MapErr<S>
where
    S: tower::Service<R>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = futures::future::MapErr<S::Future, fn(S::Error) -> BoxError>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        futures::TryFutureExt::map_err(self.0.call(request), Into::into)
    }
}

/// Where the cluster is: the explicit file, then `KUBECONFIG`, then the pod's own service account, then the user's file.
pub async fn config(explicit: &str) -> Result<kube::Config, ClientError> {
    if !explicit.is_empty() {
        return from_file(Path::new(explicit)).await;
    }
    let options = KubeConfigOptions::default();
    if let Some(value) = env::var("KUBECONFIG").ok().filter(|value| !value.is_empty()) {
        return kube::Config::from_kubeconfig(&options)
            .await
            .map_err(|source| ClientError::Environment { value, source });
    }
    if env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return kube::Config::incluster().map_err(ClientError::InCluster);
    }
    let home = env::home_dir().unwrap_or_default().join(".kube/config");
    if home.exists() { from_file(&home).await } else { Err(ClientError::Nowhere { home }) }
}

async fn from_file(path: &Path) -> Result<kube::Config, ClientError> {
    let failed = |source| ClientError::Kubeconfig { path: path.to_owned(), source };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn the_user_agent_has_kubernetes_shape() {
        let text = user_agent("koord-scheduler", "abc1234");
        assert!(text.starts_with("koord-scheduler/0.1.0 (linux/"), "{text}");
        assert!(text.ends_with(") koord/abc1234"), "{text}");
    }

    #[test]
    fn connection_fields_are_checked() {
        assert!(ClientConnection::default().problems().is_empty());
        let odd = ClientConnection { qps: f32::NAN, burst: -1, ..ClientConnection::default() };
        assert_eq!(odd.problems().len(), 2);
    }

    #[tokio::test]
    async fn an_explicit_kubeconfig_wins_and_its_faults_are_named() {
        let missing = config("/nonexistent/kubeconfig").await.unwrap_err();
        assert_eq!(missing.to_string(), "cannot use kubeconfig /nonexistent/kubeconfig");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(
            file,
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             clusters: [{{name: a, cluster: {{server: 'https://10.0.0.1:6443'}}}}]\n\
             users: [{{name: a, user: {{token: secret}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a, namespace: shop}}}}]\n"
        )
        .unwrap();
        let connection =
            ClientConnection { kubeconfig: file.path().display().to_string(), ..ClientConnection::default() };
        let client = connect(&ClientOptions::new("koord-test", connection)).await.unwrap();
        assert_eq!(client.default_namespace(), "shop");
    }
}
