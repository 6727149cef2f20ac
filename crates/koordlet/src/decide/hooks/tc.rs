//! Network QoS through the kernel's traffic control: what the tree of classes should look like, and which class
//! each pod's traffic belongs to. Spec: koordlet-enforce 15.9.
//!
//! The result is desired state; whoever applies it compares it with what the kernel has.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use koord_api::annotation::Annotation;
use koord_api::annotation::network::{PodNetworkQos, class_rate};
use koord_api::crd::node_slo::{NetQosPolicy, NetworkQos, ResourceQos, ResourceQosStrategy, SystemStrategy};
use koord_api::qos::Qos;
use koord_api::quantity::Quantity;

use super::number;
use crate::decide::snapshot::Pod;
use crate::decide::wish::{File, Why, Wish};

/// The handle that all classes hang from.
pub const MAJOR: u32 = 1;
/// Minor numbers of private classes; those below are the node's own.
pub const PRIVATE_MIN: u32 = 5;
const PRIVATE_MAX: u32 = 0xffff;
/// Room that a class's buffer has above one tick's worth.
const BUFFER_ROOM: i64 = 1600;

/// Whether traffic control shapes the network of this node.
pub fn is_on(strategy: &ResourceQosStrategy) -> bool {
    let policy = strategy.policies.as_ref().and_then(|policies| policies.net_qos_policy.as_ref());
    matches!(policy, None | Some(NetQosPolicy::Tc))
}

/// A class of the node: who it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeClass {
    Root,
    System,
    Ls,
    Be,
}

impl NodeClass {
    pub fn minor(self) -> u32 {
        match self {
            NodeClass::Root => 1,
            NodeClass::System => 2,
            NodeClass::Ls => 3,
            NodeClass::Be => 4,
        }
    }

    /// Who may borrow first; private classes have that of their pod's class.
    fn prio(self) -> u32 {
        match self {
            NodeClass::Root => 0,
            NodeClass::System => 1,
            NodeClass::Ls => 2,
            NodeClass::Be => 3,
        }
    }

    /// The set of addresses whose traffic belongs to it.
    pub fn address_set(self) -> Option<&'static str> {
        match self {
            NodeClass::Root => None,
            NodeClass::System => Some("system_class"),
            NodeClass::Ls => Some("ls_class"),
            NodeClass::Be => Some("be_class"),
        }
    }

    /// The class of a pod; none without a QoS label.
    pub fn of_pod(pod: &Pod) -> Option<NodeClass> {
        match pod.qos? {
            Qos::System => Some(NodeClass::System),
            Qos::Lse | Qos::Lsr | Qos::Ls => Some(NodeClass::Ls),
            Qos::Be => Some(NodeClass::Be),
        }
    }
}

/// A class as the kernel has it. Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    pub minor: u32,
    pub rate: i64,
    pub ceil: i64,
    pub prio: u32,
}

impl Class {
    /// Bytes that may be sent at once. `hz` are the ticks of the kernel's packet scheduler in a second.
    pub fn buffer(&self, hz: i64) -> i64 {
        self.rate / hz.max(1) + BUFFER_ROOM
    }

    fn new(minor: u32, rate_bits: i64, ceil_bits: i64, prio: u32) -> Class {
        let ceil = if ceil_bits == 0 { rate_bits } else { ceil_bits };
        Class { minor, rate: rate_bits / 8, ceil: ceil / 8, prio }
    }

    fn of_node(class: NodeClass, rate_bits: i64, ceil_bits: i64) -> Class {
        Class::new(class.minor(), rate_bits, ceil_bits, class.prio())
    }
}

/// Why the node's classes stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcError {
    #[error("the node's network bandwidth is not known")]
    NoTotal,
    #[error("guaranteed bandwidth of LS ({ls}) and BE ({be}) is larger than total {total}")]
    TooMuch { ls: i64, be: i64, total: i64 },
}

/// The node's classes: root, system, LS and BE.
///
/// Differs: guarantees beyond the total are refused, where upstream's rate of the system class wraps around
/// (item 33).
pub fn classes(strategy: &ResourceQosStrategy, system: &SystemStrategy) -> Result<[Class; 4], TcError> {
    let total = system.total_network_bandwidth;
    let all = total.value();
    if all <= 0 {
        return Err(TcError::NoTotal);
    }
    let (ls_min, ls_max) = egress(strategy.ls_class.as_ref(), total);
    let (be_min, be_max) = egress(strategy.be_class.as_ref(), total);
    let rest = all.checked_sub(ls_min).and_then(|rest| rest.checked_sub(be_min)).filter(|rest| *rest >= 0);
    let Some(rest) = rest else { return Err(TcError::TooMuch { ls: ls_min, be: be_min, total: all }) };
    Ok([
        Class::of_node(NodeClass::Root, all, all),
        Class::of_node(NodeClass::System, rest, all),
        Class::of_node(NodeClass::Ls, ls_min, ls_max),
        Class::of_node(NodeClass::Be, be_min, be_max),
    ])
}

/// Guaranteed and highest rate of what a class sends, in bits per second. What cannot be read counts as 0; a class without
/// either may send what there is.
///
/// Differs: upstream asks for a class of 0 bits per second, which the kernel refuses, so that its packets go with the
/// system's.
fn egress(class: Option<&ResourceQos>, total: Quantity) -> (i64, i64) {
    let network = class.and_then(|class| class.network_qos.as_ref());
    let Some(network) = network.filter(|network| network.enable == Some(true)) else {
        return (0, total.value());
    };
    let NetworkQos { egress_request, egress_limit, .. } = network;
    let bits = |value: &Option<IntOrString>| match value {
        Some(IntOrString::Int(percent)) if !(0..=100).contains(percent) => 0,
        Some(value) => class_rate(value, total).map_or(0, |rate| rate.0.max(0)),
        None => 0,
    };
    match (bits(egress_request), bits(egress_limit)) {
        (0, 0) => (0, total.value()),
        rates => rates,
    }
}

/// How a pod's packets are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// By the class id of its group: it has the host's address.
    Group,
    Address(Ipv4Addr),
}

/// A pod's own class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateClass {
    pub class: Class,
    pub packets: Match,
}

/// What pods need of the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPlan {
    /// Classes of pods with a limit, by uid.
    pub classes: BTreeMap<Arc<str>, PrivateClass>,
    /// Addresses of pods without a limit, by the set they belong to.
    pub addresses: BTreeMap<&'static str, BTreeSet<Ipv4Addr>>,
    /// Class ids of groups.
    pub wishes: Vec<Wish>,
    /// Pods whose packets find their class without the id of their group, by uid.
    pub recognised: BTreeSet<Arc<str>>,
    pub problems: Vec<String>,
}

/// What the class of a pod's traffic follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    Class(NodeClass),
    /// It has a limit of its own, in bits per second.
    Limit {
        egress: i64,
    },
    /// It will have one, once it has an address.
    NoAddress,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Class(class) => write!(f, "traffic class {class:?}"),
            Because::Limit { egress } => {
                write!(f, "annotation {} limits egress to {egress} bits/s", PodNetworkQos::KEY)
            }
            Because::NoAddress => f.write_str("the pod has no address yet"),
        }
    }
}

/// Plans for all pods. `existing` are the private classes that pods have, by uid.
///
/// Differs: classes are found again after a restart (item 33), a limit is divided by 8 once (item 17), and a
/// minor number is never one of the node's own.
pub fn pods(pods: &[Pod], existing: &BTreeMap<Arc<str>, u32>) -> PodPlan {
    let mut plan = PodPlan::default();
    for class in [NodeClass::System, NodeClass::Ls, NodeClass::Be] {
        plan.addresses.extend(class.address_set().map(|set| (set, BTreeSet::new())));
    }
    let mut taken: BTreeSet<u32> = existing.values().copied().collect();
    for pod in pods.iter().filter(|pod| pod.is_active()) {
        let Some(class) = NodeClass::of_pod(pod) else { continue };
        let egress = match &pod.network_qos {
            Ok(network) => network.as_ref().map_or(0, |network| network.egress().0),
            Err(error) => {
                plan.problems.push(format!("pod {}/{}: {error}", pod.namespace, pod.name));
                continue;
            }
        };
        if egress <= 0 {
            plan.share(pod, class);
            continue;
        }
        let Some(packets) = packets(pod) else {
            // Its address comes later, and with it its class.
            let why = Why::TrafficClass(Because::NoAddress);
            plan.wishes.push(number(pod.place(), File::NetClsClassid, 0).because(&why));
            continue;
        };
        let known = existing.get(&pod.id.uid).copied().filter(|minor| *minor >= PRIVATE_MIN);
        let Some(minor) = known.or_else(|| free_minor(&pod.id.uid, &taken)) else {
            plan.problems.push(format!("pod {}/{}: no class is free", pod.namespace, pod.name));
            continue;
        };
        taken.insert(minor);
        let class = Class::new(minor, egress, egress, class.prio());
        let why = Why::TrafficClass(Because::Limit { egress });
        plan.wishes.push(number(pod.place(), File::NetClsClassid, handle(minor)).because(&why));
        if matches!(packets, Match::Address(_)) {
            plan.recognised.insert(pod.id.uid.clone());
        }
        plan.classes.insert(pod.id.uid.clone(), PrivateClass { class, packets });
    }
    plan
}

impl PodPlan {
    /// The pod's traffic goes with its class's.
    fn share(&mut self, pod: &Pod, class: NodeClass) {
        if let (Some(set), Some(Match::Address(ip))) = (class.address_set(), packets(pod)) {
            self.addresses.entry(set).or_default().insert(ip);
            self.recognised.insert(pod.id.uid.clone());
        }
        let why = Why::TrafficClass(Because::Class(class));
        self.wishes.push(number(pod.place(), File::NetClsClassid, handle(class.minor())).because(&why));
    }
}

/// How the pod's packets are recognised; none before it has an address. Filters and sets are of IPv4, as the route is
/// that names the device.
fn packets(pod: &Pod) -> Option<Match> {
    if pod.is_host_network {
        return Some(Match::Group);
    }
    pod.ip.as_deref()?.parse().ok().map(Match::Address)
}

/// A class id as net_cls wants it.
pub fn handle(minor: u32) -> i64 {
    i64::from((MAJOR << 16) | minor)
}

/// A number nobody has. Where the search begins depends on the pod, so that numbers are not reused at once.
fn free_minor(uid: &str, taken: &BTreeSet<u32>) -> Option<u32> {
    let count = PRIVATE_MAX - PRIVATE_MIN + 1;
    let start = uid.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let mut minors = (0..count).map(|step| PRIVATE_MIN + (start % count + step) % count);
    minors.find(|minor| !taken.contains(minor))
}

#[cfg(test)]
mod tests {
    use koord_api::slo::defaults;
    use proptest::prelude::*;

    use super::*;
    use crate::decide::sketch::pod;

    fn network(request: IntOrString, limit: IntOrString) -> Option<NetworkQos> {
        Some(NetworkQos {
            enable: Some(true),
            egress_request: Some(request),
            egress_limit: Some(limit),
            ..NetworkQos::default()
        })
    }

    fn rates(total: &str, ls: Option<NetworkQos>, be: Option<NetworkQos>) -> Result<[Class; 4], TcError> {
        let mut strategy = defaults::qos();
        strategy.ls_class.as_mut().unwrap().network_qos = ls;
        strategy.be_class.as_mut().unwrap().network_qos = be;
        let system =
            SystemStrategy { total_network_bandwidth: total.parse().unwrap(), ..SystemStrategy::default() };
        classes(&strategy, &system)
    }

    #[test]
    fn the_node() {
        let text = |text: &str| IntOrString::String(text.to_string());
        let ls = || network(text("400M"), text("800M"));
        let be = network(IntOrString::Int(10), IntOrString::Int(50));
        let got = rates("1G", ls(), be).unwrap().map(|class| (class.rate, class.ceil));
        let want = [
            (125_000_000, 125_000_000),
            (62_500_000, 125_000_000),
            (50_000_000, 100_000_000),
            (12_500_000, 62_500_000),
        ];
        assert_eq!(got, want, "koordlet-enforce#18.214");
        // koordlet-enforce 1.2: what is not enabled, or has nothing to say, is neutral.
        let off = || ls().map(|network| NetworkQos { enable: Some(false), ..network });
        for (name, class) in [
            ("none", None),
            ("off", off()),
            ("enabled alone", Some(NetworkQos { enable: Some(true), ..NetworkQos::default() })),
            ("out of range", network(IntOrString::Int(-1), IntOrString::Int(150))),
        ] {
            let got = rates("1G", class, ls()).unwrap().map(|class| (class.rate, class.ceil));
            assert_eq!(got[2], (0, 125_000_000), "{name}");
        }
        let least = rates("1G", network(text("400M"), IntOrString::Int(0)), None).unwrap();
        assert_eq!(
            (least[2].rate, least[2].ceil),
            (50_000_000, 50_000_000),
            "no highest rate: the guaranteed one"
        );
        assert!(matches!(rates("300M", ls(), None), Err(TcError::TooMuch { .. })));
        assert_eq!(rates("0", None, None), Err(TcError::NoTotal));
        let buffers = rates("1G", ls(), None).unwrap().map(|class| class.buffer(1_000_000_000));
        assert_eq!(buffers, [1600; 4]);
        assert_eq!(Class::new(3, 80, 0, 2).ceil, 10, "without a highest rate it is the guaranteed one");
    }

    #[test]
    fn class_ids() {
        let id = |qos: &str| {
            let plan = pods(&[pod("p").qos(qos).read()], &BTreeMap::new());
            plan.wishes.first().map(|wish| wish.value.to_string())
        };
        for (qos, want) in [
            ("SYSTEM", Some("65538")),
            ("LSE", Some("65539")),
            ("LSR", Some("65539")),
            ("LS", Some("65539")),
            ("BE", Some("65540")),
            ("", None),
            ("odd", None),
        ] {
            assert_eq!(id(qos).as_deref(), want, "koordlet-enforce#18.215 {qos}");
        }
    }

    #[test]
    fn reasons_are_told() {
        let limited = pod("p").qos("LS").annotated(PodNetworkQos::KEY, r#"{"egressLimit":"80M"}"#);
        for (sketch, want) in [
            (pod("p").qos("BE"), "traffic class Be"),
            (limited.clone(), "the pod has no address yet"),
            (limited.ip("10.0.0.7"), "annotation koordinator.sh/networkQOS limits egress to 80000000 bits/s"),
        ] {
            let plan = pods(&[sketch.read()], &BTreeMap::new());
            assert_eq!(plan.wishes[0].why.to_string(), format!("; {want}"));
        }
    }

    #[test]
    fn limits_of_pods() {
        let limited = |name: &str| {
            pod(name).qos("LS").ip("10.0.0.7").annotated(PodNetworkQos::KEY, r#"{"egressLimit":"80M"}"#)
        };
        let plan = pods(&[limited("p").read()], &BTreeMap::new());
        let own = &plan.classes["p"];
        assert_eq!((own.class.rate, own.class.ceil), (10_000_000, 10_000_000), "koordlet-enforce#18.216");
        assert_eq!(own.packets, Match::Address(Ipv4Addr::new(10, 0, 0, 7)));
        assert_eq!(own.class.prio, 2, "that of its class");
        assert_eq!(plan.wishes[0].value.to_string(), handle(own.class.minor).to_string());
        let host = pods(&[limited("p").host_network().read()], &BTreeMap::new());
        assert_eq!(host.classes["p"].packets, Match::Group);
        let existing = [(Arc::from("p"), 42), (Arc::from("gone"), 43)].into();
        let again = pods(&[limited("p").read()], &existing);
        let minors: Vec<u32> = again.classes.values().map(|own| own.class.minor).collect();
        assert_eq!(minors, [42]);
        for early in [limited("p").ip(""), limited("p").ip("fd00::7")] {
            let plan = pods(&[early.read()], &BTreeMap::new());
            assert!(plan.classes.is_empty(), "no address, no class");
            assert_eq!(plan.wishes[0].value.to_string(), "0", "koordlet-enforce 15.9");
        }
        let shared = pods(&[pod("b").qos("BE").ip("10.0.0.8").read()], &BTreeMap::new());
        assert_eq!(shared.addresses["be_class"], BTreeSet::from([Ipv4Addr::new(10, 0, 0, 8)]));
        assert!(shared.addresses["ls_class"].is_empty());
        let broken = pods(&[limited("p").annotated(PodNetworkQos::KEY, "{").read()], &BTreeMap::new());
        assert_eq!((broken.wishes.len(), broken.problems.len()), (0, 1));
    }

    proptest! {
        /// Private classes never share a number, neither with each other nor with the node's own.
        #[test]
        fn numbers_are_unique(uids in prop::collection::btree_set("[a-z]{1,4}", 1..40)) {
            let limited = |uid: &String| {
                let limit = r#"{"egressLimit":"8M"}"#;
                pod(uid).qos("LS").host_network().annotated(PodNetworkQos::KEY, limit).read()
            };
            let all: Vec<Pod> = uids.iter().map(limited).collect();
            let plan = pods(&all, &BTreeMap::new());
            let minors: BTreeSet<u32> = plan.classes.values().map(|own| own.class.minor).collect();
            prop_assert_eq!(minors.len(), all.len());
            prop_assert!(minors.iter().all(|minor| (PRIVATE_MIN..=PRIVATE_MAX).contains(minor)));
        }
    }
}
