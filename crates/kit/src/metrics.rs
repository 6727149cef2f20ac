//! Metrics of a process: one registry, rendered for Prometheus or OpenMetrics, with the metrics all processes share.
//!
//! A component registers its own families through [`Metrics::register`]; the names here are those that Kubernetes'
//! own processes use, so that existing dashboards keep working.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;

/// The process's metrics. Share it by `Arc`.
#[derive(Debug)]
pub struct Metrics {
    /// Locked only while registering and while a page is rendered.
    registry: Mutex<Registry>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// A registry that already holds the metrics of the process itself.
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        Metrics { registry: Mutex::new(registry) }
    }

    /// A registry with nothing in it, for a page of its own.
    pub fn bare() -> Metrics {
        Metrics { registry: Mutex::new(Registry::default()) }
    }

    /// Adds metrics.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.registry.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        add(&mut registry)
    }

    /// The page that a scrape gets.
    pub fn render(&self, format: Format) -> String {
        let mut page = String::new();
        let registry = self.registry.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Writing to a String cannot fail; a collector that fails leaves its part out.
        if let Err(error) = text::encode(&mut page, &registry) {
            tracing::warn!(error = &error as &dyn std::error::Error, "metrics page is incomplete");
        }
        match format {
            Format::OpenMetrics => page,
            Format::Prometheus => to_prometheus(&page),
        }
    }
}

/// A counter from before names had to end in `_total`, which OpenMetrics would add.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<AtomicU64>);

impl Tally {
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn inc_by(&self, many: u64) {
        self.0.fetch_add(many, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl EncodeMetric for Tally {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.encode_gauge(&self.get())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

impl TypedMetric for Tally {
    const TYPE: MetricType = MetricType::Unknown;
}

/// The two forms of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// What a scraper that sends this `Accept` header understands.
    pub fn of_accept(accept: Option<&str>) -> Format {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Format::OpenMetrics,
            _ => Format::Prometheus,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// OpenMetrics leaves the `_total` and `_info` endings out of its headers and ends with `# EOF`; the older format
/// names the series itself.
fn to_prometheus(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut help: Option<&str> = None;
    for line in page.lines() {
        if line.starts_with("# HELP ") {
            help = Some(line);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                // A `Tally`, the only one of ours that has no type in OpenMetrics.
                "unknown" => ("", "counter"),
                other => ("", other),
            };
            if let Some(text) = help.take().and_then(|line| line.strip_prefix("# HELP ")?.strip_prefix(name))
            {
                out.push_str(&format!("# HELP {name}{suffix}{text}\n"));
            }
            out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with("# EOF") && !line.starts_with("# UNIT") {
            let sample = line.split_once(" # ").map_or(line, |(sample, _exemplar)| sample);
            out.push_str(sample);
            out.push('\n');
        }
    }
    out
}

/// Requests to the API server, under client-go's names.
#[derive(Clone, Debug)]
pub struct ClientMetrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) duration: Family<VerbLabels, Histogram, fn() -> Histogram>,
    pub(crate) throttled: Family<VerbLabels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) code: String,
    pub(crate) host: String,
    pub(crate) method: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct VerbLabels {
    pub(crate) host: String,
    pub(crate) verb: String,
}

impl ClientMetrics {
    pub fn new(metrics: &Metrics) -> ClientMetrics {
        let ours = ClientMetrics {
            requests: Family::default(),
            duration: Family::new_with_constructor(request_histogram),
            throttled: Family::new_with_constructor(request_histogram),
        };
        metrics.register(|registry| {
            registry.register(
                "rest_client_requests",
                "Number of HTTP requests, partitioned by status code, method, and host",
                ours.requests.clone(),
            );
            registry.register(
                "rest_client_request_duration_seconds",
                "Request latency in seconds, partitioned by verb, and host",
                ours.duration.clone(),
            );
            registry.register(
                "rest_client_rate_limiter_duration_seconds",
                "Client side rate limiter latency in seconds, partitioned by verb, and host",
                ours.throttled.clone(),
            );
        });
        ours
    }
}

/// The buckets that Kubernetes uses for requests.
fn request_histogram() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

/// What watch caches, the event recorder and the leader lease count.
#[derive(Clone, Debug)]
pub struct KitMetrics {
    pub(crate) cache_objects: Family<KindLabels, Gauge>,
    pub(crate) cache_relists: Family<RelistLabels, Counter>,
    pub(crate) cache_malformed: Family<KindLabels, Counter>,
    pub(crate) cache_stale: Family<KindLabels, Counter>,
    pub(crate) events: Family<OutcomeLabels, Counter>,
    pub(crate) leading: Family<NameLabels, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct KindLabels {
    pub(crate) kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct RelistLabels {
    pub(crate) kind: String,
    pub(crate) reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct OutcomeLabels {
    pub(crate) outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct NameLabels {
    pub(crate) name: String,
}

impl KitMetrics {
    pub fn new(metrics: &Metrics) -> KitMetrics {
        let ours = KitMetrics::unregistered();
        metrics.register(|registry| {
            registry.register(
                "koord_watch_cache_objects",
                "Objects held by a watch cache",
                ours.cache_objects.clone(),
            );
            registry.register(
                "koord_watch_cache_relists",
                "Full lists made by a watch cache",
                ours.cache_relists.clone(),
            );
            registry.register(
                "koord_watch_cache_malformed",
                "Objects that could not be decoded and were skipped",
                ours.cache_malformed.clone(),
            );
            registry.register(
                "koord_watch_cache_stale_events",
                "Duplicate or late watch events that were ignored",
                ours.cache_stale.clone(),
            );
            registry.register(
                "koord_events",
                "Kubernetes events by what became of them",
                ours.events.clone(),
            );
            registry.register(
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, \
                 1 indicates master",
                ours.leading.clone(),
            );
        });
        ours
    }

    /// Counted but shown nowhere: for tests and short-lived commands.
    pub fn unregistered() -> KitMetrics {
        KitMetrics {
            cache_objects: Family::default(),
            cache_relists: Family::default(),
            cache_malformed: Family::default(),
            cache_stale: Family::default(),
            events: Family::default(),
            leading: Family::default(),
        }
    }
}

/// The kernel's clock ticks per second as shown to programs; 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The process's own numbers, read from `/proc` on each scrape.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let numbers = ProcessNumbers::read();
        if let Some(seconds) = numbers.cpu_seconds {
            let cpu = ConstCounter::new(seconds);
            let help = "Total user and system CPU time spent in seconds";
            cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?)?;
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory size in bytes", numbers.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes", numbers.virtual_bytes),
            ("process_open_fds", "Number of open file descriptors", numbers.open_fds),
            ("process_max_fds", "Maximum number of open file descriptors", numbers.max_fds),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds",
                numbers.start_time_seconds,
            ),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
        }
        Ok(())
    }
}

/// What `/proc` says of this process; a number it does not give is absent.
#[derive(Debug, Default)]
struct ProcessNumbers {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    open_fds: Option<f64>,
    max_fds: Option<f64>,
    start_time_seconds: Option<f64>,
}

impl ProcessNumbers {
    fn read() -> ProcessNumbers {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The second field is the program's name in parentheses and may hold spaces.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok().map(|t| t / TICKS_PER_SECOND);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        let boot_time = number_after(&boot, "btime");
        ProcessNumbers {
            cpu_seconds: ticks(11).zip(ticks(12)).map(|(user, system)| user + system),
            resident_bytes: number_after(&status, "VmRSS:").map(|kib| kib * 1024.0),
            virtual_bytes: number_after(&status, "VmSize:").map(|kib| kib * 1024.0),
            open_fds: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|entries| f64::from(u32::try_from(entries.count()).unwrap_or(u32::MAX))),
            max_fds: number_after(
                &fs::read_to_string("/proc/self/limits").unwrap_or_default(),
                "Max open files",
            ),
            start_time_seconds: boot_time.zip(ticks(19)).map(|(boot, since)| boot + since),
        }
    }
}

/// The first number after a label at the start of a line.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

/// This process's resident memory, for measurements.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_name_the_same_series() {
        let metrics = Metrics { registry: Mutex::new(Registry::default()) };
        let client = ClientMetrics::new(&metrics);
        let labels = RequestLabels { code: "200".into(), host: "h:1".into(), method: "GET".into() };
        client.requests.get_or_create(&labels).inc();
        let open = metrics.render(Format::OpenMetrics);
        assert!(open.contains("# TYPE rest_client_requests counter\n"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
        let plain = metrics.render(Format::Prometheus);
        assert!(
            plain.starts_with(
                "# HELP rest_client_requests_total Number of HTTP requests, partitioned by status code, method, and host.\n\
                 # TYPE rest_client_requests_total counter\n\
                 rest_client_requests_total{code=\"200\",host=\"h:1\",method=\"GET\"} 1\n"
            ),
            "{plain}"
        );
        assert!(!plain.contains("# EOF"), "{plain}");
    }

    #[test]
    fn a_process_shows_its_own_numbers() {
        let page = Metrics::new().render(Format::Prometheus);
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
        ] {
            let value =
                number_after(&page, &format!("{name} ")).unwrap_or_else(|| panic!("{name} in {page}"));
            assert!(value >= 0.0, "{name} {value}");
        }
        let started = number_after(&page, "process_start_time_seconds ").unwrap();
        assert!(started > 1.6e9, "{started}");
    }

    #[test]
    fn the_format_follows_the_accept_header() {
        for (accept, want) in [
            (None, Format::Prometheus),
            (Some("*/*"), Format::Prometheus),
            (Some("text/plain;version=0.0.4"), Format::Prometheus),
            (
                Some("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"),
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::of_accept(accept), want, "{accept:?}");
        }
    }
}
