//! The worked examples of topology reports.

use koord_api::crd::node_resource_topology::ZoneResource;
use koord_api::crd::node_resource_topology::v1alpha1::NodeResourceTopology;
use koord_api::keys::node_topology::annotation::{
    BE_CPU_SHARED_POOLS, CPU_BASIC_INFO, CPU_MANAGER_POLICY, CPU_SHARED_POOLS, CPU_TOPOLOGY, POD_CPU_ALLOCS,
    RESERVATION,
};
use koord_linux::cgroup::Driver;
use koord_linux::cpu_info::CpuInfo;
use koord_linux::stat::MemInfo;
use koord_linux::topology::{Cpu, NumaNode};
use serde_json::{Value, json};

use super::*;
use crate::decide::sketch::{PodSketch, pod};

const GIB_KIB: u64 = 1 << 20;

fn cpu(id: u32, core: u32, socket: u32, node: u32) -> Cpu {
    Cpu { id, core, socket, node, l1: core, l3: node }
}

fn numa(id: u32, total_kib: u64) -> NumaNode {
    let memory = MemInfo { total_kib, ..MemInfo::default() };
    NumaNode { id, memory, huge_pages_2mi: 512, huge_pages_1gi: 2 }
}

/// 16 CPUs on two sockets, each a NUMA node; CPUs i and i + 8 share a core.
fn sixteen() -> Hardware {
    let cpus = (0..16).map(|id| cpu(id, id % 8, (id % 8) / 4, (id % 8) / 4)).collect();
    Hardware { info: CpuInfo::default(), cpus, numa_nodes: vec![numa(0, 8 * GIB_KIB), numa(1, 8 * GIB_KIB)] }
}

/// 4 CPUs of two cores.
fn four() -> Hardware {
    let mut info = CpuInfo::default();
    info.model = "ExampleCPU".to_owned();
    info.vendor = "GenuineIntel".to_owned();
    info.hyper_threading = true;
    let cpus = (0..4).map(|id| cpu(id, id / 2, 0, 0)).collect();
    Hardware { info, cpus, numa_nodes: vec![numa(0, 15_616 * 1024)] }
}

#[derive(Clone)]
struct Scene {
    node: NodeState,
    hardware: Hardware,
    pods: Vec<Arc<PodState>>,
    kubelet: Option<KubeletConfig>,
    cpu_manager: Option<String>,
    reports_huge_pages: bool,
}

fn scene(hardware: Hardware) -> Scene {
    let node = NodeState {
        name: "n1".to_owned(),
        uid: "u1".to_owned(),
        annotations: Some(Annotations::new()),
        ..NodeState::default()
    };
    Scene { node, hardware, pods: Vec::new(), kubelet: None, cpu_manager: None, reports_huge_pages: false }
}

impl Scene {
    fn annotated(mut self, key: &str, text: &str) -> Scene {
        self.node.annotations.get_or_insert_default().insert(key.to_owned(), text.to_owned());
        self
    }

    fn reserving(self, text: &str) -> Scene {
        self.annotated(RESERVATION, text)
    }

    fn system(self, text: &str) -> Scene {
        self.annotated(SYSTEM_QOS_RESOURCE, text)
    }

    fn pods(mut self, pods: &[PodSketch]) -> Scene {
        self.pods = pods.iter().map(|pod| Arc::new(PodState::read(pod.object(), Driver::Systemd))).collect();
        self
    }

    fn kubelet(mut self, config: Value) -> Scene {
        let body = json!({ "kubeletconfig": config }).to_string();
        self.kubelet = Some(KubeletConfig::parse(body.as_bytes()).unwrap());
        self
    }

    /// kubelet pins pods, as this file tells.
    fn pinning(self, entries: &str) -> Scene {
        let mut scene = self.kubelet(json!({ "cpuManagerPolicy": "static", "kubeReserved": { "cpu": "1" } }));
        scene.cpu_manager = Some(entries.to_owned());
        scene
    }

    fn compute(&self) -> Result<Computed, ComputeError> {
        compute(Sources {
            node: &self.node,
            hardware: &self.hardware,
            pods: &self.pods,
            kubelet: self.kubelet.as_ref(),
            cpu_manager: self.cpu_manager.as_deref(),
            reports_huge_pages: self.reports_huge_pages,
        })
    }

    fn text(&self, key: &str) -> String {
        self.compute().unwrap().annotations[key].clone()
    }

    fn pools(&self) -> (String, String) {
        (self.text(CPU_SHARED_POOLS), self.text(BE_CPU_SHARED_POOLS))
    }
}

#[test]
fn reservations() {
    let t = || scene(sixteen());
    // koordlet-observe#13.6.F1
    assert_eq!(t().text(RESERVATION), "{}");
    assert_eq!(t().text(SYSTEM_QOS_RESOURCE), "{}");
    let mut bare = t();
    bare.node.annotations = None;
    assert_eq!(bare.text(SYSTEM_QOS_RESOURCE), "null");
    for (key, given, want) in [
        ("F2", r#"{"resources":{"cpu":"2"}}"#, r#"{"resources":{"cpu":"2"},"reservedCPUs":"0,8"}"#),
        ("F3", r#"{"resources":{"cpu":"2100m"}}"#, r#"{"resources":{"cpu":"2100m"},"reservedCPUs":"0-1,8"}"#),
        ("F4", r#"{"resources":{"cpu":"5"}}"#, r#"{"resources":{"cpu":"5"},"reservedCPUs":"0-2,8-9"}"#),
        ("F4", r#"{"resources":{"cpu":"8"}}"#, r#"{"resources":{"cpu":"8"},"reservedCPUs":"0-3,8-11"}"#),
        ("F4", r#"{"resources":{"cpu":"9"}}"#, r#"{"resources":{"cpu":"9"},"reservedCPUs":"0-4,8-11"}"#),
        ("F5", r#"{"resources":{"cpu":"-3"}}"#, r#"{"resources":{"cpu":"-3"}}"#),
        (
            "F6",
            r#"{"reservedCPUs":"0-1","resources":{"cpu":"5"}}"#,
            r#"{"resources":{"cpu":"5"},"reservedCPUs":"0-1"}"#,
        ),
        ("F7", r#"{"reservedCPUs":"-1"}"#, "{}"),
        ("F8", "{", "{}"),
        ("F24", r#"{"resources":{"cpu":"17"}}"#, r#"{"resources":{"cpu":"17"}}"#),
        (
            "F25",
            r#"{"reservedCPUs":"3,1,2,99","applyPolicy":"ReservedCPUsOnly"}"#,
            r#"{"reservedCPUs":"1-3,99","applyPolicy":"ReservedCPUsOnly"}"#,
        ),
        ("F27", r#"{"resources":{"cpu":"2.5"}}"#, r#"{"resources":{"cpu":"2500m"},"reservedCPUs":"0-1,8"}"#),
    ] {
        // koordlet-observe#13.6.F2 koordlet-observe#13.6.F3 koordlet-observe#13.6.F4 koordlet-observe#13.6.F5
        // koordlet-observe#13.6.F6 koordlet-observe#13.6.F7 koordlet-observe#13.6.F8 koordlet-observe#13.6.F27
        assert_eq!(t().reserving(given).text(RESERVATION), want, "{key}");
    }
    // koordlet-observe#13.6.F8: with a word.
    assert_eq!(t().reserving("{").compute().unwrap().warnings.len(), 1);
    // koordlet-observe#13.6.F24
    let full = r#"[{"socket":0,"node":0,"cpuset":"0-3,8-11"},{"socket":1,"node":1,"cpuset":"4-7,12-15"}]"#;
    assert_eq!(t().reserving(r#"{"resources":{"cpu":"17"}}"#).pools().0, full);
    // koordlet-observe#13.6.F25
    let pools = t().reserving(r#"{"reservedCPUs":"3,1,2,99","applyPolicy":"ReservedCPUsOnly"}"#).pools();
    assert!(pools.0.starts_with(r#"[{"socket":0,"node":0,"cpuset":"0,8-11"}"#), "{}", pools.0);
    // koordlet-observe#13.6.F26
    let half = r#"[{"socket":0,"node":0},{"socket":1,"node":1,"cpuset":"4-7,12-15"}]"#;
    assert_eq!(t().reserving(r#"{"resources":{"cpu":"8"}}"#).pools(), (half.to_owned(), half.to_owned()));
}

#[test]
fn cpus_that_kubelet_gave() {
    let t = || scene(sixteen());
    let alloc = |namespace: &str, name: &str, uid: &str, cpus: &str| {
        let mut alloc = json!({ "uid": uid, "cpuset": cpus, "managedByKubelet": true });
        if !name.is_empty() {
            alloc["namespace"] = json!(namespace);
            alloc["name"] = json!(name);
        }
        alloc
    };
    let allocs = |scene: &Scene| serde_json::from_str::<Value>(&scene.text(POD_CPU_ALLOCS)).unwrap();
    // koordlet-observe#13.6.F9
    let one = t().pinning(r#"{"entries":{"u1":{"a":"4,6","b":"5"}}}"#);
    assert_eq!(allocs(&one), json!([alloc("", "", "u1", "4-6")]));
    assert!(one.pools().0.contains(r#""cpuset":"7,12-15""#), "{}", one.pools().0);
    // koordlet-observe#13.6.F10
    let entries = r#"{"entries":{"ls":{"a":"1"},"be":{"a":"2"},"pinned":{"a":"3"}}}"#;
    let ours = [pod("ls").qos("LS"), pod("be").qos("BE"), pod("pinned").qos("LSR").pinned("5")];
    assert_eq!(allocs(&t().pods(&ours).pinning(entries)), Value::Null);
    // koordlet-observe#13.6.F11
    let lsr = t().pods(&[pod("lsr").qos("LSR")]).pinning(r#"{"entries":{"lsr":{"a":"1"}}}"#);
    assert_eq!(allocs(&lsr), json!([alloc("default", "lsr", "lsr", "1")]));
    // koordlet-observe#13.6.F12
    assert_eq!(t().pinning(r#"{"entries":{}}"#).text(POD_CPU_ALLOCS), "null");
    assert_eq!(t().pinning("").text(POD_CPU_ALLOCS), "null");
    // koordlet-observe#13.6.F30
    let entries =
        r#"{"entries":{"lse":{"a":"5-6"},"none":{"a":"7"},"bad":{"a":"x","b":"8"},"empty":{"a":""}}}"#;
    let mixed = t().pods(&[pod("lse").qos("LSE").pinned("x")]).pinning(entries);
    let want =
        json!(
            [alloc("", "", "bad", "8"), alloc("default", "lse", "lse", "5-6"), alloc("", "", "none", "7"),]
        );
    assert_eq!(allocs(&mixed), want);
    // koordlet-observe#13.6.F31
    let mut none = t().kubelet(json!({ "cpuManagerPolicy": "none" }));
    none.cpu_manager = Some(r#"{"entries":{"u1":{"a":"4"}}}"#.to_owned());
    assert_eq!(none.text(POD_CPU_ALLOCS), "null");
    assert_eq!(none.pools().0, t().pools().0);
    // koordlet-observe#13.6.F32
    assert!(matches!(t().pinning("{").compute(), Err(ComputeError::CpuManager(_))));
}

#[test]
fn cpus_that_kubelet_keeps() {
    let policy = |config: Value| scene(sixteen()).kubelet(config).text(CPU_MANAGER_POLICY);
    let with = |mut config: Value| {
        config["cpuManagerPolicy"] = json!("static");
        config
    };
    for (key, config, want) in [
        (
            "koordlet-observe#13.6.F13",
            with(json!({ "reservedSystemCPUs": "0-3" })),
            r#"{"policy":"static","reservedCPUs":"0-3"}"#,
        ),
        (
            "koordlet-observe#13.6.F14",
            with(json!({ "kubeReserved": { "cpu": "500m" }, "systemReserved": { "cpu": "600m" } })),
            r#"{"policy":"static","reservedCPUs":"0,8"}"#,
        ),
        ("koordlet-observe#13.6.F15", with(json!({})), r#"{"policy":"static"}"#),
        (
            "koordlet-observe#13.6.F33",
            with(json!({ "reservedSystemCPUs": "0-3", "kubeReserved": { "cpu": "8" },
                         "cpuManagerPolicyOptions": { "full-pcpus-only": "true" } })),
            r#"{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-3"}"#,
        ),
        (
            "koordlet-observe#13.6.F34",
            with(json!({ "reservedSystemCPUs": "0-30" })),
            r#"{"policy":"static"}"#,
        ),
        (
            "koordlet-observe#13.6.F34",
            with(json!({ "kubeReserved": { "cpu": "20" } })),
            r#"{"policy":"static"}"#,
        ),
        (
            "koordlet-observe#13.6.F34",
            with(json!({ "kubeReserved": { "foo": "1" } })),
            r#"{"policy":"static"}"#,
        ),
        ("negative", with(json!({ "kubeReserved": { "cpu": "-1" } })), r#"{"policy":"static"}"#),
        ("no policy", json!({}), "{}"),
    ] {
        let warnings = scene(sixteen()).kubelet(config.clone()).compute().unwrap().warnings;
        // What cannot be worked out is told.
        assert_eq!(warnings.len(), usize::from(want == r#"{"policy":"static"}"#), "{key}: {warnings:?}");
        assert_eq!(policy(config), want, "{key}");
    }
    // koordlet-observe#13.6.F13: the pool still holds them.
    let pools = scene(sixteen()).kubelet(with(json!({ "reservedSystemCPUs": "0-3" }))).pools();
    assert_eq!(pools, scene(sixteen()).pools());
    // koordlet-observe#13.6.F35
    let unasked = scene(sixteen()).compute().unwrap();
    assert_eq!(unasked.annotations[CPU_MANAGER_POLICY], "{}");
    assert_eq!(unasked.policy, TopologyPolicy::None);
    // koordlet-observe#13.6.F36, as kubelet itself means it.
    let scopeless = scene(sixteen()).kubelet(json!({ "topologyManagerPolicy": "single-numa-node" }));
    assert_eq!(scopeless.compute().unwrap().policy, TopologyPolicy::SingleNumaNodeContainerLevel);
}

#[test]
fn pools_that_pods_share() {
    let pods = [pod("lse").qos("LSE").pinned("3"), pod("lsr").qos("LSR").pinned("2")];
    let example = scene(four()).pods(&pods).reserving(r#"{"reservedCPUs":"0"}"#);
    // koordlet-observe#13.6.F16
    assert_eq!(example.text(CPU_SHARED_POOLS), r#"[{"socket":0,"node":0,"cpuset":"1"}]"#);
    assert_eq!(example.text(BE_CPU_SHARED_POOLS), r#"[{"socket":0,"node":0,"cpuset":"1-2"}]"#);
    assert_eq!(
        example.text(CPU_BASIC_INFO),
        r#"{"cpuModel":"ExampleCPU","hyperThreadEnabled":true,"vendorID":"GenuineIntel"}"#
    );
    assert!(example.text(CPU_TOPOLOGY).starts_with(r#"{"detail":[{"id":0,"core":0,"socket":0,"node":0},"#));
    let full = r#"[{"socket":0,"node":0,"cpuset":"0-3"}]"#;
    // koordlet-observe#13.6.F17
    let shared = scene(four()).system(r#"{"cpuset":"0-1","cpusetExclusive":false}"#);
    let both = |pool: &str| (pool.to_owned(), pool.to_owned());
    assert_eq!(shared.pools(), both(full));
    // koordlet-observe#13.6.F28
    let all = scene(four()).pods(&[pod("lse").qos("LSE").pinned("0-3")]);
    assert_eq!(all.pools(), ("[]".to_owned(), "[]".to_owned()));
    // koordlet-observe#13.6.F29
    let exclusive = scene(four()).system(r#"{"cpuset":"0-3"}"#);
    assert_eq!(exclusive.pools(), both(r#"[{"socket":0,"node":0}]"#));
    assert!(matches!(scene(four()).system("{").compute(), Err(ComputeError::Annotation(_))));
    let odd = scene(four()).system(r#"{"cpuset":"x"}"#);
    assert_eq!(odd.pools(), both(full));
    assert_eq!(odd.text(SYSTEM_QOS_RESOURCE), r#"{"cpuset":"x"}"#);
    let over = scene(four()).pods(&[pod("lse").qos("LSE").pinned("3").phase("Succeeded")]);
    assert_eq!(over.text(CPU_SHARED_POOLS), full, "a pod that has ended has no CPUs");
}

#[test]
fn what_decisions_read() {
    let pods = [pod("lse").qos("LSE").pinned("3"), pod("lsr").qos("LSR").pinned("2")];
    let layout = scene(four()).pods(&pods).reserving(r#"{"reservedCPUs":"0"}"#).compute().unwrap().layout;
    assert_eq!(layout.reserved.to_string(), "0");
    assert_eq!(layout.topology.all().to_string(), "0-3");
    assert_eq!(layout.be_pools[0].cpuset, "1-2");
    assert!(!layout.is_kubelet_static);
}

fn amounts(zone: &Zone) -> Vec<(&str, String, String)> {
    let of = |resource: &ZoneResource| (resource.capacity.to_string(), resource.allocatable.to_string());
    zone.resources
        .iter()
        .map(|resource| {
            assert_eq!(resource.allocatable, resource.available);
            let (capacity, allocatable) = of(resource);
            (resource.name.as_str(), capacity, allocatable)
        })
        .collect()
}

fn plain<'n>(list: &[(&'n str, &str)]) -> Vec<(&'n str, String, String)> {
    list.iter().map(|(name, amount)| (*name, (*amount).to_owned(), (*amount).to_owned())).collect()
}

#[test]
fn zones_of_numa_nodes() {
    let zones = scene(four()).compute().unwrap().zones;
    assert_eq!((zones.len(), zones[0].name.as_str(), zones[0].zone_type.as_str()), (1, "node-0", "Node"));
    let want = [("cpu", "4"), ("hugepages-1Gi", "0"), ("hugepages-2Mi", "0"), ("memory", "15616Mi")];
    assert_eq!(amounts(&zones[0]), plain(&want));
    // koordlet-observe#13.6.F40
    let mut huge = scene(sixteen());
    huge.reports_huge_pages = true;
    let want = [("cpu", "8"), ("hugepages-1Gi", "2Gi"), ("hugepages-2Mi", "1Gi"), ("memory", "5Gi")];
    assert_eq!(amounts(&huge.compute().unwrap().zones[0]), plain(&want));
    // koordlet-observe#13.6.F23
    let mut odd = scene(sixteen());
    odd.hardware.numa_nodes.pop();
    let error = odd.compute().unwrap_err();
    assert!(error.to_string().starts_with("NUMA node number not matched"), "{error}");
    let ComputeError::NumaNodes { layout, .. } = error else { panic!("{error}") };
    assert_eq!(layout.topology.all().len(), 16, "decisions go on");
    // A kernel without NUMA tells no nodes at all.
    let mut flat = scene(four());
    flat.hardware.numa_nodes.clear();
    flat.reports_huge_pages = true;
    let capacity = [("memory", "8Gi"), ("hugepages-2Mi", "1Gi")];
    flat.node.node.capacity =
        capacity.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap())).into();
    let zones = flat.compute().unwrap().zones;
    let want = [("cpu", "4"), ("hugepages-1Gi", "0"), ("hugepages-2Mi", "1Gi"), ("memory", "7Gi")];
    assert_eq!((zones.len(), zones[0].name.as_str(), amounts(&zones[0])), (1, "node-0", plain(&want)));
    // Memory without CPUs is a zone of its own, whatever its number.
    let mut far = scene(four());
    far.hardware.numa_nodes.push(numa(7, GIB_KIB));
    let zones = far.compute().unwrap().zones;
    assert_eq!((zones[1].name.as_str(), amounts(&zones[1])[0].1.as_str()), ("node-7", "0"));
    // koordlet-observe#13.6.F39, in the order of numbers.
    let mut many = scene(four());
    many.hardware.cpus = (0..12).map(|id| cpu(id, id, id, id)).collect();
    many.hardware.numa_nodes = (0..12).map(|id| numa(id, GIB_KIB)).collect();
    let zones = many.compute().unwrap().zones;
    let names: Vec<String> = zones.into_iter().map(|zone| zone.name).collect();
    let want: Vec<String> = (0..12).map(|id| format!("node-{id}")).collect();
    assert_eq!(names, want);
}

#[test]
fn numa_nodes_share_what_kubelet_keeps() {
    let quantity = |text: &str| text.parse().unwrap();
    let mut reserving = scene(four());
    reserving.hardware.cpus =
        [0, 0, 1, 1, 2].into_iter().zip(0..).map(|(node, id)| cpu(id, id, 0, node)).collect();
    reserving.hardware.numa_nodes = (0..3).map(|id| numa(id, 8 * GIB_KIB)).collect();
    reserving.node.labels.insert(ENABLE_NUMA_RESERVATION.to_owned(), "true".to_owned());
    let node = &mut reserving.node.node;
    node.capacity = [("cpu".to_owned(), quantity("10")), ("memory".to_owned(), quantity("24Gi"))].into();
    node.allocatable = [("cpu".to_owned(), quantity("5")), ("memory".to_owned(), quantity("17Gi"))].into();
    let zones = reserving.compute().unwrap().zones;
    let left = |name: &str| -> Vec<String> {
        let of = |zone: &Zone| amounts(zone).into_iter().find(|(n, ..)| *n == name).unwrap().2;
        zones.iter().map(of).collect()
    };
    // koordlet-observe#13.6.F18
    assert_eq!(left("cpu"), ["333m", "333m", "0"]);
    // koordlet-observe#13.6.F19
    assert_eq!(left("memory"), ["6084537002666m"; 3]);
    // The capacity stays what it is.
    assert_eq!(amounts(&zones[0])[0].1, "2");
    assert_eq!(amounts(&zones[0])[3].1, "8Gi");
    assert_eq!(reserving.compute().unwrap().numa_reservation.as_deref(), Some("true"));
}

#[test]
fn what_others_wrote_stays() {
    let computed = scene(four()).compute().unwrap();
    let mut object = computed.new_object(&scene(four()).node);
    assert_eq!(computed.difference(&object), None);
    let foreign = |name: &str| ZoneResource {
        name: name.to_owned(),
        capacity: "4".parse().unwrap(),
        allocatable: "3".parse().unwrap(),
        available: "2".parse().unwrap(),
    };
    // koordlet-observe#13.6.F20 koordlet-observe#13.6.F37
    for name in [koord_api::keys::resource::GPU, "vendor/x"] {
        object.zones[0].resources.push(foreign(name));
    }
    object.zones[0].resources.sort_by(|a, b| a.name.cmp(&b.name));
    object.zones[0].parent = "socket-0".to_owned();
    object.metadata.annotations.get_or_insert_default().insert("other".to_owned(), "x".to_owned());
    assert_eq!(computed.difference(&object), None, "no write for what is not ours");
    let before = object.clone();
    computed.apply(&mut object);
    assert_eq!(object, before);
    // koordlet-observe#13.6.F21
    object.zones.push(Zone { name: "node-7".to_owned(), ..Zone::default() });
    assert!(computed.difference(&object).is_some());
    computed.apply(&mut object);
    assert_eq!(object, before);
    // What is ours is put right.
    object.zones[0].resources.iter_mut().find(|r| r.name == "cpu").unwrap().capacity = "3".parse().unwrap();
    assert_eq!(computed.difference(&object).as_deref(), Some("zones differ"));
    computed.apply(&mut object);
    assert_eq!(object, before);
}

#[test]
fn differences() {
    let scene = scene(four()).reserving(r#"{"reservedCPUs":"0","applyPolicy":"Default"}"#);
    let computed = scene.compute().unwrap();
    let object = computed.new_object(&scene.node);
    let with = |key: &str, text: &str| {
        let mut object: NodeResourceTopology = object.clone();
        object.metadata.annotations.get_or_insert_default().insert(key.to_owned(), text.to_owned());
        object
    };
    let differs = |object: &NodeResourceTopology| computed.difference(object).is_some();
    // koordlet-observe#13.6.F22
    assert!(!differs(&with(RESERVATION, r#"{ "applyPolicy":"Default", "reservedCPUs": "0" }"#)));
    assert!(differs(&with(RESERVATION, r#"{"reservedCPUs":"1"}"#)));
    // koordlet-observe#13.6.F41: a text that is no JSON is never equal.
    assert!(differs(&with(RESERVATION, "{")));
    assert!(differs(&with(SYSTEM_QOS_RESOURCE, "garbage")));
    // koordlet-observe#13.6.F38: a label that the node lost goes once.
    let mut labelled = object.clone();
    labelled
        .metadata
        .labels
        .get_or_insert_default()
        .insert(ENABLE_NUMA_RESERVATION.to_owned(), "true".to_owned());
    assert!(differs(&labelled));
    computed.apply(&mut labelled);
    assert_eq!(labelled, object);
    let mut policy = object.clone();
    policy.topology_policies = vec![TopologyPolicy::RestrictedPodLevel];
    assert!(differs(&policy));
    assert!(differs(&NodeResourceTopology::default()));
    let owner = &object.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.name.as_str(), owner.uid.as_str(), owner.controller), ("n1", "u1", Some(true)));
}
