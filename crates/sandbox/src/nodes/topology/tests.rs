use koord_api::keys::node_topology::annotation::{
    BE_CPU_SHARED_POOLS, CPU_BASIC_INFO, CPU_SHARED_POOLS, CPU_TOPOLOGY, POD_CPU_ALLOCS, RESERVATION,
    SYSTEM_QOS_RESOURCE,
};

use super::*;

/// The topology of the spec's examples: 16 CPUs, two sockets, threads (i, i+8).
fn t() -> Shape {
    Shape { cores: 8, threads: 2, sockets: 2, memory: 32 << 30, ..Shape::default() }
}

#[test]
fn the_example_of_the_spec() {
    let shape = Shape { cores: 2, threads: 2, memory: 15616 << 20, ..Shape::default() };
    let lse = Pinned { cpus: "3".parse().unwrap(), is_exclusive: true };
    let lsr = Pinned { cpus: "2".parse().unwrap(), is_exclusive: false };
    let node = Annotations::from([(RESERVATION.to_owned(), r#"{"reservedCPUs":"0"}"#.to_owned())]);
    let report = report(&shape, &node, &[&lse, &lsr]);
    let get = |key: &str| report.annotations[key].as_str();
    assert_eq!(get(CPU_SHARED_POOLS), r#"[{"socket":0,"node":0,"cpuset":"1"}]"#);
    assert_eq!(get(BE_CPU_SHARED_POOLS), r#"[{"socket":0,"node":0,"cpuset":"1-2"}]"#);
    assert_eq!(get(POD_CPU_ALLOCS), "null");
    assert_eq!(get(RESERVATION), r#"{"reservedCPUs":"0"}"#);
    assert_eq!(get(SYSTEM_QOS_RESOURCE), "{}");
    assert!(get(CPU_BASIC_INFO).contains(r#""hyperThreadEnabled":true"#));
    let resources: Vec<String> =
        report.zones[0].resources.iter().map(|r| format!("{}={}", r.name, r.available)).collect();
    assert_eq!(resources, ["cpu=4", "hugepages-1Gi=0", "hugepages-2Mi=0", "memory=15616Mi"]);
}

#[test]
fn threads_of_a_core_stand_apart() {
    let report = report(&t(), &Annotations::new(), &[]);
    let topology: CpuTopologyReport = annotation::read(&report.annotations).unwrap().unwrap();
    assert_eq!(topology.topology().siblings(4).unwrap().to_string(), "4,12");
    assert_eq!(topology.topology().socket(1).unwrap().to_string(), "4-7,12-15");
    assert!(
        report.annotations[CPU_TOPOLOGY].starts_with(r#"{"detail":[{"id":0,"core":0,"socket":0,"node":0}"#)
    );
    let names: Vec<&str> = report.zones.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!(names, ["node-0", "node-1"]);
}

#[test]
fn reservations_become_cpus() {
    for (name, text, reserved, pools) in [
        (
            "F2",
            r#"{"resources":{"cpu":"2"}}"#,
            "0,8",
            r#"[{"socket":0,"node":0,"cpuset":"1-3,9-11"},{"socket":1,"node":1,"cpuset":"4-7,12-15"}]"#,
        ),
        (
            "F26",
            r#"{"resources":{"cpu":"8"}}"#,
            "0-3,8-11",
            r#"[{"socket":0,"node":0},{"socket":1,"node":1,"cpuset":"4-7,12-15"}]"#,
        ),
        (
            "F24",
            r#"{"resources":{"cpu":"17"}}"#,
            "",
            r#"[{"socket":0,"node":0,"cpuset":"0-3,8-11"},{"socket":1,"node":1,"cpuset":"4-7,12-15"}]"#,
        ),
        (
            "F8",
            "{",
            "",
            r#"[{"socket":0,"node":0,"cpuset":"0-3,8-11"},{"socket":1,"node":1,"cpuset":"4-7,12-15"}]"#,
        ),
    ] {
        let node = Annotations::from([(RESERVATION.to_owned(), text.to_owned())]);
        let report = report(&t(), &node, &[]);
        let found: NodeReservation = annotation::read(&report.annotations).unwrap().unwrap_or_default();
        assert_eq!(found.reserved_cpus, reserved, "{name}");
        assert_eq!(report.annotations[CPU_SHARED_POOLS], pools, "{name}");
    }
}

#[test]
fn what_others_wrote_stays() {
    let first = report(&t(), &Annotations::new(), &[]);
    let mut object = create("n", "u", &first);
    assert_eq!(object["topologyPolicies"], json!(["None"]));
    object["metadata"]["annotations"]["other"] = json!("x");
    object["zones"][0]["resources"].as_array_mut().unwrap().push(json!({
        "name": "kubernetes.io/batch-cpu", "capacity": "4", "allocatable": "3", "available": "2"}));
    object["zones"].as_array_mut().unwrap().push(json!({"name": "node-7", "type": "Node"}));
    let pinned = Pinned { cpus: "1".parse().unwrap(), is_exclusive: false };
    apply(&mut object, &report(&t(), &Annotations::new(), &[&pinned]));
    assert_eq!(object["metadata"]["annotations"]["other"], "x");
    assert_eq!(object["zones"].as_array().unwrap().len(), 2, "a zone that is not there goes");
    let names: Vec<&str> = object["zones"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["cpu", "hugepages-1Gi", "hugepages-2Mi", "kubernetes.io/batch-cpu", "memory"]);
}
