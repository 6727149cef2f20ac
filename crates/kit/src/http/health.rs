//! Health answers in Kubernetes' form: `/healthz`, `/livez`, `/readyz`, with named checks.
//!
//! `?verbose` lists every check, `?exclude=NAME` leaves one out, `/readyz/NAME` asks a single one.
//! Differs: the reason of a failed check is shown, where Kubernetes withholds it; it names what a person must mend.

use std::collections::BTreeSet;
use std::sync::RwLock;

/// Answers `Ok` or says what is wrong, at once: a check looks at state that others keep, it does no work.
pub type CheckFn = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A named question about the process.
pub struct Check {
    name: String,
    ready_only: bool,
    ask: CheckFn,
}

impl Check {
    /// A check whose failure means that the process should be restarted: part of all three answers.
    pub fn live(
        name: impl Into<String>,
        ask: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Check {
        Check { name: name.into(), ready_only: false, ask: Box::new(ask) }
    }

    /// A check whose failure means only that the process cannot serve yet: part of `/readyz`.
    pub fn ready(
        name: impl Into<String>,
        ask: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Check {
        Check { name: name.into(), ready_only: true, ask: Box::new(ask) }
    }
}

/// All checks of a process. Share it by `Arc`; checks may be added while it serves.
pub struct Health {
    /// Locked for a moment when a check is added or an answer is made.
    checks: RwLock<Vec<Check>>,
}

impl Default for Health {
    fn default() -> Health {
        Health { checks: RwLock::new(vec![Check::live("ping", || Ok(()))]) }
    }
}

impl Health {
    /// Adds a check, or replaces the one of the same name.
    pub fn add(&self, check: Check) {
        let mut checks = self.checks.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        checks.retain(|other| other.name != check.name);
        checks.push(check);
    }

    /// Whether a path is one of ours.
    pub fn serves(&self, path: &str) -> bool {
        let Some((page, name)) = split(path) else { return false };
        let checks = self.checks.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        name.is_empty() || checks.iter().any(|check| check.name == name && belongs(check, page))
    }

    /// Whether all is well, and the text that says so.
    pub fn answer(&self, path: &str, query: &str) -> (bool, String) {
        let (page, name) = split(path).unwrap_or(("healthz", ""));
        let checks = self.checks.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let asked: Vec<&Check> = checks.iter().filter(|check| belongs(check, page)).collect();
        match name {
            "" => answer_all(page, &asked, query),
            _ => match asked.iter().find(|check| check.name == name).map(|check| (check.ask)()) {
                Some(Err(reason)) => (false, format!("internal server error: {reason}\n")),
                _ => (true, "ok".to_owned()),
            },
        }
    }
}

fn belongs(check: &Check, page: &str) -> bool {
    !check.ready_only || page == "readyz"
}

fn split(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    let (page, name) = path.split_once('/').unwrap_or((path, ""));
    matches!(page, "healthz" | "livez" | "readyz").then_some((page, name))
}

fn answer_all(page: &str, checks: &[&Check], query: &str) -> (bool, String) {
    let verbose = query.split('&').any(|part| part == "verbose" || part.starts_with("verbose="));
    let mut excluded: BTreeSet<&str> = query
        .split('&')
        .filter_map(|part| part.strip_prefix("exclude="))
        .filter(|name| !name.is_empty())
        .collect();
    let (mut lines, mut passed) = (String::new(), true);
    for check in checks {
        if excluded.remove(check.name.as_str()) {
            lines.push_str(&format!("[+]{} excluded: ok\n", check.name));
            continue;
        }
        match (check.ask)() {
            Ok(()) => lines.push_str(&format!("[+]{} ok\n", check.name)),
            Err(reason) => {
                passed = false;
                lines.push_str(&format!("[-]{} failed: {reason}\n", check.name));
            }
        }
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(",");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    match (passed, verbose) {
        (true, false) => (true, "ok".to_owned()),
        (true, true) => (true, format!("{lines}{page} check passed\n")),
        (false, _) => (false, format!("{lines}{page} check failed\n")),
    }
}
