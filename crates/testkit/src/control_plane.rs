//! A running control plane: etcd, kube-apiserver and, as asked, its controllers and scheduler.
//!
//! Only the API server listens on a network port, on loopback and with TLS; etcd is reached by a
//! socket in the control plane's own folder, which only this user can enter.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use crate::arguments;
use crate::binaries::{Binaries, Program};
use crate::pki::{ADMIN, CONTROLLER_MANAGER, Identity, Pki, SCHEDULER};
use crate::process::{Process, free_port};
use crate::watchdog::Watchdog;
use crate::{Error, Version, wait_until};

/// Far more than a start takes; only a machine that is badly overloaded gets there.
const READY_LIMIT: Duration = Duration::from_secs(120);

const APPLY: [&str; 4] = ["apply", "--server-side", "--force-conflicts", "-f"];

/// How often another port is tried when a stranger takes the chosen one first.
const PORT_TRIES: u32 = 5;

/// What to start. By default: the pinned version, with controller manager, without scheduler.
#[derive(Clone, Debug)]
pub struct Builder {
    version: Version,
    etcd_version: Option<Version>,
    pub(crate) controller_manager: bool,
    scheduler: bool,
    pub(crate) apiserver_args: Vec<String>,
    pub(crate) controller_manager_args: Vec<String>,
    pub(crate) scheduler_args: Vec<String>,
    crds: Vec<PathBuf>,
    dir: Option<PathBuf>,
}

impl Builder {
    pub fn version(mut self, version: Version) -> Builder {
        self.version = version;
        self
    }

    /// Another etcd than the one that this Kubernetes version was built with.
    pub fn etcd_version(mut self, version: Version) -> Builder {
        self.etcd_version = Some(version);
        self
    }

    /// Without it no service accounts are made, and pods do not need one.
    pub fn with_controller_manager(mut self, wanted: bool) -> Builder {
        self.controller_manager = wanted;
        self
    }

    pub fn with_scheduler(mut self, wanted: bool) -> Builder {
        self.scheduler = wanted;
        self
    }

    /// More arguments for kube-apiserver, such as `--feature-gates=A=true`; they win over ours.
    pub fn apiserver_args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Builder {
        self.apiserver_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// More arguments for kube-controller-manager; they win over ours.
    pub fn controller_manager_args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Builder {
        self.controller_manager_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// More arguments for kube-scheduler; they win over ours.
    pub fn scheduler_args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Builder {
        self.scheduler_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Installs the CRDs in this file or folder as part of the start. May be given several times.
    pub fn crds(mut self, path: impl Into<PathBuf>) -> Builder {
        self.crds.push(path.into());
        self
    }

    /// Where data, certificates and logs live, instead of a folder in the system's temporary one.
    /// It must be new or empty, and is deleted with the control plane all the same.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Builder {
        self.dir = Some(dir.into());
        self
    }

    /// The programs that `start` needs, built if the cache lacks them.
    pub fn binaries(&self) -> Result<Binaries, Error> {
        let mut programs = vec![Program::Etcd, Program::Apiserver, Program::Kubectl];
        programs.extend(self.controller_manager.then_some(Program::ControllerManager));
        programs.extend(self.scheduler.then_some(Program::Scheduler));
        Binaries::ensure(&self.version, self.etcd_version.as_ref(), &programs)
    }

    /// Starts everything and returns when the API server is ready, the CRDs are established and,
    /// with a controller manager, pods can be created in the default namespace.
    pub fn start(self) -> Result<ControlPlane, Error> {
        let binaries = self.binaries()?;
        let dir = self.make_dir()?;
        let watchdog = Watchdog::start(&dir)?;
        let pki = Pki::create(&dir.join("pki"))?;
        let mut cluster = ControlPlane {
            kubeconfig: dir.join("kubeconfig"),
            port: 0,
            server: String::new(),
            dir,
            binaries,
            processes: Mutex::default(),
            watchdog,
        };
        cluster.launch(Program::Etcd, arguments::etcd())?;
        pki.client(&ADMIN)?;
        // An API server that finds no etcd tries again only after a second.
        cluster.wait_ready(Program::Etcd, || Ok(cluster.dir.join("etcd.sock").exists()))?;
        cluster.start_apiserver_on_free_port(&pki, &self)?;
        if self.controller_manager {
            cluster.write_kubeconfig(&pki, &CONTROLLER_MANAGER)?;
            cluster.launch(Program::ControllerManager, arguments::controller_manager(&self))?;
        }
        if self.scheduler {
            cluster.write_kubeconfig(&pki, &SCHEDULER)?;
            cluster.launch(Program::Scheduler, arguments::scheduler(&self))?;
        }
        for path in &self.crds {
            cluster.install_crds(path)?;
        }
        if self.controller_manager {
            // Its first visible work, and what creating a pod needs.
            let account = ["get", "serviceaccount", "default", "--namespace=default"];
            cluster.wait_ready(Program::ControllerManager, || cluster.answers(&account))?;
        }
        Ok(cluster)
    }

    fn make_dir(&self) -> Result<PathBuf, Error> {
        let Some(dir) = &self.dir else {
            let dir = tempfile::Builder::new().prefix("koord-k8s-").tempdir();
            // Kept: the watchdog deletes it, also when this process cannot.
            return Ok(dir.map_err(Error::io("create a folder in", std::env::temp_dir()))?.keep());
        };
        let dir = std::path::absolute(dir).map_err(Error::io("resolve", dir))?;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(Error::io("create", &dir))?;
        if fs::read_dir(&dir).map_err(Error::io("read", &dir))?.next().is_some() {
            return Err(Error::DirNotEmpty(dir));
        }
        // An empty folder that was there before may be open to others.
        let private = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        private.map_err(Error::io("close to others", &dir))?;
        Ok(dir)
    }
}

/// A running control plane. Dropping it, or ending this process in any way, ends it and deletes
/// its folder.
pub struct ControlPlane {
    dir: PathBuf,
    kubeconfig: PathBuf,
    port: u16,
    server: String,
    binaries: Binaries,
    /// The handles of the programs; held for a look or a signal, never while waiting for one.
    processes: Mutex<Vec<Process>>,
    /// Last, so that it clears up what the programs left.
    watchdog: Watchdog,
}

impl ControlPlane {
    /// The pinned version, or the one that `KOORD_K8S_VERSION` names.
    pub fn builder() -> Result<Builder, Error> {
        Ok(Builder {
            version: Version::kubernetes()?,
            etcd_version: None,
            controller_manager: true,
            scheduler: false,
            apiserver_args: Vec::new(),
            controller_manager_args: Vec::new(),
            scheduler_args: Vec::new(),
            crds: Vec::new(),
            dir: None,
        })
    }

    /// The file that lets a client in as cluster administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `https://127.0.0.1:<port>`; the same after a restart.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Holds data, logs (`<program>.log`) and certificates (`pki/ca.crt`, …).
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn version(&self) -> &Version {
        self.binaries.version()
    }

    /// The programs that run now, with their process ids.
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        let id = |process: &Process| process.pid().map(|pid| (process.program().name(), pid));
        self.lock().iter().filter_map(id).collect()
    }

    /// An error with the end of its log for the first program that does not run.
    pub fn check(&self) -> Result<(), Error> {
        self.lock().iter_mut().try_for_each(Process::check)
    }

    /// Ends the API server at once, as a crash would. Clients find the port closed.
    pub fn stop_apiserver(&self) -> Result<(), Error> {
        self.with(Program::Apiserver, |process| {
            process.kill();
            Ok(())
        })
    }

    /// Starts the API server again, with its data and on its port; returns when it is ready.
    pub fn start_apiserver(&self) -> Result<(), Error> {
        self.with(Program::Apiserver, Process::start)?;
        self.wait_for_apiserver()
    }

    /// Freezes the API server: connections stay open, and nothing answers.
    pub fn pause_apiserver(&self) -> Result<(), Error> {
        self.with(Program::Apiserver, |process| process.signal(Signal::STOP))
    }

    /// Lets a frozen API server go on.
    pub fn resume_apiserver(&self) -> Result<(), Error> {
        self.with(Program::Apiserver, |process| process.signal(Signal::CONT))
    }

    /// A program that acts on this cluster (`KUBECONFIG` is set) and ends with it at the latest.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &self.kubeconfig).process_group(self.watchdog.group()).stdin(Stdio::null());
        command
    }

    /// kubectl for this cluster, to be run as the caller likes.
    pub fn kubectl_command(&self) -> Command {
        let mut command = self.command(self.binaries.path(Program::Kubectl));
        command.env("KUBECACHEDIR", self.dir.join("kubectl-cache")).env("KUBERC", "off");
        command
    }

    /// Runs kubectl as administrator; what it says, and whether it failed, is in the output.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output, Error> {
        run(self.kubectl_command().args(args))
    }

    /// Runs kubectl as administrator and returns its standard output; an error when it fails.
    pub fn kubectl_ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String, Error> {
        run_ok(self.kubectl_command().args(args))
    }

    /// `kubectl apply --server-side` of one or more objects, as YAML or JSON.
    pub fn apply(&self, manifest: &str) -> Result<String, Error> {
        let input = input_file(manifest).map_err(Error::io("write a file in", std::env::temp_dir()))?;
        run_ok(self.kubectl_command().args(APPLY).arg("-").stdin(input))
    }

    /// Installs the CRDs in this file or folder and waits until the API server serves them.
    pub fn install_crds(&self, path: &Path) -> Result<(), Error> {
        fs::metadata(path).map_err(Error::io("read", path))?;
        run_ok(self.kubectl_command().args(APPLY).arg(path))?;
        let wait = ["wait", "--for=condition=Established", "--timeout=60s", "-f"];
        run_ok(self.kubectl_command().args(wait).arg(path)).map(drop)
    }

    fn start_apiserver_on_free_port(&mut self, pki: &Pki, builder: &Builder) -> Result<(), Error> {
        for _ in 0..PORT_TRIES {
            self.port = free_port()?;
            self.server = format!("https://127.0.0.1:{}", self.port);
            pki.kubeconfig(&ADMIN, &self.server, &self.kubeconfig)?;
            self.launch(Program::Apiserver, arguments::apiserver(self.port, builder))?;
            match self.wait_for_apiserver() {
                Err(Error::Exited { tail, .. }) if tail.contains("address already in use") => {
                    self.lock().retain(|process| process.program() != Program::Apiserver);
                }
                result => return result,
            }
        }
        Err(Error::NoPort { tries: PORT_TRIES })
    }

    fn write_kubeconfig(&self, pki: &Pki, identity: &Identity) -> Result<(), Error> {
        pki.client(identity)?;
        pki.kubeconfig(identity, &self.server, &self.dir.join(format!("{}.kubeconfig", identity.file)))
    }

    fn launch(&self, program: Program, args: Vec<String>) -> Result<(), Error> {
        let path = self.binaries.path(program);
        let mut process = Process::new(program, path, args, &self.dir, self.watchdog.group());
        process.start()?;
        self.lock().push(process);
        Ok(())
    }

    fn wait_for_apiserver(&self) -> Result<(), Error> {
        self.wait_ready(Program::Apiserver, || {
            // Cheaper than kubectl, while nobody listens.
            let listens = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
            Ok(listens && self.answers(&["get", "--raw=/readyz", "--request-timeout=10s"])?)
        })
    }

    /// Whether kubectl succeeds with `args`.
    fn answers(&self, args: &[&str]) -> Result<bool, Error> {
        Ok(self.kubectl(args)?.status.success())
    }

    /// Waits until `ready`, or a program ends, or the time is over.
    fn wait_ready(&self, program: Program, ready: impl Fn() -> Result<bool, Error>) -> Result<(), Error> {
        let found = wait_until(READY_LIMIT, program.name(), || match self.check().and_then(|()| ready()) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        found.unwrap_or_else(|_| self.with(program, |process| Err(process.not_ready(READY_LIMIT))))
    }

    fn with<T>(
        &self,
        program: Program,
        act: impl FnOnce(&mut Process) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut processes = self.lock();
        let found = processes.iter_mut().find(|process| process.program() == program);
        act(found.ok_or(Error::Stopped { component: program.name() })?)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Process>> {
        // A test that panicked with the lock held has left nothing half done in it.
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(command: &mut Command) -> Result<Output, Error> {
    command.output().map_err(|source| Error::io("run", command.get_program())(source))
}

fn run_ok(command: &mut Command) -> Result<String, Error> {
    let output = run(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let args: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    Err(Error::Kubectl { args: args.join(" "), status: output.status, output: text(&output) })
}

/// A file rather than a pipe: nobody has to write while the other side writes too.
fn input_file(text: &str) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// What a failed command said, wherever it said it.
fn text(output: &Output) -> String {
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    [part(&output.stdout), part(&output.stderr)].join("\n").trim().to_string()
}
