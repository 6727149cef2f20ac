//! Explanations on small clusters, asserted in full.

mod kinds;
mod load;
mod properties;
mod states;

use serde_json::{Value, json};

use super::Explanation;
use crate::engine::{Command, Engine, Input, Options, Outcome};
use crate::profile::Profile;
use crate::time::Time;

/// An engine with a clock and an API server that binds what it is told to bind.
struct Lab {
    engine: Engine,
    now: Time,
    revision: u64,
}

impl Lab {
    fn new() -> Lab {
        Lab::with(Profile::standard("default-scheduler"))
    }

    fn with(profile: Profile) -> Lab {
        let options = Options::new(vec![profile]);
        Lab { engine: Engine::new(&options).unwrap(), now: Time::from_seconds(1_700_000_000), revision: 0 }
    }

    fn of(nodes: &[Value], pods: &[Value]) -> Lab {
        let mut lab = Lab::new();
        nodes.iter().for_each(|object| lab.node(object));
        pods.iter().for_each(|object| lab.pod(object));
        lab
    }

    fn take(&mut self, input: Input) {
        self.engine.take(self.now, input);
    }

    fn node(&mut self, object: &Value) {
        self.take(serde_json::from_value(json!({"type": "node", "object": object})).unwrap());
    }

    fn pod(&mut self, object: &Value) {
        self.revision += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.take(serde_json::from_value(json!({"type": "pod", "object": object})).unwrap());
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + std::time::Duration::from_secs(seconds);
        self.take(Input::Tick);
    }

    /// Tries pods until none is ready; binds succeed.
    fn settle(&mut self) -> Vec<Command> {
        let mut all = Vec::new();
        for _ in 0..1000 {
            let is_over = self.engine.step(self.now).is_none();
            let commands = self.engine.take_commands();
            for command in &commands {
                if let Command::Bind(binding) = command {
                    let uid = binding.pod.uid.to_string();
                    self.take(Input::Outcome { uid, outcome: Outcome::Bound });
                }
            }
            all.extend(commands);
            if is_over && !self.engine.is_ready() {
                break;
            }
        }
        all
    }

    fn explain(&mut self, name: &str) -> Explanation {
        self.engine.explain(self.now, "default", name).unwrap()
    }
}

/// A node with a host name, 8 cpu and 32Gi unless the extra says otherwise.
fn node(name: &str, extra: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    });
    merge(&mut object, extra);
    object
}

/// A pod that asks for this much cpu; `node` may be empty.
fn pod(name: &str, cpu: &str, node: &str, extra: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
    });
    if !node.is_empty() {
        object["spec"]["nodeName"] = json!(node);
    }
    merge(&mut object, extra);
    object
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, from) => *into = from,
    }
}

fn zone(zone: &str) -> Value {
    json!({"metadata": {"labels": {"zone": zone}}})
}

fn app(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}})
}
