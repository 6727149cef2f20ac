//! Nodes on their way through the filters: who is left, and why the others are not.

use std::borrow::Cow;

use super::{Code, Status};
use crate::cluster::Row;

/// Rows still in question, in visiting order, and the verdicts against the rest.
///
/// Verdicts that read alike are kept once, with the numbers of the first node: five thousand nodes rarely have
/// more than a handful of reasons. A filter's `check` gives the numbers of any other node.
#[derive(Debug, Default)]
pub struct Sieve {
    left: Vec<Row>,
    /// Rows that did not pass, in the order they failed, and the number of the verdict on each.
    rejected: Vec<Row>,
    numbers: Vec<u32>,
    verdicts: Vec<Verdict>,
}

#[derive(Debug)]
struct Verdict {
    status: Status,
    /// Rows that it keeps out.
    rows: usize,
}

impl Sieve {
    /// Nobody passed, and why is known already: verdicts, rows, and the number of a verdict for each row.
    pub fn of_verdicts(statuses: Vec<Status>, rejected: Vec<Row>, numbers: Vec<u32>) -> Sieve {
        let verdicts = statuses.into_iter().map(|status| Verdict { status, rows: 0 }).collect();
        let mut sieve = Sieve { left: Vec::new(), rejected, numbers, verdicts };
        for number in &sieve.numbers {
            if let Some(verdict) = sieve.verdicts.get_mut(index(*number)) {
                verdict.rows += 1;
            }
        }
        sieve
    }

    /// Nobody passed, all for the same reason.
    pub fn of_one_verdict(status: Status, rejected: Vec<Row>) -> Sieve {
        let (rows, numbers) = (rejected.len(), vec![0; rejected.len()]);
        Sieve { left: Vec::new(), rejected, numbers, verdicts: vec![Verdict { status, rows }] }
    }

    pub fn left(&self) -> &[Row] {
        &self.left
    }

    /// More rows to judge; those left before must have been taken.
    pub fn refill(&mut self, rows: Vec<Row>) {
        self.left = rows;
    }

    /// The rows that passed.
    pub fn take_left(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.left)
    }

    /// Takes rows out that are judged by another way.
    pub fn set_aside(&mut self, mut is_meant: impl FnMut(Row) -> bool) -> Vec<Row> {
        let (aside, left) = std::mem::take(&mut self.left).into_iter().partition(|row| is_meant(*row));
        self.left = left;
        aside
    }

    /// The verdict on a row that was set aside.
    pub fn judge(&mut self, row: Row, verdict: Result<(), Status>) {
        match verdict {
            Ok(()) => self.left.push(row),
            Err(status) => {
                let number = self.verdict(status);
                self.reject(row, number);
            }
        }
    }

    fn reject(&mut self, row: Row, number: u32) {
        self.rejected.push(row);
        self.numbers.push(number);
        self.verdicts[index(number)].rows += 1;
    }

    pub fn sort_left_by_key<K: Ord>(&mut self, key: impl Fn(Row) -> K) {
        self.left.sort_by_key(|row| key(*row));
    }

    /// A failure among the verdicts.
    pub fn first_error(&self) -> Option<&Status> {
        self.verdicts.iter().map(|verdict| &verdict.status).find(|status| !status.code.is_rejected())
    }

    /// Keeps the rows that pass.
    pub fn retain(&mut self, mut check: impl FnMut(Row) -> Result<(), Status>) {
        let mut kept = std::mem::take(&mut self.left);
        kept.retain(|row| match check(*row) {
            Ok(()) => true,
            Err(status) => {
                let number = self.verdict(status);
                self.reject(*row, number);
                false
            }
        });
        self.left = kept;
    }

    /// Keeps the rows for which `verdict_of` has no number; numbers are those of `verdict`.
    pub fn retain_numbered(&mut self, mut verdict_of: impl FnMut(Row) -> Option<u32>) {
        let mut kept = std::mem::take(&mut self.left);
        kept.retain(|row| match verdict_of(*row) {
            None => true,
            Some(number) => {
                self.reject(*row, number);
                false
            }
        });
        self.left = kept;
    }

    /// Keeps the rows for which `cause_of` has no cause. Verdicts of one cause read alike, so `status_of` is asked once
    /// for each: thousands of refused nodes cost no more than thousands that pass.
    pub fn retain_by_cause(
        &mut self,
        mut cause_of: impl FnMut(Row) -> Option<u64>,
        mut status_of: impl FnMut(Row) -> Option<Status>,
    ) {
        let mut numbers: Vec<(u64, Option<u32>)> = Vec::new();
        let mut kept = std::mem::take(&mut self.left);
        kept.retain(|row| {
            let Some(cause) = cause_of(*row) else { return true };
            let number = match numbers.iter().find(|(known, _)| *known == cause) {
                Some((_, number)) => *number,
                None => {
                    let number = status_of(*row).map(|status| self.verdict(status));
                    numbers.push((cause, number));
                    number
                }
            };
            if let Some(number) = number {
                self.reject(*row, number);
            }
            number.is_none()
        });
        self.left = kept;
    }

    /// The number of a verdict, new if none reads alike.
    pub fn verdict(&mut self, status: Status) -> u32 {
        let at = match self.verdicts.iter().position(|known| known.status.reads_like(&status)) {
            Some(at) => at,
            None => {
                self.verdicts.push(Verdict { status, rows: 0 });
                self.verdicts.len() - 1
            }
        };
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Everyone who did not pass, in the order they failed, with why.
    pub fn rejected(&self) -> impl Iterator<Item = (Row, &Status)> {
        let numbered = self.rejected.iter().zip(&self.numbers);
        numbered.filter_map(|(row, number)| Some((*row, &self.verdicts.get(index(*number))?.status)))
    }

    pub fn rejected_count(&self) -> usize {
        self.rejected.len()
    }

    /// Everyone with a verdict of this code, in the order they failed.
    pub fn rejected_with(&self, code: Code) -> Cow<'_, [Row]> {
        // Mostly all of them are.
        if self.tally().all(|(status, _)| status.code == code) {
            return Cow::Borrowed(&self.rejected);
        }
        self.rejected().filter(|(_, status)| status.code == code).map(|(row, _)| row).collect()
    }

    /// Verdicts and how many rows each keeps out; one that is not given against any row is not among them.
    pub fn tally(&self) -> impl Iterator<Item = (&Status, usize)> {
        let given = self.verdicts.iter().filter(|verdict| verdict.rows > 0);
        given.map(|verdict| (&verdict.status, verdict.rows))
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
