//! What the environment says about the webhook server. Spec: manager 1.2.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use koord_kit::http::Listen;

use super::paths::Side;

/// All of it, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Service and the Secret, and our own.
    pub namespace: String,
    /// 0: a free one, of which the API server is told once it is known.
    pub port: u16,
    /// Where the server's certificates are written, or found.
    pub cert_dir: PathBuf,
    /// Set when the API server calls us by URL instead of through a Service.
    pub host: Option<String>,
    pub writer: Writer,
    pub secret_name: String,
    pub service_name: String,
    pub mutating_name: String,
    pub validating_name: String,
}

/// Where certificates are kept, and who makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// In a Secret, which all replicas share.
    Secret,
    /// In files of this replica alone.
    Files,
    /// In files that somebody else writes, such as a Secret of cert-manager that is mounted.
    Given,
}

/// A variable that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?}: expected {expected}")]
pub struct SettingsError {
    pub variable: &'static str,
    pub value: String,
    pub expected: &'static str,
}

impl Settings {
    /// `variable` looks up the environment. One that is empty counts as absent.
    pub fn new(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingsError> {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str, default: &str| get(name).unwrap_or_else(|| default.to_owned());
        let host = get("WEBHOOK_HOST");
        let port = match get("WEBHOOK_PORT") {
            None => 9876,
            Some(value) => match value.parse() {
                Ok(port) => port,
                Err(_) => {
                    let expected = "a port number";
                    return Err(SettingsError { variable: "WEBHOOK_PORT", value, expected });
                }
            },
        };
        let writer = match get("WEBHOOK_CERT_WRITER").as_deref() {
            None if host.is_some() => Writer::Files,
            None | Some("secret") => Writer::Secret,
            Some("fs") => Writer::Files,
            Some("given") => Writer::Given,
            Some(other) => {
                let (variable, expected) = ("WEBHOOK_CERT_WRITER", "secret, fs or given");
                return Err(SettingsError { variable, value: other.to_owned(), expected });
            }
        };
        Ok(Settings {
            namespace: text("POD_NAMESPACE", "koordinator-system"),
            port,
            cert_dir: text("WEBHOOK_CERT_DIR", "/tmp/koordinator-webhook-certs").into(),
            host,
            writer,
            secret_name: text("SECRET_NAME", "koordinator-webhook-certs"),
            service_name: text("SERVICE_NAME", "koordinator-webhook-service"),
            mutating_name: text("MUTATING_WEBHOOK_NAME", "koordinator-mutating-webhook-configuration"),
            validating_name: text("VALIDATING_WEBHOOK_NAME", "koordinator-validating-webhook-configuration"),
        })
    }

    /// The name that the server's certificate is for.
    pub fn server_name(&self) -> String {
        match &self.host {
            Some(host) => host.clone(),
            None => format!("{}.{}.svc", self.service_name, self.namespace),
        }
    }

    /// Where the API server finds a path when it does not go through a Service.
    pub fn url(&self, path: &str) -> Option<String> {
        let host = self.host.as_ref()?;
        Some(match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("https://[{address}]:{}{path}", self.port),
            _ => format!("https://{host}:{}{path}", self.port),
        })
    }

    /// Where nobody but this machine calls, nobody else has to be able to.
    pub fn listen(&self) -> Listen {
        match self.host.as_deref() {
            Some("127.0.0.1") => Listen::At((Ipv4Addr::LOCALHOST, self.port).into()),
            _ => Listen::Everywhere { port: self.port },
        }
    }

    pub fn configuration_name(&self, side: Side) -> &str {
        match side {
            Side::Mutating => &self.mutating_name,
            Side::Validating => &self.validating_name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::new(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn defaults() {
        let all = settings(&[("SERVICE_NAME", "")]).unwrap();
        assert_eq!(all.server_name(), "koordinator-webhook-service.koordinator-system.svc");
        assert_eq!((all.port, all.writer, all.url("/x")), (9876, Writer::Secret, None));
        assert_eq!(all.cert_dir, PathBuf::from("/tmp/koordinator-webhook-certs"));
        assert_eq!(all.secret_name, "koordinator-webhook-certs");
        assert_eq!(all.configuration_name(Side::Mutating), "koordinator-mutating-webhook-configuration");
        assert_eq!(all.configuration_name(Side::Validating), "koordinator-validating-webhook-configuration");
    }

    #[test]
    fn hosts_and_writers() {
        let by_host = settings(&[("WEBHOOK_HOST", "10.0.0.5"), ("WEBHOOK_PORT", "1234")]).unwrap();
        assert_eq!((by_host.writer, by_host.server_name().as_str()), (Writer::Files, "10.0.0.5"));
        assert_eq!(by_host.url("/mutate-pod").as_deref(), Some("https://10.0.0.5:1234/mutate-pod"));
        let six = settings(&[("WEBHOOK_HOST", "fd00::1"), ("WEBHOOK_CERT_WRITER", "secret")]).unwrap();
        assert_eq!(
            (six.writer, six.url("/x").as_deref()),
            (Writer::Secret, Some("https://[fd00::1]:9876/x"))
        );
        assert_eq!(six.listen(), Listen::Everywhere { port: six.port }, "others may call");
        let local = settings(&[("WEBHOOK_HOST", "127.0.0.1"), ("WEBHOOK_PORT", "0")]).unwrap();
        assert_eq!((local.port, local.listen()), (0, Listen::At(([127, 0, 0, 1], 0).into())));
        let files = settings(&[("WEBHOOK_CERT_WRITER", "fs")]).unwrap();
        assert_eq!(files.writer, Writer::Files);
        let given = settings(&[("WEBHOOK_CERT_WRITER", "given"), ("WEBHOOK_HOST", "10.0.0.5")]).unwrap();
        assert_eq!(given.writer, Writer::Given);
        for (variables, want) in [
            ([("WEBHOOK_PORT", "many")], "WEBHOOK_PORT=\"many\": expected a port number"),
            ([("WEBHOOK_CERT_WRITER", "tape")], "WEBHOOK_CERT_WRITER=\"tape\": expected secret, fs or given"),
        ] {
            assert_eq!(settings(&variables).unwrap_err().to_string(), want);
        }
    }
}
