use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use koord_engine::engine::command::Binding;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config::ManagedResource;
use crate::fake::subject;

/// An extender in this process: answers by path, and what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Server {
    answers: HashMap<&'static str, (u16, String)>,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Server {
    pub(crate) fn answering(answers: &[(&'static str, Value)]) -> Server {
        let answers = answers.iter().map(|(path, answer)| (*path, (200, answer.to_string())));
        Server { answers: answers.collect(), ..Server::default() }
    }

    pub(crate) async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/prefix/", listener.local_addr().unwrap());
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move { server.serve(stream).await });
            }
        });
        url
    }

    /// One request for each connection.
    async fn serve(&self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let (head, length) = loop {
            if stream.read_buf(&mut bytes).await.unwrap() == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let Some(end) = text.find("\r\n\r\n") else { continue };
            let head = text[..end].to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
            break (text[..end].to_owned(), end + 4 + length.parse::<usize>().unwrap());
        };
        while bytes.len() < length {
            stream.read_buf(&mut bytes).await.unwrap();
        }
        let body = serde_json::from_slice(&bytes[head.len() + 4..length]).unwrap();
        let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        let missing = (404, String::new());
        let path = line.strip_prefix("POST /prefix/").unwrap_or_default();
        let (code, answer) = self.answers.get(path).unwrap_or(&missing);
        self.seen.lock().unwrap().push((line, body));
        let length = answer.len();
        let answer =
            format!("HTTP/1.1 {code} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    fn bodies(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

pub(crate) fn config(url: &str) -> Config {
    Config {
        url_prefix: url.to_owned(),
        filter_verb: Some("filter".to_owned()),
        preempt_verb: Some("preempt".to_owned()),
        prioritize: Some(("prioritize".to_owned(), 2)),
        bind_verb: Some("bind".to_owned()),
        enable_https: false,
        tls: None,
        timeout: Duration::from_secs(5),
        node_cache_capable: true,
        managed_resources: vec![ManagedResource {
            name: "example.com/x".to_owned(),
            ignored_by_scheduler: true,
        }],
        ignorable: false,
    }
}

fn pod(name: &str, node: Option<&str>) -> k8s_openapi::api::core::v1::Pod {
    let subject = subject(name);
    let metadata = json!({"name": name, "namespace": "ns", "uid": subject.uid});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}}))
        .unwrap()
}

/// The one judge of a configuration, with a pod and two nodes to tell of.
async fn judge(config: Config) -> Box<dyn Extender> {
    let extension = Extension::new(&[config]).await.unwrap();
    let objects = extension.objects.clone().unwrap();
    objects.set_pod(&pod("p", None));
    objects.set_pod(&pod("v", Some("n1")));
    for name in ["n1", "n2"] {
        objects.set_node(&serde_json::from_value(json!({"metadata": {"name": name}})).unwrap());
    }
    extension.judges(&Handle::current()).remove(0)
}

/// Asks from a thread of its own, as the engine does.
async fn ask<T: Send + 'static>(
    mut judge: Box<dyn Extender>,
    question: impl FnOnce(&mut dyn Extender) -> T + Send + 'static,
) -> T {
    let (send, answer) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || send.send(question(&mut *judge)).ok());
    let answer = answer.await.unwrap();
    thread.join().unwrap();
    answer
}

fn names(names: &[&str]) -> Vec<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_sent_to_one_that_knows_the_nodes() {
    // Any case is understood.
    let server = Server::answering(&[
        (
            "filter",
            json!({"nodenames": ["n2"], "failedNodes": {"n1": "no"}, "FailedAndUnresolvableNodes": {"n3": "never"}}),
        ),
        ("prioritize", json!([{"Host": "n1", "Score": 7}, {"host": "n2", "score": 3}])),
        (
            "preempt",
            json!({"nodeNameToMetaVictims": {"n9": {"pods": [{"uid": "uid-x"}]},
                "n1": {"pods": [{"uid": "uid-v"}], "numPDBViolations": 1}}}),
        ),
    ]);
    let url = server.start().await;
    let judge = judge(config(&url)).await;
    let terms = judge.terms();
    assert_eq!((terms.weight, terms.binds, terms.is_ignorable), (Some(2), true, false));
    assert_eq!(terms.managed, names(&["example.com/x"]));
    let candidates = [
        Candidate { node: "n2".into(), victims: vec![subject("y")], violations: 0 },
        Candidate { node: "n1".into(), victims: vec![subject("v"), subject("w")], violations: 2 },
    ];
    let (filtered, scores, kept) = ask(judge, move |judge| {
        let nodes = names(&["n1", "n2", "n3"]);
        let pod = subject("p");
        (judge.filter(&pod, &nodes), judge.prioritize(&pod, &nodes), judge.preempt(&pod, &candidates))
    })
    .await;
    let filtered = filtered.unwrap();
    assert_eq!(filtered.passed, names(&["n2"]));
    assert_eq!((filtered.failed["n1"].as_str(), filtered.unresolvable["n3"].as_str()), ("no", "never"));
    assert_eq!(scores.unwrap(), [("n1".into(), 7), ("n2".into(), 3)]);
    let left =
        |node: &str, uid: &str, violations| Kept { node: node.into(), victims: vec![uid.into()], violations };
    assert_eq!(kept, Ok(vec![left("n1", "uid-v", 1), left("n9", "uid-x", 0)]));
    let [(line, filter), (_, prioritize), (_, preempt)] = <[_; 3]>::try_from(server.bodies()).unwrap();
    assert_eq!(line, "POST /prefix/filter");
    assert_eq!(filter["Pod"]["metadata"]["name"], "p");
    assert_eq!((&filter["Nodes"], &filter["NodeNames"]), (&Value::Null, &json!(["n1", "n2", "n3"])));
    assert_eq!(filter, prioritize);
    let victims = json!({"n1": {"Pods": [{"UID": "uid-v"}, {"UID": "uid-w"}], "NumPDBViolations": 2},
        "n2": {"Pods": [{"UID": "uid-y"}], "NumPDBViolations": 0}});
    assert_eq!((&preempt["NodeNameToMetaVictims"], &preempt["NodeNameToVictims"]), (&victims, &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_sent_to_one_that_does_not() {
    let server = Server::answering(&[
        ("filter", json!({"nodes": {"items": [{"metadata": {"name": "n1"}}]}})),
        ("preempt", json!({"NodeNameToMetaVictims": {}})),
    ]);
    let url = server.start().await;
    let judge = judge(Config { node_cache_capable: false, ..config(&url) }).await;
    let candidates =
        [Candidate { node: "n1".into(), victims: vec![subject("v"), subject("gone")], violations: 0 }];
    let (filtered, kept) = ask(judge, move |judge| {
        (judge.filter(&subject("p"), &names(&["n1", "n2"])), judge.preempt(&subject("p"), &candidates))
    })
    .await;
    assert_eq!(filtered.unwrap().passed, names(&["n1"]));
    assert_eq!(kept, Ok(Vec::new()));
    let [(_, filter), (_, preempt)] = <[_; 2]>::try_from(server.bodies()).unwrap();
    let sent: Vec<&Value> =
        filter["Nodes"]["items"].as_array().unwrap().iter().map(|node| &node["metadata"]["name"]).collect();
    assert_eq!((sent, &filter["NodeNames"]), (vec![&json!("n1"), &json!("n2")], &Value::Null));
    let victims = preempt["NodeNameToVictims"]["n1"]["Pods"].as_array().unwrap();
    assert_eq!((victims.len(), &victims[0]["metadata"]["name"]), (1, &json!("v")));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_goes_wrong_is_said() {
    let absent = "http://127.0.0.1:1";
    let stranger = json!({"NodeNames": ["n9"]});
    for (name, answer, want) in [
        ("its own error", Some(json!({"Error": "overloaded"})), "overloaded"),
        (
            "a node that nobody asked about",
            Some(stranger),
            "claims a filtered node \"n9\" which is not found",
        ),
        ("no such path", None, "failed filter with extender at URL http://127.0.0.1:"),
        ("no answer of this kind", Some(json!({"NodeNames": 1})), "cannot be read: NodeNames"),
    ] {
        let server =
            Server::answering(&answer.map(|answer| ("filter", answer)).into_iter().collect::<Vec<_>>());
        let judge = judge(config(&server.start().await)).await;
        let filtered = ask(judge, |judge| judge.filter(&subject("p"), &names(&["n1"]))).await;
        assert!(filtered.as_ref().is_err_and(|error| error.contains(want)), "{name}: {filtered:?}");
    }
    let unreachable = judge(config(absent)).await;
    assert!(ask(unreachable, |judge| judge.filter(&subject("p"), &names(&["n1"]))).await.is_err());
    let unknown = judge(config(absent)).await;
    let filtered = ask(unknown, |judge| judge.filter(&subject("gone"), &names(&["n1"]))).await;
    assert_eq!(filtered, Err("pod ns/gone is gone".to_owned()));
    for url in ["localhost:1", "", "ftp://x", "http://x/?a=b"] {
        assert!(Extension::new(&[config(url)]).await.is_err(), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_binds() {
    let binding = Binding {
        pod: subject("p"),
        node: "n1".into(),
        scheduler: "s".into(),
        extender: Some(0),
        waits_for_room: false,
    };
    for (answer, want) in [(json!({}), Ok(())), (json!({"error": "taken"}), Err("taken".to_owned()))] {
        let server = Server::answering(&[("bind", answer)]);
        let http = Http::new(&config(&server.start().await)).await.unwrap();
        assert_eq!(http.bind(&binding).await, want);
        let want = json!({"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "n1"});
        assert_eq!(server.bodies(), [("POST /prefix/bind".to_owned(), want)]);
    }
}

#[test]
fn only_pods_without_a_node_are_kept() {
    let objects = Objects::new(false, false);
    objects.set_pod(&pod("p", None));
    assert!(objects.pod("uid-p").is_some_and(|json| json.contains("\"uid-p\"")));
    objects.set_pod(&pod("p", Some("n")));
    assert_eq!(objects.pod("uid-p"), None);
    objects.set_pod(&pod("q", None));
    objects.remove_pod("uid-q");
    assert_eq!(objects.pod("uid-q"), None);
    objects.set_node(&serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap());
    assert!(objects.nodes(&names(&["n"])).is_empty(), "nobody wants nodes");
}
