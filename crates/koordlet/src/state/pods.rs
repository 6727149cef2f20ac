//! The pods of the node, as the kubelet tells them. Spec: koordlet-observe 3.4, parts Sync and Loop.
//!
//! Not the API server's pods: static pods have uids of kubelet's own there, and those name the cgroups.
//! [`PodBook`] judges an answer and keeps little; [`PodSync`] asks at the right times.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1;
use koord_api::annotation::AnnotationError;
use koord_kit::client::limit::TokenBucket;
use koord_kit::events::{EventType, Note, Recorder};
use koord_linux::cgroup::Driver;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kubelet::{Kubelet, KubeletError};
use super::{PodState, State};
use crate::decide::hooks::oom_score;
use crate::decide::snapshot::Pod;
use crate::records::pod_reference;

/// A kubelet that just started tells no pods for a while. So many empty answers in a row are believed.
const EMPTIES_BELIEVED: u32 = 3;
/// Syncs that news of pods may cause: per second over time, and at once.
const NEWS_PER_SECOND: f64 = 5.0;
const NEWS_BURST: f64 = 10.0;
/// Failures in a row after which users are told.
const FAILURES_TOLD: u32 = 6;

/// Why an answer is no list of pods.
#[derive(Debug, thiserror::Error)]
pub enum PodListError {
    /// Upstream's text.
    #[error("parse kubelet pod list failed, err: {0}")]
    Json(serde_json::Error),
}

/// What an answer means.
#[derive(Clone, Debug)]
pub enum Told {
    Pods(Arc<[Arc<PodState>]>),
    /// No pods, which is not believed yet.
    Nothing,
}

/// The hash and the length of a text. The hash has a secret, so nobody can make two that collide.
type Mark = (u64, usize);

/// Remembers what each pod's JSON meant, so that only pods that changed are read.
#[derive(Debug)]
pub struct PodBook {
    driver: Driver,
    /// By the mark of the JSON.
    known: HashMap<Mark, Arc<PodState>>,
    hasher: RandomState,
    /// The last answer, and what it meant.
    last: Option<(Mark, Arc<[Arc<PodState>]>)>,
    /// Answers without pods in a row.
    empties: u32,
    /// What cannot be read of pods, by uid.
    faults: HashMap<Arc<str>, Vec<String>>,
    /// Pods that have other such faults than before.
    faulty: Vec<Arc<PodState>>,
}

#[derive(Deserialize)]
struct PodList<'b> {
    #[serde(borrow, default)]
    items: Option<Vec<&'b RawValue>>,
}

impl PodBook {
    pub fn new(driver: Driver) -> PodBook {
        PodBook {
            driver,
            known: HashMap::new(),
            hasher: RandomState::new(),
            last: None,
            empties: 0,
            faults: HashMap::new(),
            faulty: Vec::new(),
        }
    }

    /// Reads an answer of `/pods/`. A pod that cannot be read is left out, with a word.
    pub fn read(&mut self, body: &[u8]) -> Result<Told, PodListError> {
        let mark = (self.hasher.hash_one(body), body.len());
        if let Some((_, pods)) = self.last.as_ref().filter(|(last, pods)| *last == mark && !pods.is_empty()) {
            self.empties = 0;
            return Ok(Told::Pods(pods.clone()));
        }
        let list: PodList<'_> = serde_json::from_slice(body).map_err(PodListError::Json)?;
        let items = list.items.unwrap_or_default();
        if items.is_empty() {
            self.empties = self.empties.saturating_add(1);
            // Differs: upstream never believes that the last pod has left.
            if self.empties < EMPTIES_BELIEVED {
                return Ok(Told::Nothing);
            }
        } else {
            self.empties = 0;
        }
        let mut known = HashMap::with_capacity(items.len());
        let mut pods = Vec::with_capacity(items.len());
        for item in items {
            let json = item.get();
            let own = (self.hasher.hash_one(json), json.len());
            let pod = match self.known.get(&own) {
                Some(pod) => pod.clone(),
                None => match serde_json::from_str::<v1::Pod>(json) {
                    Ok(object) => {
                        let pod = self.shared(PodState::read(&object, self.driver));
                        self.judge(&pod);
                        pod
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a pod of the kubelet cannot be read and is left out");
                        continue;
                    }
                },
            };
            known.insert(own, pod.clone());
            pods.push(pod);
        }
        self.known = known;
        pods.sort_by(|a, b| a.uid().cmp(b.uid()));
        pods.dedup_by(|a, b| a.uid() == b.uid());
        let is_there = |uid: &Arc<str>| pods.binary_search_by(|pod| pod.uid().cmp(uid)).is_ok();
        self.faults.retain(|uid, _| is_there(uid));
        let pods: Arc<[Arc<PodState>]> = pods.into();
        self.last = Some((mark, pods.clone()));
        Ok(Told::Pods(pods))
    }

    /// Takes note of annotations that cannot be read, unless that is known.
    fn judge(&mut self, pod: &Arc<PodState>) {
        let scores = oom_score::faults(&pod.pod);
        let faults: Vec<String> = faults(&pod.pod).map(ToString::to_string).chain(scores).collect();
        if faults.is_empty() {
            self.faults.remove(pod.uid());
        } else if self.faults.get(pod.uid()) != Some(&faults) {
            self.faults.insert(pod.uid().clone(), faults);
            self.faulty.push(pod.clone());
        }
    }

    /// Pods with annotations that cannot be read, and why; each once, and again when something else is wrong.
    fn take_faulty(&mut self) -> Vec<(Arc<PodState>, String)> {
        let faulty = std::mem::take(&mut self.faulty);
        let told =
            |pod: Arc<PodState>| self.faults.get(pod.uid()).map(|faults| (pod.clone(), faults.join("; ")));
        faulty.into_iter().filter_map(told).collect()
    }

    /// The same pod as before where only things changed that nobody looks at.
    fn shared(&self, pod: PodState) -> Arc<PodState> {
        let before = self.known.values().find(|known| ***known == pod);
        before.cloned().unwrap_or_else(|| Arc::new(pod))
    }
}

/// What cannot be read of a pod's annotations.
fn faults(pod: &Pod) -> impl Iterator<Item = &AnnotationError> {
    let all = [
        pod.resource_status.as_ref().err(),
        pod.extended_spec.as_ref().err(),
        pod.cpu_burst.as_ref().err(),
        pod.memory_qos.as_ref().err(),
        pod.cpu_qos.as_ref().err(),
        pod.blkio_qos.as_ref().err(),
        pod.resctrl.as_ref().err(),
        pod.network_qos.as_ref().err(),
        pod.oom_score.as_ref().err(),
        pod.oom_score_spec.as_ref().err(),
        pod.devices.as_ref().err(),
    ];
    all.into_iter().flatten()
}

/// Keeps the pods of the state up to date.
pub struct PodSync {
    pub state: State,
    pub kubelet: Kubelet,
    pub book: PodBook,
    /// `kubelet-sync-interval`
    pub interval: Duration,
    /// Told when a pod's cgroup appeared; one wish at a time is remembered.
    pub news: Arc<Notify>,
    /// Tells users when the kubelet does not answer for long, and of annotations that cannot be read.
    pub recorder: Option<Recorder>,
}

impl PodSync {
    /// Asks once the Node is known, then in turn, and at once when a pod appears.
    pub async fn run(mut self, stop: CancellationToken) {
        let started = Instant::now();
        let mut limit = TokenBucket::new(NEWS_PER_SECOND, NEWS_BURST, Duration::ZERO);
        let mut failures = 0_u32;
        tokio::select! {
            () = stop.cancelled() => return,
            _ = self.state.wait_for(|snapshot| snapshot.node.is_some()) => {}
        }
        loop {
            let result = tokio::select! {
                () = stop.cancelled() => return,
                result = self.sync() => result,
            };
            match result {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    self.tell(&error, failures);
                }
            }
            let timer = tokio::time::sleep(self.interval);
            tokio::pin!(timer);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = &mut timer => break,
                    () = self.news.notified() => {
                        if limit.try_take(started.elapsed()) {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// One question and what follows.
    pub async fn sync(&mut self) -> Result<(), SyncError> {
        let body = self.kubelet.pods().await?;
        let Told::Pods(pods) = self.book.read(&body)? else {
            tracing::debug!("the kubelet tells no pods, those known are kept");
            return Ok(());
        };
        self.state.update(|snapshot| {
            snapshot.pods = pods;
            snapshot.synced.pods = true;
            snapshot.editions.pods += 1;
        });
        for (state, faults) in self.book.take_faulty() {
            self.tell_faults(&state.pod, &faults);
        }
        Ok(())
    }

    fn tell_faults(&self, pod: &Pod, faults: &str) {
        tracing::warn!(
            pod = pod.name,
            namespace = pod.namespace,
            faults,
            "annotations of a pod cannot be read"
        );
        if let Some(recorder) = &self.recorder {
            recorder.event(Note {
                regarding: pod_reference(&pod.namespace, &pod.name, &pod.id.uid),
                related: None,
                kind: EventType::Warning,
                reason: "MalformedAnnotation".to_owned(),
                action: "SyncPods".to_owned(),
                text: format!("koordlet cannot read {faults}"),
            });
        }
    }

    fn tell(&self, error: &SyncError, failures: u32) {
        let error = koord_kit::log::chain(error);
        if failures != 1 && failures != FAILURES_TOLD {
            tracing::debug!(error, failures, "pods were not heard of");
            return;
        }
        tracing::warn!(error, failures, "pods were not heard of, those known are kept");
        let snapshot = self.state.load();
        let (Some(recorder), Some(node)) = (&self.recorder, &snapshot.node) else { return };
        if failures == FAILURES_TOLD {
            recorder.event(Note {
                regarding: node.reference(),
                related: None,
                kind: EventType::Warning,
                reason: "KubeletUnreachable".to_owned(),
                action: "SyncPods".to_owned(),
                text: format!("koordlet did not hear of the node's pods {failures} times in a row: {error}"),
            });
        }
    }
}

/// Why pods were not heard of.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    #[error(transparent)]
    List(#[from] PodListError),
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use serde_json::{Value, json};

    use koord_kit::events::{Flavour, recorder};
    use koord_kit::metrics::{KitMetrics, Metrics};

    use super::*;
    use crate::fake::FakeApi;
    use crate::overheard::overheard;
    use crate::state::Snapshot;
    use crate::state::fake_kubelet::{FakeKubelet, TOKEN};
    use crate::state::kubelet::KubeletOptions;

    fn pod(uid: &str, phase: &str) -> Value {
        json!({ "metadata": { "name": uid, "namespace": "shop", "uid": uid }, "spec": { "containers": [] },
                "status": { "phase": phase, "qosClass": "Burstable" } })
    }

    fn read(book: &mut PodBook, pods: &[Value]) -> Option<Arc<[Arc<PodState>]>> {
        match book.read(json!({ "kind": "PodList", "items": pods }).to_string().as_bytes()).unwrap() {
            Told::Pods(pods) => Some(pods),
            Told::Nothing => None,
        }
    }

    fn uids(pods: &[Arc<PodState>]) -> Vec<&str> {
        pods.iter().map(|pod| pod.uid().as_ref()).collect()
    }

    #[test]
    fn pods_stand_in_order_and_keep_their_identity() {
        let mut book = PodBook::new(Driver::Systemd);
        let first = read(&mut book, &[pod("b", "Running"), pod("a-1", "Pending")]).unwrap();
        assert_eq!(uids(&first), ["a-1", "b"]);
        let dir = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_1.slice";
        assert_eq!(first[0].dir.as_str(), dir);
        let second = read(&mut book, &[pod("a-1", "Running"), pod("b", "Running")]).unwrap();
        assert!(Arc::ptr_eq(&first[1], &second[1]), "what did not change is not read again");
        assert_ne!(first[0], second[0]);
        let mut touched = pod("b", "Running");
        touched["metadata"]["resourceVersion"] = json!("7");
        let third = read(&mut book, &[touched, pod("c", "Failed")]).unwrap();
        assert_eq!(uids(&third), ["b", "c"]);
        assert!(Arc::ptr_eq(&third[0], &second[1]), "nobody looks at the version");
        assert!(third[1].is_finished && book.known.len() == 2);
    }

    #[test]
    fn annotations_that_cannot_be_read_are_told_once() {
        let mut book = PodBook::new(Driver::Systemd);
        let with = |texts: &[(&str, &str)], version: &str| {
            let mut pod = pod("a", "Running");
            pod["metadata"]["annotations"] =
                texts.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
            pod["metadata"]["labels"] = json!({ "version": version });
            pod
        };
        let (network, burst) = ("koordinator.sh/networkQOS", "koordinator.sh/cpuBurst");
        let scores = "koordinator.sh/oom-score-adj-spec";
        for (what, texts, is_told) in [
            ("good", &[(network, r#"{"egressLimit":"1M"}"#)][..], false),
            ("broken", &[(network, "{")], true),
            ("still broken", &[(network, "{")], false),
            ("another one too", &[(network, "{"), (burst, "{")], true),
            ("mended", &[], false),
            ("broken again", &[(network, "{")], true),
            ("out of range, and well", &[(network, "{"), (scores, r#"{"a":1001,"b":5}"#)], true),
        ] {
            read(&mut book, &[with(texts, what)]).unwrap();
            let told = book.take_faulty();
            assert_eq!(told.len(), usize::from(is_told), "{what}");
            assert!(told.iter().all(|(_, text)| text.contains(network)), "{what}: {told:?}");
        }
        read(&mut book, &[pod("b", "Running")]).unwrap();
        assert!(book.faults.is_empty(), "forgotten with the pod");
    }

    #[test]
    fn an_empty_answer_is_believed_the_third_time() {
        let mut book = PodBook::new(Driver::Cgroupfs);
        assert!(read(&mut book, &[pod("a", "Running")]).is_some());
        assert!(read(&mut book, &[]).is_none() && read(&mut book, &[]).is_none());
        assert!(read(&mut book, &[pod("a", "Running")]).is_some());
        assert!(read(&mut book, &[]).is_none() && read(&mut book, &[]).is_none());
        assert_eq!(read(&mut book, &[]).unwrap().len(), 0);
    }

    #[test]
    fn a_broken_pod_costs_only_itself() {
        let mut book = PodBook::new(Driver::Systemd);
        let broken = json!({ "metadata": 7 });
        assert_eq!(uids(&read(&mut book, &[broken, pod("a", "Running")]).unwrap()), ["a"]);
        let error = book.read(b"{").unwrap_err().to_string();
        assert!(error.starts_with("parse kubelet pod list failed, err: "), "{error}");
        assert!(matches!(book.read(br#"{"items":null}"#), Ok(Told::Nothing)));
    }

    /// Waits until the state is as wanted; the machine may be busy.
    async fn until(state: &State, is_wanted: impl Fn(&Snapshot) -> bool) {
        tokio::time::timeout(Duration::from_secs(120), state.wait_for(is_wanted)).await.unwrap();
    }

    #[tokio::test]
    async fn pods_are_asked_for_in_turn() {
        let fake = FakeKubelet::start(false).await;
        fake.tell(Ok(json!([pod("a", "Running")])));
        let (kubelet, state, calls) = fake.client(TOKEN, KubeletOptions::default());
        let sync = PodSync {
            state: state.clone(),
            kubelet,
            book: PodBook::new(Driver::Systemd),
            interval: Duration::from_millis(20),
            news: Arc::new(Notify::new()),
            recorder: None,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(sync.run(stop.clone()));
        until(&state, |snapshot| snapshot.synced.pods && snapshot.pods.len() == 1).await;
        until(&state, |snapshot| snapshot.editions.pods > 2).await;
        // The kubelet is away: what is known stays.
        fake.tell(Err(StatusCode::SERVICE_UNAVAILABLE));
        let refused = || calls.lock().unwrap().iter().filter(|call| call.code == 503).count();
        while refused() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(uids(&state.load().pods), ["a"]);
        fake.tell(Ok(json!([pod("a", "Running"), pod("b", "Pending")])));
        until(&state, |snapshot| snapshot.pods.len() == 2).await;
        stop.cancel();
        task.await.unwrap();
    }

    /// koordlet-observe 14 (20).
    #[tokio::test]
    async fn a_kubelet_that_stays_away_is_an_event_on_the_node() {
        let fake = FakeKubelet::start(false).await;
        fake.tell(Err(StatusCode::SERVICE_UNAVAILABLE));
        let (kubelet, state, _) = fake.client(TOKEN, KubeletOptions::default());
        let api = FakeApi::default();
        let kit = KitMetrics::new(&Metrics::new());
        let client = api.client(|seen| (201, seen.body.clone()));
        let (recorder, events) = recorder(client, "koordlet", Flavour::Core, &kit);
        let events = tokio::spawn(events.run(CancellationToken::new()));
        let mut sync = PodSync {
            state,
            kubelet,
            book: PodBook::new(Driver::Systemd),
            interval: Duration::from_secs(3600),
            news: Arc::new(Notify::new()),
            recorder: Some(recorder),
        };
        let (mut told, error) = (Vec::new(), sync.sync().await.unwrap_err());
        for failures in 1..=FAILURES_TOLD + 1 {
            let (_, lines) = overheard(|| sync.tell(&error, failures));
            told.extend(lines.iter().map(|_| failures));
        }
        assert_eq!(told, [1, FAILURES_TOLD], "warnings");
        // Who records events ends when nobody tells any more.
        drop(sync);
        events.await.unwrap();
        let posts = api.seen();
        assert_eq!(posts.len(), 1, "{posts:?}");
        let event = &posts[0].body;
        assert_eq!((&event["reason"], &event["type"]), (&json!("KubeletUnreachable"), &json!("Warning")));
        assert_eq!(event["involvedObject"]["kind"], "Node");
        assert_eq!(event["involvedObject"]["name"], "n1");
        let text = event["message"].as_str().unwrap();
        assert!(
            text.starts_with("koordlet did not hear of the node's pods 6 times in a row: request "),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_new_pod_is_asked_for_at_once() {
        let fake = FakeKubelet::start(false).await;
        fake.tell(Ok(json!([pod("a", "Running")])));
        let (kubelet, state, _) = fake.client(TOKEN, KubeletOptions::default());
        let news = Arc::new(Notify::new());
        let sync = PodSync {
            state: state.clone(),
            kubelet,
            book: PodBook::new(Driver::Systemd),
            interval: Duration::from_secs(3600),
            news: news.clone(),
            recorder: None,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(sync.run(stop.clone()));
        until(&state, |snapshot| snapshot.pods.len() == 1).await;
        fake.tell(Ok(json!([pod("a", "Running"), pod("b", "Pending")])));
        news.notify_one();
        until(&state, |snapshot| snapshot.pods.len() == 2).await;
        stop.cancel();
        task.await.unwrap();
    }
}
