//! A node of plain files, its objects, and a kubelet.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use koord_api::cpuset::CpuSet;
use koord_api::crd::node_slo::NodeSLO;
use koord_kit::http::{Router, json, serve};
use koord_sandbox::cluster::{Cluster, Options as ClusterOptions};
use koordlet::flags::{self, Options, Request};
use koordlet::run::Running;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) const NODE: &str = "rig";
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A node on disk: eight CPUs, a service and a best-effort pod, cgroup v1.
pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    pub(crate) fn new() -> Result<Tree> {
        let tree = Tree(tempfile::tempdir()?);
        tree.put("proc/stat", "cpu  1000 0 1000 90000 0 0 0 0 0 0\n")?;
        tree.put("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 12000000 kB\nMemAvailable: 14000000 kB\n")?;
        tree.put(
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Test CPU\nflags\t\t: fpu\n",
        )?;
        tree.put("sys/devices/system/cpu/online", "0-7\n")?;
        for cpu in 0..8 {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            tree.put(&format!("{dir}/topology/physical_package_id"), "0\n")?;
            tree.put(&format!("{dir}/topology/core_id"), &format!("{}\n", cpu / 2))?;
        }
        tree.put("sys/devices/system/node/node0/cpulist", "0-7\n")?;
        tree.put(
            "sys/bus/node/devices/node0/meminfo",
            "Node 0 MemTotal: 16777216 kB\nNode 0 MemFree: 12000000 kB\n",
        )?;
        for group in [
            "",
            "/burstable",
            "/burstable/podweb",
            "/burstable/podweb/1a",
            "/burstable/podweb/5a",
            "/besteffort",
            "/besteffort/podbatch",
            "/besteffort/podbatch/2b",
            "/besteffort/podbatch/6b",
        ] {
            tree.group(&format!("kubepods{group}"))?;
        }
        Ok(tree)
    }

    pub(crate) fn group(&self, group: &str) -> Result<()> {
        let memory: String =
            ["cache", "rss", "inactive_file", "active_file", "inactive_anon", "active_anon", "unevictable"]
                .iter()
                .map(|key| format!("total_{key} 40960000\n"))
                .collect();
        for (file, content) in [
            ("cpuacct/GROUP/cpuacct.usage", "1000000\n"),
            ("cpu/GROUP/cpu.stat", "nr_periods 10\nnr_throttled 0\nthrottled_time 0\n"),
            ("cpu/GROUP/cpu.shares", "1024\n"),
            ("cpu/GROUP/cpu.cfs_quota_us", "-1\n"),
            ("cpu/GROUP/cpu.cfs_period_us", "100000\n"),
            ("cpuset/GROUP/cpuset.cpus", "0-7\n"),
            ("memory/GROUP/memory.stat", &memory),
            ("memory/GROUP/memory.numa_stat", "total=10 N0=10\n"),
            ("memory/GROUP/memory.limit_in_bytes", "9223372036854771712\n"),
        ] {
            self.put(&format!("sys/fs/cgroup/{}", file.replace("GROUP", group)), content)?;
        }
        Ok(())
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    pub(crate) fn put(&self, file: &str, content: &str) -> Result<()> {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        Ok(std::fs::write(path, content)?)
    }

    pub(crate) fn get(&self, file: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.path(file))?.trim().to_owned())
    }

    pub(crate) fn best_effort_cpus(&self, group: &str) -> Result<usize> {
        let cpus: CpuSet =
            self.get(&format!("sys/fs/cgroup/cpuset/kubepods/besteffort{group}/cpuset.cpus"))?.parse()?;
        Ok(cpus.len())
    }

    pub(crate) fn options(&self, kubelet: u16, more: &str) -> Result<Options> {
        let dir = self.0.path().display();
        let line = format!(
            "-addr=127.0.0.1:0 -cgroup-root-dir={dir}/sys/fs/cgroup -proc-root-dir={dir}/proc -sys-root-dir={dir}/sys \
             -sys-fs-root-dir={dir}/sys/fs -var-run-root-dir={dir}/run -run-root-dir={dir}/run \
             -var-lib-kubelet-dir={dir}/kubelet -tsdb-path={dir}/data/series -audit-log-dir={dir}/data/audit \
             -prediction-checkpoint-filepath={dir}/data/models -kubelet-insecure-tls=true \
             -kubelet-read-only-port={kubelet} -kubelet-sync-interval=1s -node-topology-sync-interval=1s {more}"
        );
        let variable = |name: &str| match name {
            "NODE_NAME" => Some(NODE.to_owned()),
            "agent_mode" => Some("hostMode".to_owned()),
            _ => None,
        };
        match flags::parse(line.split_whitespace(), variable)? {
            Request::Run(options) => Ok(*options),
            other => bail!("{other:?}"),
        }
    }
}

pub(crate) fn pod(name: &str, qos: &str, kube: &str, id: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": name,
            "labels": { "koordinator.sh/qosClass": qos }, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "containers": [{ "name": "main" }], "nodeName": NODE },
        "status": { "phase": "Running", "qosClass": kube, "containerStatuses": [{ "name": "main",
            "containerID": format!("containerd://{id}"), "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": {} } }] },
    })
}

/// What a kubelet tells; none while it is away.
pub(crate) type Pods = Arc<Mutex<Option<Vec<Value>>>>;

/// A kubelet's read-only port.
pub(crate) async fn kubelet(pods: Pods, stop: CancellationToken) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let router = Router::bare().page("/pods/", move |_| {
        let items = pods.lock().ok().and_then(|pods| pods.clone());
        let code = if items.is_some() { http::StatusCode::OK } else { http::StatusCode::SERVICE_UNAVAILABLE };
        let list = json!({ "kind": "PodList", "apiVersion": "v1", "items": items });
        std::future::ready(json(code, &list))
    });
    tokio::spawn(serve(listener, router, None, stop));
    Ok(port)
}

pub(crate) async fn objects(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": NODE } }))?;
    nodes.create(&PostParams::default(), &node).await?;
    let status = json!({ "status": {
        "capacity": { "cpu": "8", "memory": "16Gi" }, "allocatable": { "cpu": "8", "memory": "16Gi" },
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } } } });
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(&status)).await?;
    let slos: Api<NodeSLO> = Api::all(client.clone());
    let slo = serde_json::from_value(json!({
        "apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": { "name": NODE },
        "spec": { "resourceUsedThresholdWithBE": { "enable": true, "cpuSuppressThresholdPercent": 65 } } }))?;
    slos.create(&PostParams::default(), &slo).await?;
    Ok(())
}

pub(crate) async fn until<F: Future<Output = Result<bool>>>(
    what: &str,
    mut is_so: impl FnMut() -> F,
) -> Result<()> {
    let asked = tokio::time::Instant::now();
    while !is_so().await? {
        if asked.elapsed() > PATIENCE {
            bail!("{what}: not within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

pub(crate) async fn page(running: &Running, path: &str) -> Result<String> {
    let config = Config::new(format!("http://{}", running.address).parse()?);
    let request = http::Request::get(path).body(Vec::new())?;
    Ok(Client::try_from(config)?.request_text(request).await?)
}

pub(crate) async fn stop(running: Running) -> Result<()> {
    let asked = CancellationToken::new();
    asked.cancel();
    anyhow::ensure!(running.until(&asked).await, "it ended by itself");
    Ok(())
}

/// An API server, and how to reach it.
pub(crate) async fn cluster() -> Result<(Cluster, Config, Client)> {
    let cluster = Cluster::start(ClusterOptions::default(), &mut |_| {}).await?;
    let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config.clone())?;
    Ok((cluster, config, client))
}
