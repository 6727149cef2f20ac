//! The pods of the fleet: met, changed, forgotten.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::{EVENTS_MAX, Engine};
use crate::nodes::admit;
use crate::nodes::fleet::NodeHealth;
use crate::nodes::fleet::nodes::NodeState;
use crate::nodes::fleet::pods::Work;
use crate::nodes::fleet::write::Warning;
use crate::nodes::lifecycle::{Verdict, hash};
use crate::store::{Change, Stored};

impl Engine {
    /// Takes what the watch has; true when there may be more.
    pub(super) fn take_events(&mut self) -> bool {
        let Ok(events) = self.watch.take(EVENTS_MAX) else {
            self.relist();
            return true;
        };
        let count = events.len();
        for event in events {
            match event.change {
                Change::Deleted => {
                    let slot = self.pods.find(event.object.key());
                    slot.into_iter().for_each(|slot| self.forget_pod(slot));
                }
                _ => self.observe(&event.object),
            }
        }
        count == EVENTS_MAX
    }

    /// The watch fell behind: what is there now is all that counts.
    fn relist(&mut self) {
        let (items, watch) = self.shared.api.list_and_watch(&self.shared.pods);
        self.watch = watch;
        let there: HashSet<&str> = items.iter().map(|item| item.key()).collect();
        let known: Vec<u32> = self.pods.slots().collect();
        for slot in known {
            if self.pods.get(slot).is_some_and(|pod| !there.contains(&*pod.key)) {
                self.forget_pod(slot);
            }
        }
        for item in &items {
            self.observe(item);
        }
    }

    /// Meets pods that were bound before their nodes came to life.
    pub(super) fn scan(&mut self) {
        if self.registering > 0 || !std::mem::take(&mut self.must_scan) {
            return;
        }
        let pods = self.shared.api.table(&self.shared.pods);
        let query = crate::store::Query::default();
        let is_ours = |pod: &Stored| self.nodes.find(pod.field("spec.nodeName")).is_some();
        let found = pods.page(query, &is_ours).map(|page| page.items).unwrap_or_default();
        for pod in &found {
            self.observe(pod);
        }
    }

    fn observe(&mut self, stored: &Arc<Stored>) {
        let node = self.nodes.find(stored.field("spec.nodeName"));
        let node = node
            .filter(|slot| self.nodes.get(*slot).is_some_and(|node| node.health != NodeHealth::Registering));
        let known = self.pods.find(stored.key());
        let identity = hash(&[stored.uid()]);
        if let Some(slot) = known
            && let Some(pod) = self.pods.get(slot)
            && pod.identity == identity
            && Some(pod.node) == node
        {
            // Whoever is placed because this one has ended may come next, before it is gone.
            if has_ended(stored.field("status.phase")) {
                self.discount(slot);
            }
            let Some(pod) = self.pods.get_mut(slot) else { return };
            match pod.work {
                _ if pod.revision >= stored.revision() => {}
                // Perhaps our own doing; the writer's answer will tell.
                Work::Writing | Work::WritingAndQueued => pod.seen.note(stored.revision()),
                Work::Idle | Work::Queued => {
                    pod.revision = stored.revision();
                    self.change_pod(slot, stored);
                }
            }
            return;
        }
        known.into_iter().for_each(|slot| self.forget_pod(slot));
        if let Some(node) = node {
            self.meet_pod(node, stored, identity);
        }
    }

    fn meet_pod(&mut self, node: u32, stored: &Arc<Stored>, identity: u64) {
        let Some(pod) = read_pod(stored) else { return };
        let status = pod.status.as_ref();
        let is_over = status.and_then(|status| status.phase.as_deref()).is_some_and(has_ended);
        let grace = pod.metadata.deletion_grace_period_seconds;
        // One that has ended is the cluster's; one that must yet be removed is ours.
        if is_over && grace.is_none_or(|grace| grace == 0) {
            return;
        }
        self.refresh(node);
        let is_new = status.is_none_or(|status| status.start_time.is_none());
        let (mut state, ask, problems) = self.describe(node, stored, &pod, identity);
        let known = status.and_then(|s| s.pod_ip.as_deref()).and_then(|ip| ip.parse().ok());
        state.address = u32::from(self.pod_addresses.take(known));
        let Some(host) = self.nodes.get_mut(node) else { return };
        let verdict = match is_new && !is_over {
            true => admit::admit(&pod, &ask, &host.facts.node, &host.taken, &self.table),
            false => Verdict::Admitted,
        };
        let warn = |reason: &str, message: String| Warning {
            node: host.name.clone(),
            namespace: stored.namespace().to_owned(),
            pod: stored.name().to_owned(),
            uid: stored.uid().to_owned(),
            reason: reason.to_owned(),
            message,
        };
        if is_new && !problems.is_empty() {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            self.warnings.push_back(warn("InvalidSandboxAnnotation", texts.join("; ")));
        }
        match verdict {
            Verdict::Rejected { reason, message } => {
                self.warnings.push_back(warn(&reason, message.clone()));
                state.extras.get_or_insert_default().rejected = Some((reason, message));
            }
            Verdict::Admitted if is_over => {}
            Verdict::Admitted => {
                state.is_counted = true;
                host.taken.requested += &ask.requests;
                host.taken.pods += 1;
                host.taken.ports.extend(ask.ports);
                host.owes.topology |= state.pinned().is_some();
            }
        }
        let slot = self.pods.insert(state);
        if let Some(host) = self.nodes.get_mut(node) {
            host.pods.push(slot);
        }
        self.pay(node);
        self.queue(slot);
    }

    /// Somebody else changed a pod: its requests, its annotations, or that it is to go.
    pub(super) fn change_pod(&mut self, slot: u32, stored: &Arc<Stored>) {
        let Some(pod) = read_pod(stored) else { return };
        let Some(old) = self.pods.get(slot) else { return };
        let (node, identity) = (old.node, old.identity);
        let is_counted = old.is_counted;
        let (state, ask, _) = self.describe(node, stored, &pod, identity);
        let (Some(old), Some(host)) = (self.pods.get_mut(slot), self.nodes.get_mut(node)) else { return };
        if is_counted {
            for (id, amount) in &old.asked {
                host.taken.requested.set(*id, host.taken.requested.get(*id).saturating_sub(*amount));
            }
            host.taken.requested += &ask.requests;
        }
        host.owes.topology |= state.pinned() != old.pinned();
        old.asked = state.asked;
        old.load = state.load;
        old.priority = state.priority;
        old.qos = state.qos;
        let rejected = old.extras.take().and_then(|extras| extras.rejected);
        old.extras = state.extras;
        if rejected.is_some() {
            old.extras.get_or_insert_default().rejected = rejected;
        }
        self.pay(node);
        self.queue(slot);
    }

    pub(super) fn forget_pod(&mut self, slot: u32) {
        self.discount(slot);
        let Some(pod) = self.pods.remove(slot) else { return };
        self.pod_addresses.give_back(Ipv4Addr::from(pod.address));
        let Some(host) = self.nodes.get_mut(pod.node) else { return };
        host.pods.retain(|other| *other != slot);
        if pod.pinned().is_some() {
            host.owes.topology = true;
            self.pay(pod.node);
        }
        self.mirror(pod.node);
    }

    /// What a pod asked for is free for others again.
    fn discount(&mut self, slot: u32) {
        let Some(pod) = self.pods.get_mut(slot).filter(|pod| pod.is_counted) else { return };
        pod.is_counted = false;
        let Some(host) = self.nodes.get_mut(pod.node) else { return };
        for (id, amount) in &pod.asked {
            host.taken.requested.set(*id, host.taken.requested.get(*id).saturating_sub(*amount));
        }
        host.taken.pods -= 1;
        for port in &pod.ports {
            if let Some(at) = host.taken.ports.iter().position(|taken| taken == port) {
                host.taken.ports.swap_remove(at);
            }
        }
    }

    pub(super) fn queue(&mut self, slot: u32) {
        let Some(pod) = self.pods.get_mut(slot) else { return };
        if !self.nodes.get(pod.node).is_some_and(NodeState::is_ready) {
            return;
        }
        match pod.work {
            Work::Idle => {
                pod.work = Work::Queued;
                self.pod_queue.push_back(slot);
            }
            Work::Writing => pod.work = Work::WritingAndQueued,
            Work::Queued | Work::WritingAndQueued => {}
        }
    }
}

/// A pod in such a phase uses nothing any more.
fn has_ended(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

fn read_pod(stored: &Stored) -> Option<Pod> {
    match serde_json::from_slice(&stored.json()) {
        Ok(pod) => Some(pod),
        Err(error) => {
            tracing::warn!(pod = stored.key(), %error, "a pod that cannot be read");
            None
        }
    }
}
