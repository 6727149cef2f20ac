use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::super::sketch::amounts;
use super::*;

/// An API server with one quota, whose next writes can be made to fail, and a watch that can lag.
#[derive(Clone, Default)]
struct Server(Arc<Inner>);

#[derive(Default)]
struct Inner {
    stored: Mutex<Option<QuotaState>>,
    /// What the watch shows when it lags.
    shown: Mutex<Option<QuotaState>>,
    version: AtomicU64,
    writes: AtomicUsize,
    faults: Mutex<VecDeque<WriteFault>>,
    fails_always: Mutex<Option<WriteFault>>,
    is_stuck: std::sync::atomic::AtomicBool,
}

fn key() -> QuotaKey {
    QuotaKey { namespace: "qns".into(), name: "q".into() }
}

fn conflict() -> WriteFault {
    WriteFault { is_conflict: true, message: "the object has been modified".into() }
}

impl Server {
    fn with(max: &str) -> Server {
        let server = Server::default();
        let state = QuotaState {
            key: key(),
            resource_version: "0".into(),
            max: amounts(max),
            ..QuotaState::default()
        };
        *lock(&server.0.stored) = Some(state);
        server
    }

    fn writes(&self) -> usize {
        self.0.writes.load(Ordering::Relaxed)
    }

    fn usage(&self) -> String {
        lock(&self.0.stored).as_ref().map(|state| state.child_request.clone()).unwrap_or_default()
    }
}

impl QuotaStore for Server {
    fn cached(&self, _: &QuotaKey) -> Option<QuotaState> {
        lock(&self.0.shown).clone().or_else(|| lock(&self.0.stored).clone())
    }

    async fn fresh(&self, _: &QuotaKey) -> Result<QuotaState, String> {
        lock(&self.0.stored).clone().ok_or_else(|| "gone".to_owned())
    }

    async fn write(&self, quota: &QuotaState, child_request: &str) -> Result<QuotaState, WriteFault> {
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        if self.0.is_stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let fault = lock(&self.0.fails_always).clone().or_else(|| lock(&self.0.faults).pop_front());
        if let Some(fault) = fault {
            return Err(fault);
        }
        let mut stored = lock(&self.0.stored);
        match &mut *stored {
            Some(state) if state.resource_version == quota.resource_version => {
                let version = self.0.version.fetch_add(1, Ordering::Relaxed) + 1;
                state.resource_version = version.to_string();
                state.child_request = child_request.to_owned();
                Ok(state.clone())
            }
            _ => Err(conflict()),
        }
    }
}

async fn charge(evaluator: &Evaluator<Server>, request: &str) -> String {
    evaluator.charge(&key(), amounts(request)).await.err().map_or(String::new(), |denial| denial.message)
}

#[tokio::test(start_paused = true)]
async fn writes_that_fail_are_tried_again() {
    for (name, fault) in [
        ("manager#18.X12 conflicts", conflict()),
        ("manager#18.X12 forbidden", WriteFault { is_conflict: false, message: "forbidden".into() }),
    ] {
        let server = Server::with("cpu=10");
        *lock(&server.0.fails_always) = Some(fault.clone());
        let answer = charge(&Evaluator::new(server.clone(), RetryPolicy::default()), "cpu=1").await;
        assert_eq!((answer, server.writes()), (fault.message, 4), "{name}");
        assert_eq!(server.usage(), "", "{name}");
    }
    let server = Server::with("cpu=10");
    lock(&server.0.faults).extend([conflict(), conflict()]);
    let answer = charge(&Evaluator::new(server.clone(), RetryPolicy::default()), "cpu=1").await;
    assert_eq!((answer.as_str(), server.writes()), ("", 3), "manager#18.X12 success after two conflicts");
    assert_eq!(server.usage(), r#"{"cpu":"1"}"#);
}

#[tokio::test(start_paused = true)]
async fn many_pods_at_once() {
    let server = Server::with("cpu=10");
    let evaluator = Evaluator::new(server.clone(), RetryPolicy::default());
    let pods = (0..30).map(|_| {
        let evaluator = evaluator.clone();
        tokio::spawn(async move { charge(&evaluator, "cpu=1").await })
    });
    let answers = futures::future::join_all(pods.collect::<Vec<_>>()).await;
    let answers: Vec<String> = answers.into_iter().map(Result::unwrap).collect();
    let allowed = answers.iter().filter(|answer| answer.is_empty()).count();
    assert_eq!((allowed, answers.len()), (10, 30), "manager#18.X13");
    assert_eq!(server.usage(), r#"{"cpu":"10"}"#, "manager#18.X13");
    assert!(server.writes() <= 2, "those that wait are written together: {}", server.writes());
    let refusal = "exceeded quota: qns/q, requested: cpu=1, used: cpu=10, limited: cpu=10";
    assert!(answers.iter().all(|answer| answer.is_empty() || answer == refusal));
    assert!(lock(&evaluator.shared.waiting).is_empty(), "no worker is left");
}

#[tokio::test(start_paused = true)]
async fn what_was_just_written_beats_an_older_watch() {
    let server = Server::with("cpu=10");
    *lock(&server.0.shown) = lock(&server.0.stored).clone();
    let evaluator = Evaluator::new(server.clone(), RetryPolicy::default());
    for _ in 0..3 {
        assert_eq!(charge(&evaluator, "cpu=3").await, "");
    }
    assert_eq!(
        (server.usage().as_str(), server.writes()),
        (r#"{"cpu":"9"}"#, 3),
        "no conflict with ourselves"
    );
    assert!(evaluator.try_charge(&key(), amounts("cpu=2")).is_err(), "also where nothing is written");
    assert_eq!(evaluator.try_charge(&key(), amounts("cpu=1")), Ok(()));
    assert_eq!(server.writes(), 3);
    // The watch catches up with something newer still.
    let mut newer = lock(&server.0.stored).clone().unwrap();
    newer.resource_version = "7".into();
    newer.child_request = String::new();
    *lock(&server.0.shown) = Some(newer);
    assert_eq!(evaluator.try_charge(&key(), amounts("cpu=10")), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_fresh_read_ends_a_row_of_conflicts() {
    let server = Server::with("cpu=10");
    *lock(&server.0.shown) = lock(&server.0.stored).clone();
    if let Some(state) = &mut *lock(&server.0.stored) {
        state.resource_version = "5".into();
    }
    let stale = Evaluator::new(server.clone(), RetryPolicy::default());
    assert_eq!(charge(&stale, "cpu=1").await, conflict().message, "the watch never catches up");
    assert_eq!(server.writes(), 4);
    let jitter = Duration::from_millis(50);
    let policy = RetryPolicy { reads_fresh: true, jitter, ..RetryPolicy::default() };
    let started = tokio::time::Instant::now();
    assert_eq!(charge(&Evaluator::new(server.clone(), policy), "cpu=1").await, "");
    assert_eq!(server.writes(), 6);
    let waited = started.elapsed();
    assert!(waited >= jitter / 2 && waited < jitter + Duration::from_millis(5), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn waits_and_missing_quotas_end() {
    let server = Server::default();
    let evaluator = Evaluator::new(server, RetryPolicy::default());
    let missing = "elasticquotas.scheduling.sigs.k8s.io \"q\" not found";
    assert_eq!(charge(&evaluator, "cpu=1").await, missing);
    let server = Server::with("cpu=10");
    server.0.is_stuck.store(true, Ordering::Relaxed);
    let answer = charge(&Evaluator::new(server, RetryPolicy::default()), "cpu=1").await;
    assert!(answer.ends_with("elastic quota evaluation timed out"), "{answer}");
}

#[test]
fn retries_grow_with_the_batch() {
    let policy = |retries_max| RetryPolicy { retries_max, ..RetryPolicy::default() };
    for (retries_max, pods, want) in
        [(3, 1, 3), (3, 1000, 3), (10, 0, 3), (10, 1, 3), (10, 2, 4), (10, 7, 5), (10, 1024, 10), (0, 9, 3)]
    {
        assert_eq!(policy(retries_max).for_batch(pods), want, "{retries_max} {pods}");
    }
}
