use std::net::SocketAddr;
use std::time::Duration;

use koord_engine::engine::dump::Dumps;
use koord_kit::http::{Check, PeerCertificates, serve};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::trust::Trust;
use super::*;
use crate::clock::Clock;
use crate::driver::{Hands, Parts, start};
use crate::fake::{FakeApi, FakeBrain, Reply};
use crate::flags::{self, Request as Words};
use crate::monitor::Monitor;

struct Nobody;

impl Hands for Nobody {
    fn take(&mut self, _: koord_engine::engine::Command) {}
}

struct Scene {
    address: SocketAddr,
    standing: Arc<Standing>,
    switches: Arc<Switches>,
    stop: CancellationToken,
}

async fn scene(guard: Option<koord_kit::http::Guard>) -> Scene {
    let (load, switches, metrics) =
        (Arc::new(Load::default()), Arc::new(Switches::default()), SchedulerMetrics::default());
    let (_, outcomes) = mpsc::unbounded_channel();
    let parts = Parts {
        brain: FakeBrain::default(),
        hands: Nobody,
        outcomes,
        load: load.clone(),
        clock: Clock::start(),
        monitor: Monitor::new(flags::Monitor {
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            drop_unhandled_after: Duration::from_secs(5),
        }),
        switches: switches.clone(),
        metrics: metrics.clone(),
        watches: 0,
    };
    let stop = CancellationToken::new();
    let (desk, _thread) = start(parts, stop.clone(), stop.clone()).unwrap();
    let registry = Arc::new(Metrics::new());
    let health = Arc::new(Health::default());
    health.add(Check::ready("sched-handler-sync", || Err("waiting".to_owned())));
    let standing = Arc::new(Standing::default());
    let pages = Pages {
        desk,
        standing: standing.clone(),
        health,
        metrics: SchedulerMetrics::new(&registry),
        registry,
        load,
        switches: switches.clone(),
        log: None,
        configz: Arc::new(json!({"componentconfig": {"Parallelism": 16}})),
        with_profiling: true,
    };
    let mut router = pages.router();
    if let Some(guard) = guard {
        router = router.guarded(guard);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, router, None, stop.clone()));
    Scene { address, standing, switches, stop }
}

impl Scene {
    async fn ask(&self, method: &str, path: &str, head: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{head}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "", "").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_says_so_and_a_leader_answers() {
    let scene = scene(None).await;
    let follower = (503, r#"{"message":"the instance is not leader"}"#.to_owned());
    assert_eq!(scene.get("/apis/v1/queue").await, follower);
    assert_eq!(scene.get("/metrics/resources").await, (200, String::new()));
    scene.standing.set_leads(true);
    assert_eq!(scene.get("/apis/v1/queue").await.0, 503, "still initialising");
    scene.standing.set_listed();
    for (path, status, body) in [
        ("/apis/v1/nodes/n", 200, r#"{"node":"n"}"#),
        ("/apis/v1/nodes/x", 404, r#"{"message":"cannot find node x"}"#),
        ("/apis/v1/queue", 200, r#""Queue""#),
        ("/apis/v1/explain/pending", 200, r#""ExplainPending(Data)""#),
        ("/apis/v1/explain/pod/ns/p", 200, r#""ExplainPod { namespace: \"ns\", name: \"p\", form: Data }""#),
        ("/apis/v1/plugins/LoadAwareScheduling/node/n", 200, r#""Load(\"n\")""#),
        ("/apis/v1/explain/reservation/r", 200, r#""ExplainReservation { name: \"r\", form: Data }""#),
        ("/apis/v1/plugins/Reservation/nodeReservations/n", 200, r#""NodeReservations(\"n\")""#),
        (
            "/apis/v1/plugins/Reservation/reservationSelectorIndex?detail=true",
            200,
            r#""ReservationIndex { with_names: true }""#,
        ),
        ("/apis/v1/plugins/X", 404, r#"{"message":"no service plugins/X"}"#),
        ("/metrics/resources", 200, "kube_pod_resource_request{} 1\n"),
        ("/configz", 200, r#"{"componentconfig":{"Parallelism":16}}"#),
    ] {
        assert_eq!(scene.get(path).await, (status, body.to_owned()), "{path}");
    }
    let told = scene.ask("GET", "/apis/v1/explain/pending", "accept: text/plain\r\n", "").await;
    assert_eq!(told, (200, "nothing waits".to_owned()));
    let (_, services) = scene.get("/apis/v1/__services__").await;
    assert!(services.starts_with(r#"{"GET":["/apis/v1/__services__","#), "{services}");
    assert_eq!(scene.ask("POST", "/apis/v1/queue", "", "").await.0, 405);
    scene.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_numbers_are_served() {
    let scene = scene(None).await;
    assert_eq!(scene.get("/healthz").await, (200, "ok".to_owned()));
    assert_eq!(scene.get("/livez").await, (200, "ok".to_owned()));
    assert_eq!(scene.get("/readyz").await.0, 500);
    let (status, page) = scene.get("/metrics").await;
    assert!(status == 200 && page.contains("scheduler_pending_pods{queue=\"active\"} 0"), "{page}");
    let (_, slis) = scene.get("/metrics/slis").await;
    assert!(slis.contains("kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n"), "{slis}");
    assert!(
        slis.contains("kubernetes_healthcheck{name=\"sched-handler-sync\",type=\"readyz\"} 0\n"),
        "{slis}"
    );
    scene.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn switches_are_changed_with_put_alone() {
    let scene = scene(None).await;
    for (method, path, body, status, said) in [
        // scheduler-core#9.12.X5
        ("PUT", "/debug/flags/s", "3", 200, "successfully set debugTopNScores to 3"),
        ("PUT", "/debug/flags/s", "x", 400, "failed set debugTopNScores x: "),
        // scheduler-core#9.12.X6
        ("PUT", "/debug/flags/f", "1", 200, "successfully set debugFilterFailure to 1"),
        ("PUT", "/debug/flags/f", "yes", 400, "failed set debugFilterFailure yes: "),
        ("PUT", "/debug/flags/d", "true", 200, "successfully set debugFilterFailure to true"),
        ("PUT", "/debug/flags/db", "x", 400, "failed set debugFilterFailure x: "),
        ("GET", "/debug/flags/s", "", 406, "unrecognized http method"),
        ("GET", "/debug/pprof/profile", "", 404, "no page /debug/pprof/profile"),
        ("PUT", "/debug/flags/v", "4", 400, "failed set klog.logging.verbosity 4: "),
        ("GET", "/debug/flags/", "", 200, "<a href=\"s\">"),
        ("GET", "/debug/flags/q", "", 404, "no flag q"),
    ] {
        let (found, text) = scene.ask(method, path, "", body).await;
        assert!(found == status && text.contains(said), "{method} {path} {body}: {found} {text}");
    }
    assert_eq!(scene.switches.dumps(), Dumps { top_scores: 3, refusals: true, diagnosis: true });
    scene.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secure_port_asks_the_cluster() {
    let api = FakeApi::new(|seen| {
        let answer = if seen.line.contains("tokenreviews") {
            let known = seen.body["spec"]["token"] == "good";
            json!({"status": {"authenticated": known, "user": {"username": "prom", "groups": ["g"]}}})
        } else {
            let spec = &seen.body["spec"];
            let allowed = spec["user"] == "prom" && spec["nonResourceAttributes"]["path"] == "/metrics";
            json!({"spec": {}, "status": {"allowed": allowed}})
        };
        Reply::Answer(201, answer.to_string())
    });
    let scene = scene(Some(access(&api).0.guard())).await;
    for (path, token, status, said) in [
        ("/healthz", "", 200, "ok"),
        ("/metrics", "", 403, "User \\\"system:anonymous\\\" cannot get path \\\"/metrics\\\""),
        ("/metrics", "bad", 401, "Unauthorized"),
        ("/metrics", "good", 200, "scheduler_pending_pods"),
        ("/configz", "good", 403, "User \\\"prom\\\" cannot get path"),
    ] {
        let head =
            if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        let (found, text) = scene.ask("GET", path, &head, "").await;
        assert!(found == status && text.contains(said), "{path} {token}: {found} {text}");
    }
    let asked = api.seen().len();
    let head = "authorization: Bearer good\r\n";
    assert_eq!(scene.ask("GET", "/metrics", head, "").await.0, 200);
    assert_eq!(api.seen().len(), asked, "answers are remembered");
    scene.stop.cancel();
}

/// By the default flags, and what it knows of authorities.
fn access(api: &FakeApi) -> (Access, Arc<Trust>) {
    let Ok(Words::Run(options)) = flags::parse(Vec::<String>::new()) else { panic!("flags") };
    let trust = Arc::new(Trust::new(&options.authentication, api.client()));
    let flags = (options.authentication, options.authorization);
    (Access::new(api.client(), api.client(), trust.clone(), flags.0, flags.1), trust)
}

/// An authority's certificate as PEM, and one that it gave to a client.
fn certificates(name: &str, group: &str) -> (String, PeerCertificates) {
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, key);
    let mut client = rcgen::CertificateParams::default();
    client.distinguished_name = rcgen::DistinguishedName::new();
    client.distinguished_name.push(rcgen::DnType::CommonName, name);
    client.distinguished_name.push(rcgen::DnType::OrganizationName, group);
    client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let shown = client.signed_by(&key, &issuer).unwrap().der().clone();
    (pem, PeerCertificates(Arc::new([shown])))
}

/// A request for the metrics, with what its sender shows.
fn asked(certificates: Option<&PeerCertificates>, headers: &[(&str, &str)]) -> http::request::Parts {
    let mut request = Request::get("/metrics");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut parts = request.body(()).unwrap().into_parts().0;
    if let Some(shown) = certificates {
        parts.extensions.insert(shown.clone());
    }
    parts
}

#[tokio::test]
async fn proxies_say_for_whom_they_ask() {
    let (bundle, proxy) = certificates("front", "proxies");
    let (_, stranger) = certificates("front", "proxies");
    let (clients, own) = certificates("prom", "monitoring");
    let names = Arc::new(std::sync::Mutex::new(json!(["front"])));
    let told = names.clone();
    let api = FakeApi::new(move |seen| {
        let spec = &seen.body["spec"];
        let answer = if seen.line.contains("configmaps/extension-apiserver-authentication") {
            json!({"metadata": {}, "data": {
                "client-ca-file": clients,
                "requestheader-client-ca-file": bundle,
                "requestheader-allowed-names": told.lock().unwrap().to_string(),
                "requestheader-username-headers": r#"["X-Remote-User"]"#,
                "requestheader-group-headers": r#"["X-Remote-Group"]"#,
                "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#}})
        } else {
            // The proxy's word for the user counts, with all that it says of her.
            let is_ann = spec["user"] == "ann"
                && spec["groups"] == json!(["a", "b", "system:authenticated"])
                && spec["extra"] == json!({"acme.com/team": ["x"]});
            json!({"spec": {}, "status": {"allowed": is_ann || spec["user"] == "prom"}})
        };
        Reply::Answer(200, answer.to_string())
    });
    let (access, trust) = access(&api);
    let guard = access.guard();
    let ann = [
        ("x-remote-user", "ann"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-acme.com%2fteam", "x"),
    ];
    let judge = async |certificates: Option<&PeerCertificates>, headers: &[(&str, &str)]| {
        guard(&asked(certificates, headers)).await.map(|refusal| refusal.status().as_u16())
    };
    trust.learn().await.unwrap();
    for (name, certificates, headers, want) in [
        ("a proxy for somebody", Some(&proxy), &ann[..], None),
        ("a proxy for nobody", Some(&proxy), &[], Some(401)),
        ("somebody who is no proxy", Some(&stranger), &ann, Some(401)),
        ("a client says who it is, and is not believed to be another", Some(&own), &ann, None),
        ("headers alone", None, &ann, Some(403)),
    ] {
        assert_eq!(judge(certificates, headers).await, want, "{name}");
    }
    *names.lock().unwrap() = json!(["other"]);
    trust.learn().await.unwrap();
    assert_eq!(judge(Some(&proxy), &ann).await, Some(401), "another name is asked for");
    *names.lock().unwrap() = json!([]);
    trust.learn().await.unwrap();
    assert_eq!(judge(Some(&proxy), &ann).await, None, "any name will do");
    *names.lock().unwrap() = json!({});
    assert!(trust.learn().await.is_err());
    assert_eq!(judge(Some(&proxy), &ann).await, None, "what was known stays known");
}

#[tokio::test]
async fn certificates_of_the_clusters_authority_are_good() {
    let (bundle, prom) = certificates("prom", "monitoring");
    let (_, stranger) = certificates("prom", "monitoring");
    let api = FakeApi::new(move |seen| {
        let spec = &seen.body["spec"];
        let answer = if seen.line.contains("configmaps/extension-apiserver-authentication") {
            json!({"metadata": {}, "data": {"client-ca-file": bundle}})
        } else if seen.line.contains("tokenreviews") {
            json!({"status": {"authenticated": spec["token"] == "good", "user": {"username": "prom"}}})
        } else {
            let allowed = spec["user"] == "prom"
                && spec["groups"].as_array().unwrap().contains(&json!("system:authenticated"));
            json!({"spec": {}, "status": {"allowed": allowed}})
        };
        Reply::Answer(200, answer.to_string())
    });
    let (access, trust) = access(&api);
    let guard = access.guard();
    let judge = async |certificates: Option<&PeerCertificates>, token: &str| {
        let token = format!("Bearer {token}");
        let headers = [("authorization", token.as_str())];
        let headers = if token.len() > 7 { &headers[..] } else { &[] };
        guard(&asked(certificates, headers)).await.map(|refusal| refusal.status().as_u16())
    };
    assert_eq!(judge(Some(&prom), "").await, Some(403), "the authority is not known yet");
    trust.learn().await.unwrap();
    for (name, certificates, token, want) in [
        ("a good certificate", Some(&prom), "", None),
        ("a stranger's", Some(&stranger), "", Some(401)),
        ("a stranger's, and a good token", Some(&stranger), "good", None),
        ("a stranger's, and a bad token", Some(&stranger), "bad", Some(401)),
        ("nothing", None, "", Some(403)),
    ] {
        assert_eq!(judge(certificates, token).await, want, "{name}");
    }
}
