//! Runs the controllers: follows the tables, hands keys to workers, carries decisions out.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::queue::Queue;
use super::recorder::{EventType, Recorder};
use super::view::Meta;
use super::world::{Key, ObjectId, Resource, Work, World};
use super::{
    Options, budget, daemonset, deployment, eviction, garbage, job, lost, namespace, node, replicaset,
    statefulset, volume,
};
use crate::kinds::{Kind, Registry, meta};
use crate::server::{Answer, Api, DeleteOptions, Part, WriteOptions};
use crate::status::ApiError;
use crate::store::{Stored, key as join_key};

/// How often it is seen whether kinds came or went.
const KINDS_EVERY: Duration = Duration::from_millis(200);
/// Who writes, as managed fields tell.
const MANAGER: &str = "kube-controller-manager";

/// When to look again, if at all without a change.
pub(crate) type Next = Result<Option<Timestamp>, ApiError>;

pub(crate) struct Shell {
    pub(crate) api: Arc<Api>,
    pub(crate) options: Options,
    pub(crate) write: WriteOptions,
    /// Guards the caches; decisions are made under it, writes are not.
    world: Mutex<World>,
    queue: Queue<Key>,
    recorder: Recorder,
    stop: watch::Sender<bool>,
}

/// The two halves of a key.
pub(crate) fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

impl Shell {
    pub(crate) fn new(api: Arc<Api>, options: Options) -> Shell {
        let write = WriteOptions::by(MANAGER);
        let recorder = Recorder::new(write.clone());
        let (world, queue) = (Mutex::new(World::default()), Queue::new());
        Shell { api, options, write, world, queue, recorder, stop: watch::Sender::new(false) }
    }

    pub(crate) fn close(&self) {
        self.queue.close();
        self.stop.send_replace(true);
    }

    /// Looks at the world as it is now.
    pub(crate) fn look<T>(&self, read: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue.add_all(world.pull(&self.api));
        read(&mut world)
    }

    /// Follows the tables of all kinds, those to come included.
    pub(crate) async fn follow(self: Arc<Shell>) {
        let mut stopped = self.stop.subscribe();
        let mut tasks = JoinSet::new();
        let mut followed = HashSet::new();
        let mut known: Option<Arc<Registry>> = None;
        loop {
            let registry = self.api.registry();
            if known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &registry)) {
                known = Some(registry);
                let added = self.look(|world| world.follow(&self.api));
                for kind in added {
                    if followed.insert(Resource::of(&kind)) {
                        tasks.spawn(self.clone().follow_one(kind));
                    }
                }
                self.look(|_| ());
            }
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => break,
                () = tokio::time::sleep(KINDS_EVERY) => {}
            }
        }
        tasks.shutdown().await;
    }

    /// Looks whenever a table changes.
    async fn follow_one(self: Arc<Shell>, kind: Arc<Kind>) {
        let table = self.api.table(&kind);
        loop {
            // Only to be woken: what happened is taken from the world's own watch.
            let Ok(mut watch) = table.watch(self.api.revision()) else { continue };
            loop {
                watch.changed().await;
                self.look(|_| ());
            }
        }
    }

    /// Works until the queue is closed.
    pub(crate) async fn work(self: Arc<Shell>) {
        while let Some(key) = self.queue.next(|| self.api.now()).await {
            let started = Instant::now();
            let result = self.sync(&key).await;
            match &result {
                Ok(Some(at)) => self.queue.add_at(key.clone(), *at),
                Ok(None) => {}
                Err(error) => tracing::debug!(?key, %error, "will be tried again"),
            }
            self.queue.done(&key, result.is_err(), started.elapsed());
            tokio::task::yield_now().await;
        }
    }

    async fn sync(&self, key: &Key) -> Next {
        match key {
            Key::Object(id) => garbage::sync(self, id).await,
            Key::Work(work, key) => match work {
                Work::Deployment => deployment::sync(self, key).await,
                Work::ReplicaSet => replicaset::sync(self, key).await,
                Work::StatefulSet => statefulset::sync(self, key).await,
                Work::DaemonSet => daemonset::sync(self, key).await,
                Work::Job => job::sync(self, key).await,
                Work::Budget => budget::sync(self, key).await,
                Work::Namespace => namespace::sync(self, key).await,
                Work::Node => node::sync(self, key).await,
                Work::Taint => eviction::sync(self, key).await,
                Work::Lost => lost::sync(self, key).await,
                Work::Claim => volume::sync_claim(self, key).await,
                Work::Volume => volume::sync_volume(self, key).await,
            },
        }
    }

    /// Has a controller look at an object.
    pub(crate) fn wake(&self, work: Work, key: &str) {
        self.queue.add(Key::Work(work, key.into()));
    }

    /// Has the garbage collector look at an object.
    pub(crate) fn collect(&self, id: ObjectId) {
        self.queue.add(Key::Object(id));
    }

    /// The object, or None when it or its kind is not there.
    pub(crate) fn get(&self, group: &str, plural: &str, key: &str) -> Option<Arc<Stored>> {
        let (namespace, name) = split(key);
        let kind = self.api.kind(group, plural).ok()?;
        self.api.get(&kind, namespace, name).ok()
    }

    pub(crate) async fn create(
        &self,
        (group, plural): (&str, &str),
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Stored>, ApiError> {
        let kind = self.api.kind(group, plural)?;
        let written = self.api.create(&kind, namespace, object, &self.write).await?;
        match written.answer {
            Answer::Stored(stored) => Ok(stored),
            Answer::Tree(_) => Err(ApiError::internal("a create that left nothing")),
        }
    }

    /// Changes an object while it is the one meant; false when it is gone.
    pub(crate) async fn edit(
        &self,
        (group, plural): (&str, &str),
        key: &str,
        uid: &str,
        part: Part,
        change: &(dyn Fn(&mut Value) + Send + Sync),
    ) -> Result<bool, ApiError> {
        let kind = self.api.kind(group, plural)?;
        let change = |object: &mut Value| {
            if meta::uid(object) != uid {
                return Err(kind.not_found(meta::name(object)));
            }
            change(object);
            Ok(true)
        };
        match self.api.edit(&kind, split(key), part, &self.write, &change).await {
            Ok(_) => Ok(true),
            Err(error) if error.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces the status.
    pub(crate) async fn write_status(
        &self,
        resource: (&str, &str),
        meta: &Meta,
        status: &Value,
    ) -> Result<(), ApiError> {
        let change = |object: &mut Value| object["status"] = status.clone();
        self.edit(resource, &meta.key(), &meta.uid, Part::Status, &change).await.map(|_| ())
    }

    /// Deletes an object while it is the one meant; one that is gone is as good.
    pub(crate) async fn delete(
        &self,
        (group, plural): (&str, &str),
        key: &str,
        uid: &str,
        propagation: Option<&str>,
    ) -> Result<(), ApiError> {
        let kind = self.api.kind(group, plural)?;
        let options = DeleteOptions {
            write: self.write.clone(),
            uid: Some(uid.to_owned()),
            propagation: propagation.map(str::to_owned),
            ..DeleteOptions::default()
        };
        match self.api.delete(&kind, split(key), &options).await {
            Ok(_) => Ok(()),
            // Gone, or another of the same name.
            Err(error) if error.code == 404 || (error.code == 409 && error.message.contains("UID")) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes a pod for its controller, and tells.
    pub(crate) async fn delete_pod(
        &self,
        component: &'static str,
        owner: &ObjectReference,
        (key, uid): (&str, &str),
    ) -> Result<(), ApiError> {
        let name = split(key).1;
        match self.delete(("", "pods"), key, uid, None).await {
            Ok(()) => {
                self.tell(component, owner, "SuccessfulDelete", format!("Deleted pod: {name}")).await;
                Ok(())
            }
            Err(error) => {
                self.warn(component, owner, "FailedDelete", format!("Error deleting: {error}")).await;
                Err(error)
            }
        }
    }

    /// Creates a pod for its controller, and tells.
    pub(crate) async fn create_pod(
        &self,
        component: &'static str,
        owner: &ObjectReference,
        namespace: &str,
        pod: Value,
    ) -> Result<(), ApiError> {
        match self.create(("", "pods"), namespace, pod).await {
            Ok(pod) => {
                let text = format!("Created pod: {}", pod.name());
                self.tell(component, owner, "SuccessfulCreate", text).await;
                Ok(())
            }
            Err(error) => {
                if !is_terminating(&error) {
                    self.warn(component, owner, "FailedCreate", format!("Error creating: {error}")).await;
                }
                Err(error)
            }
        }
    }

    /// Creates `count` pods in batches that double while all goes well: how many, and why it stopped.
    pub(crate) async fn create_pods(
        &self,
        component: &'static str,
        owner: &ObjectReference,
        namespace: &str,
        pods: Vec<Value>,
    ) -> Result<(), ApiError> {
        let mut rest = pods.into_iter();
        let mut batch = 1;
        loop {
            let pods: Vec<Value> = rest.by_ref().take(batch).collect();
            if pods.is_empty() {
                return Ok(());
            }
            let creations = pods.into_iter().map(|pod| self.create_pod(component, owner, namespace, pod));
            let results = futures::future::join_all(creations).await;
            results.into_iter().collect::<Result<(), ApiError>>()?;
            batch = (batch * 2).min(BATCH_MAX);
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn tell(
        &self,
        component: &'static str,
        about: &ObjectReference,
        reason: &str,
        text: String,
    ) {
        let what = (EventType::Normal, reason, text);
        self.recorder.tell(&self.api, component, about, what).await;
    }

    pub(crate) async fn warn(
        &self,
        component: &'static str,
        about: &ObjectReference,
        reason: &str,
        text: String,
    ) {
        let what = (EventType::Warning, reason, text);
        self.recorder.tell(&self.api, component, about, what).await;
    }

    /// The live object behind an id.
    pub(crate) fn find(&self, id: &ObjectId) -> Option<(Arc<Kind>, Arc<Stored>)> {
        let kind = self.api.kind(&id.resource.group, &id.resource.plural).ok()?;
        let (namespace, name) = split(&id.key);
        let stored = self.api.get(&kind, namespace, name).ok()?;
        Some((kind, stored))
    }

    /// Makes a pod this controller's own, or lets it go.
    pub(crate) async fn claim(
        &self,
        resource: (&str, &str),
        change: &super::claim::Change,
        owner: &Value,
    ) -> Result<(), ApiError> {
        let owner_uid = owner["uid"].as_str().unwrap_or_default();
        let edit = |object: &mut Value| super::claim::apply(object, change.adopts, owner);
        tracing::debug!(object = %change.key, owner = owner_uid, adopts = change.adopts, "owner changes");
        self.edit(resource, &change.key, &change.uid, Part::Main, &edit).await.map(|_| ())
    }
}

/// Pods created at once, so that a slow webhook does not see thousands.
const BATCH_MAX: usize = 64;

/// The namespace is on its way out: nothing can be made in it.
pub(crate) fn is_terminating(error: &ApiError) -> bool {
    let details = error.details.as_ref();
    details.is_some_and(|d| d.causes.iter().any(|cause| cause.reason == "NamespaceTerminating"))
}

/// A key of an object with this metadata.
pub(crate) fn key_of(namespace: &str, name: &str) -> String {
    join_key(namespace, name)
}

/// Times as metadata writes them.
pub(crate) fn time(at: Timestamp) -> Value {
    json!(meta::format_time(at))
}
