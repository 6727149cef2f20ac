//! The tables of flags, with the original's names and defaults.

use koord_kit::flags::{Flag, Kind};

use Kind::{Bool, Duration, Float, Int, List, Text};

/// Every table of koord-manager, besides those that all components share.
pub const TABLES: &[&[Flag]] = &[SERVING, CLUSTER, ELECTION, CONTROLLERS, PROFILES, WEBHOOKS, UNUSED];

const SERVING: &[Flag] = &[
    serving("metrics-addr", ":8080", "where to serve metrics; 0 for nowhere"),
    serving("health-probe-addr", ":8000", "where to serve /healthz and /readyz; 0 for nowhere"),
];

const fn serving(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, Text, default, help).group("Serving")
}

const CLUSTER: &[Flag] = &[
    cluster(
        "kubeconfig",
        Text,
        "",
        "kubeconfig file; without one KUBECONFIG, then this pod's service account",
    ),
    cluster("namespace", Text, "", "read only this namespace; empty for all"),
    cluster("sync-period", Text, "", "how often everything is looked at again; empty for 10h, 0 for never"),
    cluster("rest-config-qps", Int, "30", "requests to the API server per second over time"),
    cluster("rest-config-burst", Int, "50", "requests to the API server at once after a quiet time"),
];

const fn cluster(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Cluster")
}

const ELECTION: &[Flag] = &[
    election("enable-leader-election", Bool, "true", "controllers run on one replica only"),
    election(
        "leader-election-namespace",
        Text,
        "koordinator-system",
        "where the lease lies; empty for this pod's namespace",
    ),
    election("leader-elect-resource-lock", Kind::OneOf(&["leases"]), "leases", "the kind of lock"),
];

const fn election(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Leader election")
}

const CONTROLLERS: &[Flag] = &[
    controllers(
        "controllers",
        List,
        "colocationprofile,nodemetric,noderesource,nodeslo,quotaprofile",
        "which controllers run: * for all, -name for all but one",
    ),
    controllers(
        "noderesource-plugins",
        List,
        "MidResource,BatchResource,CPUNormalization,ResourceAmplification,GPUDeviceResource,RDMADeviceResource",
        "which plugins of noderesource run, in the same way",
    ),
    controllers("slo-config-name", Text, "slo-controller-config", "the ConfigMap with the strategies"),
    controllers("config-namespace", Text, "koordinator-system", "where that ConfigMap lies"),
    controllers(
        "node-strategy-name-need-check",
        Text,
        "false",
        "whether entries for nodes in that ConfigMap must have names, each its own",
    ),
];

const fn controllers(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Controllers")
}

const PROFILES: &[Flag] = &[
    profile(
        "colocation-profile-reconcile-by-default",
        Bool,
        "false",
        "change pending pods also for profiles that do not say so",
    ),
    profile(
        "colocation-profile-reconcile-interval",
        Duration,
        "30s",
        "how often a profile's pods are looked at",
    ),
    profile(
        "colocation-profile-force-update-pod-duration",
        Duration,
        "5m",
        "a pod is changed again after this long",
    ),
    profile("colocation-profile-update-pod-qps", Float, "10", "changes of pods per second over time"),
    profile(
        "colocation-profile-update-pod-qps-burst",
        Int,
        "100",
        "changes of pods at once after a quiet time",
    ),
];

const fn profile(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Colocation profiles")
}

const WEBHOOKS: &[Flag] = &[
    webhook(
        "pod-enhanced-validator-config-namespace",
        Text,
        "koordinator-system",
        "where the ConfigMap of the enhanced validator lies",
    ),
    webhook(
        "pod-enhanced-validator-config-name",
        Text,
        "pod-enhanced-validator-config",
        "the ConfigMap of the enhanced validator",
    ),
    webhook("pod-enhanced-validator-reconcile-interval", Duration, "5m", "how often it is read"),
    webhook(
        "quota-update-max-retries",
        Int,
        "3",
        "how often a quota's usage is written before the pod is refused",
    ),
    webhook("quota-update-retry-jitter", Duration, "0s", "the longest wait before such a retry"),
    webhook("quota-update-max-total-jitter", Duration, "1s", "the longest wait for all retries together"),
    webhook(
        "quota-update-conflict-fresh-get",
        Bool,
        "false",
        "after a conflict read the quota from the API server",
    ),
    webhook("binding-admission-user-name", Text, "", "who alone may bind pods; empty for anyone"),
    webhook("binding-admission-dry-run", Bool, "false", "only log what would be refused"),
    webhook(
        "binding-admission-namespaces",
        Text,
        "",
        "where bindings are checked: a list, or * for everywhere",
    ),
    webhook("binding-admission-exclude-namespaces", Text, "kube-system", "where they are not"),
    webhook(
        "binding-admission-bypass-labels",
        Text,
        koord_api::keys::pod::label::BINDING_ADMISSION_BYPASS,
        "pods with one of these labels are not checked",
    ),
    webhook(
        "binding-admission-bypass-annotations",
        Text,
        "",
        "pods with one of these annotations are not checked",
    ),
];

const fn webhook(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag::new(name, kind, default, help).group("Webhooks")
}

/// Differs: nothing is served at `--pprof-addr`, for there is no Go runtime.
const UNUSED: &[Flag] = &[
    unused("enable-pprof", Bool, "true", "there is no Go runtime to profile"),
    unused("pprof-addr", Text, ":8090", "there is no Go runtime to profile"),
    unused("disable-no-deepcopy", Bool, "false", "objects are never copied here"),
    unused(
        "colocation-profile-expire-pod-cache-duration",
        Duration,
        "10m",
        "what no longer counts is forgotten in every round",
    ),
];

const fn unused(name: &'static str, kind: Kind, default: &'static str, why: &'static str) -> Flag {
    Flag::new(name, kind, default, "").ignored(why)
}
