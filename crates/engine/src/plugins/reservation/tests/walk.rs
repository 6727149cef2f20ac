//! Amounts: policies, the accounting walk-through, host ports, and what others see. Spec A7.4, A8, A13, A19, A20.

use super::*;

const ANY: &str = "{}";

/// One case of the policies' table.
struct Case {
    key: &'static str,
    /// Used on the node by others, of 32 cpu.
    used: i64,
    reservations: Vec<(&'static str, Value, Value)>,
    owners: Vec<(&'static str, Value, &'static str)>,
    pod: Value,
    affinity: Option<&'static str>,
    want: Result<&'static str, &'static str>,
    allocated: &'static str,
}

fn case(key: &'static str, used: i64, pod: Value, want: Result<&'static str, &'static str>) -> Case {
    Case {
        key,
        used,
        reservations: vec![("r", json!({"cpu": "8"}), json!({}))],
        owners: Vec::new(),
        pod,
        affinity: None,
        want,
        allocated: "",
    }
}

impl Case {
    fn of(mut self, requests: Value, over: Value) -> Case {
        self.reservations = vec![("r", requests, over)];
        self
    }

    fn and(mut self, name: &'static str, requests: Value, over: Value) -> Case {
        self.reservations.push((name, requests, over));
        self
    }

    fn owned(mut self, name: &'static str, requests: Value) -> Case {
        self.owners.push((name, requests, "r"));
        self
    }

    fn must(mut self, affinity: &'static str) -> Case {
        self.affinity = Some(affinity);
        self
    }

    fn then(mut self, allocated: &'static str) -> Case {
        self.allocated = allocated;
        self
    }

    fn run(self, args: &ReservationArgs) {
        let mut scene = Scene::new(args);
        scene.node_of("n", json!({"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8"}), json!({}));
        if self.used > 0 {
            scene.fill("others", "n", json!({"cpu": self.used.to_string()}));
        }
        for (name, requests, over) in self.reservations {
            scene.reserve(name, "n", requests, over);
        }
        for (name, requests, uses) in self.owners {
            scene.owner(name, "n", requests, uses);
        }
        let over = self.affinity.map_or(json!({}), affinity);
        let pod = scene.pod("p", self.pod, over);
        let got = scene.place(&pod);
        let want = match self.want {
            Ok(reservation) => placed("n", reservation),
            Err(reasons) => Fate::Refused(reasons.to_owned()),
        };
        let got = match (&want, got) {
            // What is added about reservations has a table of its own.
            (Fate::Refused(_), Fate::Refused(text)) => {
                let filters = text.split_once(". ").map_or(text.as_str(), |(filters, _)| filters);
                Fate::Refused(filters.trim_end_matches('.').to_owned())
            }
            (_, got) => got,
        };
        assert_eq!(got, want, "{}", self.key);
        if !self.allocated.is_empty() {
            let name = self.want.unwrap_or("r");
            assert_eq!(scene.allocated(name), self.allocated, "{}", self.key);
        }
    }
}

fn cpu(amount: &str) -> Value {
    json!({"cpu": amount})
}

fn strict(over: Value) -> Value {
    merged(restricted(), &over)
}

fn annotated(key: &str, value: Value) -> Value {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    json!({"metadata": {"annotations": {(key): text}}})
}

fn options(text: &str) -> Value {
    annotated("scheduling.koordinator.sh/reservation-restricted-options", json!(text))
}

fn inner(cpu: &str) -> Value {
    annotated("node.koordinator.sh/reservation", json!({"resources": {"cpu": cpu}}))
}

#[test]
fn policies() {
    let node_short = Err("1 Insufficient cpu by node");
    let short = Err("1 Reservation(s) Insufficient cpu");
    let cases = vec![
        case("scheduler-reservation-loadaware#A8.3.W1", 20, cpu("10"), Ok("r")).then("cpu=10"),
        case("scheduler-reservation-loadaware#A8.3.W2", 24, cpu("10"), node_short),
        case("scheduler-reservation-loadaware#A8.3.W3", 10, cpu("10"), Ok("")).of(cpu("8"), restricted()),
        case("scheduler-reservation-loadaware#A8.3.W4", 10, cpu("10"), short).of(cpu("8"), restricted()).must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W5", 0, json!({"cpu": "4", "memory": "32Gi"}), Ok("r"))
            .of(json!({"cpu": "8", "memory": "16Gi"}), strict(options(r#"{"resources":["cpu"]}"#)))
            .must(ANY)
            .then("cpu=4"),
        case("scheduler-reservation-loadaware#A8.3.W6", 0, json!({"cpu": "4", "nvidia.com/gpu": "1"}), Ok("r"))
            .of(cpu("8"), restricted())
            .must(ANY)
            .then("cpu=4"),
        case("scheduler-reservation-loadaware#A8.3.W7", 0, cpu("3"), short)
            .of(cpu("8"), restricted())
            .owned("a", cpu("6"))
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W8", 0, cpu("2"), Ok("r"))
            .of(cpu("8"), restricted())
            .owned("a", cpu("6"))
            .must(ANY)
            .then("cpu=8"),
        case("scheduler-reservation-loadaware#A8.3.W9", 0, cpu("1"), Err("1 Reservation(s) Too many pods"))
            .of(json!({"cpu": "8", "pods": "1"}), restricted())
            .owned("a", cpu("1"))
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W10", 0, cpu("7"), short)
            .of(cpu("8"), strict(inner("2")))
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W12", 0, cpu("10"), node_short)
            .and("r2", cpu("8"), json!({}))
            .and("r3", cpu("8"), json!({}))
            .and("r4", cpu("8"), json!({})),
        case(
            "scheduler-reservation-loadaware#A8.3.W13",
            0,
            cpu("3"),
            Err("1 Reservation(s) Insufficient cpu, requested: 3000, used: 6000, capacity: 8000"),
        )
        .of(cpu("8"), restricted())
        .owned("a", cpu("6"))
        .must(r#"{"name":"r"}"#),
        case(
            "scheduler-reservation-loadaware#A8.3.W14",
            0,
            cpu("1"),
            Err("1 Reservation(s) Too many pods, requested: 1, used: 1, capacity: 1"),
        )
        .of(json!({"cpu": "8", "pods": "1"}), restricted())
        .owned("a", cpu("1"))
        .must(r#"{"name":"r"}"#),
        case(
            "scheduler-reservation-loadaware#A8.3.W15",
            0,
            json!({"cpu": "7", "memory": "20Gi"}),
            Err("1 Reservation(s) Insufficient cpu, requested: 7000, used: 0, capacity: 6000, \
                1 Reservation(s) Insufficient memory, requested: 21474836480, used: 0, capacity: 17179869184"),
        )
        .of(json!({"cpu": "8", "memory": "16Gi"}), strict(inner("2")))
        .must(r#"{"name":"r"}"#),
        case("scheduler-reservation-loadaware#A8.3.W16", 24, cpu("7"), node_short)
            .of(cpu("8"), inner("2"))
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W17", 0, cpu("10"), short)
            .of(cpu("8"), strict(options(r#"{"resources":["memory"]}"#)))
            .must(ANY),
        case(
            "scheduler-reservation-loadaware#A8.3.W18",
            0,
            cpu("1"),
            Err("node(s) no reservations match reservation affinity"),
        )
        .of(cpu("8"), strict(options("{bad")))
        .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W19", 0, cpu("1"), Ok("r")).of(cpu("8"), options("{bad")).must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W20", 30, cpu("4"), node_short)
            .of(json!({"memory": "8Gi"}), json!({})),
        case("scheduler-reservation-loadaware#A8.3.W21", 20, cpu("4"), Ok("r"))
            .of(json!({"memory": "8Gi"}), json!({}))
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W22", 20, cpu("4"), Ok("")).of(json!({"memory": "8Gi"}), json!({})),
        case("scheduler-reservation-loadaware#A8.3.W23", 0, cpu("10"), Err("2 Reservation(s) Insufficient cpu"))
            .of(cpu("8"), restricted())
            .and("r2", cpu("4"), restricted())
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W24", 0, cpu("6"), Ok("r"))
            .of(cpu("8"), restricted())
            .and("r2", cpu("4"), restricted())
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W25", 0, json!({}), Ok("r")).of(cpu("8"), restricted()).must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W26", 0, json!({}), Ok("")).of(cpu("8"), restricted()),
        case("scheduler-reservation-loadaware#A8.3.W27", 26, cpu("4"), Ok("r")).of(cpu("8"), restricted()).must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W28", 28, cpu("6"), node_short)
            .of(cpu("8"), restricted())
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W29", 0, cpu("3"), Ok(""))
            .of(cpu("8"), restricted())
            .owned("a", cpu("6")),
        case("scheduler-reservation-loadaware#A8.3.W33", 20, cpu("12"), Ok("r"))
            .of(cpu("8"), json!({"spec": {"allocatePolicy": null}}))
            .must(ANY),
        case("scheduler-reservation-loadaware#A8.3.W33", 20, cpu("12001m"), node_short)
            .of(cpu("8"), json!({"spec": {"allocatePolicy": null}}))
            .must(ANY),
    ];
    cases.into_iter().for_each(|case| case.run(&ReservationArgs::default()));
}

#[test]
fn ignored_resources() {
    let by_name = ReservationArgs { ignored_resources: vec!["nvidia.com/gpu".into()], ..Default::default() };
    let by_group =
        ReservationArgs { ignored_resource_groups: vec!["nvidia.com".into()], ..Default::default() };
    for args in [by_name, by_group] {
        case(
            "scheduler-reservation-loadaware#A8.3.W32",
            0,
            json!({"cpu": "4", "nvidia.com/gpu": "2"}),
            Ok("r"),
        )
        .of(json!({"cpu": "8", "nvidia.com/gpu": "1"}), restricted())
        .must(ANY)
        .then("cpu=4 nvidia.com/gpu=2")
        .run(&args);
    }
}

#[test]
fn a_reserved_slot_is_the_owners() {
    for (key, pods, want) in [
        ("scheduler-reservation-loadaware#A8.3.W30", "2", placed("n", "r")),
        ("scheduler-reservation-loadaware#A8.3.W31", "1", Fate::Refused("1 Too many pods".into())),
    ] {
        let mut scene = Scene::whole(&ReservationArgs::default());
        scene.node_of("n", json!({"cpu": "32", "memory": "256Gi", "pods": pods}), json!({}));
        scene.fill("others", "n", cpu("1")).reserve("r", "n", cpu("8"), json!({}));
        let pod = scene.pod("p", cpu("1"), affinity(ANY));
        let got = match scene.place(&pod) {
            Fate::Refused(text) => Fate::Refused(text.split_once('.').unwrap().0.to_owned()),
            got => got,
        };
        assert_eq!(got, want, "{key}");
    }
}

/// The most that a pod gets on the only node, by halving.
fn most(scene: &mut Scene, resource: &str, unit: &str, over: &Value) -> i64 {
    let (mut fits, mut too_much) = (0, 1 << 20);
    while too_much - fits > 1 {
        let amount = (fits + too_much) / 2;
        let requests = merged(json!({"cpu": "1m"}), &json!({(resource): format!("{amount}{unit}")}));
        let pod = scene.pod(&format!("p{amount}"), requests, over.clone());
        match scene.try_out(&pod) {
            Fate::Placed(..) => fits = amount,
            _ => too_much = amount,
        }
    }
    fits
}

/// 32 cpu, others use 6; R1 holds 8, of which A has 4; R2 holds 4.
fn accounts(first: &Value, second: &Value) -> Scene {
    let mut scene = Scene::whole(&ReservationArgs::default());
    let owners = |app: &[&str]| {
        let owners: Vec<Value> =
            app.iter().map(|app| json!({"labelSelector": {"matchLabels": {"app": app}}})).collect();
        json!({"spec": {"owners": owners}})
    };
    scene.node("n", "32").fill("others", "n", cpu("6"));
    scene.reserve("r1", "n", cpu("8"), merged(owners(&["x", "one"]), first));
    scene.reserve("r2", "n", cpu("4"), merged(owners(&["x", "two"]), second));
    scene.owner("a", "n", cpu("4"), "r1");
    scene
}

#[test]
fn accounting_walk_through() {
    let app = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let with = |app_name: &str, text: &str| merged(app(app_name), &affinity(text));
    let ignoring = merged(
        app("other"),
        &json!({"metadata": {"labels": {"scheduling.koordinator.sh/reservation-ignored": "true"}}}),
    );
    let aligned = json!({});
    for (key, policies, over, want) in [
        ("scheduler-reservation-loadaware#A19.K1", (&aligned, &aligned), app("other"), 14_000),
        ("scheduler-reservation-loadaware#A19.K2", (&aligned, &aligned), app("one"), 18_000),
        ("scheduler-reservation-loadaware#A19.K3", (&restricted(), &restricted()), with("one", ANY), 4_000),
        ("scheduler-reservation-loadaware#A19.K4", (&aligned, &aligned), app("two"), 18_000),
        ("scheduler-reservation-loadaware#A19.K5", (&aligned, &aligned), app("x"), 18_000),
        ("scheduler-reservation-loadaware#A19.K6", (&aligned, &aligned), ignoring, 22_000),
        ("scheduler-reservation-loadaware#A19.K10", (&restricted(), &restricted()), app("x"), 14_000),
    ] {
        let mut scene = accounts(policies.0, policies.1);
        assert_eq!(most(&mut scene, "cpu", "m", &over), want, "{key}");
    }
    // A reservation is as little an owner as anybody.
    let mut scene = accounts(&aligned, &aligned);
    let fits = |scene: &mut Scene, amount: &str| {
        let pod = scene.pending("r3", cpu(amount), json!({}));
        scene.try_out(&pod)
    };
    assert_eq!(fits(&mut scene, "14"), placed("n", ""), "scheduler-reservation-loadaware#A19.K7");
    assert!(matches!(fits(&mut scene, "14001m"), Fate::Refused(_)), "scheduler-reservation-loadaware#A19.K7");
    // What owners took beyond what was held is not there for anybody.
    for (key, app_name) in [
        ("scheduler-reservation-loadaware#A19.K8", "other"),
        ("scheduler-reservation-loadaware#A19.K9", "one"),
    ] {
        let mut scene = accounts(&aligned, &aligned);
        scene.world.cluster.remove_reservation("r2");
        scene.owner("b", "n", cpu("18"), "r1");
        assert_eq!(most(&mut scene, "cpu", "m", &app(app_name)), 4_000, "{key}");
    }
    // Small enough for a reservation it is used, larger ones go beside it.
    let mut scene = accounts(&restricted(), &restricted());
    let pod = scene.pod("small", cpu("4"), json!({}));
    assert_eq!(scene.try_out(&pod), placed("n", "r1"), "scheduler-reservation-loadaware#A19.K10");
    let pod = scene.pod("large", cpu("5"), json!({}));
    assert_eq!(scene.try_out(&pod), placed("n", ""), "scheduler-reservation-loadaware#A19.K10");
    // Of reservations that are used as well the older one is taken.
    let mut scene = accounts(&aligned, &aligned);
    let pod = scene.pod("beyond", cpu("18"), json!({}));
    assert_eq!(scene.try_out(&pod), placed("n", "r1"), "scheduler-reservation-loadaware#A19.K5");
}

#[test]
fn unlisted_resources_are_never_returned() {
    for (restricts, others_see, owners_get) in [(true, 40, 56), (false, 48, 56)] {
        let mut scene = Scene::whole(&ReservationArgs::default());
        scene.node_of("n", json!({"cpu": "32", "memory": "64Gi"}), json!({}));
        let over = if restricts { strict(options(r#"{"resources":["cpu"]}"#)) } else { json!({}) };
        scene.reserve("r", "n", json!({"cpu": "8", "memory": "16Gi"}), over);
        scene.owner("a", "n", json!({"cpu": "4", "memory": "8Gi"}), "r");
        let key = "scheduler-reservation-loadaware#A19.K11";
        assert_eq!(most(&mut scene, "memory", "Gi", &other_app()), others_see, "{key}");
        assert_eq!(most(&mut scene, "memory", "Gi", &json!({})), owners_get, "{key}");
    }
}

#[test]
fn others_get_what_is_left_of_the_node() {
    let mut scene = Scene::whole(&ReservationArgs::default());
    scene.node("n", "32").reserve("r1", "n", cpu("8"), json!({})).owner("a", "n", cpu("4"), "r1");
    let pod = scene.pod("p", cpu("24"), other_app());
    assert_eq!(scene.try_out(&pod), placed("n", ""), "scheduler-reservation-loadaware#A8.3.W11");
    let pod = scene.pod("q", cpu("24001m"), other_app());
    let Fate::Refused(text) = scene.try_out(&pod) else { panic!() };
    assert_eq!(text, "1 Insufficient cpu.", "scheduler-reservation-loadaware#A8.3.W11");
}

#[test]
fn host_ports() {
    let ports = |ports: &[u16]| {
        let ports: Vec<Value> =
            ports.iter().map(|port| json!({"hostPort": port, "containerPort": port})).collect();
        json!({"containers": [{"name": "c", "ports": ports}]})
    };
    for (key, app, is_used, used) in [
        ("scheduler-reservation-loadaware#A20.J1", "x", false, &[][..]),
        ("scheduler-reservation-loadaware#A20.J2", "x", true, &[80]),
        ("scheduler-reservation-loadaware#A20.J3", "other", false, &[80, 81]),
        ("scheduler-reservation-loadaware#A20.J4", "other", true, &[80, 81]),
    ] {
        let mut scene = Scene::whole(&ReservationArgs::default());
        scene.node("n", "32");
        scene.reserve("r", "n", json!({}), json!({"spec": {"template": {"spec": ports(&[80, 81])}}}));
        if is_used {
            let annotations = uses_annotation("r");
            let over = json!({"metadata": {"labels": {"app": "x"}, "annotations": annotations}, "spec": ports(&[80])});
            scene.world.place("a", "n", over);
        }
        for port in [80, 81, 82] {
            let over = json!({"metadata": {"labels": {"app": app}}, "spec": ports(&[port])});
            let pod = scene.world.pod(&format!("p{port}"), over);
            let is_free = matches!(scene.try_out(&pod), Fate::Placed(..));
            assert_eq!(is_free, !used.contains(&port), "{key} {port}");
        }
        // Ports of living owners stay theirs when the reservation goes.
        scene.world.cluster.remove_reservation("r");
        let over = json!({"metadata": {"labels": {"app": app}}, "spec": ports(&[80])});
        let pod = scene.world.pod("after", over);
        assert_eq!(matches!(scene.try_out(&pod), Fate::Placed(..)), !is_used, "{key}");
    }
}

/// What the filter alone says once some pods are supposed to be gone.
fn without(scene: &mut Scene, pod: &Arc<Pod>, gone: &[&str]) -> String {
    scene.world.cluster.attend(&pod.class);
    let cluster = &scene.world.cluster;
    let cycle = Cycle::new(cluster, pod);
    let row = cluster.row("n").unwrap();
    let mut delta = scene.framework.seen(&cycle, row);
    for uid in gone {
        delta.remove(cluster, row, &cluster.held(uid).unwrap().pod);
    }
    let filter = scene.framework.filters[0].filter.as_ref().unwrap();
    let verdict = filter.check(&cycle, &NodeView::supposing(cluster, row, &delta));
    verdict.map_or_else(|status| status.to_string(), |()| String::new())
}

#[test]
fn what_victims_leave() {
    let scene = || {
        let mut scene = Scene::new(&ReservationArgs::default());
        scene.node("n", "32").reserve("r", "n", cpu("8"), restricted());
        scene.owner("a", "n", cpu("6"), "r").fill("b", "n", cpu("20"));
        scene
    };
    let failed = "node(s) preemption failed due to insufficient resources";
    for (key, amount, over, gone, want) in [
        (
            "scheduler-reservation-loadaware#A13.V1",
            "8",
            affinity(ANY),
            &[][..],
            "Insufficient cpu by node, Reservation(s) Insufficient cpu",
        ),
        ("scheduler-reservation-loadaware#A13.V2", "8", affinity(ANY), &["a"], ""),
        (
            "scheduler-reservation-loadaware#A13.V3",
            "8",
            affinity(ANY),
            &["b"],
            "Reservation(s) Insufficient cpu",
        ),
        ("scheduler-reservation-loadaware#A13.V4", "26", other_app(), &["a"], failed),
        ("scheduler-reservation-loadaware#A13.V5", "24", other_app(), &["b"], ""),
        ("scheduler-reservation-loadaware#A13.V5", "25", other_app(), &["b"], failed),
    ] {
        let mut scene = scene();
        let pod = scene.pod("p", cpu(amount), over);
        assert_eq!(without(&mut scene, &pod, gone), want, "{key}");
    }
}
