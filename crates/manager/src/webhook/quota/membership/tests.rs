use super::super::sketch::{Cluster, Sketch, quota};
use super::*;

fn pod(labels: &[(&str, &str)]) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some("p1".to_owned());
    pod.metadata.labels = Some(labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect());
    pod
}

fn cluster() -> Cluster {
    Cluster::with([
        quota("A").parent(true),
        quota("A1").below("A"),
        quota("bound").parent(true).namespaces(r#"["nsb"]"#),
        quota("nsq").parent(true).within("nsq"),
        quota("elsewhere").parent(true),
        quota(DEFAULT_QUOTA).parent(true),
    ])
}

fn refused(quota: &str) -> String {
    format!("pod can not be linked to a parentQuotaGroup,quota:{quota}, pod:p1")
}

#[test]
fn pods_do_not_use_parents() {
    let cluster = cluster();
    let standard = QuotaGates::default();
    let no_default = QuotaGates { disable_default: true, ..standard };
    let parents_too = QuotaGates { parent_submits: true, ..standard };
    let in_a: &[(&str, &str)] = &[(QUOTA_NAME, "A")];
    for (name, labels, namespace, gates, want) in [
        ("manager#17.6.L9", in_a, "ns", standard, refused("A")),
        ("manager#17.6.L10", &[(QUOTA_NAME, "A1")], "ns", standard, String::new()),
        ("manager#17.6.L38 bound", &[], "nsb", standard, refused("bound")),
        ("manager#17.6.L38 named like", &[], "nsq", standard, refused("nsq")),
        ("manager#17.6.L38 gate, bound", &[], "nsb", no_default, String::new()),
        ("manager#17.6.L38 gate, named like", &[], "nsq", no_default, String::new()),
        ("the gate leaves labels alone", in_a, "ns", no_default, refused("A")),
        ("of that name, but not there", &[], "elsewhere", standard, String::new()),
        ("manager#17.6.L39", &[(QUOTA_NAME, "ghost")], "ns", standard, String::new()),
        ("default quota", &[], "ns", standard, String::new()),
        ("parents may", in_a, "ns", parents_too, String::new()),
    ] {
        let answer = check_create(&pod(labels), namespace, cluster.ledger(), gates);
        assert_eq!(answer.err().map_or(String::new(), |denial| denial.message), want, "{name}");
    }
}

#[test]
fn preemptible_stays() {
    let cluster = cluster();
    let gates = QuotaGates { parent_submits: true, ..QuotaGates::default() };
    let update = |old: &[(&str, &str)], new: &[(&str, &str)]| {
        let answer = check_update(&pod(old), &pod(new), "ns", cluster.ledger(), gates);
        answer.err().map_or(String::new(), |denial| denial.message)
    };
    let no: &[(&str, &str)] = &[(QUOTA_PREEMPTIBLE, "false")];
    assert_eq!(update(&[], no), "Preemptible label is forbidden modify now.", "manager#17.6.L40");
    assert_eq!(update(no, &[]), "Preemptible label is forbidden modify now.", "manager#17.6.L40 removed");
    assert_eq!(update(no, no), "");
    assert_eq!(update(&[], &[(QUOTA_PREEMPTIBLE, "")]), "", "empty is absent");
}

#[test]
fn tree_of_a_pod_for_node_affinity() {
    let cluster = cluster();
    let find = |name: &str, namespace: &str| {
        cluster.ledger().find(name, namespace).map(|info| info.name().to_owned())
    };
    assert_eq!(find("A1", "nsb").as_deref(), Some("A1"));
    assert_eq!(find("ghost", "nsb").as_deref(), Some("bound"));
    assert_eq!(find("ghost", "ns"), None);
}
