//! The groups that kubelet makes for a pod, with the values it gives them.

use k8s_openapi::api::core::v1::{Container, Pod};
use koord_api::keys::resource::{CPU, MEMORY};
use koord_api::pod::resource_list;
use koord_api::qos::{self, KubeQos};

use super::{BEST_EFFORT, BURSTABLE, ROOT};
use crate::nodes::lifecycle::hex_digest;
use crate::nodes::usage::Use;

/// Kubelet's period of CPU quotas.
pub(super) const PERIOD_US: i64 = 100_000;
/// The least that the kernel takes.
const QUOTA_US_MIN: i64 = 1000;
const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;

/// What a group begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) shares: i64,
    /// -1 is none.
    pub(crate) quota_us: i64,
    /// Bytes; 0 is no limit.
    pub(crate) memory: i64,
}

impl Settings {
    /// Of whoever asks for nothing.
    pub(super) const LEAST: Settings = Settings { shares: SHARES_MIN, quota_us: -1, memory: 0 };

    /// From a request and limits; zero is none.
    pub(super) fn of(request_milli: i64, limit_milli: i64, memory: i64) -> Settings {
        let shares = (request_milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX);
        let quota = limit_milli.saturating_mul(PERIOD_US / 1000).max(QUOTA_US_MIN);
        Settings { shares, quota_us: if limit_milli > 0 { quota } else { -1 }, memory }
    }
}

/// A pod on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) uid: String,
    pub(crate) qos: KubeQos,
    pub(crate) settings: Settings,
    pub(crate) request_milli: i64,
    /// Those that run, and the sandbox that holds them together.
    pub(crate) containers: Vec<Part>,
    /// What the pod would use if nobody held it back.
    pub(crate) wants: Use,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) settings: Settings,
    /// Its part of what the pod uses.
    pub(crate) weight: i64,
}

/// Thousandths and bytes that a container asks for and is limited to; zero is none.
#[derive(Clone, Copy, Default)]
struct Asked {
    request: i64,
    limit: i64,
    memory_limit: i64,
}

impl Tenant {
    /// None for a pod whose class cannot be told.
    pub(crate) fn read(pod: &Pod) -> Option<Tenant> {
        let uid = pod.metadata.uid.clone()?;
        let qos = qos::kube_qos(pod)?;
        let spec = pod.spec.as_ref()?;
        let all: Vec<Asked> = spec.containers.iter().map(asked).collect();
        let request: i64 = all.iter().map(|one| one.request).sum();
        // A pod is limited when all its containers are.
        let sum = |limit: fn(&Asked) -> i64| match all.iter().all(|one| limit(one) > 0) {
            true => all.iter().map(limit).sum(),
            false => 0,
        };
        let settings = Settings::of(request, sum(|one| one.limit), sum(|one| one.memory_limit));
        let status = pod.status.as_ref();
        let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let inits = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
        let mut containers = Vec::new();
        for status in inits.iter().chain(statuses) {
            let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
            let id = status.container_id.as_deref().and_then(|id| id.split_once("://"));
            let (true, Some((_, id))) = (is_running, id) else { continue };
            let mut specs = spec.init_containers.iter().flatten().chain(&spec.containers);
            let own = specs.find(|container| container.name == status.name).map(asked).unwrap_or_default();
            let settings = Settings::of(own.request, own.limit, own.memory_limit);
            containers.push(Part { id: id.to_owned(), settings, weight: own.request.max(1) });
        }
        if !containers.is_empty() {
            let id = hex_digest(&[&uid, "sandbox"]);
            containers.push(Part { id, settings: Settings::LEAST, weight: 0 });
        }
        Some(Tenant { uid, qos, settings, request_milli: request, containers, wants: Use::default() })
    }

    /// The group of its class.
    pub(super) fn class(&self) -> &'static str {
        match self.qos {
            KubeQos::Guaranteed => ROOT,
            KubeQos::Burstable => BURSTABLE,
            KubeQos::BestEffort => BEST_EFFORT,
        }
    }

    /// Its own group.
    pub(crate) fn path(&self) -> String {
        format!("{}/pod{}", self.class(), self.uid)
    }

    /// What each container would use: its part by what it asks for.
    pub(super) fn uses(&self) -> impl Iterator<Item = (&str, Use)> {
        let all: i64 = self.containers.iter().map(|part| part.weight).sum::<i64>().max(1);
        let share = move |amount: i64, weight: i64| {
            let part = i128::from(amount) * i128::from(weight) / i128::from(all);
            i64::try_from(part).unwrap_or(i64::MAX)
        };
        self.containers.iter().map(move |part| {
            let wants = Use {
                cpu: share(self.wants.cpu, part.weight),
                memory: share(self.wants.memory, part.weight),
            };
            (part.id.as_str(), wants)
        })
    }
}

/// Kubelet knows native resources only; a limit without a request is a request.
fn asked(container: &Container) -> Asked {
    let Some(resources) = &container.resources else { return Asked::default() };
    let requests = resource_list(resources.requests.as_ref());
    let limits = resource_list(resources.limits.as_ref());
    let limit = limits.get(CPU).map_or(0, |amount| amount.milli_value());
    Asked {
        request: requests.get(CPU).map_or(limit, |amount| amount.milli_value()),
        limit,
        memory_limit: limits.get(MEMORY).map_or(0, |amount| amount.value()),
    }
}
