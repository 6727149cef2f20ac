//! Pools from YAML and from the compact form of a flag.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use koord_api::quantity::{Family, Quantity};
use koord_kit::config::{ConfigErrors, Document};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde_json::{Map, Value, json};

use super::{Koordlet, Pool, Shape, Taint, zone_names};
use crate::kinds::names;

/// Far above what the sandbox is made for, and enough to keep a slip of the finger from taking all memory.
const NODES_MAX: i64 = 20_000;
const CPUS_MAX: i64 = 4096;
const DEVICES_MAX: i64 = 64;
/// As many as fit in the functions of one PCI bus.
const VFS_MAX: i64 = 127;
const ZONES_MAX: i64 = 100;
/// Nodes of a pool that may have a real koordlet: each takes threads and memory of its own.
pub const REAL_KOORDLETS_MAX: u32 = 16;

/// Kubelet's topology manager policies.
const TOPOLOGY_POLICIES: [&str; 4] = ["none", "best-effort", "restricted", "single-numa-node"];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A pool as a file writes it, field by field.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawPool {
    name: Option<String>,
    count: Option<i64>,
    cores: Option<i64>,
    threads: Option<i64>,
    sockets: Option<i64>,
    numa_per_socket: Option<i64>,
    memory: Option<Scalar>,
    ephemeral_storage: Option<Scalar>,
    pods: Option<i64>,
    reserved_cpu: Option<Scalar>,
    reserved_memory: Option<Scalar>,
    gpus: Option<i64>,
    gpu_model: Option<String>,
    gpu_driver: Option<String>,
    gpu_memory: Option<Scalar>,
    rdma: Option<i64>,
    rdma_vfs: Option<i64>,
    resources: BTreeMap<String, Scalar>,
    labels: BTreeMap<String, Scalar>,
    annotations: BTreeMap<String, Scalar>,
    taints: Vec<String>,
    region: Option<String>,
    zones: Option<i64>,
    topology_policy: Option<String>,
    koordlet: Option<String>,
}

/// Text or a number, as text.
#[derive(Debug)]
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct AnyText;
        impl Visitor<'_> for AnyText {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
        }
        deserializer.deserialize_any(AnyText)
    }
}

/// The pools of a YAML file: a list, such as `- {name: web, count: 50, cores: 64, memory: 256Gi}`.
///
/// `file` is what errors call it.
pub fn read(file: impl AsRef<Path>, text: &str) -> Result<Vec<Pool>, ConfigErrors> {
    let document = Document::parse(file, text)?;
    let raw: Vec<RawPool> = document.decode()?;
    let mut problems = document.problems();
    let mut checks = Vec::new();
    let mut pools: Vec<Pool> = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        let mut check = Check { at: format!("[{index}]"), refusals: Vec::new() };
        let pool = check.pool(raw);
        if pools.iter().any(|known| known.name == pool.name) {
            check.refuse("name", &pool.name, "a name that no other pool has");
        }
        pools.push(pool);
        checks.extend(check.refusals);
    }
    if raw.is_empty() {
        problems.message("", "the list of pools is empty");
    }
    for (path, message) in checks {
        problems.message(&path, message);
    }
    problems.finish(pools)
}

/// One pool from its compact form: `cores=32,memory=128Gi,sockets=2,gpus=8`. Fields are those of the
/// YAML form; `label`, `annotation`, `resource` and `taint` may come several times:
/// `label=disk=ssd,taint=dedicated=gpu:NoSchedule`.
pub fn flag(text: &str) -> Result<Pool, ConfigErrors> {
    let pool = flag_tree(text)?;
    // Positions in the tree made here would mean nothing to whoever typed the flag.
    let plain = |mut errors: ConfigErrors| {
        for problem in &mut errors.problems {
            problem.position = None;
        }
        errors
    };
    let document = Document::parse(FLAG, &pool.to_string())?;
    let raw: RawPool = document.decode().map_err(plain)?;
    let mut check = Check { at: String::new(), refusals: Vec::new() };
    let pool = check.pool(&raw);
    let mut problems = document.problems();
    for (path, message) in check.refusals {
        problems.message(&path, message);
    }
    problems.finish(pool).map_err(plain)
}

/// What errors call the flag.
const FLAG: &str = "--node-shape";

fn flag_tree(text: &str) -> Result<Value, ConfigErrors> {
    let mut pool = Map::new();
    let mut faults = Vec::new();
    for part in fields(text).into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            faults.push(format!("{part:?} is not accepted, expected field=value such as cores=32"));
            continue;
        };
        let group = match key {
            "label" => "labels",
            "annotation" => "annotations",
            "resource" => "resources",
            "taint" => {
                let list = pool.entry("taints").or_insert_with(|| json!([]));
                list.as_array_mut().into_iter().for_each(|list| list.push(Value::from(value)));
                continue;
            }
            _ => {
                let known = pool.insert(key.to_owned(), number_or_text(value));
                if known.is_some() {
                    faults.push(format!("{key} is given twice"));
                }
                continue;
            }
        };
        let Some((name, value)) = value.split_once('=') else {
            faults.push(format!("{part:?} is not accepted, expected {key}=KEY=VALUE"));
            continue;
        };
        pool.entry(group).or_insert_with(|| json!({}))[name] = Value::from(value);
    }
    if faults.is_empty() {
        return Ok(Value::Object(pool));
    }
    let problem = |message| koord_kit::config::Problem { position: None, path: String::new(), message };
    Err(ConfigErrors { file: FLAG.into(), problems: faults.into_iter().map(problem).collect() })
}

/// Fields stand between commas; those within braces, brackets or quotes belong to a value.
fn fields(text: &str) -> Vec<&str> {
    let (mut depth, mut is_quoted, mut start) = (0_u32, false, 0);
    let mut fields = Vec::new();
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '{' | '[' if !is_quoted => depth += 1,
            '}' | ']' if !is_quoted => depth = depth.saturating_sub(1),
            ',' if !is_quoted && depth == 0 => {
                fields.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    fields.push(&text[start..]);
    fields
}

fn number_or_text(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from)
}

/// Turns a raw pool into a checked one and notes what cannot be used.
struct Check {
    /// Where the pool stands in its document.
    at: String,
    refusals: Vec<(String, String)>,
}

impl Check {
    fn pool(&mut self, raw: &RawPool) -> Pool {
        let name = raw.name.clone().unwrap_or_else(|| "node".to_owned());
        // The longest number of a node must still fit.
        if !names::label(&name, false).is_empty() || name.len() > 52 {
            let wanted =
                "at most 52 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit";
            self.refuse("name", &name, wanted);
        }
        let count = self.number("count", raw.count, 1, 0..=NODES_MAX);
        let shape = self.shape(raw);
        if shape.koordlet == Koordlet::Real && count > REAL_KOORDLETS_MAX {
            let wanted = format!("at most {REAL_KOORDLETS_MAX} nodes with koordlet: real");
            self.refuse("count", count, &wanted);
        }
        Pool { name, count, shape }
    }

    fn shape(&mut self, raw: &RawPool) -> Shape {
        let base = Shape::default();
        let mut shape = Shape {
            cores: self.number("cores", raw.cores, base.cores, 1..=CPUS_MAX),
            threads: self.number("threads", raw.threads, base.threads, 1..=8),
            sockets: self.number("sockets", raw.sockets, base.sockets, 1..=16),
            numa_per_socket: self.number("numaPerSocket", raw.numa_per_socket, base.numa_per_socket, 1..=16),
            memory: self.bytes("memory", raw.memory.as_ref(), base.memory),
            ephemeral_storage: self.bytes(
                "ephemeralStorage",
                raw.ephemeral_storage.as_ref(),
                base.ephemeral_storage,
            ),
            pods: self.number("pods", raw.pods, base.pods, 0..=100_000),
            reserved_memory: self.bytes("reservedMemory", raw.reserved_memory.as_ref(), 0),
            reserved_cpu_milli: self
                .quantity("reservedCpu", raw.reserved_cpu.as_ref(), "a number of cores such as 500m")
                .map_or(0, Quantity::milli_value),
            taints: self.taints(&raw.taints),
            region: raw.region.clone().unwrap_or(base.region),
            zones: zone_names(self.number("zones", raw.zones, 1, 0..=ZONES_MAX)),
            topology_policy: raw.topology_policy.clone().unwrap_or(base.topology_policy),
            resources: self.resources(&raw.resources),
            labels: self.labels(&raw.labels),
            annotations: self.annotations(&raw.annotations),
            koordlet: self.koordlet(raw.koordlet.as_deref()),
            ..Shape::default()
        };
        shape.gpus.count = self.number("gpus", raw.gpus, 0, 0..=DEVICES_MAX);
        shape.gpus.memory = self.bytes("gpuMemory", raw.gpu_memory.as_ref(), shape.gpus.memory);
        shape.gpus.model = raw.gpu_model.clone().unwrap_or(shape.gpus.model);
        shape.gpus.driver = raw.gpu_driver.clone().unwrap_or(shape.gpus.driver);
        shape.rdma.count = self.number("rdma", raw.rdma, 0, 0..=DEVICES_MAX);
        shape.rdma.vfs = self.number("rdmaVfs", raw.rdma_vfs, 0, 0..=VFS_MAX);
        self.whole(&shape);
        shape
    }

    fn koordlet(&mut self, text: Option<&str>) -> Koordlet {
        match text {
            None | Some("simulated") => Koordlet::Simulated,
            Some("real") => Koordlet::Real,
            Some(other) => {
                self.refuse("koordlet", other, "simulated or real");
                Koordlet::Simulated
            }
        }
    }

    /// Rules over several fields.
    fn whole(&mut self, shape: &Shape) {
        let numa = shape.numa_nodes();
        if numa > 0 && !shape.cores.is_multiple_of(numa) {
            let wanted = format!("a multiple of the {numa} NUMA nodes (sockets x numaPerSocket)");
            self.refuse("cores", shape.cores, &wanted);
        }
        if shape.cpus() > CPUS_MAX.unsigned_abs().try_into().unwrap_or(u32::MAX) {
            self.refuse("threads", shape.threads, &format!("cores x threads of at most {CPUS_MAX}"));
        }
        if !TOPOLOGY_POLICIES.contains(&shape.topology_policy.as_str()) {
            self.refuse("topologyPolicy", &shape.topology_policy, &TOPOLOGY_POLICIES.join(", "));
        }
        for (field, text) in
            [("region", &shape.region), ("gpuModel", &shape.gpus.model), ("gpuDriver", &shape.gpus.driver)]
        {
            if !is_label_value(text) {
                self.refuse(field, text, "a label value: at most 63 letters, digits, '-', '_' and '.'");
            }
        }
    }

    fn number(
        &mut self,
        field: &str,
        value: Option<i64>,
        default: u32,
        range: std::ops::RangeInclusive<i64>,
    ) -> u32 {
        let Some(value) = value else { return default };
        match u32::try_from(value) {
            Ok(number) if range.contains(&value) => number,
            _ => {
                let wanted = format!("a whole number from {} to {}", range.start(), range.end());
                self.refuse(field, value, &wanted);
                default
            }
        }
    }

    fn bytes(&mut self, field: &str, value: Option<&Scalar>, default: i64) -> i64 {
        self.quantity(field, value, "an amount of bytes such as 128Gi").map_or(default, Quantity::value)
    }

    fn quantity(&mut self, field: &str, value: Option<&Scalar>, wanted: &str) -> Option<Quantity> {
        let Scalar(text) = value?;
        match text.parse::<Quantity>() {
            Ok(quantity) if quantity.nano() >= 0 => Some(quantity),
            _ => {
                self.refuse(field, text, wanted);
                None
            }
        }
    }

    fn resources(&mut self, raw: &BTreeMap<String, Scalar>) -> koord_api::quantity::ResourceList {
        let mut list = koord_api::quantity::ResourceList::new();
        for (name, amount) in raw {
            let field = format!("resources.{name}");
            if !is_key(name) {
                self.refuse(&field, name, "a resource name such as example.com/card");
            }
            if let Some(amount) = self.quantity(&field, Some(amount), "an amount such as 8 or 16Gi") {
                let amount = match amount.family() {
                    Family::DecimalExponent => amount.with_family(Family::DecimalSi),
                    _ => amount,
                };
                list.insert(name.clone(), amount);
            }
        }
        list
    }

    fn labels(&mut self, raw: &BTreeMap<String, Scalar>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        for (key, Scalar(value)) in raw {
            let field = format!("labels.{key}");
            if !is_key(key) {
                self.refuse(&field, key, "a label key such as example.com/disk");
            }
            if !is_label_value(value) {
                self.refuse(&field, value, "a label value: at most 63 letters, digits, '-', '_' and '.'");
            }
            labels.insert(key.clone(), value.clone());
        }
        labels
    }

    fn annotations(&mut self, raw: &BTreeMap<String, Scalar>) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        for (key, Scalar(value)) in raw {
            if !is_key(&key.to_ascii_lowercase()) {
                self.refuse(
                    &format!("annotations.{key}"),
                    key,
                    "an annotation key such as example.com/owner",
                );
            }
            annotations.insert(key.clone(), value.clone());
        }
        annotations
    }

    fn taints(&mut self, raw: &[String]) -> Vec<Taint> {
        let mut taints = Vec::new();
        for (index, text) in raw.iter().enumerate() {
            match parse_taint(text) {
                Some(taint) => taints.push(taint),
                None => {
                    let wanted =
                        format!("KEY=VALUE:EFFECT or KEY:EFFECT, EFFECT one of {}", EFFECTS.join(", "));
                    self.refuse(&format!("taints[{index}]"), text, &wanted);
                }
            }
        }
        taints
    }

    fn refuse(&mut self, field: &str, value: impl fmt::Debug, wanted: &str) {
        let path = if self.at.is_empty() { field.to_owned() } else { format!("{}.{field}", self.at) };
        self.refusals.push((path, format!("{value:?} is not accepted, expected {wanted}")));
    }
}

fn parse_taint(text: &str) -> Option<Taint> {
    let (body, effect) = text.rsplit_once(':')?;
    let (key, value) = body.split_once('=').unwrap_or((body, ""));
    let is_sound = EFFECTS.contains(&effect) && is_key(key) && is_label_value(value);
    let taint = Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() };
    is_sound.then_some(taint)
}

fn is_key(key: &str) -> bool {
    names::is_qualified_name(key).is_empty()
}

fn is_label_value(value: &str) -> bool {
    names::is_label_value(value).is_empty()
}
