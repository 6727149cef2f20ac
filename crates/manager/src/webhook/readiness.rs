//! Whether the API server would get an answer: we ask ourselves, as it would. Spec: manager 14.2.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use koord_kit::http::Check;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_util::sync::CancellationToken;

use super::certificates::CA_CERT;

const EVERY: Duration = Duration::from_secs(2);
const SLOW: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whom we trust to be ourselves.
pub enum Trust {
    /// Whoever has a certificate of the authority in this directory.
    Authority(PathBuf),
    /// Whoever answers: the keeper has judged the certificate given, and it need not be for localhost.
    Anybody,
}

impl Trust {
    fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        Ok(match self {
            Trust::Authority(dir) => builder.with_root_certificates(authority(dir)?).with_no_client_auth(),
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
                .with_no_client_auth(),
        })
    }
}

fn authority(dir: &Path) -> Result<RootCertStore, String> {
    let pem = fs::read(dir.join(CA_CERT)).map_err(|error| format!("{CA_CERT} cannot be read: {error}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| format!("{CA_CERT}: {error}"))?;
        roots.add(certificate).map_err(|error| format!("{CA_CERT}: {error}"))?;
    }
    Ok(roots)
}

/// Takes any certificate whose key the server has.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What the last question came to. Cheap to clone.
#[derive(Clone)]
pub struct Readiness(Arc<Mutex<Result<(), String>>>);

impl Default for Readiness {
    fn default() -> Readiness {
        Readiness(Arc::new(Mutex::new(
            Err("certificates and configurations are not in order yet".to_owned()),
        )))
    }
}

impl Readiness {
    /// `webhook-ready`, for `/readyz`.
    pub fn check(&self) -> Check {
        let last = self.clone();
        Check::ready("webhook-ready", move || last.get())
    }

    pub fn get(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks every two seconds once the keeper has done its first round.
    pub async fn run(
        self,
        port: u16,
        trust: Trust,
        mut kept: watch::Receiver<bool>,
        stop: CancellationToken,
    ) {
        let first = tokio::select! {
            first = kept.wait_for(|is_ready| *is_ready) => first.is_ok(),
            () = stop.cancelled() => false,
        };
        if !first {
            return;
        }
        loop {
            let begin = Instant::now();
            let asked = tokio::time::timeout(TIMEOUT, ask(port, &trust)).await;
            let result = asked.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
            if begin.elapsed() > SLOW {
                tracing::warn!(seconds = begin.elapsed().as_secs(), "the webhook server answers slowly");
            }
            self.note(result);
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn note(&self, result: Result<(), String>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != result {
            match &result {
                Ok(()) => tracing::info!("the webhook server answers"),
                Err(reason) => tracing::warn!(reason, "the webhook server does not answer"),
            }
            *last = result;
        }
    }
}

/// GET `https://localhost:<port>/healthz`. Any answer will do.
async fn ask(port: u16, trust: &Trust) -> Result<(), String> {
    let config = trust.config()?;
    let name = ServerName::try_from("localhost").map_err(|error| error.to_string())?;
    let socket = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
        .map_err(|error| error.to_string())?;
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.map_err(|error| error.to_string())?;
    let mut start = [0; 5];
    stream.read_exact(&mut start).await.map_err(|error| error.to_string())?;
    if &start == b"HTTP/" { Ok(()) } else { Err("the answer is not HTTP".to_owned()) }
}
