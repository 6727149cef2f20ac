//! Carrying reports to the API server: at the interval that the object asks for, never faster than a limit of our own.
//!
//! Spec: koordlet-observe 7.2, steps 1 and 11.

use std::time::Duration;

use koord_api::crd::node_metric::{NodeMetric, NodeMetricStatus};
use koord_kit::client::limit::TokenBucket;
use kube::api::{Api, PostParams};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Report;
use crate::state::{MetricPace, Snapshot, State};

/// Attempts of one report when others change the object meanwhile, and the wait before the second.
const ATTEMPTS_MAX: u32 = 4;
const CONFLICT_WAIT: Duration = Duration::from_millis(10);
const CONFLICT_FACTOR: u32 = 5;

/// Nobody waits longer for the next report; intervals without a bound end behind the end of the clock.
const INTERVAL_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// A request for a report, answered where the series store lives.
#[derive(Debug)]
pub struct Ask {
    pub reply: oneshot::Sender<Report>,
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Written,
    /// The object is not there, or was not seen yet.
    NoObject,
    Failed(String),
}

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("updating status is limited qps={qps} burst={burst}")]
    Limited { qps: f64, burst: f64 },
    #[error("NodeMetric {name} was changed by others {} times in a row", ATTEMPTS_MAX)]
    Contended { name: String },
    #[error("cannot write the status of NodeMetric {name}")]
    Api { name: String, source: kube::Error },
}

/// Writes the status of one NodeMetric.
pub struct Writer {
    api: Api<NodeMetric>,
    name: String,
    pace: MetricPace,
    limit: TokenBucket,
    started: Instant,
    /// The version that the last answer had; the state's may be older.
    version: Option<String>,
}

impl Writer {
    pub fn new(client: kube::Client, name: &str, pace: MetricPace) -> Writer {
        let limit = TokenBucket::new(pace.qps, pace.burst, Duration::ZERO);
        let (api, name) = (Api::all(client), name.to_owned());
        Writer { api, name, pace, limit, started: Instant::now(), version: None }
    }

    /// Replaces the status. False when the object does not exist.
    pub async fn write(&mut self, status: &NodeMetricStatus) -> Result<bool, WriteError> {
        let failed = |source| WriteError::Api { name: self.name.clone(), source };
        let mut wait = CONFLICT_WAIT;
        for _ in 0..ATTEMPTS_MAX {
            if !self.limit.try_take(self.started.elapsed()) {
                let MetricPace { qps, burst, .. } = self.pace;
                return Err(WriteError::Limited { qps, burst });
            }
            let version = match self.version.take() {
                Some(version) => version,
                None => match self.api.get_metadata(&self.name).await {
                    Ok(object) => object.metadata.resource_version.unwrap_or_default(),
                    Err(kube::Error::Api(refusal)) if refusal.code == 404 => return Ok(false),
                    Err(source) => return Err(failed(source)),
                },
            };
            let mut object = NodeMetric { status: Some(status.clone()), ..NodeMetric::default() };
            object.metadata.name = Some(self.name.clone());
            object.metadata.resource_version = Some(version);
            match self.api.replace_status(&self.name, &PostParams::default(), &object).await {
                Ok(stored) => {
                    self.version = stored.metadata.resource_version;
                    return Ok(true);
                }
                Err(kube::Error::Api(refusal)) if refusal.code == 404 => return Ok(false),
                Err(kube::Error::Api(refusal)) if refusal.code == 409 => {
                    tokio::time::sleep(wait).await;
                    wait *= CONFLICT_FACTOR;
                }
                Err(source) => return Err(failed(source)),
            }
        }
        Err(WriteError::Contended { name: self.name.clone() })
    }
}

/// Reports until told to stop. `asks` leads to whoever can measure; `observe` hears of every round.
///
/// The first interval begins once the node, its pods and its NodeSLO are known: a report before that would replace what was
/// last told by nothing, as of now, and the scheduler would take the node for idle.
///
/// Differs: claims and CPUs are waited for too, since nothing is measured before.
pub async fn run(
    state: State,
    mut writer: Writer,
    asks: mpsc::Sender<Ask>,
    observe: impl Fn(&Outcome),
    stop: CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => return,
        _ = state.wait_for(|snapshot| snapshot.missing().is_empty()) => {}
    }
    let mut last = Instant::now();
    let mut told = Told::default();
    loop {
        let seconds = state.load().metric_policy.report_interval_seconds;
        let interval = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(INTERVAL_MAX);
        let is_new = |snapshot: &Snapshot| snapshot.metric_policy.report_interval_seconds != seconds;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(last + interval) => {}
            _ = state.wait_for(is_new), if writer.pace.is_prompt => continue,
        }
        let outcome = tokio::select! {
            () = stop.cancelled() => return,
            outcome = round(&state, &mut writer, &asks, &mut told) => outcome,
        };
        observe(&outcome);
        last = Instant::now();
    }
}

async fn round(state: &State, writer: &mut Writer, asks: &mpsc::Sender<Ask>, told: &mut Told) -> Outcome {
    if !state.load().synced.metric {
        tracing::warn!(node = writer.name, "node metric has not initialized, nothing is reported");
        return Outcome::NoObject;
    }
    let (reply, answer) = oneshot::channel();
    let asked = asks.send(Ask { reply }).await.is_ok();
    let Some(report) = (if asked { answer.await.ok() } else { None }) else {
        return Outcome::Failed("nobody measures".to_owned());
    };
    told.tell(&report);
    match writer.write(&report.status).await {
        Ok(true) => {
            tracing::debug!(pods = report.status.pods_metric.len(), "node metric reported");
            Outcome::Written
        }
        Ok(false) => {
            tracing::warn!(node = writer.name, "there is no NodeMetric of this node, nothing is reported");
            Outcome::NoObject
        }
        Err(error) => {
            let chain = koord_kit::log::chain(&error);
            tracing::warn!(node = writer.name, error = chain, "node metric was not reported");
            Outcome::Failed(chain)
        }
    }
}

/// What a report lacked when that was last told. It is told again only when it changes.
#[derive(Default)]
struct Told {
    left_out: Vec<String>,
    refused: Vec<String>,
    /// Why prod reclaimable is not known.
    fault: Option<String>,
    memory_fault: Option<&'static str>,
}

impl Told {
    fn tell(&mut self, report: &Report) {
        let fault = report.prediction.reclaimable.total.as_ref().err();
        let is_news = self.left_out != report.left_out;
        if is_news && !report.left_out.is_empty() {
            tracing::warn!(pods = ?report.left_out, "pods without samples are left out of the node metric");
        }
        let is_new = |refusal: &&String| !self.refused.contains(refusal);
        for refusal in report.prediction.refused.iter().filter(is_new) {
            tracing::warn!("{refusal}");
        }
        if let Some(error) = fault.filter(|error| self.fault.as_ref() != Some(*error)) {
            tracing::warn!(error, "what prod pods will not need is not known");
        }
        if let Some(why) = report.memory_fault.filter(|why| self.memory_fault != Some(*why)) {
            tracing::warn!(why, "memory is not told as nodeMemoryCollectPolicy asks");
        }
        self.memory_fault = report.memory_fault;
        self.left_out.clone_from(&report.left_out);
        self.refused.clone_from(&report.prediction.refused);
        self.fault = fault.cloned();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::fake::{FakeApi, refused};
    use crate::overheard::overheard;
    use crate::predict::Amount;
    use crate::predict::reclaimable::Prediction;
    use crate::state::{MetricPolicy, NodeState, Synced};
    use serde_json::json;

    const PUT: &str = "PUT /apis/slo.koordinator.sh/v1alpha1/nodemetrics/n1/status";

    fn metric(version: &str) -> serde_json::Value {
        json!({
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": { "name": "n1", "resourceVersion": version },
        })
    }

    fn puts(api: &FakeApi) -> usize {
        api.lines().iter().filter(|line| line.starts_with(PUT)).count()
    }

    /// A report without a word.
    fn nothing() -> Report {
        let (status, prediction) = (NodeMetricStatus::default(), Prediction::default());
        Report { status, prediction, left_out: Vec::new(), memory_fault: None }
    }

    /// koordlet-observe 7.2, step 7: a warning, but not one in each report.
    #[test]
    fn what_a_report_lacks_is_told_once() {
        let report = |left_out: &[&str], refused: &[&str], total: Result<Amount, &str>| {
            let refused = refused.iter().map(|text| (*text).to_owned()).collect();
            let mut prediction = Prediction { refused, ..Prediction::default() };
            prediction.reclaimable.total = total.map_err(str::to_owned);
            let left_out = left_out.iter().map(|text| (*text).to_owned()).collect();
            Report { prediction, left_out, ..nothing() }
        };
        let unmeasured = |why| Report { memory_fault: Some(why), ..report(&[], &[], Ok(Amount::default())) };
        let good = || Ok(Amount::default());
        let mut told = Told::default();
        for (name, report, want) in [
            ("good", report(&[], &[], good()), vec![]),
            ("a pod", report(&["a/x"], &[], good()), vec!["pods without samples"]),
            ("again", report(&["a/x"], &[], good()), vec![]),
            ("two pods", report(&["a/x", "a/y"], &[], good()), vec!["pods without samples"]),
            ("none", report(&[], &[], good()), vec![]),
            ("fault", report(&[], &[], Err("node is nil")), vec!["what prod pods will not need"]),
            ("same fault", report(&[], &[], Err("node is nil")), vec![]),
            (
                "other",
                report(&[], &["twice"], Err("no model")),
                vec!["twice", "what prod pods will not need"],
            ),
            ("same", report(&[], &["twice"], Err("no model")), vec![]),
            ("memory", unmeasured("no collector"), vec!["memory is not told as nodeMemoryCollectPolicy"]),
            ("same memory", unmeasured("no collector"), vec![]),
            ("other policy", unmeasured("no kidled"), vec!["memory is not told as nodeMemoryCollectPolicy"]),
            ("measured", report(&[], &[], good()), vec![]),
            ("and not", unmeasured("no kidled"), vec!["memory is not told as nodeMemoryCollectPolicy"]),
        ] {
            let (_, lines) = overheard(|| told.tell(&report));
            assert_eq!(lines.len(), want.len(), "{name}: {lines:?}");
            for (line, want) in lines.iter().zip(want) {
                assert!(line.starts_with(&format!("WARN {want}")), "{name}: {line}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_limited() {
        let api = FakeApi::default();
        let client = api.client(|_| (200, metric("7")));
        let mut writer = Writer::new(client, "n1", MetricPace::default());
        let status = NodeMetricStatus::default();
        assert!(writer.write(&status).await.unwrap());
        assert!(writer.write(&status).await.unwrap());
        // koordlet-observe#13.5.E11
        let error = writer.write(&status).await.unwrap_err();
        assert_eq!(error.to_string(), "updating status is limited qps=0.1 burst=2");
        assert_eq!(puts(&api), 2);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(writer.write(&status).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn conflicts_are_retried_within_the_limit() {
        // koordlet-observe#13.5.E28
        let api = FakeApi::default();
        let client = api.client(|seen| match seen.line.starts_with("PUT") {
            true => refused(409, "the object has been modified"),
            false => (200, metric("7")),
        });
        let mut writer = Writer::new(client, "n1", MetricPace::default());
        let error = writer.write(&NodeMetricStatus::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "updating status is limited qps=0.1 burst=2");
        assert_eq!(puts(&api), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_missing_is_not_made() {
        // koordlet-observe#13.5.E10
        let api = FakeApi::default();
        let mut writer = Writer::new(api.client(|_| refused(404, "not found")), "n1", MetricPace::default());
        assert!(!writer.write(&NodeMetricStatus::default()).await.unwrap());
        assert_eq!(puts(&api), 0);
    }

    /// Makes a part unknown.
    type TakeAway = fn(&mut Snapshot);

    /// Everything was heard of but the NodeMetric.
    fn heard() -> Snapshot {
        Snapshot {
            node: Some(Arc::new(NodeState::default())),
            synced: Synced { slo: true, pods: true, metric: false, claims: true, layout: true },
            ..Snapshot::default()
        }
    }

    /// Reports that go on beside the test.
    struct Case {
        api: FakeApi,
        state: State,
        asked: mpsc::Receiver<Ask>,
        outcomes: Arc<Mutex<Vec<Outcome>>>,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    impl Case {
        fn start(pace: MetricPace, first: Snapshot) -> Case {
            let api = FakeApi::default();
            let writer = Writer::new(api.client(|_| (200, metric("7"))), "n1", pace);
            let state = State::new(first);
            let (asks, asked) = mpsc::channel::<Ask>(1);
            let (outcomes, stop) = (Arc::new(Mutex::new(Vec::new())), CancellationToken::new());
            let heard = outcomes.clone();
            let observe = move |outcome: &Outcome| heard.lock().unwrap().push(outcome.clone());
            let task = tokio::spawn(run(state.clone(), writer, asks, observe, stop.clone()));
            Case { api, state, asked, outcomes, stop, task }
        }

        fn outcomes(&self) -> Vec<Outcome> {
            self.outcomes.lock().unwrap().clone()
        }

        async fn answer(&mut self) {
            self.asked.recv().await.unwrap().reply.send(nothing()).unwrap();
        }

        async fn end(self) {
            self.stop.cancel();
            self.task.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_comes_after_one_interval_and_once_the_object_was_seen() {
        let mut case = Case::start(MetricPace::default(), heard());
        tokio::time::sleep(Duration::from_secs(61)).await;
        // koordlet-observe#13.5.E21
        assert_eq!(case.outcomes(), [Outcome::NoObject]);
        assert!(case.api.lines().is_empty());
        case.state.update(|snapshot| snapshot.synced.metric = true);
        case.answer().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(case.outcomes()[1], Outcome::Written);
        case.end().await;
    }

    /// koordlet-observe 3.1: a report of a node that was not looked at would say that it is idle.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_reported_before_the_node_its_pods_and_its_slo_are_known() {
        let lacks: [(&str, TakeAway); 5] = [
            ("node", |snapshot| snapshot.node = None),
            ("pods", |snapshot| snapshot.synced.pods = false),
            ("slo", |snapshot| snapshot.synced.slo = false),
            ("claims", |snapshot| snapshot.synced.claims = false),
            ("layout", |snapshot| snapshot.synced.layout = false),
        ];
        for (name, take_away) in lacks {
            let mut whole = heard();
            whole.synced.metric = true;
            let mut lacking = whole.clone();
            take_away(&mut lacking);
            let mut case = Case::start(MetricPace::default(), lacking);
            tokio::time::sleep(Duration::from_secs(600)).await;
            assert_eq!(case.outcomes(), [], "{name}");
            assert!(case.asked.try_recv().is_err(), "{name}");
            case.state.update(|snapshot| *snapshot = whole.clone());
            let begun = Instant::now();
            case.answer().await;
            assert_eq!(begun.elapsed().as_secs(), 60, "{name}: an interval of measuring comes first");
            case.end().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interval_beyond_all_clocks_is_long_and_ends_with_the_next() {
        for seconds in [i64::MAX, i64::MAX / 2, 1 << 40] {
            let policy = MetricPolicy { report_interval_seconds: seconds, ..MetricPolicy::default() };
            let mut first = heard();
            first.synced.metric = true;
            first.metric_policy = Arc::new(policy);
            let mut case = Case::start(MetricPace::hurried(), first);
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert!(case.asked.try_recv().is_err(), "{seconds}");
            case.state.update(|snapshot| snapshot.metric_policy = Arc::default());
            case.answer().await;
            case.end().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_in_a_hurry_is_told_soon_and_often() {
        let mut case = Case::start(MetricPace::hurried(), heard());
        tokio::time::sleep(Duration::from_secs(3)).await;
        let policy = MetricPolicy { report_interval_seconds: 1, ..MetricPolicy::default() };
        case.state.update(|snapshot| {
            snapshot.synced.metric = true;
            snapshot.metric_policy = Arc::new(policy);
        });
        let begun = Instant::now();
        for _ in 0..5 {
            case.answer().await;
        }
        assert_eq!(begun.elapsed().as_secs(), 4, "the first at once, the others a second apart");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(puts(&case.api), 5);
        case.end().await;
    }
}
