//! `koord explain`: asks a running scheduler why pods wait and a running manager what it did to pods and nodes, and
//! prints what they say.
//!
//! Both have the answer as data and render it; nothing is judged here. [`peer`] is who is asked.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::{Args, FromArgMatches, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use crate::sandbox::{Place, Running};

mod peer;

pub(crate) use peer::Scheduler;
use peer::{Koordlet, Manager};

/// Why a pod is where it is, or nowhere; why a node lends what it lends
#[derive(Debug, Args)]
struct Explain {
    #[command(subcommand)]
    command: Command,
    /// Where the scheduler serves HTTP [default: that of the sandbox that runs, else http://127.0.0.1:10251]
    #[arg(long, value_name = "URL", global = true)]
    scheduler: Option<String>,
    /// Where the manager serves metrics [default: that of the sandbox that runs, else http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", global = true)]
    manager: Option<String>,
    /// Where the node's koordlet serves metrics, to be asked about the node's CPU budget of this second [default: the
    /// node's own one in the sandbox that runs, where it has a real one]
    #[arg(long, value_name = "URL", global = true)]
    koordlet: Option<String>,
    /// The folder of the sandbox, as for `koord sandbox`
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    /// For people, or all the data
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Text, global = true)]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One pod: its place in the queue, what each node lacks, what would help, and which profiles touched it
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
    /// One node: what it lends to batch and mid pods, worked out line by line, and who set each parameter
    Node {
        #[arg(value_parser = object_name)]
        name: String,
    },
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
    Explain::augment_args(
        clap::Command::new("explain")
            .about("Ask why pods wait, what admission made of them, what nodes lend"),
    )
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
        let asked = self.find()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(async {
            match &self.command {
                Command::Pod { pod } => asked.pod(pod, self.output).await,
                Command::Reservation { name } => asked.scheduler?.reservation(name, self.output).await,
                Command::Pending => asked.scheduler?.pending(self.output).await,
                Command::Node { name } => {
                    let own = asked.koordlets.get(name).cloned();
                    let koordlet = self.koordlet.clone().or(own);
                    asked.node(name, koordlet.as_deref(), self.output).await
                }
            }
        })?;
        match writeln!(io::stdout(), "{}", answer.trim_end()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(error).context("cannot write to standard output")
            }
            _ => Ok(()),
        }
    }

    /// Whom flags name, else those of the sandbox that runs, else those that would be on this machine.
    fn find(&self) -> Result<Asked> {
        // Without a folder there is no sandbox to ask for; that is no reason to stop. Nor is a sandbox one to be mixed
        // with what flags name, which is another cluster.
        let is_named = self.scheduler.is_some() || self.manager.is_some();
        let place = Place::new(self.dir.as_deref()).ok().filter(|_| !is_named);
        let lacks = |running: &Running, what: &str| {
            anyhow!("the sandbox at {} runs without a {what}; --{what} URL names another", running.server)
        };
        Ok(match place.and_then(|place| place.running()) {
            Some(running) => Asked {
                scheduler: match &running.scheduler {
                    Some(url) => Scheduler::at(url),
                    None => Err(lacks(&running, "scheduler")),
                },
                manager: match &running.manager {
                    Some(url) => Manager::at(url),
                    None => Err(lacks(&running, "manager")),
                },
                koordlets: running.koordlets,
            },
            // What somebody typed wrong is told at once, whoever is asked.
            None => Asked {
                scheduler: Ok(self.scheduler.as_deref().map_or_else(Scheduler::usual, Scheduler::at)?),
                manager: Ok(self.manager.as_deref().map_or_else(Manager::usual, Manager::at)?),
                koordlets: BTreeMap::new(),
            },
        })
    }
}

/// Whom to ask, or why there is nobody.
struct Asked {
    scheduler: Result<Scheduler>,
    manager: Result<Manager>,
    /// Koordlets by node, as far as they are known.
    koordlets: BTreeMap<String, String>,
}

/// What a node's agent does this second, where it can be asked; else what the manager knows of the node.
pub(crate) async fn node(name: &str, running: &Running) -> Result<String> {
    if let Some(url) = running.koordlets.get(name) {
        return Koordlet::at(url)?.node(name, Format::Text).await;
    }
    let url = running.manager.as_deref().context("there is no manager to ask")?;
    Manager::at(url)?.node(name, Format::Text).await
}

impl Asked {
    /// What the manager says, and what the node's own agent says where it is named.
    async fn node(self, name: &str, koordlet: Option<&str>, format: Format) -> Result<String> {
        let lends = async { self.manager?.node(name, format).await };
        let Some(url) = koordlet else { return lends.await };
        let koordlet = Koordlet::at(url)?;
        let (lends, budget) = tokio::join!(lends, koordlet.node(name, format));
        match format {
            Format::Text => match (lends, budget) {
                (Ok(lends), Ok(budget)) => Ok(format!("{}\n{budget}", lends.trim_end())),
                (Ok(lends), Err(error)) => Ok(format!(
                    "{}\nBest-effort CPU now: not known: {}",
                    lends.trim_end(),
                    in_one_line(&error)
                )),
                (Err(error), Ok(budget)) => {
                    Ok(format!("Lends: not known: {}\n{budget}", in_one_line(&error)))
                }
                (Err(error), Err(_)) => Err(error),
            },
            Format::Json => Ok(serde_json::to_string_pretty(&json!({
                "node": name,
                "lends": lends.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok()),
                "koordlet": budget.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok()),
            }))?),
        }
    }

    /// Both know a part of a pod's story.
    async fn pod(self, pod: &PodKey, format: Format) -> Result<String> {
        let PodKey { namespace, name } = pod;
        let scheduling = async { self.scheduler?.pod(namespace, name, format).await };
        let admission = async { self.manager?.pod(namespace, name, format).await };
        let (scheduling, admission) = tokio::join!(scheduling, admission);
        match format {
            Format::Text => both_texts(scheduling, admission),
            Format::Json => both_data(&format!("{namespace}/{name}"), scheduling, admission),
        }
    }
}

/// One after the other; in place of a part that is missing one line that says why.
fn both_texts(scheduling: Result<String>, admission: Result<String>) -> Result<String> {
    match (scheduling, admission) {
        (Ok(scheduling), Ok(admission)) => Ok(format!("{}\n{admission}", scheduling.trim_end())),
        (Ok(scheduling), Err(error)) => {
            Ok(format!("{}\nProfiles: not known: {}", scheduling.trim_end(), in_one_line(&error)))
        }
        (Err(error), Ok(admission)) => {
            Ok(format!("Scheduling: not known: {}\n{admission}", in_one_line(&error)))
        }
        (Err(error), Err(_)) => Err(error),
    }
}

/// What the scheduler says, and what the manager says in its field `admission`.
fn both_data(pod: &str, scheduling: Result<String>, admission: Result<String>) -> Result<String> {
    let mut data: Map<String, Value> = match (scheduling, &admission) {
        (Ok(text), _) => serde_json::from_str(&text).context("the scheduler's answer is no JSON object")?,
        (Err(error), Err(_)) => return Err(error),
        (Err(error), Ok(_)) => Map::from_iter([
            ("pod".to_owned(), json!(pod)),
            ("schedulingUnknown".to_owned(), json!(in_one_line(&error))),
        ]),
    };
    let (field, told) = match admission {
        Ok(text) => ("admission", serde_json::from_str(&text).context("the manager's answer is no JSON")?),
        Err(error) => ("admissionUnknown", json!(in_one_line(&error))),
    };
    data.insert(field.to_owned(), told);
    Ok(serde_json::to_string_pretty(&data)?)
}

fn in_one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().collect::<Vec<_>>().join(" ")
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
    fn a_part_that_is_missing_takes_one_line() {
        let (told, refused) =
            (|text: &str| Ok(text.to_owned()), || Err(anyhow!("nobody\nanswers").context("no")));
        for (scheduling, admission, want) in [
            (told("waits\n"), told("Profiles: …\n"), Ok("waits\nProfiles: …\n")),
            (told("waits\n"), refused(), Ok("waits\nProfiles: not known: no: nobody answers")),
            (
                refused(),
                told("Profiles: …\n"),
                Ok("Scheduling: not known: no: nobody answers\nProfiles: …\n"),
            ),
            (refused(), Err(anyhow!("other")), Err("no")),
        ] {
            let found = both_texts(scheduling, admission).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), want);
        }
        for (scheduling, admission, want) in [
            (
                told(r#"{"pod":"a/b"}"#),
                told(r#"{"profiles":[]}"#),
                Ok(json!({"pod": "a/b", "admission": {"profiles": []}})),
            ),
            (
                told(r#"{"pod":"a/b"}"#),
                refused(),
                Ok(json!({"pod": "a/b", "admissionUnknown": "no: nobody answers"})),
            ),
            (
                refused(),
                told(r#"{"profiles":[]}"#),
                Ok(
                    json!({"pod": "a/b", "schedulingUnknown": "no: nobody answers", "admission": {"profiles": []}}),
                ),
            ),
            (refused(), refused(), Err("no".to_owned())),
        ] {
            let found = both_data("a/b", scheduling, admission).map_err(|error| error.to_string());
            let found = found.map(|text| serde_json::from_str::<Value>(&text).unwrap());
            assert_eq!(found, want);
        }
    }
}
