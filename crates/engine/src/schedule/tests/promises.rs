//! Nodes that others were promised, by sums and one by one. Spec: scheduler-core 3.2.7.

use proptest::prelude::*;
use serde_json::json;

use super::super::{Failure, Prepared, search};
use super::world::{Spec, World, pod};
use crate::cluster::Row;
use crate::framework::{Cycle, Delta, Status};
use crate::plugins::image_locality;

/// Node, priority, cpu and devices of a pod there, and whether it is only promised the node.
type Resident = (usize, i32, u8, u8, bool);

fn sized(name: &str, priority: i32, cpu: u8, devices: u8) -> Spec {
    let spec = pod(name).priority(priority).cpu(&cpu.to_string());
    if devices > 0 { spec.asks("example.com/device", &devices.to_string()) } else { spec }
}

fn world(nodes: &[(u8, u8, u8)], residents: &[Resident]) -> World {
    let mut world = World::new();
    // All nodes are looked for only when something rates them.
    world.framework.scores.push((image_locality::build(), 1));
    world.framework.post_filters.clear();
    for (i, (cpu, devices, pods)) in nodes.iter().enumerate() {
        let size = json!({"cpu": cpu.to_string(), "memory": "1Gi", "pods": pods.to_string(),
            "example.com/device": devices.to_string()});
        world.node_with(&format!("n{i}"), size, json!({}), json!({}));
    }
    for (i, (node, priority, cpu, devices, is_promised)) in residents.iter().enumerate() {
        let (spec, node) =
            (sized(&format!("r{i}"), *priority, *cpu, *devices), format!("n{}", node % nodes.len()));
        match is_promised {
            true => world.promise(&spec, &node),
            false => world.place(&spec, &node),
        }
    }
    world
}

/// What is said about each node, asked one by one.
fn one_by_one(world: &mut World, wants: &Spec) -> Vec<(Row, Option<Status>)> {
    let pod = world.compile(wants);
    let order = world.cluster.visiting_order().to_vec();
    let (mut cycle, mut prepared) = (Cycle::new(&world.cluster, &pod), Prepared::default());
    assert!(search::prepare(&world.framework, &mut cycle, &mut prepared).is_ok());
    let (framework, nominated) = (&world.framework, &world.nominated);
    let none = Delta::default();
    let check = |row| framework.check_beside_nominated(nominated, &prepared, &cycle, row, &none).err();
    order.into_iter().map(|row| (row, check(row))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn sums_of_promises_refuse_the_same_nodes(
        nodes in prop::collection::vec((1..6u8, 0..3u8, 1..4u8), 1..6),
        residents in prop::collection::vec((0..6usize, 0..4i32, 0..4u8, 0..2u8, any::<bool>()), 0..12),
        wants in (0..4i32, 0..4u8, 0..2u8),
        is_itself_promised: bool,
        needs_port: bool,
    ) {
        let mut world = world(&nodes, &residents);
        let mut wants = sized("p", wants.0, wants.1, wants.2);
        if needs_port {
            // Then sums are not enough, and every promised node is asked about.
            wants = wants.host_port(80);
        }
        if is_itself_promised {
            world.promise(&wants, "n0");
        }
        let want = one_by_one(&mut world, &wants);
        let fitting = want.iter().filter(|(_, status)| status.is_none()).map(|(row, _)| *row);
        match world.attempt(&wants, None) {
            Ok(choice) => {
                let found: Vec<Row> = choice.feasible.iter().map(|(row, _)| *row).collect();
                prop_assert_eq!(found, fitting.collect::<Vec<Row>>(), "in visiting order");
            }
            Err(Failure::Unfit(unfit)) => {
                prop_assert_eq!(fitting.count(), 0);
                for (row, status) in unfit.diagnosis.nodes.rejected() {
                    let asked = want.iter().find(|(known, _)| *known == row).and_then(|(_, s)| s.as_ref());
                    prop_assert!(asked.is_some_and(|asked| asked.reads_like(status)), "{asked:?} but {status}");
                }
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}
