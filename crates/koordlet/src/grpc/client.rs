//! Asks a server on a unix socket.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

use super::{CONTENT_TYPE, FRAME_BYTES, Refusal, frame, unframed};

/// As large as the kubelet's answers about pods are taken.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot reach {path}: {source}")]
    Connect { path: PathBuf, source: io::Error },
    #[error("the answer broke off: {0}")]
    Transport(#[from] hyper::Error),
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    #[error(transparent)]
    Refused(Refusal),
}

/// A connection to a server.
pub struct Channel {
    sender: SendRequest<Full<Bytes>>,
}

/// A stream to whoever listens there.
pub(crate) async fn connect(socket: &Path) -> Result<TokioIo<UnixStream>, CallError> {
    let stream = UnixStream::connect(socket).await;
    stream.map(TokioIo::new).map_err(|source| CallError::Connect { path: socket.to_owned(), source })
}

impl Channel {
    pub async fn open(socket: &Path) -> Result<Channel, CallError> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), connect(socket).await?).await?;
        tokio::spawn(connection);
        Ok(Channel { sender })
    }

    /// One call: a message goes to a method, `/package.Service/Method`, and one comes back.
    pub async fn call(&mut self, path: &str, message: &[u8]) -> Result<Bytes, CallError> {
        let request = Request::post(format!("http://localhost{path}"))
            .header(http::header::CONTENT_TYPE, CONTENT_TYPE)
            .header(http::header::TE, "trailers")
            .body(Full::new(frame(message)))
            .map_err(|error| CallError::Answer(error.to_string()))?;
        let (parts, body) = self.sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX + FRAME_BYTES).collect().await;
        let body = body.map_err(|error| CallError::Answer(error.to_string()))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        // Where there is nothing but a status, it is among the headers.
        let status = if trailers.contains_key("grpc-status") { &trailers } else { &parts.headers };
        if let Some(refusal) = refusal(status) {
            return Err(CallError::Refused(refusal));
        }
        let body = body.to_bytes();
        let message = unframed(&body).map_err(CallError::Refused)?;
        Ok(body.slice_ref(message))
    }
}

/// None when the call went well.
fn refusal(status: &HeaderMap) -> Option<Refusal> {
    let told = |name: &str| status.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match told("grpc-status").parse() {
        Ok(0) => None,
        Ok(code) => Some(Refusal { code, text: told("grpc-message").to_owned() }),
        Err(_) => Some(Refusal::unknown(format!("no status but {:?}", told("grpc-status")))),
    }
}
