//! One attempt: from a pod and the cluster to a node, or to the reasons why not. Spec: scheduler-core 3.2.
//!
//! Pure: nothing is assumed here and nothing is remembered. `search` finds the nodes that can take the pod,
//! `rank` chooses among them, `diagnosis` keeps what was said against the others.

use std::sync::Arc;

use crate::cluster::load::Settings;
use crate::cluster::{Cluster, Row};
use crate::extender::Extenders;
use crate::framework::timing::{Timing, word};
use crate::framework::{
    Agreement, Code, Cycle, Hooks, Nominating, PluginName, PostFilterInput, Preemption, Restore, Sieve,
    Slots, Status,
};
use crate::pod::Pod;
use crate::random::Random;
use crate::time::Time;

mod diagnosis;
mod extend;
mod memory;
mod nominated;
mod rank;
mod room;
mod search;

pub use diagnosis::{Diagnosis, Reasons};
pub use memory::Memory;
pub use nominated::{Nominated, Promised};
pub use room::{Lack, Room};
pub use search::{Prepared, nodes_to_find};

/// The plugins of one profile, point by point, in the order they run.
#[derive(Default)]
pub struct Framework {
    pub scheduler: Box<str>,
    pub pre_enqueues: Vec<Hooks>,
    pub pre_filters: Vec<Hooks>,
    /// Of the plugins at PreFilter.
    pub restores: Vec<Arc<dyn Restore>>,
    pub filters: Vec<Hooks>,
    pub post_filters: Vec<Hooks>,
    /// With their weights.
    pub scores: Vec<(Hooks, i64)>,
    pub reserves: Vec<Hooks>,
    pub permits: Vec<Hooks>,
    pub pre_binds: Vec<Hooks>,
    pub post_binds: Vec<Hooks>,
    pub sampling: Sampling,
    pub ties: Ties,
    pub timing: Timing,
}

impl Framework {
    /// How its plugins want the load of nodes to be followed; the same may come twice.
    pub fn loads(&self) -> impl Iterator<Item = &Arc<Settings>> {
        let scores = self.scores.iter().map(|(hooks, _)| hooks);
        self.filters.iter().chain(scores).filter_map(|hooks| hooks.load.as_ref())
    }
}

/// How many of the nodes that can take a pod are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// All of them.
    #[default]
    All,
    /// So many percent; 0 adapts to the size of the cluster, as kube-scheduler does.
    Percent(i64),
}

/// How one of several best nodes is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// Each as likely as any other.
    #[default]
    Random,
    /// Exactly as kube-scheduler 1.35 with parallelism 1.
    Heap,
}

/// A node was found.
#[derive(Debug)]
pub struct Choice {
    pub row: Row,
    /// How many nodes passed.
    pub feasible_count: usize,
    /// The nodes that passed, with their totals; no totals when only one passed. Empty when the choice was made from
    /// memory: an attempt without one tells.
    pub feasible: Vec<(Row, i64)>,
    /// Nodes looked at.
    pub evaluated: usize,
    /// What plugins keep for the steps that follow.
    pub slots: Slots,
    /// Nodes that did not pass, and why.
    pub refused: Sieve,
}

/// Plugins refused every node, and this is what could be done about it.
#[derive(Debug)]
pub struct Unfit {
    pub diagnosis: Diagnosis,
    /// What PostFilter plugins say to users, joined; empty when none was asked or one succeeded.
    pub help: String,
    pub nominating: Nominating,
    pub preemption: Option<Preemption>,
}

impl Unfit {
    /// The text of event and condition. Spec: scheduler-core 4.2.
    pub fn message(&self) -> String {
        match self.help.as_str() {
            "" => self.diagnosis.message(),
            help => format!("{} {help}", self.diagnosis.message()),
        }
    }
}

/// Why there is none.
#[derive(Debug)]
pub enum Failure {
    /// Plugins refused every node.
    Unfit(Box<Unfit>),
    /// Something went wrong.
    Error(Status),
    NoNodes,
}

/// What an attempt needs beside the cluster.
pub struct Attempt<'a> {
    pub framework: &'a Framework,
    pub nominated: &'a Nominated,
    pub order: &'a [Row],
    /// Where the search begins; moved on for the next attempt.
    pub start: &'a mut usize,
    pub random: &'a mut Random,
    /// The node that the pod is promised; tried first.
    pub nominated_row: Option<Row>,
    pub now: Time,
    /// What attempts of this profile on this cluster remember. Without it every node is asked about and the choice
    /// tells all totals; the outcome is the same. What-if attempts go without.
    pub memory: Option<&'a mut Memory>,
    /// Others who are asked, in this order. What-if attempts go without.
    pub extenders: &'a mut Extenders,
}

impl Attempt<'_> {
    /// Tries to find a node for the pod.
    pub fn run(mut self, cluster: &Cluster, pod: &Arc<Pod>) -> Result<Choice, Failure> {
        if self.order.is_empty() {
            return Err(Failure::NoNodes);
        }
        // What others say cannot be remembered.
        let is_ours_alone = !extend::concerns(self.extenders, cluster, pod);
        let memory = self.memory.take().filter(|_| is_ours_alone);
        let begun = self.framework.timing.begin();
        if let Some(remembered) = memory.and_then(|memory| memory.attempt(&mut self, cluster, pod)) {
            // What is remembered of all points is found together.
            let code = if remembered.is_ok() { Code::Success } else { Code::Unschedulable };
            self.framework.timing.end(begun, "Filter", code.word());
            return remembered;
        }
        self.ask_all(cluster, pod)
    }

    fn is_unordered(&self) -> bool {
        self.framework.sampling == Sampling::All && self.framework.ties == Ties::Random
    }

    /// Asks about every node.
    fn ask_all(mut self, cluster: &Cluster, pod: &Arc<Pod>) -> Result<Choice, Failure> {
        let mut cycle = Cycle::new(cluster, pod);
        let mut prepared = Prepared::default();
        if let Err(refused) = search::prepare(self.framework, &mut cycle, &mut prepared) {
            return Err(match refused {
                search::Refused::Error(status) => Failure::Error(status),
                search::Refused::Pod(status) => {
                    let narrowing = prepared.narrowing().to_vec();
                    self.help(&cycle, &prepared, Diagnosis::of_pod(status, narrowing, self.order.len()))
                }
            });
        }
        search::restore(self.framework, &mut cycle, &prepared);
        let begun = self.framework.timing.begin();
        let found = search::run(&mut self, &cycle, &prepared);
        self.framework.timing.end(begun, "Filter", filtered_word(&found));
        let found = found.map_err(Failure::Error)?;
        let evaluated = found.feasible.len() + found.sieve.rejected_count();
        let (row, feasible) = match found.feasible.as_slice() {
            [] => {
                let diagnosis = Diagnosis::of_nodes(found.sieve, found.left_out, self.order.len());
                return Err(self.help(&cycle, &prepared, diagnosis));
            }
            [row] => (*row, vec![(*row, 0)]),
            rows => {
                let mut totals = rank::totals(self.framework, &mut cycle, rows).map_err(Failure::Error)?;
                extend::add_scores(self.extenders, &cycle, rows, &mut totals);
                let ties = if self.extenders.is_empty() { self.framework.ties } else { Ties::Random };
                let at = rank::pick(&totals, ties, self.random);
                let feasible: Vec<(Row, i64)> = rows.iter().copied().zip(totals).collect();
                (feasible[at].0, feasible)
            }
        };
        let feasible_count = feasible.len();
        Ok(Choice { row, feasible_count, feasible, evaluated, slots: cycle.slots, refused: found.sieve })
    }

    /// Asks PostFilter plugins, in order, until one helps or forbids. Spec: scheduler-core 3.2.9.
    fn help(&mut self, cycle: &Cycle<'_>, prepared: &Prepared, diagnosis: Diagnosis) -> Failure {
        let mut unfit =
            Unfit { diagnosis, help: String::new(), nominating: Nominating::Keep, preemption: None };
        if self.framework.post_filters.iter().all(|hooks| hooks.post_filter.is_none()) {
            unfit.nominating = Nominating::Clear;
        }
        let mut texts: Vec<String> = Vec::new();
        let say = extend::Say::about_room(self.extenders, cycle);
        let (timing, begun) = (&self.framework.timing, self.framework.timing.begin());
        let mut code = Code::Unschedulable;
        for hooks in &self.framework.post_filters {
            let Some(plugin) = &hooks.post_filter else { continue };
            let input = PostFilterInput {
                cycle,
                framework: self.framework,
                prepared,
                diagnosis: &unfit.diagnosis,
                nominated: self.nominated,
                order: self.order,
                nominated_row: self.nominated_row,
                now: self.now,
                agreement: say.as_ref().map(|say| say as &dyn Agreement),
            };
            let plugin_begun = timing.begin_plugin();
            let answer = plugin.help(&input, self.random);
            code = answer.status.code;
            timing.end_plugin(plugin_begun, "PostFilter", hooks.name, code.word());
            match answer.status.code {
                Code::Success => {
                    (unfit.nominating, unfit.preemption) = (answer.nominating, answer.preemption);
                    texts.clear();
                    break;
                }
                // The answer of one who forbids, or broke, stands alone.
                Code::Unresolvable => {
                    unfit.nominating = answer.nominating;
                    texts = vec![answer.status.to_string()];
                    break;
                }
                code if code.is_rejected() => {
                    if answer.nominating != Nominating::Keep {
                        unfit.nominating = answer.nominating;
                    }
                    texts.extend(answer.status.reasons.iter().map(|reason| reason.text.clone().into_owned()));
                }
                _ => {
                    unfit.nominating = Nominating::Keep;
                    texts = vec![answer.status.to_string()];
                    break;
                }
            }
        }
        timing.end(begun, "PostFilter", code.word());
        unfit.help = texts.join(", ");
        Failure::Unfit(Box::new(unfit))
    }
}

fn filtered_word(found: &Result<search::Found, Status>) -> &'static str {
    match found {
        Ok(found) if found.feasible.is_empty() => Code::Unschedulable.word(),
        other => word(other),
    }
}

/// Each plugin's weighted scores, one for each row, asked anew; what goes wrong gives none.
pub(crate) fn score_parts(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Arc<Pod>,
    rows: &[Row],
) -> Vec<(PluginName, Vec<i64>)> {
    let mut cycle = Cycle::new(cluster, pod);
    let mut parts = Vec::new();
    if search::prepare(framework, &mut cycle, &mut Prepared::default()).is_ok() {
        let _ = rank::rate(framework, &mut cycle, rows, |name, weight, scores| {
            parts.push((name, scores.iter().map(|score| score * weight).collect()));
        });
    }
    parts
}

/// Nodes that a plugin's node set leaves out, and the plugins that left them out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub plugins: Vec<PluginName>,
    pub count: usize,
}

#[cfg(test)]
pub(crate) mod tests;
