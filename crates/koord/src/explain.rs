//! `koord explain`: asks a running scheduler why pods wait, and prints what it says.
//!
//! The scheduler has the answer as data and renders it; nothing is judged here.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, FromArgMatches, Subcommand, ValueEnum};
use http::{Request, StatusCode, Uri, header};
use koord_kit::client::service::RetryPolicy;
use koord_kit::client::{ClientConnection, ClientOptions, client};
use kube::client::Body;
use serde_json::Value;

use crate::sandbox::Place;

/// Where koord-scheduler answers by default on its own machine.
const SCHEDULER_DEFAULT: &str = "http://127.0.0.1:10251";

/// Somebody waits at a terminal.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a pod is where it is, or nowhere
#[derive(Debug, Args)]
struct Explain {
    #[command(subcommand)]
    command: Command,
    /// Where the scheduler serves HTTP [default: that of the sandbox that runs, else http://127.0.0.1:10251]
    #[arg(long, value_name = "URL", global = true)]
    scheduler: Option<String>,
    /// The folder of the sandbox, as for `koord sandbox`
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    /// For people, or all the data
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Text, global = true)]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One pod: its place in the queue, what each node lacks, what would help
    Pod {
        /// NAMESPACE/NAME; without a namespace it is `default`
        #[arg(value_name = "NS/NAME", value_parser = pod_key)]
        pod: PodKey,
    },
    /// One Reservation: why it waits, or what it holds, for whom and how long
    Reservation {
        #[arg(value_parser = object_name)]
        name: String,
    },
    /// All pods that wait, grouped by cause, the cheapest help first
    Pending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PodKey {
    namespace: String,
    name: String,
}

fn pod_key(text: &str) -> Result<PodKey, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    match is_name(namespace) && is_name(name) {
        true => Ok(PodKey { namespace: namespace.to_owned(), name: name.to_owned() }),
        false => Err("expected NAMESPACE/NAME, such as shop/web-0".to_owned()),
    }
}

fn object_name(text: &str) -> Result<String, String> {
    if is_name(text) { Ok(text.to_owned()) } else { Err("expected a name, such as web-peak".to_owned()) }
}

fn is_name(part: &str) -> bool {
    !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
}

/// The subcommand's own parser.
pub(crate) fn parser() -> clap::Command {
    Explain::augment_args(clap::Command::new("explain").about("Ask the scheduler why pods wait"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Example: koord explain pending")
}

/// Runs what was parsed.
pub(crate) fn run(matches: &clap::ArgMatches) -> ExitCode {
    let result =
        Explain::from_arg_matches(matches).map_err(anyhow::Error::from).and_then(|explain| explain.run());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell when standard error itself is gone.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Explain {
    fn run(self) -> Result<()> {
        let scheduler = self.find_scheduler()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(async {
            match &self.command {
                Command::Pod { pod } => scheduler.pod(&pod.namespace, &pod.name, self.output).await,
                Command::Reservation { name } => scheduler.reservation(name, self.output).await,
                Command::Pending => scheduler.pending(self.output).await,
            }
        })?;
        match writeln!(io::stdout(), "{}", answer.trim_end()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(error).context("cannot write to standard output")
            }
            _ => Ok(()),
        }
    }

    fn find_scheduler(&self) -> Result<Scheduler> {
        if let Some(url) = &self.scheduler {
            return Scheduler::at(url);
        }
        // Without a folder there is no sandbox to ask for; that is no reason to stop.
        match Place::new(self.dir.as_deref()).ok().and_then(|place| place.running()) {
            Some(running) => match running.scheduler {
                Some(url) => Scheduler::at(&url),
                None => bail!(
                    "the sandbox at {} runs without a scheduler; --scheduler URL names another",
                    running.server
                ),
            },
            None => Scheduler::at(SCHEDULER_DEFAULT),
        }
    }
}

/// A scheduler that can be asked.
pub(crate) struct Scheduler {
    url: Uri,
}

impl Scheduler {
    /// Nothing is sent yet.
    pub(crate) fn at(url: &str) -> Result<Scheduler> {
        let wanted = || format!("--scheduler {url}: expected a URL such as {SCHEDULER_DEFAULT}");
        let uri: Uri = url.parse().with_context(wanted)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.authority().is_none() {
            bail!(wanted());
        }
        Ok(Scheduler { url: uri })
    }

    /// Made anew for each question: there are few, and the scheduler may have gone and come in between.
    fn client(&self) -> Result<kube::Client> {
        let connection = ClientConnection { qps: -1.0, ..ClientConnection::default() };
        let options = ClientOptions {
            retry: RetryPolicy::NEVER,
            timeout: TIMEOUT,
            ..ClientOptions::new("koord-explain", connection)
        };
        Ok(client(kube::Config::new(self.url.clone()), &options)?)
    }

    pub(crate) async fn pod(&self, namespace: &str, name: &str, format: Format) -> Result<String> {
        self.ask(&format!("/apis/v1/explain/pod/{namespace}/{name}"), format).await
    }

    async fn reservation(&self, name: &str, format: Format) -> Result<String> {
        self.ask(&format!("/apis/v1/explain/reservation/{name}"), format).await
    }

    pub(crate) async fn pending(&self, format: Format) -> Result<String> {
        self.ask("/apis/v1/explain/pending", format).await
    }

    async fn ask(&self, path: &str, format: Format) -> Result<String> {
        let accept = match format {
            Format::Text => "text/plain",
            Format::Json => "application/json",
        };
        let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty())?;
        let response = self.client()?.send(request).await.with_context(|| {
            format!(
                "no scheduler answers at {}; --scheduler URL names another (for one in a cluster: \
                 kubectl port-forward -n koordinator-system deployment/koord-scheduler 10251)",
                self.url
            )
        })?;
        let status = response.status();
        let is_json = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.starts_with("application/json"));
        let bytes = response.into_body().collect_bytes().await.context("the scheduler's answer broke off")?;
        let text = String::from_utf8_lossy(&bytes);
        match status.is_success() {
            true if is_json => Ok(readable(&text)),
            true => Ok(text.into_owned()),
            false => Err(self.refused(status, &text)),
        }
    }

    fn refused(&self, status: StatusCode, body: &str) -> anyhow::Error {
        let said = said(body);
        match status {
            StatusCode::NOT_FOUND if !said.is_empty() => anyhow!("{said}"),
            StatusCode::NOT_FOUND => {
                anyhow!("{} answers, but explains nothing: is it koord-scheduler?", self.url)
            }
            StatusCode::SERVICE_UNAVAILABLE if said.contains("not leader") => {
                anyhow!("{}: {said}; ask the replica that leads", self.url)
            }
            _ => anyhow!("{} answered {status}: {said}", self.url),
        }
    }
}

/// What a refusal says, in whichever form.
fn said(body: &str) -> String {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    parsed["message"].as_str().unwrap_or(body).trim().to_owned()
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
    fn pods_are_named_as_people_do() {
        let key = |namespace: &str, name: &str| PodKey { namespace: namespace.into(), name: name.into() };
        assert_eq!(pod_key("shop/web-0"), Ok(key("shop", "web-0")));
        assert_eq!(pod_key("web.a"), Ok(key("default", "web.a")));
        for bad in ["", "/", "shop/", "/web", "a/b/c", "Shop/web", "a/b?c"] {
            assert!(pod_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refusals_are_told_in_their_own_words() {
        for (body, want) in [
            (r#"{"message": "the instance is not leader"}"#, "the instance is not leader"),
            ("still initialising\n", "still initialising"),
            ("", ""),
        ] {
            assert_eq!(said(body), want);
        }
    }

    #[test]
    fn addresses_are_checked() {
        for bad in ["", "10251", "localhost:10251", "ftp://h:1", "http://"] {
            assert!(Scheduler::at(bad).is_err(), "{bad:?}");
        }
    }
}
