//! The same answers as the real kube-scheduler: generated scenarios are given to both, and everything is compared.
//!
//! `generate` makes scenarios from seeds, `record` plays them with the real scheduler (`peer`) on an API server
//! (`server`), `ours` with our engine in this process; `trial` does both side by side and `compare` says what differs.
//! A difference is tried again from the state in which it arose, since the real scheduler chooses between equals by
//! chance, and then made as small as possible (`minimise`).

mod binder;
pub mod board;
pub mod compare;
pub mod generate;
pub mod minimise;
pub mod ours;
pub mod peer;
pub mod random;
pub mod record;
pub mod scenario;
pub mod server;
pub mod trial;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use record::Lab;
use scenario::{Scenario, is_kind};
pub use server::Ground;
use server::Host;
use trial::{Found, Trial};

/// A difference counts when it shows so many times in a row from the same state.
const REPEATS: usize = 4;
/// Differences of one kind that are made small; more of the same helps nobody.
const MINIMISED_MAX: usize = 2;

/// Progress is told after so many scenarios.
const TOLD_EVERY: u64 = 50;

/// How much to compare.
#[derive(Clone, Debug)]
pub struct Options {
    pub ground: Ground,
    pub first_seed: u64,
    /// Scenarios at most.
    pub count: u64,
    /// No new scenario begins after this.
    pub limit: Option<Duration>,
    /// Kinds of differences that are known and passed over.
    pub except: Vec<String>,
    /// Where recordings are kept, if anywhere.
    pub keep: Option<PathBuf>,
    /// Where scenarios that differ are kept, if anywhere.
    pub failures: Option<PathBuf>,
    /// A scenario to run instead of generated ones.
    pub file: Option<PathBuf>,
}

/// What it brought.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub scenarios: u64,
    /// That both schedulers took for them, start and repetitions aside.
    pub time: Duration,
    pub placed: usize,
    pub pending: usize,
    pub preempting: usize,
    /// Changes while a pod waited, and those that made the scheduler try it again.
    pub waited: usize,
    pub woken: usize,
    /// Those that made ours alone try it again, as docs/differences.md says.
    pub remembered: usize,
    /// Scenarios broken off because kube-scheduler forgot a pod that it had made room for.
    pub forgotten: usize,
    pub scored: usize,
    /// Differences that were not there when tried again: the real scheduler chose otherwise by chance.
    pub by_chance: usize,
    /// Real ones, told at length.
    pub differences: Vec<String>,
    /// How many of each kind.
    kinds: std::collections::BTreeMap<String, usize>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} scenarios in {:.1} s: {} pods placed, {} refused, {} by preemption, {} of {} changes woke one that waited and {} only ours; {} nodes scored; {} chose otherwise by chance; {} scenarios broken off by kube-scheduler; {} differences",
            self.scenarios,
            self.time.as_secs_f64(),
            self.placed,
            self.pending,
            self.preempting,
            self.woken,
            self.waited,
            self.remembered,
            self.scored,
            self.by_chance,
            self.forgotten,
            self.differences.len()
        )
    }
}

/// Compares scenario after scenario. None where the real programs cannot be built; `say` hears of progress.
pub async fn compare(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Option<Report>> {
    let Some(program) = tokio::task::block_in_place(peer::program)? else { return Ok(None) };
    let Some(host) = Host::start(options.ground).await? else { return Ok(None) };
    let mut lab = Lab::start(&program, host.kubeconfig()).await?;
    let start = Instant::now();
    let mut report = Report::default();
    for seed in options.first_seed..options.first_seed.saturating_add(options.count) {
        if options.limit.is_some_and(|limit| start.elapsed() >= limit) {
            break;
        }
        let scenario = match &options.file {
            Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
            None => fit_to(options.ground, generate::scenario(seed)),
        };
        let begin = Instant::now();
        let tried = trial::run(&mut lab, &scenario).await;
        report.time += begin.elapsed();
        let mut trial = match tried {
            Ok(trial) => trial,
            Err(error) if error.is::<record::Forgotten>() => {
                report.forgotten += 1;
                continue;
            }
            Err(error) => {
                let told = format!("seed {seed} ({}) broke off: {error:#}", scenario.family);
                say(&told);
                report.differences.push(told);
                keep(options, &seed.to_string(), &scenario, say)?;
                continue;
            }
        };
        trial.pass_over(&options.except);
        report.scenarios += 1;
        report.add(&trial);
        if report.scenarios.is_multiple_of(TOLD_EVERY) {
            say(&format!("seed {seed}: {report}"));
        }
        if let Some(folder) = &options.keep {
            let path = folder.join(format!("{}-{seed}.json", scenario.family));
            std::fs::write(path, serde_json::to_vec_pretty(&trial.recorded)?)?;
        }
        for found in &trial.found {
            let known = report.differences.len();
            let smallest = match judge(&mut lab, &mut report, found).await {
                Ok(smallest) => smallest,
                Err(error) => {
                    let note = format!("(cannot be tried again: {error:#})");
                    report.differences.push(tell(found, &note, &found.frozen)?);
                    Some(found.frozen.clone())
                }
            };
            if let Some(smallest) = smallest {
                keep(options, &format!("{seed}-{}", found.pod), &smallest, say)?;
            }
            report.differences.iter().skip(known).for_each(|difference| say(difference));
        }
    }
    lab.stop()?;
    host.stop().await;
    say(&format!("seeds from {}: {report}", options.first_seed));
    Ok(Some(report))
}

/// Keeps a scenario that differs where it can be run again from.
fn keep(options: &Options, name: &str, scenario: &Scenario, say: &mut dyn FnMut(&str)) -> Result<()> {
    let Some(folder) = &options.failures else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_vec_pretty(scenario)?)?;
    say(&format!("kept as {}", path.display()));
    Ok(())
}

impl Report {
    fn add(&mut self, trial: &Trial) {
        self.placed += trial.placed;
        self.pending += trial.pending;
        self.preempting += trial.preempting;
        self.waited += trial.waited;
        self.woken += trial.woken;
        self.remembered += trial.remembered;
        self.scored += trial.scored;
    }
}

/// Tries a difference again from the same state. One that goes away is chance, unless ours alone changed its mind.
/// Returns the smallest scenario that shows it.
async fn judge(lab: &mut Lab, report: &mut Report, found: &Found) -> Result<Option<Scenario>> {
    let what = found.what();
    let known = report.kinds.get(what).copied().unwrap_or(0);
    let repeats = if known < MINIMISED_MAX { REPEATS } else { 1 };
    for _ in 0..repeats {
        let again = trial::run(lab, &found.frozen).await?;
        if again.found.iter().any(|again| again.what() == what) {
            continue;
        }
        let real_again = again.recorded.steps.last().and_then(|step| step.want.get(&found.pod));
        if !real_again.is_some_and(|again| says_the_same(again, &found.real)) {
            report.by_chance += 1;
            return Ok(None);
        }
        let note = "(only with the pods placed one after the other)";
        report.differences.push(tell(found, note, &found.frozen)?);
        return Ok(Some(found.frozen.clone()));
    }
    report.kinds.insert(what.to_owned(), known + 1);
    if known >= MINIMISED_MAX {
        report.differences.push(tell(found, "(not made smaller)", &Scenario::default())?);
        return Ok(Some(found.frozen.clone()));
    }
    let smallest = minimise::minimise(lab, &found.frozen, what).await?;
    report.differences.push(tell(found, "", &smallest)?);
    Ok(Some(smallest))
}

/// Whether the real scheduler gave the same answer twice, its choice between equals aside.
fn says_the_same(a: &scenario::Outcome, b: &scenario::Outcome) -> bool {
    a.node.is_empty() == b.node.is_empty()
        && a.scores == b.scores
        && a.message == b.message
        && a.gone == b.gone
        && a.woken == b.woken
}

fn tell(found: &Found, note: &str, scenario: &Scenario) -> Result<String> {
    let mut text = format!("seed {} ({}), pod {} {note}", found.seed, found.frozen.family, found.pod);
    for difference in &found.differences {
        write!(text, "\n  {difference}")?;
    }
    for object in &scenario.base {
        write!(text, "\n  base {object}")?;
    }
    for step in &scenario.steps {
        for object in &step.create {
            write!(text, "\n  create {object}")?;
        }
        for node in &step.update {
            write!(text, "\n  update {node}")?;
        }
        for path in &step.delete {
            write!(text, "\n  delete {path}")?;
        }
    }
    Ok(text)
}

/// Leaves out what an API server does not know.
fn fit_to(ground: Ground, mut scenario: Scenario) -> Scenario {
    if ground == Ground::Sandbox {
        scenario.base.retain(|object| !is_kind(object, "RuntimeClass"));
        let created = scenario.steps.iter_mut().flat_map(|step| &mut step.create);
        for object in created.chain(&mut scenario.base) {
            if let Some(spec) = object.get_mut("spec").and_then(|spec| spec.as_object_mut()) {
                spec.remove("runtimeClassName");
            }
        }
    }
    scenario
}
