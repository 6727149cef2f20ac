//! `koord sandbox up`: starts a sandbox here, or in the background, or finds the one that runs.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use koord_kit::log::{self, LogOptions};
use koord_kit::shutdown::Shutdown;
use koord_sandbox::cluster::{Cluster, Options, Step, Wanted};
use koord_sandbox::dump::Dump;

use super::koordlet::Koordlets;
use super::manager::{self, Manager};
use super::place::{Held, Place, Running, quoted, write_kubeconfig};
use super::scheduler::Scheduler;
use super::{read_input, say, text};
use crate::demo::{self, Play, Scenario};

/// Nodes when nobody says how many.
const NODES_DEFAULT: u32 = 3;

#[derive(Debug, clap::Args)]
pub(super) struct Up {
    #[command(flatten)]
    pub(super) nodes: NodeFlags,
    /// Begin with this cluster: what `save` or `kubectl get -o json|yaml` wrote
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Also write the kubeconfig to this file
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The port to listen on [default: a free one]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Leave out the CustomResourceDefinitions of Koord
    #[arg(long)]
    no_crds: bool,
    /// Leave out the workload controllers
    #[arg(long)]
    no_controllers: bool,
    /// Who places pods: `koord`, or `none` to bring your own
    #[arg(long, value_name = "WHO", value_parser = ["koord", "none"], default_value = "koord")]
    scheduler: String,
    /// Who reclaims capacity and tells agents their strategies: `koord`, or `none` to bring your own
    #[arg(long, value_name = "WHO", value_parser = ["koord", "none"], default_value = "koord")]
    manager: String,
    /// Who runs on nodes with `koordlet=real`: `koord`, or `none` to bring your own
    #[arg(long, value_name = "WHO", value_parser = ["koord", "none"], default_value = "koord")]
    koordlet: String,
    /// How many times faster than real the pods' behaviour runs: run times, failures, usage
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Play a scenario once it is up, then stay; without a file the built-in one, which brings 100 nodes in 3 zones
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    demo: Option<Option<PathBuf>>,
    /// End after the demo, successfully only if every step reached its expected state
    #[arg(long, requires = "demo")]
    exit_after_demo: bool,
    /// Run in the background and return once the sandbox is ready
    #[arg(short, long, conflicts_with = "exit_after_demo")]
    detach: bool,
    /// More log lines, on standard error
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// The process that --detach leaves behind
    #[arg(long, hide = true)]
    detached: bool,
}

/// Which nodes to make.
#[derive(Debug, clap::Args)]
pub(super) struct NodeFlags {
    /// How many nodes [default: 3; none with --from]
    #[arg(long, value_name = "N", conflicts_with = "node_pools")]
    nodes: Option<u32>,
    /// What they are made of: cores=32,threads=2,sockets=2,memory=128Gi,gpus=8,label=disk=ssd,…; once for each pool
    #[arg(long, value_name = "FIELDS", conflicts_with = "node_pools")]
    node_shape: Vec<String>,
    /// A YAML list of pools, each with name, count and the fields of --node-shape
    #[arg(long, value_name = "FILE")]
    node_pools: Option<PathBuf>,
}

impl NodeFlags {
    /// As typed, with the file's text.
    pub(super) fn wanted(&self) -> Result<Wanted> {
        let file = match &self.node_pools {
            None => None,
            Some(file) => {
                let text =
                    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
                Some((file.display().to_string(), text))
            }
        };
        Ok(Wanted { nodes: self.nodes, shapes: self.node_shape.clone(), file })
    }
}

impl Up {
    pub(super) fn run(&self, place: &Place) -> Result<()> {
        // Mistakes in flags and files are told before anything starts.
        let scenario = self.demo.as_ref().map(|file| demo::load(file.as_deref())).transpose()?;
        let mut wanted = self.nodes.wanted()?;
        if wanted.is_nothing() && self.from.is_none() {
            match scenario.as_ref().map(|scenario| scenario.shapes.as_slice()) {
                None | Some([]) => wanted.nodes = Some(NODES_DEFAULT),
                Some(shapes) => wanted.shapes = shapes.to_vec(),
            }
        }
        let pools = wanted.pools().map_err(anyhow::Error::msg)?;
        let Some(held) = place.hold()? else { return self.find(place, scenario.as_ref()) };
        if self.detach {
            drop(held);
            return self.detach(place, scenario.as_ref());
        }
        let from = self.from.as_deref().map(read_dump).transpose()?;
        let listen = SocketAddr::from(([127, 0, 0, 1], self.port));
        let options = Options {
            listen,
            pools,
            from,
            with_koord_kinds: !self.no_crds,
            with_controllers: !self.no_controllers,
            speed: self.speed,
            hosts_dir: Some(place.nodes()),
            ..Options::default()
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(self.serve(place, options, scenario.as_ref(), held))
    }

    /// Runs until Ctrl-C, SIGTERM or `down`.
    async fn serve(
        &self,
        place: &Place,
        mut options: Options,
        scenario: Option<&Scenario>,
        _held: Held,
    ) -> Result<()> {
        let koordlets = Arc::new(Koordlets::default());
        if self.koordlet == "koord" {
            options.agents = Some(koordlets.clone());
        }
        log::init(&LogOptions { verbosity: self.verbosity, ..LogOptions::default() })?;
        let shutdown = Shutdown::on_signals()?;
        let begun = Instant::now();
        say("Starting a sandbox:")?;
        let mut progress = |what: Step| {
            let _ = say(&step(&describe(&what), begun));
        };
        let stop = shutdown.token();
        let cluster = tokio::select! {
            started = Cluster::start(options, &mut progress) => started?,
            () = stop.cancelled() => return say("Stopped while starting."),
        };
        for (node, address) in koordlets.addresses().await {
            say(&step(&format!("koordlet of {node} at {address}"), begun))?;
        }
        let (scheduler, manager, admission) = self.start_components(place, &cluster, begun).await?;
        let mut kubeconfigs = vec![place.kubeconfig()];
        if let Some(path) = &self.kubeconfig {
            kubeconfigs.push(std::path::absolute(path)?);
        }
        let content = cluster.kubeconfig().to_owned();
        for path in &kubeconfigs {
            write_kubeconfig(path, &content)?;
        }
        let running = Running {
            pid: std::process::id(),
            server: format!("https://{}", cluster.address()),
            kubeconfig: kubeconfigs.last().cloned().unwrap_or_default(),
            scheduler: scheduler.as_ref().map(Scheduler::address),
            manager: manager.as_ref().map(Manager::address),
            admission,
            koordlets: koordlets.addresses().await,
        };
        koordlets.announce(place, &running).await?;
        say(&format!(
            "Ready after {:.2} s. Kubeconfig: {}",
            begun.elapsed().as_secs_f64(),
            quoted(&running.kubeconfig)
        ))?;
        let stopped = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = cluster.stop_ordered() => {}
            }
        };
        let shown = self.show(place, &running, scenario, stopped).await;
        koordlets.fall_silent().await;
        place.withdraw(&kubeconfigs, &content);
        if let Some(manager) = manager {
            manager.stop().await;
        }
        if let Some(scheduler) = scheduler {
            scheduler.stop().await;
        }
        cluster.stop().await;
        say("The sandbox has stopped; nothing of it is left.")?;
        shown
    }

    /// Starts what runs beside the API server; with the manager comes the address of its webhooks.
    async fn start_components(
        &self,
        place: &Place,
        cluster: &Cluster,
        begun: Instant,
    ) -> Result<(Option<Scheduler>, Option<Manager>, Option<String>)> {
        let scheduler = match self.scheduler.as_str() {
            "none" => None,
            _ => {
                let started = Scheduler::start(cluster.kubeconfig()).await?;
                let _ = say(&step(&format!("scheduler at {}", started.address()), begun));
                Some(started)
            }
        };
        // It lives by kinds of Koord.
        if self.no_crds || self.manager == "none" {
            return Ok((scheduler, None, None));
        }
        let manager = Manager::start(cluster.kubeconfig(), manager::certificates(place.dir())).await?;
        let _ = say(&step(&format!("manager, metrics at {}", manager.address()), begun));
        let admission = manager.admission().await?;
        let _ = say(&step(&format!("admission webhooks at {admission}"), begun));
        Ok((scheduler, Some(manager), Some(admission)))
    }

    /// From ready to the end: the demo where one is wanted, what to type next, and waiting.
    async fn show(
        &self,
        place: &Place,
        running: &Running,
        scenario: Option<&Scenario>,
        stopped: impl Future<Output = ()>,
    ) -> Result<()> {
        // In the background nobody reads; there the process that was called plays the demo.
        if self.detached {
            stopped.await;
            return Ok(());
        }
        let mut stopped = std::pin::pin!(stopped);
        let mut has_ended = false;
        if let Some(scenario) = scenario {
            let ended = async {
                stopped.as_mut().await;
                has_ended = true;
            };
            let played = demo::play(scenario, &self.play(place, running, true), ended).await;
            if self.exit_after_demo || has_ended {
                return played;
            }
            if let Err(error) = played {
                say(&format!("The demo: {error:#}"))?;
            }
        }
        say(&text::next_steps(place, running, true, commands(scenario)))?;
        stopped.await;
        Ok(())
    }

    fn play(&self, place: &Place, running: &Running, keeps: bool) -> Play {
        Play {
            kubeconfig: running.kubeconfig.to_string_lossy().into_owned(),
            scheduler: running.scheduler.clone(),
            scheduler_name: None,
            place: Some(place.clone()),
            keeps,
        }
    }

    /// Plays on a sandbox of another process, which stays as it is when this one is interrupted.
    fn play_there(&self, place: &Place, running: &Running, scenario: Option<&Scenario>) -> Result<()> {
        let Some(scenario) = scenario else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let played = runtime.block_on(async {
            let stop = Shutdown::on_signals()?.token();
            demo::play(scenario, &self.play(place, running, !self.exit_after_demo), stop.cancelled()).await
        });
        match played {
            Err(error) if !self.exit_after_demo => say(&format!("The demo: {error:#}")),
            played => played,
        }
    }

    /// A second `up` finds the first.
    fn find(&self, place: &Place, scenario: Option<&Scenario>) -> Result<()> {
        let running = wait_for(place, || place.is_held().then_some(()).context("the other one ended"))?;
        say(&format!(
            "A sandbox runs already in {} (process {}): {}\nKubeconfig: {}",
            place.dir().display(),
            running.pid,
            running.server,
            quoted(&running.kubeconfig)
        ))?;
        if !self.nodes.wanted()?.is_nothing()
            || self.from.is_some()
            || self.kubeconfig.is_some()
            || self.port != 0
        {
            say("It stays as it is: the flags of this command have had no effect.")?;
        }
        self.play_there(place, &running, scenario)?;
        say(&text::next_steps(place, &running, false, commands(scenario)))
    }

    /// Starts the same command in the background and shows its progress until it is ready.
    fn detach(&self, place: &Place, scenario: Option<&Scenario>) -> Result<()> {
        let log = place.log();
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let program = std::env::current_exe().context("cannot find this program itself")?;
        let words = std::env::args_os().skip(1).filter(|word| word != "--detach" && word != "-d");
        let mut command = Command::new(program);
        command.args(words).arg("--detached").stdin(Stdio::null());
        command.stdout(file.try_clone()?).stderr(file).process_group(0);
        let mut child = command.spawn().context("cannot start the sandbox's process")?;
        let mut shown = Follow { file: File::open(&log)? };
        let running = wait_for(place, || {
            shown.show()?;
            match child.try_wait()? {
                None => Ok(()),
                Some(status) => {
                    shown.show()?;
                    bail!("the sandbox ended with {status}; its log is {}", log.display())
                }
            }
        })?;
        shown.show()?;
        self.play_there(place, &running, scenario)?;
        say(&text::next_steps(place, &running, false, commands(scenario)))
    }
}

/// What a demonstration offers to try.
fn commands(scenario: Option<&Scenario>) -> &[String] {
    scenario.map_or(&[], |scenario| &scenario.next)
}

/// Above this a second holds more of a pod's life than a status can tell.
const SPEED_MAX: f64 = 100_000.0;

fn speed(text: &str) -> Result<f64, String> {
    let accepted = || format!("accepted are factors above 0 and up to {SPEED_MAX}");
    text.parse().ok().filter(|speed| *speed > 0.0 && *speed <= SPEED_MAX).ok_or_else(accepted)
}

/// A dump that can be cut into objects; the objects themselves are judged later.
fn read_dump(file: &std::path::Path) -> Result<Dump> {
    let read = Dump::parse(read_input(file)?).and_then(|dump| dump.items().map(drop).map(|()| dump));
    read.with_context(|| file.display().to_string())
}

/// Waits until the sandbox of this place is ready; `check` says when waiting is in vain.
fn wait_for(place: &Place, mut check: impl FnMut() -> Result<()>) -> Result<Running> {
    loop {
        if let Some(running) = place.running() {
            return Ok(running);
        }
        check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Shows a growing file.
struct Follow {
    file: File,
}

impl Follow {
    fn show(&mut self) -> Result<()> {
        let mut text = Vec::new();
        let at = self.file.stream_position()?;
        self.file.read_to_end(&mut text)?;
        // Whole lines only; the rest comes with the next look.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.file.seek(io::SeekFrom::Start(at + u64::try_from(whole).unwrap_or(0)))?;
        let _ = io::stdout().write_all(&text[..whole]);
        Ok(())
    }
}

/// A line of progress: what has come up, and when.
fn step(what: &str, begun: Instant) -> String {
    format!("  {what:<60}{:>6.2} s", begun.elapsed().as_secs_f64())
}

fn describe(step: &Step) -> String {
    match step {
        Step::Server(address) => format!("API server at {address}"),
        Step::Kinds(count) => format!("{count} kinds of Koord"),
        Step::Restored(outcome) => text::restored(outcome).trim_end().replace('\n', "\n  "),
        Step::Controllers => "controllers".to_owned(),
        Step::Nodes(1) => "1 node".to_owned(),
        Step::Nodes(count) => format!("{count} nodes"),
    }
}
