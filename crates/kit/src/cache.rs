//! Watch caches: the cluster's objects of one kind, always at hand, with every change told in order.
//!
//! ```no_run
//! # use koord_kit::cache::{CacheBuilder, Delta};
//! # use k8s_openapi::api::core::v1::Node;
//! # async fn example(client: kube::Client, stop: tokio_util::sync::CancellationToken) {
//! let (nodes, worker) = CacheBuilder::of(client, |_key, node: Node| node.spec.unwrap_or_default()).build();
//! let mut deltas = nodes.subscribe(1024);
//! tokio::spawn(worker.run(stop));
//! while let Some(delta) = deltas.next().await {
//!     match delta {
//!         Delta::Added(new) => println!("new {new:?}"),
//!         Delta::Updated { old, new } => println!("{old:?} became {new:?}"),
//!         Delta::Deleted(old) => println!("gone {old:?}"),
//!         Delta::Synced => println!("all {} known", nodes.len()),
//!     }
//! }
//! # }
//! ```
//!
//! A cache lists once and then watches; after a lost connection it resumes where it was, and lists again only when the
//! server no longer remembers that place (410), when the stream proves to be out of order, or when asked to
//! ([`CacheBuilder::relist_every`]). Objects are decoded one by one: a broken one is counted, named in
//! [`Cache::malformed`] and skipped, its last good state kept. A kind that the cluster does not serve is named in
//! [`Cache::check`] and waited for.
//!
//! Why not kube-runtime's watcher: it decodes a page as a whole, so one bad object stops the kind; its store drops
//! objects without saying which; and neither duplicates nor deletions missed while away reach the reader as deltas.
//!
//! Parts: [`store`] judges news (pure), `wire` reads the server's JSON (pure), `reflect` talks to the server,
//! [`pool`] keeps equal values once, [`Index`] finds objects by what they hold.

mod index;
pub mod pool;
mod reflect;
mod split;
pub mod store;
mod wire;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use index::Index;
pub use pool::Pool;
pub use reflect::Reflector;
pub use store::{Delta, ObjectKey, Uid};

use crate::metrics::{KindLabels, KitMetrics};
use store::{Outcome, Store};
use wire::Decoder;

/// Objects per page of a list: bounds the memory of a relist and the server's work per request.
const PAGE_DEFAULT: u32 = 500;

/// How long a kind may be missing before an optional cache goes on without it.
const MISSING_GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// How many broken objects are remembered by name; all are counted.
const MALFORMED_MAX: usize = 100;

/// What to cache and how.
pub struct CacheBuilder<V> {
    client: kube::Client,
    source: Source,
    decode: Decoder<V>,
    options: Options,
    indexes: Vec<index::Keeper<V>>,
    metrics: KitMetrics,
}

/// The server's side of a cache.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    kind: String,
    /// Such as `podgroups.scheduling.sigs.k8s.io/v1alpha1`, or `pods/v1`.
    resource: String,
    url_path: String,
    labels: Option<String>,
    fields: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    page: u32,
    relist_every: Option<Duration>,
    is_optional: bool,
    missing_grace: Duration,
    gather: Option<Duration>,
}

impl<V: Send + Sync + 'static> CacheBuilder<V> {
    /// A cache of all objects of kind `K`, of each of which `project` keeps what is needed.
    pub fn of<K>(
        client: kube::Client,
        project: impl Fn(&ObjectKey, K) -> V + Send + Sync + 'static,
    ) -> CacheBuilder<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        let group = K::group(&());
        let plural = K::plural(&());
        let dot = if group.is_empty() { "" } else { "." };
        let source = Source {
            kind: K::kind(&()).into_owned(),
            resource: format!("{plural}{dot}{group}/{}", K::version(&())),
            url_path: K::url_path(&(), None),
            labels: None,
            fields: None,
        };
        let options = Options {
            page: PAGE_DEFAULT,
            relist_every: None,
            is_optional: false,
            missing_grace: MISSING_GRACE_DEFAULT,
            gather: None,
        };
        let decode = wire::decoder::<K, V>(project);
        CacheBuilder {
            client,
            source,
            decode,
            options,
            indexes: Vec::new(),
            metrics: KitMetrics::unregistered(),
        }
    }

    /// Only the objects of one namespace.
    pub fn namespace<K: Resource<DynamicType = ()>>(mut self, namespace: &str) -> CacheBuilder<V> {
        self.source.url_path = K::url_path(&(), Some(namespace));
        self
    }

    /// Only objects with these labels, as `a=b,c in (d,e)`.
    pub fn labels(mut self, selector: &str) -> CacheBuilder<V> {
        self.source.labels = Some(selector.to_owned());
        self
    }

    /// Only objects with these fields, as `spec.nodeName=n1`.
    pub fn fields(mut self, selector: &str) -> CacheBuilder<V> {
        self.source.fields = Some(selector.to_owned());
        self
    }

    pub fn page_size(mut self, objects: u32) -> CacheBuilder<V> {
        self.options.page = objects.max(1);
        self
    }

    /// Takes a full list now and then even when all seems well. Off by default, as in client-go: only a broken proxy
    /// in between makes it useful.
    pub fn relist_every(mut self, period: Duration) -> CacheBuilder<V> {
        self.options.relist_every = Some(period);
        self
    }

    /// When the cluster does not serve the kind for this long, counts as synced and empty, and keeps looking.
    pub fn optional(mut self, missing_grace: Duration) -> CacheBuilder<V> {
        self.options.is_optional = true;
        self.options.missing_grace = missing_grace;
        self
    }

    /// Lets news wait this long for more to come, so that many are taken in at a time: waking up for each costs more than
    /// taking it in.
    pub fn gather(mut self, time: Duration) -> CacheBuilder<V> {
        self.options.gather = Some(time);
        self
    }

    /// Also finds objects by a text that they hold, such as the node of a pod; objects without it are not found.
    pub fn index(
        mut self,
        key: impl Fn(&V) -> Option<&str> + Send + Sync + 'static,
    ) -> (CacheBuilder<V>, Index<V>) {
        let (index, keeper) = index::index(key);
        self.indexes.push(keeper);
        (self, index)
    }

    pub fn metrics(mut self, metrics: &KitMetrics) -> CacheBuilder<V> {
        self.metrics = metrics.clone();
        self
    }

    /// The cache, still empty, and the worker that fills it once it runs.
    pub fn build(self) -> (Cache<V>, Reflector<V>) {
        let (synced, _) = watch::channel(false);
        let shared = Arc::new(Shared {
            kind: self.source.kind.clone(),
            resource: self.source.resource.clone(),
            contents: RwLock::new(Contents {
                store: Store::default(),
                subscribers: Vec::new(),
                is_synced: false,
            }),
            phase: Mutex::new(Phase::Starting),
            malformed: Mutex::new(BTreeMap::new()),
            synced,
            indexes: self.indexes,
            metrics: self.metrics,
        });
        let reflector = Reflector::new(self.client, self.source, self.decode, self.options, shared.clone());
        (Cache { shared }, reflector)
    }
}

/// Objects of one kind, as the cluster has them. Cheap to clone; reads never wait for the network.
pub struct Cache<V> {
    shared: Arc<Shared<V>>,
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Cache<V> {
        Cache { shared: self.shared.clone() }
    }
}

pub(crate) struct Shared<V> {
    kind: String,
    resource: String,
    /// Written by the worker alone, a few objects at a time; read by everyone.
    contents: RwLock<Contents<V>>,
    phase: Mutex<Phase>,
    /// Why the named objects could not be read.
    malformed: Mutex<BTreeMap<String, String>>,
    synced: watch::Sender<bool>,
    /// Called with every change, in order, while the contents are locked.
    indexes: Vec<index::Keeper<V>>,
    metrics: KitMetrics,
}

struct Contents<V> {
    store: Store<V>,
    subscribers: Vec<mpsc::Sender<Delta<V>>>,
    is_synced: bool,
}

/// What the worker is doing.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Starting,
    Missing { since: Instant },
    Retrying { error: String },
    Watching,
}

impl<V> Cache<V> {
    /// The object's latest known state. The namespace is empty for kinds without one.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.shared.read(|contents| contents.store.get(namespace, name).cloned())
    }

    pub fn len(&self) -> usize {
        self.shared.read(|contents| contents.store.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects at one instant, in the order of their names.
    pub fn snapshot(&self) -> Vec<(ObjectKey, Arc<V>)> {
        let mut all: Vec<_> = self.shared.read(|contents| {
            let entries = contents.store.iter();
            entries
                .map(|(namespace, name, value)| {
                    (ObjectKey { namespace: namespace.clone(), name: name.clone() }, value.clone())
                })
                .collect()
        });
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// The objects of one namespace, in no order.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        self.shared.read(|contents| contents.store.iter_namespace(namespace).cloned().collect())
    }

    /// Every change from now on, after everything that is there now.
    ///
    /// The queue holds `capacity` deltas. A reader that falls behind slows the cache and all of its readers down
    /// rather than losing anything; drop the subscription to be rid of it.
    pub fn subscribe(&self, capacity: usize) -> Deltas<V> {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        let mut contents = self.shared.contents.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut first: VecDeque<Delta<V>> =
            contents.store.iter().map(|(_, _, value)| Delta::Added(value.clone())).collect();
        if contents.is_synced {
            first.push_back(Delta::Synced);
        }
        contents.subscribers.push(sender);
        Deltas { first, receiver }
    }

    /// Whether a full list was taken in, or an optional kind was given up for missing.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until [`Cache::is_synced`].
    pub async fn synced(&self) {
        // The sender lives as long as `self`, so this only ends when it is true.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// For `/readyz`: what the cache is waiting for, if anything.
    pub fn check(&self) -> Result<(), String> {
        if self.is_synced() {
            return Ok(());
        }
        let resource = &self.shared.resource;
        let phase = self.shared.phase.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Err(match &*phase {
            Phase::Missing { since } => format!(
                "{} is not served by this cluster (is its CRD installed?), waiting for {} s",
                resource,
                since.elapsed().as_secs()
            ),
            Phase::Retrying { error } => format!("{resource} cannot be listed: {error}"),
            Phase::Starting | Phase::Watching => format!("{resource} is not listed yet"),
        })
    }

    /// Objects that could not be read, with the reason, at most a hundred.
    pub fn malformed(&self) -> Vec<(String, String)> {
        let malformed = self.shared.malformed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        malformed.iter().map(|(name, reason)| (name.clone(), reason.clone())).collect()
    }
}

/// A reader's queue of changes.
pub struct Deltas<V> {
    first: VecDeque<Delta<V>>,
    receiver: mpsc::Receiver<Delta<V>>,
}

impl<V> Deltas<V> {
    /// The next change; `None` once the cache's worker has ended and all is read.
    pub async fn next(&mut self) -> Option<Delta<V>> {
        match self.first.pop_front() {
            Some(delta) => Some(delta),
            None => self.receiver.recv().await,
        }
    }

    /// A change that is already here, for readers that work in batches.
    pub fn try_next(&mut self) -> Option<Delta<V>> {
        self.first.pop_front().or_else(|| self.receiver.try_recv().ok())
    }
}

/// Deltas and who is to get them, fixed together so that no reader misses or sees one twice.
pub(crate) struct Parcel<V> {
    deltas: Vec<Delta<V>>,
    subscribers: Vec<mpsc::Sender<Delta<V>>>,
}

impl<V> Parcel<V> {
    async fn deliver(self) {
        for delta in self.deltas {
            for subscriber in &self.subscribers {
                // An error means that the reader is gone, which is its right.
                let _ = subscriber.send(delta.clone()).await;
            }
        }
    }
}

impl<V> Shared<V> {
    fn read<T>(&self, look: impl FnOnce(&Contents<V>) -> T) -> T {
        look(&self.contents.read().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Changes the store and packs what changed for the readers of that moment.
    fn change(&self, work: impl FnOnce(&mut Store<V>, &mut Vec<Delta<V>>)) -> Parcel<V> {
        let mut contents = self.contents.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut deltas = Vec::new();
        work(&mut contents.store, &mut deltas);
        for keeper in &self.indexes {
            deltas.iter().for_each(keeper);
        }
        contents.subscribers.retain(|subscriber| !subscriber.is_closed());
        let labels = KindLabels { kind: self.kind.clone() };
        let len = i64::try_from(contents.store.len()).unwrap_or(i64::MAX);
        self.metrics.cache_objects.get_or_create(&labels).set(len);
        Parcel { deltas, subscribers: contents.subscribers.clone() }
    }

    fn change_one(&self, work: impl FnOnce(&mut Store<V>) -> Outcome<V>) -> Parcel<V> {
        self.change(|store, deltas| deltas.extend(work(store).into_deltas()))
    }

    /// Declares the contents complete.
    fn declare_synced(&self) -> Parcel<V> {
        let mut contents = self.contents.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        contents.is_synced = true;
        Parcel { deltas: vec![Delta::Synced], subscribers: contents.subscribers.clone() }
    }

    fn set_phase(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = phase;
    }

    /// Counts an object that cannot be read, and logs it when its fault is new.
    fn note_malformed(&self, name: String, reason: String) {
        let labels = KindLabels { kind: self.kind.clone() };
        self.metrics.cache_malformed.get_or_create(&labels).inc();
        let mut malformed = self.malformed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if malformed.get(&name) == Some(&reason) {
            return;
        }
        tracing::warn!(
            kind = self.kind,
            object = name,
            error = reason,
            "object cannot be read and is skipped"
        );
        if malformed.len() < MALFORMED_MAX || malformed.contains_key(&name) {
            malformed.insert(name, reason);
        }
    }

    fn note_sound(&self, name: &ObjectKey) {
        let mut malformed = self.malformed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !malformed.is_empty() {
            malformed.remove(&name.to_string());
        }
    }
}
