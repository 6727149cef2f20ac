//! The API below the wire: what handlers, controllers and simulated nodes all call.
//!
//! `Api` joins store, kinds and patches. In-process callers skip HTTP and TLS and nothing else:
//! decoding, defaults, admission and validation are the same for everyone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission::Webhooks;
use crate::kinds::{Cluster, Kind, Registry, Text};
use crate::status::ApiError;
use crate::store::{Draft, Limits, Query, Selection, Store, Stored, Table, Watch, key};

/// One cluster: its objects and its kinds.
pub struct Api {
    pub(super) store: Store,
    /// Replaced as a whole when a CRD comes or goes.
    kinds: RwLock<Arc<Registry>>,
    /// Held while kinds change, so that two CRDs cannot overwrite each other's work.
    pub(super) kinds_writer: Mutex<()>,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    ids: Ids,
    pub(super) webhooks: Webhooks,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

impl User {
    /// A part of the control plane itself.
    pub fn system(name: &str) -> User {
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        User { name: format!("system:{name}"), groups }
    }
}

/// How strictly unknown and repeated fields are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// What goes with every write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub user: Arc<User>,
    /// Recorded in managed fields as the writer.
    pub manager: String,
    pub dry_run: bool,
    pub validation: FieldValidation,
    /// Server-side apply takes fields from other managers.
    pub force: bool,
}

impl WriteOptions {
    /// For a part of the control plane.
    pub fn by(component: &str) -> WriteOptions {
        let user = Arc::new(User::system(component));
        WriteOptions { user, manager: component.to_owned(), ..WriteOptions::default() }
    }
}

/// What a request gives back: an object at rest, or a tree made for this answer.
#[derive(Clone, Debug)]
pub enum Answer {
    Stored(Arc<Stored>),
    Tree(Value),
}

/// A write that went through.
#[derive(Clone, Debug)]
pub struct Written {
    pub answer: Answer,
    pub created: bool,
    pub warnings: Vec<String>,
}

impl Written {
    /// The object as a tree, in the version at rest.
    pub fn value(&self) -> Value {
        match &self.answer {
            Answer::Stored(stored) => stored.value(),
            Answer::Tree(tree) => tree.clone(),
        }
    }
}

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but status.
    Main,
    Status,
    /// As Main, through the scale.
    Scale,
    EphemeralContainers,
    Resize,
    Finalize,
}

impl Part {
    pub fn subresource(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Scale => "scale",
            Part::EphemeralContainers => "ephemeralcontainers",
            Part::Resize => "resize",
            Part::Finalize => "finalize",
        }
    }
}

impl Api {
    /// An empty cluster with the built-in kinds and the namespaces every cluster has.
    pub fn new(limits: Limits) -> Arc<Api> {
        Api::with_clock(limits, Box::new(Timestamp::now))
    }

    /// As `new`, with time from elsewhere.
    pub fn with_clock(limits: Limits, clock: Box<dyn Fn() -> Timestamp + Send + Sync>) -> Arc<Api> {
        let api = Arc::new(Api {
            store: Store::new(limits),
            kinds: RwLock::new(Arc::new(Registry::builtin())),
            kinds_writer: Mutex::new(()),
            clock,
            ids: Ids::new(),
            webhooks: Webhooks::default(),
        });
        api.make_first_objects();
        api
    }

    pub fn registry(&self) -> Arc<Registry> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_registry(&self, registry: Registry) {
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
    }

    /// The best version of a resource, for callers that know it exists.
    pub fn kind(&self, group: &str, plural: &str) -> Result<Arc<Kind>, ApiError> {
        self.registry().find_resource(group, plural).cloned().ok_or_else(ApiError::no_such_path)
    }

    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The latest resourceVersion of the cluster.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    pub(super) fn ids(&self) -> &Ids {
        &self.ids
    }

    pub fn table(&self, kind: &Kind) -> Arc<Table> {
        self.store.table(&kind.storage_group, &kind.plural)
    }

    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Stored>, ApiError> {
        self.table(kind).get(&key(namespace, name)).ok_or_else(|| kind.not_found(name))
    }

    /// Everything selected, now.
    pub fn list(&self, kind: &Kind, selection: &Selection) -> Vec<Arc<Stored>> {
        let query = Query { namespace: selection.namespace.as_deref(), ..Query::default() };
        let page = self.table(kind).page(query, &|object| selection.matches(object));
        page.map(|page| page.items).unwrap_or_default()
    }

    /// Everything there is, and a watch that continues from it without a gap.
    pub fn list_and_watch(&self, kind: &Kind) -> (Vec<Arc<Stored>>, Watch) {
        let (page, watch) = self.table(kind).snapshot(&|_| true);
        (page.items, watch)
    }

    /// The priority classes every cluster has.
    fn make_priority_classes(&self) {
        let Ok(kind) = self.kind("scheduling.k8s.io", "priorityclasses") else { return };
        let table = self.table(&kind);
        let options = WriteOptions::by("kube-apiserver");
        for mut class in crate::kinds::system_priority_classes() {
            self.track(&kind, None, &mut class, Part::Main, &options);
            crate::kinds::meta::set(&mut class, "uid", Some(Value::from(self.ids.uid())));
            let now = crate::kinds::meta::format_time(self.now());
            crate::kinds::meta::set(&mut class, "creationTimestamp", Some(Value::from(now)));
            // One that is there already, from a dump, stays.
            let _ = table.create(Draft::new(&class, Vec::new()));
        }
    }

    /// What every cluster has from the start.
    pub(super) fn make_first_objects(&self) {
        self.make_priority_classes();
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.make_namespace(name);
        }
    }

    /// False when it is there already.
    pub(super) fn make_namespace(&self, name: &str) -> bool {
        let Ok(kind) = self.kind("", "namespaces") else { return false };
        let mut object = json!({
            "kind": "Namespace", "apiVersion": "v1",
            "metadata": {
                "name": name, "uid": self.ids.uid(),
                "creationTimestamp": crate::kinds::meta::format_time(self.now()),
                "labels": {"kubernetes.io/metadata.name": name},
            },
        });
        self.track(&kind, None, &mut object, Part::Main, &WriteOptions::by("kube-apiserver"));
        object["spec"] = json!({"finalizers": ["kubernetes"]});
        object["status"] = json!({"phase": "Active"});
        self.table(&kind).create(draft(&kind, object)).is_ok()
    }
}

/// The object as `kind`'s version shows it.
pub fn load(kind: &Kind, stored: &Stored) -> Value {
    let mut value = stored.value();
    kind.from_storage(&mut value);
    value
}

/// The object as it goes to rest.
pub(super) fn draft(kind: &Kind, object: Value) -> Draft {
    let mut object = object;
    let fields: Vec<(Text, String)> = kind.selectable(&object);
    kind.to_storage(&mut object);
    Draft::new(&object, fields)
}

impl Cluster for Api {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.store.table(group, plural).get(&key(namespace, name)).map(|stored| stored.value())
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        let query = Query { namespace, ..Query::default() };
        let page = self.store.table(group, plural).page(query, &|_| true);
        page.map(|page| page.items.iter().map(|o| o.value()).collect()).unwrap_or_default()
    }

    fn now(&self) -> Timestamp {
        Api::now(self)
    }
}

/// Random numbers for UIDs and generated names: unique, not secret.
pub(super) struct Ids {
    state: AtomicU64,
}

impl Ids {
    fn new() -> Ids {
        use std::hash::{BuildHasher, Hasher};
        // The standard library's hash keys are random per process.
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Ids { state: AtomicU64::new(seed) }
    }

    /// SplitMix64: every value once in 2^64.
    pub(super) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A version 4 UUID.
    pub(super) fn uid(&self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | ((b >> 48) & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }
}
