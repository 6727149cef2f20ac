//! Who is asked: a running scheduler or manager, over the plain HTTP that both serve.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http::{Request, StatusCode, Uri, header};
use koord_kit::client::service::RetryPolicy;
use koord_kit::client::{ClientConnection, ClientOptions, client};
use kube::client::Body;
use serde_json::Value;

use super::Format;

/// Somebody waits at a terminal.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a component is called, and where it is found by default on its own machine.
struct Component {
    name: &'static str,
    port: u16,
}

const SCHEDULER: Component = Component { name: "scheduler", port: 10251 };
const MANAGER: Component = Component { name: "manager", port: 8080 };
const KOORDLET: Component = Component { name: "koordlet", port: 9316 };

impl Component {
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// A scheduler that can be asked.
pub(crate) struct Scheduler(Peer);

impl Scheduler {
    /// Nothing is sent yet.
    pub(crate) fn at(url: &str) -> Result<Scheduler> {
        Peer::at(&SCHEDULER, url).map(Scheduler)
    }

    /// The one that would be here if nobody said otherwise.
    pub(super) fn usual() -> Result<Scheduler> {
        Scheduler::at(&SCHEDULER.url())
    }

    pub(crate) async fn pod(&self, namespace: &str, name: &str, format: Format) -> Result<String> {
        self.0.ask(&format!("/apis/v1/explain/pod/{namespace}/{name}"), format).await
    }

    pub(super) async fn reservation(&self, name: &str, format: Format) -> Result<String> {
        self.0.ask(&format!("/apis/v1/explain/reservation/{name}"), format).await
    }

    pub(super) async fn pending(&self, format: Format) -> Result<String> {
        self.0.ask("/apis/v1/explain/pending", format).await
    }
}

/// A manager that can be asked.
pub(super) struct Manager(Peer);

impl Manager {
    /// Nothing is sent yet.
    pub(super) fn at(url: &str) -> Result<Manager> {
        Peer::at(&MANAGER, url).map(Manager)
    }

    /// The one that would be here if nobody said otherwise.
    pub(super) fn usual() -> Result<Manager> {
        Manager::at(&MANAGER.url())
    }

    pub(super) async fn pod(&self, namespace: &str, name: &str, format: Format) -> Result<String> {
        self.0.ask(&format!("/apis/v1/explain/pod/{namespace}/{name}"), format).await
    }

    pub(super) async fn node(&self, name: &str, format: Format) -> Result<String> {
        self.0.ask(&format!("/apis/v1/explain/node/{name}"), format).await
    }
}

/// A node's agent that can be asked.
pub(super) struct Koordlet(Peer);

impl Koordlet {
    /// Nothing is sent yet.
    pub(super) fn at(url: &str) -> Result<Koordlet> {
        Peer::at(&KOORDLET, url).map(Koordlet)
    }

    pub(super) async fn node(&self, name: &str, format: Format) -> Result<String> {
        self.0.ask(&format!("/apis/v1/explain/node/{name}"), format).await
    }
}

struct Peer {
    component: &'static Component,
    url: Uri,
}

impl Peer {
    fn at(component: &'static Component, url: &str) -> Result<Peer> {
        let wanted = || format!("--{} {url}: expected a URL such as {}", component.name, component.url());
        let uri: Uri = url.parse().with_context(wanted)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.authority().is_none() {
            bail!(wanted());
        }
        Ok(Peer { component, url: uri })
    }

    /// Made anew for each question: there are few, and the other side may have gone and come in between.
    fn client(&self) -> Result<kube::Client> {
        let connection = ClientConnection { qps: -1.0, ..ClientConnection::default() };
        let options = ClientOptions {
            retry: RetryPolicy::NEVER,
            timeout: TIMEOUT,
            ..ClientOptions::new("koord-explain", connection)
        };
        Ok(client(kube::Config::new(self.url.clone()), &options)?)
    }

    async fn ask(&self, path: &str, format: Format) -> Result<String> {
        let accept = match format {
            Format::Text => "text/plain",
            Format::Json => "application/json",
        };
        let Component { name, port } = self.component;
        let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty())?;
        let response = self.client()?.send(request).await.with_context(|| {
            format!(
                "no {name} answers at {}; --{name} URL names another (for one in a cluster: \
                 kubectl port-forward -n koordinator-system deployment/koord-{name} {port})",
                self.url
            )
        })?;
        let status = response.status();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let is_as_asked =
            content_type.and_then(|value| value.to_str().ok()).is_some_and(|value| value.starts_with(accept));
        let bytes = response.into_body().collect_bytes().await;
        let bytes = bytes.with_context(|| format!("the {name}'s answer broke off"))?;
        let text = String::from_utf8_lossy(&bytes);
        match (status.is_success(), format) {
            (false, _) => Err(self.refused(status, &text)),
            (true, _) if !is_as_asked => Err(self.stranger()),
            (true, Format::Json) => Ok(readable(&text)),
            (true, Format::Text) => Ok(text.into_owned()),
        }
    }

    fn refused(&self, status: StatusCode, body: &str) -> anyhow::Error {
        let message = message(body);
        match (status, &message) {
            (StatusCode::NOT_FOUND, Some(message)) => anyhow!("{message}"),
            (StatusCode::NOT_FOUND, None) => self.stranger(),
            (StatusCode::SERVICE_UNAVAILABLE, Some(message)) if message.contains("not leader") => {
                anyhow!("{}: {message}; ask the replica that leads", self.url)
            }
            _ => anyhow!("{} answered {status}: {}", self.url, message.as_deref().unwrap_or(body).trim()),
        }
    }

    fn stranger(&self) -> anyhow::Error {
        anyhow!("{} answers, but explains nothing: is it koord-{}?", self.url, self.component.name)
    }
}

/// What a refusal of ours says.
fn message(body: &str) -> Option<String> {
    let parsed: Value = serde_json::from_str(body).ok()?;
    parsed["message"].as_str().map(|text| text.trim().to_owned())
}

/// JSON over several lines; anything else as it is.
fn readable(text: &str) -> String {
    let parsed: Result<Value, _> = serde_json::from_str(text);
    parsed.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_in_their_own_words() {
        let manager = Manager::usual().unwrap().0;
        for (status, body, want) in [
            (404, r#"{"message": "cannot find node x"}"#, "cannot find node x"),
            (
                404,
                "404 page not found\n",
                "http://127.0.0.1:8080/ answers, but explains nothing: is it koord-manager?",
            ),
            (
                503,
                r#"{"message": "the instance is not leader"}"#,
                "http://127.0.0.1:8080/: the instance is not leader; ask the replica that leads",
            ),
            (
                503,
                "still initialising\n",
                "http://127.0.0.1:8080/ answered 503 Service Unavailable: still initialising",
            ),
            (500, "", "http://127.0.0.1:8080/ answered 500 Internal Server Error: "),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(manager.refused(status, body).to_string(), want);
        }
    }

    #[test]
    fn addresses_are_checked() {
        for bad in ["", "10251", "localhost:10251", "ftp://h:1", "http://"] {
            assert!(Scheduler::at(bad).is_err() && Manager::at(bad).is_err(), "{bad:?}");
        }
        let error = Manager::at("8080").err().unwrap().to_string();
        assert_eq!(error, "--manager 8080: expected a URL such as http://127.0.0.1:8080");
    }
}
