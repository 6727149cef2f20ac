//! ReservationArgs. Spec: scheduler-reservation-loadaware A10.

use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_engine::profile::args::{
    Args, CandidateLimits, Percent, PreAllocation, ReservationArgs as Engine, SelectorIndex,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json, listed};
use crate::config::field::{Fault, below, is_extended_resource};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ReservationArgs {
    enable_preemption: Option<bool>,
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
    controller_workers: Option<i32>,
    gc_duration_seconds: Option<i64>,
    gc_interval_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disable_garbage_collection: Option<bool>,
    resync_interval_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pre_allocation_config: Option<RawPreAllocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored_resources: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored_resource_groups: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation_selector_index: Option<RawSelectorIndex>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct RawPreAllocation {
    enable_cluster_mode: Option<bool>,
    cluster_label_key: Option<String>,
    cluster_priority_annotation_key: Option<String>,
    prefer_no_pre_allocated_pods: Option<bool>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSelectorIndex {
    enabled: Option<bool>,
    key_prefixes: Option<Vec<String>>,
    keys: Option<Vec<String>>,
}

/// 0 is one that was not given.
fn fill_seconds(slot: &mut Option<i64>, seconds: i64) {
    if slot.unwrap_or_default() == 0 {
        *slot = Some(seconds);
    }
}

impl RawArgs for ReservationArgs {
    fn set_defaults(&mut self, _: &Gates) {
        self.enable_preemption.get_or_insert(false);
        self.min_candidate_nodes_percentage.get_or_insert(10);
        self.min_candidate_nodes_absolute.get_or_insert(100);
        self.controller_workers.get_or_insert(1);
        fill_seconds(&mut self.gc_duration_seconds, 86_400);
        fill_seconds(&mut self.gc_interval_seconds, 60);
        fill_seconds(&mut self.resync_interval_seconds, 60);
    }

    fn check(&self, at: &str, gates: &Gates, out: &mut Args) -> Vec<Fault> {
        let mut faults = Vec::new();
        let percentage = self.min_candidate_nodes_percentage.unwrap_or_default();
        let checked = Percent::new(percentage.into());
        // The capital letters are upstream's.
        if checked.is_none() {
            let path = below(at, "MinCandidateNodesPercentage");
            faults.push(Fault::invalid(path, percentage, "must be in the range [0, 100]"));
        }
        let absolute = self.min_candidate_nodes_absolute.unwrap_or_default();
        let mut seconds = |field: &str, value: Option<i64>| {
            let value = value.unwrap_or_default();
            if value < 0 {
                faults.push(Fault::invalid(below(at, field), value, "must be non-negative"));
            }
            GoDuration::from_seconds(value)
        };
        seconds("MinCandidateNodesAbsolute", Some(absolute.into()));
        let gc_duration = seconds("GcDuration", self.gc_duration_seconds);
        let gc_interval = seconds("GcInterval", self.gc_interval_seconds);
        let resync_interval = seconds("ResyncIntervalSeconds", self.resync_interval_seconds);
        let controller_workers = self.check_workers(at, &mut faults);
        self.check_ignored(at, &mut faults);
        out.reservation = Engine {
            enable_preemption: self.enable_preemption.unwrap_or_default(),
            candidates: CandidateLimits { percentage: checked.unwrap_or_default(), absolute },
            controller_workers,
            gc_duration,
            gc_interval,
            resync_interval,
            disable_garbage_collection: self.disable_garbage_collection.unwrap_or_default(),
            pre_allocation: pre_allocation(self.pre_allocation_config.as_ref()),
            ignored_resources: listed(&self.ignored_resources).to_vec(),
            ignored_resource_groups: listed(&self.ignored_resource_groups).to_vec(),
            selector_index: selector_index(self.reservation_selector_index.as_ref()),
            omit_node_labels: gates.is_on("OmitNodeLabelsForReservation"),
            skip_fits_node: gates.is_on("SkipReservationFitsNode"),
            clean_allocated: gates.is_on("CleanExpiredReservationAllocated"),
        };
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}

impl ReservationArgs {
    fn check_workers(&self, at: &str, faults: &mut Vec<Fault>) -> usize {
        let workers = self.controller_workers.unwrap_or_default();
        let count = usize::try_from(workers).unwrap_or_default();
        // Differs: upstream starts no worker for 0 or less, and reservations never end.
        if count == 0 {
            faults.push(Fault::invalid(below(at, "controllerWorkers"), workers, "must be greater than 0"));
        }
        count
    }

    fn check_ignored(&self, at: &str, faults: &mut Vec<Fault>) {
        for (i, name) in listed(&self.ignored_resources).iter().enumerate() {
            if !is_extended_resource(name) {
                let path = format!("{}[{i}]", below(at, "ignoredResources"));
                let detail = "must be an extended resource name (e.g. example.com/gpu); native resources cannot be ignored";
                faults.push(Fault::invalid(path, name.as_str(), detail));
            }
        }
        for (i, group) in listed(&self.ignored_resource_groups).iter().enumerate() {
            let detail = if group.contains('/') {
                "resource group name can't contain '/'"
            } else if !is_extended_resource(&format!("{group}/x")) {
                "must be usable as an extended resource prefix (a valid DNS subdomain and not the reserved \"kubernetes.io\" namespace)"
            } else {
                continue;
            };
            let path = format!("{}[{i}]", below(at, "ignoredResourceGroups"));
            faults.push(Fault::invalid(path, group.as_str(), detail));
        }
    }
}

fn pre_allocation(raw: Option<&RawPreAllocation>) -> PreAllocation {
    let mut checked = PreAllocation::default();
    let Some(raw) = raw else { return checked };
    checked.enable_cluster_mode = raw.enable_cluster_mode.unwrap_or_default();
    checked.prefer_no_pre_allocated_pods = raw.prefer_no_pre_allocated_pods.unwrap_or_default();
    for (slot, given) in [
        (&mut checked.cluster_label_key, &raw.cluster_label_key),
        (&mut checked.cluster_priority_annotation_key, &raw.cluster_priority_annotation_key),
    ] {
        if let Some(key) = given.as_ref().filter(|key| !key.is_empty()) {
            slot.clone_from(key);
        }
    }
    checked
}

fn selector_index(raw: Option<&RawSelectorIndex>) -> SelectorIndex {
    let Some(raw) = raw else { return SelectorIndex::default() };
    let tidy = |list: &Option<Vec<String>>| {
        let mut tidy: Vec<String> = Vec::new();
        for entry in listed(list).iter().map(|entry| entry.trim()) {
            if !entry.is_empty() && !tidy.iter().any(|other| other == entry) {
                tidy.push(entry.to_owned());
            }
        }
        tidy
    };
    SelectorIndex {
        enabled: raw.enabled.unwrap_or_default(),
        key_prefixes: tidy(&raw.key_prefixes),
        keys: tidy(&raw.keys),
    }
}
