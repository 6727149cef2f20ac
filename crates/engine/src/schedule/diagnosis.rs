//! What was said against every node, and how users read it. Spec: scheduler-core 4.2.

use std::collections::BTreeMap;

use super::LeftOut;
use crate::cluster::Row;
use crate::framework::{Code, PluginName, Sieve, Status};

/// Why no node took the pod.
#[derive(Debug)]
pub struct Diagnosis {
    /// A verdict on the pod itself, which holds for every node.
    pub pod: Option<Status>,
    /// Verdicts on single nodes.
    pub nodes: Sieve,
    pub left_out: LeftOut,
    /// All nodes of the cluster.
    pub node_count: usize,
}

impl Diagnosis {
    pub(super) fn of_pod(status: Status, node_count: usize) -> Diagnosis {
        Diagnosis { pod: Some(status), nodes: Sieve::default(), left_out: LeftOut::default(), node_count }
    }

    pub(super) fn of_nodes(nodes: Sieve, left_out: LeftOut, node_count: usize) -> Diagnosis {
        Diagnosis { pod: None, nodes, left_out, node_count }
    }

    /// The plugins that refused, each once.
    pub fn rejectors(&self) -> Vec<PluginName> {
        let nodes = self.nodes.tally().into_iter().map(|(status, _)| status.plugin);
        let mut names: Vec<PluginName> = self
            .pod
            .iter()
            .map(|status| status.plugin)
            .chain(nodes)
            .filter(|name| !name.is_empty())
            .collect();
        names.extend(self.left_out.plugins.iter().filter(|_| self.left_out.count > 0));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Those of them whose event wakes the pod at once.
    pub fn pending(&self) -> Vec<PluginName> {
        let nodes = self.nodes.tally().into_iter().map(|(status, _)| status);
        let all = self.pod.iter().chain(nodes);
        all.filter(|status| status.code == Code::Pending).map(|status| status.plugin).collect()
    }

    /// Nodes where taking other pods away might help.
    pub fn curable(&self) -> Vec<Row> {
        self.nodes
            .rejected()
            .filter(|(_, status)| status.code == Code::Unschedulable)
            .map(|(row, _)| row)
            .collect()
    }

    /// The text of event and condition, up to what PostFilter plugins add.
    pub fn message(&self) -> String {
        let head = format!("0/{} nodes are available:", self.node_count);
        if let Some(status) = &self.pod {
            return format!("{head} {status}.");
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (status, count) in self.nodes.tally() {
            for reason in &status.reasons {
                *counts.entry(reason.text.clone().into_owned()).or_default() += count;
            }
        }
        if self.left_out.count > 0 {
            let text = format!("node(s) didn't satisfy plugin(s) [{}]", self.left_out.plugins.join(" "));
            *counts.entry(text).or_default() += self.left_out.count;
        }
        let mut parts: Vec<String> =
            counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        // As texts: 10 comes before 2.
        parts.sort();
        format!("{head} {}.", parts.join(", "))
    }
}
