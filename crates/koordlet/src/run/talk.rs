//! Everything that talks: watches of the API server, the kubelet, and reports. Spec: koordlet-observe 3, 6 to 8.

use std::sync::Arc;

use koord_api::number::nearest;
use koord_linux::pod_watch::PodWatch;
use tokio::sync::{Notify, mpsc};

use super::assemble::Base;
use super::node::{Asker, Brain};
use crate::devices::{self, Devices};
use crate::flags::Options;
use crate::metrics::{KoordletMetrics, Metric};
use crate::predict::Amount;
use crate::predict::reclaimable::{Outcome, Prediction};
use crate::report::node_metric::write::{self, Ask, Writer};
use crate::report::node_metric::{Gpu, Report, Sources, gauges, measure};
use crate::report::topology::run::{Options as TopologyOptions, Remote, Reporter};
use crate::state::kubelet::{Call, Kubelet, KubeletOptions};
use crate::state::objects::Watcher;
use crate::state::pods::{PodBook, PodSync};
use crate::state::{State, claims, pleg};

/// How often the topology is looked at where it is not reported: decisions need it all the same.
const LAYOUT_EVERY: std::time::Duration = std::time::Duration::from_secs(3);

/// Starts everything that talks.
pub(super) fn start(
    base: &Base,
    state: &State,
    cluster: &kube::Config,
    asker: Asker,
    devices: Option<Devices>,
) {
    let options = &base.options;
    let observe = observer(&base.metrics);
    let kubelet = Kubelet::new(state.clone(), cluster.clone(), kubelet_options(options), observe);
    let watcher =
        Watcher { client: base.client.clone(), node: options.node_name.clone(), metrics: base.kit.clone() };
    base.tasks.spawn(watcher.clone().node(
        state.clone(),
        base.recorders.strategies.clone(),
        base.stop.clone(),
    ));
    base.tasks.spawn(watcher.clone().slo(state.clone(), &[], base.stop.clone()));
    base.tasks.spawn(watcher.clone().metric(state.clone(), options.reports.pace, base.stop.clone()));
    if options.gates.is_on("BlkIOReconcile") {
        base.tasks.spawn(claims::run(base.client.clone(), state.clone(), base.stop.clone()));
    } else {
        // Nobody asks for claims, so none are waited for.
        state.update(|snapshot| snapshot.synced.claims = true);
    }
    pods(base, state, &kubelet);
    topology(base, state, kubelet, &watcher);
    if options.reports.has_node_metric {
        node_metric(base, state, asker, devices.clone());
    }
    if let Some(devices) = devices {
        let task = devices::run(
            base.client.clone(),
            state.clone(),
            devices,
            device_options(options),
            base.stop.clone(),
        );
        base.tasks.spawn(task);
    }
}

fn observer(metrics: &KoordletMetrics) -> crate::state::kubelet::Observe {
    let metrics = metrics.clone();
    Arc::new(move |call: Call| {
        let labels = ["get", call.path, &call.code.to_string()];
        metrics.observe(Metric::KubeletRequestDuration, &labels, call.seconds);
    })
}

fn kubelet_options(options: &Options) -> KubeletOptions {
    let kubelet = &options.kubelet;
    KubeletOptions {
        address_type: kubelet.address_type.clone(),
        timeout: kubelet.timeout,
        is_plain: kubelet.is_insecure,
        read_only_port: kubelet.read_only_port,
        ca_file: kubelet.ca_file.clone(),
        client_files: kubelet.client_files.clone(),
    }
}

fn pods(base: &Base, state: &State, kubelet: &Kubelet) {
    let Some(interval) = base.options.kubelet.sync_interval else {
        return tracing::warn!("kubelet is not asked for pods (--kubelet-sync-interval), so nothing is done");
    };
    let news = Arc::new(Notify::new());
    let sync = PodSync {
        state: state.clone(),
        kubelet: kubelet.clone(),
        book: PodBook::new(base.cgroups.driver()),
        interval,
        news: news.clone(),
        recorder: Some(base.recorders.strategies.clone()),
    };
    base.tasks.spawn(sync.run(base.stop.clone()));
    base.tasks.spawn(pleg::run(PodWatch::new(&base.cgroups), news, base.stop.clone()));
}

fn topology(base: &Base, state: &State, kubelet: Kubelet, watcher: &Watcher) {
    let options = &base.options;
    let interval = options.reports.topology_interval;
    let is_reported = interval.is_some() && options.gates.is_on("NodeTopologyReport");
    let remote = is_reported.then(|| {
        let (objects, worker) = watcher.topology();
        base.tasks.spawn(worker.run(base.stop.clone()));
        Remote { client: base.client.clone(), objects }
    });
    let topology = TopologyOptions {
        interval: interval.unwrap_or(LAYOUT_EVERY),
        reports_huge_pages: options.gates.is_on("HugePageReport"),
        queries_kubelet: options.kubelet.is_config_queried,
        root: options.root.clone(),
    };
    base.tasks.spawn(Reporter::new(state.clone(), kubelet, remote, topology).run(base.stop.clone()));
}

fn node_metric(base: &Base, state: &State, asker: Asker, devices: Option<Devices>) {
    let (asks, mut asked) = mpsc::channel::<Ask>(1);
    let metrics = base.metrics.clone();
    let has_gauges = base.options.gates.is_on("NodeMetricPromMetrics");
    base.tasks.spawn(async move {
        while let Some(ask) = asked.recv().await {
            let gpus = gpus(devices.as_ref());
            let Some(report) = asker.ask(move |brain| report(brain, &gpus)).await else { return };
            show(&metrics, &report.prediction);
            if has_gauges {
                gauges::show(&metrics, &report.status);
            }
            // Who asked may have been told to stop.
            let _ = ask.reply.send(report);
        }
    });
    let writer = Writer::new(base.client.clone(), &base.options.node_name, base.options.reports.pace);
    let metrics = base.metrics.clone();
    let observe = move |outcome: &write::Outcome| {
        let is_good = matches!(outcome, write::Outcome::Written);
        metrics.count(Metric::NodeMetricReportStatus, &[if is_good { "succeeded" } else { "failed" }]);
    };
    base.tasks.spawn(write::run(state.clone(), writer, asks, observe, base.stop.clone()));
}

/// What the node's thread knows, as a report.
fn report(brain: &Brain, gpus: &[Gpu]) -> Report {
    let snapshot = brain.state.load();
    let sources = Sources {
        store: &brain.store,
        snapshot: &snapshot,
        predictor: &brain.predictor,
        gpus,
        has_page_cache: brain.collectors.has_page_cache(),
        has_cold_pages: brain.collectors.has_cold_pages(),
    };
    measure(sources, jiff::Timestamp::now().as_millisecond())
}

fn gpus(devices: Option<&Devices>) -> Vec<Gpu> {
    let Some(inventory) = devices.and_then(Devices::inventory) else { return Vec::new() };
    let gpu = |device: &devices::GpuDevice| Gpu {
        minor: i32::try_from(device.gpu.minor).unwrap_or(i32::MAX),
        uuid: device.gpu.uuid.as_str().into(),
        memory_total: i64::try_from(device.gpu.memory_bytes).unwrap_or(i64::MAX),
        is_healthy: device.ailment.is_none(),
    };
    inventory.gpus.iter().map(gpu).collect()
}

pub(super) fn device_options(options: &Options) -> devices::Options {
    devices::Options {
        is_accelerators_on: options.gates.is_on("Accelerators"),
        is_rdma_on: options.gates.is_on("RDMADevices"),
        xpu_dir: options.reports.xpu_dir.clone(),
        is_xpu_only: options.reports.is_xpu_only,
        measure_interval: options.collect.is_on().then_some(options.collect.interval),
        scan_interval: options.reports.topology_interval.unwrap_or(LAYOUT_EVERY),
        ignored_xids: options.reports.ignored_xids.clone(),
    }
}

/// What was predicted, by predictor, and what prod pods will not need.
fn show(metrics: &KoordletMetrics, prediction: &Prediction) {
    let views = |outcome: &Outcome| {
        let Outcome { by_pod, by_class, total } = outcome.clone();
        [
            ("podReclaimablePredictor", by_pod),
            ("priorityReclaimablePredictor", by_class),
            ("minPredictor", total),
        ]
    };
    let amounts = |amount: &Amount| {
        [("cpu", "core", nearest(amount.cpu_milli) / 1000.0), ("memory", "byte", nearest(amount.memory))]
    };
    for (metric, outcome) in
        [(Metric::PredictedReclaimable, &prediction.reclaimable), (Metric::PredictedPeak, &prediction.peak)]
    {
        for (predictor, amount) in views(outcome) {
            for (resource, unit, value) in amounts(&amount.unwrap_or_default()) {
                metrics.set(metric, &[predictor, resource, unit], value);
            }
        }
    }
    let total = &prediction.reclaimable.total;
    for (resource, unit, value) in amounts(&total.clone().unwrap_or_default()) {
        metrics.set(Metric::NodePriorityReclaimable, &["koord-prod", resource, unit], value);
    }
    let status = if total.is_ok() { 0.0 } else { 1.0 };
    metrics.set(Metric::NodePriorityReclaimableStatus, &["koord-prod"], status);
}

#[cfg(test)]
mod tests;
