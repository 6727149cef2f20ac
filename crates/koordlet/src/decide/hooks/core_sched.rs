//! Core scheduling: which threads may share a physical core at one moment. Spec: koordlet-enforce 15.5.
//!
//! `Rule` says which group a pod belongs to; `cookies` keeps the kernel's cookies of groups and says what to do
//! about one container.

pub mod cookies;

use std::fmt;

use koord_api::annotation::core_sched::CoreSched;
use koord_api::crd::node_slo::{CpuPolicy, ResourceQos, ResourceQosStrategy};
use koord_api::qos::{KubeQos, Qos};

use super::number;
use crate::decide::snapshot::Pod;
use crate::decide::wish::{Cause, File, Place, Value, Why, Wish};

/// What holds for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    pub is_enabled: bool,
    /// Best-effort pods are driven off the sibling threads of its cores.
    pub is_expeller: bool,
    /// It gives way to everyone else.
    pub is_idle: bool,
}

/// What holds for the classes of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub lsr: Class,
    pub ls: Class,
    pub be: Class,
}

/// What is wanted of one pod's threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// They are not looked at: system pods, the agent itself among them.
    Untouched,
    /// They have the system's cookie, 0. The group is the one they would be in.
    NoCookie { group: String },
    /// They share a cookie with the other pods of the group.
    Group(String),
}

impl Rule {
    pub fn of(strategy: &ResourceQosStrategy) -> Rule {
        let policy = strategy.policies.as_ref().and_then(|policies| policies.cpu_policy.as_ref());
        let is_ours = policy == Some(&CpuPolicy::CoreSched);
        let class = |class: &Option<ResourceQos>| {
            let cpu = class.as_ref().and_then(|class| class.cpu_qos.clone()).unwrap_or_default();
            Class {
                is_enabled: is_ours && cpu.enable == Some(true),
                is_expeller: is_ours && cpu.core_expeller == Some(true),
                is_idle: is_ours && cpu.sched_idle == Some(1),
            }
        };
        Rule { lsr: class(&strategy.lsr_class), ls: class(&strategy.ls_class), be: class(&strategy.be_class) }
    }

    pub fn is_on(&self) -> bool {
        self.lsr.is_enabled || self.ls.is_enabled || self.be.is_enabled
    }

    fn of_kube(&self, kube: KubeQos) -> Class {
        match kube {
            KubeQos::Guaranteed if self.lsr.is_enabled => self.lsr,
            KubeQos::Guaranteed | KubeQos::Burstable => self.ls,
            KubeQos::BestEffort => self.be,
        }
    }

    /// What holds for a pod.
    pub fn of_pod(&self, pod: &Pod) -> Class {
        match pod.qos {
            Some(Qos::Lse | Qos::Lsr) => self.lsr,
            Some(Qos::Ls) => self.ls,
            Some(Qos::Be) => self.be,
            Some(Qos::System) | None => self.of_kube(pod.id.kube_qos),
        }
    }

    /// The group of a pod's threads.
    pub fn want(&self, pod: &Pod) -> Want {
        let class = self.of_pod(pod);
        match &pod.core_sched[usize::from(class.is_expeller)] {
            CoreSched::Untouched => Want::Untouched,
            CoreSched::NoCookie => Want::NoCookie { group: String::new() },
            CoreSched::Group(group) if class.is_enabled => Want::Group(group.clone()),
            CoreSched::Group(group) => Want::NoCookie { group: group.clone() },
        }
    }

    /// cpu.idle of the Kubernetes classes' groups.
    pub fn idle_wishes(&self) -> Vec<Wish> {
        let idle = |kube: KubeQos| {
            let class = self.of_kube(kube);
            let why = Why::CoreSched(Because::Class { kube, class });
            number(Place::Kube(kube), File::CpuIdle, i64::from(class.is_idle)).because(&why)
        };
        KubeQos::ALL.map(idle).to_vec()
    }
}

/// What values of the node follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    Class {
        kube: KubeQos,
        class: Class,
    },
    /// Core scheduling is on.
    Switched,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Class { kube, class } => write!(f, "class of {kube:?} pods: {class}"),
            Because::Switched => f.write_str("cpuPolicy coreSched is on, which excludes group identities"),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Class { is_enabled, is_expeller, is_idle } = self;
        write!(f, "enable {is_enabled}, coreExpeller {is_expeller}, schedIdle {}", u8::from(*is_idle))
    }
}

/// What the kernel has of core scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Nothing to switch on.
    Mainline,
    /// A switch, or a scheduler feature where there is none.
    Anolis { has_switch: bool },
}

/// Switches that must be thrown first: group identity and core scheduling exclude each other.
pub fn kernel_wishes(kernel: Kernel, has_group_identity: bool) -> Vec<Wish> {
    let switch = |file: File, value: Value| {
        let why = Why::CoreSched(Because::Switched);
        Wish::new(Place::Host, file, value, Cause::RuntimeHook).because(&why)
    };
    let identity = has_group_identity.then(|| switch(File::SchedGroupIdentityEnabled, Value::Number(0)));
    let own = match kernel {
        Kernel::Mainline => None,
        Kernel::Anolis { has_switch: true } => Some(switch(File::SchedCore, Value::Number(1))),
        Kernel::Anolis { has_switch: false } => {
            Some(switch(File::SchedFeatures, Value::Text("CORE_SCHED\n".to_owned())))
        }
    };
    identity.into_iter().chain(own).collect()
}

#[cfg(test)]
mod tests;
