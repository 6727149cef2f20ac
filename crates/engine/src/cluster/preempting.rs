//! Pods for which others are being taken away right now. Spec: scheduler-core 6.13, async mode.

use std::collections::HashMap;

use super::Cluster;

/// Preemptors by UID, each with the UID of the victim that goes last.
#[derive(Debug, Default)]
pub(super) struct Preempting {
    last_victims: HashMap<Box<str>, Box<str>>,
}

impl Cluster {
    /// Victims of a pod are being told to go; `last_victim` is told after all others.
    pub fn begin_preempting(&mut self, uid: &str, last_victim: &str) {
        self.preempting.last_victims.insert(uid.into(), last_victim.into());
    }

    /// All were told, or it failed. False when nothing was under way.
    pub fn end_preempting(&mut self, uid: &str) -> bool {
        self.preempting.last_victims.remove(uid).is_some()
    }

    /// Whether victims of a pod are still being told to go. Once the last one is seen leaving it is over, even if
    /// nobody said so yet: the word may come after the event that the preemptor waits for.
    pub fn is_preempting(&self, uid: &str) -> bool {
        let last = self.preempting.last_victims.get(uid).and_then(|last| self.held(last));
        last.is_some_and(|held| !held.pod.is_deleting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn it_lasts_until_the_last_victim_goes() {
        let mut cluster = Cluster::default();
        let pod = |cluster: &mut Cluster, deletion: serde_json::Value| {
            let object = json!({"metadata": {"name": "v", "namespace": "d", "uid": "v", "deletionTimestamp": deletion},
                "spec": {"nodeName": "n", "containers": []}});
            Arc::new(cluster.compile(&serde_json::from_value(object).unwrap()))
        };
        let alive = pod(&mut cluster, json!(null));
        assert_eq!(cluster.confirm(alive), None);
        assert!(!cluster.is_preempting("p"));
        cluster.begin_preempting("p", "v");
        assert!(cluster.is_preempting("p") && !cluster.is_preempting("v"));
        let leaving = pod(&mut cluster, json!("2024-01-01T00:00:00Z"));
        assert_eq!(cluster.confirm(leaving), None);
        assert!(!cluster.is_preempting("p"), "the last victim is leaving");
        cluster.release("v");
        assert!(!cluster.is_preempting("p"), "the last victim is gone");
        assert!(cluster.end_preempting("p") && !cluster.end_preempting("p"));
    }
}
