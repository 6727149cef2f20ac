//! `cargo xtask k8s` as the README shows it: up, status, kubectl, up again, down.

use std::path::Path;
use std::process::{Command, Output};

fn xtask(dir: &Path, words: &[&str]) -> Output {
    let (name, rest) = words.split_first().expect("a subcommand");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Command::new(cargo)
        .args(["run", "--quiet", "--package", "xtask", "--", "k8s", name, "--dir"])
        .arg(dir)
        .args(rest)
        .output()
        .expect("cargo starts")
}

fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_control_plane_comes_is_found_again_and_goes() {
    // Builds what is missing, or says why that cannot be.
    if koord_testkit::shared().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");

    let down = xtask(&dir, &["status"]);
    assert!(!down.status.success());
    assert!(both(&down).contains("no control plane runs"), "{}", both(&down));

    let up = xtask(&dir, &["up"]);
    assert!(up.status.success(), "{}", both(&up));
    let line = String::from_utf8_lossy(&up.stdout).into_owned();
    assert!(line.starts_with("export KUBECONFIG=") && line.lines().count() == 1, "{line}");

    let status = xtask(&dir, &["status"]);
    assert!(status.status.success() && both(&status).contains(": ready"), "{}", both(&status));

    let kinds = xtask(&dir, &["kubectl", "get", "crds", "-o", "name"]);
    assert_eq!(both(&kinds).lines().count(), 13, "every kind of Koord is installed: {}", both(&kinds));

    let again = xtask(&dir, &["up"]);
    assert!(again.status.success() && both(&again).contains("already running"), "{}", both(&again));

    let stopped = xtask(&dir, &["down"]);
    assert!(stopped.status.success(), "{}", both(&stopped));
    assert!(!xtask(&dir, &["status"]).status.success());
}
