//! CPUs, caches and NUMA nodes, read from `/sys`. Spec: koordlet-observe 2.6.
//!
//! No program is run and no text for people is parsed. Core and socket numbers are those of `lscpu`: counted by
//! first appearance in the order of CPUs, because annotations carry them. Offline CPUs are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use koord_api::cpuset::CpuSet;

use crate::error::{Error, Malformed};
use crate::handle::{Handle, Records};
use crate::root::Root;
use crate::stat::MemInfo;
use crate::text;

/// One CPU that is online.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub id: u32,
    /// Unique over all sockets.
    pub core: u32,
    pub socket: u32,
    /// NUMA node.
    pub node: u32,
    /// The first-level data cache.
    pub l1: u32,
    pub l3: u32,
}

/// The CPUs that are online, by NUMA node, socket, core and id.
pub fn cpus(root: &Root) -> Result<Vec<Cpu>, Error> {
    let dir = root.sys.join("devices/system/cpu");
    let online = online(&dir)?;
    if online.is_empty() {
        let fault = Malformed("no CPU is online".into());
        return Err(Error::content(&dir, fault));
    }
    let nodes = nodes_of_cpus(root);
    let (mut cores, mut sockets) = (Numbers::default(), Numbers::default());
    let (mut l1, mut l3) = (Numbers::default(), Numbers::default());
    let mut cpus = Vec::new();
    for id in online.iter() {
        let cpu = dir.join(format!("cpu{id}"));
        let socket = sockets.number(socket_mark(&cpu.join("topology")));
        cpus.push(Cpu {
            id,
            core: cores.number(core_mark(&cpu.join("topology"), socket, id)),
            socket,
            node: nodes.get(&id).copied().unwrap_or(0),
            l1: cache(&cpu, 1, &mut l1),
            l3: cache(&cpu, 3, &mut l3),
        });
    }
    cpus.sort_unstable_by_key(|cpu| (cpu.node, cpu.socket, cpu.core, cpu.id));
    Ok(cpus)
}

/// The CPUs that are online. As long as these are the same, so is everything that [`cpus`] tells.
pub fn online_cpus(root: &Root) -> Result<CpuSet, Error> {
    online(&root.sys.join("devices/system/cpu"))
}

/// The file that tells them, for looking often.
pub fn online_handle(root: &Root) -> Handle {
    Handle::new(root.sys.join("devices/system/cpu/online"), Records::One)
}

/// A kernel without hotplug tells no `online`; then every CPU that has a directory is.
fn online(dir: &Path) -> Result<CpuSet, Error> {
    if let Ok(list) = text::read(&dir.join("online"))
        && let Ok(cpus) = list.trim().parse::<CpuSet>()
    {
        return Ok(cpus);
    }
    Ok(numbered(dir, "cpu")?.into_iter().collect())
}

/// The numbers of sub-directories `<name><number>`.
fn numbered(dir: &Path, name: &str) -> Result<BTreeSet<u32>, Error> {
    let entries = fs::read_dir(dir).map_err(|source| Error::read(dir, source))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(name)?.parse().ok())
        .collect())
}

fn nodes_of_cpus(root: &Root) -> BTreeMap<u32, u32> {
    let dir = root.sys.join("devices/system/node");
    let mut nodes = BTreeMap::new();
    for node in numbered(&dir, "node").unwrap_or_default() {
        let list = text::read(&dir.join(format!("node{node}/cpulist"))).unwrap_or_default();
        let cpus: CpuSet = list.trim().parse().unwrap_or_default();
        nodes.extend(cpus.iter().map(|cpu| (cpu, node)));
    }
    nodes
}

/// Numbers given by first appearance.
#[derive(Default)]
struct Numbers(BTreeMap<String, u32>);

impl Numbers {
    fn number(&mut self, mark: String) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(mark).or_insert(next)
    }
}

fn word(path: PathBuf) -> Option<String> {
    let text = text::read(&path).ok()?;
    let word = text.trim();
    (!word.is_empty()).then(|| word.to_owned())
}

/// What CPUs of one socket have in common. The id alone is -1 on some arm64 machines.
fn socket_mark(topology: &Path) -> String {
    let shared = ["package_cpus_list", "core_siblings_list", "physical_package_id"];
    shared.iter().find_map(|file| word(topology.join(file))).unwrap_or_default()
}

/// What threads of one core have in common; without any word of it, a CPU is its own core.
fn core_mark(topology: &Path, socket: u32, id: u32) -> String {
    let shared = ["core_cpus_list", "thread_siblings_list"];
    if let Some(cpus) = shared.iter().find_map(|file| word(topology.join(file))) {
        return cpus;
    }
    match word(topology.join("core_id")) {
        Some(core) => format!("{socket}/{}/{core}", word(topology.join("die_id")).unwrap_or_default()),
        None => format!("cpu {id}"),
    }
}

/// The id of a CPU's cache, instruction caches apart; 0 where it has none.
fn cache(cpu: &Path, level: u32, numbers: &mut Numbers) -> u32 {
    let dir = cpu.join("cache");
    let wanted = level.to_string();
    for index in numbered(&dir, "index").unwrap_or_default() {
        let cache = dir.join(format!("index{index}"));
        let is_data = word(cache.join("type")).is_none_or(|kind| kind != "Instruction");
        if word(cache.join("level")).as_ref() != Some(&wanted) || !is_data {
            continue;
        }
        let id = word(cache.join("id")).and_then(|id| id.parse().ok());
        return id.unwrap_or_else(|| numbers.number(word(cache.join("shared_cpu_list")).unwrap_or_default()));
    }
    0
}

/// Memory of one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    pub id: u32,
    pub memory: MemInfo,
    pub huge_pages_2mi: u64,
    pub huge_pages_1gi: u64,
}

/// NUMA nodes in order of id. Nodes without memory information, and those that only start transfers, are left out.
///
/// Differs: upstream gives up when ids have gaps, as memory-only nodes make them; here they are what they are.
pub fn numa_nodes(root: &Root) -> Vec<NumaNode> {
    let dir = root.sys.join("bus/node/devices");
    let initiators =
        text::read(&root.sys.join("devices/system/node/has_generic_initiator")).unwrap_or_default();
    let initiators: CpuSet = initiators.trim().parse().unwrap_or_default();
    let ids = numbered(&dir, "node").unwrap_or_default();
    ids.into_iter().filter(|id| !initiators.contains(*id)).filter_map(|id| numa_node(&dir, id)).collect()
}

fn numa_node(dir: &Path, id: u32) -> Option<NumaNode> {
    let dir = dir.join(format!("node{id}"));
    let memory = MemInfo::parse(text::read(&dir.join("meminfo")).ok()?.as_bytes());
    let pages = |size: &str| {
        let path = dir.join(format!("hugepages/hugepages-{size}/nr_hugepages"));
        word(path).and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    Some(NumaNode { id, memory, huge_pages_2mi: pages("2048kB"), huge_pages_1gi: pages("1048576kB") })
}

#[cfg(test)]
mod tests;
