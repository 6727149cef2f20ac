//! The real scheduler at work on a scenario, one step after the other.
//!
//! One scheduler serves many scenarios: the cluster is emptied in between, and a pod that fits nowhere tells how many
//! of the new nodes it has seen. Pods come to it in order, for they all come by one watch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::binder;
use super::board::Board;
use super::peer::Peer;
use super::scenario::{Outcome, Step, is_kind, kind, name, namespace};
use super::server::Talk;

/// Longer than a scheduler takes for anything; one that takes longer has lost a pod.
const LIMIT: Duration = Duration::from_secs(20);
/// Kinds that are emptied between scenarios, in this order; others stay, and are the same in all.
const CLEARED: [&str; 9] = [
    "Pod",
    "Service",
    "ReplicaSet",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "CSINode",
    "CSIStorageCapacity",
    "Node",
];
/// Requests on their way at once.
const PARALLEL: usize = 8;
/// Marks the nodes that a probe counts.
const MARK: &str = "koord.test/mark";
/// No node has any.
const NOTHING: &str = "koord.test/nothing";
/// When the first pod began to run, in seconds of the epoch; each later one a second after.
const FIRST_START: i64 = 1_750_000_000;

/// A cluster with the real scheduler.
pub struct Lab {
    talk: Talk,
    board: Board,
    peer: Peer,
    marks: u64,
    started: i64,
    /// Pods on nodes, by uid.
    standing: BTreeMap<String, String>,
    has_claims: bool,
    /// Kinds that were made, with their namespaces.
    used: BTreeSet<(String, String)>,
    /// Objects that stay, as they were stored.
    lasting: BTreeMap<(String, String), Value>,
}

/// What a step brought.
pub struct Played {
    /// Objects as they were when the scheduler first saw them: nodes changed, pods to place.
    pub told: Vec<Value>,
    /// Pods deleted by the step itself.
    pub deleted: Vec<Value>,
    /// The pods to place with what became of them.
    pub pods: Vec<PlayedPod>,
    /// Objects as they are after it: volumes, claims.
    pub after: Vec<Value>,
}

/// A pod and its way.
pub struct PlayedPod {
    /// As it was created; with its gates, where it has any.
    pub created: Value,
    /// Without gates, where it had some.
    pub ungated: Option<Value>,
    /// On its node and running; none when it found none, and is deleted again.
    pub bound: Option<Value>,
    /// Pods preempted for it.
    pub victims: Vec<Value>,
    pub outcome: Outcome,
}

impl Lab {
    pub async fn start(program: &Path, kubeconfig: &Path) -> Result<Lab> {
        let talk = Talk::new(kubeconfig).await?;
        let board = Board::start(talk.client.clone());
        let peer = Peer::start(program, kubeconfig)?;
        Ok(Lab {
            talk,
            board,
            peer,
            marks: 0,
            started: 0,
            standing: BTreeMap::new(),
            has_claims: false,
            used: BTreeSet::new(),
            lasting: BTreeMap::new(),
        })
    }

    pub fn stop(self) -> Result<()> {
        self.peer.stop()
    }

    /// Empties the cluster and fills it anew. Returns the objects, and as they were stored.
    pub async fn set_up(&mut self, base: &[Value]) -> Result<Vec<(Value, Value)>> {
        self.clear().await?;
        self.marks += 1;
        self.has_claims = base.iter().any(|object| is_kind(object, "PersistentVolumeClaim"));
        let others =
            base.iter().filter(|object| !is_kind(object, "Pod") && !is_kind(object, "PersistentVolume"));
        let mut stored = self.create_all(others.cloned().collect()).await?;
        // Bound for good: only a claim with this very uid may use the volume.
        let uid_of = |claim: &Value| Some((claim["spec"]["volumeName"].as_str()?.to_owned(), uid(claim)));
        let claims: BTreeMap<String, String> =
            stored.iter().filter_map(|(_, stored)| uid_of(stored)).collect();
        let mut volumes: Vec<Value> =
            base.iter().filter(|object| is_kind(object, "PersistentVolume")).cloned().collect();
        for volume in &mut volumes {
            if let Some(uid) = claims.get(name(volume)) {
                volume["spec"]["claimRef"]["uid"] = json!(uid);
            }
        }
        stored.extend(self.create_all(volumes).await?);
        let nodes = base.iter().filter(|object| is_kind(object, "Node")).count();
        // It keeps how many nodes have an image with each node, as of when it last looked: all must be looked at anew
        // when it did so in between.
        while self.probe(nodes, nodes).await? > 0 {
            self.marks += 1;
            let mark = json!({"metadata": {"labels": {MARK: self.marks.to_string()}}});
            for node in base.iter().filter(|object| is_kind(object, "Node")) {
                self.talk.patch("Node", "", name(node), &mark).await?;
            }
        }
        let mut pods: Vec<Value> = base.iter().filter(|object| is_kind(object, "Pod")).cloned().collect();
        for pod in &mut pods {
            let start = self.next_start()?;
            let status = &mut pod["status"];
            if status["startTime"].is_null() {
                *status = json!({"phase": "Running", "startTime": start});
            }
        }
        let pods = self.create_all(pods).await?;
        self.standing = pods.iter().map(|(_, pod)| (uid(pod), key(pod))).collect();
        stored.extend(pods);
        Ok(stored)
    }

    async fn clear(&mut self) -> Result<()> {
        for kind in CLEARED {
            let used: Vec<String> =
                self.used.iter().filter(|(used, _)| used == kind).map(|(_, space)| space.clone()).collect();
            for space in used {
                self.talk.clear(kind, &space).await?;
            }
        }
        self.used.clear();
        self.board.wipe();
        self.standing.clear();
        self.started = 0;
        Ok(())
    }

    /// Makes objects side by side. Returns them, and as they were stored.
    async fn create_all(&mut self, objects: Vec<Value>) -> Result<Vec<(Value, Value)>> {
        let mut stored: Vec<(Value, Value)> = Vec::new();
        let mut missing: Vec<Value> = Vec::new();
        for object in objects {
            match self.lasting.get(&(kind(&object).to_owned(), name(&object).to_owned())) {
                Some(known) => stored.push((object, known.clone())),
                None => missing.push(object),
            }
        }
        let (talk, mark) = (self.talk.clone(), self.marks.to_string());
        let made = futures::stream::iter(missing).map(|object| {
            let (talk, mark) = (talk.clone(), mark.clone());
            async move {
                let mut marked = object.clone();
                if is_kind(&object, "Node") {
                    marked["metadata"]["labels"][MARK] = json!(mark);
                }
                let created = talk.create(&marked).await.with_context(|| object.to_string())?;
                anyhow::Ok((object, created))
            }
        });
        let made: Vec<(Value, Value)> = made.buffered(PARALLEL).try_collect().await?;
        for (object, created) in made {
            let created = typed(created, kind(&object));
            match CLEARED.contains(&kind(&object)) {
                true => drop(self.used.insert((kind(&object).to_owned(), namespace(&object).to_owned()))),
                false => drop(
                    self.lasting
                        .insert((kind(&object).to_owned(), name(&object).to_owned()), created.clone()),
                ),
            }
            stored.push((object, created));
        }
        Ok(stored)
    }

    /// Waits until the scheduler knows all nodes, and so many with the newest mark. Tells how often it did not.
    async fn probe(&mut self, nodes: usize, marked: usize) -> Result<usize> {
        let want = format!("0/{nodes} nodes are available: {marked} Insufficient {NOTHING}");
        let end = tokio::time::Instant::now() + LIMIT;
        for number in 0.. {
            let marked = json!({"key": MARK, "operator": "In", "values": [self.marks.to_string()]});
            let probe = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("probe-{}-{number}", self.marks), "namespace": "default"},
                "spec": {"terminationGracePeriodSeconds": 0,
                    "tolerations": [{"operator": "Exists"}],
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                        {"nodeSelectorTerms": [{"matchExpressions": [marked]}]}}},
                    "containers": [{"name": "c", "image": "i", "resources": {
                        "requests": {NOTHING: "1"}, "limits": {NOTHING: "1"}}}]}});
            let created = self.talk.create(&probe).await?;
            let uid = uid(&created);
            let message = self
                .board
                .wait(LIMIT, "an answer to a probe", |board| refused(&board.get(&uid)?.object))
                .await?;
            self.talk.delete("Pod", "default", name(&created)).await?;
            if message.starts_with(&want) {
                return Ok(number);
            }
            ensure!(tokio::time::Instant::now() < end, "the scheduler says {message:?}, wanted {want:?}");
        }
        bail!("probes do not end")
    }

    /// Carries a step out.
    pub async fn play(&mut self, step: &Step) -> Result<Played> {
        let mut played =
            Played { told: Vec::new(), deleted: Vec::new(), pods: Vec::new(), after: Vec::new() };
        for path in &step.delete {
            played.deleted.extend(self.delete(path).await?);
        }
        if !step.update.is_empty() {
            played.told = self.update(&step.update).await?;
        }
        // Whatever it logged up to here is of no interest.
        self.peer.scores()?;
        for object in &step.create {
            ensure!(is_kind(object, "Pod"), "a step creates {}, and only pods are waited for", kind(object));
            let pod = self.place(object).await.with_context(|| format!("pod {}", name(object)))?;
            played.pods.push(pod);
        }
        if self.has_claims {
            self.used.insert(("PersistentVolume".to_owned(), "default".to_owned()));
            for kind in ["PersistentVolumeClaim", "PersistentVolume"] {
                played.after.extend(self.talk.list(kind).await?);
            }
        }
        Ok(played)
    }

    async fn delete(&mut self, path: &str) -> Result<Option<Value>> {
        let parts: Vec<&str> = path.split('/').collect();
        let (space, name) = match parts.as_slice() {
            ["Pod", name] => ("default", *name),
            ["Pod", space, name] => (*space, *name),
            _ => bail!("cannot delete {path:?}"),
        };
        let key = format!("{space}/{name}");
        let found = self.standing.iter().find(|(_, known)| **known == key).map(|(uid, _)| uid.clone());
        // It may never have found a node, or have been preempted.
        let Some(uid) = found else { return Ok(None) };
        self.standing.remove(&uid);
        self.talk.delete("Pod", space, name).await?;
        Ok(self.board.get(&uid).map(|entry| entry.object))
    }

    async fn update(&mut self, nodes: &[Value]) -> Result<Vec<Value>> {
        self.marks += 1;
        let mut stored = Vec::new();
        for node in nodes {
            let mut node = node.clone();
            node["metadata"]["labels"][MARK] = json!(self.marks.to_string());
            stored.push(typed(self.talk.replace_node(&node).await?, "Node"));
        }
        let all = self.talk.list("Node").await?.len();
        self.probe(all, nodes.len()).await?;
        Ok(stored)
    }

    async fn place(&mut self, object: &Value) -> Result<PlayedPod> {
        let created = typed(self.talk.create(object).await?, "Pod");
        self.used.insert(("Pod".to_owned(), namespace(&created).to_owned()));
        let uid = uid(&created);
        let is_gated = created["spec"].get("schedulingGates").is_some();
        let ungated = match is_gated {
            true => {
                let open = json!({"spec": {"schedulingGates": null}});
                Some(typed(self.talk.patch("Pod", namespace(&created), name(&created), &open).await?, "Pod"))
            }
            false => None,
        };
        let settled = self.settle(&created, &uid).await?;
        let mut outcome =
            Outcome { nominated: settled.nominated, message: settled.message, ..Outcome::default() };
        let victims = self.take_victims();
        outcome.gone = victims.iter().map(|pod| name(pod).to_owned()).collect();
        outcome.gone.sort();
        let mut bound = None;
        if settled.node.is_empty() {
            self.talk.delete("Pod", namespace(&created), name(&created)).await?;
        } else {
            let logged = self.peer.scores()?.remove(&key(&created)).unwrap_or_default();
            (outcome.node, outcome.scores, outcome.parts) = (settled.node, logged.totals, logged.parts);
            bound = Some(self.run(&created).await?);
        }
        Ok(PlayedPod { created, ungated, bound, victims, outcome })
    }

    /// Waits until the pod has a node, or is refused for good.
    async fn settle(&mut self, pod: &Value, uid: &str) -> Result<Settled> {
        let talk = self.talk.clone();
        let claims = binder::claims_of(pod);
        let end = tokio::time::Instant::now() + LIMIT;
        loop {
            // A claim's volume is chosen before the pod is bound, and needs us in between.
            let limit = if claims.is_empty() { LIMIT } else { Duration::from_millis(20) };
            let found = self.board.wait(limit, "a decision", |board| settled(&board.get(uid)?)).await;
            match found {
                Ok(settled) => return Ok(settled),
                Err(error) if claims.is_empty() || tokio::time::Instant::now() > end => return Err(error),
                Err(_) => binder::bind(&talk, &claims).await?,
            }
        }
    }

    /// Pods that were on nodes and are gone.
    fn take_victims(&mut self) -> Vec<Value> {
        let gone = |uid: &String| self.board.get(uid).filter(|entry| entry.is_gone).map(|entry| entry.object);
        let victims: BTreeMap<String, Value> =
            self.standing.keys().filter_map(|uid| Some((uid.clone(), gone(uid)?))).collect();
        let uids: BTreeSet<&String> = victims.keys().collect();
        self.standing.retain(|uid, _| !uids.contains(uid));
        victims.into_values().collect()
    }

    /// What a kubelet would: the pod runs.
    async fn run(&mut self, pod: &Value) -> Result<Value> {
        let status = json!({"status": {"phase": "Running", "startTime": self.next_start()?}});
        let running = self.talk.patch_status("Pod", namespace(pod), name(pod), &status).await?;
        self.standing.insert(uid(pod), key(pod));
        Ok(typed(running, "Pod"))
    }

    /// Each pod begins to run a second after the one before.
    fn next_start(&mut self) -> Result<String> {
        self.started += 1;
        Ok(k8s_openapi::jiff::Timestamp::from_second(FIRST_START + self.started)?.to_string())
    }
}

fn key(pod: &Value) -> String {
    format!("{}/{}", namespace(pod), name(pod))
}

struct Settled {
    node: String,
    message: String,
    nominated: String,
}

fn settled(entry: &super::board::Entry) -> Option<Settled> {
    let nominated = entry.nominated.first().cloned().unwrap_or_default();
    if let Some(node) = entry.object["spec"]["nodeName"].as_str() {
        return Some(Settled { node: node.to_owned(), message: String::new(), nominated });
    }
    // One with a promise waits for its victims to go.
    let is_promised =
        entry.object["status"]["nominatedNodeName"].as_str().is_some_and(|node| !node.is_empty());
    let message = refused(&entry.object).filter(|_| !is_promised)?;
    Some(Settled { node: String::new(), message, nominated })
}

/// Why the scheduler could not place a pod.
fn refused(pod: &Value) -> Option<String> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let refusal = conditions.iter().find(|condition| {
        condition["type"] == "PodScheduled"
            && condition["status"] == "False"
            && condition["reason"] != "SchedulingGated"
    })?;
    refusal["message"].as_str().map(str::to_owned)
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn typed(mut object: Value, kind: &str) -> Value {
    object["kind"] = json!(kind);
    object
}
