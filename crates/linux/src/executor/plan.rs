//! The order of writes, without any file: down the tree what grows, then up the tree what shrinks.
//!
//! Pure: items in, one step after the other out, the outcome of each step in. Spec: koordlet-enforce 3.3.
//!
//! Why it holds: going down, every group gets the larger of what it has and what it wants (the union, for CPUs)
//! after its parent got so; both the old and the new tree keep the rule, so the larger one does too. Going up, every
//! group gets what it wants after its children did, while its parent still has the larger.

use crate::cgroup::Version;
use crate::resource::{Resource, is_same, raised};

/// How a file's content is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Cgroup {
        resource: Resource,
        version: Version,
    },
    /// A set of CPUs on v2 that is the parent's: it amounts to some CPUs, and holds none until it is written.
    Parents,
    Text,
    /// A list of words; the value is one of them, or its opposite.
    Words,
}

/// A file with its content and the value it should hold, both as the file writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub held: Held,
    /// Parents are less deep than their children.
    pub depth: usize,
    pub value: String,
    pub current: String,
}

impl Item {
    /// Whether the file holds the value.
    pub fn is_settled(&self) -> bool {
        match self.held {
            Held::Cgroup { resource, .. } => is_same(resource, &self.value, &self.current),
            Held::Parents => false,
            Held::Text => self.value == self.current,
            Held::Words => self.current.split_whitespace().any(|word| word == self.value.trim()),
        }
    }

    /// What to write on the way down. A content that cannot be compared waits for the way up.
    fn raised(&self) -> Option<String> {
        let larger = |resource, version| raised(resource, version, &self.value, &self.current).ok().flatten();
        match self.held {
            Held::Cgroup { resource, version } => larger(resource, version),
            Held::Parents => larger(Resource::CpusetCpus, Version::V2),
            Held::Text | Held::Words => (!self.is_settled()).then(|| self.value.clone()),
        }
    }

    /// Among files of one group: the kernel wants a burst within its quota, so bursts grow after quotas and shrink
    /// before them.
    fn rank(&self) -> u8 {
        match self.held {
            Held::Cgroup { resource: Resource::CfsBurstUs, .. } => 1,
            _ => 0,
        }
    }
}

/// A write to be tried now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which of the items.
    pub item: usize,
    pub value: String,
}

/// A batch on its way.
#[derive(Debug)]
pub struct Plan {
    items: Vec<Item>,
    /// Items from the top of the tree to its leaves.
    order: Vec<usize>,
    /// Items passed; once all were, the way goes up.
    passed: usize,
    pending: Option<Step>,
}

impl Plan {
    pub fn new(items: Vec<Item>) -> Plan {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|at| (items[*at].depth, items[*at].rank()));
        Plan { items, order, passed: 0, pending: None }
    }

    pub fn item(&self, at: usize) -> &Item {
        &self.items[at]
    }

    /// The next write; None at the end. [`Plan::done`] must tell of it before the next is asked for.
    pub fn next_step(&mut self) -> Option<Step> {
        debug_assert!(self.pending.is_none(), "the step before has no outcome");
        let count = self.order.len();
        while self.passed < 2 * count {
            let at = self.passed;
            self.passed += 1;
            let (item, value) = if at < count {
                let item = self.order[at];
                (item, self.items[item].raised())
            } else {
                let item = self.order[2 * count - 1 - at];
                (item, (!self.items[item].is_settled()).then(|| self.items[item].value.clone()))
            };
            if let Some(value) = value {
                self.pending = Some(Step { item, value });
                return self.pending.clone();
            }
        }
        None
    }

    /// What became of the last step. One that failed on the way down is tried again on the way up.
    pub fn done(&mut self, is_ok: bool) {
        if let Some(step) = self.pending.take().filter(|_| is_ok) {
            let item = &mut self.items[step.item];
            item.current = written(item, step.value);
            if item.held == Held::Parents {
                item.held = Held::Cgroup { resource: Resource::CpusetCpus, version: Version::V2 };
            }
        }
    }
}

/// The content after a write, as far as it matters for the rest of the plan.
fn written(item: &Item, value: String) -> String {
    match item.held {
        Held::Cgroup { resource, .. } if resource.is_per_device() => settled_line(&item.current, value),
        _ => value,
    }
}

/// A file with a line per device keeps the other lines; the device's own is now what was written.
fn settled_line(content: &str, value: String) -> String {
    let device = value.split(' ').next().unwrap_or_default().to_owned();
    let others = content.lines().filter(|line| line.split(' ').next() != Some(device.as_str()));
    let mut lines: Vec<&str> = others.collect();
    // v1 drops the line of a limit that was taken away.
    let is_removal = value.split(' ').nth(1) == Some("0");
    if !is_removal {
        lines.push(&value);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
