//! Flags and variables with their defaults, and what is said about wrong ones.

use super::*;

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
    assert!(!options.clean_up);
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
