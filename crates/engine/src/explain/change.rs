//! Single changes after which a pod would fit: what to do, in data and in words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cause::taint_text;
use super::holder::Holder;

/// A change that was tried on the plugins: with it the pod fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fix {
    #[serde(flatten)]
    pub change: Change,
    /// What to do, in words.
    pub text: String,
    /// The smaller the cheaper; only for comparing.
    pub cost: u32,
    /// How many nodes could take the pod then.
    pub nodes: usize,
    /// One of them; empty when it is a node that does not exist yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub example: String,
}

/// What to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Change {
    RemoveGates {
        gates: Vec<String>,
    },
    /// Nothing to do: a pod that is being deleted is in the way.
    WaitForPod {
        pod: String,
        node: String,
    },
    LowerRequest {
        resource: String,
        from: String,
        to: String,
    },
    Uncordon {
        node: String,
    },
    Tolerate {
        key: String,
        value: String,
        effect: String,
    },
    DropNodeSelector {
        labels: String,
    },
    /// A condition of required node affinity; empty when all of it has to go.
    DropNodeAffinity {
        condition: String,
    },
    RaiseMaxSkew {
        topology_key: String,
        from: i64,
        to: i64,
    },
    /// `whenUnsatisfiable: ScheduleAnyway`.
    SoftenSpread {
        topology_key: String,
    },
    DropPodAffinity {
        topology_key: String,
        pods: String,
    },
    DropPodAntiAffinity {
        topology_key: String,
        pods: String,
    },
    DropHostPort {
        port: String,
    },
    RemovePod {
        node: String,
        holder: Holder,
    },
    AddNode {
        /// With its labels and taints, and nothing on it; empty when any node would do.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        like: String,
        /// What the new one needs, where that is more than the other has.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        at_least: BTreeMap<String, String>,
    },
}

impl Change {
    /// What to do, in words.
    pub(crate) fn text(&self) -> String {
        match self {
            Change::RemoveGates { gates } => format!("remove the scheduling gates {}", gates.join(", ")),
            Change::WaitForPod { pod, node } => format!("wait until pod {pod} has left {node}"),
            Change::LowerRequest { resource, from, to } => {
                format!("lower its {resource} request from {from} to {to}")
            }
            Change::Uncordon { node } => format!("uncordon node {node}"),
            Change::Tolerate { key, value, effect } => {
                format!("tolerate the taint {}", taint_text(key, value, effect))
            }
            Change::DropNodeSelector { labels } => format!("drop {labels} from its node selector"),
            Change::DropNodeAffinity { condition } if condition.is_empty() => {
                "drop its required node affinity".to_owned()
            }
            Change::DropNodeAffinity { condition } => format!("drop {condition} from its node affinity"),
            Change::RaiseMaxSkew { topology_key, from, to } => {
                format!("raise maxSkew over {topology_key} from {from} to {to}")
            }
            Change::SoftenSpread { topology_key } => {
                format!("let the spread over {topology_key} be broken (ScheduleAnyway)")
            }
            Change::DropPodAffinity { topology_key, pods } => {
                format!("drop its pod affinity for {pods} over {topology_key}")
            }
            Change::DropPodAntiAffinity { topology_key, pods } => {
                format!("drop its pod anti-affinity for {pods} over {topology_key}")
            }
            Change::DropHostPort { port } => format!("give up host port {port}"),
            Change::RemovePod { node, holder } => {
                let owner = if holder.owner.is_empty() { "" } else { ", " };
                let Holder { pod, holds, priority, owner: name, .. } = holder;
                format!("delete or move pod {pod} from {node} ({holds}, priority {priority}{owner}{name})")
            }
            Change::AddNode { like, at_least } => {
                let sizes: Vec<String> =
                    at_least.iter().map(|(resource, amount)| format!("{amount} {resource}")).collect();
                let like = if like.is_empty() { String::new() } else { format!(" like {like}") };
                let with = if sizes.is_empty() {
                    String::new()
                } else {
                    format!(" with at least {}", sizes.join(", "))
                };
                format!("add a node{like}{with}")
            }
        }
    }
}

impl Fix {
    /// The whole sentence: what to do and what comes of it.
    pub fn sentence(&self) -> String {
        let then = match (self.nodes, self.example.as_str()) {
            (_, "") => String::new(),
            (1, node) if self.text.contains(&format!(" {node}")) => "; then it fits there".to_owned(),
            (1, node) => format!("; then it fits on {node}"),
            (count, node) => format!("; then it fits on {count} nodes, {node} among them"),
        };
        format!("{}{then}", self.text)
    }
}
