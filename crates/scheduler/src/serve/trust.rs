//! Whose client certificates are accepted on the secure port: those of a given authority, or of the cluster's own,
//! which the API server tells in kube-system/extension-apiserver-authentication.
//!
//! Read again now and then, for authorities are renewed while we run.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use koord_kit::http::{CertificateUser, ClientCa, ClientCaError, PeerCertificates};
use koord_kit::log::chain;
use kube::Api;
use tokio_util::sync::CancellationToken;

use crate::flags::Authentication;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const KEY: &str = "client-ca-file";

/// How often it is read again.
const READ_EVERY: Duration = Duration::from_secs(60);

/// A cluster that does not answer by then has not told us.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Why the authority is not known.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot read {path}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot read {NAMESPACE}/{NAME}")]
    Cluster(#[source] Box<kube::Error>),
    #[error("cannot read {NAMESPACE}/{NAME}: no answer")]
    Silence,
    #[error(transparent)]
    Authority(#[from] ClientCaError),
}

/// The authority, as far as it is known.
pub struct Trust {
    source: Source,
    /// The bundle as it was read, and what it means.
    known: RwLock<Option<(Vec<u8>, ClientCa)>>,
}

enum Source {
    Nobody,
    File(PathBuf),
    Cluster(kube::Client),
}

impl Trust {
    /// By these flags; `client` may read the cluster's settings. Nothing is known yet.
    pub fn new(flags: &Authentication, client: kube::Client) -> Trust {
        let source = match (&flags.client_ca_file, flags.skip_lookup) {
            (Some(path), _) => Source::File(path.clone()),
            (None, true) => Source::Nobody,
            (None, false) => Source::Cluster(client),
        };
        Trust { source, known: RwLock::new(None) }
    }

    /// Reads it. What was known stays known when that fails.
    pub async fn learn(&self) -> Result<(), TrustError> {
        let bundle = match &self.source {
            Source::Nobody => None,
            Source::File(path) => {
                let failed = |source| TrustError::File { path: path.clone(), source };
                Some(std::fs::read(path).map_err(failed)?)
            }
            Source::Cluster(client) => read(client).await?,
        };
        if self.bundle() == bundle {
            return Ok(());
        }
        let authority = bundle.map(|bundle| ClientCa::from_pem(&bundle).map(|authority| (bundle, authority)));
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = authority.transpose()?;
        Ok(())
    }

    /// As it was read last.
    fn bundle(&self) -> Option<Vec<u8>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|(bundle, _)| bundle.clone())
    }

    /// Keeps it up to date.
    pub async fn keep_learning(self: Arc<Trust>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(READ_EVERY) => {}
                () = stop.cancelled() => return,
            }
            if let Err(error) = self.learn().await {
                tracing::debug!(
                    error = chain(&error),
                    "the authority of client certificates is not known anew"
                );
            }
        }
    }

    /// Who a client is by its certificates. None when they say so of nobody, or no authority is known; an error is
    /// what is wrong with them.
    pub(super) fn user(&self, shown: &PeerCertificates) -> Result<Option<CertificateUser>, String> {
        match &*self.known.read().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(None),
            Some((_, authority)) => authority.user(shown).map_err(|error| error.to_string()),
        }
    }
}

/// None when the cluster has no authority for clients.
async fn read(client: &kube::Client) -> Result<Option<Vec<u8>>, TrustError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let answer = tokio::time::timeout(ANSWERS_WITHIN, maps.get(NAME)).await;
    let map =
        answer.map_err(|_| TrustError::Silence)?.map_err(|error| TrustError::Cluster(Box::new(error)))?;
    Ok(map.data.and_then(|mut data| data.remove(KEY)).map(String::into_bytes))
}
