//! Clients that say who they are by a certificate: asked for at the handshake, judged when a request comes.
//!
//! A client need not have one, and one that nobody knows does not end the connection: as in Kubernetes, it only leaves
//! the client to other means of saying who it is.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    self, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme, crypto,
};

/// What a client showed, its own certificate first. In the extensions of every request of its connection.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// Whom a certificate makes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateUser {
    /// The common name.
    pub name: String,
    /// The organizations.
    pub groups: Vec<String>,
}

/// Why there is no such authority.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    #[error("the authorities of clients are no usable PEM")]
    Pem(#[source] pem::Error),
    #[error("an authority of clients cannot be used")]
    Unusable(#[source] rustls::Error),
    #[error("authorities of clients cannot be used: {0}")]
    None(String),
}

/// Authorities whose clients are known.
#[derive(Clone, Debug)]
pub struct ClientCa {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// All certificates of a bundle.
    pub fn from_pem(bundle: &[u8]) -> Result<ClientCa, ClientCaError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            let certificate = certificate.map_err(ClientCaError::Pem)?;
            roots.add(certificate).map_err(ClientCaError::Unusable)?;
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| ClientCaError::None(error.to_string()))?;
        Ok(ClientCa { verifier })
    }

    /// Who the client is; an error when no authority of ours says so, none when it says so of nobody.
    pub fn user(&self, shown: &PeerCertificates) -> Result<Option<CertificateUser>, rustls::Error> {
        let Some((own, others)) = shown.0.split_first() else { return Ok(None) };
        self.verifier.verify_client_cert(own, others, UnixTime::now())?;
        Ok(subject(own))
    }
}

fn subject(certificate: &CertificateDer<'_>) -> Option<CertificateUser> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    (!name.is_empty()).then(|| CertificateUser { name, groups: groups.collect() })
}

/// Asks for a certificate and takes any whose key the client has; [`ClientCa`] judges it later.
#[derive(Debug)]
pub(super) struct Anybody(pub(super) Arc<CryptoProvider>);

impl ClientCertVerifier for Anybody {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
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
