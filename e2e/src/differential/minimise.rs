//! From a scenario that differs to the smallest one that still does.
//!
//! Objects go first, in halves and then singly, then fields and list items, from the outside in. What the API server
//! refuses does not count as a difference.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::record::Lab;
use super::scenario::{Scenario, is_kind};
use super::trial;

/// A smaller case is for people, and they wait.
const TIME_MAX: Duration = Duration::from_secs(30);

/// A scenario with one step that differs in the same kind of thing, and from which nothing more can be taken.
pub async fn minimise(lab: &mut Lab, scenario: &Scenario, what: &str) -> Result<Scenario> {
    let mut search = Search { lab, what, end: Instant::now() + TIME_MAX, best: scenario.clone() };
    search.drop_objects().await?;
    search.drop_fields().await?;
    search.drop_objects().await?;
    Ok(search.best)
}

struct Search<'a> {
    lab: &'a mut Lab,
    what: &'a str,
    end: Instant,
    best: Scenario,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Takes the smaller scenario if it still differs.
    async fn attempt(&mut self, smaller: Scenario) -> bool {
        if self.is_over() {
            return false;
        }
        // What cannot be run is no smaller case.
        let Ok(trial) = trial::run(self.lab, &smaller).await else { return false };
        let differs = trial.found.iter().any(|found| found.differences.iter().any(|d| d.what == self.what));
        if differs {
            self.best = smaller;
        }
        differs
    }

    async fn drop_objects(&mut self) -> Result<()> {
        let mut size = self.best.base.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < self.best.base.len() {
                let mut smaller = self.best.clone();
                let end = (at + size).min(smaller.base.len());
                smaller.base.drain(at..end);
                let has_node = smaller.base.iter().any(|object| is_kind(object, "Node"));
                if !has_node || !self.attempt(smaller).await {
                    at += size;
                }
            }
            if size == 1 {
                return Ok(());
            }
            size = size.div_ceil(2);
        }
    }

    async fn drop_fields(&mut self) -> Result<()> {
        let mut place = 0;
        // Places shift as fields go, and the next candidate then stands at the same one.
        while let Some(smaller) = without(&self.best, place) {
            if !self.attempt(smaller).await {
                place += 1;
            }
            if self.is_over() {
                break;
            }
        }
        Ok(())
    }
}

/// The scenario without its nth field or item, counted from the outside in, the pods of steps first.
fn without(scenario: &Scenario, place: usize) -> Option<Scenario> {
    let mut smaller = scenario.clone();
    let mut left = place;
    let changed = smaller.steps.iter_mut().flat_map(|step| step.create.iter_mut().chain(&mut step.update));
    for object in changed.chain(&mut smaller.base) {
        for part in ["spec", "metadata", "status"] {
            if let Some(tree) = object.get_mut(part)
                && remove(tree, &mut left)
            {
                return Some(smaller);
            }
        }
    }
    None
}

/// Removes the nth removable thing below a tree, breadth first.
fn remove(tree: &mut Value, left: &mut usize) -> bool {
    const KEPT: [&str; 5] = ["name", "namespace", "containers", "image", "terminationGracePeriodSeconds"];
    match tree {
        Value::Object(fields) => {
            let names: Vec<String> =
                fields.keys().filter(|field| !KEPT.contains(&field.as_str())).cloned().collect();
            if *left < names.len() {
                fields.remove(&names[*left]);
                return true;
            }
            *left -= names.len();
            fields.values_mut().any(|value| remove(value, left))
        }
        Value::Array(items) => {
            if *left < items.len() {
                items.remove(*left);
                return true;
            }
            *left -= items.len();
            items.iter_mut().any(|value| remove(value, left))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Step;
    use super::*;
    use serde_json::json;

    #[test]
    fn every_field_and_item_can_go() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"a": 1, "b": [{"c": 2}]}});
        let scenario =
            Scenario { steps: vec![Step { create: vec![pod], ..Step::default() }], ..Scenario::default() };
        let specs: Vec<Value> = (0..)
            .map_while(|place| without(&scenario, place))
            .map(|smaller| smaller.steps[0].create[0]["spec"].clone())
            .collect();
        assert_eq!(
            specs,
            [json!({"b": [{"c": 2}]}), json!({"a": 1}), json!({"a": 1, "b": []}), json!({"a": 1, "b": [{}]})]
        );
    }
}
