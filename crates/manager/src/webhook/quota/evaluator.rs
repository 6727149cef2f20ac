//! Counting pods while many arrive: those of one quota wait for each other and are written together.
//!
//! A pod that finds nobody at work on its quota starts a worker, which takes all that wait, judges them as one [`Batch`],
//! writes once, and goes on until nobody waits. Spec: manager 18.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use koord_api::quantity::ResourceList;
use koord_kit::lru::Lru;
use koord_kit::random;
use tokio::sync::{Semaphore, oneshot};

use super::charge::{Batch, Charge, QuotaState};
use super::info::QuotaKey;
use crate::webhook::denial::Denial;

/// Quotas that are worked on at once.
const WORKERS: usize = 16;
/// How long a pod waits for its verdict.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Writes that are tried again for a small batch.
const RETRIES_MIN: u32 = 3;
/// Quotas remembered as last written, until the watch has caught up.
const WRITTEN_MAX: usize = 100;

/// Where quotas are read and written.
pub trait QuotaStore: Send + Sync + 'static {
    /// As the watch has shown it.
    fn cached(&self, key: &QuotaKey) -> Option<QuotaState>;
    /// As the API server has it now.
    fn fresh(&self, key: &QuotaKey) -> impl Future<Output = Result<QuotaState, String>> + Send;
    /// Sets the usage if the quota is still as given; the quota after that.
    fn write(
        &self,
        quota: &QuotaState,
        child_request: &str,
    ) -> impl Future<Output = Result<QuotaState, WriteFault>> + Send;
}

/// Why a usage was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFault {
    pub is_conflict: bool,
    /// The API server's words.
    pub message: String,
}

/// `--quota-update-*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most retries of a batch, however large.
    pub retries_max: u32,
    /// Wait after a conflict: between half of it and all of it. None when 0.
    pub jitter: Duration,
    /// All waits of a batch together.
    pub jitter_total_max: Duration,
    /// Whether a conflict is followed by a read from the API server.
    pub reads_fresh: bool,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            retries_max: RETRIES_MIN,
            jitter: Duration::ZERO,
            jitter_total_max: Duration::from_secs(1),
            reads_fresh: false,
        }
    }
}

impl RetryPolicy {
    fn start(self) -> u32 {
        self.retries_max.max(RETRIES_MIN)
    }

    /// Retries for a batch in which this many pods change the usage: one more each time the number doubles.
    fn for_batch(self, pods: usize) -> u32 {
        RETRIES_MIN.saturating_add(pods.checked_ilog2().unwrap_or(0)).min(self.start())
    }
}

/// Counts pods against quotas. Cheap to clone.
pub struct Evaluator<S> {
    shared: Arc<Shared<S>>,
}

impl<S> Clone for Evaluator<S> {
    fn clone(&self) -> Evaluator<S> {
        Evaluator { shared: self.shared.clone() }
    }
}

struct Shared<S> {
    store: S,
    policy: RetryPolicy,
    workers: Semaphore,
    /// Pods that wait, by quota. A key is there exactly while a worker serves it.
    waiting: Mutex<HashMap<QuotaKey, Vec<Waiter>>>,
    written: Mutex<Lru<QuotaKey, QuotaState>>,
}

struct Waiter {
    request: ResourceList,
    verdict: oneshot::Sender<Result<(), String>>,
}

impl<S: QuotaStore> Evaluator<S> {
    pub fn new(store: S, policy: RetryPolicy) -> Evaluator<S> {
        let shared = Shared {
            store,
            policy,
            workers: Semaphore::new(WORKERS),
            waiting: Mutex::default(),
            written: Mutex::new(Lru::new(WRITTEN_MAX)),
        };
        Evaluator { shared: Arc::new(shared) }
    }

    /// Counts a pod against a quota and waits until its share is written down.
    pub async fn charge(&self, key: &QuotaKey, request: ResourceList) -> Result<(), Denial> {
        let (verdict, answer) = oneshot::channel();
        self.shared.clone().wait_for(key, Waiter { request, verdict });
        match tokio::time::timeout(TIMEOUT, answer).await {
            Ok(Ok(verdict)) => verdict.map_err(Denial::bad_request),
            Ok(Err(_)) | Err(_) => {
                let text = "Internal error occurred: elastic quota evaluation timed out";
                Err(Denial::bad_request(text))
            }
        }
    }

    /// Whether the pod would be let through now; nothing is written.
    pub fn try_charge(&self, key: &QuotaKey, request: ResourceList) -> Result<(), Denial> {
        let quota = self.shared.read(key).map_err(Denial::bad_request)?;
        let mut batch = Batch::new([request]);
        batch.judge(&quota);
        batch.close(&Ok(()));
        batch.verdicts().try_for_each(|verdict| verdict.map_err(Denial::bad_request))
    }
}

impl<S: QuotaStore> Shared<S> {
    fn wait_for(self: Arc<Shared<S>>, key: &QuotaKey, waiter: Waiter) {
        let mut waiting = lock(&self.waiting);
        if let Some(line) = waiting.get_mut(key) {
            line.push(waiter);
            return;
        }
        waiting.insert(key.clone(), vec![waiter]);
        drop(waiting);
        tokio::spawn(self.serve(key.clone()));
    }

    /// Serves one quota until nobody waits for it.
    async fn serve(self: Arc<Shared<S>>, key: QuotaKey) {
        loop {
            // The semaphore is never closed.
            let Ok(_permit) = self.workers.acquire().await else { return };
            let line = {
                let mut waiting = lock(&self.waiting);
                match waiting.get_mut(&key).map(std::mem::take) {
                    Some(line) if !line.is_empty() => line,
                    _ => {
                        waiting.remove(&key);
                        return;
                    }
                }
            };
            let (requests, verdicts): (Vec<_>, Vec<_>) =
                line.into_iter().map(|waiter| (waiter.request, waiter.verdict)).unzip();
            let mut batch = Batch::new(requests);
            self.settle(&key, &mut batch).await;
            for (sender, verdict) in verdicts.into_iter().zip(batch.verdicts()) {
                // One that no longer waits has timed out.
                let _ = sender.send(verdict);
            }
        }
    }

    /// Judges and writes until the batch is settled.
    async fn settle(&self, key: &QuotaKey, batch: &mut Batch) {
        let (mut retries, mut waited) = (self.policy.start(), Duration::ZERO);
        let mut last_fault: Option<String> = None;
        loop {
            let quota = match self.read(key) {
                Ok(quota) => quota,
                Err(text) => return batch.close(&Err(last_fault.unwrap_or(text))),
            };
            let Some(Charge { child_request, pods }) = batch.judge(&quota) else { return };
            if let Some(pods) = pods {
                retries = retries.min(self.policy.for_batch(pods));
            }
            let may_wait = retries > 0 && waited + self.policy.jitter <= self.policy.jitter_total_max;
            let jitter = if may_wait { self.policy.jitter } else { Duration::ZERO };
            waited += jitter;
            match self.write(&quota, &child_request, jitter).await {
                Ok(()) => return batch.close(&Ok(())),
                Err(text) if retries == 0 => return batch.close(&Err(text)),
                Err(text) => last_fault = Some(text),
            }
            retries -= 1;
        }
    }

    /// What was written last counts until the watch shows it.
    fn read(&self, key: &QuotaKey) -> Result<QuotaState, String> {
        let Some(cached) = self.store.cached(key) else {
            return Err(format!("elasticquotas.scheduling.sigs.k8s.io \"{}\" not found", key.name));
        };
        let mut written = lock(&self.written);
        match written.get_mut(key) {
            Some(newer) if cached.is_older_than(newer) => Ok(newer.clone()),
            Some(_) => {
                written.remove(key);
                Ok(cached)
            }
            None => Ok(cached),
        }
    }

    async fn write(&self, quota: &QuotaState, child_request: &str, jitter: Duration) -> Result<(), String> {
        let fault = match self.store.write(quota, child_request).await {
            Ok(after) => {
                lock(&self.written).insert(&quota.key, after);
                return Ok(());
            }
            Err(fault) => fault,
        };
        if fault.is_conflict {
            // Before the read, so that what is read is as new as can be.
            if !jitter.is_zero() {
                tokio::time::sleep(random::jitter(jitter / 2, 1.0)).await;
            }
            if self.policy.reads_fresh
                && let Ok(fresh) = self.store.fresh(&quota.key).await
            {
                lock(&self.written).insert(&quota.key, fresh);
            }
        }
        Err(fault.message)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
