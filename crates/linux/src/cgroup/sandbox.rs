//! Finding a pod's sandbox container, which no status tells: the one directory that nobody else owns.

use crate::cgroup::{Cgroups, ContainerId, ContainerIdError, Dir, Driver, Runtime};
use crate::error::{Error, Malformed};

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(transparent)]
    Id(#[from] ContainerIdError),
    #[error(transparent)]
    Name(#[from] Malformed),
    /// Upstream's text.
    #[error("candidates of sandbox id is {count}, some container is not ready, detail [{names}]")]
    Candidates { count: usize, names: String },
    #[error(transparent)]
    List(#[from] Error),
}

/// The sandbox of the pod at `pod`. `known` are the ids of its init and regular containers, `regular` how many of
/// them are regular. None while no regular container has a status.
pub fn find(
    cgroups: &Cgroups,
    pod: &Dir,
    known: &[&str],
    regular: usize,
) -> Result<Option<ContainerId>, SandboxError> {
    if regular == 0 {
        return Ok(None);
    }
    let known: Vec<ContainerId> =
        known.iter().map(|id| id.parse::<ContainerId>()).collect::<Result<_, _>>()?;
    let names = cgroups.children(pod).map_err(|source| Error::read(&cgroups.listing(pod), source))?;
    pick(cgroups.driver(), &names, &known)
}

/// The pure half: which of the directories is the sandbox's.
fn pick(
    driver: Driver,
    names: &[String],
    known: &[ContainerId],
) -> Result<Option<ContainerId>, SandboxError> {
    let Some(runtime) = known.first().map(|id| id.runtime) else { return Ok(None) };
    let taken: Vec<String> = known.iter().map(|id| driver.container_name(id)).collect();
    // CRI-O keeps a scope for its monitor beside the sandbox, which has no `.scope`.
    let is_monitor = |name: &str| name.starts_with(Runtime::Crio.scope_prefix()) && name.ends_with(".scope");
    let left: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !taken.iter().any(|own| own == name) && !is_monitor(name))
        .collect();
    let [name] = left[..] else {
        return Err(SandboxError::Candidates { count: left.len(), names: left.join(" ") });
    };
    let hash = driver.parse_container_name(name)?.to_owned();
    Ok(Some(ContainerId { runtime, hash }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(driver: Driver, names: &[&str], known: &[&str]) -> Result<Option<String>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let known: Vec<ContainerId> = known.iter().map(|id| id.parse().unwrap()).collect();
        pick(driver, &names, &known).map(|id| id.map(|id| id.to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn worked_examples() {
        let two = "candidates of sandbox id is 2, some container is not ready, detail \
                   [cri-containerd-8.scope cri-containerd-9.scope]";
        let none = "candidates of sandbox id is 0, some container is not ready, detail []";
        let systemd = Driver::Systemd;
        // koordlet-observe#13.3.C11
        let found =
            check(systemd, &["cri-containerd-1.scope", "cri-containerd-9.scope"], &["containerd://1"]);
        assert_eq!(found, Ok(Some("containerd://9".into())));
        // koordlet-observe#13.3.C12
        assert_eq!(check(systemd, &["cri-containerd-1.scope"], &["containerd://1"]), Err(none.into()));
        let both = ["cri-containerd-1.scope", "cri-containerd-8.scope", "cri-containerd-9.scope"];
        assert_eq!(check(systemd, &both, &["containerd://1"]), Err(two.into()));
        // koordlet-observe#13.3.C13
        let crio = ["crio-1.scope", "crio-conmon-1.scope", "crio-9"];
        assert_eq!(check(systemd, &crio, &["cri-o://1"]), Ok(Some("cri-o://9".into())));
        assert_eq!(check(Driver::Cgroupfs, &["1", "9"], &["docker://1"]), Ok(Some("docker://9".into())));
        assert_eq!(check(systemd, &["x"], &[]), Ok(None));
    }
}
