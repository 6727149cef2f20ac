//! Batch resources: what the kernel is told of best-effort pods' own CPU and memory. Spec: koordlet-enforce 15.3.

use std::fmt;

use koord_api::annotation::ratio::Ratio;
use koord_api::crd::node_slo::{CpuSuppressPolicy, ResourceThresholdStrategy};
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY};
use koord_api::qos::Qos;
use koord_api::quantity::ResourceList;
use koord_api::slo::defaults;

use super::number;
use crate::decide::convert::{UNLIMITED, quota, scaled_quota, shares};
use crate::decide::snapshot::{Container, Pod, whole};
use crate::decide::why::OrNone;
use crate::decide::wish::{Batch, File, Place, Why, Wish};

/// What the node's rules make of quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rule {
    /// Suppression by quota holds for all best-effort pods together: single quotas are taken off.
    pub is_quota_unset: bool,
    pub ratio: Option<Ratio>,
}

impl Rule {
    pub fn is_quota_unset_by(threshold: &ResourceThresholdStrategy) -> bool {
        let policy = threshold.cpu_suppress_policy.clone().or(defaults::threshold().cpu_suppress_policy);
        threshold.enable == Some(true) && policy == Some(CpuSuppressPolicy::CfsQuota)
    }

    fn quota(&self, milli: Option<i64>) -> i64 {
        match milli {
            Some(milli) if !self.is_quota_unset => scaled_quota(quota(milli), self.ratio),
            _ => UNLIMITED,
        }
    }
}

/// What one container asks for. Milli-cores and bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub container: String,
    pub cpu_request: Option<i64>,
    pub cpu_limit: Option<i64>,
    pub memory_limit: Option<i64>,
}

/// What the files of a group hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub shares: i64,
    pub quota: i64,
    pub memory: i64,
}

/// What a best-effort pod's containers ask for, by its spec or else by the annotation that admission wrote.
/// None for other pods, and for pods that ask for nothing of the kind.
///
/// Differs: an annotation without containers is no annotation, where upstream takes the pod's memory away
/// (item 30). Sidecars count (item 19).
pub fn asked(pod: &Pod) -> Option<Vec<Asked>> {
    if pod.qos != Some(Qos::Be) {
        return None;
    }
    if pod.containers.iter().any(asks) {
        let containers = pod.containers.iter();
        return Some(containers.map(|c| Asked::new(&c.name, &c.requests, &c.limits)).collect());
    }
    let spec = pod.extended_spec.as_ref().ok()?.as_ref().filter(|spec| !spec.containers.is_empty())?;
    Some(spec.containers.iter().map(|(name, c)| Asked::new(name, &c.requests, &c.limits)).collect())
}

/// Whether a container asks for batch resources.
fn asks(container: &Container) -> bool {
    let is_ours = |list: &ResourceList| list.contains_key(BATCH_CPU) || list.contains_key(BATCH_MEMORY);
    is_ours(&container.requests) || is_ours(&container.limits)
}

impl Asked {
    fn new(name: &str, requests: &ResourceList, limits: &ResourceList) -> Asked {
        Asked {
            container: name.to_owned(),
            cpu_request: whole(requests, BATCH_CPU),
            cpu_limit: whole(limits, BATCH_CPU).filter(|limit| *limit > 0),
            memory_limit: whole(limits, BATCH_MEMORY).filter(|limit| *limit > 0),
        }
    }

    pub(super) fn why(&self, rule: &Rule) -> Why {
        let Asked { cpu_request, cpu_limit, memory_limit, .. } = *self;
        Why::BatchResource(Numbers { cpu_request, cpu_limit, memory_limit, rule: *rule })
    }

    pub fn limits(&self, rule: &Rule) -> Limits {
        Limits {
            shares: shares(self.cpu_request.unwrap_or(0)),
            quota: rule.quota(self.cpu_limit),
            memory: self.memory_limit.unwrap_or(UNLIMITED),
        }
    }
}

/// What a pod asks for: the sums over its containers, and no limit where one of them has none.
pub fn together(asked: &[Asked]) -> Asked {
    let sum = |of: fn(&Asked) -> Option<i64>| {
        asked.iter().try_fold(0_i64, |sum, asked| Some(sum.saturating_add(of(asked)?)))
    };
    let requests = asked.iter().filter_map(|asked| asked.cpu_request).filter(|request| *request > 0);
    Asked {
        container: String::new(),
        cpu_request: Some(requests.fold(0, i64::saturating_add)),
        cpu_limit: sum(|asked| asked.cpu_limit),
        memory_limit: sum(|asked| asked.memory_limit),
    }
}

/// All files of all best-effort pods, pods above their containers.
///
/// Differs: an init container's quota stays within its pod's, where upstream writes more than cgroup v1 takes.
pub fn wishes(pods: &[Pod], rule: &Rule) -> Batch {
    let (mut of_pods, mut of_containers) = (Vec::new(), Vec::new());
    for pod in pods.iter().filter(|pod| pod.is_active()) {
        let Some(asked) = asked(pod) else { continue };
        let whole = together(&asked);
        let of_pod = whole.limits(rule);
        write(&mut of_pods, pod.place(), of_pod, whole.why(rule));
        if pod.is_kata {
            continue;
        }
        for container in &pod.containers {
            let asked = asked.iter().find(|asked| asked.container == container.name);
            if let (Some(asked), Some(place)) = (asked, container.place(pod)) {
                write(&mut of_containers, place, asked.limits(rule), asked.why(rule));
            }
        }
        for container in pod.init_containers.iter().filter(|own| own.is_running && asks(own)) {
            let Some(place) = container.place(pod) else { continue };
            let asked = Asked::new(&container.name, &container.requests, &container.limits);
            let mut own = asked.limits(rule);
            if of_pod.quota > 0 {
                // The pod's quota is that of the containers to come.
                own.quota = own.quota.min(of_pod.quota);
            }
            write(&mut of_containers, place, own, asked.why(rule));
        }
    }
    Batch::Levels(vec![of_pods, of_containers])
}

fn write(out: &mut Vec<Wish>, place: Place, limits: Limits, why: Why) {
    for (file, value) in [
        (File::CpuShares, limits.shares),
        (File::CpuCfsQuota, limits.quota),
        (File::MemoryLimit, limits.memory),
    ] {
        out.push(number(place.clone(), file, value).because(&why));
    }
}

/// What the files of a group follow from. Milli-cores and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    pub cpu_request: Option<i64>,
    pub cpu_limit: Option<i64>,
    pub memory_limit: Option<i64>,
    pub rule: Rule,
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numbers { cpu_request, cpu_limit, memory_limit, rule } = *self;
        write!(f, "{BATCH_CPU} request {}, limit {}; ", OrNone(cpu_request), OrNone(cpu_limit))?;
        write!(f, "{BATCH_MEMORY} limit {}", OrNone(memory_limit))?;
        if rule.is_quota_unset {
            f.write_str("; no quotas while all best-effort pods have one")?;
        }
        rule.ratio.map_or(Ok(()), |ratio| write!(f, "; CPU ratio {ratio}"))
    }
}

#[cfg(test)]
mod tests {
    use koord_api::annotation::Annotation;
    use koord_api::annotation::node_side::ExtendedResourceSpec;
    use proptest::prelude::*;

    use super::*;
    use crate::decide::sketch::{PodSketch, pod};

    const CPU: &str = "kubernetes.io/batch-cpu";
    const MEMORY: &str = "kubernetes.io/batch-memory";

    fn limited(limits: &[&str]) -> PodSketch {
        let mut sketch = pod("p").qos("BE");
        for (index, limit) in limits.iter().enumerate() {
            let list: &[(&str, &str)] = if limit.is_empty() { &[] } else { &[(CPU, limit)] };
            sketch = sketch.container(&format!("c{index}"), &[(CPU, "500")], list);
        }
        sketch.running()
    }

    /// Quotas of the pod and of its containers.
    fn quotas(pod: &PodSketch, rule: &Rule) -> Vec<i64> {
        let asked = asked(&pod.read()).unwrap();
        let containers = asked.iter().map(|asked| asked.limits(rule).quota);
        std::iter::once(together(&asked).limits(rule).quota).chain(containers).collect()
    }

    #[test]
    fn worked_examples() {
        let plain = Rule::default();
        let faster = |ratio| Rule { ratio: Ratio::new(ratio), ..plain };
        assert_eq!(quotas(&limited(&["1000", ""]), &plain), [-1, 100_000, -1], "koordlet-enforce#18.93");
        let got = quotas(&limited(&["1000", "500"]), &faster(1.2));
        assert_eq!(got, [125_000, 83_334, 41_667], "koordlet-enforce#18.94");
        let threshold = ResourceThresholdStrategy {
            enable: Some(true),
            cpu_suppress_policy: Some(CpuSuppressPolicy::CfsQuota),
            ..ResourceThresholdStrategy::default()
        };
        let unset = Rule { is_quota_unset: Rule::is_quota_unset_by(&threshold), ratio: None };
        assert_eq!(quotas(&limited(&["1000"]), &unset), [-1, -1], "koordlet-enforce#18.95");
        assert_eq!(quotas(&limited(&["10"]), &faster(2.0))[1], 1000, "koordlet-enforce#18.205");
        let empty = pod("p").qos("BE").annotated(ExtendedResourceSpec::KEY, r#"{"containers":{}}"#);
        assert_eq!(asked(&empty.read()), None, "koordlet-enforce#18.206");
    }

    #[test]
    fn the_annotation_stands_in_for_the_spec() {
        let text = r#"{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1500m"},
            "limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"1Gi"}}}}"#;
        let sketch =
            pod("p").qos("BE").container("main", &[], &[]).annotated(ExtendedResourceSpec::KEY, text);
        let batch = wishes(&[sketch.clone().running().read()], &Rule::default());
        let values: Vec<String> = batch.wishes().map(|wish| wish.value.to_string()).collect();
        assert_eq!(
            values,
            ["2", "200000", "1073741824", "2", "200000", "1073741824"],
            "1500m are 2 milli-cores"
        );
        assert_eq!(asked(&sketch.qos("LS").read()), None);
        let memory = pod("p").qos("BE").container("c", &[], &[(MEMORY, "1Gi")]).container("d", &[], &[]);
        assert_eq!(together(&asked(&memory.read()).unwrap()).limits(&Rule::default()).memory, -1);
    }

    #[test]
    fn numbers_are_told() {
        let sketch = pod("p").qos("BE").container("a", &[(CPU, "500")], &[(CPU, "1000"), (MEMORY, "1000")]);
        let sketch = sketch.container("b", &[(CPU, "500")], &[(CPU, "1000")]).running();
        let rule = Rule { is_quota_unset: false, ratio: Ratio::new(1.25) };
        let told = |rule: &Rule| -> Vec<String> {
            let batch = wishes(&[sketch.read()], rule);
            batch
                .wishes()
                .filter(|wish| wish.file == File::CpuCfsQuota)
                .map(|w| w.audit_message(None))
                .collect()
        };
        let (cpu, memory) = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory");
        let want = [
            ("160000", "request 1000, limit 2000", "limit none"),
            ("80000", "request 500, limit 1000", "limit 1000"),
            ("80000", "request 500, limit 1000", "limit none"),
        ];
        let want = want.map(|(quota, of_cpu, of_memory)| {
            format!(
                "update cpu.cfs_quota_us to {quota}; {cpu} {of_cpu}; {memory} {of_memory}; CPU ratio 1.25"
            )
        });
        assert_eq!(told(&rule), want);
        let unset = told(&Rule { is_quota_unset: true, ratio: None });
        assert!(unset[0].ends_with("; no quotas while all best-effort pods have one"), "{unset:?}");
    }

    /// koordlet-enforce 14.5: regular containers, then init containers.
    #[test]
    fn init_containers_are_limited_too() {
        let limits: fn(&str) -> [(&str, &str); 1] = |milli| [(CPU, milli)];
        for (own, want) in [("500", "50000"), ("4000", "100000")] {
            let sketch = limited(&["1000"]).initializing("setup", &limits(own), &limits(own));
            let batch = wishes(&[sketch.read()], &Rule::default());
            let quotas = batch.wishes().filter(|wish| wish.file == File::CpuCfsQuota);
            let quotas: Vec<String> = quotas.map(|wish| wish.value.to_string()).collect();
            assert_eq!(quotas, ["100000", "100000", want], "{own}");
        }
    }

    proptest! {
        /// A quota is none, or one that the kernel takes; a pod is limited only when all its containers are.
        #[test]
        fn within_what_the_kernel_takes(
            limits in prop::collection::vec(prop::option::of(1_i64..100_000), 1..5), ratio in 0.1_f64..10.0,
        ) {
            let asked: Vec<Asked> =
                limits.iter().map(|limit| Asked { cpu_limit: *limit, ..Asked::default() }).collect();
            let rule = Rule { is_quota_unset: false, ratio: Ratio::new(ratio) };
            let pod = together(&asked).limits(&rule);
            prop_assert_eq!(pod.quota == -1, limits.contains(&None));
            for limits in asked.iter().map(|asked| asked.limits(&rule)).chain([pod]) {
                prop_assert!(limits.quota == -1 || limits.quota >= 1000);
                prop_assert!((2..=262_144).contains(&limits.shares));
            }
        }
    }
}
