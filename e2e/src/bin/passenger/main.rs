//! A node with a real kernel, koordlet as a process of its own on it, and somebody who watches from outside.
//!
//! `passenger scenes NAME…` plays scenes one after the other, in a virtual machine or on this host; each ends with a line
//! `scene NAME: passed`, or `scene NAME: skipped` with the reason. `passenger koordlet FLAG…` is koordlet itself, so that it can be killed at any point;
//! `passenger eat MIB` holds memory. `e2e/tests/koordlet_kernel.rs` starts it.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod containerd;
mod modules;
mod node;
mod replay;
mod scenes;
mod stage;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let role = words.next().unwrap_or_default();
    let rest: Vec<OsString> = words.collect();
    let done = match role.to_str() {
        Some("koordlet") => return koordlet::run::main(rest, env!("CARGO_PKG_VERSION")),
        Some("eat") => eat(&rest),
        Some("scenes") => play(&rest),
        _ => Err(anyhow::anyhow!("{role:?} is no role: koordlet, eat or scenes")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Holds memory until it is killed.
fn eat(words: &[OsString]) -> Result<()> {
    let mib: usize = words.first().and_then(|word| word.to_str()).context("eat how much?")?.parse()?;
    // Ones, for the kernel gives out pages of zeros without any memory behind them.
    let held = vec![1_u8; mib << 20];
    loop {
        std::thread::sleep(Duration::from_secs(3600));
        std::hint::black_box(&held);
    }
}

fn play(words: &[OsString]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for word in words {
        let name = word.to_string_lossy();
        println!("scene {name}: begins");
        let started = Instant::now();
        let end = runtime.block_on(async {
            let scene = scenes::play(&name);
            match tokio::time::timeout(scenes::PATIENCE, scene).await {
                Ok(done) => done.with_context(|| format!("scene {name}")),
                Err(_) => bail!("scene {name} did not end"),
            }
        })?;
        match end {
            scenes::End::Played => println!("scene {name}: passed in {} s", started.elapsed().as_secs()),
            scenes::End::Skipped(why) => println!("scene {name}: skipped: {why}"),
        }
    }
    Ok(())
}
