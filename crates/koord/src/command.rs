//! The command line of `koord` itself: subcommands, version, completions, helpful errors.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::builder::{EnumValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use clap_complete::Shell;
use koord_api::crd::generate::{self, Manifest};

use crate::role::{self, ROLES};
use crate::{demo, explain, replay, sandbox};

/// Version and commit, as `koord --version` prints them.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("KOORD_COMMIT"), ")");

/// Runs what the words ask for. The first word is the program's own name.
pub(crate) fn run(words: Vec<OsString>) -> ExitCode {
    let program = words.first().cloned().unwrap_or_default();
    if role::is_foreign_component(Path::new(&program)) {
        return fail(&format!(
            "{} is not a role of this build of koord; `koord --help` lists what it has",
            Path::new(&program).display()
        ));
    }
    let matches = match parser().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => {
            // clap prints help and version to standard output and errors to standard error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match matches.subcommand() {
        Some(("completions", args)) => completions(args),
        Some(("crds", args)) => crds(args),
        Some(("demo", args)) => demo::run(args),
        Some(("explain", args)) => explain::run(args),
        Some(("replay", args)) => replay::run(args),
        Some(("sandbox", args)) => sandbox::run(args),
        Some((name, args)) => match ROLES.iter().find(|role| role.name == name) {
            Some(role) => (role.run)(args.get_many("words").unwrap_or_default().cloned().collect()),
            None => fail(&format!("unknown subcommand {name:?}")),
        },
        None => fail("a subcommand is needed; `koord --help` lists them"),
    }
}

/// The whole command line, roles included.
fn parser() -> Command {
    let mut parser = Command::new("koord")
        .version(VERSION)
        .about("QoS-based co-location for Kubernetes, in one binary")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("completions")
                .about("Print a completion script for a shell")
                .after_help("Example: koord completions bash > /etc/bash_completion.d/koord")
                .arg(Arg::new("shell").required(true).value_parser(EnumValueParser::<Shell>::new())),
        )
        .subcommand(crds_parser())
        .subcommand(sandbox::parser())
        .subcommand(demo::parser())
        .subcommand(explain::parser())
        .subcommand(replay::parser());
    for role in ROLES {
        parser = parser.subcommand(
            Command::new(role.name).about(role.about).disable_help_flag(true).arg(
                Arg::new("words")
                    .num_args(0..)
                    .allow_hyphen_values(true)
                    .trailing_var_arg(true)
                    .value_parser(clap::value_parser!(OsString)),
            ),
        );
    }
    parser
}

fn crds_parser() -> Command {
    let names: Vec<String> = generate::manifests().iter().map(|crd| plural(crd).to_owned()).collect();
    Command::new("crds")
        .about("Print the CustomResourceDefinitions of every kind, for kubectl apply")
        .after_help("Example: koord crds | kubectl apply --server-side -f -")
        .arg(
            Arg::new("kind")
                .help("Only these kinds, by plural name (all when none is given)")
                .num_args(0..)
                .value_parser(PossibleValuesParser::new(names)),
        )
        .arg(Arg::new("list").long("list").help("Only the names, one a line").action(ArgAction::SetTrue))
}

fn completions(args: &ArgMatches) -> ExitCode {
    let Some(shell) = args.get_one::<Shell>("shell") else { return fail("no shell given") };
    let mut text = Vec::new();
    clap_complete::generate(*shell, &mut parser(), "koord", &mut text);
    print(&text)
}

fn crds(args: &ArgMatches) -> ExitCode {
    let wanted: Vec<&String> = args.get_many("kind").unwrap_or_default().collect();
    let mut text = String::new();
    for crd in generate::manifests() {
        if !wanted.is_empty() && !wanted.iter().any(|name| *name == plural(&crd)) {
            continue;
        }
        if args.get_flag("list") {
            text.push_str(crd.content["metadata"]["name"].as_str().unwrap_or_default());
            text.push('\n');
            continue;
        }
        match serde_saphyr::to_string(&crd.content) {
            Ok(yaml) => text.extend(["---\n", &yaml]),
            Err(error) => return fail(&format!("cannot render {}: {error}", crd.file_name)),
        }
    }
    print(text.as_bytes())
}

fn plural(crd: &Manifest) -> &str {
    crd.content["spec"]["names"]["plural"].as_str().unwrap_or_default()
}

/// Writes to standard output; a reader that went away (`koord crds | head`) is not an error.
fn print(text: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write to standard output: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn fail(message: &str) -> ExitCode {
    // Nothing is left to tell when standard error itself is gone.
    let _ = writeln!(io::stderr(), "error: {message}");
    ExitCode::from(2)
}
