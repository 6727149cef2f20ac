//! Traffic control on a real network stack: classes, filters and sets of addresses come, and go without a trace; those of
//! a single pod with the pod.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::SERVICE;
use crate::modules;
use crate::node::PodPlan;
use crate::stage::{Actor, Stage, run};

const DEVICE: &str = "dummy0";
const GATE: &str = "-feature-gates=TCNetworkQoS=true,AuditEvents=true";

/// A pod with a limit of its own.
const LIMITED: PodPlan<'static> = PodPlan { name: "limited", ..SERVICE };

fn shaped(policy: &str) -> Value {
    json!({
        "resourceQOSStrategy": { "policies": { "netQOSPolicy": policy },
            "lsClass": { "networkQOS": { "enable": true, "egressRequest": "40M", "egressLimit": "80M" } },
            "beClass": { "networkQOS": { "enable": true, "egressRequest": 20, "egressLimit": 50 } } },
        "systemStrategy": { "totalNetworkBandwidth": "80M" } })
}

pub(super) async fn play() -> Result<()> {
    modules::load_networks()?;
    for line in [
        "link add dummy0 type dummy",
        "address add 10.1.0.2/24 dev dummy0",
        "link set dummy0 up",
        "route add default via 10.1.0.1",
    ] {
        run("ip", &line.split(' ').collect::<Vec<&str>>())?;
    }
    let mut stage = Stage::new().await?;
    let service = stage.pod(SERVICE).await?;
    stage.world.order(shaped("tc")).await?;
    let before = kernel()?;

    stage.start_and_wait(&[GATE]).await?;
    stage.until("traffic is shaped", async |_| Ok(is_shaped(&kernel()?))).await?;
    limited_pod(&mut stage, &service).await?;
    // Another run finds everything there, and takes it away when the policy changes.
    stage.kill()?;
    stage.start_and_wait(&[GATE]).await?;
    stage.until("traffic is still shaped", async |_| Ok(is_shaped(&kernel()?))).await?;
    stage.world.order(shaped("terway-qos")).await?;
    stage.until("nothing is left of it", async |_| Ok(kernel()? == before)).await?;
    stage.world.order(shaped("tc")).await?;
    stage.until("traffic is shaped again", async |_| Ok(is_shaped(&kernel()?))).await?;
    stage.kill()?;
    stage.clean_up()?;
    ensure!(kernel()? == before, "after clean-up: {:#?}", kernel()?);
    Ok(())
}

/// A class and a filter appear when the pod has an address, follow its limit and its address, and are gone with it, though
/// it left while no koordlet was there to see.
async fn limited_pod(stage: &mut Stage, service: &Actor) -> Result<()> {
    let shared = kernel()?;
    let pod = stage.pod(LIMITED).await?;
    limit(stage, &pod, "8M", None);
    stage.world.retell(&service.pod.uid, |told| told["status"]["podIP"] = json!("10.1.0.9"));
    let has_address = async |_: &mut Stage| Ok(run("ipset", &["list", "ls_class"])?.contains("10.1.0.9"));
    stage.until("a pod without a limit shares its class", has_address).await?;
    ensure!(kernel()? == shared, "without an address there is no class: {:#?}", kernel()?);
    limit(stage, &pod, "8M", Some("10.1.0.20"));
    stage.until("the pod has a class", async |_| Ok(is_limited("8Mbit", "0a010014")?)).await?;
    limit(stage, &pod, "16M", Some("10.1.0.21"));
    stage.until("class and filter follow", async |_| Ok(is_limited("16Mbit", "0a010015")?)).await?;
    stage.kill()?;
    stage.start_and_wait(&[GATE]).await?;
    stage.until("another run finds them", async |_| Ok(is_limited("16Mbit", "0a010015")?)).await?;
    stage.kill()?;
    stage.end(&pod)?;
    stage.start_and_wait(&[GATE]).await?;
    stage.until("they are gone with the pod", async |_| Ok(kernel()? == shared)).await
}

fn limit(stage: &Stage, pod: &Actor, egress: &str, ip: Option<&str>) {
    let annotation = json!({ "ingressLimit": egress, "egressLimit": egress }).to_string();
    stage.world.retell(&pod.pod.uid, |told| {
        told["metadata"]["annotations"] = json!({ "koordinator.sh/networkQOS": annotation });
        told["status"]["podIP"] = json!(ip);
    });
}

/// Whether one class beyond the shared ones has this rate, and one filter this address.
fn is_limited(rate: &str, address: &str) -> Result<bool> {
    let traffic = kernel()?;
    let is_private = |line: &&str| {
        let is_shared =
            ["1:1 ", "1:2 ", "1:3 ", "1:4 "].iter().any(|id| line.starts_with(&format!("class htb {id}")));
        !is_shared
    };
    let classes: Vec<&str> = traffic.classes.lines().filter(is_private).collect();
    let matches: Vec<&str> = traffic.filters.lines().filter(|line| line.contains("match ")).collect();
    let is_class = |line: &&str| {
        ["parent 1:1", "prio 2", &format!("rate {rate}"), &format!("ceil {rate}")]
            .iter()
            .all(|part| line.contains(part))
    };
    let is_so = matches!(&classes[..], [class] if is_class(class))
        && matches!(&matches[..], [line] if line.contains(&format!("match {address}/ffffffff at 12")));
    if !is_so {
        eprintln!("not so yet: {classes:?} {matches:?}");
    }
    Ok(is_so)
}

/// What the kernel has.
#[derive(Debug, PartialEq)]
struct Traffic {
    qdiscs: String,
    classes: String,
    filters: String,
    sets: String,
    rules: String,
}

fn kernel() -> Result<Traffic> {
    let rules = run("iptables", &["-t", "mangle", "-S", "POSTROUTING"])?;
    Ok(Traffic {
        qdiscs: run("tc", &["qdisc", "show", "dev", DEVICE])?,
        classes: run("tc", &["class", "show", "dev", DEVICE])?,
        filters: run("tc", &["filter", "show", "dev", DEVICE])?,
        sets: run("ipset", &["list", "-name"])?,
        rules,
    })
}

/// Spec: koordlet-enforce 15.9.
fn is_shaped(traffic: &Traffic) -> bool {
    let has =
        |text: &str, parts: &[&str]| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    let is_done = has(&traffic.qdiscs, &["qdisc htb 1: root"])
        && has(&traffic.classes, &["class htb 1:1 root", "rate 80Mbit", "ceil 80Mbit"])
        && has(&traffic.classes, &["class htb 1:2 parent 1:1", "prio 1", "rate 24Mbit", "ceil 80Mbit"])
        && has(&traffic.classes, &["class htb 1:3 parent 1:1", "prio 2", "rate 40Mbit", "ceil 80Mbit"])
        && has(&traffic.classes, &["class htb 1:4 parent 1:1", "prio 3", "rate 16Mbit", "ceil 40Mbit"])
        && ["0x2", "0x3", "0x4"]
            .iter()
            .all(|handle| has(&traffic.filters, &["cgroup", &format!("handle {handle}")]))
        && ["system_class", "ls_class", "be_class"].iter().all(|set| has(&traffic.sets, &[set]))
        && has(&traffic.rules, &["--match-set ls_class src", "CLASSIFY --set-class 0001:0003"]);
    if !is_done {
        eprintln!("not shaped yet: {traffic:#?}");
    }
    is_done
}
