use k8s_openapi::api::core::v1::{Container, Pod};

use super::*;
use crate::keys::pod::annotation::EXTENDED_RESOURCE_SPEC;
use crate::pod::annotation;
use crate::pod::sketch::{Amounts, Sketch, pod};
use crate::priority::class_with_default;

type WireList = std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

/// Changes the tree of a pod that is written as a typed one.
fn on_tree<T>(pod: &mut Pod, change: impl FnOnce(&mut Value) -> T) -> T {
    let mut tree = serde_json::to_value(&*pod).unwrap();
    let result = change(&mut tree);
    *pod = serde_json::from_value(tree).unwrap();
    result
}

fn translate_own(pod: &mut Pod) -> bool {
    class_with_default(pod).is_some_and(|class| on_tree(pod, |tree| translate(tree, class)))
}

fn record(pod: &mut Pod) -> Result<bool, BrokenRecord> {
    on_tree(pod, |tree| record_extended(tree, Recorded::Batch))
}

/// Requests and limits of a container.
fn lists(container: &Container) -> (String, String) {
    let text = |list: &Option<WireList>| {
        let list = list.iter().flatten();
        let short = |name: &str| name.replace("kubernetes.io/", "").replace("koordinator.sh/", "");
        list.map(|(name, amount)| format!("{}={}", short(name), amount.0)).collect::<Vec<_>>().join(" ")
    };
    let resources = container.resources.clone().unwrap_or_default();
    (text(&resources.requests), text(&resources.limits))
}

fn first(pod: &Pod) -> (String, String) {
    lists(&pod.spec.as_ref().unwrap().containers[0])
}

fn translated(pod: Pod) -> (String, String) {
    let mut pod = pod;
    let before = pod.clone();
    assert_eq!(translate_own(&mut pod), pod != before);
    first(&pod)
}

#[test]
fn native_amounts() {
    let batch = || pod().priority(5500);
    for (key, pod, requests, limits) in [
        (
            "api#10.17",
            batch().container(&[("cpu", "1500m"), ("memory", "1Gi")], &[("cpu", "2")]),
            "batch-cpu=1500 batch-memory=1Gi",
            "batch-cpu=2k",
        ),
        ("api#10.18", batch().container(&[], &[("cpu", "1")]), "batch-cpu=1k", "batch-cpu=1k"),
        ("api#10.19", pod().priority(7500).container(&[("cpu", "100m")], &[]), "mid-cpu=100", ""),
        ("api#10.20", pod().priority(3500).container(&[("cpu", "1")], &[("cpu", "1")]), "cpu=1", "cpu=1"),
        (
            "api#10.102",
            batch().container(&[("cpu", "100u"), ("memory", "1500m")], &[]),
            "batch-cpu=1 batch-memory=1500m",
            "",
        ),
        (
            "api#10.103",
            batch().container(&[("memory", "1024Mi")], &[("memory", "2G")]),
            "batch-memory=1Gi",
            "batch-memory=2G",
        ),
        (
            "api#10.104",
            batch().container(&[("cpu", "1"), ("kubernetes.io/batch-cpu", "5")], &[]),
            "batch-cpu=1k",
            "",
        ),
        ("api#10.105 BE", pod().qos("BE").container(&[("cpu", "1")], &[]), "batch-cpu=1k", ""),
        ("api#10.105 no class", pod().container(&[("cpu", "1")], &[]), "cpu=1", ""),
        ("other names", batch().container(&[("nvidia.com/gpu", "1")], &[]), "nvidia.com/gpu=1", ""),
    ] {
        assert_eq!(translated(pod), (requests.to_string(), limits.to_string()), "{key}");
    }
}

#[test]
fn init_containers_and_overhead() {
    let mut pod = pod()
        .priority(5500)
        .init(&[], &[("cpu", "3"), ("memory", "1Gi")])
        .overhead(&[("cpu", "250m"), ("memory", "64Mi")]);
    assert!(translate_own(&mut pod));
    let spec = pod.spec.as_ref().unwrap();
    let both = "batch-cpu=3k batch-memory=1Gi".to_string();
    assert_eq!(lists(&spec.init_containers.as_ref().unwrap()[0]), (both.clone(), both), "api#10.106");
    let overhead = spec.overhead.as_ref().unwrap();
    assert_eq!(overhead["kubernetes.io/batch-cpu"].0, "250", "api#10.106");
    assert_eq!(overhead["kubernetes.io/batch-memory"].0, "64Mi", "api#10.106");
    assert_eq!(overhead.len(), 2, "api#10.106");
    let tree = serde_json::to_value(&pod).unwrap();
    assert_eq!(
        extended_resource_spec(&tree, Recorded::BatchAndMid),
        ExtendedResourceSpec::default(),
        "api#10.106"
    );
}

#[test]
fn record_for_the_node() {
    let batch: Amounts<'_> = &[("kubernetes.io/batch-cpu", "1k"), ("kubernetes.io/mid-cpu", "5")];
    let mut given = pod().container(batch, batch).container(&[("cpu", "1")], &[]);
    let want = r#"{"containers":{"c1":{"limits":{"kubernetes.io/batch-cpu":"1k"},"requests":{"kubernetes.io/batch-cpu":"1k"}}}}"#;
    assert_eq!(record(&mut given), Ok(true), "api#10.29");
    assert_eq!(annotation(&given, EXTENDED_RESOURCE_SPEC), Some(want), "api#10.29");
    assert_eq!(record(&mut given), Ok(false), "the second time nothing changes");

    let mut with_mid = given.clone();
    let record_mid = |tree: &mut Value| record_extended(tree, Recorded::BatchAndMid);
    assert_eq!(on_tree(&mut with_mid, record_mid), Ok(true), "manager#26.DB-8");
    let both = r#"{"containers":{"c1":{"limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/mid-cpu":"5"},"requests":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/mid-cpu":"5"}}}}"#;
    assert_eq!(annotation(&with_mid, EXTENDED_RESOURCE_SPEC), Some(both), "manager#26.DB-8");

    let mut stale = pod().annotation(EXTENDED_RESOURCE_SPEC, want);
    assert_eq!(record(&mut stale), Ok(true), "api#10.116");
    assert_eq!(annotation(&stale, EXTENDED_RESOURCE_SPEC), Some("{}"), "api#10.116");
    let mut broken = pod().annotation(EXTENDED_RESOURCE_SPEC, "{");
    let error = record(&mut broken).unwrap_err().to_string();
    let want = "failed to get current extended resource spec, err: unexpected end of JSON input";
    assert_eq!(error, want, "api#10.116");
    let mut absent = pod();
    assert_eq!(record(&mut absent), Ok(false), "api#10.116");
    assert_eq!(annotation(&absent, EXTENDED_RESOURCE_SPEC), None, "api#10.116");
}

#[test]
fn gpu_spelt_out() {
    let gpu = |requests: Amounts<'_>, limits: Amounts<'_>| {
        let mut pod = pod().container(requests, limits);
        let before = pod.clone();
        assert_eq!(on_tree(&mut pod, spell_out_gpu), pod != before);
        first(&pod)
    };
    let twice = |text: &str| (text.to_string(), text.to_string());
    for (key, list, want) in [
        ("api#10.26", vec![(GPU, "200")], "gpu-core=200 gpu-memory-ratio=200 gpu.shared=2"),
        ("api#10.27", vec![(GPU_CORE, "50"), (GPU_MEMORY, "8Gi")], "gpu-core=50 gpu-memory=8Gi gpu.shared=1"),
        ("api#10.28", vec![(GPU_MEMORY_RATIO, "150")], "gpu-memory-ratio=150 gpu.shared=1"),
        ("api#10.112", vec![(GPU, "50")], "gpu-core=50 gpu-memory-ratio=50 gpu.shared=1"),
        ("api#10.112", vec![(GPU, "100")], "gpu-core=100 gpu-memory-ratio=100 gpu.shared=1"),
        ("api#10.112", vec![(GPU, "150")], "gpu-core=150 gpu-memory-ratio=150 gpu.shared=1"),
        ("api#10.113", vec![(GPU_CORE, "200")], "gpu-core=200 gpu.shared=2"),
        (
            "api#10.113",
            vec![(GPU_CORE, "200"), (GPU_MEMORY_RATIO, "100")],
            "gpu-core=200 gpu-memory-ratio=100 gpu.shared=1",
        ),
        ("api#10.113", vec![(GPU_MEMORY_RATIO, "300")], "gpu-memory-ratio=300 gpu.shared=3"),
        ("api#10.113", vec![(GPU_MEMORY, "8Gi")], "gpu-memory=8Gi gpu.shared=1"),
        (
            "api#10.114",
            vec![(GPU, "200"), (GPU_SHARED, "4")],
            "gpu-core=200 gpu-memory-ratio=200 gpu.shared=4",
        ),
        (
            "api#10.114",
            vec![(GPU_CORE, "200"), (GPU_MEMORY_RATIO, "200"), (GPU_SHARED, "4")],
            "gpu-core=200 gpu-memory-ratio=200 gpu.shared=4",
        ),
        ("whole GPUs", vec![("nvidia.com/gpu", "1")], "nvidia.com/gpu=1"),
        ("old names", vec![("kubernetes.io/gpu", "100")], "gpu=100"),
    ] {
        assert_eq!(gpu(&list, &list), twice(want), "{key}");
    }
    let both = twice("gpu-core=100 gpu-memory-ratio=100 gpu.shared=1");
    assert_eq!(gpu(&[(GPU, "100")], &[]), both, "api#10.115 requests only");
    assert_eq!(gpu(&[], &[(GPU, "100")]), both, "api#10.115 limits only");
    let (requests, limits) =
        gpu(&[(GPU_CORE, "50")], &[(GPU_CORE, "50"), (GPU_MEMORY_RATIO, "300"), (GPU_SHARED, "4")]);
    assert_eq!(requests, "gpu-core=50 gpu.shared=1", "manager 15.5: requests decide");
    assert_eq!(limits, "gpu-core=50 gpu-memory-ratio=300 gpu.shared=1");
}
