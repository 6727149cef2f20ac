//! Network QoS through terway: the two files its daemon reads. Spec: koordlet-enforce 15.8.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use koord_api::annotation::network::class_rate;
use koord_api::crd::node_slo::{NetQosPolicy, NetworkQos, ResourceQos, ResourceQosStrategy, SystemStrategy};
use koord_api::gojson;
use koord_api::qos::{KubeQos, Qos};
use koord_api::quantity::Quantity;
use serde::{Deserialize, Serialize};

use crate::decide::snapshot::Pod;

/// Whether terway shapes the network of this node; its files are removed when it does not.
pub fn is_on(strategy: &ResourceQosStrategy) -> bool {
    let policy = strategy.policies.as_ref().and_then(|policies| policies.net_qos_policy.as_ref());
    policy == Some(&NetQosPolicy::TerwayQos)
}

/// Guaranteed and highest rates of one class. Bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassRates {
    pub tx_min: i64,
    pub tx_max: i64,
    pub rx_min: i64,
    pub rx_max: i64,
}

/// The node's rates. Bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRates {
    pub hardware: i64,
    pub ls: ClassRates,
    pub be: ClassRates,
}

/// Why the node's file stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerwayError {
    #[error("invalid total network bandwidth {0}")]
    Total(Quantity),
    #[error("quantity {quantity} is larger than total {total}")]
    TooMuch { quantity: Quantity, total: i64 },
    #[error("percent {0} is not in [0, 100]")]
    Percent(i32),
    #[error("invalid quantity {0:?}")]
    NoQuantity(String),
}

impl NodeRates {
    /// Differs: percents are bytes as everything else in the file, and a value is compared with the total in the
    /// same unit (15.8, item 17); percents out of range are refused.
    pub fn of(strategy: &ResourceQosStrategy, system: &SystemStrategy) -> Result<NodeRates, TerwayError> {
        let total = system.total_network_bandwidth;
        if total < Quantity::ZERO {
            return Err(TerwayError::Total(total));
        }
        Ok(NodeRates {
            hardware: total.value() / 8,
            ls: class_rates(strategy.ls_class.as_ref(), total)?,
            be: class_rates(strategy.be_class.as_ref(), total)?,
        })
    }

    /// The daemon's node file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: i64| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {value}");
        };
        line("hw_tx_bps_max", self.hardware);
        line("hw_rx_bps_max", self.hardware);
        for (class, rates) in [("l1", &self.ls), ("l2", &self.be)] {
            line(&format!("offline_{class}_tx_bps_min"), rates.tx_min);
            line(&format!("offline_{class}_tx_bps_max"), rates.tx_max);
            line(&format!("offline_{class}_rx_bps_min"), rates.rx_min);
            line(&format!("offline_{class}_rx_bps_max"), rates.rx_max);
        }
        text
    }
}

/// The same numbers in one line, for the audit log.
impl fmt::Display for NodeRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes/s at least and at most: all {}", self.hardware)?;
        for (name, rates) in [("LS", &self.ls), ("BE", &self.be)] {
            let ClassRates { tx_min, tx_max, rx_min, rx_max } = rates;
            write!(f, ", {name} sends {tx_min} {tx_max} and receives {rx_min} {rx_max}")?;
        }
        Ok(())
    }
}

/// What the pod file is about, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub pods: usize,
    /// Of them, those with limits of their own.
    pub limited: usize,
}

impl Count {
    pub fn of(pods: &BTreeMap<String, PodRates>) -> Count {
        let is_limited = |pod: &&PodRates| pod.qos_config != PodLimits::default();
        Count { pods: pods.len(), limited: pods.values().filter(is_limited).count() }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pods, {} with limits of their own", self.pods, self.limited)
    }
}

fn class_rates(class: Option<&ResourceQos>, total: Quantity) -> Result<ClassRates, TerwayError> {
    let network = class.and_then(|class| class.network_qos.as_ref());
    let Some(network) = network.filter(|network| network.enable == Some(true)) else {
        return Ok(ClassRates::default());
    };
    let NetworkQos { ingress_request, ingress_limit, egress_request, egress_limit, .. } = network;
    Ok(ClassRates {
        tx_min: rate(egress_request.as_ref(), total)?,
        tx_max: rate(egress_limit.as_ref(), total)?,
        rx_min: rate(ingress_request.as_ref(), total)?,
        rx_max: rate(ingress_limit.as_ref(), total)?,
    })
}

fn rate(value: Option<&IntOrString>, total: Quantity) -> Result<i64, TerwayError> {
    let Some(value) = value else { return Ok(0) };
    match value {
        IntOrString::Int(percent) if !(0..=100).contains(percent) => {
            return Err(TerwayError::Percent(*percent));
        }
        IntOrString::String(text) => {
            let quantity: Quantity = text.parse().map_err(|_| TerwayError::NoQuantity(text.clone()))?;
            if quantity > total {
                return Err(TerwayError::TooMuch { quantity, total: total.value() });
            }
        }
        IntOrString::Int(_) => {}
    }
    let bits = class_rate(value, total).map_err(|_| TerwayError::NoQuantity(String::new()))?;
    Ok(bits.bytes_trunc().max(0))
}

/// One pod in the daemon's pod file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRates {
    pub pod_name: String,
    pub pod_namespace: String,
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// 0 is first.
    pub prio: u8,
    pub cgroup_dir: String,
    pub qos_config: PodLimits,
}

/// For whoever reads what was done to a pod.
impl fmt::Display for PodRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PodLimits { ingress_bandwidth, egress_bandwidth } = self.qos_config;
        write!(
            f,
            "priority {}, receives at most {ingress_bandwidth} and sends at most {egress_bandwidth} bytes/s, 0 for no limit",
            self.prio
        )
    }
}

/// Bytes per second; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodLimits {
    pub ingress_bandwidth: i64,
    pub egress_bandwidth: i64,
}

/// The pods by uid, and what is wrong with those left out. `dir` is where a pod's network group lies.
pub fn pods(pods: &[Pod], dir: impl Fn(&Pod) -> String) -> (BTreeMap<String, PodRates>, Vec<String>) {
    let (mut rates, mut problems) = (BTreeMap::new(), Vec::new());
    for pod in pods {
        match pod_limits(pod) {
            Ok(qos_config) => {
                let entry = PodRates {
                    pod_name: pod.name.clone(),
                    pod_namespace: pod.namespace.clone(),
                    pod_uid: pod.id.uid.to_string(),
                    prio: prio(pod),
                    cgroup_dir: dir(pod),
                    qos_config,
                };
                rates.insert(pod.id.uid.to_string(), entry);
            }
            Err(problem) => problems.push(format!("pod {}/{}: {problem}", pod.namespace, pod.name)),
        }
    }
    (rates, problems)
}

/// The daemon's pod file.
pub fn pods_text(pods: &BTreeMap<String, PodRates>) -> String {
    gojson::to_string(pods).unwrap_or_else(|_| "{}".to_owned())
}

/// The pods of a file that another run wrote; none where it cannot be read.
pub fn pods_of(text: &str) -> BTreeMap<String, PodRates> {
    gojson::from_str(text).unwrap_or_default()
}

/// Both limits, or neither.
fn pod_limits(pod: &Pod) -> Result<PodLimits, String> {
    let Some(network) = pod.network_qos.as_ref().map_err(|error| error.reason())? else {
        return Ok(PodLimits::default());
    };
    if network.ingress_limit.is_none() || network.egress_limit.is_none() {
        return Err("ingressLimit and egressLimit are needed both".to_owned());
    }
    Ok(PodLimits {
        ingress_bandwidth: network.ingress().bytes_trunc(),
        egress_bandwidth: network.egress().bytes_trunc(),
    })
}

fn prio(pod: &Pod) -> u8 {
    match (pod.qos, pod.id.kube_qos) {
        (Some(Qos::System), _) => 0,
        (Some(Qos::Lse | Qos::Lsr | Qos::Ls), _) => 1,
        (Some(Qos::Be), _) | (None, KubeQos::BestEffort) => 2,
        (None, _) => 1,
    }
}

#[cfg(test)]
mod tests {
    use koord_api::annotation::Annotation;
    use koord_api::annotation::network::PodNetworkQos;
    use koord_api::slo::defaults;

    use super::*;
    use crate::decide::sketch::pod;

    fn text(value: &str) -> Option<IntOrString> {
        Some(IntOrString::String(value.to_string()))
    }

    fn network(request: Option<IntOrString>, limit: Option<IntOrString>) -> NetworkQos {
        NetworkQos {
            enable: Some(true),
            ingress_request: request.clone(),
            ingress_limit: limit.clone(),
            egress_request: request,
            egress_limit: limit,
        }
    }

    fn rates(total: &str, ls: NetworkQos, be: NetworkQos) -> Result<NodeRates, TerwayError> {
        let mut strategy = defaults::qos();
        strategy.ls_class.as_mut().unwrap().network_qos = Some(ls);
        strategy.be_class.as_mut().unwrap().network_qos = Some(be);
        let system =
            SystemStrategy { total_network_bandwidth: total.parse().unwrap(), ..SystemStrategy::default() };
        NodeRates::of(&strategy, &system)
    }

    #[test]
    fn the_node() {
        let seed = rates("600M", network(text("50M"), text("100M")), network(text("10M"), text("200M")));
        let want = "hw_tx_bps_max 75000000\nhw_rx_bps_max 75000000\n\
            offline_l1_tx_bps_min 6250000\noffline_l1_tx_bps_max 12500000\n\
            offline_l1_rx_bps_min 6250000\noffline_l1_rx_bps_max 12500000\n\
            offline_l2_tx_bps_min 1250000\noffline_l2_tx_bps_max 25000000\n\
            offline_l2_rx_bps_min 1250000\noffline_l2_rx_bps_max 25000000\n";
        assert_eq!(seed.unwrap().text(), want, "koordlet-enforce#18.98");
        let percent = |value| Some(IntOrString::Int(value));
        let off = || NetworkQos::default();
        let ls = rates("600M", network(percent(40), percent(100)), off()).unwrap().ls;
        assert_eq!((ls.tx_min, ls.tx_max), (30_000_000, 75_000_000), "koordlet-enforce#18.211");
        let error = |value: &str| rates("600M", network(text(value), None), off()).unwrap_err().to_string();
        let larger = "quantity 4799999999 is larger than total 600000000";
        assert_eq!(error("4799999999"), larger, "koordlet-enforce#18.212");
        let larger = "quantity 4800000008 is larger than total 600000000";
        assert_eq!(error("4800000008"), larger, "koordlet-enforce#18.212");
        assert_eq!(rates("-1", off(), off()).unwrap_err().to_string(), "invalid total network bandwidth -1");
        assert!(rates("600M", network(percent(150), None), off()).is_err());
        assert_eq!(rates("600M", off(), off()).unwrap().be, ClassRates::default());
    }

    #[test]
    fn limits_of_pods() {
        let of = |annotation: &str| {
            let all = [pod("p").qos("LS").annotated(PodNetworkQos::KEY, annotation).read()];
            let (rates, problems) = pods(&all, |_| "/dir".to_string());
            assert_eq!(rates.len() + problems.len(), 1);
            rates
                .get("p")
                .map(|rates| (rates.qos_config.ingress_bandwidth, rates.qos_config.egress_bandwidth))
        };
        let usual = r#"{"ingressLimit":"10M","egressLimit":"20M"}"#;
        assert_eq!(of(usual), Some((1_250_000, 2_500_000)), "koordlet-enforce#18.99");
        assert_eq!(of(r#"{"ingressLimit":"12","egressLimit":"7"}"#), Some((1, 0)), "koordlet-enforce#18.213");
        assert_eq!(of(r#"{"ingressLimit":"10M"}"#), None, "koordlet-enforce#18.213");
        assert_eq!(of(r#"{"ingressLimit":10,"egressLimit":"7"}"#), None);
        assert_eq!(of(""), Some((0, 0)));
    }

    #[test]
    fn the_pod_file() {
        let all = [pod("b").qos("BE").read(), pod("a").qos("SYSTEM").read()];
        let (rates, _) = pods(&all, |pod| format!("/net/{}", pod.name));
        let want = concat!(
            r#"{"a":{"podName":"a","podNamespace":"default","podUID":"a","prio":0,"cgroupDir":"/net/a","#,
            r#""qosConfig":{"ingressBandwidth":0,"egressBandwidth":0}},"#,
            r#""b":{"podName":"b","podNamespace":"default","podUID":"b","prio":2,"cgroupDir":"/net/b","#,
            r#""qosConfig":{"ingressBandwidth":0,"egressBandwidth":0}}}"#
        );
        assert_eq!(pods_text(&rates), want);
        assert_eq!(pods_text(&BTreeMap::new()), "{}");
        assert_eq!(Count::of(&rates).to_string(), "2 pods, 0 with limits of their own");
        let ls = ClassRates { tx_min: 1, tx_max: 2, rx_min: 3, rx_max: 4 };
        let node = NodeRates { hardware: 9, ls, be: ClassRates::default() };
        let want = "bytes/s at least and at most: all 9, LS sends 1 2 and receives 3 4, BE sends 0 0 and receives 0 0";
        assert_eq!(node.to_string(), want);
        let prios = ["LSE", "LSR", "LS", "odd"].map(|qos| prio(&pod("p").qos(qos).read()));
        assert_eq!(prios, [1, 1, 1, 2], "an unknown label is none: this pod is BestEffort");
    }
}
