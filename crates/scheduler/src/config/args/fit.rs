//! NodeResourcesFitArgs, NodeResourcesBalancedAllocationArgs, NodeResourcesFitPlusArgs, and what others share with
//! them: weighted resources, scoring strategies, shapes.

use std::collections::BTreeMap;

use koord_api::gate::Gates;
use koord_api::keys::resource::{CPU, MEMORY};
use koord_engine::profile::args::{
    Allocation, Args, BalancedAllocationArgs as EngineBalanced, FitPlusResource,
    NodeResourcesFitArgs as EngineFit, NodeResourcesFitPlusArgs as EngineFitPlus, ResourceWeight, Scoring,
    Shape, ShapePoint, Strategy,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json, listed};
use crate::config::field::{Fault, below, check_name};

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct RawResource {
    pub(super) name: String,
    pub(super) weight: Option<i64>,
}

impl RawResource {
    pub(super) fn new(name: &str) -> RawResource {
        RawResource { name: name.to_owned(), weight: Some(1) }
    }

    fn weight(&self) -> i64 {
        self.weight.unwrap_or_default()
    }
}

pub(super) fn cpu_and_memory() -> Vec<RawResource> {
    vec![RawResource::new(CPU), RawResource::new(MEMORY)]
}

/// A weight of 0 is one that was not given.
fn set_weights(resources: &mut [RawResource]) {
    for resource in resources.iter_mut().filter(|resource| resource.weight() == 0) {
        resource.weight = Some(1);
    }
}

fn check_weights(path: &str, resources: &[RawResource]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (i, resource) in resources.iter().enumerate() {
        if !(1..=100).contains(&resource.weight()) {
            let detail = format!("resource weight of {} not in valid range (0, 100]", resource.name);
            faults.push(Fault::invalid(format!("{path}[{i}].weight"), resource.weight(), &detail));
        }
    }
    faults
}

fn weights(resources: &[RawResource]) -> Vec<ResourceWeight> {
    resources.iter().map(|resource| ResourceWeight::new(&resource.name, resource.weight())).collect()
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct RawPoint {
    utilization: Option<i32>,
    score: Option<i32>,
}

impl RawPoint {
    pub(super) fn new(utilization: i32, score: i32) -> RawPoint {
        RawPoint { utilization: Some(utilization), score: Some(score) }
    }

    /// As it stands in a complaint, under Go's names.
    pub(super) fn shown(&self) -> String {
        let (utilization, score) = self.parts();
        format!("{{\"Utilization\":{utilization},\"Score\":{score}}}")
    }

    fn parts(self) -> (i32, i32) {
        (self.utilization.unwrap_or_default(), self.score.unwrap_or_default())
    }
}

/// The line through the points, or what is wrong with it.
pub(super) fn check_shape(path: &str, points: &[RawPoint]) -> Result<Shape, Vec<Fault>> {
    if points.is_empty() {
        return Err(vec![Fault::required(path, "at least one point must be specified")]);
    }
    let mut faults = Vec::new();
    let falls = |i: &usize| points[i - 1].parts().0 >= points[*i].parts().0;
    if let Some(i) = (1..points.len()).find(falls) {
        let path = format!("{path}[{i}].utilization");
        faults.push(Fault::invalid(path, points[i].parts().0, "values must be sorted in increasing order"));
    }
    let mut list = Vec::new();
    for (i, (utilization, score)) in points.iter().map(|point| point.parts()).enumerate() {
        if !(0..=100).contains(&utilization) {
            let path = format!("{path}[{i}].utilization");
            faults.push(Fault::invalid(path, utilization, "not in valid range [0, 100]"));
        }
        if !(0..=10).contains(&score) {
            faults.push(Fault::invalid(format!("{path}[{i}].score"), score, "not in valid range [0, 10]"));
        }
        list.push(ShapePoint { utilization: utilization.into(), score: score.into() });
    }
    match Shape::new(list) {
        Some(shape) if faults.is_empty() => Ok(shape),
        _ => Err(faults),
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct RawStrategy {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Vec<RawResource>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_to_capacity_ratio: Option<RawRatio>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct RawRatio {
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<RawPoint>>,
}

const STRATEGIES: [&str; 3] = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];

impl RawStrategy {
    fn check(&self, at: &str) -> Result<(Strategy, Vec<ResourceWeight>), Vec<Fault>> {
        let kind = self.kind.as_deref().unwrap_or_default();
        let mut faults = Vec::new();
        if !STRATEGIES.contains(&kind) {
            faults.push(Fault::unsupported(below(at, "type"), kind, &STRATEGIES));
        }
        let resources = listed(&self.resources);
        faults.extend(check_weights(&below(at, "resources"), resources));
        let ratio = self.requested_to_capacity_ratio.as_ref();
        let shape = ratio.map(|ratio| check_shape(&below(at, "shape"), listed(&ratio.shape)));
        let strategy = match (kind, shape) {
            (_, Some(Err(wrong))) => {
                faults.extend(wrong);
                Strategy::LeastAllocated
            }
            ("RequestedToCapacityRatio", Some(Ok(shape))) => Strategy::RequestedToCapacityRatio(shape),
            // Differs: kube-scheduler crashes on a ratio strategy without its shape.
            ("RequestedToCapacityRatio", None) => {
                faults.push(Fault::required(below(at, "requestedToCapacityRatio"), ""));
                Strategy::LeastAllocated
            }
            ("MostAllocated", _) => Strategy::MostAllocated,
            _ => Strategy::LeastAllocated,
        };
        if faults.is_empty() { Ok((strategy, weights(resources))) } else { Err(faults) }
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeResourcesFitArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored_resources: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored_resource_groups: Option<Vec<String>>,
    scoring_strategy: Option<RawStrategy>,
}

impl RawArgs for NodeResourcesFitArgs {
    fn set_defaults(&mut self, _: &Gates) {
        let strategy = self.scoring_strategy.get_or_insert_with(|| RawStrategy {
            kind: Some(STRATEGIES[0].to_owned()),
            ..RawStrategy::default()
        });
        let resources = strategy.resources.get_or_insert_default();
        if resources.is_empty() {
            *resources = cpu_and_memory();
        }
        set_weights(resources);
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (i, name) in listed(&self.ignored_resources).iter().enumerate() {
            faults.extend(check_name(&format!("{}[{i}]", below(at, "ignoredResources")), name));
        }
        for (i, group) in listed(&self.ignored_resource_groups).iter().enumerate() {
            let path = format!("{}[{i}]", below(at, "ignoredResourceGroups"));
            if group.contains('/') {
                let detail = "resource group name can't contain '/'";
                faults.push(Fault::invalid(&path, group.as_str(), detail));
            }
            faults.extend(check_name(&path, group));
        }
        let strategy = self.scoring_strategy.clone().unwrap_or_default();
        match strategy.check(&below(at, "scoringStrategy")) {
            Err(wrong) => faults.extend(wrong),
            Ok((strategy, resources)) => {
                out.node_resources_fit = EngineFit {
                    ignored_resources: listed(&self.ignored_resources).to_vec(),
                    ignored_resource_groups: listed(&self.ignored_resource_groups).to_vec(),
                    strategy,
                    resources,
                };
            }
        }
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct BalancedAllocationArgs {
    resources: Option<Vec<RawResource>>,
}

impl RawArgs for BalancedAllocationArgs {
    fn set_defaults(&mut self, _: &Gates) {
        let resources = self.resources.get_or_insert_default();
        if resources.is_empty() {
            *resources = cpu_and_memory();
        }
        set_weights(resources);
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let path = below(at, "resources");
        let resources = listed(&self.resources);
        let mut faults = Vec::new();
        for (i, resource) in resources.iter().enumerate() {
            if resources[..i].iter().any(|other| other.name == resource.name) {
                faults.push(Fault::duplicate(format!("{path}[{i}].name"), &resource.name));
            }
            if resource.weight() != 1 {
                faults.push(Fault::invalid(format!("{path}[{i}].weight"), resource.weight(), "must be 1"));
            }
        }
        let resources = resources.iter().map(|resource| resource.name.clone()).collect();
        out.balanced_allocation = EngineBalanced { resources };
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}

/// A strategy of Koordinator's plugins: they know two, and do not fill in what an own one leaves out.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct RawScoring {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resources: Option<Vec<RawResource>>,
}

impl RawScoring {
    pub(super) fn least(resources: Vec<RawResource>) -> RawScoring {
        RawScoring { kind: Some(STRATEGIES[0].to_owned()), resources: Some(resources) }
    }

    /// `what` goes before "scoring strategy X is not supported"; the path of weights lacks the strategy's own name,
    /// as upstream's does.
    pub(super) fn check(&self, at: &str, field: &str, what: &str) -> Result<Scoring, Vec<Fault>> {
        let resources = listed(&self.resources);
        let mut faults = check_weights(&below(at, "resources"), resources);
        let kind = self.kind.as_deref().unwrap_or_default();
        match allocation(kind) {
            Some(strategy) if faults.is_empty() => {
                return Ok(Scoring { strategy, resources: weights(resources) });
            }
            Some(_) => {}
            None => {
                let text = format!("{what}scoring strategy {kind} is not supported");
                faults.push(Fault::new(below(at, field), text));
            }
        }
        Err(faults)
    }
}

fn allocation(kind: &str) -> Option<Allocation> {
    match kind {
        "LeastAllocated" => Some(Allocation::Least),
        "MostAllocated" => Some(Allocation::Most),
        _ => None,
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct NodeResourcesFitPlusArgs {
    resources: Option<BTreeMap<String, RawPlusResource>>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct RawPlusResource {
    #[serde(rename = "type")]
    kind: Option<String>,
    weight: Option<i64>,
}

impl RawArgs for NodeResourcesFitPlusArgs {
    fn set_defaults(&mut self, _: &Gates) {}

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut resources = Vec::new();
        for (name, resource) in self.resources.iter().flatten() {
            let path = format!("{}[{name}]", below(at, "resources"));
            let kind = resource.kind.as_deref().unwrap_or_default();
            let weight = resource.weight.unwrap_or_default();
            let strategy = allocation(kind);
            // Differs: upstream takes both unseen and divides by the sum of the weights.
            if strategy.is_none() {
                faults.push(Fault::unsupported(below(&path, "type"), kind, &STRATEGIES[..2]));
            }
            if weight <= 0 {
                faults.push(Fault::invalid(below(&path, "weight"), weight, "must be greater than 0"));
            }
            resources.extend(strategy.map(|strategy| FitPlusResource {
                name: name.clone(),
                strategy,
                weight,
            }));
        }
        out.node_resources_fit_plus = EngineFitPlus { resources };
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
