//! ImageLocality: nodes that have the pod's images start it sooner. Spec: scheduler-core 6.8.

use std::sync::Arc;

use crate::cluster::{Cluster, Row};
use crate::framework::parts::{Follower, Keys, Rate, ScorePart};
use crate::framework::{Cycle, Hooks, NodeView, Scope, Score};
use crate::number::{nearest, truncated};
use crate::pod::Class;

pub const NAME: &str = "ImageLocality";

const MIB: i64 = 1 << 20;
/// Below this an image is fetched before anyone notices.
const SUM_MIN: i64 = 23 * MIB;
/// Above this, per container, more makes no difference.
const SUM_MAX_PER_CONTAINER: i64 = 1000 * MIB;

pub fn build() -> Hooks {
    Hooks::new(NAME).score(Arc::new(ImageLocality))
}

struct ImageLocality;

/// The score of a sum of image sizes, spread already counted in.
fn score(sum: i64, containers: i64) -> i64 {
    let max = SUM_MAX_PER_CONTAINER * containers.max(1);
    100 * (sum.clamp(SUM_MIN, max) - SUM_MIN) / (max - SUM_MIN)
}

/// The part of an image's size that counts: images that many nodes have attract more.
fn counted(size: i64, nodes_having: u32, nodes: usize) -> i64 {
    let share = f64::from(nodes_having) / f64::from(u32::try_from(nodes).unwrap_or(u32::MAX));
    truncated(nearest(size) * share)
}

fn total(sizes: impl Iterator<Item = i64>) -> i64 {
    sizes.fold(0, i64::saturating_add)
}

impl Score for ImageLocality {
    fn scope(&self, class: &Class) -> Scope {
        // How many nodes have an image counts too.
        if class.images.is_empty() { Scope::Nothing } else { Scope::Cluster }
    }

    fn score(&self, cycle: &Cycle<'_>, node: &NodeView<'_>) -> i64 {
        let images = &cycle.pod.class.images;
        let nodes = cycle.cluster.node_count();
        // Differs: kube-scheduler takes an image's size from the node that was the first to report it.
        let sizes = images.iter().filter_map(|name| {
            let size = node.node().image_size(*name)?;
            Some(counted(size, cycle.cluster.image(*name)?.nodes, nodes))
        });
        score(total(sizes), i64::try_from(images.len()).unwrap_or(1))
    }

    fn rate(&self, cycle: &Cycle<'_>, rows: &[Row], out: &mut [i64]) {
        if cycle.pod.class.images.iter().all(|name| cycle.cluster.image(*name).is_none()) {
            out.fill(0);
            return;
        }
        for (row, score) in rows.iter().zip(out) {
            *score = self.score(cycle, &NodeView::of(cycle.cluster, *row));
        }
    }

    fn part(&self, _cluster: &Cluster, class: &Arc<Class>) -> ScorePart {
        match class.images.is_empty() {
            true => ScorePart::Nothing,
            false => ScorePart::Tracked(Box::new(Images {
                class: class.clone(),
                keys: Keys::default(),
                sizes: Vec::new(),
                without: None,
            })),
        }
    }
}

/// Follows which nodes have the images of a class.
struct Images {
    class: Arc<Class>,
    /// Sizes of the images, in the order of the class; -1 for one that is not there.
    keys: Keys<Vec<i64>>,
    sizes: Vec<i64>,
    /// The key of a node that has none of them, once one was met.
    without: Option<u32>,
}

impl Follower for Images {
    fn is_current(&self, cluster: &Cluster) -> bool {
        self.keys.are_few(cluster)
    }

    fn is_idle(&self, cluster: &Cluster) -> bool {
        self.class.images.iter().all(|name| cluster.image(*name).is_none())
    }

    fn key(&mut self, cluster: &Cluster, row: Row) -> u32 {
        if self.is_idle(cluster) {
            let (keys, images) = (&mut self.keys, self.class.images.len());
            return *self.without.get_or_insert_with(|| keys.number(&vec![-1; images]));
        }
        let node = cluster.node(row);
        self.sizes.clear();
        self.sizes.extend(self.class.images.iter().map(|name| node.image_size(*name).unwrap_or(-1)));
        self.keys.number(&self.sizes)
    }

    fn is_uniform(&self, cluster: &Cluster) -> bool {
        self.is_idle(cluster)
    }

    fn forget(&mut self, _row: Row) {}
}

impl Rate for Images {
    fn rate(&mut self, cluster: &Cluster, keys: &[u32], _counts: &[usize], scores: &mut [i64]) -> bool {
        let images = &self.class.images;
        let nodes = cluster.node_count();
        let having: Vec<u32> =
            images.iter().map(|name| cluster.image(*name).map_or(0, |image| image.nodes)).collect();
        for (key, rated) in keys.iter().zip(scores) {
            let sizes = self.keys.get(*key).iter().zip(&having).filter(|(size, _)| **size >= 0);
            let sum = total(sizes.map(|(size, having)| counted(*size, *having, nodes)));
            *rated = score(sum, i64::try_from(images.len()).unwrap_or(1));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_examples() {
        for (key, sizes, containers, want) in [
            ("scheduler-core#10.S10", &[(500 * MIB, 1, 2)][..], 1, 23),
            ("scheduler-core#10.S11", &[(10 * MIB, 3, 3)], 1, 0),
            ("scheduler-core#10.S39", &[(2000 * MIB, 2, 3)], 2, 66),
            ("scheduler-core#10.S40 two containers", &[(600 * MIB, 1, 2), (600 * MIB, 1, 2)], 2, 29),
            ("scheduler-core#10.S40 one container", &[(600 * MIB, 1, 2)], 1, 28),
        ] {
            let sum = sizes.iter().map(|(size, having, nodes)| counted(*size, *having, *nodes)).sum();
            assert_eq!(score(sum, containers), want, "{key}");
        }
    }
}
