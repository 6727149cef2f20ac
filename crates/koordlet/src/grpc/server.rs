//! Answers calls on a unix socket.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{CONTENT_TYPE, FRAME_BYTES, Refusal, frame, unframed};

/// As large as gRPC servers take by default.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Who asks at the same time; there is one proxy, and a monitor or two.
const CONNECTIONS_MAX: usize = 16;
/// When there is nobody left to take a connection from us.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Methods that a server has.
pub(crate) trait Service: Send + Sync + 'static {
    /// The answer to one message, as a message.
    fn call(&self, path: &str, message: &[u8]) -> impl Future<Output = Result<Vec<u8>, Refusal>> + Send;
}

/// A socket that an earlier run left is replaced; anything else that lies there is not ours.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match path.symlink_metadata() {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::other("something that is no socket lies there")),
        Err(_) => {}
    }
    UnixListener::bind(path)
}

/// Answers whoever connects, until told to stop.
pub(crate) async fn serve<S: Service>(listener: UnixListener, server: Arc<S>, stop: CancellationToken) {
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

async fn talk<S: Service>(stream: UnixStream, server: Arc<S>, stop: CancellationToken) {
    let service = service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(answer(&*server, request).await) }
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
        tracing::debug!(%error, "a connection broke off");
    }
}

async fn answer(server: &impl Service, request: Request<Incoming>) -> Answer {
    match call(server, request).await {
        Ok(message) => good(&message),
        Err(refusal) => refused(&refusal),
    }
}

async fn call(server: &impl Service, request: Request<Incoming>) -> Result<Vec<u8>, Refusal> {
    let path = request.uri().path().to_owned();
    let body = Limited::new(request.into_body(), MESSAGE_BYTES_MAX + FRAME_BYTES).collect().await;
    let body = body.map_err(|error| Refusal::exhausted(error.to_string()))?.to_bytes();
    server.call(&path, unframed(&body)?).await
}

fn good(message: &[u8]) -> Answer {
    let status = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(0))]);
    let body = Full::new(frame(message)).with_trailers(async move { Some(Ok(status)) });
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
    fn words_of_a_refusal() {
        assert_eq!(escaped("50 % of ä\n"), "50 %25 of %C3%A4%0A");
        let answer = refused(&Refusal::unknown("no".to_owned()));
        assert_eq!(
            (&answer.headers()["grpc-status"], &answer.headers()["grpc-message"]),
            (&HeaderValue::from(2), &HeaderValue::from_static("no"))
        );
    }
}
