//! What hooks say when a runtime asks about a pod or a container that is about to be there. Spec: koordlet-enforce 14.2, 14.3.
//!
//! Pure. [`HOOKS`] is the table of hooks with the stages that each takes part in; [`called`] asks those of one stage, one
//! after the other. What the runtime can set travels back to it ([`Values`]); the rest is written by us.

use std::fmt;

use koord_api::annotation::ratio::Ratio;
use koord_api::gate::Gates;

use super::{batch_resource, cpu_normalization, cpuset, gpu, group_identity, number};
use crate::decide::convert::{UNLIMITED, scaled_quota};
use crate::decide::snapshot::{Layout, Pod};
use crate::decide::why::Why;
use crate::decide::wish::{File, Place, Wish};

/// A moment in the life of a pod at which runtimes ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    PreRunPodSandbox,
    PreCreateContainer,
    PreUpdateContainerResources,
    /// Only NRI asks then.
    PreRemoveRunPodSandbox,
}

impl Stage {
    pub const ALL: [Stage; 4] = [
        Stage::PreRunPodSandbox,
        Stage::PreCreateContainer,
        Stage::PreUpdateContainerResources,
        Stage::PreRemoveRunPodSandbox,
    ];

    /// As configuration files and metrics spell it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::PreRunPodSandbox => "PreRunPodSandbox",
            Stage::PreCreateContainer => "PreCreateContainer",
            Stage::PreUpdateContainerResources => "PreUpdateContainerResources",
            Stage::PreRemoveRunPodSandbox => "PreRemoveRunPodSandbox",
        }
    }
}

/// What hooks go by beside the pod itself.
pub struct Rules<'r> {
    pub gates: &'r Gates,
    /// None before the node's topology was reported.
    pub layout: Option<&'r Layout>,
    pub batch: batch_resource::Rule,
    pub ratio: Option<Ratio>,
    /// None where the kernel knows no identities, or no strategy is known.
    pub identity: Option<(group_identity::Rule, group_identity::Switches)>,
    pub is_quota_unset_disabled: bool,
    pub hami: &'r gpu::Hami,
}

/// A pod, or one container of it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub pod: Pod,
    /// None for the pod itself.
    pub container: Option<AskedContainer>,
}

/// What a runtime tells of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedContainer {
    pub name: String,
    /// That kubelet asks for; 0 when it says nothing.
    pub quota: i64,
}

/// What should be so; what is none stays as it was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    pub shares: Option<Wanted>,
    pub quota: Option<Wanted>,
    pub memory: Option<Wanted>,
    /// An empty list takes away what kubelet asks for.
    pub cpus: Option<cpuset::Choice>,
    pub identity: Option<group_identity::Identity>,
    pub env: Vec<(&'static str, String)>,
}

/// A number, and what it follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub value: i64,
    pub why: Why,
}

impl Wanted {
    pub fn new(value: i64, why: Why) -> Wanted {
        Wanted { value, why }
    }
}

impl Values {
    /// A later word counts.
    pub fn and(self, later: Values) -> Values {
        Values {
            shares: later.shares.or(self.shares),
            quota: later.quota.or(self.quota),
            memory: later.memory.or(self.memory),
            cpus: later.cpus.or(self.cpus),
            identity: later.identity.or(self.identity),
            env: self.env.into_iter().chain(later.env).collect(),
        }
    }

    /// The files of a pod's group, which no runtime sets.
    pub fn wishes(&self, place: &Place) -> Vec<Wish> {
        let files = [
            (File::CpuShares, &self.shares),
            (File::CpuCfsQuota, &self.quota),
            (File::MemoryLimit, &self.memory),
        ];
        let wish = |(file, wanted): (File, &Option<Wanted>)| {
            let Wanted { value, why } = wanted.as_ref()?;
            Some(number(place.clone(), file, *value).because(why))
        };
        let identity = self.identity.map(|identity| identity.wish(place.clone()));
        identity.into_iter().chain(files.into_iter().filter_map(wish)).collect()
    }
}

/// For whoever reads what a runtime was told: every value, with the numbers behind it.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Place::Dir("".into());
        let mut words: Vec<String> = self
            .wishes(&place)
            .iter()
            .map(|wish| format!("{} {}{}", wish.file.name(), wish.value, wish.why))
            .collect();
        if let Some(cpuset::Choice { cpus, because }) = &self.cpus {
            let cpus = if cpus.is_empty() { "none" } else { cpus };
            words.push(format!("{} {cpus}; {because}", File::CpusetCpus.name()));
        }
        words.extend(self.env.iter().map(|(name, value)| format!("{name}={value}")));
        f.write_str(&words.join(". "))
    }
}

/// A hook, as it is asked by runtimes.
pub struct Hook {
    /// In metrics and in the log.
    pub name: &'static str,
    pub gate: &'static str,
    pub stages: &'static [Stage],
    say: fn(&Rules<'_>, &Asked) -> Result<Values, String>,
}

/// Stages at which limits are said.
const LIMITS: &[Stage] =
    &[Stage::PreRunPodSandbox, Stage::PreCreateContainer, Stage::PreUpdateContainerResources];

/// Every hook, in the order of calls, which is that of names.
pub const HOOKS: &[Hook] = &[
    Hook { name: "BatchResource", gate: "BatchResource", stages: LIMITS, say: batch },
    Hook { name: "CPUNormalization", gate: "CPUNormalization", stages: LIMITS, say: normalization },
    Hook { name: "CPUSetAllocator", gate: "CPUSetAllocator", stages: LIMITS, say: cpus },
    Hook { name: "GroupIdentity", gate: "GroupIdentity", stages: &[Stage::PreRunPodSandbox], say: identity },
    // Differs: the group of a pod is made by the reconciler, as soon as kubelet lists the pod; only NRI could name it.
    Hook {
        name: "Resctrl",
        gate: "Resctrl",
        stages: &[Stage::PreRunPodSandbox, Stage::PreCreateContainer, Stage::PreRemoveRunPodSandbox],
        say: |_, _| Ok(Values::default()),
    },
    Hook {
        name: "gpu env inject",
        gate: "GPUEnvInject",
        stages: &[Stage::PreCreateContainer],
        say: gpu_environment,
    },
    // Devices can be said by NRI only.
    Hook {
        name: "rdma device inject",
        gate: "RDMADeviceInject",
        stages: &[Stage::PreCreateContainer],
        say: |_, _| Ok(Values::default()),
    },
];

/// The stages at which somebody has something to say, less those that are not wanted.
pub fn registered(gates: &Gates, disabled: &[String]) -> Vec<&'static str> {
    let is_on =
        |stage: &Stage| HOOKS.iter().any(|hook| gates.is_on(hook.gate) && hook.stages.contains(stage));
    let wanted = Stage::ALL.iter().filter(|stage| is_on(stage)).map(|stage| stage.name());
    wanted.filter(|name| !disabled.iter().any(|other| other == name)).collect()
}

/// Asks the hooks of a stage, each when its turn comes.
pub fn called<'a>(
    rules: &'a Rules<'a>,
    stage: Stage,
    asked: &'a Asked,
) -> impl Iterator<Item = (&'static str, Result<Values, String>)> + 'a {
    let hooks = HOOKS.iter().filter(move |hook| rules.gates.is_on(hook.gate) && hook.stages.contains(&stage));
    hooks.map(|hook| (hook.name, (hook.say)(rules, asked)))
}

fn batch(rules: &Rules<'_>, Asked { pod, container }: &Asked) -> Result<Values, String> {
    let Some(asked) = batch_resource::asked(pod) else { return Ok(Values::default()) };
    let own = match container {
        None => Some(batch_resource::together(&asked)),
        Some(own) => asked.into_iter().find(|asked| asked.container == own.name),
    };
    let Some(own) = own else { return Ok(Values::default()) };
    let (limits, why) = (own.limits(&rules.batch), own.why(&rules.batch));
    let wanted = |value| Some(Wanted::new(value, why.clone()));
    Ok(Values {
        shares: wanted(limits.shares),
        quota: wanted(limits.quota),
        memory: wanted(limits.memory),
        ..Values::default()
    })
}

/// A pod as a whole is left to the reconciler: what its containers may use together is not told before.
fn normalization(rules: &Rules<'_>, Asked { pod, container }: &Asked) -> Result<Values, String> {
    let quota = container.as_ref().map(|container| container.quota).filter(|quota| *quota > 0);
    let (Some(quota), Some(_)) = (quota.filter(|_| cpu_normalization::applies(pod)), rules.ratio) else {
        return Ok(Values::default());
    };
    let scaling = cpu_normalization::Scaling { quota, ratio: rules.ratio };
    let scaled = Wanted::new(scaled_quota(quota, rules.ratio), Why::Normalization(scaling));
    Ok(Values { quota: Some(scaled), ..Values::default() })
}

fn cpus(rules: &Rules<'_>, Asked { pod, container }: &Asked) -> Result<Values, String> {
    let is_unset = cpuset::is_quota_unset(pod, rules.is_quota_unset_disabled);
    let quota = is_unset.then(|| Wanted::new(UNLIMITED, Why::Cpus(cpuset::Because::Pinned)));
    let cpus = match container {
        None => None,
        Some(_) => cpuset::choose(pod, rules.layout, rules.gates.is_on("BECPUManager"))?,
    };
    Ok(Values { quota, cpus, ..Values::default() })
}

fn identity(rules: &Rules<'_>, Asked { pod, .. }: &Asked) -> Result<Values, String> {
    let identity = match rules.identity {
        Some((rule, kernel)) if rule.is_in_force(kernel) => Some(rule.of_pod(pod)?),
        _ => None,
    };
    Ok(Values { identity, ..Values::default() })
}

fn gpu_environment(rules: &Rules<'_>, Asked { pod, container }: &Asked) -> Result<Values, String> {
    let name = container.as_ref().map(|container| container.name.as_str()).unwrap_or_default();
    let injection = gpu::inject(pod, name, rules.hami)?;
    Ok(Values { env: injection.map(|injection| injection.env).unwrap_or_default(), ..Values::default() })
}

#[cfg(test)]
mod tests;
