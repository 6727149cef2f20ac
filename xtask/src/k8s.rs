//! `cargo xtask k8s`: a real control plane at hand, from the same kit that tests use.
//!
//! `up` starts a second xtask (`serve`) that owns the control plane and outlives the first. It
//! holds a lock on its run folder while it lives, so whether it runs is never a guess, and the
//! kit's watchdog clears up however it ends.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a command line")]

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use koord_testkit::{Binaries, ControlPlane, KUBERNETES_VERSION, Program, Version, cache_dir, wait_until};
use rustix::process::{Pid, Signal, kill_process, setsid};
use serde_json::{Value, json};

const A_MOMENT: Duration = Duration::from_secs(2);

/// A real Kubernetes control plane on this machine
#[derive(Debug, clap::Subcommand)]
pub(crate) enum K8s {
    /// Start a control plane that stays until `down`; prints the line that points kubectl to it
    Up(Up),
    /// Stop it and delete its data
    Down(Place),
    /// Say what runs and where
    Status(Place),
    /// Run kubectl against it, as administrator
    Kubectl(Kubectl),
    /// Only build the programs into the user cache
    Build(Release),
    /// What `up` leaves running
    #[command(hide = true)]
    Serve(Up),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The run folder; each folder can have one control plane [default: run/k8s in the cache]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    /// Kubernetes version
    #[arg(long, value_name = "VERSION", default_value = KUBERNETES_VERSION)]
    version: Version,
    /// etcd version [default: the one that this Kubernetes names]
    #[arg(long, value_name = "VERSION")]
    etcd: Option<Version>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    #[command(flatten)]
    release: Release,
    /// Also run kube-scheduler
    #[arg(long)]
    scheduler: bool,
    /// Install the CRDs in this file or folder; may be given several times [default: deploy/crds]
    #[arg(long, value_name = "PATH")]
    crds: Vec<PathBuf>,
    /// Install no CRDs at all
    #[arg(long, conflicts_with = "crds")]
    no_crds: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Kubectl {
    #[command(flatten)]
    place: Place,
    /// Arguments for kubectl
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<std::ffi::OsString>,
}

/// Builds what the tests start, unless it is there.
pub(crate) fn build_for_tests() -> Result<()> {
    build(&Release { version: KUBERNETES_VERSION.parse()?, etcd: None })
}

pub(crate) fn run(command: K8s) -> Result<()> {
    match command {
        K8s::Up(up) => start(&up),
        K8s::Down(place) => stop(&place),
        K8s::Status(place) => status(&place),
        K8s::Kubectl(kubectl) => run_kubectl(&kubectl),
        K8s::Build(release) => build(&release),
        K8s::Serve(up) => serve(&up),
    }
}

/// The run folder and the files in it.
struct Run {
    dir: PathBuf,
    /// What to add to a command so that it means this folder.
    flag: String,
}

impl Place {
    fn run(&self) -> Result<Run> {
        let (dir, flag) = match &self.dir {
            None => (cache_dir()?.join("run/k8s"), String::new()),
            Some(dir) => {
                let dir = std::path::absolute(dir).with_context(|| format!("--dir {}", dir.display()))?;
                let flag = format!(" --dir {}", quoted(&dir));
                (dir, flag)
            }
        };
        Ok(Run { dir, flag })
    }
}

impl Run {
    fn state(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("serve.log")
    }

    fn cluster(&self) -> PathBuf {
        self.dir.join("cluster")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.cluster().join("kubeconfig")
    }

    fn lock_file(&self) -> PathBuf {
        self.dir.join("koord-k8s.lock")
    }

    /// The process that holds this folder, if any.
    fn holder(&self) -> Result<Option<Pid>> {
        let path = self.lock_file();
        let Ok(file) = File::options().read(true).write(true).open(&path) else { return Ok(None) };
        match file.try_lock_shared() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => bail!("cannot lock {}: {error}", path.display()),
        }
        // It writes its number right after it took the lock.
        let pid = wait_until(A_MOMENT, "the number of the process that holds the lock", || {
            fs::read_to_string(&path).ok()?.trim().parse().ok().and_then(Pid::from_raw)
        });
        pid.map(Some).with_context(|| format!("read {}", path.display()))
    }

    /// Makes this process the holder, until it ends.
    fn hold(&self) -> Result<File> {
        let (path, mut file) = (self.lock_file(), self.prepare()?);
        // Another may hold it for an instant, only to see whether it is free.
        wait_until(A_MOMENT, "the lock", || file.try_lock().ok())
            .with_context(|| format!("another process holds {}", path.display()))?;
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(file)
    }

    /// The folder exists and is ours to write in; returns the file that marks it.
    fn prepare(&self) -> Result<File> {
        let dir = self.dir.display();
        fs::create_dir_all(&self.dir).with_context(|| format!("create {dir}"))?;
        let ours = self.lock_file().exists();
        let empty = fs::read_dir(&self.dir).with_context(|| format!("read {dir}"))?.next().is_none();
        ensure!(ours || empty, "{dir} holds other files: give --dir a new or empty folder");
        let path = self.lock_file();
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        file.with_context(|| format!("create {}", path.display()))
    }

    fn read_state(&self) -> Result<Value> {
        let path = self.state();
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
    }

    /// The state of a control plane that runs; an error that says what to do otherwise.
    fn running(&self) -> Result<Value> {
        if self.holder()?.is_none() {
            bail!("no control plane runs in {}: start one with {}", self.dir.display(), self.command("up"));
        }
        if !self.state().exists() {
            bail!("the control plane in {} is still starting", self.dir.display());
        }
        self.read_state()
    }

    fn command(&self, name: &str) -> String {
        format!("cargo xtask k8s {name}{}", self.flag)
    }
}

fn start(up: &Up) -> Result<()> {
    let run = up.place.run()?;
    if run.holder()?.is_some() {
        let state = run.running()?;
        let (found, wanted) = (text(&state, "version"), up.release.version.to_string());
        ensure!(
            found == wanted,
            "Kubernetes {found} runs in {}; for {wanted} stop it with {} or give another --dir",
            run.dir.display(),
            run.command("down")
        );
        eprintln!("Kubernetes {found} is already running at {}.", text(&state, "server"));
        print_next(&run);
        return Ok(());
    }
    let crds = up.crds();
    for path in &crds {
        fs::metadata(path).with_context(|| format!("--crds {}", path.display()))?;
    }
    up.builder()?.binaries()?;
    run.prepare()?;
    eprintln!("Starting Kubernetes {} …", up.release.version);
    let begun = Instant::now();
    let _ = fs::remove_file(run.state());
    let mut child = spawn_serve(up, &run)?;
    let state = loop {
        if let Ok(state) = run.read_state() {
            break state;
        }
        if let Some(status) = child.try_wait()? {
            let log = fs::read_to_string(run.log()).unwrap_or_default();
            bail!("the control plane did not start ({status}):\n{}", log.trim_end());
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let seconds = begun.elapsed().as_secs_f32();
    eprintln!("Ready at {} after {seconds:.1} s.", text(&state, "server"));
    print_next(&run);
    Ok(())
}

impl Up {
    fn builder(&self) -> Result<koord_testkit::Builder> {
        let mut builder =
            ControlPlane::builder()?.version(self.release.version.clone()).with_scheduler(self.scheduler);
        if let Some(etcd) = &self.release.etcd {
            builder = builder.etcd_version(etcd.clone());
        }
        Ok(self.crds().iter().fold(builder, |builder, path| builder.crds(path)))
    }

    fn crds(&self) -> Vec<PathBuf> {
        match (self.no_crds, self.crds.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => vec![crate::root().join("deploy/crds")],
            (false, false) => self.crds.clone(),
        }
    }
}

/// The export line goes to standard output alone, so that `eval "$(cargo xtask k8s up)"` works.
fn print_next(run: &Run) {
    eprintln!("Look at it:  {} get namespaces", run.command("kubectl"));
    eprintln!("Koord's API: {} explain reservation.spec", run.command("kubectl"));
    eprintln!("Stop it:     {}", run.command("down"));
    println!("export KUBECONFIG={}", quoted(&run.kubeconfig()));
}

fn spawn_serve(up: &Up, run: &Run) -> Result<Child> {
    let log = File::create(run.log()).with_context(|| format!("create {}", run.log().display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["k8s", "serve", "--version"]).arg(up.release.version.to_string());
    if let Some(etcd) = &up.release.etcd {
        command.arg("--etcd").arg(etcd.to_string());
    }
    if up.scheduler {
        command.arg("--scheduler");
    }
    if up.no_crds {
        command.arg("--no-crds");
    }
    for path in &up.crds {
        command.arg("--crds").arg(path);
    }
    command.arg("--dir").arg(&run.dir);
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    child.context("start the process that owns the control plane")
}

fn serve(up: &Up) -> Result<()> {
    let run = up.place.run()?;
    // Out of the caller's terminal session: closing that window must not reach us.
    setsid().context("leave the terminal")?;
    let _held = run.hold()?;
    // Left behind when the machine went down, for the watchdog went with it.
    if run.cluster().exists() {
        fs::remove_dir_all(run.cluster()).with_context(|| format!("delete {}", run.cluster().display()))?;
    }
    let cluster = up.builder()?.dir(run.cluster()).start().map_err(|error| anyhow!(error.chain()))?;
    let state = json!({
        "version": cluster.version().to_string(),
        "server": cluster.server(),
        "processes": cluster.processes().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    });
    let draft = run.dir.join("state.json.new");
    fs::write(&draft, format!("{state:#}\n"))?;
    fs::rename(&draft, run.state())?;
    loop {
        std::thread::park();
    }
}

fn stop(place: &Place) -> Result<()> {
    let run = place.run()?;
    let Some(pid) = run.holder()? else {
        eprintln!("No control plane runs in {}.", run.dir.display());
        return Ok(());
    };
    kill_process(pid, Signal::TERM).with_context(|| format!("stop process {}", pid.as_raw_nonzero()))?;
    wait_until(Duration::from_secs(30), "the control plane to end", || {
        let gone = matches!(run.holder(), Ok(None)) && !run.cluster().exists();
        gone.then_some(())
    })?;
    for path in [run.state(), run.log()] {
        let _ = fs::remove_file(path);
    }
    eprintln!("Stopped, and its data deleted.");
    Ok(())
}

fn status(place: &Place) -> Result<()> {
    let run = place.run()?;
    let state = run.running()?;
    let output = kubectl_command(&run, &state)?.args(["get", "--raw=/readyz"]).output()?;
    let ready = if output.status.success() { "ready" } else { "NOT READY" };
    println!("Kubernetes {} at {}: {ready}", text(&state, "version"), text(&state, "server"));
    for (name, pid) in state["processes"].as_object().into_iter().flatten() {
        let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let runs = pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok());
        let log = run.cluster().join(format!("{name}.log"));
        let what = if runs { "runs" } else { "HAS ENDED" };
        println!("  {name:24} {what}, log {}", log.display());
    }
    println!("  export KUBECONFIG={}", quoted(&run.kubeconfig()));
    ensure!(
        output.status.success(),
        "it does not answer: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn run_kubectl(kubectl: &Kubectl) -> Result<()> {
    let run = kubectl.place.run()?;
    let state = run.running()?;
    let error = kubectl_command(&run, &state)?.args(&kubectl.args).exec();
    Err(error).context("run kubectl")
}

fn kubectl_command(run: &Run, state: &Value) -> Result<Command> {
    let binaries = Binaries::ensure(&text(state, "version").parse()?, None, &[Program::Kubectl])?;
    let mut command = Command::new(binaries.path(Program::Kubectl));
    command.env("KUBECONFIG", run.kubeconfig()).env("KUBECACHEDIR", run.cluster().join("kubectl-cache"));
    Ok(command)
}

fn build(release: &Release) -> Result<()> {
    let binaries = Binaries::ensure(&release.version, release.etcd.as_ref(), &Program::ALL)?;
    for program in Program::ALL {
        println!("{}", binaries.path(program).display());
    }
    Ok(())
}

fn text<'a>(state: &'a Value, field: &str) -> &'a str {
    state[field].as_str().unwrap_or("?")
}

/// As a shell reads it back.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        for (path, want) in [("/a/b-1.x", "/a/b-1.x"), ("/a b", "'/a b'"), ("/it's", r"'/it'\''s'")] {
            assert_eq!(quoted(Path::new(path)), want);
        }
    }

    #[test]
    fn a_folder_with_other_files_is_left_alone() {
        let dir = std::env::temp_dir().join(format!("koord-xtask-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("thesis.txt"), "").unwrap();
        let run = Place { dir: Some(dir.clone()) }.run().unwrap();
        let error = run.hold().unwrap_err().to_string();
        fs::remove_dir_all(&dir).unwrap();
        assert!(error.ends_with("holds other files: give --dir a new or empty folder"), "{error}");
    }

    #[test]
    fn only_a_living_holder_counts() {
        let dir = std::env::temp_dir().join(format!("koord-xtask-hold-{}", std::process::id()));
        let run = Place { dir: Some(dir.clone()) }.run().unwrap();
        assert!(run.holder().unwrap().is_none());
        let held = run.hold().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(run.holder().unwrap().map(|pid| pid.as_raw_nonzero().get()), Some(me));
        assert!(run.hold().is_err(), "one holder at a time");
        drop(held);
        // A process that another test starts has our files open for a moment.
        let is_free = || run.holder().unwrap().is_none().then_some(());
        koord_testkit::wait_until(std::time::Duration::from_secs(30), "the folder is free", is_free).unwrap();
        let error = run.running().unwrap_err().to_string();
        assert!(error.contains("start one with cargo xtask k8s up --dir "), "{error}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
