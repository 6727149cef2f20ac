//! The tables of flags, with kube-scheduler's and Koordinator's names and defaults.

use super::{Flag, Kind};

/// Every table of koord-scheduler, besides those that all components share.
pub const TABLES: &[&[Flag]] = &[MISC, SERVING, AUTHENTICATION, AUTHORIZATION, ELECTION, EXTEND, OLD, UNUSED];

/// Older flags that count only without a configuration file.
pub(super) const WITHOUT_FILE: &[&str] =
    &["profiling", "contention-profiling", "kube-api-content-type", "kube-api-qps", "kube-api-burst"];

use Kind::{Bool, Duration, Float, Int, List, Text};

const MISC: &[Flag] = &[
    misc("config", "configuration file; without one the profile that Koordinator ships"),
    misc("write-config-to", "write the effective configuration to this file and exit"),
    misc("master", "address of the API server, in place of the kubeconfig's"),
    misc("kubeconfig", "kubeconfig file, in place of the configuration's"),
];

const fn misc(name: &'static str, help: &'static str) -> Flag {
    Flag::new(name, Text, "", help).group("Files and cluster")
}

const SERVING: &[Flag] = &[
    serving("address", Text, "0.0.0.0", "where to serve plain HTTP"),
    serving("port", Int, "10251", "port of plain HTTP, without authentication; 0 for none"),
    serving("bind-address", Text, "0.0.0.0", "where to serve HTTPS"),
    serving("secure-port", Int, "10259", "port of HTTPS; 0 for none"),
    serving("cert-dir", Text, "", "folder with the server's certificate and key"),
    serving("tls-cert-file", Text, "", "the server's certificate; made in memory when none is given"),
    serving("tls-private-key-file", Text, "", "the server's key"),
];

const fn serving(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Serving")
}

const AUTHENTICATION: &[Flag] = &[
    access("authentication-kubeconfig", Text, "", "kubeconfig that may create token reviews"),
    access("authentication-skip-lookup", Bool, "false", "do not look for the cluster's own settings"),
    access(
        "authentication-tolerate-lookup-failure",
        Bool,
        "true",
        "start without the cluster's own settings",
    ),
    access(
        "authentication-token-webhook-cache-ttl",
        Duration,
        "10s",
        "how long a token review is remembered",
    ),
    access("client-ca-file", Text, "", "whose client certificates are accepted"),
    access("requestheader-client-ca-file", Text, "", "whose proxies may say in headers for whom they ask"),
    access("requestheader-allowed-names", List, "", "common names of such proxies; any when none is given"),
    access("requestheader-username-headers", List, "x-remote-user", "headers that name the user"),
    access("requestheader-uid-headers", List, "", "headers that have the user's uid"),
    access("requestheader-group-headers", List, "x-remote-group", "headers that name groups"),
    access("requestheader-extra-headers-prefix", List, "x-remote-extra-", "how headers begin that say more"),
];

const AUTHORIZATION: &[Flag] = &[
    access("authorization-kubeconfig", Text, "", "kubeconfig that may create access reviews"),
    access(
        "authorization-always-allow-paths",
        List,
        "/healthz,/readyz,/livez",
        "paths that anyone may ask for",
    ),
    access("authorization-webhook-cache-authorized-ttl", Duration, "10s", "how long a yes is remembered"),
    access("authorization-webhook-cache-unauthorized-ttl", Duration, "10s", "how long a no is remembered"),
];

const fn access(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Access")
}

/// They take the place of the file's fields, and only when they are given.
const ELECTION: &[Flag] = &[
    election("leader-elect", Bool, "true", "act only while holding the lease"),
    election("leader-elect-lease-duration", Duration, "15s", "how long others wait for a silent leader"),
    election("leader-elect-renew-deadline", Duration, "10s", "how long a leader tries to renew"),
    election("leader-elect-retry-period", Duration, "2s", "how long to wait between tries"),
    election("leader-elect-resource-lock", Text, "leases", "only leases"),
    election("leader-elect-resource-name", Text, "kube-scheduler", "name of the lease"),
    election("leader-elect-resource-namespace", Text, "kube-system", "namespace of the lease"),
];

const fn election(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Leader election (instead of what the file says)")
}

const EXTEND: &[Flag] = &[
    extend("debug-scores", Int, "0", "log the scores of this many best nodes; 0 is off").short('s'),
    extend("debug-filters", Bool, "false", "log why nodes are refused").short('f'),
    extend("debug-diagnosis", Bool, "false", "log the diagnosis of unschedulable pods").short('d'),
    extend("debug-diagnosis-blocking", Bool, "false", "wait for the diagnosis to be logged"),
    extend("debug-diagnosis-queue-size", Int, "1000", "diagnoses waiting to be logged"),
    extend("debug-diagnosis-worker-count", Int, "10", "how many log diagnoses"),
    extend(
        "controller-plugins",
        List,
        "*",
        "plugins whose controllers run: * for all, name to switch on, -name to switch off",
    ),
    extend("scheduler-monitor-period", Duration, "10s", "how often slow cycles are looked for"),
    extend("scheduling-timeout", Duration, "30s", "a cycle longer than this is complained about"),
    extend("scheduling-drop-unhandled-timeout", Duration, "5s", "when a cycle that never began is forgotten"),
    extend("sync-barrier-pod-namespace", Text, "kube-system", "namespace of the pod that new leaders mark"),
    extend(
        "sync-barrier-pod-name",
        Text,
        "koord-scheduler-sync-barrier",
        "name of the pod that new leaders mark",
    ),
    extend("record", Text, "", "write everything that decisions depend on to this file, for `koord replay`"),
    extend("record-limit", Text, "256Mi", "how large that file may become; what is older is folded"),
    extend("sync-hard-timeout", Duration, "1m", "how long a new leader waits for its mark"),
];

const fn extend(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Koordinator")
}

const OLD: &[Flag] = &[
    old(
        "pod-max-in-unschedulable-pods-duration",
        Duration,
        "5m",
        "how long a pod may stay unschedulable before it is tried again",
    ),
    old("profiling", Bool, "true", "serve profiles").deprecated("use enableProfiling of the configuration"),
    old("contention-profiling", Bool, "true", "serve contention profiles")
        .deprecated("use enableContentionProfiling of the configuration"),
    old("kube-api-content-type", Text, "application/vnd.kubernetes.protobuf", "how objects are sent")
        .deprecated("use clientConnection of the configuration"),
    old("kube-api-qps", Float, "50", "requests per second")
        .deprecated("use clientConnection of the configuration"),
    old("kube-api-burst", Int, "100", "requests at once")
        .deprecated("use clientConnection of the configuration"),
];

const fn old(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Older flags")
}

/// Flags of kube-scheduler and koord-scheduler that change nothing here, so that old manifests start.
const UNUSED: &[Flag] = &[
    unused("disable-http2-serving", Bool, "false"),
    unused("http2-max-streams-per-connection", Int, "0"),
    unused("permit-address-sharing", Bool, "false"),
    unused("permit-port-sharing", Bool, "false"),
    unused("tls-cipher-suites", List, ""),
    unused("tls-min-version", Text, ""),
    unused("tls-sni-cert-key", List, ""),
    unused("emulated-version", List, ""),
    unused("min-compatibility-version", List, ""),
    unused("allow-metric-labels", Text, ""),
    unused("allow-metric-labels-manifest", Text, ""),
    unused("disabled-metrics", List, ""),
    unused("show-hidden-metrics-for-version", Text, ""),
    unused("log-json-info-buffer-size", Text, ""),
    unused("log-json-split-stream", Bool, "false"),
    unused("log-text-info-buffer-size", Text, ""),
    unused("log-text-split-stream", Bool, "false"),
    unused("enable-network-topology-manager", Bool, "false"),
    unused("enable-workload-auditor", Bool, "false"),
    unused("workload-auditor-metric-labels", Text, ""),
    unused("workload-auditor-victim-reschedule-duration", Duration, "0s"),
    unused("workload-auditor-victim-deletion-duration", Duration, "0s"),
    unused("workload-auditor-victim-deleting-retries", Int, "0"),
    unused("workload-auditor-scheduling-event-interval", Duration, "0s"),
];

const fn unused(name: &'static str, kind: Kind, default: &'static str) -> Flag {
    Flag::new(name, kind, default, "").ignored("there is nothing to set here")
}
