//! All pods of the cluster as a watch tells of them: what waiting for a scheduler looks at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Pods by uid. Those that are gone are remembered until the board is wiped.
pub struct Board {
    pods: Arc<Mutex<HashMap<String, Entry>>>,
    changes: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

/// What is known of a pod.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub object: Value,
    pub is_gone: bool,
    /// Every node that it was promised.
    pub nominated: Vec<String>,
}

impl Board {
    pub fn start(client: kube::Client) -> Board {
        let pods: Arc<Mutex<HashMap<String, Entry>>> = Arc::default();
        let (sender, changes) = watch::channel(0);
        let written = pods.clone();
        let task = tokio::spawn(async move {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
            let api: Api<DynamicObject> = Api::all_with(client, &kind);
            let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                // A broken watch begins again by itself.
                let Ok(event) = event else { continue };
                note(&mut written.lock().unwrap_or_else(PoisonError::into_inner), event);
                sender.send_modify(|version| *version += 1);
            }
        });
        Board { pods, changes, task }
    }

    pub fn get(&self, uid: &str) -> Option<Entry> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// Waits until `ready` has an answer.
    pub async fn wait<T>(
        &mut self,
        limit: Duration,
        what: &str,
        mut ready: impl FnMut(&Board) -> Option<T>,
    ) -> Result<T> {
        let end = tokio::time::Instant::now() + limit;
        loop {
            self.changes.mark_unchanged();
            if let Some(answer) = ready(self) {
                return Ok(answer);
            }
            if tokio::time::timeout_at(end, self.changes.changed()).await.is_err() {
                bail!("{what} did not come within {} s", limit.as_secs());
            }
        }
    }

    /// Forgets pods that are gone.
    pub fn wipe(&self) {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, entry| !entry.is_gone);
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn note(pods: &mut HashMap<String, Entry>, event: Event<DynamicObject>) {
    match event {
        Event::Apply(pod) | Event::InitApply(pod) => {
            let (uid, object) = tree(&pod);
            let entry = pods.entry(uid).or_default();
            let nominated = object["status"]["nominatedNodeName"].as_str().unwrap_or_default();
            if !nominated.is_empty() && entry.nominated.last().is_none_or(|last| last != nominated) {
                entry.nominated.push(nominated.to_owned());
            }
            entry.object = object;
        }
        Event::Delete(pod) => {
            let (uid, object) = tree(&pod);
            let entry = pods.entry(uid).or_default();
            entry.object = object;
            entry.is_gone = true;
        }
        Event::Init | Event::InitDone => {}
    }
}

fn tree(pod: &DynamicObject) -> (String, Value) {
    let object = serde_json::to_value(pod).unwrap_or_default();
    (pod.metadata.uid.clone().unwrap_or_default(), object)
}
