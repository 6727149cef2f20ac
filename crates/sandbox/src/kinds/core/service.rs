//! Services: addresses, ports, and the many fields that must agree.

mod allocate;
mod rules;

use serde_json::{Value, json};

use super::super::cell::{NONE, age, labels, name};
use super::super::pod_template::address_warning;
use super::super::tree::{
    fill, flag, has, int, list, list_mut, part, part_mut, remove, set, text, text_entries, texts,
};
use super::super::{Hooks, Kind, Path, names, quote};
use super::columns;

/// Seconds a client stays with one endpoint unless said otherwise.
const AFFINITY_SECONDS: i64 = 10_800;
/// Characters of a load balancer's addresses shown.
const BALANCER_WIDTH: usize = 16;
const NO_IP: &str = "None";

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "Service", "services")
        .short(&["svc"])
        .category("all")
        .status()
        .columns(columns::services())
        .hooks(Hooks {
            name: names::label_1035,
            default,
            prepare_create: |service| set(service, "status", json!({"loadBalancer": {}})),
            prepare_update,
            validate: rules::validate,
            validate_status: rules::validate_status,
            admit: allocate::admit,
            warn: |service, _| warn(service),
            fields: |service| {
                let spec = &service["spec"];
                vec![
                    ("spec.clusterIP", text(spec, "clusterIP").to_owned()),
                    ("spec.type", text(spec, "type").to_owned()),
                ]
            },
            field_names: &["spec.clusterIP", "spec.type"],
            row,
            ..Hooks::default()
        });
    kind.create_on_update = true;
    kind.returns_deleted = true;
    kind
}

/// Whether clients outside the cluster reach it.
fn is_external(spec: &Value) -> bool {
    let kind = text(spec, "type");
    ["LoadBalancer", "NodePort"].contains(&kind)
        || (kind == "ClusterIP" && !list(spec, "externalIPs").is_empty())
}

fn is_headless(spec: &Value) -> bool {
    texts(spec, "clusterIPs") == [NO_IP]
}

fn has_node_ports(spec: &Value) -> bool {
    ["LoadBalancer", "NodePort"].contains(&text(spec, "type"))
}

fn has_health_port(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Whether the type has cluster addresses at all.
fn has_cluster_ip(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

fn default(service: &mut Value) {
    if !service["spec"].is_object() {
        set(service, "spec", json!({}));
    }
    let spec = &mut service["spec"];
    fill(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" if int(&spec["sessionAffinityConfig"]["clientIP"], "timeoutSeconds").is_none() => {
            set(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}));
        }
        _ => {}
    }
    fill(spec, "type", "ClusterIP");
    for port in list_mut(spec, "ports") {
        fill(port, "protocol", "TCP");
        let target = port.get("targetPort").cloned().unwrap_or(Value::Null);
        if [Value::Null, json!(0), json!("")].contains(&target) {
            let number = int(port, "port").unwrap_or(0);
            set(port, "targetPort", number);
        }
    }
    if is_external(spec) {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&text(spec, "type")) {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == "ExternalName" {
        remove(spec, "internalTrafficPolicy");
    }
    let is_balanced = text(spec, "type") == "LoadBalancer";
    if is_balanced {
        fill(spec, "allocateLoadBalancerNodePorts", true);
    }
    let Some(balancer) = part_mut(service, "status").and_then(|s| part_mut(s, "loadBalancer")) else {
        return;
    };
    for ingress in list_mut(balancer, "ingress").filter(|i| is_balanced && !text(i, "ip").is_empty()) {
        fill(ingress, "ipMode", "VIP");
    }
}

/// A change of type drops what the new type does not have, unless the writer changed it, too.
fn prepare_update(service: &mut Value, old: &Value) {
    let before = &old["spec"];
    let spec = &mut service["spec"];
    let same = |spec: &Value, field: &str| spec.get(field) == before.get(field);
    if has_cluster_ip(before) && !has_cluster_ip(spec) {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            remove(spec, "clusterIP");
            remove(spec, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, field) {
                remove(spec, field);
            }
        }
    }
    let ports = |spec: &Value| -> Vec<i64> {
        list(spec, "ports").iter().filter_map(|p| int(p, "nodePort")).filter(|n| *n != 0).collect()
    };
    let known = ports(before);
    if has_node_ports(before) && !has_node_ports(spec) && ports(spec).iter().all(|p| known.contains(p)) {
        list_mut(spec, "ports").for_each(|port| {
            remove(port, "nodePort");
        });
    }
    if has_health_port(before) && !has_health_port(spec) && same(spec, "healthCheckNodePort") {
        remove(spec, "healthCheckNodePort");
    }
    let was_balanced = text(before, "type") == "LoadBalancer" && text(spec, "type") != "LoadBalancer";
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if was_balanced && same(spec, field) {
            remove(spec, field);
        }
    }
    if is_external(before) && !is_external(spec) && same(spec, "externalTrafficPolicy") {
        remove(spec, "externalTrafficPolicy");
    }
    if text(spec, "type") != "LoadBalancer" && has(service, "status") {
        service["status"]["loadBalancer"] = json!({});
    }
}

fn warn(service: &Value) -> Vec<String> {
    let spec = &service["spec"];
    let mut out = Vec::new();
    let hints = "service.kubernetes.io/topology-aware-hints";
    if text_entries(&service["metadata"], "annotations").any(|(key, _)| key == hints) {
        out.push(format!(
            "annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let root = Path::root("spec");
    if !["", NO_IP].contains(&text(spec, "clusterIP")) {
        let path = root.child("clusterIPs");
        let ips = texts(spec, "clusterIPs").into_iter().enumerate();
        out.extend(ips.filter_map(|(i, ip)| address_warning(ip, &path.index(i))));
    }
    if text(spec, "type") == "ClusterIP" && text(spec, "clusterIP") == NO_IP {
        let ignored = [
            ("loadBalancerIP", !text(spec, "loadBalancerIP").is_empty()),
            ("externalIPs", !list(spec, "externalIPs").is_empty()),
            ("SessionAffinity", text(spec, "sessionAffinity") != "None"),
        ];
        let set = ignored.into_iter().filter(|(_, is_set)| *is_set);
        out.extend(set.map(|(field, _)| format!("spec.{field} is ignored for headless services")));
    }
    let path = root.child("externalIPs");
    let ips = texts(spec, "externalIPs").into_iter().enumerate();
    out.extend(ips.filter_map(|(i, ip)| address_warning(ip, &path.index(i))));
    out.extend(address_warning(text(spec, "loadBalancerIP"), &root.child("loadBalancerIP")));
    let is_alias = text(spec, "type") == "ExternalName";
    if is_alias && !list(spec, "externalIPs").is_empty() {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_alias && !text(spec, "externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        out.push(format!(
            "spec.trafficDistribution: {} is deprecated; use {}",
            quote("PreferClose"),
            quote("PreferSameZone")
        ));
    }
    out
}

fn row(service: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let spec = &service["spec"];
    let ports: Vec<String> = list(spec, "ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (int(port, "port").unwrap_or(0), text(port, "protocol"));
            match int(port, "nodePort").filter(|n| *n > 0) {
                Some(node) => format!("{number}:{node}/{protocol}"),
                None => format!("{number}/{protocol}"),
            }
        })
        .collect();
    let ports = if ports.is_empty() { NONE.to_owned() } else { ports.join(",") };
    vec![
        name(service),
        text(spec, "type").into(),
        texts(spec, "clusterIPs").first().copied().unwrap_or(NONE).into(),
        external_address(service).into(),
        ports.into(),
        age(service, now),
        labels(spec, "selector"),
    ]
}

fn external_address(service: &Value) -> String {
    let spec = &service["spec"];
    let own = texts(spec, "externalIPs").join(",");
    match text(spec, "type") {
        "ClusterIP" | "NodePort" if own.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => own,
        "LoadBalancer" => {
            let given = balancer_addresses(service);
            match [given, own].into_iter().filter(|a| !a.is_empty()).collect::<Vec<_>>().join(",") {
                none if none.is_empty() => "<pending>".to_owned(),
                addresses => addresses,
            }
        }
        "ExternalName" => text(spec, "externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn balancer_addresses(service: &Value) -> String {
    let ingress = list(&service["status"]["loadBalancer"], "ingress").iter();
    let mut found: Vec<&str> = ingress
        .map(|i| if text(i, "ip").is_empty() { text(i, "hostname") } else { text(i, "ip") })
        .filter(|address| !address.is_empty())
        .collect();
    found.sort_unstable();
    found.dedup();
    let joined = found.join(",");
    match joined.get(..BALANCER_WIDTH - 3).filter(|_| joined.len() > BALANCER_WIDTH) {
        Some(start) => format!("{start}..."),
        None => joined,
    }
}

/// Whether node ports are wanted for a service of this type.
fn wants_node_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => {
            part(spec, "allocateLoadBalancerNodePorts").is_none()
                || flag(spec, "allocateLoadBalancerNodePorts")
        }
        _ => false,
    }
}
