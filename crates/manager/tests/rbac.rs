//! The manifest of what koord-manager may do, against what it needs. Spec: manager 23.1.

use serde_json::Value;

fn documents() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/manager/rbac.yaml");
    let text = std::fs::read_to_string(path).expect("the manifest");
    serde_saphyr::from_multiple(&text).expect("YAML")
}

fn rules<'d>(documents: &'d [Value], kind: &str) -> &'d [Value] {
    let found = documents.iter().find(|document| document["kind"] == kind).expect("it is there");
    found["rules"].as_array().expect("rules")
}

/// Whether some rule grants all of these verbs, each perhaps by another.
fn may(rules: &[Value], group: &str, resource: &str, verbs: &str) -> bool {
    let has =
        |list: &Value, word: &str| list.as_array().is_some_and(|list| list.iter().any(|item| item == word));
    verbs.split(' ').all(|verb| {
        rules.iter().any(|rule| {
            has(&rule["apiGroups"], group) && has(&rule["resources"], resource) && has(&rule["verbs"], verb)
        })
    })
}

const READ: &str = "get list watch";
const ALL: &str = "create delete get list patch update watch";

#[test]
fn the_cluster_role_grants_what_controllers_and_webhooks_need() {
    let documents = documents();
    let cluster = rules(&documents, "ClusterRole");
    let slo = "slo.koordinator.sh";
    for (group, resource, verbs) in [
        ("", "configmaps", READ),
        ("", "namespaces", READ),
        ("", "pods", READ),
        ("", "nodes", "get list watch patch"),
        ("", "nodes/status", "get update patch"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get list watch update patch"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "get list watch update patch"),
        ("config.koordinator.sh", "clustercolocationprofiles", READ),
        ("quota.koordinator.sh", "elasticquotaprofiles", ALL),
        ("quota.koordinator.sh", "elasticquotaprofiles/status", "get update patch"),
        ("scheduling.k8s.io", "priorityclasses", READ),
        ("scheduling.koordinator.sh", "devices", READ),
        ("scheduling.sigs.k8s.io", "elasticquotas", ALL),
        (slo, "nodemetrics", ALL),
        (slo, "nodeslos", ALL),
        ("topology.node.k8s.io", "noderesourcetopologies", ALL),
    ] {
        assert!(may(cluster, group, resource, verbs), "{verbs} {resource}.{group}");
    }
    assert!(may(cluster, "", "pods", "patch"), "manager#26.DB-12: profiles change pods that wait");
    assert!(may(cluster, "", "events", "create patch"), "manager#26.DB-12: events in any namespace");
}

#[test]
fn secrets_and_leases_are_granted_in_one_namespace_only() {
    let documents = documents();
    let (cluster, own) = (rules(&documents, "ClusterRole"), rules(&documents, "Role"));
    for verb in ALL.split(' ') {
        assert!(!may(cluster, "", "secrets", verb), "manager#26.DB-16: {verb} secrets everywhere");
    }
    assert!(may(own, "", "secrets", ALL), "manager#26.DB-16");
    assert!(may(own, "coordination.k8s.io", "leases", ALL));
    assert!(may(own, "", "configmaps", ALL));
    let names: Vec<&str> =
        documents.iter().filter_map(|document| document["metadata"]["name"].as_str()).collect();
    let want = [
        "koord-manager",
        "koord-manager-role",
        "koord-manager-rolebinding",
        "koord-leader-election-role",
        "koord-leader-election-rolebinding",
    ];
    assert_eq!(names, want);
}
