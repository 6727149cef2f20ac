//! Flags and environment of koord-manager. Spec: manager 1.1, 1.2.
//!
//! [`parse`] gives typed [`Options`]. A new flag is a row in a table and a field.

use std::time::Duration;

use koord_api::duration::GoDuration;
use koord_api::gate::{Component, GateError, Gates, parse_bool};
use koord_kit::flags::{self, Chosen, FEATURE_GATES, Flag, FlagErrors, LOG_FLAGS, Values, log_options};
use koord_kit::http::Listen;
use koord_kit::log::{LogError, LogOptions};

use crate::webhook::settings::Settings;

mod table;

#[cfg(test)]
mod tests;

pub use table::TABLES;

/// What informers do when nobody says how often.
const SYNC_PERIOD_DEFAULT: Duration = Duration::from_secs(10 * 60 * 60);

/// A checked command line, with what the environment says about webhooks.
#[derive(Clone, Debug)]
pub struct Options {
    pub kubeconfig: String,
    /// None is nowhere.
    pub metrics: Option<Listen>,
    /// None is nowhere.
    pub health: Option<Listen>,
    /// None when every replica acts.
    pub election: Option<Election>,
    /// Of kinds that have namespaces only those in this one are read; none is all.
    pub namespace: Option<String>,
    /// How often everything is looked at again; none is never.
    pub sync_period: Option<Duration>,
    pub qps: f32,
    pub burst: i32,
    pub controllers: Chosen,
    pub node_resource_plugins: Chosen,
    /// The ConfigMap with the strategies.
    pub config_name: String,
    pub config_namespace: String,
    /// Whether entries for nodes in the ConfigMap must have names, each its own. Spec: manager 20.
    pub node_strategy_names: bool,
    pub profiles: ProfileOptions,
    pub enhanced_validator: EnhancedValidatorOptions,
    pub quota_update: QuotaUpdateOptions,
    pub binding_admission: BindingAdmissionOptions,
    pub webhook: Settings,
    pub gates: Gates,
    pub log: LogOptions,
    /// Of deprecated flags, and of flags that have no effect.
    pub warnings: Vec<String>,
}

/// Where the lease lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// None is the namespace of this pod.
    pub namespace: Option<String>,
}

/// The ClusterColocationProfile controller. Spec: manager 12.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileOptions {
    pub reconcile_by_default: bool,
    pub reconcile_interval: Duration,
    pub force_update_after: Duration,
    pub update_qps: f64,
    pub update_burst: u32,
}

/// The enhanced validator of pods. Spec: manager 16.6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnhancedValidatorOptions {
    pub config_namespace: String,
    pub config_name: String,
    pub reconcile_interval: Duration,
}

/// How a quota's usage is written at admission. Spec: manager 18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUpdateOptions {
    pub retries_max: u32,
    pub retry_jitter: Duration,
    pub total_jitter_max: Duration,
    /// After a conflict the quota is read from the API server rather than from the cache.
    pub reads_after_conflict: bool,
}

/// Who may bind pods. Spec: manager 22.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingAdmissionOptions {
    pub user_name: String,
    pub dry_run: bool,
    /// `*` is all.
    pub namespaces: Vec<String>,
    pub exclude_namespaces: Vec<String>,
    pub bypass_labels: Vec<String>,
    pub bypass_annotations: Vec<String>,
}

/// What is wrong with a command line.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error(transparent)]
    Flags(FlagErrors),
    #[error(transparent)]
    Gates(GateError),
    #[error(transparent)]
    Log(LogError),
    /// One line for each flag or variable with an unusable value.
    #[error("{}", .0.join("\n"))]
    Values(Vec<String>),
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Request {
    Help(String),
    Version,
    Run(Box<Options>),
}

/// Reads the words after the program's name; `variable` looks into the environment.
pub fn parse<I>(words: I, variable: impl Fn(&str) -> Option<String>) -> Result<Request, OptionsError>
where
    I: IntoIterator,
    I::Item: Into<String>,
{
    let tables: Vec<&[Flag]> = TABLES.iter().copied().chain([LOG_FLAGS, &[FEATURE_GATES]]).collect();
    let values = flags::parse(&tables, words).map_err(OptionsError::Flags)?;
    if values.help {
        let about =
            "Reclaims unused capacity, tells agents their strategies, keeps quota trees, admits pods.";
        return Ok(Request::Help(flags::help("koord-manager", about, &tables)));
    }
    if values.version {
        return Ok(Request::Version);
    }
    options(&values, variable).map(|options| Request::Run(Box::new(options)))
}

fn options(values: &Values, variable: impl Fn(&str) -> Option<String>) -> Result<Options, OptionsError> {
    let mut reader = Reader { values, wrong: Vec::new(), warnings: values.warnings.clone() };
    let webhook = Settings::new(variable).map_err(|error| OptionsError::Values(vec![error.to_string()]))?;
    if !values.rest.is_empty() {
        reader.wrong.push(format!("koord-manager takes no arguments, got {:?}", values.rest));
    }
    let text = |name: &str| values.text(name).to_owned();
    let options = Options {
        kubeconfig: text("kubeconfig"),
        metrics: reader.address("metrics-addr"),
        health: reader.address("health-probe-addr"),
        election: values
            .bool("enable-leader-election")
            .then(|| Election { namespace: given(values.text("leader-election-namespace")) }),
        namespace: given(values.text("namespace")),
        sync_period: reader.sync_period(),
        qps: f32::from(i16::try_from(values.int("rest-config-qps")).unwrap_or(i16::MAX)),
        burst: i32::try_from(values.int("rest-config-burst")).unwrap_or(i32::MAX),
        controllers: Chosen::new(values.list("controllers")),
        node_resource_plugins: Chosen::new(values.list("noderesource-plugins")),
        config_name: text("slo-config-name"),
        config_namespace: text("config-namespace"),
        node_strategy_names: reader.boolean_text("node-strategy-name-need-check"),
        profiles: reader.profiles(),
        enhanced_validator: EnhancedValidatorOptions {
            config_namespace: text("pod-enhanced-validator-config-namespace"),
            config_name: text("pod-enhanced-validator-config-name"),
            reconcile_interval: reader.duration("pod-enhanced-validator-reconcile-interval"),
        },
        quota_update: QuotaUpdateOptions {
            retries_max: reader.count("quota-update-max-retries"),
            retry_jitter: reader.duration("quota-update-retry-jitter"),
            total_jitter_max: reader.duration("quota-update-max-total-jitter"),
            reads_after_conflict: values.bool("quota-update-conflict-fresh-get"),
        },
        binding_admission: binding_admission(values),
        webhook,
        gates: flags::feature_gates(values, Component::Manager).map_err(OptionsError::Gates)?,
        log: log_options(values).map_err(OptionsError::Log)?,
        warnings: std::mem::take(&mut reader.warnings),
    };
    if reader.wrong.is_empty() { Ok(options) } else { Err(OptionsError::Values(reader.wrong)) }
}

fn binding_admission(values: &Values) -> BindingAdmissionOptions {
    let list = |name: &str| {
        let words = values.text(name).split(',').map(str::trim);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    BindingAdmissionOptions {
        user_name: values.text("binding-admission-user-name").to_owned(),
        dry_run: values.bool("binding-admission-dry-run"),
        namespaces: list("binding-admission-namespaces"),
        exclude_namespaces: list("binding-admission-exclude-namespaces"),
        bypass_labels: list("binding-admission-bypass-labels"),
        bypass_annotations: list("binding-admission-bypass-annotations"),
    }
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Reads values and notes those that cannot be used.
struct Reader<'v> {
    values: &'v Values,
    wrong: Vec<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn refuse(&mut self, name: &str, value: impl std::fmt::Debug, wanted: &str) {
        self.wrong.push(format!("flag --{name}: {value:?} is not accepted, expected {wanted}"));
    }

    /// A place, or `0` for nowhere.
    fn address(&mut self, name: &str) -> Option<Listen> {
        let text = self.values.text(name);
        if matches!(text, "" | "0") {
            return None;
        }
        let address = text.parse().ok();
        if address.is_none() {
            self.refuse(name, text, "an address such as :8080, 127.0.0.1:8080 or [::1]:8080, or 0 for none");
        }
        address
    }

    fn duration(&mut self, name: &str) -> Duration {
        let value = self.values.duration(name);
        value.to_std().unwrap_or_else(|| {
            self.refuse(name, value.to_string(), "a duration that is not negative");
            Duration::ZERO
        })
    }

    fn count(&mut self, name: &str) -> u32 {
        let value = self.values.int(name);
        u32::try_from(value).unwrap_or_else(|_| {
            self.refuse(name, value, "a number that is not negative");
            0
        })
    }

    /// A switch that is a text for historical reasons.
    fn boolean_text(&mut self, name: &str) -> bool {
        let text = self.values.text(name);
        parse_bool(text).unwrap_or_else(|| {
            self.refuse(name, text, "true or false");
            false
        })
    }

    /// What cannot be read is told and left out, as upstream does.
    fn sync_period(&mut self) -> Option<Duration> {
        let text = self.values.text("sync-period");
        if text.is_empty() {
            return Some(SYNC_PERIOD_DEFAULT);
        }
        match text.parse::<GoDuration>().ok().and_then(GoDuration::to_std) {
            Some(period) => Some(period).filter(|period| !period.is_zero()),
            None => {
                self.warnings.push(format!("flag --sync-period: {text:?} is no duration and is ignored"));
                Some(SYNC_PERIOD_DEFAULT)
            }
        }
    }

    fn profiles(&mut self) -> ProfileOptions {
        ProfileOptions {
            reconcile_by_default: self.values.bool("colocation-profile-reconcile-by-default"),
            reconcile_interval: self.duration("colocation-profile-reconcile-interval"),
            force_update_after: self.duration("colocation-profile-force-update-pod-duration"),
            update_qps: self.values.float("colocation-profile-update-pod-qps"),
            update_burst: self.count("colocation-profile-update-pod-qps-burst"),
        }
    }
}
