//! Group identity: who runs first on kernels that know cpu.bvt_warp_ns. Spec: koordlet-enforce 15.1.

use std::fmt;

use koord_api::annotation::Annotation;
use koord_api::annotation::node_side::PodCpuQos;
use koord_api::crd::node_slo::{CpuPolicy, HostApplicationSpec, ResourceQos, ResourceQosStrategy};
use koord_api::qos::{KubeQos, Qos};

use super::number;
use crate::decide::snapshot::Pod;
use crate::decide::wish::{File, Place, Why, Wish};

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
    fn of_qos(&self, qos: Option<Qos>, kube: KubeQos) -> Identity {
        match (qos, kube) {
            (Some(Qos::Lse | Qos::Lsr), _) => Identity::of_class(Qos::Lsr, self.lsr),
            (Some(Qos::Ls), _) => Identity::of_class(Qos::Ls, self.ls),
            (Some(Qos::Be), _) => Identity::of_class(Qos::Be, self.be),
            (_, KubeQos::Guaranteed) if self.lsr.is_some() => Identity::of_class(Qos::Lsr, self.lsr),
            (_, KubeQos::Guaranteed | KubeQos::Burstable) => Identity::of_class(Qos::Ls, self.ls),
            (_, KubeQos::BestEffort) => Identity::of_class(Qos::Be, self.be),
        }
    }

    /// The identity of a Kubernetes class's group. The root of all pods has none, or pods could not differ.
    pub fn of_dir(&self, kube: KubeQos) -> Identity {
        match kube {
            KubeQos::Guaranteed => Identity { value: 0, source: Source::Root },
            KubeQos::Burstable => Identity::of_class(Qos::Ls, self.ls),
            KubeQos::BestEffort => Identity::of_class(Qos::Be, self.be),
        }
    }

    /// The identity of a pod, with its annotation where it is LS.
    pub fn of_pod(&self, pod: &Pod) -> Result<Identity, String> {
        // A broken annotation fails pods of every class.
        let own = pod.cpu_qos.as_ref().map_err(|error| error.reason())?;
        let annotated = |value: i64| Identity { value, source: Source::Annotation };
        let of_class = || self.of_qos(pod.qos, pod.id.kube_qos);
        Ok(match own.as_ref().filter(|_| pod.qos == Some(Qos::Ls)) {
            Some(own) if own.0.enable == Some(true) => own.0.group_identity.map_or_else(of_class, annotated),
            Some(_) => annotated(0),
            None => of_class(),
        })
    }

    pub fn of_application(&self, application: &HostApplicationSpec) -> Identity {
        match Qos::parse(&application.qos) {
            Some(Qos::System) | None => Identity { value: 0, source: Source::NoClass },
            qos => self.of_qos(qos, KubeQos::Guaranteed),
        }
    }
}

/// What a group's file should hold, and what it follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub value: i64,
    pub source: Source,
}

/// What an identity follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// None when the class is off.
    Class { class: Qos, identity: Option<i64> },
    /// Of the pod.
    Annotation,
    /// Pods could not differ if the group of all had one.
    Root,
    /// A host application of no class that has one.
    NoClass,
    /// The kernel's switches, while a class is on.
    Switched,
}

impl Identity {
    fn of_class(class: Qos, identity: Option<i64>) -> Identity {
        Identity { value: identity.unwrap_or(0), source: Source::Class { class, identity } }
    }

    pub fn wish(self, place: Place) -> Wish {
        number(place, File::CpuBvtWarp, self.value).because(&Why::Identity(self.source))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Class { class, identity: Some(identity) } => {
                write!(f, "class {}, groupIdentity {identity}", class.as_str())
            }
            Source::Class { class, identity: None } => write!(f, "class {} is off", class.as_str()),
            Source::Annotation => write!(f, "annotation {}", PodCpuQos::KEY),
            Source::Root => f.write_str("the root of all pods has none"),
            Source::NoClass => f.write_str("its class has none"),
            Source::Switched => f.write_str("group identities are on, which excludes core scheduling"),
        }
    }
}

/// Switches that must be thrown before identities count: core scheduling and they exclude each other.
pub fn kernel_wishes(rule: &Rule, kernel: Switches) -> Vec<Wish> {
    if !rule.is_on() {
        return Vec::new();
    }
    let switch = |file: File, is_on: bool| {
        number(Place::Host, file, i64::from(is_on)).because(&Why::Identity(Source::Switched))
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
    let mut wishes = kernel_wishes(rule, kernel);
    wishes.extend(class_wishes(rule));
    for pod in pods {
        let identity = rule.of_qos(pod.qos, pod.id.kube_qos);
        wishes.push(identity.wish(pod.place()));
        wishes.extend(below(pod).into_iter().map(|place| identity.wish(place)));
    }
    wishes.extend(application_wishes(rule, applications));
    for left in dangling {
        let identity = rule.of_dir(left.kube_qos);
        wishes.push(identity.wish(left.pod.clone()));
        wishes.extend(left.containers.iter().map(|place| identity.wish(place.clone())));
    }
    wishes
}

/// Groups of the Kubernetes classes.
pub fn class_wishes(rule: &Rule) -> [Wish; 3] {
    KubeQos::ALL.map(|kube| rule.of_dir(kube).wish(Place::Kube(kube)))
}

/// Groups of applications beside the pods.
pub fn application_wishes(rule: &Rule, applications: &[HostApplicationSpec]) -> impl Iterator<Item = Wish> {
    applications.iter().map(|app| rule.of_application(app).wish(Place::of_application(app)))
}

/// A pod's own identity.
pub fn pod_wish(rule: &Rule, kernel: Switches, pod: &Pod) -> Result<Option<Wish>, String> {
    if !rule.is_in_force(kernel) {
        return Ok(None);
    }
    rule.of_pod(pod).map(|identity| Some(identity.wish(pod.place())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        let value = |rule: &Rule, pod: &Pod| rule.of_pod(pod).map(|identity| identity.value);
        assert_eq!(value(&all, &ls), Ok(2), "koordlet-enforce#18.81");
        assert_eq!(KubeQos::ALL.map(|kube| all.of_dir(kube).value), [0, 2, -1], "koordlet-enforce#18.81");
        let none = pod("p").kube_qos("Guaranteed").read();
        assert_eq!(value(&rule(false, true, true), &none), Ok(2), "koordlet-enforce#18.82");
        for (key, rule, pod, want) in [
            ("koordlet-enforce#18.83", all, annotated("LS", r#"{"groupIdentity":-1}"#), Ok(0)),
            ("koordlet-enforce#18.84", all, annotated("LS", r#"{"enable":true,"groupIdentity":-1}"#), Ok(-1)),
            ("koordlet-enforce#18.85", all, annotated("BE", r#"{"enable":true,"groupIdentity":-1}"#), Ok(-1)),
            ("koordlet-enforce#18.85", all, annotated("BE", r#"{"enable":true,"groupIdentity":1}"#), Ok(-1)),
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
            assert_eq!(value(&rule, &pod), want, "{key}");
        }
    }

    #[test]
    fn sources_are_told() {
        let only_ls = rule(false, true, false);
        let kernel = Switches { group_identity: Some(false), core_sched: None };
        let own = annotated("LS", r#"{"enable":true,"groupIdentity":-1}"#);
        let told = |pod: &Pod| pod_wish(&only_ls, kernel, pod).unwrap().unwrap().audit_message(None);
        let none = [HostApplicationSpec { qos: "SYSTEM".into(), ..HostApplicationSpec::default() }];
        let rest = kernel_wishes(&only_ls, kernel).into_iter().chain(class_wishes(&only_ls));
        let rest = rest.chain(application_wishes(&only_ls, &none)).map(|wish| wish.audit_message(None));
        let pods = [pod("p").qos("LS").read(), pod("p").qos("BE").read(), own];
        let all: Vec<String> = pods.iter().map(told).chain(rest).collect();
        let want = [
            "cpu.bvt_warp_ns to 2; class LS, groupIdentity 2",
            "cpu.bvt_warp_ns to 0; class BE is off",
            "cpu.bvt_warp_ns to -1; annotation koordinator.sh/cpuQOS",
            "sched_group_identity_enabled to 1; group identities are on, which excludes core scheduling",
            "cpu.bvt_warp_ns to 0; the root of all pods has none",
            "cpu.bvt_warp_ns to 2; class LS, groupIdentity 2",
            "cpu.bvt_warp_ns to 0; class BE is off",
            "cpu.bvt_warp_ns to 0; its class has none",
        ];
        assert_eq!(all, want.map(|text| format!("update {text}")));
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
            ["LS", "BE", "SYSTEM", ""].map(|qos| all.of_application(&application(qos)).value),
            [2, -1, 0, 0]
        );
    }
}
