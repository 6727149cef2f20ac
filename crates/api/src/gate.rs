//! Feature gates: which switches each component knows, and a set of them resolved once at start.
//!
//! Change a default in the tables; nothing else knows one. Spec: api 9.

use std::collections::{BTreeMap, BTreeSet};

/// How finished a feature is. `AllAlpha` and `AllBeta` switch by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Alpha,
    Beta,
    /// No part of `AllAlpha` or `AllBeta`.
    Stable,
    /// As `Stable`, and it stays as it is.
    Locked,
}

/// One switch: its name as operators write it, and what it is when nobody says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    pub default: bool,
    pub stage: Stage,
}

/// Off by default.
const fn alpha(name: &'static str) -> Gate {
    Gate { name, default: false, stage: Stage::Alpha }
}

/// On by default.
const fn beta(name: &'static str) -> Gate {
    Gate { name, default: true, stage: Stage::Beta }
}

/// A process that has gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Manager,
    Scheduler,
    Descheduler,
    Koordlet,
}

impl Component {
    /// Every gate of the component, in table order.
    pub fn gates(self) -> impl Iterator<Item = &'static Gate> {
        let tables: &[&'static [Gate]] = match self {
            // The descheduler's has no effect here, but upstream's manager takes it too.
            Component::Manager => &[&MANAGER, &TRANSFORMERS, &DESCHEDULER],
            Component::Scheduler => &[&SCHEDULER, &TRANSFORMERS, &KUBE_SCHEDULER],
            Component::Descheduler => &[&DESCHEDULER, &TRANSFORMERS],
            Component::Koordlet => &[&KOORDLET, &RUNTIME_HOOKS],
        };
        tables.iter().flat_map(|table| table.iter())
    }
}

/// koord-manager and its webhooks. The two `Elastic…` names lack "Quota" on purpose: so operators know them.
pub const MANAGER: [Gate; 28] = [
    beta("PodMutatingWebhook"),
    beta("PodValidatingWebhook"),
    beta("ElasticMutatingWebhook"),
    beta("ElasticValidatingWebhook"),
    beta("WebhookFramework"),
    alpha("NodeMutatingWebhook"),
    alpha("NodeValidatingWebhook"),
    alpha("ConfigMapValidatingWebhook"),
    alpha("ReservationMutatingWebhook"),
    alpha("ColocationProfileSkipMutatingResources"),
    alpha("ColocationProfileSkipValidatingPriority"),
    alpha("ColocationProfileController"),
    alpha("MultiQuotaTree"),
    alpha("ElasticQuotaIgnorePodOverhead"),
    alpha("ElasticQuotaGuaranteeUsage"),
    alpha("ElasticQuotaEnableUpdateResourceKey"),
    alpha("ElasticQuotaEvaluationTransformPod"),
    alpha("DisableDefaultQuota"),
    alpha("SupportParentQuotaSubmitPod"),
    alpha("EnableQuotaAdmission"),
    alpha("EnableQuotaAdmissionOnUpdate"),
    alpha("EnableSyncGPUSharedResource"),
    alpha("ValidatePodDeviceResource"),
    alpha("EnablePodEnhancedValidator"),
    alpha("DisableExtendedResourceSpec"),
    alpha("DisableDeviceResourceSpec"),
    alpha("BindingAdmissionWebhook"),
    // Ours alone.
    alpha("ExtendedResourceSpecMid"),
];

/// Read-side changes of objects, shared by the components that read them (see `transform`).
pub const TRANSFORMERS: [Gate; 3] = [
    alpha("PriorityTransformer"),
    alpha("PreemptionPolicyTransformer"),
    alpha("ReplaceResourcesTransformer"),
];

/// koord-descheduler.
pub const DESCHEDULER: [Gate; 1] =
    [Gate { name: "DisablePVCReservation", default: false, stage: Stage::Beta }];

/// koord-scheduler.
pub const SCHEDULER: [Gate; 28] = [
    Gate { name: "DynamicSchedulerCheck", default: true, stage: Stage::Alpha },
    beta("GangPendingPodsConditionPatch"),
    beta("EnableBatchScheduleNodeSnapshot"),
    Gate { name: "CSIStorageCapacity", default: true, stage: Stage::Stable },
    Gate { name: "GenericEphemeralVolume", default: true, stage: Stage::Stable },
    Gate { name: "PodDisruptionBudget", default: true, stage: Stage::Stable },
    alpha("CompatibleCSIStorageCapacity"),
    alpha("DisableCSIStorageCapacityInformer"),
    alpha("CompatiblePodDisruptionBudget"),
    alpha("DisablePodDisruptionBudgetInformer"),
    alpha("DisableDynamicResourceAllocationInformer"),
    alpha("ResizePod"),
    alpha("LazyReservationRestore"),
    alpha("OmitNodeLabelsForReservation"),
    alpha("SkipReservationFitsNode"),
    alpha("DevicePluginAdaption"),
    alpha("CleanExpiredReservationAllocated"),
    alpha("SkipFilterWithNominatedPods"),
    alpha("SyncBarrier"),
    alpha("CrossSchedulerNomination"),
    alpha("EnableInlineBatchSchedule"),
    alpha("MultiQuotaTree"),
    alpha("ElasticQuotaIgnorePodOverhead"),
    alpha("ElasticQuotaIgnoreTerminatingPod"),
    alpha("ElasticQuotaImmediateIgnoreTerminatingPod"),
    alpha("ElasticQuotaGuaranteeUsage"),
    alpha("DisableDefaultQuota"),
    alpha("SupportParentQuotaSubmitPod"),
];

/// kube-scheduler's own, of v1.35: koord-scheduler takes its place, so operators set them here.
pub const KUBE_SCHEDULER: [Gate; 33] = [
    beta("SchedulerAsyncPreemption"),
    beta("SchedulerPopFromBackoffQ"),
    Gate { name: "SchedulerAsyncAPICalls", default: false, stage: Stage::Beta },
    beta("OpportunisticBatching"),
    beta("NominatedNodeNameForExpectation"),
    beta("ClearingNominatedNodeNameAfterBinding"),
    beta("MatchLabelKeysInPodTopologySpread"),
    beta("MatchLabelKeysInPodTopologySpreadSelectorMerge"),
    beta("PodLevelResources"),
    beta("MutableCSINodeAllocatableCount"),
    beta("DRAAdminAccess"),
    beta("DRAPrioritizedList"),
    beta("DRAResourceClaimDeviceStatus"),
    beta("DRASchedulerFilterTimeout"),
    alpha("StorageCapacityScoring"),
    alpha("TaintTolerationComparisonOperators"),
    alpha("NodeDeclaredFeatures"),
    alpha("VolumeLimitScaling"),
    alpha("GangScheduling"),
    alpha("GenericWorkload"),
    alpha("InPlacePodLevelResourcesVerticalScaling"),
    alpha("DRAConsumableCapacity"),
    alpha("DRADeviceBindingConditions"),
    alpha("DRADeviceTaintRules"),
    alpha("DRADeviceTaints"),
    alpha("DRAExtendedResource"),
    alpha("DRAPartitionableDevices"),
    Gate { name: "VolumeAttributesClass", default: true, stage: Stage::Stable },
    Gate { name: "SchedulerQueueingHints", default: true, stage: Stage::Locked },
    Gate { name: "DynamicResourceAllocation", default: true, stage: Stage::Locked },
    Gate { name: "SidecarContainers", default: true, stage: Stage::Locked },
    Gate { name: "NodeInclusionPolicyInPodTopologySpread", default: true, stage: Stage::Locked },
    Gate { name: "InPlacePodVerticalScaling", default: true, stage: Stage::Locked },
];

/// koordlet.
pub const KOORDLET: [Gate; 28] = [
    beta("BECPUSuppress"),
    beta("CPUBurst"),
    beta("RdtResctrl"),
    beta("NodeTopologyReport"),
    alpha("AuditEvents"),
    alpha("AuditEventsHTTPHandler"),
    alpha("BECPUManager"),
    alpha("BECPUEvict"),
    alpha("BEMemoryEvict"),
    alpha("CPUEvict"),
    alpha("MemoryEvict"),
    alpha("CPUAllocatableEvict"),
    alpha("MemoryAllocatableEvict"),
    alpha("SystemConfig"),
    alpha("CgroupReconcile"),
    alpha("Accelerators"),
    alpha("RDMADevices"),
    alpha("CPICollector"),
    alpha("Libpfm4"),
    alpha("ResctrlCollector"),
    alpha("PSICollector"),
    alpha("BlkIOReconcile"),
    alpha("ColdPageCollector"),
    alpha("HugePageReport"),
    alpha("PodResourcesProxy"),
    alpha("HamiCoreVGPUMonitor"),
    alpha("PerCPUMetric"),
    alpha("NodeMetricPromMetrics"),
];

/// koordlet's runtime hook plugins, switched by the same flag.
pub const RUNTIME_HOOKS: [Gate; 11] = [
    beta("GroupIdentity"),
    beta("CPUSetAllocator"),
    beta("BatchResource"),
    alpha("GPUEnvInject"),
    alpha("RDMADeviceInject"),
    alpha("CPUNormalization"),
    alpha("CoreSched"),
    alpha("TerwayQoS"),
    alpha("TCNetworkQoS"),
    alpha("Resctrl"),
    alpha("OOMScoreAdj"),
];

/// Switches every gate of one stage that is not named itself.
const ALL: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// The gates of one component, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Exactly the gates of the component.
    enabled: BTreeMap<&'static str, bool>,
}

/// What an operator wrote after `--feature-gates` and we could not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("feature gate {item:?} has no value, write {item}=true or {item}=false")]
    MissingValue { item: String },
    #[error("feature gate {name}={value}: {value:?} is not a boolean, write true or false")]
    NotBool { name: String, value: String },
    #[error("cannot set feature gate {name} to {value}, feature is locked to {}", !.value)]
    Locked { name: &'static str, value: bool },
    #[error("unknown feature gate {name:?}{hint}; known gates: {known}")]
    Unknown { name: String, hint: String, known: String },
}

impl Gates {
    /// What the component does when nobody says anything.
    pub fn defaults(component: Component) -> Gates {
        Gates { enabled: component.gates().map(|g| (g.name, g.default)).collect() }
    }

    /// Resolves `A=true,B=false` (empty items are skipped, spaces around items and names are ignored).
    ///
    /// `AllAlpha` and `AllBeta` switch the gates of their stage that the text does not name itself.
    /// When a name stands twice, the last one counts. Every item is checked, the first fault is returned.
    pub fn parse(component: Component, text: &str) -> Result<Gates, GateError> {
        let mut gates = Gates::defaults(component);
        let mut named = BTreeSet::new();
        let mut stages = BTreeMap::new();
        for (name, value) in items(text)? {
            if let Some((all, stage)) = ALL.iter().find(|(all, _)| *all == name) {
                stages.insert(*all, (*stage, value));
                continue;
            }
            let Some(gate) = component.gates().find(|g| g.name == name) else {
                return Err(unknown(component, name));
            };
            if gate.stage == Stage::Locked && value != gate.default {
                return Err(GateError::Locked { name: gate.name, value });
            }
            named.insert(gate.name);
            gates.enabled.insert(gate.name, value);
        }
        for (stage, value) in stages.into_values() {
            for gate in component.gates().filter(|g| g.stage == stage && !named.contains(g.name)) {
                gates.enabled.insert(gate.name, value);
            }
        }
        Ok(gates)
    }

    /// Whether a gate is on. A name the component does not have is off.
    pub fn is_on(&self, name: &str) -> bool {
        self.enabled.get(name).copied().unwrap_or(false)
    }

    /// All gates with their state, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> + '_ {
        self.enabled.iter().map(|(name, on)| (*name, *on))
    }
}

/// The `name=value` pairs of a flag text.
fn items(text: &str) -> Result<Vec<(&str, bool)>, GateError> {
    let mut out = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(GateError::MissingValue { item: part.to_string() });
        };
        let (name, value) = (name.trim(), value.trim());
        let on = parse_bool(value)
            .ok_or_else(|| GateError::NotBool { name: name.to_string(), value: value.to_string() })?;
        out.push((name, on));
    }
    Ok(out)
}

/// Go's boolean texts, which flags and labels share: `1 t T TRUE true True 0 f F FALSE false False`.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn unknown(component: Component, name: &str) -> GateError {
    let mut known: Vec<&str> = component.gates().map(|g| g.name).chain(ALL.map(|(all, _)| all)).collect();
    known.sort_unstable();
    let near = known
        .iter()
        .map(|candidate| (distance(&name.to_lowercase(), &candidate.to_lowercase()), *candidate))
        .min()
        .filter(|(distance, _)| *distance <= name.len().max(3) / 3);
    let hint = near.map(|(_, gate)| format!(", did you mean {gate}?")).unwrap_or_default();
    GateError::Unknown { name: name.to_string(), hint, known: known.join(", ") }
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENTS: [Component; 4] =
        [Component::Manager, Component::Scheduler, Component::Descheduler, Component::Koordlet];

    #[test]
    fn a_component_knows_each_gate_once() {
        for component in COMPONENTS {
            let mut seen = BTreeSet::new();
            for gate in component.gates() {
                assert!(seen.insert(gate.name), "{component:?} {}", gate.name);
            }
        }
    }

    #[test]
    fn defaults_that_are_on() {
        for (component, on) in [
            (
                Component::Manager,
                vec![
                    "ElasticMutatingWebhook",
                    "ElasticValidatingWebhook",
                    "PodMutatingWebhook",
                    "PodValidatingWebhook",
                    "WebhookFramework",
                ],
            ),
            (Component::Descheduler, vec![]),
            (
                Component::Koordlet,
                vec![
                    "BECPUSuppress",
                    "BatchResource",
                    "CPUBurst",
                    "CPUSetAllocator",
                    "GroupIdentity",
                    "NodeTopologyReport",
                    "RdtResctrl",
                ],
            ),
            (
                Component::Scheduler,
                vec![
                    "CSIStorageCapacity",
                    "ClearingNominatedNodeNameAfterBinding",
                    "DRAAdminAccess",
                    "DRAPrioritizedList",
                    "DRAResourceClaimDeviceStatus",
                    "DRASchedulerFilterTimeout",
                    "DynamicResourceAllocation",
                    "DynamicSchedulerCheck",
                    "EnableBatchScheduleNodeSnapshot",
                    "GangPendingPodsConditionPatch",
                    "GenericEphemeralVolume",
                    "InPlacePodVerticalScaling",
                    "MatchLabelKeysInPodTopologySpread",
                    "MatchLabelKeysInPodTopologySpreadSelectorMerge",
                    "MutableCSINodeAllocatableCount",
                    "NodeInclusionPolicyInPodTopologySpread",
                    "NominatedNodeNameForExpectation",
                    "OpportunisticBatching",
                    "PodDisruptionBudget",
                    "PodLevelResources",
                    "SchedulerAsyncPreemption",
                    "SchedulerPopFromBackoffQ",
                    "SchedulerQueueingHints",
                    "SidecarContainers",
                    "VolumeAttributesClass",
                ],
            ),
        ] {
            let gates = Gates::defaults(component);
            let got: Vec<_> = gates.iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
            assert_eq!(got, on, "{component:?}");
        }
    }

    #[test]
    fn flag_text() {
        let parse = |text| Gates::parse(Component::Koordlet, text);
        let gates = parse(" BECPUEvict=true, CPUBurst=F ,,BECPUEvict=0,CoreSched=T").unwrap();
        assert!(!gates.is_on("BECPUEvict"), "the last one counts");
        assert!(!gates.is_on("CPUBurst"));
        assert!(gates.is_on("CoreSched") && gates.is_on("RdtResctrl"));
        assert!(!gates.is_on("NoSuchGate"));
        assert_eq!(parse("").unwrap(), Gates::defaults(Component::Koordlet));
    }

    #[test]
    fn all_of_a_stage_leaves_named_gates_alone() {
        let gates = Gates::parse(Component::Koordlet, "CoreSched=false,AllAlpha=true,AllBeta=false").unwrap();
        assert!(!gates.is_on("CoreSched"));
        assert!(gates.is_on("BECPUEvict"));
        assert!(!gates.is_on("CPUBurst"));
        let scheduler = Gates::parse(Component::Scheduler, "AllAlpha=false,AllBeta=false").unwrap();
        assert!(scheduler.is_on("PodDisruptionBudget"), "a stable gate is no part of a stage");
        assert!(!scheduler.is_on("DynamicSchedulerCheck"));
    }

    #[test]
    fn faults_say_what_is_accepted() {
        for (component, text, want) in [
            (
                Component::Scheduler,
                "SchedulerQueueingHints=true,SidecarContainers=false",
                "cannot set feature gate SidecarContainers to false, feature is locked to true",
            ),
            (
                Component::Descheduler,
                "DisablePvcReservation=true",
                "unknown feature gate \"DisablePvcReservation\", did you mean DisablePVCReservation?; known gates: \
                 AllAlpha, AllBeta, DisablePVCReservation, PreemptionPolicyTransformer, PriorityTransformer, \
                 ReplaceResourcesTransformer",
            ),
            (
                Component::Descheduler,
                "Zebra=true",
                "unknown feature gate \"Zebra\"; known gates: AllAlpha, AllBeta, DisablePVCReservation, \
                 PreemptionPolicyTransformer, PriorityTransformer, ReplaceResourcesTransformer",
            ),
            (
                Component::Koordlet,
                "CPUBurst",
                "feature gate \"CPUBurst\" has no value, write CPUBurst=true or CPUBurst=false",
            ),
            (
                Component::Koordlet,
                "CPUBurst=yes",
                "feature gate CPUBurst=yes: \"yes\" is not a boolean, write true or false",
            ),
        ] {
            let error = Gates::parse(component, text).unwrap_err();
            assert_eq!(error.to_string(), want, "{text}");
        }
    }
}
