//! What the fleet is asked to do, and who waits for it.

use std::collections::HashSet;

use super::{Answer, Engine, Waiting};
use crate::nodes::fleet::nodes::NodeState;
use crate::nodes::fleet::{Command, NodeHealth, NodeRow};

impl Engine {
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Add(pool, reply) => {
                let slots = match self.add(&pool) {
                    Ok(slots) => slots,
                    Err(error) => return drop(reply.send(Err(error))),
                };
                let name = |slot: &u32| self.nodes.get(*slot).map(|node| node.name.to_string());
                let names = slots.iter().filter_map(name).collect();
                self.wait_for(slots.into_iter().collect(), Answer::Names(names, reply));
            }
            Command::Ready(reply) => {
                let open = self.nodes.iter().filter(|(_, node)| node.health == NodeHealth::Registering);
                let open = open.map(|(slot, _)| slot).collect();
                self.wait_for(open, Answer::Nothing(reply));
            }
            Command::Find(name, reply) => {
                let _ = reply.send(self.named(&name));
            }
            Command::Fail(names, reply) => {
                self.each(&names, Engine::fail);
                let _ = reply.send(());
            }
            Command::Revive(names, reply) => {
                self.each(&names, Engine::revive);
                let _ = reply.send(());
            }
            Command::Forget(names, reply) => {
                self.each(&names, Engine::forget_node);
                let _ = reply.send(());
            }
            Command::List(reply) => {
                let _ = reply.send(self.rows());
            }
        }
    }

    fn each(&mut self, names: &[String], act: fn(&mut Engine, u32)) {
        for name in names {
            if let Some(slot) = self.nodes.find(name) {
                act(self, slot);
            }
        }
    }

    /// The node of this name, or all of the pool of this name.
    fn named(&self, name: &str) -> Vec<String> {
        if self.nodes.find(name).is_some() {
            return vec![name.to_owned()];
        }
        let mut rows = self.rows();
        rows.retain(|row| row.pool == name);
        rows.into_iter().map(|row| row.name).collect()
    }

    fn rows(&self) -> Vec<NodeRow> {
        let mut nodes: Vec<&NodeState> = self.nodes.iter().map(|(_, node)| node).collect();
        nodes.sort_by(|a, b| (&a.pool, a.index, &a.name).cmp(&(&b.pool, b.index, &b.name)));
        let row = |node: &NodeState| NodeRow {
            name: node.name.to_string(),
            pool: node.pool.to_string(),
            health: node.health,
            pods: node.pods.len(),
            cpus: node.shape.cpus(),
            memory: node.shape.memory,
            gpus: node.shape.gpus.count,
            dir: node.host.as_ref().map(|host| host.dir().to_owned()),
        };
        nodes.into_iter().map(row).collect()
    }

    fn wait_for(&mut self, open: HashSet<u32>, answer: Answer) {
        self.waiting.push(Waiting { open, answer });
        self.settle();
    }

    /// A node is registered or gone: somebody may have waited for it.
    pub(super) fn answer(&mut self, slot: u32) {
        for waiting in &mut self.waiting {
            waiting.open.remove(&slot);
        }
        self.settle();
    }

    fn settle(&mut self) {
        for waiting in self.waiting.extract_if(.., |waiting| waiting.open.is_empty()) {
            match waiting.answer {
                Answer::Names(names, reply) => drop(reply.send(Ok(names))),
                Answer::Nothing(reply) => drop(reply.send(())),
            }
        }
    }
}
