use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use koord_api::gate::Component;
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::webhook::paths::installed;

const NOW: &str = "2026-11-16T10:00:00Z";
const SECRET: &str = "/api/v1/namespaces/koordinator-system/secrets/koordinator-webhook-certs";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/koordinator-mutating-webhook-configuration";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/koordinator-validating-webhook-configuration";

/// An API server that holds a few objects by path, with versions.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<State>>);

/// What somebody else does to the objects.
type Meddling = Box<dyn FnOnce(&mut BTreeMap<String, Value>) + Send>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Writes, as `PUT path`.
    writes: Vec<String>,
    /// Happens once, right before a write.
    before_write: Option<Meddling>,
}

impl State {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn handle(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        if *method != Method::GET {
            if let Some(act) = self.before_write.take() {
                act(&mut self.objects);
            }
            self.writes.push(format!("{method} {path}"));
        }
        let failure = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Conflict" };
            (
                code,
                json!({"kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": code}),
            )
        };
        match *method {
            Method::GET => self.objects.get(path).map_or(failure(404), |found| (200, found.clone())),
            Method::POST => {
                let object = sent();
                let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
                match self.objects.contains_key(&path) {
                    true => failure(409),
                    false => (201, self.put(&path, object)),
                }
            }
            _ => {
                let object = sent();
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                match self.objects.get(path) {
                    None => failure(404),
                    Some(found) if version(found) != version(&object) => failure(409),
                    Some(_) => (200, self.put(path, object)),
                }
            }
        }
    }
}

impl Cluster {
    /// As the chart leaves it.
    fn installed() -> Cluster {
        let cluster = Cluster::default();
        for (path, side, name) in [
            (MUTATING, Side::Mutating, "koordinator-mutating-webhook-configuration"),
            (VALIDATING, Side::Validating, "koordinator-validating-webhook-configuration"),
        ] {
            cluster.lock().put(path, installed(side, name, "x", "webhook-service"));
        }
        cluster
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn client(&self) -> kube::Client {
        let state = self.0.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let state = state.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (code, answer) = state.lock().unwrap().handle(&parts.method, parts.uri.path(), &body);
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(
                    Response::builder().status(StatusCode::from_u16(code).unwrap()).body(body).unwrap(),
                )
            }
        });
        kube::Client::new(service, "default")
    }

    fn writes(&self) -> Vec<String> {
        let name = |write: String| write.rsplit('/').next().unwrap_or_default().to_owned();
        std::mem::take(&mut self.lock().writes).into_iter().map(name).collect()
    }

    fn get(&self, path: &str) -> Value {
        self.lock().objects.get(path).cloned().unwrap_or_default()
    }

    fn bundle(&self) -> String {
        let text = self.get(MUTATING)["webhooks"][0]["clientConfig"]["caBundle"].take();
        decoded(&text)
    }

    fn secret(&self, file: &str) -> String {
        decoded(&self.get(SECRET)["data"][file])
    }
}

fn decoded(text: &Value) -> String {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

struct Replica {
    keeper: Keeper,
    dir: tempfile::TempDir,
}

impl Replica {
    fn new(cluster: &Cluster, variables: &[(&str, &str)]) -> Replica {
        let dir = tempfile::tempdir().unwrap();
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        let mut settings = Settings::new(|name| find(name).map(|(_, value)| (*value).to_owned())).unwrap();
        settings.cert_dir = dir.path().join("certs");
        let gates = Gates::defaults(Component::Manager);
        let clock = || NOW.parse().unwrap();
        Replica { keeper: Keeper::new(cluster.client(), settings, gates, clock), dir }
    }

    async fn sync(&self) {
        self.keeper.sync().await.unwrap();
    }

    fn served(&self) -> Artifacts {
        files::read(&self.dir.path().join("certs"))
    }
}

const BOTH: [&str; 2] =
    ["koordinator-mutating-webhook-configuration", "koordinator-validating-webhook-configuration"];

#[tokio::test(start_paused = true)]
async fn from_nothing_to_order() {
    let cluster = Cluster::installed();
    let replica = Replica::new(&cluster, &[]);
    let ready = replica.keeper.ready();
    assert!(!*ready.borrow());
    replica.sync().await;
    assert!(*ready.borrow(), "the first success opens readiness");
    assert_eq!(cluster.writes(), ["secrets", BOTH[0], BOTH[1]], "manager#14.2.H1");
    let secret = cluster.get(SECRET);
    let files: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    let want = ["ca-cert.pem", "ca-key.pem", "cert.pem", "key.pem", "tls.crt", "tls.key"];
    assert_eq!(files, want, "manager#14.2.H1");
    assert_eq!(cluster.bundle(), cluster.secret("ca-cert.pem"), "manager#14.2.H1");
    assert_eq!(replica.served().cert, cluster.secret("tls.crt"));

    replica.sync().await;
    assert!(cluster.writes().is_empty(), "manager#14.2.H2");

    // A second replica takes what is there.
    let second = Replica::new(&cluster, &[]);
    second.sync().await;
    assert!(cluster.writes().is_empty());
    assert_eq!(second.served(), replica.served(), "replicas share one authority and one certificate");
}

#[tokio::test(start_paused = true)]
async fn two_replicas_at_once() {
    let cluster = Cluster::installed();
    let theirs = Artifacts::default()
        .renew("koordinator-webhook-service.koordinator-system.svc", NOW.parse().unwrap(), 1)
        .unwrap();
    let other = Replica::new(&cluster, &[]);
    let secret = serde_json::to_value(other.keeper.secret(None, &theirs)).unwrap();
    cluster.lock().before_write = Some(Box::new(move |objects| {
        objects.insert(SECRET.to_owned(), secret);
    }));
    let replica = Replica::new(&cluster, &[]);
    replica.sync().await;
    assert_eq!(replica.served(), theirs, "the other one was faster");

    // Both find the certificate of no use: the one that writes second has to look again.
    let mut broken = cluster.get(SECRET);
    broken["data"]["key.pem"] = broken["data"]["ca-key.pem"].clone();
    let mut newer = broken.clone();
    newer["metadata"]["resourceVersion"] = json!("other");
    cluster.lock().put(SECRET, broken);
    cluster.lock().before_write = Some(Box::new(move |objects| {
        objects.insert(SECRET.to_owned(), newer);
    }));
    let error = replica.keeper.sync().await.unwrap_err().to_string();
    assert_eq!(error, "cannot update Secret koordinator-webhook-certs");
    replica.sync().await;
    assert_eq!(replica.served().ca_cert, theirs.ca_cert, "manager#14.2.H12");
    assert_ne!(replica.served().cert, theirs.cert, "manager#14.2.H12");
}

#[tokio::test(start_paused = true)]
async fn secrets_that_lost_something() {
    let cluster = Cluster::installed();
    let replica = Replica::new(&cluster, &[]);
    replica.sync().await;
    let first = replica.served();
    cluster.writes();

    let mut empty = cluster.get(SECRET);
    empty["data"] = json!(null);
    empty["metadata"]["labels"] = json!({"kept": "by us"});
    cluster.lock().put(SECRET, empty);
    replica.sync().await;
    assert_eq!(cluster.writes(), ["koordinator-webhook-certs", BOTH[0], BOTH[1]], "manager#14.2.H3");
    assert_ne!(replica.served().ca_cert, first.ca_cert, "manager#14.2.H3");
    assert_eq!(cluster.get(SECRET)["metadata"]["labels"], json!({"kept": "by us"}));
    let second = replica.served();

    cluster.lock().objects.remove(SECRET);
    replica.sync().await;
    assert_eq!(cluster.writes(), ["secrets", BOTH[0], BOTH[1]], "manager#14.2.H6");
    let third = replica.served();
    assert_ne!(third.ca_cert, second.ca_cert, "manager#14.2.H6");
    let bundle = cluster.bundle();
    assert!(
        bundle.starts_with(&third.ca_cert) && bundle.contains(&second.ca_cert),
        "both are trusted for a while"
    );

    let mut junk = cluster.get(SECRET);
    junk["data"]["tls.crt"] = json!("anVuaw==");
    cluster.lock().put(SECRET, junk);
    replica.sync().await;
    assert!(cluster.writes().is_empty(), "manager#14.2.H11");
    assert_eq!(replica.served(), third, "manager#14.2.H11");
    assert_eq!(cluster.secret("tls.crt"), "junk", "manager#14.2.H11");
}

/// The API server hears of a new authority before anybody shows it a certificate of that one.
#[tokio::test(start_paused = true)]
async fn a_new_authority_is_told_before_it_is_used() {
    let cluster = Cluster::installed();
    let replica = Replica::new(&cluster, &[]);
    replica.sync().await;
    let old = replica.served();
    cluster.lock().objects.remove(SECRET);
    let round = replica.keeper.sync();
    tokio::pin!(round);
    assert!(tokio::time::timeout(PROPAGATION / 2, &mut round).await.is_err());
    assert_eq!(replica.served(), old, "still the old certificate");
    assert!(
        cluster.bundle().contains(&old.ca_cert) && cluster.bundle() != old.ca_cert,
        "and both are trusted"
    );
    round.await.unwrap();
    assert_ne!(replica.served().ca_cert, old.ca_cert);
}

/// A Secret from a backup holds an authority that is long made, and new to the API server all the same.
#[tokio::test(start_paused = true)]
async fn an_old_authority_comes_back() {
    let cluster = Cluster::installed();
    let replica = Replica::new(&cluster, &[]);
    replica.sync().await;
    let present = replica.served();
    let name = "koordinator-webhook-service.koordinator-system.svc";
    let backup = Artifacts::default().renew(name, "2026-11-01T00:00:00Z".parse().unwrap(), 1).unwrap();
    let secret = serde_json::to_value(replica.keeper.secret(None, &backup)).unwrap();
    cluster.lock().put(SECRET, secret);
    replica.sync().await;
    assert_eq!(replica.served(), backup);
    assert_eq!(cluster.bundle(), format!("{}{}", backup.ca_cert, present.ca_cert), "whoever lags is trusted");
}

#[tokio::test(start_paused = true)]
async fn another_service_name() {
    let cluster = Cluster::installed();
    let first = Replica::new(&cluster, &[]);
    first.sync().await;
    cluster.writes();
    let renamed = Replica::new(&cluster, &[("SERVICE_NAME", "other")]);
    renamed.sync().await;
    assert_eq!(cluster.writes(), ["koordinator-webhook-certs", BOTH[0], BOTH[1]], "manager#14.2.H4");
    assert_eq!(renamed.served().ca_cert, first.served().ca_cert, "manager#14.2.H4");
    assert_ne!(renamed.served().cert, first.served().cert, "manager#14.2.H4");
}

#[tokio::test(start_paused = true)]
async fn a_configuration_is_missing() {
    let cluster = Cluster::installed();
    cluster.lock().objects.remove(VALIDATING);
    let replica = Replica::new(&cluster, &[]);
    let error = replica.keeper.sync().await.unwrap_err().to_string();
    let want = "not found ValidatingWebhookConfiguration koordinator-validating-webhook-configuration";
    assert_eq!(error, want, "manager#14.2.H9");
    assert_eq!(cluster.writes(), ["secrets"], "manager#14.2.H9: the other one is not touched");
    assert!(!*replica.keeper.ready().borrow());

    let cluster = Cluster::installed();
    let mut broken = cluster.get(MUTATING);
    broken["metadata"]["annotations"]["template"] = json!("oops");
    cluster.lock().put(MUTATING, broken);
    let replica = Replica::new(&cluster, &[]);
    assert!(replica.keeper.sync().await.is_err(), "manager#14.2.H7");
    assert_eq!(cluster.writes(), ["secrets"], "manager#14.2.H7");
}

/// Files of somebody else, in place of those that were there.
fn give(replica: &Replica, made: &Artifacts, ca_cert: Option<&str>) -> Vec<String> {
    let dir = replica.dir.path().join("certs");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("tls.crt"), &made.cert).unwrap();
    std::fs::write(dir.join("tls.key"), &made.key).unwrap();
    match ca_cert {
        Some(ca_cert) => std::fs::write(dir.join("ca.crt"), ca_cert).unwrap(),
        None => _ = std::fs::remove_file(dir.join("ca.crt")),
    }
    names(replica)
}

fn names(replica: &Replica) -> Vec<String> {
    let entries = std::fs::read_dir(replica.dir.path().join("certs")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A pair by its own authority, made some time ago.
fn made_elsewhere(at: &str) -> Artifacts {
    let name = "koordinator-webhook-service.koordinator-system.svc";
    Artifacts::default().renew(name, at.parse().unwrap(), 1).unwrap()
}

#[tokio::test(start_paused = true)]
async fn certificates_of_somebody_else() {
    let cluster = Cluster::installed();
    let replica = Replica::new(&cluster, &[("WEBHOOK_CERT_WRITER", "given")]);
    let error = replica.keeper.sync().await.unwrap_err();
    assert!(matches!(error, KeepError::Given(_)) && !*replica.keeper.ready().borrow(), "{error}");
    assert!(cluster.writes().is_empty(), "nothing is made in its place");

    // Days before its end: ours would have been renewed.
    let first = made_elsewhere("2016-11-21T00:00:00Z");
    let files = give(&replica, &first, Some(&first.ca_cert));
    replica.sync().await;
    assert!(*replica.keeper.ready().borrow());
    let served = replica.keeper.given().borrow().clone();
    assert_eq!((&served.cert, &served.key), (&first.cert, &first.key));
    assert_eq!(cluster.bundle(), first.ca_cert);
    assert_eq!(cluster.writes(), BOTH, "no Secret");
    replica.sync().await;
    assert!(cluster.writes().is_empty());

    // Renewed by another authority: the API server hears of it before it is served.
    let second = made_elsewhere("2026-11-16T00:00:00Z");
    give(&replica, &second, Some(&second.ca_cert));
    let round = replica.keeper.sync();
    tokio::pin!(round);
    assert!(tokio::time::timeout(PROPAGATION / 2, &mut round).await.is_err());
    assert_eq!(replica.keeper.given().borrow().cert, first.cert, "still the old certificate");
    assert_eq!(cluster.bundle(), format!("{}{}", second.ca_cert, first.ca_cert), "and both are trusted");
    round.await.unwrap();
    assert_eq!(replica.keeper.given().borrow().cert, second.cert);

    // A pair that is half written is not taken.
    std::fs::write(replica.dir.path().join("certs/tls.key"), &first.key).unwrap();
    assert!(replica.keeper.sync().await.is_err());
    assert_eq!(replica.keeper.given().borrow().key, second.key);
    assert_eq!(names(&replica), files, "nothing is written beside them");
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_is_told_by_somebody_else() {
    let cluster = Cluster::installed();
    let replica = Replica::new(&cluster, &[("WEBHOOK_CERT_WRITER", "given")]);
    let pair = made_elsewhere("2026-11-16T00:00:00Z");
    give(&replica, &pair, None);
    replica.sync().await;
    let mut injected = cluster.get(MUTATING);
    injected["webhooks"][0]["clientConfig"]["caBundle"] = json!("dGhlaXJz");
    cluster.lock().put(MUTATING, injected);
    cluster.writes();
    replica.sync().await;
    assert!(cluster.writes().is_empty());
    assert_eq!(cluster.bundle(), "theirs");
}

#[tokio::test(start_paused = true)]
async fn certificates_in_files() {
    let cluster = Cluster::installed();
    let replica = Replica::new(&cluster, &[("WEBHOOK_HOST", "10.0.0.5")]);
    replica.sync().await;
    assert_eq!(cluster.writes(), BOTH, "manager#14.2.H10: no Secret");
    let client = cluster.get(MUTATING)["webhooks"][0]["clientConfig"].take();
    assert_eq!(client["url"], json!("https://10.0.0.5:9876/mutate-pod"), "manager#14.2.H10");
    assert_eq!(replica.served().check("10.0.0.5", NOW.parse().unwrap()), Ok(()), "manager#14.2.H10");
    let first = replica.served();
    replica.sync().await;
    assert_eq!(replica.served(), first);
    assert!(cluster.writes().is_empty());
}
