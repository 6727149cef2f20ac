//! Which CPUs a container runs on. Spec: koordlet-enforce 15.2.

use std::fmt;

use koord_api::annotation::Annotation;
use koord_api::annotation::cpu::ResourceStatus;
use koord_api::annotation::node::SystemQosResource;
use koord_api::annotation::node_topology::CpuSharedPool;
use koord_api::crd::node_slo::HostApplicationSpec;
use koord_api::keys::resource::{BATCH_CPU, CPU};
use koord_api::qos::{KubeQos, Qos};

use super::{container_places, number};
use crate::decide::convert::UNLIMITED;
use crate::decide::snapshot::{Layout, Pod};
use crate::decide::wish::{Cause, File, Place, Value, Why, Wish};

/// The CPUs of a container, and what they follow from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// As it is handed on: pools in their order, not sorted. Empty takes a set away that somebody else gave; it
    /// is never written to a group.
    pub cpus: String,
    pub because: Because,
}

/// What CPUs follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The scheduler pinned the pod.
    Pinned,
    /// The scheduler chose its NUMA nodes.
    NumaNodes,
    /// CPUs of the SYSTEM class.
    System,
    /// CPUs that LS pods share.
    SharePool,
    /// Best-effort pods are limited by their group alone.
    BestEffort,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Pinned => write!(f, "annotation {} has CPUs", ResourceStatus::KEY),
            Because::NumaNodes => {
                write!(f, "share pools of the NUMA nodes in annotation {}", ResourceStatus::KEY)
            }
            Because::System => write!(f, "annotation {} of the node", SystemQosResource::KEY),
            Because::SharePool => f.write_str("the share pools of LS pods"),
            Because::BestEffort => f.write_str("best-effort pods have those of their group"),
        }
    }
}

/// The CPUs of a pod's containers; none when they are kubelet's business, or nothing is known yet.
///
/// `rules` is the node's topology report. `is_be_managed` is the gate BECPUManager.
pub fn choose(pod: &Pod, rules: Option<&Layout>, is_be_managed: bool) -> Result<Option<Choice>, String> {
    let status = pod.resource_status.as_ref().map_err(|error| error.reason())?;
    let chosen = |cpus: String, because: Because| Ok(Some(Choice { cpus, because }));
    if let Some(status) = status.as_ref().filter(|status| !status.cpuset.is_empty()) {
        return chosen(status.cpuset.clone(), Because::Pinned);
    }
    let Some(rules) = rules else { return Ok(None) };
    let is_be = pod.qos == Some(Qos::Be);
    let pools = if is_be { &rules.be_pools } else { &rules.ls_pools };
    let nodes = numa_nodes(pod);
    if !nodes.is_empty() && (!is_be || is_be_managed) {
        let of = |node: &i32| pools.iter().filter(|pool| pool.node == *node).collect::<Vec<_>>();
        return chosen(join(nodes.iter().flat_map(of)), Because::NumaNodes);
    }
    let all = || join(rules.ls_pools.iter());
    match pod.qos {
        Some(Qos::System) if !rules.system.is_empty() => chosen(rules.system.to_string(), Because::System),
        Some(Qos::Ls) => chosen(all(), Because::SharePool),
        _ if pod.id.kube_qos == KubeQos::BestEffort => chosen(String::new(), Because::BestEffort),
        _ if rules.is_kubelet_static => Ok(None),
        _ => chosen(all(), Because::SharePool),
    }
}

/// The NUMA nodes that the scheduler chose, in its order; none unless it gave CPU on one of them.
fn numa_nodes(pod: &Pod) -> Vec<i32> {
    let Ok(Some(status)) = &pod.resource_status else { return Vec::new() };
    let entries = &status.numa_node_resources;
    let has_cpu = entries.iter().any(|entry| {
        [CPU, BATCH_CPU].iter().any(|name| entry.resources.get(*name).is_some_and(|amount| amount.nano() > 0))
    });
    if has_cpu { entries.iter().map(|entry| entry.node).collect() } else { Vec::new() }
}

/// Differs: upstream joins an empty pool, too; the list then begins or ends with a comma, is refused, and pods stay where
/// they are, on CPUs that others have for themselves.
fn join<'a>(pools: impl Iterator<Item = &'a CpuSharedPool>) -> String {
    let lists: Vec<&str> = pools.map(|pool| pool.cpuset.as_str()).filter(|list| !list.is_empty()).collect();
    lists.join(",")
}

/// Whether a pod's quota is taken off: CPUs of its own are limit enough.
pub fn is_quota_unset(pod: &Pod, is_unset_disabled: bool) -> bool {
    pod.is_pinned() && !is_unset_disabled
}

/// What the reconciler writes for a pod: CPUs of its containers and of its sandbox, and quotas of pods pinned
/// as LSE and LSR pods are.
pub fn pod_wishes(
    pod: &Pod,
    sandbox: Option<Place>,
    rules: Option<&Layout>,
    is_be_managed: bool,
    is_unset_disabled: bool,
) -> Result<Vec<Wish>, String> {
    let mut wishes = Vec::new();
    let is_repaired = matches!(pod.qos, None | Some(Qos::Lse | Qos::Lsr));
    let unsets = is_repaired && is_quota_unset(pod, is_unset_disabled);
    if unsets {
        wishes.push(no_quota(pod.place()));
    }
    let Some(choice) = choose(pod, rules, is_be_managed)? else { return Ok(wishes) };
    for place in sandbox.into_iter().chain(container_places(pod)) {
        if unsets {
            wishes.push(no_quota(place.clone()));
        }
        wishes.extend(cpus_wish(place, &choice.cpus, choice.because));
    }
    Ok(wishes)
}

fn no_quota(place: Place) -> Wish {
    number(place, File::CpuCfsQuota, UNLIMITED).because(&Why::Cpus(Because::Pinned))
}

/// Differs: an empty set is never written to a group; the kernel refuses it (item 21).
fn cpus_wish(place: Place, cpus: &str, because: Because) -> Option<Wish> {
    let value = Value::Text(cpus.to_owned());
    let wish = Wish::new(place, File::CpusetCpus, value, Cause::RuntimeHook).because(&Why::Cpus(because));
    (!cpus.is_empty()).then_some(wish)
}

/// The CPUs of host applications, and what is wrong with the others.
pub fn application_wishes(applications: &[HostApplicationSpec], rules: &Layout) -> (Vec<Wish>, Vec<String>) {
    let (mut wishes, mut refused) = (Vec::new(), Vec::new());
    for application in applications {
        match application_wish(application, rules) {
            Ok(wish) => wishes.extend(wish),
            Err(error) => refused.push(error),
        }
    }
    (wishes, refused)
}

/// The CPUs of a host application: only LS ones share the pools.
fn application_wish(application: &HostApplicationSpec, rules: &Layout) -> Result<Option<Wish>, String> {
    match Qos::parse(&application.qos) {
        Some(Qos::Ls) => {
            let place = Place::of_application(application);
            Ok(cpus_wish(place, &join(rules.ls_pools.iter()), Because::SharePool))
        }
        _ => Err(format!("only LS is supported for host application {}", application.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::sketch::{PodSketch, pod};

    fn pool(node: i32, cpuset: &str) -> CpuSharedPool {
        CpuSharedPool { socket: 0, node, cpuset: cpuset.to_string() }
    }

    fn rules(is_kubelet_static: bool) -> Layout {
        Layout {
            is_kubelet_static,
            ls_pools: vec![pool(0, "0-3"), pool(1, "8-11")],
            be_pools: vec![pool(0, "0-7"), pool(1, "8-15")],
            ..Layout::default()
        }
    }

    fn numa(sketch: PodSketch, entries: &str) -> PodSketch {
        sketch.placed(&format!(r#"{{"numaNodeResources":[{entries}]}}"#))
    }

    #[test]
    fn reasons_are_told() {
        let key = ResourceStatus::KEY;
        let system = Layout { system: "6-7".parse().unwrap(), ..rules(false) };
        let told = |sketch: PodSketch, rules: &Layout| -> Vec<String> {
            let pod = sketch.container("c", &[("cpu", "1")], &[]).running().read();
            let wishes = pod_wishes(&pod, None, Some(rules), false, false).unwrap();
            wishes.iter().map(|wish| wish.audit_message(None)).collect()
        };
        let nodes = numa(pod("p").qos("LS"), r#"{"node":1,"resources":{"cpu":"2"}}"#);
        for (sketch, want) in [
            (
                pod("p").qos("LS"),
                vec!["update cpuset.cpus to 0-3,8-11; the share pools of LS pods".to_owned()],
            ),
            (
                pod("p").qos("LSR").pinned("4-5"),
                vec![
                    format!("update cpu.cfs_quota_us to -1; annotation {key} has CPUs"),
                    format!("update cpu.cfs_quota_us to -1; annotation {key} has CPUs"),
                    format!("update cpuset.cpus to 4-5; annotation {key} has CPUs"),
                ],
            ),
            (
                nodes,
                vec![format!(
                    "update cpuset.cpus to 8-11; share pools of the NUMA nodes in annotation {key}"
                )],
            ),
            (
                pod("p").qos("SYSTEM"),
                vec![format!("update cpuset.cpus to 6-7; annotation {} of the node", SystemQosResource::KEY)],
            ),
        ] {
            assert_eq!(told(sketch, &system), want);
        }
    }

    #[test]
    fn choices() {
        let burstable = |name: &str| pod(name).container("c", &[("cpu", "1")], &[]);
        let ls = || burstable("p").qos("LS");
        let be = || pod("p").qos("BE");
        let system = || burstable("p").qos("SYSTEM");
        let guaranteed = || pod("p").kube_qos("Guaranteed");
        let node1 = r#"{"node":1,"resources":{"cpu":"2"}}"#;
        let batch = r#"{"node":1,"resources":{"kubernetes.io/batch-cpu":"2k"}}"#;
        let both = r#"{"node":1,"resources":{"cpu":"2"}},{"node":0,"resources":{"memory":"1Gi"}}"#;
        let away = r#"{"node":5,"resources":{"cpu":"2"}}"#;
        let memory_only = r#"{"node":1,"resources":{"memory":"1Gi"}}"#;
        let (dynamic, fixed) = (rules(false), rules(true));
        for (key, pod, rules, is_managed, want) in [
            ("koordlet-enforce#18.87", ls().qos("LSR").pinned("4-7"), &dynamic, false, Some("4-7")),
            ("koordlet-enforce#18.88", ls(), &dynamic, false, Some("0-3,8-11")),
            ("koordlet-enforce#18.89", numa(ls(), node1), &dynamic, false, Some("8-11")),
            ("koordlet-enforce#18.90", guaranteed(), &fixed, false, None),
            ("koordlet-enforce#18.91", burstable("p"), &dynamic, false, Some("0-3,8-11")),
            ("koordlet-enforce#18.92", pod("p"), &dynamic, false, Some("")),
            ("koordlet-enforce#18.199", numa(ls(), both), &dynamic, false, Some("8-11,0-3")),
            ("koordlet-enforce#18.200", numa(ls(), away), &dynamic, false, Some("")),
            ("koordlet-enforce#18.201", guaranteed().qos("LSR"), &dynamic, false, Some("0-3,8-11")),
            ("koordlet-enforce#18.201", guaranteed().qos("LSR"), &fixed, false, None),
            ("koordlet-enforce#18.202", numa(be(), batch), &dynamic, false, Some("")),
            ("koordlet-enforce#18.202", numa(be(), batch), &dynamic, true, Some("8-15")),
            ("koordlet-enforce#18.203", be().pinned("4-7"), &dynamic, false, Some("4-7")),
            ("koordlet-enforce#18.204", system(), &dynamic, false, Some("0-3,8-11")),
            ("koordlet-enforce#18.204", system(), &fixed, false, None),
            ("without any cpu", numa(ls(), memory_only), &dynamic, false, Some("0-3,8-11")),
        ] {
            let got = choose(&pod.read(), Some(rules), is_managed).unwrap();
            assert_eq!(got.map(|choice| choice.cpus).as_deref(), want, "{key}");
        }
        assert_eq!(choose(&ls().read(), None, false), Ok(None), "no rule yet");
        assert!(choose(&ls().placed("{").read(), Some(&dynamic), false).is_err());
        let with_system = Layout { system: "0-1".parse().unwrap(), ..rules(false) };
        let got = choose(&system().read(), Some(&with_system), false).unwrap().unwrap();
        assert_eq!((got.cpus.as_str(), got.because), ("0-1", Because::System));
    }

    #[test]
    fn quotas_of_pinned_pods() {
        let lsr = pod("p").qos("LSR").pinned("4-7").container("c", &[], &[]).running();
        let texts = |pod: &PodSketch, is_disabled| -> Vec<String> {
            let wishes = pod_wishes(&pod.read(), None, Some(&rules(false)), false, is_disabled).unwrap();
            wishes.iter().map(|wish| format!("{} {}", wish.file.name(), wish.value)).collect()
        };
        let want = ["cpu.cfs_quota_us -1", "cpu.cfs_quota_us -1", "cpuset.cpus 4-7"];
        assert_eq!(texts(&lsr, false), want, "koordlet-enforce#18.87");
        assert_eq!(texts(&lsr, true), ["cpuset.cpus 4-7"]);
        let be = pod("p").qos("BE").pinned("4-7");
        assert!(is_quota_unset(&be.read(), false), "koordlet-enforce#18.203");
        let best_effort = pod("p").container("c", &[], &[]).running();
        assert_eq!(texts(&best_effort, false), Vec::<String>::new(), "an empty set is not written");
    }

    #[test]
    fn applications() {
        let application =
            |qos: &str| HostApplicationSpec { name: "x".into(), qos: qos.into(), ..Default::default() };
        let (wishes, refused) = application_wishes(&[application("LS"), application("BE")], &rules(false));
        let cpus: Vec<String> = wishes.iter().map(|wish| wish.value.to_string()).collect();
        assert_eq!(cpus, ["0-3,8-11"]);
        assert_eq!(refused, ["only LS is supported for host application x"]);
    }
}
