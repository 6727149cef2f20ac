//! KubeSchedulerConfiguration: read, filled in, checked, and turned into what the engine runs.
//!
//! The way of a file: `decode` (text to raw structs, strict) → `complete` (defaults, flags, default plugins) →
//! `check` (all that is wrong) → profiles of the engine. `args` holds the plugins' arguments, one file for each
//! family; `render` shows the result. Without a file, `builtin.yaml` is read: the profile that Koordinator ships.
//! Spec: scheduler-core 7.

mod args;
mod check;
mod complete;
mod decode;
mod error;
mod extender;
mod field;
mod raw;
mod render;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_engine::profile::args::Percent;
use koord_engine::profile::{Profile, ProfileError, check_together};
use koord_kit::config::{Document, Problem};
use koord_kit::leader::{LeaderElection, Timing};
use serde_json::Value;

use check::CheckedArgs;
pub use complete::ClientConnection;
use complete::{Completed, CompletedProfile};
pub use error::LoadError;
pub use extender::{Extender, ExtenderTls, ManagedResource, Pem};
use field::{Fault, join};

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// Above 0.
    pub parallelism: usize,
    /// None when this process acts without asking.
    pub leader_election: Option<Election>,
    pub client_connection: ClientConnection,
    pub enable_profiling: bool,
    pub enable_contention_profiling: bool,
    /// 0 lets the number of nodes decide.
    pub percentage_of_nodes_to_score: Percent,
    /// Above 0.
    pub pod_initial_backoff: Duration,
    /// At least the initial one.
    pub pod_max_backoff: Duration,
    /// Fill the caches only when leading.
    pub delay_cache_until_active: bool,
    /// At least one; names are unique, and all sort the queue alike.
    pub profiles: Vec<Profile>,
    pub extenders: Vec<Extender>,
    /// What the user should hear of, though it works.
    pub warnings: Vec<Warning>,
    effective: Value,
}

/// The lease that decides who acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    pub namespace: String,
    pub name: String,
    pub timing: Timing,
}

/// Something that works, but not as the user may think.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The profile it is about, if it is about one.
    pub profile: Option<String>,
    pub text: String,
}

/// What flags say about fields that the file has too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    pub leader_elect: Option<bool>,
    pub lease_duration: Option<GoDuration>,
    pub renew_deadline: Option<GoDuration>,
    pub retry_period: Option<GoDuration>,
    pub resource_lock: Option<String>,
    pub resource_name: Option<String>,
    pub resource_namespace: Option<String>,
    pub kubeconfig: Option<String>,
    pub content_type: Option<String>,
    pub qps: Option<f32>,
    pub burst: Option<i32>,
    pub enable_profiling: Option<bool>,
    pub enable_contention_profiling: Option<bool>,
}

/// The profile that Koordinator's chart v1.5 ships. Spec: scheduler-core 7.4.
const BUILTIN: &str = include_str!("config/builtin.yaml");
/// What errors call it.
const BUILTIN_NAME: &str = "built-in configuration";

/// Reads a file, or the built-in configuration.
pub fn load(file: Option<&Path>, overrides: &Overrides, gates: &Gates) -> Result<SchedulerConfig, LoadError> {
    let Some(path) = file else { return parse(Path::new(BUILTIN_NAME), BUILTIN, overrides, gates) };
    let text = std::fs::read_to_string(path).map_err(|error| LoadError {
        file: path.to_owned(),
        message: format!("cannot read the file: {error}"),
        places: Vec::new(),
    })?;
    parse(path, &text, overrides, gates)
}

/// Reads text; `name` is what errors call it.
pub fn parse(
    name: &Path,
    text: &str,
    overrides: &Overrides,
    gates: &Gates,
) -> Result<SchedulerConfig, LoadError> {
    let mut file = decode::read(name, text)?;
    let (completed, ignored) = complete::complete(&mut file, overrides, gates);
    let document = &file.document;
    let (mut faults, args) = check::check(&completed, file.version, gates);
    let extenders = checked_extenders(&completed, &mut faults);
    if !faults.is_empty() {
        let places = faults.iter().map(|fault| place(document, fault)).collect();
        return Err(LoadError::new(document, join(&faults), places));
    }
    let mut profiles = build_profiles(document, &completed, args)?;
    for profile in &mut profiles {
        let ignored = extenders.iter().flat_map(|extender| &extender.managed_resources);
        let ignored = ignored.filter(|resource| resource.ignored_by_scheduler);
        profile.args.node_resources_fit.ignored_resources.extend(ignored.map(|r| r.name.clone()));
    }
    let plain = file.warnings.into_iter().chain(ignored);
    let mut warnings: Vec<Warning> = plain.map(|text| Warning { profile: None, text }).collect();
    for profile in &profiles {
        let name = || Some(profile.scheduler_name.clone());
        warnings.extend(profile.warnings().into_iter().map(|text| Warning { profile: name(), text }));
    }
    assemble(document, &completed, profiles, extenders, warnings)
}

fn checked_extenders(completed: &Completed, faults: &mut Vec<Fault>) -> Vec<Extender> {
    let mut extenders = Vec::new();
    for (index, raw) in completed.extenders.iter().enumerate() {
        match extender::extender(index, raw) {
            Ok(extender) => extenders.push(extender),
            Err(wrong) => faults.extend(wrong),
        }
    }
    extenders
}

fn place(document: &Document, fault: &Fault) -> Problem {
    let position = Some(document.position(&fault.path));
    Problem { position, path: fault.path.clone(), message: String::new() }
}

/// The engine's profiles, or everything that keeps them from being built.
fn build_profiles(
    document: &Document,
    completed: &Completed,
    args: Vec<CheckedArgs>,
) -> Result<Vec<Profile>, LoadError> {
    let mut profiles = Vec::new();
    let mut errors = Vec::new();
    let mut places = Vec::new();
    for (index, (profile, args)) in completed.profiles.iter().zip(args).enumerate() {
        let scheduler = || profile.scheduler_name.clone();
        for (plugin, faults) in &args.unbuildable {
            let (plugin, message) = (plugin.clone(), join(faults));
            errors.push(ProfileError::Args { scheduler: scheduler(), plugin, message });
            places.extend(faults.iter().map(|fault| place(document, fault)));
        }
        match build_profile(profile, args) {
            Ok(built) => profiles.push(built),
            Err(faults) => {
                errors.extend(faults);
                let path = format!("profiles[{index}].plugins");
                places.push(place(document, &Fault::new(path, "")));
            }
        }
    }
    if errors.is_empty() {
        errors.extend(check_together(&profiles));
    }
    if errors.is_empty() { Ok(profiles) } else { Err(LoadError::new(document, join(&errors), places)) }
}

fn build_profile(profile: &CompletedProfile, args: CheckedArgs) -> Result<Profile, Vec<ProfileError>> {
    let scheduler = || profile.scheduler_name.clone();
    let points = profile.plugins.expand(&profile.scheduler_name).map_err(|faults| {
        let error = |fault| ProfileError::Plugins { scheduler: scheduler(), fault };
        faults.into_iter().map(error).collect::<Vec<_>>()
    })?;
    Ok(Profile {
        scheduler_name: scheduler(),
        percentage_of_nodes_to_score: profile
            .percentage_of_nodes_to_score
            .and_then(|value| Percent::new(value.into())),
        points,
        args: args.args,
    })
}

/// Gives checked values their types. What cannot be at this point is still an error, not a panic.
fn assemble(
    document: &Document,
    completed: &Completed,
    profiles: Vec<Profile>,
    extenders: Vec<Extender>,
    warnings: Vec<Warning>,
) -> Result<SchedulerConfig, LoadError> {
    let refuse = |field: &str| {
        LoadError::new(
            document,
            format!("{field} is out of range"),
            vec![place(document, &Fault::new(field, ""))],
        )
    };
    let seconds =
        |field: &str, value: i64| u64::try_from(value).map(Duration::from_secs).map_err(|_| refuse(field));
    let percentage = Percent::new(completed.percentage_of_nodes_to_score.into());
    Ok(SchedulerConfig {
        parallelism: usize::try_from(completed.parallelism).map_err(|_| refuse("parallelism"))?,
        leader_election: election(&completed.leader_election).map_err(refuse)?,
        client_connection: completed.client_connection.clone(),
        enable_profiling: completed.enable_profiling,
        enable_contention_profiling: completed.enable_contention_profiling,
        percentage_of_nodes_to_score: percentage.ok_or_else(|| refuse("percentageOfNodesToScore"))?,
        pod_initial_backoff: seconds("podInitialBackoffSeconds", completed.pod_initial_backoff_seconds)?,
        pod_max_backoff: seconds("podMaxBackoffSeconds", completed.pod_max_backoff_seconds)?,
        delay_cache_until_active: completed.delay_cache_until_active,
        profiles,
        extenders,
        warnings,
        effective: render::effective(completed),
    })
}

fn election(config: &LeaderElection) -> Result<Option<Election>, &'static str> {
    if !config.leader_elect {
        return Ok(None);
    }
    let timing = config.check().map_err(|_| "leaderElection")?;
    let (namespace, name) = (config.resource_namespace.clone(), config.resource_name.clone());
    Ok(Some(Election { namespace, name, timing }))
}

impl SchedulerConfig {
    /// The effective configuration as a file, for `--write-config-to`. Reading it again gives the same.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(&self.effective).unwrap_or_default()
    }

    /// What of the effective configuration decisions depend on, as a file; without anything that is secret.
    pub fn deciding_yaml(&self) -> String {
        let mut deciding = self.effective.clone();
        if let Value::Object(fields) = &mut deciding {
            fields.remove("clientConnection");
            fields.remove("leaderElection");
        }
        for extender in deciding["extenders"].as_array_mut().into_iter().flatten() {
            if let Value::Object(fields) = extender {
                fields.remove("tlsConfig");
            }
        }
        serde_saphyr::to_string(&deciding).unwrap_or_default()
    }

    /// The effective configuration as `/configz` shows it.
    ///
    /// Differs: fields that are not set are left out, where kube-scheduler writes null.
    pub fn configz(&self) -> Value {
        render::configz(&self.effective)
    }

    /// The kubeconfig to use, if one is named.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        let path = &self.client_connection.kubeconfig;
        (!path.is_empty()).then(|| PathBuf::from(path))
    }
}
