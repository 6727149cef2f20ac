//! What each hook says at each stage, by the rules that it has elsewhere.

use koord_api::annotation::Annotation;
use koord_api::annotation::device::DeviceAllocations;
use koord_api::annotation::node_side::ExtendedResourceSpec;
use koord_api::annotation::node_topology::CpuSharedPool;
use koord_api::gate::Component;
use koord_api::slo::defaults;

use super::*;
use crate::decide::sketch::{PodSketch, node, pod};

const BATCH: &str = r#"{"containers":{
    "main":{"requests":{"kubernetes.io/batch-cpu":"1k"},"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"1Gi"}},
    "log":{"limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"1Gi"}}}}"#;

fn gates(text: &str) -> Gates {
    Gates::parse(Component::Koordlet, text).unwrap()
}

fn layout() -> Layout {
    let pool = |node, cpuset: &str| CpuSharedPool { socket: 0, node, cpuset: cpuset.to_owned() };
    Layout { ls_pools: vec![pool(0, "0-3"), pool(1, "8-11")], ..Layout::default() }
}

/// Shares, quota and memory.
fn limits(values: &Values) -> [Option<i64>; 3] {
    [&values.shares, &values.quota, &values.memory].map(|wanted| wanted.as_ref().map(|wanted| wanted.value))
}

fn cpus(values: &Values) -> Option<&str> {
    values.cpus.as_ref().map(|choice| choice.cpus.as_str())
}

/// All that hooks of a stage say together, with every gate on.
fn said(stage: Stage, sketch: &PodSketch, container: Option<(&str, i64)>) -> Result<Values, String> {
    let (gates, layout) = (gates("AllAlpha=true"), layout());
    let hami = gpu::Hami { library: "/usr/local/vgpu/libvgpu.so".to_owned(), is_monitored: false };
    let mut normalization = cpu_normalization::Memory::default();
    let fast = node(&[], &[]).annotated("node.koordinator.sh/cpu-normalization-ratio", "1.25").read();
    normalization.take(&fast).unwrap();
    let mut strategy = defaults::qos();
    strategy.ls_class.as_mut().unwrap().cpu_qos.as_mut().unwrap().enable = Some(true);
    let rules = Rules {
        gates: &gates,
        layout: Some(&layout),
        batch: batch_resource::Rule::default(),
        ratio: normalization.ratio,
        identity: Some((group_identity::Rule::of(&strategy), group_identity::Switches::default())),
        is_quota_unset_disabled: false,
        hami: &hami,
    };
    let container = container.map(|(name, quota)| AskedContainer { name: name.to_owned(), quota });
    let asked = Asked { pod: sketch.read(), container };
    called(&rules, stage, &asked).try_fold(Values::default(), |all, (_, said)| Ok(all.and(said?)))
}

#[test]
fn stages_of_the_gates_that_are_on() {
    let disabled = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    for (text, off, want) in [
        ("", &[][..], &["PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources"][..]),
        ("", &["PreCreateContainer"], &["PreRunPodSandbox", "PreUpdateContainerResources"]),
        ("BatchResource=false,CPUSetAllocator=false", &[], &["PreRunPodSandbox"]),
        ("AllBeta=false,GPUEnvInject=true", &[], &["PreCreateContainer"]),
        (
            "AllBeta=false,Resctrl=true",
            &[],
            &["PreRunPodSandbox", "PreCreateContainer", "PreRemoveRunPodSandbox"],
        ),
        ("AllBeta=false", &[], &[]),
    ] {
        assert_eq!(registered(&gates(text), &disabled(off)), want, "{text}");
    }
}

#[test]
fn hooks_are_called_in_the_order_of_their_names() {
    assert!(HOOKS.is_sorted_by_key(|hook| hook.name));
    let known = |hook: &Hook| Component::Koordlet.gates().any(|gate| gate.name == hook.gate);
    assert!(HOOKS.iter().all(known));
}

#[test]
fn batch_pods() {
    let batch = pod("p").qos("BE").kube_qos("BestEffort").annotated(ExtendedResourceSpec::KEY, BATCH);
    let whole = said(Stage::PreRunPodSandbox, &batch, None).unwrap();
    assert_eq!(limits(&whole), [Some(1024), Some(300_000), Some(2 << 30)]);
    assert_eq!(cpus(&whole), None, "a sandbox has the CPUs of its pod");
    let main = said(Stage::PreCreateContainer, &batch, Some(("main", 0))).unwrap();
    assert_eq!(limits(&main), [Some(1024), Some(200_000), Some(1 << 30)]);
    assert_eq!(cpus(&main), Some(""), "koordlet-enforce#18.92");
    let other = said(Stage::PreUpdateContainerResources, &batch, Some(("other", 0))).unwrap();
    assert_eq!(limits(&other), [None; 3], "not in the annotation");
}

#[test]
fn services() {
    let ls = pod("p").qos("LS").kube_qos("Burstable");
    let whole = said(Stage::PreRunPodSandbox, &ls, None).unwrap();
    assert_eq!((whole.identity.map(|identity| identity.value), limits(&whole)), (Some(2), [None; 3]));
    let main = said(Stage::PreCreateContainer, &ls, Some(("main", 100_000))).unwrap();
    assert_eq!(limits(&main), [None, Some(80_000), None], "the CPU is a quarter faster");
    assert_eq!(cpus(&main), Some("0-3,8-11"), "services share pools");
    let unlimited = said(Stage::PreCreateContainer, &ls, Some(("main", -1))).unwrap();
    assert_eq!(unlimited.quota, None, "no limit stays none");
}

#[test]
fn pinned_pods() {
    let lsr = pod("p").qos("LSR").kube_qos("Guaranteed").pinned("4-5");
    let whole = said(Stage::PreRunPodSandbox, &lsr, None).unwrap();
    assert_eq!(limits(&whole)[1], Some(-1));
    let main = said(Stage::PreUpdateContainerResources, &lsr, Some(("main", 200_000))).unwrap();
    assert_eq!((limits(&main)[1], cpus(&main)), (Some(-1), Some("4-5")));
}

#[test]
fn gpus() {
    let given = |text: &str| pod("p").qos("LS").annotated(DeviceAllocations::KEY, text);
    let two = given(r#"{"gpu":[{"minor":1},{"minor":3}]}"#);
    let env = |stage| said(stage, &two, Some(("main", 0))).unwrap().env;
    assert_eq!(env(Stage::PreCreateContainer), [("NVIDIA_VISIBLE_DEVICES", "1,3".to_owned())]);
    assert_eq!(env(Stage::PreUpdateContainerResources), []);
    assert!(said(Stage::PreCreateContainer, &given("{"), Some(("main", 0))).is_err());
}

#[test]
fn what_is_written_to_a_pods_group() {
    let place = Place::Dir("kubepods/podp".into());
    let lsr = pod("p").qos("LSR").kube_qos("Guaranteed").pinned("4-5");
    let values = said(Stage::PreRunPodSandbox, &lsr, None).unwrap();
    let files: Vec<String> =
        values.wishes(&place).iter().map(|wish| format!("{} {}", wish.file.name(), wish.value)).collect();
    assert_eq!(files, ["cpu.bvt_warp_ns 0", "cpu.cfs_quota_us -1"]);
    assert_eq!(Values::default().wishes(&place), []);
}

#[test]
fn values_tell_what_they_follow_from() {
    let lsr = pod("p").qos("LSR").kube_qos("Guaranteed").pinned("4-5");
    let lsr = lsr.annotated(DeviceAllocations::KEY, r#"{"gpu":[{"minor":1}]}"#);
    let batch = pod("p").qos("BE").kube_qos("BestEffort").annotated(ExtendedResourceSpec::KEY, BATCH);
    let ls = pod("p").qos("LS").kube_qos("Burstable");
    for (sketch, container, want) in [
        (
            &lsr,
            ("main", 0),
            "cpu.cfs_quota_us -1; annotation scheduling.koordinator.sh/resource-status has CPUs. cpuset.cpus 4-5; annotation scheduling.koordinator.sh/resource-status has CPUs. NVIDIA_VISIBLE_DEVICES=1",
        ),
        (
            &ls,
            ("main", 100_000),
            "cpu.cfs_quota_us 80000; limits give 100000, CPU ratio 1.25. cpuset.cpus 0-3,8-11; the share pools of LS pods",
        ),
        (&batch, ("other", 0), "cpuset.cpus none; best-effort pods have those of their group"),
    ] {
        assert_eq!(said(Stage::PreCreateContainer, sketch, Some(container)).unwrap().to_string(), want);
    }
    assert_eq!(Values::default().to_string(), "");
}
