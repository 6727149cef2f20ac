//! One control plane for all tests of a process, and the rule for skipping without one.

use std::sync::OnceLock;

use crate::cache::say;
use crate::{ControlPlane, Error};

/// The control plane (etcd, kube-apiserver, kube-controller-manager) that all tests of this
/// process share; started by the first who asks. `None`, with the reason on stderr, where Go or
/// network is missing. Tests keep apart by using namespaces of their own.
///
/// # Panics
/// When it does not start, and when it would be skipped although `CI` is set.
pub fn shared() -> Option<&'static ControlPlane> {
    // Never dropped: the control plane's watchdog takes it down when this process is gone.
    static SHARED: OnceLock<Result<ControlPlane, Error>> = OnceLock::new();
    match SHARED.get_or_init(|| ControlPlane::builder()?.start()) {
        Ok(cluster) => Some(cluster),
        Err(error) => skip_or_panic("a real Kubernetes control plane", error),
    }
}

/// Skipping is for machines that lack something, and never for the one that guards the main line.
pub(crate) fn skip_or_panic<T>(what: &str, error: &Error) -> Option<T> {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    match verdict(error, in_ci) {
        Verdict::Skip => say(&format!("SKIPPED: this test needs {what}: {}", error.chain())),
        Verdict::Panic(why) => panic!("this test needs {what}{why}: {}", error.chain()),
    }
    None
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Skip,
    Panic(&'static str),
}

fn verdict(error: &Error, in_ci: bool) -> Verdict {
    match (error.is_unavailable(), in_ci) {
        (true, false) => Verdict::Skip,
        (true, true) => Verdict::Panic(", and CI is set, where a skip is a failure"),
        (false, _) => Verdict::Panic(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lacking_machine_skips_and_never_in_ci() {
        let missing = Error::GoMissing { what: "Kubernetes".to_string() };
        let broken = Error::NoPort { tries: 5 };
        assert_eq!(verdict(&missing, false), Verdict::Skip);
        assert!(matches!(verdict(&missing, true), Verdict::Panic(why) if why.contains("CI is set")));
        assert_eq!(verdict(&broken, false), Verdict::Panic(""));
        assert_eq!(verdict(&broken, true), Verdict::Panic(""));
    }
}
