//! The cases of manager 10.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use koord_api::patch::merge;
use serde_json::json;

use super::super::Plan;
use super::super::testing::{TestDevice, Turn, device, turn};
use super::*;

const T4: [(&str, &str); 2] = [(GPU_MODEL, "Tesla-T4"), (GPU_DRIVER_VERSION, "460.91.03")];
const T4_LABELS: [(&str, &str); 4] = [
    (KUBERNETES_GPU_DRIVER, "460.91.03"),
    (KUBERNETES_GPU_MODEL, "Tesla-T4"),
    (GPU_DRIVER_VERSION, "460.91.03"),
    (GPU_MODEL, "Tesla-T4"),
];

fn gpu(health: bool) -> TestDevice {
    (DeviceType::Gpu, health, vec![(GPU_CORE, "100"), (GPU_MEMORY_RATIO, "100"), (GPU_MEMORY, "16Gi")])
}

fn g1() -> Device {
    device(vec![gpu(true), gpu(true), gpu(false)], &T4)
}

/// A node that has these resources in both lists.
fn given(device: Option<Device>, resources: &[(&str, &str)]) -> Turn {
    let mut given = Turn { device, ..Turn::default() };
    for (name, amount) in resources {
        given.node.set_resource(name, Some(amount.parse().unwrap()));
    }
    given
}

fn resources(plan: &Plan) -> String {
    assert_eq!(plan.prepared.capacity, plan.prepared.allocatable);
    let list = plan.prepared.allocatable.as_ref().unwrap().iter();
    list.map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const TOTALS: [(&str, &str); 4] =
    [(GPU, "200"), (GPU_CORE, "200"), (GPU_MEMORY, "32Gi"), (GPU_MEMORY_RATIO, "200")];
const TOTALS_TEXT: &str = "koordinator.sh/gpu=200 koordinator.sh/gpu-core=200 koordinator.sh/gpu-memory=32Gi koordinator.sh/gpu-memory-ratio=200";

#[test]
fn working_gpus_are_summed_up() {
    let shared = Turn { sync_gpu_shared: true, ..given(Some(g1()), &[]) };
    let npu = || (DeviceType::Gpu, true, vec![(HUAWEI_NPU_CORE, "20"), ("huawei.com/other", "1")]);
    let huawei = device(vec![npu(), npu()], &[(GPU_VENDOR, "huawei")]);
    let old_names = device(vec![(DeviceType::Gpu, true, vec![("kubernetes.io/gpu-core", "100")])], &[]);
    for (name, given, want) in [
        ("manager#10.G1", given(Some(g1()), &[]), TOTALS_TEXT.to_owned()),
        ("manager#10.G2", shared, format!("{TOTALS_TEXT} koordinator.sh/gpu.shared=200")),
        ("manager#10.G3", given(Some(huawei), &[]), "huawei.com/npu-core=40".to_owned()),
        (
            "names of before v1.2",
            given(Some(old_names), &[]),
            "koordinator.sh/gpu=100 koordinator.sh/gpu-core=100".to_owned(),
        ),
    ] {
        let plan = turn(&[&GpuDeviceResource], &given);
        assert_eq!(resources(&plan), want, "{name}");
        assert!(plan.needs_status, "{name}");
        assert_eq!(plan.runs.iter().find_map(|run| run.error.clone()), None, "{name}");
    }
}

#[test]
fn labels_are_copied_and_never_taken_off() {
    let nvidia = device(vec![gpu(true)], &[T4[0], T4[1], (GPU_VENDOR, "nvidia")]);
    let vendor = [T4_LABELS[0], T4_LABELS[1], T4_LABELS[2], T4_LABELS[3], (GPU_VENDOR, "nvidia")];
    for (name, device, old, want) in [
        ("manager#10.G1", Some(g1()), vec![], labels(&T4_LABELS)),
        ("manager#10.G7", Some(nvidia), vec![], labels(&vendor)),
        ("manager#10.G9", Some(g1()), vec![(GPU_MODEL, "A100")], labels(&T4_LABELS)),
        ("manager#10.G4", None, T4_LABELS.to_vec(), labels(&T4_LABELS)),
        ("manager#10.G8", Some(self::device(vec![gpu(false)], &[])), T4_LABELS.to_vec(), labels(&T4_LABELS)),
    ] {
        let mut given = given(device, &[]);
        given.node.labels = labels(&old);
        let plan = turn(&[&GpuDeviceResource], &given);
        assert_eq!(plan.prepared.labels, want, "{name}");
        assert_eq!(plan.needs_meta, given.node.labels != want, "{name}");
    }
}

#[test]
fn a_node_without_labels_gets_them() {
    let status = json!({"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}});
    let absent = json!({"metadata": {"name": "n1"}, "status": status});
    let null = json!({"metadata": {"name": "n1", "labels": null}, "status": status});
    for object in [absent, null] {
        let node: Node = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(node.metadata.labels, None);
        let view = NodeView::of(&node);
        let given = Turn { node: view.clone(), device: Some(g1()), ..Turn::default() };
        let plan = turn(&[&GpuDeviceResource], &given);
        assert!(plan.needs_meta, "manager#10.G11");
        for patch in [plan.prepared.meta_patch(&view), plan.prepared.patch(&view)] {
            let patched = merge::apply(object.clone(), patch.to_string().as_bytes()).unwrap();
            let want = json!(labels(&T4_LABELS));
            assert_eq!(patched["metadata"]["labels"], want, "manager#10.G11, manager#26.DB-33");
        }
    }
}

#[test]
fn gpus_that_fail_or_go_are_taken_off() {
    let one = || device(vec![gpu(true), gpu(false), gpu(false)], &T4);
    let halved = "koordinator.sh/gpu=100 koordinator.sh/gpu-core=100 koordinator.sh/gpu-memory=16Gi koordinator.sh/gpu-memory-ratio=100";
    let mut all = TOTALS.to_vec();
    all.extend([(GPU_SHARED, "200"), (HUAWEI_NPU_CORE, "1"), (HUAWEI_NPU_CPU, "1"), (HUAWEI_NPU_DVPP, "1")]);
    all.push(("pods", "110"));
    let mut with_shared = TOTALS.to_vec();
    with_shared.push((GPU_SHARED, "200"));
    for (name, is_colocated, device, before, want) in [
        ("manager#10.G4", true, None, &all, "pods=110".to_owned()),
        ("manager#10.G8", true, Some(self::device(vec![gpu(false)], &T4)), &all, "pods=110".to_owned()),
        ("manager#10.G5", true, Some(one()), &with_shared, format!("{halved} koordinator.sh/gpu.shared=200")),
        (
            "manager#10.G10, manager#26.DB-3",
            false,
            Some(one()),
            &with_shared,
            format!("{halved} koordinator.sh/gpu.shared=200"),
        ),
    ] {
        let given = Turn { is_colocated, ..given(device, before) };
        let plan = turn(&[&GpuDeviceResource], &given);
        assert_eq!(resources(&plan), want, "{name}");
        assert!(plan.needs_status, "{name}: written at once");
    }
    let same = turn(&[&GpuDeviceResource], &given(Some(g1()), &TOTALS));
    assert!(!same.needs_status, "nothing changed");
}
