//! Rules of networkQOS: percentages or quantities, and no more of either than there is.
//!
//! Answers are plain text, without the frame of the other checks. Spec: api 7.7, 7.9.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{AdmissionError, refused};
use crate::crd::node_slo::{NetworkQos, ResourceQosStrategy};
use crate::quantity::Quantity;
use crate::slo::document::{Document, NodeItem};
use crate::slo::strategy::SystemPartial;

/// Each rule over the whole document before the next one.
pub(super) fn check(
    document: &Document<ResourceQosStrategy>,
    system: &Document<SystemPartial>,
) -> Result<(), AdmissionError> {
    let cluster = &document.cluster;
    let nodes = || document.nodes.iter().enumerate();

    check_values(cluster, "ResourceQOSCfg.ClusterStrategy")?;
    for (index, item) in nodes() {
        check_values(&item.strategy, &format!("ResourceQOSCfg.nodeStrategy.{index}"))?;
    }

    let one_type = "only one type can be used for percentages or quantity in";
    refuse_if(mixes_types(cluster), || format!("{one_type} clusterStrategy"))?;
    for (index, item) in nodes() {
        refuse_if(mixes_types(&item.strategy), || format!("{one_type} nodeStrategy[{index}]"))?;
    }

    let percent = "total net bandwidth percentage already over 100";
    refuse_if(over_percent(cluster), || format!("ClusterStrategy {percent}"))?;
    for (index, item) in nodes() {
        refuse_if(over_percent(&item.strategy), || format!("cfg.NodeStrategies[{index}] {percent}"))?;
    }

    let total = system.cluster.total_network_bandwidth;
    refuse_if(over_bandwidth(cluster, total), || {
        "total net bandwidth over total network bandwidth in clusterStrategy".to_owned()
    })?;
    for (index, item) in nodes() {
        refuse_if(over_bandwidth(&item.strategy, bandwidth_of(item, system)), || {
            let total = "total net bandwidth quantity already over total network bandwidth";
            format!("{total} in cfg.NodeStrategies[{index}]")
        })?;
    }
    Ok(())
}

fn refuse_if(fault: bool, text: impl FnOnce() -> String) -> Result<(), AdmissionError> {
    if fault { Err(refused(text())) } else { Ok(()) }
}

/// LSR, LS and BE, enabled or not; SYSTEM is not checked.
fn classes(strategy: &ResourceQosStrategy) -> impl Iterator<Item = (&'static str, &NetworkQos)> {
    let classes =
        [("LSRClass", &strategy.lsr_class), ("LSClass", &strategy.ls_class), ("BEClass", &strategy.be_class)];
    classes.into_iter().filter_map(|(name, class)| Some((name, class.as_ref()?.network_qos.as_ref()?)))
}

fn check_values(strategy: &ResourceQosStrategy, path: &str) -> Result<(), AdmissionError> {
    for (class, network) in classes(strategy) {
        for (field, value) in [
            ("IngressRequest", &network.ingress_request),
            ("IngressLimit", &network.ingress_limit),
            ("EgressRequest", &network.egress_request),
            ("EgressLimit", &network.egress_limit),
        ] {
            let place = format!("{path}.{class}.{field}: Invalid value");
            match value {
                Some(IntOrString::Int(percent)) if !(0..=100).contains(percent) => {
                    // The stray quote is upstream's.
                    let text = format!("{place}: {percent}: must be percentage value just in 0-100'");
                    return Err(refused(text));
                }
                Some(IntOrString::String(text)) => {
                    text.parse::<Quantity>()
                        .map_err(|error| refused(format!("{place}: {text:?}: {error}")))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The requests of one direction after those of the other.
fn requests(strategy: &ResourceQosStrategy) -> [Vec<&IntOrString>; 2] {
    let of = |direction: fn(&NetworkQos) -> &Option<IntOrString>| {
        classes(strategy).filter_map(|(_, network)| direction(network).as_ref()).collect()
    };
    [of(|network| &network.ingress_request), of(|network| &network.egress_request)]
}

fn mixes_types(strategy: &ResourceQosStrategy) -> bool {
    let all = requests(strategy).concat();
    let ints = all.iter().filter(|request| matches!(request, IntOrString::Int(_))).count();
    ints > 0 && ints < all.len()
}

/// Differs: only percentages are added up, where upstream also takes quantities from the hundred
/// and so refuses them all (api 11, item 1).
fn over_percent(strategy: &ResourceQosStrategy) -> bool {
    requests(strategy).iter().any(|direction| {
        let percents = direction.iter().map(|request| match request {
            IntOrString::Int(percent) => i64::from(*percent),
            IntOrString::String(_) => 0,
        });
        percents.sum::<i64>() > 100
    })
}

/// Differs: only quantities are added up, and only where the total is known (api 11, item 1).
fn over_bandwidth(strategy: &ResourceQosStrategy, total: Option<Quantity>) -> bool {
    let Some(total) = total.filter(|total| *total > Quantity::ZERO) else { return false };
    requests(strategy).iter().any(|direction| {
        let quantities = direction.iter().filter_map(|request| match request {
            IntOrString::Int(_) => None,
            IntOrString::String(text) => text.parse::<Quantity>().ok(),
        });
        quantities.sum::<Quantity>() > total
    })
}

/// The bandwidth of the system-config item for the same nodes, or of the cluster when there are no
/// items. An item without a bandwidth has the cluster's.
fn bandwidth_of(item: &NodeItem<ResourceQosStrategy>, system: &Document<SystemPartial>) -> Option<Quantity> {
    let cluster = system.cluster.total_network_bandwidth;
    if system.nodes.is_empty() {
        return cluster;
    }
    let same = system.nodes.iter().find(|other| other.selector == item.selector)?;
    same.strategy.total_network_bandwidth.or(cluster)
}
