//! What terway's daemon and the pods are told.

use super::*;

#[tokio::test]
async fn terway_files() {
    let web = pod("web").qos("LS").kube_qos("Burstable").read();
    let on = json!({ "resourceQOSStrategy": { "policies": { "netQOSPolicy": "terway-qos" } },
        "systemStrategy": { "totalNetworkBandwidth": "800M" } });
    let gates = "-feature-gates=TerwayQoS=true,CPUSetAllocator=false";
    let mut world = World::new(Version::V1, gates, on, vec![web]);
    world.listen();
    world.second();
    let dir = world.dir.path().join("var/run/terway");
    let node = fs::read_to_string(dir.join("global_bps_config")).unwrap();
    assert!(node.starts_with("hw_tx_bps_max 100000000\n"), "{node}");
    let pods: Value = serde_json::from_str(&fs::read_to_string(dir.join("pod.json")).unwrap()).unwrap();
    assert_eq!(pods["web"]["cgroupDir"], "/sys/fs/cgroup/net_cls/kubepods/burstable/podweb");
    let none = "sends 0 0 and receives 0 0";
    let want = [
        format!(
            "update global_bps_config; bytes/s at least and at most: all 100000000, LS {none}, BE {none}"
        ),
        "update pod.json; 1 pods, 0 with limits of their own".to_owned(),
    ];
    let told: Vec<String> =
        world.records("netqos reconcile").into_iter().map(|(_, message)| message).collect();
    assert_eq!(told, want);
    let heard = "web netqos reconcile: update pod.json; priority 1, receives at most 0 and sends at most 0 bytes/s, 0 for no limit";
    assert_eq!(world.told(), [heard]);
    let line = r#"koordlet_node_change{node="n1",kind="terway-file",status="success"} 2"#;
    assert!(world.page().lines().any(|found| found == line), "{}", world.page());
    // Another run finds the file, and pods that were told, though there are more by then.
    world.act = Act::new(setting(&Root::host(world.dir.path()), &world.applier.cgroups().clone(), gates));
    world.pods.push(pod("more").qos("LS").kube_qos("Burstable").read());
    world.applier.records().follow(&world.pods);
    world.turn_with_pods();
    assert_eq!(world.told(), [heard.replace("web", "more")]);
    world.order(json!({}));
    world.second();
    let removed = world.records("netqos reconcile").pop().unwrap().1;
    assert!(
        removed.starts_with("remove 2 files from ") && removed.ends_with("; no policy asks for them"),
        "{removed}"
    );
    world.second();
    assert_eq!(world.records("netqos reconcile").pop().unwrap().1, removed, "once");
    assert!(!dir.join("pod.json").exists() && !dir.join("global_bps_config").exists());
}

/// With a configuration that cannot be used nothing is switched on, and what was is kept. Spec: koordlet-enforce 15.8.
#[test]
fn a_bad_configuration_changes_nothing() {
    let slo = |total: &str, request: &str| {
        let ls = json!({ "networkQOS": { "enable": true, "ingressRequest": request } });
        json!({ "resourceQOSStrategy": { "policies": { "netQOSPolicy": "terway-qos" }, "lsClass": ls },
            "systemStrategy": { "totalNetworkBandwidth": total } })
    };
    let web = pod("web").qos("LS").kube_qos("Burstable").read();
    let line = "-feature-gates=TerwayQoS=true";
    let mut world = World::new(Version::V1, line, slo("800M", "900M"), vec![web]);
    let dir = world.dir.path().join("var/run/terway");
    let held = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
    world.second();
    assert_eq!((held("global_bps_config"), held("pod.json")), (String::new(), String::new()));
    world.order(slo("800M", "80M"));
    world.second();
    let good = held("global_bps_config");
    assert!(good.contains("offline_l1_rx_bps_min 10000000\n"), "{good}");
    world.order(slo("800M", "900M"));
    world.pods.push(pod("more").qos("LS").kube_qos("Burstable").read());
    world.turn_with_pods();
    assert_eq!(held("global_bps_config"), good);
    assert!(held("pod.json").contains("more"), "pods come and go meanwhile");
}
