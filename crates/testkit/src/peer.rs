//! Go programs that tests talk to, built from `e2e/peers` into the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use crate::cache::{BuildLock, cache_dir, say};
use crate::shared::skip_or_panic;
use crate::{Error, go};

/// How many states of the peers' sources stay in the cache, for checkouts side by side.
const KEPT_MAX: usize = 8;

/// The program `e2e/peers/cmd/<name>`, or `None` (said on stderr) where Go or network is missing.
///
/// # Panics
/// When it cannot be built, and when it would be skipped although `CI` is set.
pub fn peer(name: &str) -> Option<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/peers");
    match cache_dir().and_then(|cache| build(&module, name, &cache.join("peers"))) {
        Ok(path) => Some(path),
        Err(error) => skip_or_panic(&format!("the Go peer {name:?}"), &error),
    }
}

fn build(module: &Path, name: &str, peers: &Path) -> Result<PathBuf, Error> {
    let module = module.canonicalize().map_err(Error::io("find", module))?;
    let programs = list(&module.join("cmd"));
    if !programs.iter().any(|program| program == name) {
        let found = if programs.is_empty() { "none".to_string() } else { programs.join(", ") };
        return Err(Error::NoPeer { name: name.to_string(), dir: module.join("cmd"), found });
    }
    let dir = peers.join(content_key(&module)?);
    let output = dir.join(name);
    if output.is_file() {
        return Ok(output);
    }
    let what = format!("the Go peer {name:?}");
    let _lock = BuildLock::take(&dir, &what)?;
    if output.is_file() {
        return Ok(output);
    }
    say(&format!("building {what} from {}", module.display()));
    let start = Instant::now();
    let package = format!("./cmd/{name}");
    go::require(&what, &module, go::GO_NEEDED)?;
    go::fetch(&what, &module, "-mod=readonly", &[&package])?;
    let flags = ["-mod=readonly".to_string(), "-ldflags=-s -w".to_string()];
    go::build(&go::Build { what: &what, dir: &module, package: &package, flags: &flags, output: &output })?;
    say(&format!("{what} is ready, took {} s", start.elapsed().as_secs()));
    forget_old(peers);
    Ok(output)
}

fn list(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// A name for exactly these sources: any changed, added or renamed file gives another one.
fn content_key(module: &Path) -> Result<String, Error> {
    let mut files = Vec::new();
    let mut dirs = vec![module.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(Error::io("read", &dir))? {
            let entry = entry.map_err(Error::io("read", &dir))?;
            let kind = entry.file_type().map_err(Error::io("read", entry.path()))?;
            if kind.is_dir() {
                dirs.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let mut hash = Fnv::default();
    for file in files {
        let content = fs::read(&file).map_err(Error::io("read", &file))?;
        let name = file.strip_prefix(module).unwrap_or(&file);
        // Lengths in between, so that no two lists of files give the same bytes.
        for part in [name.as_os_str().as_encoded_bytes(), &content] {
            hash.write(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.write(part);
        }
    }
    Ok(format!("{:032x}", hash.0))
}

/// FNV-1a, 128 bits: a name for content, the same on every machine. Not a seal against forgery.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

/// Removes all but the newest builds. What cannot be removed now is removed another time.
fn forget_old(peers: &Path) {
    let entries = fs::read_dir(peers).into_iter().flatten().flatten();
    let mut dirs: Vec<(SystemTime, PathBuf)> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    dirs.sort();
    for (_, dir) in dirs.iter().rev().skip(KEPT_MAX) {
        let _ = fs::remove_dir_all(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, content: &str) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn the_key_follows_the_content() {
        assert_eq!(Fnv::default().0, 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        let mut hash = Fnv::default();
        hash.write(b"foobar"); // Test vector of the FNV authors.
        assert_eq!(hash.0, 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);

        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&one, &two] {
            write(dir.path(), "go.mod", "module x\n");
            write(dir.path(), "cmd/a/main.go", "package main\n");
        }
        let key = content_key(one.path()).unwrap();
        assert_eq!(key, content_key(two.path()).unwrap(), "the place does not matter");
        write(two.path(), "cmd/a/main.go", "package main // changed\n");
        let changed = content_key(two.path()).unwrap();
        assert_ne!(key, changed);
        write(two.path(), "cmd/a/other.go", "");
        assert_ne!(changed, content_key(two.path()).unwrap(), "an empty new file counts");
    }

    #[test]
    fn an_unknown_peer_is_an_error_that_names_the_known_ones() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "cmd/leader/main.go", "");
        write(dir.path(), "cmd/oracle/main.go", "");
        let error = build(dir.path(), "orcale", dir.path()).unwrap_err();
        assert!(error.to_string().ends_with("cmd; found: leader, oracle"), "{error}");
        assert!(!error.is_unavailable());
    }

    #[test]
    fn a_peer_is_built_once_per_content() {
        let (module, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = |text: &str| format!("package main\n\nfunc main() {{ print({text:?}) }}\n");
        write(module.path(), "go.mod", "module koord.local/demo\n\ngo 1.24\n");
        write(module.path(), "cmd/hello/main.go", &source("one"));
        let says = |path: &Path| {
            let output = std::process::Command::new(path).output().unwrap();
            String::from_utf8(output.stderr).unwrap()
        };
        let one = match build(module.path(), "hello", cache.path()) {
            Err(error) if error.is_unavailable() => return skip_or_panic("Go", &error).unwrap_or(()),
            result => result.unwrap(),
        };
        assert_eq!(says(&one), "one");
        assert_eq!(build(module.path(), "hello", cache.path()).unwrap(), one);

        write(module.path(), "cmd/hello/main.go", &source("two"));
        let two = build(module.path(), "hello", cache.path()).unwrap();
        assert_ne!(one, two);
        assert_eq!(says(&two), "two");

        write(module.path(), "cmd/hello/main.go", "package main\n\nfunc main() { undefined() }\n");
        let error = build(module.path(), "hello", cache.path()).unwrap_err();
        assert!(matches!(error, Error::Build { .. }), "{error}");
        assert!(error.to_string().contains("undefined: undefined"), "{error}");
        assert_eq!(list(two.parent().unwrap()), ["hello", "lock"], "no scratch folder stays");
    }

    #[test]
    fn old_builds_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..KEPT_MAX + 3 {
            write(dir.path(), &format!("{n:02}/oracle"), "");
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(n).unwrap());
            fs::File::open(dir.path().join(format!("{n:02}"))).unwrap().set_modified(time).unwrap();
        }
        forget_old(dir.path());
        let left = list(dir.path());
        assert_eq!(left.len(), KEPT_MAX);
        assert_eq!(left[0], "03");
    }
}
