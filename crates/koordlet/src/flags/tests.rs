//! Flags and variables with their defaults, and what is said about wrong ones.

use super::*;
use crate::devices::XIDS_OF_APPLICATIONS;
use crate::metrics::Metric;

fn read(line: &str, environment: &[(&str, &str)]) -> Result<Request, OptionsError> {
    let environment: Vec<(String, String)> =
        environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let find =
        |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    parse(line.split_whitespace(), find)
}

fn run(line: &str) -> Options {
    match read(line, &[("NODE_NAME", "n1"), ("agent_mode", "hostMode")]) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn complaint(line: &str) -> (u8, String) {
    match read(line, &[("NODE_NAME", "n1")]) {
        Err(error) => (error.exit_code(), error.to_string()),
        Ok(other) => panic!("{line}: {other:?}"),
    }
}

#[test]
fn defaults() {
    let options = run("");
    assert_eq!(options.addr, Listen::Everywhere { port: 9316 });
    assert_eq!((options.qps, options.burst), (20.0, 30));
    assert_eq!(options.kubelet.sync_interval, Some(Duration::from_secs(10)));
    assert_eq!(options.kubelet.timeout, Duration::from_secs(3));
    assert_eq!(options.kubelet.address_type, "InternalIP");
    assert!(options.kubelet.is_config_queried && !options.kubelet.is_insecure);
    assert_eq!(options.collect.interval, Duration::from_secs(1));
    assert!(options.collect.is_on());
    assert_eq!(options.store.retention, Duration::from_secs(12 * 3600));
    assert_eq!(options.store.bytes_max, 104_857_600);
    assert_eq!((options.audit.verbose, options.audit.disk_mib_max, options.audit.events_max), (3, 16, 2048));
    assert_eq!(options.prediction.cold_start, Duration::from_secs(24 * 3600));
    assert_eq!(options.prediction.checkpoints_per_step, 12);
    assert_eq!(options.qos.cpu_evict_cool, Duration::from_secs(20));
    assert_eq!(options.qos.memory_evict_cool, Duration::from_secs(4));
    assert_eq!(options.hooks.reconcile_interval, Duration::from_secs(10));
    assert!(options.gates.is_on("BECPUSuppress") && !options.gates.is_on("AuditEvents"));
    assert_eq!(options.warnings, Vec::<String>::new());
    assert!(!options.clean_up && !options.has_correct_units);
    assert_eq!(options.reports.ignored_xids, XIDS_OF_APPLICATIONS.into());
}

/// The flags of koordlet-observe 1.2 and 1.3, and those of koordlet-enforce that are no number of another table.
const SPEC: &[(&str, &str)] = &[
    ("cgroup-root-dir", ""),
    ("sys-root-dir", ""),
    ("sys-fs-root-dir", ""),
    ("proc-root-dir", ""),
    ("var-run-root-dir", ""),
    ("run-root-dir", ""),
    ("var-lib-kubelet-dir", ""),
    ("default-runtime-type", "containerd"),
    ("containerd-endpoint", ""),
    ("docker-endpoint", ""),
    ("pouch-endpoint", ""),
    ("hami-core-library-directory-path", "/usr/local/vgpu/libvgpu.so"),
    ("pod-resources-proxy-path", "/var/run/koordlet/pod-resources"),
    ("xpu-device-infos-dir", "/var/run/koordlet/xpu-device-infos/"),
    ("addr", ":9316"),
    ("enable-pprof", "false"),
    ("pprof-addr", ":9317"),
    ("kube-api-qps", "20"),
    ("kube-api-burst", "30"),
    ("configmap-name", "koordlet-config"),
    ("configmap-namespace", "koordinator-system"),
    ("feature-gates", ""),
    ("kubelet-preferred-address-type", "InternalIP"),
    ("kubelet-sync-interval", "10s"),
    ("kubelet-sync-timeout", "3s"),
    ("kubelet-insecure-tls", "false"),
    ("kubelet-read-only-port", "10255"),
    ("node-topology-sync-interval", "3s"),
    ("disable-query-kubelet-config", "false"),
    ("enable-node-metric-report", "true"),
    ("report-interval", "0"),
    ("enable-pod-taskids", "false"),
    ("xpu-enforce-collect-from-device-infos", "false"),
    ("collect-res-used-interval", "1s"),
    ("collect-sys-metric-outdated-interval", "10s"),
    ("collect-node-cpu-info-interval", "60s"),
    ("collect-node-storage-info-interval", "1s"),
    ("cpi-collector-interval", "60s"),
    ("collect-cpi-timewindow", "10s"),
    ("psi-collector-interval", "10s"),
    ("coldpage-collector-interval", "5s"),
    ("resctrl-collector-interval", "10s"),
    ("enable-pagecache-collector", "false"),
    ("enable-resctrl-collector", "false"),
    ("metric-gc-interval-seconds", "300"),
    ("metric-expire-seconds", "1800"),
    ("tsdb-path", "/metric-data/"),
    ("tsdb-retention-duration", "12h"),
    ("tsdb-max-bytes", "104857600"),
    ("tsdb-enable-prometheus-metric", "true"),
    ("tsdb-stripe-size", "16384"),
    ("tsdb-wal-segment-size", "1048576"),
    ("tsdb-max-block-chunk-segment-size", "5242880"),
    ("tsdb-min-block-duration", "10m"),
    ("tsdb-max-block-duration", "10m"),
    ("tsdb-head-chunks-write-buffer-size", "1048576"),
    ("audit-log-dir", "/var/log/koordlet"),
    ("audit-verbose", "3"),
    ("audit-max-disk-space-mb", "16"),
    ("audit-max-concurrent-readers", "4"),
    ("audit-max-events-limit", "2048"),
    ("prediction-checkpoint-filepath", "/prediction-checkpoints"),
    ("prediction-cold-start-duration", "24h"),
    ("prediction-safety-margin-percent", "10"),
    ("prediction-memory-histogram-decay-halflife", "24h"),
    ("prediction-cpu-histogram-decay-halflife", "12h"),
    ("prediction-training-interval", "1m"),
    ("prediction-model-expiration-duration", "30m"),
    ("prediction-model-checkpoint-interval", "10m"),
    ("prediction-model-checkpoint-max-per-step", "12"),
    ("reconcile-interval-seconds", "1"),
    ("cpu-suppress-interval-seconds", "1"),
    ("cpu-evict-interval-seconds", "1"),
    ("memory-evict-interval-seconds", "1"),
    ("memory-evict-cool-time-seconds", "4"),
    ("cpu-evict-cool-time-seconds", "20"),
    ("only-evict-by-api", "false"),
    ("resource-force-update-seconds", "60"),
    ("enable-nri-runtime-hook", "true"),
    ("disable-unset-cpu-quota", "false"),
    ("qos-extension-plugins", ""),
    ("runtime-hooks-reconcile-interval", "10s"),
    ("runtime-hooks-network", "unix"),
    ("runtime-hooks-addr", "/host-var-run-koordlet/koordlet.sock"),
    ("runtime-hooks-host-endpoint", "/var/run/koordlet/koordlet.sock"),
    ("runtime-hooks-failure-policy", "Ignore"),
    ("runtime-hooks-plugin-failure-policy", "Ignore"),
    ("runtime-hooks-config-path", ""),
    ("runtime-hooks-disable-stages", ""),
    ("runtime-hooks-nri-socket-path", "nri/nri.sock"),
    ("runtime-hooks-nri-plugin-name", "koordlet_nri"),
    ("runtime-hooks-nri-plugin-index", "00"),
    ("runtime-hooks-nri-connect-timeout", "6s"),
    ("runtime-hooks-nri-backoff-duration", "1s"),
    ("runtime-hooks-nri-backoff-factor", "2"),
    ("runtime-hooks-nri-backoff-steps", "2147483647"),
    ("runtime-hooks-nri-backoff-cap", "4611686018427387903ns"),
];

/// What upstream does not have, or had in an earlier release.
const OURS: &[&str] = &[
    "clean-up",
    "correct-resource-units",
    "gpu-ignored-xids",
    "kubeconfig",
    "kubelet-ca-file",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "pod-events-per-hour",
    "report-interval-seconds",
];

#[test]
fn defaults_are_the_specifications() {
    let flags: Vec<&Flag> = TABLES.iter().copied().flatten().chain([&FEATURE_GATES]).collect();
    for (name, default) in SPEC {
        let flag = flags.iter().find(|flag| flag.name == *name).unwrap_or_else(|| panic!("{name}"));
        // A duration has many spellings.
        let same = match (default.parse::<GoDuration>(), flag.default.parse::<GoDuration>()) {
            (Ok(want), Ok(found)) => want == found,
            _ => flag.default == *default,
        };
        assert!(same, "{name}: {} for {default}", flag.default);
    }
    let is_known = |name: &str| {
        SPEC.iter().any(|(known, _)| *known == name)
            || OURS.contains(&name)
            || table::OLD_SECONDS.iter().any(|(old, _)| *old == name)
    };
    let unknown: Vec<&str> = flags.iter().map(|flag| flag.name).filter(|name| !is_known(name)).collect();
    assert_eq!(unknown, [""; 0]);
}

/// Flags whose field nobody else looks at here.
#[test]
fn fields_of_strategies_and_hooks() {
    let options = run("");
    let second = Duration::from_secs(1);
    let qos = &options.qos;
    let intervals =
        [qos.reconcile_interval, qos.suppress_interval, qos.cpu_evict_interval, qos.memory_evict_interval];
    assert_eq!(intervals, [second; 4]);
    assert_eq!((qos.force_update_after, qos.only_evict_by_api), (second * 60, false));
    let hooks = &options.hooks;
    assert_eq!((hooks.server.failure_policy.as_str(), hooks.server.is_strict), ("Ignore", false));
    assert!(!hooks.is_quota_unset_disabled);
    let options = run("--reconcile-interval-seconds=2 --cpu-suppress-interval-seconds=3 \
        --cpu-evict-interval-seconds=4 --memory-evict-interval-seconds=5 --resource-force-update-seconds=6 \
        --only-evict-by-api --runtime-hooks-failure-policy=Fail --runtime-hooks-plugin-failure-policy=Fail \
        --disable-unset-cpu-quota");
    let qos = &options.qos;
    let seconds = [
        qos.reconcile_interval,
        qos.suppress_interval,
        qos.cpu_evict_interval,
        qos.memory_evict_interval,
        qos.force_update_after,
    ];
    assert_eq!(seconds.map(|interval| interval.as_secs()), [2, 3, 4, 5, 6]);
    let hooks = &options.hooks;
    assert!(qos.only_evict_by_api && hooks.server.is_strict && hooks.is_quota_unset_disabled);
    assert_eq!(hooks.server.failure_policy, "Fail");
}

/// However many seconds are asked for, there is a moment after them.
#[test]
fn many_seconds_are_ten_years() {
    let most = i64::MAX;
    let line = format!(
        "--resource-force-update-seconds={most} --cpu-suppress-interval-seconds={most} \
         --cpu-evict-cool-time-seconds={most} --kubelet-sync-interval=9223372036s"
    );
    let options = run(&line);
    let qos = &options.qos;
    for seconds in [qos.force_update_after, qos.suppress_interval, qos.cpu_evict_cool] {
        assert_eq!(seconds.as_secs(), 315_360_000);
    }
    let longest = options.kubelet.sync_interval.unwrap();
    assert!(std::time::Instant::now().checked_add(longest).is_some(), "{longest:?}");
}

#[test]
fn lists() {
    for (line, want) in [
        ("-gpu-ignored-xids=79", vec![79]),
        ("-gpu-ignored-xids=79,13", vec![13, 79]),
        ("-gpu-ignored-xids=", vec![]),
    ] {
        assert_eq!(run(line).reports.ignored_xids.into_iter().collect::<Vec<u64>>(), want, "{line}");
    }
}

/// koordlet-observe 1.2: a mode decides where the host's files are, and flags change each.
#[test]
fn directories_follow_the_mode() {
    let host = run("");
    assert_eq!(host.root, Root::host("/"));
    assert!(host.is_host_mode);
    let Ok(Request::Run(daemonset)) = read("", &[("NODE_NAME", "n1")]) else { panic!() };
    assert_eq!(daemonset.root, Root::daemonset());
    let given = run("-cgroup-root-dir=/t/cgroup/ --sys-fs-root-dir /t/sysfs -var_run_root_dir=/t/run");
    assert_eq!(given.root.cgroup, PathBuf::from("/t/cgroup/"));
    assert_eq!(given.root.sys_fs, PathBuf::from("/t/sysfs"));
    assert_eq!(given.root.var_run, PathBuf::from("/t/run"));
    assert_eq!(given.root.state, PathBuf::from("/t/run/koordlet"));
    assert_eq!(given.root.proc, PathBuf::from("/proc"));
}

#[test]
fn spellings_of_earlier_releases() {
    let old = run("-cpi-collector-interval-seconds=30 --collect-cpi-timewindow-seconds 5");
    assert_eq!(old.collect.cpi_interval, Duration::from_secs(30));
    assert_eq!(old.collect.cpi_window, Duration::from_secs(5));
    assert_eq!(old.warnings.len(), 2, "{:?}", old.warnings);
    let both = run("-cpi-collector-interval-seconds=30 -cpi-collector-interval=1m30s");
    assert_eq!(both.collect.cpi_interval, Duration::from_secs(90));
    for (old, new) in table::OLD_SECONDS {
        assert!(TABLES.iter().copied().flatten().any(|flag| flag.name == old), "{old}");
        assert!(TABLES.iter().copied().flatten().any(|flag| flag.name == new), "{new}");
    }
}

#[test]
fn switched_off() {
    assert_eq!(run("-kubelet-sync-interval=0").kubelet.sync_interval, None);
    assert_eq!(run("-kubelet-sync-interval=-1s").kubelet.sync_interval, None);
    assert_eq!(run("-node-topology-sync-interval=0").reports.topology_interval, None);
    assert!(!run("-collect-res-used-interval=500ms").collect.is_on());
}

#[test]
fn what_we_cope_with_is_said() {
    let insecure = run("-kubelet-insecure-tls=true");
    assert!(!insecure.kubelet.is_config_queried);
    assert_eq!(insecure.warnings.len(), 1);
    let disabled = run("-kubelet-insecure-tls=true -disable-query-kubelet-config=true");
    assert!(!disabled.kubelet.is_config_queried && disabled.warnings.is_empty());
    let odd = run("-kubelet-preferred-address-type=Pigeon");
    assert_eq!((odd.kubelet.address_type.as_str(), odd.warnings.len()), ("InternalIP", 1));
    for unused in ["-default-runtime-type=docker", "-qos-extension-plugins=mine=true"] {
        let warnings = run(unused).warnings;
        assert!(warnings.len() == 1 && warnings[0].contains("no effect"), "{warnings:?}");
    }
}

#[test]
fn the_chart_starts() {
    let options = run("-addr=:9317 -cgroup-root-dir=/host-cgroup/ \
        -feature-gates=BECPUEvict=true,BEMemoryEvict=true,CgroupReconcile=true,Accelerators=true \
        -runtime-hooks-host-endpoint=/var/run/koordlet/koordlet.sock --logtostderr=true --v=4");
    assert_eq!(options.addr, Listen::Everywhere { port: 9317 });
    assert!(options.gates.is_on("CgroupReconcile"));
    assert_eq!(options.log.verbosity, 4);
}

/// koordlet-observe 1.1: what is wrong, and what the process ends with.
#[test]
fn complaints() {
    for (line, code, part) in [
        ("-no-such-flag", 2, "unknown flag"),
        (
            "-feature-gates=NoSuchGate=true",
            1,
            "Unable to setup feature-gates: unrecognized feature gate: NoSuchGate",
        ),
        ("-feature-gates=CPUBurst=maybe", 2, "maybe"),
        ("-collect-res-used-interval=-1s", 1, "not negative"),
        ("-audit-max-disk-space-mb=0", 1, "audit-max-disk-space-mb"),
        ("-gpu-ignored-xids=13,x", 1, "gpu-ignored-xids"),
        ("-addr=nowhere", 1, "an address"),
        ("word", 1, "takes no arguments"),
    ] {
        let (found, text) = complaint(line);
        assert_eq!(found, code, "{line}: {text}");
        assert!(text.contains(part), "{line}: {text}");
    }
    let nameless = read("", &[]).unwrap_err();
    assert_eq!(nameless.to_string(), "failed to new daemon: NODE_NAME env is empty");
    assert_eq!(nameless.exit_code(), 1);
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = TABLES.iter().copied().flatten().map(|flag| flag.name).collect();
    names.extend(LOG_FLAGS.iter().map(|flag| flag.name));
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// Switches, defaults and metrics that the manual lists are ours.
#[test]
fn the_manual_says_what_can_be_measured() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/koordlet.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let section = manual.split_once("## What can be measured besides\n").unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let defaults = Gates::defaults(Component::Koordlet);
    let mut shown = 0;
    for row in section.lines().filter(|line| line.starts_with("| gate `") || line.starts_with("| `--")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for word in row.split('`').skip(1).step_by(2) {
            if let Some(name) = word.strip_prefix("--") {
                let flag = TABLES.iter().flat_map(|table| table.iter()).find(|flag| flag.name == name);
                let flag = flag.unwrap_or_else(|| panic!("{word} is no flag"));
                // An interval stands right behind its default.
                let told = cells[3].split_once(word).map(|(before, _)| before.trim_end_matches("(`"));
                let default = flag.default.strip_suffix('s').map(|seconds| format!("{seconds} s "));
                assert!(told.zip(default).is_none_or(|(told, default)| told.ends_with(&default)), "{row}");
            } else if word.starts_with("koordlet_") {
                assert!(Metric::ALL.iter().any(|metric| metric.row().name == word), "{word} is no metric");
            }
            shown += 1;
        }
        if let Some(name) = cells[1].strip_prefix("gate `").and_then(|rest| rest.split('`').next()) {
            assert_eq!(defaults.iter().find(|(known, _)| *known == name), Some((name, false)));
            assert!(cells[2].starts_with("off"), "{row}");
        }
    }
    assert!(shown > 30, "only {shown} words");
}
