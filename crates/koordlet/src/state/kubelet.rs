//! Asking the kubelet: which pods are here, and how it is configured. Spec: koordlet-observe 3.4.
//!
//! Either its authenticated port, with the credentials of the API client and, when a CA is given, with its certificate
//! verified; or its read-only port, which knows neither. The connection follows the address that the Node tells.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use koord_kit::client::service::RetryPolicy;
use koord_kit::client::{ClientConnection, ClientError, ClientOptions, client};
use kube::client::Body;

use super::{NodeState, State};
use crate::report::topology::kubelet::{ConfigError, KubeletConfig};

/// The pods of the node. The slash at the end is kubelet's.
pub const PODS_PATH: &str = "/pods/";
pub const CONFIG_PATH: &str = "/configz";

const ADDRESS_TYPES: [&str; 5] = ["Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"];
const ADDRESS_TYPE_DEFAULT: &str = "InternalIP";

/// How the kubelet is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletOptions {
    /// `kubelet-preferred-address-type`
    pub address_type: String,
    /// `kubelet-sync-timeout`
    pub timeout: Duration,
    /// `kubelet-insecure-tls`: the read-only port, without TLS.
    pub is_plain: bool,
    /// `kubelet-read-only-port`
    pub read_only_port: u16,
    /// Who signs the kubelet's certificate. None takes any, since most kubelets sign their own.
    ///
    /// Differs: upstream cannot verify it at all, and keeps the address that the Node had at start.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key to show in place of the API client's credentials.
    pub client_files: Option<(PathBuf, PathBuf)>,
}

impl Default for KubeletOptions {
    fn default() -> KubeletOptions {
        KubeletOptions {
            address_type: ADDRESS_TYPE_DEFAULT.to_owned(),
            timeout: Duration::from_secs(3),
            is_plain: false,
            read_only_port: 10_255,
            ca_file: None,
            client_files: None,
        }
    }
}

/// Why the kubelet did not answer as hoped.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    #[error("the Node object is not known yet")]
    NoNode,
    /// Upstream's text.
    #[error("no address matched types {0}")]
    NoAddress(String),
    #[error("the Node tells no kubelet port")]
    NoPort,
    #[error("kubelet's address {url} is no URL")]
    Address { url: String, source: http::uri::InvalidUri },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot ask {url}")]
    Request { url: String, source: kube::Error },
    #[error("{url} did not answer within {} s", timeout.as_secs())]
    TimedOut { url: String, timeout: Duration },
    /// Upstream's text.
    #[error("request {url} failed, code {code}")]
    Refused { url: String, code: u16 },
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A request that was answered, whatever the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    pub path: &'static str,
    pub code: u16,
    pub seconds: f64,
}

/// Hears of every answer, for the metrics.
pub type Observe = Arc<dyn Fn(Call) + Send + Sync>;

/// The kubelet of this node. Cheap to clone.
#[derive(Clone)]
pub struct Kubelet {
    state: State,
    /// Of the API server; its credentials are shown to the kubelet too.
    config: kube::Config,
    options: Arc<KubeletOptions>,
    observe: Observe,
    /// The client and the address it is for. Held only to copy or replace it.
    current: Arc<Mutex<Option<(String, kube::Client)>>>,
}

impl Kubelet {
    pub fn new(state: State, config: kube::Config, mut options: KubeletOptions, observe: Observe) -> Kubelet {
        if !ADDRESS_TYPES.contains(&options.address_type.as_str()) {
            tracing::warn!(
                given = options.address_type,
                used = ADDRESS_TYPE_DEFAULT,
                "kubelet-preferred-address-type is none that nodes have"
            );
            options.address_type = ADDRESS_TYPE_DEFAULT.to_owned();
        }
        Kubelet { state, config, options: Arc::new(options), observe, current: Arc::default() }
    }

    /// Whether `/configz` can be asked: the read-only port has none.
    pub fn tells_config(&self) -> bool {
        !self.options.is_plain
    }

    /// The pods of the node, as JSON.
    pub async fn pods(&self) -> Result<Bytes, KubeletError> {
        self.get(PODS_PATH).await
    }

    pub async fn config(&self) -> Result<KubeletConfig, KubeletError> {
        Ok(KubeletConfig::parse(&self.get(CONFIG_PATH).await?)?)
    }

    async fn get(&self, path: &'static str) -> Result<Bytes, KubeletError> {
        let node = self.state.load().node.clone().ok_or(KubeletError::NoNode)?;
        let base = endpoint(&node, &self.options)?;
        let url = format!("{base}{path}");
        let client = self.client(&base)?;
        let timeout = self.options.timeout;
        let started = Instant::now();
        match tokio::time::timeout(timeout, ask(&client, path)).await {
            Err(_) => Err(KubeletError::TimedOut { url, timeout }),
            Ok(Err(source)) => Err(KubeletError::Request { url, source }),
            Ok(Ok((code, body))) => {
                (self.observe)(Call { path, code, seconds: started.elapsed().as_secs_f64() });
                if code == 200 { Ok(body) } else { Err(KubeletError::Refused { url, code }) }
            }
        }
    }

    /// The client of an address; a new one when the address changed.
    fn client(&self, base: &str) -> Result<kube::Client, KubeletError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, client)) = &*current
            && known == base
        {
            return Ok(client.clone());
        }
        let made = self.connect(base)?;
        tracing::info!(kubelet = base, "asking the kubelet");
        *current = Some((base.to_owned(), made.clone()));
        Ok(made)
    }

    fn connect(&self, base: &str) -> Result<kube::Client, KubeletError> {
        let url = base
            .parse::<http::Uri>()
            .map_err(|source| KubeletError::Address { url: base.to_owned(), source })?;
        let mut config = kube::Config::new(url);
        // An empty list keeps the system's certificates out of it.
        config.root_cert = Some(Vec::new());
        if !self.options.is_plain {
            config.auth_info = self.config.auth_info.clone();
            config.accept_invalid_certs = self.options.ca_file.is_none();
            config.root_cert_file = self.options.ca_file.clone();
            if let Some((cert, key)) = &self.options.client_files {
                config.auth_info = kube::config::AuthInfo::default();
                config.auth_info.client_certificate = Some(cert.display().to_string());
                config.auth_info.client_key = Some(key.display().to_string());
            }
        }
        // No retries: the next round is the retry. No limit: rounds are few.
        let connection = ClientConnection { qps: -1.0, ..ClientConnection::default() };
        let options = ClientOptions {
            timeout: self.options.timeout,
            retry: RetryPolicy::NEVER,
            ..ClientOptions::new("koordlet", connection)
        };
        Ok(client(config, &options)?)
    }
}

async fn ask(client: &kube::Client, path: &str) -> Result<(u16, Bytes), kube::Error> {
    let request = http::Request::get(path).body(Body::empty()).map_err(kube::Error::HttpError)?;
    let answer = client.send(request).await?;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await?;
    Ok((code, body))
}

/// `scheme://address:port` of a node's kubelet.
pub fn endpoint(node: &NodeState, options: &KubeletOptions) -> Result<String, KubeletError> {
    let wanted = &options.address_type;
    let address = node.addresses.iter().find(|(kind, _)| kind == wanted).map(|(_, address)| address);
    let address = address.ok_or_else(|| KubeletError::NoAddress(wanted.clone()))?;
    let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    match (options.is_plain, node.kubelet_port) {
        (true, _) => Ok(format!("http://{host}:{}", options.read_only_port)),
        (false, 0) => Err(KubeletError::NoPort),
        (false, port) => Ok(format!("https://{host}:{port}")),
    }
}

#[cfg(test)]
mod tests;
