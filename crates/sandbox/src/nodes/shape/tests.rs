use super::*;

#[test]
fn a_file_of_pools() {
    let pools = read(
        "nodes.yaml",
        "- name: web
  count: 50
  cores: 64
  threads: 2
  sockets: 2
  numaPerSocket: 2
  memory: 256Gi
  zones: 3
  region: eu
  labels: {disk: ssd, generation: 7}
  annotations: {example.com/owner: me}
  taints: ['dedicated=web:NoSchedule', 'x:NoExecute']
  reservedCpu: 500m
  reservedMemory: 1Gi
  resources: {example.com/card: 4}
- name: gpu
  gpus: 8
  gpuModel: H100
  gpuMemory: 80Gi
  rdma: 4
  rdmaVfs: 8
  topologyPolicy: single-numa-node
",
    )
    .unwrap();
    let [web, gpu] = pools.as_slice() else { panic!("{pools:?}") };
    assert_eq!((web.name.as_str(), web.count, web.shape.cpus(), web.shape.numa_nodes()), ("web", 50, 128, 4));
    assert_eq!((web.shape.memory, web.shape.reserved_cpu_milli), (256 << 30, 500));
    let zones: Vec<_> = (0..4).filter_map(|index| web.shape.zone(index)).collect();
    assert_eq!(zones, ["zone-1", "zone-2", "zone-3", "zone-1"]);
    assert_eq!(web.shape.labels["generation"], "7");
    assert_eq!(web.shape.taints[0].value, "web");
    assert_eq!((web.shape.taints[1].key.as_str(), web.shape.taints[1].value.as_str()), ("x", ""));
    assert_eq!(web.shape.resources["example.com/card"].value(), 4);
    assert_eq!(web.node_name(7), "web-7");
    assert_eq!((gpu.count, gpu.shape.gpus.count, gpu.shape.rdma.vfs), (1, 8, 8));
    assert_eq!(gpu.shape.gpus.model, "H100");
    assert_eq!(gpu.shape.cores, Shape::default().cores);
}

#[test]
fn everything_wrong_is_told_at_once() {
    let text = "- name: Web
  count: -1
  cores: 10
  sockets: 4
  memory: lots
  colour: red
  taints: ['nonsense']
- name: a
  labels: {k: 'not a value'}
  topologyPolicy: odd
- name: a
";
    // Fields that do not fit their type or are not known come first; the rest once those are right.
    let first = read("f.yaml", text).unwrap_err().to_string();
    assert!(first.starts_with("f.yaml:6:11: [0].colour: "), "{first}");
    let second = read("f.yaml", &text.replace("  colour: red\n", "")).unwrap_err();
    let told: Vec<String> = second.problems.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
    let expected = [
        "[0].name: \"Web\" is not accepted, expected at most 52 characters of a-z, 0-9 and '-'",
        "[0].count: -1 is not accepted, expected a whole number from 0 to 20000",
        "[0].cores: 10 is not accepted, expected a multiple of the 4 NUMA nodes",
        "[0].memory: \"lots\" is not accepted, expected an amount of bytes such as 128Gi",
        "[0].taints[0]: \"nonsense\" is not accepted, expected KEY=VALUE:EFFECT",
        "[1].labels.k: \"not a value\" is not accepted, expected a label value",
        "[1].topologyPolicy: \"odd\" is not accepted, expected none, best-effort, restricted, single-numa-node",
        "[2].name: \"a\" is not accepted, expected a name that no other pool has",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn the_compact_form() {
    let pool = flag(
        "name=big,count=3,cores=32,memory=128Gi,sockets=2,gpus=8,label=disk=ssd,label=a=b,\
         taint=dedicated=gpu:NoSchedule,resource=example.com/card=2",
    )
    .unwrap();
    assert_eq!((pool.name.as_str(), pool.count), ("big", 3));
    assert_eq!((pool.shape.cores, pool.shape.sockets, pool.shape.gpus.count), (32, 2, 8));
    assert_eq!(pool.shape.labels.len(), 2);
    assert_eq!(pool.shape.taints[0].effect, "NoSchedule");
    assert_eq!(flag("cores=8").unwrap().name, "node");
    assert_eq!(flag("cores=8").unwrap().shape.koordlet, Koordlet::Simulated);
    let real = flag("annotation=example.com/a={\"b\":[1,2],\"c,{\":3},koordlet=real").unwrap();
    assert_eq!(
        real.shape.annotations["example.com/a"], "{\"b\":[1,2],\"c,{\":3}",
        "commas of values are their own"
    );
    assert_eq!(real.shape.koordlet, Koordlet::Real);
    for (text, want) in [
        ("cores", "--node-shape: \"cores\" is not accepted, expected field=value such as cores=32"),
        ("cores=1,cores=2", "--node-shape: cores is given twice"),
        ("label=x", "--node-shape: \"label=x\" is not accepted, expected label=KEY=VALUE"),
        ("cores=0", "--node-shape: cores: 0 is not accepted, expected a whole number from 1 to 4096"),
        (
            "cores=3,sockets=2",
            "--node-shape: cores: 3 is not accepted, expected a multiple of the 2 NUMA nodes",
        ),
        ("memory=-1Gi", "--node-shape: memory: \"-1Gi\" is not accepted, expected an amount of bytes"),
        ("croes=3", "--node-shape: croes: "),
        ("koordlet=fake", "--node-shape: koordlet: \"fake\" is not accepted, expected simulated or real"),
        (
            "koordlet=real,count=17",
            "--node-shape: count: 17 is not accepted, expected at most 16 nodes with koordlet: real",
        ),
    ] {
        let told = flag(text).unwrap_err().to_string();
        assert!(told.starts_with(want), "{text}: {told}");
    }
}
