//! The search for the node where room is cheapest to make. Spec: scheduler-core 6.13.2 to 6.13.7.

use super::dry_run;
use super::shortlist::{Candidate, Shortlist, Victims};
use super::sums::Sums;
use crate::cluster::Row;
use crate::cluster::budgets::Guard;
use crate::framework::{Code, PostFilterInput, Status};
use crate::pod::Pod;
use crate::profile::args::CandidateLimits;
use crate::random::Random;
use crate::schedule::{Lack, Reasons};

/// How nodes are tried; the outcome is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plugins) enum Method {
    /// By sums where they are enough.
    Quickest,
    /// By the filters, always.
    Filters,
}

/// What the search brought.
pub(super) enum Outcome {
    /// The best node, or all of them where others have to agree. At least one.
    Found(Vec<Candidate>),
    /// No node would do, for users.
    Nothing(String),
    /// Something went wrong on some nodes and no other would do.
    Broken(String),
}

pub(super) fn run(
    input: &PostFilterInput<'_>,
    limits: CandidateLimits,
    method: Method,
    may_go: &dyn Fn(&Pod) -> bool,
    random: &mut Random,
) -> Outcome {
    let rows = input.diagnosis.curable(input.order);
    let mut search = Search {
        input,
        sums: match method {
            Method::Quickest => Sums::of(input),
            Method::Filters => None,
        },
        may_go,
        guard: Guard::new(input.cycle.cluster),
        shortlist: Shortlist::new(candidates_wanted(limits, rows.len()), input.agreement.is_some()),
        refusals: Refusals::default(),
        victims: Victims::default(),
        hopeless: Vec::new(),
    };
    let (before, after) = rows.split_at(random.below(rows.len()));
    for row in after.iter().chain(before) {
        search.look(*row);
        if search.shortlist.is_full() {
            break;
        }
    }
    // Why they will not do is of interest only where nobody else would.
    if search.shortlist.is_empty() {
        std::mem::take(&mut search.hopeless).into_iter().for_each(|row| search.look_closer(row));
    }
    let candidates = search.shortlist.into_candidates();
    match candidates.is_empty() {
        false => Outcome::Found(candidates),
        true => search.refusals.outcome(input.diagnosis.node_count),
    }
}

/// How many candidates are enough, of so many nodes.
pub(super) fn candidates_wanted(limits: CandidateLimits, nodes: usize) -> usize {
    let percentage = usize::try_from(limits.percentage.get()).unwrap_or(0);
    let absolute = usize::try_from(limits.absolute).unwrap_or(0);
    (nodes.saturating_mul(percentage) / 100).max(absolute).min(nodes)
}

struct Search<'a> {
    input: &'a PostFilterInput<'a>,
    may_go: &'a dyn Fn(&Pod) -> bool,
    sums: Option<Sums<'a>>,
    guard: Guard<'a>,
    shortlist: Shortlist,
    refusals: Refusals,
    /// Used again for every node.
    victims: Victims,
    /// Nodes that will not do, for reasons not looked at yet: reading the pods of a node is most of the work.
    hopeless: Vec<Row>,
}

impl Search<'_> {
    /// Tries one node, unless it is known without trying that it will not do.
    fn look(&mut self, row: Row) {
        let (cluster, priority) = (self.input.cycle.cluster, self.input.cycle.pod.class.priority);
        if cluster.columns.lowest_priority[row.index()] >= priority {
            self.refusals.without_victims += 1;
        } else if self.sums.as_ref().is_some_and(|sums| sums.is_beyond_hope(row)) {
            self.hopeless.push(row);
        } else {
            self.look_closer(row);
        }
    }

    /// Tries one node that has someone to take away.
    fn look_closer(&mut self, row: Row) {
        let (cluster, priority) = (self.input.cycle.cluster, self.input.cycle.pod.class.priority);
        let pods = &cluster.node(row).pods;
        let lower = pods.below(priority);
        if !pods.all[lower..].iter().any(|pod| (self.may_go)(pod)) {
            self.refusals.without_victims += 1;
            return;
        }
        if let Err(refusal) = self.try_node(row, lower) {
            self.refusals.add(refusal);
        } else if self.victims.places.is_empty() {
            let text = format!("expected at least one victim pod on node \"{}\"", cluster.node(row).name);
            self.refusals.errors.push(text);
        } else {
            self.shortlist.offer(row, &mut self.victims, pods.standings(), self.input.now);
        }
    }

    fn try_node(&mut self, row: Row, lower: usize) -> Result<(), Refusal> {
        let Search { input, sums, guard, victims, refusals, may_go, .. } = self;
        let by_filters = |guard: &mut Guard<'_>, victims: &mut Victims| {
            dry_run::run(input, row, (lower, *may_go), guard, victims).map_err(Refusal::New)
        };
        // What owners leave goes back to their reservations, which sums do not know.
        let is_shared = input.cycle.cluster.reservations().are_on(row);
        let Some(sums) = sums.as_mut().filter(|sums| !is_shared && !sums.is_hopeless(input.cycle, row))
        else {
            return by_filters(guard, victims);
        };
        let Err(lack) = sums.run(row, lower, guard, victims) else { return Ok(()) };
        match refusals.lacks.iter().find(|(known, _)| *known == lack) {
            Some((_, at)) => Err(Refusal::Known(*at)),
            // The filters say it once, for all nodes that lack the same.
            None => {
                let refusal = by_filters(guard, victims);
                if let Err(Refusal::New(status)) = &refusal {
                    let at = refusals.number(status);
                    refusals.lacks.push((lack, at));
                }
                refusal
            }
        }
    }
}

/// Why a node will not do.
enum Refusal {
    New(Status),
    /// The same as an earlier one, by its number.
    Known(usize),
}

/// Why nodes will not do, and how many for each reason.
#[derive(Default)]
struct Refusals {
    without_victims: usize,
    statuses: Vec<(Status, usize)>,
    /// Numbers of statuses by what nodes lack.
    lacks: Vec<(Lack, usize)>,
    errors: Vec<String>,
}

/// Faults that are told one by one; the text goes into an object of the API.
const ERRORS_TOLD: usize = 16;

impl Refusals {
    fn add(&mut self, refusal: Refusal) {
        let at = match refusal {
            Refusal::Known(at) => at,
            Refusal::New(status) if status.code == Code::Error => {
                return self.errors.push(status.to_string());
            }
            Refusal::New(status) => self.number(&status),
        };
        if let Some((_, count)) = self.statuses.get_mut(at) {
            *count += 1;
        }
    }

    /// The number of a status, new if none reads alike.
    fn number(&mut self, status: &Status) -> usize {
        let known = self.statuses.iter().position(|(known, _)| known.reads_like(status));
        known.unwrap_or_else(|| {
            self.statuses.push((status.clone(), 0));
            self.statuses.len() - 1
        })
    }

    fn outcome(mut self, node_count: usize) -> Outcome {
        if !self.errors.is_empty() {
            return Outcome::Broken(self.told_errors());
        }
        let mut reasons = Reasons::default();
        let mut tried = self.without_victims;
        if self.without_victims > 0 {
            reasons.add_text("No preemption victims found for incoming pod", self.without_victims);
        }
        for (status, count) in self.statuses.iter().filter(|(_, count)| *count > 0) {
            reasons.add(status, *count);
            tried += count;
        }
        if node_count > tried {
            reasons.add_text("Preemption is not helpful for scheduling", node_count - tried);
        }
        Outcome::Nothing(reasons.message(node_count))
    }

    /// One as it is, several in brackets, each once.
    fn told_errors(&mut self) -> String {
        self.errors.sort();
        self.errors.dedup();
        let more = self.errors.len().saturating_sub(ERRORS_TOLD);
        // Differs: upstream names every node, which are thousands in one condition.
        self.errors.truncate(ERRORS_TOLD);
        if more > 0 {
            self.errors.push(format!("and {more} more"));
        }
        match self.errors.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        }
    }
}
