//! Helm, built once from its published module into the cache, to install charts as users do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cache::{BuildLock, cache_dir, say};
use crate::shared::skip_or_panic;
use crate::{Error, go};

const VERSION: &str = "v3.19.4";
const MODULE: &str = "helm.sh/helm/v3";

/// The program `helm`, or `None` (said on stderr) where Go or network is missing.
///
/// # Panics
/// When it cannot be built, and when it would be skipped although `CI` is set.
pub fn helm() -> Option<PathBuf> {
    match cache_dir().and_then(|cache| build(&cache.join("helm").join(VERSION))) {
        Ok(path) => Some(path),
        Err(error) => skip_or_panic("Helm", &error),
    }
}

fn build(dir: &Path) -> Result<PathBuf, Error> {
    let output = dir.join("helm");
    if output.is_file() {
        return Ok(output);
    }
    let what = format!("Helm {VERSION}");
    let _lock = BuildLock::take(dir, &what)?;
    if output.is_file() {
        return Ok(output);
    }
    say(&format!("building {what}, once, into {}", dir.display()));
    let start = Instant::now();
    let source = dir.join("src");
    fs::create_dir_all(&source).map_err(Error::io("create", &source))?;
    let manifest = source.join("go.mod");
    let text = format!("module koord.local/helm\n\ngo {}\n\nrequire {MODULE} {VERSION}\n", go::GO_NEEDED);
    fs::write(&manifest, text).map_err(Error::io("write", &manifest))?;
    let package = format!("{MODULE}/cmd/helm");
    go::require(&what, &source, go::GO_NEEDED)?;
    go::fetch(&what, &source, "-mod=mod", &[&package])?;
    let flags = ["-mod=mod".to_string(), "-ldflags=-s -w".to_string()];
    go::build(&go::Build { what: &what, dir: &source, package: &package, flags: &flags, output: &output })?;
    say(&format!("{what} is ready, took {} s", start.elapsed().as_secs()));
    Ok(output)
}
