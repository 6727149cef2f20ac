//! A role that has a program of its own beside `koord`: smaller, and so cheaper where it runs on every node.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// For the C library's allocator: two threads of ours need no more, and what a long answer took goes back at once.
const ALLOCATOR: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "65536")];

/// Becomes the program of this name beside ours. Returns where there is none that runs, or none of our own build.
pub(crate) fn become_program(name: &str, words: &[OsString]) {
    let Some(program) = std::env::current_exe().ok().and_then(|own| beside(&own, name)) else { return };
    let own_version = format!("{name} {}", crate::command::VERSION);
    let its_version = version(&program);
    if its_version != own_version {
        // Before any logging is set up. A failed write to stderr has nowhere to be reported.
        let _ = writeln!(
            std::io::stderr(),
            "{} is not used: it says {its_version:?}, this is {own_version:?}; koord plays {name} itself",
            program.display()
        );
        return;
    }
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

/// What a program says of its version; nothing where it does not.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
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
