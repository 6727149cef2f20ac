//! The process: command line, configuration, start and end. Spec: scheduler-core 8.1.
//!
//! [`main`] is `koord-scheduler`; [`start`] is the scheduler inside another process, as the sandbox has it.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use koord_kit::client::{ClientConnection, ClientError, ClientOptions};
use koord_kit::log::chain;
use koord_kit::shutdown::{End, GRACE_DEFAULT, Shutdown};

use crate::config::{self, LoadError, SchedulerConfig};
use crate::flags::{self, Options, OptionsError, Request};

mod assemble;
mod barrier;
mod servers;

pub use assemble::{Ending, Running, Setup, StartError, start};

/// Plays koord-scheduler with the words after its name. Ends with 0 when asked to stop, with 1 otherwise.
pub fn main(words: Vec<OsString>, version: &str) -> ExitCode {
    let words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    match flags::parse(words) {
        Ok(Request::Help(text)) => say(&text),
        Ok(Request::Version) => say(&format!("koord-scheduler {version}")),
        Ok(Request::Run(options)) => match run(*options) {
            Ok(code) => code,
            Err(error) => complain(&chain(&error)),
        },
        Err(error @ OptionsError::Flags(_)) => {
            complain(&format!("{error}\n`koord-scheduler --help` lists all flags"))
        }
        Err(error) => complain(&error.to_string()),
    }
}

/// Why the process ended before it worked.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error(transparent)]
    Config(LoadError),
    #[error("cannot write the configuration to {path}")]
    Write { path: String, source: std::io::Error },
    #[error("cannot set up logging")]
    Log(#[source] koord_kit::log::LogError),
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Client(ClientError),
    #[error("{0:?} is no address of an API server")]
    Master(String),
    #[error(transparent)]
    Start(StartError),
}

fn run(options: Options) -> Result<ExitCode, MainError> {
    let config = config::load(options.config.as_deref(), &options.overrides, &options.gates)
        .map_err(MainError::Config)?;
    if let Some(path) = &options.write_config_to {
        let failed = |source| MainError::Write { path: path.display().to_string(), source };
        std::fs::write(path, config.to_yaml()).map_err(failed)?;
        return Ok(say(&format!("Wrote configuration to file {}", path.display())));
    }
    let log = koord_kit::log::init(&options.log).map_err(MainError::Log)?;
    warn(&options, &config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(io_threads())
        .enable_all()
        .build()
        .map_err(MainError::Runtime)?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals().map_err(MainError::Runtime)?;
        let cluster = cluster(&options, &config).await?;
        let setup = Setup { options, config, cluster, log: Some(log) };
        let running = start(setup, shutdown.token()).await.map_err(MainError::Start)?;
        let (ended, ending) = tokio::sync::oneshot::channel();
        let stop = shutdown.token();
        shutdown.spawn(async move {
            // The receiver lives until the end of this function.
            let _ = ended.send(running.ended().await);
            stop.cancel();
        });
        // What did not end in time is not waited for any longer.
        if shutdown.finish(GRACE_DEFAULT).await != End::Clean {
            return Ok(ExitCode::FAILURE);
        }
        Ok(match ending.await {
            Ok(Ending::Stopped) => ExitCode::SUCCESS,
            Ok(Ending::LostLease(reason)) => {
                tracing::error!(%reason, "Leaderelection lost");
                ExitCode::FAILURE
            }
            Err(_) => ExitCode::FAILURE,
        })
    })
}

/// Threads that talk to the API server. One binds thousands of pods a second, and more only hand work to each other;
/// large machines have large clusters to list.
fn io_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() / 4).clamp(1, 4)
}

fn warn(options: &Options, config: &SchedulerConfig) {
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    for warning in &config.warnings {
        let profile = warning.profile.as_deref().unwrap_or_default();
        tracing::warn!(profile, "{}", warning.text);
    }
}

/// Where the cluster is.
async fn cluster(options: &Options, config: &SchedulerConfig) -> Result<kube::Config, MainError> {
    let found = koord_kit::client::config(&config.client_connection.kubeconfig).await;
    let Some(master) = &options.master else { return found.map_err(MainError::Client) };
    let url: http::Uri = master.parse().map_err(|_| MainError::Master(master.clone()))?;
    // Without a kubeconfig the address alone has to do, as for a proxy on the same machine.
    let mut cluster = found.unwrap_or_else(|_| kube::Config::new(url.clone()));
    cluster.cluster_url = url;
    Ok(cluster)
}

/// How requests of ours are made and limited.
fn client_options(config: &SchedulerConfig) -> ClientOptions {
    let from = &config.client_connection;
    let connection = ClientConnection {
        kubeconfig: from.kubeconfig.clone(),
        accept_content_types: from.accept_content_types.clone(),
        content_type: from.content_type.clone(),
        qps: from.qps,
        burst: from.burst,
    };
    ClientOptions::new("koord-scheduler", connection)
}

fn say(text: &str) -> ExitCode {
    // A reader that went away has read enough.
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
    ExitCode::SUCCESS
}

fn complain(text: &str) -> ExitCode {
    // Nothing is left to tell when standard error itself is gone.
    let _ = writeln!(std::io::stderr(), "error: {text}");
    ExitCode::FAILURE
}
