//! The few workload controllers that scenarios need.
//!
//! Each controller is a file: pure functions from views of objects to what should change, and a
//! short `sync` that reads the caches, asks them, and writes through the API. `world` holds the
//! caches and says what a change wakes, `queue` who is next, `shell` runs it all. Decisions follow
//! kube-controller-manager's, for kubectl and its users look at every field they leave behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::server::Api;

mod budget;
mod claim;
mod daemonset;
mod deployment;
mod eviction;
mod garbage;
mod hash;
mod history;
mod job;
mod lost;
mod namespace;
mod node;
mod pod;
mod queue;
mod recorder;
mod replicaset;
mod shell;
mod statefulset;
mod view;
mod volume;
mod world;

use shell::Shell;

/// What may be set. The defaults are kube-controller-manager's.
#[derive(Clone, Debug)]
pub struct Options {
    /// A node that gave no sign of life for so long is taken for unreachable.
    pub node_monitor_grace_period: Duration,
    /// The same for a node that has never reported.
    pub node_startup_grace_period: Duration,
    /// Pods of a node that is gone stay so long: it may come back.
    pub lost_pod_grace_period: Duration,
    /// Keys worked on at once.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            node_monitor_grace_period: Duration::from_secs(50),
            node_startup_grace_period: Duration::from_secs(60),
            lost_pod_grace_period: Duration::from_secs(40),
            workers: 8,
        }
    }
}

/// The controllers of one cluster, until stopped or dropped.
pub struct Controllers {
    shell: Arc<Shell>,
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts all controllers. Must be called within a tokio runtime.
    pub fn start(api: Arc<Api>, options: Options) -> Controllers {
        let shell = Arc::new(Shell::new(api, options));
        let mut tasks = JoinSet::new();
        tasks.spawn(shell.clone().follow());
        for _ in 0..shell.options.workers.max(1) {
            tasks.spawn(shell.clone().work());
        }
        Controllers { shell, tasks }
    }

    /// Lets work in hand end, and stops.
    pub async fn stop(mut self) {
        self.shell.close();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.shell.close();
    }
}
