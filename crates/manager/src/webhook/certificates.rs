//! The server's certificate and the authority behind it: made, judged, renewed. Spec: manager 14.2.
//!
//! Pure but for the keys, which chance makes: the time comes in, PEM texts go out. Where they are kept is the business
//! of the [keeper](super::keeper).

use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SerialNumber,
};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;

pub const CA_KEY: &str = "ca-key.pem";
pub const CA_CERT: &str = "ca-cert.pem";
pub const KEY: &str = "key.pem";
pub const CERT: &str = "cert.pem";
/// Copies of the server's pair under the names that servers look for.
pub const TLS_CERT: &str = "tls.crt";
pub const TLS_KEY: &str = "tls.key";

/// Subject of the authority.
const CA_NAME: &str = "webhook-cert-ca";
/// How long authorities and certificates last.
const LIFE_DAYS: i64 = 3650;
/// A certificate that does not last this long from now is renewed.
const MARGIN_DAYS: i64 = 182;
/// An authority that does not last this long from now signs nothing new.
const CA_MARGIN_DAYS: i64 = 365;

/// An authority with its key, and a server's certificate with its key. All PEM; empty where missing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Artifacts {
    pub ca_key: String,
    pub ca_cert: String,
    pub key: String,
    pub cert: String,
}

/// Why certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("{file} holds no usable PEM: {reason}")]
    Pem { file: &'static str, reason: String },
    #[error("{KEY} does not belong to {CERT}: {reason}")]
    Mismatch { reason: String },
    #[error("{CERT} is not good for {name} in {MARGIN_DAYS} days: {reason}")]
    NotGood { name: String, reason: String },
    #[error("certificates cannot be made: {0}")]
    Making(String),
}

impl Artifacts {
    /// From the files of a Secret or a directory.
    pub fn read(file: impl Fn(&str) -> Option<Vec<u8>>) -> Artifacts {
        let text = |name: &str| {
            file(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        Artifacts { ca_key: text(CA_KEY), ca_cert: text(CA_CERT), key: text(KEY), cert: text(CERT) }
    }

    /// All six files.
    pub fn files(&self) -> [(&'static str, &str); 6] {
        [
            (CA_KEY, &self.ca_key),
            (CA_CERT, &self.ca_cert),
            (CERT, &self.cert),
            (KEY, &self.key),
            (TLS_CERT, &self.cert),
            (TLS_KEY, &self.key),
        ]
    }

    /// Whether the server's pair is one, and its certificate good for the name for a good while.
    pub fn check(&self, server_name: &str, now: Timestamp) -> Result<(), CertificateError> {
        let chain = certificates(CERT, &self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| CertificateError::Pem { file: KEY, reason: error.to_string() })?;
        CertifiedKey::from_der(chain.clone(), key, &default_provider())
            .map_err(|error| CertificateError::Mismatch { reason: error.to_string() })?;
        let authorities = certificates(CA_CERT, &self.ca_cert)?;
        verify(&chain, authorities, server_name, later(now, MARGIN_DAYS))
            .map_err(|reason| CertificateError::NotGood { name: server_name.to_owned(), reason })
    }

    /// New certificates. The authority stays when it lasts long enough and its key is there.
    ///
    /// `serial` tells the server's certificate from others of the same authority.
    pub fn renew(
        &self,
        server_name: &str,
        now: Timestamp,
        serial: u64,
    ) -> Result<Artifacts, CertificateError> {
        // What an authority signs is judged like anything else: if it is not good, as with the authority of another
        // program, a new one has to be made.
        let kept = self.signed_by_same(server_name, now, serial);
        match kept.filter(|artifacts| artifacts.check(server_name, now).is_ok()) {
            Some(artifacts) => Ok(artifacts),
            None => {
                make(server_name, now, serial).map_err(|error| CertificateError::Making(error.to_string()))
            }
        }
    }

    fn signed_by_same(&self, server_name: &str, now: Timestamp, serial: u64) -> Option<Artifacts> {
        let (from, until) = validity(&self.ca_cert)?;
        if until < later(now, CA_MARGIN_DAYS) {
            return None;
        }
        let issuer = Issuer::new(ca_params(from), KeyPair::from_pem(&self.ca_key).ok()?);
        let (cert, key) = server_pair(&issuer, server_name, from, now, serial).ok()?;
        Some(Artifacts { cert, key, ..self.clone() })
    }
}

/// No keys in logs.
impl std::fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Artifacts")
            .field("ca_cert", &self.ca_cert)
            .field("cert", &self.cert)
            .finish_non_exhaustive()
    }
}

/// A new authority and a server's certificate.
fn make(server_name: &str, now: Timestamp, serial: u64) -> Result<Artifacts, rcgen::Error> {
    // Differs: elliptic curve P-256 keys in PKCS#8, where upstream has RSA keys in PKCS#1. Both are read.
    let ca_key = KeyPair::generate()?;
    let ca_cert = ca_params(now).self_signed(&ca_key)?.pem();
    let ca_key_text = ca_key.serialize_pem();
    let issuer = Issuer::new(ca_params(now), ca_key);
    let (cert, key) = server_pair(&issuer, server_name, now, now, serial)?;
    Ok(Artifacts { ca_key: ca_key_text, ca_cert, key, cert })
}

fn ca_params(from: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, CA_NAME);
    params.subject_alt_names = CA_NAME.try_into().map(rcgen::SanType::DnsName).into_iter().collect();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
    ];
    set_life(&mut params, from, later(from, LIFE_DAYS));
    params
}

fn server_pair(
    issuer: &Issuer<'_, KeyPair>,
    server_name: &str,
    from: Timestamp,
    now: Timestamp,
    serial: u64,
) -> Result<(String, String), rcgen::Error> {
    // A name that is an address becomes one.
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), server_name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, server_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_life(&mut params, from, later(now, LIFE_DAYS));
    // 63 bits, so that it reads as a positive number.
    params.serial_number = Some(SerialNumber::from(serial >> 1));
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, issuer)?.pem();
    Ok((cert, key.serialize_pem()))
}

/// The chain must lead from an authority to the name at that time. Says why it does not.
pub(super) fn verify(
    chain: &[CertificateDer<'_>],
    authorities: Vec<CertificateDer<'static>>,
    server_name: &str,
    at: Timestamp,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
        .build()
        .map_err(|error| error.to_string())?;
    let name = ServerName::try_from(server_name).map_err(|error| error.to_string())?;
    let seconds = u64::try_from(at.as_second()).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let (own, others) = chain.split_first().ok_or_else(|| "it is empty".to_owned())?;
    verifier.verify_server_cert(own, others, &name, &[], at).map(drop).map_err(|error| error.to_string())
}

/// All certificates of a PEM text; there is at least one.
pub(super) fn certificates(
    file: &'static str,
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(CertificateError::Pem { file, reason: "it holds no certificate".to_owned() }),
        Err(error) => Err(CertificateError::Pem { file, reason: error.to_string() }),
    }
}

/// From when until when a certificate is valid.
pub fn validity(pem: &str) -> Option<(Timestamp, Timestamp)> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    let validity = certificate.validity();
    let from = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
    let until = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
    Some((from, until))
}

fn later(now: Timestamp, days: i64) -> Timestamp {
    now.saturating_add((days * 24).hours()).unwrap_or(Timestamp::MAX)
}

/// Certificates count in seconds since 1970, as far as we are concerned.
fn set_life(params: &mut CertificateParams, from: Timestamp, until: Timestamp) {
    let start = rcgen::date_time_ymd(1970, 1, 1);
    let since = |at: Timestamp| Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    params.not_before = start + since(from);
    params.not_after = start + since(until);
}

#[cfg(test)]
mod tests;
