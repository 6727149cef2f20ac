//! The two HTTP servers: plain, and over TLS with the cluster asked who may come in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use koord_kit::client::{ClientError, ClientOptions};
use koord_kit::http::{TlsError, TlsFiles, serve};
use koord_kit::log::chain;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::flags::{Authentication, Certificate, Listen, Options};
use crate::serve::Pages;
use crate::serve::access::Access;
use crate::serve::trust::{Trust, TrustError};

/// What kube-scheduler calls its pair of files in `--cert-dir`.
const PAIR_NAME: &str = "kube-scheduler";

/// Where they came to listen.
pub(super) struct Bound {
    pub(super) plain: Option<SocketAddr>,
    pub(super) secure: Option<SocketAddr>,
}

/// Why they cannot.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot serve TLS")]
    Tls(#[from] TlsError),
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Trust(#[from] TrustError),
}

pub(super) async fn start(
    options: &Options,
    cluster: &kube::Config,
    client: &kube::Client,
    pages: &Pages,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<Bound, ServerError> {
    let mut bound = Bound { plain: None, secure: None };
    if let Some(listen) = options.plain {
        let (listener, address) = bind(listen).await?;
        bound.plain = Some(address);
        tasks.spawn(serve(listener, pages.router(), None, stop.clone()));
    }
    if let Some(listen) = options.secure {
        let tls = certificate(&options.certificate)?.asking_clients()?;
        let (listener, address) = bind(listen).await?;
        bound.secure = Some(address);
        let reviewer = async |kubeconfig: &Option<PathBuf>| reviewer(kubeconfig, client).await;
        let token_client = reviewer(&options.authentication.kubeconfig).await?;
        let trust = trust(&options.authentication, &token_client).await?;
        tasks.spawn(trust.clone().keep_learning(stop.clone()));
        let access = Access::new(
            token_client,
            reviewer(&options.authorization.kubeconfig).await?,
            trust,
            options.authentication.clone(),
            options.authorization.clone(),
        );
        let router = pages.router().guarded(access.guard());
        tasks.spawn(serve(listener, router, Some(tls), stop.clone()));
    }
    tracing::info!(plain = ?bound.plain, secure = ?bound.secure, server = %cluster.cluster_url, "serving");
    Ok(bound)
}

async fn bind(listen: Listen) -> Result<(TcpListener, SocketAddr), ServerError> {
    let address = SocketAddr::new(listen.address, listen.port);
    let failed = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// A client that may ask for reviews: of its own kubeconfig, or the scheduler's.
async fn reviewer(kubeconfig: &Option<PathBuf>, client: &kube::Client) -> Result<kube::Client, ServerError> {
    let Some(path) = kubeconfig else { return Ok(client.clone()) };
    let connection = koord_kit::client::ClientConnection {
        kubeconfig: path.display().to_string(),
        ..koord_kit::client::ClientConnection::default()
    };
    Ok(koord_kit::client::connect(&ClientOptions::new("koord-scheduler", connection)).await?)
}

/// Whose certificates are accepted, as far as that can be learned now.
async fn trust(flags: &Authentication, client: &kube::Client) -> Result<Arc<Trust>, ServerError> {
    let trust = Arc::new(Trust::new(flags, client.clone()));
    match trust.learn().await {
        Err(error @ TrustError::Cluster(_) | error @ TrustError::Silence)
            if flags.tolerate_lookup_failure =>
        {
            tracing::warn!(
                error = chain(&error),
                "client certificates are not accepted until the authority is known"
            );
        }
        result => result?,
    }
    Ok(trust)
}

/// The given pair, the folder's pair (made if it is not there), or one that lives in memory.
fn certificate(given: &Certificate) -> Result<TlsFiles, ServerError> {
    if let (Some(cert), Some(key)) = (&given.cert_file, &given.key_file) {
        return Ok(TlsFiles::load(cert, key)?);
    }
    let Some(folder) = &given.directory else {
        let (cert, key) = self_signed()?;
        return Ok(TlsFiles::in_memory(&cert, &key)?);
    };
    let (cert, key) = (folder.join(format!("{PAIR_NAME}.crt")), folder.join(format!("{PAIR_NAME}.key")));
    if !cert.exists() || !key.exists() {
        let (cert_pem, key_pem) = self_signed()?;
        write(&key, &key_pem, 0o600)?;
        write(&cert, &cert_pem, 0o644)?;
    }
    Ok(TlsFiles::load(cert, key)?)
}

fn self_signed() -> Result<(String, String), ServerError> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    if !host.is_empty() {
        names.push(host);
    }
    let made = rcgen::generate_simple_self_signed(names)?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), ServerError> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed = |source| ServerError::Write { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let opened = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(path);
    opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
}
