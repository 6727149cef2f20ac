//! How the runtime proxy learns of us: a file in its directory of hook servers.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::flags::HookServerOptions;

/// In the proxy's directory.
const FILE: &str = "koordlet.json";

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Registration<'r> {
    remote_endpoint: &'r Path,
    failure_policy: &'r str,
    runtime_hooks: &'r [&'static str],
}

/// Writes the file, whole or not at all: the proxy reads it as soon as it changes.
pub fn register(options: &HookServerOptions, stages: &[&'static str]) -> io::Result<PathBuf> {
    let registration = Registration {
        remote_endpoint: &options.host_socket,
        failure_policy: &options.failure_policy,
        runtime_hooks: stages,
    };
    let mut text = Vec::new();
    let tabs = serde_json::ser::PrettyFormatter::with_indent(b"\t");
    registration.serialize(&mut serde_json::Serializer::with_formatter(&mut text, tabs))?;
    let path = options.directory.join(FILE);
    // No name that the proxy would read.
    let draft = options.directory.join(".koordlet.draft");
    std::fs::write(&draft, text)?;
    std::fs::rename(&draft, &path)?;
    Ok(path)
}

/// Takes the file away. Whether something is left.
pub fn withdraw(options: &HookServerOptions) -> bool {
    match std::fs::remove_file(options.directory.join(FILE)) {
        Ok(()) => false,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_is_told_and_told_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let options = HookServerOptions {
            socket: "/host-var-run-koordlet/koordlet.sock".into(),
            host_socket: "/var/run/koordlet/koordlet.sock".into(),
            directory: dir.path().to_owned(),
            failure_policy: "Ignore".to_owned(),
            is_strict: false,
            disabled_stages: Vec::new(),
        };
        let path = register(&options, &["PreRunPodSandbox", "PreCreateContainer"]).unwrap();
        let want = "{\n\t\"remote-endpoint\": \"/var/run/koordlet/koordlet.sock\",\n\t\"failure-policy\": \"Ignore\",\n\t\
                    \"runtime-hooks\": [\n\t\t\"PreRunPodSandbox\",\n\t\t\"PreCreateContainer\"\n\t]\n}";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left there");
        assert!(!withdraw(&options) && !path.exists());
        assert!(!withdraw(&options), "twice is fine");
        let nowhere = HookServerOptions { directory: dir.path().join("none"), ..options };
        assert!(register(&nowhere, &[]).is_err());
    }
}
