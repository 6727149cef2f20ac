//! The fleet: all simulated nodes and their pods, driven by one task.
//!
//! `Fleet` is the handle: it starts the task, talks to it by `Command`s and awaits its end. The task is
//! `engine`, the only owner of `nodes` and `pods`; `write` has what it does to the cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::lifecycle::Habits;
use super::objects::LEASE_NAMESPACE;
use super::shape::Pool;
use crate::server::{Api, DeleteOptions, Part, WriteOptions};
use crate::status::ApiError;

mod address;
mod engine;
mod host;
mod mirror;
mod nodes;
mod pods;
mod report;
mod timer;
mod traces;
mod write;

pub use host::{Agents, HostNode, Hosts, Started, Stopped};
pub use mirror::clear_hosts;

/// How a fleet is made and how it behaves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub pools: Vec<Pool>,
    pub habits: Habits,
    pub timing: Timing,
    /// Nodes that are there already and in no pool come to life, too.
    pub adopt: bool,
    /// Where nodes with a real koordlet stand; without it there can be none.
    pub hosts: Option<Hosts>,
}

/// How often kubelet speaks.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between renewals of a lease.
    pub lease: Duration,
    /// Between reports of a status that does not change.
    pub status: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { lease: Duration::from_secs(10), status: Duration::from_secs(300) }
    }
}

/// A running fleet. Ends when stopped or dropped; its objects stay.
pub struct Fleet {
    api: Arc<Api>,
    commands: mpsc::Sender<Command>,
    hosts: Option<Hosts>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

/// A node as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub name: String,
    pub pool: String,
    pub health: NodeHealth,
    /// Pods that have not ended.
    pub pods: usize,
    pub cpus: u32,
    /// Bytes.
    pub memory: i64,
    pub gpus: u32,
    /// Its files, where it is a machine to an agent.
    pub dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeHealth {
    /// Not yet known to the cluster.
    Registering,
    Ready,
    /// Silent: no heartbeat, no word about its pods.
    Failed,
}

/// Why a wish of the fleet could not be met.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("no simulated node or pool is called {name:?}")]
    Unknown { name: String },
    #[error("the fleet has stopped")]
    Stopped,
    #[error("node {node}: {error}")]
    Refused { node: String, error: ApiError },
    #[error("{}", .0.message)]
    Kind(ApiError),
    #[error(
        "node {node}: koordlet: \"real\" is not accepted, a sandbox needs a folder and the kinds of Koord for it; expected simulated"
    )]
    NoHosts { node: String },
    #[error("node {node}: cannot make its files or its kubelet: {source}")]
    Host { node: String, source: std::io::Error },
    #[error("node {node}: its koordlet does not start: {reason}")]
    Agent { node: String, reason: String },
}

/// What can be asked of the task.
enum Command {
    /// Answered with the names of the nodes once they are registered.
    Add(Box<Pool>, oneshot::Sender<Result<Vec<String>, FleetError>>),
    /// The nodes a name stands for: a node or a pool.
    Find(String, oneshot::Sender<Vec<String>>),
    Fail(Vec<String>, oneshot::Sender<()>),
    Revive(Vec<String>, oneshot::Sender<()>),
    Forget(Vec<String>, oneshot::Sender<()>),
    List(oneshot::Sender<Vec<NodeRow>>),
    /// Answered when every node known by then is registered.
    Ready(oneshot::Sender<()>),
}

/// Commands waiting at once; whoever sends more waits.
const COMMANDS_MAX: usize = 64;

impl Fleet {
    /// Brings the nodes of all pools to life. They register in the background: see `ready`.
    pub fn start(api: Arc<Api>, options: Options) -> Result<Fleet, FleetError> {
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let (stop, stopped) = watch::channel(false);
        let hosts = options.hosts.clone();
        let engine = engine::Engine::new(api.clone(), options)?;
        let task = tokio::spawn(engine.run(inbox, stopped));
        Ok(Fleet { api, commands, hosts, stop, task: Some(task) })
    }

    /// Waits until all nodes asked for so far are registered.
    pub async fn ready(&self) -> Result<(), FleetError> {
        self.ask(Command::Ready).await
    }

    /// Starts the agents of the nodes that the fleet began with, once these are registered.
    pub async fn ready_with_agents(&self) -> Result<(), FleetError> {
        self.ready().await?;
        let names: Vec<String> = self.list().await?.into_iter().map(|row| row.name).collect();
        self.start_agents(&names).await
    }

    /// Adds nodes to a pool, new or known; their numbers go on. Returns their names once registered.
    pub async fn add(&self, pool: Pool) -> Result<Vec<String>, FleetError> {
        let names = self.ask(|reply| Command::Add(Box::new(pool), reply)).await??;
        if let Err(error) = self.start_agents(&names).await {
            // A node without the agent it was to have is of no use.
            for name in &names {
                self.remove(name).await?;
            }
            return Err(error);
        }
        Ok(names)
    }

    /// Starts the agents of those of these nodes that are to have one.
    async fn start_agents(&self, names: &[String]) -> Result<(), FleetError> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let Some(agents) = &hosts.agents else { return Ok(()) };
        for row in self.list().await?.into_iter().filter(|row| names.contains(&row.name)) {
            let Some(dir) = row.dir else { continue };
            let node = HostNode { name: row.name.clone(), dir, kubeconfig: hosts.kubeconfig.clone() };
            agents.start(node).await.map_err(|reason| FleetError::Agent { node: row.name, reason })?;
        }
        Ok(())
    }

    async fn stop_agents(&self, names: &[String]) {
        let Some(agents) = self.hosts.as_ref().and_then(|hosts| hosts.agents.as_ref()) else { return };
        for name in names {
            agents.stop(name).await;
        }
    }

    /// Takes a node, or all of a pool, out of the cluster with all that is said about it. Its pods are
    /// left to whoever looks after pods of nodes that are gone.
    pub async fn remove(&self, name: &str) -> Result<Vec<String>, FleetError> {
        let nodes = self.find(name).await?;
        let names = nodes.clone();
        self.stop_agents(&nodes).await;
        self.ask(|reply| Command::Forget(names, reply)).await?;
        for node in &nodes {
            self.delete_objects(node).await?;
        }
        Ok(nodes)
    }

    /// Keeps new pods off a node, or off all of a pool.
    pub async fn cordon(&self, name: &str) -> Result<Vec<String>, FleetError> {
        self.set_unschedulable(name, true).await
    }

    pub async fn uncordon(&self, name: &str) -> Result<Vec<String>, FleetError> {
        self.set_unschedulable(name, false).await
    }

    /// Lets a node, or all of a pool, fall silent.
    pub async fn fail(&self, name: &str) -> Result<Vec<String>, FleetError> {
        let nodes = self.find(name).await?;
        let names = nodes.clone();
        self.stop_agents(&nodes).await;
        self.ask(|reply| Command::Fail(names, reply)).await?;
        Ok(nodes)
    }

    /// Brings failed nodes back; what happened to their pods meanwhile is caught up with.
    pub async fn revive(&self, name: &str) -> Result<Vec<String>, FleetError> {
        let nodes = self.find(name).await?;
        let names = nodes.clone();
        self.ask(|reply| Command::Revive(names, reply)).await?;
        self.start_agents(&nodes).await?;
        Ok(nodes)
    }

    /// All nodes, by pool and number.
    pub async fn list(&self) -> Result<Vec<NodeRow>, FleetError> {
        self.ask(Command::List).await
    }

    /// Stops all nodes at once; what was being written is finished.
    pub async fn stop(mut self) {
        let nodes = self.list().await.unwrap_or_default();
        self.stop_agents(&nodes.into_iter().map(|row| row.name).collect::<Vec<_>>()).await;
        let _ = self.stop.send(true);
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, FleetError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| FleetError::Stopped)?;
        answer.await.map_err(|_| FleetError::Stopped)
    }

    async fn find(&self, name: &str) -> Result<Vec<String>, FleetError> {
        let nodes = self.ask(|reply| Command::Find(name.to_owned(), reply)).await?;
        if nodes.is_empty() { Err(FleetError::Unknown { name: name.to_owned() }) } else { Ok(nodes) }
    }

    async fn set_unschedulable(&self, name: &str, wanted: bool) -> Result<Vec<String>, FleetError> {
        let nodes = self.find(name).await?;
        let options = WriteOptions::by("koord-sandbox");
        for node in &nodes {
            let change = |object: &mut Value| {
                let spec = &mut object["spec"];
                match (wanted, spec.as_object_mut()) {
                    (false, Some(spec)) => Ok(spec.remove("unschedulable").is_some()),
                    (false, None) => Ok(false),
                    (true, _) => {
                        spec["unschedulable"] = Value::from(true);
                        Ok(true)
                    }
                }
            };
            let refused = |error| FleetError::Refused { node: node.clone(), error };
            let kind = self.api.kind("", "nodes").map_err(refused)?;
            self.api.edit(&kind, ("", node), Part::Main, &options, &change).await.map_err(refused)?;
        }
        Ok(nodes)
    }

    /// The Node and everything else that bears its name.
    async fn delete_objects(&self, node: &str) -> Result<(), FleetError> {
        let options = DeleteOptions { write: WriteOptions::by("koord-sandbox"), ..DeleteOptions::default() };
        for (group, plural, namespace) in [
            ("", "nodes", ""),
            ("coordination.k8s.io", "leases", LEASE_NAMESPACE),
            ("topology.node.k8s.io", "noderesourcetopologies", ""),
            ("scheduling.koordinator.sh", "devices", ""),
            ("slo.koordinator.sh", "nodemetrics", ""),
        ] {
            let Ok(kind) = self.api.kind(group, plural) else { continue };
            match self.api.delete(&kind, (namespace, node), &options).await {
                Ok(_) => {}
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(FleetError::Refused { node: node.to_owned(), error }),
            }
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}
