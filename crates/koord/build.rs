//! Puts the commit into the binary, so that `koord --version` names it.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=KOORD_COMMIT");
    for path in ["HEAD", "logs/HEAD"] {
        if let Some(file) = git(&["rev-parse", "--git-path", path]) {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    // A source archive has no git; packagers give the commit by KOORD_COMMIT.
    let commit = std::env::var("KOORD_COMMIT")
        .ok()
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=KOORD_COMMIT={commit}");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
