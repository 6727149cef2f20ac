//! What was said against every node, and how users read it. Spec: scheduler-core 4.2.

use std::borrow::Cow;
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
    /// `narrowing` are the plugins that had named the nodes they want, in order of their names.
    pub(super) fn of_pod(status: Status, narrowing: Vec<PluginName>, node_count: usize) -> Diagnosis {
        // A plugin that refuses for good ends the round alone; otherwise the sets of the others stand beside it.
        let is_alone = status.code == Code::Unresolvable && !status.plugin.is_empty();
        let plugins = if is_alone { Vec::new() } else { narrowing };
        let left_out = LeftOut { plugins, count: node_count };
        Diagnosis { pod: Some(status), nodes: Sieve::default(), left_out, node_count }
    }

    pub(super) fn of_nodes(nodes: Sieve, left_out: LeftOut, node_count: usize) -> Diagnosis {
        Diagnosis { pod: None, nodes, left_out, node_count }
    }

    /// A node was chosen, and then refused by a plugin that has the last word: it is the only one that counts.
    pub fn of_one(row: Row, status: Status) -> Diagnosis {
        let mut nodes = Sieve::default();
        nodes.judge(row, Err(status));
        Diagnosis { pod: None, nodes, left_out: LeftOut::default(), node_count: 1 }
    }

    /// The plugins that refused, each once.
    pub fn rejectors(&self) -> Vec<PluginName> {
        let nodes = self.nodes.tally().map(|(status, _)| status.plugin);
        let mut names: Vec<PluginName> = self.pod.iter().map(|status| status.plugin).chain(nodes).collect();
        names.extend(self.left_out.plugins.iter().filter(|_| self.left_out.count > 0));
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Those of them whose event wakes the pod at once.
    pub fn pending(&self) -> Vec<PluginName> {
        let all = self.pod.iter().chain(self.nodes.tally().map(|(status, _)| status));
        all.filter(|status| status.code == Code::Pending).map(|status| status.plugin).collect()
    }

    /// Nodes where taking other pods away might help. A verdict on the pod holds for every node in `order`.
    pub fn curable<'a>(&'a self, order: &'a [Row]) -> Cow<'a, [Row]> {
        match &self.pod {
            Some(status) if status.code == Code::Unschedulable => Cow::Borrowed(order),
            Some(_) => Cow::Borrowed(&[]),
            None => self.nodes.rejected_with(Code::Unschedulable),
        }
    }

    /// How the verdict on a node counts; a node that nobody looked at counts as out of the question.
    pub fn code_of(&self, row: Row) -> Code {
        let on_node = || self.nodes.rejected().find(|(known, _)| *known == row).map(|(_, status)| status);
        self.pod.as_ref().or_else(on_node).map_or(Code::Unresolvable, |status| status.code)
    }

    /// The text of event and condition, up to what PostFilter plugins add.
    pub fn message(&self) -> String {
        if let Some(status) = self.pod.as_ref().filter(|status| !status.reasons.is_empty()) {
            return format!("{} {status}.", head(self.node_count));
        }
        let mut reasons = Reasons::default();
        for (status, count) in self.nodes.tally() {
            reasons.add(status, count);
        }
        if self.left_out.count > 0 && self.pod.is_none() {
            let text = format!("node(s) didn't satisfy plugin(s) [{}]", self.left_out.plugins.join(" "));
            reasons.add_text(&text, self.left_out.count);
        }
        reasons.message(self.node_count)
    }
}

/// How many nodes are refused for which reason.
#[derive(Debug, Default)]
pub struct Reasons {
    counts: BTreeMap<String, usize>,
}

impl Reasons {
    /// A node with two reasons counts for both.
    pub fn add(&mut self, status: &Status, count: usize) {
        for reason in &status.reasons {
            self.add_text(&reason.text, count);
        }
    }

    pub fn add_text(&mut self, text: &str, count: usize) {
        *self.counts.entry(text.to_owned()).or_default() += count;
    }

    pub fn message(&self, node_count: usize) -> String {
        let reasons = self.counts.iter().map(|(reason, count)| format!("{count} {reason}"));
        let mut parts: Vec<String> = reasons.collect();
        // As texts: 10 comes before 2.
        parts.sort();
        match parts.is_empty() {
            true => head(node_count),
            false => format!("{} {}.", head(node_count), parts.join(", ")),
        }
    }
}

fn head(node_count: usize) -> String {
    format!("0/{node_count} nodes are available:")
}
