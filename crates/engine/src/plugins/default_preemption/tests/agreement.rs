//! Sums bring the same as filters, on random clusters.

use proptest::prelude::*;

use super::*;
use crate::cluster::Row;
use crate::framework::{Code as StatusCode, Cycle, NodeView, PreFilter, Preparation};
use crate::schedule::Diagnosis;

/// A pod on a node, or promised one.
#[derive(Clone, Debug)]
struct Resident {
    node: usize,
    priority: i32,
    cpu: u8,
    memory: u8,
    devices: u8,
    started: Option<u8>,
    app: Option<u8>,
    is_promised: bool,
}

#[derive(Clone, Debug)]
struct Scene {
    /// Cpu, memory, devices and pods of each.
    nodes: Vec<(u8, u8, u8, u8)>,
    residents: Vec<Resident>,
    /// How many of each app may go.
    budgets: Vec<i32>,
    wants: (i32, u8, u8, u8),
    is_refused_before: bool,
    limit: i32,
    seed: u64,
}

fn resident() -> impl Strategy<Value = Resident> {
    (
        (0..6usize, 0..6i32, 0..4u8, 0..4u8),
        (prop_oneof![3 => Just(0u8), 1 => 0..3u8], prop::option::of(0..3u8), prop::option::of(0..3u8)),
        prop::bool::weighted(0.1),
    )
        .prop_map(|((node, priority, cpu, memory), (devices, started, app), is_promised)| Resident {
            node,
            priority,
            cpu,
            memory,
            devices,
            started,
            app,
            is_promised,
        })
}

fn scene() -> impl Strategy<Value = Scene> {
    (
        prop::collection::vec((1..8u8, 1..8u8, 0..4u8, 1..6u8), 1..6),
        prop::collection::vec(resident(), 0..24),
        prop::collection::vec(-1..3i32, 0..3),
        (1..7i32, 0..6u8, 0..6u8, prop_oneof![3 => Just(0u8), 1 => 0..3u8]),
        prop::bool::weighted(0.1),
        prop_oneof![Just(100), 0..4i32],
        any::<u64>(),
    )
        .prop_map(|(nodes, residents, budgets, wants, is_refused_before, limit, seed)| Scene {
            nodes,
            residents,
            budgets,
            wants,
            is_refused_before,
            limit,
            seed,
        })
}

fn sized(spec: Spec, cpu: u8, memory: u8, devices: u8) -> Spec {
    let spec = spec.cpu(&cpu.to_string()).asks("memory", &format!("{memory}Gi"));
    if devices > 0 { spec.asks("example.com/device", &devices.to_string()) } else { spec }
}

struct Refuses;

impl PreFilter for Refuses {
    fn prepare(&self, _cycle: &mut Cycle<'_>) -> Result<Preparation, Status> {
        Err(Status::unschedulable("Refuses", "refused"))
    }
}

fn build_world(scene: &Scene, method: Method) -> World {
    let mut world = World::new().without_claims();
    for (i, (cpu, memory, devices, pods)) in scene.nodes.iter().enumerate() {
        let size = json!({"cpu": cpu.to_string(), "memory": format!("{memory}Gi"),
            "example.com/device": devices.to_string(), "pods": pods.to_string()});
        world.node_with(&format!("n{i}"), size, json!({}), json!({}));
    }
    for (i, resident) in scene.residents.iter().enumerate() {
        let Resident { priority, cpu, memory, devices, .. } = *resident;
        let mut spec = sized(pod(&format!("r{i}")).priority(priority), cpu, memory, devices);
        if let Some(started) = resident.started {
            spec = spec.started(started.into());
        }
        if let Some(app) = resident.app {
            spec = spec.app(&format!("app{app}"));
        }
        let node = format!("n{}", resident.node % scene.nodes.len());
        match resident.is_promised {
            true => world.promise(&spec, &node),
            false => world.place(&spec, &node),
        }
    }
    for (app, allowed) in scene.budgets.iter().enumerate() {
        world.budget(&format!("app{app}"), *allowed, &["r1"]);
    }
    if scene.is_refused_before {
        world.framework.pre_filters.push(Hooks::new("Refuses").pre_filter(Arc::new(Refuses)));
    }
    let limits =
        CandidateLimits { percentage: crate::profile::args::Percent::default(), absolute: scene.limit };
    let plugin = Arc::new(DefaultPreemption { limits, method });
    world.framework.post_filters = vec![Hooks::new(NAME).post_filter(plugin)];
    world.random = Random::new(scene.seed);
    world
}

/// Every refused node's verdict is what its filters say one by one.
fn check_verdicts(world: &World, pod: &Arc<Pod>, diagnosis: &Diagnosis) {
    if diagnosis.pod.is_some() || !world.nominated.is_empty() {
        return;
    }
    let cycle = Cycle::new(&world.cluster, pod);
    let fit = world.framework.filters.iter().find(|hooks| hooks.name == "NodeResourcesFit");
    let fit = fit.and_then(|hooks| hooks.filter.as_ref()).unwrap();
    for (row, status) in diagnosis.nodes.rejected() {
        let checked = fit.check(&cycle, &NodeView::of(&world.cluster, row)).unwrap_err();
        assert!(checked.reads_like(status), "{checked} but {status}");
    }
}

/// Text, promise, victims, violations, node.
type Outcome = (String, Nominating, Vec<String>, usize, Option<Row>);

fn told(world: &mut World, scene: &Scene) -> Option<Outcome> {
    let (priority, cpu, memory, devices) = scene.wants;
    let wants = sized(pod("preemptor").priority(priority), cpu, memory, devices);
    let unfit = match world.attempt(&wants, None) {
        Ok(_) => return None,
        Err(crate::schedule::Failure::Unfit(unfit)) => unfit,
        Err(other) => panic!("{other:?}"),
    };
    let record = world.compile(&wants);
    check_verdicts(world, &record, &unfit.diagnosis);
    let preemption = unfit.preemption.as_ref();
    let names = preemption.map(|p| p.victims.iter().map(|v| v.key.to_string()).collect());
    Some((
        unfit.message(),
        unfit.nominating,
        names.unwrap_or_default(),
        preemption.map_or(0, |p| p.violations),
        preemption.map(|p| p.row),
    ))
}

/// With the victims gone the pod fits, beside all who stay and are promised.
fn check_cure(world: &mut World, scene: &Scene, victims: &[String], row: Option<Row>) {
    let Some(row) = row.filter(|_| !scene.is_refused_before) else { return };
    for victim in victims {
        let uid = victim.strip_prefix("d/").unwrap();
        assert!(world.cluster.release(uid), "{uid} was there");
    }
    let name = world.cluster.node(row).name.clone();
    let (priority, cpu, memory, devices) = scene.wants;
    let wants = sized(pod("preemptor").priority(priority), cpu, memory, devices);
    assert!(world.attempt(&wants, Some(&name)).is_ok(), "room was made on {name}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn sums_and_filters_agree(scene in scene()) {
        let mut by_sums = build_world(&scene, Method::Quickest);
        let mut by_filters = build_world(&scene, Method::Filters);
        let told_by_sums = told(&mut by_sums, &scene);
        prop_assert_eq!(&told_by_sums, &told(&mut by_filters, &scene));
        if let Some((_, _, victims, _, row)) = told_by_sums {
            check_cure(&mut by_sums, &scene, &victims, row);
        }
    }
}

#[test]
fn sums_are_used_only_when_room_is_all_that_matters() {
    let apart = preemptor(20, "1").with("affinity", apart_from("rival"));
    for (name, wants, want) in [
        ("plain", preemptor(20, "1"), true),
        ("tolerant", preemptor(20, "1").with("tolerations", json!([{"operator": "Exists"}])), true),
        ("port", preemptor(20, "1").host_port(80), false),
        ("apart from others", apart, false),
    ] {
        let mut world = world(&[("a", "1", &[one("x", 1)])]);
        assert_eq!(uses_sums(&mut world, &wants), want, "{name}");
    }
    let mut rival = world(&[("a", "1", &[one("x", 1).with("affinity", apart_from("me"))])]);
    assert!(!uses_sums(&mut rival, &preemptor(20, "1").app("me")), "others keep it away");
}

/// Whether `Sums` takes the pod on.
fn uses_sums(world: &mut World, wants: &Spec) -> bool {
    struct Probe(std::sync::Mutex<Option<bool>>);
    impl PostFilter for Probe {
        fn help(&self, input: &PostFilterInput<'_>, _: &mut Random) -> PostFiltered {
            *self.0.lock().unwrap() = Some(sums::Sums::of(input).is_some());
            let status = Status { code: StatusCode::Unresolvable, reasons: Vec::new(), plugin: "Probe" };
            PostFiltered { status, nominating: Nominating::Keep, preemption: None }
        }
    }
    let probe = Arc::new(Probe(std::sync::Mutex::new(None)));
    world.framework.post_filters = vec![Hooks::new("Probe").post_filter(probe.clone())];
    drop(world.attempt(wants, None));
    probe.0.lock().unwrap().take().unwrap_or_else(|| panic!("the pod fits"))
}
