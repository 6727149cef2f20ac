//! Certificates and kubeconfig files of one control plane. Each has its own CA, so that no client
//! of one is known to another.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::Error;

/// Names the API server answers to; the address is the first of the service network.
const SERVER_NAMES: [&str; 7] = [
    "127.0.0.1",
    "10.96.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Who a client certificate speaks for.
pub(crate) struct Identity {
    pub(crate) file: &'static str,
    pub(crate) user: &'static str,
    pub(crate) group: Option<&'static str>,
}

pub(crate) const ADMIN: Identity =
    Identity { file: "admin", user: "koord-admin", group: Some("system:masters") };
pub(crate) const CONTROLLER_MANAGER: Identity =
    Identity { file: "controller-manager", user: "system:kube-controller-manager", group: None };
pub(crate) const SCHEDULER: Identity =
    Identity { file: "scheduler", user: "system:kube-scheduler", group: None };

pub(crate) struct Pki {
    dir: PathBuf,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    /// Writes `ca.crt`, `ca.key`, `server.crt`, `server.key` and the key pair that signs the
    /// tokens of service accounts to `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Pki, Error> {
        std::fs::create_dir(dir).map_err(Error::io("create", dir))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "koord-testkit");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let pki = Pki { dir: dir.to_path_buf(), ca };
        pki.write("ca.crt", &pki.ca.pem())?;
        pki.write("ca.key", &pki.ca.key().serialize_pem())?;
        let service_accounts = KeyPair::generate()?;
        pki.write("service-account.key", &service_accounts.serialize_pem())?;
        pki.write("service-account.pub", &service_accounts.public_key_pem())?;

        let mut server = CertificateParams::new(SERVER_NAMES.map(String::from))?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        pki.issue("server", server, ExtendedKeyUsagePurpose::ServerAuth)?;
        Ok(pki)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// Writes a client certificate for `identity`.
    pub(crate) fn client(&self, identity: &Identity) -> Result<(), Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, identity.user);
        if let Some(group) = identity.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.issue(identity.file, params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Writes a kubeconfig that speaks to `server` as `identity`.
    pub(crate) fn kubeconfig(&self, identity: &Identity, server: &str, path: &Path) -> Result<(), Error> {
        // A JSON string is also a YAML string, whatever the path holds.
        let quoted = |file: String| serde_json::Value::from(self.path(&file).to_string_lossy()).to_string();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: koord\n\
             clusters:\n- name: koord\n  cluster:\n    server: {server}\n    certificate-authority: {ca}\n\
             users:\n- name: {user}\n  user:\n    client-certificate: {crt}\n    client-key: {key}\n\
             contexts:\n- name: koord\n  context:\n    cluster: koord\n    user: {user}\n",
            ca = quoted("ca.crt".to_string()),
            user = identity.file,
            crt = quoted(format!("{}.crt", identity.file)),
            key = quoted(format!("{}.key", identity.file)),
        );
        write_private(path, &text)
    }

    fn issue(
        &self,
        name: &str,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<(), Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.ca)?;
        self.write(&format!("{name}.crt"), &certificate.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        write_private(&self.path(name), text)
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::io("write", path))
}
