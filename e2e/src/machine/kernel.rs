//! Debian's kernel for virtual machines, out of its package and into the user's cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use koord_testkit::cache_dir;

/// Depends on the newest kernel of its kind; that one has the files. Small, and complete as far as groups go.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// Modules that tests load, each after those that it needs: a disk in memory, a network device of no wire, traffic
/// control, and what sets of addresses need.
pub const MODULES: &[&str] = &[
    "brd",
    "dummy",
    "sch_htb",
    "cls_cgroup",
    "cls_u32",
    "nfnetlink",
    "ip_set",
    "ip_set_hash_ip",
    "x_tables",
    "xt_set",
    "xt_CLASSIFY",
    "libcrc32c",
    "nf_tables",
    "nft_compat",
];

/// The kernel's file and the directory of its modules: the one in the cache, fetched when it is not there yet; or the
/// one named by `KOORD_KERNEL`, which comes without modules.
pub(super) fn find() -> Result<(PathBuf, Option<PathBuf>)> {
    if let Some(named) = std::env::var_os("KOORD_KERNEL").filter(|value| !value.is_empty()) {
        return Ok((named.into(), None));
    }
    let dir = cache_dir()?.join("machine");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    // Of several test processes one fetches; the lock ends with this function.
    let lock = File::options().create(true).truncate(false).write(true).open(dir.join("lock"))?;
    lock.lock()?;
    // Kernel and modules are of one package, so they come and go together.
    let files = dir.join("kernel");
    if !MODULES.iter().all(|name| files.join(format!("{name}.ko")).exists()) {
        fetch(&dir, &files).with_context(|| format!("cannot get a kernel from the package {PACKAGE}"))?;
    }
    Ok((files.join("vmlinuz"), Some(files)))
}

fn fetch(dir: &Path, place: &Path) -> Result<()> {
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
    let chosen = folder.path().join("chosen");
    fs::create_dir(&chosen)?;
    fs::rename(find_in(&files.join("boot"), |name| name.starts_with("vmlinuz"))?, chosen.join("vmlinuz"))?;
    gather_modules(&files.join("lib/modules"), &chosen)?;
    let missing: Vec<&&str> =
        MODULES.iter().filter(|name| !chosen.join(format!("{name}.ko")).exists()).collect();
    ensure!(missing.is_empty(), "it has no modules {missing:?}");
    // A rename, so that nobody finds half a kernel.
    if place.exists() {
        fs::remove_dir_all(place)?;
    }
    Ok(fs::rename(chosen, place)?)
}

/// Moves the modules that tests load out of the package's tree.
fn gather_modules(dir: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            gather_modules(&path, to)?;
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && name.strip_suffix(".ko").is_some_and(|name| MODULES.contains(&name))
        {
            fs::rename(&path, to.join(name))?;
        }
    }
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
