//! The tables of flags, with the original's names and defaults.

use koord_kit::flags::{Flag, Kind};

use Kind::{Bool, Duration, Float, Int, List, Map, Text};

/// Every table of koordlet, besides those that all components share.
pub const TABLES: &[&[Flag]] =
    &[SERVING, CLUSTER, HOST, KUBELET, COLLECT, STORE, AUDIT, PREDICTION, QOS, HOOKS, SECONDS, UNUSED];

const SERVING: &[Flag] = &[
    Flag::new("addr", Text, ":9316", "where to serve metrics, audit records and health").group("Serving"),
    Flag::new(
        "clean-up",
        Bool,
        "false",
        "give back everything that an earlier run changed on this node, and end",
    )
    .group("Serving"),
    Flag::new(
        "correct-resource-units",
        Bool,
        "false",
        "label requests and limits of containers with their own units, not the original's",
    )
    .group("Serving"),
];

const CLUSTER: &[Flag] = &[
    cluster(
        "kubeconfig",
        Text,
        "",
        "kubeconfig file; without one KUBECONFIG, then this pod's service account",
    ),
    cluster("kube-api-qps", Float, "20", "requests to the API server per second over time"),
    cluster("kube-api-burst", Int, "30", "requests to the API server at once after a quiet time"),
];

const fn cluster(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Cluster")
}

/// An empty directory is that of the agent's mode.
const HOST: &[Flag] = &[
    host("cgroup-root-dir", "", "where cgroups are mounted; by default as `agent_mode` says"),
    host("sys-root-dir", "", "where /sys of the host is mounted; by default as `agent_mode` says"),
    host("sys-fs-root-dir", "", "where /sys/fs of the host is mounted; by default as `agent_mode` says"),
    host("proc-root-dir", "", "where /proc of the host is mounted; by default as `agent_mode` says"),
    host("var-run-root-dir", "", "where /var/run of the host is mounted; by default as `agent_mode` says"),
    host("run-root-dir", "", "where /run of the host is mounted; by default as `agent_mode` says"),
    host("var-lib-kubelet-dir", "", "kubelet's directory; by default as `agent_mode` says"),
    host("containerd-endpoint", "", "containerd's socket; empty looks at the well-known places"),
    host("docker-endpoint", "", "docker's socket; empty looks at the well-known places"),
    host("pouch-endpoint", "", "pouch's socket; empty looks at the well-known places"),
    host(
        "xpu-device-infos-dir",
        "/var/run/koordlet/xpu-device-infos/",
        "where vendors describe their devices",
    ),
    host(
        "pod-resources-proxy-path",
        "/var/run/koordlet/pod-resources",
        "where monitors ask which pod has which devices; with the gate PodResourcesProxy",
    ),
];

const fn host(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, Text, default, help).group("Host")
}

const KUBELET: &[Flag] = &[
    kubelet(
        "kubelet-preferred-address-type",
        Text,
        "InternalIP",
        "which of the node's addresses kubelet is asked at",
    ),
    kubelet("kubelet-sync-interval", Duration, "10s", "how often pods are asked for; 0 for never"),
    kubelet("kubelet-sync-timeout", Duration, "3s", "how long kubelet may take to answer"),
    kubelet("kubelet-insecure-tls", Bool, "false", "ask kubelet's read-only port, without TLS"),
    kubelet("kubelet-read-only-port", Int, "10255", "kubelet's read-only port"),
    kubelet("kubelet-ca-file", Text, "", "certificate authority of kubelet's certificate; empty trusts any"),
    kubelet(
        "kubelet-client-certificate",
        Text,
        "",
        "certificate to show to kubelet; empty shows the API client's credentials",
    ),
    kubelet("kubelet-client-key", Text, "", "key of that certificate"),
    kubelet(
        "node-topology-sync-interval",
        Duration,
        "3s",
        "how often topology and devices are looked at; 0 for never",
    ),
    kubelet("disable-query-kubelet-config", Bool, "false", "do not ask kubelet for its configuration"),
    kubelet("enable-node-metric-report", Bool, "true", "report NodeMetric"),
    kubelet("enable-pod-taskids", Bool, "false", "keep the thread ids of containers"),
    kubelet(
        "xpu-enforce-collect-from-device-infos",
        Bool,
        "false",
        "take devices only from what vendors describe",
    ),
    kubelet(
        "gpu-ignored-xids",
        List,
        "13,31,43,45,68,109",
        "numbers of XID errors that do not make a GPU unhealthy: those of applications",
    ),
];

const fn kubelet(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Kubelet and reports")
}

const COLLECT: &[Flag] = &[
    collect(
        "collect-res-used-interval",
        Duration,
        "1s",
        "how often use is measured; less than 1s switches it off",
    ),
    collect(
        "collect-sys-metric-outdated-interval",
        Duration,
        "10s",
        "how old what the system's use is made of may be",
    ),
    collect("collect-node-cpu-info-interval", Duration, "60s", "how often CPUs and NUMA nodes are looked at"),
    collect("collect-node-storage-info-interval", Duration, "1s", "how often disks are looked at"),
    collect("cpi-collector-interval", Duration, "60s", "how often cycles per instruction are measured"),
    collect("collect-cpi-timewindow", Duration, "10s", "for how long they are measured"),
    collect("psi-collector-interval", Duration, "10s", "how often pressure is measured"),
    collect("coldpage-collector-interval", Duration, "5s", "how often cold memory is measured"),
    collect(
        "resctrl-collector-interval",
        Duration,
        "10s",
        "how often use of caches and bandwidth is measured",
    ),
    collect("enable-pagecache-collector", Bool, "false", "measure memory with page cache"),
    collect(
        "enable-resctrl-collector",
        Bool,
        "false",
        "measure use of caches and bandwidth; the gate must be on too",
    ),
];

const fn collect(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Measuring")
}

const STORE: &[Flag] = &[
    store("tsdb-path", Text, "/metric-data/", "where measurements are kept over a restart"),
    store("tsdb-retention-duration", Duration, "12h", "how long measurements are kept"),
    store("tsdb-max-bytes", Int, "104857600", "how much room measurements may take"),
    store("tsdb-enable-prometheus-metric", Bool, "true", "show metrics of the store"),
];

const fn store(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Store")
}

const AUDIT: &[Flag] = &[
    audit("audit-log-dir", Text, "/var/log/koordlet", "where audit records are written"),
    audit("audit-verbose", Int, "3", "records above this level are left out; 0 keeps all"),
    audit("audit-max-disk-space-mb", Int, "16", "how much room they may take, in MiB"),
    audit("audit-max-concurrent-readers", Int, "4", "how many queries may be open"),
    audit("audit-max-events-limit", Int, "2048", "how many records one answer may have"),
];

const fn audit(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Audit")
}

const PREDICTION: &[Flag] = &[
    predict(
        "prediction-checkpoint-filepath",
        Text,
        "/prediction-checkpoints",
        "where models are kept over a restart",
    ),
    predict(
        "prediction-cold-start-duration",
        Duration,
        "24h",
        "how old a pod must be for its model to count",
    ),
    predict("prediction-safety-margin-percent", Int, "10", "what is added to a prediction"),
    predict(
        "prediction-memory-histogram-decay-halflife",
        Duration,
        "24h",
        "after how long memory samples count half",
    ),
    predict(
        "prediction-cpu-histogram-decay-halflife",
        Duration,
        "12h",
        "after how long CPU samples count half",
    ),
    predict("prediction-training-interval", Duration, "1m", "how often models learn, and from how much"),
    predict(
        "prediction-model-expiration-duration",
        Duration,
        "30m",
        "when a model that learns nothing is dropped",
    ),
    predict("prediction-model-checkpoint-interval", Duration, "10m", "how often a model is saved"),
    predict("prediction-model-checkpoint-max-per-step", Int, "12", "how many models are saved at once"),
];

const fn predict(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Prediction")
}

const QOS: &[Flag] = &[
    qos("reconcile-interval-seconds", Int, "1", "how often strategies look at the node"),
    qos("cpu-suppress-interval-seconds", Int, "1", "how often best-effort pods are suppressed"),
    qos("cpu-evict-interval-seconds", Int, "1", "how often CPU is looked at for evictions"),
    qos("memory-evict-interval-seconds", Int, "1", "how often memory is looked at for evictions"),
    qos("cpu-evict-cool-time-seconds", Int, "20", "how long no pod is evicted for CPU after one was"),
    qos("memory-evict-cool-time-seconds", Int, "4", "how long no pod is evicted for memory after one was"),
    qos("only-evict-by-api", Bool, "false", "evict through the API server instead of killing containers"),
    qos("resource-force-update-seconds", Int, "60", "how long a written value is taken to be there still"),
    qos(
        "pod-events-per-hour",
        Int,
        "120",
        "events that tell pods of this node what was done to them, at most; 0 for none",
    ),
];

const fn qos(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Strategies")
}

const HOOKS: &[Flag] = &[
    hooks("runtime-hooks-reconcile-interval", Duration, "10s", "how often groups of classes are looked at"),
    hooks("disable-unset-cpu-quota", Bool, "false", "leave the quota of pinned pods alone"),
    hooks("runtime-hooks-network", Text, "unix", "how the runtime proxy asks hooks: unix"),
    hooks(
        "runtime-hooks-addr",
        Text,
        "/host-var-run-koordlet/koordlet.sock",
        "the socket at which the runtime proxy asks hooks",
    ),
    hooks(
        "runtime-hooks-host-endpoint",
        Text,
        "/var/run/koordlet/koordlet.sock",
        "the same socket, as the host sees it",
    ),
    hooks(
        "runtime-hooks-config-path",
        Text,
        "",
        "the runtime proxy's folder of hook servers [default: by mode, as directories above]",
    ),
    hooks(
        "runtime-hooks-failure-policy",
        Text,
        "Ignore",
        "whether pods start while koordlet does not answer the runtime proxy: Ignore or Fail",
    ),
    hooks(
        "runtime-hooks-plugin-failure-policy",
        Text,
        "Ignore",
        "whether pods start although a hook fails: Ignore or Fail",
    ),
    hooks("runtime-hooks-disable-stages", List, "", "stages that the runtime proxy is not to ask at"),
    hooks(
        "hami-core-library-directory-path",
        Text,
        "/usr/local/vgpu/libvgpu.so",
        "the library that keeps parts of GPUs apart",
    ),
];

const fn hooks(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Hooks")
}

/// Spellings of earlier releases that the manual still shows: whole seconds. The flag that each stands for.
pub(super) const OLD_SECONDS: [(&str, &str); 8] = [
    ("cpi-collector-interval-seconds", "cpi-collector-interval"),
    ("collect-cpi-timewindow-seconds", "collect-cpi-timewindow"),
    ("psi-collector-interval-seconds", "psi-collector-interval"),
    ("collect-res-used-interval-seconds", "collect-res-used-interval"),
    ("collect-node-cpu-info-interval-seconds", "collect-node-cpu-info-interval"),
    ("collect-node-storage-info-interval-seconds", "collect-node-storage-info-interval"),
    ("kubelet-sync-interval-seconds", "kubelet-sync-interval"),
    ("kubelet-sync-timeout-seconds", "kubelet-sync-timeout"),
];

const SECONDS: &[Flag] = &[
    seconds("cpi-collector-interval-seconds", "use --cpi-collector-interval"),
    seconds("collect-cpi-timewindow-seconds", "use --collect-cpi-timewindow"),
    seconds("psi-collector-interval-seconds", "use --psi-collector-interval"),
    seconds("collect-res-used-interval-seconds", "use --collect-res-used-interval"),
    seconds("collect-node-cpu-info-interval-seconds", "use --collect-node-cpu-info-interval"),
    seconds("collect-node-storage-info-interval-seconds", "use --collect-node-storage-info-interval"),
    seconds("kubelet-sync-interval-seconds", "use --kubelet-sync-interval"),
    seconds("kubelet-sync-timeout-seconds", "use --kubelet-sync-timeout"),
];

const fn seconds(name: &'static str, instead: &'static str) -> Flag {
    Flag::new(name, Int, "0", "whole seconds").group("Spellings of earlier releases").deprecated(instead)
}

/// Differs: upstream serves Go's profiles with the first two.
const UNUSED: &[Flag] = &[
    unused("enable-pprof", Bool, "false", "this is no Go program"),
    unused("pprof-addr", Text, ":9317", "this is no Go program"),
    unused("configmap-name", Text, "koordlet-config", "strategies come with the NodeSLO"),
    unused("configmap-namespace", Text, "koordinator-system", "strategies come with the NodeSLO"),
    unused("report-interval", Duration, "0s", "the NodeMetric says how often it is reported"),
    unused("report-interval-seconds", Int, "0", "the NodeMetric says how often it is reported"),
    unused("metric-gc-interval-seconds", Int, "300", "measurements leave as --tsdb-retention-duration says"),
    unused("metric-expire-seconds", Int, "1800", "measurements leave as --tsdb-retention-duration says"),
    unused("tsdb-stripe-size", Int, "16384", "the store has no stripes"),
    unused("tsdb-wal-segment-size", Int, "1048576", "the store has no segments"),
    unused("tsdb-max-block-chunk-segment-size", Int, "5242880", "the store has no blocks"),
    unused("tsdb-min-block-duration", Duration, "10m", "the store has no blocks"),
    unused("tsdb-max-block-duration", Duration, "10m", "the store has no blocks"),
    unused("tsdb-head-chunks-write-buffer-size", Int, "1048576", "the store has no write buffer"),
    unused(
        "default-runtime-type",
        Text,
        "containerd",
        "every container id that kubelet tells names its runtime",
    ),
    unused("qos-extension-plugins", Map, "", "there are no plugins of others"),
    unused("enable-nri-runtime-hook", Bool, "true", TRANSPORT),
    unused("runtime-hooks-nri-socket-path", Text, "nri/nri.sock", TRANSPORT),
    unused("runtime-hooks-nri-plugin-name", Text, "koordlet_nri", TRANSPORT),
    unused("runtime-hooks-nri-plugin-index", Text, "00", TRANSPORT),
    unused("runtime-hooks-nri-connect-timeout", Duration, "6s", TRANSPORT),
    unused("runtime-hooks-nri-backoff-duration", Duration, "1s", TRANSPORT),
    unused("runtime-hooks-nri-backoff-cap", Duration, "1281023h53m38.427387903s", TRANSPORT),
    unused("runtime-hooks-nri-backoff-steps", Int, "2147483647", TRANSPORT),
    unused("runtime-hooks-nri-backoff-factor", Float, "2", TRANSPORT),
];

const TRANSPORT: &str = "hooks run by proxy and by reconciling, until the NRI transport is there";

const fn unused(name: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Flag {
    Flag::new(name, kind, default, "").ignored(why)
}
