//! Carries admission reviews over HTTPS, trusting what the configuration says to trust.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An answer larger than any object.
const ANSWER_MAX_BYTES: usize = 16 << 20;
/// Idle connections kept per webhook.
const IDLE_MAX: usize = 8;

/// Where a webhook listens and whom to trust there.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoint {
    host: String,
    port: u16,
    path: String,
    /// PEM.
    ca: Vec<u8>,
}

impl Endpoint {
    pub(super) fn read(config: &Value) -> Endpoint {
        let ca = config["caBundle"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
        if let Some(url) = config["url"].as_str() {
            let rest = url.strip_prefix("https://").unwrap_or(url);
            let (authority, path) = match rest.find('/') {
                Some(at) => (&rest[..at], &rest[at..]),
                None => (rest, "/"),
            };
            let (host, port) = match authority.rsplit_once(':') {
                Some((host, port)) => (host, port.parse().unwrap_or(443)),
                None => (authority, 443),
            };
            let host = host.trim_start_matches('[').trim_end_matches(']');
            return Endpoint { host: host.to_owned(), port, path: path.to_owned(), ca };
        }
        let service = &config["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        Endpoint {
            host: format!("{}.{}.svc", text("name"), text("namespace")),
            port: service["port"].as_u64().and_then(|p| u16::try_from(p).ok()).unwrap_or(443),
            path: format!("/{}", text("path").trim_start_matches('/')),
            ca,
        }
    }

    fn key(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

type Connection = SendRequest<Full<Bytes>>;

/// Connections to webhooks, kept for the next review.
#[derive(Default)]
pub(super) struct Client {
    /// By host and port. A connection is taken out while in use.
    idle: Mutex<HashMap<String, Vec<Connection>>>,
}

impl Client {
    /// Sends a review and reads the answer, within the time given.
    pub(super) async fn post(
        &self,
        endpoint: &Endpoint,
        review: &Value,
        timeout_seconds: u64,
    ) -> Result<Value, String> {
        let url = format!(
            "https://{}:{}{}?timeout={timeout_seconds}s",
            endpoint.host, endpoint.port, endpoint.path
        );
        let body = Bytes::from(review.to_string());
        let call = self.exchange(endpoint, timeout_seconds, body);
        match tokio::time::timeout(Duration::from_secs(timeout_seconds), call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(format!("Post {url:?}: {why}")),
            Err(_) => Err(format!("Post {url:?}: context deadline exceeded")),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        timeout_seconds: u64,
        body: Bytes,
    ) -> Result<Value, String> {
        let request = || {
            http::Request::post(format!("{}?timeout={timeout_seconds}s", endpoint.path))
                .header("host", endpoint.key())
                .header("content-type", "application/json")
                .header("accept", "application/json, */*")
                .header("user-agent", "kube-apiserver-admission")
                .body(Full::new(body.clone()))
                .map_err(|e| e.to_string())
        };
        // A kept connection may have been closed meanwhile; then a new one is tried once.
        let kept = self.take(endpoint);
        let sent = match kept {
            Some(mut connection) => match connection.send_request(request()?).await {
                Ok(response) => Ok((connection, response)),
                Err(_) => send_on_new(endpoint, request()?).await,
            },
            None => send_on_new(endpoint, request()?).await,
        };
        let (connection, response) = sent?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await;
        let answer = answer.map_err(|e| e.to_string())?.to_bytes();
        self.keep(endpoint, connection);
        if !status.is_success() {
            let text = String::from_utf8_lossy(&answer[..answer.len().min(1024)]).into_owned();
            return Err(format!("unexpected status {}: {text}", status.as_u16()));
        }
        serde_json::from_slice(&answer).map_err(|e| format!("the answer is not JSON: {e}"))
    }

    fn take(&self, endpoint: &Endpoint) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let list = idle.get_mut(&endpoint.key())?;
        std::iter::from_fn(|| list.pop()).find(|connection| connection.is_ready())
    }

    fn keep(&self, endpoint: &Endpoint, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let list = idle.entry(endpoint.key()).or_default();
        if list.len() < IDLE_MAX && !connection.is_closed() {
            list.push(connection);
        }
    }
}

async fn send_on_new(
    endpoint: &Endpoint,
    request: http::Request<Full<Bytes>>,
) -> Result<(Connection, http::Response<hyper::body::Incoming>), String> {
    let mut connection = connect(endpoint).await?;
    let response = connection.send_request(request).await.map_err(|e| e.to_string())?;
    Ok((connection, response))
}

async fn connect(endpoint: &Endpoint) -> Result<Connection, String> {
    let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
    let tcp = tcp.map_err(|e| format!("dial tcp {}: {e}", endpoint.key()))?;
    let _ = tcp.set_nodelay(true);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&endpoint.ca) {
        let certificate = certificate.map_err(|e| format!("caBundle: {e}"))?;
        roots.add(certificate).map_err(|e| format!("caBundle: {e}"))?;
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(endpoint.host.clone()).map_err(|e| e.to_string())?;
    let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
    let tls = tls.map_err(|e| format!("tls: {e}"))?;
    let (connection, driver) = handshake(TokioIo::new(tls)).await.map_err(|e| e.to_string())?;
    // Ends by itself when the connection closes, and that when its sender is dropped.
    tokio::spawn(driver);
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn endpoints_come_from_urls_and_services() {
        for (config, want) in [
            (json!({"url": "https://127.0.0.1:9443/mutate"}), ("127.0.0.1", 9443, "/mutate")),
            (json!({"url": "https://x.example"}), ("x.example", 443, "/")),
            (json!({"url": "https://[::1]:1/"}), ("::1", 1, "/")),
            (json!({"service": {"name": "a", "namespace": "b", "path": "/c"}}), ("a.b.svc", 443, "/c")),
        ] {
            let endpoint = Endpoint::read(&config);
            assert_eq!((endpoint.host.as_str(), endpoint.port, endpoint.path.as_str()), want);
        }
    }
}
