//! All parts wired together, started in order, and ended in order. Spec: koordlet-observe 1.1.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_kit::client::ClientError;
use koord_kit::http::{Check, Health, Listen, serve};
use koord_kit::metrics::{ClientMetrics, KitMetrics};
use koord_linux::cgroup::{Cgroups, Driver, Version};
use koord_linux::executor::Target;
use koord_linux::handle::raise_open_files;
use koord_linux::resource::Resource;
use koord_linux::root::Root;
use koord_linux::stat::page_bytes;
use koord_linux::system::SystemFile;
use koord_linux::{error, kubelet};
use kube::api::Api;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::node::{Asker, Brain, Mind, Parts, Readiness};
use super::{client_options, talk};
use crate::act::{Act, Leftovers, Setting, Today};
use crate::apply::{Applier, Change, Undo, undo_path};
use crate::audit::Auditor;
use crate::collect::{self, Collectors};
use crate::decide::hooks::stage;
use crate::devices::{self, Devices, GpuCollector};
use crate::evict::{Runtimes, Way, evictor};
use crate::explain::Explainer;
use crate::flags::Options;
use crate::hook_server;
use crate::metrics::{KoordletMetrics, Metric};
use crate::pod_resources;
use crate::records::{Recorders, Records};
use crate::serve::Pages;
use crate::state::State;
use crate::store::{Limits, Store};

/// How often audit records are written out and queries that ended are dropped.
const AUDIT_EVERY: Duration = Duration::from_secs(5);
/// How often, and how many times, kubelet is looked for to learn its cgroup driver.
const DRIVER_EVERY: Duration = Duration::from_secs(10);
const DRIVER_TRIES: u32 = 6;

/// Why koordlet did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot find the cgroups")]
    Cgroups(#[source] error::Error),
    #[error("cannot listen on {address}")]
    Listen { address: Listen, source: std::io::Error },
    #[error("cannot start the node's thread")]
    Thread(#[source] std::io::Error),
    /// Of `--clean-up`. The log names each of them.
    #[error("{files} files and {others} other things could not be given back; run it again once the cause is gone, for {} knows them still", .ledger.display())]
    CleanUp { files: usize, others: usize, ledger: PathBuf },
}

/// A running koordlet.
pub struct Running {
    pub address: SocketAddr,
    mind: Mind,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Running {
    /// Lives until asked to stop, then ends in order. False when it ended by itself.
    pub async fn until(mut self, asked: &CancellationToken) -> bool {
        let is_asked = tokio::select! {
            () = asked.cancelled() => true,
            () = self.mind.ended() => false,
        };
        self.stop.cancel();
        let mind = self.mind;
        // Saving may wait for a disk.
        let ended = tokio::task::spawn_blocking(move || mind.stop()).await;
        self.tasks.close();
        self.tasks.wait().await;
        is_asked && ended.is_ok()
    }
}

/// What all parts are made from.
pub(super) struct Base {
    pub(super) options: Options,
    pub(super) client: kube::Client,
    pub(super) kit: KitMetrics,
    pub(super) recorders: Recorders,
    pub(super) metrics: KoordletMetrics,
    pub(super) records: Records,
    pub(super) cgroups: Arc<Cgroups>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// Starts koordlet.
pub async fn start(options: Options, cluster: kube::Config) -> Result<Running, StartError> {
    let version = Version::detect(&options.root).map_err(StartError::Cgroups)?;
    let base = Base::new(options, cluster.clone(), version).await?;
    let readiness = Readiness::new();
    let act = Act::new(base.setting());
    let address = base.serve(&readiness, act.today()).await?;
    let state = State::default();
    let devices = base.devices()?;
    let parts = base.parts(state.clone(), readiness, devices.clone(), act);
    let mind = Mind::start(parts).map_err(StartError::Thread)?;
    talk::start(&base, &state, &cluster, mind.asker(), devices);
    base.serve_hooks(mind.asker());
    base.serve_pod_resources(&state);
    base.keep_audit();
    Ok(Running { address, mind, tasks: base.tasks, stop: base.stop })
}

/// What the node's thread owns, with nobody who talks beside it: for whoever tells the state and the time.
pub async fn alone(
    options: Options,
    cluster: kube::Config,
    version: Version,
    state: State,
) -> Result<Brain, StartError> {
    let base = Base::new(options, cluster, version).await?;
    let act = Act::new(base.setting());
    Ok(Brain::new(base.parts(state, Readiness::new(), None, act)))
}

impl Base {
    async fn new(options: Options, cluster: kube::Config, version: Version) -> Result<Base, StartError> {
        let metrics = KoordletMetrics::new(&options.node_name);
        metrics.set(Metric::StartTime, &[], seconds_now());
        let auditor = auditor(&options);
        let mut client = client_options(&options);
        client.metrics = Some(ClientMetrics::new(metrics.internal()));
        let client = koord_kit::client::client(cluster, &client)?;
        if let Err(error) = raise_open_files() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the limit of open files stays as it is"
            );
        }
        let driver = driver(&client, &options, version).await;
        tracing::info!(?version, ?driver, node = options.node_name, "starting");
        let cgroups = Arc::new(Cgroups::new(&options.root, version, driver));
        let kit = KitMetrics::new(metrics.internal());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (recorders, workers) = Recorders::new(&client, &options.node_name, &kit);
        for worker in workers {
            tasks.spawn(worker.run(stop.clone()));
        }
        let records = Records::with_events(auditor, recorders.clone(), options.qos.pod_events_per_hour);
        Ok(Base { client, kit, recorders, metrics, records, cgroups, tasks, stop, options })
    }

    async fn serve(&self, readiness: &Readiness, today: Today) -> Result<SocketAddr, StartError> {
        let address = self.options.addr;
        let failed = |source| StartError::Listen { address, source };
        let listener = address.bind().await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let health = Arc::new(Health::default());
        let readiness = readiness.clone();
        health.add(Check::ready("node", move || readiness.check()));
        let has_events = self.options.gates.is_on("AuditEventsHTTPHandler");
        let pages = Pages {
            health,
            metrics: self.metrics.clone(),
            events: has_events.then(|| self.records.auditor().clone()),
            explainer: Explainer { node: self.options.node_name.clone(), today },
        };
        self.tasks.spawn(serve(listener, pages.router(), None, self.stop.clone()));
        tracing::info!(%bound, "serving");
        Ok(bound)
    }

    /// Hooks for the runtime proxy.
    fn serve_hooks(&self, asker: Asker) {
        let server = &self.options.hooks.server;
        let stages = stage::registered(&self.options.gates, &server.disabled_stages);
        let is_strict = server.is_strict;
        let ask: hook_server::Ask = Arc::new(move |stage, asked, parent| {
            let asker = asker.clone();
            let until = Instant::now() + hook_server::ANSWER_WITHIN;
            let order = move |brain: &mut Brain| brain.hook(stage, &asked, &parent, is_strict, until);
            Box::pin(async move { asker.order(order).await })
        });
        hook_server::start(server, &stages, ask, &self.tasks, &self.stop);
    }

    /// Devices of pods for monitors, where a gate wants it.
    fn serve_pod_resources(&self, state: &State) {
        if let Some(dir) = &self.options.pod_resources {
            pod_resources::start(dir, &self.options.root, state, &self.tasks, &self.stop);
        }
    }

    /// The threads that ask drivers, where a gate wants them.
    fn devices(&self) -> Result<Option<Devices>, StartError> {
        let options = talk::device_options(&self.options);
        let is_on = options.is_any_on();
        let root = self.options.root.clone();
        is_on.then(|| devices::start(root, options)).transpose().map_err(StartError::Thread)
    }

    /// What the node's thread owns.
    fn parts(&self, state: State, health: Readiness, devices: Option<Devices>, act: Act) -> Parts {
        let options = &self.options;
        let way = if options.qos.only_evict_by_api {
            Way::Api(self.client.clone())
        } else {
            Way::Stop(Runtimes::new(&options.root.var_run, &options.runtimes))
        };
        let (sender, evictions) = evictor(
            way,
            Some(self.recorders.strategies.clone()),
            self.metrics.clone(),
            self.records.auditor().clone(),
        );
        self.tasks.spawn(evictions.run());
        let now_ms = jiff::Timestamp::now().as_millisecond();
        Parts {
            store: Store::open(&limits(options), now_ms),
            predictor: predictor(options),
            checkpoints: crate::predict::files::Files::new(&options.prediction.checkpoint_dir),
            training_interval: options.prediction.training_interval,
            is_measuring: options.collect.is_on(),
            collectors: Collectors::new(&options.root, self.cgroups.clone(), collect_settings(options)),
            state,
            gpus: devices.map(|devices| (devices, GpuCollector::new(self.cgroups.clone()))),
            act,
            applier: self.applier(),
            evictor: Box::new(sender),
            metrics: self.metrics.clone(),
            has_store_metrics: options.store.has_metrics,
            has_correct_units: options.has_correct_units,
            health,
        }
    }

    fn setting(&self) -> Setting {
        let options = &self.options;
        Setting {
            root: options.root.clone(),
            cgroups: self.cgroups.clone(),
            gates: options.gates.clone(),
            qos: options.qos.clone(),
            hooks: options.hooks.clone(),
            collect: options.collect.clone(),
            is_anolis: self.cgroups.is_anolis(),
            is_host_mode: options.is_host_mode,
            page_bytes: i64::try_from(page_bytes()).unwrap_or(4096),
            terway_dir: terway_dir(options).to_owned(),
            metrics: self.metrics.clone(),
            recorders: Some(self.recorders.clone()),
        }
    }

    fn applier(&self) -> Applier {
        let mut applier = applier(&self.options, self.cgroups.clone(), &self.records, &self.metrics);
        // What strategies wrote that are off in this run goes back to what it was.
        let is_on = |gate: &str| self.options.gates.is_on(gate);
        let report =
            applier.give_back(Instant::now(), |change| !gates_of(change).iter().any(|gate| is_on(gate)));
        let stay = leftovers(&self.options, &self.cgroups, &applier, "its feature is off").take_away(is_on);
        if report.written + report.failed + stay > 0 {
            let (files, failed) = (report.written, report.failed + stay);
            tracing::info!(files, failed, "changes of features that are off now were given back");
        }
        applier
    }

    fn keep_audit(&self) {
        let (auditor, stop) = (self.records.auditor().clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let mut tick = tokio::time::interval(AUDIT_EVERY);
            loop {
                tokio::select! {
                    _ = tick.tick() => {}
                    () = stop.cancelled() => break,
                }
                auditor.flush();
                auditor.sweep(Instant::now());
            }
            auditor.flush();
        });
    }
}

fn auditor(options: &Options) -> Auditor {
    if options.gates.is_on("AuditEvents") { Auditor::open(&options.audit) } else { Auditor::off() }
}

fn applier(
    options: &Options,
    cgroups: Arc<Cgroups>,
    records: &Records,
    metrics: &KoordletMetrics,
) -> Applier {
    let undo = Undo::open(&undo_path(&options.root));
    let force_after = options.qos.force_update_after;
    Applier::new(&options.root, cgroups, force_after, records.clone(), metrics.clone(), undo)
}

/// The features that may have made a change: while one of them is on it stays.
fn gates_of(change: &Change<'_>) -> &'static [&'static str] {
    use crate::decide::wish::Cause;
    match change.reason {
        reason if reason == Cause::CpuSuppress.reason() || reason == Cause::QuotaRecovery.reason() => {
            &["BECPUSuppress"]
        }
        reason if reason == Cause::CpuBurst.reason() || reason == Cause::QuotaBurst.reason() => &["CPUBurst"],
        reason if reason == Cause::MemoryQos.reason() => &["CgroupReconcile"],
        reason if reason == Cause::SystemConfig.reason() => &["SystemConfig"],
        reason if reason == Cause::BlockIo.reason() => &["BlkIOReconcile"],
        _ => hooks_of(change.target),
    }
}

/// Hooks share a reason, but few share a file.
fn hooks_of(target: &Target) -> &'static [&'static str] {
    match target {
        Target::Cgroup { resource, .. } => match resource {
            Resource::BvtWarpNs => &["GroupIdentity"],
            Resource::CpuIdle => &["CoreSched"],
            Resource::CpusetCpus => &["CPUSetAllocator"],
            Resource::CpuShares | Resource::MemoryLimit => &["BatchResource"],
            Resource::CfsQuotaUs => &["BatchResource", "CPUSetAllocator", "CPUNormalization"],
            Resource::NetClassId => &["TCNetworkQoS"],
            _ => &["GroupIdentity", "CPUSetAllocator", "BatchResource", "CPUNormalization", "CoreSched"],
        },
        Target::System(SystemFile::OomScoreAdj(_)) => &["OOMScoreAdj"],
        Target::System(_) => &["GroupIdentity", "CoreSched"],
        Target::Schemata { .. } => &["Resctrl"],
    }
}

/// Where terway's daemon looks.
fn terway_dir(options: &Options) -> &'static Path {
    Path::new(if options.is_host_mode { "/var/lib/terway/qos" } else { "/host-var-lib/terway/qos" })
}

fn leftovers<'a>(
    options: &'a Options,
    cgroups: &'a Cgroups,
    applier: &'a Applier,
    why: &'static str,
) -> Leftovers<'a> {
    Leftovers {
        root: &options.root,
        cgroups,
        resctrl: applier.resctrl(),
        terway_dir: terway_dir(options),
        is_host_mode: options.is_host_mode,
        records: applier.records(),
        why,
    }
}

/// Gives back everything that earlier runs changed, and removes what they made. An error when something stays.
pub fn clean_up(options: &Options) -> Result<(), StartError> {
    let root = &options.root;
    let version = Version::detect(root).map_err(StartError::Cgroups)?;
    let driver = Driver::detect(root, version).unwrap_or(Driver::Systemd);
    let cgroups = Arc::new(Cgroups::new(root, version, driver));
    let metrics = KoordletMetrics::new(&options.node_name);
    let auditor = auditor(options);
    let mut applier = applier(options, cgroups.clone(), &Records::only(auditor.clone()), &metrics);
    let report = applier.give_back(Instant::now(), |_| true);
    let others = leftovers(options, &cgroups, &applier, "koordlet leaves the node").take_away(|_| false)
        + usize::from(hook_server::withdraw(&options.hooks.server));
    auditor.flush();
    tracing::info!(files = report.written, failed = report.failed + others, "changes were given back");
    if report.failed + others > 0 {
        return Err(StartError::CleanUp { files: report.failed, others, ledger: undo_path(root) });
    }
    Ok(())
}

/// By kubelet's directory, else by kubelet itself, else systemd. Spec: koordlet-observe 2.1.
async fn driver(client: &kube::Client, options: &Options, version: Version) -> Driver {
    if let Some(driver) = Driver::detect(&options.root, version) {
        return driver;
    }
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    for _ in 0..DRIVER_TRIES {
        let node = nodes.get_opt(&options.node_name).await.ok().flatten();
        let endpoint = node.and_then(|node| node.status?.daemon_endpoints?.kubelet_endpoint);
        let port = endpoint.and_then(|endpoint| u16::try_from(endpoint.port).ok());
        let found = port.and_then(|port| driver_of_kubelet(&options.root, port));
        if let Some(driver) = found.or_else(|| Driver::detect(&options.root, version)) {
            return driver;
        }
        tracing::info!("kubelet is not there yet; its cgroup driver is not known");
        tokio::time::sleep(DRIVER_EVERY).await;
    }
    Driver::Systemd
}

fn driver_of_kubelet(root: &Root, port: u16) -> Option<Driver> {
    kubelet::driver(root, port).unwrap_or_else(|error| {
        tracing::debug!(error = &error as &dyn std::error::Error, "kubelet's cgroup driver cannot be told");
        None
    })
}

fn limits(options: &Options) -> Limits {
    Limits {
        path: Some(options.store.path.clone()),
        disk_retention: options.store.retention,
        disk_bytes: options.store.bytes_max,
        ..Limits::default()
    }
}

fn predictor(options: &Options) -> crate::predict::Predictor {
    let prediction = &options.prediction;
    crate::predict::Predictor::new(crate::predict::Settings {
        cold_start_ms: millis(prediction.cold_start),
        safety_margin_percent: i64::from(prediction.margin_percent),
        memory_half_life_ms: millis(prediction.memory_half_life),
        cpu_half_life_ms: millis(prediction.cpu_half_life),
        training_interval_ms: millis(prediction.training_interval),
        expiration_ms: millis(prediction.model_expiration),
        checkpoint_interval_ms: millis(prediction.checkpoint_interval),
        checkpoints_max: prediction.checkpoints_per_step,
    })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn collect_settings(options: &Options) -> collect::Settings {
    let collect = &options.collect;
    let is_on = |gate: &str| options.gates.is_on(gate);
    collect::Settings {
        usage_interval: collect.interval,
        outdated_after: collect.outdated_after,
        node_info_interval: collect.node_info_interval,
        storage_interval: collect.storage_interval,
        cycles_interval: collect.cpi_interval,
        cycles_window: collect.cpi_window,
        pressure_interval: collect.psi_interval,
        cold_interval: collect.cold_page_interval,
        has_page_cache: collect.has_page_cache,
        has_cycles: is_on("CPICollector"),
        has_pressure: is_on("PSICollector"),
        has_cold_pages: is_on("ColdPageCollector"),
        has_storage: is_on("BlkIOReconcile"),
        resctrl_interval: collect.resctrl_interval,
        has_resctrl: collect.has_resctrl && is_on("ResctrlCollector"),
    }
}

fn seconds_now() -> f64 {
    koord_api::number::nearest(jiff::Timestamp::now().as_second())
}

#[cfg(test)]
mod tests {
    use koord_linux::cgroup::Dir;
    use koord_linux::process::Process;

    use super::*;
    use crate::decide::wish::Cause;
    use crate::flags;

    /// koordlet-observe 1.3, 1.4.
    #[test]
    fn who_measures_what_follows_gates_and_flags() {
        let on = |line: &str| {
            let settings = collect_settings(&flags::of_line(line));
            let all = [
                (settings.has_page_cache, "page cache"),
                (settings.has_cycles, "cycles"),
                (settings.has_pressure, "pressure"),
                (settings.has_cold_pages, "cold pages"),
                (settings.has_storage, "storage"),
                (settings.has_resctrl, "resctrl"),
            ];
            all.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name).collect::<Vec<&str>>()
        };
        for (line, want) in [
            ("", vec![]),
            ("--enable-pagecache-collector", vec!["page cache"]),
            ("--feature-gates=CPICollector=true", vec!["cycles"]),
            ("--feature-gates=PSICollector=true", vec!["pressure"]),
            // koordlet-observe#13.2.B52
            ("--feature-gates=ColdPageCollector=true", vec!["cold pages"]),
            ("--feature-gates=ColdPageCollector=false", vec![]),
            ("--feature-gates=BlkIOReconcile=true", vec!["storage"]),
            ("--feature-gates=ResctrlCollector=true", vec![]),
            ("--enable-resctrl-collector", vec![]),
            ("--enable-resctrl-collector --feature-gates=ResctrlCollector=true", vec!["resctrl"]),
        ] {
            assert_eq!(on(line), want, "{line}");
        }
        let settings = collect_settings(&flags::of_line(
            "--collect-res-used-interval=2s --collect-sys-metric-outdated-interval=3s \
             --collect-node-cpu-info-interval=4s --collect-node-storage-info-interval=5s \
             --cpi-collector-interval=6s --collect-cpi-timewindow=7s --psi-collector-interval=8s \
             --coldpage-collector-interval=9s --resctrl-collector-interval=10s",
        ));
        let intervals = [
            settings.usage_interval,
            settings.outdated_after,
            settings.node_info_interval,
            settings.storage_interval,
            settings.cycles_interval,
            settings.cycles_window,
            settings.pressure_interval,
            settings.cold_interval,
            settings.resctrl_interval,
        ];
        assert_eq!(intervals.map(|interval| interval.as_secs()), [2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    /// Each hook keeps its own files, whichever others are on.
    #[test]
    fn features_and_their_changes() {
        let file = |resource| Target::Cgroup { resource, dir: Dir::root() };
        for (cause, target, gate, other) in [
            (Cause::CpuSuppress, file(Resource::CfsQuotaUs), "BECPUSuppress", "CPUBurst"),
            (Cause::QuotaBurst, file(Resource::CfsQuotaUs), "CPUBurst", "BatchResource"),
            (Cause::RuntimeHook, file(Resource::BvtWarpNs), "GroupIdentity", "CPUSetAllocator"),
            (Cause::RuntimeHook, file(Resource::CpusetCpus), "CPUSetAllocator", "GroupIdentity"),
            (Cause::RuntimeHook, file(Resource::CpuShares), "BatchResource", "CPUSetAllocator"),
            (Cause::RuntimeHook, file(Resource::CfsQuotaUs), "CPUNormalization", "GroupIdentity"),
            (Cause::RuntimeHook, file(Resource::NetClassId), "TCNetworkQoS", "GroupIdentity"),
            (Cause::RuntimeHook, Target::System(SystemFile::SchedCore), "CoreSched", "CPUSetAllocator"),
            (
                Cause::RuntimeHook,
                Target::System(SystemFile::OomScoreAdj(Process { pid: 7, start_ticks: 1 })),
                "OOMScoreAdj",
                "CoreSched",
            ),
            (Cause::SystemConfig, Target::System(SystemFile::MinFreeKbytes), "SystemConfig", "CoreSched"),
        ] {
            let gates = gates_of(&Change { reason: cause.reason(), target: &target, feature: None });
            assert!(gates.contains(&gate) && !gates.contains(&other), "{cause:?} {target:?}: {gates:?}");
        }
    }
}
