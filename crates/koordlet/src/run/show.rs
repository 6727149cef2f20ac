//! What was measured, as metrics. Spec: koordlet-observe 11.

use std::sync::Arc;

use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY};
use koord_api::number::nearest;
use koord_api::quantity::ResourceList;
use koord_linux::pressure::{Pressure, Stall};

use crate::collect::{
    ApplicationReading, Collectors, CyclesReading, PressureReading, ResctrlReading, Rounds,
};
use crate::decide::snapshot::{Node, Pod, whole};
use crate::metrics::{KoordletMetrics, Metric};
use crate::store::Stats;

/// Extended resources with the units that their gauges claim for nodes.
const NODE_RESOURCES: [(&str, &str); 4] =
    [(BATCH_CPU, "integer"), (MID_CPU, "integer"), (BATCH_MEMORY, "byte"), (MID_MEMORY, "byte")];

/// Pressure and cycles are measured every ten seconds at the most, and are many.
const MANY_EVERY: u32 = 10;

/// Counters that were told already.
#[derive(Default)]
pub(super) struct Shown {
    rounds: Rounds,
    store: Stats,
    seconds: u32,
    /// Whether there are rows that must go with the last reading.
    has_applications: bool,
    has_pressures: bool,
    has_cycles: bool,
}

impl Shown {
    /// What every second brings.
    pub(super) fn second(&mut self, metrics: &KoordletMetrics, collectors: &Collectors) {
        if let Some(used) = collectors.node_used() {
            metrics.set(Metric::NodeUsedCpuCores, &[], used.cores);
            metrics.set(Metric::NodeUsedMemoryBytes, &[], used.bytes);
        }
        if let Some(milli) = collectors.best_effort_used_milli() {
            metrics.set(Metric::BeSuppressBeUsedCpuCores, &[], nearest(milli) / 1000.0);
        }
        if is_due(&mut self.has_applications, collectors.applications()) {
            applications(metrics, collectors.applications());
        }
        self.rounds(metrics, collectors.rounds());
        self.seconds = self.seconds.wrapping_add(1);
        if self.seconds.is_multiple_of(MANY_EVERY) {
            if is_due(&mut self.has_pressures, collectors.pressures()) {
                pressures(metrics, collectors.pressures());
            }
            if is_due(&mut self.has_cycles, collectors.cycles()) {
                cycles(metrics, collectors.cycles());
            }
            resctrl(metrics, collectors.resctrl());
        }
    }

    fn rounds(&mut self, metrics: &KoordletMetrics, rounds: &Rounds) {
        for (metric, before, now) in [
            (Metric::CollectNodeCpuInfoStatus, self.rounds.cpu, rounds.cpu),
            (Metric::CollectNodeNumaInfoStatus, self.rounds.numa, rounds.numa),
            (Metric::CollectNodeStorageInfoStatus, self.rounds.storage, rounds.storage),
        ] {
            for _ in before.succeeded..now.succeeded {
                metrics.count(metric, &["succeeded"]);
            }
            for _ in before.failed..now.failed {
                metrics.count(metric, &["failed"]);
            }
        }
        self.rounds = *rounds;
    }

    /// The store's own numbers.
    pub(super) fn store(&mut self, metrics: &KoordletMetrics, stats: Stats) {
        let number = |count: usize| nearest(i64::try_from(count).unwrap_or(i64::MAX));
        for (metric, value) in [
            (Metric::StoreSeries, number(stats.series)),
            (Metric::StoreChunks, number(stats.chunks)),
            (Metric::StoreMemory, number(stats.memory_bytes)),
            (Metric::StoreBlocks, number(stats.blocks)),
            (Metric::StoreBytes, nearest(i64::try_from(stats.blocks_bytes).unwrap_or(i64::MAX))),
        ] {
            metrics.set(metric, &[], value);
        }
        let last = self.store;
        for (metric, before, now) in [
            (Metric::StoreSamples, last.appended_total, stats.appended_total),
            (Metric::StoreOutOfOrder, last.out_of_order_total, stats.out_of_order_total),
            (Metric::StoreShed, last.shed_total, stats.shed_total),
        ] {
            metrics.add(metric, &[], now.saturating_sub(before));
        }
        self.store = stats;
    }
}

/// Whether there is something to show, or something shown to take back.
fn is_due<T>(is_shown: &mut bool, readings: &[T]) -> bool {
    let has_readings = !readings.is_empty();
    std::mem::replace(is_shown, has_readings) || has_readings
}

fn applications(metrics: &KoordletMetrics, readings: &[ApplicationReading]) {
    metrics.reset(Metric::HostApplicationUsage);
    for reading in readings {
        for (resource, value) in [("cpu", reading.usage.cores), ("memory", reading.usage.bytes)] {
            let labels = [&*reading.name, resource, &reading.priority, &reading.qos];
            metrics.set(Metric::HostApplicationUsage, &labels, value);
        }
    }
}

fn cycles(metrics: &KoordletMetrics, readings: &[CyclesReading]) {
    metrics.reset(Metric::ContainerCpi);
    for reading in readings {
        let number = |value: u64| nearest(i64::try_from(value).unwrap_or(i64::MAX));
        for (field, value) in
            [("cycles", reading.cycles.cycles), ("instructions", reading.cycles.instructions)]
        {
            let labels = [
                &*reading.container_id,
                &reading.container_name,
                &reading.pod_uid,
                &reading.pod_name,
                &reading.pod_namespace,
                field,
            ];
            metrics.set(Metric::ContainerCpi, &labels, number(value));
        }
    }
}

fn resctrl(metrics: &KoordletMetrics, readings: &[ResctrlReading]) {
    for reading in readings {
        let cache = reading.cache.to_string();
        match reading.measure.bandwidth_type() {
            None => metrics.set(Metric::ResctrlLlc, &[&cache, reading.group], reading.value),
            Some(kind) => metrics.set(Metric::ResctrlMb, &[&cache, reading.group, kind], reading.value),
        }
    }
}

fn pressures(metrics: &KoordletMetrics, readings: &[PressureReading]) {
    metrics.reset(Metric::ContainerPsi);
    metrics.reset(Metric::PodPsi);
    for reading in readings {
        for (resource, pressure) in [("cpu", &reading.cpu), ("mem", &reading.memory), ("io", &reading.io)] {
            pressure_rows(metrics, reading, resource, pressure);
        }
    }
}

/// Three averages of `some`, and of `full` where the kernel tells it.
fn pressure_rows(metrics: &KoordletMetrics, reading: &PressureReading, resource: &str, pressure: &Pressure) {
    let is_full_supported = if pressure.full.is_some() { "true" } else { "false" };
    let degrees = [("some", Some(&pressure.some)), ("full", pressure.full.as_ref())];
    for (degree, stall) in degrees.into_iter().filter_map(|(degree, stall)| Some((degree, stall?))) {
        let Stall { avg10, avg60, avg300, .. } = *stall;
        for (precision, value) in [("avg10", avg10), ("avg60", avg60), ("avg300", avg300)] {
            let pod: [&Arc<str>; 3] = [&reading.pod_uid, &reading.pod_name, &reading.pod_namespace];
            let [uid, name, namespace] = pod.map(|text| &**text);
            let psi = [resource, precision, degree, is_full_supported];
            let [a, b, c, d] = psi;
            match &reading.container {
                Some((id, container)) => {
                    let labels = [&**id, container, uid, name, namespace, a, b, c, d];
                    metrics.set(Metric::ContainerPsi, &labels, value);
                }
                None => metrics.set(Metric::PodPsi, &[uid, name, namespace, a, b, c, d], value),
            }
        }
    }
}

/// What the node offers beyond Kubernetes' own resources; nothing of one that is not there, or not any more.
pub(super) fn node(metrics: &KoordletMetrics, node: &Node) {
    for (resource, unit) in NODE_RESOURCES {
        let amount = whole(&node.allocatable, resource).unwrap_or(0);
        metrics.set(Metric::NodeResourceAllocatable, &[resource, unit], nearest(amount));
    }
}

/// What containers ask for of those resources. Units are upstream's, which dashboards know, unless the right ones are asked
/// for: `integer` for every request and `byte` for every limit.
pub(super) fn pods(metrics: &KoordletMetrics, pods: &[Pod], has_correct_units: bool) {
    metrics.reset(Metric::ContainerRequests);
    metrics.reset(Metric::ContainerLimits);
    for pod in pods.iter().filter(|pod| pod.is_active()) {
        for container in &pod.containers {
            let Some(id) = &container.id else { continue };
            let show = |metric: Metric, upstreams: &str, amounts: &ResourceList| {
                for (resource, unit) in NODE_RESOURCES {
                    let Some(amount) = whole(amounts, resource) else { continue };
                    let labels = [
                        resource,
                        if has_correct_units { unit } else { upstreams },
                        &*pod.id.uid,
                        &pod.name,
                        &pod.namespace,
                        &**id,
                        container.name.as_str(),
                    ];
                    metrics.set(metric, &labels, nearest(amount));
                }
            };
            show(Metric::ContainerRequests, "integer", &container.requests);
            show(Metric::ContainerLimits, "byte", &container.limits);
        }
    }
}

#[cfg(test)]
mod tests {
    use koord_api::quantity::Quantity;
    use koord_kit::metrics::Format;
    use koord_linux::perf::Cycles;

    use super::*;
    use crate::collect::Usage;
    use crate::decide::sketch::pod;

    fn seen() -> KoordletMetrics {
        let metrics = KoordletMetrics::new("n1");
        metrics.node_seen();
        metrics
    }

    /// Rows are told while there are readings, and once more to take the last ones back.
    #[test]
    fn rows_go_with_the_last_reading() {
        let mut is_shown = false;
        let due = [0, 2, 1, 0, 0].map(|count| is_due(&mut is_shown, &vec![(); count]));
        assert_eq!(due, [false, true, true, true, false]);
    }

    fn rows(page: &koord_kit::metrics::Metrics, name: &str) -> Vec<String> {
        let page = page.render(Format::Prometheus);
        page.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }

    #[test]
    fn the_stores_numbers() {
        let metrics = KoordletMetrics::new("n1");
        let mut shown = Shown::default();
        let stats = |many: u64| Stats {
            series: 3,
            chunks: 4,
            memory_bytes: 4096,
            appended_total: 100 * many,
            out_of_order_total: many,
            shed_total: 2 * many,
            blocks: 5,
            blocks_bytes: 6,
        };
        shown.store(&metrics, stats(1));
        shown.store(&metrics, stats(2));
        let mut all = rows(metrics.external(), "prometheus_tsdb_");
        all.extend(rows(metrics.external(), "koordlet_"));
        let want = [
            "prometheus_tsdb_head_series{} 3.0",
            "prometheus_tsdb_head_chunks{} 4.0",
            "prometheus_tsdb_head_samples_appended_total{} 200",
            "prometheus_tsdb_blocks_loaded{} 5.0",
            "prometheus_tsdb_storage_blocks_bytes{} 6.0",
            "prometheus_tsdb_out_of_order_samples_total{} 2",
            "koordlet_store_memory_bytes{} 4096.0",
            "koordlet_store_shed_chunks_total{} 4",
        ];
        assert_eq!(all, want);
        let page = metrics.external().render(Format::Prometheus);
        assert!(page.contains("# TYPE prometheus_tsdb_head_samples_appended_total counter\n"), "{page}");
    }

    #[test]
    fn a_resource_that_left_the_node_is_none() {
        let metrics = seen();
        let offering = |amounts: &[(&str, i64)]| {
            let amounts = amounts.iter().map(|(name, amount)| ((*name).to_owned(), Quantity::bytes(*amount)));
            node(&metrics, &Node { allocatable: amounts.collect(), ..Node::default() });
            let mut rows = rows(metrics.external(), "koordlet_node_resource_allocatable{");
            rows.extend(self::rows(metrics.internal(), "koordlet_node_resource_allocatable{"));
            let cells = rows.iter().filter_map(|row| row.split_once("kubernetes.io/"));
            let mut cells: Vec<String> = cells.map(|(_, cell)| cell.to_owned()).collect();
            cells.sort_unstable();
            cells
        };
        let want = |cpu: &str, memory: &str| {
            [
                format!("batch-cpu\",unit=\"integer\"}} {cpu}"),
                format!("batch-memory\",unit=\"byte\"}} {memory}"),
                "mid-cpu\",unit=\"integer\"} 0.0".to_owned(),
                "mid-memory\",unit=\"byte\"} 0.0".to_owned(),
            ]
        };
        assert_eq!(offering(&[(BATCH_CPU, 1500), (BATCH_MEMORY, 4096)]), want("1500.0", "4096.0"));
        assert_eq!(offering(&[(BATCH_MEMORY, 4096)]), want("0.0", "4096.0"));
        assert_eq!(offering(&[]), want("0.0", "0.0"));
    }

    #[test]
    fn rows_of_readings() {
        let metrics = seen();
        let usage = Usage { cores: 0.25, bytes: 77.0 };
        applications(
            &metrics,
            &[ApplicationReading {
                name: "nginx".into(),
                priority: "koord-prod".into(),
                qos: "LS".into(),
                usage,
            }],
        );
        let app = "koordlet_host_application_resource_usage{node=\"n1\",host_application_name=\"nginx\"";
        let rest = "priority_class=\"koord-prod\",qos=\"LS\"}";
        let mut found = rows(metrics.internal(), app);
        found.sort_unstable();
        let want =
            [format!("{app},resource=\"cpu\",{rest} 0.25"), format!("{app},resource=\"memory\",{rest} 77.0")];
        assert_eq!(found, want);
        let reading = CyclesReading {
            pod_uid: "u".into(),
            pod_name: "web".into(),
            pod_namespace: "shop".into(),
            container_id: "containerd://1".into(),
            container_name: "main".into(),
            cycles: Cycles { cycles: 30, instructions: 20 },
        };
        cycles(&metrics, &[reading]);
        let mut found = rows(metrics.external(), "koordlet_container_cpi{");
        found.sort_unstable();
        let labels = "node=\"n1\",container_id=\"containerd://1\",container_name=\"main\",pod_uid=\"u\",\
                      pod_name=\"web\",pod_namespace=\"shop\"";
        let row = |field: &str, value: &str| {
            format!("koordlet_container_cpi{{{labels},cpi_field=\"{field}\"}} {value}")
        };
        assert_eq!(found, [row("cycles", "30.0"), row("instructions", "20.0")]);
    }

    /// koordlet-observe#13.9.I1
    #[test]
    fn pressure_of_a_container() {
        let text = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\n";
        let full = format!("{text}full avg10=0.10 avg60=0.20 avg300=0.30 total=1\n");
        let parse = |text: &str| Pressure::parse(text.as_bytes()).unwrap();
        let reading = PressureReading {
            pod_uid: "u".into(),
            pod_name: "web".into(),
            pod_namespace: "default".into(),
            container: Some(("containerd://1".into(), "main".into())),
            cpu: parse(text),
            memory: parse(&full),
            io: parse(&full),
        };
        let metrics = seen();
        pressures(&metrics, &[reading]);
        let page = metrics.external().render(Format::Prometheus);
        let rows: Vec<&str> =
            page.lines().filter(|line| line.starts_with("koordlet_container_psi{")).collect();
        assert_eq!(rows.len(), 15, "{page}");
        let of = |resource: &str| {
            let label = format!("psi_resource_type=\"{resource}\"");
            rows.iter().filter(|row| row.contains(&label)).copied().collect::<Vec<&str>>()
        };
        assert_eq!((of("cpu").len(), of("mem").len(), of("io").len()), (3, 6, 6));
        assert!(of("cpu").iter().all(|row| row.contains("cpu_full_supported=\"false\"")));
        assert!(of("mem").iter().all(|row| row.contains("cpu_full_supported=\"true\"")));
    }

    /// koordlet-observe#13.9.I4
    #[test]
    fn requests_of_containers() {
        let amounts = [("kubernetes.io/batch-cpu", "1500"), ("kubernetes.io/batch-memory", "1Gi")];
        let batch = pod("batch").qos("BE").container("main", &amounts, &amounts).running().read();
        let metrics = seen();
        pods(&metrics, std::slice::from_ref(&batch), false);
        let page = metrics.external().render(Format::Prometheus);
        let rest = "pod_uid=\"batch\",pod_name=\"batch\",pod_namespace=\"default\",\
                    container_id=\"containerd://batch-main\",container_name=\"main\"";
        for (name, resource, unit, value) in [
            ("requests", "kubernetes.io/batch-cpu", "integer", "1500.0"),
            ("requests", "kubernetes.io/batch-memory", "integer", "1073741824.0"),
            ("limits", "kubernetes.io/batch-cpu", "byte", "1500.0"),
        ] {
            let line = format!(
                "koordlet_container_resource_{name}{{node=\"n1\",resource=\"{resource}\",unit=\"{unit}\",{rest}}} {value}"
            );
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        pods(&metrics, &[batch], true);
        let page = metrics.external().render(Format::Prometheus);
        for (name, resource, unit) in [
            ("requests", "batch-cpu", "integer"),
            ("requests", "batch-memory", "byte"),
            ("limits", "batch-cpu", "integer"),
            ("limits", "batch-memory", "byte"),
        ] {
            let is_row = |line: &str| {
                line.starts_with(&format!("koordlet_container_resource_{name}{{"))
                    && line.contains(&format!("resource=\"kubernetes.io/{resource}\",unit=\"{unit}\","))
            };
            assert_eq!(page.lines().filter(|line| is_row(line)).count(), 1, "{name} {resource}: {page}");
        }
        pods(&metrics, &[], false);
        assert!(!metrics.external().render(Format::Prometheus).contains("container_resource_requests{"));
    }
}
