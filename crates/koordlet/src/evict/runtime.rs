//! Container runtimes by their sockets: one request, "stop this container now".
//!
//! Runtimes of the Container Runtime Interface are asked over gRPC. Docker has an HTTP interface of its own.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use koord_linux::cgroup::{ContainerId, Runtime};
use prost::Message;

use crate::flags::RuntimeOptions;
use crate::grpc::client::{CallError, Channel, connect};

/// Versions of the interface, newest first.
const SERVICES: [&str; 2] = ["runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService"];

/// Why a container was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error(transparent)]
    Id(#[from] koord_linux::cgroup::ContainerIdError),
    #[error("no socket of {0} was found")]
    NoSocket(&'static str),
    #[error("the runtime did not answer: {0}")]
    Call(#[from] CallError),
    #[error("the runtime refused: {0}")]
    Refused(String),
}

/// How the interface wants a container to be stopped; without a timeout at once.
#[derive(Clone, PartialEq, prost::Message)]
struct StopContainerRequest {
    #[prost(string, tag = "1")]
    container_id: String,
}

impl StopError {
    /// Whether the runtime was not there to be asked, about other containers neither.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, StopError::NoSocket(_) | StopError::Call(_))
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

async fn stop_docker(socket: &Path, hash: &str) -> Result<(), StopError> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(connect(socket).await?).await.map_err(CallError::from)?;
    tokio::spawn(connection);
    let request = Request::post(format!("/containers/{hash}/stop?t=0")).header(http::header::HOST, "docker");
    let request =
        request.body(Full::<Bytes>::default()).map_err(|error| StopError::Refused(error.to_string()))?;
    let answer = sender.send_request(request).await.map_err(CallError::from)?;
    let status = answer.status();
    // 304 is a container that had stopped already.
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return Ok(());
    }
    let body = answer.into_body().collect().await.map_err(CallError::from)?.to_bytes();
    Err(StopError::Refused(format!("{status}: {}", String::from_utf8_lossy(&body).trim())))
}

async fn stop_cri(socket: &Path, hash: &str) -> Result<(), StopError> {
    let mut runtime = Channel::open(socket).await?;
    let message = StopContainerRequest { container_id: hash.to_owned() }.encode_to_vec();
    let mut refusal = String::new();
    for service in SERVICES {
        match runtime.call(&format!("/{service}/StopContainer"), &message).await {
            Ok(_) => return Ok(()),
            Err(CallError::Refused(refused)) => {
                refusal = refused.to_string();
                if !refused.is_unimplemented() {
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(StopError::Refused(refusal))
}
