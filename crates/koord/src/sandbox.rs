//! `koord sandbox`: a Kubernetes cluster in one process, to try things on.
//!
//! `up` runs it; every other command talks to the one that runs in the same folder (`place`).

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, FromArgMatches, Subcommand};
use http::Method;
use koord_sandbox::server::Restored;
use serde_json::Value;

mod koordlet;
mod manager;
mod node;
mod place;
mod remote;
mod save;
mod scheduler;
mod text;
mod up;

pub(crate) use place::{Place, Running};

/// A Kubernetes cluster in one process, with simulated nodes
#[derive(Debug, Args)]
pub(crate) struct Sandbox {
    #[command(subcommand)]
    command: Command,
    /// The folder of the sandbox; each can have one [default: $KOORD_SANDBOX_DIR, else koord/sandbox in the user's
    /// state folder]
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a sandbox and print how to reach it; Ctrl-C ends it
    Up(Box<up::Up>),
    /// Stop the sandbox that runs
    Down,
    /// Say what runs and what is in it
    Status {
        /// All counts, as JSON
        #[arg(short, long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
        output: String,
    },
    /// Empty the cluster: as it was after `up`, without what --from brought
    Reset,
    /// Add, list, cordon, fail, revive and remove nodes
    Node(node::NodeArgs),
    /// Bring objects in: a saved cluster, what `kubectl get -o json|yaml` wrote, or manifests
    Load {
        /// JSON or YAML; `-` reads standard input
        file: PathBuf,
    },
    /// Write every object of the cluster to a file, for `load` and `up --from`
    Save {
        file: PathBuf,
        /// Save another cluster, a real one too
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
}

/// The subcommand's own parser.
pub(crate) fn parser() -> clap::Command {
    Sandbox::augment_args(
        clap::Command::new("sandbox").about("A Kubernetes cluster in one process, with simulated nodes"),
    )
    .subcommand_required(true)
    .arg_required_else_help(true)
    .after_help("Example: koord sandbox up --nodes 100")
}

/// Runs what was parsed.
pub(crate) fn run(matches: &clap::ArgMatches) -> ExitCode {
    let result =
        Sandbox::from_arg_matches(matches).map_err(anyhow::Error::from).and_then(|sandbox| sandbox.run());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell when standard error itself is gone.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Sandbox {
    fn run(self) -> Result<()> {
        let place = Place::new(self.dir.as_deref())?;
        match self.command {
            Command::Up(up) => up.run(&place),
            command => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(command.run(&place))
            }
        }
    }
}

impl Command {
    async fn run(self, place: &Place) -> Result<()> {
        match self {
            Command::Up(_) => bail!("`up` has its own way"),
            Command::Down => down(place).await,
            Command::Status { output } => status(place, output == "json").await,
            Command::Reset => reset(place).await,
            Command::Node(args) => args.run(place).await,
            Command::Load { file } => load(place, &file).await,
            Command::Save { file, kubeconfig } => save_to(place, &file, kubeconfig).await,
        }
    }
}

async fn down(place: &Place) -> Result<()> {
    if !place.is_held() {
        return say(&format!("No sandbox runs in {}.", place.dir().display()));
    }
    let running = place.must_run()?;
    remote::order(place, Method::POST, "stop", Vec::new()).await?;
    for _ in 0..100 {
        if !place.is_held() {
            return say("The sandbox has stopped.");
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    bail!("process {} was told to stop and has not ended after 10 s; `kill {0}` ends it", running.pid)
}

async fn reset(place: &Place) -> Result<()> {
    let running = place.must_run()?;
    let answer = remote::order(place, Method::POST, "reset", Vec::new()).await?;
    if running.manager.is_some() {
        let kubeconfig = place.kubeconfig();
        let text = std::fs::read_to_string(&kubeconfig)
            .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        manager::reinstall(&text).await?;
    }
    say(&format!("The sandbox is empty again, with {} nodes.", answer["nodes"]))
}

async fn status(place: &Place, as_json: bool) -> Result<()> {
    let running = place.must_run()?;
    let mut answer = remote::order(place, Method::GET, "status", Vec::new()).await?;
    if as_json {
        answer["pid"] = running.pid.into();
        answer["kubeconfig"] = running.kubeconfig.to_string_lossy().into();
        answer["scheduler"] = running.scheduler.clone().into();
        answer["manager"] = running.manager.clone().into();
        answer["admission"] = running.admission.clone().into();
        answer["koordlets"] = serde_json::to_value(&running.koordlets)?;
        return say(&serde_json::to_string_pretty(&answer)?);
    }
    say(&text::status(place, &running, &answer))
}

async fn load(place: &Place, file: &std::path::Path) -> Result<()> {
    let body = read_input(file)?;
    let answer =
        remote::order(place, Method::POST, "load", body).await.with_context(|| file.display().to_string())?;
    let restored: Restored = serde_json::from_value(answer).context("the sandbox's answer cannot be read")?;
    say(&text::restored(&restored))?;
    match restored.refused.len() {
        0 => Ok(()),
        count => bail!("{count} manifests were refused"),
    }
}

async fn save_to(place: &Place, file: &std::path::Path, kubeconfig: Option<PathBuf>) -> Result<()> {
    let kubeconfig = match kubeconfig {
        Some(path) => path,
        None => {
            place.must_run()?;
            place.kubeconfig()
        }
    };
    let client = remote::client(&kubeconfig.to_string_lossy()).await?;
    let is_terminal = io::stderr().is_terminal();
    let mut progress = |kind: &str| {
        if is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[Ksaving {kind}");
        }
    };
    let saved = save::save(&client, file, &mut progress).await;
    if is_terminal {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    let saved = saved?;
    for failed in &saved.failed {
        let _ = writeln!(io::stderr(), "warning: {failed}");
    }
    say(&format!("Saved {} objects of {} kinds to {}.", saved.objects, saved.kinds, file.display()))
}

/// A file, or standard input for `-`.
fn read_input(file: &std::path::Path) -> Result<Vec<u8>> {
    if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::stdin(), &mut bytes).context("cannot read standard input")?;
        return Ok(bytes);
    }
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// A line or more to standard output; a reader that went away is not an error.
fn say(text: &str) -> Result<()> {
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// A number in an answer.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
