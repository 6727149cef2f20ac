//! Everything we automate, in one place: `cargo xtask --help`.

mod bench_kit;
mod bench_koordlet;
mod bench_manager;
mod bench_process;
mod bench_report;
mod bench_sandbox;
mod bench_scheduler;
mod differential;
mod fuzz;
mod r#gen;
mod k8s;
mod setup;
mod step;
mod test;
#[cfg(test)]
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What `koord` has, so that benchmarks in this process measure what runs there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The one way to test, generate, benchmark and try Koord")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that a contributor and CI run: format, lints, generated files, tests, docs, fuzz targets
    Test(test::Options),
    /// Write the CRD manifests in deploy/crds from the Rust types
    Gen {
        /// Write nothing; fail when a file is not what the types say
        #[arg(long)]
        check: bool,
    },
    /// A real Kubernetes control plane on this machine
    #[command(subcommand)]
    K8s(k8s::K8s),
    /// Measure, and print each figure as a ratio taken in one run
    #[command(subcommand)]
    Bench(Bench),
    /// Compare our scheduling with the real kube-scheduler's in generated scenarios
    Differential(differential::Options),
    /// Run fuzz targets for a while
    Fuzz(fuzz::Options),
}

#[derive(Subcommand)]
enum Bench {
    /// Memory of the watch cache at 150,000 pods
    Kit,
    /// The node agent: CPU and memory beside a plain reader of the same files
    Koordlet(bench_koordlet::Options),
    /// The manager: admission under load, and what 5,000 nodes cost it and the API server
    Manager(bench_manager::Options),
    /// The sandbox's speed and memory beside real kube-apiserver and etcd
    Sandbox,
    /// The engine alone, and the scheduler on a real API server beside kube-scheduler
    Scheduler(bench_scheduler::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Gen { check } => r#gen::run(check),
        Task::K8s(command) => k8s::run(command),
        Task::Bench(Bench::Kit) => bench_kit::run(),
        Task::Bench(Bench::Koordlet(options)) => bench_koordlet::run(&options),
        Task::Bench(Bench::Manager(options)) => bench_manager::run(&options),
        Task::Bench(Bench::Sandbox) => bench_sandbox::run(),
        Task::Bench(Bench::Scheduler(options)) => bench_scheduler::run(&options),
        Task::Differential(options) => differential::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            step::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies one level below the root")
}
