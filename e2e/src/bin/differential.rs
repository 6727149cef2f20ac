//! Compares our scheduling with the real kube-scheduler's at length; `cargo xtask differential` calls it.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use koord_e2e::differential::{self, Ground, Options};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<bool> {
    let options = options(std::env::args().skip(1))?;
    let Some(report) = differential::compare(&options, &mut say).await? else {
        bail!("the real kube-scheduler cannot be built here");
    };
    Ok(report.differences.is_empty())
}

/// `--scenarios N --seed N --seconds N --except KIND --keep DIR --file FILE --sandbox`, in any order.
fn options(mut words: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options {
        ground: Ground::Kubernetes,
        first_seed: 0,
        count: 500,
        limit: None,
        except: Vec::new(),
        keep: None,
        failures: Some("target/differential".into()),
        file: None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--scenarios" => options.count = value()?.parse()?,
            "--seed" => options.first_seed = value()?.parse()?,
            "--seconds" => options.limit = Some(std::time::Duration::from_secs(value()?.parse()?)),
            "--keep" => options.keep = Some(value()?.into()),
            "--except" => options.except.push(value()?),
            "--file" => (options.file, options.count) = (Some(value()?.into()), 1),
            "--sandbox" => options.ground = Ground::Sandbox,
            _ => bail!("unknown option {word:?}"),
        }
    }
    Ok(options)
}

/// One line for the person who waits.
fn say(line: &str) {
    // Nothing useful remains to be done when standard error is gone.
    let _ = writeln!(std::io::stderr(), "{line}");
}
