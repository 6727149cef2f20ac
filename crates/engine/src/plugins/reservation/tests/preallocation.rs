//! Reservations that take in pods which run already, and those that wait for room. Spec: A11, A12.

use super::*;
use crate::profile::args::PreAllocation;

fn cpu(amount: &str) -> Value {
    json!({"cpu": amount})
}

/// What a reservation that takes pods in came to on a node of 16 cpu: whom it took in, or why not.
struct Case {
    key: &'static str,
    /// Names, amounts, and whether they own the reservation.
    pods: Vec<(&'static str, &'static str, bool)>,
    held: &'static str,
    over: Value,
    args: ReservationArgs,
    want: Result<&'static [&'static str], &'static str>,
}

fn case(
    key: &'static str,
    pods: &[(&'static str, &'static str, bool)],
    want: Result<&'static [&'static str], &'static str>,
) -> Case {
    Case {
        key,
        pods: pods.to_vec(),
        held: "8",
        over: json!({"spec": {"preAllocation": true, "allocatePolicy": "Restricted"}}),
        args: ReservationArgs::default(),
        want,
    }
}

impl Case {
    fn with(mut self, over: Value) -> Case {
        self.over = merged(self.over, &over);
        self
    }

    fn holding(mut self, held: &'static str) -> Case {
        self.held = held;
        self
    }

    fn set(mut self, pre_allocation: PreAllocation) -> Case {
        self.args.pre_allocation = pre_allocation;
        self
    }

    fn run(self) {
        // What is free is asked of the plugin alone: NodeResourcesFit would speak first.
        let mut scene = Scene::new(&self.args);
        scene.node("n", "16");
        for (name, amount, is_owner) in &self.pods {
            match is_owner {
                true => {
                    let over = merged(
                        pod(&cpu(amount)),
                        &json!({"metadata": {"labels":
                        {"pod.koordinator.sh/is-pre-allocatable": "true"}}}),
                    );
                    scene.world.place(name, "n", over);
                }
                false => drop(scene.fill(name, "n", cpu(amount))),
            }
        }
        let reserve = scene.pending("r", cpu(self.held), self.over);
        let got = scene.place(&reserve);
        match self.want {
            Ok(taken) => {
                assert_eq!(got, placed("n", ""), "{}", self.key);
                let entry = scene.world.cluster.reservations().by_name("r").unwrap();
                let mut names: Vec<&str> = entry.owners.iter().map(|owner| &*owner.pod.key.name).collect();
                names.sort_unstable();
                assert_eq!(names, taken, "{}", self.key);
            }
            Err(text) => assert_eq!(got, Fate::Refused(format!("{text}.")), "{}", self.key),
        }
    }
}

#[test]
fn running_pods_are_taken_in() {
    let required =
        json!({"metadata": {"labels": {"scheduling.koordinator.sh/pre-allocation-required": "true"}}});
    let several = json!({"spec": {"preAllocationPolicy": {"enableMultiple": true}}});
    let wide = json!({"spec": {"preAllocationPolicy": {"mode": "Cluster"}}});
    let short = Err("1 Insufficient cpu by node");
    let prefers_none = PreAllocation { prefer_no_pre_allocated_pods: true, ..PreAllocation::default() };
    let (a, b, c) = (("a", "4", true), ("b", "4", true), ("c", "8", false));
    let cases = vec![
        case("scheduler-reservation-loadaware#A11.2.Y1", &[("a", "8", true), ("b", "8", false)], Ok(&["a"])),
        case("scheduler-reservation-loadaware#A11.2.Y2", &[a, ("b", "8", false)], Ok(&["a"])),
        case("scheduler-reservation-loadaware#A11.2.Y3", &[a, ("b", "12", false)], short),
        case("scheduler-reservation-loadaware#A11.2.Y4", &[("a", "12", true)], short),
        case(
            "scheduler-reservation-loadaware#A11.2.Y4",
            &[("a", "12", true)],
            Err("1 Reservation(s) Insufficient cpu"),
        )
        .with(required.clone()),
        case("scheduler-reservation-loadaware#A11.2.Y5", &[a, b, c], Ok(&["a", "b"])).with(several.clone()),
        case(
            "scheduler-reservation-loadaware#A11.2.Y6",
            &[],
            Err("node(s) no pod match reservation with pre allocation required"),
        )
        .with(required),
        case("scheduler-reservation-loadaware#A11.2.Y7", &[a], Ok(&["a"])),
        case("scheduler-reservation-loadaware#A11.2.Y8", &[a], Ok(&[])).set(prefers_none),
        case(
            "scheduler-reservation-loadaware#A11.2.Y10",
            &[a],
            Err("reservation requires cluster mode pre-allocation which is disabled"),
        )
        .with(wide),
        case(
            "scheduler-reservation-loadaware#A11.2.Y11",
            &[a, ("b", "6", true), ("c", "6", false)],
            Ok(&["b"]),
        )
        .holding("6"),
        case("scheduler-reservation-loadaware#A11.2.Y12", &[("a", "10", true), b, ("c", "2", false)], short)
            .with(several.clone()),
        case(
            "scheduler-reservation-loadaware#A11.2.Y13",
            &[("a", "2", true), ("b", "3", true), ("d", "5", true), ("c", "6", false)],
            Ok(&["b", "d"]),
        )
        .with(several),
        case("scheduler-reservation-loadaware#A11.2.Y14", &[a, b, c], short),
    ];
    cases.into_iter().for_each(Case::run);
}

fn cluster_wide() -> ReservationArgs {
    let pre_allocation = PreAllocation { enable_cluster_mode: true, ..PreAllocation::default() };
    ReservationArgs { pre_allocation, ..ReservationArgs::default() }
}

fn wide(several: bool) -> Value {
    json!({"spec": {"preAllocation": true, "allocatePolicy": "Restricted",
        "preAllocationPolicy": {"mode": "Cluster", "enableMultiple": several}}})
}

#[test]
fn candidates_of_the_whole_cluster() {
    let args = cluster_wide();
    let mut scene = Scene::whole(&args);
    scene.node("n", "64");
    let ranks =
        [("c", Some("5")), ("b", None), ("a", None), ("z", Some("9")), ("n", Some("-3")), ("x", Some("abc"))];
    let marked = |label: &str, rank: Option<&str>| {
        let rank =
            rank.map_or(json!({}), |rank| json!({"pod.koordinator.sh/pre-allocatable-priority": rank}));
        json!({"metadata": {"labels": {"pod.koordinator.sh/is-pre-allocatable": label}, "annotations": rank}})
    };
    for (name, rank) in ranks {
        scene.world.place(name, "n", merged(pod(&cpu("1")), &marked("true", rank)));
    }
    scene.world.place("other", "n", merged(pod(&cpu("1")), &marked("false", Some("100"))));
    let reserve = scene.pending("r", cpu("8"), wide(true));
    let cycle = Cycle::new(&scene.world.cluster, &reserve);
    let restore = &scene.framework.restores[0];
    let row = scene.world.cluster.row("n").unwrap();
    let names: Vec<String> = restore.lifted(&cycle, row).iter().map(|pod| pod.key.name.to_string()).collect();
    assert_eq!(names, ["z", "c", "a", "b", "x", "n"], "scheduler-reservation-loadaware#A11.2.Y15");
    // One that uses another reservation is not taken from it.
    let mut scene = Scene::new(&args);
    scene.node("n", "16").fill("other", "n", cpu("8"));
    scene.world.place("b", "n", merged(pod(&cpu("4")), &marked("true", None)));
    let used = json!({"metadata": {"annotations": uses_annotation("another")}});
    scene.world.place("c", "n", merged(merged(pod(&cpu("4")), &marked("true", None)), &used));
    let reserve = scene.pending("r", cpu("8"), wide(true));
    let want = Fate::Refused("1 Insufficient cpu by node.".into());
    assert_eq!(scene.place(&reserve), want, "scheduler-reservation-loadaware#A11.2.Y16");
}

#[test]
fn fewer_pods_taken_in_are_better() {
    let mut scene = Scene::whole(&ReservationArgs::default());
    scene.node("n1", "16").node("n2", "16");
    scene.fill("c", "n1", cpu("8")).fill("d", "n2", cpu("8"));
    for (name, node, amount) in [("a", "n1", "4"), ("b", "n1", "4"), ("e", "n2", "8")] {
        scene.world.place(name, node, pod(&cpu(amount)));
    }
    let over = json!({"spec": {"preAllocation": true, "allocatePolicy": "Restricted",
        "preAllocationPolicy": {"enableMultiple": true}}});
    let reserve = scene.pending("r", cpu("8"), over);
    assert_eq!(scene.place(&reserve), placed("n2", ""));
    let entry = scene.world.cluster.reservations().by_name("r").unwrap();
    assert_eq!(entry.owners.iter().map(|owner| &*owner.pod.uid).collect::<Vec<_>>(), ["e"]);
}

#[test]
fn a_reservation_may_wait_for_room() {
    let over = json!({"spec": {"preAllocation": true}});
    for (amount, is_placed) in [("8", true), ("16", true), ("16001m", false)] {
        let mut scene = Scene::whole(&ReservationArgs::default());
        scene.node("n", "16").fill("full", "n", cpu("16"));
        let reserve = scene.pending("r", cpu(amount), over.clone());
        let fate = scene.place(&reserve);
        let is_there = matches!(fate, Fate::Placed(..));
        assert_eq!(is_there, is_placed, "scheduler-reservation-loadaware#A11.2.Y9 {amount}: {fate:?}");
    }
    // What waits is nobody's to use, and what becomes free is kept for it.
    let mut scene = Scene::whole(&ReservationArgs::default());
    scene.node("n", "16").fill("full", "n", cpu("16"));
    let waiting = json!({"spec": {"preAllocation": true}, "status": {"phase": "Waiting"}});
    scene.reserve("r", "n", cpu("8"), waiting);
    scene.world.cluster.release("full");
    let pod = scene.pod("p", cpu("9"), json!({}));
    assert!(matches!(scene.place(&pod), Fate::Refused(_)));
    let pod = scene.pod("q", cpu("8"), json!({}));
    assert_eq!(scene.place(&pod), placed("n", ""));
}

fn operating(annotations: Value, status: Value) -> Value {
    json!({"metadata": {"labels": {"app": "seat", "scheduling.koordinator.sh/operating-mode": "Reservation"},
        "annotations": annotations}, "status": status})
}

#[test]
fn a_running_pod_is_a_reservation() {
    let owners = json!({"scheduling.koordinator.sh/reservation-owners":
        r#"[{"labelSelector":{"matchLabels":{"app":"x"}}}]"#});
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let taken = merged(
        owners.clone(),
        &json!({"scheduling.koordinator.sh/reservation-current-owner": r#"{"kind":"Pod","name":"y"}"#}),
    );
    let broken = json!({"scheduling.koordinator.sh/reservation-owners": "{"});
    for (name, annotations, status, want) in [
        ("ready", owners.clone(), ready.clone(), placed("n", "seat")),
        ("not ready", owners.clone(), json!({"phase": "Running"}), Fate::Refused(String::new())),
        ("in use", taken, ready.clone(), Fate::Refused(String::new())),
        ("for nobody", broken, ready.clone(), Fate::Refused(String::new())),
    ] {
        let mut scene = Scene::whole(&ReservationArgs::default());
        scene.node("n", "16").fill("other", "n", cpu("8"));
        scene.world.place("seat", "n", merged(pod(&cpu("8")), &operating(annotations, status)));
        let owner = scene.pod("p", cpu("8"), json!({}));
        let got = match scene.place(&owner) {
            Fate::Refused(_) => Fate::Refused(String::new()),
            got => got,
        };
        assert_eq!(got, want, "{name}");
        // It is for one pod.
        let next = scene.pod("q", cpu("1"), json!({}));
        assert!(matches!(scene.place(&next), Fate::Refused(_)), "{name}");
    }
    // When it ends it is no reservation any more.
    let mut scene = Scene::whole(&ReservationArgs::default());
    scene.node("n", "16");
    scene.world.place("seat", "n", merged(pod(&cpu("8")), &operating(owners, ready)));
    assert!(scene.world.cluster.reservations().by_name("seat").is_some());
    scene.world.cluster.release("seat");
    assert!(scene.world.cluster.reservations().is_empty());
}
