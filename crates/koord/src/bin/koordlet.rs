//! The node agent alone: what every node pays for should not carry the rest of the one binary.
//!
//! `koord koordlet` becomes this program where it lies beside `koord`. It keeps the C library's allocator, which takes
//! less memory for few threads than the one that serves many requests.

use std::process::ExitCode;

/// As `koord` says it.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("KOORD_COMMIT"), ")");

fn main() -> ExitCode {
    koordlet::run::main(std::env::args_os().skip(1).collect(), VERSION)
}
