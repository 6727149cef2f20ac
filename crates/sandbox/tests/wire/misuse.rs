//! Clients that break off, stop halfway or come in crowds: nobody else notices.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Cluster, TOKEN};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use futures::future::join_all;
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::Kubeconfig;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Watches at once.
const CROWD: usize = 2000;

/// Far more than an answer takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection with nothing sent yet.
async fn connect(cluster: &Cluster) -> TlsStream<TcpStream> {
    let kubeconfig = Kubeconfig::from_yaml(cluster.server.kubeconfig()).unwrap();
    let known = kubeconfig.clusters[0].cluster.as_ref().unwrap();
    let authority = STANDARD.decode(known.certificate_authority_data.as_ref().unwrap()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = TcpStream::connect(cluster.server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

fn head(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n{more}\r\n")
}

#[tokio::test]
async fn clients_that_break_off_harm_nobody() {
    let cluster = Cluster::start().await;
    for _ in 0..20 {
        drop(TcpStream::connect(cluster.server.address()).await.unwrap());
        let mut plain = TcpStream::connect(cluster.server.address()).await.unwrap();
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        // In the middle of the head, of the body, and with more announced than sent.
        for sent in [
            "POST /api".to_owned(),
            head("POST", MAPS, "content-type: application/json\r\ncontent-length: 1000\r\n")
                + "{\"metadata\"",
            head("GET", &format!("{MAPS}?watch=1"), ""),
        ] {
            let mut stream = connect(&cluster).await;
            stream.write_all(sent.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
    }
    assert_eq!(cluster.get(MAPS).await.code, 200);
    assert_eq!(cluster.get(MAPS).await.json["items"], json!([]), "half an object is none");
}

#[tokio::test]
async fn who_closes_the_line_halfway_is_let_go() {
    let cluster = Cluster::start().await;
    let mut stream = connect(&cluster).await;
    // A watch without a word to say: only the closed line can end it.
    stream.write_all(head("GET", &format!("{MAPS}?watch=1"), "").as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream.get_mut().0.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the server keeps the line open");
}

/// As many as wanted, or as this process may open: each watch takes a file at both ends, and other tests run beside.
fn crowd() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    CROWD.min(files.saturating_sub(400) / 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_idle_watches_hears_of_one_object() {
    let cluster = Cluster::start().await;
    let open = |_| async {
        let request = Request::get(format!("{MAPS}?watch=1&resourceVersion=0")).body(Body::empty()).unwrap();
        let response = cluster.client.send(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().into_data_stream()
    };
    let mut watches = Vec::new();
    // In portions: one connection carries a limited number of streams at once.
    for portion in 0..crowd() / 100 {
        watches.extend(join_all((0..100).map(|i| open(portion * 100 + i))).await);
    }
    assert_eq!(cluster.post(MAPS, json!({"metadata": {"name": "news"}})).await.code, 201);
    let heard = join_all(watches.iter_mut().map(|watch| tokio::time::timeout(LIMIT, watch.next()))).await;
    for frame in heard {
        let text = frame.unwrap().unwrap().unwrap();
        assert!(String::from_utf8_lossy(&text).contains("\"name\":\"news\""));
    }
}
