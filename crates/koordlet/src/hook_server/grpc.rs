//! As much of a gRPC server as unary calls need: a path, a frame of five bytes before a message, a status behind it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use koord_api::hook::Hook;
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::HookServer;

/// As large as gRPC servers take by default.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
const FRAME_BYTES: usize = 5;
/// Proxies that ask at the same time; there is one.
const CONNECTIONS_MAX: usize = 16;
/// When there is nobody left to take a connection from us.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Why a call has no answer: a code of gRPC, and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    code: u8,
    text: String,
}

impl Refusal {
    pub(super) fn unknown(text: String) -> Refusal {
        Refusal { code: 2, text }
    }

    fn invalid(text: String) -> Refusal {
        Refusal { code: 3, text }
    }

    fn exhausted(text: String) -> Refusal {
        Refusal { code: 8, text }
    }

    fn unimplemented(text: String) -> Refusal {
        Refusal { code: 12, text }
    }
}

pub(super) fn decode<M: Message + Default>(message: &[u8]) -> Result<M, Refusal> {
    M::decode(message).map_err(|error| Refusal::invalid(format!("the message cannot be read: {error}")))
}

pub(super) fn encode(message: impl Message) -> Vec<u8> {
    message.encode_to_vec()
}

/// Answers whoever connects, until told to stop.
pub(super) async fn serve(listener: UnixListener, server: Arc<HookServer>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            // One more than there can be reason for is turned away.
            Ok(_) if connections.len() >= CONNECTIONS_MAX => {}
            Ok((stream, _)) => _ = connections.spawn(talk(stream, server.clone(), stop.clone())),
            Err(error) => {
                tracing::debug!(%error, "a connection was not taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

async fn talk(stream: UnixStream, server: Arc<HookServer>, stop: CancellationToken) {
    let service = service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(answer(&server, request).await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of the runtime proxy broke off");
    }
}

async fn answer(server: &HookServer, request: Request<Incoming>) -> Answer {
    match call(server, request).await {
        Ok(message) => good(&message),
        Err(refusal) => refused(&refusal),
    }
}

async fn call(server: &HookServer, request: Request<Incoming>) -> Result<Vec<u8>, Refusal> {
    let path = request.uri().path().to_owned();
    let hook = Hook::ALL.into_iter().find(|hook| hook.path() == path);
    let hook = hook.ok_or_else(|| Refusal::unimplemented(format!("unknown method {path}")))?;
    let body = Limited::new(request.into_body(), MESSAGE_BYTES_MAX + FRAME_BYTES).collect().await;
    let body = body.map_err(|error| Refusal::exhausted(error.to_string()))?.to_bytes();
    server.answer(hook, unframed(&body)?).await
}

/// The one message of a body.
fn unframed(body: &[u8]) -> Result<&[u8], Refusal> {
    let Some(([is_compressed, length @ ..], message)) = body.split_first_chunk::<FRAME_BYTES>() else {
        return Err(Refusal::invalid("the message broke off".to_owned()));
    };
    if *is_compressed != 0 {
        return Err(Refusal::unimplemented("compressed messages are not read".to_owned()));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if message.len() != length {
        return Err(Refusal::invalid(format!("{length} bytes were announced, {} came", message.len())));
    }
    Ok(message)
}

fn good(message: &[u8]) -> Answer {
    let mut frame = BytesMut::with_capacity(FRAME_BYTES + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    let status = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(0))]);
    let body = Full::new(frame.freeze()).with_trailers(async move { Some(Ok(status)) });
    headed(body.boxed())
}

fn refused(refusal: &Refusal) -> Answer {
    let mut answer = headed(Empty::new().boxed());
    let headers = answer.headers_mut();
    headers.insert("grpc-status", HeaderValue::from(u16::from(refusal.code)));
    if let Ok(text) = HeaderValue::from_str(&escaped(&refusal.text)) {
        headers.insert("grpc-message", text);
    }
    answer
}

fn headed(body: BoxBody<Bytes, Infallible>) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
    answer
}

/// Text of a status: what is not plain is told by the numbers of its bytes.
fn escaped(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'%' | 0..=0x1f | 0x7f.. => _ = write!(out, "%{byte:02X}"),
            plain => out.push(char::from(plain)),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        assert_eq!(unframed(&[0, 0, 0, 0, 2, 7, 8]), Ok(&[7, 8][..]));
        assert_eq!(unframed(&[0, 0, 0, 0, 0]), Ok(&[][..]));
        for (name, body, code) in [
            ("nothing", &[][..], 3),
            ("half a frame", &[0, 0, 0], 3),
            ("less than announced", &[0, 0, 0, 0, 2, 7], 3),
            ("more than announced", &[0, 0, 0, 0, 1, 7, 8], 3),
            ("compressed", &[1, 0, 0, 0, 1, 7], 12),
        ] {
            assert_eq!(unframed(body).map_err(|refusal| refusal.code), Err(code), "{name}");
        }
    }

    #[test]
    fn words_of_a_refusal() {
        assert_eq!(escaped("50 % of ä\n"), "50 %25 of %C3%A4%0A");
        let answer = refused(&Refusal::unknown("no".to_owned()));
        assert_eq!(
            (&answer.headers()["grpc-status"], &answer.headers()["grpc-message"]),
            (&HeaderValue::from(2), &HeaderValue::from_static("no"))
        );
    }
}
