use std::sync::Mutex;

use koord_linux::cgroup::Driver;
use prost::Message;
use serde_json::json;

use super::*;
use crate::state::{PodState, Synced};

/// As the kubelet's interface has them; `later` is a field that we do not know.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<Pod>,
    #[prost(string, tag = "9")]
    later: String,
}

#[derive(Clone, PartialEq, Message)]
struct Pod {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<Container>,
    #[prost(fixed64, tag = "8")]
    later: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<Devices>,
    #[prost(int64, repeated, tag = "3")]
    cpu_ids: Vec<i64>,
    #[prost(fixed32, tag = "8")]
    later: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Devices {
    #[prost(string, tag = "1")]
    resource_name: String,
    #[prost(string, repeated, tag = "2")]
    device_ids: Vec<String>,
    #[prost(bytes = "vec", tag = "3")]
    topology: Vec<u8>,
}

fn devices(name: &str, ids: &[&str], topology: &[u8]) -> Devices {
    let device_ids = ids.iter().map(|id| id.to_string()).collect();
    Devices { resource_name: name.into(), device_ids, topology: topology.to_vec() }
}

fn container(name: &str, devices: Vec<Devices>) -> Container {
    Container { name: name.into(), devices, cpu_ids: vec![-1, 3], later: 7 }
}

fn pod(name: &str, containers: Vec<Container>) -> Pod {
    Pod { name: name.into(), namespace: "shop".into(), containers, later: 8 }
}

fn state(pods: &[(&str, &str)]) -> State {
    let read = |(name, annotation): &(&str, &str)| {
        let object = json!({ "metadata": { "name": name, "namespace": "shop", "uid": name,
            "annotations": { "scheduling.koordinator.sh/device-allocated": annotation } } });
        Arc::new(PodState::read(&serde_json::from_value(object).unwrap(), Driver::Systemd))
    };
    let synced = Synced { pods: true, ..Synced::default() };
    State::new(Snapshot { pods: pods.iter().map(read).collect(), synced, ..Snapshot::default() })
}

const GPU_AND_CARDS: &str = r#"{"gpu":[{"minor":0,"id":"GPU-0"},{"minor":1,"id":"GPU-1"}],
    "rdma":[{"minor":0,"id":"0000:1f:00.0","extension":{"vfs":[{"busID":"0000:1f:00.2"},{"busID":"0000:1f:00.3"}]}}],
    "fpga":[{"minor":0,"id":"F"}]}"#;

/// koordlet-observe 3.7.
#[test]
fn devices_are_added_and_nothing_is_lost() {
    let state =
        state(&[("train", GPU_AND_CARDS), ("odd", "{"), ("bare", r#"{"gpu":[{"minor":0,"id":"g"}]}"#)]);
    let snapshot = state.load();
    let plugin = devices("a.example.com/dev", &["d"], &[1, 2]);
    let list = List {
        pods: vec![
            pod("train", vec![container("main", vec![plugin.clone()]), container("side", vec![])]),
            pod("odd", vec![container("main", vec![])]),
            pod("unknown", vec![container("main", vec![])]),
            pod("bare", vec![]),
        ],
        later: "kept".into(),
    };
    let got = wire::with_devices(&list.encode_to_vec(), |namespace, name| given(&snapshot, namespace, name));
    let mut want = list.clone();
    want.pods[0].containers[0].devices = vec![
        devices("", &["F"], &[]),
        plugin,
        devices("koordinator.sh/rdma", &["0000:1f:00.2", "0000:1f:00.3"], &[]),
        devices("nvidia.com/gpu", &["GPU-0", "GPU-1"], &[]),
    ];
    assert_eq!(List::decode(got.unwrap().as_slice()).unwrap(), want);
}

#[test]
fn a_list_that_breaks_off_is_no_list() {
    let list = List { pods: vec![pod("train", vec![container("main", vec![])])], later: String::new() };
    let whole = list.encode_to_vec();
    for length in 1..whole.len() {
        assert!(wire::with_devices(&whole[..length], |_, _| Vec::new()).is_err(), "{length} bytes");
    }
    assert!(wire::with_devices(&[0x0b, 0x0c], |_, _| Vec::new()).is_err(), "a group");
    assert_eq!(wire::with_devices(&[], |_, _| Vec::new()).unwrap(), Vec::<u8>::new());
}

/// A kubelet: answers with the list, and remembers what it was asked.
struct Kubelet {
    list: List,
    asked: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Service for Kubelet {
    async fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.asked.lock().unwrap().push((path.to_owned(), message.to_vec()));
        match path {
            LIST => Ok(self.list.encode_to_vec()),
            "/v1.PodResourcesLister/Get" => Err(Refusal::unknown("pod not found".to_owned())),
            _ => Ok(vec![1, 2, 3]),
        }
    }
}

#[tokio::test]
async fn monitors_are_answered_by_kubelet_through_us() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::host(dir.path());
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let ours = dir.path().join("ours");
    let state = state(&[("train", GPU_AND_CARDS)]);
    start(&ours, &root, &state, &tasks, &stop);
    let mut monitor = Channel::open(&ours.join(SOCKET)).await.unwrap();
    let error = monitor.call(LIST, &[]).await.unwrap_err().to_string();
    assert!(error.starts_with("code 14: kubelet: cannot reach "), "{error}");

    let folder = root.kubelet.join("pod-resources");
    std::fs::create_dir_all(&folder).unwrap();
    let list = List { pods: vec![pod("train", vec![container("main", vec![])])], later: String::new() };
    let kubelet = Arc::new(Kubelet { list, asked: Mutex::default() });
    tasks.spawn(serve(listen(&folder.join(SOCKET)).unwrap(), kubelet.clone(), stop.clone()));
    let list = List::decode(monitor.call(LIST, &[]).await.unwrap()).unwrap();
    assert_eq!(list.pods[0].containers[0].devices.len(), 3);
    let allocatable = monitor.call("/v1.PodResourcesLister/GetAllocatableResources", &[]).await.unwrap();
    assert_eq!(allocatable, [1, 2, 3].as_slice());
    let refused = monitor.call("/v1.PodResourcesLister/Get", &[9]).await.unwrap_err().to_string();
    assert_eq!(refused, "code 2: pod not found");
    assert_eq!(kubelet.asked.lock().unwrap().last().unwrap().1, [9]);
    let unknown = monitor.call("/v1.PodResourcesLister/Put", &[]).await.unwrap_err().to_string();
    assert_eq!(unknown, "code 12: unknown method /v1.PodResourcesLister/Put");
    assert_eq!(kubelet.asked.lock().unwrap().len(), 3);
    // After a restart, before the pods were heard of, only what needs no pods is answered.
    state.update(|snapshot| snapshot.synced.pods = false);
    let error = monitor.call(LIST, &[]).await.unwrap_err().to_string();
    assert!(error.starts_with("code 14: koordlet has not heard"), "{error}");
    assert!(monitor.call("/v1.PodResourcesLister/GetAllocatableResources", &[]).await.is_ok());
    assert_eq!(kubelet.asked.lock().unwrap().len(), 4);
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}
