//! CPU burst on the node: quotas that are read, and moved with the load.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use koord_api::keys::resource::CPU;
use koord_api::number::nearest;
use koord_api::qos::Qos;
use koord_kit::random;
use koord_linux::cgroup::Version;
use koord_linux::cpu_stat::quota_us;
use koord_linux::resource::Resource;

use super::files::Files;
use super::usage::{self, Sum};
use super::{Ground, Hands, Setting, Strategy};
use crate::apply::Settled;
use crate::decide::cpu_burst::bucket::Buckets;
use crate::decide::cpu_burst::{self, ContainerBurst, GroupSample, Kernel, Sample};
use crate::decide::snapshot::{CpuUsage, Pod, milli};
use crate::decide::wish::Place;
use crate::metrics::Metric;
use crate::store::{Kind, Window};

/// The longest time that averages are taken over.
const WINDOW_MAX: Duration = Duration::from_secs(10);
/// v1 refuses a longer burst, in microseconds.
const V1_BURST_MAX: i64 = 100_000_000;

/// The strategy and what it remembers.
pub(super) struct Burst {
    buckets: Buckets,
    quotas: Files,
    settled: Settled,
    /// Turns since files were last closed.
    turns: u32,
}

impl Default for Burst {
    fn default() -> Burst {
        Burst {
            buckets: Buckets::default(),
            quotas: Files::new(Resource::CfsQuotaUs),
            settled: Settled::default(),
            turns: 0,
        }
    }
}

impl Strategy for Burst {
    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some(slo) = ground.snapshot.slo.as_deref() else { return };
        let window = setting.qos.reconcile_interval.saturating_mul(5).min(WINDOW_MAX);
        let average = average(ground, Window::before(ground.now_ms, window));
        let groups = self.groups(setting, ground);
        let ratio = hands.shared.normalization.ratio.filter(|_| setting.gates.is_on("CPUNormalization"));
        let sample = Sample {
            pods: ground.pods,
            usage: &average,
            processors: ground.snapshot.hardware.as_ref().map(|hardware| hardware.cpus.len()),
            groups: &groups,
            normalization: setting.ratios(ratio),
            is_pinned_quota_unset: setting.is_pinned_quota_unset(),
            kernel: kernel(setting),
        };
        let mut luck = || random::unit() * 0.5;
        let plan = cpu_burst::plan(ground.uptime, &sample, &slo.burst, &mut self.buckets, &mut luck);
        hands.settle(ground, plan.batches, &mut self.settled);
        show(&plan.containers, ground.pods, setting);
        self.turns += 1;
        if self.turns.is_multiple_of(60) {
            self.quotas.close_unread();
        }
    }

    fn kept(&self) -> usize {
        self.buckets.len() + self.quotas.len()
    }
}

impl Burst {
    /// Quotas of pods and containers whose quota may move, with what moves them.
    fn groups(&mut self, setting: &Setting, ground: &Ground<'_>) -> BTreeMap<Place, GroupSample> {
        let window = usage::recent(ground.now_ms, setting.collect.interval);
        let by_id = |kind: Kind| {
            let mut values: HashMap<Arc<str>, f64> = HashMap::new();
            usage::each(ground.store, kind, window, Sum::Last, |key, value| {
                values.extend(key.values().first().map(|id| (id.clone(), value)));
            });
            values
        };
        let used = by_id(Kind::ContainerCpuUsage);
        let throttled = by_id(Kind::ContainerCpuThrottled);
        let mut groups = BTreeMap::new();
        for pod in ground.pods.iter().filter(|pod| is_handled(pod)) {
            for container in pod.containers.iter().filter(|container| milli(&container.limits, CPU) > Some(0))
            {
                let (Some(place), Some(id)) = (container.place(pod), container.id.as_ref()) else { continue };
                let quota = self.quota(setting, &place);
                let (used, throttled) = (used.get(id).copied(), throttled.get(id).copied());
                groups.insert(place, GroupSample { quota, used, throttled });
                groups.entry(pod.place()).or_insert_with(|| GroupSample {
                    quota: self.quota(setting, &pod.place()),
                    ..GroupSample::default()
                });
            }
        }
        groups
    }

    fn quota(&mut self, setting: &Setting, place: &Place) -> Option<i64> {
        let version = setting.version();
        self.quotas.read(&setting.cgroups, place, |content| quota_us(version, content))
    }
}

/// What the node uses, and those of its pods that the share pool is not for: nobody else's average is asked for.
fn average(ground: &Ground<'_>, window: Window) -> CpuUsage {
    let mut usage = CpuUsage::default();
    usage::each(ground.store, Kind::NodeCpuUsage, window, Sum::Average, |_, value| usage.node = Some(value));
    for pod in ground.pods.iter().filter(|pod| matches!(pod.qos, Some(Qos::Lse | Qos::Lsr | Qos::Be))) {
        let value = usage::average(ground.store, &Kind::PodCpuUsage.of([&pod.id.uid]), window);
        usage.pods.extend(value.map(|value| (pod.id.uid.clone(), value)));
    }
    usage
}

/// The same pods that the decision handles.
fn is_handled(pod: &Pod) -> bool {
    pod.is_active() && !matches!(pod.qos, Some(Qos::Lse | Qos::Lsr | Qos::Be))
}

fn kernel(setting: &Setting) -> Kernel {
    let burst_max = match setting.version() {
        Version::V1 => V1_BURST_MAX,
        Version::V2 => i64::MAX,
    };
    Kernel { burst_max, is_burst_within_quota: !setting.is_anolis }
}

/// Only what was raised above the limit is shown, which is what the names say.
fn show(containers: &[ContainerBurst], pods: &[Pod], setting: &Setting) {
    let metrics = &setting.metrics;
    metrics.reset(Metric::ContainerScaledCfsBurst);
    metrics.reset(Metric::ContainerScaledCfsQuota);
    for burst in containers {
        let Some(pod) = pods.get(burst.pod) else { continue };
        let Some(container) = pod.containers.get(burst.container) else { continue };
        let Some(id) = &container.id else { continue };
        let labels = [pod.namespace.as_str(), pod.name.as_str(), id, container.name.as_str()];
        if let Some(value) = burst.burst.filter(|burst| *burst > 0) {
            metrics.set(Metric::ContainerScaledCfsBurst, &labels, nearest(value));
        }
        if let Some(quota) = burst.quota.as_ref().filter(|quota| quota.target != quota.base) {
            metrics.set(Metric::ContainerScaledCfsQuota, &labels, nearest(quota.target));
        }
    }
}
