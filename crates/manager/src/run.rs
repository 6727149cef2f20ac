//! The process: command line, start and end. Spec: manager 1.3, 1.4.
//!
//! [`main`] is `koord-manager`; [`start`] is the manager inside another process, as the sandbox has it.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use koord_kit::client::{ClientConnection, ClientError, ClientOptions};
use koord_kit::log::chain;
use koord_kit::shutdown::{End, GRACE_DEFAULT, Shutdown};
use tokio_util::sync::CancellationToken;

use crate::flags::{self, Options, OptionsError, Request};

mod assemble;
mod servers;
mod webhooks;

pub use assemble::{Ending, Running, Setup, StartError, start};

/// A Service sends no more requests to a replica that is about to stop once all have heard of it; until then they are
/// answered.
const DRAIN: Duration = Duration::from_secs(5);

/// Plays koord-manager with the words after its name. Ends with 0 when asked to stop, with 1 otherwise.
pub fn main(words: Vec<OsString>, version: &str) -> ExitCode {
    let words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    match flags::parse(words, |name| std::env::var(name).ok()) {
        Ok(Request::Help(text)) => say(&text),
        Ok(Request::Version) => say(&format!("koord-manager {version}")),
        Ok(Request::Run(options)) => match run(*options) {
            Ok(code) => code,
            Err(error) => complain(&chain(&error)),
        },
        Err(error @ OptionsError::Flags(_)) => {
            complain(&format!("{error}\n`koord-manager --help` lists all flags"))
        }
        Err(error) => complain(&error.to_string()),
    }
}

/// Why the process ended before it worked.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error("cannot set up logging")]
    Log(#[source] koord_kit::log::LogError),
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Client(ClientError),
    #[error(transparent)]
    Start(StartError),
}

fn run(options: Options) -> Result<ExitCode, MainError> {
    koord_kit::log::init(&options.log).map_err(MainError::Log)?;
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(MainError::Runtime)?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals().map_err(MainError::Runtime)?;
        let cluster = koord_kit::client::config(&options.kubeconfig).await.map_err(MainError::Client)?;
        let (stop, asked) = (CancellationToken::new(), shutdown.token());
        let drain = if options.gates.is_on("WebhookFramework") { DRAIN } else { Duration::ZERO };
        let running = tokio::select! {
            running = start(Setup { options, cluster }, stop.clone()) => running.map_err(MainError::Start)?,
            () = asked.cancelled() => return Ok(ExitCode::SUCCESS),
        };
        let (ended, ending) = tokio::sync::oneshot::channel();
        shutdown.spawn(async move {
            // The receiver lives until the end of this function.
            let _ = ended.send(live(running, &asked, &stop, drain).await);
            asked.cancel();
        });
        // What did not end in time is not waited for any longer.
        if shutdown.finish(GRACE_DEFAULT).await != End::Clean {
            return Ok(ExitCode::FAILURE);
        }
        Ok(match ending.await {
            Ok(Ending::Stopped) => ExitCode::SUCCESS,
            Ok(Ending::LostLease(reason)) => {
                tracing::error!(%reason, "leader election lost");
                ExitCode::FAILURE
            }
            Err(_) => ExitCode::FAILURE,
        })
    })
}

/// Lets it run until it ends, or until the end is asked for and those who send requests have had time to notice.
async fn live(
    running: Running,
    asked: &CancellationToken,
    stop: &CancellationToken,
    drain: Duration,
) -> Ending {
    let leaving = running.leaving();
    let ended = running.ended();
    tokio::pin!(ended);
    tokio::select! {
        ending = &mut ended => return ending,
        () = asked.cancelled() => leaving.cancel(),
    }
    tokio::select! {
        ending = &mut ended => return ending,
        () = tokio::time::sleep(drain) => stop.cancel(),
    }
    ended.await
}

/// How requests of ours are made and limited.
fn client_options(options: &Options) -> ClientOptions {
    let connection = ClientConnection {
        kubeconfig: options.kubeconfig.clone(),
        qps: options.qps,
        burst: options.burst,
        ..ClientConnection::default()
    };
    let mut client = ClientOptions::new("koordinator-manager", connection);
    // The bare name, which audit rules for the original match.
    client.user_agent = "koordinator-manager".to_owned();
    client
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
