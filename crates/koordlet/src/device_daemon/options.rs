//! Flags, variables and the file of koord-device-daemon: a flag counts before a variable, that before the file.

use std::path::PathBuf;
use std::time::Duration;

use koord_api::duration::GoDuration;
use koord_kit::config::{ConfigErrors, Document};
use koord_kit::flags::{self, Flag, FlagErrors, Kind, LOG_FLAGS, Values, log_options};
use koord_kit::log::{LogError, LogOptions};
use koord_linux::root::Root;
use serde::Deserialize;

const FLAGS: &[Flag] = &[
    Flag::new("oneshot", Kind::Bool, "false", "describe the devices once and end (KDD_ONESHOT)"),
    Flag::new("sleep-interval", Kind::Duration, "15m", "between two looks (KDD_SLEEP_INTERVAL)"),
    Flag::new(
        "prints-output-file",
        Kind::Text,
        "/var/run/koordlet/xpu-device-infos/ic-device",
        "where devices are described for koordlet; empty for nowhere (KDD_PRINTS_OUTPUT_FILE)",
    ),
    Flag::new("config-file", Kind::Text, "", "a file with what flags do not say (KDD_CONFIG_FILE)"),
    Flag::new("no-timestamp", Kind::Bool, "false", "").ignored("there is no time stamp"),
    Flag::new(
        "host-root-dir",
        Kind::Text,
        "/hostfs",
        "the host's files, where vendors' tools are; / when we see them ourselves",
    ),
    Flag::new("sys-root-dir", Kind::Text, "/sys", "the host's /sys"),
    Flag::new("dev-root-dir", Kind::Text, "/dev", "the host's /dev"),
];

/// Variables by flag; of two the first counts.
const VARIABLES: &[(&str, &str)] = &[
    ("oneshot", "KDD_ONESHOT"),
    ("no-timestamp", "KDD_NO_TIMESTAMP"),
    ("sleep-interval", "KDD_SLEEP_INTERVAL"),
    ("prints-output-file", "KDD_PRINTS_OUTPUT_FILE"),
    ("prints-output-file", "PRINTS_OUTPUT_FILE"),
    ("config-file", "KDD_CONFIG_FILE"),
    ("config-file", "CONFIG_FILE"),
];

/// The one version that a file may have.
const VERSION: &str = "v1";

/// Everything that is needed to run.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) is_once: bool,
    pub(super) interval: Duration,
    /// None to describe devices nowhere.
    pub(super) output: Option<PathBuf>,
    /// None when tools are run where we are.
    pub(super) host_root: Option<PathBuf>,
    pub(super) root: Root,
    pub(super) dev: PathBuf,
    pub(super) log: LogOptions,
    pub(super) warnings: Vec<String>,
}

/// What a command line asks for.
#[derive(Debug)]
pub(super) enum Request {
    Help(String),
    Version,
    Run(Box<Options>),
}

/// Why a command line cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum OptionsError {
    #[error(transparent)]
    Flags(FlagErrors),
    #[error("environment variable {variable}: {source}")]
    Variable { variable: &'static str, source: FlagErrors },
    #[error(transparent)]
    File(ConfigErrors),
    #[error("koord-device-daemon takes no arguments, got {0:?}")]
    Words(Vec<String>),
    #[error("sleep-interval: {0} is not accepted, expected a time above 0 such as 15m")]
    Interval(GoDuration),
    #[error(transparent)]
    Log(LogError),
}

/// The file, field by field.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw {
    version: String,
    flags: RawFlags,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawFlags {
    kdd: RawDaemon,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawDaemon {
    oneshot: Option<bool>,
    sleep_interval: Option<GoDuration>,
    prints_output_file: Option<String>,
}

/// Reads the words after the program's name; `variable` looks into the environment.
pub(super) fn parse(
    words: impl IntoIterator<Item = String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Request, OptionsError> {
    let tables = [FLAGS, LOG_FLAGS];
    let mut all = Vec::new();
    let is_said = |flag: &str, value: &str| !value.is_empty() || is_text(flag);
    // Words that come later count, so flags come last, and the variable that counts is the last of its kind.
    for (flag, variable, value) in VARIABLES
        .iter()
        .rev()
        .filter_map(|(flag, name)| Some((*flag, *name, variable(name)?)))
        .filter(|(flag, _, value)| is_said(flag, value))
    {
        let word = format!("--{flag}={value}");
        flags::parse(&tables, [word.clone()])
            .map_err(|source| OptionsError::Variable { variable, source })?;
        all.push(word);
    }
    all.extend(words);
    let values = flags::parse(&tables, all).map_err(OptionsError::Flags)?;
    if values.help {
        let about = "Asks the tools of accelerators' vendors what is there, and describes it for koordlet.";
        return Ok(Request::Help(flags::help("koord-device-daemon", about, &tables)));
    }
    if values.version {
        return Ok(Request::Version);
    }
    if !values.rest.is_empty() {
        return Err(OptionsError::Words(values.rest));
    }
    let file = match values.text("config-file") {
        "" => RawDaemon::default(),
        path => read(&Document::read(path).map_err(OptionsError::File)?).map_err(OptionsError::File)?,
    };
    options(&values, file).map(|options| Request::Run(Box::new(options)))
}

/// Whether nothing is a value, as it is for a path; of anything else an empty variable says nothing.
fn is_text(flag: &str) -> bool {
    FLAGS.iter().any(|known| known.name == flag && matches!(known.kind, Kind::Text))
}

fn read(document: &Document) -> Result<RawDaemon, ConfigErrors> {
    let raw: Raw = document.decode()?;
    let mut problems = document.problems();
    if !["", VERSION].contains(&raw.version.as_str()) {
        problems.refuse("version", &raw.version, VERSION);
    }
    problems.finish(raw.flags.kdd)
}

fn options(values: &Values, file: RawDaemon) -> Result<Options, OptionsError> {
    let is_given = |name| values.is_given(name);
    let is_once = file.oneshot.filter(|_| !is_given("oneshot")).unwrap_or(values.bool("oneshot"));
    let interval = file
        .sleep_interval
        .filter(|_| !is_given("sleep-interval"))
        .unwrap_or(values.duration("sleep-interval"));
    let output = file
        .prints_output_file
        .filter(|_| !is_given("prints-output-file"))
        .unwrap_or_else(|| values.text("prints-output-file").to_owned());
    let host_root = values.text("host-root-dir");
    Ok(Options {
        is_once,
        interval: interval
            .to_std()
            .filter(|interval| !interval.is_zero())
            .ok_or(OptionsError::Interval(interval))?,
        output: (!output.is_empty()).then(|| output.into()),
        host_root: (!["", "/"].contains(&host_root)).then(|| host_root.into()),
        root: Root { sys: values.text("sys-root-dir").into(), ..Root::host("/") },
        dev: values.text("dev-root-dir").into(),
        log: log_options(values).map_err(OptionsError::Log)?,
        warnings: values.warnings.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], variables: &[(&str, &str)]) -> Result<Options, String> {
        let words = words.iter().map(|word| (*word).to_owned());
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        match parse(words, variable).map_err(|error| error.to_string())? {
            Request::Run(options) => Ok(*options),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn flags_come_before_variables_and_those_before_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kdd.yaml");
        let text = "version: v1\nflags:\n  kdd:\n    oneshot: true\n    sleepInterval: 30s\n    printsOutputFile: /a\n";
        std::fs::write(&file, text).unwrap();
        let plain = read(&[], &[]).unwrap();
        assert_eq!((plain.is_once, plain.interval), (false, Duration::from_secs(900)));
        assert_eq!(plain.output, Some("/var/run/koordlet/xpu-device-infos/ic-device".into()));
        assert_eq!(plain.host_root, Some("/hostfs".into()));
        let path = file.to_str().unwrap();
        let all = read(&["-oneshot=false"], &[("KDD_SLEEP_INTERVAL", "1m"), ("CONFIG_FILE", path)]).unwrap();
        assert_eq!(
            (all.is_once, all.interval, all.output),
            (false, Duration::from_secs(60), Some("/a".into()))
        );
        let two = [("PRINTS_OUTPUT_FILE", "/c"), ("KDD_PRINTS_OUTPUT_FILE", "/b")];
        assert_eq!(read(&[], &two).unwrap().output, Some("/b".into()));
        assert_eq!(read(&["--prints-output-file="], &two).unwrap().output, None);
        assert_eq!(read(&["--host-root-dir=/", "--no-timestamp"], &[]).unwrap().host_root, None);
        // Empty variables are as good as none, but an empty path is nowhere.
        let empty = [("KDD_ONESHOT", ""), ("KDD_NO_TIMESTAMP", ""), ("KDD_SLEEP_INTERVAL", "")];
        let all = read(&[], &[&empty[..], &[("CONFIG_FILE", path)]].concat()).unwrap();
        assert_eq!((all.is_once, all.interval), (true, Duration::from_secs(30)), "the file's");
        assert_eq!(read(&[], &empty).unwrap().interval, Duration::from_secs(900));
        assert_eq!(read(&[], &[("KDD_PRINTS_OUTPUT_FILE", "")]).unwrap().output, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kdd.yaml");
        let path = format!("--config-file={}", file.display());
        for (words, variables, text, parts) in [
            (vec!["--oneshot=maybe"], vec![], "", vec!["oneshot", "maybe"]),
            (vec![], vec![("KDD_ONESHOT", "maybe")], "", vec!["KDD_ONESHOT", "maybe"]),
            (vec!["--sleep-interval=0s"], vec![], "", vec!["sleep-interval", "0s", "15m"]),
            (vec!["more"], vec![], "", vec!["more"]),
            (vec![path.as_str()], vec![], "version: v2\n", vec!["kdd.yaml:1", "version", "v2", "v1"]),
            (
                vec![path.as_str()],
                vec![],
                "flags:\n  kdd:\n    oneshots: true\n",
                vec!["kdd.yaml:3", "oneshots"],
            ),
            (vec!["--config-file=/no/such/file"], vec![], "", vec!["/no/such/file"]),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = read(&words, &variables).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{parts:?} in {error}");
        }
    }
}
