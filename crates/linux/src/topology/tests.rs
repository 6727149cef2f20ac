use super::*;

struct Tree {
    dir: tempfile::TempDir,
    root: Root,
}

impl Tree {
    fn new() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        Tree { dir, root }
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.dir.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A CPU with the id its socket gives its core.
    fn cpu(&self, id: u32, socket: i32, core: u32, siblings: &str) {
        let topology = format!("devices/system/cpu/cpu{id}/topology");
        self.put(&format!("{topology}/physical_package_id"), &format!("{socket}\n"));
        self.put(&format!("{topology}/core_id"), &format!("{core}\n"));
        if !siblings.is_empty() {
            self.put(&format!("{topology}/thread_siblings_list"), &format!("{siblings}\n"));
        }
    }

    fn cache(&self, cpu: u32, index: u32, level: u32, kind: &str, id: u32) {
        let cache = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
        self.put(&format!("{cache}/level"), &format!("{level}\n"));
        self.put(&format!("{cache}/type"), &format!("{kind}\n"));
        self.put(&format!("{cache}/id"), &format!("{id}\n"));
    }

    fn rows(&self) -> Vec<(u32, u32, u32, u32)> {
        cpus(&self.root).unwrap().iter().map(|cpu| (cpu.id, cpu.core, cpu.socket, cpu.node)).collect()
    }
}

#[test]
fn two_sockets_with_hyper_threading() {
    let tree = Tree::new();
    tree.put("devices/system/cpu/online", "0-7\n");
    tree.put("devices/system/node/node0/cpulist", "0-1,4-5\n");
    tree.put("devices/system/node/node1/cpulist", "2-3,6-7\n");
    for id in 0..8 {
        // The core ids of a socket have gaps, and begin anew in the next one.
        let (socket, core) = if id % 4 < 2 { (0, id % 4 * 4) } else { (1, (id % 4 - 2) * 4) };
        tree.cpu(id, socket, core, &format!("{},{}", id % 4, id % 4 + 4));
        tree.cache(id, 0, 1, "Data", id % 4);
        tree.cache(id, 1, 1, "Instruction", 99);
        tree.cache(id, 3, 3, "Unified", socket.unsigned_abs());
    }
    let want = [
        (0, 0, 0, 0),
        (4, 0, 0, 0),
        (1, 1, 0, 0),
        (5, 1, 0, 0),
        (2, 2, 1, 1),
        (6, 2, 1, 1),
        (3, 3, 1, 1),
        (7, 3, 1, 1),
    ];
    assert_eq!(tree.rows(), want);
    let cpus = cpus(&tree.root).unwrap();
    assert_eq!((cpus[7].l1, cpus[7].l3), (3, 1));
}

#[test]
fn offline_cpus_are_left_out() {
    // koordlet-observe#13.2.B48: a CPU without a node is on node 0, an offline one is nowhere, no L3 is 0. One without L2,
    // whose row of lscpu upstream cannot read, is a CPU like others.
    let tree = Tree::new();
    tree.put("devices/system/cpu/online", "0,2-3\n");
    for id in [0, 2, 3] {
        tree.cpu(id, 0, id, "");
    }
    for (cpu, index, level, kind) in [
        (2, 0, 1, "Data"),
        (2, 1, 1, "Instruction"),
        (2, 2, 2, "Unified"),
        (3, 0, 1, "Data"),
        (3, 1, 1, "Instruction"),
    ] {
        tree.cache(cpu, index, level, kind, 1);
    }
    fs::create_dir_all(tree.root.sys.join("devices/system/cpu/cpu1")).unwrap();
    assert_eq!(tree.rows(), [(0, 0, 0, 0), (2, 1, 0, 0), (3, 2, 0, 0)]);
    let caches: Vec<(u32, u32)> = cpus(&tree.root).unwrap().iter().map(|cpu| (cpu.l1, cpu.l3)).collect();
    assert_eq!(caches, [(0, 0), (1, 0), (1, 0)]);
}

#[test]
fn a_machine_that_tells_nothing_has_cores_of_one_thread() {
    let tree = Tree::new();
    for name in ["cpu0", "cpu1", "cpufreq", "cpuidle"] {
        fs::create_dir_all(tree.root.sys.join("devices/system/cpu").join(name)).unwrap();
    }
    assert_eq!(tree.rows(), [(0, 0, 0, 0), (1, 1, 0, 0)]);
}

#[test]
fn arm_packages_without_an_id_are_told_by_their_cpus() {
    let tree = Tree::new();
    tree.put("devices/system/cpu/online", "0-3\n");
    for id in 0..4 {
        tree.cpu(id, -1, id % 2, "");
        let package = if id < 2 { "0-1\n" } else { "2-3\n" };
        tree.put(&format!("devices/system/cpu/cpu{id}/topology/package_cpus_list"), package);
    }
    assert_eq!(tree.rows(), [(0, 0, 0, 0), (1, 1, 0, 0), (2, 2, 1, 0), (3, 3, 1, 0)]);
}

#[test]
fn no_cpu_directory_is_an_error() {
    let tree = Tree::new();
    assert!(cpus(&tree.root).is_err());
    tree.put("devices/system/cpu/kernel_max", "0");
    assert!(cpus(&tree.root).is_err());
}

#[test]
fn numa_nodes_with_gaps() {
    let tree = Tree::new();
    // koordlet-observe#13.2.B49: no node at all.
    assert!(numa_nodes(&tree.root).is_empty());
    for id in [2, 0] {
        let node = format!("bus/node/devices/node{id}");
        tree.put(
            &format!("{node}/meminfo"),
            &format!("Node {id} MemTotal: 1000 kB\nNode {id} MemFree: 400 kB\n"),
        );
        tree.put(&format!("{node}/hugepages/hugepages-2048kB/nr_hugepages"), "512\n");
        tree.put(&format!("{node}/hugepages/hugepages-32768kB/nr_hugepages"), "9\n");
    }
    fs::create_dir_all(tree.root.sys.join("bus/node/devices/node7")).unwrap();
    fs::create_dir_all(tree.root.sys.join("bus/node/devices/nodex")).unwrap();
    // koordlet-observe#13.2.B26: both are told, for gaps are normal.
    let ids = |tree: &Tree| numa_nodes(&tree.root).iter().map(|node| node.id).collect::<Vec<u32>>();
    assert_eq!(ids(&tree), [0, 2]);
    let node = &numa_nodes(&tree.root)[1];
    assert_eq!((node.memory.total_kib, node.huge_pages_2mi, node.huge_pages_1gi), (1000, 512, 0));
    // koordlet-observe#13.2.B49
    tree.put("devices/system/node/has_generic_initiator", "2\n");
    assert_eq!(ids(&tree), [0]);
}

#[test]
fn this_machine_has_a_topology() {
    let root = Root::host("/");
    let cpus = cpus(&root).unwrap();
    assert!(!cpus.is_empty());
    let cores: BTreeSet<u32> = cpus.iter().map(|cpu| cpu.core).collect();
    assert_eq!(
        cores.into_iter().max(),
        Some(u32::try_from(cpus.iter().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len()).unwrap() - 1)
    );
}
