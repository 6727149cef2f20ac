//! The node that is measured: files whose counters move, a kubelet, and an API server that knows the node.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::{Method, StatusCode};
use koord_kit::http::{Router, TlsFiles, serve, with_type};
use koord_testkit::node_tree::{Cgroup, NodeTree};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::trace;
use crate::bench_sandbox::client::Target;
use crate::bench_sandbox::process::Sandbox;
use crate::step::exec;

/// How often counters move.
const MOVED_EVERY: Duration = Duration::from_millis(100);
const NODE_SLOS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodeslos";
/// Less than the 65 that hold when nothing is said.
const LOWERED_PERCENT: u32 = 50;

/// The node and everything around it.
pub(super) struct World {
    dir: tempfile::TempDir,
    sampled: HashSet<PathBuf>,
    files: usize,
    pods: usize,
    sandbox: Sandbox,
    group: Option<Group>,
    _mover: Mover,
    /// Serves the kubelet.
    runtime: Runtime,
}

impl World {
    pub(super) const NODE: &'static str = "n1";

    /// The store gets an hour of samples first, from the same node.
    pub(super) fn make(cgroup: Cgroup, containers: usize, day: &Path) -> Result<World> {
        let dir = tempfile::tempdir()?;
        let version = format!("{cgroup:?}").to_lowercase();
        let words = [dir.path().to_str().context("odd path")?, &version, &containers.to_string(), "1", "0"];
        exec(Command::new(day).args(words).stdout(std::process::Stdio::null()))?;
        let tree = NodeTree::make(dir.path(), cgroup, containers)?;
        let list: Vec<String> = tree.sampled().map(|path| path.display().to_string()).collect();
        fs::write(dir.path().join("sampled"), list.join("\n"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let objects: Vec<&Value> = tree.pods().collect();
        let port = runtime.block_on(kubelet(json!({"kind": "PodList", "items": objects}).to_string()))?;
        let sandbox = Sandbox::start(&[
            "--nodes",
            "0",
            "--no-controllers",
            "--scheduler",
            "none",
            "--manager",
            "none",
        ])?;
        runtime.block_on(tell(&sandbox, port))?;
        let group = (cgroup == Cgroup::V2).then(|| Group::make(&tree.cgroup_dir())).transpose()?;
        let pods = tree.pods().len();
        Ok(World {
            sampled: list.iter().map(PathBuf::from).collect(),
            files: list.len(),
            pods,
            sandbox,
            group,
            _mover: Mover::start(tree),
            runtime,
            dir,
        })
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Pods, and files that are read each second.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.pods, self.files)
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        self.sandbox.kubeconfig()
    }

    /// The names of those files.
    pub(super) fn list(&self) -> PathBuf {
        self.dir().join("sampled")
    }

    pub(super) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// How many of these opened files are among those that are read each second.
    pub(super) fn is_sampled(&self, opened: &[PathBuf]) -> usize {
        let of_tree = |path: &PathBuf| match &self.group {
            Some(group) => {
                path.strip_prefix(&group.real).map_or_else(|_| path.clone(), |rest| group.files.join(rest))
            }
            None => path.clone(),
        };
        opened.iter().filter(|path| self.sampled.contains(&of_tree(path))).count()
    }

    /// Where the groups lie, and where koordlet finds them.
    pub(super) fn tree(&self) -> trace::Tree {
        let files = self.dir().join("sys/fs/cgroup");
        let seen_at = self.group.as_ref().map_or_else(|| files.clone(), |group| group.real.clone());
        trace::Tree { files, seen_at }
    }

    /// Lowers the threshold of best-effort pods, so that koordlet takes CPUs away from them.
    pub(super) fn lower_threshold(&self) -> Result<()> {
        let strategy = json!({"cpuSuppressThresholdPercent": LOWERED_PERCENT});
        let patch = json!({"spec": {"resourceUsedThresholdWithBE": strategy}}).to_string();
        self.runtime.block_on(async {
            let target = Target::new(self.kubeconfig()).await?;
            target.send(Method::PATCH, &format!("{NODE_SLOS}/{}", World::NODE), patch).await.map(drop)
        })
    }

    /// How koordlet is pointed at the node. Nothing else is said.
    pub(super) fn flags(&self) -> Vec<String> {
        let dir = self.dir();
        [
            ("cgroup-root-dir", self.tree().seen_at),
            ("proc-root-dir", dir.join("proc")),
            ("sys-root-dir", dir.join("sys")),
            ("sys-fs-root-dir", dir.join("sys/fs")),
            ("var-run-root-dir", dir.join("var/run")),
            ("run-root-dir", dir.join("run")),
            ("var-lib-kubelet-dir", dir.join("var/lib/kubelet")),
            ("tsdb-path", dir.join("data/tsdb")),
            ("prediction-checkpoint-filepath", dir.join("data/prediction")),
            ("audit-log-dir", dir.join("data/audit")),
        ]
        .iter()
        .map(|(flag, path)| format!("--{flag}={}", path.display()))
        .collect()
    }
}

/// Answers as a kubelet until the runtime ends. Returns its port.
async fn kubelet(pods: String) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let tls = TlsFiles::in_memory(&signed.cert.pem(), &signed.signing_key.serialize_pem())?;
    let pods = bytes::Bytes::from(pods);
    let list = move |_| {
        let pods = pods.clone();
        async move { with_type(StatusCode::OK, "application/json", pods) }
    };
    let config = json!({"kubeletconfig": {"cpuManagerPolicy": "none", "cgroupDriver": "systemd"}});
    let config = bytes::Bytes::from(config.to_string());
    let configz = move |_| {
        let config = config.clone();
        async move { with_type(StatusCode::OK, "application/json", config) }
    };
    let router = Router::bare().page("/pods/", list).page("/configz", configz);
    tokio::spawn(serve(listener, router, Some(tls), CancellationToken::new()));
    Ok(port)
}

/// The node's objects.
async fn tell(sandbox: &Sandbox, kubelet: u16) -> Result<()> {
    let target = Target::new(sandbox.kubeconfig()).await?;
    let amounts = json!({"cpu": "104", "memory": "380Gi", "pods": "110", "kubernetes.io/batch-cpu": "50000",
        "kubernetes.io/batch-memory": "100Gi"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": World::NODE}, "status": {
        "capacity": amounts, "allocatable": amounts, "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}}}});
    target.post("/api/v1/nodes", node.to_string()).await?;
    let metrics = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";
    for (kind, path, spec) in [
        ("NodeSLO", NODE_SLOS, json!({"resourceUsedThresholdWithBE": {"enable": true}})),
        ("NodeMetric", metrics, json!({})),
    ] {
        let object = json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": kind,
            "metadata": {"name": World::NODE}, "spec": spec});
        target.post(path, object.to_string()).await?;
    }
    Ok(())
}

/// A real group of cgroup v2, empty, that stands for the root.
pub(super) struct Group {
    real: PathBuf,
    files: PathBuf,
}

impl Group {
    fn make(files: &Path) -> Result<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<&str>>());
        let mount = lines.find(|words| words.get(2) == Some(&"cgroup2"));
        let mount =
            mount.context("there is no cgroup v2 here to stand for the node's; --cgroup v1 needs none")?;
        let real = Path::new(mount[1]).join(format!("koord-bench-{}", std::process::id()));
        fs::create_dir_all(real.join("kubepods.slice")).context("cannot make a group of cgroup v2")?;
        Ok(Group { real, files: files.to_owned() })
    }

    /// What is bound over what.
    pub(super) fn binding(&self) -> [PathBuf; 2] {
        [&self.files, &self.real].map(|dir| dir.join("kubepods.slice"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Empty groups; one that stays does no harm.
        let _ = fs::remove_dir(self.real.join("kubepods.slice"));
        let _ = fs::remove_dir(&self.real);
    }
}

/// Moves counters until dropped.
struct Mover {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    fn start(mut tree: NodeTree) -> Mover {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut last = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(MOVED_EVERY);
                let now = Instant::now();
                // The directory may go before we do.
                let _ = tree.turn(now - std::mem::replace(&mut last, now));
            }
        });
        Mover { stop, thread: Some(thread) }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
