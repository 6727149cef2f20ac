//! From text to raw structs: versions, kinds, unknown and repeated fields. Spec: scheduler-core 7.1 and 7.2.

use koord_kit::config::{Decoded, Document, Problem, Raw};
use serde_json::Value;

use super::args::{FAMILIES, Family, RawArgs, family};
use super::error::LoadError;
use super::raw::RawConfiguration;

/// The versions of the file's schema. They differ in what they let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V1beta3,
    V1beta2,
}

pub(super) const GROUP: &str = "kubescheduler.config.k8s.io";
pub(super) const KIND: &str = "KubeSchedulerConfiguration";

impl Version {
    const ALL: [Version; 3] = [Version::V1, Version::V1beta3, Version::V1beta2];

    /// As `apiVersion` has it.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Version::V1 => "kubescheduler.config.k8s.io/v1",
            Version::V1beta3 => "kubescheduler.config.k8s.io/v1beta3",
            Version::V1beta2 => "kubescheduler.config.k8s.io/v1beta2",
        }
    }

    fn parse(text: &str) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.text() == text)
    }

    /// Whether unknown and repeated fields are refused.
    fn is_strict(self) -> bool {
        self == Version::V1
    }
}

/// A decoded file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) document: Document,
    pub(super) version: Version,
    pub(super) raw: RawConfiguration,
    /// The arguments of each profile, one for each `pluginConfig`.
    pub(super) args: Vec<Vec<GivenArgs>>,
    pub(super) warnings: Vec<String>,
}

/// What stands beside a plugin's name.
#[derive(Debug)]
pub(super) enum GivenArgs {
    /// Of a plugin that takes arguments.
    Known(Box<dyn RawArgs>),
    /// Of any other, kept to be shown.
    Other(Value),
}

pub(super) fn read(name: &std::path::Path, text: &str) -> Result<File, LoadError> {
    let document = Document::parse_noting_duplicates(name, text).map_err(LoadError::unreadable)?;
    let version = check_kind(&document)?;
    let Decoded { value, unknown } = document.decode_noting_unknown::<RawConfiguration>();
    let raw = value.map_err(|errors| cannot_decode(&document, KIND, errors.problems))?;
    let mut findings = Findings::default();
    findings.note_twice(&document);
    findings.note_unknown(unknown);
    let mut args = Vec::new();
    for (i, profile) in raw.profiles.iter().enumerate() {
        let mut list = Vec::new();
        for (j, config) in profile.plugin_config.iter().enumerate() {
            let path = format!("profiles[{i}].pluginConfig[{j}]");
            list.push(findings.decode_args(&document, &path, &config.name, config.args.as_ref())?);
        }
        args.push(list);
    }
    let warnings = findings.finish(&document, version)?;
    Ok(File { document, version, raw, args, warnings })
}

fn check_kind(document: &Document) -> Result<Version, LoadError> {
    let (version, kind) = document.kind();
    let message = match (Version::parse(version), kind) {
        (Some(version), KIND) => return Ok(version),
        (_, "") => "Object 'Kind' is missing".to_owned(),
        (Some(_), kind) if args_family(kind).is_some() => {
            format!("couldn't decode as {KIND}, got {version}, Kind={kind}")
        }
        _ => format!("no kind {kind:?} is registered for version {version:?}"),
    };
    let accepted: Vec<&str> = Version::ALL.into_iter().map(Version::text).collect();
    let place = Problem {
        position: Some(document.position("apiVersion")),
        path: "apiVersion".to_owned(),
        message: format!("expected {KIND} of {}", accepted.join(", ")),
    };
    Err(LoadError::new(document, message, vec![place]))
}

/// The family whose kind this is.
fn args_family(kind: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.kind() == kind)
}

fn cannot_decode(document: &Document, what: &str, problems: Vec<Problem>) -> LoadError {
    LoadError::new(document, format!("couldn't decode {what}"), problems)
}

/// What a strict file is refused for, and a lenient one only warned of.
#[derive(Default)]
struct Findings {
    complaints: Vec<String>,
    places: Vec<Problem>,
}

impl Findings {
    fn note_twice(&mut self, document: &Document) {
        let twice = document.duplicates();
        if twice.is_empty() {
            return;
        }
        let mut complaint = "yaml: unmarshal errors:".to_owned();
        for problem in &twice {
            let key = problem.path.rsplit('.').next().unwrap_or_default();
            let line = problem.position.map_or(0, |(line, _)| line);
            complaint.push_str(&format!("\n  line {line}: key {key:?} already set in map"));
        }
        self.complaints.push(complaint);
        self.places.extend(twice);
    }

    fn note_unknown(&mut self, unknown: Vec<Problem>) {
        if !unknown.is_empty() {
            self.complaints.push(unknown_fields(&unknown, ""));
            self.places.extend(unknown);
        }
    }

    fn decode_args(
        &mut self,
        document: &Document,
        path: &str,
        plugin: &str,
        raw: Option<&Raw>,
    ) -> Result<GivenArgs, LoadError> {
        let Some(family) = family(plugin) else {
            let value = raw.and_then(|raw| document.decode_raw::<Value>(raw).ok());
            return Ok(GivenArgs::Other(value.unwrap_or_default()));
        };
        let Some(raw) = raw else { return Ok(GivenArgs::Known((family.empty)())) };
        check_args_kind(document, path, family, raw)?;
        let Decoded { value, unknown } = (family.decode)(document, raw);
        let args = value.map_err(|errors| {
            let what = format!(".{path}: args for plugin {plugin}");
            cannot_decode(document, &what, errors.problems)
        })?;
        if !unknown.is_empty() {
            let fields = unknown_fields(&unknown, &format!("{path}.args."));
            self.complaints.push(format!(
                "decoding .{path}: strict decoding error: decoding args for plugin {plugin}: \
                 strict decoding error: {fields}"
            ));
            self.places.extend(unknown);
        }
        Ok(GivenArgs::Known(args))
    }

    /// The warnings, or the refusal.
    fn finish(self, document: &Document, version: Version) -> Result<Vec<String>, LoadError> {
        if version.is_strict() && !self.complaints.is_empty() {
            let message = format!("strict decoding error: {}", self.complaints.join(", "));
            return Err(LoadError::new(document, message, self.places));
        }
        let warning = |place: Problem| {
            let (line, column) = place.position.unwrap_or_default();
            let file = document.file().display();
            format!("{file}:{line}:{column}: {}: {}", place.path, place.message)
        };
        Ok(self.places.into_iter().map(warning).collect())
    }
}

/// By name, as Go lists them.
fn unknown_fields(unknown: &[Problem], prefix: &str) -> String {
    let mut names: Vec<&str> =
        unknown.iter().map(|problem| problem.path.strip_prefix(prefix).unwrap_or(&problem.path)).collect();
    names.sort_unstable();
    let texts: Vec<String> = names.iter().map(|name| format!("unknown field {name:?}")).collect();
    texts.join(", ")
}

/// Arguments may be of any version that a file may have, whatever the file's own.
fn check_args_kind(document: &Document, path: &str, family: &Family, raw: &Raw) -> Result<(), LoadError> {
    let (version, kind) = document.kind_of_raw(raw);
    let wanted = family.kind();
    let plugin = family.plugin;
    let (field, message) = if !version.is_empty() && Version::parse(version).is_none() {
        let kind = if kind.is_empty() { &wanted } else { kind };
        let message = format!("no kind {kind:?} is registered for version {version:?}");
        ("apiVersion", format!("decoding .{path}: decoding args for plugin {plugin}: {message}"))
    } else if kind.is_empty() || kind == wanted {
        return Ok(());
    } else if args_family(kind).is_some() {
        let message =
            format!("args for plugin {plugin} were not of type {wanted}.{GROUP}, got {kind}.{GROUP}");
        ("kind", format!("decoding .{path}: {message}"))
    } else {
        let version = if version.is_empty() { Version::V1.text() } else { version };
        let message = format!("no kind {kind:?} is registered for version {version:?}");
        ("kind", format!("decoding .{path}: decoding args for plugin {plugin}: {message}"))
    };
    let path = format!("{path}.args.{field}");
    let place = Problem { position: Some(document.position(&path)), path, message: String::new() };
    Err(LoadError::new(document, message, vec![place]))
}
