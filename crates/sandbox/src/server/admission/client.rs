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
use koord_api::patch::json::type_name;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::decode::{GO_HEAD, yaml_to_json};
use crate::kinds::quote;

/// An answer larger than any object.
const ANSWER_MAX_BYTES: usize = 16 << 20;
/// Of an error's text, so much is told.
const REFUSAL_MAX_BYTES: usize = 1024;
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
            Ok(Err(Failure::Way(why))) => Err(format!("Post {url:?}: {why}")),
            Ok(Err(Failure::Answer(why))) => Err(why),
            Err(_) => Err(format!("Post {url:?}: context deadline exceeded")),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        timeout_seconds: u64,
        body: Bytes,
    ) -> Result<Value, Failure> {
        let request = || {
            http::Request::post(format!("{}?timeout={timeout_seconds}s", endpoint.path))
                .header("host", endpoint.key())
                .header("content-type", "application/json")
                .header("accept", "application/json, */*")
                .header("user-agent", "kube-apiserver-admission")
                .body(Full::new(body.clone()))
                .map_err(|e| Failure::Way(e.to_string()))
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
        let (connection, response) = sent.map_err(Failure::Way)?;
        let status = response.status();
        let answer = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await;
        let answer = answer.map_err(|e| Failure::Way(e.to_string()))?.to_bytes();
        self.keep(endpoint, connection);
        if !status.is_success() {
            return Err(Failure::Answer(refusal(status.as_u16(), &answer)));
        }
        let tree =
            yaml_to_json(&answer).and_then(|json| serde_json::from_slice(&json).map_err(|e| e.to_string()));
        match tree {
            Ok(review @ Value::Object(_)) => Ok(review),
            Ok(other) => Err(Failure::Answer(unread(&format!(
                "json: cannot unmarshal {} into Go value of type {GO_HEAD}",
                type_name(&other)
            )))),
            Err(why) => Err(Failure::Answer(unread(&why))),
        }
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

/// Why there is no review to read.
enum Failure {
    /// The webhook could not be asked.
    Way(String),
    /// It answered with something else.
    Answer(String),
}

fn unread(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// Go's words for an answer that is an error and no Status.
fn refusal(code: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(REFUSAL_MAX_BYTES)]);
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => text.trim().to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .to_owned(),
        500.. => {
            let said = quote(text.trim());
            format!("an error on the server ({said}) has prevented the request from succeeding")
        }
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

/// The system's word, as Go spells it.
fn dial_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        _ => error.to_string(),
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
    let tcp = tcp.map_err(|e| format!("dial tcp {}: {}", endpoint.key(), dial_error(&e)))?;
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
    fn refusals_are_told_in_the_words_of_go() {
        for (code, body, want) in [
            (404, "x", "the server could not find the requested resource"),
            (500, "down", "an error on the server (\"down\") has prevented the request from succeeding"),
            (302, "", "the server responded with the status code 302 but did not return more information"),
        ] {
            assert_eq!(refusal(code, body.as_bytes()), want);
        }
    }

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
