//! Cases as they stand in `e2e/conformance/*.yaml`: named lists of requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// A conversation with a server. `${ns}` in it is a namespace made for it alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One request, and what to do with its answer. `${name}` stands for what an earlier step captured.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// `GET /api/v1/…`.
    #[serde(default)]
    pub(crate) send: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Content type: one of the short words of `media`, or the type itself. JSON where there is a body.
    #[serde(rename = "type")]
    pub(crate) media: Option<String>,
    /// Sent as JSON.
    pub(crate) body: Option<Value>,
    /// Sent as it stands.
    pub(crate) raw: Option<String>,
    /// Length of the filling that `${pad}` stands for.
    #[serde(default)]
    pub(crate) pad: usize,
    /// `admin`, `robot` (by token), `stranger` (wrong token) or `anonymous`.
    #[serde(rename = "as")]
    pub(crate) user: Option<String>,
    /// Variable, and the JSON pointer of its value in the answer.
    #[serde(default)]
    pub(crate) capture: BTreeMap<String, String>,
    /// Asks again until these JSON pointers lead to these values; `$code` is the status code, `$warnings`
    /// how many warnings came with it.
    #[serde(default)]
    pub(crate) until: BTreeMap<String, Value>,
    /// Ends a watch after so many events.
    pub(crate) events: Option<usize>,
    /// Leaves the watch open under this name; `read` takes its events later.
    pub(crate) open: Option<String>,
    /// Takes `events` events from an open watch.
    pub(crate) read: Option<String>,
    /// Compares only these parts of the answer: pointers whose `[key=value]` finds an item of a list.
    #[serde(default)]
    pub(crate) pick: Vec<String>,
    /// What both servers must answer.
    pub(crate) status: Option<u16>,
}

impl Step {
    /// Method and path as they stand in the file.
    pub(crate) fn request(&self) -> Option<(&str, &str)> {
        self.send.split_once(' ')
    }

    /// What the step does, in a few words.
    pub(crate) fn title(&self) -> String {
        match &self.read {
            Some(name) => format!("read {name}"),
            None => self.send.clone(),
        }
    }

    pub(crate) fn content_type(&self) -> Option<&str> {
        match self.media.as_deref() {
            None if self.body.is_some() || self.raw.is_some() => Some("application/json"),
            None => None,
            Some(word) => Some(media(word)),
        }
    }
}

fn media(word: &str) -> &str {
    match word {
        "json" => "application/json",
        "yaml" => "application/yaml",
        "json-patch" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        other => other,
    }
}

impl Case {
    /// Whether any step speaks of the case's own namespace.
    pub(crate) fn needs_namespace(&self) -> bool {
        let mentions = |step: &Step| {
            let body = step.body.as_ref().map(Value::to_string).unwrap_or_default();
            [&step.send, &body, step.raw.as_ref().unwrap_or(&String::new())]
                .iter()
                .any(|t| t.contains("${ns}"))
        };
        self.steps.iter().any(mentions)
    }

    pub(crate) fn namespace(&self) -> String {
        format!("c-{}", self.name)
    }
}

/// The folder of cases and of the accepted differences.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

/// All cases, in order of file and place. Names are unique.
pub(crate) fn load() -> Result<Vec<Case>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|path| path.file_name().is_some_and(|name| name != "differences.yaml"));
    files.sort();
    let mut cases: Vec<Case> = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path)?;
        let more: Vec<Case> = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        cases.extend(more);
    }
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    ensure!(twice.is_none(), "two cases have one name: {twice:?}");
    for case in &cases {
        for step in &case.steps {
            let is_whole = step.request().is_some() || step.read.is_some();
            ensure!(is_whole, "{}: a step sends METHOD /path or reads an open watch", case.name);
        }
    }
    Ok(cases)
}
