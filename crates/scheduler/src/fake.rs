//! Test doubles: an API server that does what it is told, and an engine that does what it is told.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use koord_engine::engine::command::Subject;
use koord_engine::engine::dump::Dumps;
use koord_engine::engine::measure::Measured;
use koord_engine::engine::{Command, Input};
use koord_engine::pod::PodKey;
use koord_engine::time::Time;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use crate::brain::{Attempt, Attempted, Brain, Form, Gauges, View};
use crate::clock::Clock;
use crate::driver::{self, Desk, Hands, Parts};
use crate::dump::Switches;
use crate::load::Load;
use crate::metrics::SchedulerMetrics;
use crate::monitor::Monitor;

pub(crate) fn subject(name: &str) -> Subject {
    let key = PodKey { namespace: "ns".into(), name: name.into() };
    Subject { key, uid: format!("uid-{name}").into(), reserves: None }
}

/// One request as the server saw it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// `POST /api/v1/…`, with the query.
    pub(crate) line: String,
    pub(crate) form: String,
    pub(crate) body: Value,
}

/// What the server does with a request.
pub(crate) enum Reply {
    Answer(u16, String),
    /// The connection breaks.
    Broken,
    /// Answers once somebody lets it.
    Held(Arc<Notify>, u16),
    /// A watch: lines as they come.
    Stream(mpsc::UnboundedReceiver<String>),
}

impl Reply {
    pub(crate) fn ok() -> Reply {
        Reply::Answer(200, "{}".to_owned())
    }

    pub(crate) fn refused(code: u16, message: &str) -> Reply {
        let status = serde_json::json!({"kind": "Status", "code": code, "message": message});
        Reply::Answer(code, status.to_string())
    }
}

type Script = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

/// An API server that answers by a function and remembers what it was asked.
#[derive(Clone)]
pub(crate) struct FakeApi {
    script: Script,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl FakeApi {
    pub(crate) fn new(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> FakeApi {
        FakeApi { script: Arc::new(script), seen: Arc::default() }
    }

    /// Prepared answers, in order, then success.
    pub(crate) fn scripted(replies: impl IntoIterator<Item = Reply>) -> FakeApi {
        let replies: Mutex<VecDeque<Reply>> = Mutex::new(replies.into_iter().collect());
        FakeApi::new(move |_| replies.lock().unwrap().pop_front().unwrap_or_else(Reply::ok))
    }

    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }
}

type AnswerBody = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

fn whole(code: u16, body: String) -> Result<Response<AnswerBody>, BoxError> {
    let body = http_body_util::Full::new(Bytes::from(body));
    let body = BodyExt::map_err(body, |never: Infallible| match never {}).boxed_unsync();
    Ok(Response::builder().status(code).body(body)?)
}

impl Service<Request<Body>> for FakeApi {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let fake = self.clone();
        Box::pin(async move {
            let form = request.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let line = format!("{} {path}", request.method());
            let bytes = request.into_body().collect_bytes().await?;
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            let seen = Seen { line, form: form.unwrap_or_default(), body };
            fake.seen.lock().unwrap().push(seen.clone());
            match (fake.script)(&seen) {
                Reply::Answer(code, body) => whole(code, body),
                Reply::Broken => Err("connection reset".into()),
                Reply::Held(until, code) => {
                    until.notified().await;
                    whole(code, "{}".to_owned())
                }
                Reply::Stream(lines) => {
                    let frames = futures::stream::unfold(lines, async |mut lines| {
                        let line = lines.recv().await?;
                        Some((Ok::<_, BoxError>(Frame::data(Bytes::from(line))), lines))
                    });
                    Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
                }
            }
        })
    }
}

/// What a scripted engine saw and will do; shared with the test.
#[derive(Clone, Default)]
pub(crate) struct FakeBrain {
    pub(crate) state: Arc<Mutex<FakeState>>,
}

#[derive(Default)]
pub(crate) struct FakeState {
    pub(crate) taken: Vec<Input>,
    /// Pods to try, in order, with the commands that each attempt brings.
    pub(crate) ready: VecDeque<(Subject, Attempted, Vec<Command>)>,
    pub(crate) commands: Vec<Command>,
    pub(crate) dumps: Dumps,
    pub(crate) wake_at: Option<Time>,
    pub(crate) steps: usize,
    /// The version of every pod that is asked about.
    pub(crate) revision: Option<String>,
}

impl FakeBrain {
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut FakeState) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }
}

impl Brain for FakeBrain {
    fn take(&mut self, _: Time, input: Input) {
        self.with(|state| {
            if input == Input::Tick {
                state.wake_at = None;
            }
            state.taken.push(input);
        });
    }

    fn step(&mut self, _: Time) -> Option<Attempt> {
        self.with(|state| {
            let (pod, result, commands) = state.ready.pop_front()?;
            state.steps += 1;
            state.commands.extend(commands);
            Some(Attempt {
                pod,
                scheduler: "s".into(),
                result,
                attempts: 1,
                waited: Default::default(),
                evaluated: 1,
                feasible: 1,
                dumped: None,
            })
        })
    }

    fn take_commands(&mut self) -> Vec<Command> {
        self.with(|state| std::mem::take(&mut state.commands))
    }

    fn wake_at(&self, _: Time) -> Option<Time> {
        self.with(|state| state.wake_at)
    }

    fn view(&mut self, _: Time, view: &View) -> Option<Value> {
        match view {
            View::Node(name) if name == "n" => Some(serde_json::json!({"node": name})),
            View::Node(_) => None,
            View::ExplainPending(Form::Text) => Some("nothing waits".into()),
            View::Revision { .. } => self.with(|state| state.revision.clone().map(Value::from)),
            View::Resources => Some("kube_pod_resource_request{} 1\n".into()),
            other => Some(format!("{other:?}").into()),
        }
    }

    fn gauges(&self) -> Gauges {
        Gauges { active: self.with(|state| state.ready.len()), ..Gauges::default() }
    }

    fn preemptions(&mut self) -> Vec<usize> {
        Vec::new()
    }

    fn measured(&mut self) -> Measured {
        Measured::default()
    }

    fn set_dumps(&mut self, dumps: Dumps) {
        self.with(|state| state.dumps = dumps);
    }
}

struct Nobody;

impl Hands for Nobody {
    fn take(&mut self, _: Command) {}
}

/// The way to this brain, on a thread of its own until `stop` is cancelled. Its commands are nobody's.
pub(crate) fn desk(brain: FakeBrain, stop: &CancellationToken) -> Desk {
    let (_, outcomes) = mpsc::unbounded_channel();
    let parts = Parts {
        brain,
        hands: Nobody,
        outcomes,
        load: Arc::new(Load::default()),
        clock: Clock::start(),
        monitor: Monitor::new(crate::flags::Monitor {
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            drop_unhandled_after: Duration::from_secs(5),
        }),
        switches: Arc::new(Switches::default()),
        metrics: SchedulerMetrics::default(),
        watches: 0,
    };
    driver::start(parts, stop.clone(), stop.clone()).unwrap().0
}
