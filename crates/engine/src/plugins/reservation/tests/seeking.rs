//! Which reservations a pod may use, and what it is told. Spec: scheduler-reservation-loadaware A1.1, A1.2, A6, A7.5.

use std::collections::BTreeMap;

use super::super::told::{Tally, reasons};
use super::*;
use crate::framework::timing::tests::Ticking;

fn amounts() -> Value {
    json!({"cpu": "8", "memory": "16Gi"})
}

fn asked() -> Value {
    json!({"cpu": "4", "memory": "8Gi"})
}

const NONE: &str = "node(s) no reservations match reservation affinity";

/// A reservation `r1` on `n1`, and a pod that owns it.
fn meet(over: Value, pod: Value) -> Fate {
    let mut scene = Scene::new(&ReservationArgs::default());
    scene.node_of(
        "n1",
        json!({"cpu": "32", "memory": "256Gi"}),
        json!({"metadata": {"labels": {"zone": "a", "disk": "ssd"}}}),
    );
    scene.reserve("r1", "n1", amounts(), over);
    let pod = scene.pod("p", asked(), pod);
    scene.place(&pod)
}

fn none(added: &[&str]) -> Fate {
    Fate::Refused(format!("{NONE}. {}", added.join(", ")))
}

fn taint(value: Value, effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": "k", "value": value, "effect": effect}]}})
}

fn exact(names: &str) -> Value {
    json!({"metadata": {"annotations": {"scheduling.koordinator.sh/exact-match-reservation": names}}})
}

#[test]
fn affinity_and_taints() {
    let (used, beside) = (placed("n1", "r1"), placed("n1", ""));
    let total = "1 Reservation(s) matched owner total";
    let closed = json!({"spec": {"unschedulable": true}});
    let both = merged(closed.clone(), &taint(json!("v"), "NoSchedule"));
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {(key): value}}});
    let wrong = r#"{"reservationSelector":{"pool":"z"}}"#;
    let fussy = merged(affinity(wrong), &exact(r#"{"resourceNames":["cpu"]}"#));
    let terms = |terms: Value| {
        affinity(
            &json!({"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": terms}})
                .to_string(),
        )
    };
    let expression = |key: &str, value: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    let unschedulable = "1 Reservation(s) is unschedulable";
    let tainted = "1 Reservation(s) had untolerated taint {k: v}";
    let unlike = "1 Reservation(s) didn't match affinity rules";
    let inexact = "1 Reservation(s) is not exact matched";
    let cases = vec![
        ("scheduler-reservation-loadaware#A6.M1", taint(json!("v"), "NoSchedule"), json!({}), beside.clone()),
        ("scheduler-reservation-loadaware#A6.M2", taint(json!("v"), "NoSchedule"), affinity("{}"), none(&[tainted, total])),
        (
            "scheduler-reservation-loadaware#A6.M3",
            taint(json!("v"), "NoSchedule"),
            affinity(r#"{"tolerations":[{"key":"k","operator":"Exists"}]}"#),
            used.clone(),
        ),
        (
            "scheduler-reservation-loadaware#A6.M4",
            taint(json!(null), "NoExecute"),
            affinity("{}"),
            none(&["1 Reservation(s) had untolerated taint {k: }", total]),
        ),
        ("scheduler-reservation-loadaware#A6.M5", taint(json!("v"), "PreferNoSchedule"), affinity("{}"), used.clone()),
        ("scheduler-reservation-loadaware#A6.M6", closed.clone(), json!({}), beside.clone()),
        ("scheduler-reservation-loadaware#A6.M7", closed.clone(), affinity("{}"), none(&[unschedulable, total])),
        (
            "scheduler-reservation-loadaware#A6.M8",
            closed,
            affinity(r#"{"tolerations":[{"key":"node.kubernetes.io/unschedulable","operator":"Exists","effect":"NoSchedule"}]}"#),
            used.clone(),
        ),
        (
            "scheduler-reservation-loadaware#A6.M9",
            json!({"metadata": {"deletionTimestamp": "2024-01-02T00:00:00Z"}}),
            affinity(r#"{"tolerations":[{"operator":"Exists"}]}"#),
            Fate::Failed("target reservation is terminating".into()),
        ),
        ("scheduler-reservation-loadaware#A6.M10", both.clone(), affinity(r#"{"name":"r1"}"#), used.clone()),
        ("scheduler-reservation-loadaware#A6.M11", json!({}), affinity(r#"{"name":"r1","reservationSelector":{"pool":"z"}}"#), used.clone()),
        (
            "scheduler-reservation-loadaware#A6.M12",
            json!({}),
            affinity(r#"{"name":"r9"}"#),
            none(&["1 Reservation(s) didn't match the requested reservation name", total]),
        ),
        (
            "scheduler-reservation-loadaware#A6.M13",
            json!({}),
            merged(affinity(r#"{"name":"r1"}"#), &other_app()),
            none(&["0 Reservation(s) matched owner total"]),
        ),
        ("scheduler-reservation-loadaware#A6.M14", label("pool", "peak"), affinity(r#"{"reservationSelector":{"pool":"low"}}"#), none(&[unlike, total])),
        ("scheduler-reservation-loadaware#A6.M15", json!({}), affinity(r#"{"reservationSelector":{"zone":"a"}}"#), used.clone()),
        ("scheduler-reservation-loadaware#A6.M16", label("zone", "b"), affinity(r#"{"reservationSelector":{"zone":"a"}}"#), none(&[unlike, total])),
        ("scheduler-reservation-loadaware#A6.M17", label("pool", "peak"), terms(json!([expression("pool", "low"), expression("disk", "ssd")])), used.clone()),
        (
            "scheduler-reservation-loadaware#A6.M18",
            json!({}),
            affinity(r#"{"requiredDuringSchedulingIgnoredDuringExecution":{}}"#),
            none(&[unlike, total]),
        ),
        ("scheduler-reservation-loadaware#A6.M18", json!({}), terms(json!([{}])), none(&[unlike, total])),
        (
            "scheduler-reservation-loadaware#A6.M19",
            json!({}),
            terms(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["r1"]}]}])),
            used.clone(),
        ),
        (
            "scheduler-reservation-loadaware#A6.M20",
            json!({}),
            terms(json!([{"matchExpressions": [{"key": "a", "operator": "Foo"}]}])),
            Fate::Failed(
                "running PreFilter plugin \"Reservation\": nodeSelectorTerms[0].matchExpressions[0].operator: \
                 Unsupported value: \"Foo\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \
                 \"Gt\", \"Lt\""
                    .into(),
            ),
        ),
        ("scheduler-reservation-loadaware#A6.M21", json!({}), affinity(""), used),
        (
            "scheduler-reservation-loadaware#A6.M22",
            json!({}),
            affinity("{"),
            Fate::Failed("running PreFilter plugin \"Reservation\": unexpected end of JSON input".into()),
        ),
        ("scheduler-reservation-loadaware#A6.M23", both, fussy.clone(), none(&[unschedulable, total])),
        ("scheduler-reservation-loadaware#A6.M24", taint(json!("v"), "NoSchedule"), fussy.clone(), none(&[tainted, total])),
        ("scheduler-reservation-loadaware#A6.M25", json!({}), fussy, none(&[unlike, total])),
        (
            "scheduler-reservation-loadaware#A6.M26",
            json!({}),
            merged(affinity("{}"), &exact(r#"{"resourceNames":["cpu"]}"#)),
            none(&[inexact, total]),
        ),
        ("scheduler-reservation-loadaware#A6.M27", json!({}), exact(r#"{"resourceNames":["cpu"]}"#), beside),
        (
            "scheduler-reservation-loadaware#A6.M28",
            json!({}),
            merged(affinity(r#"{"name":"r1"}"#), &exact(r#"{"resourceNames":["cpu"]}"#)),
            none(&["1 Reservation(s) exactly matches the requested reservation name", inexact, total]),
        ),
    ];
    for (key, over, pod, want) in cases {
        assert_eq!(meet(over, pod), want, "{key}");
    }
    let bad = meet(json!({}), exact("{"));
    assert!(matches!(bad, Fate::Failed(_)), "{bad:?}");
}

#[test]
fn exact_amounts() {
    let (names, gpu) = (|names: Value| exact(&json!({"resourceNames": names}).to_string()), "nvidia.com/gpu");
    for (key, asked, held, over, want) in [
        (
            "scheduler-reservation-loadaware#A1.2.E1",
            json!({"cpu": "4", "memory": "8Gi"}),
            json!({"cpu": "4", "memory": "16Gi"}),
            names(json!(["cpu"])),
            true,
        ),
        (
            "scheduler-reservation-loadaware#A1.2.E2",
            json!({"cpu": "4000m", "memory": "8Gi"}),
            json!({"cpu": "4", "memory": "8192Mi"}),
            names(json!(["cpu", "memory"])),
            true,
        ),
        (
            "scheduler-reservation-loadaware#A1.2.E3",
            json!({"cpu": "4"}),
            json!({"cpu": "8"}),
            names(json!(["cpu"])),
            false,
        ),
        // Upstream ends with yes at the name that both lack.
        (
            "scheduler-reservation-loadaware#A1.2.E4",
            json!({"cpu": "4"}),
            json!({"cpu": "8"}),
            names(json!([gpu, "cpu"])),
            false,
        ),
        (
            "scheduler-reservation-loadaware#A1.2.E5",
            json!({"cpu": "4"}),
            json!({"cpu": "8"}),
            names(json!(["cpu", gpu])),
            false,
        ),
        (
            "scheduler-reservation-loadaware#A1.2.E6",
            json!({"cpu": "4"}),
            json!({"cpu": "4", "nvidia.com/gpu": "1"}),
            names(json!([gpu])),
            false,
        ),
        (
            "scheduler-reservation-loadaware#A1.2.E7",
            json!({"cpu": "4"}),
            json!({"cpu": "8"}),
            names(json!([])),
            true,
        ),
        (
            "scheduler-reservation-loadaware#A1.2.E7",
            json!({"cpu": "4"}),
            json!({"cpu": "8"}),
            json!({}),
            true,
        ),
    ] {
        let mut scene = Scene::new(&ReservationArgs::default());
        scene.node_of("n", json!({"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8"}), json!({}));
        scene.reserve("r", "n", held, json!({}));
        let pod = scene.pod("p", asked, over);
        let want = placed("n", if want { "r" } else { "" });
        assert_eq!(scene.place(&pod), want, "{key}");
    }
}

#[test]
fn owners() {
    let app = json!({"labelSelector": {"matchLabels": {"app": "x"}}});
    let bad = json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}});
    let rs =
        json!({"controller": {"kind": "ReplicaSet", "name": "rs1", "controller": true, "namespace": "d"}});
    let plain = |name: &str, namespace: &str, labels: Value| json!({"metadata": {"name": name, "namespace": namespace, "labels": labels}});
    let owned = |controller: Value| {
        json!({"metadata": {"name": "q", "namespace": "d", "labels": {}, "ownerReferences":
            [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs1", "uid": "u", "controller": controller}]}})
    };
    let other = plain("p9", "d", json!({"app": "y"}));
    for (key, owners, pod, want) in [
        (
            "scheduler-reservation-loadaware#A1.1.O1",
            json!([{"object": {"name": "p0", "namespace": "d"}}]),
            plain("p0", "d", json!({})),
            true,
        ),
        (
            "scheduler-reservation-loadaware#A1.1.O2",
            json!([{"object": {"name": "p0"}}, app]),
            plain("p9", "d", json!({"app": "x"})),
            true,
        ),
        (
            "scheduler-reservation-loadaware#A1.1.O3",
            json!([{"object": {"namespace": "d"}, "labelSelector": {"matchLabels": {"app": "x"}}}]),
            plain("p", "e", json!({"app": "x"})),
            false,
        ),
        ("scheduler-reservation-loadaware#A1.1.O4", json!([rs]), owned(json!(true)), true),
        ("scheduler-reservation-loadaware#A1.1.O5", json!([rs]), owned(json!(null)), false),
        ("scheduler-reservation-loadaware#A1.1.O6", json!([]), other.clone(), false),
        ("scheduler-reservation-loadaware#A1.1.O7", json!([bad]), other.clone(), false),
        ("scheduler-reservation-loadaware#A1.1.O8", json!([{}]), other.clone(), true),
        ("scheduler-reservation-loadaware#A1.1.O9", json!([{"labelSelector": {}}]), other.clone(), true),
        (
            "scheduler-reservation-loadaware#A1.1.O10",
            json!([app, bad]),
            plain("p", "d", json!({"app": "x"})),
            false,
        ),
        ("scheduler-reservation-loadaware#A1.1.O11", json!([{"controller": {}}]), other.clone(), false),
        ("scheduler-reservation-loadaware#A1.1.O12", json!([{"controller": {}}]), owned(json!(true)), true),
        (
            "scheduler-reservation-loadaware#A1.1.O13",
            json!([{"controller": {"controller": false}}]),
            owned(json!(null)),
            false,
        ),
        (
            "scheduler-reservation-loadaware#A1.1.O14",
            json!([{"object": {"name": "p9", "apiVersion": "v1"}}]),
            other.clone(),
            true,
        ),
        (
            "scheduler-reservation-loadaware#A1.1.O15",
            json!([{"object": {"name": "p9", "kind": "Node"}}]),
            other.clone(),
            true,
        ),
        ("scheduler-reservation-loadaware#A1.1.O16", json!([{"object": {}}]), other, true),
    ] {
        let mut scene = Scene::new(&ReservationArgs::default());
        scene.node("n", "32").reserve("r", "n", json!({"cpu": "8"}), json!({"spec": {"owners": owners}}));
        let base = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        let pod = scene.world.pod("p", merged(base, &pod));
        assert_eq!(scene.place(&pod), placed("n", if want { "r" } else { "" }), "{key}");
        let record = &scene.world.cluster.reservations().by_name("r").unwrap().record;
        if key.ends_with("O7") {
            let text = record.owners.as_ref().unwrap_err();
            assert!(text.starts_with("owners[0]: Invalid value: "), "{key}: {text}");
            assert!(text.ends_with("\"Bad\" is not a valid label selector operator"), "{key}: {text}");
        }
    }
}

fn tally(owned: i64) -> Tally {
    Tally { owned, ..Tally::default() }
}

fn verdict(texts: &[&str]) -> Status {
    let reasons = texts.iter().map(|text| Reason::new((*text).to_owned())).collect();
    Status { code: Code::Unschedulable, reasons, plugin: NAME }
}

#[test]
fn what_users_are_told() {
    let taints = BTreeMap::from([("{k: v}".to_owned(), 1)]);
    let short = "Insufficient cpu by node";
    let cases = vec![
        (
            "scheduler-reservation-loadaware#A7.5.T1",
            vec![(Tally { unschedulable: 1, ..tally(3) }, verdict(&["node(s) had taint {a: b}"]))],
            false,
            vec![
                "1 Reservation(s) is unschedulable",
                "2 Reservation(s) for node reason that node(s) had taint {a: b}",
                "3 Reservation(s) matched owner total",
            ],
        ),
        (
            "scheduler-reservation-loadaware#A7.5.T2",
            vec![(tally(2), verdict(&[short, "Reservation(s) Insufficient cpu"]))],
            false,
            vec![
                "1 Reservation(s) for node reason that Insufficient cpu by node",
                "2 Reservation(s) matched owner total",
            ],
        ),
        (
            "scheduler-reservation-loadaware#A7.5.T3",
            vec![
                (Tally { affinity: 1, ..tally(2) }, verdict(&[short])),
                (Tally { not_exact: 1, taints, ..tally(3) }, verdict(&[short])),
            ],
            false,
            vec![
                "1 Reservation(s) didn't match affinity rules",
                "1 Reservation(s) is not exact matched",
                "1 Reservation(s) had untolerated taint {k: v}",
                "2 Reservation(s) for node reason that Insufficient cpu by node",
                "5 Reservation(s) matched owner total",
            ],
        ),
        ("scheduler-reservation-loadaware#A7.5.T4", vec![], false, vec![]),
        (
            "scheduler-reservation-loadaware#A7.5.T5",
            vec![],
            true,
            vec!["0 Reservation(s) matched owner total"],
        ),
        (
            "scheduler-reservation-loadaware#A7.5.T6",
            vec![(
                Tally { named: 1, other_names: 1, ..tally(2) },
                verdict(&["Reservation(s) Insufficient cpu, requested: 3000, used: 6000, capacity: 8000"]),
            )],
            true,
            vec![
                "1 Reservation(s) exactly matches the requested reservation name",
                "1 Reservation(s) didn't match the requested reservation name",
                "2 Reservation(s) matched owner total",
            ],
        ),
        (
            "scheduler-reservation-loadaware#A7.5.T7",
            vec![(tally(1), verdict(&[short, "Insufficient memory by node"]))],
            false,
            vec![
                "1 Reservation(s) for node reason that Insufficient cpu by node",
                "1 Reservation(s) for node reason that Insufficient memory by node",
                "1 Reservation(s) matched owner total",
            ],
        ),
    ];
    for (key, nodes, has_affinity, want) in cases {
        let rows = || (0..).map(Row);
        let tallies: BTreeMap<Row, Tally> =
            rows().zip(nodes.iter().map(|(tally, _)| tally.clone())).collect();
        let of = |row: Row| nodes.get(row.index()).map(|(_, verdict)| verdict);
        assert_eq!(reasons(&tallies, of, has_affinity), want, "{key}");
    }
}

#[test]
fn labels_of_reservations_are_indexed() {
    let index = crate::profile::args::SelectorIndex {
        enabled: true,
        key_prefixes: [" job-", "tenant", "job-", ""].map(str::to_owned).to_vec(),
        keys: ["pool", "zone", "tenant"].map(str::to_owned).to_vec(),
    };
    let args = ReservationArgs { selector_index: index, ..ReservationArgs::default() };
    let scene = |args: &ReservationArgs| {
        let mut scene = Scene::new(args);
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        scene.node_of("n1", json!({"cpu": "32", "memory": "256Gi"}), labels(json!({"zone": "a"})));
        scene.node("n2", "32").node("n3", "32");
        scene.reserve("r1", "n1", json!({"cpu": "1"}), labels(json!({"pool": "a", "job-1": "j"})));
        scene.reserve("r2", "n2", json!({"cpu": "1"}), labels(json!({"pool": "b", "job-2": "j"})));
        scene.reserve("r3", "n3", json!({"cpu": "1"}), labels(json!({"tenant-z": "1", "pool": "a"})));
        scene
    };
    let built = scene(&args);
    for (key, selector, want) in [
        ("scheduler-reservation-loadaware#A14.X1", json!({"pool": "a"}), Some(vec!["r1", "r3"])),
        ("scheduler-reservation-loadaware#A14.X2", json!({"pool": "zzz"}), Some(vec![])),
        ("scheduler-reservation-loadaware#A14.X3", json!({"job-9": "j"}), Some(vec!["r1", "r2"])),
        (
            "scheduler-reservation-loadaware#A14.X4",
            json!({"pool": "a", "job-1": "j"}),
            Some(vec!["r1", "r2"]),
        ),
        ("scheduler-reservation-loadaware#A14.X5", json!({"tenant": "1"}), Some(vec![])),
        ("scheduler-reservation-loadaware#A14.X6", json!({"tenant-q": "1"}), Some(vec!["r3"])),
        ("scheduler-reservation-loadaware#A14.X7", json!({"other": "1"}), None),
        ("scheduler-reservation-loadaware#A14.X7", json!({}), None),
        ("scheduler-reservation-loadaware#A14.X8", json!({"zone": "a"}), Some(vec![])),
    ] {
        let selector: BTreeMap<String, String> = serde_json::from_value(selector).unwrap();
        let reservations = built.world.cluster.reservations();
        let name = |id| reservations.entry(id).unwrap().record.name.to_string();
        let got = reservations.selectors().candidates(&selector);
        let got = got.map(|ids| ids.into_iter().map(name).collect::<Vec<String>>());
        let want = want.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<String>>());
        assert_eq!(got, want, "{key}");
    }
    // Where labels of nodes count, the index is not asked, so they are found.
    let omitting = ReservationArgs { omit_node_labels: true, ..args.clone() };
    for (args, selector, want) in [
        (&args, r#"{"reservationSelector":{"zone":"a"}}"#, placed("n1", "r1")),
        (&omitting, r#"{"reservationSelector":{"pool":"b"}}"#, placed("n2", "r2")),
    ] {
        let mut scene = scene(args);
        let pod = scene.pod("p", json!({"cpu": "1"}), affinity(selector));
        assert_eq!(scene.place(&pod), want, "scheduler-reservation-loadaware#A14.X8");
    }
    for (args, selector, want) in [
        (&args, r#"{"reservationSelector":{"zone":"a"}}"#, None),
        (&omitting, r#"{"reservationSelector":{"pool":"a"}}"#, Some(Some(2))),
        (&omitting, r#"{"reservationSelector":{"pool":"zzz"}}"#, Some(Some(0))),
        (&omitting, r#"{"reservationSelector":{"other":"1"}}"#, Some(None)),
        (&omitting, r#"{"name":"r1"}"#, None),
        (&ReservationArgs::default(), r#"{"reservationSelector":{"pool":"a"}}"#, None),
    ] {
        let mut scene = scene(args);
        let pod = scene.pod("p", json!({"cpu": "1"}), affinity(selector));
        scene.framework.timing.set_stopwatch(Arc::new(Ticking::default()));
        scene.framework.timing.open();
        let _ = scene.attempt(&pod, None);
        let laps = scene.framework.timing.take().unwrap();
        let asked: Vec<Option<usize>> = laps.queries.iter().map(|query| query.candidates).collect();
        assert_eq!(asked, Vec::from_iter(want), "{selector}");
    }
    let mut scene = scene(&omitting);
    let pod = scene.pod("p", json!({"cpu": "1"}), affinity(r#"{"reservationSelector":{"zone":"a"}}"#));
    assert!(matches!(scene.place(&pod), Fate::Refused(_)), "scheduler-reservation-loadaware#A14.X8");
}
