//! Why a node lends what it lends: the maths with the numbers used, and who set each parameter. Pure.
//!
//! [`explain`] asks the same functions as the controller, on a copy of what it remembers; [`NodeExplanation`] is data,
//! and its `Display` the text for people.

use std::fmt;

use koord_api::annotation::Annotation;
use koord_api::annotation::node::ThirdPartyAllocations;
use koord_api::keys::node::annotation::CPU_NORMALIZATION_RATIO;
use koord_api::keys::resource::{BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY};
use koord_api::quantity::Quantity;
use koord_api::slo::colocation::CalculatePolicy;
use koord_api::slo::{Parameter, key};
use serde::Serialize;

use super::batch::{self, BatchResource, Math};
use super::mid::{self, MidResource, Source, Units};
use super::plan::{Plan, is_enabled, plan};
use super::plugin::{Input, NodeMemory, Plugin};
use crate::amounts::Amounts;

/// Everything that can be said about a node's reclaimed resources.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    pub node: String,
    /// Whether the node is colocated, or why not.
    pub state: String,
    /// Every parameter of the node's colocation strategy.
    pub parameters: Vec<ParameterLine>,
    pub batch: Account,
    pub mid: Account,
    /// By zone of the NodeResourceTopology.
    pub zones: Vec<ZoneAccount>,
    /// What was worked out beside what stands on the node.
    pub resources: Vec<ResourceLine>,
    /// Whether the node would be written now.
    pub write: String,
    /// What went wrong, if anything.
    pub errors: Vec<String>,
}

/// A parameter and the layer that set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParameterLine {
    pub name: String,
    pub value: String,
    pub layer: String,
}

/// One calculation, line by line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// How it was done, or why not.
    pub summary: String,
    pub lines: Vec<Line>,
}

/// The calculation of one zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ZoneAccount {
    pub zone: String,
    #[serde(flatten)]
    pub account: Account,
}

/// One term of a calculation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// What is done with it: `-`, `+`, `x`, `=`, `<` for "at most", or nothing.
    pub sign: &'static str,
    pub term: String,
    pub cpu: String,
    pub memory: String,
    pub note: String,
}

/// A resource of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLine {
    pub name: &'static str,
    /// None when it is taken off.
    pub wanted: Option<String>,
    pub standing: Option<String>,
}

/// What the one who is asked has to do with the node.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'m> {
    /// It writes the node, and remembers this of it.
    Writer(&'m NodeMemory),
    /// It does not, for this reason, and remembers nothing.
    Onlooker(&'static str),
}

/// Explains a node as it would be treated now.
pub fn explain(plugins: &[&dyn Plugin], input: &Input<'_>, asked: Asked<'_>) -> NodeExplanation {
    let memory = match asked {
        Asked::Writer(memory) => memory.clone(),
        Asked::Onlooker(_) => NodeMemory::default(),
    };
    let parameters = Parameters::of(input);
    let plan = plan(plugins, input, &mut memory.clone());
    let works = |name: &str| is_enabled(input) && plugins.iter().any(|plugin| plugin.name() == name);
    let batch = works(BatchResource.name()).then(|| batch::work_out(input, &mut memory.clone())).flatten();
    let mid = works(MidResource.name()).then(|| mid::work_out(input)).flatten();
    let nothing = |plugin: &dyn Plugin| match is_enabled(input) && !works(plugin.name()) {
        true => {
            Account { summary: format!("the plugin {} is switched off", plugin.name()), lines: Vec::new() }
        }
        false => nothing(input),
    };
    let zones = batch.iter().flat_map(|worked| &worked.zones);
    let errors = plan
        .runs
        .iter()
        .filter_map(|run| Some(format!("{} {}: {}", run.plugin, run.stage.as_str(), run.error.as_ref()?)));
    let resource = |name: &'static str| ResourceLine {
        name,
        wanted: plan.prepared.allocatable(name).map(|amount| amount.to_string()),
        standing: input.node.allocatable(name).map(|amount| amount.to_string()),
    };
    NodeExplanation {
        node: input.node.name.clone(),
        state: state(input).to_owned(),
        batch: batch.as_ref().map_or_else(
            || nothing(&BatchResource),
            |worked| account_of_batch(input, &parameters, worked, &plan),
        ),
        mid: mid.as_ref().map_or_else(|| nothing(&MidResource), |worked| account_of_mid(&parameters, worked)),
        zones: zones
            .map(|(zone, math)| ZoneAccount {
                zone: zone.clone(),
                account: account_of_zone(input, &parameters, (zone, math), &plan),
            })
            .collect(),
        resources: [BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY].map(resource).into(),
        write: match asked {
            Asked::Writer(memory) => write_text(input, memory, plan.needs_status, plan.needs_meta),
            Asked::Onlooker(reason) => reason.to_owned(),
        },
        errors: errors.collect(),
        parameters: parameters.lines(),
    }
}

fn state(input: &Input<'_>) -> &'static str {
    let cluster = input.config.colocation.rules().and_then(|rules| rules.cluster.enable);
    match (cluster, input.settings.is_enabled) {
        (Some(true), true) => "colocation is on",
        (Some(true), false) => "colocation is off on this node",
        _ => "colocation is off in the cluster",
    }
}

/// Why nothing was worked out.
fn nothing(input: &Input<'_>) -> Account {
    let summary = match input.metric {
        _ if !is_enabled(input) => "taken off: colocation is off".to_owned(),
        None => "taken off: there is no NodeMetric".to_owned(),
        Some(metric) => match metric.update_time {
            None => "taken off: the node agent has not reported".to_owned(),
            Some(_) if metric.node.is_none() => "taken off: the report lacks the node itself".to_owned(),
            Some(reported) => format!(
                "taken off: the report is {} s old, more than degradeTimeMinutes allows",
                input.now.duration_since(reported).as_secs()
            ),
        },
    };
    Account { summary, lines: Vec::new() }
}

fn write_text(input: &Input<'_>, memory: &NodeMemory, needs_status: bool, needs_meta: bool) -> String {
    let age = memory.node_synced.map(|synced| input.now.duration_since(synced));
    match (needs_status, needs_meta, age) {
        (false, false, None) => "nothing to write".to_owned(),
        (false, false, Some(age)) => format!(
            "not written: no amount moved by more than {} of it, and the last write was {} s ago, not more than {} s",
            input.settings.diff_threshold,
            age.as_secs(),
            input.settings.refresh_after.as_secs()
        ),
        (false, true, _) => "labels or annotations are written".to_owned(),
        (true, _, Some(age)) if age <= input.settings.refresh_after => {
            format!("written: an amount moved by more than {} of it", input.settings.diff_threshold)
        }
        (true, _, _) => "written: it is due".to_owned(),
    }
}

/// The parameters of the node's colocation strategy, by name.
struct Parameters(Vec<Parameter>);

impl Parameters {
    fn of(input: &Input<'_>) -> Parameters {
        Parameters(input.config.explain(input.node.facts()).remove(key::COLOCATION).unwrap_or_default())
    }

    /// `cpuReclaimThresholdPercent=60 (cluster)`; nothing for one that is not set.
    fn told(&self, name: &str) -> String {
        let found = self.0.iter().find(|parameter| parameter.path == name);
        found.map(|found| format!("{name}={} ({})", found.value, found.layer)).unwrap_or_default()
    }

    /// Several, as far as they are set.
    fn all_told(&self, names: &[&str]) -> String {
        let told: Vec<String> =
            names.iter().map(|name| self.told(name)).filter(|text| !text.is_empty()).collect();
        told.join(", ")
    }

    fn lines(self) -> Vec<ParameterLine> {
        let line =
            |Parameter { path, value, layer }| ParameterLine { name: path, value, layer: layer.to_string() };
        self.0.into_iter().map(line).collect()
    }
}

fn line(sign: &'static str, term: &str, amounts: Amounts, note: impl Into<String>) -> Line {
    let (cpu, memory) = (amounts.cpu.to_string(), amounts.memory.to_string());
    Line { sign, term: term.to_owned(), cpu, memory, note: note.into() }
}

fn pair(amounts: Amounts) -> String {
    format!("{} / {}", amounts.cpu, amounts.memory)
}

fn account_of_batch(
    input: &Input<'_>,
    parameters: &Parameters,
    worked: &batch::Worked,
    plan: &Plan,
) -> Account {
    let counts = worked.counts;
    let settings = input.settings;
    let mut summary = format!(
        "cpu by {}, memory by {}; {} high-priority pods, {} of them not measured; {} reports of pods that are gone",
        settings.cpu_policy, settings.memory_policy, counts.pods, counts.unmeasured, counts.dangling
    );
    if worked.is_bridged {
        summary.push_str("; the report is too old, the stabilization window bridges the gap");
    }
    let system = format!(
        "larger of used ({}, host applications {}) and reserved ({} by the kubelet, {} by annotation)",
        pair(worked.system_usage),
        pair(worked.host_apps),
        pair(worked.base.kubelet_reserved),
        pair(worked.base.annotation_reserved),
    );
    let mut lines = lines_of(input, parameters, &worked.node, &system);
    let others = batch::taken_by_others(&plan.prepared).unwrap_or_default();
    let others = Amounts::named(&others, BATCH_CPU, BATCH_MEMORY);
    let steps = [multiplied(plan), subtracted(in_cores(others))].into_iter().flatten().collect();
    let amount = |name| plan.prepared.allocatable(name).unwrap_or_default();
    let result = Amounts { cpu: amount(BATCH_CPU), memory: amount(BATCH_MEMORY) };
    publish(&mut lines, steps, in_cores(result));
    Account { summary, lines }
}

fn account_of_zone(
    input: &Input<'_>,
    parameters: &Parameters,
    (zone, math): (&str, &Math),
    plan: &Plan,
) -> Account {
    let system = "an equal share of the node's";
    let mut lines = lines_of(input, parameters, math, system);
    let amount = |name| batch::published_in_zone(&plan.resource, zone, name).unwrap_or_default();
    let result = Amounts { cpu: amount(BATCH_CPU), memory: amount(BATCH_MEMORY) };
    publish(&mut lines, multiplied(plan).into_iter().collect(), in_cores(result));
    Account { summary: String::new(), lines }
}

/// What happens to the result of the formula before it stands on the node, if anything does. Spec: manager 6.6.
fn publish(lines: &mut Vec<Line>, steps: Vec<Line>, result: Amounts) {
    if !steps.is_empty() {
        lines.extend(steps);
        lines.push(line("=", "published", result, "CPU rounded up to thousandths"));
    }
}

fn multiplied(plan: &Plan) -> Option<Line> {
    let ratio = batch::multiplier(&plan.resource)?;
    let note = format!("{CPU_NORMALIZATION_RATIO} of this round");
    Some(Line {
        sign: "x",
        term: "faster CPU".to_owned(),
        cpu: ratio.to_string(),
        memory: "1".to_owned(),
        note,
    })
}

fn subtracted(others: Amounts) -> Option<Line> {
    let note = format!("koord-batch of {}; not below 0", ThirdPartyAllocations::KEY);
    (others != Amounts::ZERO).then(|| line("-", "third parties", others, note))
}

/// Amounts of batch resources, which count CPU in thousandths, as the formula has them.
fn in_cores(amounts: Amounts) -> Amounts {
    Amounts { cpu: Quantity::cores_milli(amounts.cpu.value()), memory: amounts.memory }
}

fn lines_of(input: &Input<'_>, parameters: &Parameters, math: &Math, system: &str) -> Vec<Line> {
    let settings = input.settings;
    let by_request = settings.memory_policy == CalculatePolicy::Request;
    let base = Amounts {
        cpu: math.system.cpu,
        memory: if by_request { math.reserved.memory } else { math.system.memory },
    };
    let claimed = math.taken - base;
    let margin = ["cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent"];
    let policies = parameters.all_told(&["cpuCalculatePolicy", "memoryCalculatePolicy"]);
    let pods = format!(
        "{policies}; used {}, requested {}, larger of both {}",
        pair(math.claims.used),
        pair(math.claims.request),
        pair(math.claims.max_used_request)
    );
    let mut lines = vec![
        line("", "capacity", math.capacity, ""),
        line("-", "margin", math.margin, format!("what {} leave", parameters.all_told(&margin))),
        line("-", "system", base, system),
        line("-", "high-priority pods", claimed, pods),
    ];
    if math.held != math.taken {
        let note = parameters.told("batchStabilizationWindowSeconds");
        lines.push(line("-", "earlier demand", math.held - math.taken, format!("highest of {note}")));
    }
    if let (Some(cpu), Some(memory)) = caps(math) {
        let caps = ["batchCPUThresholdPercent", "batchMemoryThresholdPercent"];
        lines.push(Line { sign: "<", term: "cap".to_owned(), cpu, memory, note: parameters.all_told(&caps) });
    }
    lines.push(line("=", "batch", math.result, ""));
    lines
}

/// Both caps as texts where there is one; `-` for the other.
fn caps(math: &Math) -> (Option<String>, Option<String>) {
    if math.cpu_cap.is_none() && math.memory_cap.is_none() {
        return (None, None);
    }
    let text = |cap: Option<Quantity>| Some(cap.map_or_else(|| "-".to_owned(), |cap| cap.to_string()));
    (text(math.cpu_cap), text(math.memory_cap))
}

fn units(sign: &'static str, term: &str, units: Units, note: impl Into<String>) -> Line {
    let amounts =
        Amounts { cpu: Quantity::cores_milli(units.cpu_milli), memory: Quantity::bytes(units.bytes) };
    line(sign, term, amounts, note)
}

fn account_of_mid(parameters: &Parameters, worked: &mid::Worked) -> Account {
    let mut lines = Vec::new();
    let summary = match worked.source {
        Source::Dynamic { reclaimable, unused, reserved, requested, unallocated, unallocated_part } => {
            lines.push(units("", "prod reclaimable", reclaimable, "predicted by the node agent"));
            let note = "capacity less what the node uses; 0 while no report tells";
            lines.push(units("<", "unused", unused, note));
            let note = format!(
                "{} of unallocated {}: capacity {} less reserved or used by the system {}, less requests of prod pods {}",
                parameters.told("midUnallocatedPercent"),
                show(unallocated),
                show(worked.capacity),
                show(reserved),
                show(requested)
            );
            lines.push(units("+", "unallocated part", unallocated_part, note));
            "dynamic"
        }
        Source::Static(offered) => {
            let names = ["midStaticCPUReservedPercent", "midStaticMemoryReservedPercent"];
            let note = format!("{} of capacity {}", parameters.all_told(&names), show(worked.capacity));
            lines.push(units("", "fixed part", offered, note));
            "static"
        }
    };
    let caps = parameters.all_told(&["midCPUThresholdPercent", "midMemoryThresholdPercent"]);
    lines.push(units("<", "cap", worked.cap, format!("{caps} of capacity")));
    lines.push(units("=", "mid", worked.result, ""));
    Account { summary: summary.to_owned(), lines }
}

fn show(units: Units) -> String {
    format!("{} / {}", Quantity::cores_milli(units.cpu_milli), Quantity::bytes(units.bytes))
}

impl fmt::Display for NodeExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "node {}: {}", self.node, self.state)?;
        writeln!(f, "\nstrategy")?;
        let rows: Vec<[&str; 3]> =
            self.parameters.iter().map(|line| [&*line.name, &*line.value, &*line.layer]).collect();
        table(f, &rows)?;
        account(f, "batch", &self.batch)?;
        for ZoneAccount { zone, account: zone_account } in &self.zones {
            account(f, &format!("batch, zone {zone}"), zone_account)?;
        }
        account(f, "mid", &self.mid)?;
        writeln!(f, "\nresources")?;
        let mut rows = vec![["", "worked out", "on the node"]];
        rows.extend(self.resources.iter().map(|line| {
            [line.name, line.wanted.as_deref().unwrap_or("-"), line.standing.as_deref().unwrap_or("-")]
        }));
        table(f, &rows)?;
        writeln!(f, "{}", self.write)?;
        self.errors.iter().try_for_each(|error| writeln!(f, "error: {error}"))
    }
}

fn account(f: &mut fmt::Formatter<'_>, title: &str, account: &Account) -> fmt::Result {
    let colon = if account.summary.is_empty() { "" } else { ": " };
    writeln!(f, "\n{title}{colon}{}", account.summary)?;
    if account.lines.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["", "", "cpu", "memory", ""]];
    rows.extend(
        account.lines.iter().map(|line| [line.sign, &line.term, &line.cpu, &line.memory, &*line.note]),
    );
    table(f, &rows)
}

/// Columns as wide as their longest cell, two spaces apart, the whole indented by two.
fn table<const N: usize>(f: &mut fmt::Formatter<'_>, rows: &[[&str; N]]) -> fmt::Result {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let mut text = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("  {cell:<width$}"));
        }
        writeln!(f, "{}", text.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
