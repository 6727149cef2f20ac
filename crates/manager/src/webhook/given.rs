//! Certificates that somebody else makes and renews, as cert-manager does: read and judged, never written.
//!
//! The files are those of a Secret of type `kubernetes.io/tls`, as the kubelet puts them into a directory.

use std::path::{Path, PathBuf};
use std::{fs, io};

use jiff::Timestamp;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;

use super::certificates::{TLS_CERT, TLS_KEY, certificates, validity, verify};

/// The authority behind the certificate.
pub const CA: &str = "ca.crt";

/// A server's pair, and who vouches for it. All PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Given {
    pub cert: String,
    pub key: String,
    /// None where the API server is told by somebody else, such as cert-manager's ca-injector, or knows it anyhow.
    pub ca_cert: Option<String>,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum GivenError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} {reason}")]
    Unusable { path: PathBuf, reason: String },
}

impl Given {
    /// What a directory holds, if it is good for the name now. How long it lasts is the business of whoever renews it.
    pub fn read(dir: &Path, server_name: &str, now: Timestamp) -> Result<Given, GivenError> {
        let (cert, key) = (text(dir, TLS_CERT)?, text(dir, TLS_KEY)?);
        let ca_cert = match text(dir, CA) {
            // Issuers that have no authority to show leave it empty.
            Ok(text) => Some(text).filter(|text| !text.trim().is_empty()),
            Err(GivenError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let given = Given { cert, key, ca_cert };
        let unusable = |(file, reason)| GivenError::Unusable { path: dir.join(file), reason };
        given.check(server_name, now).map_err(unusable)?;
        Ok(given)
    }

    /// Says of which file what is wrong.
    fn check(&self, server_name: &str, now: Timestamp) -> Result<(), (&'static str, String)> {
        let of_pem = |file: &'static str, pem: &str| {
            certificates(file, pem)
                .map_err(|_| (file, "holds no PEM certificate that can be read".to_owned()))
        };
        let chain = of_pem(TLS_CERT, &self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| (TLS_KEY, format!("holds no PEM private key that can be read: {error}")))?;
        CertifiedKey::from_der(chain.clone(), key, &default_provider())
            .map_err(|error| (TLS_KEY, format!("does not belong to {TLS_CERT}: {error}")))?;
        self.check_time(now)?;
        is_for(&chain, server_name).map_err(|reason| (TLS_CERT, reason))?;
        if let Some(ca_cert) = &self.ca_cert {
            let authorities = of_pem(CA, ca_cert)?;
            verify(&chain, authorities, server_name, now)
                .map_err(|reason| (TLS_CERT, format!("is not vouched for by {CA}: {reason}")))?;
        }
        Ok(())
    }

    fn check_time(&self, now: Timestamp) -> Result<(), (&'static str, String)> {
        match validity(&self.cert) {
            Some((from, until)) if from <= now && now < until => Ok(()),
            Some((from, until)) => {
                Err((TLS_CERT, format!("is valid from {from} until {until}, and now it is {now}")))
            }
            None => Err((TLS_CERT, "does not say how long it is valid".to_owned())),
        }
    }
}

/// No keys in logs.
impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Given { cert, ca_cert, key: _ } = self;
        f.debug_struct("Given").field("cert", cert).field("ca_cert", ca_cert).finish_non_exhaustive()
    }
}

fn text(dir: &Path, file: &str) -> Result<String, GivenError> {
    let path = dir.join(file);
    match fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(source) => Err(GivenError::Read { path, source }),
    }
}

/// The name that the API server calls by.
fn is_for(chain: &[CertificateDer<'_>], server_name: &str) -> Result<(), String> {
    let wrong = |reason: String| format!("is not for {server_name}: {reason}");
    let name = ServerName::try_from(server_name).map_err(|error| wrong(error.to_string()))?;
    let own = chain.first().ok_or_else(|| wrong("it is empty".to_owned()))?;
    let own = ParsedCertificate::try_from(own).map_err(|error| wrong(error.to_string()))?;
    verify_server_name(&own, &name).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests;
