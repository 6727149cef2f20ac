//! A node of plain files and the thread that watches over it, with a clock of their own.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1;
use koord_api::crd::node_slo::NodeSloSpec;
use koord_api::slo::Effective;
use koord_linux::cgroup::{Driver, Version};
use koord_linux::root::Root;
use koord_testkit::node_tree::{Cgroup, NodeTree};
use koordlet::collect::Moment;
use koordlet::flags::{self, Request};
use koordlet::report::{node_metric, topology};
use koordlet::run::{Brain, alone};
use koordlet::state::pods::{PodBook, Told};
use koordlet::state::{Hardware, NodeState, State};
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);
/// Seconds between two lists of the kubelet, and between two reports.
const PODS_EVERY: u32 = 10;
const REPORT_EVERY: u32 = 60;

pub(crate) type Fault = Box<dyn Error>;

/// The node and its koordlet.
pub(crate) struct World {
    pub(crate) tree: NodeTree,
    pub(crate) brain: Brain,
    state: State,
    book: PodBook,
    hardware: Arc<Hardware>,
    start: Moment,
    seconds: u32,
    /// Nobody talks, but clients are made within one.
    _runtime: tokio::runtime::Runtime,
}

impl World {
    /// The directory should be empty. Time begins at `start_ms`.
    pub(crate) fn new(dir: &Path, cgroup: Cgroup, containers: usize, start_ms: i64) -> Result<World, Fault> {
        let tree = NodeTree::make(dir, cgroup, containers)?;
        let root = Root::host(dir);
        std::fs::create_dir_all(dir.join("data/prediction"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let state = State::default();
        let brain = runtime.block_on(brain(dir, &root, cgroup, state.clone()))?;
        let hardware = Arc::new(Hardware::read(&root)?);
        tell_objects(&state, &hardware)?;
        let start = Moment { unix_ms: start_ms, instant: Instant::now() };
        let book = PodBook::new(Driver::Systemd);
        let mut world = World { tree, brain, state, book, hardware, start, seconds: 0, _runtime: runtime };
        world.tell_pods()?;
        Ok(world)
    }

    /// One second of the node, of its kubelet and of koordlet.
    pub(crate) fn second(&mut self) -> Result<(), Fault> {
        self.leap(1)
    }

    /// So many seconds pass before koordlet looks again.
    pub(crate) fn leap(&mut self, seconds: u32) -> Result<(), Fault> {
        self.tree.turn(SECOND * seconds)?;
        self.seconds += seconds;
        if self.seconds % PODS_EVERY < seconds {
            self.tell_pods()?;
        }
        let unix_ms = self.start.unix_ms + i64::from(self.seconds) * 1000;
        self.brain.second(Moment { unix_ms, instant: self.start.instant + SECOND * self.seconds });
        if self.seconds % REPORT_EVERY < seconds {
            let snapshot = self.state.load();
            let sources = node_metric::Sources {
                store: &self.brain.store,
                snapshot: &snapshot,
                predictor: &self.brain.predictor,
                gpus: &[],
                has_page_cache: false,
                has_cold_pages: false,
            };
            node_metric::measure(sources, unix_ms);
        }
        Ok(())
    }

    /// What the kubelet and the topology report do.
    fn tell_pods(&mut self) -> Result<(), Fault> {
        let pods: Vec<&serde_json::Value> = self.tree.pods().collect();
        let Told::Pods(pods) = self.book.read(json!({ "items": pods }).to_string().as_bytes())? else {
            return Err("the list of pods is empty".into());
        };
        let snapshot = self.state.load();
        let node = snapshot.node.as_deref().ok_or("the Node is told first")?;
        let computed = topology::compute(topology::Sources {
            node,
            hardware: &self.hardware,
            pods: &pods,
            kubelet: None,
            cpu_manager: None,
            reports_huge_pages: false,
        })?;
        self.state.update(|snapshot| {
            snapshot.pods = pods;
            snapshot.synced.pods = true;
            snapshot.editions.pods += 1;
            if snapshot.layout.as_deref() != Some(&computed.layout) {
                snapshot.layout = Some(Arc::new(computed.layout));
                snapshot.editions.layout += 1;
            }
        });
        Ok(())
    }
}

/// What runs as `koordlet` with default flags, on this node.
async fn brain(dir: &Path, root: &Root, cgroup: Cgroup, state: State) -> Result<Brain, Fault> {
    let dirs = [
        ("cgroup-root-dir", &root.cgroup),
        ("proc-root-dir", &root.proc),
        ("sys-root-dir", &root.sys),
        ("sys-fs-root-dir", &root.sys_fs),
        ("var-run-root-dir", &root.var_run),
        ("run-root-dir", &root.run),
        ("var-lib-kubelet-dir", &root.kubelet),
        ("tsdb-path", &dir.join("data/tsdb")),
        ("prediction-checkpoint-filepath", &dir.join("data/prediction")),
        ("audit-log-dir", &dir.join("data/audit")),
    ];
    let words = dirs.map(|(flag, path)| format!("--{flag}={}", path.display()));
    let variable = |name: &str| match name {
        "NODE_NAME" => Some("n1".to_owned()),
        "agent_mode" => Some("hostMode".to_owned()),
        _ => None,
    };
    let Request::Run(options) = flags::parse(words, variable)? else {
        return Err("these are no flags to run with".into());
    };
    let version = match cgroup {
        Cgroup::V1 => Version::V1,
        Cgroup::V2 => Version::V2,
    };
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse()?);
    Ok(alone(*options, nowhere, version, state).await?)
}

/// The Node, and strategies that are on.
fn tell_objects(state: &State, hardware: &Arc<Hardware>) -> Result<(), Fault> {
    let amounts = json!({"cpu": "104", "memory": "380Gi", "kubernetes.io/batch-cpu": "50000",
        "kubernetes.io/batch-memory": "100Gi"});
    let node: v1::Node = serde_json::from_value(json!({
        "metadata": {"name": "n1", "uid": "n1", "annotations": {}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }))?;
    let spec: NodeSloSpec = serde_json::from_value(json!({
        "resourceUsedThresholdWithBE": {"enable": true, "cpuSuppressThresholdPercent": 65},
        "cpuBurstStrategy": {"policy": "auto"},
    }))?;
    let slo = Effective::new(&spec, &[]);
    state.update(|snapshot| {
        snapshot.node = Some(Arc::new(NodeState::read(&node)));
        snapshot.slo = Some(Arc::new(slo));
        snapshot.hardware = Some(hardware.clone());
        snapshot.synced.slo = true;
        snapshot.synced.claims = true;
        snapshot.editions.slo += 1;
        snapshot.editions.node_metadata += 1;
    });
    Ok(())
}
