//! What a node is made of, as /proc and /sys tell it.

use koord_api::cpuset::CpuSet;

use super::File;
use crate::nodes::shape::Shape;

/// Ticks of /proc/stat in a second, everywhere.
const TICK_NANOS: u64 = 10_000_000;
/// CPUs have been up for a day when we begin; so the numbers do not soon get longer, and a reader who comes in the
/// middle of a write sees whole ones.
const TICKS_BEFORE: u64 = 10_000_000;

/// Files that never change.
pub(crate) fn machine(shape: &Shape) -> Vec<File> {
    let topology = shape.topology();
    let all = topology.all();
    let mut files = vec![
        ("proc/cpuinfo".to_owned(), cpu_info(all)),
        ("proc/self/uid_map".to_owned(), "         0          0 4294967295\n".to_owned()),
        ("sys/devices/system/cpu/online".to_owned(), format!("{all}\n")),
        ("sys/devices/system/cpu/smt/active".to_owned(), format!("{}\n", u32::from(shape.threads > 1))),
        ("kubelet/cpu_manager_state".to_owned(), state_of_cpu_manager()),
    ];
    for (node, cpus) in topology.nodes() {
        files.push((format!("sys/devices/system/node/node{node}/cpulist"), format!("{cpus}\n")));
    }
    for cpu in topology.cpus() {
        let list = |cpus: Option<&CpuSet>| cpus.map(ToString::to_string).unwrap_or_default();
        let dir = format!("sys/devices/system/cpu/cpu{}", cpu.id);
        let (core, socket) = (list(topology.siblings(cpu.id)), list(topology.socket(cpu.socket)));
        files.extend([
            (format!("{dir}/topology/physical_package_id"), format!("{}\n", cpu.socket)),
            (format!("{dir}/topology/core_id"), format!("{}\n", cpu.core)),
            (format!("{dir}/topology/thread_siblings_list"), format!("{core}\n")),
            (format!("{dir}/topology/core_siblings_list"), format!("{socket}\n")),
        ]);
        for (index, level, cpus) in [(0, 1, &core), (3, 3, &socket)] {
            let dir = format!("{dir}/cache/index{index}");
            files.push((format!("{dir}/level"), format!("{level}\n")));
            files.push((format!("{dir}/type"), "Unified\n".to_owned()));
            files.push((format!("{dir}/shared_cpu_list"), format!("{cpus}\n")));
        }
    }
    files
}

fn cpu_info(cpus: &CpuSet) -> String {
    let one = |cpu: u32| {
        format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Koord Sandbox CPU\nflags\t\t: fpu\n\n"
        )
    };
    cpus.iter().map(one).collect()
}

/// Kubelet pins nobody.
fn state_of_cpu_manager() -> String {
    "{\"policyName\":\"none\",\"defaultCpuSet\":\"\",\"checksum\":1353318690}".to_owned()
}

/// /proc/stat, when each CPU has worked so long.
pub(super) fn stat(busy: &[u64], passed: u64) -> String {
    let line = |name: &str, busy: u64, passed: u64, before: u64| {
        let (user, idle) = (busy / TICK_NANOS, passed.saturating_sub(busy) / TICK_NANOS);
        format!("{name} {} 0 0 {} 0 0 0 0 0 0\n", before + user, before + idle)
    };
    let count = u64::try_from(busy.len()).unwrap_or(1);
    let sum: u64 = busy.iter().sum();
    let mut text = line("cpu ", sum, passed.saturating_mul(count), TICKS_BEFORE.saturating_mul(count));
    for (cpu, busy) in busy.iter().enumerate() {
        text.push_str(&line(&format!("cpu{cpu}"), *busy, passed, TICKS_BEFORE));
    }
    text
}

/// Memory of the node and of each NUMA node, when so many bytes are used.
pub(super) fn memory(shape: &Shape, used: i64) -> Vec<File> {
    let nodes = shape.numa_nodes().max(1);
    let kib = |bytes: i64| bytes / 1024;
    let (total, used) = (kib(shape.memory), kib(used.min(shape.memory)));
    // A part of what nobody uses holds files that were read once.
    let available = total - used;
    let cached = (total / 20).min(available);
    let text = format!(
        "MemTotal: {total} kB\nMemFree: {} kB\nMemAvailable: {available} kB\nBuffers: 0 kB\nCached: {cached} kB\n\
         Active(file): 0 kB\nInactive(file): {cached} kB\nSReclaimable: 0 kB\n",
        available - cached
    );
    let mut files = vec![("proc/meminfo".to_owned(), text)];
    let part = |amount: i64| amount / i64::from(nodes);
    for node in 0..nodes {
        let lines = [
            ("MemTotal", part(total)),
            ("MemFree", part(available - cached)),
            ("Active(file)", 0),
            ("Inactive(file)", part(cached)),
            ("SReclaimable", 0),
        ];
        let text: String = lines.iter().map(|(key, kib)| format!("Node {node} {key}: {kib} kB\n")).collect();
        files.push((format!("sys/bus/node/devices/node{node}/meminfo"), text));
    }
    files
}
