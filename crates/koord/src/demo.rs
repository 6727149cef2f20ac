//! `koord demo`: scenarios in YAML, played on any cluster with running commentary, and cleaned up afterwards.
//!
//! `scenario` is what they are, `read` makes them from files, `world` and `expect` judge, `stage` plays.
//! The built-in one is `builtin/demo.yaml`: a list of parts, to which each component adds its own.

use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, FromArgMatches, Subcommand};
use koord_kit::shutdown::Shutdown;

mod expect;
mod live;
mod read;
mod scenario;
mod stage;
mod text;
mod world;

use crate::explain::Scheduler;
use crate::sandbox::Place;
use live::Live;
use read::Library;
pub(crate) use scenario::Scenario;
use stage::Stage;
use text::Voice;

/// The demonstration that is part of the program; the first file is the one that includes the others.
const BUILTIN: &[(&str, &str)] = &[
    ("demo.yaml", include_str!("demo/builtin/demo.yaml")),
    ("rollout.yaml", include_str!("demo/builtin/rollout.yaml")),
    ("load.yaml", include_str!("demo/builtin/load.yaml")),
    ("reservation.yaml", include_str!("demo/builtin/reservation.yaml")),
    ("colocation.yaml", include_str!("demo/builtin/colocation.yaml")),
    ("agent.yaml", include_str!("demo/builtin/agent.yaml")),
    ("priority.yaml", include_str!("demo/builtin/priority.yaml")),
    ("pending.yaml", include_str!("demo/builtin/pending.yaml")),
];

#[derive(Debug, Args)]
struct Demo {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play a scenario in namespaces of its own, and remove them afterwards
    Run(RunArgs),
    /// Print a file of the built-in scenario, to learn from and to change
    Show {
        /// Its name; without one the names are listed
        file: Option<String>,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// A scenario [default: the built-in one]
    file: Option<PathBuf>,
    /// The cluster [default: $KUBECONFIG, else the sandbox that runs]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where a koord-scheduler explains pods that wait [default: that of the sandbox that runs]
    #[arg(long, value_name = "URL")]
    scheduler: Option<String>,
    /// The scheduler for pods that name none
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    /// Leave everything in place afterwards
    #[arg(long)]
    keep: bool,
    /// Only read the scenario and say what is wrong with it
    #[arg(long)]
    check: bool,
    /// The folder of the sandbox, as for `koord sandbox`
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// How to play.
pub(crate) struct Play {
    pub(crate) kubeconfig: String,
    /// Where a scheduler explains.
    pub(crate) scheduler: Option<String>,
    pub(crate) scheduler_name: Option<String>,
    /// The sandbox that it is played on, where it is one.
    pub(crate) place: Option<Place>,
    /// Whether everything is left in place.
    pub(crate) keeps: bool,
}

/// The subcommand's own parser.
pub(crate) fn parser() -> clap::Command {
    Demo::augment_args(clap::Command::new("demo").about("Play a scenario on a cluster, with commentary"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help("Example: koord sandbox up --detach && koord demo run")
}

/// Runs what was parsed.
pub(crate) fn run(matches: &clap::ArgMatches) -> ExitCode {
    let result =
        Demo::from_arg_matches(matches).map_err(anyhow::Error::from).and_then(|demo| match demo.command {
            Command::Run(args) => args.run(),
            Command::Show { file } => show(file.as_deref()),
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell when standard error itself is gone.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A scenario from a file, or the built-in one.
pub(crate) fn load(file: Option<&Path>) -> Result<Scenario> {
    match file {
        Some(file) => read::read(&Library::Disk, file),
        None => read::read(&Library::Embedded(BUILTIN), Path::new(BUILTIN[0].0)),
    }
}

/// Plays a scenario until its end or until `stop`. Ok only if every step reached its state.
pub(crate) async fn play(scenario: &Scenario, how: &Play, stop: impl Future<Output = ()>) -> Result<()> {
    let live = Live::connect(&how.kubeconfig, &scenario.name, how.scheduler_name.clone()).await?;
    let scheduler = how.scheduler.as_deref().map(Scheduler::at).transpose()?;
    let mut stage = Stage::new(scenario, live, Voice::stdout(), scheduler, how.place.clone());
    let played = tokio::select! {
        played = stage.play() => played,
        () = stop => Err(anyhow!("interrupted")),
    };
    if !how.keeps {
        // A second Ctrl-C leaves at once.
        tokio::select! {
            cleaned = stage.clean_up() => cleaned?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted while cleaning up; the next run removes what is left"),
        }
    }
    let reached = stage.summary();
    played.and(reached)
}

impl RunArgs {
    fn run(self) -> Result<()> {
        // Mistakes in the file are told before anything is touched.
        let scenario = load(self.file.as_deref())?;
        if self.check {
            let steps: usize = scenario.parts.iter().map(|part| part.steps.len()).sum();
            Voice::stdout().say(&format!(
                "{}: {} parts, {steps} steps.",
                scenario.title,
                scenario.parts.len()
            ));
            return Ok(());
        }
        let how = self.find()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let shutdown = Shutdown::on_signals()?;
            let stop = shutdown.token();
            play(&scenario, &how, stop.cancelled()).await
        })
    }

    /// Deliberately not the user's ~/.kube/config: a scenario fills a cluster, which must have been named.
    fn find(&self) -> Result<Play> {
        let place = Place::new(self.dir.as_deref()).ok();
        let sandbox = place.as_ref().and_then(Place::running);
        let named = self.kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
        let is_set = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
        let kubeconfig = match (named, &sandbox) {
            (Some(named), _) => named,
            // An empty one means the environment.
            (None, _) if is_set => String::new(),
            (None, Some(sandbox)) => sandbox.kubeconfig.to_string_lossy().into_owned(),
            (None, None) => bail!(
                "no cluster to play on: give --kubeconfig FILE, set KUBECONFIG, or start one with `koord sandbox up`"
            ),
        };
        // A sandbox's scheduler knows nothing of another cluster's pods; then it answers that it knows no such pod.
        let scheduler = self.scheduler.clone().or_else(|| sandbox.and_then(|sandbox| sandbox.scheduler));
        let scheduler_name = self.scheduler_name.clone();
        Ok(Play { kubeconfig, scheduler, scheduler_name, place, keeps: self.keep })
    }
}

fn show(file: Option<&str>) -> Result<()> {
    let text = match file {
        None => BUILTIN.iter().map(|(name, _)| format!("{name}\n")).collect(),
        Some(wanted) => {
            let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
            let found = BUILTIN.iter().find(|(name, _)| *name == wanted);
            let unknown = || format!("there is no {wanted}; there are {}", names.join(", "));
            found.with_context(unknown)?.1.to_owned()
        }
    };
    Voice::stdout().say(&text);
    Ok(())
}
