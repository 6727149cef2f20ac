//! Container runtimes by their sockets: one request, "stop this container now".
//!
//! Runtimes of the Container Runtime Interface are asked over gRPC, of which one unary call with one string is all that
//! is needed: a frame of five bytes before a message of one field. Docker has an HTTP interface of its own.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use koord_linux::cgroup::{ContainerId, Runtime};
use tokio::net::UnixStream;

use crate::flags::RuntimeOptions;

/// Versions of the interface, newest first.
const SERVICES: [&str; 2] = ["runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService"];
/// gRPC's code for a service that is not there.
const UNIMPLEMENTED: &str = "12";

/// Why a container was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error(transparent)]
    Id(#[from] koord_linux::cgroup::ContainerIdError),
    #[error("no socket of {0} was found")]
    NoSocket(&'static str),
    #[error("cannot reach {path}: {source}")]
    Connect { path: PathBuf, source: std::io::Error },
    #[error("the runtime's answer broke off: {0}")]
    Transport(#[from] hyper::Error),
    #[error("the runtime refused: {0}")]
    Refused(String),
}

impl StopError {
    /// Whether the runtime was not there to be asked, about other containers neither.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, StopError::NoSocket(_) | StopError::Connect { .. } | StopError::Transport(_))
    }
}

/// Where runtimes may be found.
#[derive(Clone, Debug)]
pub struct Runtimes {
    var_run: PathBuf,
    options: RuntimeOptions,
}

impl Runtimes {
    pub fn new(var_run: &Path, options: &RuntimeOptions) -> Runtimes {
        Runtimes { var_run: var_run.to_owned(), options: options.clone() }
    }

    /// Stops a container without grace.
    pub async fn stop(&self, id: &str) -> Result<(), StopError> {
        let ContainerId { runtime, hash } = id.parse()?;
        let socket = self.socket(runtime).ok_or(StopError::NoSocket(runtime.as_str()))?;
        match runtime {
            Runtime::Docker => stop_docker(&socket, &hash).await,
            Runtime::Containerd | Runtime::Crio | Runtime::Pouch => stop_cri(&socket, &hash).await,
        }
    }

    /// The first socket that exists: well-known places, then the flag's.
    fn socket(&self, runtime: Runtime) -> Option<PathBuf> {
        let (known, given): (&[&str], &str) = match runtime {
            Runtime::Containerd => {
                (&["containerd/containerd.sock", "containerd.sock"], &self.options.containerd)
            }
            Runtime::Docker => (&["docker.sock"], &self.options.docker),
            Runtime::Crio => (&["crio/crio.sock", "crio.sock"], ""),
            Runtime::Pouch => (&["pouchcri.sock"], &self.options.pouch),
        };
        let given = given.strip_prefix("unix://").unwrap_or(given);
        let given = (!given.is_empty()).then(|| PathBuf::from(given));
        known.iter().map(|path| self.var_run.join(path)).chain(given).find(|path| path.exists())
    }
}

async fn connect(socket: &Path) -> Result<TokioIo<UnixStream>, StopError> {
    let stream = UnixStream::connect(socket).await;
    stream.map(TokioIo::new).map_err(|source| StopError::Connect { path: socket.to_owned(), source })
}

async fn stop_docker(socket: &Path, hash: &str) -> Result<(), StopError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(connect(socket).await?).await?;
    tokio::spawn(connection);
    let request = Request::post(format!("/containers/{hash}/stop?t=0")).header(http::header::HOST, "docker");
    let request =
        request.body(Full::<Bytes>::default()).map_err(|error| StopError::Refused(error.to_string()))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    // 304 is a container that had stopped already.
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return Ok(());
    }
    let body = answer.into_body().collect().await?.to_bytes();
    Err(StopError::Refused(format!("{status}: {}", String::from_utf8_lossy(&body).trim())))
}

async fn stop_cri(socket: &Path, hash: &str) -> Result<(), StopError> {
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), connect(socket).await?).await?;
    tokio::spawn(connection);
    let mut refusal = String::new();
    for service in SERVICES {
        let request = Request::post(format!("http://localhost/{service}/StopContainer"))
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .header(http::header::TE, "trailers")
            .body(Full::new(Bytes::from(stop_frame(hash))))
            .map_err(|error| StopError::Refused(error.to_string()))?;
        let answer = sender.send_request(request).await?;
        let (parts, body) = answer.into_parts();
        let trailers = body.collect().await?.trailers().cloned().unwrap_or_default();
        let told = |name: &str| {
            let value = trailers.get(name).or_else(|| parts.headers.get(name));
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let status = told("grpc-status");
        if status == "0" {
            return Ok(());
        }
        refusal = format!("code {status}: {}", told("grpc-message"));
        if status != UNIMPLEMENTED {
            break;
        }
    }
    Err(StopError::Refused(refusal))
}

/// `StopContainerRequest{container_id}` in a frame; the timeout, 0, is left out as protobuf wants it.
fn stop_frame(hash: &str) -> Vec<u8> {
    let mut message = vec![0x0a];
    let mut rest = hash.len();
    // A varint: seven bits at a time, the highest bit says that more follow.
    loop {
        let low = u8::try_from(rest & 0x7f).unwrap_or(0);
        rest >>= 7;
        message.push(if rest > 0 { low | 0x80 } else { low });
        if rest == 0 {
            break;
        }
    }
    message.extend_from_slice(hash.as_bytes());
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.append(&mut message);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        assert_eq!(stop_frame("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = stop_frame(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        assert_eq!(long.len(), 5 + 3 + 300);
    }
}
