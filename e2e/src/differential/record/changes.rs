//! What steps do to the cluster beside new pods to place, and whether it wakes a pod that waits.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::{Event, Lab, MARK, PlayedPod, key, typed, uid};
use crate::differential::scenario::{Outcome, Step, is_to_place, kind, name, namespace};

impl Lab {
    /// Carries out all of a step but pods to place, and waits until the scheduler knows of it.
    pub(super) async fn change(&mut self, step: &Step, events: &mut Vec<Event>) -> Result<()> {
        for path in &step.delete {
            let parts: Vec<&str> = path.split('/').collect();
            match parts.as_slice() {
                ["Pod", name] => events.extend(self.delete_pod("default", name).await?),
                ["Pod", space, name] => events.extend(self.delete_pod(space, name).await?),
                ["Node", name] => self.delete_node(name, events).await?,
                _ => bail!("cannot delete {path:?}"),
            }
        }
        if !step.update.is_empty() {
            self.update_nodes(&step.update, events).await?;
        }
        for object in step.create.iter().filter(|object| !is_to_place(object)) {
            match kind(object) {
                "Pod" => self.stand(object, events).await?,
                "Node" => self.add_node(object, events).await?,
                other => bail!("cannot create a {other}"),
            }
        }
        Ok(())
    }

    async fn delete_pod(&mut self, space: &str, name: &str) -> Result<Option<Event>> {
        let wanted = format!("{space}/{name}");
        let found = self.standing.iter().find(|(_, known)| **known == wanted).map(|(uid, _)| uid.clone());
        // It may never have found a node, or have been preempted.
        let Some(uid) = found else { return Ok(None) };
        self.standing.remove(&uid);
        self.talk.delete("Pod", space, name).await?;
        Ok(self.board.get(&uid).map(|entry| Event::Gone(typed(entry.object, "Pod"))))
    }

    async fn delete_node(&mut self, name: &str, events: &mut Vec<Event>) -> Result<()> {
        let node = self.talk.get("Node", "", name).await?;
        self.talk.delete("Node", "", name).await?;
        events.push(Event::Gone(typed(node, "Node")));
        self.mark_and_probe(events).await
    }

    async fn add_node(&mut self, node: &Value, events: &mut Vec<Event>) -> Result<()> {
        for (object, stored) in self.create_all(vec![node.clone()]).await? {
            events.push(Event::Is { object, stored });
        }
        self.mark_and_probe(events).await
    }

    /// How many nodes have an image is kept with each node, so all have to be looked at when their number changes.
    async fn mark_and_probe(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let nodes = self.mark_all().await?;
        let count = nodes.len();
        events.extend(nodes.into_iter().map(|stored| Event::Is { object: Value::Null, stored }));
        self.probe(count, count).await.map(drop)
    }

    async fn update_nodes(&mut self, nodes: &[Value], events: &mut Vec<Event>) -> Result<()> {
        self.marks += 1;
        for node in nodes {
            let mut marked = node.clone();
            marked["metadata"]["labels"][MARK] = json!(self.marks.to_string());
            for stored in self.talk.replace_node(&marked).await? {
                events.push(Event::Is { object: node.clone(), stored: typed(stored, "Node") });
            }
        }
        let all = self.talk.list("Node").await?.len();
        self.probe(all, nodes.len()).await.map(drop)
    }

    /// A pod that comes with its node.
    async fn stand(&mut self, pod: &Value, events: &mut Vec<Event>) -> Result<()> {
        self.used.insert(("Pod".to_owned(), namespace(pod).to_owned()));
        let mut bare = pod.clone();
        if let Some(fields) = bare.as_object_mut() {
            fields.remove("status");
        }
        let created = typed(self.talk.create(&bare).await?, "Pod");
        let running = self.run(&created).await?;
        events.extend([created, running].map(|stored| Event::Is { object: pod.clone(), stored }));
        Ok(())
    }

    /// Whether the pod that waits was tried again, and what came of it.
    pub(super) async fn look_at_waiting(&mut self) -> Result<Option<PlayedPod>> {
        let Some((object, before)) = self.waiting.clone() else { return Ok(None) };
        // The first goes before a pod that was woken, the second after it.
        self.ask().await?;
        self.ask().await?;
        let logged = self.peer.scores()?.remove(&key(&before)).unwrap_or_default();
        let mut waited = PlayedPod {
            object: object.clone(),
            before: before.clone(),
            is_known: true,
            ungated: None,
            now: Some(before.clone()),
            victims: Vec::new(),
            outcome: Outcome::default(),
        };
        if logged.attempts == 0 {
            return Ok(Some(waited));
        }
        // One that did not fail has a place and is being bound.
        let settled = self.settle(&before, logged.attempts > logged.failures).await?;
        let mut last = self.peer.scores()?.remove(&key(&before)).unwrap_or_default();
        if last.totals.is_empty() {
            last = logged;
        }
        (waited.victims, waited.outcome) = self.outcome(settled, last);
        waited.outcome.woken = true;
        if waited.outcome.node.is_empty() {
            let waiting = self.board.get(&uid(&before)).map(|entry| typed(entry.object, "Pod"));
            self.waiting = waiting.clone().map(|waiting| (object, waiting));
            waited.now = waiting;
        } else {
            self.waiting = None;
            waited.now = Some(self.run(&before).await?);
        }
        Ok(Some(waited))
    }

    /// Lets go of a pod that waits.
    pub async fn stop_waiting(&mut self) -> Result<Option<Value>> {
        let Some((_, waiting)) = self.waiting.take() else { return Ok(None) };
        self.talk.delete("Pod", namespace(&waiting), name(&waiting)).await?;
        Ok(Some(waiting))
    }
}
