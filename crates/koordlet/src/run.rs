//! The process: command line, start and end. Spec: koordlet-observe 1.1.
//!
//! [`main`] is `koordlet`. One thread owns the node (`node`); everything that talks (API server, kubelet, HTTP) shares
//! a second one. There is no leader: each node has its own koordlet.

mod assemble;
mod node;
mod show;
mod talk;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use koord_kit::client::{ClientConnection, ClientError, ClientOptions};
use koord_kit::log::chain;
use koord_kit::shutdown::{End, GRACE_DEFAULT, Shutdown};

use crate::flags::{self, Options, Request};

pub use assemble::{Running, StartError, alone, clean_up, start};
pub use node::{Asker, Brain, Kept, Readiness};

/// Plays koordlet with the words after its name. Ends with 0 when asked to stop, with 2 for a wrong command line, with 1
/// otherwise.
pub fn main(words: Vec<OsString>, version: &str) -> ExitCode {
    let words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    match flags::parse(words, |name| std::env::var(name).ok()) {
        Ok(Request::Help(text)) => say(&text),
        Ok(Request::Version) => say(&format!("koordlet {version}")),
        Ok(Request::Run(options)) => match run(*options) {
            Ok(code) => code,
            Err(error) => complain(&chain(&error), ExitCode::FAILURE),
        },
        Err(error) => complain(
            &format!("{error}\n`koordlet --help` lists all flags"),
            ExitCode::from(error.exit_code()),
        ),
    }
}

/// Why the process ended before it worked.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error("cannot set up logging")]
    Log(#[source] koord_kit::log::LogError),
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("Unable to setup kubeconfig")]
    Client(#[source] ClientError),
    #[error(transparent)]
    Start(StartError),
}

fn run(options: Options) -> Result<ExitCode, MainError> {
    koord_kit::log::init(&options.log).map_err(MainError::Log)?;
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    if options.clean_up {
        return clean_up(&options).map(|()| ExitCode::SUCCESS).map_err(MainError::Start);
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(MainError::Runtime)?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals().map_err(MainError::Runtime)?;
        let cluster = koord_kit::client::config(&options.kubeconfig).await.map_err(MainError::Client)?;
        let asked = shutdown.token();
        let running = tokio::select! {
            running = start(options, cluster) => running.map_err(MainError::Start)?,
            () = asked.cancelled() => return Ok(ExitCode::SUCCESS),
        };
        let (ended, ending) = tokio::sync::oneshot::channel();
        shutdown.spawn(async move {
            // The receiver lives until the end of this function.
            let _ = ended.send(running.until(&asked).await);
            asked.cancel();
        });
        // What did not end in time is not waited for any longer.
        if shutdown.finish(GRACE_DEFAULT).await != End::Clean {
            return Ok(ExitCode::FAILURE);
        }
        Ok(if ending.await.unwrap_or(false) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// How requests of ours are made and limited.
fn client_options(options: &Options) -> ClientOptions {
    let connection = ClientConnection {
        kubeconfig: options.kubeconfig.clone(),
        qps: options.qps,
        burst: options.burst,
        ..ClientConnection::default()
    };
    let mut client = ClientOptions::new("koordlet", connection);
    // The bare name, which audit rules for the original match.
    client.user_agent = "koordlet".to_owned();
    client
}

pub(crate) fn say(text: &str) -> ExitCode {
    // A reader that went away has read enough.
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
    ExitCode::SUCCESS
}

pub(crate) fn complain(text: &str, code: ExitCode) -> ExitCode {
    // Nothing is left to tell when standard error itself is gone.
    let _ = writeln!(std::io::stderr(), "error: {text}");
    code
}
