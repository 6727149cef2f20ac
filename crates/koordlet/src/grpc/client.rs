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
        // Not the other side's refusal: it answered, and we cannot read it.
        let message = unframed(&body).map_err(|fault| CallError::Answer(fault.text))?;
        Ok(body.slice_ref(message))
    }
}

/// None when the call went well.
fn refusal(status: &HeaderMap) -> Option<Refusal> {
    let told = |name: &str| status.get(name).map(|value| unescaped(value.as_bytes())).unwrap_or_default();
    match told("grpc-status").parse() {
        Ok(0) => None,
        Ok(code) => Some(Refusal { code, text: told("grpc-message") }),
        Err(_) => Some(Refusal::unknown(format!("no status but {:?}", told("grpc-status")))),
    }
}

/// The text of a status, where bytes that are not plain are told by their numbers. What is no number stays as it is.
fn unescaped(told: &[u8]) -> String {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let number = |rest: &[u8]| Some(digit(*rest.first()?)? * 16 + digit(*rest.get(1)?)?);
    let (mut bytes, mut rest) = (Vec::with_capacity(told.len()), told);
    while let Some((first, after)) = rest.split_first() {
        let number = number(after).filter(|_| *first == b'%');
        bytes.push(number.unwrap_or(*first));
        rest = if number.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::grpc::server::{Service, listen, serve};

    /// Refuses everything, in these words.
    struct Refuser(&'static str);

    impl Service for Refuser {
        async fn call(&self, _: &str, _: &[u8]) -> Result<Vec<u8>, Refusal> {
            Err(Refusal::unknown(self.0.to_owned()))
        }
    }

    #[tokio::test]
    async fn words_of_a_refusal_come_back_as_they_were_said() {
        const SAID: &str = "50 % of \"ä\":\n\tno";
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listen(&socket).unwrap(), Arc::new(Refuser(SAID)), stop.clone()));
        let error = Channel::open(&socket).await.unwrap().call("/a/b", &[]).await.unwrap_err();
        let CallError::Refused(refusal) = error else { panic!("{error}") };
        assert_eq!(refusal.text, SAID);
        stop.cancel();
        server.await.unwrap();
    }

    #[test]
    fn texts_of_others_are_read_as_far_as_they_go() {
        for (told, want) in [
            ("", ""),
            ("a%20b%2fc", "a b/c"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz%+1%41", "%zz%+1A"),
            ("%ff", "\u{fffd}"),
        ] {
            assert_eq!(unescaped(told.as_bytes()), want, "{told}");
        }
        let status = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            HeaderValue::from_static("0"),
        )]);
        assert_eq!(refusal(&status), None);
    }

    /// Answers well, with a body that is no message.
    #[tokio::test]
    async fn an_answer_that_cannot_be_read_is_no_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper::service::service_fn(|_| async {
                let body = Full::new(Bytes::from_static(&[1, 0, 0, 0, 0]));
                Ok::<_, hyper::Error>(
                    http::Response::builder().header("grpc-status", "0").body(body).unwrap(),
                )
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // It ends when the client goes.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
        let mut channel = Channel::open(&socket).await.unwrap();
        let error = channel.call("/a/b", &[]).await.unwrap_err();
        assert!(matches!(error, CallError::Answer(_)), "{error}");
        drop(channel);
        server.await.unwrap();
    }
}
