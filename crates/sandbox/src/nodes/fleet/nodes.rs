//! The nodes of the fleet.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use koord_api::annotation::{self, Annotations};
use koord_api::quantity::ResourceList;
use koord_api::resource::{ResourceTable, ResourceVector};
use koord_api::slo::ColocationStrategy;
use serde_json::Value;

use super::NodeHealth;
use super::host::HostState;
use super::pods::place;
use super::timer::Beat;
use crate::kinds::meta;
use crate::nodes::admit::{NodeFacts, Taken};
use crate::nodes::metric::Samples;
use crate::nodes::shape::Shape;

/// One simulated node.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) name: Arc<str>,
    pub(super) pool: Arc<str>,
    /// Number in its pool.
    pub(super) index: u32,
    pub(super) shape: Arc<Shape>,
    pub(super) address: Ipv4Addr,
    /// Made elsewhere: its labels and amounts are not ours to write.
    pub(super) is_adopted: bool,
    pub(super) health: NodeHealth,
    pub(super) uid: String,
    pub(super) facts: Facts,
    pub(super) taken: Taken,
    /// Slots of pods that have not ended.
    pub(super) pods: Vec<u32>,
    pub(super) samples: Samples,
    /// Its files and its kubelet, where an agent is run on it that speaks for it.
    pub(super) host: Option<HostState>,
    /// What koordlet has yet to write.
    pub(super) owes: Owed,
    /// When each beat is next due, in milliseconds since 1970.
    pub(super) due: [i64; Beat::ALL.len()],
}

/// Objects that are to be written when their kinds are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owed {
    pub(super) topology: bool,
    pub(super) device: bool,
}

/// What the Node object says, as of a revision.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) revision: u64,
    pub(super) node: NodeFacts,
    /// Those that koordlet reads.
    pub(super) annotations: Annotations,
    /// Somebody says that the node is not ready.
    pub(super) is_said_down: bool,
    /// Between reports of what it uses, where its own strategy says so.
    pub(super) report_interval: Option<Duration>,
}

impl Facts {
    /// Reads a Node; says whether koordlet has something new to report.
    pub(super) fn update(&mut self, revision: u64, node: &Value, table: &mut ResourceTable) -> bool {
        let texts = |value: &Value| -> BTreeMap<String, String> {
            let list = value.as_object().into_iter().flatten();
            list.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned()))).collect()
        };
        let taints: Vec<Taint> = serde_json::from_value(node["spec"]["taints"].clone()).unwrap_or_default();
        let amounts = node["status"]["allocatable"].clone();
        let amounts: ResourceList = serde_json::from_value(amounts).unwrap_or_default();
        self.revision = revision;
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        self.is_said_down = !conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
        self.node = NodeFacts {
            name: meta::name(node).to_owned(),
            labels: texts(&node["metadata"]["labels"]),
            taints: taints.into_iter().filter(|taint| taint.effect == "NoExecute").collect(),
            allocatable: ResourceVector::from_list(&amounts, table),
        };
        let mut annotations = texts(&node["metadata"]["annotations"]);
        self.report_interval = report_interval(&annotations);
        use koord_api::keys::node_topology::annotation::{RESERVATION, SYSTEM_QOS_RESOURCE};
        annotations.retain(|key, _| [RESERVATION, SYSTEM_QOS_RESOURCE].contains(&key.as_str()));
        let is_news = annotations != self.annotations;
        self.annotations = annotations;
        is_news
    }
}

/// What the strategy in a Node's annotation says of reports. What cannot be read counts as absent.
///
/// Differs: koordlet never reports more often than every 30 s, and learns of it through NodeMetric only. Whoever tries
/// something has no time for that.
fn report_interval(annotations: &Annotations) -> Option<Duration> {
    let strategy: Option<ColocationStrategy> = annotation::read(annotations).ok().flatten();
    let seconds = strategy?.metric_report_interval_seconds?;
    Some(Duration::from_secs(u64::try_from(seconds).ok()?.max(1)))
}

impl NodeState {
    pub(super) fn is_ready(&self) -> bool {
        self.health == NodeHealth::Ready
    }
}

/// Nodes by slot and by name. A slot is never used again, so late answers are harmless.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    slots: Vec<Option<NodeState>>,
    by_name: HashMap<Arc<str>, u32>,
}

impl Nodes {
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, slot: u32) -> Option<&NodeState> {
        self.slots.get(place(slot))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut NodeState> {
        self.slots.get_mut(place(slot))?.as_mut()
    }

    pub(super) fn insert(&mut self, node: NodeState) -> u32 {
        let slot = u32::try_from(self.slots.len()).expect("memory ends before 2^32 nodes");
        self.by_name.insert(node.name.clone(), slot);
        self.slots.push(Some(node));
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<NodeState> {
        let node = self.slots.get_mut(place(slot))?.take()?;
        self.by_name.remove(&node.name);
        Some(node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &NodeState)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, node)| Some((u32::try_from(slot).ok()?, node.as_ref()?)))
    }

    /// The number after the highest of a pool.
    pub(super) fn next_index(&self, pool: &str) -> u32 {
        let indexes = self.iter().filter(|(_, node)| *node.pool == *pool).map(|(_, node)| node.index + 1);
        indexes.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_as_often_as_the_node_says() {
        use koord_api::keys::node::annotation::COLOCATION_STRATEGY;
        for (text, want) in [
            (r#"{"metricReportIntervalSeconds":5}"#, Some(5)),
            (r#"{"metricReportIntervalSeconds":90,"enable":true}"#, Some(90)),
            (r#"{"metricReportIntervalSeconds":0}"#, Some(1)),
            (r#"{"metricReportIntervalSeconds":-5}"#, None),
            (r#"{"enable":true}"#, None),
            ("often", None),
        ] {
            let annotations = Annotations::from([(COLOCATION_STRATEGY.to_owned(), text.to_owned())]);
            assert_eq!(report_interval(&annotations), want.map(Duration::from_secs), "{text}");
        }
    }
}
