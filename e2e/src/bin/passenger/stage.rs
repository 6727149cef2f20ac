//! A node to play on: its groups, its cluster, and koordlet as a process that can be started, killed and asked.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::{Client, Config};
use tokio::time::Instant;

use crate::node::{NODE, PodPlan, Running, World};
use crate::replay;
use crate::tree::{IDLE, Tree};

/// Far more than it takes; only a machine that is badly overloaded gets there.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Gates that are off by default.
pub(crate) const GATES: &str = "AuditEvents=true,AuditEventsHTTPHandler=true,BECPUEvict=true,BEMemoryEvict=true,\
                                CgroupReconcile=true";

/// Everything on one node.
pub(crate) struct Stage {
    pub(crate) tree: Tree,
    pub(crate) world: World,
    dir: tempfile::TempDir,
    koordlet: Option<Child>,
    /// koordlets started so far; each has a log of its own.
    runs: usize,
    pods: usize,
    /// What the tree was like when the first koordlet began.
    first: Vec<(PathBuf, String)>,
}

impl Stage {
    pub(crate) async fn new() -> Result<Stage> {
        let dir = tempfile::tempdir()?;
        let is_machine_ours = std::env::var_os("KOORD_MACHINE_SHAPE").is_some();
        let tree = Tree::new(dir.path(), is_machine_ours)?;
        if is_machine_ours {
            run("ip", &["link", "set", "lo", "up"])?;
        }
        let world = World::new().await?;
        fs::write(dir.path().join("kubeconfig"), world.kubeconfig())?;
        Ok(Stage { tree, world, dir, koordlet: None, runs: 0, pods: 0, first: Vec::new() })
    }

    /// Where everything of this node lies that is no group.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A pod with an idle container and its sandbox, of which kubelet tells. Answers its group's name and the
    /// container's process too.
    pub(crate) async fn pod(&mut self, plan: PodPlan<'_>) -> Result<Actor> {
        self.pods += 1;
        let (pod, told) = self.world.make_pod(plan, self.pods).await?;
        let group = self.tree.pod(plan.kube_qos, &pod.uid);
        self.tree.make(&group)?;
        let sandbox = self.tree.container(&group, &format!("{:064x}", 0xa000 + self.pods));
        self.tree.start_container(&sandbox, None, IDLE)?;
        let container = self.tree.container(&group, &pod.id);
        let process = self.tree.start_container(&container, None, IDLE)?;
        self.world.tell(told);
        Ok(Actor { pod, group, container, process })
    }

    /// Kubelet has ended a pod.
    pub(crate) fn end(&mut self, actor: &Actor) -> Result<()> {
        self.tree.remove(&actor.group)?;
        self.world.forget(&actor.pod.uid);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join(format!("koordlet-{}.log", self.runs))
    }

    fn command(&self, more: &[&str]) -> Result<Command> {
        let dir = self.dir.path().display();
        let mut command = Command::new(std::env::current_exe()?);
        let flags = format!(
            "koordlet -addr=127.0.0.1:0 -kubeconfig={dir}/kubeconfig -cgroup-root-dir={} -sys-fs-root-dir={dir}/fs \
             -var-run-root-dir={dir}/run -run-root-dir={dir}/run -var-lib-kubelet-dir={dir}/kubelet \
             -tsdb-path={dir}/series -audit-log-dir={dir}/audit -prediction-checkpoint-filepath={dir}/models \
             -kubelet-sync-interval=1s -node-topology-sync-interval=1s -kubelet-sync-timeout=60s -only-evict-by-api=true \
             -cpu-evict-cool-time-seconds=2 -logging-format=json -vmodule=apply=5",
            self.tree.root.display()
        );
        command.args(flags.split_whitespace()).args(more);
        command.env("NODE_NAME", NODE).env("agent_mode", "hostMode");
        Ok(command)
    }

    /// Starts koordlet, with some flags more.
    pub(crate) fn start(&mut self, more: &[&str]) -> Result<()> {
        ensure!(self.koordlet.is_none(), "it runs already");
        if self.runs == 0 {
            self.first = self.tree.picture();
        }
        self.runs += 1;
        let gates = format!("-feature-gates={GATES}");
        let mut command = self.command(&[&gates])?;
        command.args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.log())?);
        self.koordlet = Some(command.spawn()?);
        Ok(())
    }

    /// Starts it and waits until it acts.
    pub(crate) async fn start_and_wait(&mut self, more: &[&str]) -> Result<()> {
        self.start(more)?;
        self.until("koordlet is ready", async |stage| Ok(stage.page("/readyz").await.is_ok())).await
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let mut koordlet = self.koordlet.take().context("it does not run")?;
        koordlet.kill()?;
        koordlet.wait()?;
        Ok(())
    }

    /// Looks back at what it did so far, and ends it.
    pub(crate) async fn judge_and_kill(&mut self) -> Result<()> {
        self.judge().await?;
        self.kill()
    }

    /// `koordlet --clean-up`, whose writes keep the rule as well.
    pub(crate) fn clean_up(&mut self) -> Result<()> {
        self.runs += 1;
        let mut command = self.command(&["-clean-up"])?;
        let status = command.stdout(Stdio::null()).stderr(File::create(self.log())?).status()?;
        ensure!(status.success(), "clean-up: {status}\n{}", self.tail());
        self.replay()?;
        Ok(())
    }

    /// What koordlet's HTTP server says.
    pub(crate) async fn page(&self, path: &str) -> Result<String> {
        let log = fs::read_to_string(self.log())?;
        let serving = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut serving = serving.filter(|line| line["msg"] == "serving");
        let line = serving.next().context("it does not serve yet")?;
        let address = line["bound"].as_str().context("it serves nowhere")?;
        let mut config = Config::new(format!("http://{address}").parse()?);
        // An empty list, for the machine has no certificates to look for.
        config.root_cert = Some(Vec::new());
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(Client::try_from(config)?.request_text(request).await?)
    }

    /// No write was refused, no strategy panicked, and every write kept children within their parents.
    pub(crate) async fn judge(&self) -> Result<()> {
        let metrics = self.page("/metrics").await?;
        let bad = |line: &&str| {
            let is_write = line.starts_with("koordlet_resource_update_duration_milliseconds_count");
            let is_turn = line.starts_with("koordlet_qos_strategy");
            (is_write || is_turn) && line.contains("\"failed\"") && !line.ends_with(" 0")
        };
        let bad: Vec<&str> = metrics.lines().filter(bad).collect();
        ensure!(bad.is_empty(), "{}\n{}", bad.join("\n"), self.tail());
        ensure!(self.replay()? > 0, "koordlet wrote nothing");
        Ok(())
    }

    /// Every write so far kept children within their parents. Answers how many there were.
    fn replay(&self) -> Result<usize> {
        let logs: Vec<String> = (1..=self.runs)
            .map(|run| fs::read_to_string(self.dir.path().join(format!("koordlet-{run}.log"))))
            .collect::<Result<_, _>>()?;
        replay::check(&self.first, &logs.concat())
    }

    /// The end of koordlet's log.
    fn tail(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Looks until it is so.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut is_so: impl AsyncFnMut(&mut Stage) -> Result<bool>,
    ) -> Result<()> {
        let asked = Instant::now();
        while !is_so(self).await.with_context(|| what.to_owned())? {
            if let Some(status) = self.koordlet.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("{what}: koordlet ended: {status}\n{}", self.tail());
            }
            if asked.elapsed() > PATIENCE {
                let picture: Vec<String> = self
                    .tree
                    .picture()
                    .iter()
                    .map(|(path, text)| format!("{}: {text}", path.display()))
                    .collect();
                bail!("{what}: not within {} s\n{}\n{}", PATIENCE.as_secs(), picture.join("\n"), self.tail());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        println!("{what}: after {} s", asked.elapsed().as_secs());
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.koordlet.is_some() {
            // It may have ended by itself.
            let _ = self.kill();
        }
    }
}

/// A pod on the stage.
pub(crate) struct Actor {
    pub(crate) pod: Running,
    pub(crate) group: String,
    pub(crate) container: String,
    /// The first process of its container.
    pub(crate) process: u32,
}

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The text of a file.
pub(crate) fn text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    Ok(fs::read_to_string(path).with_context(|| path.display().to_string())?.trim().to_owned())
}
