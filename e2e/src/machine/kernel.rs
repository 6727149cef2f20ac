//! Debian's kernel for virtual machines, out of its package and into the user's cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use koord_testkit::cache_dir;

/// Depends on the newest kernel of its kind; that one has the files. Small, and complete as far as groups go.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// The kernel's file: the one named by `KOORD_KERNEL`, or the one in the cache, fetched when it is not there yet.
pub(super) fn find() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("KOORD_KERNEL").filter(|value| !value.is_empty()) {
        return Ok(named.into());
    }
    let dir = cache_dir()?.join("machine");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    // Of several test processes one fetches; the lock ends with this function.
    let lock = File::options().create(true).truncate(false).write(true).open(dir.join("lock"))?;
    lock.lock()?;
    let kernel = dir.join("vmlinuz");
    if !kernel.exists() {
        fetch(&dir, &kernel).with_context(|| format!("cannot get a kernel from the package {PACKAGE}"))?;
    }
    Ok(kernel)
}

fn fetch(dir: &Path, kernel: &Path) -> Result<()> {
    let folder = tempfile::tempdir_in(dir)?;
    let package = match dependency() {
        Ok(package) => package,
        Err(_) => {
            // The lists of a fresh machine are empty.
            run(Command::new("apt-get").args(["update", "-qq"]))?;
            dependency()?
        }
    };
    run(Command::new("apt-get").args(["download", "-qq", &package]).current_dir(folder.path()))?;
    let archive = find_in(folder.path(), |name| name.ends_with(".deb"))?;
    let files = folder.path().join("files");
    run(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&files))?;
    // A rename, so that nobody finds half a kernel.
    fs::rename(find_in(&files.join("boot"), |name| name.starts_with("vmlinuz"))?, kernel)?;
    Ok(())
}

fn dependency() -> Result<String> {
    let output = Command::new("apt-cache").args(["depends", PACKAGE]).output()?;
    let lines = String::from_utf8(output.stdout)?;
    let mut names = lines.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.next().map(str::to_owned).context("no such package is known")
}

/// The file of a directory that has such a name.
fn find_in(dir: &Path, is_it: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(&is_it) {
            return Ok(path);
        }
    }
    bail!("{} has no such file", dir.display())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Where a program is.
pub(super) fn which(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is missing"))
}
