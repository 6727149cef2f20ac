//! Flags and environment of koordlet. Spec: koordlet-observe 1.1 to 1.4.
//!
//! [`parse`] gives typed [`Options`]. A new flag is a row in a table and a field.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use koord_api::duration::GoDuration;
use koord_api::gate::{Component, GateError, Gates};
use koord_kit::flags::{self, FEATURE_GATES, Flag, FlagErrors, LOG_FLAGS, Values, log_options};
use koord_kit::http::Listen;
use koord_kit::log::{LogError, LogOptions};
use koord_linux::root::Root;

use crate::decide::hooks::gpu::Hami;
use crate::state::MetricPace;

mod table;

#[cfg(test)]
mod tests;

pub use table::TABLES;

/// Which of a node's addresses kubelet may be asked at.
const ADDRESS_TYPES: [&str; 5] = ["Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"];

/// Ten years: more seconds mean as much as for ever, and a clock cannot be asked for what comes after so many.
const SECONDS_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A checked command line, with what the environment says.
#[derive(Clone, Debug)]
pub struct Options {
    pub addr: Listen,
    /// Whether metrics of requests and limits carry their own units, not upstream's.
    pub has_correct_units: bool,
    /// Give back what an earlier run changed, and end.
    pub clean_up: bool,
    pub node_name: String,
    pub kubeconfig: String,
    pub qps: f32,
    pub burst: i32,
    pub root: Root,
    /// Whether this process sees the host's files where they are, so that programs need not be run elsewhere.
    pub is_host_mode: bool,
    pub runtimes: RuntimeOptions,
    pub kubelet: KubeletOptions,
    pub reports: ReportOptions,
    pub collect: CollectOptions,
    pub store: StoreOptions,
    pub audit: AuditOptions,
    pub prediction: PredictionOptions,
    pub qos: QosOptions,
    pub hooks: HookOptions,
    /// The folder of the socket that tells of devices; none when its gate is off.
    pub pod_resources: Option<PathBuf>,
    pub gates: Gates,
    pub log: LogOptions,
    /// Of deprecated flags, and of flags that have no effect.
    pub warnings: Vec<String>,
}

/// Sockets of container runtimes; empty ones are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeOptions {
    pub containerd: String,
    pub docker: String,
    pub pouch: String,
}

/// How kubelet is asked. Spec: koordlet-observe 3.4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletOptions {
    pub address_type: String,
    /// None is never.
    pub sync_interval: Option<Duration>,
    pub timeout: Duration,
    /// Plain HTTP to the read-only port.
    pub is_insecure: bool,
    pub read_only_port: u16,
    /// None trusts any certificate.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key to show in place of the API client's credentials.
    pub client_files: Option<(PathBuf, PathBuf)>,
    pub is_config_queried: bool,
    /// Differs: threads are looked up when a pod with its own share of caches needs them, so this changes nothing.
    pub has_task_ids: bool,
}

/// What is reported. Spec: koordlet-observe 6 to 8.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportOptions {
    pub has_node_metric: bool,
    /// No flag: the original's, unless whoever starts koordlet in its own process says otherwise.
    pub pace: MetricPace,
    /// Of topology and devices; none is never.
    pub topology_interval: Option<Duration>,
    pub xpu_dir: PathBuf,
    pub is_xpu_only: bool,
    /// Errors after which a GPU is still healthy.
    pub ignored_xids: BTreeSet<u64>,
}

/// How the node is measured. Spec: koordlet-observe 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectOptions {
    pub interval: Duration,
    pub outdated_after: Duration,
    pub node_info_interval: Duration,
    pub storage_interval: Duration,
    pub cpi_interval: Duration,
    pub cpi_window: Duration,
    pub psi_interval: Duration,
    pub cold_page_interval: Duration,
    pub resctrl_interval: Duration,
    pub has_page_cache: bool,
    pub has_resctrl: bool,
}

impl CollectOptions {
    /// More often than once a second nothing is measured at all, as upstream has it.
    pub fn is_on(&self) -> bool {
        self.interval >= Duration::from_secs(1)
    }
}

/// The store of measurements. Spec: koordlet-observe 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    pub path: PathBuf,
    pub retention: Duration,
    pub bytes_max: u64,
    pub has_metrics: bool,
}

/// Spec: koordlet-observe 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    pub dir: PathBuf,
    /// 0 is no limit.
    pub verbose: u32,
    pub disk_mib_max: u64,
    pub readers_max: usize,
    pub events_max: usize,
}

/// Spec: koordlet-observe 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictionOptions {
    pub checkpoint_dir: PathBuf,
    pub cold_start: Duration,
    pub margin_percent: u32,
    pub memory_half_life: Duration,
    pub cpu_half_life: Duration,
    pub training_interval: Duration,
    pub model_expiration: Duration,
    pub checkpoint_interval: Duration,
    pub checkpoints_per_step: usize,
}

/// Spec: koordlet-enforce 0, 3, 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosOptions {
    pub reconcile_interval: Duration,
    pub suppress_interval: Duration,
    pub cpu_evict_interval: Duration,
    pub memory_evict_interval: Duration,
    pub cpu_evict_cool: Duration,
    pub memory_evict_cool: Duration,
    pub only_evict_by_api: bool,
    pub force_update_after: Duration,
    /// Of all pods together; 0 for none.
    pub pod_events_per_hour: u32,
}

/// Spec: koordlet-enforce 14.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookOptions {
    pub reconcile_interval: Duration,
    pub is_quota_unset_disabled: bool,
    /// The library that keeps parts of GPUs apart.
    pub hami: Hami,
    pub server: HookServerOptions,
}

/// How the runtime proxy asks hooks. Spec: koordlet-enforce 14.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookServerOptions {
    pub socket: PathBuf,
    /// The same, as the host sees it.
    pub host_socket: PathBuf,
    /// Where the proxy looks for hook servers.
    pub directory: PathBuf,
    /// What the proxy does when we do not answer.
    pub failure_policy: String,
    /// Whether a hook that fails fails the request.
    pub is_strict: bool,
    /// Stages that the proxy is not told of.
    pub disabled_stages: Vec<String>,
}

/// The failure policy that lets nobody pass.
const FAIL: &str = "Fail";

/// What is wrong with a command line.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error(transparent)]
    Flags(FlagErrors),
    /// A gate without a value that can be read, as a wrong flag is.
    #[error(transparent)]
    GateValue(GateError),
    #[error("Unable to setup feature-gates: unrecognized feature gate: {0}")]
    UnknownGate(String),
    #[error("Unable to setup feature-gates: {0}")]
    Gate(GateError),
    #[error(transparent)]
    Log(LogError),
    /// One line for each flag or variable with an unusable value.
    #[error("{}", .0.join("\n"))]
    Values(Vec<String>),
}

impl OptionsError {
    /// Go's flag package ends a process with 2; what is checked later ends it with 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            OptionsError::Flags(_) | OptionsError::GateValue(_) => 2,
            _ => 1,
        }
    }
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
            "Watches a node, protects its important pods and lends the rest of it to best-effort ones.";
        return Ok(Request::Help(flags::help("koordlet", about, &tables)));
    }
    if values.version {
        return Ok(Request::Version);
    }
    options(&values, variable).map(|options| Request::Run(Box::new(options)))
}

fn options(values: &Values, variable: impl Fn(&str) -> Option<String>) -> Result<Options, OptionsError> {
    let mut reader = Reader { values, wrong: Vec::new(), warnings: values.warnings.clone() };
    let gates = flags::feature_gates(values, Component::Koordlet).map_err(|error| match error {
        GateError::Unknown { name, .. } => OptionsError::UnknownGate(name),
        GateError::MissingValue { .. } | GateError::NotBool { .. } => OptionsError::GateValue(error),
        GateError::Locked { .. } => OptionsError::Gate(error),
    })?;
    if !values.rest.is_empty() {
        reader.wrong.push(format!("koordlet takes no arguments, got {:?}", values.rest));
    }
    let node_name = variable("NODE_NAME").unwrap_or_default();
    if node_name.is_empty() {
        reader.wrong.push("failed to new daemon: NODE_NAME env is empty".to_owned());
    }
    let is_host_mode = variable("agent_mode").as_deref() == Some("hostMode");
    let options = Options {
        addr: reader.address("addr"),
        has_correct_units: values.bool("correct-resource-units"),
        clean_up: values.bool("clean-up"),
        node_name,
        kubeconfig: values.text("kubeconfig").to_owned(),
        qps: reader.rate("kube-api-qps"),
        burst: i32::try_from(values.int("kube-api-burst")).unwrap_or(i32::MAX),
        root: root(values, is_host_mode),
        is_host_mode,
        runtimes: RuntimeOptions {
            containerd: values.text("containerd-endpoint").to_owned(),
            docker: values.text("docker-endpoint").to_owned(),
            pouch: values.text("pouch-endpoint").to_owned(),
        },
        kubelet: reader.kubelet(),
        reports: ReportOptions {
            has_node_metric: values.bool("enable-node-metric-report"),
            pace: MetricPace::default(),
            topology_interval: reader.interval("node-topology-sync-interval"),
            xpu_dir: values.text("xpu-device-infos-dir").into(),
            is_xpu_only: values.bool("xpu-enforce-collect-from-device-infos"),
            ignored_xids: reader.xids("gpu-ignored-xids"),
        },
        collect: reader.collect(),
        store: reader.store(),
        audit: reader.audit(),
        prediction: reader.prediction(),
        qos: reader.qos(),
        hooks: HookOptions {
            reconcile_interval: reader.duration("runtime-hooks-reconcile-interval"),
            is_quota_unset_disabled: values.bool("disable-unset-cpu-quota"),
            hami: Hami {
                library: values.text("hami-core-library-directory-path").to_owned(),
                is_monitored: gates.is_on("HamiCoreVGPUMonitor"),
            },
            server: reader.hook_server(is_host_mode),
        },
        pod_resources: gates.is_on("PodResourcesProxy").then(|| reader.path("pod-resources-proxy-path")),
        gates,
        log: log_options(values).map_err(OptionsError::Log)?,
        warnings: std::mem::take(&mut reader.warnings),
    };
    if reader.wrong.is_empty() { Ok(options) } else { Err(OptionsError::Values(reader.wrong)) }
}

/// Where the host's files are: as the mode says, or as a flag says. Spec: koordlet-observe 1.2.
fn root(values: &Values, is_host_mode: bool) -> Root {
    let mode = if is_host_mode { Root::host("/") } else { Root::daemonset() };
    let dir = |name: &str, default: PathBuf| match values.text(name) {
        "" => default,
        given => PathBuf::from(given),
    };
    Root {
        cgroup: dir("cgroup-root-dir", mode.cgroup),
        proc: dir("proc-root-dir", mode.proc),
        sys: dir("sys-root-dir", mode.sys),
        sys_fs: dir("sys-fs-root-dir", mode.sys_fs),
        var_run: dir("var-run-root-dir", mode.var_run),
        run: dir("run-root-dir", mode.run),
        kubelet: dir("var-lib-kubelet-dir", mode.kubelet),
        state: match values.text("var-run-root-dir") {
            "" => mode.state,
            given => Path::new(given).join("koordlet"),
        },
    }
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

    fn address(&mut self, name: &str) -> Listen {
        let text = self.values.text(name);
        text.parse().unwrap_or_else(|_| {
            self.refuse(name, text, "an address such as :9316, 127.0.0.1:9316 or [::1]:9316");
            Listen::Everywhere { port: 0 }
        })
    }

    /// The value of a duration, or of its older spelling in seconds where that was used.
    fn go_duration(&self, name: &str) -> GoDuration {
        let old = table::OLD_SECONDS.iter().find(|(_, new)| *new == name).map(|(old, _)| *old);
        match old.filter(|old| self.values.is_given(old) && !self.values.is_given(name)) {
            Some(old) => GoDuration::from_seconds(self.values.int(old)),
            None => self.values.duration(name),
        }
    }

    fn duration(&mut self, name: &str) -> Duration {
        let value = self.go_duration(name);
        value.to_std().unwrap_or_else(|| {
            self.refuse(name, value.to_string(), "a duration that is not negative");
            Duration::ZERO
        })
    }

    /// How often something happens; zero or less is never.
    fn interval(&mut self, name: &str) -> Option<Duration> {
        self.go_duration(name).to_std().filter(|interval| !interval.is_zero())
    }

    fn rate(&mut self, name: &str) -> f32 {
        let value = self.values.float(name);
        if value.is_finite() && (0.0..=1e6).contains(&value) {
            // Rates are small and need no more digits than a text of seven gives.
            return value.to_string().parse().unwrap_or(f32::MAX);
        }
        self.refuse(name, value, "a number that is not negative");
        0.0
    }

    fn number<N: TryFrom<i64> + Default>(&mut self, name: &str) -> N {
        let value = self.values.int(name);
        N::try_from(value).unwrap_or_else(|_| {
            self.refuse(name, value, "a number that is not negative");
            N::default()
        })
    }

    fn xids(&mut self, name: &str) -> BTreeSet<u64> {
        let words = self.values.list(name);
        let numbers = words.iter().map(|word| word.trim().parse()).collect::<Result<BTreeSet<u64>, _>>();
        numbers.unwrap_or_else(|_| {
            self.refuse(name, words, "numbers such as 13,31");
            BTreeSet::new()
        })
    }

    /// Whole seconds; very many are cut short.
    fn seconds(&mut self, name: &str) -> Duration {
        Duration::from_secs(self.number(name)).min(SECONDS_MAX)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.values.text(name).into()
    }

    fn kubelet(&mut self) -> KubeletOptions {
        let given = self.values.text("kubelet-preferred-address-type");
        let is_known = ADDRESS_TYPES.contains(&given);
        if !is_known {
            self.warnings
                .push(format!("kubelet-preferred-address-type {given:?} is unknown, InternalIP is used"));
        }
        let is_insecure = self.values.bool("kubelet-insecure-tls");
        let is_disabled = self.values.bool("disable-query-kubelet-config");
        if is_insecure && !is_disabled {
            // The read-only port has no /configz: upstream then never reports a topology.
            self.warnings.push(
                "kubelet's configuration is not asked for: its read-only port (--kubelet-insecure-tls) does not tell it"
                    .to_owned(),
            );
        }
        let ca_file = self.path("kubelet-ca-file");
        KubeletOptions {
            address_type: if is_known { given } else { "InternalIP" }.to_owned(),
            sync_interval: self.interval("kubelet-sync-interval"),
            timeout: self.duration("kubelet-sync-timeout"),
            is_insecure,
            read_only_port: self.number("kubelet-read-only-port"),
            ca_file: (!ca_file.as_os_str().is_empty()).then_some(ca_file),
            client_files: self.client_files(),
            is_config_queried: !is_disabled && !is_insecure,
            has_task_ids: self.values.bool("enable-pod-taskids"),
        }
    }

    fn hook_server(&mut self, is_host_mode: bool) -> HookServerOptions {
        let network = self.values.text("runtime-hooks-network");
        if network != "unix" {
            self.refuse("runtime-hooks-network", network, "unix");
        }
        let directory = match self.values.text("runtime-hooks-config-path") {
            "" if is_host_mode => "/etc/runtime/hookserver.d",
            "" => "/host-etc-hookserver/",
            given => given,
        };
        let [failure_policy, plugin_policy] =
            ["runtime-hooks-failure-policy", "runtime-hooks-plugin-failure-policy"]
                .map(|name| self.failure_policy(name));
        HookServerOptions {
            socket: self.path("runtime-hooks-addr"),
            host_socket: self.path("runtime-hooks-host-endpoint"),
            directory: directory.into(),
            failure_policy,
            is_strict: plugin_policy == FAIL,
            disabled_stages: self.values.list("runtime-hooks-disable-stages").to_vec(),
        }
    }

    fn failure_policy(&mut self, name: &str) -> String {
        let policy = self.values.text(name);
        if ![FAIL, "Ignore"].contains(&policy) {
            self.refuse(name, policy, "Ignore or Fail (failure policy type not supported)");
        }
        policy.to_owned()
    }

    /// Both or neither.
    fn client_files(&mut self) -> Option<(PathBuf, PathBuf)> {
        let (certificate, key) = (self.path("kubelet-client-certificate"), self.path("kubelet-client-key"));
        let is_given = |path: &PathBuf| !path.as_os_str().is_empty();
        match (is_given(&certificate), is_given(&key)) {
            (true, true) => Some((certificate, key)),
            (false, false) => None,
            _ => {
                self.wrong
                    .push("kubelet-client-certificate and kubelet-client-key are needed both".to_owned());
                None
            }
        }
    }

    fn collect(&mut self) -> CollectOptions {
        CollectOptions {
            interval: self.duration("collect-res-used-interval"),
            outdated_after: self.duration("collect-sys-metric-outdated-interval"),
            node_info_interval: self.duration("collect-node-cpu-info-interval"),
            storage_interval: self.duration("collect-node-storage-info-interval"),
            cpi_interval: self.duration("cpi-collector-interval"),
            cpi_window: self.duration("collect-cpi-timewindow"),
            psi_interval: self.duration("psi-collector-interval"),
            cold_page_interval: self.duration("coldpage-collector-interval"),
            resctrl_interval: self.duration("resctrl-collector-interval"),
            has_page_cache: self.values.bool("enable-pagecache-collector"),
            has_resctrl: self.values.bool("enable-resctrl-collector"),
        }
    }

    fn store(&mut self) -> StoreOptions {
        StoreOptions {
            path: self.path("tsdb-path"),
            retention: self.duration("tsdb-retention-duration"),
            bytes_max: self.number("tsdb-max-bytes"),
            has_metrics: self.values.bool("tsdb-enable-prometheus-metric"),
        }
    }

    fn audit(&mut self) -> AuditOptions {
        let disk_mib_max = self.number("audit-max-disk-space-mb");
        if disk_mib_max == 0 {
            self.refuse("audit-max-disk-space-mb", 0, "a number above 0");
        }
        AuditOptions {
            dir: self.path("audit-log-dir"),
            verbose: self.number("audit-verbose"),
            disk_mib_max,
            readers_max: self.number("audit-max-concurrent-readers"),
            events_max: self.number("audit-max-events-limit"),
        }
    }

    fn prediction(&mut self) -> PredictionOptions {
        PredictionOptions {
            checkpoint_dir: self.path("prediction-checkpoint-filepath"),
            cold_start: self.duration("prediction-cold-start-duration"),
            margin_percent: self.number("prediction-safety-margin-percent"),
            memory_half_life: self.duration("prediction-memory-histogram-decay-halflife"),
            cpu_half_life: self.duration("prediction-cpu-histogram-decay-halflife"),
            training_interval: self.duration("prediction-training-interval"),
            model_expiration: self.duration("prediction-model-expiration-duration"),
            checkpoint_interval: self.duration("prediction-model-checkpoint-interval"),
            checkpoints_per_step: self.number("prediction-model-checkpoint-max-per-step"),
        }
    }

    fn qos(&mut self) -> QosOptions {
        QosOptions {
            reconcile_interval: self.seconds("reconcile-interval-seconds"),
            suppress_interval: self.seconds("cpu-suppress-interval-seconds"),
            cpu_evict_interval: self.seconds("cpu-evict-interval-seconds"),
            memory_evict_interval: self.seconds("memory-evict-interval-seconds"),
            cpu_evict_cool: self.seconds("cpu-evict-cool-time-seconds"),
            memory_evict_cool: self.seconds("memory-evict-cool-time-seconds"),
            only_evict_by_api: self.values.bool("only-evict-by-api"),
            force_update_after: self.seconds("resource-force-update-seconds"),
            pod_events_per_hour: self.number("pod-events-per-hour"),
        }
    }
}

/// What a line of flags means on node `n1`, for tests that begin with one.
#[cfg(test)]
pub(crate) fn of_line(line: &str) -> Options {
    let variable = |name: &str| (name == "NODE_NAME").then(|| "n1".to_owned());
    match parse(line.split_whitespace(), variable) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}
