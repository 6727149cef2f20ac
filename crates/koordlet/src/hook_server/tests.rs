//! A proxy that asks, over a real socket.

use std::path::PathBuf;
use std::sync::Mutex;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use koord_api::hook::ContainerMetadata;
use prost::Message;
use tokio::net::UnixStream;

use super::*;
use crate::decide::hooks::cpuset::{Because, Choice};
use crate::decide::hooks::stage::Wanted;
use crate::decide::why::Why;

/// What was asked: the stage, the pod's QoS among groups, the container, the group.
type Seen = Arc<Mutex<Vec<(Stage, KubeQos, Option<AskedContainer>, String)>>>;

struct Scene {
    _dir: tempfile::TempDir,
    options: HookServerOptions,
    seen: Seen,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Scene {
    fn start(is_strict: bool, says: Option<Result<Values, String>>) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let socket: PathBuf = dir.path().join("koordlet.sock");
        let options = HookServerOptions {
            host_socket: socket.clone(),
            socket,
            directory: dir.path().to_owned(),
            failure_policy: "Ignore".to_owned(),
            is_strict,
            disabled_stages: Vec::new(),
        };
        let seen = Seen::default();
        let notes = seen.clone();
        let ask: Ask = Arc::new(move |stage, asked, parent| {
            notes.lock().unwrap().push((stage, asked.pod.id.kube_qos, asked.container, parent));
            let says = says.clone();
            Box::pin(async move { says })
        });
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        // What an earlier run left.
        drop(std::os::unix::net::UnixListener::bind(&options.socket).unwrap());
        start(&options, &["PreRunPodSandbox"], ask, &tasks, &stop);
        Scene { _dir: dir, options, seen, stop, tasks }
    }

    /// The answer's message, or gRPC's code and words.
    async fn call(&self, path: &str, message: &[u8]) -> Result<Bytes, (String, String)> {
        let stream = UnixStream::connect(&self.options.socket).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend(message);
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .body(Full::new(Bytes::from(frame)))
            .unwrap();
        let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap();
        let text = |value: Option<&http::HeaderValue>| {
            value.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        if let Some(code) = parts.headers.get("grpc-status") {
            return Err((text(Some(code)), text(parts.headers.get("grpc-message"))));
        }
        assert_eq!(text(body.trailers().and_then(|all| all.get("grpc-status"))), "0");
        Ok(body.to_bytes().slice(5..))
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn texts(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn container_request() -> ContainerResourceHookRequest {
    ContainerResourceHookRequest {
        pod_meta: Some(PodSandboxMetadata { name: "web".into(), uid: "u".into(), ..Default::default() }),
        container_meta: Some(ContainerMetadata { name: "main".into(), ..Default::default() }),
        container_annotations: texts(&[("a", "b")]),
        container_resources: Some(LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 200_000,
            cpu_shares: 1024,
            cpuset_cpus: "0-1".into(),
            memory_swap_limit_in_bytes: 7,
            ..Default::default()
        }),
        pod_cgroup_parent: "/kubepods/burstable/podu".into(),
        container_envs: texts(&[("PATH", "/bin")]),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_request_is_echoed_with_what_hooks_say() {
    let says = Values {
        quota: Some(Wanted::new(-1, Why::Unsaid)),
        cpus: Some(Choice { cpus: "4-5".into(), because: Because::Pinned }),
        env: vec![("NVIDIA_VISIBLE_DEVICES", "0".into())],
        ..Values::default()
    };
    let scene = Scene::start(false, Some(Ok(says)));
    let request = container_request();
    let answer = scene.call(&Hook::PreCreateContainer.path(), &request.encode_to_vec()).await.unwrap();
    let answer = ContainerResourceHookResponse::decode(answer).unwrap();
    let asked = request.container_resources.clone().unwrap();
    let want = LinuxContainerResources { cpu_quota: -1, cpuset_cpus: "4-5".into(), ..asked };
    assert_eq!(answer.container_resources, Some(want), "koordlet-enforce 14.3: echoed, then overwritten");
    assert_eq!(answer.container_envs, texts(&[("NVIDIA_VISIBLE_DEVICES", "0"), ("PATH", "/bin")]));
    assert_eq!(answer.container_annotations, request.container_annotations);
    assert_eq!(answer.pod_cgroup_parent, request.pod_cgroup_parent);
    let container = AskedContainer { name: "main".into(), quota: 200_000 };
    let seen = std::mem::take(&mut *scene.seen.lock().unwrap());
    let parent = request.pod_cgroup_parent.clone();
    assert_eq!(seen, [(Stage::PreCreateContainer, KubeQos::Burstable, Some(container), parent)]);

    let pod = PodSandboxHookRequest {
        labels: texts(&[("koordinator.sh/qosClass", "BE")]),
        cgroup_parent: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice".into(),
        ..Default::default()
    };
    let answer = scene.call(&Hook::PreRunPodSandbox.path(), &pod.encode_to_vec()).await.unwrap();
    let answer = PodSandboxHookResponse::decode(answer).unwrap();
    assert_eq!((answer.labels, answer.cgroup_parent.clone()), (pod.labels, pod.cgroup_parent));
    assert_eq!(answer.resources.map(|resources| resources.cpu_quota), Some(-1));
    let seen = std::mem::take(&mut *scene.seen.lock().unwrap());
    assert_eq!(seen, [(Stage::PreRunPodSandbox, KubeQos::BestEffort, None, answer.cgroup_parent)]);
    scene.end().await;
}

#[tokio::test]
async fn a_stage_without_hooks_is_a_plain_echo() {
    let scene = Scene::start(true, None);
    let request = container_request();
    let answer = scene.call(&Hook::PostStartContainer.path(), &request.encode_to_vec()).await.unwrap();
    let answer = ContainerResourceHookResponse::decode(answer).unwrap();
    assert_eq!(answer.container_resources, request.container_resources);
    assert_eq!(*scene.seen.lock().unwrap(), []);
    scene.end().await;
}

#[tokio::test]
async fn failures_keep_nobody_from_starting_unless_wanted() {
    let message = container_request().encode_to_vec();
    let path = Hook::PreCreateContainer.path();
    let gone = Scene::start(false, None);
    let answer = gone.call(&path, &message).await.unwrap();
    let answer = ContainerResourceHookResponse::decode(answer).unwrap();
    assert_eq!(answer.container_resources, container_request().container_resources);
    gone.end().await;
    for (says, words) in
        [(Some(Err("GroupIdentity: bad".to_owned())), "GroupIdentity: bad"), (None, "koordlet is busy")]
    {
        let strict = Scene::start(true, says);
        assert_eq!(strict.call(&path, &message).await, Err(("2".into(), words.into())));
        strict.end().await;
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused() {
    let scene = Scene::start(false, Some(Ok(Values::default())));
    let code = |answer: Result<Bytes, (String, String)>| answer.unwrap_err().0;
    assert_eq!(code(scene.call("/runtime.v1alpha1.RuntimeHookService/Nothing", &[]).await), "12");
    assert_eq!(code(scene.call(&Hook::PreRunPodSandbox.path(), &[0xff, 0xff]).await), "3");
    scene.end().await;
}

#[tokio::test]
async fn a_file_in_the_way_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("koordlet.sock");
    std::fs::write(&path, "precious").unwrap();
    assert!(listen(&path).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}
