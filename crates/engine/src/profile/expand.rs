//! From what a configuration enables and disables to the ordered lists that run.
//!
//! Two steps: [`PluginSets::merge`] lays the user's sets over the defaults, [`PluginSets::expand`] spreads the
//! multi-point list over the points. Spec: scheduler-core 7.2.

use std::collections::BTreeSet;

use super::plugins::{self, PLUGINS, Plugin};
use super::point::{PerPoint, Point};
use crate::framework::status::PluginName;

/// A plugin that takes part at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enabled {
    pub plugin: PluginName,
    /// Meant for the score point; 1 elsewhere.
    pub weight: i64,
}

/// A plugin that a configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub name: String,
    /// 0 when none was given.
    pub weight: i32,
}

/// What a configuration says about one point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSet {
    pub enabled: Vec<Choice>,
    /// Names, or `*`.
    pub disabled: Vec<String>,
}

/// What a configuration says about all points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSets {
    /// For every point that each plugin implements.
    pub multi_point: PluginSet,
    pub points: PerPoint<PluginSet>,
}

/// Why a profile's plugins do not fit together. The texts are kube-scheduler's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error("{} {name:?} does not exist", .point.type_name())]
    Unknown { point: Point, name: String },
    #[error("plugin {name:?} does not extend {} plugin", .point.type_name())]
    NotImplemented { point: Point, name: String },
    #[error("plugin {name:?} already registered as {:?}", .point.type_name())]
    Twice { point: Point, name: String },
    #[error(
        "only one queue sort plugin required for profile with scheduler name {scheduler:?}, but got {count}"
    )]
    QueueSort { scheduler: String, count: usize },
    #[error("at least one bind plugin is needed for profile with scheduler name {scheduler:?}")]
    NoBind { scheduler: String },
    #[error("total score of Score plugins could overflow")]
    Overflow,
}

/// The name that stands for all.
const ALL: &str = "*";
/// The best score a plugin gives a node.
const SCORE_MAX: i64 = 100;
/// Applies the collected patches, so every profile needs it.
const DEFAULT_PRE_BIND: &str = "DefaultPreBind";

impl PluginSet {
    pub fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|disabled| disabled == name)
    }

    fn disables_all(&self) -> bool {
        self.disables(ALL)
    }

    fn enables(&self, name: &str) -> bool {
        self.enabled.iter().any(|choice| choice.name == name)
    }

    /// This set with a user's laid over it: a default that the user names takes the new weight in its old place.
    fn merge(&self, custom: &PluginSet) -> PluginSet {
        let disabled: Vec<String> = custom.disabled.iter().chain(&self.disabled).cloned().collect();
        let gone = |name: &str| disabled.iter().any(|other| other == ALL || other == name);
        let mut replaced = BTreeSet::new();
        let mut enabled = Vec::new();
        for default in self.enabled.iter().filter(|default| !gone(&default.name)) {
            // The last mention counts; earlier ones are left over and found when the lists are built.
            match custom.enabled.iter().rposition(|choice| choice.name == default.name) {
                Some(index) => {
                    replaced.insert(index);
                    enabled.push(custom.enabled[index].clone());
                }
                None => enabled.push(default.clone()),
            }
        }
        let rest = custom.enabled.iter().enumerate().filter(|(index, _)| !replaced.contains(index));
        enabled.extend(rest.map(|(_, choice)| choice.clone()));
        PluginSet { enabled, disabled }
    }
}

impl PluginSets {
    /// kube-scheduler's own: everything through the multi-point list.
    pub fn defaults() -> PluginSets {
        let choice = |plugin: &Plugin| {
            plugin.default_weight.map(|weight| Choice { name: plugin.name.to_owned(), weight })
        };
        let enabled = PLUGINS.iter().filter_map(choice).collect();
        PluginSets { multi_point: PluginSet { enabled, disabled: Vec::new() }, points: PerPoint::default() }
    }

    /// These sets with a user's laid over them.
    pub fn merge(&self, custom: &PluginSets) -> PluginSets {
        let mut merged =
            PluginSets { multi_point: self.multi_point.merge(&custom.multi_point), ..PluginSets::default() };
        for point in Point::ALL {
            merged.points[point] = self.points[point].merge(&custom.points[point]);
        }
        merged
    }

    /// Koordinator's addition: the plugin that writes the collected patches, unless the user has an opinion on it.
    pub fn add_default_pre_bind(&mut self) {
        let set = &mut self.points[Point::PreBind];
        if !set.disables_all() && !set.disables(DEFAULT_PRE_BIND) && !set.enables(DEFAULT_PRE_BIND) {
            set.enabled.push(Choice { name: DEFAULT_PRE_BIND.to_owned(), weight: 0 });
        }
    }

    /// The names that are enabled anywhere, in the order of the table, then unknown ones by name.
    pub fn named(&self) -> Vec<&str> {
        let all = self.points.iter().map(|(_, set)| set).chain([&self.multi_point]);
        let names: BTreeSet<&str> =
            all.flat_map(|set| &set.enabled).map(|choice| choice.name.as_str()).collect();
        let known = PLUGINS.iter().map(|plugin| plugin.name).filter(|name| names.contains(name));
        let unknown = names.iter().copied().filter(|name| plugins::find(name).is_none());
        known.chain(unknown).collect()
    }

    /// The lists that run, or everything that keeps them from running.
    pub fn expand(&self, scheduler: &str) -> Result<PerPoint<Vec<Enabled>>, Vec<ExpandError>> {
        let mut errors = Vec::new();
        for point in Point::FILLED {
            errors.extend(check_explicit(&self.points[point], point));
        }
        let mut lists = PerPoint::default();
        for point in Point::FILLED {
            lists[point] = self.order(point, &mut errors);
        }
        if errors.is_empty() {
            errors.extend(check_counts(&lists, scheduler));
            self.weigh(&mut lists[Point::Score], &mut errors);
        }
        if errors.is_empty() { Ok(lists) } else { Err(errors) }
    }

    /// The plugins of a point: those named there and in the multi-point list, the rest of the multi-point list, the
    /// rest of those named there.
    fn order(&self, point: Point, errors: &mut Vec<ExpandError>) -> Vec<Enabled> {
        let set = &self.points[point];
        let explicit: Vec<&'static Plugin> =
            set.enabled.iter().filter_map(|choice| plugins::find(&choice.name)).collect();
        let mut expanded: Vec<&'static Plugin> = Vec::new();
        let mut overridden = BTreeSet::new();
        let choices = if set.disables_all() { [].iter() } else { self.multi_point.enabled.iter() };
        for choice in choices {
            let name = || choice.name.clone();
            let Some(plugin) = plugins::find(&choice.name) else {
                // Named once, at the first point that meets it.
                let is_new = |error: &ExpandError| !matches!(error, ExpandError::Unknown { name, .. } if *name == choice.name);
                if errors.iter().all(is_new) {
                    errors.push(ExpandError::Unknown { point, name: name() });
                }
                continue;
            };
            if !plugin.points.contains(point) || set.disables(plugin.name) {
                continue;
            }
            if set.enables(plugin.name) {
                overridden.insert(plugin.name);
            } else if expanded.contains(&plugin) {
                errors.push(ExpandError::Twice { point, name: name() });
            } else {
                expanded.push(plugin);
            }
        }
        let (first, last): (Vec<_>, Vec<_>) =
            explicit.into_iter().partition(|plugin| overridden.contains(plugin.name));
        first
            .into_iter()
            .chain(expanded)
            .chain(last)
            .map(|plugin| Enabled { plugin: plugin.name, weight: 1 })
            .collect()
    }

    /// The weight given at the score point counts before the one of the multi-point list; none is 1.
    fn weigh(&self, list: &mut [Enabled], errors: &mut Vec<ExpandError>) {
        let mut total = 0_i64;
        for enabled in list {
            let score = &self.points[Point::Score].enabled;
            let given = score.iter().chain(&self.multi_point.enabled);
            let weight = given.into_iter().find(|choice| choice.name == enabled.plugin);
            enabled.weight = match weight.map_or(0, |choice| choice.weight) {
                0 => 1,
                weight => i64::from(weight),
            };
            let share = enabled.weight.checked_mul(SCORE_MAX);
            match share.and_then(|share| total.checked_add(share)) {
                Some(sum) => total = sum,
                None => errors.push(ExpandError::Overflow),
            }
        }
    }
}

/// What is wrong with the plugins named at one point.
fn check_explicit(set: &PluginSet, point: Point) -> Vec<ExpandError> {
    let mut seen = BTreeSet::new();
    let mut errors = Vec::new();
    for name in set.enabled.iter().map(|choice| choice.name.clone()) {
        match plugins::find(&name) {
            None => errors.push(ExpandError::Unknown { point, name }),
            Some(plugin) if !plugin.points.contains(point) => {
                errors.push(ExpandError::NotImplemented { point, name });
            }
            Some(plugin) if !seen.insert(plugin.name) => errors.push(ExpandError::Twice { point, name }),
            Some(_) => {}
        }
    }
    errors
}

/// One plugin sorts the queue, at least one binds.
fn check_counts(lists: &PerPoint<Vec<Enabled>>, scheduler: &str) -> Vec<ExpandError> {
    let mut errors = Vec::new();
    let count = lists[Point::QueueSort].len();
    if count != 1 {
        errors.push(ExpandError::QueueSort { scheduler: scheduler.to_owned(), count });
    }
    if lists[Point::Bind].is_empty() {
        errors.push(ExpandError::NoBind { scheduler: scheduler.to_owned() });
    }
    errors
}

#[cfg(test)]
mod tests;
