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
use super::peer::{Logged, Peer};
use super::scenario::{Outcome, Step, is_kind, is_to_place, kind, name, namespace};
use super::server::Talk;

mod changes;

/// Longer than a scheduler takes for anything, also on a busy machine; one that takes longer has lost a pod.
const LIMIT: Duration = Duration::from_secs(90);
/// A scheduler that is at work says something in this time.
const SILENCE: Duration = Duration::from_secs(15);
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
pub(super) const MARK: &str = "koord.test/mark";
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
    /// A pod that was refused and stays: as the scenario has it, and as it is.
    waiting: Option<(Value, Value)>,
    probes: u64,
    has_claims: bool,
    /// Kinds that were made, with their namespaces.
    used: BTreeSet<(String, String)>,
    /// Objects that stay, as they were stored.
    lasting: BTreeMap<(String, String), Value>,
}

/// What a step brought.
#[derive(Default)]
pub struct Played {
    /// What it did to the cluster, in order.
    pub events: Vec<Event>,
    /// Pods to place, or one that waited, with what became of them.
    pub pods: Vec<PlayedPod>,
    /// Objects as they are after it: volumes, claims.
    pub after: Vec<Value>,
}

/// Something that a scheduler hears of.
pub enum Event {
    /// An object as it is stored now, and as the scenario has it.
    Is {
        object: Value,
        stored: Value,
    },
    Gone(Value),
}

/// A pod and its way.
pub struct PlayedPod {
    /// As the scenario has it.
    pub object: Value,
    /// As it was before this step: as it was created, or as it waited.
    pub before: Value,
    /// Whether the scheduler knew of it before.
    pub is_known: bool,
    /// Without gates, where it had some.
    pub ungated: Option<Value>,
    /// On its node and running; or refused, when it stays; none when it was refused and is deleted.
    pub now: Option<Value>,
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
            waiting: None,
            probes: 0,
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
            self.mark_all().await?;
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
        self.waiting = None;
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

    /// Marks all nodes anew. Returns them.
    async fn mark_all(&mut self) -> Result<Vec<Value>> {
        self.marks += 1;
        let mark = json!({"metadata": {"labels": {MARK: self.marks.to_string()}}});
        let mut marked = Vec::new();
        for node in self.talk.list("Node").await? {
            marked.push(typed(self.talk.patch("Node", "", name(&node), &mark).await?, "Node"));
        }
        Ok(marked)
    }

    /// Waits until the scheduler knows all nodes, and so many with the newest mark. Tells how often it did not.
    async fn probe(&mut self, nodes: usize, marked: usize) -> Result<usize> {
        let all = format!("0/{nodes} nodes are available: ");
        let want = format!("{marked} Insufficient {NOTHING}");
        let end = tokio::time::Instant::now() + LIMIT;
        for number in 0.. {
            let message = self.ask().await?;
            // A node may be full as well, which is told first.
            let mut reasons = message.strip_prefix(&all).into_iter().flat_map(|rest| rest.split(", "));
            if reasons.any(|reason| reason.starts_with(&want)) {
                return Ok(number);
            }
            ensure!(tokio::time::Instant::now() < end, "the scheduler says {message:?}, wanted {all}{want}");
        }
        bail!("probes do not end")
    }

    /// What the scheduler says of a pod that fits nowhere, and that only nodes with the newest mark come near.
    async fn ask(&mut self) -> Result<String> {
        self.probes += 1;
        let marked = json!({"key": MARK, "operator": "In", "values": [self.marks.to_string()]});
        let probe = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("probe-{}", self.probes), "namespace": "default"},
            "spec": {"terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [{"matchExpressions": [marked]}]}}},
                "containers": [{"name": "c", "image": "i", "resources": {
                    "requests": {NOTHING: "1"}, "limits": {NOTHING: "1"}}}]}});
        let created = self.talk.create(&probe).await?;
        let uid = uid(&created);
        let answer =
            self.board.wait(LIMIT, "an answer to a probe", |board| refused(&board.get(&uid)?.object));
        let message = answer.await?;
        self.talk.delete("Pod", "default", name(&created)).await?;
        Ok(message)
    }

    /// Carries a step out.
    pub async fn play(&mut self, step: &Step) -> Result<Played> {
        let mut played = Played::default();
        let places = step.create.iter().any(is_to_place);
        if places {
            played.events.extend(self.stop_waiting().await?.map(Event::Gone));
        }
        // Whatever it logged up to here is of no interest.
        self.peer.scores()?;
        self.change(step, &mut played.events).await?;
        if places {
            for object in step.create.iter().filter(|object| is_to_place(object)) {
                let pod = self.place(object, step.keep).await;
                played.pods.push(pod.with_context(|| format!("pod {}", name(object)))?);
            }
        } else if self.waiting.is_some() {
            played.pods.extend(self.look_at_waiting().await?);
        }
        if self.has_claims {
            self.used.insert(("PersistentVolume".to_owned(), "default".to_owned()));
            for kind in ["PersistentVolumeClaim", "PersistentVolume"] {
                played.after.extend(self.talk.list(kind).await?);
            }
        }
        Ok(played)
    }

    async fn place(&mut self, object: &Value, keep: bool) -> Result<PlayedPod> {
        let created = typed(self.talk.create(object).await?, "Pod");
        self.used.insert(("Pod".to_owned(), namespace(&created).to_owned()));
        let is_gated = created["spec"].get("schedulingGates").is_some();
        let ungated = match is_gated {
            true => {
                let open = json!({"spec": {"schedulingGates": null}});
                Some(typed(self.talk.patch("Pod", namespace(&created), name(&created), &open).await?, "Pod"))
            }
            false => None,
        };
        let settled = self.settle(&created, false).await?;
        let logged = self.peer.scores()?.remove(&key(&created)).unwrap_or_default();
        let (victims, outcome) = self.outcome(settled, logged);
        let now = match (outcome.node.is_empty(), keep) {
            (false, _) => Some(self.run(&created).await?),
            (true, true) => {
                let waiting = self.board.get(&uid(&created)).map(|entry| typed(entry.object, "Pod"));
                self.waiting = waiting.clone().map(|waiting| (object.clone(), waiting));
                waiting
            }
            (true, false) => {
                self.talk.delete("Pod", namespace(&created), name(&created)).await?;
                None
            }
        };
        let object = object.clone();
        Ok(PlayedPod { object, before: created, is_known: false, ungated, now, victims, outcome })
    }

    /// What became of a pod, and who had to go for it.
    fn outcome(&mut self, settled: Settled, logged: Logged) -> (Vec<Value>, Outcome) {
        let victims = self.take_victims();
        let mut gone: Vec<String> = victims.iter().map(|pod| name(pod).to_owned()).collect();
        gone.sort();
        let (scores, parts) = match settled.node.is_empty() {
            true => Default::default(),
            false => (logged.totals, logged.parts),
        };
        let Settled { node, message, nominated } = settled;
        (victims, Outcome { node, scores, parts, message, nominated, woken: false, gone })
    }

    /// Waits until the pod has a node, or is refused for good where that may be.
    async fn settle(&mut self, pod: &Value, is_bound: bool) -> Result<Settled> {
        let (talk, uid) = (self.talk.clone(), uid(pod));
        let claims = binder::claims_of(pod);
        let start = tokio::time::Instant::now();
        loop {
            // A claim's volume is chosen before the pod is bound, and needs us in between.
            let limit = if claims.is_empty() { SILENCE } else { Duration::from_millis(20) };
            let found = self.board.wait(limit, "a decision", |board| {
                settled(&board.get(&uid)?).filter(|settled| !is_bound || !settled.node.is_empty())
            });
            match found.await {
                Ok(settled) => return Ok(settled),
                Err(_) if start.elapsed() >= SILENCE && self.is_forgotten(&uid) => {
                    return Err(Forgotten.into());
                }
                Err(error) if start.elapsed() >= LIMIT => return Err(error),
                Err(_) => binder::bind(&talk, &claims).await?,
            }
        }
    }

    /// Whether a pod was promised the place of one that kept it off by anti-affinity, which is gone.
    fn is_forgotten(&self, uid: &str) -> bool {
        let is_promised = self.board.get(uid).is_some_and(|entry| !entry.nominated.is_empty());
        let standing = self.standing.keys().filter_map(|uid| self.board.get(uid));
        is_promised && standing.filter(|entry| entry.is_gone).any(|entry| keeps_others_off(&entry.object))
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

/// kube-scheduler does not try a pod again when the one that kept it off by anti-affinity goes, not even after it made
/// that one go itself. Ours does (docs/differences.md).
#[derive(Debug)]
pub struct Forgotten;

impl std::fmt::Display for Forgotten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kube-scheduler forgot a pod that it had made room for")
    }
}

impl std::error::Error for Forgotten {}

/// Whether a pod's anti-affinity may keep others off.
pub fn keeps_others_off(pod: &Value) -> bool {
    let terms = pod.pointer("/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    terms.and_then(Value::as_array).is_some_and(|terms| !terms.is_empty())
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
