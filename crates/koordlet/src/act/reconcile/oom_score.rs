//! OOM scores of processes, as their pods' annotations want them. Spec: koordlet-enforce 15.11.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use koord_api::number::nearest;
use koord_linux::cgroup::ids;
use koord_linux::executor::Target;
use koord_linux::process::{Process, ProcessStat};
use koord_linux::resource::Resource;
use koord_linux::system::SystemFile;

use super::super::{Ground, Hands, Setting};
use super::timed;
use crate::apply::{Change, Report, dir_of};
use crate::decide::hooks::oom_score;
use crate::decide::snapshot::{Container, Pod};
use crate::decide::wish::{Batch, ProcessPlace};
use crate::metrics::Metric;

/// The score of every process of a container that has one. A process whose container has none any more gets back what it
/// had.
pub(super) fn turn(setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
    let start = Instant::now();
    let mut report = Report::default();
    let mut kept: HashSet<Process> = HashSet::new();
    for pod in ground.pods {
        for container in pod.hooked_containers() {
            let score = oom_score::score(pod, &container.name);
            if score == Ok(None) {
                continue;
            }
            let processes = processes(setting, pod, container);
            kept.extend(processes.iter().map(|(process, _)| process));
            match score {
                Ok(Some(score)) if pod.is_active() => {
                    report = report.and(give(ground, hands, score, (pod, container), &processes));
                    let labels = [pod.name.as_str(), &pod.namespace, &pod.id.uid, &container.name];
                    setting.metrics.set(Metric::OomScoreAdj, &labels, nearest(score));
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(pod = %pod.name, error, "an OOM score cannot be read"),
            }
        }
    }
    // Differs: upstream leaves a score whose annotation went away.
    let is_dropped = |change: &Change<'_>| match change.target {
        Target::System(SystemFile::OomScoreAdj(process)) => !kept.contains(process),
        _ => false,
    };
    report = report.and(hands.applier.give_back(ground.now, is_dropped));
    timed(&setting.metrics, "container", "oom_score_adj", start, report);
}

fn give(
    ground: &Ground<'_>,
    hands: &mut Hands<'_>,
    score: i64,
    (pod, container): (&Pod, &Container),
    processes: &[(Process, u32)],
) -> Report {
    let Some(id) = &container.id else { return Report::default() };
    // First: what a child has that is new here, it has from the score that its parent was given before.
    let by_pid: HashMap<u32, Process> =
        processes.iter().map(|(process, _)| (process.pid, *process)).collect();
    for (child, parent) in processes {
        if let Some(parent) = by_pid.get(parent) {
            hands.applier.inherit(*child, *parent);
        }
    }
    let wish = |(process, _): &(Process, u32)| {
        let Process { pid, start_ticks } = *process;
        let place = ProcessPlace { pid, start_ticks, pod: pod.id.clone(), container: id.clone() };
        oom_score::wish(score, pod, &container.name, place)
    };
    hands.apply(ground, &Batch::Each(processes.iter().map(wish).collect()))
}

/// Processes of a container, each with the id of its parent.
fn processes(setting: &Setting, pod: &Pod, container: &Container) -> Vec<(Process, u32)> {
    let cgroups = &setting.cgroups;
    let dir = container.place(pod).and_then(|place| dir_of(&place, cgroups.driver()));
    let pids = dir.and_then(|dir| cgroups.read(Resource::Procs, &dir, ids).ok()).unwrap_or_default();
    let of = |pid: u32| {
        let stat = ProcessStat::read(&setting.root, pid).ok()?;
        Some((Process { pid, start_ticks: stat.start_ticks }, stat.parent))
    };
    pids.into_iter().filter_map(of).collect()
}
