//! Our own rules, checked on our own sources by ordinary tests.
//!
//! Each limit is a ratchet: today's exceptions are listed beside it, and the list only shrinks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::root;

/// Lines that a file may have before it should be split.
const FILE_LINES_MAX: usize = 800;
/// Lines that a function outside tests may have: one screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Which of our crates each crate may use. Dependencies point down, never up or sideways.
const LAYERS: &[(&str, &[&str])] = &[
    ("koord-api", &[]),
    ("koord-engine", &["koord-api"]),
    ("koord-linux", &["koord-api"]),
    ("koord-kit", &["koord-api"]),
    ("koord-testkit", &[]),
    ("koord-scheduler", &["koord-api", "koord-engine", "koord-kit"]),
    ("koord-manager", &["koord-api", "koord-kit"]),
    ("koordlet", &["koord-api", "koord-kit", "koord-linux", "koord-testkit"]),
    ("koord-sandbox", &["koord-api", "koord-kit"]),
    (
        "koord",
        &[
            "koord-api",
            "koord-engine",
            "koord-kit",
            "koord-manager",
            "koord-sandbox",
            "koord-scheduler",
            "koord-testkit",
            "koordlet",
        ],
    ),
    (
        "koord-e2e",
        &[
            "koord-api",
            "koord-engine",
            "koord-kit",
            "koord-linux",
            "koord-manager",
            "koord-testkit",
            "koord-sandbox",
            "koord-scheduler",
            "koordlet",
        ],
    ),
    ("xtask", &["koord-api", "koord-engine", "koord-kit", "koord-testkit", "koord-sandbox"]),
];
/// Crates, or parts of them, without I/O, clock, environment or async.
const PURE: &[&str] = &["crates/api", "crates/engine", "crates/koordlet/src/decide"];
/// What a pure crate may not depend on.
const IMPURE_CRATES: &[&str] = &["tokio", "kube", "hyper", "futures", "tracing-subscriber"];
/// What a pure crate may not call.
const IMPURE_CALLS: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "println!",
];

/// A Rust source with its path from the root.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("tests.rs") || self.path.ends_with("tidy.rs")
    }

    /// Numbered lines outside `mod tests` and comments.
    fn code(&self) -> Vec<(usize, &str)> {
        if self.is_test() {
            return Vec::new();
        }
        let mut lines = Vec::new();
        let mut in_tests = false;
        for (index, line) in self.text.lines().enumerate() {
            in_tests = (in_tests || line.starts_with("mod tests {")) && line != "}";
            if !in_tests && !line.trim_start().starts_with("//") {
                lines.push((index + 1, line));
            }
        }
        lines
    }
}

fn tracked(pattern: &str) -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--", pattern])
        .current_dir(root())
        .output()
        .unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().map(PathBuf::from).filter(|path| root().join(path).is_file()).collect()
}

fn sources() -> Vec<Source> {
    let read = |path: PathBuf| Source {
        text: std::fs::read_to_string(root().join(&path)).unwrap(),
        path: path.display().to_string(),
    };
    let sources: Vec<Source> = tracked("*.rs").into_iter().map(read).collect();
    assert!(sources.len() > 20, "only {} sources found", sources.len());
    sources
}

fn assert_none(faults: Vec<String>, rule: &str) {
    assert!(faults.is_empty(), "{rule}:\n{}", faults.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    // `foo/tests.rs` is `foo`'s own: its name says all.
    let mute = sources().into_iter().filter(|s| !s.text.starts_with("//!") && !s.path.ends_with("/tests.rs"));
    assert_none(mute.map(|s| s.path).collect(), "a file opens with a module doc");
}

#[test]
fn files_are_short() {
    let exceptions: BTreeSet<&str> = [].into();
    let long = sources().into_iter().filter(|s| s.text.lines().count() > FILE_LINES_MAX);
    let faults = long.filter(|s| !exceptions.contains(s.path.as_str()));
    assert_none(faults.map(|s| s.path).collect(), "a file has at most 800 lines");
}

#[test]
fn functions_fit_on_a_screen() {
    let faults = sources().iter().flat_map(long_functions).collect();
    assert_none(faults, "a function has at most 70 lines");
}

/// rustfmt puts the closing brace of a function under its first letter, which finds its end.
fn long_functions(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let mut open: Option<(usize, usize, &str)> = None;
    for (number, line) in source.code() {
        let indent = line.len() - line.trim_start().len();
        match open {
            Some((start, depth, name)) if indent == depth && line.trim_start().starts_with('}') => {
                if number - start + 1 > FUNCTION_LINES_MAX {
                    faults.push(format!("{}:{start}: {} lines: {name}", source.path, number - start + 1));
                }
                open = None;
            }
            None if starts_function(line) && !line.trim_end().ends_with(['}', ';']) => {
                open = Some((number, indent, line.trim()));
            }
            _ => {}
        }
    }
    faults
}

fn starts_function(line: &str) -> bool {
    let words = line.trim_start();
    let words = words.strip_prefix("pub(crate) ").or_else(|| words.strip_prefix("pub ")).unwrap_or(words);
    let words = words.strip_prefix("const ").or_else(|| words.strip_prefix("async ")).unwrap_or(words);
    words.starts_with("fn ")
}

#[test]
fn crates_use_only_what_lies_below() {
    let layers: BTreeMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    let mut faults = Vec::new();
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = layers.get(name) else {
            faults.push(format!("{name} has no place in LAYERS"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            if layers.contains_key(other) && !allowed.contains(&other) {
                faults.push(format!("{name} uses {other}"));
            }
        }
    }
    assert_none(faults, "dependencies point down");
}

#[test]
fn pure_crates_are_pure() {
    let mut faults = Vec::new();
    for package in packages() {
        let manifest = package["manifest_path"].as_str().unwrap();
        if !PURE.iter().any(|folder| Path::new(manifest) == root().join(folder).join("Cargo.toml")) {
            continue;
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if dependency["kind"].is_null() && IMPURE_CRATES.contains(&name) {
                faults.push(format!("{manifest} depends on {name}"));
            }
        }
    }
    // Examples are programs, not part of the crate: they may print and look at the clock.
    let is_pure =
        |s: &&Source| PURE.iter().any(|folder| s.path.starts_with(folder)) && !s.path.contains("/examples/");
    for source in sources().iter().filter(is_pure) {
        for (number, line) in source.code() {
            for call in IMPURE_CALLS.iter().filter(|call| line.contains(**call)) {
                faults.push(format!("{}:{number}: {call}", source.path));
            }
        }
    }
    assert_none(faults, "a pure crate has no I/O, clock, environment or async");
}

#[test]
fn keys_are_spelt_once() {
    let homes = ["crates/api/src/keys", "crates/api/src/resource/names.rs"];
    let mut faults = Vec::new();
    let is_ours =
        |s: &&Source| s.path.starts_with("crates/") && !homes.iter().any(|home| s.path.starts_with(home));
    for source in sources().iter().filter(is_ours) {
        for (number, line) in source.code() {
            if line.contains("koordinator.sh/") && !line.contains("koordinator.sh/v1alpha1") {
                faults.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_none(faults, "a label, annotation or resource name stands in koord_api::keys or names only");
}

#[test]
fn nothing_names_a_machine() {
    let mut faults = Vec::new();
    for path in tracked("*") {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        if path.ends_with("tidy.rs") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            if ["/work/", "/root/", "proxy.golang", "registry.npmjs"].iter().any(|word| line.contains(word)) {
                faults.push(format!("{}:{}: {line}", path.display(), index + 1));
            }
        }
    }
    assert_none(faults, "no path of a developer's machine and no registry's host in the repository");
}

#[test]
fn dependencies_are_allowed() {
    let rules = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let allowed = quoted(&rules, "allow = [");
    let twice = quoted(&rules, "skip = [");
    let mut faults = Vec::new();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap().to_owned();
        let licence = package["license"].as_str().unwrap_or("none").to_owned();
        if !licence_fits(&licence, &allowed) {
            faults.push(format!("{name}: licence {licence}"));
        }
        versions.entry(name).or_default().insert(package["version"].to_string());
    }
    for (name, versions) in
        versions.iter().filter(|(name, versions)| versions.len() > 1 && !twice.contains(*name))
    {
        faults.push(format!("{name}: {} versions: {versions:?}", versions.len()));
    }
    assert_none(faults, "licences and duplicates are those of deny.toml");
}

/// An `OR` needs one allowed side, an `AND` both.
fn licence_fits(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression.split(" AND ").all(|part| part.split(" OR ").any(|licence| allowed.contains(licence.trim())))
}

/// The quoted words from `start` to the closing bracket.
fn quoted(text: &str, start: &str) -> BTreeSet<String> {
    let body = text.split_once(start).unwrap().1.split_once(']').unwrap().0;
    body.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What is built for Linux; packages for other systems stand in the lock file but are never compiled.
fn packages() -> Vec<Value> {
    let output = crate::step::cargo(&["metadata", "--format-version=1", "--locked", "--filter-platform"])
        .arg("x86_64-unknown-linux-gnu")
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn known_differences_are_listed() {
    let page = std::fs::read_to_string(root().join("docs/differences.md")).unwrap();
    let marked = sources().into_iter().filter(|s| !s.is_test() && s.text.contains("Differs:"));
    let missing = marked.filter(|s| !page.contains(&s.path)).map(|s| s.path);
    assert_none(missing.collect(), "docs/differences.md names every file with a `Differs:`");
    let named = page.split('`').filter(|word| word.ends_with(".rs"));
    let gone = named.filter(|path| !root().join(path).is_file()).map(str::to_owned);
    assert_none(gone.collect(), "docs/differences.md names only files that exist");
}

#[test]
fn readme_names_the_two_commands() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    for command in ["cargo xtask test", "cargo run --release -- sandbox up --demo"] {
        assert!(readme.contains(command), "README.md does not name `{command}`");
    }
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.contains("cargo xtask test"), ".ci/run does not call the README's test command");
}
