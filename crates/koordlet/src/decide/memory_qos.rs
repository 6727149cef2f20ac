//! Memory QoS: protection, throttling and reclaim of groups, from class configuration and pod annotations.
//!
//! Change what a pod gets in `pod_files` and `container_files`, what a QoS class gets in `class_files`.
//! Spec: koordlet-enforce 10.

use std::fmt;

use koord_api::crd::node_slo::{MemoryQos, ResourceQosStrategy};
use koord_api::keys::resource::{BATCH_MEMORY, MEMORY};
use koord_api::qos::{KubeQos, Qos};

use super::convert::percent_trunc;
use super::snapshot::{Container, Node, Pod, whole};
use super::why::OrNone;
use super::wish::{Batch, Cause, File, Place, Value, Why, Wish};

/// memory.high without a limit.
pub const HIGH_UNLIMITED: i64 = i64::MAX;

/// What one pod got, for explanations.
#[derive(Clone, Debug, PartialEq)]
pub struct PodMemory {
    pub pod: usize,
    pub request: i64,
    /// The class's configuration with what the pod says over it.
    pub config: MemoryQos,
}

/// What a cycle wants and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub pods: Vec<PodMemory>,
    /// memory.min and memory.low of Guaranteed (the root of all pods), Burstable and BestEffort.
    pub classes: [(KubeQos, Protection); 3],
    pub batch: Batch,
}

/// Memory that is not reclaimed, and memory that is reclaimed last. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    pub min: i64,
    pub low: i64,
}

/// One cycle over all pods. `page` is the size of a memory page.
///
/// Differs: sidecars, and the init container that runs now, have values of their own (item 19).
pub fn plan(strategy: &ResourceQosStrategy, node: &Node, pods: &[Pod], page: i64) -> Plan {
    let mut sums = [Protection::default(); 3];
    let mut counts = [0; 3];
    let (mut pod_wishes, mut container_wishes) = (Vec::new(), Vec::new());
    let mut told = Vec::new();
    for (index, pod) in pods.iter().enumerate().filter(|(_, pod)| pod.is_active()) {
        let config = config(strategy, pod);
        let request = request(pod);
        let own = Protection {
            min: percent_trunc(request, config.min_limit_percent.unwrap_or(0)),
            low: percent_trunc(request, config.low_limit_percent.unwrap_or(0)),
        };
        // The root of all pods holds every class.
        let mut count = |class: KubeQos| {
            sums[place_of(class)].add(own);
            counts[place_of(class)] += 1;
        };
        count(KubeQos::Guaranteed);
        if pod.id.kube_qos != KubeQos::Guaranteed {
            count(pod.id.kube_qos);
        }
        let size = Size { request, limit: limit(pod), node: None };
        let why = Numbers::new(pod, &config, size).why();
        write(&mut pod_wishes, &pod.place(), pod_files(&config, request, size.limit), &why);
        for container in pod.with_init_containers() {
            if let Some(place) = container.place(pod) {
                let size = Size::of(pod, container, node.memory_allocatable());
                let why = Numbers::new(pod, &config, size).why();
                write(&mut container_wishes, &place, container_files(&config, size, page), &why);
            }
        }
        told.push(PodMemory { pod: index, request, config });
    }
    let classes = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];
    let mut levels = [Vec::new(), Vec::new()];
    for class in classes {
        let level = &mut levels[usize::from(class != KubeQos::Guaranteed)];
        let why = Why::MemoryOfPods(Sum { pods: counts[place_of(class)] });
        write(level, &Place::Kube(class), sum_files(sums[place_of(class)]), &why);
        write(level, &Place::Kube(class), class_files(strategy, class), &Why::Unsaid);
    }
    let [root, below] = levels;
    Plan {
        pods: told,
        classes: classes.map(|class| (class, sums[place_of(class)])),
        batch: Batch::Levels(vec![root, below, pod_wishes, container_wishes]),
    }
}

impl Protection {
    fn add(&mut self, other: Protection) {
        self.min = self.min.saturating_add(other.min);
        self.low = self.low.saturating_add(other.low);
    }
}

fn place_of(class: KubeQos) -> usize {
    match class {
        KubeQos::Guaranteed => 0,
        KubeQos::Burstable => 1,
        KubeQos::BestEffort => 2,
    }
}

/// A file and its value; none leaves the file alone.
type Files = Vec<(File, Option<i64>)>;

fn write(out: &mut Vec<Wish>, place: &Place, files: Files, why: &Why) {
    let wish = |(file, value): (File, Option<i64>)| {
        let value = Value::Number(value?);
        Some(Wish::new(place.clone(), file, value, Cause::MemoryQos).because(why))
    };
    out.extend(files.into_iter().filter_map(wish));
}

/// The configuration of a pod: its class's, and its annotation over that. Spec: koordlet-enforce 10.
pub fn config(strategy: &ResourceQosStrategy, pod: &Pod) -> MemoryQos {
    let class = match pod.class {
        Qos::Lse | Qos::Lsr => &strategy.lsr_class,
        Qos::Ls => &strategy.ls_class,
        Qos::Be => &strategy.be_class,
        Qos::System => &strategy.system_class,
    };
    let node = class.as_ref().and_then(|class| class.memory_qos.clone()).unwrap_or_default();
    match &pod.memory_qos {
        Ok(Some(own)) => own.resolve(pod.class, &node),
        _ => node,
    }
}

/// Differs: a class without pods gets 0, where upstream leaves what the last pod had (item 27).
fn sum_files(sum: Protection) -> Files {
    vec![(File::MemoryMin, Some(sum.min)), (File::MemoryLow, Some(sum.low))]
}

fn class_files(strategy: &ResourceQosStrategy, class: KubeQos) -> Files {
    let class = match class {
        KubeQos::Guaranteed => &strategy.lsr_class,
        KubeQos::Burstable => &strategy.ls_class,
        KubeQos::BestEffort => &strategy.be_class,
    };
    let config = class.as_ref().and_then(|class| class.memory_qos.clone()).unwrap_or_default();
    kill_files(&config)
}

/// What a pod's group holds.
pub fn pod_files(config: &MemoryQos, request: i64, limit: Option<i64>) -> Files {
    let (min, low) = protection(config, request);
    let mut files = vec![(File::MemoryMin, min), (File::MemoryLow, low)];
    files.extend(reclaim_files(config));
    files.extend(kill_files(config));
    files.extend(page_cache_files(config, limit));
    files
}

/// What a container's group holds.
fn container_files(config: &MemoryQos, size: Size, page: i64) -> Files {
    let request = size.request;
    let (min, low) = protection(config, request);
    let throttle = config.throttling_percent;
    // Without a limit the node is the limit; before that is known nothing is throttled.
    let end = size.limit.or(size.node);
    let high = throttle.map(|percent| end.map_or(HIGH_UNLIMITED, |end| high(request, end, percent, page)));
    let high = high.map(|high| high.max(min.unwrap_or(0)));
    let mut files = vec![(File::MemoryMin, min), (File::MemoryLow, low), (File::MemoryHigh, high)];
    files.extend(reclaim_files(config));
    files.extend(kill_files(config));
    files
}

/// memory.min and memory.low; low is never below min unless it is off.
fn protection(config: &MemoryQos, request: i64) -> (Option<i64>, Option<i64>) {
    let of = |percent: Option<i64>| percent.map(|percent| percent_trunc(request, percent));
    let min = of(config.min_limit_percent);
    let low = of(config.low_limit_percent).map(|low| if low > 0 { low.max(min.unwrap_or(0)) } else { low });
    (min, low)
}

/// Where throttling begins, between request and limit, in whole pages.
pub fn high(request: i64, limit: i64, percent: i64, page: i64) -> i64 {
    if percent == 0 {
        return HIGH_UNLIMITED;
    }
    let bytes = request.saturating_add(percent_trunc(limit.saturating_sub(request), percent));
    let page = page.max(1);
    bytes / page * page
}

fn reclaim_files(config: &MemoryQos) -> Files {
    vec![
        (File::MemoryWmarkRatio, config.wmark_ratio),
        (File::MemoryWmarkScaleFactor, config.wmark_scale_permill),
        (File::MemoryWmarkMinAdj, config.wmark_min_adj),
    ]
}

fn kill_files(config: &MemoryQos) -> Files {
    vec![
        (File::MemoryPriority, config.priority),
        (File::MemoryUsePriorityOom, config.priority_enable),
        (File::MemoryOomGroup, config.oom_kill_group),
    ]
}

/// The page cache's limit: a size, or a share of the memory limit.
fn page_cache_files(config: &MemoryQos, limit: Option<i64>) -> Files {
    let by_size = config.page_cache_limit_size.map(|size| limit.map_or(size, |limit| size.min(limit)));
    let by_percent = || Some(percent_trunc(limit?, config.page_cache_limit_percent?));
    let size = by_size.or_else(by_percent).map(|size| size.max(0));
    let is_sync = config.page_cache_reclaim_sync.unwrap_or(false);
    let enable = config.page_cache_enable.or(size.map(|size| size > 0)).map(i64::from);
    vec![
        (File::MemoryPagecacheLimitEnable, enable),
        (File::MemoryPagecacheLimitSize, size),
        (File::MemoryPagecacheLimitSync, size.filter(|size| *size > 0).map(|_| i64::from(is_sync))),
    ]
}

/// What a group asks for. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub request: i64,
    pub limit: Option<i64>,
    /// What the node has for pods, which stands in for a container's limit.
    pub node: Option<i64>,
}

impl Size {
    fn of(pod: &Pod, container: &Container, allocatable: i64) -> Size {
        let name = if pod.qos == Some(Qos::Be) { BATCH_MEMORY } else { MEMORY };
        Size {
            request: whole(&container.requests, name).unwrap_or(0),
            limit: whole(&container.limits, name).filter(|limit| *limit > 0),
            node: Some(allocatable).filter(|bytes| *bytes > 0),
        }
    }
}

/// What the files of a group follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub class: Qos,
    /// Whether the pod says something over its class.
    pub is_annotated: bool,
    pub size: Size,
    pub min_percent: Option<i64>,
    pub low_percent: Option<i64>,
    pub throttling_percent: Option<i64>,
    pub wmark_ratio: Option<i64>,
}

impl Numbers {
    fn new(pod: &Pod, config: &MemoryQos, size: Size) -> Numbers {
        Numbers {
            class: pod.class,
            is_annotated: matches!(&pod.memory_qos, Ok(Some(_))),
            size,
            min_percent: config.min_limit_percent,
            low_percent: config.low_limit_percent,
            throttling_percent: config.throttling_percent,
            wmark_ratio: config.wmark_ratio,
        }
    }

    fn why(self) -> Why {
        Why::Memory(self)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { request, limit, node } = self.size;
        write!(f, "request {request}, limit {}", OrNone(limit))?;
        if let Some(node) = node.filter(|_| limit.is_none()) {
            write!(f, ", node {node}")?;
        }
        write!(f, "; class {}", self.class.as_str())?;
        if self.is_annotated {
            f.write_str(" and annotation")?;
        }
        let percents = [
            ("minLimitPercent", self.min_percent),
            ("lowLimitPercent", self.low_percent),
            ("throttlingPercent", self.throttling_percent),
            ("wmarkRatio", self.wmark_ratio),
        ];
        for (name, percent) in percents {
            percent.map_or(Ok(()), |percent| write!(f, ", {name} {percent}"))?;
        }
        Ok(())
    }
}

/// What the protection of a class's group follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    pub pods: usize,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sum over {} pods", self.pods)
    }
}

/// Memory that a pod requests, of its own kind.
fn request(pod: &Pod) -> i64 {
    match pod.qos {
        Some(Qos::Be) => pod.sum_requests(BATCH_MEMORY),
        _ => whole(&pod.requests, MEMORY).unwrap_or(0),
    }
}

fn limit(pod: &Pod) -> Option<i64> {
    let name = if pod.qos == Some(Qos::Be) { BATCH_MEMORY } else { MEMORY };
    pod.sum_limits(name).filter(|limit| *limit > 0)
}

#[cfg(test)]
mod tests;
