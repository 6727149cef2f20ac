//! Ids of containers as a pod's status tells them: `containerd://4f2a…`.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runtime {
    Docker,
    Containerd,
    Pouch,
    Crio,
}

impl Runtime {
    pub const ALL: [Runtime; 4] = [Runtime::Docker, Runtime::Containerd, Runtime::Pouch, Runtime::Crio];

    /// As written before `://`.
    pub fn as_str(self) -> &'static str {
        match self {
            Runtime::Docker => "docker",
            Runtime::Containerd => "containerd",
            Runtime::Pouch => "pouch",
            Runtime::Crio => "cri-o",
        }
    }

    /// What systemd's scopes of this runtime begin with.
    pub fn scope_prefix(self) -> &'static str {
        match self {
            Runtime::Docker => "docker-",
            Runtime::Containerd => "cri-containerd-",
            Runtime::Pouch => "pouch-",
            Runtime::Crio => "crio-",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerId {
    pub runtime: Runtime,
    pub hash: String,
}

/// Upstream's texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerIdError {
    #[error("parse container id {0} failed")]
    NoProtocol(String),
    #[error("unknown container protocol {0}")]
    UnknownProtocol(String),
}

impl FromStr for ContainerId {
    type Err = ContainerIdError;

    fn from_str(id: &str) -> Result<ContainerId, ContainerIdError> {
        let mut parts = id.split("://");
        let (Some(runtime), Some(hash)) = (parts.next(), parts.next()) else {
            return Err(ContainerIdError::NoProtocol(id.to_owned()));
        };
        let runtime = Runtime::ALL.into_iter().find(|known| known.as_str() == runtime);
        let runtime = runtime.ok_or_else(|| ContainerIdError::UnknownProtocol(id.to_owned()))?;
        Ok(ContainerId { runtime, hash: hash.to_owned() })
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.runtime.as_str(), self.hash)
    }
}
