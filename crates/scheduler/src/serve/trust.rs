//! Whose certificates are accepted on the secure port: those of clients, and those of proxies in front of us that say in
//! headers for whom they ask. Authorities are given by flags, or the API server tells them in
//! kube-system/extension-apiserver-authentication.
//!
//! Read again now and then, for authorities are renewed while we run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use koord_kit::http::{CertificateUser, ClientCa, ClientCaError, PeerCertificates};
use koord_kit::log::chain;
use kube::Api;
use tokio_util::sync::CancellationToken;

use super::access::User;
use crate::flags::{Authentication, RequestHeaders};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// Where the authority of clients stands there.
const CLIENTS: &str = "client-ca-file";
/// Where that of proxies does, and what begins its other settings.
const PROXIES: &str = "requestheader-";

/// How often it is read again.
const READ_EVERY: Duration = Duration::from_secs(60);

/// A cluster that does not answer by then has not told us.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Why an authority is not known.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot read {path}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot read {NAMESPACE}/{NAME}")]
    Cluster(#[source] Box<kube::Error>),
    #[error("cannot read {NAMESPACE}/{NAME}: no answer")]
    Silence,
    #[error("cannot read {key} of {NAMESPACE}/{NAME}")]
    List { key: String, source: serde_json::Error },
    #[error(transparent)]
    Authority(#[from] ClientCaError),
}

/// The authorities, as far as they are known.
pub struct Trust {
    clients: Source<PathBuf>,
    proxies: Source<RequestHeaders>,
    client: kube::Client,
    known: RwLock<Known>,
}

/// Where something is read from.
enum Source<T> {
    Nobody,
    Flags(T),
    Cluster,
}

#[derive(Default)]
struct Known {
    clients: Option<Authority>,
    proxies: Option<Proxies>,
}

/// A bundle as it was read, and what it means.
struct Authority {
    bundle: Vec<u8>,
    judge: ClientCa,
}

/// Those who may say in headers for whom they ask.
struct Proxies {
    authority: Authority,
    headers: RequestHeaders,
}

impl Trust {
    /// By these flags; `client` may read the cluster's settings. Nothing is known yet.
    pub fn new(flags: &Authentication, client: kube::Client) -> Trust {
        let elsewhere = || flags.skip_lookup;
        let clients = match &flags.client_ca_file {
            Some(path) => Source::Flags(path.clone()),
            None if elsewhere() => Source::Nobody,
            None => Source::Cluster,
        };
        let proxies = match &flags.request_headers.client_ca_file {
            Some(_) => Source::Flags(flags.request_headers.clone()),
            None if elsewhere() => Source::Nobody,
            None => Source::Cluster,
        };
        Trust { clients, proxies, client, known: RwLock::default() }
    }

    /// Reads them. What was known stays known when that fails.
    pub async fn learn(&self) -> Result<(), TrustError> {
        let asks = matches!(self.clients, Source::Cluster) || matches!(self.proxies, Source::Cluster);
        let told = if asks { read(&self.client).await? } else { BTreeMap::new() };
        let clients = match &self.clients {
            Source::Nobody => None,
            Source::Flags(path) => Some(file(path)?),
            Source::Cluster => told.get(CLIENTS).map(|bundle| bundle.clone().into_bytes()),
        };
        let proxies = match &self.proxies {
            Source::Nobody => None,
            Source::Flags(headers) => match &headers.client_ca_file {
                Some(path) => Some((file(path)?, headers.clone())),
                None => None,
            },
            Source::Cluster => proxies(&told)?,
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let clients = clients.map(|bundle| Authority::new(bundle, known.clients.as_ref())).transpose()?;
        let before = known.proxies.as_ref().map(|proxies| &proxies.authority);
        let proxies = proxies.map(|(bundle, headers)| {
            Ok::<_, TrustError>(Proxies { authority: Authority::new(bundle, before)?, headers })
        });
        let proxies = proxies.transpose()?;
        *known = Known { clients, proxies };
        Ok(())
    }

    /// Keeps them up to date.
    pub async fn keep_learning(self: Arc<Trust>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(READ_EVERY) => {}
                () = stop.cancelled() => return,
            }
            if let Err(error) = self.learn().await {
                tracing::debug!(
                    error = chain(&error),
                    "the authorities of client certificates are not known anew"
                );
            }
        }
    }

    /// Who a client is by its certificates. None when they say so of nobody, or no authority is known; an error is
    /// what is wrong with them.
    pub(super) fn user(&self, shown: &PeerCertificates) -> Result<Option<CertificateUser>, String> {
        match &self.known.read().unwrap_or_else(PoisonError::into_inner).clients {
            None => Ok(None),
            Some(authority) => authority.judge.user(shown).map_err(|error| error.to_string()),
        }
    }

    /// For whom a proxy asks, by its certificate and its headers. None when it names nobody, or no proxies are known; an
    /// error is what is wrong with the certificate.
    pub(super) fn asks_for(
        &self,
        shown: &PeerCertificates,
        headers: &HeaderMap,
    ) -> Result<Option<User>, String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let Some(proxies) = &known.proxies else { return Ok(None) };
        let proxy = proxies.authority.judge.user(shown).map_err(|error| error.to_string())?;
        let name = proxy.map(|proxy| proxy.name).unwrap_or_default();
        let names = &proxies.headers.allowed_names;
        if !names.is_empty() && !names.contains(&name) {
            return Err(format!("a proxy by the name {name:?} is not allowed"));
        }
        Ok(proxies.headers.user(headers))
    }
}

impl Authority {
    /// The one before, if its bundle is the same.
    fn new(bundle: Vec<u8>, before: Option<&Authority>) -> Result<Authority, TrustError> {
        let known = before.filter(|before| before.bundle == bundle).map(|before| before.judge.clone());
        let judge = known.map_or_else(|| ClientCa::from_pem(&bundle), Ok)?;
        Ok(Authority { bundle, judge })
    }
}

impl RequestHeaders {
    /// Whom the headers name; none without a name.
    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let all = |name: &String| {
            let values = headers.get_all(name.as_str()).into_iter();
            values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect::<Vec<String>>()
        };
        let first = |names: &[String]| names.iter().flat_map(all).find(|value| !value.is_empty());
        let name = first(&self.username)?;
        let mut user = User::authenticated(name, self.group.iter().flat_map(all).collect());
        user.uid = first(&self.uid).unwrap_or_default();
        for header in headers.keys() {
            // Names of headers are in small letters here.
            let prefixes = self.extra_prefix.iter().map(|prefix| prefix.to_ascii_lowercase());
            for key in prefixes.filter_map(|prefix| header.as_str().strip_prefix(&prefix).map(unescaped)) {
                user.extra.entry(key).or_default().extend(all(&header.to_string()));
            }
        }
        Some(user)
    }
}

/// `%2f` and the like stand for what a header's name cannot have; what cannot be read stays as it is.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = key.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let code = (*first == b'%').then(|| others.get(..2)).flatten();
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[2..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

fn file(path: &Path) -> Result<Vec<u8>, TrustError> {
    std::fs::read(path).map_err(|source| TrustError::File { path: path.to_owned(), source })
}

/// What the cluster says of proxies; none when it has no authority for them.
fn proxies(told: &BTreeMap<String, String>) -> Result<Option<(Vec<u8>, RequestHeaders)>, TrustError> {
    let at = |name: &str| format!("{PROXIES}{name}");
    let Some(bundle) = told.get(&at(CLIENTS)) else { return Ok(None) };
    let list = |name: &str| -> Result<Vec<String>, TrustError> {
        let key = at(name);
        let Some(text) = told.get(&key).filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
        serde_json::from_str(text).map_err(|source| TrustError::List { key, source })
    };
    let headers = RequestHeaders {
        client_ca_file: None,
        allowed_names: list("allowed-names")?,
        username: list("username-headers")?,
        uid: list("uid-headers")?,
        group: list("group-headers")?,
        extra_prefix: list("extra-headers-prefix")?,
    };
    Ok(Some((bundle.clone().into_bytes(), headers)))
}

async fn read(client: &kube::Client) -> Result<BTreeMap<String, String>, TrustError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let answer = tokio::time::timeout(ANSWERS_WITHIN, maps.get(NAME)).await;
    let map =
        answer.map_err(|_| TrustError::Silence)?.map_err(|error| TrustError::Cluster(Box::new(error)))?;
    Ok(map.data.unwrap_or_default())
}
