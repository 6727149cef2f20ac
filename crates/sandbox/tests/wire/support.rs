//! A served cluster and a client for it.

use std::collections::HashMap;

use http::{Method, Request};
use koord_sandbox::server::tls::Authority;
use koord_sandbox::server::{Api, Server, ServerConfig, User};
use koord_sandbox::store::Limits;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

/// The bearer token every test cluster knows.
pub(crate) const TOKEN: &str = "open-sesame";

pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) async fn start() -> Cluster {
        Cluster::with_limits(Limits::default()).await
    }

    pub(crate) async fn with_limits(limits: Limits) -> Cluster {
        let api = Api::new(limits);
        let authority = Authority::generate().unwrap();
        let user = User { name: "robot".into(), groups: vec!["system:authenticated".into()] };
        let config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            authority,
            tokens: HashMap::from([(TOKEN.to_owned(), user)]),
            control: None,
        };
        let server = Server::start(api, config).await.unwrap();
        let client = Client::try_from(client_config(&server).await).unwrap();
        Cluster { server, client }
    }

    /// One request, as raw as it gets.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.as_bytes().to_vec())).unwrap();
        let response = self.client.send(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Reply { code: head.status.as_u16(), headers: head.headers, json, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, &[("content-type", "application/json")], &body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        self.send(Method::PUT, path, &[("content-type", "application/json")], &body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Reply {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.send(Method::DELETE, path, &[("content-type", "application/json")], &body).await
    }

    /// `kind`: `json-patch+json`, `merge-patch+json`, `strategic-merge-patch+json`, `apply-patch+yaml`.
    pub(crate) async fn patch(&self, path: &str, kind: &str, body: Value) -> Reply {
        let media = format!("application/{kind}");
        self.send(Method::PATCH, path, &[("content-type", &media)], &body.to_string()).await
    }

    /// A watch that ends by itself, read to its end: the events.
    pub(crate) async fn watch(&self, path: &str) -> Vec<Value> {
        let reply = self.get(path).await;
        assert_eq!(reply.code, 200, "{path}: {}", reply.text);
        reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) async fn client_config(server: &Server) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(server.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    // Refusals are what many tests look for.
    config.default_retry = false;
    config
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) json: Value,
    pub(crate) text: String,
}

impl Reply {
    /// The reply, which must have this code.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text);
        self.json
    }

    pub(crate) fn message(&self) -> &str {
        self.json["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn version(&self) -> String {
        self.json["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    }
}
