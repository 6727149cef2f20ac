//! koord-manager as a process of its own, so that tests can kill it at any point.

use std::process::ExitCode;

fn main() -> ExitCode {
    koord_manager::run::main(std::env::args_os().skip(1).collect(), env!("CARGO_PKG_VERSION"))
}
