//! What the files of the node hold, and what its pods look like.

use serde_json::{Value, json};

use super::{Cgroup, Shape};

/// Counters begin here, which leaves room to grow without another digit.
pub(super) const BASE: u64 = 100_000_000_000_000;
pub(super) const CPUS: usize = 104;
pub(super) const NUMA_NODES: usize = 2;
/// The hierarchies of v1.
pub(super) const CONTROLLERS: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];
pub(super) const MEMINFO: &str =
    "MemTotal: 400000000 kB\nMemFree: 100000000 kB\nMemAvailable: 200000000 kB\n";

/// What a group may use; the default is everything.
#[derive(Clone, Copy, Default)]
pub(super) struct Limits {
    cpu_milli: Option<u64>,
    memory: Option<u64>,
}

impl Limits {
    /// Those of one container.
    pub(super) fn of(is_best_effort: bool) -> Limits {
        if is_best_effort {
            return Limits { cpu_milli: Some(500), memory: Some(512 << 20) };
        }
        Limits { cpu_milli: Some(2000), memory: Some(1 << 30) }
    }

    pub(super) fn times(self, count: usize) -> Limits {
        let count = u64::try_from(count).unwrap_or(1);
        Limits {
            cpu_milli: self.cpu_milli.map(|milli| milli * count),
            memory: self.memory.map(|bytes| bytes * count),
        }
    }

    /// Microseconds of every 100 ms.
    fn quota(self) -> Option<u64> {
        self.cpu_milli.map(|milli| milli * 100)
    }
}

/// The path of a group's file below the node.
pub(super) fn file(cgroup: Cgroup, dir: &str, controller: &str, name: &str) -> String {
    match cgroup {
        Cgroup::V1 => format!("sys/fs/cgroup/{controller}/{dir}/{name}"),
        Cgroup::V2 => format!("sys/fs/cgroup/{dir}/{name}"),
    }
}

/// Controller, name and content of the files of one group.
pub(super) fn group(cgroup: Cgroup, limits: &Limits) -> Vec<(&'static str, &'static str, String)> {
    let own = |text: &str| text.to_owned();
    let throttling = "nr_periods 1000\nnr_throttled 10\n";
    let cpus = format!("0-{}\n", CPUS - 1);
    match cgroup {
        Cgroup::V1 => {
            let quota = limits.quota().map_or_else(|| own("-1\n"), |quota| format!("{quota}\n"));
            let memory = limits.memory.unwrap_or(9_223_372_036_854_771_712);
            vec![
                ("cpuacct", "cpuacct.usage", format!("{BASE}\n")),
                ("cpu", "cpu.stat", format!("{throttling}throttled_time 5000\n")),
                ("memory", "memory.stat", memory_v1()),
                ("cpu", "cpu.cfs_quota_us", quota),
                ("cpu", "cpu.cfs_period_us", own("100000\n")),
                ("cpu", "cpu.cfs_burst_us", own("0\n")),
                ("cpu", "cpu.shares", own("1024\n")),
                ("cpu", "cpu.bvt_warp_ns", own("0\n")),
                ("cpu", "cgroup.procs", String::new()),
                ("cpuset", "cpuset.cpus", cpus),
                ("memory", "memory.limit_in_bytes", format!("{memory}\n")),
            ]
        }
        Cgroup::V2 => {
            let quota = limits.quota().map_or_else(|| own("max"), |quota| quota.to_string());
            let memory = limits.memory.map_or_else(|| own("max"), |bytes| bytes.to_string());
            let usage =
                format!("usage_usec {BASE}\nuser_usec 5\nsystem_usec 5\n{throttling}throttled_usec 5\n");
            vec![
                ("", "cpu.stat", usage),
                ("", "memory.stat", memory_v2()),
                ("", "cpu.max", format!("{quota} 100000\n")),
                ("", "cpu.max.burst", own("0\n")),
                ("", "cpu.weight", own("39\n")),
                ("", "cpu.bvt_warp_ns", own("0\n")),
                ("", "cgroup.procs", String::new()),
                ("", "cpuset.cpus", own("\n")),
                ("", "cpuset.cpus.effective", cpus),
                ("", "memory.max", format!("{memory}\n")),
            ]
        }
    }
}

pub(super) fn numa_stat(cgroup: Cgroup) -> &'static str {
    match cgroup {
        Cgroup::V1 => "total=30000 N0=10000 N1=20000\nfile=0 N0=0 N1=0\n",
        Cgroup::V2 => "anon N0=40960000 N1=81920000\nfile N0=0 N1=0\n",
    }
}

pub(super) fn proc_stat() -> String {
    let cpus: String = (0..CPUS).map(|cpu| format!("cpu{cpu} {BASE} 0 0 5 5 0 0 0 0 0\n")).collect();
    format!("cpu  {BASE} 0 0 5 5 0 0 0 0 0\n{cpus}intr 5\n")
}

pub(super) fn cpuinfo() -> String {
    (0..CPUS)
        .map(|cpu| {
            format!("processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu\n\n")
        })
        .collect()
}

/// Both threads of half of the cores.
pub(super) fn cpus_of_node(node: usize) -> String {
    let (quarter, half) = (CPUS / 4, CPUS / 2);
    let first = node * quarter;
    format!("{first}-{},{}-{}\n", first + quarter - 1, first + half, first + half + quarter - 1)
}

pub(super) fn numa_meminfo(node: usize) -> String {
    format!("Node {node} MemTotal: 200000000 kB\nNode {node} MemFree: 50000000 kB\n")
}

/// A pod as kubelet tells it, with as much around what is read as a usual pod has.
pub(super) fn object(shape: &Shape) -> Value {
    let (kube, priority) = if shape.is_best_effort { ("BestEffort", 5500) } else { ("Burstable", 9500) };
    let name = format!("p{:08}", shape.number);
    let started = json!("2025-03-01T08:00:04Z");
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": started}));
    let indexes = 0..shape.containers;
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": shape.uid(), "resourceVersion": "77",
            "creationTimestamp": "2025-03-01T08:00:00Z",
            "labels": {"app.kubernetes.io/name": "web", "pod-template-hash": "6d4cf56db6"},
            "annotations": {"kubernetes.io/config.seen": "2025-03-01T08:00:00.1Z", "kubernetes.io/config.source": "api"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4cf56db6",
                "uid": "77aa4bbb-0000-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "nodeName": "n1", "schedulerName": "koord-scheduler", "priority": priority, "restartPolicy": "Always",
            "serviceAccountName": "default", "terminationGracePeriodSeconds": 30, "securityContext": {},
            "containers": indexes.clone().map(|at| container(at, shape.is_best_effort)).collect::<Vec<_>>(),
            "volumes": [{"name": "config", "configMap": {"name": "web-config", "defaultMode": 420}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "qosClass": kube, "startTime": started, "podIP": "10.0.0.7",
            "conditions": conditions,
            "containerStatuses": indexes.map(|at| json!({
                "name": format!("c{at}"), "containerID": format!("containerd://{}", shape.container_id(at)),
                "image": "example/web:v1", "imageID": format!("example/web@sha256:{:064}", 42),
                "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": started}},
            })).collect::<Vec<_>>(),
        },
    })
}

fn container(at: usize, is_best_effort: bool) -> Value {
    let amounts = if is_best_effort {
        let both = json!({"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "512Mi"});
        json!({"requests": both, "limits": both})
    } else {
        json!({"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}})
    };
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10,
        "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3});
    json!({
        "name": format!("c{at}"), "image": "example/web:v1", "imagePullPolicy": "IfNotPresent",
        "args": ["--config=/etc/config/app.yaml", "--v=2"], "resources": amounts,
        "env": [{"name": "APP", "value": "web"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "livenessProbe": probe, "readinessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}

/// As long as a real one.
fn memory_v1() -> String {
    let keys = "cache rss rss_huge shmem mapped_file dirty writeback swap pgpgin pgpgout pgfault pgmajfault \
                inactive_anon active_anon inactive_file active_file unevictable";
    let own: String = keys.split_whitespace().map(|key| format!("{key} 40960000\n")).collect();
    let total: String = keys.split_whitespace().map(|key| format!("total_{key} 40960000\n")).collect();
    format!("{own}hierarchical_memory_limit 9223372036854771712\n{total}")
}

fn memory_v2() -> String {
    let keys = "anon file kernel kernel_stack pagetables sec_pagetables percpu sock vmalloc shmem zswap zswapped \
                file_mapped file_dirty file_writeback swapcached anon_thp file_thp shmem_thp inactive_anon \
                active_anon inactive_file active_file unevictable slab_reclaimable slab_unreclaimable slab \
                workingset_refault_anon workingset_refault_file workingset_activate_anon workingset_activate_file \
                workingset_restore_anon workingset_restore_file workingset_nodereclaim pgscan pgsteal pgscan_kswapd \
                pgscan_direct pgsteal_kswapd pgsteal_direct pgfault pgmajfault pgrefill pgactivate pgdeactivate \
                pglazyfree pglazyfreed thp_fault_alloc thp_collapse_alloc";
    keys.split_whitespace().map(|key| format!("{key} 40960000\n")).collect()
}
