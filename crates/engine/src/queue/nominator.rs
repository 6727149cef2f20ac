//! Which pods are promised a node: those that preempted for it, or that the API says so of.
//!
//! Kept by node in the order of nomination. Spec: scheduler-core 1.5.

use std::collections::{BTreeMap, HashMap};

use super::record::{NodeName, Pod, PodKey, PodUid};

/// A pod that is promised a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nominated {
    pub key: PodKey,
    pub uid: PodUid,
    pub priority: i32,
}

/// Where a nomination comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nominating {
    /// This node, or none any more.
    Override(Option<NodeName>),
    /// Whatever the pod's status says; an empty one changes nothing in the API.
    Noop,
}

#[derive(Debug, Default)]
pub(super) struct Nominator {
    /// No list is empty.
    by_node: BTreeMap<NodeName, Vec<Nominated>>,
    /// Never iterated.
    by_uid: HashMap<PodUid, NodeName>,
    /// Grows with every change.
    generation: u64,
    /// Changes that the owner has not taken yet.
    journal: Vec<NominationChange>,
}

/// A promise that was made or taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NominationChange {
    Made { node: NodeName, uid: PodUid },
    Gone { node: NodeName, uid: PodUid },
}

impl Nominator {
    pub(super) fn node_of(&self, uid: &PodUid) -> Option<&NodeName> {
        self.by_uid.get(uid)
    }

    /// In the order of nomination.
    pub(super) fn on_node(&self, node: &NodeName) -> &[Nominated] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// By node name.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&NodeName, &[Nominated])> {
        self.by_node.iter().map(|(node, pods)| (node, pods.as_slice()))
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn take_journal(&mut self) -> Vec<NominationChange> {
        std::mem::take(&mut self.journal)
    }

    /// Promises the pod a node in place of any other. A pod that is gone or has a node gets nothing.
    pub(super) fn add<P>(&mut self, pod: &Pod<P>, nominating: Nominating, is_waiting: bool) {
        self.delete(&pod.uid);
        let node = match nominating {
            Nominating::Override(node) => node,
            Nominating::Noop => pod.nominated.clone(),
        };
        let Some(node) = node.filter(|_| is_waiting) else {
            return;
        };
        let nominated = Nominated { key: pod.key.clone(), uid: pod.uid.clone(), priority: pod.priority };
        self.by_node.entry(node.clone()).or_default().push(nominated);
        self.journal.push(NominationChange::Made { node: node.clone(), uid: pod.uid.clone() });
        self.by_uid.insert(pod.uid.clone(), node);
        self.generation += 1;
    }

    /// Follows an update of the pod. One that says nothing on either side keeps what only we know.
    pub(super) fn update<P>(&mut self, old: Option<&NodeName>, pod: &Pod<P>, is_waiting: bool) {
        let kept = self.by_uid.get(&pod.uid).filter(|_| old.is_none() && pod.nominated.is_none()).cloned();
        let nominating = match kept {
            Some(node) => Nominating::Override(Some(node)),
            None => Nominating::Noop,
        };
        self.add(pod, nominating, is_waiting);
    }

    pub(super) fn delete(&mut self, uid: &PodUid) {
        let Some(node) = self.by_uid.remove(uid) else {
            return;
        };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|nominated| nominated.uid != *uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        self.journal.push(NominationChange::Gone { node, uid: uid.clone() });
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::ProfileId;
    use super::*;

    fn pod(name: &str, nominated: &str) -> Pod<()> {
        Pod {
            key: PodKey::new("ns", name),
            uid: name.into(),
            profile: ProfileId(0),
            priority: 7,
            nominated: (!nominated.is_empty()).then(|| nominated.into()),
            content: (),
        }
    }

    fn on(nominator: &Nominator, node: &str) -> Vec<String> {
        nominator.on_node(&node.into()).iter().map(|n| n.uid.to_string()).collect()
    }

    fn node(name: &str) -> Nominating {
        Nominating::Override((!name.is_empty()).then(|| name.into()))
    }

    #[test]
    fn a_pod_is_nominated_once_and_in_order() {
        let mut nominator = Nominator::default();
        for (name, uid, status, how, is_waiting, want_n1, want_n2) in [
            ("override", "a", "", node("n1"), true, vec!["a"], vec![]),
            ("second on the node", "b", "", node("n1"), true, vec!["a", "b"], vec![]),
            ("status", "c", "n2", Nominating::Noop, true, vec!["a", "b"], vec!["c"]),
            ("override wins over status", "c", "n2", node("n1"), true, vec!["a", "b", "c"], vec![]),
            ("moved, so last", "a", "", node("n2"), true, vec!["b", "c"], vec!["a"]),
            ("override with nothing removes", "b", "n1", node(""), true, vec!["c"], vec!["a"]),
            ("noop without status removes", "c", "", Nominating::Noop, true, vec![], vec!["a"]),
            ("gone or assigned", "d", "n2", Nominating::Noop, false, vec![], vec!["a"]),
            ("assigned meanwhile", "a", "", node("n1"), false, vec![], vec![]),
        ] {
            let generation = nominator.generation();
            nominator.add(&pod(uid, status), how, is_waiting);
            assert_eq!(on(&nominator, "n1"), want_n1, "{name}");
            assert_eq!(on(&nominator, "n2"), want_n2, "{name}");
            assert_eq!(nominator.generation() != generation, name != "gone or assigned", "{name}");
        }
        assert_eq!(nominator.nodes().count(), 0);
    }

    #[test]
    fn updates_keep_what_only_memory_knows() {
        for (name, in_memory, old, new, want) in [
            ("nothing on both sides", "n1", "", "", Some("n1")),
            ("added", "n1", "", "n2", Some("n2")),
            ("changed", "n1", "n1", "n2", Some("n2")),
            ("removed", "n1", "n1", "", None),
            ("never was", "", "", "", None),
        ] {
            let mut nominator = Nominator::default();
            nominator.add(&pod("a", old), node(in_memory), true);
            nominator.update(pod("a", old).nominated.as_ref(), &pod("a", new), true);
            assert_eq!(nominator.node_of(&"a".into()).map(NodeName::as_str), want, "{name}");
        }
    }
}
