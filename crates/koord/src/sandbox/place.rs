//! Where a sandbox lives on disk: its lock, its kubeconfig, its log.
//!
//! Whoever holds the lock is the sandbox of this folder, so whether one runs is never a guess and no
//! number of a dead process is mistaken for a live one.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Names another folder for all sandbox commands.
const DIR_VARIABLE: &str = "KOORD_SANDBOX_DIR";

/// A folder that can have one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    dir: PathBuf,
    /// What to add to a command so that it means this folder.
    flag: String,
}

/// What a running sandbox says of itself, once it is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) server: String,
    pub(crate) kubeconfig: PathBuf,
    /// Where its scheduler serves plain HTTP; None where it runs without one.
    #[serde(default)]
    pub(crate) scheduler: Option<String>,
    /// Where its manager serves metrics; None where it runs without one.
    #[serde(default)]
    pub(crate) manager: Option<String>,
    /// Where its manager answers the API server; None where nobody does.
    #[serde(default)]
    pub(crate) admission: Option<String>,
    /// Where koordlets of nodes that have a real one answer, by node.
    #[serde(default)]
    pub(crate) koordlets: BTreeMap<String, String>,
}

/// The folder is ours until this is dropped.
pub(super) struct Held {
    _lock: File,
}

impl Place {
    pub(crate) fn new(dir: Option<&Path>) -> Result<Place> {
        if let Some(dir) = dir {
            let dir = std::path::absolute(dir).with_context(|| format!("--dir {}", dir.display()))?;
            let flag = format!(" --dir {}", quoted(&dir));
            return Ok(Place { dir, flag });
        }
        let folder = |name: &str| env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        let dir = folder(DIR_VARIABLE)
            .or_else(|| folder("XDG_STATE_HOME").map(|state| state.join("koord/sandbox")))
            .or_else(|| folder("HOME").map(|home| home.join(".local/state/koord/sandbox")));
        let dir = dir.with_context(|| {
            format!("no folder for the sandbox: give --dir, or set {DIR_VARIABLE} or HOME")
        })?;
        Ok(Place { dir, flag: String::new() })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// `koord sandbox COMMAND`, as it is typed to reach this sandbox.
    pub(super) fn command(&self, command: &str) -> String {
        format!("koord sandbox {command}{}", self.flag)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The files of nodes with a real koordlet.
    pub(super) fn nodes(&self) -> PathBuf {
        self.dir.join("nodes")
    }

    fn state(&self) -> PathBuf {
        self.dir.join("running.json")
    }

    /// Takes the folder, or None when a sandbox has it.
    pub(super) fn hold(&self) -> Result<Option<Held>> {
        fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        // Keys are kept here.
        fs::set_permissions(&self.dir, Permissions::from_mode(0o700))
            .with_context(|| format!("cannot protect {}", self.dir.display()))?;
        let path = self.lock_path();
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {
                // What a killed sandbox left behind says nothing about the one to come.
                let _ = fs::remove_file(self.state());
                let _ = koord_sandbox::nodes::clear_hosts(&self.nodes());
                let _ = fs::remove_file(self.kubeconfig());
                Ok(Some(Held { _lock: lock }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => bail!("cannot lock {}: {error}", path.display()),
        }
    }

    fn lock_path(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// Whether a sandbox has the folder, ready or not.
    pub(super) fn is_held(&self) -> bool {
        let Ok(lock) = File::open(self.lock_path()) else { return false };
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// The sandbox that runs here and is ready.
    pub(crate) fn running(&self) -> Option<Running> {
        let text = fs::read(self.state()).ok().filter(|_| self.is_held())?;
        serde_json::from_slice(&text).ok()
    }

    /// As `running`, or an error that says how to get one.
    pub(super) fn must_run(&self) -> Result<Running> {
        match self.running() {
            Some(running) => Ok(running),
            None if self.is_held() => {
                bail!("the sandbox in {} is still starting; try again in a moment", self.dir.display())
            }
            None => {
                bail!("no sandbox runs in {}; start one with `{}`", self.dir.display(), self.command("up"))
            }
        }
    }

    /// Tells everyone that the sandbox is ready.
    pub(super) fn announce(&self, running: &Running) -> Result<()> {
        let text = serde_json::to_vec_pretty(running)?;
        write_private(&self.state(), &text)
    }

    /// Takes back what `announce` said, and the kubeconfigs that lead nowhere now.
    pub(super) fn withdraw(&self, kubeconfigs: &[PathBuf], content: &str) {
        let _ = fs::remove_file(self.state());
        for path in kubeconfigs {
            // Somebody else's by now? Then it is not ours to remove.
            if fs::read_to_string(path).is_ok_and(|text| text == content) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Writes a kubeconfig of ours, never over one that is not.
pub(super) fn write_kubeconfig(path: &Path, content: &str) -> Result<()> {
    if fs::read_to_string(path)
        .is_ok_and(|text| !text.trim().is_empty() && !text.contains("name: koord-sandbox"))
    {
        bail!("--kubeconfig {}: exists and is not of a sandbox; name a new file", path.display());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    write_private(path, content.as_bytes())
}

/// Replaces a file at once, readable by its owner only.
pub(super) fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(content)?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// A path as a shell takes it.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_sandbox() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(Some(dir.path())).unwrap();
        assert!(place.running().is_none() && !place.is_held());
        let held = place.hold().unwrap().unwrap();
        assert!(place.hold().unwrap().is_none() && place.is_held());
        assert!(place.must_run().unwrap_err().to_string().contains("still starting"));
        let running = Running {
            pid: 1,
            server: "s".into(),
            kubeconfig: place.kubeconfig(),
            scheduler: None,
            manager: None,
            admission: None,
            koordlets: BTreeMap::new(),
        };
        place.announce(&running).unwrap();
        assert_eq!(place.running().unwrap().server, "s");
        drop(held);
        // What a killed sandbox leaves behind is not mistaken for a live one.
        assert!(place.running().is_none());
        let error = place.must_run().unwrap_err().to_string();
        assert!(error.contains("start one with `koord sandbox up --dir "), "{error}");
    }

    #[test]
    fn foreign_kubeconfigs_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/config");
        write_kubeconfig(&path, "- name: koord-sandbox\n").unwrap();
        write_kubeconfig(&path, "- name: koord-sandbox\n# again\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "clusters: production\n").unwrap();
        let error = write_kubeconfig(&path, "- name: koord-sandbox\n").unwrap_err().to_string();
        assert!(error.contains("is not of a sandbox"), "{error}");
        let place = Place::new(Some(dir.path())).unwrap();
        place.withdraw(std::slice::from_ref(&path), "- name: koord-sandbox\n");
        assert!(path.exists());
    }

    #[test]
    fn paths_are_quoted_for_shells() {
        assert_eq!(quoted(Path::new("/a/b-c")), "/a/b-c");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
