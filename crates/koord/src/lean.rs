//! A role that has a program of its own beside `koord`: smaller, and so cheaper where it runs on every node.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// For the C library's allocator: two threads of ours need no more, and what a long answer took goes back at once.
const ALLOCATOR: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "65536")];

/// Becomes the program of this name beside ours. Returns where there is none, or none that runs.
pub(crate) fn become_program(name: &str, words: &[OsString]) {
    let Some(program) = std::env::current_exe().ok().and_then(|own| beside(&own, name)) else { return };
    let mut command = Command::new(&program);
    command.args(words);
    for (variable, value) in ALLOCATOR {
        if std::env::var_os(variable).is_none() {
            command.env(variable, value);
        }
    }
    // It returns only when it failed; then we play the role ourselves.
    let _ = command.exec();
}

/// The other program of this name in the same directory. A link to ourselves is none.
fn beside(own: &Path, name: &str) -> Option<PathBuf> {
    let own = own.canonicalize().ok()?;
    let other = own.parent()?.join(name).canonicalize().ok()?;
    (other != own && other.is_file()).then_some(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_ourselves_is_no_other_program() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("koord");
        std::fs::write(&own, "").unwrap();
        assert_eq!(beside(&own, "koordlet"), None);
        let other = dir.path().join("koordlet");
        std::os::unix::fs::symlink(&own, &other).unwrap();
        assert_eq!(beside(&own, "koordlet"), None);
        std::fs::remove_file(&other).unwrap();
        std::fs::write(&other, "").unwrap();
        assert_eq!(beside(&own, "koordlet"), Some(other.canonicalize().unwrap()));
        assert_eq!(beside(&other, "koordlet"), None);
    }
}
