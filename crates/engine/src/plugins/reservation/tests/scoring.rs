//! Scores and which reservation is taken. Spec: scheduler-reservation-loadaware A7.6, A7.7, A4.4.

use super::super::nominate::most_allocated;
use super::*;

fn gi(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory})
}

#[test]
fn how_well_a_reservation_is_used() {
    let options = json!({"metadata": {"annotations":
        {"scheduling.koordinator.sh/reservation-restricted-options": r#"{"resources":["cpu"]}"#}}});
    let inner = json!({"metadata": {"annotations": {"node.koordinator.sh/reservation": r#"{"resources":{"cpu":"4"}}"#}}});
    let none = json!({});
    for (key, held, over, owner, pod, want) in [
        ("scheduler-reservation-loadaware#A7.7.B1", gi("8", "16Gi"), &none, None, gi("4", "8Gi"), 50),
        ("scheduler-reservation-loadaware#A7.7.B2", gi("4", "8Gi"), &none, None, gi("4", "8Gi"), 100),
        (
            "scheduler-reservation-loadaware#A7.7.B3",
            gi("8", "16Gi"),
            &none,
            Some(gi("4", "4Gi")),
            gi("2", "4Gi"),
            62,
        ),
        ("scheduler-reservation-loadaware#A7.7.B4", gi("4", "8Gi"), &none, None, gi("6", "4Gi"), 25),
        (
            "scheduler-reservation-loadaware#A7.7.B5",
            json!({"cpu": "8", "memory": "16Gi", "pods": "1"}),
            &none,
            None,
            gi("4", "8Gi"),
            33,
        ),
        ("scheduler-reservation-loadaware#A7.7.B6", gi("8", "0"), &none, None, gi("4", "8Gi"), 50),
        (
            "scheduler-reservation-loadaware#A7.7.B7",
            gi("8", "16Gi"),
            &merged(restricted(), &options),
            Some(gi("4", "8Gi")),
            gi("2", "4Gi"),
            50,
        ),
        ("scheduler-reservation-loadaware#A7.7.B8", gi("3", "3Gi"), &none, None, gi("1", "2Gi"), 49),
        (
            "scheduler-reservation-loadaware#A7.7.B9",
            json!({"cpu": "8"}),
            &none,
            None,
            json!({"cpu": "4", "nvidia.com/gpu": "1"}),
            50,
        ),
        (
            "scheduler-reservation-loadaware#A7.7.B10",
            json!({"cpu": "8"}),
            &none,
            Some(json!({"cpu": "9"})),
            json!({"cpu": "1"}),
            0,
        ),
        (
            "scheduler-reservation-loadaware#A7.7.B11",
            json!({"cpu": "8"}),
            &inner,
            None,
            json!({"cpu": "4"}),
            50,
        ),
    ] {
        let mut scene = Scene::new(&ReservationArgs::default());
        scene.node("n", "32").reserve("r", "n", held, over.clone());
        if let Some(owner) = owner {
            scene.owner("a", "n", owner, "r");
        }
        let pod = scene.pod("p", pod, json!({}));
        let entry = scene.world.cluster.reservations().by_name("r").unwrap();
        let got = most_allocated(entry, |id| entry.allocated.get(id), &pod.class.requests.amounts);
        assert_eq!(got, want, "{key}");
    }
}

fn ordered(order: &str) -> Value {
    json!({"metadata": {"labels": {"scheduling.koordinator.sh/reservation-order": order}}})
}

/// Raw and final scores of the three nodes.
fn rated(scene: &mut Scene, pod: &Arc<Pod>) -> (Vec<i64>, Vec<i64>) {
    scene.world.cluster.attend(&pod.class);
    let cluster = &scene.world.cluster;
    let rows = scene.world.rows();
    let mut cycle = Cycle::new(cluster, pod);
    let restored = crate::framework::Restored::of(&scene.framework.restores, &cycle);
    cycle.set(restored);
    let plugin = scene.framework.scores[0].0.score.clone().unwrap();
    assert!(plugin.prepare(&mut cycle, &rows).unwrap());
    let score = |row: &Row| {
        let seen = scene.framework.seen(&cycle, *row);
        plugin.score(&cycle, &NodeView::supposing(cluster, *row, &seen))
    };
    let raw: Vec<i64> = rows.iter().map(score).collect();
    let mut scores = raw.clone();
    plugin.normalize(&cycle, &rows, &mut scores);
    (raw, scores)
}

#[test]
fn nodes_with_reservations_come_first() {
    let (small, large) = (gi("8", "16Gi"), gi("16", "32Gi"));
    for (key, first, second, raw, scores, want) in [
        (
            "scheduler-reservation-loadaware#A7.7.H1",
            (&small, json!({})),
            (&large, json!({})),
            [50, 25, 0],
            [100, 50, 0],
            "n1",
        ),
        (
            "scheduler-reservation-loadaware#A7.7.H2",
            (&small, ordered("20")),
            (&large, ordered("10")),
            [50, 1000, 0],
            [5, 100, 0],
            "n2",
        ),
        (
            "scheduler-reservation-loadaware#A7.7.H3",
            (&small, ordered("-5")),
            (&large, ordered("10")),
            [1000, 25, 0],
            [100, 2, 0],
            "n1",
        ),
        (
            "scheduler-reservation-loadaware#A7.7.H4",
            (&small, ordered("0")),
            (&large, ordered("abc")),
            [50, 25, 0],
            [100, 50, 0],
            "n1",
        ),
        // The first is too small: upstream takes its order for the node's all the same.
        (
            "scheduler-reservation-loadaware#A7.7.H5",
            (&gi("2", "16Gi"), merged(ordered("1"), &restricted())),
            (&small, merged(ordered("9"), &restricted())),
            [0, 1000, 0],
            [0, 100, 0],
            "n2",
        ),
        (
            "scheduler-reservation-loadaware#A7.7.H8",
            (&small, ordered("5")),
            (&large, ordered("5")),
            [1000, 25, 0],
            [100, 2, 0],
            "n1",
        ),
    ] {
        let mut scene = Scene::new(&ReservationArgs::default());
        scene.node("n1", "32").node("n2", "32").node("n3", "32");
        scene.reserve("r-n1", "n1", first.0.clone(), first.1).reserve(
            "r-n2",
            "n2",
            second.0.clone(),
            second.1,
        );
        let pod = scene.pod("p", gi("4", "8Gi"), json!({}));
        assert_eq!(rated(&mut scene, &pod), (raw.to_vec(), scores.to_vec()), "{key}");
        assert_eq!(scene.place(&pod), placed(want, &format!("r-{want}")), "{key}");
    }
}

#[test]
fn of_several_on_a_node_one_is_taken() {
    for (key, second, want) in [
        ("scheduler-reservation-loadaware#A7.7.H6", ordered("7"), "r2"),
        ("scheduler-reservation-loadaware#A7.7.H7", json!({}), "r1"),
    ] {
        let mut scene = Scene::new(&ReservationArgs::default());
        scene.node("n", "32").reserve("r1", "n", gi("4", "8Gi"), json!({}));
        scene.reserve("r2", "n", gi("16", "32Gi"), second);
        let pod = scene.pod("p", gi("4", "8Gi"), json!({}));
        assert_eq!(scene.place(&pod), placed("n", want), "{key}");
    }
    // Of equals the oldest, then by name.
    let mut scene = Scene::new(&ReservationArgs::default());
    let older = json!({"metadata": {"creationTimestamp": "2023-01-01T00:00:00Z"}});
    scene.node("n", "32").reserve("b", "n", gi("4", "8Gi"), json!({}));
    scene.reserve("a", "n", gi("4", "8Gi"), json!({})).reserve("c", "n", gi("4", "8Gi"), older);
    for (name, want) in [("p1", "c"), ("p2", "a"), ("p3", "b")] {
        let pod = scene.pod(name, gi("4", "8Gi"), json!({}));
        assert_eq!(scene.place(&pod), placed("n", want));
    }
}

#[test]
fn policies_beside_each_other() {
    let policy =
        |policy: Value, once: bool| json!({"spec": {"allocatePolicy": policy, "allocateOnce": once}});
    let (default, aligned, strict) = (json!(null), json!("Aligned"), json!("Restricted"));
    let clash = Fate::Refused("1 node(s) reservation allocate policy conflict.".into());
    let fine = placed("n", "");
    for (key, mine, other, want) in [
        ("scheduler-reservation-loadaware#A4.4.Q1", &default, &default, &fine),
        ("scheduler-reservation-loadaware#A4.4.Q2", &default, &aligned, &clash),
        ("scheduler-reservation-loadaware#A4.4.Q3", &default, &strict, &clash),
        ("scheduler-reservation-loadaware#A4.4.Q4", &aligned, &default, &clash),
        ("scheduler-reservation-loadaware#A4.4.Q5", &aligned, &aligned, &fine),
        ("scheduler-reservation-loadaware#A4.4.Q6", &aligned, &strict, &fine),
        ("scheduler-reservation-loadaware#A4.4.Q7", &strict, &default, &clash),
        ("scheduler-reservation-loadaware#A4.4.Q8", &strict, &aligned, &fine),
        ("scheduler-reservation-loadaware#A4.4.Q9", &strict, &strict, &fine),
    ] {
        let mut scene = Scene::new(&ReservationArgs::default());
        scene.node("n", "32").reserve("r", "n", gi("4", "8Gi"), policy(other.clone(), false));
        let pod = scene.pending("new", gi("4", "8Gi"), policy(mine.clone(), false));
        assert_eq!(scene.place(&pod), *want, "{key}");
    }
    let mut scene = Scene::new(&ReservationArgs::default());
    scene.node("n", "32").reserve("r", "n", gi("4", "8Gi"), policy(aligned.clone(), true));
    scene.owner("a", "n", gi("4", "8Gi"), "r");
    let pod = scene.pending("new", gi("4", "8Gi"), policy(default.clone(), false));
    assert_eq!(scene.place(&pod), fine, "scheduler-reservation-loadaware#A4.4.Q10");
    let mut scene = Scene::new(&ReservationArgs::default());
    scene.node("n1", "32");
    let pinned = json!({"spec": {"template": {"spec": {"nodeName": "n2"}}}});
    let pod = scene.pending("new", gi("4", "8Gi"), pinned);
    let want = Fate::Refused("1 node(s) didn't match the nodeName specified by reservation.".into());
    assert_eq!(scene.place(&pod), want, "scheduler-reservation-loadaware#A4.4.Q11");
    // A pod that will be a reservation keeps to the same rule.
    let mut scene = Scene::new(&ReservationArgs::default());
    scene.node("n", "32").reserve("r", "n", gi("4", "8Gi"), policy(default, false));
    let pod = scene.pod(
        "p",
        gi("1", "1Gi"),
        json!({"metadata": {"labels": {"app": "none", "scheduling.koordinator.sh/operating-mode": "Reservation"}}}),
    );
    assert_eq!(scene.place(&pod), clash);
}
