//! One of ours in a leader election, as a process of its own, so that tests can stop it, wake it and cut it off.
//!
//! Prints the same lines as the Go peer `leader`: `lead NANOS TERM` with the wall clock just before it made sure that
//! it leads. Competes until it is told to stop by SIGTERM.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow};
use koord_kit::client::{ClientConnection, ClientOptions, connect};
use koord_kit::flags::{Flag, Kind, parse};
use koord_kit::leader::{self, Ended, Leadership, LeaseLock, Timing};
use koord_kit::metrics::KitMetrics;
use koord_kit::shutdown::Shutdown;

const FLAGS: &[Flag] = &[
    Flag::new("kubeconfig", Kind::Text, "", "how to reach the cluster"),
    Flag::new("namespace", Kind::Text, "default", "where the lease is"),
    Flag::new("name", Kind::Text, "lease", "what the lease is called"),
    Flag::new("identity", Kind::Text, "ours", "who we are"),
    Flag::new("lease-duration", Kind::Duration, "15s", "how long a term is"),
    Flag::new("renew-deadline", Kind::Duration, "10s", "how long a renewal is tried"),
    Flag::new("retry-period", Kind::Duration, "2s", "how often the lease is looked at"),
];

#[tokio::main]
async fn main() -> Result<()> {
    let flags = parse(&[FLAGS], std::env::args().skip(1))?;
    let timing = Timing::new(
        flags.duration("lease-duration"),
        flags.duration("renew-deadline"),
        flags.duration("retry-period"),
    )
    .map_err(|problems| anyhow!("{problems:?}"))?;
    let connection =
        ClientConnection { kubeconfig: flags.text("kubeconfig").to_owned(), ..ClientConnection::default() };
    let options = ClientOptions::new("candidate", connection).for_leader_election(timing.renew_deadline());
    let lock = LeaseLock {
        client: connect(&options).await.context("no client")?,
        namespace: flags.text("namespace").to_owned(),
        name: flags.text("name").to_owned(),
        identity: flags.text("identity").to_owned(),
        timing,
        metrics: KitMetrics::unregistered(),
    };
    let stop = Shutdown::on_signals()?.token();
    let mut term = 0;
    while !stop.is_cancelled() {
        term += 1;
        match leader::run(&lock, &stop, |leadership| work(leadership, term)).await {
            Ended::Lost(_) => say("stopped")?,
            Ended::NeverLed | Ended::Finished(_) => {}
        }
    }
    Ok(())
}

/// Claims to lead, as often as it is sure of it.
async fn work(leadership: Leadership, term: u32) {
    let stop = leadership.token();
    let _ = say("started");
    while !stop.is_cancelled() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        if leadership.holds() {
            let _ = say(&format!("lead {now} {term}"));
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
            () = stop.cancelled() => {}
        }
    }
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
