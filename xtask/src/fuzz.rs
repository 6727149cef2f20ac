//! `cargo xtask fuzz`: coverage-guided fuzzing with the stable toolchain.
//!
//! `fuzz/` has the layout of cargo-fuzz, so `cargo fuzz run TARGET` works too where that tool and a
//! nightly toolchain are at hand. Here the same instrumentation is asked of the stable compiler.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;
use crate::step::{cargo, exec, say};

/// What cargo-fuzz passes to the compiler, less the sanitizer, which only nightly offers.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Targets to run; all of fuzz/fuzz_targets when none is given
    targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Try the same inputs each time, without what earlier runs have found
    #[arg(long)]
    seed: Option<u32>,
}

impl Options {
    /// For the test command: a fault that was there before must not fail somebody else's change by chance.
    pub(crate) fn all_for(seconds: u32) -> Options {
        Options { targets: Vec::new(), seconds, seed: Some(1) }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let known = known_targets()?;
    if let Some(unknown) = options.targets.iter().find(|name| !known.contains(name)) {
        bail!("no fuzz target {unknown:?}; there are: {}", known.join(", "));
    }
    let targets = if options.targets.is_empty() { &known } else { &options.targets };
    let target_dir = target_dir();
    // An explicit target triple keeps build scripts and proc macros free of the instrumentation.
    let triple = host_triple()?;
    exec(
        cargo(&[
            "build",
            "--release",
            "--locked",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--bins",
            "--target",
        ])
        .arg(&triple)
        .arg("--target-dir")
        .arg(&target_dir)
        .env("RUSTFLAGS", RUSTFLAGS),
    )?;
    for (index, name) in targets.iter().enumerate() {
        say(&format!("fuzzing {name} for {} s ({} of {})", options.seconds, index + 1, targets.len()));
        run_target(name, &target_dir.join(&triple).join("release").join(name), options)?;
    }
    Ok(())
}

/// Runs one target. New inputs go to a scratch folder; the committed corpus is only read.
fn run_target(name: &str, program: &Path, options: &Options) -> Result<()> {
    let scratch = target_dir().join(if options.seed.is_some() { "found-again" } else { "found" });
    let found = scratch.join(name);
    if options.seed.is_some() && found.exists() {
        std::fs::remove_dir_all(&found).with_context(|| format!("cannot empty {}", found.display()))?;
    }
    let artifacts = root().join("fuzz/artifacts").join(name);
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    // The engine talks a lot: kept in a file, and shown when it found something.
    let log = scratch.join(format!("{name}.log"));
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = Command::new(program)
        .arg(format!("-max_total_time={}", options.seconds))
        // 0 is a seed of chance.
        .arg(format!("-seed={}", options.seed.unwrap_or(0)))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=16384", "-verbosity=0", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&found)
        .arg(root().join("fuzz/corpus").join(name))
        .stderr(file)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let said = std::fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let said = String::from_utf8_lossy(&said);
    if !status.success() {
        bail!("fuzz target {name} found something; the input is in fuzz/artifacts/{name}:\n{said}");
    }
    let runs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    say(&format!("  {} runs, nothing found", runs.context("the fuzzing engine ran nothing")?.trim()));
    Ok(())
}

fn known_targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// Beside the ordinary build output, so that one cache folder holds both.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("fuzz")
}

fn host_triple() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc -vV")?;
    let text = String::from_utf8(output.stdout).context("rustc -vV printed no UTF-8")?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}
