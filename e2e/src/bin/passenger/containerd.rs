//! A real containerd with its own files and processes, and what kubelet asks of it: pods and containers in groups of the
//! tree. Everything goes when it does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use koord_e2e::machine::libraries;
use koordlet::grpc::client::Channel;
use prost::Message;
use serde_json::json;

use crate::node::Running;
use crate::stage::run;

/// An image with a shell, and a program that does nothing.
const IMAGE: &str = "koord.test/shell:1";
const PROGRAMS: [&str; 2] = ["/bin/sh", "/bin/sleep"];
/// Until it answers, on a machine that is badly overloaded.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where kubelet's images and containers are.
const NAMESPACE: &str = "k8s.io";

/// A running containerd. Its processes end with it, and its mounts are seen by nobody else.
pub(crate) struct Containerd {
    process: Child,
    socket: PathBuf,
    dir: PathBuf,
}

impl Containerd {
    /// Starts it on a socket, with an image that it needs nobody else for. Below `dir` is what it keeps.
    pub(crate) async fn start(dir: &Path, socket: PathBuf) -> Result<Containerd> {
        fs::create_dir_all(socket.parent().context("a socket lies in a directory")?)?;
        fs::create_dir_all(dir)?;
        let config = dir.join("config.toml");
        fs::write(&config, configuration(dir, &socket))?;
        let log = fs::File::create(dir.join("log"))?;
        // Sockets of shims lie below /run, whatever the configuration says.
        let script = "mount -t tmpfs tmpfs /run && exec containerd --config \"$0\"";
        let process = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start containerd")?;
        let runtime = Containerd { process, socket, dir: dir.to_owned() };
        runtime.answers().await?;
        runtime.import()?;
        Ok(runtime)
    }

    async fn answers(&self) -> Result<()> {
        let asked = Instant::now();
        loop {
            let error = match self.call::<Nothing>("Version", &Nothing {}).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if asked.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                bail!("containerd does not answer: {error:#}\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Gives it the image, as one that somebody saved.
    fn import(&self) -> Result<()> {
        let path = |name: &str| self.dir.join(name).display().to_string();
        let mut files: Vec<PathBuf> = PROGRAMS.iter().map(PathBuf::from).collect();
        for program in PROGRAMS {
            files.extend(libraries(Path::new(program))?);
        }
        files.sort();
        files.dedup();
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let inside = files.iter().map(|file| file.trim_start_matches('/'));
        let layer = path("layer.tar");
        let words = ["-chf", &layer, "-C", "/"];
        run("tar", &words.into_iter().chain(inside).collect::<Vec<_>>())?;
        let sum = run("sha256sum", &[&layer])?;
        let sum = sum.split_whitespace().next().context("sha256sum says nothing")?;
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = json!({ "architecture": architecture, "os": "linux",
            "config": { "Cmd": ["/bin/sleep", "infinity"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{sum}")] } });
        fs::write(path("config.json"), config.to_string())?;
        let manifest = json!([{ "Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"] }]);
        fs::write(path("manifest.json"), manifest.to_string())?;
        let image = path("image.tar");
        let dir = self.dir.display().to_string();
        run("tar", &["-cf", &image, "-C", &dir, "config.json", "manifest.json", "layer.tar"])?;
        let socket = self.socket.display().to_string();
        let import = ["-n", NAMESPACE, "images", "import", "--snapshotter", "native", &image];
        run("ctr", &[&["-a", &socket], &import[..]].concat())?;
        Ok(())
    }

    /// Runs a pod's sandbox on the host's network. Its group is a new one in `parent`, as the kernel names that.
    pub(crate) async fn sandbox(&self, pod: &Running, parent: &str) -> Result<Sandbox> {
        let metadata = PodSandboxMetadata {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: "default".to_owned(),
            attempt: 0,
        };
        let security_context = Some(SandboxSecurity { namespace_options: Some(Namespaces::OF_HOST) });
        let config = PodSandboxConfig {
            metadata: Some(metadata),
            log_directory: self.dir.join("logs").display().to_string(),
            linux: Some(LinuxSandbox { cgroup_parent: parent.to_owned(), security_context }),
        };
        let request = RunPodSandbox { config: Some(config.clone()) };
        let answer: Named = self.call("RunPodSandbox", &request).await?;
        Ok(Sandbox { id: answer.id, config })
    }

    /// Creates a container of a shell command and starts it.
    pub(crate) async fn container(&self, sandbox: &Sandbox, attempt: u32, command: &str) -> Result<String> {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt }),
            image: Some(ImageSpec { image: IMAGE.to_owned() }),
            command: ["/bin/sh", "-c", command].map(str::to_owned).to_vec(),
            linux: Some(LinuxContainer {
                security_context: Some(ContainerSecurity { namespace_options: Some(Namespaces::OF_HOST) }),
            }),
        };
        let request = CreateContainer {
            sandbox: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.config.clone()),
        };
        let made: Named = self.call("CreateContainer", &request).await?;
        self.call::<Nothing>("StartContainer", &made).await?;
        Ok(made.id)
    }

    /// Whether a container runs.
    pub(crate) async fn runs(&self, container: &str) -> Result<bool> {
        let asked = Named { id: container.to_owned() };
        let answer: ContainerStatus = self.call("ContainerStatus", &asked).await?;
        let status = answer.status.context("a container without status")?;
        Ok(status.state == ContainerState::RUNNING)
    }

    /// Ends a pod, whose group has nothing in it afterwards.
    pub(crate) async fn remove(&self, sandbox: &Sandbox) -> Result<()> {
        let asked = Named { id: sandbox.id.clone() };
        self.call::<Nothing>("StopPodSandbox", &asked).await?;
        self.call::<Nothing>("RemovePodSandbox", &asked).await?;
        Ok(())
    }

    async fn call<M: Message + Default>(&self, method: &str, request: &impl Message) -> Result<M> {
        let path = format!("/runtime.v1.RuntimeService/{method}");
        let mut channel = Channel::open(&self.socket).await?;
        let answer = channel.call(&path, &request.encode_to_vec()).await;
        Ok(M::decode(answer.with_context(|| method.to_owned())?)?)
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // Whatever it started is in its namespace of processes, which ends with it.
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("containerd did not end: {error}");
        }
    }
}

fn configuration(dir: &Path, socket: &Path) -> String {
    let (dir, socket) = (dir.display(), socket.display());
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
# A host that is a container itself may not lower scores.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"#
    )
}

/// A pod as the runtime has it.
pub(crate) struct Sandbox {
    pub(crate) id: String,
    config: PodSandboxConfig,
}

/// An answer of which nothing is read, or a request that says nothing.
#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

/// The only field of several requests and answers is the name of a sandbox or container.
#[derive(Clone, PartialEq, prost::Message)]
struct Named {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(uint32, tag = "4")]
    attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "3")]
    log_directory: String,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxSandbox>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LinuxSandbox {
    #[prost(string, tag = "1")]
    cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    security_context: Option<SandboxSecurity>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SandboxSecurity {
    #[prost(message, optional, tag = "1")]
    namespace_options: Option<Namespaces>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Namespaces {
    #[prost(int32, tag = "1")]
    network: i32,
    #[prost(int32, tag = "2")]
    pid: i32,
}

impl Namespaces {
    /// The host's network, which needs no plugin; processes of the container's own.
    const OF_HOST: Namespaces = Namespaces { network: 2, pid: 1 };
}

#[derive(Clone, PartialEq, prost::Message)]
struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint32, tag = "2")]
    attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ImageSpec {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(message, optional, tag = "15")]
    linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LinuxContainer {
    #[prost(message, optional, tag = "2")]
    security_context: Option<ContainerSecurity>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerSecurity {
    #[prost(message, optional, tag = "3")]
    namespace_options: Option<Namespaces>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    sandbox: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerStatus {
    #[prost(message, optional, tag = "1")]
    status: Option<ContainerState>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerState {
    #[prost(int32, tag = "3")]
    state: i32,
}

impl ContainerState {
    const RUNNING: i32 = 1;
}
