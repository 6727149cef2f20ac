//! `koord replay`: plays a scheduler's recording again and prints what it decides.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, FromArgMatches};
use koord_scheduler::record::{Decision, Played, Verdict, replay};
use serde_json::json;

use crate::explain::Format;

/// Play a scheduler's recording again
#[derive(Debug, Args)]
struct Replay {
    /// What `koord scheduler --record FILE` wrote
    file: PathBuf,
    /// For people, or all the data
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// The subcommand's own parser.
pub(crate) fn parser() -> clap::Command {
    Replay::augment_args(clap::Command::new("replay").about("Play a scheduler's recording again")).after_help(
        "Ends with 1 when decisions differ from the recorded ones, with 2 when the file cannot be played.\n\
         Example: koord replay /var/log/scheduler.rec -o json",
    )
}

/// Runs what was parsed.
pub(crate) fn run(matches: &clap::ArgMatches) -> ExitCode {
    let result =
        Replay::from_arg_matches(matches).map_err(anyhow::Error::from).and_then(|replay| replay.run());
    match result {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to tell when standard error itself is gone.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl Replay {
    fn run(self) -> anyhow::Result<ExitCode> {
        let mut out = BufWriter::new(io::stdout().lock());
        let mut decisions = Vec::new();
        let mut count = 0_usize;
        // A reader that went away (`koord replay FILE | head`) is not an error.
        let played = replay(&self.file, |decision| {
            count += 1;
            match self.output {
                Format::Text => _ = writeln!(out, "{}", line(&decision)),
                Format::Json => decisions.push(decision),
            }
        })?;
        match self.output {
            Format::Text => _ = writeln!(out, "{}", ending(count, &played)),
            Format::Json => {
                let whole = json!({ "decisions": decisions, "end": played, "isSame": played.is_same() });
                _ = writeln!(out, "{}", serde_json::to_string_pretty(&whole)?);
            }
        }
        let _ = out.flush();
        Ok(if played.is_same() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn line(decision: &Decision) -> String {
    let Decision { at, pod, verdict } = decision;
    match verdict {
        Verdict::Placed { node } => format!("{at} {pod} -> {node}"),
        Verdict::Waits { message } => format!("{at} {pod} waits: {message}"),
        Verdict::Preempts { node, victims } => {
            format!("{at} {pod} makes room on {node}: {} must go", victims.join(", "))
        }
    }
}

fn ending(count: usize, played: &Played) -> String {
    match (&played.difference, played.cut) {
        (Some(difference), _) => format!(
            "{count} decisions. They differ from the recorded ones before {}: {} commands here, {} there.",
            difference.at, difference.replayed, difference.recorded
        ),
        (None, Some(cut)) => format!(
            "{count} decisions. The recording had been cut at {cut}, so those of the original may differ."
        ),
        (None, None) => {
            format!("{count} decisions; the {} commands recorded are the same.", played.verified)
        }
    }
}
