//! Recorded answers of the real koord-manager, reproduced request by request. The files' format: `data/golden`, as
//! recorded.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be read is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use koord_api::crd::cluster_colocation_profile::ClusterColocationProfile;
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::crd::elastic_quota_profile::ElasticQuotaProfile;
use koord_api::gate::{Component, Gates};
use koord_api::keys::pod::label::QUOTA_NAME;
use koord_api::keys::quota::annotation::{GUARANTEED, SHARED_WEIGHT};
use koord_api::quantity::Quantity;
use koord_api::rewrite::profile::{PriorityClassFacts, Profiles};
use koord_api::slo::admission::{NodeLabels, Options};
use koord_manager::webhook::enhanced::Keeper;
use koord_manager::webhook::facts::{Facts, QuotaTrees, Texts};
use koord_manager::webhook::handler::Aside;
use koord_manager::webhook::pod_validate::{PodGates, PodValidator};
use koord_manager::webhook::quota::charge::QuotaState;
use koord_manager::webhook::quota::evaluator::{Evaluator, QuotaStore, RetryPolicy, WriteFault};
use koord_manager::webhook::quota::validate::{BoundPods, Labelled};
use koord_manager::webhook::quota::{QuotaGates, QuotaInfo, QuotaKey, Topology, handlers};
use koord_manager::webhook::review::{Answer, Operation, Request, Resource, Verdict};
use koord_manager::webhook::{config_map, node, paths, pod, reservation};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Recording {
    args: Vec<String>,
    base: Vec<Value>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    note: String,
    #[serde(default, rename = "do")]
    changes: Vec<Change>,
    call: Option<Call>,
    #[serde(default)]
    want: Value,
}

#[derive(Deserialize)]
struct Change {
    create: Option<Value>,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Call {
    path: String,
    op: String,
    sub: String,
    object: Value,
    old: Value,
    chain: bool,
    namespace: String,
    persist: bool,
    loose: bool,
    skip_if: bool,
    live: String,
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A cluster without a server: what was created is there, and the quotas' topology hears of it.
struct Cluster {
    objects: Objects,
    gates: Gates,
    topology: Arc<RwLock<Topology>>,
    pods: Arc<PodValidator<NoStore>>,
}

impl Cluster {
    fn new(recording: &Recording) -> Cluster {
        let flag = recording.args.iter().find_map(|arg| arg.strip_prefix("--feature-gates="));
        let gates = Gates::parse(Component::Manager, flag.unwrap_or_default()).unwrap();
        let topology = Arc::<RwLock<Topology>>::default();
        let pods = PodValidator {
            gates: PodGates::new(&gates),
            topology: topology.clone(),
            evaluator: Evaluator::new(NoStore, RetryPolicy::default()),
            rules: Keeper::new(Duration::MAX),
            read_rules: Box::new(|| None),
            clock: || Timestamp::UNIX_EPOCH,
        };
        let mut cluster = Cluster { objects: Objects::new(), gates, topology, pods: Arc::new(pods) };
        cluster.store(json!({"kind": "Namespace", "metadata": {"name": "default"}}));
        recording.base.iter().for_each(|object| cluster.store(object.clone()));
        cluster
    }

    fn store(&mut self, object: Value) {
        if text(&object, "/kind") == "ElasticQuota" {
            let quota = ElasticQuota::deserialize(&object).unwrap();
            self.topology.write().unwrap().show(QuotaInfo::new(QuotaKey::of(&quota, ""), &quota));
        }
        let key = ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| text(&object, at).to_owned());
        self.objects.insert(key.into(), object);
    }

    fn remove(&mut self, object: &Value) {
        let [kind, namespace, name] =
            ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| text(object, at).to_owned());
        if kind == "ElasticQuota" {
            let key = QuotaKey { namespace: namespace.clone(), name: name.clone() };
            self.topology.write().unwrap().gone(&key);
        }
        self.objects.remove(&(kind, namespace, name));
    }

    fn all<T: for<'v> Deserialize<'v>>(&self, kind: &str) -> Vec<T> {
        let objects = self.objects.iter().filter(|((is, _, _), _)| is == kind);
        objects.map(|(_, object)| T::deserialize(object).unwrap()).collect()
    }

    fn facts(&self) -> Facts {
        let profiles: Vec<ClusterColocationProfile> = self.all("ClusterColocationProfile");
        let quotas: Vec<ElasticQuota> = self.all("ElasticQuota");
        let trees: Vec<ElasticQuotaProfile> = self.all("ElasticQuotaProfile");
        let labels = |object: &Value| {
            let labels = object.pointer("/metadata/labels").cloned().unwrap_or(json!({}));
            Arc::new(Texts::deserialize(labels).unwrap())
        };
        let mut namespaces = self.all::<Value>("Namespace");
        for namespace in &mut namespaces {
            // The API server labels every namespace.
            namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] =
                namespace["metadata"]["name"].clone();
        }
        let classes = self.all::<Value>("PriorityClass");
        let class = |object: &Value| PriorityClassFacts {
            value: object["value"].as_i64().and_then(|value| i32::try_from(value).ok()).unwrap_or_default(),
            preemption_policy: Some(
                object["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority").to_owned(),
            ),
        };
        let config =
            ("ConfigMap".to_owned(), "koordinator-system".to_owned(), "slo-controller-config".to_owned());
        let config = self.objects.get(&config).and_then(|config| config.get("data"));
        let named = |object: &Value| text(object, "/metadata/name").to_owned();
        Facts {
            profiles: Arc::new(Profiles::new(&profiles)),
            namespaces: Arc::new(namespaces.iter().map(|object| (named(object), labels(object))).collect()),
            priority_classes: Arc::new(classes.iter().map(|object| (named(object), class(object))).collect()),
            quota_trees: Arc::new(QuotaTrees::new(&quotas, &trees)),
            config: config.map(|data| Arc::new(Texts::deserialize(data).unwrap())),
            ..Facts::new(self.gates.clone(), "koordinator-system")
        }
    }

    /// The answer; none for paths that this test does not know.
    async fn answer(&self, path: &str, request: &Arc<Request>) -> Option<Answer> {
        let facts = Arc::new(self.facts());
        let mut aside = Aside { dice: &mut || 0, step: &mut |_, _| () };
        let gates = QuotaGates::new(&self.gates);
        Some(match path {
            paths::MUTATE_POD => pod::mutate(request, &facts, &mut aside),
            paths::VALIDATE_POD => self.pods.clone().handler().answer(request, &facts, &mut aside).await,
            paths::MUTATE_RESERVATION => reservation::mutate(request, &facts, &mut aside),
            paths::MUTATE_QUOTA => handlers::mutate(request, &self.topology, |_, _| ()),
            paths::VALIDATE_QUOTA => {
                let pods = Pods(self.all("Pod"));
                handlers::validate(request, &self.topology, &pods, gates, Timestamp::UNIX_EPOCH)
            }
            paths::VALIDATE_CONFIG_MAP => {
                let nodes = self.all::<Value>("Node");
                let labels: Vec<(&str, Texts)> = nodes
                    .iter()
                    .map(|node| {
                        let labels = node.pointer("/metadata/labels").cloned().unwrap_or(json!({}));
                        (text(node, "/metadata/name"), Texts::deserialize(labels).unwrap())
                    })
                    .collect();
                let nodes: Vec<_> = labels.iter().map(|(name, labels)| NodeLabels { name, labels }).collect();
                config_map::answer(request, &nodes, &Options::default(), &mut |_, _| ())
            }
            paths::MUTATE_NODE_STATUS => node::mutate(request, &facts, &mut aside),
            paths::VALIDATE_NODE => node::validate(request, &facts, &mut aside),
            _ => return None,
        })
    }
}

/// No recording counts pods.
struct NoStore;

impl QuotaStore for NoStore {
    fn cached(&self, _: &QuotaKey) -> Option<QuotaState> {
        None
    }

    async fn fresh(&self, _: &QuotaKey) -> Result<QuotaState, String> {
        Err("no quota".to_owned())
    }

    async fn write(&self, _: &QuotaState, _: &str) -> Result<QuotaState, WriteFault> {
        Err(WriteFault { is_conflict: false, message: "no quota".to_owned() })
    }
}

struct Pods(Vec<Value>);

impl BoundPods for Pods {
    fn labelled(&self, quota: &str) -> Labelled {
        let label =
            |pod: &Value| pod.pointer("/metadata/labels")?.get(QUOTA_NAME)?.as_str().map(str::to_owned);
        let pods = self.0.iter().filter(|pod| label(pod).as_deref() == Some(quota));
        Labelled::new(pods.map(|pod| (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))))
    }

    fn any_in(&self, namespace: &str) -> bool {
        self.0.iter().any(|pod| text(pod, "/metadata/namespace") == namespace)
    }
}

/// What is sent: the object and the object before; none when the step has nothing to act on.
fn objects_of(call: &Call, cluster: &Cluster, previous: &Value) -> Option<(Value, Value)> {
    let object = if call.chain { previous["object"].clone() } else { call.object.clone() };
    if call.live.is_empty() {
        return Some((object, call.old.clone()));
    }
    let [kind, namespace, name] = call.live.split('/').collect::<Vec<_>>()[..] else {
        panic!("{}", call.live)
    };
    let stored = cluster.objects.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()));
    match (stored, call.op.as_str()) {
        (None, "DELETE") => Some((Value::Null, call.old.clone())),
        (None, _) => None,
        (Some(stored), "DELETE") => Some((Value::Null, stored.clone())),
        (Some(stored), _) => {
            let mut merged = stored.clone();
            merge(&mut merged, &object);
            Some((merged, stored.clone()))
        }
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn request(call: &Call, object: &Value, old: &Value) -> Request {
    let subject = if object.is_null() { old } else { object };
    let own = text(subject, "/metadata/namespace");
    let resource = match text(subject, "/kind") {
        "Pod" => "pods",
        "ElasticQuota" => "elasticquotas",
        "Reservation" => "reservations",
        "ConfigMap" => "configmaps",
        "Node" => "nodes",
        other => panic!("{other}"),
    };
    Request {
        uid: "uid-of-request".into(),
        resource: Resource { resource: resource.into(), ..Resource::default() },
        sub_resource: call.sub.clone(),
        name: text(subject, "/metadata/name").into(),
        namespace: if own.is_empty() { call.namespace.clone() } else { own.into() },
        operation: match call.op.as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            other => panic!("{other}"),
        },
        object: object.clone(),
        old_object: old.clone(),
        ..Request::default()
    }
}

/// The answer in the recording's form.
fn shown(answer: Answer, path: &str, object: &Value, is_loose: bool) -> Value {
    let mut seen = Map::new();
    let is_mutating = path.starts_with("/mutate");
    match answer.verdict {
        Verdict::Denied(denial) => {
            seen.insert("allowed".into(), json!(false));
            seen.insert("code".into(), json!(denial.code.to_string()));
            if !is_loose {
                seen.insert("message".into(), json!(settled(&denial.message)));
            }
        }
        Verdict::Allowed | Verdict::Changed(_) => {
            seen.insert("allowed".into(), json!(true));
            if is_mutating && !object.is_null() && !is_loose {
                let after = if let Verdict::Changed(after) = answer.verdict { after } else { object.clone() };
                seen.insert("object".into(), after);
            }
        }
    }
    normal(&Value::Object(seen), "", false).unwrap_or_default()
}

/// The recorded answer, cut down to what is compared.
fn wanted(want: &Value, is_loose: bool) -> Value {
    let mut want = want.as_object().cloned().unwrap_or_default();
    let compared: &[&str] =
        if is_loose { &["allowed", "code"] } else { &["allowed", "code", "message", "object"] };
    want.retain(|key, _| compared.contains(&key.as_str()));
    normal(&Value::Object(want), "", false).unwrap_or_default()
}

/// Drops what upstream takes from maps in no fixed order, as the recorder did.
fn settled(message: &str) -> String {
    let mut message = message.to_owned();
    if let Some(at) = message.find("child pods: ") {
        message.truncate(at);
        message.push_str("child pods: …");
    }
    message = between(&message, "checkSubAndParentGroupQuotaKey failed: ", "'s m", |_| "…".to_owned());
    message = between(&message, "\"exampleNodes\":[", "]", |_| "\"…\"".to_owned());
    for start in ["dimension :[", "dimensions :["] {
        message = between(&message, start, "]", |names| {
            let sorted: BTreeSet<&str> = names.split_whitespace().collect();
            sorted.into_iter().collect::<Vec<_>>().join(" ")
        });
    }
    message
}

/// Rewrites what stands between two texts.
fn between(message: &str, start: &str, end: &str, edit: impl Fn(&str) -> String) -> String {
    let Some((before, rest)) = message.split_once(start) else { return message.to_owned() };
    let Some((inner, after)) = rest.split_once(end) else { return message.to_owned() };
    format!("{before}{start}{}{end}{after}", edit(inner))
}

const QUANTITIES: [&str; 11] = [
    "allocatable",
    "capacity",
    "available",
    "requests",
    "limits",
    "min",
    "max",
    "used",
    "overhead",
    "totalNetworkBandwidth",
    "resources",
];

/// Without nulls, empty maps, times and versions; quantities and JSON in texts by meaning.
fn normal(value: &Value, key: &str, is_quantity: bool) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let ignored = ["creationTimestamp", "resourceVersion", "uid", "managedFields", "generation"];
            let kept = fields.iter().filter(|(key, _)| !ignored.contains(&key.as_str()));
            let kept: Map<_, _> = kept
                .filter_map(|(key, value)| {
                    let is_quantity =
                        QUANTITIES.contains(&key.as_str()) || (is_quantity && !value.is_object());
                    Some((key.clone(), normal(value, key, is_quantity)?))
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let items: Vec<_> =
                items.iter().map(|item| normal(item, key, false).unwrap_or(json!({}))).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::String(text) if is_quantity => {
            let amount = text.parse::<Quantity>().map(|amount| amount.nano().to_string());
            Some(json!(amount.unwrap_or_else(|_| text.clone())))
        }
        Value::String(text) if text.starts_with(['{', '[']) => match serde_json::from_str::<Value>(text) {
            Ok(inner) => {
                let is_list = [SHARED_WEIGHT, GUARANTEED].contains(&key);
                Some(json!(format!("json:{}", normal(&inner, key, is_list).unwrap_or_default())))
            }
            Err(_) => Some(value.clone()),
        },
        other => Some(other.clone()),
    }
}

fn read(path: &Path) -> Recording {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Replays one file: how many answers were compared by path, and those that differ.
async fn replay(recording: &Recording) -> (BTreeMap<String, usize>, Vec<String>) {
    let mut cluster = Cluster::new(recording);
    let (mut compared, mut different) = (BTreeMap::new(), Vec::new());
    let mut previous = Value::Null;
    for (index, step) in recording.steps.iter().enumerate() {
        let Some(call) = &step.call else { continue };
        if call.skip_if && previous["allowed"] != json!(true) && !previous.is_null() {
            continue;
        }
        for change in step.changes.iter().filter_map(|change| change.create.as_ref()) {
            cluster.store(change.clone());
        }
        let sent = objects_of(call, &cluster, &previous);
        previous = step.want.clone();
        let Some((object, old)) = sent else {
            assert_eq!(step.want["skipped"], json!(true), "step {index} ({})", step.note);
            continue;
        };
        let request = Arc::new(request(call, &object, &old));
        if let Some(answer) = cluster.answer(&call.path, &request).await {
            *compared.entry(call.path.clone()).or_default() += 1;
            let (got, want) =
                (shown(answer, &call.path, &object, call.loose), wanted(&step.want, call.loose));
            if got != want {
                different.push(format!("step {index} ({}):\n  want {want}\n  got  {got}", step.note));
            }
        }
        if call.persist && step.want["allowed"] == json!(true) {
            match call.op.as_str() {
                "DELETE" => cluster.remove(&old),
                _ => cluster.store(step.want.get("object").cloned().unwrap_or(object)),
            }
        }
    }
    (compared, different)
}

#[tokio::test]
async fn recorded_answers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    let mut all = BTreeMap::<String, usize>::new();
    let mut different = Vec::new();
    for number in 1..=3 {
        let name = format!("mgr-webhook-{number}.json.gz");
        let (compared, wrong) = replay(&read(&folder.join(&name))).await;
        compared.into_iter().for_each(|(path, count)| *all.entry(path).or_default() += count);
        different.extend(wrong.into_iter().map(|text| format!("{name} {text}")));
    }
    assert!(different.is_empty(), "{} differ\n{}", different.len(), different.join("\n"));
    let want = [
        (paths::MUTATE_NODE_STATUS, 45),
        (paths::MUTATE_POD, 240),
        (paths::MUTATE_RESERVATION, 24),
        (paths::MUTATE_QUOTA, 104),
        (paths::VALIDATE_CONFIG_MAP, 180),
        (paths::VALIDATE_NODE, 45),
        (paths::VALIDATE_POD, 210),
        (paths::VALIDATE_QUOTA, 162),
    ];
    assert_eq!(all, want.map(|(path, count)| (path.to_owned(), count)).into());
}
