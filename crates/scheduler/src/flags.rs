//! The command line of koord-scheduler: kube-scheduler's flags and Koordinator's own.
//!
//! [`parse`] gives typed [`Options`]; what a flag may say about the configuration file is in
//! [`Options::overrides`]. A new flag is a row in a table and a field. Spec: scheduler-core 7.1, 8 and 9.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use koord_api::gate::{Component, GateError, Gates};
use koord_kit::flags::{self, FEATURE_GATES, Flag, FlagErrors, Kind, LOG_FLAGS, Values, log_options};
use koord_kit::log::{LogError, LogOptions};

use crate::config::Overrides;

mod table;

pub use table::TABLES;

/// A checked command line.
#[derive(Clone, Debug)]
pub struct Options {
    pub config: Option<PathBuf>,
    /// Write the effective configuration there and exit.
    pub write_config_to: Option<PathBuf>,
    /// The API server's address, in place of the kubeconfig's.
    pub master: Option<String>,
    pub overrides: Overrides,
    /// HTTP without authentication; none is off.
    pub plain: Option<Listen>,
    /// HTTPS; none is off.
    pub secure: Option<Listen>,
    pub certificate: Certificate,
    pub authentication: Authentication,
    pub authorization: Authorization,
    /// How long a pod may stay unschedulable before it is tried again whatever happens.
    pub pod_max_in_unschedulable: Duration,
    pub controller_plugins: ControllerPlugins,
    pub debug: Debug,
    pub monitor: Monitor,
    pub sync_barrier: SyncBarrier,
    /// None when nothing is recorded.
    pub record: Option<Record>,
    pub gates: Gates,
    pub log: LogOptions,
    /// Of deprecated flags, and of flags that have no effect.
    pub warnings: Vec<String>,
}

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    pub address: IpAddr,
    pub port: u16,
}

/// The server's certificate; made in memory when nothing is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    pub directory: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

/// Who may talk to the HTTPS port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    pub kubeconfig: Option<PathBuf>,
    /// Do not look for the cluster's own settings.
    pub skip_lookup: bool,
    pub tolerate_lookup_failure: bool,
    pub client_ca_file: Option<PathBuf>,
    pub request_headers: RequestHeaders,
    pub token_cache_ttl: Duration,
}

/// Proxies that say in headers for whom they ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeaders {
    /// Their authority; without it the cluster's own settings count.
    pub client_ca_file: Option<PathBuf>,
    /// Common names that they may have; any when there are none.
    pub allowed_names: Vec<String>,
    pub username: Vec<String>,
    pub uid: Vec<String>,
    pub group: Vec<String>,
    pub extra_prefix: Vec<String>,
}

/// What they may do there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    pub kubeconfig: Option<PathBuf>,
    pub always_allow_paths: Vec<String>,
    pub authorized_cache_ttl: Duration,
    pub unauthorized_cache_ttl: Duration,
}

/// What is logged of single decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debug {
    /// How many of the best nodes; 0 is off.
    pub top_scores: usize,
    pub filters: bool,
    pub diagnosis: bool,
    pub diagnosis_blocking: bool,
    pub diagnosis_queue_size: usize,
    pub diagnosis_workers: usize,
}

/// When a slow cycle is complained about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitor {
    pub period: Duration,
    pub timeout: Duration,
    pub drop_unhandled_after: Duration,
}

/// The pod by which a new leader knows that its caches are new enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncBarrier {
    pub pod_namespace: String,
    pub pod_name: String,
    pub hard_timeout: Duration,
}

/// Where everything that decisions depend on is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub file: PathBuf,
    /// Bytes.
    pub limit: u64,
}

/// Which plugins may run their controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerPlugins(Vec<String>);

impl ControllerPlugins {
    pub fn new(list: &[String]) -> ControllerPlugins {
        ControllerPlugins(list.to_vec())
    }

    /// The first mention of the plugin decides, then whether all are on. Spec: scheduler-core 9.1.
    pub fn is_on(&self, plugin: &str) -> bool {
        for word in &self.0 {
            if word == plugin {
                return true;
            }
            if word.strip_prefix('-') == Some(plugin) {
                return false;
            }
        }
        self.0.iter().any(|word| word == "*")
    }
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
    /// One line for each flag with an unusable value.
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

/// Reads the words after the program's name.
pub fn parse<I>(words: I) -> Result<Request, OptionsError>
where
    I: IntoIterator,
    I::Item: Into<String>,
{
    let tables: Vec<&[Flag]> = TABLES.iter().copied().chain([LOG_FLAGS, &[FEATURE_GATES]]).collect();
    let values = flags::parse(&tables, words).map_err(OptionsError::Flags)?;
    if values.help {
        let about = "Places pods on nodes: kube-scheduler with Koordinator's plugins.";
        return Ok(Request::Help(flags::help("koord-scheduler", about, &tables)));
    }
    if values.version {
        return Ok(Request::Version);
    }
    options(&values).map(|options| Request::Run(Box::new(options)))
}

fn options(values: &Values) -> Result<Options, OptionsError> {
    let mut reader = Reader { values, wrong: Vec::new() };
    if !values.rest.is_empty() {
        reader.wrong.push(format!("\"koord-scheduler\" does not take any arguments, got {:?}", values.rest));
    }
    let mut warnings = values.warnings.clone();
    let options = Options {
        config: reader.path("config"),
        write_config_to: reader.path("write-config-to"),
        master: reader.text("master"),
        overrides: reader.overrides(&mut warnings),
        plain: reader.listen("address", "port"),
        secure: reader.listen("bind-address", "secure-port"),
        certificate: Certificate {
            directory: reader.path("cert-dir"),
            cert_file: reader.path("tls-cert-file"),
            key_file: reader.path("tls-private-key-file"),
        },
        authentication: reader.authentication(),
        authorization: reader.authorization(),
        pod_max_in_unschedulable: reader.duration("pod-max-in-unschedulable-pods-duration"),
        controller_plugins: ControllerPlugins::new(values.list("controller-plugins")),
        debug: reader.debug(),
        monitor: Monitor {
            period: reader.duration("scheduler-monitor-period"),
            timeout: reader.duration("scheduling-timeout"),
            drop_unhandled_after: reader.duration("scheduling-drop-unhandled-timeout"),
        },
        sync_barrier: SyncBarrier {
            pod_namespace: values.text("sync-barrier-pod-namespace").to_owned(),
            pod_name: values.text("sync-barrier-pod-name").to_owned(),
            hard_timeout: reader.duration("sync-hard-timeout"),
        },
        record: reader.record(),
        gates: gates(values)?,
        log: log_options(values).map_err(OptionsError::Log)?,
        warnings,
    };
    if reader.wrong.is_empty() { Ok(options) } else { Err(OptionsError::Values(reader.wrong)) }
}

/// kube-scheduler also takes a gate with its component before it: `kube:Name=true`.
fn gates(values: &Values) -> Result<Gates, OptionsError> {
    let pairs = values.map("feature-gates").iter();
    let pairs: Vec<String> =
        pairs.map(|(name, on)| format!("{}={on}", name.strip_prefix("kube:").unwrap_or(name))).collect();
    Gates::parse(Component::Scheduler, &pairs.join(",")).map_err(OptionsError::Gates)
}

/// Reads values and notes those that cannot be used.
struct Reader<'v> {
    values: &'v Values,
    wrong: Vec<String>,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        Some(self.values.text(name)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    fn refuse(&mut self, name: &str, value: impl std::fmt::Debug, wanted: &str) {
        self.wrong.push(format!("flag --{name}: {value:?} is not accepted, expected {wanted}"));
    }

    fn duration(&mut self, name: &str) -> Duration {
        let value = self.values.duration(name);
        value.to_std().unwrap_or_else(|| {
            self.refuse(name, value.to_string(), "a duration that is not negative");
            Duration::ZERO
        })
    }

    fn count(&mut self, name: &str) -> usize {
        let value = self.values.int(name);
        usize::try_from(value).unwrap_or_else(|_| {
            self.refuse(name, value, "a number that is not negative");
            0
        })
    }

    fn listen(&mut self, address: &str, port: &str) -> Option<Listen> {
        let number = self.values.int(port);
        let Ok(port) = u16::try_from(number) else {
            self.refuse(port, number, "a port from 0 to 65535, 0 for none");
            return None;
        };
        let text = self.values.text(address);
        match text.parse() {
            Ok(address) => (port != 0).then_some(Listen { address, port }),
            Err(_) => {
                self.refuse(address, text, "an IP address");
                None
            }
        }
    }

    fn authentication(&mut self) -> Authentication {
        Authentication {
            kubeconfig: self.path("authentication-kubeconfig"),
            skip_lookup: self.values.bool("authentication-skip-lookup"),
            tolerate_lookup_failure: self.values.bool("authentication-tolerate-lookup-failure"),
            client_ca_file: self.path("client-ca-file"),
            request_headers: self.request_headers(),
            token_cache_ttl: self.duration("authentication-token-webhook-cache-ttl"),
        }
    }

    fn request_headers(&mut self) -> RequestHeaders {
        let list = |name: &str| self.values.list(name).to_vec();
        RequestHeaders {
            client_ca_file: self.path("requestheader-client-ca-file"),
            allowed_names: list("requestheader-allowed-names"),
            username: list("requestheader-username-headers"),
            uid: list("requestheader-uid-headers"),
            group: list("requestheader-group-headers"),
            extra_prefix: list("requestheader-extra-headers-prefix"),
        }
    }

    fn authorization(&mut self) -> Authorization {
        Authorization {
            kubeconfig: self.path("authorization-kubeconfig"),
            always_allow_paths: self.values.list("authorization-always-allow-paths").to_vec(),
            authorized_cache_ttl: self.duration("authorization-webhook-cache-authorized-ttl"),
            unauthorized_cache_ttl: self.duration("authorization-webhook-cache-unauthorized-ttl"),
        }
    }

    fn debug(&mut self) -> Debug {
        Debug {
            top_scores: self.count("debug-scores"),
            filters: self.values.bool("debug-filters"),
            diagnosis: self.values.bool("debug-diagnosis"),
            diagnosis_blocking: self.values.bool("debug-diagnosis-blocking"),
            diagnosis_queue_size: self.count("debug-diagnosis-queue-size"),
            diagnosis_workers: self.count("debug-diagnosis-worker-count"),
        }
    }

    fn record(&mut self) -> Option<Record> {
        let text = self.values.text("record-limit");
        let limit = crate::record::parse_size(text);
        if limit.is_err() {
            self.refuse("record-limit", text, "a size of 1Mi at least");
        }
        Some(Record { file: self.path("record")?, limit: limit.ok()? })
    }

    /// Election flags always count, older ones only without a file.
    fn overrides(&mut self, warnings: &mut Vec<String>) -> Overrides {
        let values = self.values;
        let given = |name: &str| values.is_given(name);
        let text = |name: &str| given(name).then(|| values.text(name).to_owned());
        let duration = |name: &str| given(name).then(|| values.duration(name));
        let mut overrides = Overrides {
            leader_elect: given("leader-elect").then(|| values.bool("leader-elect")),
            lease_duration: duration("leader-elect-lease-duration"),
            renew_deadline: duration("leader-elect-renew-deadline"),
            retry_period: duration("leader-elect-retry-period"),
            resource_lock: text("leader-elect-resource-lock"),
            resource_name: text("leader-elect-resource-name"),
            resource_namespace: text("leader-elect-resource-namespace"),
            // Differs: kube-scheduler forgets it when there is a file; then nothing says where the cluster is.
            kubeconfig: text("kubeconfig"),
            ..Overrides::default()
        };
        if given("config") {
            let ignored = table::WITHOUT_FILE.iter().filter(|name| given(name));
            warnings.extend(ignored.map(|name| format!("flag --{name} has no effect: --config is given")));
            return overrides;
        }
        let flag = |name: &str| given(name).then(|| values.bool(name));
        overrides.content_type = text("kube-api-content-type");
        overrides.qps = given("kube-api-qps").then(|| values.float("kube-api-qps")).map(to_f32);
        overrides.enable_profiling = flag("profiling");
        overrides.enable_contention_profiling = flag("contention-profiling");
        if given("kube-api-burst") {
            let burst = values.int("kube-api-burst");
            overrides.burst = i32::try_from(burst).ok();
            if overrides.burst.is_none() {
                self.refuse("kube-api-burst", burst, "a smaller number");
            }
        }
        overrides
    }
}

/// Requests per second need no more digits than this.
fn to_f32(value: f64) -> f32 {
    value.to_string().parse().unwrap_or(f32::MAX)
}

#[cfg(test)]
mod tests;
