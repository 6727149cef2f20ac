//! The election's contact with the world: the Lease object, the clock, and the work of a leader.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::elector::{Action, Change, Elector, LostReason, Record, Reply};
use super::{LeaderElection, Timing};
use crate::log::chain;
use crate::metrics::{KitMetrics, NameLabels};
use crate::random;

/// The lease to compete for. Make its client by [`crate::client::ClientOptions::for_leader_election`].
#[derive(Clone)]
pub struct LeaseLock {
    pub client: kube::Client,
    pub namespace: String,
    pub name: String,
    pub identity: String,
    pub timing: Timing,
    pub metrics: KitMetrics,
}

impl LeaseLock {
    /// The lease that a checked configuration names.
    pub fn new(
        client: kube::Client,
        config: &LeaderElection,
        timing: Timing,
        metrics: KitMetrics,
    ) -> LeaseLock {
        LeaseLock {
            client,
            namespace: config.resource_namespace.clone(),
            name: config.resource_name.clone(),
            identity: super::identity(),
            timing,
            metrics,
        }
    }
}

/// The right to act as the leader, handed to the leader's work.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: Arc<Term>,
    token: CancellationToken,
}

/// The end of the term on two clocks. The monotonic one may stand still while a machine sleeps, the wall clock may be
/// set; a term must be good by both.
#[derive(Debug)]
struct Term {
    start: Instant,
    start_wall: SystemTime,
    until_nanos: AtomicU64,
    until_wall_nanos: AtomicU64,
}

impl Leadership {
    fn new(stop: &CancellationToken) -> Leadership {
        let term = Term {
            start: Instant::now(),
            start_wall: SystemTime::now(),
            until_nanos: AtomicU64::new(0),
            until_wall_nanos: AtomicU64::new(0),
        };
        Leadership { term: Arc::new(term), token: stop.child_token() }
    }

    /// Whether this process leads at this instant. Stays true while the work ends after a stop, for the lease is kept.
    pub fn holds(&self) -> bool {
        let term = &self.term;
        let wall = nanos(term.start_wall.elapsed().unwrap_or_default());
        nanos(term.start.elapsed()) < term.until_nanos.load(Ordering::Acquire)
            && wall < term.until_wall_nanos.load(Ordering::Acquire)
    }

    /// Cancelled when the work must end.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Extends the term to `left` from now.
    fn extend(&self, left: Duration) {
        let term = &self.term;
        let wall = term.start_wall.elapsed().unwrap_or_default() + left;
        term.until_wall_nanos.store(nanos(wall), Ordering::Release);
        term.until_nanos.store(nanos(term.start.elapsed() + left), Ordering::Release);
    }

    fn end(&self) {
        self.term.until_nanos.store(0, Ordering::Release);
        self.token.cancel();
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How an election ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended<T> {
    /// Asked to stop before ever leading.
    NeverLed,
    /// The work came to its end; the lease was given back.
    Finished(T),
    /// Leadership was lost and the work has ended. A process usually exits now and starts anew as a candidate.
    Lost(LostReason),
}

/// Waits to lead, does `work` while leading, and gives the lease back when the work or the process ends.
///
/// When `stop` is cancelled, the work's token is cancelled and the lease is kept until the work has ended.
pub async fn run<F, W>(lock: &LeaseLock, stop: &CancellationToken, work: F) -> Ended<W::Output>
where
    F: FnOnce(Leadership) -> W,
    W: Future,
{
    let mut candidate = Candidate::new(lock, stop);
    let name = NameLabels { name: lock.name.clone() };
    lock.metrics.leading.get_or_create(&name).set(0);
    tokio::select! {
        () = candidate.until_leading() => {}
        () = stop.cancelled() => {
            // A write may be on its way: if it made us the holder, give it back.
            candidate.release().await;
            return Ended::NeverLed;
        }
    }
    lock.metrics.leading.get_or_create(&name).set(1);
    tracing::info!(lease = candidate.shown, identity = lock.identity, "became leader");
    let leadership = candidate.leadership.clone();
    let ended = {
        let mut work = pin!(work(leadership.clone()));
        tokio::select! {
            output = &mut work => Ended::Finished(output),
            reason = candidate.until_lost() => {
                leadership.end();
                tracing::warn!(lease = candidate.shown, reason = %reason, "stopped leading");
                work.await;
                Ended::Lost(reason)
            }
        }
    };
    leadership.end();
    lock.metrics.leading.get_or_create(&name).set(0);
    if matches!(ended, Ended::Finished(_)) {
        candidate.release().await;
    }
    ended
}

struct Candidate<'l> {
    lock: &'l LeaseLock,
    api: Api<Lease>,
    elector: Elector,
    leadership: Leadership,
    start: Instant,
    /// The object as last read or written, whose other fields are kept.
    lease: Lease,
    shown: String,
    failing: bool,
}

impl Candidate<'_> {
    fn new<'l>(lock: &'l LeaseLock, stop: &CancellationToken) -> Candidate<'l> {
        let name = Some(lock.name.clone());
        let metadata = ObjectMeta { name, namespace: Some(lock.namespace.clone()), ..ObjectMeta::default() };
        Candidate {
            lock,
            api: Api::namespaced(lock.client.clone(), &lock.namespace),
            elector: Elector::new(lock.timing, &lock.identity),
            leadership: Leadership::new(stop),
            start: Instant::now(),
            lease: Lease { metadata, spec: None },
            shown: format!("{}/{}", lock.namespace, lock.name),
            failing: false,
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn until_leading(&mut self) {
        loop {
            match self.step().await {
                Some(Change::Started) => return,
                Some(Change::Leader(holder)) => {
                    tracing::info!(lease = self.shown, leader = holder, "new leader");
                }
                Some(Change::Lost(_)) | None => {}
            }
        }
    }

    async fn until_lost(&mut self) -> LostReason {
        loop {
            if let Some(Change::Lost(reason)) = self.step().await {
                return reason;
            }
        }
    }

    /// One action and its reply.
    async fn step(&mut self) -> Option<Change> {
        if let Some(change) = self.elector.take_change() {
            return Some(change);
        }
        let mut action = Some(self.elector.next(self.now(), Timestamp::now()));
        while let Some(todo) = action {
            if let Some(change) = self.elector.take_change() {
                return Some(change);
            }
            if let Action::Wait(until) = todo {
                tokio::time::sleep_until(self.start + until).await;
                return None;
            }
            let reply = self.perform(todo).await;
            let now = self.now();
            action = self.elector.reply(now, Timestamp::now(), random::unit(), reply);
            if let Some(until) = self.elector.holds_until() {
                self.leadership.extend(until.saturating_sub(now));
            }
        }
        self.elector.take_change()
    }

    async fn perform(&mut self, action: Action) -> Reply {
        // A leader's request must not outlive its term; a candidate's is bounded all the same.
        let limit = match self.elector.holds_until() {
            Some(until) => until.saturating_sub(self.now()).min(self.lock.timing.renew_deadline()),
            None => self.lock.timing.renew_deadline(),
        };
        let answer = match tokio::time::timeout(limit, self.send(action)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.note_failure("no answer in time");
                return Reply::Failed;
            }
        };
        match answer {
            Ok(reply) => {
                self.failing = false;
                reply
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 409 | 404) => Reply::Conflict,
            Err(error) => {
                self.note_failure(&chain(&error));
                Reply::Failed
            }
        }
    }

    fn note_failure(&mut self, error: &str) {
        if !self.failing {
            tracing::warn!(lease = self.shown, error, "leader lease cannot be reached");
        }
        self.failing = true;
    }

    async fn send(&mut self, action: Action) -> Result<Reply, kube::Error> {
        let params = PostParams::default();
        match action {
            Action::Wait(_) => Ok(Reply::Failed),
            Action::Read => match self.api.get_opt(&self.lock.name).await? {
                None => Ok(Reply::NotFound),
                Some(lease) => {
                    let (version, record) = (version_of(&lease), record_of(&lease));
                    self.lease = lease;
                    Ok(Reply::Found { version, record })
                }
            },
            Action::Create(record) => {
                let metadata = ObjectMeta {
                    name: Some(self.lock.name.clone()),
                    namespace: Some(self.lock.namespace.clone()),
                    ..ObjectMeta::default()
                };
                let lease = with_record(Lease { metadata, spec: None }, record);
                self.lease = self.api.create(&params, &lease).await?;
                Ok(Reply::Written { version: version_of(&self.lease) })
            }
            Action::Update { version, record } => {
                let mut lease = with_record(self.lease.clone(), record);
                lease.metadata.resource_version = Some(version);
                lease.metadata.managed_fields = None;
                self.lease = self.api.replace(&self.lock.name, &params, &lease).await?;
                Ok(Reply::Written { version: version_of(&self.lease) })
            }
        }
    }

    /// Gives the lease back if it is ours. Failing to is no harm: it runs out.
    async fn release(&mut self) {
        let limit = self.lock.timing.renew_deadline();
        let attempt = async {
            let found = match self.send(Action::Read).await? {
                Reply::Found { version, record } => Some((version, record)),
                _ => None,
            };
            let Some((version, found)) = found else { return Ok(()) };
            let Some(record) = Elector::release(&self.lock.identity, &found, Timestamp::now()) else {
                return Ok(());
            };
            self.send(Action::Update { version, record }).await.map(|_| ())
        };
        match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(())) => tracing::info!("leader lease given back"),
            Ok(Err(error)) => tracing::warn!(error = chain(&error), "leader lease could not be given back"),
            Err(_) => tracing::warn!("leader lease could not be given back in time"),
        }
    }
}

fn version_of(lease: &Lease) -> String {
    lease.metadata.resource_version.clone().unwrap_or_default()
}

/// The record in a Lease.
pub(super) fn record_of(lease: &Lease) -> Record {
    let Some(spec) = &lease.spec else { return Record::default() };
    Record {
        holder: spec.holder_identity.clone().unwrap_or_default(),
        lease_seconds: spec.lease_duration_seconds.unwrap_or(0),
        acquired: spec.acquire_time.as_ref().map(|time| time.0),
        renewed: spec.renew_time.as_ref().map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or(0),
    }
}

/// The Lease with another record; fields that are not part of it stay.
pub(super) fn with_record(mut lease: Lease, record: Record) -> Lease {
    let spec = lease.spec.take().unwrap_or_default();
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(record.holder).filter(|holder| !holder.is_empty()),
        lease_duration_seconds: Some(record.lease_seconds),
        acquire_time: record.acquired.map(MicroTime),
        renew_time: record.renewed.map(MicroTime),
        lease_transitions: Some(record.transitions),
        ..spec
    });
    lease
}
