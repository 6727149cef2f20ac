//! The one binary: every role of Koord, and the tools around them.

mod command;
mod demo;
mod explain;
mod lean;
mod replay;
mod role;
mod sandbox;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Trees of small objects come and go with every request; this allocator takes half as long for them as glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let program = words.first().cloned().unwrap_or_else(|| "koord".into());
    if let Some(role) = role::by_program(role::ROLES, Path::new(&program)) {
        return (role.run)(words.split_off(1));
    }
    command::run(words)
}
