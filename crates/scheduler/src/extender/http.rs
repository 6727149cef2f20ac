//! One extender over HTTP: how it is reached, and what is posted to it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, StatusCode, Uri, header};
use koord_engine::engine::command::Binding;
use koord_engine::extender::Terms;
use koord_kit::client::service::RetryPolicy;
use koord_kit::client::{ClientConnection, ClientError, ClientOptions};
use koord_kit::log::chain;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::{Value, json};

use super::wire;
use crate::config::{Extender as Config, ExtenderTls, Pem};

/// Why an extender cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExtenderError {
    #[error("extender {url:?}: a URL with http or https and a host is needed")]
    Url { url: String },
    #[error("extender {url:?}: its TLS settings cannot be used")]
    Tls { url: String, source: KubeconfigError },
    #[error("extender {url:?}: its settings cannot be used")]
    Settings { url: String, source: serde_json::Error },
    #[error("extender {url:?}")]
    Client { url: String, source: ClientError },
}

/// What it is asked for, each at an address of its own below the prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verbs {
    pub(super) filter: Option<String>,
    pub(super) prioritize: Option<(String, i64)>,
    pub(super) preempt: Option<String>,
    pub(super) bind: Option<String>,
}

/// A way to one extender.
pub struct Http {
    client: kube::Client,
    /// Without a slash at its end.
    url: String,
    verbs: Verbs,
    terms: Terms,
    is_node_cache_capable: bool,
}

impl Http {
    /// Nothing is sent yet.
    // Differs: upstream learns that a URL cannot be used when the first pod is sent to it; here the start fails.
    pub async fn new(config: &Config) -> Result<Http, ExtenderError> {
        let url = config.url_prefix.trim_end_matches('/').to_owned();
        let parsed = url.parse::<Uri>().ok();
        let is_usable = parsed.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some()
                && uri.query().is_none()
        });
        if !is_usable {
            return Err(ExtenderError::Url { url });
        }
        let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig(&url, config))
            .map_err(|source| ExtenderError::Settings { url: url.clone(), source })?;
        // What it takes to trust a server and to be trusted is the same as for an API server.
        let server = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|source| ExtenderError::Tls { url: url.clone(), source })?;
        let mut options = ClientOptions::new(
            "koord-scheduler",
            ClientConnection { qps: -1.0, ..ClientConnection::default() },
        );
        options.timeout = config.timeout;
        options.retry = RetryPolicy::NEVER;
        let client = koord_kit::client::client(server, &options)
            .map_err(|source| ExtenderError::Client { url: url.clone(), source })?;
        let verbs = Verbs {
            filter: config.filter_verb.clone(),
            prioritize: config.prioritize.clone(),
            preempt: config.preempt_verb.clone(),
            bind: config.bind_verb.clone(),
        };
        let is_node_cache_capable = config.node_cache_capable;
        Ok(Http { client, url, verbs, terms: terms(config), is_node_cache_capable })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn verbs(&self) -> &Verbs {
        &self.verbs
    }

    pub(super) fn is_node_cache_capable(&self) -> bool {
        self.is_node_cache_capable
    }

    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Posts a body; the error is the whole text.
    pub(super) async fn post(&self, verb: &str, body: String) -> Result<Value, String> {
        let request = Request::post(format!("/{verb}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.into_bytes()))
            .map_err(|error| error.to_string())?;
        let answer = self.client.send(request).await.map_err(|error| chain(&error))?;
        let status = answer.status();
        if status != StatusCode::OK {
            let (url, code) = (&self.url, status.as_u16());
            return Err(format!("failed {verb} with extender at URL {url}/{verb}, code {code}"));
        }
        let bytes = answer.into_body().collect_bytes().await.map_err(|error| chain(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }

    /// Lets the extender bind a pod; the error is the whole text.
    pub async fn bind(&self, binding: &Binding) -> Result<(), String> {
        let Some(verb) = &self.verbs.bind else {
            return Err("unexpected empty bindVerb in extender".to_owned());
        };
        wire::bound(&self.post(verb, wire::binding(binding)).await?)
    }
}

/// What an extender of this configuration wants to be asked.
pub fn terms(config: &Config) -> Terms {
    Terms {
        filters: config.filter_verb.is_some(),
        weight: config.prioritize.as_ref().map(|(_, weight)| *weight),
        binds: config.bind_verb.is_some(),
        preempts: config.preempt_verb.is_some(),
        is_ignorable: config.ignorable,
        managed: config.managed_resources.iter().map(|resource| resource.name.as_str().into()).collect(),
    }
}

/// How to reach and trust it, in the form that the client reads.
fn kubeconfig(url: &str, config: &Config) -> Value {
    let tls = config.tls.clone().unwrap_or_default();
    let ExtenderTls { insecure, server_name, cert, key, ca } = tls;
    // As upstream: nobody to trust by means that everybody is trusted.
    let insecure = insecure || (config.enable_https && ca.is_none());
    let mut cluster = json!({"server": url, "insecure-skip-tls-verify": insecure});
    let mut user = json!({});
    set(&mut cluster, "certificate-authority", ca);
    set(&mut user, "client-certificate", cert);
    set(&mut user, "client-key", key);
    if let Some(name) = server_name {
        cluster["tls-server-name"] = name.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "extender", "cluster": cluster}],
        "users": [{"name": "extender", "user": user}],
        "contexts": [{"name": "extender", "context": {"cluster": "extender", "user": "extender"}}],
        "current-context": "extender",
    })
}

fn set(into: &mut Value, key: &str, pem: Option<Pem>) {
    match pem {
        None => {}
        Some(Pem::File(path)) => into[key] = path.into(),
        Some(Pem::Data(bytes)) => into[format!("{key}-data")] = STANDARD.encode(bytes).into(),
    }
}
