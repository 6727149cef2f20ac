//! Pods that were promised room on a node. Spec: scheduler-core 1.5, 3.2.7.

use std::sync::Arc;

use koord_api::resource::ResourceId;

use crate::cluster::{ChangeLog, Row};
use crate::hash::{QuickMap, UidMap};
use crate::pod::Pod;

/// Promises by the node that will keep them.
#[derive(Debug, Default)]
pub struct Nominated {
    by_row: QuickMap<Row, Vec<Arc<Pod>>>,
    /// What is promised of each row, by its number: thousands may be promised at once, and every attempt looks.
    sums: Vec<Sum>,
    rows: UidMap<Row>,
    /// Rows whose promises changed.
    log: ChangeLog,
}

/// What the pods of one row were promised together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    pods: i64,
    priority_min: i32,
    priority_max: i32,
    cpu_milli: i64,
    memory: i64,
}

impl Sum {
    fn of(pods: &[Arc<Pod>]) -> Sum {
        let priorities = || pods.iter().map(|pod| pod.class.priority);
        let total = |id| pods.iter().map(|pod| asked(pod, id)).fold(0, i64::saturating_add);
        Sum {
            pods: count(pods.len()),
            priority_min: priorities().min().unwrap_or(0),
            priority_max: priorities().max().unwrap_or(0),
            cpu_milli: total(ResourceId::CPU),
            memory: total(ResourceId::MEMORY),
        }
    }
}

impl Nominated {
    pub fn insert(&mut self, row: Row, pod: Arc<Pod>) {
        self.rows.insert(pod.uid.clone(), row);
        self.by_row.entry(row).or_default().push(pod);
        self.add_up(row);
    }

    pub fn remove(&mut self, row: Row, uid: &str) {
        let Some(pods) = self.by_row.get_mut(&row) else { return };
        pods.retain(|pod| *pod.uid != *uid);
        if pods.is_empty() {
            self.by_row.remove(&row);
        }
        if self.rows.get(uid) == Some(&row) {
            self.rows.remove(uid);
        }
        self.add_up(row);
    }

    /// Forgets all of them. Attempts that remember must be given the same list for life, so it is never replaced.
    pub fn clear(&mut self) {
        if !self.by_row.is_empty() {
            self.by_row.clear();
            self.rows.clear();
            self.sums.clear();
            self.log.start_over();
        }
    }

    pub fn changes(&self) -> &ChangeLog {
        &self.log
    }

    /// The node that a pod is promised.
    pub(super) fn row_of(&self, uid: &str) -> Option<Row> {
        self.rows.get(uid).copied()
    }

    fn add_up(&mut self, row: Row) {
        self.log.push(row);
        if self.sums.len() <= row.index() {
            self.sums.resize(row.index() + 1, Sum::default());
        }
        self.sums[row.index()] = self.by_row.get(&row).map_or(Sum::default(), |pods| Sum::of(pods));
    }

    pub fn is_empty(&self) -> bool {
        self.by_row.is_empty()
    }

    /// Whether a node is promised to somebody.
    pub fn is_promised(&self, row: Row) -> bool {
        self.sums.get(row.index()).is_some_and(|sum| sum.pods > 0)
    }

    /// How many nodes are promised to somebody.
    pub fn row_count(&self) -> usize {
        self.by_row.len()
    }

    /// Nodes that are promised to somebody, ascending.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.by_row.keys().copied().collect();
        rows.sort_unstable();
        rows
    }

    /// Those whose room must be left alone by `pod`.
    pub fn before<'a>(&'a self, pod: &'a Pod, row: Row) -> impl Iterator<Item = &'a Arc<Pod>> {
        // Most rows are promised to nobody.
        let is_promised = self.sums.get(row.index()).is_some_and(|sum| sum.pods > 0);
        let there = is_promised.then(|| self.by_row.get(&row)).flatten().into_iter().flatten();
        there.filter(move |other| other.class.priority >= pod.class.priority && other.uid != pod.uid)
    }

    /// The promises that `pod` must leave alone, added up.
    pub fn view<'a>(&'a self, pod: &'a Pod) -> Promised<'a> {
        Promised { nominated: self, pod, own: self.rows.get(&pod.uid).copied() }
    }
}

/// Promises as one pod has to see them.
#[derive(Clone, Copy)]
pub struct Promised<'a> {
    nominated: &'a Nominated,
    pod: &'a Pod,
    /// The node that the pod itself is promised.
    own: Option<Row>,
}

impl Promised<'_> {
    /// How many pods must be left room for on a row.
    pub fn pods(&self, row: Row) -> i64 {
        match self.nominated.sums.get(row.index()) {
            None => 0,
            Some(sum) if sum.pods == 0 || sum.priority_max < self.pod.class.priority => 0,
            Some(sum) if self.is_whole(sum, row) => sum.pods,
            Some(_) => count(self.nominated.before(self.pod, row).count()),
        }
    }

    /// How much of a resource must be left for them.
    pub fn amount(&self, row: Row, id: ResourceId) -> i64 {
        let Some(sum) = self.nominated.sums.get(row.index()).filter(|sum| sum.pods > 0) else { return 0 };
        match id {
            ResourceId::CPU if self.is_whole(sum, row) => sum.cpu_milli,
            ResourceId::MEMORY if self.is_whole(sum, row) => sum.memory,
            id => {
                let before = self.nominated.before(self.pod, row);
                before.map(|other| asked(other, id)).fold(0, i64::saturating_add)
            }
        }
    }

    /// Pods, cpu and memory that must be left on a row, where that is known without looking at who was promised it.
    pub fn at_once(&self, row: Row) -> Option<(i64, i64, i64)> {
        let sum = self.nominated.sums.get(row.index()).filter(|sum| sum.pods > 0)?;
        self.is_whole(sum, row).then_some((sum.pods, sum.cpu_milli, sum.memory))
    }

    /// Whether all promises of a row count.
    fn is_whole(&self, sum: &Sum, row: Row) -> bool {
        sum.priority_min >= self.pod.class.priority && self.own != Some(row)
    }
}

fn asked(pod: &Pod, id: ResourceId) -> i64 {
    pod.class.requests.amounts.get(id)
}

fn count(pods: usize) -> i64 {
    i64::try_from(pods).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use serde_json::json;

    #[test]
    fn sums_are_those_of_the_pods() {
        let mut cluster = Cluster::default();
        let mut pod = |name: &str, priority: i32, cpu: &str| {
            let requests = json!({"cpu": cpu, "memory": "1", "example.com/x": "2"});
            let object = json!({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {
                "priority": priority, "containers": [{"name": "c", "resources": {"requests": requests}}]}});
            Arc::new(cluster.compile(&serde_json::from_value(object).unwrap()))
        };
        let (low, mid, high) = (pod("low", 1, "1"), pod("mid", 5, "2"), pod("high", 9, "4"));
        let other = pod("other", 5, "1");
        let device = cluster.resources.id("example.com/x").unwrap();
        let mut nominated = Nominated::default();
        for promised in [&low, &mid, &high] {
            nominated.insert(Row(2), promised.clone());
        }
        let seen = |nominated: &Nominated, by: &Pod, row: Row| {
            let view = nominated.view(by);
            let amounts = [ResourceId::CPU, ResourceId::MEMORY, device].map(|id| view.amount(row, id));
            (view.pods(row), amounts, nominated.before(by, row).count())
        };
        for (name, by, row, want) in [
            ("all others, not itself", &low, 2, (2, [6000, 2, 4], 2)),
            ("those no lower", &other, 2, (2, [6000, 2, 4], 2)),
            ("nobody", &high, 2, (0, [0, 0, 0], 0)),
            ("another row", &low, 1, (0, [0, 0, 0], 0)),
            ("a row beyond", &low, 7, (0, [0, 0, 0], 0)),
        ] {
            assert_eq!(seen(&nominated, by, Row(row)), want, "{name}");
        }
        assert_eq!(nominated.rows(), [Row(2)]);
        nominated.remove(Row(2), "low");
        assert_eq!(seen(&nominated, &low, Row(2)), (2, [6000, 2, 4], 2), "by the sums");
        nominated.remove(Row(2), "mid");
        nominated.remove(Row(2), "high");
        nominated.remove(Row(2), "high");
        assert!(nominated.is_empty() && nominated.row_count() == 0);
        assert_eq!(seen(&nominated, &low, Row(2)), (0, [0, 0, 0], 0));
    }
}
