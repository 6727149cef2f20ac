//! Group identity: who runs first on kernels that know cpu.bvt_warp_ns. Spec: koordlet-enforce 15.1.

use koord_api::crd::node_slo::{CpuPolicy, HostApplicationSpec, ResourceQos, ResourceQosStrategy};
use koord_api::qos::{KubeQos, Qos};

use super::number;
use crate::decide::snapshot::Pod;
use crate::decide::wish::{Cause, File, Place, Value, Wish};

/// Identity of each class; none when the class is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub lsr: Option<i64>,
    pub ls: Option<i64>,
    pub be: Option<i64>,
}

/// What the kernel's own switches say; none where there is no such switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    pub group_identity: Option<bool>,
    pub core_sched: Option<bool>,
}

impl Rule {
    pub fn of(strategy: &ResourceQosStrategy) -> Rule {
        let policy = strategy.policies.as_ref().and_then(|policies| policies.cpu_policy.as_ref());
        let is_ours = match policy {
            None | Some(CpuPolicy::GroupIdentity) => true,
            Some(other) => other.as_str().is_empty(),
        };
        let identity = |class: &Option<ResourceQos>| {
            let cpu = class.as_ref()?.cpu_qos.as_ref()?;
            (is_ours && cpu.enable == Some(true)).then(|| cpu.group_identity.unwrap_or(0))
        };
        Rule {
            lsr: identity(&strategy.lsr_class),
            ls: identity(&strategy.ls_class),
            be: identity(&strategy.be_class),
        }
    }

    pub fn is_on(&self) -> bool {
        self.lsr.is_some() || self.ls.is_some() || self.be.is_some()
    }

    /// Whether anything is written: with every class off a kernel that is switched off is left alone.
    pub fn is_in_force(&self, kernel: Switches) -> bool {
        self.is_on() || kernel.group_identity != Some(false)
    }

    /// The identity of a class's pods.
    fn of_qos(&self, qos: Option<Qos>, kube: KubeQos) -> i64 {
        match (qos, kube) {
            (Some(Qos::Lse | Qos::Lsr), _) => self.lsr.unwrap_or(0),
            (Some(Qos::Ls), _) => self.ls.unwrap_or(0),
            (Some(Qos::Be), _) => self.be.unwrap_or(0),
            (_, KubeQos::Guaranteed) => self.lsr.or(self.ls).unwrap_or(0),
            (_, KubeQos::Burstable) => self.ls.unwrap_or(0),
            (_, KubeQos::BestEffort) => self.be.unwrap_or(0),
        }
    }

    /// The identity of a Kubernetes class's group. The root of all pods has none, or pods could not differ.
    pub fn of_dir(&self, kube: KubeQos) -> i64 {
        match kube {
            KubeQos::Guaranteed => 0,
            KubeQos::Burstable => self.ls.unwrap_or(0),
            KubeQos::BestEffort => self.be.unwrap_or(0),
        }
    }

    /// The identity of a pod, with its annotation where it is LS.
    pub fn of_pod(&self, pod: &Pod) -> Result<i64, String> {
        // A broken annotation fails pods of every class.
        let own = pod.cpu_qos.as_ref().map_err(|error| error.reason())?;
        match own.as_ref().filter(|_| pod.qos == Some(Qos::Ls)) {
            Some(own) if own.0.enable == Some(true) => {
                Ok(own.0.group_identity.unwrap_or_else(|| self.of_qos(pod.qos, pod.id.kube_qos)))
            }
            Some(_) => Ok(0),
            None => Ok(self.of_qos(pod.qos, pod.id.kube_qos)),
        }
    }

    pub fn of_application(&self, application: &HostApplicationSpec) -> i64 {
        match Qos::parse(&application.qos) {
            Some(Qos::System) | None => 0,
            qos => self.of_qos(qos, KubeQos::Guaranteed),
        }
    }
}

/// Switches that must be thrown before identities count: core scheduling and they exclude each other.
pub fn kernel_wishes(rule: &Rule, kernel: Switches) -> Vec<Wish> {
    if !rule.is_on() {
        return Vec::new();
    }
    let switch = |file: File, is_on: bool| {
        Wish::new(Place::Host, file, Value::Number(i64::from(is_on)), Cause::RuntimeHook)
    };
    let core_sched = kernel.core_sched.map(|_| switch(File::SchedCore, false));
    let identity = kernel.group_identity.map(|_| switch(File::SchedGroupIdentityEnabled, true));
    core_sched.into_iter().chain(identity).collect()
}

/// A pod's group found on disk that no pod of the list owns, with the groups below.
#[derive(Clone, Debug, PartialEq)]
pub struct Dangling {
    pub kube_qos: KubeQos,
    pub pod: Place,
    pub containers: Vec<Place>,
}

/// All that a changed rule means: classes, pods and the groups below them on disk, host applications, then what
/// is left on disk. Pods' own annotations are looked at when pods are reconciled, not here.
pub fn rule_changed(
    rule: &Rule,
    kernel: Switches,
    pods: &[Pod],
    below: impl Fn(&Pod) -> Vec<Place>,
    applications: &[HostApplicationSpec],
    dangling: &[Dangling],
) -> Vec<Wish> {
    if !rule.is_in_force(kernel) {
        return Vec::new();
    }
    let bvt = |place: Place, value: i64| number(place, File::CpuBvtWarp, value);
    let mut wishes = kernel_wishes(rule, kernel);
    wishes.extend(KubeQos::ALL.map(|kube| bvt(Place::Kube(kube), rule.of_dir(kube))));
    for pod in pods {
        let value = rule.of_qos(pod.qos, pod.id.kube_qos);
        wishes.push(bvt(pod.place(), value));
        wishes.extend(below(pod).into_iter().map(|place| bvt(place, value)));
    }
    let apps = applications.iter();
    wishes.extend(apps.map(|app| bvt(Place::of_application(app), rule.of_application(app))));
    for left in dangling {
        let value = rule.of_dir(left.kube_qos);
        wishes.push(bvt(left.pod.clone(), value));
        wishes.extend(left.containers.iter().map(|place| bvt(place.clone(), value)));
    }
    wishes
}

/// A pod's own identity.
pub fn pod_wish(rule: &Rule, kernel: Switches, pod: &Pod) -> Result<Option<Wish>, String> {
    if !rule.is_in_force(kernel) {
        return Ok(None);
    }
    rule.of_pod(pod).map(|value| Some(number(pod.place(), File::CpuBvtWarp, value)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use koord_api::annotation::Annotation;
    use koord_api::annotation::node_side::PodCpuQos;
    use koord_api::slo::defaults;

    use super::*;
    use crate::decide::sketch::{PodSketch, pod};

    /// The built-in identities with some classes on.
    fn rule(lsr: bool, ls: bool, be: bool) -> Rule {
        let mut strategy = defaults::qos();
        let classes = [&mut strategy.lsr_class, &mut strategy.ls_class, &mut strategy.be_class];
        for (class, is_on) in classes.into_iter().flatten().zip([lsr, ls, be]) {
            class.cpu_qos.as_mut().unwrap().enable = Some(is_on);
        }
        Rule::of(&strategy)
    }

    fn annotated(qos: &str, text: &str) -> Pod {
        pod("p").qos(qos).annotated(PodCpuQos::KEY, text).read()
    }

    #[test]
    fn identities() {
        let all = rule(true, true, true);
        let ls = pod("p").qos("LS").read();
        assert_eq!(all.of_pod(&ls), Ok(2), "koordlet-enforce#18.81");
        assert_eq!(KubeQos::ALL.map(|kube| all.of_dir(kube)), [0, 2, -1], "koordlet-enforce#18.81");
        let none = pod("p").kube_qos("Guaranteed").read();
        assert_eq!(rule(false, true, true).of_pod(&none), Ok(2), "koordlet-enforce#18.82");
        for (key, rule, pod, want) in [
            ("koordlet-enforce#18.83", all, annotated("LS", r#"{"groupIdentity":-1}"#), Ok(0)),
            ("koordlet-enforce#18.84", all, annotated("LS", r#"{"enable":true,"groupIdentity":-1}"#), Ok(-1)),
            ("koordlet-enforce#18.85", all, annotated("BE", r#"{"enable":true,"groupIdentity":-1}"#), Ok(-1)),
            (
                "koordlet-enforce#18.86",
                all,
                annotated("LS", r#"{"groupIdentity":3}"#),
                Err("bad group identity value: 3".to_string()),
            ),
            (
                "koordlet-enforce#18.195",
                rule(true, false, true),
                annotated("LS", r#"{"enable":true,"groupIdentity":1}"#),
                Ok(1),
            ),
            (
                "koordlet-enforce#18.196",
                all,
                annotated("BE", r#"{"groupIdentity":3}"#),
                Err("bad group identity value: 3".to_string()),
            ),
        ] {
            assert_eq!(rule.of_pod(&pod), want, "{key}");
        }
    }

    #[test]
    fn all_classes_off() {
        let off = rule(false, false, false);
        let pods = [pod("p").qos("LS").read()];
        let written = |group_identity| {
            let kernel = Switches { group_identity, core_sched: None };
            let all = rule_changed(&off, kernel, &pods, |_| Vec::new(), &[], &[]);
            let own = pod_wish(&off, kernel, &pods[0]).unwrap();
            all.into_iter().chain(own).map(|wish| wish.value.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(written(None), ["0"; 5], "koordlet-enforce#18.197");
        assert_eq!(written(Some(false)), Vec::<String>::new(), "koordlet-enforce#18.197");
    }

    #[test]
    fn a_changed_rule() {
        let text = r#"{"enable":true,"groupIdentity":-1}"#;
        let ls: PodSketch = pod("p").qos("LS").annotated(PodCpuQos::KEY, text).container("c", &[], &[]);
        let pods = [ls.running().read()];
        let dir = |name: &str| Place::Dir(Arc::from(name));
        let left =
            Dangling { kube_qos: KubeQos::BestEffort, pod: dir("pod-x"), containers: vec![dir("pod-x/c")] };
        let kernel = Switches { group_identity: Some(false), core_sched: Some(true) };
        let containers = |pod: &Pod| pod.containers.iter().filter_map(|c| c.place(pod)).collect();
        let wishes = rule_changed(&rule(true, true, true), kernel, &pods, containers, &[], &[left]);
        let told: Vec<(&Place, String)> =
            wishes.iter().map(|wish| (&wish.place, format!("{} {}", wish.file.name(), wish.value))).collect();
        let bvt = |value: i64| format!("cpu.bvt_warp_ns {value}");
        let want = [
            (Place::Host, "sched_core 0".to_string()),
            (Place::Host, "sched_group_identity_enabled 1".to_string()),
            (Place::Kube(KubeQos::Guaranteed), bvt(0)),
            (Place::Kube(KubeQos::Burstable), bvt(2)),
            (Place::Kube(KubeQos::BestEffort), bvt(-1)),
            (pods[0].place(), bvt(2)),
            (pods[0].containers[0].place(&pods[0]).unwrap(), bvt(2)),
            (dir("pod-x"), bvt(-1)),
            (dir("pod-x/c"), bvt(-1)),
        ];
        let want: Vec<(&Place, String)> = want.iter().map(|(place, text)| (place, text.clone())).collect();
        assert_eq!(told, want, "koordlet-enforce#18.198");
    }

    #[test]
    fn another_policy() {
        let mut strategy = defaults::qos();
        strategy.policies.as_mut().unwrap().cpu_policy = Some(CpuPolicy::CoreSched);
        strategy.ls_class.as_mut().unwrap().cpu_qos.as_mut().unwrap().enable = Some(true);
        assert!(!Rule::of(&strategy).is_on());
        let application =
            |qos: &str| HostApplicationSpec { qos: qos.into(), ..HostApplicationSpec::default() };
        let all = rule(true, true, true);
        assert_eq!(
            ["LS", "BE", "SYSTEM", ""].map(|qos| all.of_application(&application(qos))),
            [2, -1, 0, 0]
        );
    }
}
