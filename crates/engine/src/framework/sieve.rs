//! Nodes on their way through the filters: who is left, and why the others are not.

use super::Status;
use crate::cluster::Row;

/// Rows still in question, in visiting order, and the verdicts against the rest.
///
/// Verdicts that read alike are kept once, with the numbers of the first node: five thousand nodes rarely have
/// more than a handful of reasons. A filter's `check` gives the numbers of any other node.
#[derive(Debug, Default)]
pub struct Sieve {
    left: Vec<Row>,
    rejected: Vec<(Row, u32)>,
    verdicts: Vec<Status>,
}

impl Sieve {
    pub fn new(rows: Vec<Row>) -> Sieve {
        Sieve { left: rows, ..Sieve::default() }
    }

    pub fn left(&self) -> &[Row] {
        &self.left
    }

    pub fn into_left(self) -> Vec<Row> {
        self.left
    }

    /// Keeps the rows that pass.
    pub fn retain(&mut self, mut check: impl FnMut(Row) -> Result<(), Status>) {
        let mut kept = std::mem::take(&mut self.left);
        kept.retain(|row| match check(*row) {
            Ok(()) => true,
            Err(status) => {
                let verdict = self.verdict(status);
                self.rejected.push((*row, verdict));
                false
            }
        });
        self.left = kept;
    }

    /// Keeps the rows for which `verdict_of` has no number; numbers are those of `verdict`.
    pub fn retain_numbered(&mut self, mut verdict_of: impl FnMut(Row) -> Option<u32>) {
        let rejected = &mut self.rejected;
        self.left.retain(|row| match verdict_of(*row) {
            None => true,
            Some(verdict) => {
                rejected.push((*row, verdict));
                false
            }
        });
    }

    /// The number of a verdict, new if none reads alike.
    pub fn verdict(&mut self, status: Status) -> u32 {
        let at = match self.verdicts.iter().position(|known| known.reads_like(&status)) {
            Some(at) => at,
            None => {
                self.verdicts.push(status);
                self.verdicts.len() - 1
            }
        };
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Everyone who did not pass, in the order they failed, with why.
    pub fn rejected(&self) -> impl Iterator<Item = (Row, &Status)> {
        let verdict = |number: u32| usize::try_from(number).ok().and_then(|at| self.verdicts.get(at));
        self.rejected.iter().filter_map(move |(row, number)| Some((*row, verdict(*number)?)))
    }

    pub fn rejected_count(&self) -> usize {
        self.rejected.len()
    }

    /// Verdicts and how many rows each keeps out.
    pub fn tally(&self) -> Vec<(&Status, usize)> {
        let mut counts = vec![0; self.verdicts.len()];
        for (_, number) in &self.rejected {
            if let Some(count) = usize::try_from(*number).ok().and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        }
        self.verdicts.iter().zip(counts).collect()
    }
}
