//! Scenarios from YAML: strict, with every mistake told by file, line and field before anything runs.
//!
//! The raw structs mirror the file field by field (docs/demo.md); what they become is in `scenario`.
//! A new action or expectation is a variant there, a word here, and its meaning in `expect` or `stage`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use koord_kit::config::Document;
use serde::Deserialize;

use super::scenario::{Needs, Part, Scenario};

mod raw;
mod step;

use step::Checker;

/// What a scenario file says of itself.
const KINDS: &[(&str, &str)] = &[("demo.koord.sh/v1alpha1", "Scenario")];

/// Files that include files that include files: nobody needs more.
const DEPTH_MAX: usize = 8;

/// Where files come from.
pub(crate) enum Library {
    Disk,
    /// Part of the program: names and texts.
    Embedded(&'static [(&'static str, &'static str)]),
}

impl Library {
    fn read(&self, path: &Path) -> Result<String> {
        match self {
            Library::Disk => {
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
            }
            Library::Embedded(files) => {
                let found = files.iter().find(|(name, _)| Path::new(name) == path);
                let (_, text) = found.ok_or_else(|| anyhow!("there is no {}", path.display()))?;
                Ok((*text).to_owned())
            }
        }
    }
}

/// A scenario with all the files it includes.
pub(crate) fn read(library: &Library, path: &Path) -> Result<Scenario> {
    let mut scenario = read_file(library, path, &mut Vec::new())?;
    let mut homes: BTreeMap<String, String> = BTreeMap::new();
    for part in &scenario.parts {
        let named = format!("{:?}", part.title);
        if let Some(other) = homes.insert(part.name.clone(), named) {
            bail!("{}: two parts are called {:?}; the first is {other}", path.display(), part.name);
        }
    }
    if scenario.parts.is_empty() {
        bail!("{}: there is nothing to do: neither steps nor parts", path.display());
    }
    scenario.parts.retain(|part| !part.steps.is_empty());
    Ok(scenario)
}

/// The top of a file; steps are looked at one by one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawScenario {
    name: String,
    title: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    nodes: Vec<String>,
    #[serde(default)]
    needs: RawNeeds,
    namespaces: Option<Vec<String>>,
    #[serde(default)]
    steps: Vec<raw::Step>,
    #[serde(default)]
    parts: Vec<PathBuf>,
    #[serde(default)]
    next: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawNeeds {
    nodes: usize,
    zones: usize,
}

fn read_file(library: &Library, path: &Path, open: &mut Vec<PathBuf>) -> Result<Scenario> {
    let document = Document::parse(path, &library.read(path)?)?;
    document.expect_kind(KINDS)?;
    let raw: RawScenario = document.decode()?;
    let mut problems = document.problems();
    if !is_name(&raw.name) {
        problems.refuse("name", &raw.name, NAME_WANTED);
    }
    for (i, shape) in raw.nodes.iter().enumerate() {
        if let Err(error) = koord_sandbox::nodes::shape::flag(shape) {
            problems.message(&format!("nodes[{i}]"), error.to_string());
        }
    }
    let namespaces = raw.namespaces.unwrap_or_else(|| vec![raw.name.clone()]);
    for (i, namespace) in namespaces.iter().enumerate().filter(|(_, name)| !is_name(name)) {
        problems.refuse(&format!("namespaces[{i}]"), namespace, NAME_WANTED);
    }
    if namespaces.is_empty() {
        problems.message("namespaces", "at least one is needed");
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut checker = Checker::new(problems, &namespaces, |file: &Path| library.read(&folder.join(file)));
    let steps = checker.steps(raw.steps);
    let mut problems = checker.finish();
    let needs = Needs { nodes: raw.needs.nodes, zones: raw.needs.zones };
    let own =
        Part { name: raw.name.clone(), title: raw.title.clone(), text: String::new(), namespaces, steps };
    let mut scenario = Scenario {
        name: raw.name,
        title: raw.title,
        text: raw.text,
        shapes: raw.nodes,
        needs,
        parts: if own.steps.is_empty() { Vec::new() } else { vec![own] },
        next: raw.next,
    };
    open.push(path.to_owned());
    for (i, part) in raw.parts.iter().enumerate() {
        let at = format!("parts[{i}]");
        let file = folder.join(part);
        if open.contains(&file) || open.len() >= DEPTH_MAX {
            problems.message(&at, format!("{} includes itself, or goes too deep", file.display()));
            continue;
        }
        match read_file(library, &file, open) {
            Ok(part) => include(&mut scenario, part),
            Err(error) => problems.message(&at, format!("{error:#}")),
        }
    }
    open.pop();
    Ok(problems.finish(scenario)?)
}

/// The including file says which nodes there are; what each part needs must be there.
fn include(scenario: &mut Scenario, part: Scenario) {
    scenario.needs.nodes = scenario.needs.nodes.max(part.needs.nodes);
    scenario.needs.zones = scenario.needs.zones.max(part.needs.zones);
    let text = part.text;
    scenario.parts.extend(part.parts.into_iter().map(|mut inner| {
        if inner.name == part.name {
            inner.text.clone_from(&text);
        }
        inner
    }));
    scenario.next.extend(part.next);
}

const NAME_WANTED: &str = "at most 63 of a-z, 0-9 and -, with a letter or digit at both ends";

/// Whether it can be a namespace.
fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.starts_with(is_word)
        && text.ends_with(is_word)
        && text.chars().all(|c| is_word(c) || c == '-')
}

#[cfg(test)]
mod tests;
