//! Certificates in a directory, replaced all at once. Spec: manager 14.2.
//!
//! As the kubelet does with Secrets: files are links into `..data`, which is itself a link to a directory with the time
//! in its name. Renaming a new link over it changes all files in one step, so that nobody reads half of a pair.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use jiff::Timestamp;

use super::certificates::Artifacts;

const DATA: &str = "..data";
const DATA_NEXT: &str = "..data_tmp";

/// What the directory holds; missing files are empty.
pub fn read(dir: &Path) -> Artifacts {
    Artifacts::read(|name| fs::read(dir.join(name)).ok())
}

/// Makes the directory hold these. Says whether it had to be changed.
pub fn write(dir: &Path, artifacts: &Artifacts, now: Timestamp) -> io::Result<bool> {
    let files = artifacts.files();
    let is_there =
        |(name, text): &(&str, &str)| fs::read(dir.join(name)).is_ok_and(|found| found == text.as_bytes());
    if files.iter().all(is_there) {
        return Ok(false);
    }
    fs::create_dir_all(dir)?;
    let (version, path) = new_version(dir, now)?;
    for (name, text) in files {
        fs::write(path.join(name), text)?;
    }
    remove(&dir.join(DATA_NEXT))?;
    symlink(&version, dir.join(DATA_NEXT))?;
    let old = fs::read_link(dir.join(DATA)).ok();
    if old.is_none() {
        remove(&dir.join(DATA))?;
    }
    fs::rename(dir.join(DATA_NEXT), dir.join(DATA))?;
    for (name, _) in files {
        link(dir, name)?;
    }
    if let Some(old) = old.filter(|old| old.as_os_str() != version.as_str()) {
        remove(&dir.join(old))?;
    }
    Ok(true)
}

/// A directory of its own for this content, readable by us alone.
fn new_version(dir: &Path, now: Timestamp) -> io::Result<(String, std::path::PathBuf)> {
    let stamp = now.strftime("%Y_%m_%d_%H_%M_%S").to_string();
    let version = (0..1000)
        .map(|count| format!("..{stamp}.{:09}.{count}", now.subsec_nanosecond().unsigned_abs()))
        .find(|version| !dir.join(version).exists())
        .ok_or_else(|| io::Error::new(io::ErrorKind::AlreadyExists, "no free name for a new version"))?;
    let path = dir.join(&version);
    fs::create_dir(&path)?;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Ok((version, path))
}

/// A file that users see; one that is no link is in the way.
fn link(dir: &Path, name: &str) -> io::Result<()> {
    let (path, target) = (dir.join(name), Path::new(DATA).join(name));
    if fs::read_link(&path).is_ok_and(|found| found == target) {
        return Ok(());
    }
    remove(&path)?;
    symlink(target, path)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifacts(text: &str) -> Artifacts {
        Artifacts {
            ca_key: format!("{text} ca key"),
            ca_cert: "ca".into(),
            key: "k".into(),
            cert: text.into(),
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn all_files_change_at_once() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("certs");
        let now: Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
        assert_eq!(read(&dir), Artifacts::default());
        assert!(write(&dir, &artifacts("one"), now).unwrap());
        assert_eq!(read(&dir), artifacts("one"));
        assert_eq!(fs::read_to_string(dir.join("tls.crt")).unwrap(), "one");
        assert!(!write(&dir, &artifacts("one"), now).unwrap(), "nothing to do");
        // The same instant once more, and something else in the way of a file.
        fs::remove_file(dir.join("tls.key")).unwrap();
        fs::write(dir.join("tls.key"), "plain").unwrap();
        assert!(write(&dir, &artifacts("two"), now).unwrap());
        assert_eq!(read(&dir), artifacts("two"));
        let seen = names(&dir);
        assert_eq!(seen.len(), 8, "six files, the link and one version: {seen:?}");
        assert!(fs::symlink_metadata(dir.join("tls.key")).unwrap().is_symlink());
    }

    #[test]
    fn plain_files_of_an_earlier_life_go() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        let now: Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
        for (name, text) in artifacts("old").files() {
            fs::write(dir.join(name), text).unwrap();
        }
        fs::create_dir(dir.join(DATA)).unwrap();
        fs::write(dir.join(DATA).join("x"), "").unwrap();
        fs::write(dir.join(DATA_NEXT), "").unwrap();
        assert_eq!(read(dir), artifacts("old"));
        assert!(write(dir, &artifacts("new"), now).unwrap());
        assert_eq!(read(dir), artifacts("new"));
    }
}
