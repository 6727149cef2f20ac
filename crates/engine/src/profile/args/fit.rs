//! Scores by resources: NodeResourcesFit, NodeResourcesBalancedAllocation, NodeResourcesFitPlus.
//!
//! Spec: scheduler-core 6.6, 6.7, 7.3, 9.17.

use koord_api::keys::resource::{CPU, MEMORY};

/// A resource and how much it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceWeight {
    pub name: String,
    /// From 1 to 100.
    pub weight: i64,
}

impl ResourceWeight {
    pub fn new(name: impl Into<String>, weight: i64) -> ResourceWeight {
        ResourceWeight { name: name.into(), weight }
    }
}

/// Cpu and memory, alike.
pub(super) fn cpu_and_memory() -> Vec<ResourceWeight> {
    vec![ResourceWeight::new(CPU, 1), ResourceWeight::new(MEMORY, 1)]
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResourcesFitArgs {
    /// Extended resources that the filter does not check.
    pub ignored_resources: Vec<String>,
    /// Prefixes before `/` whose resources the filter does not check.
    pub ignored_resource_groups: Vec<String>,
    pub strategy: Strategy,
    /// In the order given; a name may stand twice and then counts twice.
    pub resources: Vec<ResourceWeight>,
}

impl Default for NodeResourcesFitArgs {
    fn default() -> NodeResourcesFitArgs {
        NodeResourcesFitArgs {
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            strategy: Strategy::LeastAllocated,
            resources: cpu_and_memory(),
        }
    }
}

/// How use becomes a score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio(Shape),
}

/// A line through points of use and score.
///
/// At least one point, use strictly rising within 0..=100, scores within 0..=10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(Vec<ShapePoint>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapePoint {
    /// Percent of the allocatable amount.
    pub utilization: i64,
    pub score: i64,
}

impl Shape {
    pub fn new(points: Vec<ShapePoint>) -> Option<Shape> {
        let rises = points.windows(2).all(|pair| pair[0].utilization < pair[1].utilization);
        let within = points
            .iter()
            .all(|point| (0..=100).contains(&point.utilization) && (0..=10).contains(&point.score));
        (!points.is_empty() && rises && within).then_some(Shape(points))
    }

    pub fn points(&self) -> &[ShapePoint] {
        &self.0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancedAllocationArgs {
    /// Unique, in the order given; all count alike.
    pub resources: Vec<String>,
}

impl Default for BalancedAllocationArgs {
    fn default() -> BalancedAllocationArgs {
        BalancedAllocationArgs { resources: vec![CPU.to_owned(), MEMORY.to_owned()] }
    }
}

/// The two strategies that Koordinator's own plugins know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    Least,
    Most,
}

/// A strategy and the resources it looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scoring {
    pub strategy: Allocation,
    pub resources: Vec<ResourceWeight>,
}

/// Scores each resource in its own way; by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeResourcesFitPlusArgs {
    pub resources: Vec<FitPlusResource>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitPlusResource {
    pub name: String,
    pub strategy: Allocation,
    /// Above 0.
    pub weight: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_rises_within_its_range() {
        let shape = |points: &[(i64, i64)]| {
            let point =
                |(utilization, score): &(i64, i64)| ShapePoint { utilization: *utilization, score: *score };
            Shape::new(points.iter().map(point).collect()).is_some()
        };
        assert!(shape(&[(0, 0)]) && shape(&[(0, 10), (100, 0)]));
        for bad in [&[][..], &[(10, 1), (10, 2)], &[(20, 1), (10, 2)], &[(-1, 0)], &[(101, 0)], &[(0, 11)]] {
            assert!(!shape(bad), "{bad:?}");
        }
    }
}
