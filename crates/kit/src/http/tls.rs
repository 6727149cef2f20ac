//! TLS from two files that may be replaced while serving, as cert-manager and the kubelet do.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{fs, io};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use super::client_cert::Anybody;

/// A certificate chain and its key, re-read whenever they change.
#[derive(Clone)]
pub struct TlsFiles {
    inner: Arc<Inner>,
}

/// In place of a path, in errors.
const IN_MEMORY: &str = "(in memory)";

struct Inner {
    /// None when the pair is in memory, and changes only by [`TlsFiles::replace`].
    files: Option<(PathBuf, PathBuf)>,
    asks_clients: bool,
    /// What the files held when they last made sense, and the acceptor made of it.
    current: Mutex<Current>,
}

struct Current {
    bytes: (Vec<u8>, Vec<u8>),
    acceptor: TlsAcceptor,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read TLS file {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} holds no usable PEM {what}")]
    Pem { path: PathBuf, what: &'static str, source: pem::Error },
    #[error("certificate {cert} and key {key} cannot be used together")]
    Mismatch { cert: PathBuf, key: PathBuf, source: rustls::Error },
}

impl TlsFiles {
    /// Reads both files now, so that a mistake shows at start.
    pub fn load(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<TlsFiles, TlsError> {
        let (cert, key) = (cert.into(), key.into());
        let bytes = (read(&cert)?, read(&key)?);
        TlsFiles::of(Some((cert, key)), bytes, false)
    }

    /// A pair that is in no file, both as PEM: for servers that nobody gave a certificate.
    pub fn in_memory(cert: &str, key: &str) -> Result<TlsFiles, TlsError> {
        let bytes = (cert.as_bytes().to_vec(), key.as_bytes().to_vec());
        TlsFiles::of(None, bytes, false)
    }

    /// Uses another pair for new connections, until files say otherwise. One that cannot be used changes nothing.
    pub fn replace(&self, cert: &str, key: &str) -> Result<(), TlsError> {
        let bytes = (cert.as_bytes().to_vec(), key.as_bytes().to_vec());
        let nowhere = PathBuf::from(IN_MEMORY);
        let acceptor = build(&nowhere, &nowhere, &bytes, self.inner.asks_clients)?;
        let mut current = self.inner.current.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *current = Current { bytes, acceptor };
        Ok(())
    }

    /// The same, and clients are asked for a certificate, which they need not have. What they show is found in the
    /// extensions of their requests, as [`super::PeerCertificates`]; nobody has judged it then.
    pub fn asking_clients(self) -> Result<TlsFiles, TlsError> {
        let Inner { files, current, .. } = &*self.inner;
        let bytes = current.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).bytes.clone();
        TlsFiles::of(files.clone(), bytes, true)
    }

    fn of(
        files: Option<(PathBuf, PathBuf)>,
        bytes: (Vec<u8>, Vec<u8>),
        asks_clients: bool,
    ) -> Result<TlsFiles, TlsError> {
        let nowhere = || (PathBuf::from(IN_MEMORY), PathBuf::from(IN_MEMORY));
        let (cert, key) = files.clone().unwrap_or_else(nowhere);
        let acceptor = build(&cert, &key, &bytes, asks_clients)?;
        let current = Mutex::new(Current { bytes, acceptor });
        Ok(TlsFiles { inner: Arc::new(Inner { files, asks_clients, current }) })
    }

    /// The acceptor for a new connection. Two small files are read each time, which costs microseconds and needs no
    /// watcher; a half-written pair leaves the last good one in use.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let Inner { files, asks_clients, current } = &*self.inner;
        let mut current = current.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some((cert, key)) = files else { return current.acceptor.clone() };
        let fresh = read(cert).and_then(|cert_bytes| Ok((cert_bytes, read(key)?)));
        match fresh {
            Ok(bytes) if bytes == current.bytes => {}
            Ok(bytes) => match build(cert, key, &bytes, *asks_clients) {
                Ok(acceptor) => {
                    tracing::info!(cert = %cert.display(), "TLS certificate reloaded");
                    *current = Current { bytes, acceptor };
                }
                Err(error) => report(&error),
            },
            Err(error) => report(&error),
        }
        current.acceptor.clone()
    }
}

fn report(error: &TlsError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "new TLS files are unusable, keeping the old ones"
    );
}

fn read(path: &PathBuf) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source })
}

fn build(
    cert: &PathBuf,
    key: &PathBuf,
    bytes: &(Vec<u8>, Vec<u8>),
    asks_clients: bool,
) -> Result<TlsAcceptor, TlsError> {
    let bad = |path: &PathBuf, what| {
        let path = path.clone();
        move |source| TlsError::Pem { path, what, source }
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&bytes.0)
        .collect::<Result<_, _>>()
        .map_err(bad(cert, "certificate"))?;
    if chain.is_empty() {
        return Err(bad(cert, "certificate")(pem::Error::NoItemsFound));
    }
    let secret = PrivateKeyDer::from_pem_slice(&bytes.1).map_err(bad(key, "private key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map(|builder| match asks_clients {
            true => builder.with_client_cert_verifier(Arc::new(Anybody(provider))),
            false => builder.with_no_client_auth(),
        })
        .and_then(|builder| builder.with_single_cert(chain, secret))
        .map_err(|source| TlsError::Mismatch { cert: cert.clone(), key: key.clone(), source })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
