//! Keys and certificates: the cluster's authority, its server, its clients.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::api::User;

/// Keys could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the certificates: {0}")]
    Unusable(String),
}

/// The cluster's own certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

/// A certificate with its key, both PEM.
#[derive(Clone, Debug)]
pub struct Credential {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn generate() -> Result<Authority, TlsError> {
        let key = KeyPair::generate()?;
        let certificate = authority_params()?.self_signed(&key)?.pem();
        let text = key.serialize_pem();
        Ok(Authority { issuer: Issuer::new(authority_params()?, key), certificate, key: text })
    }

    /// An authority made earlier by `generate`, so that kubeconfigs stay valid over a restart.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Authority, TlsError> {
        let pair = KeyPair::from_pem(key)?;
        let issuer = Issuer::new(authority_params()?, pair);
        Ok(Authority { issuer, certificate: certificate.to_owned(), key: key.to_owned() })
    }

    /// PEM, for clients to trust.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// PEM, for keeping.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// A certificate for a server under these names and addresses.
    pub fn server(&self, names: &[String]) -> Result<Credential, TlsError> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client certificate that says who the client is.
    pub fn client(&self, user: &User) -> Result<Credential, TlsError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user.name.as_str());
        // One organization fits a name; the group every authenticated user has goes without saying.
        for group in user.groups.iter().filter(|g| *g != "system:authenticated").take(1) {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Credential, TlsError> {
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Credential { certificate, key: key.serialize_pem() })
    }

    /// HTTP/2 and HTTP/1.1; client certificates of this authority are welcome, not required.
    pub fn server_config(&self, server: &Credential) -> Result<ServerConfig, TlsError> {
        let unusable = |e: &dyn std::fmt::Display| TlsError::Unusable(e.to_string());
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(&self.certificate)? {
            roots.add(certificate).map_err(|e| unusable(&e))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|e| unusable(&e))?;
        let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes()).map_err(|e| unusable(&e))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(read_certificates(&server.certificate)?, key)
            .map_err(|e| unusable(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn authority_params() -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "koord-sandbox-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn read_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    certificates.map_err(|e| TlsError::Unusable(e.to_string()))
}

/// Who a verified client certificate belongs to.
pub(super) fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned);
    let groups = groups.chain(["system:authenticated".to_owned()]).collect();
    Some(User { name, groups })
}

/// A secret for bearer authentication: 256 random bits.
pub fn random_token() -> Result<String, TlsError> {
    let mut bytes = [0u8; 32];
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let filled = provider.secure_random.fill(&mut bytes);
    filled.map_err(|_| TlsError::Unusable("no randomness".to_owned()))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_say_who_their_owner_is() {
        let authority = Authority::generate().unwrap();
        let again = Authority::from_pem(authority.certificate(), authority.key()).unwrap();
        let user = User { name: "kubernetes-admin".into(), groups: vec!["system:masters".into()] };
        let credential = again.client(&user).unwrap();
        let certificate = read_certificates(&credential.certificate).unwrap().remove(0);
        let found = user_of(&certificate).unwrap();
        assert_eq!(found.name, "kubernetes-admin");
        assert_eq!(found.groups, ["system:masters", "system:authenticated"]);
        let server = again.server(&["127.0.0.1".into(), "localhost".into()]).unwrap();
        authority.server_config(&server).unwrap();
        assert_eq!(random_token().unwrap().len(), 64);
    }
}
